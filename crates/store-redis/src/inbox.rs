//! What comes in: accepting, leasing and settling, as calls of scripts.

use std::collections::HashMap;
use std::sync::Arc;

use hapax_domain::{EventId, Fence, ItemId, Kind, Status, ThreadId, limits};
use hapax_store::{
    Accepted, Arrival, Copies, Disposition, InboxLease, KeptHeaders, LaneRef, LeaseRequest, LeasedEvent, LeasedPart, NewEvent,
    Outcome, Redrive, Settled, StoreError, why_kept, write_replies,
};
use redis::Value;

use super::RedisStore;
use super::outbox::message_args;
use super::place::{Location, Mark, Seq, held_by, lane_ref};
use super::registry::AccountInChannel;
use super::row::{Row, int, letter, odd};
use super::script::{self, Call};

impl RedisStore {
    /// One step per account, because accounts may live on different nodes. Should one of them fail, the whole call has failed: the provider
    /// comes again, and what was taken in is then a copy.
    pub(super) async fn accept_all(&self, arrival: &Arrival) -> Result<Vec<Accepted>, StoreError> {
        let moved = self.registry.moved(&self.link).await?;
        let mut accepted = self.copies_of_moved(arrival, moved).await?;
        let guards: Vec<_> = arrival.events.iter().map(|new| new.event.guard).collect();
        let suspects = self.held_by_moved(&guards, moved).await?;
        let mut by_account: Vec<(&str, Vec<usize>)> = Vec::new();
        for (index, new) in arrival.events.iter().enumerate().filter(|(index, _)| accepted[*index].is_none()) {
            match by_account.iter_mut().find(|(account, _)| *account == new.event.account) {
                Some((_, indexes)) => indexes.push(index),
                None => by_account.push((&new.event.account, vec![index])),
            }
        }
        for (account, indexes) in by_account {
            let args = |call: Call, number: u32| accept_args(call, arrival, &suspects, (moved.to, number), &indexes);
            let (number, answers) = self.begin_for(account, &arrival.channel, "accepting", &script::ACCEPT, args).await?;
            for (index, answer) in indexes.into_iter().zip(Row::new(answers)?.rows()) {
                accepted[index] = Some(read_accepted(answer?, number)?);
            }
        }
        accepted.into_iter().map(|one| one.ok_or_else(|| odd("an event without an answer"))).collect()
    }

    pub(super) async fn add_copies(&self, copies: &[Copies]) -> Result<(), StoreError> {
        let mut by_account: HashMap<u32, Vec<(Location, &Copies)>> = HashMap::new();
        for more in copies {
            if let Some(place) = self.place_of("e", more.event.0).await? {
                by_account.entry(place.account).or_default().push((place, more));
            }
        }
        for (account, copies) in by_account {
            let call = self.link.call(&script::NOTE_COPIES, account).arg(copies.len());
            let call = copies.into_iter().fold(call, |call, (place, more)| {
                call.arg(place.seq.to_string())
                    .arg(place.at_s)
                    .arg(more.copies)
                    .arg(more.conflicts)
                    .arg(more.last_ms)
                    .arg(more.write_kept())
            });
            self.link.run("counting copies", call).await?;
        }
        Ok(())
    }

    /// What was leased is worked on, also when another account's node does not answer.
    pub(super) async fn lease_items(&self, ask: &LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        let (mut leases, mut silent) = (Vec::new(), None);
        for (channel, max) in ask.wants.iter().filter(|(_, max)| *max > 0) {
            let leased = match self.registry.entries(&self.link, Some(channel)).await {
                Ok(mut entries) => {
                    let resting = ask.resting_in(channel);
                    entries.retain(|entry| !resting.is_some_and(|resting| resting.rests(&entry.name)));
                    self.lease_from(ask, &entries, *max, &mut leases).await
                }
                Err(error) => Err(error),
            };
            silent = leased.err().or(silent);
        }
        match silent {
            Some(error) if leases.is_empty() => Err(error),
            _ => Ok(leases),
        }
    }

    async fn lease_from(
        &self,
        ask: &LeaseRequest,
        entries: &[AccountInChannel],
        max: usize,
        leases: &mut Vec<InboxLease>,
    ) -> Result<(), StoreError> {
        for (entry, count) in self.first_to_deliver(entries, max).await? {
            let call = self.link.call(&script::LEASE_INBOX, entry.account).arg(&*entry.channel).arg(count);
            let answer = self.link.run_safely("leasing", call.arg(&*ask.worker).arg(ask.hold_ms)).await?;
            for row in Row::new(answer)?.rows() {
                leases.push(read_lease(row?, entry)?);
            }
        }
        Ok(())
    }

