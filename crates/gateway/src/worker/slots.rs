//! How many items of each channel are being worked on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Freed;

/// Most items of a channel that one look asks for: they come with their bodies, and a store has only seconds for it.
pub(super) const AT_ONCE: usize = 64;

/// Items that gave their slot back but wait for their settle are bounded too: by this many times the slots.
const UNSETTLED_PER_SLOT: usize = 4;

pub(super) struct Slots {
    channels: Vec<(Arc<str>, Arc<Count>)>,
    by_name: HashMap<Arc<str>, Arc<Count>>,
    freed: Freed,
}

struct Count {
    limit: usize,
    busy: AtomicUsize,
    unsettled: AtomicUsize,
}

/// One item being worked on. First the slot is given back, then, when dropped, the place among the unsettled.
pub(super) struct Slot {
    count: Option<Arc<Count>>,
    occupied: bool,
    freed: Freed,
}

impl Slots {
    pub(super) fn new(channels: &[(Arc<str>, usize)]) -> Self {
        let channels: Vec<_> = channels
            .iter()
            .map(|(name, limit)| {
                let count = Count { limit: (*limit).max(1), busy: AtomicUsize::new(0), unsettled: AtomicUsize::new(0) };
                (Arc::clone(name), Arc::new(count))
            })
            .collect();
        let by_name = channels.iter().map(|(name, count)| (Arc::clone(name), Arc::clone(count))).collect();
        Self { channels, by_name, freed: Freed::default() }
    }

    /// At most [`AT_ONCE`] of each channel.
    pub(super) fn wants(&self, allowance: impl Fn(&str) -> usize) -> Vec<(Arc<str>, usize)> {
        let free = |(name, count): &(Arc<str>, Arc<Count>)| {
            let slots = count.limit.saturating_sub(count.busy.load(Ordering::Acquire));
            let unsettled = (count.limit * UNSETTLED_PER_SLOT).saturating_sub(count.unsettled.load(Ordering::Acquire));
            let free = slots.min(unsettled).min(allowance(name)).min(AT_ONCE);
            (free > 0).then(|| (Arc::clone(name), free))
        };
        self.channels.iter().filter_map(free).collect()
    }

    pub(super) fn occupy(&self, channel: &str) -> Slot {
        let count = self.by_name.get(channel).cloned();
        if let Some(count) = &count {
            count.busy.fetch_add(1, Ordering::AcqRel);
            count.unsettled.fetch_add(1, Ordering::AcqRel);
        }
        Slot { count, occupied: true, freed: Arc::clone(&self.freed) }
    }

    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl Slot {
    pub(super) fn free(&mut self) {
        if std::mem::take(&mut self.occupied) {
            if let Some(count) = &self.count {
                count.busy.fetch_sub(1, Ordering::AcqRel);
            }
            self.freed.notify_one();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.free();
        if let Some(count) = &self.count {
            count.unsettled.fetch_sub(1, Ordering::AcqRel);
        }
        // The lane's next item can be leased only after the settle.
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_busy_is_not_wanted_again() {
        let slots = Slots::new(&[("a".into(), 2), ("b".into(), 1)]);
        let all = |_: &str| usize::MAX;
        assert_eq!(slots.wants(all), [("a".into(), 2), ("b".into(), 1)]);
        let (mut first, second) = (slots.occupy("a"), slots.occupy("b"));
        assert_eq!(slots.wants(all), [("a".into(), 1)]);
        first.free();
        assert_eq!(slots.wants(all), [("a".into(), 2)]);
        drop(second);
        assert_eq!(slots.wants(|channel| if channel == "a" { 0 } else { 5 }), [("b".into(), 1)]);
    }

    #[test]
    fn one_look_asks_for_so_many_and_no_more() {
        let slots = Slots::new(&[("a".into(), 10_000)]);
        assert_eq!(slots.wants(|_| usize::MAX), [("a".into(), AT_ONCE)]);
    }

    #[test]
    fn a_store_that_does_not_settle_stops_the_leasing() {
        let slots = Slots::new(&[("a".into(), 1)]);
        let mut unsettled = Vec::new();
        for _ in 0..UNSETTLED_PER_SLOT {
            let mut slot = slots.occupy("a");
            slot.free();
            unsettled.push(slot);
        }
        assert_eq!(slots.wants(|_| usize::MAX), []);
        unsettled.pop();
        assert_eq!(slots.wants(|_| usize::MAX), [("a".into(), 1)]);
    }
}
