//! What goes out: submitting, leasing, beginning and settling messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hapax_domain::key::KeyHasher;
use hapax_domain::{Fence, MessageId, Outgoing, PendingSend, Status, Steps, ids};
use hapax_store::{LaneRef, NewMessage, OutboxLease, OutboxLeaseRequest, SendOutcome, Settled, StoreError, Submitted};
use rusqlite::{OptionalExtension, params};

use super::accept::lane_name;
use super::lanes::{Held, LaneName, Line, Tables, Waiting};
use super::provider_feedback::Loaded;
use super::rows::{fence_of, item_ref, message_id, named_by, priority_number, steps_text};
use super::send_rows::Try;
use super::sends::Content;
use super::threads::Said;
use super::writer::{StepError, Writer};

/// The outbox as [`super::lanes`] reads it.
pub(super) const OUTBOX: Tables = Tables {
    waiting: "SELECT number, ifnull((SELECT j.into_lane FROM joined_lanes j WHERE j.lane = o.lane AND j.to_number >= ifnull(o.put, o.number)
                  ORDER BY j.to_number LIMIT 1), lane), due, priority, account_key, lane IS NOT NULL OR unknown, lane, NULL
              FROM outbox o WHERE channel = ?1 AND number > ?2 AND due IS NOT NULL ORDER BY number LIMIT ?3",
    account: None,
    leases: "SELECT channel, item, attempt, fence, worker, leased, ends FROM out_leases WHERE channel = ?1",
    extend: "UPDATE out_leases SET ends = ?2 WHERE item = ?1",
};

impl Writer {
    /// Whether this would be one more than may wait.
    pub(super) fn is_full_for(&mut self, new: &NewMessage) -> rusqlite::Result<bool> {
        let Some(&channel) = self.channels.get(&new.channel) else { return Ok(false) };
        let line = (channel, account_key(&new.account), new.priority.is_reply());
        let waiting = match self.sends.waiting.get(&line) {
            Some(waiting) => *waiting,
            None => self.count_waiting(line)?,
        };
        let most = self.outbox_max.load(Ordering::Relaxed) as i64;
        if waiting < most {
            return Ok(false);
        }
        Ok(self.known_request(new)?.is_err())
    }

    fn count_waiting(&mut self, line: (i64, i64, bool)) -> rusqlite::Result<i64> {
        self.write_sends()?;
        let waiting: Option<i64> = self
            .db
            .prepare_cached("SELECT waiting FROM outbox_counts WHERE channel = ?1 AND account_key = ?2 AND reply = ?3")?
            .query_row(line, |row| row.get(0))
            .optional()?;
        let waiting = waiting.unwrap_or_default();
        self.sends.waiting.insert(line, waiting);
        Ok(waiting)
    }

    /// The message that was made for this request before, with its fingerprint, or the id under which the request is kept now.
    fn known_request(&self, new: &NewMessage) -> rusqlite::Result<Result<(MessageId, [u8; 32]), String>> {
        let (apart, channel) = (new.request_id_apart(), self.channels.get(&new.channel).copied());
        let hash_apart = request_hash(&new.account, &apart);
        let (mut known_apart, mut known) = (None, None);
        let mut find = self
            .db
            .prepare_cached("SELECT request, number, created, fingerprint, channel FROM messages WHERE request IN (?1, ?2)")?;
        let mut found = find.query([hash_apart, request_hash(&new.account, &new.request_id)])?;
        while let Some(row) = found.next()? {
            let message = (message_id(row.get(2)?, row.get(1)?), row.get::<_, [u8; 32]>(3)?);
            match row.get::<_, LaneName>(0)? == hash_apart {
                true => known_apart = Some(message),
                false => known = Some((message, row.get::<_, i64>(4)?)),
            }
        }
        Ok(match (known_apart, known) {
            (Some(known), _) => Ok(known),
            (None, Some((known, of))) if Some(of) == channel => Ok(known),
            (None, Some(_)) => Err(apart),
            (None, None) => Err(new.request_id.clone()),
        })
    }

