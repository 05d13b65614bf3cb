//! Taking in: keys, events and items of one webhook.

use std::sync::Arc;

use hapax_domain::key::KeyHasher;
use hapax_domain::{Coalesce, Event, EventId, EventKey, Kind, fingerprint};
use hapax_store::{Accepted, Arrival, Copies, Disposition, NewEvent, StoreError, suspected};
use rusqlite::{OptionalExtension, params};

use super::keys::Claim;
use super::lanes::{LaneName, Line, Waiting};
use super::names::{NameHash, Person, name_hash};
use super::pending::{EventRow, ItemRow};
use super::rows::event_id;
use super::threads::Said;
use super::turns::{GatheredTurn, Turn};
use super::writer::{StepError, Writer};

/// An item being gathered from the events of one webhook.
pub(super) struct Gathered {
    /// As it was called when the first event came.
    under: Option<LaneName>,
    pub(super) line: InLine,
    pub(super) members: Vec<u64>,
    pub(super) turn: GatheredTurn,
    item: u64,
}

/// What is hashed of an event by the caller, because the writer's time is everybody's.
pub(super) struct Hashed {
    /// Of its peer as the provider spelt it.
    lane: Option<LaneName>,
    /// Of the peer and its aliases, where it is heard in a thread or waits in one.
    names: Vec<NameHash>,
}

/// Where an item waits: the lane, or nothing for one that waits for nobody, and whose it is, where the event is from another name of theirs.
#[derive(Clone, Default)]
pub(super) struct InLine {
    pub(super) lane: Option<LaneName>,
    pub(super) peer: Option<Arc<str>>,
    /// No thread is known by the name that the lane is called by.
    pub(super) nameless: bool,
}

/// What was heard in a thread.
struct Heard {
    person: Person,
    /// What was said there before.
    prev: i64,
}

pub(super) fn hash(arrival: &Arrival) -> Vec<Hashed> {
    let hash = |new: &NewEvent| {
        let event = &new.event;
        let names = names_of(event).map(|name| name_hash(&event.account, name)).collect();
        Hashed { lane: event.lane().map(|thread| lane_name(&arrival.channel, &thread.account, &thread.peer)), names }
    };
    arrival.events.iter().map(hash).collect()
}

/// The names of whom an event is from or to; none for what neither is heard in a thread nor waits in one.
fn names_of(event: &Event) -> impl Iterator<Item = &str> {
    let peer = event.peer.iter().filter(|_| event.kind.waits_in_thread());
    peer.flat_map(|peer| std::iter::once(peer).chain(&event.aliases)).map(String::as_str)
}

impl Gathered {
    /// What comes under this name is part of it without being asked.
    fn is_under(&self, lane: Option<LaneName>) -> bool {
        lane.is_some_and(|name| self.under == lane || self.turn.names.contains(&name))
    }
}

