//! Joining and leaving lanes: the lane's row always names the lowest that waits in it, and when it may next be taken.

use hapax_domain::Priority;

use super::records::{Hash, ItemRec, LaneRec, OutRec, Place, Queue};
use super::work::Work;

impl Work {
    /// Puts an item in line. Its lane, if there is one, must have been loaded.
    pub(super) fn add_item(&mut self, item: ItemRec) {
        let (number, lane, due_ms) = (item.number, item.lane, item.due_ms);
        let waits = item.place == Place::InLane;
        if waits {
            let fresh = LaneRec {
                hash: lane,
                queue: Queue::Inbox,
                channel: item.channel.clone(),
                account: String::new(),
                priority: Priority::Normal,
                first: number,
                due_ms,
                held: None,
            };
            self.join(fresh);
        }
        self.items.put(number, item);
    }

    /// Puts a message in line, unless it waits for somebody's word only.
    pub(super) fn add_out(&mut self, out: OutRec) {
        if let Some(due_ms) = out.due_ms {
            let fresh = LaneRec {
                hash: out.lane,
                queue: Queue::Outbox,
                channel: out.channel.clone(),
                account: out.account.clone(),
                priority: out.priority,
                first: out.number,
                due_ms,
                held: None,
            };
            self.join(fresh);
        }
        self.outs.put(out.number, out);
    }

    /// `fresh` is the lane as it would be if nothing else waited in it.
    fn join(&mut self, fresh: LaneRec) {
        self.lowest.entry(fresh.hash).or_default().insert(fresh.first);
        match self.lanes.get(&fresh.hash).map(|lane| fresh.first < lane.first) {
            None => self.lanes.put(fresh.hash, fresh),
            Some(false) => {}
            Some(true) => {
                if let Some(lane) = self.lanes.change(&fresh.hash) {
                    lane.first = fresh.first;
                    lane.priority = fresh.priority;
                    if lane.held.is_none() {
                        lane.due_ms = fresh.due_ms;
                    }
                }
            }
        }
    }

    pub(super) fn remove_item(&mut self, number: u64) {
        if let Some(item) = self.items.remove(&number)
            && item.place == Place::InLane
        {
            self.leave(&item.lane, number);
        }
    }

    pub(super) fn remove_out(&mut self, number: u64) {
        if let Some(out) = self.outs.remove(&number) {
            self.leave(&out.lane, number);
        }
    }

    /// Takes one out of its lane's line. The lane and the two lowest in it must have been loaded; of one lane, one leaves in a step.
    pub(super) fn leave(&mut self, lane: &Hash, number: u64) {
        if let Some(lowest) = self.lowest.get_mut(lane) {
            lowest.remove(&number);
        }
        self.refresh(lane);
    }

    /// Makes the lane's row true again after its lease ended, or after one has left or is due at another time.
    pub(super) fn refresh(&mut self, lane: &Hash) {
        let queue = match self.lanes.get(lane) {
            Some(lane) => lane.queue,
            None => return,
        };
        let first = self.lowest.get(lane).and_then(|lowest| lowest.first().copied());
        let due = first.and_then(|first| match queue {
            Queue::Inbox => self.items.get(&first).map(|item| (first, item.due_ms, Priority::Normal)),
            Queue::Outbox => self.outs.get(&first).and_then(|out| Some((first, out.due_ms?, out.priority))),
        });
        let Some((first, due_ms, priority)) = due else {
            self.lanes.remove(lane);
            return;
        };
        if let Some(lane) = self.lanes.change(lane) {
            lane.first = first;
            lane.priority = priority;
            lane.due_ms = lane.held.as_ref().map_or(due_ms, |held| held.until_ms);
        }
    }

    /// Ends the lane's lease, whatever comes of it.
    pub(super) fn unhold(&mut self, lane: &Hash) {
        if let Some(lane) = self.lanes.change(lane) {
            lane.held = None;
        }
    }
}
