//! What can be asked of a store without changing it. Lists are paged by key and bounded.

use async_trait::async_trait;
use bytes::Bytes;
use hapax_domain::{EventId, Fence, ItemId, Kind, MessageId, ThreadId};

use super::{
    Answer, ClaimCounts, EntryId, KeptHeaders, MessageRow, OutboxQuery, PausedAccount, StoreError, ThreadMessage, ThreadQuery,
    ThreadRow,
};

#[async_trait]
pub trait Reads: Sync {
    /// Newest first. `before` is the last id of the page before.
    async fn events(&self, query: EventQuery) -> Result<Page<EventRow>, StoreError>;

    /// Events with their bodies, copies and attempts: all that their stories are made of. One for each id, in order; nothing for those that are
    /// not there. They are asked for together, so not more of them than may be held at once.
    async fn details(&self, ids: Vec<EventId>) -> Result<Vec<Option<EventDetail>>, StoreError>;

    /// One of them.
    async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        Ok(self.details(vec![id]).await?.pop().flatten())
    }

    /// Open items, oldest first. `after` is the last id of the page before.
    async fn inbox(&self, query: InboxQuery) -> Result<Page<InboxRow>, StoreError>;

    /// The items of a channel that somebody works on now: leased, and the lease has not run out. By item, at most
    /// [`hapax_domain::limits::WITH_BOT_MAX`].
    async fn with_bot(&self, channel: &str) -> Result<Vec<WithBot>, StoreError>;

    /// What the target answered to this event, if it was delivered and the answer was kept.
    async fn answer(&self, id: EventId) -> Result<Option<Answer>, StoreError>;

    /// Newest first.
    async fn threads(&self, query: ThreadQuery) -> Result<Page<ThreadRow>, StoreError>;

    /// By any name of the peer.
    async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRow>, StoreError>;

    /// The thread of whoever goes by this name, with all names of the person. Not what was said under the name before it was known whose it is:
    /// that stays a thread of its own, and is what [`Reads::thread`] gives.
    async fn person(&self, name: &ThreadId) -> Result<Option<ThreadRow>, StoreError>;

    /// The messages of a thread, newest first, back to the first one that was purged; `before` is the last entry of the page before.
    async fn thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError>;

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError>;

    /// The message that the provider calls so.
    async fn message_by_provider_id(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError>;

    /// Messages in the outbox, oldest first.
    async fn outbox(&self, query: OutboxQuery) -> Result<Page<MessageRow>, StoreError>;

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError>;

    async fn stats(&self) -> Result<Stats, StoreError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// True when there are rows after the last one.
    pub more: bool,
}

impl<T> Page<T> {
    /// Where the next page begins, if there is one.
    pub fn next<P>(&self, place: impl FnOnce(&T) -> P) -> Option<P> {
        self.rows.last().filter(|_| self.more).map(place)
    }
}

#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    pub channel: Option<String>,
    pub kind: Option<Kind>,
    pub thread: Option<hapax_domain::ThreadId>,
    pub before: Option<EventId>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct InboxQuery {
    pub channel: Option<String>,
    /// Only parked and quarantined (true), only those on their way (false), or all.
    pub parked: Option<bool>,
    pub after: Option<ItemId>,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    pub id: EventId,
    pub channel: String,
    pub kind: Kind,
    pub account: String,
    /// The provider's id.
    pub provider_id: String,
    pub peer: Option<String>,
    pub echo: bool,
    pub received_ms: i64,
    pub at_ms: Option<i64>,
    pub state: EventState,
    pub body_bytes: u64,
}

/// Where an event stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// In line, or being delivered.
    Waiting,
    Delivered,
    Parked,
    Quarantined,
    /// Recorded and, by the channel's `deliver`, meant for nobody.
    Kept,
}

