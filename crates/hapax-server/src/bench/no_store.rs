//! The yardsticks: takes everything in and keeps nothing, or nothing but the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use hapax_domain::{EventId, Fence, ItemId, MessageId, ThreadId, ids};
use hapax_store::{
    Accepted, Answer, Arrival, ByHand, Changed, Copies, EntryId, EventDetail, EventQuery, EventRow, InboxLease, InboxQuery,
    InboxRow, LaneRef, LeaseAsk, MessageRow, NewMessage, OutboxAsk, OutboxLease, OutboxQuery, Outcome, Page, PausedAccount,
    Promise, Purged, Reads, Redrive, SendOutcome, Settled, Stats, Store, StoreError, Submitted, ThreadMessage, ThreadQuery,
    ThreadRow,
};

#[derive(Default)]
pub(super) struct NoStore {
    last: AtomicU64,
    /// Takes each key by a round trip of its own.
    by_hand: Option<Arc<dyn ByHand>>,
}

impl NoStore {
    pub(super) fn claiming(by_hand: Arc<dyn ByHand>) -> Self {
        Self { by_hand: Some(by_hand), ..Self::default() }
    }
}

#[async_trait]
impl Store for NoStore {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let mut accepted = Vec::with_capacity(arrival.events.len());
        for new in &arrival.events {
            let id = EventId(ids::numbered(0, self.last.fetch_add(1, Ordering::Relaxed)));
            let won = match &self.by_hand {
                None => true,
                Some(by_hand) => by_hand.claim(&new.event.key.0).await?,
            };
            accepted.push(if won { Accepted::New(id) } else { Accepted::Duplicate(id) });
        }
        Ok(accepted)
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

    async fn submit(&self, _: NewMessage) -> Result<Submitted, StoreError> {
        Err(StoreError::Refused("not here".to_owned()))
    }

    async fn lease_outbox(&self, _: OutboxAsk) -> Result<Vec<OutboxLease>, StoreError> {
        Ok(vec![])
    }

    async fn begin(&self, _: LaneRef, _: Fence) -> Result<Settled, StoreError> {
        Ok(Settled::Lost)
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, _: i64) -> Result<Vec<bool>, StoreError> {
        Ok(vec![false; leases.len()])
    }

    async fn settle_outbox(&self, _: LaneRef, _: Fence, _: SendOutcome) -> Result<Settled, StoreError> {
        Ok(Settled::Lost)
    }

    async fn retry_message(&self, _: MessageId) -> Result<Changed, StoreError> {
        Ok(Changed::NotFound)
    }

    async fn cancel_message(&self, _: MessageId) -> Result<Changed, StoreError> {
        Ok(Changed::NotFound)
    }

    async fn pause_account(&self, _: &str, _: &str, _: Option<&str>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn mark_read(&self, _: &ThreadId) -> Result<bool, StoreError> {
        Ok(false)
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

    async fn amend(&self, _: &str, _: Option<&str>, new: Option<&str>) -> Result<Option<String>, StoreError> {
        Ok(new.map(str::to_owned))
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn limit_outbox(&self, _most: usize) {}

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

    async fn threads(&self, _: ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        Ok(Page { rows: vec![], more: false })
    }

    async fn thread(&self, _: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        Ok(None)
    }

    async fn thread_messages(&self, _: &ThreadId, _: Option<EntryId>, _: usize) -> Result<Page<ThreadMessage>, StoreError> {
        Ok(Page { rows: vec![], more: false })
    }

    async fn message(&self, _: MessageId) -> Result<Option<MessageRow>, StoreError> {
        Ok(None)
    }

    async fn message_by_provider_id(&self, _: &str, _: &str) -> Result<Option<MessageId>, StoreError> {
        Ok(None)
    }

    async fn outbox(&self, _: OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        Ok(Page { rows: vec![], more: false })
    }

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        Ok(vec![])
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Ok(Stats::default())
    }
}
