//! THE CONTRACT. Every engine keeps it, and `testkit/store_suite.rs` is its twin in tests: all engines run all of it.
//!
//! Each method is one whole atomic step decided from its arguments: no transaction, closure, SQL or connection leaks out. Expected
//! outcomes (duplicate, lost, conflict) are values; an error means the store could not do its job and says whether to try again.
//!
//! Rules that hold for every method:
//! - When it returns `Ok`, its effect is durable. When it returns `Err`, it had no effect.
//! - Time is the store's: leases end by its clock, whatever the callers' clocks say. When that clock is set back, opening or `purge` moves what
//!   waits and what is leased with it, except what is to be sent at a certain time; keys are then kept longer, never shorter.
//! - Every call is safe from any number of instances at once.
//!
//! *Invariant:* no code outside `store/` knows which database runs.

pub mod clock;

mod accept;
mod beside;
pub mod claims;
mod deferred;
mod in_time;
mod kept;
mod lease;
pub mod moving;
mod naive_claim;
pub mod offer;
mod outbox;
pub mod pieces;
mod reads;
pub mod registers;
mod threads;
mod wrapper;

pub mod memory;
pub mod steps;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;

pub use accept::{Accepted, Arrival, Disposition, KeptHeaders, NewEvent, SUSPECTED, suspected};
pub use beside::{Beside, Reason, keep_beside, why_beside};
pub use claims::{ClaimCounts, ClaimQuery};
pub use deferred::DeferredStore;
pub use in_time::{in_time, too_slow};
pub use kept::{read_replies, why_kept, write_replies};
pub use lease::{
    Answer, InboxLease, LaneRef, LeaseRequest, LeasedEvent, LeasedPart, Outcome, Resting, Settled, end_after_set_back,
};
pub use moving::{After, Bookmark, Moved, Moving, Table, half_filled};
pub use naive_claim::{CONNECTIONS as NAIVE_CLAIM_CONNECTIONS, NaiveClaim};
pub use outbox::{
    Changed, NewMessage, Origin, OutboxLease, OutboxLeaseRequest, SendOutcome, Spelling, Submitted, Unspelt, asked_request_id,
};
pub use reads::{
    AttemptRow, ChannelCounts, Copies, EventDetail, EventQuery, EventRow, EventState, InboxQuery, InboxRow, ItemState, Page,
    Reads, Stats, WithBot, is_told,
};

pub use threads::{
    EntryId, MessageRow, OutboxPlace, OutboxQuery, OutboxState, PausedAccount, ThreadMessage, ThreadQuery, ThreadRow, TryRow,
};
pub use wrapper::StoreWrapper;

use hapax_domain::{Claim, ClaimAnswer, ClaimKey, ClaimOp, EventId, Fence, ItemId, MessageId, ThreadId};

/// Everything hapax asks of a store, by what belongs together. A type that implements all of it is a store.
pub trait Store: Inbox + Outbox + Claims + Registers + Pieces + Upkeep + Reads + Send + Sync + 'static {}

impl<S: Inbox + Outbox + Claims + Registers + Pieces + Upkeep + Reads + Send + Sync + 'static> Store for S {}

