//! What goes out: submitting, leasing, beginning and settling a message.

use std::sync::Arc;

use bytes::Bytes;

use super::LaneRef;
pub use hapax_domain::{Changed, SendOutcome};
use hapax_domain::{Draft, EventId, Fence, MessageId, Priority, draft};

/// A message somebody wants sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    pub channel: Arc<str>,
    pub account: String,
    /// Whom it is for.
    pub peer: String,
    /// The caller's name for this very send; unique per channel and account.
    pub request_id: String,
    /// Of the content: the same request id with another content is a mistake of the caller.
    pub fingerprint: [u8; 32],
    /// What a person would read, where there is such a thing.
    pub text: Option<String>,
    /// What the adapter makes the provider's request from.
    pub payload: Bytes,
    pub priority: Priority,
    /// The event whose handler answered with it.
    pub reply_to: Option<EventId>,
    /// It does not leave before this time of the store's clock.
    pub send_at_ms: Option<i64>,
}

/// Stands between a request id and its channel; callers cannot write it.
const APART: char = '\u{1f}';

/// A kept request id as its caller wrote it.
pub fn asked_request_id(kept: &str) -> &str {
    kept.split_once(APART).map_or(kept, |(asked, _)| asked)
}

/// Who sends: a channel, and an account in it.
#[derive(Clone, Debug)]
pub struct Origin {
    pub channel: Arc<str>,
    pub account: String,
}

impl NewMessage {
    /// The one way to make one. `peer` is spelt as the channel's provider spells it; `text` is what a person would read of the draft.
    pub fn new(origin: Origin, peer: String, draft: Draft, text: Option<String>, request_id: String) -> Self {
        let Origin { channel, account } = origin;
        let payload = Bytes::from(draft.payload);
        let asked = draft.send_at.as_ref().map(|at| at.asked.as_str());
        let fingerprint = draft::fingerprint(&channel, &account, &peer, &payload, asked);
        let (priority, reply_to, send_at_ms) = (Priority::Normal, None, draft.send_at.map(|at| at.ms));
        Self { channel, account, peer, request_id, fingerprint, text, payload, priority, reply_to, send_at_ms }
    }

    /// The request id that is kept when another channel of the account has taken the plain one: channels do not meet in their ids.
    pub fn request_id_apart(&self) -> String {
        format!("{}{APART}{}", self.request_id, self.channel)
    }

    /// The time until which it waits in a lane of its own, if that is still to come.
    pub fn held_until(&self, now_ms: i64) -> Option<i64> {
        self.send_at_ms.filter(|at_ms| *at_ms > now_ms)
    }
}

/// Given a channel, whom a message is for as somebody wrote it, and the payload: the name by which the channel's provider calls this peer.
pub type Spelling = Arc<dyn Fn(&str, &str, &[u8]) -> Result<String, Unspelt> + Send + Sync>;

/// Why a message that somebody put into the store by themselves is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unspelt {
    /// The channel is not configured here, or does not send: another instance may have it.
    NotHere,
    /// What is wrong with the message.
    Wrong(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    New(MessageId),
    /// The same request was made before; this is its message.
    Replayed(MessageId),
    /// The request id belongs to another content.
    Mismatch(MessageId),
}

impl Submitted {
    pub fn message(self) -> MessageId {
        match self {
            Submitted::New(id) | Submitted::Replayed(id) | Submitted::Mismatch(id) => id,
        }
    }
}

/// Who wants to send, how much of which channels, and for how long.
#[derive(Clone, Debug)]
pub struct OutboxLeaseRequest {
    pub worker: Arc<str>,
    /// Most messages wanted, per channel.
    pub wants: Vec<(Arc<str>, usize)>,
    /// Accounts (channel, account) that may not send now: at their rate, or paused.
    pub resting: Vec<(Arc<str>, String)>,
    pub hold_ms: i64,
}

/// One message, held by one worker until `until_ms` of the store's clock.
#[derive(Clone, Debug)]
pub struct OutboxLease {
    pub lane: LaneRef,
    pub fence: Fence,
    pub until_ms: i64,
    pub message: MessageId,
    pub request_id: String,
    pub channel: Arc<str>,
    pub account: String,
    pub peer: String,
    pub payload: Bytes,
    pub text: Option<String>,
    /// 1 at the first try; goes on over a person's retries.
    pub attempt: u32,
    /// Tries that failed through the message's own fault, since a person last asked for it: what its budget is charged with.
    pub failures: u32,
    pub created_ms: i64,
    /// Set when an earlier try was begun and its outcome is not known: it must not simply be sent.
    pub in_doubt_since_ms: Option<i64>,
}
