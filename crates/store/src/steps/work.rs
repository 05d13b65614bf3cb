//! The records one step works on, and what became of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash as Hashed;

use crate::is_told;

use super::engine::{Changes, Loaded, Tx, TxError, Wanted};
use super::names::Names;
use super::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, Hash, Held, ItemRec, LaneRec, MessageRec, OutRec, ProviderNameRec, Queue,
    ThreadRec,
};
use super::room::Outbox;

/// Records by key, with a memory of which were there and which were touched.
pub(super) struct Tracked<K, V> {
    now: HashMap<K, V>,
    was: HashSet<K>,
    touched: BTreeSet<K>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { now: HashMap::new(), was: HashSet::new(), touched: BTreeSet::new() }
    }
}

impl<K: Copy + Eq + Hashed + Ord, V> Tracked<K, V> {
    /// Takes in what was loaded; what is known already is fresher.
    fn loaded(&mut self, records: HashMap<K, V>) {
        for (key, record) in records {
            if self.was.insert(key) && !self.touched.contains(&key) {
                self.now.insert(key, record);
            }
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.now.get(key)
    }

    pub(super) fn change(&mut self, key: &K) -> Option<&mut V> {
        let record = self.now.get_mut(key)?;
        self.touched.insert(*key);
        Some(record)
    }

    pub(super) fn put(&mut self, key: K, record: V) {
        self.touched.insert(key);
        self.now.insert(key, record);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.touched.insert(*key);
        self.now.remove(key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.now.values()
    }

    pub(super) fn was_loaded(&self, key: &K) -> bool {
        self.was.contains(key)
    }

    pub(super) fn loaded_one(&mut self, key: K, record: V) {
        self.loaded(HashMap::from([(key, record)]));
    }

    /// Whether it is there, and has no record yet.
    pub(super) fn is_new(&self, key: &K) -> bool {
        self.now.contains_key(key) && !self.was.contains(key)
    }

    pub(super) fn is_touched(&self, key: &K) -> bool {
        self.touched.contains(key)
    }

    /// It has no record: what is there of it is new, and what is not there needs no removing.
    pub(super) fn has_no_record(&mut self, key: K) {
        self.was.remove(&key);
        self.touched.insert(key);
    }

    /// It is to have no record.
    pub(super) fn forget(&mut self, key: &K) {
        self.touched.remove(key);
        self.now.remove(key);
    }

    /// What to insert, to update and to remove, each in the order of the keys, so that two instances lock in the same order.
    fn changes(mut self) -> (Vec<V>, Vec<V>, Vec<K>) {
        let (mut new, mut changed, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for key in self.touched {
            match (self.was.contains(&key), self.now.remove(&key)) {
                (false, Some(record)) => new.push(record),
                (true, Some(record)) => changed.push(record),
                (true, None) => gone.push(key),
                (false, None) => {}
            }
        }
        (new, changed, gone)
    }
}

/// One step's records.
pub(super) struct Work {
    pub(super) now_ms: i64,
    pub(super) lanes: Tracked<Hash, LaneRec>,
    pub(super) items: Tracked<u64, ItemRec>,
    /// Items that are kept in the rows of their lanes.
    pub(super) alone: HashMap<u64, Hash>,
    pub(super) events: HashMap<u64, EventRec>,
    pub(super) threads: Tracked<Hash, ThreadRec>,
    pub(super) provider_names: Tracked<Hash, ProviderNameRec>,
    pub(super) messages: Tracked<u64, MessageRec>,
    pub(super) outs: Tracked<u64, OutRec>,
    pub(super) names: Names,
    pub(super) sending: HashSet<String>,
    /// How many wait in the outboxes that were counted, and how many may.
    pub(super) waiting: HashMap<Outbox, usize>,
    pub(super) outbox_max: usize,
    /// The lowest numbers that wait in a lane, as far as they are known, and the lanes of which they were asked for.
    pub(super) lowest: HashMap<Hash, BTreeSet<u64>>,
    pub(super) asked_lowest: HashSet<Hash>,
    pub(super) new_events: Vec<EventRec>,
    pub(super) replays: Vec<(u64, u32)>,
    pub(super) gone_events: Vec<EventRec>,
    pub(super) forgotten_events: Vec<u64>,
    pub(super) forgotten_bodies: Vec<EventRec>,
    pub(super) forgotten_messages: Vec<MessageRec>,
    pub(super) attempts: Vec<AttemptRec>,
    pub(super) answers: Vec<AnswerRec>,
    pub(super) marked_read: Vec<(Hash, u64)>,
    pub(super) claims: Tracked<Hash, ClaimRec>,
}

impl Work {
    pub(super) fn new(now_ms: i64) -> Self {
        Self {
            now_ms,
            lanes: Tracked::default(),
            items: Tracked::default(),
            alone: HashMap::new(),
            events: HashMap::new(),
            threads: Tracked::default(),
            provider_names: Tracked::default(),
            messages: Tracked::default(),
            outs: Tracked::default(),
            names: Names::default(),
            sending: HashSet::new(),
            waiting: HashMap::new(),
            outbox_max: usize::MAX,
            lowest: HashMap::new(),
            asked_lowest: HashSet::new(),
            new_events: Vec::new(),
            replays: Vec::new(),
            gone_events: Vec::new(),
            forgotten_events: Vec::new(),
            forgotten_bodies: Vec::new(),
            forgotten_messages: Vec::new(),
            attempts: Vec::new(),
            answers: Vec::new(),
            marked_read: Vec::new(),
            claims: Tracked::default(),
        }
    }

    /// Loads more; nothing is asked of the engine when nothing is wanted.
    pub(super) async fn load<T: Tx>(&mut self, tx: &mut T, mut wanted: Wanted) -> Result<(), TxError> {
        wanted.tidy();
        wanted.items.retain(|item| !self.alone.contains_key(item));
        if wanted.is_empty() {
            return Ok(());
        }
        let loaded = tx.load(&wanted).await?;
        let before = |name| if self.names.was_asked(name) { self.names.read(name) } else { loaded.names.get(name) };
        if wanted.sure_names.iter().any(|name| before(name) != loaded.sure_names.get(name)) {
            return Err(TxError::Conflict("somebody else has learned or forgotten a name meanwhile".to_owned()));
        }
        self.names.asked(wanted.names);
        self.asked_lowest.extend(wanted.lowest_items.into_iter().chain(wanted.lowest_outs));
        self.take(loaded);
        Ok(())
    }

    pub(super) fn take(&mut self, loaded: Loaded) {
        self.take_alone(loaded.lanes.values());
        self.lanes.loaded(loaded.lanes);
        self.items.loaded(loaded.items);
        self.events.extend(loaded.events);
        self.threads.loaded(loaded.threads);
        self.provider_names.loaded(loaded.provider_names);
        self.messages.loaded(loaded.messages);
        self.outs.loaded(loaded.outs);
        self.claims.loaded(loaded.claims);
        for (name, peer) in loaded.names {
            self.names.loaded(name, peer);
        }
        self.sending.extend(loaded.sending);
        self.waiting.extend(loaded.waiting);
        for (lane, numbers) in loaded.lowest {
            self.lowest.entry(lane).or_default().extend(numbers);
        }
    }

    pub(super) fn take_lanes(&mut self, lanes: Vec<LaneRec>) {
        self.take_alone(lanes.iter());
        self.lanes.loaded(lanes.into_iter().map(|lane| (lane.hash, lane)).collect());
    }

    pub(super) fn changes(mut self) -> Changes {
        self.part_from_lanes();
        let (new_items, items, gone_items) = self.items.changes();
        let (new_lanes, lanes, gone_lanes) = self.lanes.changes();
        let (new_threads, threads, gone_threads) = self.threads.changes();
        let (new_provider_names, provider_names, gone_provider_names) = self.provider_names.changes();
        let (new_messages, messages, gone_messages) = self.messages.changes();
        let (new_outs, outs, gone_outs) = self.outs.changes();
        let (new_claims, claims, gone_claims) = self.claims.changes();
        let (names, new_names) = self.names.changes();
        Changes {
            new_events: self.new_events,
            replays: self.replays,
            gone_events: self.gone_events,
            forgotten_events: self.forgotten_events,
            forgotten_bodies: self.forgotten_bodies,
            forgotten_messages: self.forgotten_messages,
            new_items,
            items,
            gone_items,
            new_lanes,
            lanes,
            gone_lanes,
            new_names,
            names,
            new_threads,
            threads,
            gone_threads,
            new_provider_names,
            provider_names,
            gone_provider_names,
            new_messages,
            messages,
            gone_messages,
            new_outs,
            outs,
            gone_outs,
            attempts: self.attempts,
            answers: self.answers,
            marked_read: self.marked_read,
            new_claims,
            claims,
            gone_claims,
            moved: false,
        }
    }

    /// The lease of a lane, if this is still its fence.
    pub(super) fn held(&self, lane: &Hash, fence: u64) -> Option<Held> {
        self.lanes.get(lane)?.held.clone().filter(|held| held.fence == fence)
    }

    /// Writes down how an attempt ended.
    pub(super) fn log(&mut self, queue: Queue, of: u64, item_ms: i64, held: &Held, outcome: &str, detail: &str) {
        if queue == Queue::Inbox && !is_told(held.attempt, outcome) {
            return;
        }
        self.attempts.push(AttemptRec {
            queue,
            of,
            item: held.number,
            item_ms,
            attempt: held.attempt,
            fence: held.fence,
            worker: held.worker.clone(),
            leased_ms: held.leased_ms,
            ended_ms: self.now_ms,
            outcome: outcome.to_owned(),
            detail: detail.to_owned(),
        });
    }
}

impl Wanted {
    pub fn is_empty(&self) -> bool {
        let Wanted {
            lanes,
            items,
            lowest_items,
            events,
            locked_events,
            bodies,
            names,
            threads,
            sure_names,
            named,
            sending,
            provider_names,
            requests,
            messages,
            outs,
            lowest_outs,
            waiting,
            claims,
        } = self;
        let hashes = [lanes, lowest_items, threads, named, requests, lowest_outs, claims];
        let numbers = [items, events, locked_events, bodies, messages, outs];
        let pairs = [names, sure_names, provider_names, waiting];
        hashes.iter().all(|list| list.is_empty())
            && numbers.iter().all(|list| list.is_empty())
            && sending.is_empty()
            && pairs.iter().all(|list| list.is_empty())
    }

    /// Every record once, in order: all instances lock in the same order.
    pub fn tidy(&mut self) {
        fn tidied<T: Ord>(list: &mut Vec<T>) {
            list.sort_unstable();
            list.dedup();
        }
        let hashes = [&mut self.lanes, &mut self.lowest_items, &mut self.threads, &mut self.named];
        hashes.into_iter().chain([&mut self.requests, &mut self.lowest_outs, &mut self.claims]).for_each(tidied);
        [&mut self.items, &mut self.events, &mut self.locked_events, &mut self.bodies, &mut self.messages, &mut self.outs]
            .into_iter()
            .for_each(tidied);
        tidied(&mut self.sending);
        [&mut self.names, &mut self.sure_names, &mut self.provider_names, &mut self.waiting].into_iter().for_each(tidied);
        // A body brings its event along.
        let bodies = &self.bodies;
        self.events.retain(|event| bodies.binary_search(event).is_err());
    }
}
