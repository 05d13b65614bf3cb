//! The model's data and its whole steps.

mod forget;
mod redrive;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::age::{Dated, sift};
use hapax_domain::{Coalesce, Direction, Event, EventId, EventKey, Fence, ItemId, MessageId, ThreadId, fingerprint, ids};

use super::claims::Kept;
use super::lanes::Lanes;
use super::outbox::Outbox;
use super::threads::{Learned, Said, Threads};
use crate::pieces::{Piece, purged_at_once};
use crate::registers::Register;
use crate::{
    Accepted, Answer, Arrival, AttemptRow, Changed, Copies, Disposition, EntryId, KeptHeaders, LaneRef, NewMessage, OutboxLease,
    OutboxLeaseRequest, Purged, SUSPECTED, SendOutcome, Settled, StoreError, Submitted, suspected,
};

#[derive(Default)]
pub(super) struct State {
    /// Numbers events, replays and lanes alike.
    last_number: u64,
    /// The latest time an id was made of: ids stay in order when the clock is set back.
    last_ms: i64,
    /// The clock when it was last followed.
    seen_ms: i64,
    pub(super) last_fence: u64,
    keys: HashMap<EventKey, Claim>,
    pub(super) events: BTreeMap<EventId, Recorded>,
    pub(super) items: BTreeMap<ItemId, Item>,
    pub(super) lanes: Lanes,
    pub(super) attempts: Vec<(EventId, AttemptRow)>,
    pub(super) copies: HashMap<EventId, Copies>,
    pub(super) answers: HashMap<EventId, Answer>,
    registers: HashMap<String, Register>,
    pub(super) claims: Kept,
    pub(super) pieces: BTreeMap<(String, u32), Piece>,
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
    pub(super) place: ItemPlace,
    pub(super) why: Option<String>,
    /// Kept, because there was no room for them.
    pub(super) replies: Vec<NewMessage>,
    pub(super) received_ms: i64,
    /// When it may next be tried, once it is its turn.
    pub(super) due_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemPlace {
    InLane(u64),
    Parked,
    Quarantined,
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
            let waiting = self.items.values_mut().filter(|item| matches!(item.place, ItemPlace::InLane(_)));
            waiting.for_each(|item| item.due_ms -= back);
            self.lanes.follow_clock(back, now);
            self.outbox.follow_clock(back, now);
        }
    }

    pub(super) fn mark_read(&mut self, thread: &ThreadId) -> bool {
        self.threads.mark_read(thread, self.last_number)
    }

    pub(super) fn accept(&mut self, arrival: &Arrival, now: i64) -> Vec<Accepted> {
        let (headers, body) = (arrival.headers.clone(), arrival.body.clone());
        let webhook = Arc::new(Webhook { headers, body, events: arrival.events.len() as u32 });
        let mut new_items: HashMap<ThreadId, ItemId> = HashMap::new();
        let mut accepted = Vec::with_capacity(arrival.events.len());
        for new in &arrival.events {
            if let Some(claim) = self.keys.get(&new.event.key).filter(|claim| claim.expires_ms > now) {
                let same = fingerprint::is_copy(claim.fingerprint, new.event.fingerprint);
                accepted.push(if same { Accepted::Duplicate(claim.event) } else { Accepted::Conflict(claim.event) });
                continue;
            }
            let held = |guard| self.keys.get(&guard).filter(|held| held.expires_ms > now);
            if let Some(first) = new.event.guard.filter(|_| new.event.guard_suppresses).and_then(held) {
                accepted.push(Accepted::Duplicate(first.event));
                continue;
            }
            let id = EventId(self.id(now));
            let expires_ms = now + arrival.window_of(&new.event);
            let claim = Claim { event: id, fingerprint: new.event.fingerprint, expires_ms };
            self.keys.insert(new.event.key, claim);
            let suspect = new.event.guard.and_then(|guard| self.guard(guard, id, now + arrival.window_ms, now));
            let is_ours = suspect.is_some() || self.outbox.hear(&new.event, now);
            // An echo of a message that is in the thread already is not said twice.
            let is_said = !is_ours && !matches!(new.disposition, Disposition::Quarantine { .. });
            let thread = if is_said { self.learn_names(&new.event, &arrival.channel) } else { None };
            let lane = self.threads.lane_of(&new.event);
            let mut part = None;
            let item = match &new.disposition {
                Disposition::Keep => None,
                Disposition::Quarantine { why, part: bytes } => {
                    part = Some(bytes.clone());
                    Some(self.add_item(id, id, &arrival.channel, ItemPlace::Quarantined, Some(why.clone()), now))
                }
                Disposition::Deliver if suspect.is_some() => {
                    Some(self.add_item(id, id, &arrival.channel, ItemPlace::Parked, suspect.map(suspected), now))
                }
                Disposition::Deliver => match lane.as_ref().and_then(|lane| new_items.get(lane)) {
                    Some(&item) => {
                        if let Some(open) = self.items.get_mut(&item) {
                            open.events.push(id);
                        }
                        Some(item)
                    }
                    None => {
                        let number = self.lane(&arrival.channel, new.event.lane(), lane.clone());
                        let coalesce = arrival.coalesce.filter(|_| lane.is_some());
                        let item = self.take_turn(number, id, &arrival.channel, coalesce, now);
                        new_items.extend(lane.map(|lane| (lane, item)));
                        Some(item)
                    }
                },
            };
            if let Some(thread) = thread {
                let direction = if new.event.echo { Direction::Out } else { Direction::In };
                let (entry, text) = (EntryId::Event(id), new.event.text.as_ref());
                self.threads.say(thread, &Said { channel: &arrival.channel, entry, direction, text }, now);
            }
            let (event, channel) = (new.event.clone(), Arc::clone(&arrival.channel));
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

    /// Makes an event part of the turn that its lane has open, or an item of its own.
    fn take_turn(&mut self, lane: u64, id: EventId, channel: &Arc<str>, coalesce: Option<Coalesce>, now: i64) -> ItemId {
        let open = coalesce.zip(self.lanes.turn(lane)).and_then(|(coalesce, turn)| {
            let takes = |item: &&mut Item| coalesce.takes(item.due_ms, item.events.len(), now);
            let item = self.items.get_mut(&turn).filter(takes)?;
            item.events.push(id);
            item.due_ms = coalesce.due_ms(item.received_ms, now);
            Some(turn)
        });
        if let Some(turn) = open {
            return turn;
        }
        let item = self.add_item(id, id, channel, ItemPlace::InLane(lane), None, now);
        if let (Some(coalesce), Some(made)) = (coalesce, self.items.get_mut(&item)) {
            made.due_ms = coalesce.due_ms(now, now);
            self.lanes.set_turn(lane, Some(item));
        }
        item
    }

    fn add_item(
        &mut self,
        id: EventId,
        event: EventId,
        channel: &Arc<str>,
        place: ItemPlace,
        why: Option<String>,
        now: i64,
    ) -> ItemId {
        let item = ItemId(id.0);
        if let ItemPlace::InLane(lane) = place {
            self.lanes.put(lane, item);
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

    /// Takes note of the names in a message, and makes lanes one that turn out to be of one person. Gives the thread it belongs to.
    fn learn_names(&mut self, event: &Event, channel: &Arc<str>) -> Option<ThreadId> {
        let Learned { thread, others } = self.threads.learn(event)?;
        for peer in others {
            let other = ThreadId { account: thread.account.clone(), peer };
            let fresh = self.number();
            self.lanes.join(channel, &other, &thread, fresh);
            self.outbox.join(channel, &other, &thread);
        }
        Some(thread)
    }

    /// Finds the lane of a thread, or opens it. One that was left under the name as `spelt` joins it.
    fn lane(&mut self, channel: &Arc<str>, spelt: Option<ThreadId>, thread: Option<ThreadId>) -> u64 {
        let fresh = self.number();
        if let (Some(spelt), Some(thread)) = (&spelt, &thread) {
            self.lanes.join(channel, spelt, thread, fresh);
        }
        self.lanes.open(channel, thread, fresh)
    }

    /// Finds or opens the lane of an event that was recorded before.
    fn lane_again(&mut self, event: EventId, channel: &Arc<str>) -> u64 {
        let spelt = self.events.get(&event).and_then(|recorded| recorded.event.lane());
        let thread = spelt.as_ref().map(|spelt| self.threads.of(&spelt.account, &spelt.peer));
        self.lane(channel, spelt, thread)
    }

    pub(super) fn note_copies(&mut self, copies: &[Copies]) {
        for more in copies.iter().filter(|more| self.events.contains_key(&more.event)) {
            self.copies.entry(more.event).or_insert(Copies { copies: 0, conflicts: 0, ..*more }).add(more);
        }
    }

    pub(super) fn end_all_leases(&mut self, now: i64) {
        for lane in self.lanes.all() {
            for lost in self.lanes.unhold_if(lane, |held| !held.outside || held.until_ms <= now) {
                let why = if lost.outside { "the lease ran out" } else { "hapax stopped" };
                self.log_attempt(&lost, now, "lost", why);
            }
        }
        self.outbox.end_all_leases(now, &self.threads);
    }

    pub(super) fn purge(&mut self, retention: &[(String, i64)], max: usize, now: i64) -> Purged {
        self.follow_clock(now);
        let expired: Vec<EventKey> =
            self.keys.iter().filter(|(_, claim)| claim.expires_ms <= now).map(|(k, _)| *k).take(max).collect();
        for key in &expired {
            self.keys.remove(key);
        }
        let more = self.claims.purge(max, now) | self.purge_registers(max, now) | self.purge_pieces(purged_at_once(max), now);
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
        let (mut gone, mut webhooks, mut more) = (Vec::new(), BTreeSet::new(), expired.len() == max || more);
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

    pub(super) fn queue(&mut self, new: NewMessage, now: i64) -> Submitted {
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

    pub(super) fn lease_outbox(&mut self, ask: &OutboxLeaseRequest, now: i64) -> Vec<OutboxLease> {
        self.outbox.lease(ask, now, &mut self.last_fence, &self.threads)
    }

    pub(super) fn settle_outbox(&mut self, lane: LaneRef, fence: Fence, outcome: SendOutcome, now: i64) -> Settled {
        self.outbox.settle(lane_number(lane), fence, outcome, now, &self.threads)
    }

    pub(super) fn settle_late(&mut self, id: MessageId, attempt: u32, outcome: &SendOutcome, now: i64) -> Changed {
        self.outbox.settle_late(id, attempt, outcome, now, &self.threads)
    }

    pub(super) fn retry_message(&mut self, id: MessageId, now: i64) -> Changed {
        self.outbox.retry(id, now, &self.threads)
    }

    pub(super) fn cancel_message(&mut self, id: MessageId, now: i64) -> Changed {
        self.outbox.cancel(id, now, &self.threads)
    }

    fn register(&self, name: &str, now: i64) -> Option<&str> {
        self.registers.get(name).filter(|register| !register.is_over(now)).map(|register| &*register.value)
    }

    pub(super) fn remember(&mut self, name: &str, value: &str, now: i64) -> String {
        let kept = self.register(name, now).map(str::to_owned);
        kept.or_else(|| self.amend(name, None, Some(value), None, now)).unwrap_or_default()
    }

    pub(super) fn amend(
        &mut self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
        now: i64,
    ) -> Option<String> {
        if self.register(name, now) == expected {
            let put = |new: &str| Register { value: new.to_owned(), ends_ms: keep_ms.map(|keep_ms| now + keep_ms) };
            match new {
                Some(new) => self.registers.insert(name.to_owned(), put(new)),
                None => self.registers.remove(name),
            };
        }
        self.register(name, now).map(str::to_owned)
    }

    fn purge_pieces(&mut self, max: usize, now: i64) -> bool {
        let over = self.pieces.iter().filter(|(_, piece)| piece.ends_ms <= now).map(|(key, _)| key.clone());
        let over: Vec<(String, u32)> = over.take(max).collect();
        over.iter().for_each(|key| drop(self.pieces.remove(key)));
        over.len() == max
    }

    /// Removes at most `max` that are over; true when there may be more.
    fn purge_registers(&mut self, max: usize, now: i64) -> bool {
        let over = self.registers.iter().filter(|(_, register)| register.is_over(now)).map(|(name, _)| name.clone());
        let over: Vec<String> = over.take(max).collect();
        over.iter().for_each(|name| drop(self.registers.remove(name)));
        over.len() == max
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
