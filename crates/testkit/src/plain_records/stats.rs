//! Counts over plain maps.

use std::collections::BTreeMap;

use hapax_store::steps::records::ItemPlace;
use hapax_store::{ChannelCounts, Stats};

use super::Data;

impl Data {
    pub(super) fn stats(&self) -> Stats {
        let mut channels: BTreeMap<String, ChannelCounts> = BTreeMap::new();
        for item in self.all_items().values() {
            let channel = item.channel.to_string();
            let counts = channels.entry(channel.clone()).or_insert_with(|| ChannelCounts { channel, ..Default::default() });
            let mut held = self.lanes.values().filter_map(|lane| lane.held.as_ref());
            match item.place {
                ItemPlace::InLane if held.any(|held| held.number == item.number) => counts.leased += 1,
                ItemPlace::InLane => counts.waiting += 1,
                ItemPlace::Parked => counts.parked += 1,
                ItemPlace::Quarantined => counts.quarantined += 1,
            }
            if item.place == ItemPlace::InLane {
                counts.oldest_ms = Some(counts.oldest_ms.map_or(item.received_ms, |oldest| oldest.min(item.received_ms)));
            }
        }
        let unknown = self.outs.values().filter(|out| out.unknown).count() as u64;
        Stats {
            keys: self.keys.len() as u64,
            events: self.events.len() as u64,
            channels: channels.into_values().collect(),
            outbox_waiting: self.outs.len() as u64 - unknown,
            outbox_unknown: unknown,
            ..Stats::default()
        }
    }
}
