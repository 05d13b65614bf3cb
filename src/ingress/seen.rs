//! The memory in front of the store: keys that are surely taken, and copies not yet counted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use moka::sync::Cache;

use crate::domain::{EventId, EventKey};
use crate::store::{Accepted, Copies};

/// A duplicate learned from the store was won at a time we do not know; it is believed for this long at most.
const LEARNED_MS: i64 = 3_600_000;

/// Copies of this many different events may wait for the next flush; a count is a hint, so what does not fit is dropped.
const COPIES_MAX: usize = 50_000;

/// Committed keys. May answer "duplicate", never "new": what is not in here is asked of the store.
pub(super) struct Seen {
    keys: Cache<EventKey, Known>,
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
        Self { keys: Cache::new(keys), copies: Mutex::new(HashMap::new()) }
    }

    /// Tells whether the key is surely taken, and by whom.
    pub(super) fn look(&self, key: &EventKey, fingerprint: u32, now_ms: i64) -> Option<Accepted> {
        let known = self.keys.get(key).filter(|known| known.expires_ms > now_ms)?;
        Some(if known.fingerprint == fingerprint { Accepted::Duplicate(known.event) } else { Accepted::Conflict(known.event) })
    }

    /// Remembers what the store said. A conflict teaches nothing: its fingerprint is not the first one's.
    pub(super) fn learn(&self, key: EventKey, fingerprint: u32, accepted: Accepted, now_ms: i64, window_ms: i64) {
        let expires_ms = match accepted {
            Accepted::New(_) => now_ms + window_ms,
            Accepted::Duplicate(_) => now_ms + window_ms.min(LEARNED_MS),
            Accepted::Conflict(_) => return,
        };
        self.keys.insert(key, Known { event: accepted.event(), fingerprint, expires_ms });
    }

    pub(super) fn count_copy(&self, event: EventId, conflict: bool, now_ms: i64) {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if copies.len() >= COPIES_MAX && !copies.contains_key(&event) {
            return;
        }
        let counted = copies.entry(event).or_insert(Copies { event, copies: 0, conflicts: 0, last_ms: now_ms });
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
    use crate::domain::Kind;
    use uuid::Uuid;

    const KEY: fn() -> EventKey = || EventKey::of("gowa", "a", Kind::Message, "x", &[]);
    const FIRST: EventId = EventId(Uuid::from_u128(1));

    #[test]
    fn only_what_was_learned_is_known_and_only_for_its_window() {
        let seen = Seen::new(10);
        assert_eq!(seen.look(&KEY(), 7, 0), None);
        seen.learn(KEY(), 7, Accepted::New(FIRST), 1_000, 500);
        assert_eq!(seen.look(&KEY(), 7, 1_499), Some(Accepted::Duplicate(FIRST)));
        assert_eq!(seen.look(&KEY(), 8, 1_499), Some(Accepted::Conflict(FIRST)));
        assert_eq!(seen.look(&KEY(), 7, 1_500), None);
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
        assert_eq!(seen.take_copies(), [Copies { event: FIRST, copies: 2, conflicts: 1, last_ms: 2 }]);
        assert_eq!(seen.take_copies(), []);
    }
}
