//! Joining and leaving lanes: the lane's row always names the lowest that waits in it, and when it may next be taken.

use hapax_domain::Priority;
use hapax_domain::limits::LANES_JOINED_MAX;

use super::engine::{Tx, TxError, Wanted};
use super::records::{Hash, Held, ItemPlace, ItemRec, LaneRec, NEVER_MS, OutRec, Queue};
use super::work::Work;

impl Work {
    /// Puts an item in line, in the lane of this account, and of its thread that goes by `peer`. The lane, if there is one, must have been loaded with those that
    /// it speaks for.
    pub(super) fn add_item(&mut self, mut item: ItemRec, account: String, peer: Option<String>) {
        if item.place == ItemPlace::InLane {
            let fresh = empty(Queue::Inbox, item.lane, &item.channel);
            item.lane = self.enter(LaneRec { account, first: item.number, due_ms: item.due_ms, peer, ..fresh });
        }
        self.items.put(item.number, item);
    }

    /// Puts a message in line, unless it waits for somebody's word only.
    pub(super) fn add_out(&mut self, mut out: OutRec) {
        if let Some(due_ms) = out.due_ms {
            let (account, priority) = (out.account.clone(), out.priority);
            let fresh = empty(Queue::Outbox, out.lane, &out.channel);
            out.lane = self.enter(LaneRec { account, priority, first: out.number, due_ms, ..fresh });
        }
        self.outs.put(out.number, out);
    }

    /// `fresh` is the lane as it would be if nothing else waited in it. Gives the lane that speaks for it, in which it now is.
    fn enter(&mut self, fresh: LaneRec) -> Hash {
        let lane = self.speaker(&fresh.hash);
        self.lowest.entry(lane).or_default().insert(fresh.first);
        match self.lanes.get(&lane).map(|row| fresh.first < row.first) {
            None => self.lanes.put(lane, LaneRec { hash: lane, ..fresh }),
            Some(false) => self.close_turn(&lane),
            Some(true) => {
                let leased = self.leased_until(&lane).is_some();
                if let Some(row) = self.lanes.change(&lane) {
                    row.first = fresh.first;
                    row.priority = fresh.priority;
                    row.turn = None;
                    if !leased {
                        row.due_ms = fresh.due_ms;
                    }
                }
            }
        }
        lane
    }

    /// From now on nothing becomes part of the lane's last item any more.
    pub(super) fn close_turn(&mut self, lane: &Hash) {
        if self.lanes.get(lane).is_some_and(|row| row.turn.is_some())
            && let Some(row) = self.lanes.change(lane)
        {
            row.turn = None;
        }
    }

    pub(super) fn remove_item(&mut self, number: u64) {
        if let Some(item) = self.items.remove(&number)
            && item.place == ItemPlace::InLane
        {
            self.leave(&item.lane, number);
        }
    }

    pub(super) fn remove_out(&mut self, number: u64) {
        if let Some(out) = self.outs.remove(&number) {
            self.leave(&out.lane, number);
        }
    }

    /// Takes one out of its lane's line. The lane and those it is joined with must have been loaded, and the two lowest in each; of one lane,
    /// one leaves in a step.
    pub(super) fn leave(&mut self, lane: &Hash, number: u64) {
        for lane in self.group(lane) {
            if let Some(lowest) = self.lowest.get_mut(&lane) {
                lowest.remove(&number);
            }
        }
        self.refresh(lane);
    }

    /// Makes the lane's row true again after a lease ended, or after one has left or is due at another time.
    pub(super) fn refresh(&mut self, lane: &Hash) {
        let lane = self.speaker(lane);
        self.drop_drained(&lane);
        let Some(queue) = self.lanes.get(&lane).map(|row| row.queue) else { return };
        let group = self.group(&lane);
        let first = group.iter().filter_map(|lane| self.lowest.get(lane)?.first().copied()).min();
        let due = first.and_then(|first| match queue {
            Queue::Inbox => self.items.get(&first).map(|item| (first, item.due_ms, Priority::Normal)),
            Queue::Outbox => self.outs.get(&first).and_then(|out| Some((first, out.due_ms?, out.priority))),
        });
        let Some((first, due_ms, priority)) = due else {
            group.iter().for_each(|lane| {
                self.lanes.remove(lane);
            });
            return;
        };
        let leased_until = self.leased_until(&lane);
        if let Some(row) = self.lanes.change(&lane) {
            row.first = first;
            row.priority = priority;
            row.due_ms = leased_until.unwrap_or(due_ms);
        }
    }

