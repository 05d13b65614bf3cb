//! A server that could not be reached when hapax started: a store that is away until it has been opened.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use hapax_domain::{EventId, Fence, ItemId, MessageId, ThreadId};
use tokio::sync::watch;

use super::{
    Accepted, Answer, Arrival, Changed, Copies, EntryId, EventDetail, EventQuery, EventRow, InboxLease, InboxQuery, InboxRow,
    LaneRef, LeaseAsk, MessageRow, Moving, NewMessage, OutboxAsk, OutboxLease, OutboxQuery, Outcome, Page, PausedAccount,
    Promise, Purged, Reads, Redrive, SendOutcome, Settled, Spelling, Stats, Store, StoreError, Submitted, ThreadMessage,
    ThreadQuery, ThreadRow,
};

/// Opens the store, if it is there by now.
type Open = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync>;

/// Between two tries to open it, longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub struct Awaited {
    opened: OnceLock<Arc<dyn Store>>,
    came: watch::Sender<bool>,
    /// Why it could not be opened the last time.
    why: Mutex<String>,
    /// Learnt before it was there.
    spelling: Mutex<Option<Spelling>>,
    outbox_max: Mutex<Option<usize>>,
}

impl Awaited {
    /// Tries to open it until that succeeds, or nobody has it any more. `why` it could not be opened the first time.
    pub fn store(why: &StoreError, open: Open) -> Arc<Self> {
        let this = Arc::new(Self {
            opened: OnceLock::new(),
            came: watch::Sender::new(false),
            why: Mutex::new(why.to_string()),
            spelling: Mutex::default(),
            outbox_max: Mutex::default(),
        });
        tokio::spawn(keep_opening(Arc::downgrade(&this), open));
        this
    }

    fn there(&self) -> Result<&dyn Store, StoreError> {
        let away = || {
            let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
            StoreError::Failed { what: "the store was not there when hapax started", retryable: true, source: why.into() }
        };
        self.opened.get().map(|store| &**store).ok_or_else(away)
    }

    fn set_why(&self, error: &StoreError) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let now = error.to_string();
        if *why != now {
            tracing::warn!(error = %now, "the store cannot be opened");
            *why = now;
        }
    }

    fn set_opened(&self, store: Arc<dyn Store>) {
        // Under the lock, so that a spelling learnt at this moment reaches the store on one way or the other.
        let mut spelling = self.spelling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spelling) = spelling.take() {
            store.learn_spelling(spelling);
        }
        let mut outbox_max = self.outbox_max.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = outbox_max.take() {
            store.limit_outbox(most);
        }
        // Nobody else sets it.
        let _ = self.opened.set(store);
        drop((spelling, outbox_max));
        tracing::info!("the store is there, and open");
        self.came.send_replace(true);
    }
}

/// A store that refuses us is asked again too: whoever put it back may not be done yet.
async fn keep_opening(store: Weak<Awaited>, open: Open) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if store.strong_count() == 0 {
            return;
        }
        let opened = open().await;
        let Some(store) = store.upgrade() else { return };
        match opened {
            Ok(opened) => return store.set_opened(opened),
            Err(error) => store.set_why(&error),
        }
    }
}

#[async_trait]
impl Reads for Awaited {
    async fn events(&self, query: EventQuery) -> Result<Page<EventRow>, StoreError> {
        self.there()?.events(query).await
    }

    async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.there()?.event(id).await
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Page<InboxRow>, StoreError> {
        self.there()?.inbox(query).await
    }

    async fn answer(&self, id: EventId) -> Result<Option<Answer>, StoreError> {
        self.there()?.answer(id).await
    }

    async fn threads(&self, query: ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        self.there()?.threads(query).await
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.there()?.thread(id).await
    }

    async fn thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError> {
        self.there()?.thread_messages(id, before, limit).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        self.there()?.message(id).await
    }

    async fn message_by_provider_id(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError> {
        self.there()?.message_by_provider_id(account, provider_id).await
    }

    async fn outbox(&self, query: OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        self.there()?.outbox(query).await
    }

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        self.there()?.paused_accounts().await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.there()?.stats().await
    }
}

#[async_trait]
impl Store for Awaited {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        self.there()?.accept(arrival).await
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.there()?.note_copies(copies).await
    }

    async fn lease_inbox(&self, ask: LeaseAsk) -> Result<Vec<InboxLease>, StoreError> {
        self.there()?.lease_inbox(ask).await
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.there()?.extend(leases, hold_ms).await
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        self.there()?.settle_inbox(lane, fence, outcome).await
    }

    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError> {
        self.there()?.submit(message).await
    }

    async fn lease_outbox(&self, ask: OutboxAsk) -> Result<Vec<OutboxLease>, StoreError> {
        self.there()?.lease_outbox(ask).await
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        self.there()?.begin(lane, fence).await
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.there()?.extend_outbox(leases, hold_ms).await
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        self.there()?.settle_outbox(lane, fence, outcome).await
    }

    async fn retry_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        self.there()?.retry_message(id).await
    }

    async fn cancel_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        self.there()?.cancel_message(id).await
    }

    async fn pause_account(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        self.there()?.pause_account(channel, account, why).await
    }

    async fn mark_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        self.there()?.mark_read(thread).await
    }

    async fn redrive(&self, which: Redrive, max: usize) -> Result<usize, StoreError> {
        self.there()?.redrive(which, max).await
    }

    async fn replay(&self, event: EventId) -> Result<Option<ItemId>, StoreError> {
        self.there()?.replay(event).await
    }

    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        self.there()?.purge(retention, max).await
    }

    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        self.there()?.remember(name, value).await
    }

    async fn amend(&self, name: &str, expected: Option<&str>, new: Option<&str>) -> Result<Option<String>, StoreError> {
        self.there()?.amend(name, expected, new).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.there()?.ping().await
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        if let Some(store) = self.opened.get() {
            return store.wait();
        }
        let mut came = self.came.subscribe();
        Box::pin(async move {
            // The sender is gone only with the store, and then there is nothing to wait for.
            let _ = came.wait_for(|came| *came).await;
        })
    }

    fn promise(&self) -> Promise {
        let away = || Promise::Degraded(vec!["the server has not been reached since hapax started".to_owned()]);
        self.opened.get().map_or_else(away, |store| store.promise())
    }

    fn limit_outbox(&self, most: usize) {
        let mut kept = self.outbox_max.lock().unwrap_or_else(PoisonError::into_inner);
        match self.opened.get() {
            Some(store) => store.limit_outbox(most),
            None => *kept = Some(most),
        }
    }

    fn learn_spelling(&self, spelling: Spelling) {
        let mut kept = self.spelling.lock().unwrap_or_else(PoisonError::into_inner);
        match self.opened.get() {
            Some(store) => store.learn_spelling(spelling),
            None => *kept = Some(spelling),
        }
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        self.there()?.moving()
    }
}
