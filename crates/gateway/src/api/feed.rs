//! New events as they come, for all who listen: one reader per process, whatever the number of listeners.
//!
//! Numbers of events are drawn before their commit, so an event may appear behind younger ones. The reader looks back as far as a commit may
//! take, and tells what it has not told yet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hapax_domain::limits::{PAGE_MAX, STREAM_BUFFER};
use hapax_domain::{EventId, ids};
use hapax_store::clock::Clock;
use hapax_store::{EventQuery, EventRow, Store, StoreError};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Telemetry;

/// A commit takes no longer than this from when its numbers were drawn.
pub(super) const LOOK_BACK_MS: i64 = 10_000;
/// Most pages of one look; with more, listeners are cut and resume by themselves.
const LOOK_PAGES: usize = 40;
/// The hint may be lost: so often it is looked anyway.
const POLL: Duration = Duration::from_millis(500);
/// The hint comes with other work too: no more often than this it is looked.
const REST: Duration = Duration::from_millis(20);
/// How often it is looked for what came late.
const FULL_LOOK: Duration = Duration::from_secs(1);
/// So many are told at once; before more, the readers have this time.
const PART: usize = STREAM_BUFFER / 4;
const PATIENCE: Duration = Duration::from_millis(100);
/// After a look that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells all listeners of new events.
pub struct Feed {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    stop: CancellationToken,
    /// There while somebody listens.
    telling: Mutex<Option<broadcast::Sender<Arc<EventRow>>>>,
}

/// What the reader knows.
struct Reader {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// All that was told or was there before, as far back as it is looked.
    seen: BTreeSet<EventId>,
    /// The time of the youngest event that was seen.
    newest_ms: i64,
    full_look: Instant,
}

impl Feed {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, telemetry: Arc<Telemetry>, stop: CancellationToken) -> Self {
        Self { store, clock, telemetry, stop, telling: Mutex::default() }
    }

    /// Cancelled when hapax stops.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Listens from now on: what was committed before may be told too, what is committed later is told for sure.
    pub(crate) async fn listen(self: &Arc<Self>) -> Result<broadcast::Receiver<Arc<EventRow>>, StoreError> {
        if let Some(telling) = &*self.telling() {
            return Ok(telling.subscribe());
        }
        let reader = Reader::new(Arc::clone(&self.store), Arc::clone(&self.clock)).await?;
        let mut telling = self.telling();
        if let Some(telling) = &*telling {
            return Ok(telling.subscribe());
        }
        let (sender, listener) = broadcast::channel(STREAM_BUFFER);
        *telling = Some(sender.clone());
        tokio::spawn(Arc::clone(self).run(reader, sender));
        Ok(listener)
    }

    fn telling(&self) -> std::sync::MutexGuard<'_, Option<broadcast::Sender<Arc<EventRow>>>> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and tells until nobody listens, hapax stops, or there is more at once than can be told.
    async fn run(self: Arc<Self>, mut reader: Reader, sender: broadcast::Sender<Arc<EventRow>>) {
        loop {
            // Before looking: what comes in while we look must not be missed.
            let hint = self.store.wait();
            let wait = match reader.look().await {
                Ok(Some(new)) => {
                    tell(&sender, new).await;
                    POLL
                }
                Ok(None) => {
                    *self.telling() = None;
                    return;
                }
                Err(error) => {
                    self.telemetry.store_unavailable("events", &error);
                    PAUSE
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => {
                    *self.telling() = None;
                    return;
                }
                _ = tokio::time::timeout(wait, hint) => tokio::time::sleep(REST).await,
            }
            let mut telling = self.telling();
            if sender.receiver_count() == 0 {
                *telling = None;
                return;
            }
        }
    }
}

/// Tells all, a part at a time: a crowd of events must not cut those who read as fast as they can.
async fn tell(sender: &broadcast::Sender<Arc<EventRow>>, rows: Vec<EventRow>) {
    for (place, row) in rows.into_iter().enumerate() {
        let patience = Instant::now() + PATIENCE;
        while place % PART == PART - 1 && sender.len() > STREAM_BUFFER - PART && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Nobody may be listening just now.
        let _ = sender.send(Arc::new(row));
    }
}

impl Reader {
    /// Takes what is there now for told.
    async fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let mut reader = Self { store, clock, seen: BTreeSet::new(), newest_ms: 0, full_look: Instant::now() };
        let query = EventQuery { limit: 1, ..EventQuery::default() };
        if let Some(newest) = reader.store.events(query).await?.rows.first() {
            reader.newest_ms = newest.id.at_ms().unwrap_or_default();
            // With more than one look holds, the oldest of it is told once more.
            let (rows, _) = reader.read(floor(reader.newest_ms, reader.clock.now_ms())).await?;
            reader.seen = rows.into_iter().map(|row| row.id).collect();
        }
        Ok(reader)
    }

    /// What is new, the oldest first; nothing when it is too much.
    async fn look(&mut self) -> Result<Option<Vec<EventRow>>, StoreError> {
        let now_ms = self.clock.now_ms();
        let floor = floor(self.newest_ms, now_ms);
        let full = Instant::now() >= self.full_look;
        let end_of_now = EventId(ids::numbered(now_ms + 1, 0));
        let last = || self.seen.range(..end_of_now).next_back().copied();
        let down_to = if full { floor } else { last().unwrap_or(floor) };
        let (mut rows, whole) = self.read(down_to).await?;
        if !whole && !self.seen.is_empty() {
            return Ok(None);
        }
        if full {
            self.full_look = Instant::now() + FULL_LOOK;
        }
        rows.retain(|row| self.seen.insert(row.id));
        rows.sort_by_key(|row| row.id);
        let newest_ms = rows.last().and_then(|row| row.id.at_ms()).unwrap_or_default();
        self.newest_ms = self.newest_ms.max(newest_ms);
        self.seen = self.seen.split_off(&floor);
        Ok(Some(rows))
    }

    /// All events from the newest down to this id, and whether these are all.
    async fn read(&self, down_to: EventId) -> Result<(Vec<EventRow>, bool), StoreError> {
        let (mut rows, mut before) = (Vec::new(), None);
        for _ in 0..LOOK_PAGES {
            let page = self.store.events(EventQuery { before, limit: PAGE_MAX, ..EventQuery::default() }).await?;
            before = page.rows.last().map(|row| row.id);
            let reached = !page.more || before.is_none_or(|last| last <= down_to);
            rows.extend(page.rows.into_iter().filter(|row| row.id >= down_to));
            if reached {
                return Ok((rows, true));
            }
        }
        Ok((rows, false))
    }
}

/// Below this nothing is committed any more, when the newest is from this time. One from a time to come was numbered before the clock was set
/// back, and what comes now is numbered below it.
pub(super) fn floor(newest_ms: i64, now_ms: i64) -> EventId {
    EventId(ids::numbered(newest_ms.min(now_ms) - LOOK_BACK_MS, 0))
}
