//! The model's data and its whole steps.

mod redrive;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::age::{Dated, sift};
use hapax_domain::{Direction, Event, EventId, EventKey, Fence, ItemId, MessageId, ThreadId, ids};

use super::outbox::Outbox;
use super::threads::{Said, Threads};
use crate::{
    Accepted, Answer, Arrival, AttemptRow, Copies, EntryId, InboxLease, KeptHeaders, LaneRef, LeaseAsk, LeasedEvent, NewMessage,
    OutboxAsk, OutboxLease, Outcome, Purged, SUSPECTED, Settled, StoreError, Submitted, Then, end_after_set_back, suspected,
    why_kept,
};

#[derive(Default)]
pub(super) struct State {
    /// Numbers events, replays and lanes alike.
    last_number: u64,
    /// The latest time an id was made of: ids stay in order when the clock is set back.
    last_ms: i64,
    /// The clock when it was last followed.
    seen_ms: i64,
    last_fence: u64,
    keys: HashMap<EventKey, Claim>,
    pub(super) events: BTreeMap<EventId, Recorded>,
    pub(super) items: BTreeMap<ItemId, Item>,
    pub(super) lanes: BTreeMap<u64, Lane>,
    lane_names: HashMap<(Arc<str>, String), u64>,
    pub(super) attempts: Vec<(EventId, AttemptRow)>,
    pub(super) copies: HashMap<EventId, Copies>,
    pub(super) answers: HashMap<EventId, Answer>,
    settings: HashMap<String, String>,
    pub(super) outbox: Outbox,
    pub(super) threads: Threads,
}

struct Claim {
    event: EventId,
    fingerprint: u32,
    expires_ms: i64,
}

pub(super) struct Recorded {
    pub(super) event: Event,
    pub(super) channel: Arc<str>,
    pub(super) received_ms: i64,
    pub(super) webhook: Arc<Webhook>,
    /// The item it was first put into; `None`: kept.
    pub(super) item: Option<ItemId>,
    /// In place of the webhook's body, when it is only a part of one that could not be read.
    pub(super) part: Option<Bytes>,
}

pub(super) struct Webhook {
    pub(super) headers: KeptHeaders,
    pub(super) body: Bytes,
    pub(super) events: u32,
}

pub(super) struct Item {
    pub(super) channel: Arc<str>,
    pub(super) events: Vec<EventId>,
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) replay: Option<u32>,
    pub(super) place: Place,
    pub(super) why: Option<String>,
    /// Kept, because there was no room for them.
    replies: Vec<NewMessage>,
    pub(super) received_ms: i64,
    /// When it may next be tried, once it is its turn.
    pub(super) due_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    InLane(u64),
    Parked,
    Quarantined,
}

/// Exists only while items wait in it.
pub(super) struct Lane {
    channel: Arc<str>,
    /// Channel and ordering key, or `None` for a lane of one event.
    name: Option<(Arc<str>, String)>,
    pub(super) items: BTreeSet<ItemId>,
    pub(super) lease: Option<Held>,
}

#[derive(Clone)]
pub(super) struct Held {
    pub(super) item: ItemId,
    pub(super) fence: Fence,
    pub(super) worker: Arc<str>,
    leased_ms: i64,
    pub(super) until_ms: i64,
}