impl Writer {
    pub(super) fn accept(&mut self, arrival: &Arc<Arrival>, hashed: &[Hashed]) -> Result<Vec<Accepted>, StepError> {
        if !self.disk.has_room() {
            return Err(StepError::Refused(StoreError::Full { floor_mb: self.disk.floor_mb() }));
        }
        let channel = self.channel(&arrival.channel)?;
        // Where lanes were joined or have turns, it looks into the tables.
        let looks = arrival.coalesce.is_some();
        if looks || self.has_joins {
            self.write_pending()?;
        }
        if looks {
            // Whether something waits in a lane must be known for sure.
            self.lanes.load(&self.db, channel)?;
        }
        let mut accepted = Vec::with_capacity(arrival.events.len());
        let mut gathered: Vec<Gathered> = Vec::new();
        let mut body_at = None;
        for ((at, new), hashed) in arrival.events.iter().enumerate().zip(hashed) {
            if let Some(held) = self.keys.find(&self.db, &new.event.key.0, self.now_ms / 1_000)? {
                let number = self.keys.numbering.number_of(&self.db, held)?.unwrap_or_default();
                let first = event_id(i64::from(held.at_s) * 1_000, number);
                let same = fingerprint::is_copy(held.fingerprint, new.event.fingerprint);
                accepted.push(if same { Accepted::Duplicate(first) } else { Accepted::Conflict(first) });
                continue;
            }
            if let Some(guard) = new.event.guard.filter(|_| new.event.guard_suppresses)
                && let Some(first) = self.guarded_by(&guard)?
            {
                accepted.push(Accepted::Duplicate(first));
                continue;
            }
            let number = self.number();
            let place = self.keys.numbering.place_of(number);
            let window_ms = arrival.window_of(&new.event) + self.lag_ms();
            let claim = Claim::new(place, new.event.fingerprint, self.now_ms, window_ms);
            self.keys.insert(&new.event.key.0, claim);
            let suspect = self.guard(new, number, arrival.window_ms)?;
            let heard = if suspect.is_some() { None } else { self.hear(channel, number, new, &hashed.names)? };
            if let Some(Heard { person, .. }) = heard.as_ref().filter(|heard| !heard.person.joined.is_empty()) {
                self.join_names(arrival, &new.event.account, person, &mut gathered)?;
            }
            let line = match (&new.disposition, suspect) {
                (Disposition::Deliver, None) => self.line_for(arrival, &new.event, hashed, heard.as_ref(), &mut gathered)?,
                _ => InLine::default(),
            };
            let item = self.put_in_line((channel, arrival.coalesce), number, new, suspect, line, &mut gathered)?;
            let said = heard.map(|heard| (heard.person.thread, heard.prev));
            let webhook = match &new.disposition {
                Disposition::Quarantine { .. } => number,
                Disposition::Keep | Disposition::Deliver => *body_at.get_or_insert(number),
            };
            let (arrival, received_ms) = (Arc::clone(arrival), self.now_ms);
            self.hold_event(EventRow { arrival, at, number, received_ms, channel, webhook, item, said });
            let id = event_id(self.now_ms, number);
            accepted.push(if suspect.is_some() { Accepted::Suspected(id) } else { Accepted::New(id) });
        }
        self.queue(channel, gathered, arrival.coalesce)?;
        if self.pending.is_large() {
            self.write_pending()?;
        }
        Ok(accepted)
    }