/// What comes in: webhooks, the lanes in which their events wait for the bot, and what became of them.
#[async_trait]
pub trait Inbox {
    /// Takes in the events of one webhook, in order: per event, claims the key and, when won, records the event and puts it in line.
    ///
    /// - One step for the whole webhook: all or nothing is recorded.
    /// - A key is remembered for its window from the moment it was won, and never shorter. The same key twice in one arrival is a
    ///   duplicate of the first.
    /// - `New` only after commit. A copy of a key that is being committed is answered after that commit, never before.
    /// - An event waits in the lane of the thread that the first known of its names leads to, when it is put in line: a message after its names
    ///   were learned; a reaction, an edit or an echo of ours teaches none.
    /// - Won events with the same lane become one inbox item, in the order given, at the end of the lane.
    /// - With [`Arrival::coalesce`], items of threads are turns: one is due when it has been quiet for long enough ([`hapax_domain::Coalesce`]), and
    ///   events that come into its lane before that become part of it, whatever webhook they are of. A turn takes no more once it was leased,
    ///   when something else comes into its lane, or when that becomes one with another. From then on it is an item like any other.
    /// - A new message makes or updates its thread: last message, unread count, names of the peer. Names that were seen together are one
    ///   person from then on: one thread, and in this channel one lane of the inbox and one of the outbox. What waits in the lanes that become one
    ///   is in line by its number; leases that are out are held on. Two accounts never share a thread.
    /// - A new status moves the message it names, by the provider's id or by our handle, and only forward; a status that arrives before
    ///   the provider's answer to the send is kept for it. An echo is a `sent` of the message it names in the same way; its text says
    ///   nothing. Either settles a send that was in doubt. A name from before a person's retry moves only what the provider reports of that time.
    ///   The rules are in [`hapax_domain::outgoing`].
    /// - The guard of a new event is claimed with its key, for the channel's window. When another event holds it, the new one is a suspected
    ///   replay: recorded and, where it was to be delivered, parked with the reason. It is heard by no thread or message; `redrive` delivers it.
    ///   With [`hapax_domain::Event::guard_suppresses`] it is a `Duplicate` of the first, and not recorded.
    /// - Same key with another fingerprint: `Conflict`, unless that of the first is [`hapax_domain::fingerprint::UNKNOWN`]. It is delivered
    ///   nowhere; the caller keeps it beside the first ([`keep_beside`]) before it answers, and counts it with `note_copies`.
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError>;

    /// Adds suppressed copies to the count shown in an event's story, and the first event that was kept beside it. The counts are a hint:
    /// losing them in a crash is fine, and a repeat may count twice.
    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError>;

    /// Leases the first item of lanes that are due: lanes nobody holds, and lanes whose lease ran out.
    ///
    /// - At most one item of a lane is leased at any time; it is the oldest of the lane that is not parked, once it is due. Of lanes that became one
    ///   with leases out, nothing is leased until all of those have ended or run out.
    /// - What is leased tells the thread whose lane it is of; what waits in no thread's lane, its peer as spelt.
    /// - Each lease raises the fence above every fence handed out before, and counts one attempt. Attempts only ever grow: one is taken
    ///   back only by a [`Outcome::HandBack`] of what was not called. A lease that ran out keeps its attempt; it charges nothing.
    /// - Taking over expired work is part of leasing; there is no separate rescuer.
    /// - An engine whose data one process owns ends the leases of the process before when it is opened; those of workers
    ///   [outside](LeaseRequest::outside) go on.
    /// - Per channel asked for, at most as many as asked; the lane whose first item was due longest comes first.
    /// - Lanes of accounts that [rest](LeaseRequest::resting) stay as they are, and hold up no others. An engine may still lease what an older
    ///   version has put in line.
    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError>;

    /// Moves the end of leases to `hold_ms` from now; tells for each whether it is still held.
    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError>;

    /// Ends the work on a leased item, if the fence is still the lane's; otherwise `Lost` and nothing changes.
    ///
    /// A lease that ran out but was not taken over may still be settled: nobody else has begun. The replies of `Delivered` enter the
    /// outbox in the same step, each under its own request id: a handler that ran twice cannot send twice. When one of them finds no
    /// room there, all of them are kept with the item, which is parked with the reason ([`why_kept`]): `Kept`. The lane goes on.
    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError>;

    /// Puts parked items back in line with their failures forgotten; their attempts are counted on. Returns how many; at most `max`.
    ///
    /// A suspected replay is put back only by its own id or its event's: a redrive of many must not deliver what an attacker may have forged.
    /// One that keeps replies is done with instead: they enter the outbox, and nobody is asked again. While there is no room for them it
    /// stays parked and is not counted. Looks at the oldest [`hapax_domain::limits::redrive_looks_at`] of them and no more: those that
    /// have to stay make no call long.
    async fn redrive(&self, which: Redrive, max: usize) -> Result<usize, StoreError>;

