//! What a server engine keeps: plain records, found by number or hash. How they are laid out is the engine's affair.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::claim::{Claim, ClaimKey, ClaimResult, ClaimState, OnAbandoned};
use hapax_domain::key::KeyHasher;
use hapax_domain::{
    Direction, EventId, ItemId, Kind, MessageId, Outgoing, Past, Priority, Round, Status, Steps, ThreadId, ids, outgoing,
};
use serde::{Deserialize, Serialize};

use super::record::{Column, Field, Kept, Reader, Record, Source, Value, column_of, record};
use crate::{Answer, KeptHeaders, NewMessage};

/// Names what has no number: a lane, a thread, a request, a provider's name for a message.
pub type Hash = [u8; 32];

record! {
    /// A claimed event key. `event` and `at_ms` make the id of the event that holds it.
    pub struct KeyRec, known by Hash = |key| key.key;

    pub key: Hash,
    pub event: u64,
    pub at_ms: i64,
    pub fingerprint: u32,
    /// From this time on the key may be claimed anew.
    pub expires_ms: i64,
}

record! {
    /// One event. Never changed, except for `replays`.
    pub struct EventRec, known by u64 = |event| event.number;

    pub number: u64,
    /// The event that carries the body of their webhook: the first new one. A part that could not be read carries itself.
    pub webhook: u64,
    pub received_ms: i64,
    pub channel: Arc<str>,
    pub kind: Kind,
    pub account: String,
    /// The provider's id.
    pub id: String,
    pub peer: Option<String>,
    pub echo: bool,
    pub at_ms: Option<i64>,
    pub text: Option<String>,
    pub index: u32,
    /// The item it was first put into; `None`: kept.
    pub item: Option<u64>,
    /// It could not be read: its body is a part of the webhook's.
    pub part: bool,
    /// The thread it is an entry of, under the name the peer went by then.
    pub thread: Option<Hash>,
    pub replays: u32,
    pub body_bytes: u64,
    @asked
    /// Only on the event that carries it, and only when bodies were asked for.
    pub carried: Option<Carried> = Carried {
        headers as "headers", body as "body", events as "webhook_events",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    pub headers: KeptHeaders,
    pub body: Bytes,
    /// How many events the webhook had in all.
    pub events: u32,
}

record! {
    /// An open inbox item: it waits in its lane, or is parked. Gone when it was delivered.
    pub struct ItemRec, known by u64 = |item| item.number;

    pub number: u64,
    pub received_ms: i64,
    pub channel: Arc<str>,
    pub lane: Hash,
    pub place: ItemPlace,
    /// Numbers of its events, in the order of the webhook.
    pub events: Vec<u64>,
    /// When the events were received.
    pub events_ms: i64,
    pub webhook: u64,
    /// Attempts that ended; while it is leased the lane knows the present one.
    pub attempt: u32,
    /// What was charged to it so far.
    pub failures: u32 = 0,
    pub replay: Option<u32>,
    pub why: Option<String>,
    pub due_ms: i64,
    /// Kept, because there was no room for them in the outbox.
    pub replies: Vec<NewMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemPlace {
    InLane,
    Parked,
    Quarantined,
}

impl ItemPlace {
    /// As engines write it down.
    pub fn code(self) -> i16 {
        match self {
            ItemPlace::InLane => 0,
            ItemPlace::Parked => 1,
            ItemPlace::Quarantined => 2,
        }
    }

    pub fn from_code(code: i16) -> Option<ItemPlace> {
        [ItemPlace::InLane, ItemPlace::Parked, ItemPlace::Quarantined].into_iter().find(|place| place.code() == code)
    }
}

/// The two queues that lanes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    Inbox,
    Outbox,
}

impl Queue {
    /// As engines write it down.
    pub fn code(self) -> i16 {
        match self {
            Queue::Inbox => 0,
            Queue::Outbox => 1,
        }
    }