    /// `kind` is `i` for items and `m` for messages.
    pub(super) async fn extend_all(
        &self,
        kind: &str,
        leases: &[(LaneRef, Fence)],
        hold_ms: i64,
    ) -> Result<Vec<bool>, StoreError> {
        let mut held = vec![false; leases.len()];
        let mut by_account: HashMap<u32, Vec<(usize, Seq, Fence)>> = HashMap::new();
        for (index, (lane, fence)) in leases.iter().enumerate() {
            let (account, seq) = held_by(*lane);
            by_account.entry(account).or_default().push((index, seq, *fence));
        }
        for (account, leases) in by_account {
            let call = self.link.call(&script::EXTEND, account).arg(kind).arg(hold_ms).arg(leases.len());
            let call = leases.iter().fold(call, |call, (_, seq, fence)| call.arg(seq.to_string()).arg(fence.0));
            let mut answer = Row::new(self.link.run("extending leases", call).await?)?;
            for (index, ..) in leases {
                held[index] = answer.flag()?;
            }
        }
        Ok(held)
    }

    pub(super) async fn settle_item(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        let (account, seq) = held_by(lane);
        let replies = match &outcome {
            Outcome::Delivered { replies, .. } => &replies[..],
            _ => &[],
        };
        for reply in replies {
            // What belongs to another account may live on another node, and could not be written in the same step.
            if self.registry.enter(&self.link, &reply.account, &reply.channel).await? != account {
                return Err(StoreError::Refused("a reply must be of the account that it answers for".to_owned()));
            }
        }
        let call = self.link.call(&script::SETTLE_INBOX, account).arg(seq.to_string()).arg(fence.0);
        let call = match &outcome {
            Outcome::Delivered { status, answer, replies } => {
                let call = call.arg("D").arg(*status);
                let call = call.maybe_int(answer.as_ref().map(|answer| i64::from(answer.status)));
                let call = call.maybe(answer.as_ref().and_then(|answer| answer.content_type.as_ref()));
                let call = call.maybe(answer.as_ref().map(|answer| &answer.body)).arg(self.outbox_max());
                let account = replies.first().map_or("", |reply| &reply.account);
                let call = call.arg(why_kept(account, replies.len())).arg(write_replies(replies).unwrap_or_default());
                let call = call.arg(replies.len());
                replies.iter().fold(call, message_args)
            }
            Outcome::Retry { wait_ms, why } => call.arg("R").arg(*wait_ms).arg(why),
            Outcome::Parked { why, .. } => call.arg("P").arg(why).arg(outcome.charge()),
            Outcome::HandBack { wait_ms, why, called } => call.arg("H").arg(*wait_ms).maybe(why.as_ref()).flag(*called),
        };
        read_settled(&self.link.run_safely("settling", call).await?)
    }

    pub(super) async fn redrive_some(&self, which: &Redrive, max: usize) -> Result<usize, StoreError> {
        let (name, place) = match which {
            Redrive::Item(id) => ("I", self.place_of("i", id.0).await?),
            Redrive::Event(id) => ("E", self.place_of("e", id.0).await?),
            Redrive::Channel(channel) => return self.redrive_seats(Some(channel), max).await,
            Redrive::All => return self.redrive_seats(None, max).await,
        };
        let Some(place) = place else { return Ok(0) };
        let call = self
            .link
            .call(&script::REDRIVE, place.account)
            .arg(name)
            .arg(max)
            .arg(self.outbox_max())
            .arg(place.seq.to_string())
            .arg(place.at_s);
        Ok(int(self.link.run_safely("redriving", call).await?)? as usize)
    }

    async fn redrive_seats(&self, channel: Option<&str>, max: usize) -> Result<usize, StoreError> {
        let mut moved = 0;
        for entry in self.registry.entries(&self.link, channel).await? {
            if moved < max {
                let call = self
                    .link
                    .call(&script::REDRIVE, entry.account)
                    .arg("C")
                    .arg(max - moved)
                    .arg(self.outbox_max())
                    .arg(&*entry.channel);
                moved += int(self.link.run_safely("redriving", call).await?)? as usize;
            }
        }
        Ok(moved)
    }

    pub(super) async fn replay_event(&self, event: EventId) -> Result<Option<ItemId>, StoreError> {
        let Some(place) = self.place_of("e", event.0).await? else { return Ok(None) };
        let call = self.link.call(&script::REPLAY, place.account).arg(place.seq.to_string()).arg(place.at_s);
        let mut answer = Row::new(self.link.run_safely("replaying", call).await?)?;
        let Some(seq) = answer.maybe_seq()? else { return Ok(None) };
        Ok(Some(ItemId(seq.id(answer.int()?, place.account))))
    }
}