    /// Delivers a recorded event once more, at the end of its lane, whatever became of it before. `None`: no such event.
    ///
    /// Each replay is a new item with its own nonce, so neither hapax nor the bot takes it for a copy.
    async fn replay(&self, event: EventId) -> Result<Option<ItemId>, StoreError>;

    /// Sets the unread count of a thread, by any name of its peer, to zero: all that came in up to now is read. False: no such thread.
    async fn mark_read(&self, thread: &ThreadId) -> Result<bool, StoreError>;
}

/// What goes out: messages, the lanes in which they wait for their provider, and accounts that rest.
#[async_trait]
pub trait Outbox {
    /// Records a message as queued and puts it in the outbox, at the end of its thread's lane, before anything leaves.
    ///
    /// Messages that come back to their thread's lane, out of doubt, by a person's retry or when their time has come, come to the lane that the
    /// thread has then.
    ///
    /// One whose `send_at_ms` is still to come waits in a lane of its own: nobody waits for it. When its time has come, leasing puts it
    /// into its thread's lane, at the place of its age, and takes that lane's first.
    ///
    /// There is no room for a new message ([`StoreError::OutboxFull`]) while as many of its channel and account wait or are being sent as
    /// [`Outbox::limit_outbox`] says. Replies are counted apart from the rest, against the same number; those in doubt are not
    /// counted. Instances that add at the same moment may each fill the last place.
    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError>;

