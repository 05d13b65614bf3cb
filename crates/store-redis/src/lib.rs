//! Redis, and Valkey: one script per method, each a whole atomic step on the server.
//!
//! All keys of an account carry its number as their hash tag, so that a script finds everything in one slot; `scripts/` says what the
//! keys hold. A registry of accounts leads methods that name none to all of them. Time is the server's.
//!
//! What Redis can promise depends on its settings, see `settings` and `docs/redis.md`.

mod address;
mod admin;
mod claims;
mod export;
mod foreign;
mod import;
mod inbox;
mod link;
mod message_reads;
mod moved;
mod naive_claim;
mod node;
mod nodes;
mod notifications;
mod open;
mod outbox;
mod pieces;
mod place;
mod reads;
mod registry;
mod row;
mod script;
mod settings;
mod urgent;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use hapax_domain::{EventId, Fence, ItemId, MessageId, ThreadId};
use hapax_store::{
    Accepted, Arrival, Changed, Copies, Forget, Forgotten, Inbox, InboxLease, LaneRef, LeaseRequest, Moving, NewMessage, Outbox,
    OutboxLease, OutboxLeaseRequest, Outcome, Promise, Purged, Redrive, SendOutcome, Settled, StoreError, Submitted, Upkeep,
};

pub use foreign::read_keys;
pub use naive_claim::naive_claim;
pub use open::open;

/// One instance on the data of a server. Clones share the connection.
#[derive(Clone)]
pub struct RedisStore {
    link: link::Link,
    registry: Arc<registry::Registry>,
    notifications: Arc<notifications::Notifications>,
    promise: Promise,
    filling: Arc<std::sync::Mutex<import::Filling>>,
    outbox_max: Arc<AtomicUsize>,
    claims_max: Arc<AtomicUsize>,
}

impl RedisStore {
    fn outbox_max(&self) -> usize {
        self.outbox_max.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Inbox for RedisStore {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        self.accept_all(&arrival).await
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.add_copies(&copies).await
    }

    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        self.lease_items(&ask).await
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.extend_all("i", &leases, hold_ms).await
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        self.settle_item(lane, fence, outcome).await
    }

    async fn redrive(&self, which: Redrive, max: usize) -> Result<usize, StoreError> {
        self.redrive_some(&which, max).await
    }

    async fn replay(&self, event: EventId) -> Result<Option<ItemId>, StoreError> {
        self.replay_event(event).await
    }

    async fn mark_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        self.mark_thread_read(thread).await
    }
}

#[async_trait]
impl Outbox for RedisStore {
    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError> {
        self.submit_one(&message).await
    }

    async fn lease_outbox(&self, ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        self.lease_messages(&ask).await
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        self.begin_sending(lane, fence).await
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.extend_all("m", &leases, hold_ms).await
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        self.settle_message(lane, fence, outcome).await
    }

    async fn settle_late(&self, id: MessageId, attempt: u32, outcome: SendOutcome) -> Result<Changed, StoreError> {
        self.settle_message_late(id, attempt, outcome).await
    }

    async fn retry_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        self.change_message(&script::RETRY_MESSAGE, id).await
    }

    async fn cancel_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        self.change_message(&script::CANCEL_MESSAGE, id).await
    }

    async fn pause_account(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        self.pause(channel, account, why).await
    }

    fn limit_outbox(&self, most: usize) {
        self.outbox_max.store(most, Ordering::Relaxed);
    }
}

#[async_trait]
impl Upkeep for RedisStore {
    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        self.purge_some(retention, max).await
    }

    async fn forget(&self, what: Forget) -> Result<Forgotten, StoreError> {
        self.forget_words(&what).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.prove_writable().await
    }

    fn promise(&self) -> Promise {
        self.promise.clone()
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.notifications.work).notified_owned())
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Ok(self)
    }
}
