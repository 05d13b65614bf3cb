//! What leasing hands out and what settling takes back.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{EventId, Fence, ItemId, Kind, ThreadId};

use super::{KeptHeaders, NewMessage};

/// The engine's own name for a lane. Opaque outside the engine that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneRef(pub [u8; 32]);

/// Who wants work, how much of which channels, and for how long.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// Shown to people; plays no part in the fence.
    pub worker: Arc<str>,
    /// Most items wanted, per channel.
    pub wants: Vec<(Arc<str>, usize)>,
    /// Whose lanes are left where they are.
    pub resting: Vec<Resting>,
    pub hold_ms: i64,
    /// Whoever does the work is no part of the process that asks: its leases outlive that, also in an engine that one process owns.
    pub outside: bool,
}

/// Accounts of a channel that nothing is leased of for now: what is theirs could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resting {
    pub channel: Arc<str>,
    pub accounts: Vec<String>,
    /// All others rest, and these do not.
    pub others: bool,
}

impl LeaseRequest {
    /// Who rests in a channel.
    pub fn resting_in(&self, channel: &str) -> Option<&Resting> {
        self.resting.iter().find(|resting| *resting.channel == *channel)
    }
}

impl Resting {
    /// Whether this account does. What is of no account never rests.
    pub fn rests(&self, account: &str) -> bool {
        !account.is_empty() && self.accounts.iter().any(|named| named == account) != self.others
    }
}

/// One inbox item, held by one worker until `until_ms` of the store's clock.
#[derive(Clone, Debug)]
pub struct InboxLease {
    pub lane: LaneRef,
    pub fence: Fence,
    pub until_ms: i64,
    pub item: ItemId,
    pub channel: Arc<str>,
    /// 1 at the first call; grows with every call that may have reached the target, and never goes back.
    pub attempt: u32,
    /// How many failures were charged to it so far: what its budget is compared with.
    pub failures: u32,
    /// Set when this is a replay: the number of the replay, from 1.
    pub replay: Option<u32>,
    pub received_ms: i64,
    pub headers: KeptHeaders,
    /// The whole body of the webhook.
    pub body: Bytes,
    /// How many events the webhook had in all; when more than `events`, the body must be re-wrapped.
    pub webhook_events: u32,
    /// In the order of the webhook; at least one. Of a turn, all its members.
    pub events: Vec<LeasedEvent>,
    /// The other webhooks of a turn, in order: `events` begins with those of the first and goes on with theirs.
    pub rest: Vec<LeasedPart>,
}

/// A further webhook of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedPart {
    pub body: Bytes,
    /// How many events the webhook had in all.
    pub webhook_events: u32,
    /// How many of the lease's events are of it.
    pub events: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedEvent {
    pub id: EventId,
    pub kind: Kind,
    pub index: u32,
    /// Whose it is; an item is of one account.
    pub account: String,
    pub thread: Option<ThreadId>,
}

/// No lease is given for longer.
const LEASE_MAX_MS: i64 = 3_600_000;

/// Where a lease ends once its store has followed a clock that was set back to `now_ms`. Those that were given or lengthened since are right
/// already, and who has one works: only an end that no lease of now can have is moved, and one that is over.
pub fn end_after_set_back(until_ms: i64, back_ms: i64, now_ms: i64) -> i64 {
    match until_ms {
        far if far > now_ms + LEASE_MAX_MS => (far - back_ms).min(now_ms + LEASE_MAX_MS),
        over if over <= now_ms => over - back_ms,
        living => living,
    }
}

/// How work on an inbox item ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target took it. `answer` is kept for repeats in proxy mode; `replies` enter the outbox in the same step, or are kept with the item.
    Delivered { status: u16, answer: Option<Answer>, replies: Vec<NewMessage> },
    /// The target failed it. It comes again after the wait, by the store's clock; the attempt counts and one failure is charged.
    Retry { wait_ms: i64, why: String },
    /// It waits for a person; the lane goes on with the next. `charged` says whether the target failed it: then one failure is charged.
    Parked { why: String, charged: bool },
    /// It was not tried, or not to the end, through no fault of its own: nothing is charged. Comes again after the wait. `why` is shown on
    /// the item. `called` says that a call may have reached the target: then the attempt counts and stands in the story, otherwise neither.
    HandBack { wait_ms: i64, why: Option<String>, called: bool },
}

impl Outcome {
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Delivered { .. } => "delivered",
            Outcome::Retry { .. } => "retry",
            Outcome::Parked { .. } => "parked",
            Outcome::HandBack { .. } => "handed back",
        }
    }

    /// Whether the attempt counts and stands in the story: the target may have been called.
    pub fn counts(&self) -> bool {
        !matches!(self, Outcome::HandBack { called: false, .. })
    }

    /// How many failures are charged to the item.
    pub fn charge(&self) -> u32 {
        u32::from(matches!(self, Outcome::Retry { .. } | Outcome::Parked { charged: true, .. }))
    }

    /// Why the item is not done, where there is a reason to be shown.
    pub fn why(&self) -> Option<&str> {
        match self {
            Outcome::Retry { why, .. } | Outcome::Parked { why, .. } => Some(why),
            Outcome::HandBack { why, .. } => why.as_deref(),
            Outcome::Delivered { .. } => None,
        }
    }
}

/// What a target answered, for the repeats of the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// Done, but there was no room for the replies: the item is parked with them.
    Kept,
    /// Another lease was given out since: this worker's outcome does not count.
    Lost,
}