impl Item {
    fn is_suspected(&self) -> bool {
        self.why.as_deref().is_some_and(|why| why.starts_with(SUSPECTED))
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn id(&mut self, now: i64) -> uuid::Uuid {
        self.last_ms = self.last_ms.max(now);
        ids::numbered(self.last_ms, self.number())
    }

    /// Moves waits and leases with a clock that was set back.
    pub(super) fn follow_clock(&mut self, now: i64) {
        let back = std::mem::replace(&mut self.seen_ms, now) - now;
        if back > 0 {
            let waiting = self.items.values_mut().filter(|item| matches!(item.place, Place::InLane(_)));
            waiting.for_each(|item| item.due_ms -= back);
            let leases = self.lanes.values_mut().filter_map(|lane| lane.lease.as_mut());
            leases.for_each(|held| held.until_ms = end_after_set_back(held.until_ms, back, now));
            self.outbox.follow_clock(back, now);
        }
    }

    pub(super) fn mark_read(&mut self, thread: &ThreadId) -> bool {
        self.threads.mark_read(thread, self.last_number)
    }

    pub(super) fn accept(&mut self, arrival: Arrival, now: i64) -> Vec<Accepted> {
        let webhook = Arc::new(Webhook { headers: arrival.headers, body: arrival.body, events: arrival.events.len() as u32 });
        let mut new_items: HashMap<String, ItemId> = HashMap::new();
        let mut accepted = Vec::with_capacity(arrival.events.len());
        for new in arrival.events {
            if let Some(claim) = self.keys.get(&new.event.key).filter(|claim| claim.expires_ms > now) {
                let same = claim.fingerprint == new.event.fingerprint;
                accepted.push(if same { Accepted::Duplicate(claim.event) } else { Accepted::Conflict(claim.event) });
                continue;
            }
            let held = |guard| self.keys.get(&guard).filter(|held| held.expires_ms > now);
            if let Some(first) = new.event.guard.filter(|_| new.event.suspects_full).and_then(held) {
                accepted.push(Accepted::Duplicate(first.event));
                continue;
            }
            let id = EventId(self.id(now));
            let expires_ms = now + new.event.window_ms.unwrap_or(arrival.window_ms);
            let claim = Claim { event: id, fingerprint: new.event.fingerprint, expires_ms };
            self.keys.insert(new.event.key, claim);
            let suspect = new.event.guard.and_then(|guard| self.guard(guard, id, now + arrival.window_ms, now));
            let lane = new.event.lane().map(|thread| thread.to_string());
            let mut part = None;
            let item = match new.then {
                Then::Keep => None,
                Then::Quarantine { why, part: bytes } => {
                    part = Some(bytes);
                    Some(self.add_item(id, id, &arrival.channel, Place::Quarantined, Some(why), now))
                }
                Then::Deliver if suspect.is_some() => {
                    Some(self.add_item(id, id, &arrival.channel, Place::Parked, suspect.map(suspected), now))
                }
                Then::Deliver => match lane.as_ref().and_then(|lane| new_items.get(lane)) {
                    Some(&item) => {
                        if let Some(open) = self.items.get_mut(&item) {
                            open.events.push(id);
                        }
                        Some(item)
                    }
                    None => {
                        let place = Place::InLane(self.lane(&arrival.channel, lane.clone()));
                        let item = self.add_item(id, id, &arrival.channel, place, None, now);
                        new_items.extend(lane.map(|lane| (lane, item)));
                        Some(item)
                    }
                },
            };
            let is_ours = suspect.is_some() || self.outbox.hear(&new.event, now);
            // An echo of a message that is in the thread already is not said twice.
            if part.is_none() && !is_ours {
                self.threads.hear(&new.event, &arrival.channel, EntryId::Event(id), now);
            }
            let (event, channel) = (new.event, Arc::clone(&arrival.channel));
            self.events.insert(id, Recorded { event, channel, received_ms: now, webhook: Arc::clone(&webhook), item, part });
            accepted.push(if suspect.is_some() { Accepted::Suspected(id) } else { Accepted::New(id) });
        }
        accepted
    }

    /// Claims what a new event was signed with; gives the event that holds it already.
    fn guard(&mut self, guard: EventKey, event: EventId, expires_ms: i64, now: i64) -> Option<EventId> {
        if let Some(held) = self.keys.get(&guard).filter(|held| held.expires_ms > now) {
            return Some(held.event);
        }
        self.keys.insert(guard, Claim { event, fingerprint: 0, expires_ms });
        None
    }

    fn add_item(
        &mut self,
        id: EventId,
        event: EventId,
        channel: &Arc<str>,
        place: Place,
        why: Option<String>,
        now: i64,
    ) -> ItemId {
        let item = ItemId(id.0);
        if let Place::InLane(lane) = place
            && let Some(lane) = self.lanes.get_mut(&lane)
        {
            lane.items.insert(item);
        }
        let channel = Arc::clone(channel);
        self.items.insert(
            item,
            Item {
                channel,
                events: vec![event],
                attempt: 0,
                failures: 0,
                replay: None,
                place,
                why,
                replies: vec![],
                received_ms: now,
                due_ms: now,
            },
        );
        item
    }

    /// Finds the lane of this name, or opens it.
    fn lane(&mut self, channel: &Arc<str>, name: Option<String>) -> u64 {
        let name = name.map(|name| (Arc::clone(channel), name));
        if let Some(&number) = name.as_ref().and_then(|name| self.lane_names.get(name)) {
            return number;
        }
        let number = self.number();
        let lane = Lane { channel: Arc::clone(channel), name, items: BTreeSet::new(), lease: None };
        self.lane_names.extend(lane.name.clone().map(|name| (name, number)));
        self.lanes.insert(number, lane);
        number
    }

    pub(super) fn note_copies(&mut self, copies: &[Copies]) {
        for more in copies.iter().filter(|more| self.events.contains_key(&more.event)) {
            self.copies.entry(more.event).or_insert(Copies { copies: 0, conflicts: 0, ..*more }).add(more);
        }
    }

    pub(super) fn lease(&mut self, ask: &LeaseAsk, now: i64) -> Vec<InboxLease> {
        let mut leases = Vec::new();
        for (channel, max) in &ask.wants {
            let lanes = self.lanes.iter().filter(|(_, lane)| lane.channel == *channel);
            let mut due: Vec<(i64, ItemId, u64)> =
                lanes.filter_map(|(&number, lane)| Some((self.due_ms(lane)?, *lane.items.first()?, number))).collect();
            due.retain(|(due_ms, ..)| *due_ms <= now);
            due.sort_unstable();
            for (_, _, number) in due.into_iter().take(*max) {
                leases.extend(self.lease_lane(number, ask, now));
            }
        }
        leases
    }

    /// When the lane may next be taken: the end of its lease, or when its first item is due.
    fn due_ms(&self, lane: &Lane) -> Option<i64> {
        let held = lane.lease.as_ref().map(|held| held.until_ms);
        held.or_else(|| Some(self.items.get(lane.items.first()?)?.due_ms))
    }

    fn lease_lane(&mut self, number: u64, ask: &LeaseAsk, now: i64) -> Option<InboxLease> {
        self.log_lost(number, now, "the lease ran out");
        let lane = self.lanes.get_mut(&number)?;
        let id = *lane.items.first()?;
        self.last_fence += 1;
        let (fence, until_ms) = (Fence(self.last_fence), now + ask.hold_ms);
        lane.lease = Some(Held { item: id, fence, worker: Arc::clone(&ask.worker), leased_ms: now, until_ms });
        let item = self.items.get_mut(&id)?;
        item.attempt += 1;
        let first = self.events.get(item.events.first()?)?;
        let events = item.events.iter().filter_map(|id| Some((*id, self.events.get(id)?)));
        Some(InboxLease {
            lane: lane_ref(number),
            fence,
            until_ms,
            item: id,
            channel: Arc::clone(&item.channel),
            attempt: item.attempt,
            failures: item.failures,
            replay: item.replay,
            received_ms: first.received_ms,
            headers: first.webhook.headers.clone(),
            body: first.webhook.body.clone(),
            webhook_events: first.webhook.events,
            events: events
                .map(|(id, recorded)| LeasedEvent {
                    id,
                    kind: recorded.event.kind,
                    index: recorded.event.index,
                    thread: recorded.event.thread(),
                })
                .collect(),
        })
    }

    /// Writes down that a lease was not settled before somebody else took the lane.
    fn log_lost(&mut self, number: u64, now: i64, why: &str) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some(held) = lane.lease.take() else { return };
        self.log_attempt(&held, now, "lost", why);
    }