    /// Claims what a new event was signed with; gives the event that holds it already.
    fn guard(&mut self, new: &NewEvent, number: u64, window_ms: i64) -> Result<Option<EventId>, StepError> {
        let Some(guard) = new.event.guard else { return Ok(None) };
        if let Some(held) = self.guarded_by(&guard)? {
            return Ok(Some(held));
        }
        self.db.prepare_cached("INSERT OR REPLACE INTO guards VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            guard.0,
            number as i64,
            self.now_ms,
            self.now_ms + window_ms + self.lag_ms()
        ])?;
        Ok(None)
    }

    /// The event that holds what another was signed with.
    fn guarded_by(&mut self, guard: &EventKey) -> Result<Option<EventId>, StepError> {
        let held = self
            .db
            .prepare_cached("SELECT at, event FROM guards WHERE key = ?1 AND expires > ?2")?
            .query_row(params![guard.0, self.now_ms], |row| Ok(event_id(row.get(0)?, row.get::<_, i64>(1)? as u64)))
            .optional()?;
        if held.is_some() {
            return Ok(held);
        }
        // One that came from another store is among the keys.
        if let Some(moved) = self.keys.find(&self.db, &guard.0, self.now_ms / 1_000)? {
            let first = self.keys.numbering.number_of(&self.db, moved)?.unwrap_or_default();
            return Ok(Some(event_id(i64::from(moved.at_s) * 1_000, first)));
        }
        Ok(None)
    }

    /// Makes what waits under names that are one person's from now on wait in one line; what this webhook has brought so far, too.
    fn join_names(
        &mut self,
        arrival: &Arrival,
        account: &str,
        person: &Person,
        gathered: &mut [Gathered],
    ) -> rusqlite::Result<()> {
        for (name, was_known) in &person.joined {
            let here = self.join_lanes(account, (name, *was_known), person, &arrival.channel)?;
            if !here && gathered.is_empty() {
                continue;
            }
            let channel = self.channel(&arrival.channel)?;
            let into = lane_name(&arrival.channel, account, &person.peer);
            let from = lane_name(&arrival.channel, account, name);
            let moved = move_gathered(gathered, from, into, &person.peer);
            if moved {
                self.write_inbox_joins(channel, &[from], into, &person.peer)?;
            }
            if here || moved {
                self.end_turns(channel, into, gathered)?;
            }
        }
        Ok(())
    }

    /// Finds the event's item; gives nothing for an event that goes nowhere.
    fn put_in_line(
        &mut self,
        (channel, coalesce): (i64, Option<Coalesce>),
        number: u64,
        new: &NewEvent,
        suspect: Option<EventId>,
        line: InLine,
        gathered: &mut Vec<Gathered>,
    ) -> Result<Option<u64>, StepError> {
        match &new.disposition {
            Disposition::Keep => Ok(None),
            Disposition::Quarantine { why, .. } => self.park_new(channel, number, why, true),
            Disposition::Deliver if suspect.is_some() => {
                self.park_new(channel, number, &suspect.map(suspected).unwrap_or_default(), false)
            }
            Disposition::Deliver => {
                let turn = match gathered.iter().position(|item| item.is_under(line.lane)) {
                    Some(at) => Turn::Gathered(at),
                    None => self.open_turn(channel, &line, coalesce, gathered)?,
                };
                let (item, turn) = match turn {
                    Turn::Gathered(at) => {
                        let item = &mut gathered[at];
                        item.members.push(number);
                        item.line.peer = item.line.peer.take().or(line.peer);
                        item.turn.names.extend(line.lane);
                        return Ok(Some(item.item));
                    }
                    Turn::Open(item, turn) => (item, turn),
                    Turn::New(turn) => (number, turn),
                };
                gathered.push(Gathered { under: line.lane, line, item, members: vec![number], turn });
                Ok(Some(item))
            }
        }
    }

    /// The line of whom the event's names belong to now.
    fn line_for(
        &mut self,
        arrival: &Arrival,
        event: &Event,
        hashed: &Hashed,
        heard: Option<&Heard>,
        gathered: &mut [Gathered],
    ) -> rusqlite::Result<InLine> {
        let Some(spelt) = hashed.lane else { return Ok(InLine::default()) };
        let mut names = names_of(event).zip(hashed.names.iter().copied());
        let mut known = match heard {
            Some(heard) => Some(Arc::clone(&heard.person.peer)),
            None => self.threads.resolve(&self.db, &event.account, names.next())?.map(|(_, peer)| peer),
        };
        let by_alias = known.is_none();
        if by_alias {
            known = self.threads.resolve(&self.db, &event.account, names)?.map(|(_, peer)| peer);
        }
        let nameless = known.is_none();
        let Some(peer) = known.filter(|peer| event.peer.as_deref() != Some(peer)) else {
            return Ok(InLine { lane: Some(spelt), peer: None, nameless });
        };
        let lane = lane_name(&arrival.channel, &event.account, &peer);
        // Something else may wait under the peer's own name, which said nothing to us. What comes into an item of this webhook is in line already.
        if by_alias && !gathered.iter().any(|item| item.is_under(Some(lane))) {
            let channel = self.channel(&arrival.channel)?;
            let mut joined = self.join_inbox(channel, spelt, lane, &peer)?;
            joined.extend(move_gathered(gathered, spelt, lane, &peer).then_some(spelt));
            self.write_inbox_joins(channel, &joined, lane, &peer)?;
            if !joined.is_empty() {
                self.end_turns(channel, lane, gathered)?;
            }
        }
        Ok(InLine { lane: Some(lane), peer: Some(peer), nameless: false })
    }

    fn park_new(&mut self, channel: i64, number: u64, why: &str, quarantined: bool) -> Result<Option<u64>, StepError> {
        self.db
            .prepare_cached("INSERT INTO parked VALUES (?1, ?2, ?1, NULL, 0, NULL, ?3, ?4, ?5, 0, NULL)")?
            .execute(params![number as i64, channel, self.now_ms, why, quarantined])?;
        Ok(Some(number))
    }

    /// Lets the event be heard: by the message it is about, and in its thread.
    fn hear(&mut self, channel: i64, number: u64, new: &NewEvent, hashes: &[NameHash]) -> rusqlite::Result<Option<Heard>> {
        let event = &new.event;
        let is_ours = self.hear_word(event)?;
        // Our own message, in the thread already, is not said twice; what could not be read says nothing.
        let says = event.kind == Kind::Message && !hashes.is_empty();
        if !says || is_ours || matches!(new.disposition, Disposition::Quarantine { .. }) {
            return Ok(None);
        }
        let names: Vec<(&str, NameHash)> = names_of(event).zip(hashes.iter().copied()).collect();
        let last_number = &mut self.last_number;
        let mut next = || {
            *last_number += 1;
            *last_number as i64
        };
        let person = self.threads.learn(&self.db, channel, &event.account, &names, &mut next)?;
        let said = Said { number: number as i64, at: self.now_ms, out: event.echo, text: event.text.as_deref() };
        let prev = self.threads.say(&self.db, person.thread, &said)?;
        Ok(Some(Heard { person, prev }))
    }

    fn queue(&mut self, channel: i64, gathered: Vec<Gathered>, coalesce: Option<Coalesce>) -> rusqlite::Result<()> {
        self.work_made |= !gathered.is_empty();
        for item in gathered {
            if let Some((lane, coalesce)) = item.turn.joins.zip(coalesce) {
                let peer = self.speaking(channel, item.line)?.peer;
                self.join_turn((channel, lane, peer), item.item, &item.members, coalesce)?;
                continue;
            }
            let members = (item.members.len() > 1).then(|| members_blob(&item.members));
            let (number, is_moved) = (item.item as i64, item.line.lane != item.under);
            self.note_nameless(channel, number, &item.line)?;
            let InLine { lane, peer, .. } = self.speaking(channel, item.line)?;
            let turn = coalesce.zip(lane);
            let due = turn.map_or(self.now_ms, |(coalesce, _)| coalesce.due_ms(self.now_ms, self.now_ms));
            let waiting = Waiting::new(number, lane, due, Line::default()).of(peer);
            // What was joined within this webhook was put into the lane it came to first.
            let waiting = if is_moved { Waiting { put_into: item.under, ..waiting } } else { waiting };
            let (peer, received_ms) = (waiting.peer.clone(), self.now_ms);
            self.lanes.will_be_written(channel, &waiting);
            self.hold_item(ItemRow { channel, number, lane: waiting.put_into, members, received_ms, due_ms: due, peer });
            if self.has_joins || turn.is_some() || self.lanes.looks_up(channel) {
                self.write_pending()?;
            }
            self.lanes.add(&self.db, channel, waiting)?;
            match turn.filter(|_| !is_moved && !item.turn.closed) {
                Some((_, lane)) => self.begin_turn(channel, lane, number)?,
                None => self.close_turn(channel, lane)?,
            }
        }
        Ok(())
    }

    pub(super) fn note_copies(&mut self, copies: &[Copies]) -> Result<(), StepError> {
        let mut upsert = self.db.prepare_cached(
            "INSERT INTO copies (number, copies, conflicts, last, kept) SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM events WHERE number = ?1)
             ON CONFLICT (number) DO UPDATE SET copies = copies + excluded.copies, conflicts = conflicts + excluded.conflicts,
                 last = max(last, excluded.last), kept = CASE kept WHEN '' THEN excluded.kept ELSE kept END",
        )?;
        for more in copies {
            let number = hapax_domain::ids::number_of(more.event.0) as i64;
            upsert.execute(params![number, more.copies as i64, more.conflicts as i64, more.last_ms, more.write_kept()])?;
        }
        Ok(())
    }
}

/// Makes items of this webhook that wait in one lane wait in another; true when there are such.
fn move_gathered(gathered: &mut [Gathered], from: LaneName, into: LaneName, peer: &Arc<str>) -> bool {
    let mut any = false;
    for item in gathered.iter_mut().filter(|item| item.line.lane == Some(from)) {
        item.line = InLine { lane: Some(into), peer: Some(Arc::clone(peer)), nameless: false };
        any = true;
    }
    any
}

pub(super) fn lane_name(channel: &str, account: &str, peer: &str) -> LaneName {
    let mut hasher = KeyHasher::new("lane");
    hasher.part(channel.as_bytes());
    hasher.part(account.as_bytes());
    hasher.part(peer.as_bytes());
    let mut name = LaneName::default();
    name.copy_from_slice(&hasher.finish()[..16]);
    name
}

pub(super) fn members_blob(members: &[u64]) -> Vec<u8> {
    members.iter().flat_map(|number| number.to_le_bytes()).collect()
}
