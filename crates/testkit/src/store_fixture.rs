//! What a store is tested on, and the arrivals to test it with.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hapax_domain::{Event, EventId, EventKey, Kind};
use hapax_store::memory::MemoryStore;
use hapax_store::{Accepted, Arrival, Disposition, InboxLease, KeptHeaders, LeaseRequest, NewEvent, Store};

use super::hand_clock::HandClock;

/// One engine's data. Each `open` is another instance on it; `crash` ends all of them without a goodbye and opens anew.
pub trait StoreFixture: Send + Sync {
    fn clock(&self) -> &HandClock;
    fn open(&self) -> Arc<dyn Store>;
    fn crash(&self) -> Arc<dyn Store>;

    /// Whether its clock may be set back. Firestore's is not a machine's: it never is.
    fn may_be_set_back(&self) -> bool {
        true
    }

    /// Whether several instances share its data: then the crash of one ends no lease.
    fn shares(&self) -> bool {
        false
    }
}

/// What a suite may be given: a fixture, or none where the engine's server is not installed.
pub trait MaybeFixture {
    type StoreFixture: StoreFixture;
    fn fixture(self) -> Option<Self::StoreFixture>;
}

impl<B: StoreFixture> MaybeFixture for B {
    type StoreFixture = B;

    fn fixture(self) -> Option<B> {
        Some(self)
    }
}

impl<B: StoreFixture> MaybeFixture for Option<B> {
    type StoreFixture = B;

    fn fixture(self) -> Option<B> {
        self
    }
}

/// Some day in October 2025.
pub const START_MS: i64 = 1_760_000_000_000;
pub const WINDOW_MS: i64 = 8 * 24 * 3_600_000;
pub const HOLD_MS: i64 = 60_000;

pub struct MemoryFixture {
    clock: HandClock,
    store: MemoryStore,
}

impl MemoryFixture {
    #[expect(clippy::new_without_default, reason = "a test fixture is made on purpose")]
    pub fn new() -> Self {
        Self::at(START_MS)
    }

    pub fn at(now_ms: i64) -> Self {
        let clock = HandClock::at(now_ms);
        Self { store: MemoryStore::new(Arc::new(clock.clone())), clock }
    }
}

impl StoreFixture for MemoryFixture {
    fn clock(&self) -> &HandClock {
        &self.clock
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn crash(&self) -> Arc<dyn Store> {
        self.store.reopen();
        self.open()
    }
}

/// The embedded engine in a folder of its own, with periods of a few keys so that every test crosses many.
pub struct SqliteFixture {
    clock: HandClock,
    folder: std::path::PathBuf,
    store: Mutex<Option<hapax_store_sqlite::SqliteStore>>,
}

impl SqliteFixture {
    /// `folder` must exist and be empty; it is removed with the fixture.
    pub fn new(folder: std::path::PathBuf) -> Self {
        Self { clock: HandClock::at(START_MS), folder, store: Mutex::default() }
    }

    fn open_engine(&self) -> hapax_store_sqlite::SqliteStore {
        use hapax_store_sqlite::{ClaimSize, Options, PeriodSize, SqliteStore};
        let period = PeriodSize { keys: 16, ms: 24 * 3_600_000 };
        let claims = ClaimSize { round_bytes: 500, block_bytes: 300, step_blocks: 1 };
        let options = Options { period, claims, disk_floor_bytes: 0, ..Options::default() };
        let opened = SqliteStore::open(&self.folder.join("suite.db"), Arc::new(self.clock.clone()), &options);
        opened.unwrap_or_else(|error| unreachable!("a fresh folder can hold a store: {error}"))
    }
}

impl StoreFixture for SqliteFixture {
    fn clock(&self) -> &HandClock {
        &self.clock
    }

    fn open(&self) -> Arc<dyn Store> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::new(store.get_or_insert_with(|| self.open_engine()).clone())
    }

    /// The caller must have dropped its own instances: the file has one owner.
    fn crash(&self) -> Arc<dyn Store> {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.open()
    }
}

impl Drop for SqliteFixture {
    fn drop(&mut self) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A message of `peer` under the provider's id `id`.
pub fn message(id: &str, peer: &str) -> Event {
    let key = EventKey::new("generic", "acc", Kind::Message, id, &[]);
    Event { peer: Some(peer.to_owned()), ..Event::new(Kind::Message, "acc", id, key, 7) }
}

/// Something that belongs to no thread.
pub fn notice(id: &str) -> Event {
    Event::new(Kind::Notice, "acc", id, EventKey::new("generic", "acc", Kind::Notice, id, &[]), 7)
}

/// A webhook with these events, all to be delivered.
pub fn webhook(events: Vec<Event>) -> Arrival {
    webhook_then(events.into_iter().map(|event| (event, Disposition::Deliver)).collect())
}

pub fn webhook_then(events: Vec<(Event, Disposition)>) -> Arrival {
    let mut headers = KeptHeaders::default();
    headers.push("content-type", b"application/json");
    let body = Bytes::from(format!("{{\"events\":{}}}", events.len()));
    let number = |(index, (event, disposition)): (usize, (Event, Disposition))| NewEvent {
        event: Event { index: index as u32, ..event },
        disposition,
    };
    let events = events.into_iter().enumerate().map(number).collect();
    Arrival { channel: "shop".into(), window_ms: WINDOW_MS, headers, body, events, coalesce: None }
}

pub fn ask(max: usize) -> LeaseRequest {
    ask_as("worker", max)
}

pub fn ask_as(worker: &str, max: usize) -> LeaseRequest {
    LeaseRequest {
        worker: worker.into(),
        wants: vec![("shop".into(), max)],
        resting: Vec::new(),
        hold_ms: HOLD_MS,
        outside: false,
    }
}

/// Accepts and expects the store to work.
pub async fn accept(store: &dyn Store, arrival: impl Into<Arc<Arrival>>) -> Vec<Accepted> {
    store.accept(arrival.into()).await.unwrap_or_else(|error| unreachable!("accept: {error}"))
}

pub async fn accept_one(store: &dyn Store, event: Event) -> EventId {
    accept(store, webhook(vec![event])).await[0].event()
}

pub async fn lease(store: &dyn Store, max: usize) -> Vec<InboxLease> {
    store.lease_inbox(ask(max)).await.unwrap_or_else(|error| unreachable!("lease: {error}"))
}

/// The provider ids a lease carries, by event id order of the lease.
pub fn ids(lease: &InboxLease) -> Vec<EventId> {
    lease.events.iter().map(|event| event.id).collect()
}
