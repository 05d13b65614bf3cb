//! The yardstick: takes everything in and keeps nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::domain::{EventId, Fence, ItemId, ids};
use crate::store::{
    Accepted, Answer, Arrival, Copies, EventDetail, EventQuery, EventRow, InboxLease, InboxQuery, InboxRow, LaneRef, LeaseAsk,
    Outcome, Page, Promise, Purged, Reads, Redrive, Settled, Stats, Store, StoreError,
};

#[derive(Default)]
pub(super) struct NoStore(AtomicU64);

#[async_trait]
impl Store for NoStore {
    async fn accept(&self, arrival: Arrival) -> Result<Vec<Accepted>, StoreError> {
        let new = |_| Accepted::New(EventId(ids::numbered(0, self.0.fetch_add(1, Ordering::Relaxed))));
        Ok(arrival.events.iter().map(new).collect())
    }

    async fn note_copies(&self, _: Vec<Copies>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lease_inbox(&self, _: LeaseAsk) -> Result<Vec<InboxLease>, StoreError> {
        Ok(vec![])
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, _: i64) -> Result<Vec<bool>, StoreError> {
        Ok(vec![false; leases.len()])
    }

    async fn settle_inbox(&self, _: LaneRef, _: Fence, _: Outcome) -> Result<Settled, StoreError> {
        Ok(Settled::Lost)
    }

    async fn redrive(&self, _: Redrive, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn replay(&self, _: EventId) -> Result<Option<ItemId>, StoreError> {
        Ok(None)
    }

    async fn purge(&self, _: &[(String, i64)], _: usize) -> Result<Purged, StoreError> {
        Ok(Purged::default())
    }

    async fn remember(&self, _: &str, value: &str) -> Result<String, StoreError> {
        Ok(value.to_owned())
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn promise(&self) -> Promise {
        Promise::Degraded(vec!["keeps nothing at all".to_owned()])
    }
}

#[async_trait]
impl Reads for NoStore {
    async fn events(&self, _: EventQuery) -> Result<Page<EventRow>, StoreError> {
        Ok(Page { rows: vec![], more: false })
    }

    async fn event(&self, _: EventId) -> Result<Option<EventDetail>, StoreError> {
        Ok(None)
    }

    async fn inbox(&self, _: InboxQuery) -> Result<Page<InboxRow>, StoreError> {
        Ok(Page { rows: vec![], more: false })
    }

    async fn answer(&self, _: EventId) -> Result<Option<Answer>, StoreError> {
        Ok(None)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Ok(Stats::default())
    }
}
