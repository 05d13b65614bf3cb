//! The model's inbox lanes: a thread's line, or that of one event, and the lanes that became one because their names did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hapax_domain::{Fence, ItemId, ThreadId};

use crate::end_after_set_back;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<u64, Lane>,
    names: HashMap<(Arc<str>, ThreadId), u64>,
    /// Those that were joined into each.
    joined: BTreeMap<u64, BTreeSet<u64>>,
}

/// Exists while items wait in it, or in one that was joined into it.
pub(super) struct Lane {
    pub(super) channel: Arc<str>,
    /// `None` for a lane of one event.
    pub(super) name: Option<ThreadId>,
    /// Those that were put into it.
    items: BTreeSet<ItemId>,
    pub(super) lease: Option<Held>,
    /// The item that what comes next may become part of.
    turn: Option<ItemId>,
    /// The lane it was joined into: that one speaks for both. Never one that was itself joined into another.
    into: Option<u64>,
}

#[derive(Clone)]
pub(super) struct Held {
    pub(super) item: ItemId,
    pub(super) fence: Fence,
    pub(super) worker: Arc<str>,
    pub(super) leased_ms: i64,
    pub(super) until_ms: i64,
    pub(super) outside: bool,
}

impl Lanes {
    /// The lane that speaks for this name now, if anything waits there.
    fn find(&self, channel: &Arc<str>, name: &ThreadId) -> Option<u64> {
        let number = *self.names.get(&(Arc::clone(channel), name.clone()))?;
        Some(self.lanes.get(&number)?.into.unwrap_or(number))
    }

    /// Finds the lane that speaks for this name, or opens it under the number `fresh`.
    pub(super) fn open(&mut self, channel: &Arc<str>, name: Option<ThreadId>, fresh: u64) -> u64 {
        if let Some(number) = name.as_ref().and_then(|name| self.find(channel, name)) {
            return number;
        }
        let lane = Lane { channel: Arc::clone(channel), name, items: BTreeSet::new(), lease: None, turn: None, into: None };
        self.names.extend(lane.name.clone().map(|name| ((Arc::clone(channel), name), fresh)));
        self.lanes.insert(fresh, lane);
        fresh
    }

    /// Makes two lanes one, if anything waits in the first. What was put into it stays in line by its number, and its lease is held on.
    pub(super) fn join(&mut self, channel: &Arc<str>, name: &ThreadId, into: &ThreadId, fresh: u64) {
        let Some(from) = self.find(channel, name) else { return };
        let into = self.open(channel, Some(into.clone()), fresh);
        if from == into {
            return;
        }
        let mut moved = self.joined.remove(&from).unwrap_or_default();
        moved.insert(from);
        self.set_turn(into, None);
        for number in &moved {
            if let Some(lane) = self.lanes.get_mut(number) {
                (lane.into, lane.turn) = (Some(into), None);
            }
        }
        self.joined.entry(into).or_default().extend(moved);
    }