    fn log_attempt(&mut self, held: &Held, now: i64, outcome: &str, detail: &str) {
        let Some(item) = self.items.get(&held.item) else { return };
        let row = AttemptRow {
            item: held.item,
            attempt: item.attempt,
            fence: held.fence,
            worker: held.worker.to_string(),
            leased_ms: held.leased_ms,
            ended_ms: now,
            outcome: outcome.to_owned(),
            detail: detail.to_owned(),
        };
        self.attempts.push((item.events[0], row));
    }

    pub(super) fn extend(&mut self, lane: LaneRef, fence: Fence, until: i64) -> bool {
        let held = self.lanes.get_mut(&lane_number(lane)).and_then(|lane| lane.lease.as_mut());
        let Some(held) = held.filter(|held| held.fence == fence) else { return false };
        held.until_ms = until;
        true
    }

    pub(super) fn settle(&mut self, lane: LaneRef, fence: Fence, outcome: Outcome, now: i64) -> Settled {
        let number = lane_number(lane);
        let Some(lane) = self.lanes.get_mut(&number) else { return Settled::Lost };
        let Some(held) = lane.lease.take_if(|held| held.fence == fence) else { return Settled::Lost };
        let (name, charge) = (outcome.name(), outcome.charge());
        match outcome {
            Outcome::Delivered { status, answer, replies } => {
                self.log_attempt(&held, now, name, &status.to_string());
                // A replay answers nobody.
                if let Some(item) = self.items.get(&held.item).filter(|item| item.replay.is_none())
                    && let Some(answer) = answer
                {
                    self.answers.extend(item.events.iter().map(|&event| (event, answer.clone())));
                }
                if let Some(full) = replies.iter().find(|reply| self.outbox.is_full_for(reply)) {
                    let why = why_kept(&full.account, replies.len());
                    self.park(number, held.item, why, replies);
                    return Settled::Kept;
                }
                self.send_all(replies, now);
                self.items.remove(&held.item);
                self.leave_lane(number, held.item);
            }
            Outcome::Parked { why } => {
                self.log_attempt(&held, now, name, &why);
                self.park(number, held.item, why, vec![]);
            }
            Outcome::Retry { wait_ms, why } => {
                self.log_attempt(&held, now, name, &why);
                if let Some(item) = self.items.get_mut(&held.item) {
                    item.failures += charge;
                    item.why = Some(why);
                    item.due_ms = now + wait_ms;
                }
            }
            Outcome::HandBack { wait_ms, called } => {
                if let Some(why) = &called {
                    self.log_attempt(&held, now, name, why);
                }
                if let Some(item) = self.items.get_mut(&held.item) {
                    item.attempt -= u32::from(called.is_none());
                    item.why = called.or(item.why.take());
                    item.due_ms = now + wait_ms;
                }
            }
        }
        Settled::Done
    }

