//! Leasing, beginning and settling messages that go out.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::Fence;

use super::engine::{Due, First, Pool, Tx, TxError, Wanted};
use super::lease::next_fence;
use super::records::{Hash, Held, OutRec, Queue, name_hash};
use super::run::Step;
use super::work::Work;
use crate::{LaneRef, OutboxLease, OutboxLeaseRequest, SendOutcome, Settled};

pub(super) struct LeaseOutbox(pub(super) OutboxLeaseRequest);

/// What was leased, and whether lanes were set free that are due at once.
pub(super) struct LeasedOut {
    pub(super) leases: Vec<OutboxLease>,
    pub(super) again: bool,
}

/// What comes of a lane that is due.
enum Turn {
    /// The first of this lane is leased.
    Of(Hash),
    /// It waits; the lanes after it are as they were.
    Later,
    /// Lanes have changed places.
    Anew,
}

#[async_trait]
impl Step for LeaseOutbox {
    type Out = LeasedOut;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        self.0.wants.iter().map(|(_, max)| max).sum()
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<LeasedOut, TxError> {
        let mut lanes = Vec::new();
        for (channel, max) in self.0.wants.iter().filter(|(_, max)| *max > 0) {
            let resting = self.0.resting.iter().filter(|(of, _)| of == channel).map(|(_, account)| account.clone());
            let resting: Vec<String> = resting.collect();
            let due = Due { queue: Queue::Outbox, channel, resting: &resting, others: false, max: *max };
            lanes.extend(tx.due_lanes(&due).await?);
        }
        if lanes.is_empty() {
            return Ok(LeasedOut { leases: Vec::new(), again: false });
        }
        let order: Vec<Hash> = lanes.iter().map(|lane| lane.hash).collect();
        let mut work = Work::new(tx.now_ms());
        work.take_lanes(lanes);
        work.load_groups(tx).await?;
        let outs: Vec<u64> = order.iter().flat_map(|lane| work.involved(lane)).collect();
        work.load(tx, Wanted { messages: outs.clone(), outs, ..Wanted::default() }).await?;
        // One whose time has come joins its thread's lane.
        let held = order.iter().filter_map(|lane| work.held_until_now(lane)).collect();
        work.load_homes(tx, held).await?;
        // What waits behind the first matters only where the first leaves without being leased, or lanes are joined.
        let homes: Vec<Hash> = order.iter().filter_map(|lane| work.home_of_held(lane)).collect();
        let open = order.iter().filter(|lane| !work.can_send(lane) || work.is_joined(lane));
        let open = open.chain(homes.iter().filter(|home| work.is_joined(home)));
        let lowest_outs = open.flat_map(|lane| work.group(lane)).collect();
        work.load(tx, Wanted { lowest_outs, ..Wanted::default() }).await?;
        let mut leased = LeasedOut { leases: Vec::new(), again: false };
        for lane in &order {
            let turn = work.turn_of(lane);
            let lease = match turn {
                Turn::Of(lane) => work.lease_out(&lane, &self.0, tx.number()),
                Turn::Later => {
                    leased.again = true;
                    continue;
                }
                Turn::Anew => None,
            };
            let Some(lease) = lease else {
                // The next of this lane may be due before those of the other lanes: what is left is looked for anew.
                leased.again = true;
                break;
            };
            leased.leases.push(lease);
        }
        tx.save(work.changes()).await?;
        Ok(leased)
    }
}

impl Work {
    /// The first of this lane, if it is to join its thread's lane now. One that was heard of joins none: it leaves the outbox.
    fn held_until_now(&self, lane: &Hash) -> Option<u64> {
        let first = self.lanes.get(lane)?.first;
        self.outs.get(&first).filter(|out| out.is_held())?;
        self.messages.get(&first).filter(|message| message.provider_id.is_none()).map(|message| message.number)
    }

    /// The lane that it joins.
    fn home_of_held(&self, lane: &Hash) -> Option<Hash> {
        self.home_today(self.held_until_now(lane)?)
    }

    /// Whether the first of the lane is there and stays in it, and neither it nor one whose lease ran out leaves the lane because it was heard of.
    fn can_send(&self, lane: &Hash) -> bool {
        if self.home_of_held(lane).is_some() {
            return false;
        }
        let Some(row) = self.lanes.get(lane) else { return false };
        let known = |number: u64| self.messages.get(&number).is_some_and(|message| message.provider_id.is_some());
        let is_there = self.outs.get(&row.first).is_some() && self.messages.get(&row.first).is_some();
        is_there && !self.involved(lane).into_iter().any(known)
    }