    /// Lets go of lanes that were joined to this one and of which nothing is left.
    fn drop_drained(&mut self, lane: &Hash) {
        let Some(row) = self.lanes.get(lane).filter(|row| !row.joined.is_empty()) else { return };
        debug_assert!(
            self.group(lane).iter().all(|lane| self.asked_lowest.contains(lane)),
            "what waits in joined lanes is known"
        );
        let is_over = |lane: &Hash| {
            let held = self.lanes.get(lane).is_some_and(|row| row.held.is_some());
            !held && self.asked_lowest.contains(lane) && self.lowest.get(lane).is_none_or(|lowest| lowest.is_empty())
        };
        let over: Vec<Hash> = row.joined.iter().filter(|lane| is_over(lane)).copied().collect();
        for gone in &over {
            self.lanes.remove(gone);
        }
        if let Some(row) = self.lanes.change(lane) {
            row.joined.retain(|lane| !over.contains(lane));
        }
    }

    /// Ends the lease that was given under this lane, whatever comes of it.
    pub(super) fn unhold(&mut self, lane: &Hash) {
        if let Some(lane) = self.lanes.change(lane) {
            lane.held = None;
        }
    }

    /// The lane that speaks for this one, which may be itself.
    pub(super) fn speaker(&self, lane: &Hash) -> Hash {
        self.lanes.get(lane).and_then(|row| row.joined_to).unwrap_or(*lane)
    }

    /// The lane that speaks for this one, and all that it speaks for.
    pub(super) fn group(&self, lane: &Hash) -> Vec<Hash> {
        let speaker = self.speaker(lane);
        let joined = self.lanes.get(&speaker).map(|row| row.joined.clone()).unwrap_or_default();
        std::iter::once(speaker).chain(joined).collect()
    }

    /// The leases that are out of this lane and those that it is joined with, by rising number.
    pub(super) fn leases(&self, lane: &Hash) -> Vec<(Hash, Held)> {
        let held = |lane: Hash| Some((lane, self.lanes.get(&lane)?.held.clone()?));
        let mut leases: Vec<(Hash, Held)> = self.group(lane).into_iter().filter_map(held).collect();
        leases.sort_by_key(|(_, held)| held.number);
        leases
    }

    /// When the last of them ends.
    pub(super) fn leased_until(&self, lane: &Hash) -> Option<i64> {
        self.group(lane).iter().filter_map(|lane| Some(self.lanes.get(lane)?.held.as_ref()?.until_ms)).max()
    }

    /// Makes two lanes one, if anything waits in the first; `into` is the second as it would be if nothing waited in it. Both must have been
    /// loaded, with all that they are joined with.
    pub(super) fn join(&mut self, lane: &Hash, into: LaneRec) {
        let (from, to) = (self.speaker(lane), self.speaker(&into.hash));
        let Some(row) = self.lanes.get(&from).cloned() else { return };
        let moved = self.group(&from);
        let there = self.lanes.get(&to).cloned();
        let joined = there.as_ref().map_or(0, |there| there.joined.len()) + moved.len();
        if from == to || joined > LANES_JOINED_MAX {
            return;
        }
        let leased_until = self.leased_until(&from).max(self.leased_until(&to));
        let mut into = there.unwrap_or(LaneRec { first: u64::MAX, ..into });
        if row.first < into.first {
            (into.first, into.priority, into.due_ms) = (row.first, row.priority, row.due_ms);
        }
        into.due_ms = leased_until.unwrap_or(into.due_ms);
        into.joined.extend(&moved);
        into.turn = None;
        self.lanes.put(to, into);
        for lane in &moved {
            if let Some(row) = self.lanes.change(lane) {
                (row.joined_to, row.due_ms, row.turn) = (Some(to), NEVER_MS, None);
                row.joined.clear();
            }
        }
    }

    /// Loads the lanes that speak for those that were loaded, and all that these speak for.
    pub(super) async fn load_groups<T: Tx>(&mut self, tx: &mut T) -> Result<(), TxError> {
        let lanes = self.lanes.values().filter_map(|row| row.joined_to).filter(|lane| self.lanes.get(lane).is_none());
        let lanes = lanes.collect();
        self.load(tx, Wanted { lanes, ..Wanted::default() }).await?;
        let joined = self.lanes.values().flat_map(|row| row.joined.iter().copied());
        let lanes = joined.filter(|lane| self.lanes.get(lane).is_none()).collect();
        self.load(tx, Wanted { lanes, ..Wanted::default() }).await
    }
}

/// A lane in which nothing waits.
pub(super) fn empty(queue: Queue, hash: Hash, channel: &std::sync::Arc<str>) -> LaneRec {
    LaneRec {
        hash,
        queue,
        channel: channel.clone(),
        account: String::new(),
        priority: Priority::Normal,
        first: 0,
        due_ms: 0,
        held: None,
        peer: None,
        joined_to: None,
        joined: Vec::new(),
        turn: None,
        alone_ms: None,
    }
}
