//! Leasing and extending inbox lanes.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::{Fence, ThreadId};

use super::engine::{Due, First, Pool, Tx, TxError, Wanted};
use super::records::{EventRec, Hash, Held, ItemRec, LaneRec, NEVER_MS, Queue};
use super::run::Step;
use super::work::Work;
use crate::{InboxLease, LaneRef, LeaseRequest, LeasedEvent, LeasedPart};

pub(super) struct LeaseInbox(pub(super) LeaseRequest);

#[async_trait]
impl Step for LeaseInbox {
    type Out = Vec<InboxLease>;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        self.0.wants.iter().map(|(_, max)| max).sum()
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<InboxLease>, TxError> {
        let mut lanes = Vec::new();
        for (channel, max) in self.0.wants.iter().filter(|(_, max)| *max > 0) {
            let (resting, others) =
                self.0.resting_in(channel).map_or((&[][..], false), |resting| (&resting.accounts[..], resting.others));
            let due = Due { queue: Queue::Inbox, channel, resting, others, max: *max };
            lanes.extend(tx.due_lanes(&due).await?);
        }
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let order: Vec<Hash> = lanes.iter().map(|lane| lane.hash).collect();
        let mut work = Work::new(tx.now_ms());
        work.take_lanes(lanes);
        work.load_groups(tx).await?;
        let items = order.iter().flat_map(|lane| work.involved(lane)).collect();
        work.load(tx, Wanted { items, ..Wanted::default() }).await?;
        let first = |lane: &Hash| work.items.get(&work.lanes.get(lane)?.first);
        let bodies = order.iter().filter_map(first).map(|item| item.webhook).collect();
        let events = order.iter().filter_map(first).flat_map(|item| item.events.clone()).collect();
        work.load(tx, Wanted { events, bodies, ..Wanted::default() }).await?;
        let bodies = work.further_webhooks(&order);
        work.load(tx, Wanted { bodies, ..Wanted::default() }).await?;
        // What waits behind the first matters only where there is nothing left of the first to deliver, or lanes are joined.
        let open = order.iter().filter(|lane| !work.can_deliver(lane) || work.is_joined(lane));
        let lowest_items = open.flat_map(|lane| work.group(lane)).collect();
        work.load(tx, Wanted { lowest_items, ..Wanted::default() }).await?;
        work.load_names(tx, work.unnamed(&order)).await?;
        let mut leases = Vec::new();
        for lane in &order {
            leases.extend(work.lease_item(lane, &self.0, tx.number()));
        }
        tx.save(work.changes()).await?;
        Ok(leases)
    }
}

impl Work {
    /// Whether the first of the lane is there, and what it delivers too.
    fn can_deliver(&self, lane: &Hash) -> bool {
        let first = self.lanes.get(lane).and_then(|lane| self.items.get(&lane.first));
        first.and_then(|item| self.events.get(&item.webhook)).is_some_and(|event| event.carried.is_some())
    }

    /// What a lease of this lane is about: the first, and those whose leases ran out.
    pub(super) fn involved(&self, lane: &Hash) -> Vec<u64> {
        let first = self.lanes.get(lane).map(|row| row.first);
        first.into_iter().chain(self.leases(lane).iter().map(|(_, held)| held.number)).collect()
    }

    /// Whether the lane speaks for others.
    pub(super) fn is_joined(&self, lane: &Hash) -> bool {
        self.lanes.get(lane).is_some_and(|row| !row.joined.is_empty())
    }

    /// Names of peers in whose lanes, as older versions left them, the name of the thread is not written down.
    fn unnamed(&self, order: &[Hash]) -> Vec<(String, String)> {
        let rows = order.iter().filter_map(|lane| self.lanes.get(lane)).filter(|row| row.peer.is_none());
        let events = rows.filter_map(|row| self.events.get(self.items.get(&row.first)?.events.first()?));
        events.filter_map(EventRec::spelt).map(|spelt| (spelt.account, spelt.peer)).collect()
    }

    /// Whether a lane that is due may be taken: all its leases ran out. If not, its row is made to say so.
    pub(super) fn may_be_taken(&mut self, lane: &Hash) -> bool {
        let until_ms = self.leased_until(lane).filter(|until_ms| *until_ms > self.now_ms);
        let joined_to = self.lanes.get(lane).and_then(|row| row.joined_to);
        let due_ms = joined_to.map(|_| NEVER_MS).or(until_ms);
        if let Some((due_ms, row)) = due_ms.zip(self.lanes.change(lane)) {
            row.due_ms = due_ms;
        }
        due_ms.is_none()
    }