    /// Leases the first message of lanes that are due, replies before the rest, like [`Inbox::lease_inbox`].
    ///
    /// A lease that ran out after `begin` is handed out again with `in_doubt_since_ms`: its holder must not simply send.
    async fn lease_outbox(&self, ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError>;

    /// Records that sending begins now: from here on a crash means that nobody knows. `Lost` when the fence is no longer the lane's, or the
    /// provider has named the message since.
    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError>;

    /// Moves the end of outbox leases, like [`Inbox::extend`].
    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError>;

    /// Ends a try, if the fence is still the lane's. `Sent` takes over the statuses that came early. Of what a look-up found, that is
    /// taken which no other message of the account is called, decided in this very step. A message of which an earlier try may have gone
    /// out is never `failed`.
    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError>;

    /// Ends a try after its lease: its worker stood still, and the message was taken over. What it came to is taken as long as nobody has
    /// begun another try, by [`hapax_domain::Outgoing::takes_late`]. `attempt` is the number that the try had once it was begun.
    async fn settle_late(&self, id: MessageId, attempt: u32, outcome: SendOutcome) -> Result<Changed, StoreError>;

    /// Sends a failed message, or one in doubt, once more, because a person said so: a new round with an id of its own and no failures
    /// charged; tries are numbered on, and what was known is kept in `past`.
    async fn retry_message(&self, id: MessageId) -> Result<Changed, StoreError>;

    /// Takes a message that nobody holds out of the outbox; it has failed, cancelled. One that may have gone out is no longer waited for.
    async fn cancel_message(&self, id: MessageId) -> Result<Changed, StoreError>;

    /// Lets an account rest until it is resumed; `None` resumes it.
    async fn pause_account(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError>;

    /// Sets how many messages of one account may wait in a channel's outbox, and how many replies beside them.
    fn limit_outbox(&self, most: usize);
}

/// Keys that are held for any other job, and values that the Redis door keeps under keys.
#[async_trait]
pub trait Claims {
    /// Asks something of keys, in order; one answer each. What becomes of a key is decided by [`hapax_domain::claim::decide`], by the store's
    /// clock, in every engine alike.
    ///
    /// - Each is one atomic step: of any number that claim a key at once, on any instance, one gets it. The call as a whole is not: when it
    ///   fails, none of it was done.
    /// - The same key twice in one call is decided in order.
    /// - Each claim has a fence above every fence that the key had before.
    /// - One that was completed is remembered for its `ttl` from then on, and never shorter; one that waits for a person until that person has
    ///   said something. `purge` removes what is over.
    /// - When the clock was set back, a lease from before begins anew when its key is next claimed.
    /// - There is no room for a new key ([`ClaimAnswer::NoRoom`]) while as many are kept as [`Claims::limit_claims`] says; those that are over count
    ///   until they are purged. Instances that add at the same moment may each fill the last place, and one may hear late of what others removed.
    ///
    /// What is longer than the limits of [`hapax_domain::limits`] is refused: [`ClaimKey::check`], [`ClaimOp::check`].
    async fn claims(&self, ops: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, StoreError>;

    /// What is kept under a key, with its result.
    async fn claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError>;

    /// The last one claimed first, without results.
    async fn list_claims(&self, query: ClaimQuery) -> Result<Page<Claim>, StoreError>;

    /// Sets how many are kept at once.
    fn limit_claims(&self, most: usize);
}

/// Named values that are changed only as they were seen, some of them for a time.
#[async_trait]
pub trait Registers {
    /// Stores `value` under `name` for ever, unless something is there already; returns what is there now.
    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError>;

    /// Puts `new` under `name` if `expected` is there now (`None`: nothing is), in one step; returns what is there afterwards. `None` for
    /// both only looks. A caller that gets back what it put in has won, or another wrote the same; asked twice, it answers the same.
    ///
    /// What was put with `keep_ms` ends that long after, by the store's clock: from then on nothing is there, and `purge` removes it. Without,
    /// it is kept for ever. An amend that wins sets the end anew, also where it puts in what was there; one that loses changes nothing.
    ///
    /// A name has at most [`hapax_domain::limits::REGISTER_NAME_MAX_BYTES`], a value
    /// [`hapax_domain::limits::REGISTER_MAX_BYTES`]: what is longer is refused.
    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError>;
}

/// Files that are to be sent, in pieces.
#[async_trait]
pub trait Pieces {
    /// Keeps a piece of a file that is to be sent, for at least `keep_ms`: the `n`th of those under `name`, which is the channel, `/` and a
    /// name of the upload's own. One that is there already is replaced, and its time begins anew.
    ///
    /// Each is a small write of its own: a file of many pieces holds nobody up. A piece has at most
    /// [`hapax_domain::limits::PIECE_MAX_BYTES`], a name as many as that of a register; what is longer is refused.
    async fn put_piece(&self, name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> Result<(), StoreError>;

    /// A piece of a file, until `purge` has removed it.
    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError>;

    /// Removes all pieces of a name, before their time.
    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError>;

    /// How many bytes of pieces each channel has, by its name; those whose time is over count until they are purged.
    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError>;
}

/// What keeps a store in order, and what it says of itself.
#[async_trait]
pub trait Upkeep {
    /// Removes what nobody needs any more: keys after their window, claims, registers and pieces after their time, and webhooks of the channel after `retention_ms` unless one of their
    /// events still waits or is parked; statuses of messages that nobody came to know, when the last of them is older than the longest
    /// retention; threads, with all names that lead to them, when their last words are older than the retention and neither an event nor a
    /// message of them is left. Of a thread that old of which something is left, the last words go with what said them.
    /// A thread whose last words are from the future goes when nothing of it is left.
    /// A row from the future is as old as the youngest row behind it that is not, and keeps no other ([`hapax_domain::age`]).
    ///
    /// Removes about `max` events, and no more than one webhook beyond that, so that accept never waits long; call again while there is
    /// `more`. A channel that is not listed is kept as long as the one that is kept longest.
    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError>;

    /// Takes the words out of what is over, for good, before its retention. Each is known by its id; what is not there counts for nothing.
    ///
    /// - Of an event: its text, what the target answered to it, and headers and body of the webhook that carried it, also where others came with
    ///   it: those keep their texts. Unless something of that webhook waits, is leased, parked or being replayed: then the event is `open`, and
    ///   nothing is changed.
    /// - Of a message: its text and its payload. One that is still in the outbox is `open`.
    /// - Of a thread, by any name of its peer: its last words.
    ///
    /// Keys, ids, names, times and what became of them stay: copies are recognised as before. Asked twice, it answers the same.
    async fn forget(&self, what: Forget) -> Result<Forgotten, StoreError>;

    /// Writes all that is in it, as it is at one moment, into the new file `to` on a disk of this machine, and syncs it; nobody who uses the store
    /// waits for that. When it fails, nothing is left there. A store on a server has tools of its own, and refuses.
    async fn backup(&self, _to: &Path) -> Result<(), StoreError> {
        Err(StoreError::Refused("this kind of store is backed up with tools of its own".to_owned()))
    }

    /// Proves that the store can be reached and written to.
    async fn ping(&self) -> Result<(), StoreError>;

    /// What this store can promise with its present settings.
    fn promise(&self) -> Promise;

    /// Resolves when there may be new work since the call (not since the first poll). A hint: polling is the truth.
    fn wait(&self) -> BoxFuture<'static, ()>;

    /// How everything in it is moved to another store, or why that cannot be done.
    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Err(StoreError::Refused("this kind of store can neither be exported nor imported".to_owned()))
    }
}

/// The groups of the contract, for callers that hold an engine's own type: a `dyn Store` has all methods by itself.
pub mod prelude {
    pub use super::{Claims as _, Inbox as _, Outbox as _, Pieces as _, Reads as _, Registers as _, Upkeep as _};
}

/// Which parked items to put back in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redrive {
    Item(ItemId),
    Event(EventId),
    Channel(String),
    All,
}

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupFacts {
    /// When it was made, by the store's clock.
    pub made_ms: i64,
    pub events: u64,
    pub keys: u64,
    /// Messages that waited to be sent then.
    pub unsent: u64,
}

/// What one purge step removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub keys: u64,
    pub events: u64,
    /// There is more to look at: call again.
    pub more: bool,
}

impl Purged {
    /// Adds up steps; there is more when the last one says so.
    #[must_use]
    pub fn and(self, step: Purged) -> Purged {
        Purged { keys: self.keys + step.keys, events: self.events + step.events, more: step.more }
    }
}

/// Whose words are to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forget {
    pub events: Vec<EventId>,
    pub messages: Vec<MessageId>,
    pub threads: Vec<ThreadId>,
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Events without words now.
    pub events: u64,
    /// Messages without words now.
    pub messages: u64,
    /// Events and messages that are not over yet.
    pub open: u64,
}

