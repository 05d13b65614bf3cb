//! The strict reference model: the contract in plain collections behind one lock. For tests, and to compare every engine with.

mod claims;
mod lanes;
mod leases;
mod outbox;
mod reads;
mod state;
mod threads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_domain::{EventId, Fence, ItemId, MessageId, ThreadId};
use state::{State, lane_number};
use tokio::sync::Notify;

use super::{
    Accepted, Arrival, Changed, Copies, Forget, Forgotten, Inbox, InboxLease, LaneRef, LeaseRequest, NewMessage, Outbox,
    OutboxLease, OutboxLeaseRequest, Outcome, Pieces, Promise, Purged, Redrive, Registers, SendOutcome, Settled, StoreError,
    Submitted, Upkeep,
};
use crate::clock::Clock;
use crate::pieces::Piece;
use crate::registers;

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

    /// Ends the leases of the process that is gone, as an engine with a single owner does when it opens its data after a crash.
    pub fn reopen(&self) {
        let now = self.clock.now_ms();
        let mut state = self.lock();
        state.end_all_leases(now);
        state.follow_clock(now);
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
impl Inbox for MemoryStore {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let accepted = self.lock().accept(&arrival, self.now());
        self.work.notify_waiters();
        Ok(accepted)
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.lock().note_copies(&copies);
        Ok(())
    }

    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
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

    async fn mark_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        Ok(self.lock().mark_read(thread))
    }
}

#[async_trait]
impl Outbox for MemoryStore {
    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError> {
        let submitted = self.lock().submit(message, self.now())?;
        self.work.notify_waiters();
        Ok(submitted)
    }

    async fn lease_outbox(&self, ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        Ok(self.lock().lease_outbox(&ask, self.now()))
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        Ok(self.lock().outbox.begin(lane_number(lane), fence, self.now()))
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        let until = self.now() + hold_ms;
        let outbox = &mut self.lock().outbox;
        Ok(leases.into_iter().map(|(lane, fence)| outbox.extend(lane_number(lane), fence, until)).collect())
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        let settled = self.lock().settle_outbox(lane, fence, outcome, self.now());
        self.work.notify_waiters();
        Ok(settled)
    }

    async fn settle_late(&self, id: MessageId, attempt: u32, outcome: SendOutcome) -> Result<Changed, StoreError> {
        let changed = self.lock().settle_late(id, attempt, &outcome, self.now());
        self.work.notify_waiters();
        Ok(changed)
    }

    async fn retry_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        let changed = self.lock().retry_message(id, self.now());
        self.work.notify_waiters();
        Ok(changed)
    }

    async fn cancel_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        Ok(self.lock().cancel_message(id, self.now()))
    }

    async fn pause_account(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        let (now, mut state) = (self.now(), self.lock());
        state.outbox.pause(channel, account, why, now);
        drop(state);
        self.work.notify_waiters();
        Ok(())
    }

    fn limit_outbox(&self, most: usize) {
        self.lock().outbox.most = Some(most);
    }
}

#[async_trait]
impl Registers for MemoryStore {
    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        registers::check(name, Some(value), None)?;
        Ok(self.lock().remember(name, value, self.now()))
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let keep_ms = registers::check(name, new, keep_ms)?;
        Ok(self.lock().amend(name, expected, new, keep_ms, self.now()))
    }
}

#[async_trait]
impl Pieces for MemoryStore {
    async fn put_piece(&self, name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> Result<(), StoreError> {
        let piece = Piece::new(name, n, bytes, keep_ms, self.now())?;
        self.lock().pieces.insert((name.to_owned(), n), piece);
        Ok(())
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        Ok(self.lock().pieces.get(&(name.to_owned(), n)).map(|piece| piece.bytes.clone()))
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        self.lock().pieces.retain(|(of, _), _| of != name);
        Ok(())
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        for piece in self.lock().pieces.values() {
            *held.entry(piece.channel().to_owned()).or_default() += piece.bytes.len() as u64;
        }
        Ok(held.into_iter().collect())
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        Ok(self.lock().purge(retention, max, self.now()))
    }

    async fn forget(&self, what: Forget) -> Result<Forgotten, StoreError> {
        Ok(self.lock().forget(what))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn promise(&self) -> Promise {
        Promise::Degraded(vec!["memory: keeps nothing on disk; everything accepted is lost when hapax stops".to_owned()])
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.work).notified_owned())
    }
}