    /// Whose turn it is where this lane is due. One that was to be sent later joins its thread's lane, and if it is the first there, its
    /// turn is that lane's.
    fn turn_of(&mut self, lane: &Hash) -> Turn {
        let Some(home) = self.home_of_held(lane) else {
            // It may have been taken a moment ago, by one that has joined it.
            return if self.may_be_taken(lane) { Turn::Of(*lane) } else { Turn::Later };
        };
        let Some(out) = self.lanes.get(lane).and_then(|row| self.outs.get(&row.first)).cloned() else { return Turn::Anew };
        let number = out.number;
        self.leave(lane, number);
        self.come_home(OutRec { lane: home, ..out });
        let leased_until = self.leased_until(&home);
        match self.lanes.get(&home) {
            Some(_) if leased_until.is_some_and(|until_ms| until_ms <= self.now_ms) => Turn::Anew,
            Some(row) if leased_until.is_none() && row.first == number => Turn::Of(home),
            _ => Turn::Later,
        }
    }

    fn lease_out(&mut self, hash: &Hash, ask: &OutboxLeaseRequest, number: u64) -> Option<OutboxLease> {
        let lost = self.leases(hash);
        let fence = next_fence(&lost, number);
        let mut left = false;
        for (lane, lost) in &lost {
            left |= self.lose_out(lane, lost);
        }
        let first = self.lanes.get(hash)?.first;
        if self.is_joined(hash) {
            self.refresh(hash);
        }
        if left {
            return None;
        }
        // Of another first than was looked at, nothing is known yet: it is leased the next time.
        let lane = self.lanes.get(hash).filter(|lane| lane.first == first)?.clone();
        let Some(mut state) = self.outgoing(lane.first).filter(|state| state.place.is_some()) else {
            self.leave(hash, lane.first);
            return None;
        };
        if let Some(due_ms) = state.place.and_then(|place| place.due_ms).filter(|due_ms| *due_ms > self.now_ms) {
            // Only the lease of another ran out: the first still waits for its time.
            self.lanes.change(hash)?.due_ms = due_ms;
            return None;
        }
        if !state.lease(self.now_ms) {
            self.keep(lane.first, state);
            return None;
        }
        if self.messages.get(&lane.first).is_some_and(|message| message.past != state.past) {
            self.keep(lane.first, state);
        }
        let (out, message) = self.outs.get(&lane.first).zip(self.messages.get(&lane.first))?;
        let held = Held {
            number: out.number,
            attempt: out.attempt + u32::from(out.begun_ms.is_none()),
            fence,
            worker: ask.worker.to_string(),
            leased_ms: self.now_ms,
            until_ms: self.now_ms + ask.hold_ms,
        };
        let lease = OutboxLease {
            lane: LaneRef(*hash),
            fence: Fence(fence),
            until_ms: held.until_ms,
            message: message.message_id(),
            request_id: message.request_id.clone(),
            channel: Arc::clone(&message.channel),
            account: message.account.clone(),
            peer: message.peer.clone(),
            payload: message.payload.clone(),
            text: message.text.clone(),
            attempt: held.attempt,
            failures: out.failures,
            created_ms: message.created_ms,
            in_doubt_since_ms: out.begun_ms,
        };
        let row = self.lanes.change(hash)?;
        row.due_ms = held.until_ms;
        row.held = Some(held);
        Some(lease)
    }

    /// Ends a lease that nobody settled; true when the message has left the outbox because it was heard of.
    fn lose_out(&mut self, lane: &Hash, lost: &Held) -> bool {
        let state = self.outgoing(lost.number);
        self.unhold(lane);
        let Some(mut state) = state.filter(|state| state.place.is_some()) else { return false };
        let created_ms = self.messages.get(&lost.number).map_or(0, |message| message.created_ms);
        self.log(Queue::Outbox, lost.number, created_ms, lost, "lost", "the lease ran out");
        state.lose_lease(self.now_ms);
        let left = state.place.is_none();
        self.keep(lost.number, state);
        left
    }
}

/// Leases whose sending begins now, in one transaction; each of another lane.
pub(super) struct BeginAll(pub(super) Vec<(LaneRef, Fence)>);

#[async_trait]
impl Step for BeginAll {
    type Out = Vec<Settled>;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        0
    }

    fn first(&self) -> First {
        First { lanes: self.0.iter().map(|(lane, _)| lane.0).collect(), ..First::default() }
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Settled>, TxError> {
        let mut work = Work::new(tx.now_ms());
        let held = work.find_held(tx, self.0.iter().copied()).await?;
        let outs: Vec<u64> = held.iter().flatten().map(|held| held.number).collect();
        work.load(tx, Wanted { messages: outs.clone(), outs, ..Wanted::default() }).await?;
        let mut begun = Vec::with_capacity(held.len());
        for ((lane, _), held) in self.0.iter().zip(&held) {
            let done = held.as_ref().is_some_and(|held| work.begin(&lane.0, held.number));
            begun.push(if done { Settled::Done } else { Settled::Lost });
        }
        if begun.contains(&Settled::Done) {
            tx.save(work.changes()).await?;
        }
        Ok(begun)
    }
}

