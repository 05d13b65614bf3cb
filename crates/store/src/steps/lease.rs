//! Leasing and extending inbox lanes.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::Fence;

use super::engine::{Due, First, Pool, Trouble, Tx, Wanted};
use super::records::{Hash, Held, LaneRec, Queue};
use super::run::Step;
use super::work::Work;
use crate::{InboxLease, LaneRef, LeaseAsk, LeasedEvent};

pub(super) struct LeaseInbox(pub(super) LeaseAsk);

#[async_trait]
impl Step for LeaseInbox {
    type Out = Vec<InboxLease>;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        self.0.wants.iter().map(|(_, max)| max).sum()
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<InboxLease>, Trouble> {
        let mut lanes = Vec::new();
        for (channel, max) in self.0.wants.iter().filter(|(_, max)| *max > 0) {
            let due = Due { queue: Queue::Inbox, channel, resting: &[], max: *max };
            lanes.extend(tx.due_lanes(&due).await?);
        }
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let order: Vec<Hash> = lanes.iter().map(|lane| lane.hash).collect();
        let mut work = Work::new(tx.now_ms());
        let items = lanes.iter().flat_map(involved).collect();
        work.take_lanes(lanes);
        work.load(tx, Wanted { items, ..Wanted::default() }).await?;
        let first = |lane: &Hash| work.items.get(&work.lanes.get(lane)?.first);
        let bodies = order.iter().filter_map(first).map(|item| item.webhook).collect();
        let events = order.iter().filter_map(first).flat_map(|item| item.events.clone()).collect();
        work.load(tx, Wanted { events, bodies, ..Wanted::default() }).await?;
        // What waits behind the first matters only where there is nothing left of the first to deliver.
        let lowest_items = order.iter().copied().filter(|lane| !work.can_deliver(lane)).collect();
        work.load(tx, Wanted { lowest_items, ..Wanted::default() }).await?;
        let mut leases = Vec::new();
        for lane in &order {
            leases.extend(work.lease_item(lane, &self.0, tx.number()));
        }
        tx.save(&work.changes()).await?;
        Ok(leases)
    }
}

/// What a lease of this lane is about: the first, and the one whose lease ran out.
pub(super) fn involved(lane: &LaneRec) -> impl Iterator<Item = u64> + use<> {
    std::iter::once(lane.first).chain(lane.held.as_ref().map(|held| held.number))
}

/// A fence that no lease of this lane had before.
pub(super) fn next_fence(lane: &LaneRec, number: u64) -> u64 {
    lane.held.as_ref().map_or(number, |held| number.max(held.fence + 1))
}

impl Work {
    /// Whether the first of the lane is there, and what it delivers too.
    fn can_deliver(&self, lane: &Hash) -> bool {
        let first = self.lanes.get(lane).and_then(|lane| self.items.get(&lane.first));
        first.and_then(|item| self.events.get(&item.webhook)).is_some_and(|event| event.carried.is_some())
    }

    fn lease_item(&mut self, hash: &Hash, ask: &LeaseAsk, number: u64) -> Option<InboxLease> {
        let lane = self.lanes.get(hash)?.clone();
        let fence = next_fence(&lane, number);
        if let Some(lost) = &lane.held {
            self.unhold(hash);
            self.lose_item(lost);
        }
        let Some(item) = self.items.get(&lane.first).cloned() else {
            self.leave(hash, lane.first);
            return None;
        };
        let Some(carried) = self.events.get(&item.webhook).and_then(|event| event.carried.clone()) else {
            // Purged by somebody's wish while it was put in line again: there is nothing left to deliver.
            self.remove_item(item.number);
            return None;
        };
        let held = Held {
            number: item.number,
            attempt: item.attempt + 1,
            fence,
            worker: ask.worker.to_string(),
            leased_ms: self.now_ms,
            until_ms: self.now_ms + ask.hold_ms,
        };
        let row = self.lanes.change(hash)?;
        row.due_ms = held.until_ms;
        row.held = Some(held.clone());
        let events = item.events.iter().filter_map(|number| self.events.get(number)).map(|event| LeasedEvent {
            id: event.event_id(),
            kind: event.kind,
            index: event.index,
            thread: event.thread_id(),
        });
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
            events: events.collect(),
        })
    }

    /// Writes down that a lease was not settled before somebody else took the lane.
    fn lose_item(&mut self, lost: &Held) {
        let Some(item) = self.items.change(&lost.number) else { return };
        item.attempt = lost.attempt;
        let (of, item_ms) = (item.events.first().copied().unwrap_or_default(), item.received_ms);
        self.log(Queue::Inbox, of, item_ms, lost, "lost", "the lease ran out");
    }
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

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<bool>, Trouble> {
        let mut work = Work::new(tx.now_ms());
        let lanes = self.leases.iter().map(|(lane, _)| lane.0).collect();
        work.load(tx, Wanted { lanes, ..Wanted::default() }).await?;
        let until_ms = work.now_ms + self.hold_ms;
        let mut extend = |(lane, fence): &(LaneRef, Fence)| {
            if work.held(&lane.0, fence.0).is_none() {
                return false;
            }
            if let Some(row) = work.lanes.change(&lane.0)
                && let Some(held) = &mut row.held
            {
                held.until_ms = until_ms;
                row.due_ms = until_ms;
            }
            true
        };
        let still: Vec<bool> = self.leases.iter().map(&mut extend).collect();
        if still.contains(&true) {
            tx.save(&work.changes()).await?;
        }
        Ok(still)
    }
}
