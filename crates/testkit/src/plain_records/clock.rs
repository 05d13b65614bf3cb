//! What moves with a clock that was set back.

use std::collections::HashMap;

use hapax_store::end_after_set_back;
use hapax_store::steps::records::{Hash, LaneRec, NEVER_MS, OutRec, Queue};

use super::Data;

impl Data {
    pub(super) fn follow_clock(&mut self, now_ms: i64) {
        let back_ms = std::mem::replace(&mut self.seen_ms, now_ms) - now_ms;
        if back_ms <= 0 {
            return;
        }
        // One that is alone would be due when it came.
        self.items = self.all_items();
        self.lanes.values_mut().for_each(|lane| lane.alone_ms = None);
        self.items.values_mut().for_each(|item| item.due_ms -= back_ms);
        let messages = &self.messages;
        // One that waits alone and is not in doubt waits for a time that a person named.
        let scheduled = |out: &OutRec| !out.unknown && messages.get(&out.number).is_some_and(|message| message.home != out.lane);
        let moved: Vec<u64> = self.outs.values().filter(|out| !scheduled(out)).map(|out| out.number).collect();
        for number in &moved {
            if let Some(due_ms) = self.outs.get_mut(number).and_then(|out| out.due_ms.as_mut()) {
                *due_ms -= back_ms;
            }
        }
        let stays =
            |lane: &LaneRec| lane.queue == Queue::Outbox && self.outs.contains_key(&lane.first) && !moved.contains(&lane.first);
        for lane in self.lanes.values_mut().filter(|lane| !stays(lane)) {
            lane.due_ms -= back_ms;
            if let Some(held) = &mut lane.held {
                held.until_ms = end_after_set_back(held.until_ms, back_ms, now_ms);
            }
        }
        self.follow_leases();
        self.provider_names.values_mut().for_each(|name| name.heard_ms = name.heard_ms.min(now_ms));
    }

    /// A lane that is held, or speaks for one that is, is due when the last of these leases ends; one that was joined never is.
    fn follow_leases(&mut self) {
        let ends =
            self.lanes.values().filter_map(|lane| Some((lane.joined_to.unwrap_or(lane.hash), lane.held.as_ref()?.until_ms)));
        let mut last: HashMap<Hash, i64> = HashMap::new();
        for (speaker, until_ms) in ends {
            let end = last.entry(speaker).or_insert(until_ms);
            *end = until_ms.max(*end);
        }
        for lane in self.lanes.values_mut() {
            match lane.joined_to {
                Some(_) => lane.due_ms = NEVER_MS,
                None => lane.due_ms = last.get(&lane.hash).copied().unwrap_or(lane.due_ms),
            }
        }
    }
}