/// One outcome of one lane's lease.
pub(super) type SendEnded = (LaneRef, Fence, SendOutcome);

/// Outcomes that share a transaction; each of another lane.
pub(super) struct SettleOutbox(pub(super) Vec<SendEnded>);

#[async_trait]
impl Step for SettleOutbox {
    type Out = Vec<Settled>;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        0
    }

    fn first(&self) -> First {
        First { lanes: self.0.iter().map(|(lane, _, _)| lane.0).collect(), ..First::default() }
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Settled>, TxError> {
        let mut work = Work::new(tx.now_ms());
        let held = work.find_held(tx, self.0.iter().map(|(lane, fence, _)| (*lane, *fence))).await?;
        let mut wanted = Wanted::default();
        for ((lane, _, outcome), held) in self.0.iter().zip(&held) {
            let Some(held) = held else { continue };
            wanted.messages.push(held.number);
            wanted.outs.push(held.number);
            wanted.lowest_outs.extend(work.group(&lane.0));
            let Some(account) = work.lanes.get(&lane.0).map(|lane| lane.account.clone()) else { continue };
            match outcome {
                SendOutcome::Sent { provider_id } => wanted.provider_names.push((account, provider_id.clone())),
                SendOutcome::Found { provider_ids, .. } => {
                    wanted.provider_names.extend(provider_ids.iter().map(|id| (account.clone(), id.clone())));
                }
                _ => {}
            }
        }
        work.load(tx, wanted).await?;
        // One in doubt may go back to its thread's lane.
        let alone = held.iter().flatten().map(|held| held.number);
        let alone = alone.filter(|number| work.outs.get(number).is_some_and(OutRec::is_alone)).collect();
        work.load_homes(tx, alone).await?;
        let mut settled = Vec::with_capacity(held.len());
        for ((lane, _, outcome), held) in self.0.iter().zip(held) {
            settled.push(match held {
                None => Settled::Lost,
                Some(held) => {
                    work.settle_out(&lane.0, &held, outcome);
                    Settled::Done
                }
            });
        }
        if settled.contains(&Settled::Done) {
            tx.save(work.changes()).await?;
        }
        Ok(settled)
    }
}

impl Work {
    /// Loads lanes; says for each whether the fence is still its own, and what it guards.
    async fn find_held<T: Tx>(
        &mut self,
        tx: &mut T,
        leases: impl Iterator<Item = (LaneRef, Fence)> + Clone + Send,
    ) -> Result<Vec<Option<Held>>, TxError> {
        let lanes = leases.clone().map(|(lane, _)| lane.0).collect();
        self.load(tx, Wanted { lanes, ..Wanted::default() }).await?;
        self.load_groups(tx).await?;
        Ok(leases.map(|(lane, fence)| self.held(&lane.0, fence.0)).collect())
    }

    fn begin(&mut self, lane: &Hash, number: u64) -> bool {
        let Some(mut state) = self.outgoing(number) else { return false };
        if !state.begin(self.now_ms) {
            return false;
        }
        let Some(place) = state.place else { return false };
        self.keep(number, state);
        if let Some(held) = self.lanes.change(lane).and_then(|lane| lane.held.as_mut()) {
            held.attempt = place.attempt;
        }
        true
    }

    fn settle_out(&mut self, lane: &Hash, held: &Held, outcome: &SendOutcome) {
        let state = self.outgoing(held.number);
        self.unhold(lane);
        let Some(mut state) = state.filter(|state| state.place.is_some()) else {
            self.leave(lane, held.number);
            return;
        };
        let Some((account, created_ms)) = self.messages.get(&held.number).map(|m| (m.account.clone(), m.created_ms)) else {
            return;
        };
        let is_free = |id: &str| {
            let owner = self.provider_names.get(&name_hash(&account, id)).and_then(|name| name.message);
            owner.is_none_or(|owner| owner == held.number) && !state.past.was_called(id)
        };
        let outcome = outcome.clone().matched(is_free);
        if let Some(detail) = outcome.detail() {
            self.log(Queue::Outbox, held.number, created_ms, held, outcome.name(), detail);
        }
        if let SendOutcome::Sent { provider_id } = &outcome {
            let early = self.name(held.number, &account, provider_id);
            state.call_it(provider_id, &early);
        }
        state.settle(&outcome, self.now_ms);
        self.keep(held.number, state);
        self.refresh(lane);
    }
}