impl Forgotten {
    #[must_use]
    pub fn and(self, more: Forgotten) -> Forgotten {
        Forgotten { events: self.events + more.events, messages: self.messages + more.messages, open: self.open + more.open }
    }
}

/// How much of the guarantee table the store can keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    Full,
    /// What is not kept, and why, for the banner, `/readyz` and the docs.
    Degraded(Vec<String>),
}

/// The store could not do its job.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store has more work waiting than it takes; try again")]
    Busy,
    #[error("the disk has less than {floor_mb} MB left; hapax takes in nothing new until there is room")]
    Full { floor_mb: u64 },
    #[error("the outbox of account {account} on channel {channel} is full; it takes more once some of it has been sent")]
    OutboxFull { channel: String, account: String },
    #[error("the store is closed")]
    Closed,
    #[error("{what}: {source}")]
    Failed { what: &'static str, retryable: bool, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{0}")]
    Refused(String),
}

impl StoreError {
    pub fn outbox_full(message: &NewMessage) -> Self {
        StoreError::OutboxFull { channel: message.channel.to_string(), account: message.account.clone() }
    }

    /// True when the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            StoreError::Busy | StoreError::Full { .. } | StoreError::OutboxFull { .. } | StoreError::Closed => true,
            StoreError::Failed { retryable, .. } => *retryable,
            StoreError::Refused(_) => false,
        }
    }
}