impl EventState {
    pub fn name(self) -> &'static str {
        match self {
            EventState::Waiting => "waiting",
            EventState::Delivered => "delivered",
            EventState::Parked => "parked",
            EventState::Quarantined => "quarantined",
            EventState::Kept => "kept",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDetail {
    pub row: EventRow,
    pub headers: KeptHeaders,
    pub body: Bytes,
    pub copies: Option<Copies>,
    /// By fence, so in the order leased; replays included.
    pub attempts: Vec<AttemptRow>,
    /// The items that are still open: its own and its replays.
    pub open: Vec<InboxRow>,
}

/// Suppressed copies of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub event: EventId,
    pub copies: u64,
    /// How many of the copies had another content.
    pub conflicts: u64,
    pub last_ms: i64,
    /// The first event that was kept beside it, see [`super::keep_beside`].
    pub kept: Option<EventId>,
}

impl Copies {
    /// Adds what else was counted. The first that was kept stays.
    pub fn add(&mut self, more: &Copies) {
        self.copies += more.copies;
        self.conflicts += more.conflicts;
        self.last_ms = self.last_ms.max(more.last_ms);
        self.kept = self.kept.or(more.kept);
    }

    /// The kept event as engines write it down; empty: none.
    pub fn write_kept(&self) -> String {
        self.kept.map(|kept| kept.to_string()).unwrap_or_default()
    }

    pub fn read_kept(text: &str) -> Option<EventId> {
        text.parse().ok()
    }
}

/// Whether an attempt that ended so is written down. One that ended the item is, and so are the first hundred; after that every tenth up to a
/// thousand, every hundredth up to ten thousand, and so on: what is tried on for ever has a story that can be read, and stored.
pub fn is_told(attempt: u32, outcome: &str) -> bool {
    let (attempt, mut step) = (u64::from(attempt), 1);
    while attempt > 100 * step {
        step *= 10;
    }
    attempt.is_multiple_of(step) || matches!(outcome, "delivered" | "parked")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    pub item: ItemId,
    pub attempt: u32,
    pub fence: Fence,
    pub worker: String,
    pub leased_ms: i64,
    pub ended_ms: i64,
    /// [`super::Outcome::name`]
    pub outcome: String,
    /// The target's status or the reason.
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    pub item: ItemId,
    pub event: EventId,
    pub channel: String,
    pub events: u32,
    pub attempt: u32,
    pub failures: u32,
    pub replay: Option<u32>,
    pub state: ItemState,
    /// Why it was parked, or why the last attempt failed.
    pub why: Option<String>,
    pub received_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// Behind others of its lane, and not before this time.
    Waiting {
        due_ms: i64,
    },
    Leased {
        worker: String,
        until_ms: i64,
        fence: Fence,
    },
    Parked,
    Quarantined,
}

impl ItemState {
    pub fn name(&self) -> &'static str {
        match self {
            ItemState::Waiting { .. } => "waiting",
            ItemState::Leased { .. } => "leased",
            ItemState::Parked => "parked",
            ItemState::Quarantined => "quarantined",
        }
    }
}

/// An item that is with the bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithBot {
    pub item: ItemId,
    /// The first, where it has several.
    pub event: EventId,
    pub account: String,
    /// By the name it goes by now; of what waits in no thread's lane, the peer as spelt.
    pub thread: Option<ThreadId>,
    pub attempt: u32,
}

/// Sizes, for `hapax stats` and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub keys: u64,
    pub events: u64,
    pub store_bytes: u64,
    pub log_bytes: u64,
    pub channels: Vec<ChannelCounts>,
    /// Messages in the outbox that wait or are being sent, and those in doubt.
    pub outbox_waiting: u64,
    pub outbox_unknown: u64,
    pub claims: ClaimCounts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    pub channel: String,
    pub waiting: u64,
    pub leased: u64,
    pub parked: u64,
    pub quarantined: u64,
    /// When the oldest item on its way was received.
    pub oldest_ms: Option<i64>,
}
