//! Most items are alone in a lane that nothing waited in before, until they are delivered. Such an item needs no record: the lane's row tells
//! all of it. It gets one as soon as it is more than what was taken in, or not the first of its lane any more.

use super::records::{ItemRec, LaneRec};
use super::work::Work;

impl Work {
    /// Takes in the items that are kept in the rows of these lanes, unless the lanes are known already.
    pub(super) fn take_alone<'l>(&mut self, lanes: impl Iterator<Item = &'l LaneRec>) {
        for lane in lanes.filter(|lane| lane.alone_ms.is_some()) {
            let known = self.lanes.was_loaded(&lane.hash);
            let Some(item) = lane.alone().filter(|_| !known) else { continue };
            self.lowest.entry(lane.hash).or_default().insert(item.number);
            self.alone.insert(item.number, lane.hash);
            self.items.loaded_one(item.number, item);
        }
    }

    /// Keeps new items in the rows of their lanes where these can tell all of them.
    pub(super) fn keep_alone(&mut self) {
        let fits = |item: &ItemRec| {
            let row = self.lanes.get(&item.lane).filter(|row| row.first == item.number && self.lanes.is_new(&row.hash))?;
            let told = row.turn.is_none() && row.first_as_taken_in(item.received_ms) == *item;
            told.then_some((item.lane, item.number, item.received_ms))
        };
        let alone: Vec<_> = self.items.values().filter(|item| self.items.is_new(&item.number)).filter_map(fits).collect();
        for (lane, item, received_ms) in alone {
            self.items.forget(&item);
            if let Some(row) = self.lanes.change(&lane) {
                row.alone_ms = Some(received_ms);
            }
        }
    }

    /// Gives records of their own to items that their lanes' rows do not tell of any more.
    pub(super) fn part_from_lanes(&mut self) {
        for (item, lane) in std::mem::take(&mut self.alone) {
            let is_first = self.lanes.get(&lane).is_some_and(|row| row.first == item);
            if is_first && !self.items.is_touched(&item) {
                continue;
            }
            self.items.has_no_record(item);
            if let Some(row) = self.lanes.change(&lane) {
                row.alone_ms = None;
            }
        }
    }
}
