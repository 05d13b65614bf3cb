//! The strict reference model: the contract in plain collections behind one lock. For tests, and to compare every engine with.

mod reads;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::{
    Accepted, Arrival, Copies, InboxLease, LaneRef, LeaseAsk, Outcome, Promise, Purged, Redrive, Settled, Store, StoreError,
};
use crate::clock::Clock;
use crate::domain::{EventId, Fence, ItemId};
use state::State;

/// All state in memory; gone with the process. Clones are further instances on the same data.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    work: Arc<Notify>,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::default(), clock, work: Arc::default() }
    }

    /// Ends all leases, as an engine with a single owner does when it opens its data after a crash.
    pub fn reopen(&self) {
        let now = self.clock.now_ms();
        self.lock().end_all_leases(now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is only ever changed in whole steps, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> i64 {
        self.clock.now_ms()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn accept(&self, arrival: Arrival) -> Result<Vec<Accepted>, StoreError> {
        let accepted = self.lock().accept(arrival, self.now());
        self.work.notify_waiters();
        Ok(accepted)
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.lock().note_copies(&copies);
        Ok(())
    }

    async fn lease_inbox(&self, ask: LeaseAsk) -> Result<Vec<InboxLease>, StoreError> {
        Ok(self.lock().lease(&ask, self.now()))
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        let until = self.now() + hold_ms;
        let mut state = self.lock();
        Ok(leases.into_iter().map(|(lane, fence)| state.extend(lane, fence, until)).collect())
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        let settled = self.lock().settle(lane, fence, outcome, self.now());
        self.work.notify_waiters();
        Ok(settled)
    }

    async fn redrive(&self, which: Redrive, max: usize) -> Result<usize, StoreError> {
        let moved = self.lock().redrive(&which, max, self.now());
        self.work.notify_waiters();
        Ok(moved)
    }

    async fn replay(&self, event: EventId) -> Result<Option<ItemId>, StoreError> {
        let item = self.lock().replay(event, self.now());
        self.work.notify_waiters();
        Ok(item)
    }

    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        Ok(self.lock().purge(retention, max, self.now()))
    }

    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        Ok(self.lock().remember(name, value))
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.work).notified_owned())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn promise(&self) -> Promise {
        Promise::Degraded(vec!["memory: keeps nothing on disk; everything accepted is lost when hapax stops".to_owned()])
    }
}
