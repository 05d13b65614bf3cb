//! What a server engine must be able to do. Everything else is decided in the steps, once for all of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_domain::age::Dated;

use super::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, Hash, ItemRec, KeyRec, LaneRec, MessageRec, NameRec, OutRec, ProviderNameRec,
    Queue, ThreadRec,
};
use crate::pieces::Piece;
use crate::registers::Register;
use crate::{
    After, Answer, ClaimCounts, ClaimQuery, Copies, EventQuery, InboxQuery, Moved, OutboxQuery, PausedAccount, Promise, Redrive,
    Stats, StoreError, Table, ThreadQuery,
};

/// Why a transaction came to nothing. Nothing of it was kept: an engine makes sure of that before it says so.
#[derive(Debug)]
pub enum TxError {
    /// Another instance was in the way (a deadlock, a record that somebody else made first): the same step may be run again at once.
    Conflict(String),
    Failed(StoreError),
}

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        TxError::Failed(error)
    }
}

/// Which of its connections an engine uses, so that one kind of work never waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Taking in: accept, submit.
    Ingest,
    /// Leasing, extending, settling.
    Workers,
    /// Everything a person asks for, and upkeep.
    Admin,
}

/// One database, seen as records. Cheap to clone behind an `Arc`; shared by all calls.
///
/// Every call ends within a few seconds, whatever the server does: with an error that may be retried if need be.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    type Tx: Tx;

    /// How many transactions of a pool may be in flight, so many batches are run at once.
    fn in_flight(&self, pool: Pool) -> usize;

    /// Begins a transaction that can hand out `numbers` new numbers.
    async fn begin(&self, pool: Pool, numbers: usize) -> Result<Self::Tx, TxError>;

    /// Like [`Engine::begin`], told what the step is sure to look at first: an engine for which every question is a long way fetches it
    /// with the same round trip.
    async fn begin_for(&self, pool: Pool, numbers: usize, _first: &First) -> Result<Self::Tx, TxError> {
        self.begin(pool, numbers).await
    }

    /// Like [`Tx::load`], without locks and outside any transaction.
    async fn peek(&self, wanted: &Wanted) -> Result<Loaded, StoreError>;

    /// By number, newest first, below `before` (a number), at most `limit`; never with bodies. `thread` means the event's own account and peer.
    async fn list_events(&self, query: &EventQuery, before: Option<u64>, limit: usize) -> Result<Vec<EventRec>, StoreError>;

    /// By number, above `after`, at most `limit`.
    async fn list_items(&self, query: &InboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<ItemRec>, StoreError>;

    /// Open items that deliver this event once more.
    async fn list_replays(&self, event: u64) -> Result<Vec<ItemRec>, StoreError>;

    /// By fence.
    async fn list_attempts(&self, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError>;

    /// Of those events that came more than once.
    async fn copies(&self, events: &[u64]) -> Result<Vec<Copies>, StoreError>;

    async fn answer(&self, event: u64) -> Result<Option<Answer>, StoreError>;

    /// By time and then id (account, then peer, compared as bytes), newest first, at most `limit`.
    async fn list_threads(&self, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError>;

    /// All names that lead to this peer's thread, in order, its own among them.
    async fn names_of(&self, account: &str, peer: &str) -> Result<Vec<String>, StoreError>;

    /// Events (`thread` is theirs) and messages of a thread with numbers above `above` and below `below`, newest first, at most `limit`.
    async fn thread_entries(&self, thread: &Hash, above: u64, below: Option<u64>, limit: usize)
    -> Result<Vec<Entry>, StoreError>;

    /// By number, above `after`, at most `limit`. `unknown` means in doubt and not leased.
    async fn list_outs(&self, query: &OutboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<OutRec>, StoreError>;

    async fn paused(&self) -> Result<Vec<PausedAccount>, StoreError>;

    /// Pauses an account (a second time keeps the first time's `since_ms`), or resumes it.
    async fn pause(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError>;

    /// Adds to the counts of events that are still there.
    async fn note_copies(&self, copies: &[Copies]) -> Result<(), StoreError>;

    /// Moves all waits and leases with the store's clock when that was set back since it was last asked, and takes note of its time. What a
    /// person wants sent at a certain time stays where it is. Nothing to do where the clock cannot be set, as on Firestore.
    async fn follow_clock(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Removes at most `max` keys whose window is over, and old nonces; returns how many keys.
    async fn purge_keys(&self, max: usize) -> Result<u64, StoreError>;

    /// The first `max` webhooks numbered above `after`, by number.
    async fn webhooks_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError>;

    /// All events of these webhooks, without bodies, by number of the webhook.
    async fn events_of(&self, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError>;

    /// The first `max` messages above `after` that are no longer in the outbox, by number.
    async fn messages_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError>;

    /// Removes at most `max` provider names heard of at or before `before_ms` that are no message's, or one's that is gone; returns how many.
    async fn purge_names(&self, before_ms: i64, max: usize) -> Result<u64, StoreError>;

    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError>;

    /// See [`crate::Registers::amend`]; what is asked for was checked.
    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError>;

    /// Puts a register as it was in another store.
    async fn put_register(&self, name: &str, register: &Register) -> Result<(), StoreError>;

    /// Removes at most `max` registers that are over; returns how many.
    async fn purge_registers(&self, max: usize) -> Result<u64, StoreError>;

    /// Puts a piece, whether it is there or not.
    async fn put_piece(&self, piece: &Piece) -> Result<(), StoreError>;

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError>;

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError>;

    /// By channel, in the order of their names.
    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Removes at most `max` pieces whose time is over; returns how many.
    async fn purge_pieces(&self, max: usize) -> Result<u64, StoreError>;

    /// By fence, highest first, without results, at most `limit`; none that are over.
    async fn list_claims(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Result<Vec<ClaimRec>, StoreError>;

    /// How many there are, those that are over included.
    async fn count_claims(&self, now_ms: i64) -> Result<ClaimCounts, StoreError>;

    /// Removes at most `max` claims that are over; returns how many.
    async fn purge_claims(&self, max: usize) -> Result<u64, StoreError>;

    /// Lanes of a channel's inbox that are leased until later than `now_ms`, at most `limit`.
    async fn list_held(&self, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError>;

    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Proves that it can be reached and written to.
    async fn ping(&self) -> Result<(), StoreError>;

    fn promise(&self) -> Promise;

    /// Resolves when another instance, or this one, may have made work since the call; at the latest after a moment.
    fn wait(&self) -> BoxFuture<'static, ()>;

    /// Says to all instances that there may be work. A hint: it may be lost.
    fn wake(&self);

    /// The store's clock.
    async fn now_ms(&self) -> Result<i64, StoreError>;

    /// Records of one kind in the order of their own keys, after this one, at most `limit`; events without bodies. Items,
    /// messages in the outbox and paused accounts are not asked for: there are lists of them.
    async fn dump(&self, table: Table, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError>;

    /// Pauses an account as it was paused in another store.
    async fn put_paused(&self, paused: &PausedAccount) -> Result<(), StoreError>;

    /// Removes a setting.
    async fn forget(&self, name: &str) -> Result<(), StoreError>;

    /// Makes sure that every number handed out from now on is above this one.
    async fn raise_numbers(&self, above: u64) -> Result<(), StoreError>;
}

/// One transaction. Dropped without [`Tx::commit`], it leaves nothing behind.
#[async_trait]
pub trait Tx: Send {
    /// The store's clock, read when the transaction began.
    fn now_ms(&self) -> i64;

    /// A number above all that were handed out to transactions that had ended before this one began.
    fn number(&mut self) -> u64;

    /// Whether items may be kept in the rows of their lanes ([`LaneRec::alone`]). Then those are found by number and listed like all others.
    fn keeps_alone(&self) -> bool {
        false
    }

    /// Claims keys that are free or whose window is over, as of [`Tx::now_ms`]; they are all different and sorted. Gives back, for each, who
    /// holds it when somebody else does.
    async fn claim(&mut self, keys: &[KeyRec]) -> Result<Vec<Option<KeyRec>>, TxError>;

    /// Loads what is there of what is wanted, in the order of the fields of [`Wanted`], each seeing all that was committed before it.
    ///
    /// Lanes, `locked_events`, threads, claims, provider names, messages and messages in the outbox are locked until the end, and read as they are
    /// once locked.
    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, TxError>;

    /// Locks lanes that may be taken now, and skips those that somebody else has locked: by priority, then `due_ms`, then `first`.
    ///
    /// Numbers handed out from then on are above all that were the fences of these lanes: they are drawn once the lanes are locked.
    async fn due_lanes(&mut self, due: &Due<'_>) -> Result<Vec<LaneRec>, TxError>;

    /// Parked (not quarantined) items above `after`, by number, at most `max`, locked. `Redrive::Event` means any event of the item.
    async fn parked(&mut self, which: &Redrive, after: u64, max: usize) -> Result<Vec<ItemRec>, TxError>;

    /// Writes. What is new must not be there yet: if it is, somebody else was faster, which is [`TxError::Conflict`].
    async fn save(&mut self, changes: Changes) -> Result<(), TxError>;

    /// Makes it durable. When the answer to the commit is lost, the engine finds out by the transaction's own nonce before it returns:
    /// `Ok` means committed, an error means that it never will be.
    async fn commit(self) -> Result<(), TxError>;
}

/// Lanes to look for.
#[derive(Debug)]
pub struct Due<'d> {
    pub queue: Queue,
    pub channel: &'d str,
    /// Accounts to leave out; accounts that are paused are left out too.
    pub resting: &'d [String],
    /// All others are to be left out, in place of these.
    pub others: bool,
    pub max: usize,
}

impl Due<'_> {
    /// Whether lanes of this account are left out, pauses aside. Where it is not known whose an inbox lane is, it is not.
    pub fn rests(&self, account: &str) -> bool {
        let is_known = self.queue == Queue::Outbox || !account.is_empty();
        is_known && self.resting.iter().any(|named| named == account) != self.others
    }
}

/// What a step will look at, as far as its arguments tell. A hint: it is claimed and loaded like anything else.
#[derive(Clone, Debug, Default)]
pub struct First {
    pub keys: Vec<Hash>,
    /// Those of them that it claims before all else, all of them in one [`Tx::claim`].
    pub claimed: Vec<FirstKey>,
    pub lanes: Vec<Hash>,
    /// (account, name)
    pub names: Vec<(String, String)>,
    /// (account, peer)
    pub threads: Vec<(String, String)>,
    /// (account, request id)
    pub requests: Vec<(String, String)>,
    pub claims: Vec<Hash>,
}

/// A key that a step claims with the number it draws as its `nth`, from 0.
#[derive(Clone, Copy, Debug)]
pub struct FirstKey {
    pub key: Hash,
    pub nth: usize,
    pub fingerprint: u32,
    pub window_ms: i64,
}

/// What a step needs to see. Loaded in this order.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub lanes: Vec<Hash>,
    pub items: Vec<u64>,
    /// Lanes of which the two lowest items that wait in them are wanted (in `Loaded::items` and `Loaded::lowest`).
    pub lowest_items: Vec<Hash>,
    pub events: Vec<u64>,
    /// Events that are replayed or removed.
    pub locked_events: Vec<u64>,
    /// Events with what they carry.
    pub bodies: Vec<u64>,
    /// (account, name)
    pub names: Vec<(String, String)>,
    pub threads: Vec<Hash>,
    /// Names that are looked at once more, now that the threads are locked (in `Loaded::sure_names`).
    pub sure_names: Vec<(String, String)>,
    /// Threads of which all names that lead to them are wanted (in `Loaded::names`).
    pub named: Vec<Hash>,
    /// Accounts of which it matters whether any message is begun.
    pub sending: Vec<String>,
    /// (account, provider id)
    pub provider_names: Vec<(String, String)>,
    /// Messages by [`super::records::request_hash`].
    pub requests: Vec<Hash>,
    pub messages: Vec<u64>,
    pub outs: Vec<u64>,
    /// Lanes of which the two lowest messages that are due some time are wanted (in `Loaded::outs` and `Loaded::lowest`).
    pub lowest_outs: Vec<Hash>,
    /// Channels and accounts of which it matters how many messages are in the outbox, those in doubt apart. Not locked.
    pub waiting: Vec<(String, String)>,
    /// Claims with their results, by [`super::records::claim_hash`].
    pub claims: Vec<Hash>,
}

#[derive(Clone, Debug, Default)]
pub struct Loaded {
    pub lanes: HashMap<Hash, LaneRec>,
    pub items: HashMap<u64, ItemRec>,
    /// Lowest first.
    pub lowest: HashMap<Hash, Vec<u64>>,
    pub events: HashMap<u64, EventRec>,
    /// (account, name) to the name its thread goes by.
    pub names: HashMap<(String, String), String>,
    pub sure_names: HashMap<(String, String), String>,
    pub threads: HashMap<Hash, ThreadRec>,
    /// Those of the wanted accounts that have begun a message and do not know yet what became of it.
    pub sending: HashSet<String>,
    pub provider_names: HashMap<Hash, ProviderNameRec>,
    pub messages: HashMap<u64, MessageRec>,
    pub outs: HashMap<u64, OutRec>,
    /// By channel, account, and whether the replies are meant or the rest; each that is wanted, and both of it.
    pub waiting: HashMap<(String, String, bool), usize>,
    pub claims: HashMap<Hash, ClaimRec>,
}

/// What a step writes. `new_…` are inserted, plain ones updated, `gone_…` removed; every record is named once.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub new_events: Vec<EventRec>,
    /// (event, how often it was replayed)
    pub replays: Vec<(u64, u32)>,
    /// With their attempts, answers and copies.
    pub gone_events: Vec<EventRec>,
    /// Events that lose their texts, and the answers to them.
    pub forgotten_events: Vec<u64>,
    /// All events of webhooks that lose their headers and bodies: those that carry them, and those that came with them.
    pub forgotten_bodies: Vec<EventRec>,
    pub new_items: Vec<ItemRec>,
    pub items: Vec<ItemRec>,
    pub gone_items: Vec<u64>,
    pub new_lanes: Vec<LaneRec>,
    pub lanes: Vec<LaneRec>,
    pub gone_lanes: Vec<Hash>,
    pub new_names: Vec<NameRec>,
    /// Put, whether they are there or not.
    pub names: Vec<NameRec>,
    pub new_threads: Vec<ThreadRec>,
    pub threads: Vec<ThreadRec>,
    /// With all names that lead to them.
    pub gone_threads: Vec<Hash>,
    pub new_provider_names: Vec<ProviderNameRec>,
    pub provider_names: Vec<ProviderNameRec>,
    /// By [`super::records::name_hash`].
    pub gone_provider_names: Vec<Hash>,
    pub new_messages: Vec<MessageRec>,
    /// Only `home`, `provider_id`, `steps`, `why` and `past` have changed.
    pub messages: Vec<MessageRec>,
    /// Messages that lose their texts and payloads.
    pub forgotten_messages: Vec<MessageRec>,
    /// With their attempts.
    pub gone_messages: Vec<u64>,
    pub new_outs: Vec<OutRec>,
    pub outs: Vec<OutRec>,
    pub gone_outs: Vec<u64>,
    pub attempts: Vec<AttemptRec>,
    /// Put, whether they are there or not.
    pub answers: Vec<AnswerRec>,
    /// Threads that were marked as read, and how many were unread: for engines that show each message's status on its own.
    pub marked_read: Vec<(Hash, u64)>,
    pub new_claims: Vec<ClaimRec>,
    pub claims: Vec<ClaimRec>,
    pub gone_claims: Vec<Hash>,
    /// They come from another store: of what is new, nobody knows what is there already beside it.
    pub moved: bool,
}

/// What a thread is made of.
#[derive(Clone, Debug)]
pub enum Entry {
    Event(Arc<EventRec>),
    Message(Arc<MessageRec>),
}

impl Entry {
    pub fn number(&self) -> u64 {
        match self {
            Entry::Event(event) => event.number,
            Entry::Message(message) => message.number,
        }
    }
}