    /// The first of these that finds no room.
    pub(super) fn finds_no_room<'m>(&mut self, messages: &'m [NewMessage]) -> rusqlite::Result<Option<&'m NewMessage>> {
        for new in messages {
            if self.is_full_for(new)? {
                return Ok(Some(new));
            }
        }
        Ok(None)
    }

    pub(super) fn submit_within_room(&mut self, new: &NewMessage) -> Result<Submitted, StepError> {
        if self.is_full_for(new)? {
            return Err(StepError::Refused(StoreError::outbox_full(new)));
        }
        self.submit(new)
    }

    pub(super) fn submit(&mut self, new: &NewMessage) -> Result<Submitted, StepError> {
        let request_id = match self.known_request(new)? {
            Ok((id, fingerprint)) if fingerprint == new.fingerprint => return Ok(Submitted::Replayed(id)),
            Ok((id, _)) => return Ok(Submitted::Mismatch(id)),
            Err(request_id) => request_id,
        };
        let channel = self.channel(&new.channel)?;
        let number = self.number() as i64;
        let (thread, peer) = self.thread_of_peer(channel, &new.account, &new.peer)?;
        let said = Said { number, at: self.now_ms, out: true, text: new.text.as_deref() };
        let prev = self.threads.say(&self.db, thread, &said)?;
        self.write_message(new, &request_id, number, channel, thread, prev)?;
        let line = Line { priority: priority_number(new.priority), account: account_key(&new.account) };
        let held_until = new.held_until(self.now_ms);
        let waiting = match held_until {
            Some(due) => Waiting::new(number, None, due, line),
            None => {
                let lane = lane_name(&new.channel, &new.account, &peer);
                let lane = self.outgoing.speaker(channel, lane).map_or(lane, |(speaks, _)| speaks);
                Waiting::new(number, Some(lane), self.now_ms, line)
            }
        };
        self.put_out(channel, &new.account, waiting)?;
        // What is to be sent later would only take room.
        if held_until.is_none() {
            let (state, account) = (Outgoing::new(self.now_ms, None), Arc::from(&*new.account));
            let loaded = Loaded { state, channel, account, created: self.now_ms, line };
            self.sends.enter(number, loaded, Content::of(new, request_id));
        }
        Ok(Submitted::New(message_id(self.now_ms, number)))
    }

    /// The thread of a peer and the name it goes by; made when there is none.
    fn thread_of_peer(&mut self, channel: i64, account: &str, peer: &str) -> rusqlite::Result<(i64, Arc<str>)> {
        let last_number = &mut self.last_number;
        let mut number = || {
            *last_number += 1;
            *last_number as i64
        };
        self.threads.find(&self.db, channel, account, peer, &mut number)
    }

    fn write_message(
        &self,
        new: &NewMessage,
        request_id: &str,
        number: i64,
        channel: i64,
        thread: i64,
        prev: i64,
    ) -> rusqlite::Result<()> {
        let steps = Steps::new(vec![(Status::Queued, self.now_ms)]);
        let mut insert = self.db.prepare_cached(
            "INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, NULL, ?15, NULL, NULL)",
        )?;
        insert.execute(params![
            number,
            self.now_ms,
            channel,
            new.account,
            new.peer,
            request_hash(&new.account, request_id),
            request_id,
            new.fingerprint,
            new.text,
            &*new.payload,
            priority_number(new.priority),
            new.reply_to.map(|event| event.0.into_bytes()),
            thread,
            prev,
            steps_text(&steps),
        ])?;
        Ok(())
    }

    /// Puts a new message in line.
    fn put_out(&mut self, channel: i64, account: &str, waiting: Waiting) -> rusqlite::Result<()> {
        let Waiting { item, lane, due, line, .. } = waiting.clone();
        self.db
            .prepare_cached(
                "INSERT INTO outbox (number, channel, account, account_key, lane, priority, attempt, due, unknown)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, 0)",
            )?
            .execute(params![item, channel, account, line.account, lane, line.priority, due])?;
        self.outgoing.add(&self.db, channel, waiting)?;
        self.sends.more_wait(channel, line, 1);
        self.work_made = true;
        Ok(())
    }

    pub(super) fn lease_outbox(&mut self, ask: &OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StepError> {
        let mut leases = Vec::new();
        for (name, max) in &ask.wants {
            let Some(&channel) = self.channels.get(name) else { continue };
            let mut resting: Vec<i64> =
                ask.resting.iter().filter(|(of, _)| of == name).map(|(_, account)| account_key(account)).collect();
            let paused: Vec<String> = self
                .db
                .prepare_cached("SELECT account FROM paused WHERE channel = ?1")?
                .query_map([&**name], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            resting.extend(paused.iter().map(|account| account_key(account)));
            let mut left = *max;
            while left > 0 {
                let due = self.outgoing.due(&self.db, channel, self.now_ms, left, &|account| resting.contains(&account))?;
                if due.is_empty() {
                    break;
                }
                for (lane, number) in due {
                    // Settled by what was heard meanwhile: its lane's next message may come before the others.
                    let Some(lease) = self.lease_message(channel, lane, number, name, ask)? else { break };
                    leases.push(lease);
                    left -= 1;
                }
            }
        }
        Ok(leases)
    }

    fn lease_message(
        &mut self,
        channel: i64,
        lane: u64,
        number: i64,
        name: &Arc<str>,
        ask: &OutboxLeaseRequest,
    ) -> rusqlite::Result<Option<OutboxLease>> {
        let mut any_left = false;
        for lost in self.outgoing.take_held(&self.db, channel, lane)? {
            any_left |= self.lose_try(&lost, Some(lane), "the lease ran out")?;
        }
        if any_left || !self.outgoing.is_due(channel, lane, self.now_ms) {
            return Ok(None);
        }
        let was = self.message_now(number)?;
        let Some((was, place)) = was.and_then(|was| was.state.place.map(|place| (was, place))) else {
            self.outgoing.remove(channel, lane, number);
            return Ok(None);
        };
        let mut state = was.state.clone();
        if !state.lease(self.now_ms) || place.held {
            if let Some(place) = &mut state.place {
                // The time it was held until has come.
                place.held = false;
            }
            self.keep(number, &was, &state, Some(lane))?;
            return Ok(None);
        }
        if state.past != was.state.past {
            self.keep(number, &was, &state, Some(lane))?;
        }
        let attempt = place.leased_attempt();
        let fence = self.fence()? as i64;
        let held = Held {
            channel,
            item: number,
            attempt,
            fence,
            worker: Arc::clone(&ask.worker),
            leased: self.now_ms,
            ends: self.now_ms + ask.hold_ms,
            origin: None,
        };
        self.pending.sends.lease(held.clone(), attempt != place.attempt);
        if let Some(place) = self.sends.place(number) {
            place.attempt = attempt;
        }
        self.outgoing.lease(&self.db, lane, held.clone())?;
        match self.sends.take_content(number) {
            Some(Content { request_id, peer, payload, text }) => Ok(Some(OutboxLease {
                lane: item_ref(channel, number),
                fence: fence_of(fence),
                until_ms: held.ends,
                message: message_id(was.created, number),
                request_id,
                channel: Arc::clone(name),
                account: was.account.to_string(),
                peer,
                payload,
                text,
                attempt,
                failures: place.failures,
                created_ms: was.created,
                in_doubt_since_ms: place.begun_ms,
            })),
            None => self.leased_message(&held, &place, name).map(Some),
        }
    }

    fn leased_message(&self, held: &Held, place: &PendingSend, channel: &Arc<str>) -> rusqlite::Result<OutboxLease> {
        self.db
            .prepare_cached("SELECT created, request_id, account, peer, payload, text FROM messages WHERE number = ?1")?
            .query_row([held.item], |row| {
                let created_ms = row.get(0)?;
                Ok(OutboxLease {
                    lane: item_ref(held.channel, held.item),
                    fence: fence_of(held.fence),
                    until_ms: held.ends,
                    message: message_id(created_ms, held.item),
                    request_id: row.get(1)?,
                    channel: Arc::clone(channel),
                    account: row.get(2)?,
                    peer: row.get(3)?,
                    payload: Bytes::from(row.get::<_, Vec<u8>>(4)?),
                    text: row.get(5)?,
                    attempt: held.attempt,
                    failures: place.failures,
                    created_ms,
                    in_doubt_since_ms: place.begun_ms,
                })
            })
    }

    /// Writes down a lease that nobody settled; true when the message has left the outbox because it was heard of.
    fn lose_try(&mut self, held: &Held, lane: Option<u64>, why: &str) -> rusqlite::Result<bool> {
        self.write_sends()?;
        self.pending.sends.end_lease(held.item);
        let Some(was) = self.message_now(held.item)? else { return Ok(false) };
        self.log_try(held, &was.state, "lost", why);
        let mut state = was.state.clone();
        state.lose_lease(self.now_ms);
        self.keep(held.item, &was, &state, lane)?;
        Ok(state.place.is_none())
    }

    fn log_try(&mut self, held: &Held, state: &Outgoing, outcome: &'static str, detail: &str) {
        self.pending.sends.note(Try {
            number: held.item,
            fence: held.fence,
            attempt: state.place.map_or(held.attempt, |place| place.attempt),
            worker: Arc::clone(&held.worker),
            leased: held.leased,
            ended: self.now_ms,
            outcome,
            detail: detail.to_owned(),
        });
    }

    pub(super) fn begin(&mut self, lane: LaneRef, fence: Fence) -> Result<Settled, StepError> {
        let (channel, number) = named_by(lane);
        if !self.outgoing.is_held(&self.db, channel, number, fence.0 as i64)? {
            return Ok(Settled::Lost);
        }
        let Some(was) = self.message_now(number)? else { return Ok(Settled::Lost) };
        let mut state = was.state.clone();
        if !state.begin(self.now_ms) {
            return Ok(Settled::Lost);
        }
        self.keep(number, &was, &state, None)?;
        Ok(Settled::Done)
    }

    pub(super) fn settle_outbox(&mut self, lane: LaneRef, fence: Fence, outcome: &SendOutcome) -> Result<Settled, StepError> {
        let (channel, number) = named_by(lane);
        let Some((lane, held)) = self.outgoing.end(&self.db, channel, number, fence.0 as i64)? else { return Ok(Settled::Lost) };
        self.pending.sends.end_lease(number);
        let Some(was) = self.message_now(number)? else { return Ok(Settled::Lost) };
        let mut taken = Vec::new();
        if let SendOutcome::Found { provider_ids, .. } = outcome {
            self.write_sends()?;
            for id in provider_ids {
                let owner = self.by_provider_id(&was.account, id)?;
                taken.extend(owner.filter(|owner| *owner != number).map(|_| id));
            }
        }
        let outcome = outcome.clone().matched(|id| !taken.iter().any(|taken| *taken == id) && !was.state.past.was_called(id));
        let mut state = was.state.clone();
        if let Some(detail) = outcome.detail() {
            self.log_try(&held, &state, outcome.name(), detail);
        }
        if let SendOutcome::Sent { provider_id } = &outcome {
            let early = self.name(number, &was.account, provider_id)?;
            state.call_it(provider_id, &early);
        }
        state.settle(&outcome, self.now_ms);
        self.keep(number, &was, &state, Some(lane))?;
        self.work_made = true;
        Ok(Settled::Done)
    }

    /// The lane of whom the message was written to, by the name that thread goes by now.
    pub(super) fn lane_of_message(&mut self, number: i64) -> rusqlite::Result<LaneName> {
        let (channel, account, peer, thread): (i64, String, String, i64) = self
            .db
            .prepare_cached("SELECT channel, account, peer, thread FROM messages WHERE number = ?1")?
            .query_row([number], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let peer = match self.threads.resolve_name(&self.db, &account, &peer)? {
            Some((_, peer)) => peer,
            None => self.threads.peer_of(&self.db, thread)?,
        };
        let lane = lane_name(&self.channel_name(channel), &account, &peer);
        Ok(self.outgoing.speaker(channel, lane).map_or(lane, |(speaks, _)| speaks))
    }

    /// Ends the tries of the process that owned the file before; what it had begun is in doubt from now on.
    pub(super) fn end_all_tries(&mut self) -> rusqlite::Result<()> {
        let left: Vec<Held> = self
            .db
            .prepare("SELECT channel, item, attempt, fence, worker, leased, ends FROM out_leases")?
            .query_map([], Held::read)?
            .collect::<Result<_, _>>()?;
        for held in left {
            self.lose_try(&held, None, "hapax stopped")?;
        }
        self.write_sends()
    }
}

pub(super) fn account_key(account: &str) -> i64 {
    let hash = hash16("account", &[account]);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    i64::from_le_bytes(bytes)
}

pub(super) fn request_hash(account: &str, request_id: &str) -> LaneName {
    hash16("request", &[account, request_id])
}

fn hash16(purpose: &str, parts: &[&str]) -> LaneName {
    let mut hasher = KeyHasher::new(purpose);
    parts.iter().for_each(|part| hasher.part(part.as_bytes()));
    let mut name = LaneName::default();
    name.copy_from_slice(&hasher.finish()[..16]);
    name
}

/// The number in a message's id.
pub(super) fn message_number(id: hapax_domain::MessageId) -> i64 {
    ids::number_of(id.0) as i64
}