fn accept_args(
    call: Call,
    arrival: &Arrival,
    suspects: &[Option<(Seq, i64, i64)>],
    (moved_to, account): (u64, u32),
    indexes: &[usize],
) -> Call {
    let call = call.arg(&*arrival.channel).arg(arrival.window_ms).arg(&arrival.headers.0[..]).arg(&arrival.body[..]);
    let call = call.arg(arrival.events.len()).arg(indexes.len());
    let coalesce = arrival.coalesce.as_ref();
    let call = call.maybe_int(coalesce.map(|coalesce| coalesce.quiet_ms)).maybe_int(coalesce.map(|coalesce| coalesce.max_ms));
    let call = call.maybe_int(coalesce.map(|coalesce| coalesce.members as i64));
    indexes.iter().fold(call, |call, &index| {
        let new = &arrival.events[index];
        let call = call.arg(arrival.window_of(&new.event));
        let first = suspects[index].map(|(seq, at_ms, _)| (seq.to_string(), at_ms));
        let call = call.maybe(first.as_ref().map(|(seq, _)| seq)).maybe_int(first.as_ref().map(|(_, at_ms)| *at_ms));
        event_args(call, new, moved_to, account)
    })
}

fn event_args(call: Call, new: &NewEvent, moved_to: u64, account: u32) -> Call {
    let event = &new.event;
    let handle = event.handle.and_then(|id| Mark::new(id.0, moved_to)).filter(|mark| mark.may_be_of(account));
    let call = call.maybe(event.guard.as_ref().map(|guard| &guard.0[..])).flag(event.guard_suppresses);
    let call = call.arg(&event.key.0[..]).arg(event.fingerprint).arg(event.kind.name()).arg(&event.id).maybe(event.peer.as_ref());
    let call = call.arg(event.aliases.len()).arg(&event.aliases).flag(event.echo);
    let call = call.maybe_int(event.status.map(status_number));
    let call = call.maybe(handle.map(|mark| mark.seq().to_string())).maybe_int(handle.map(|mark| mark.at_s));
    let call = call.maybe_int(event.at_ms).maybe(event.text.as_ref());
    let call = call.maybe(event.text.as_ref().map(|text| limits::preview(text)));
    let call = call.arg(event.index).flag(event.kind.waits_in_thread());
    match &new.disposition {
        Disposition::Deliver => call.arg("D"),
        Disposition::Keep => call.arg("K"),
        Disposition::Quarantine { why, part } => call.arg("Q").arg(why).arg(&part[..]),
    }
}

pub(super) fn status_number(status: Status) -> i64 {
    Status::ALL.iter().position(|known| *known == status).unwrap_or_default() as i64
}

fn read_accepted(mut row: Row, account: u32) -> Result<Accepted, StoreError> {
    let what = letter(&row.value())?;
    let seq = row.seq()?;
    let id = EventId(seq.id(row.int()?, account));
    match what {
        b'N' => Ok(Accepted::New(id)),
        b'S' => Ok(Accepted::Suspected(id)),
        b'D' => Ok(Accepted::Duplicate(id)),
        b'C' => Ok(Accepted::Conflict(id)),
        _ => Err(odd("an unknown letter")),
    }
}

fn read_lease(mut row: Row, entry: &AccountInChannel) -> Result<InboxLease, StoreError> {
    let seq = row.seq()?;
    let (fence, until_ms) = (Fence(row.count()?), row.int()?);
    let (attempt, replay, failures) = (row.small()?, row.maybe_int()?.map(|replay| replay as u32), row.small()?);
    let (made_ms, received_ms) = (row.int()?, row.int()?);
    let (headers, body, webhook_events) = (KeptHeaders(row.bytes()?.to_vec()), row.bytes()?, row.small()?);
    let mut events = Vec::new();
    for event in row.row()?.rows() {
        let mut event = event?;
        let (seq, received_ms) = (event.seq()?, event.int()?);
        let kind = Kind::from_name(&event.text()?).ok_or_else(|| odd("an unknown kind"))?;
        let index = event.small()?;
        let thread = event.maybe_text()?.map(|peer| ThreadId { account: entry.name.to_string(), peer });
        let (id, account) = (EventId(seq.id(received_ms, entry.account)), entry.name.to_string());
        events.push(LeasedEvent { id, kind, index, account, thread });
    }
    let mut rest = Vec::new();
    for part in row.row()?.rows() {
        let mut part = part?;
        rest.push(LeasedPart { body: part.bytes()?, webhook_events: part.small()?, events: part.small()? as usize });
    }
    Ok(InboxLease {
        lane: lane_ref(entry.account, seq),
        fence,
        until_ms,
        item: ItemId(seq.id(made_ms, entry.account)),
        channel: Arc::clone(&entry.channel),
        attempt,
        failures,
        replay,
        received_ms,
        headers,
        body,
        webhook_events,
        events,
        rest,
    })
}

pub(super) fn read_settled(answer: &Value) -> Result<Settled, StoreError> {
    match letter(answer)? {
        b'D' => Ok(Settled::Done),
        b'L' => Ok(Settled::Lost),
        b'K' => Ok(Settled::Kept),
        _ => Err(odd("an unknown letter")),
    }
}