    fn lease_item(&mut self, hash: &Hash, ask: &LeaseRequest, number: u64) -> Option<InboxLease> {
        if !self.may_be_taken(hash) {
            return None;
        }
        let lost = self.leases(hash);
        let fence = next_fence(&lost, number);
        for (lane, lost) in &lost {
            self.unhold(lane);
            self.lose_item(lost);
        }
        let first = self.lanes.get(hash)?.first;
        if self.is_joined(hash) {
            self.refresh(hash);
        }
        // Of another first than was looked at, nothing is known yet: it is leased the next time.
        let lane = self.lanes.get(hash).filter(|lane| lane.first == first)?.clone();
        let Some(item) = self.items.get(&lane.first).cloned() else {
            self.leave(hash, lane.first);
            return None;
        };
        let Some(carried) = self.events.get(&item.webhook).and_then(|event| event.carried.clone()) else {
            // Purged by somebody's wish while it was put in line again: there is nothing left to deliver.
            self.remove_item(item.number);
            return None;
        };
        if item.due_ms > self.now_ms {
            // Only the lease of another ran out: the first still waits for its time.
            self.lanes.change(hash)?.due_ms = item.due_ms;
            return None;
        }
        let held = Held {
            number: item.number,
            attempt: item.attempt + 1,
            fence,
            worker: ask.worker.to_string(),
            leased_ms: self.now_ms,
            until_ms: self.now_ms + ask.hold_ms,
        };
        let row = self.lanes.change(hash)?;
        row.turn = row.turn.filter(|turn| *turn != held.number);
        row.due_ms = held.until_ms;
        row.held = Some(held.clone());
        let events = item.events.iter().filter_map(|number| self.events.get(number)).map(|event| LeasedEvent {
            id: event.event_id(),
            kind: event.kind,
            index: event.index,
            account: event.account.clone(),
            thread: self.thread_in(&lane, event),
        });
        let (events, rest) = (events.collect(), self.further_parts(&item));
        Some(InboxLease {
            lane: LaneRef(*hash),
            fence: Fence(fence),
            until_ms: held.until_ms,
            item: item.item_id(),
            channel: Arc::clone(&item.channel),
            attempt: held.attempt,
            failures: item.failures,
            replay: item.replay,
            received_ms: item.events_ms,
            headers: carried.headers,
            body: carried.body,
            webhook_events: carried.events,
            events,
            rest,
        })
    }

    /// The webhooks of turns, other than their first.
    fn further_webhooks(&self, order: &[Hash]) -> Vec<u64> {
        let first = |lane: &Hash| self.items.get(&self.lanes.get(lane)?.first);
        let further = |item: &ItemRec| {
            let webhooks = item.events.iter().filter_map(|number| Some(self.events.get(number)?.webhook));
            webhooks.filter(|webhook| *webhook != item.webhook).collect::<Vec<u64>>()
        };
        let mut webhooks: Vec<u64> = order.iter().filter_map(first).flat_map(further).collect();
        webhooks.dedup();
        webhooks
    }

    /// What a turn delivers of its webhooks behind the first.
    fn further_parts(&self, item: &ItemRec) -> Vec<LeasedPart> {
        let mut parts: Vec<(u64, LeasedPart)> = Vec::new();
        let events = item.events.iter().filter_map(|number| self.events.get(number));
        for webhook in events.map(|event| event.webhook).filter(|webhook| *webhook != item.webhook) {
            if let Some((_, part)) = parts.last_mut().filter(|(last, _)| *last == webhook) {
                part.events += 1;
            } else if let Some(carried) = self.events.get(&webhook).and_then(|event| event.carried.as_ref()) {
                let (body, webhook_events) = (carried.body.clone(), carried.events);
                parts.push((webhook, LeasedPart { body, webhook_events, events: 1 }));
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// The thread of an event that is leased: the one whose lane it is, or, outside of those, as it is spelt.
    fn thread_in(&self, lane: &LaneRec, event: &EventRec) -> Option<ThreadId> {
        let Some(spelt) = event.spelt() else { return event.thread_id() };
        match &lane.peer {
            Some(peer) => Some(ThreadId { peer: peer.clone(), ..spelt }),
            None => Some(self.thread_of(&spelt.account, &spelt.peer)),
        }
    }

    /// Writes down that a lease was not settled before somebody else took the lane.
    fn lose_item(&mut self, lost: &Held) {
        let Some(item) = self.items.change(&lost.number) else { return };
        item.attempt = lost.attempt;
        let (of, item_ms) = (item.events.first().copied().unwrap_or_default(), item.received_ms);
        self.log(Queue::Inbox, of, item_ms, lost, "lost", "the lease ran out");
    }
}

/// A fence above those of the leases that ran out.
pub(super) fn next_fence(lost: &[(Hash, Held)], number: u64) -> u64 {
    lost.iter().map(|(_, lost)| lost.fence + 1).chain([number]).max().unwrap_or(number)
}

/// Moves the end of leases of either queue.
pub(super) struct Extend {
    pub(super) leases: Vec<(LaneRef, Fence)>,
    pub(super) hold_ms: i64,
}

#[async_trait]
impl Step for Extend {
    type Out = Vec<bool>;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        0
    }

    fn first(&self) -> First {
        First { lanes: self.leases.iter().map(|(lane, _)| lane.0).collect(), ..First::default() }
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<bool>, TxError> {
        let mut work = Work::new(tx.now_ms());
        let lanes = self.leases.iter().map(|(lane, _)| lane.0).collect();
        work.load(tx, Wanted { lanes, ..Wanted::default() }).await?;
        work.load_groups(tx).await?;
        let until_ms = work.now_ms + self.hold_ms;
        let mut extend = |(lane, fence): &(LaneRef, Fence)| {
            if work.held(&lane.0, fence.0).is_none() {
                return false;
            }
            if let Some(held) = work.lanes.change(&lane.0).and_then(|row| row.held.as_mut()) {
                held.until_ms = until_ms;
            }
            let (speaker, leased_until) = (work.speaker(&lane.0), work.leased_until(&lane.0));
            if let Some((row, leased_until)) = work.lanes.change(&speaker).zip(leased_until) {
                row.due_ms = leased_until;
            }
            true
        };
        let still: Vec<bool> = self.leases.iter().map(&mut extend).collect();
        if still.contains(&true) {
            tx.save(work.changes()).await?;
        }
        Ok(still)
    }
}
