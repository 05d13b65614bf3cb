//! The memory in front of the store: keys that are surely taken, and copies not yet counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hapax_domain::{EventId, EventKey};
use hapax_store::{Accepted, Copies};
use moka::sync::Cache;

use crate::telemetry::Memory;

/// A duplicate learned from the store was won at a time that only its id tells, by the store's clock; it is believed for this long at most.
const LEARNED_MS: i64 = 3_600_000;

/// Copies of this many different events may wait for the next flush; a count is a hint, so what does not fit is dropped.
const COPIES_MAX: usize = 50_000;

/// Committed keys. May answer "duplicate", never "new": what is not in here is asked of the store.
///
/// It holds with any number of instances: what one of them has not seen, it asks; and a key that was taken stays taken for its window,
/// whoever took it.
pub(super) struct Seen {
    keys: Cache<EventKey, Known>,
    hits: AtomicU64,
    copies: Mutex<HashMap<EventId, Copies>>,
}

#[derive(Clone, Copy)]
struct Known {
    event: EventId,
    fingerprint: u32,
    expires_ms: i64,
}

impl Seen {
    pub(super) fn new(keys: u64) -> Self {
        Self { keys: Cache::new(keys), hits: AtomicU64::new(0), copies: Mutex::new(HashMap::new()) }
    }

    /// Tells whether the key is surely taken, and by whom. Another content is the store's to judge.
    pub(super) fn look(&self, key: &EventKey, fingerprint: u32, now_ms: i64) -> Option<Accepted> {
        let known = self.keys.get(key).filter(|known| known.expires_ms > now_ms && known.fingerprint == fingerprint)?;
        Some(Accepted::Duplicate(known.event))
    }

    /// Remembers what the store said. A conflict teaches nothing: its fingerprint is not the first one's.
    pub(super) fn learn(&self, key: EventKey, fingerprint: u32, accepted: Accepted, now_ms: i64, window_ms: i64) {
        let expires_ms = match accepted {
            Accepted::New(_) | Accepted::Suspected(_) => now_ms + window_ms,
            // A hint of ours must not outlive the store's own knowledge.
            Accepted::Duplicate(first) => first.at_ms().unwrap_or(now_ms).saturating_add(window_ms).min(now_ms + LEARNED_MS),
            Accepted::Conflict(_) => return,
        };
        self.keys.insert(key, Known { event: accepted.event(), fingerprint, expires_ms });
    }

    /// Notes that so many events were answered without the store.
    pub(super) fn count_hits(&self, events: usize) {
        self.hits.fetch_add(events as u64, Ordering::Relaxed);
    }

    pub(super) fn memory(&self) -> Memory {
        // The cache counts in passing; what it has not got round to is done first.
        self.keys.run_pending_tasks();
        Memory { keys: self.keys.entry_count(), hits: self.hits.load(Ordering::Relaxed) }
    }

    pub(super) fn count_copy(&self, event: EventId, conflict: bool, now_ms: i64) {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if copies.len() >= COPIES_MAX && !copies.contains_key(&event) {
            return;
        }
        let counted = copies.entry(event).or_insert(Copies { event, copies: 0, conflicts: 0, last_ms: now_ms, kept: None });
        counted.copies += 1;
        counted.conflicts += u64::from(conflict);
        counted.last_ms = now_ms;
    }

    pub(super) fn take_copies(&self) -> Vec<Copies> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.drain().map(|(_, counted)| counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::{Kind, ids};
    use uuid::Uuid;

    const KEY: fn() -> EventKey = || EventKey::new("gowa", "a", Kind::Message, "x", &[]);
    const FIRST: EventId = EventId(Uuid::from_u128(1));

    #[test]
    fn only_what_was_learned_is_known_and_only_for_its_window() {
        let seen = Seen::new(10);
        assert_eq!(seen.look(&KEY(), 7, 0), None);
        seen.learn(KEY(), 7, Accepted::New(FIRST), 1_000, 500);
        assert_eq!(seen.look(&KEY(), 7, 1_499), Some(Accepted::Duplicate(FIRST)));
        assert_eq!(seen.look(&KEY(), 8, 1_499), None);
        assert_eq!(seen.look(&KEY(), 7, 1_500), None);
    }

    /// The id says when the key was won: what is learned of it ends with its window, however late that was.
    #[test]
    fn what_was_learned_from_the_store_ends_with_the_window() {
        const WON_MS: i64 = 1_760_000_000_000;
        const WINDOW_MS: i64 = 2 * 86_400_000;
        let first = EventId(ids::numbered(WON_MS, 1));
        let seen = Seen::new(10);
        let late = WON_MS + WINDOW_MS - 60_000;
        seen.learn(KEY(), 7, Accepted::Duplicate(first), late, WINDOW_MS);
        assert_eq!(seen.look(&KEY(), 7, late + 59_999), Some(Accepted::Duplicate(first)));
        assert_eq!(seen.look(&KEY(), 7, late + 60_000), None, "the store would say new");
        let early = WON_MS + 1_000;
        seen.learn(KEY(), 7, Accepted::Duplicate(first), early, WINDOW_MS);
        assert_eq!(seen.look(&KEY(), 7, early + LEARNED_MS - 1), Some(Accepted::Duplicate(first)));
        assert_eq!(seen.look(&KEY(), 7, early + LEARNED_MS), None, "asked again now and then");
    }

    #[test]
    fn what_it_holds_and_answered_is_counted() {
        let seen = Seen::new(10);
        assert_eq!(seen.memory(), Memory::default());
        seen.learn(KEY(), 7, Accepted::New(FIRST), 0, 500);
        seen.count_hits(2);
        assert_eq!(seen.memory(), Memory { keys: 1, hits: 2 });
    }

    #[test]
    fn a_conflict_does_not_replace_the_first_content() {
        let seen = Seen::new(10);
        seen.learn(KEY(), 8, Accepted::Conflict(FIRST), 0, 500);
        assert_eq!(seen.look(&KEY(), 8, 1), None);
    }

    #[test]
    fn copies_gather_per_event_until_taken() {
        let seen = Seen::new(10);
        seen.count_copy(FIRST, false, 1);
        seen.count_copy(FIRST, true, 2);
        assert_eq!(seen.take_copies(), [Copies { event: FIRST, copies: 2, conflicts: 1, last_ms: 2, kept: None }]);
        assert_eq!(seen.take_copies(), []);
    }
}
