//! The memory in front of the store: keys that are surely taken, and copies not yet counted.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hapax_domain::{EventId, EventKey};
use hapax_store::{Accepted, Copies};

use crate::telemetry::Memory;

/// A duplicate learned from the store was won at a time that only its id tells, by the store's clock; it is believed for this long at most.
const LEARNED_MS: i64 = 3_600_000;

/// Copies of this many different events may wait for the next flush; a count is a hint, so what does not fit is dropped.
const COPIES_MAX: usize = 50_000;

/// Committed keys. May answer "duplicate", never "new": what is not in here is asked of the store.
///
/// It holds with any number of instances: what one of them has not seen, it asks; and a key that was taken stays taken for its window,
/// whoever took it.
pub struct Seen {
    shards: Vec<Mutex<Shard>>,
    /// Keys of one generation of a shard.
    generation: usize,
    hits: AtomicU64,
    copies: Mutex<HashMap<EventId, Copies>>,
}

#[derive(Clone, Copy)]
struct Known {
    event: EventId,
    fingerprint: u32,
    expires_ms: i64,
}

/// Few threads meet in one of so many.
const SHARDS: usize = 16;

type Keys = HashMap<EventKey, Known, Seeded>;

/// Two generations: once the younger is full it takes the place of the older, whose keys nobody has asked for since then.
struct Shard {
    young: Keys,
    old: Keys,
}

/// Makes a place in the table of a key. A key is a hash already; the seed keeps whoever chooses ids from choosing places too.
#[derive(Clone, Copy)]
struct Seeded(u64);

struct Place {
    seed: u64,
    place: u64,
}

impl BuildHasher for Seeded {
    type Hasher = Place;

    fn build_hasher(&self) -> Place {
        Place { seed: self.0, place: 0 }
    }
}

impl Hasher for Place {
    /// An array is hashed as its length and then its bytes; the last write, the bytes, is what counts.
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            let mixed = u128::from(u64::from_le_bytes(*first) ^ self.seed);
            let product = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
            self.place = (product >> 64) as u64 ^ product as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.place
    }
}

impl Shard {
    fn put(&mut self, key: EventKey, known: Known, generation: usize) {
        if self.young.len() >= generation && !self.young.contains_key(&key) {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(key, known);
    }

    /// What is asked for is young again.
    fn get(&mut self, key: &EventKey, generation: usize) -> Option<Known> {
        if let Some(known) = self.young.get(key) {
            return Some(*known);
        }
        let known = self.old.remove(key)?;
        self.put(*key, known, generation);
        Some(known)
    }
}

impl Seen {
    /// Of so many keys, rounded up to full generations; those of the last generation at least are known.
    pub(crate) fn new(keys: u64) -> Self {
        let seed = Seeded(rand::random());
        let shard = || Mutex::new(Shard { young: Keys::with_hasher(seed), old: Keys::with_hasher(seed) });
        let shards = (0..SHARDS).map(|_| shard()).collect();
        let generation = usize::try_from(keys).unwrap_or(usize::MAX).div_ceil(2 * SHARDS);
        Self { shards, generation, hits: AtomicU64::new(0), copies: Mutex::new(HashMap::new()) }
    }

    fn shard(&self, key: &EventKey) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(key.0[31]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether the key is surely taken, and by whom. Another content is the store's to judge.
    pub(super) fn look(&self, key: &EventKey, fingerprint: u32, now_ms: i64) -> Option<Accepted> {
        let known = self.shard(key).get(key, self.generation);
        let known = known.filter(|known| known.expires_ms > now_ms && known.fingerprint == fingerprint)?;
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
        if self.generation > 0 {
            let known = Known { event: accepted.event(), fingerprint, expires_ms };
            self.shard(&key).put(key, known, self.generation);
        }
    }

    /// Notes that so many events were answered without the store.
    pub(super) fn count_hits(&self, events: usize) {
        self.hits.fetch_add(events as u64, Ordering::Relaxed);
    }

    pub(crate) fn memory(&self) -> Memory {
        let held = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            (shard.young.len() + shard.old.len()) as u64
        };
        Memory { keys: self.shards.iter().map(held).sum(), hits: self.hits.load(Ordering::Relaxed) }
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
    fn it_holds_no_more_than_it_may_and_keeps_what_is_asked_for() {
        let key = |number: u32| EventKey::new("gowa", "a", Kind::Message, &number.to_string(), &[]);
        let (seen, none) = (Seen::new(1_600), Seen::new(0));
        seen.learn(key(0), 7, Accepted::New(FIRST), 0, 500);
        for number in 1..20_000 {
            seen.learn(key(number), 7, Accepted::New(FIRST), 0, 500);
            assert_eq!(seen.look(&key(0), 7, 1), Some(Accepted::Duplicate(FIRST)), "after {number}");
            none.learn(key(number), 7, Accepted::New(FIRST), 0, 500);
        }
        assert!((800..=1_600).contains(&seen.memory().keys), "{:?}", seen.memory());
        assert_eq!(seen.look(&key(19_999), 7, 1), Some(Accepted::Duplicate(FIRST)));
        assert_eq!(seen.look(&key(1), 7, 1), None);
        assert_eq!(none.memory().keys, 0);
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
