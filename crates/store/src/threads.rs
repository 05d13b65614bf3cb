//! What can be asked about threads, messages and the outbox.

use bytes::Bytes;
use hapax_domain::{Direction, EventId, Fence, MessageId, Past, Priority, Status, Steps, ThreadId};

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    pub id: ThreadId,
    pub channel: String,
    /// Other names of the peer.
    pub aliases: Vec<String>,
    pub last_ms: i64,
    pub last_text: Option<String>,
    pub last_direction: Direction,
    /// Inbound messages since the thread was last marked as read.
    pub unread: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadQuery {
    pub channel: Option<String>,
    pub account: Option<String>,
    /// The last row of the page before: newest first, by time and then by id.
    pub before: Option<(i64, ThreadId)>,
    pub limit: usize,
}

/// One message of a thread: an event that came in, or a message that goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMessage {
    pub id: EntryId,
    /// Which channel heard it or sends it: channels of one account share a thread.
    pub channel: String,
    pub direction: Direction,
    pub at_ms: i64,
    pub text: Option<String>,
    /// The provider's id, once known.
    pub provider_id: Option<String>,
    /// Not of what was sent past hapax.
    pub status: Option<Status>,
}

/// What a thread's entry is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryId {
    Event(EventId),
    Message(MessageId),
}

impl EntryId {
    /// Entries of a thread are in the order of their numbers.
    pub fn number(self) -> u64 {
        match self {
            EntryId::Event(EventId(id)) | EntryId::Message(MessageId(id)) => hapax_domain::ids::number_of(id),
        }
    }
}

/// All that is known about a message that goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    pub id: MessageId,
    pub channel: String,
    pub account: String,
    pub peer: String,
    pub request_id: String,
    pub text: Option<String>,
    pub payload: Bytes,
    pub priority: Priority,
    pub reply_to: Option<EventId>,
    pub created_ms: i64,
    pub provider_id: Option<String>,
    pub steps: Steps,
    /// Why it failed, waits or is in doubt.
    pub why: Option<String>,
    /// Doubts that are left, and what was before a person's retries.
    pub past: Past,
    /// Still in the outbox: where it stands there.
    pub outbox: Option<OutboxPlace>,
    /// Every try, oldest first.
    pub tries: Vec<TryRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxPlace {
    pub state: OutboxState,
    pub attempt: u32,
    /// Tries that its budget is charged with.
    pub failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxState {
    Waiting {
        due_ms: i64,
    },
    Leased {
        worker: String,
        until_ms: i64,
        fence: Fence,
        begun: bool,
    },
    /// In doubt; looked up again at this time, or never by itself.
    Unknown {
        check_ms: Option<i64>,
    },
}

impl OutboxState {
    pub fn name(&self) -> &'static str {
        match self {
            OutboxState::Waiting { .. } => "queued",
            OutboxState::Leased { begun: false, .. } => "leased",
            OutboxState::Leased { begun: true, .. } => "sending",
            OutboxState::Unknown { .. } => "unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TryRow {
    pub attempt: u32,
    pub fence: Fence,
    pub worker: String,
    pub leased_ms: i64,
    pub ended_ms: i64,
    pub outcome: String,
    pub detail: String,
}

#[derive(Clone, Debug, Default)]
pub struct OutboxQuery {
    pub channel: Option<String>,
    pub account: Option<String>,
    /// Only those in doubt.
    pub unknown: bool,
    pub after: Option<MessageId>,
    pub limit: usize,
}

/// An account that does not send, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedAccount {
    pub channel: String,
    pub account: String,
    pub why: String,
    pub since_ms: i64,
}
