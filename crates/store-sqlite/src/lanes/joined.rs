//! Two lanes become one, in memory.

use std::sync::Arc;

use super::{ChannelLanes, Lane, LaneName, Position};

impl Lane {
    /// Counts something that was put into a lane that became one with this; gives its place in `joined`.
    pub(super) fn count_joined(&mut self, name: LaneName, items: usize) -> usize {
        let at = self.joined.iter().position(|(joined, _)| *joined == name).unwrap_or_else(|| {
            self.joined.push((name, 0));
            self.joined.len() - 1
        });
        self.joined[at].1 += items;
        at
    }
}

impl ChannelLanes {
    /// Makes two lanes one, with all that waits and all leases. Gives the lane that spoke for the first, if there was one.
    pub(super) fn join(&mut self, from: LaneName, into: LaneName, peer: &Arc<str>) -> Option<LaneName> {
        let number = *self.names.get(&from)?;
        let kept = self.names.get(&into).copied().unwrap_or_else(|| self.open(Some(into)));
        if number == kept {
            return None;
        }
        let of = self.lanes.get_mut(&number)?;
        let (name, joined) = (of.name?, std::mem::take(&mut of.joined));
        let (items, held) = (std::mem::take(&mut of.items), std::mem::take(&mut of.held));
        self.leave_line(number);
        self.lanes.remove(&number);
        self.leased.extend(held.iter().map(|held| (held.item, kept)));
        let lane = self.lanes.get_mut(&kept)?;
        lane.peer.get_or_insert_with(|| Arc::clone(peer));
        let own = lane.count_joined(name, 0);
        let places: Vec<usize> = joined.iter().map(|(name, _)| lane.count_joined(*name, 0)).collect();
        for place in items {
            let of = place.of.map_or(own, |of| places[of]);
            lane.joined[of].1 += 1;
            lane.items.push_back(Position { of: Some(of), ..place });
        }
        lane.items.make_contiguous().sort_by_key(|place| place.item);
        lane.held.extend(held);
        self.names.extend(joined.into_iter().map(|(name, _)| (name, kept)).chain([(name, kept)]));
        self.take_turn(kept);
        Some(name)
    }
}