    fn park(&mut self, lane: u64, id: ItemId, why: String, replies: Vec<NewMessage>) {
        if let Some(item) = self.items.get_mut(&id) {
            item.place = Place::Parked;
            item.why = Some(why);
            item.replies = replies;
        }
        self.leave_lane(lane, id);
    }

    fn send_all(&mut self, replies: Vec<NewMessage>, now: i64) {
        for reply in replies {
            // Room was looked for before: of one answer, all find it or none.
            self.queue(reply, now);
        }
    }

    fn leave_lane(&mut self, number: u64, item: ItemId) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.items.remove(&item);
        if lane.items.is_empty() {
            let name = self.lanes.remove(&number).and_then(|lane| lane.name);
            name.and_then(|name| self.lane_names.remove(&name));
        }
    }

    pub(super) fn end_all_leases(&mut self, now: i64) {
        let leased: Vec<u64> = self.lanes.iter().filter(|(_, lane)| lane.lease.is_some()).map(|(&n, _)| n).collect();
        for number in leased {
            self.log_lost(number, now, "hapax stopped");
        }
        self.outbox.end_all_leases(now);
    }

    pub(super) fn purge(&mut self, retention: &[(String, i64)], max: usize, now: i64) -> Purged {
        self.follow_clock(now);
        let expired: Vec<EventKey> =
            self.keys.iter().filter(|(_, claim)| claim.expires_ms <= now).map(|(k, _)| *k).take(max).collect();
        for key in &expired {
            self.keys.remove(key);
        }
        let open: BTreeSet<EventId> = self.items.values().flat_map(|item| item.events.iter().copied()).collect();
        let longest = retention.iter().map(|(_, keep_ms)| *keep_ms).max();
        let keep_of =
            |channel: &str| retention.iter().find(|(listed, _)| listed == channel).map(|(_, keep_ms)| *keep_ms).or(longest);
        let is_over = |channel: &str, at_ms: i64| keep_of(channel).is_some_and(|keep_ms| at_ms + keep_ms <= now);
        let shortest = retention.iter().map(|(_, keep_ms)| *keep_ms).min();
        // A webhook goes as a whole, because its events share one body; a part that could not be read is a whole of its own.
        let whole = |id: EventId, recorded: &Recorded| match &recorded.part {
            Some(_) => id.0.as_u128(),
            None => Arc::as_ptr(&recorded.webhook) as usize as u128,
        };
        let mut first_of: HashMap<u128, u64> = HashMap::new();
        let mut page = Vec::new();
        for (id, recorded) in &self.events {
            let number = ids::number_of(id.0);
            if *first_of.entry(whole(*id, recorded)).or_insert(number) == number {
                page.push(Dated { number, at_ms: recorded.received_ms });
            }
        }
        let sifted = shortest.map(|keep_ms| sift(&page, None, keep_ms, now, false).old).unwrap_or_default();
        let counts_by: HashMap<u64, i64> = sifted.into_iter().map(|row| (row.number, row.at_ms)).collect();
        let old = |id: EventId, recorded: &Recorded| {
            let at_ms = first_of.get(&whole(id, recorded)).and_then(|first| counts_by.get(first));
            at_ms.is_some_and(|at_ms| is_over(&recorded.channel, *at_ms))
        };
        let needed: BTreeSet<u128> =
            self.events.iter().filter(|(id, _)| open.contains(id)).map(|(id, recorded)| whole(*id, recorded)).collect();
        let (mut gone, mut webhooks, mut more) = (Vec::new(), BTreeSet::new(), expired.len() == max);
        for (id, recorded) in self.events.iter().filter(|(id, recorded)| old(**id, recorded)) {
            let webhook = whole(*id, recorded);
            if needed.contains(&webhook) {
                continue;
            }
            // The last webhook goes as a whole too.
            if gone.len() < max || webhooks.contains(&webhook) {
                webhooks.insert(webhook);
                gone.push(*id);
            } else {
                more = true;
            }
        }
        for id in &gone {
            self.events.remove(id);
            self.answers.remove(id);
            self.copies.remove(id);
            self.attempts.retain(|(of, _)| of != id);
        }
        if let Some(shortest) = shortest {
            self.outbox.purge(|page| sift(page, None, shortest, now, false).old, is_over);
        }
        if let Some(longest) = longest {
            self.outbox.purge_early(now - longest);
        }
        if !more && longest.is_some() {
            self.purge_threads(is_over, now);
        }
        Purged { keys: expired.len() as u64, events: gone.len() as u64, more }
    }

    /// Those whose last words are from the future go with what said them.
    fn purge_threads(&mut self, is_over: impl Fn(&str, i64) -> bool, now: i64) {
        let (events, outbox) = (&self.events, &self.outbox);
        let is_there = |entry| match entry {
            EntryId::Event(id) => events.contains_key(&id),
            EntryId::Message(id) => outbox.holds(id),
        };
        self.threads.purge(|channel, last_ms| last_ms > now || is_over(channel, last_ms), is_there);
    }

    pub(super) fn submit(&mut self, new: NewMessage, now: i64) -> Result<Submitted, StoreError> {
        if self.outbox.is_full_for(&new) {
            return Err(StoreError::outbox_full(&new));
        }
        Ok(self.queue(new, now))
    }

    fn queue(&mut self, new: NewMessage, now: i64) -> Submitted {
        let thread = self.threads.of(&new.account, &new.peer);
        let id = MessageId(self.id(now));
        let (channel, text) = (Arc::clone(&new.channel), new.text.clone());
        let submitted = self.outbox.submit(new, thread.peer.clone(), id, now);
        if let Submitted::New(id) = submitted {
            let said = Said { channel: &channel, entry: EntryId::Message(id), direction: Direction::Out, text: text.as_ref() };
            self.threads.say(thread, &said, now);
        }
        submitted
    }

    pub(super) fn lease_outbox(&mut self, ask: &OutboxAsk, now: i64) -> Vec<OutboxLease> {
        self.outbox.lease(ask, now, &mut self.last_fence)
    }

    pub(super) fn remember(&mut self, name: &str, value: &str) -> String {
        self.settings.entry(name.to_owned()).or_insert_with(|| value.to_owned()).clone()
    }

    pub(super) fn amend(&mut self, name: &str, expected: Option<&str>, new: Option<&str>) -> Option<String> {
        if self.settings.get(name).map(String::as_str) == expected {
            match new {
                Some(new) => self.settings.insert(name.to_owned(), new.to_owned()),
                None => self.settings.remove(name),
            };
        }
        self.settings.get(name).cloned()
    }

    pub(super) fn keys_held(&self) -> u64 {
        self.keys.len() as u64
    }
}

pub(super) fn lane_ref(number: u64) -> LaneRef {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    LaneRef(bytes)
}

pub(super) fn lane_number(lane: LaneRef) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&lane.0[..8]);
    u64::from_le_bytes(bytes)
}