    pub fn from_code(code: i16) -> Option<Queue> {
        [Queue::Inbox, Queue::Outbox].into_iter().find(|queue| queue.code() == code)
    }
}

/// The rank by which lanes are sorted, as engines write it down.
pub fn priority_code(priority: Priority) -> i16 {
    match priority {
        Priority::Reply => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

record! {
    /// The row that order, exclusivity and fencing hang on. Exists while something waits in the lane.
    ///
    /// When two lanes turn out to be one person's, the one is joined to the other, whose row then speaks for both: it names the first of all and
    /// when that may be taken. A row that was joined is never due; what was put into it stays, and so does the lease that was given under it.
    pub struct LaneRec, known by Hash = |lane| lane.hash;

    pub hash: Hash,
    pub queue: Queue,
    pub channel: Arc<str>,
    /// Of what is in it; empty in the inbox for rows of older versions.
    pub account: String,
    /// Of the first; always `Normal` in the inbox.
    pub priority: Priority,
    /// The lowest number that waits in it or in one that it speaks for, leased or not.
    pub first: u64,
    /// When it may next be taken: the end of its leases, or when its first is due.
    pub due_ms: i64,
    /// The name its thread goes by. Nothing where it is no thread's, in the outbox, and in rows of older versions.
    pub peer: Option<String>,
    /// The lane that speaks for it; never one that was itself joined to another.
    pub joined_to: Option<Hash>,
    /// The lanes that it speaks for.
    pub joined: Vec<Hash>,
    /// The item that what comes next may become part of.
    pub turn: Option<u64>,
    /// When its first item came, where that has no record of its own: see [`LaneRec::alone`].
    pub alone_ms: Option<i64>,
    @optional
    pub held: Option<Held> = Held {
        number as "held_number", attempt as "held_attempt", fence as "held_fence",
        worker as "held_worker", leased_ms as "held_leased_ms", until_ms as "held_until_ms",
    }
}

/// When a lane is due that another one speaks for.
pub const NEVER_MS: i64 = i64::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The item or message that is being worked on.
    pub number: u64,
    pub attempt: u32,
    pub fence: u64,
    pub worker: String,
    pub leased_ms: i64,
    pub until_ms: i64,
}

record! {
    /// One conversation. Found by [`thread_hash`].
    pub struct ThreadRec, known by Hash = |thread| thread_hash(&thread.account, &thread.peer);

    pub account: String,
    pub peer: String,
    pub channel: String,
    pub last_ms: i64,
    pub last_text: Option<String>,
    pub last_direction: Direction as "last_out",
    pub unread: u64,
    /// Entries up to this number were purged, or stand before one that was.
    pub purged_to: u64,
    /// Entries up to this number were marked as read.
    pub read_to: u64 = 0,
}

record! {
    /// A name of a peer, and the name its thread goes by.
    pub struct NameRec, known by Hash = |name| name_hash(&name.account, &name.name);

    pub account: String,
    pub name: String,
    pub peer: String,
}

record! {
    /// A message that goes out. What is in [`MessageRec::CHANGING`] changes; the rest never.
    pub struct MessageRec, known by u64 = |message| message.number;

    pub number: u64,
    pub created_ms: i64,
    pub channel: Arc<str>,
    pub account: String,
    pub peer: String,
    pub request_id: String,
    pub fingerprint: [u8; 32],
    pub text: Option<String>,
    pub payload: Bytes,
    pub priority: Priority,
    pub reply_to: Option<EventId>,
    /// The lane of its thread, in which it is or was last; when it comes back, it comes to the lane that its thread has then.
    pub home: Hash,
    pub thread: Hash,
    pub provider_id: Option<String>,
    pub steps: Steps,
    pub why: Option<String>,
    pub past: Past,
}

record! {
    /// A message that is still in the outbox.
    pub struct OutRec, known by u64 = |out| out.number;

    pub number: u64,
    pub created_ms: i64,
    pub channel: Arc<str>,
    pub account: String,
    pub lane: Hash,
    pub priority: Priority,
    /// Attempts that ended; while it is leased the lane knows the present one.
    pub attempt: u32,
    /// Those of them that its budget is charged with.
    pub failures: u32 = 0,
    /// `None`: it waits for somebody's word, and is in no lane's line.
    pub due_ms: Option<i64>,
    /// Set from `begin` on until it is known what became of it.
    pub begun_ms: Option<i64>,
    /// It has left its thread's lane, and waits for somebody's word.
    pub unknown: bool,
}

impl OutRec {
    /// It waits in a lane of its own: in doubt, or until the time when it is to be sent.
    pub fn is_alone(&self) -> bool {
        self.unknown || self.lane == own_lane(Queue::Outbox, self.number)
    }

    /// It waits for the time when it is to be sent, and is in its thread's lane from then on.
    pub fn is_held(&self) -> bool {
        self.is_alone() && !self.unknown
    }
}

record! {
    /// What a provider calls a message: whose it is, or what was heard of it before that is known. Found by [`name_hash`].
    ///
    /// Both in one record, so that a status and the answer to the send that cross each other meet.
    pub struct ProviderNameRec, known by Hash = |name| name_hash(&name.account, &name.provider_id);

    pub account: String,
    pub provider_id: String,
    pub message: Option<u64>,
    /// Statuses that came before the message was known by this name.
    pub early: Steps,
    /// When the last of them came, or when the message was first called so.
    pub heard_ms: i64,
}

record! {
    /// One ended attempt at an item or a message. Only ever added.
    pub struct AttemptRec, known by (i16, u64, u64) = |attempt| (attempt.queue.code(), attempt.of, attempt.fence);

    pub queue: Queue,
    /// The first event of the item, or the message.
    pub of: u64,
    pub item: u64,
    pub item_ms: i64,
    pub attempt: u32,
    pub fence: u64,
    pub worker: String,
    pub leased_ms: i64,
    pub ended_ms: i64,
    pub outcome: String,
    pub detail: String,
}

record! {
    /// What the target answered to an event.
    pub struct AnswerRec, known by u64 = |answer| answer.event;

    pub event: u64,
    @always
    pub answer: Answer = Answer { status as "status", content_type as "content_type", body as "body", }
}

impl EventRec {
    pub fn event_id(&self) -> EventId {
        EventId(ids::numbered(self.received_ms, self.number))
    }

    pub fn thread_id(&self) -> Option<ThreadId> {
        self.peer.as_ref().map(|peer| ThreadId { account: self.account.clone(), peer: peer.clone() })
    }

    /// The thread in whose lane its items wait, as its peer was spelt.
    pub fn spelt(&self) -> Option<ThreadId> {
        self.thread_id().filter(|_| self.kind.waits_in_thread())
    }
}

impl LaneRec {
    /// The item that is kept in this row and nowhere else.
    pub fn alone(&self) -> Option<ItemRec> {
        self.alone_ms.map(|at_ms| self.first_as_taken_in(at_ms))
    }

    /// Its first item as it was taken in, if that is an event that came by itself.
    pub fn first_as_taken_in(&self, at_ms: i64) -> ItemRec {
        ItemRec {
            number: self.first,
            received_ms: at_ms,
            channel: Arc::clone(&self.channel),
            lane: self.hash,
            place: ItemPlace::InLane,
            events: vec![self.first],
            events_ms: at_ms,
            webhook: self.first,
            attempt: 0,
            failures: 0,
            replay: None,
            why: None,
            due_ms: at_ms,
            replies: Vec::new(),
        }
    }
}

impl ItemRec {
    pub fn item_id(&self) -> ItemId {
        ItemId(ids::numbered(self.received_ms, self.number))
    }

    /// Its first event.
    pub fn event_id(&self) -> EventId {
        EventId(ids::numbered(self.events_ms, self.events.first().copied().unwrap_or_default()))
    }
}

impl MessageRec {
    /// The columns that change.
    pub const CHANGING: [&str; 5] = ["home", "provider_id", "steps", "why", "past"];

    /// Takes a message that left the outbox because it was heard of for sent.
    pub fn settle_as_known(&mut self, attempt: u32, now_ms: i64) {
        let mut state = Outgoing {
            steps: std::mem::take(&mut self.steps),
            provider_id: self.provider_id.take(),
            why: self.why.take(),
            past: std::mem::take(&mut self.past),
            place: Some(outgoing::PendingSend { attempt, ..outgoing::PendingSend::default() }),
        };
        state.settle_as_known(now_ms);
        (self.steps, self.provider_id, self.why, self.past) = (state.steps, state.provider_id, state.why, state.past);
    }

    pub fn message_id(&self) -> MessageId {
        MessageId(ids::numbered(self.created_ms, self.number))
    }
}

record! {
    /// What is kept under a claimed key.
    pub struct ClaimRec, known by Hash = |claim| claim.hash;

    /// [`claim_hash`]
    pub hash: Hash,
    pub scope: String,
    pub key: String,
    pub state: ClaimState,
    pub token: String,
    pub fence: u64,
    pub fingerprint: Option<String>,
    /// What is abandoned waits for a person.
    pub hold: bool,
    pub holder: Option<String>,
    pub claimed_ms: i64,
    pub lease_ms: i64,
    pub until_ms: i64,
    pub ttl_ms: i64,
    pub completed_ms: Option<i64>,
    pub ends_ms: Option<i64>,
    pub result_bytes: u64,
    @asked
    pub result: Option<ResultRec> = ResultRec {
        content_type as "content_type", bytes as "result",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRec {
    /// Empty: nothing in particular.
    pub content_type: String,
    pub bytes: Bytes,
}

impl ClaimRec {
    pub fn new(claim: &Claim) -> Self {
        let result = |result: &ClaimResult| ResultRec {
            content_type: result.content_type.clone().unwrap_or_default(),
            bytes: result.bytes.clone(),
        };
        Self {
            hash: claim_hash(&claim.key),
            scope: claim.key.scope.clone(),
            key: claim.key.key.clone(),
            state: claim.state,
            token: claim.token.clone(),
            fence: claim.fence,
            fingerprint: claim.fingerprint.clone(),
            hold: claim.on_abandoned == OnAbandoned::Hold,
            holder: claim.holder.clone(),
            claimed_ms: claim.claimed_at_ms,
            lease_ms: claim.lease_ms,
            until_ms: claim.lease_until_ms,
            ttl_ms: claim.ttl_ms,
            completed_ms: claim.completed_at_ms,
            ends_ms: claim.ends_ms,
            result_bytes: claim.result.as_ref().map_or(0, |result| result.bytes.len() as u64),
            result: claim.result.as_ref().map(result),
        }
    }

    pub fn to_claim(&self) -> Claim {
        let result = |result: &ResultRec| ClaimResult {
            content_type: (!result.content_type.is_empty()).then(|| result.content_type.clone()),
            bytes: result.bytes.clone(),
        };
        Claim {
            key: ClaimKey::new(&*self.scope, &*self.key),
            state: self.state,
            token: self.token.clone(),
            fence: self.fence,
            fingerprint: self.fingerprint.clone(),
            on_abandoned: if self.hold { OnAbandoned::Hold } else { OnAbandoned::Takeover },
            holder: self.holder.clone(),
            claimed_at_ms: self.claimed_ms,
            lease_ms: self.lease_ms,
            lease_until_ms: self.until_ms,
            ttl_ms: self.ttl_ms,
            completed_at_ms: self.completed_ms,
            result: self.result.as_ref().map(result),
            ends_ms: self.ends_ms,
        }
    }
}

pub fn claim_hash(key: &ClaimKey) -> Hash {
    hash_of("claim", &[&key.scope, &key.key])
}

/// The lane of a thread's inbox, or of one item that belongs to no thread.
pub fn inbox_lane(channel: &str, thread: Option<&ThreadId>, item: u64) -> Hash {
    match thread {
        Some(thread) => hash_of("inbox lane", &[channel, &thread.account, &thread.peer]),
        None => own_lane(Queue::Inbox, item),
    }
}

/// The lane of a thread's outbox.
pub fn outbox_lane(channel: &str, account: &str, peer: &str) -> Hash {
    hash_of("outbox lane", &[channel, account, peer])
}

/// A lane that only one item is in.
pub fn own_lane(queue: Queue, number: u64) -> Hash {
    let mut hasher = KeyHasher::new("own lane");
    hasher.part(&queue.code().to_le_bytes());
    hasher.part(&number.to_le_bytes());
    hasher.finish()
}

pub fn thread_hash(account: &str, peer: &str) -> Hash {
    hash_of("thread", &[account, peer])
}

pub fn request_hash(account: &str, request_id: &str) -> Hash {
    hash_of("request", &[account, request_id])
}

/// Of a name of a peer, and of a provider's name for a message.
pub fn name_hash(account: &str, name: &str) -> Hash {
    hash_of("name", &[account, name])
}

fn hash_of(purpose: &str, parts: &[&str]) -> Hash {
    let mut hasher = KeyHasher::new(purpose);
    for part in parts {
        hasher.part(part.as_bytes());
    }
    hasher.finish()
}

/// Steps as a text that reads back: `queued=1760000000000,sent=1760000000500`.
pub fn write_steps(steps: &Steps) -> String {
    steps.iter().map(|(status, at_ms)| format!("{}={at_ms}", status.name())).collect::<Vec<_>>().join(",")
}

pub fn read_steps(text: &str) -> Steps {
    let step = |part: &str| {
        let (name, at_ms) = part.split_once('=')?;
        Some((Status::from_name(name)?, at_ms.parse().ok()?))
    };
    Steps::new(text.split(',').filter_map(step).collect())
}

/// What is behind a message as a text that reads back; nothing where there is nothing.
pub fn write_past(past: &Past) -> Option<String> {
    if *past == Past::default() {
        return None;
    }
    let round = |round: &Round| PastRound {
        provider_id: round.provider_id.clone(),
        steps: write_steps(&round.steps),
        why: round.why.clone(),
    };
    let written = PastText { tries: past.tries, doubt: past.doubt, rounds: past.rounds.iter().map(round).collect() };
    serde_json::to_string(&written).ok()
}

pub fn read_past(text: Option<&str>) -> Past {
    let written: PastText = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let round = |round: PastRound| Round { provider_id: round.provider_id, steps: read_steps(&round.steps), why: round.why };
    Past { tries: written.tries, doubt: written.doubt, rounds: written.rounds.into_iter().map(round).collect() }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PastText {
    tries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rounds: Vec<PastRound>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PastRound {
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    steps: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Numbers of events as bytes, eight each.
pub fn write_numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

pub fn read_numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_be_bytes(*chunk)).collect()
}

/// Hashes as bytes, 32 each.
pub fn write_hashes(hashes: &[Hash]) -> Vec<u8> {
    hashes.concat()
}

pub fn read_hashes(bytes: &[u8]) -> Vec<Hash> {
    bytes.as_chunks::<32>().0.to_vec()
}