    pub(super) fn put(&mut self, number: u64, item: ItemId) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.items.insert(item);
            lane.turn = None;
        }
    }

    /// The item that what comes next into this lane may become part of.
    pub(super) fn turn(&self, number: u64) -> Option<ItemId> {
        self.lanes.get(&number)?.turn
    }

    pub(super) fn set_turn(&mut self, number: u64, turn: Option<ItemId>) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.turn = turn;
        }
    }

    pub(super) fn leave(&mut self, number: u64, item: ItemId) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.items.remove(&item);
        }
        self.tidy(number);
    }

    /// Forgets a lane once nothing is left of it, and the one it was joined into likewise.
    fn tidy(&mut self, number: u64) {
        let Some(lane) = self.lanes.get(&number) else { return };
        if self.joined.contains_key(&number) || !lane.items.is_empty() || lane.lease.is_some() {
            return;
        }
        let Some(Lane { channel, name, into, .. }) = self.lanes.remove(&number) else { return };
        name.and_then(|name| self.names.remove(&(channel, name)));
        let Some(into) = into else { return };
        if let Some(joined) = self.joined.get_mut(&into) {
            joined.remove(&number);
            if joined.is_empty() {
                self.joined.remove(&into);
            }
        }
        self.tidy(into);
    }

    /// The lanes that speak for themselves, each with the first in its line.
    pub(super) fn heads(&self, channel: &str) -> Vec<(u64, ItemId)> {
        let lanes = self.lanes.iter().filter(|(_, lane)| *lane.channel == *channel && lane.into.is_none());
        lanes.filter_map(|(&number, _)| Some((number, self.head(number)?))).collect()
    }

    /// The lowest that waits in the lane or in one that was joined into it.
    pub(super) fn head(&self, number: u64) -> Option<ItemId> {
        self.group(number).filter_map(|(_, lane)| lane.items.first().copied()).min()
    }

    /// When the last of the leases that are out ends.
    pub(super) fn leased_until(&self, number: u64) -> Option<i64> {
        self.group(number).filter_map(|(_, lane)| Some(lane.lease.as_ref()?.until_ms)).max()
    }

    fn group(&self, number: u64) -> impl Iterator<Item = (u64, &Lane)> {
        let joined = self.joined.get(&number).into_iter().flatten().copied();
        std::iter::once(number).chain(joined).filter_map(|number| Some((number, self.lanes.get(&number)?)))
    }

    pub(super) fn name(&self, number: u64) -> Option<&ThreadId> {
        self.lanes.get(&number)?.name.as_ref()
    }

    pub(super) fn hold(&mut self, number: u64, held: Held) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.lease = Some(held);
        }
    }

    pub(super) fn extend(&mut self, number: u64, fence: Fence, until_ms: i64) -> bool {
        let held = self.lanes.get_mut(&number).and_then(|lane| lane.lease.as_mut());
        held.filter(|held| held.fence == fence).map(|held| held.until_ms = until_ms).is_some()
    }

    /// Ends the lease that was given under this lane, if this is still its fence.
    pub(super) fn unhold(&mut self, number: u64, fence: Fence) -> Option<Held> {
        let held = self.lanes.get_mut(&number)?.lease.take_if(|held| held.fence == fence)?;
        self.tidy(number);
        Some(held)
    }

    /// Ends all leases of the lane and of those that were joined into it; by rising item.
    pub(super) fn unhold_all(&mut self, number: u64) -> Vec<Held> {
        self.unhold_if(number, |_| true)
    }

    /// Ends those for which it holds.
    pub(super) fn unhold_if(&mut self, number: u64, ends: impl Fn(&Held) -> bool) -> Vec<Held> {
        let group: Vec<u64> = self.group(number).map(|(number, _)| number).collect();
        let leases = group.iter().filter_map(|number| self.lanes.get_mut(number)?.lease.take_if(|held| ends(held)));
        let mut lost: Vec<Held> = leases.collect();
        lost.sort_by_key(|held| held.item);
        group.iter().for_each(|number| self.tidy(*number));
        lost
    }

    /// The leases that are out of a channel's lanes, with the name that each lane goes by now.
    pub(super) fn leases(&self, channel: &str) -> impl Iterator<Item = (&Held, Option<&ThreadId>)> {
        let lanes = self.lanes.iter().filter(move |(_, lane)| *lane.channel == *channel);
        lanes.filter_map(|(number, lane)| Some((lane.lease.as_ref()?, self.name(lane.into.unwrap_or(*number)))))
    }

    pub(super) fn all(&self) -> Vec<u64> {
        self.lanes.iter().filter(|(_, lane)| lane.into.is_none()).map(|(number, _)| *number).collect()
    }

    /// Who holds an item that was put into this lane. The lease may have been given under any lane of the same group.
    pub(super) fn held(&self, number: u64, item: ItemId) -> Option<&Held> {
        let speaks = self.lanes.get(&number)?.into.unwrap_or(number);
        self.group(speaks).filter_map(|(_, lane)| lane.lease.as_ref()).find(|held| held.item == item)
    }

    pub(super) fn follow_clock(&mut self, back: i64, now: i64) {
        let leases = self.lanes.values_mut().filter_map(|lane| lane.lease.as_mut());
        leases.for_each(|held| held.until_ms = end_after_set_back(held.until_ms, back, now));
    }
}
