//! What a person asks for: parked items back in line, and events once more.

use std::collections::BTreeSet;
use std::sync::Arc;

use hapax_domain::{EventId, ItemId, limits};

use super::{Item, ItemPlace, State};
use crate::Redrive;

impl State {
    pub(in crate::memory) fn redrive(&mut self, which: &Redrive, max: usize, now: i64) -> usize {
        let wanted = |id: ItemId, item: &Item| match which {
            Redrive::Item(wanted) => id == *wanted,
            Redrive::Event(event) => item.events.contains(event),
            Redrive::Channel(channel) => *item.channel == **channel && !item.is_suspected(),
            Redrive::All => !item.is_suspected(),
        };
        let parked =
            self.items.iter().filter(|(id, item)| item.place == ItemPlace::Parked && wanted(**id, item)).map(|(id, _)| *id);
        let parked: Vec<ItemId> = parked.take(limits::redrive_looks_at(max)).collect();
        let mut moved = 0;
        for id in &parked {
            let Some(item) = self.items.get_mut(id).filter(|_| moved < max) else { break };
            if !item.replies.is_empty() {
                if !item.replies.iter().any(|reply| self.outbox.is_full_for(reply)) {
                    let replies = std::mem::take(&mut item.replies);
                    self.send_all(replies, now);
                    self.items.remove(id);
                    moved += 1;
                }
                continue;
            }
            moved += 1;
            let (channel, event) = (Arc::clone(&item.channel), item.events[0]);
            let number = self.lane_again(event, &channel);
            self.lanes.put(number, *id);
            if let Some(item) = self.items.get_mut(id) {
                item.place = ItemPlace::InLane(number);
                item.failures = 0;
                item.due_ms = now;
            }
        }
        moved
    }

    pub(in crate::memory) fn replay(&mut self, event: EventId, now: i64) -> Option<ItemId> {
        let recorded = self.events.get(&event).filter(|recorded| recorded.part.is_none())?;
        let channel = Arc::clone(&recorded.channel);
        let replays_before = self.replays_of(event);
        let number = EventId(self.id(now));
        let place = ItemPlace::InLane(self.lane_again(event, &channel));
        let id = self.add_item(number, event, &channel, place, None, now);
        let item = self.items.get_mut(&id)?;
        item.replay = Some(replays_before + 1);
        Some(id)
    }

    fn replays_of(&self, event: EventId) -> u32 {
        let open = self.items.iter().filter(|(_, item)| item.replay.is_some() && item.events[0] == event).map(|(id, _)| *id);
        let own = ItemId(event.0);
        let ended = self.attempts.iter().filter(|(of, row)| *of == event && row.item != own).map(|(_, row)| row.item);
        open.chain(ended).filter(|id| id.0 > event.0).collect::<BTreeSet<_>>().len() as u32
    }
}
