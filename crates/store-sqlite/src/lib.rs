//! The embedded engine: one file, one owner, one writer thread with group commit, a few short readers.
//!
//! Events are appended and never changed; identity is decided in memory and in sorted tables by period ([`keys`]); whose turn it is, in
//! memory too ([`lanes`]), from items that have rows only while they are open. Everything that writes goes through [`writer`], so all that waits shares one fsync.

mod accept;
mod admin;
mod backup;
mod call;
mod claim_entry;
mod claim_index;
mod claim_rows;
mod claims;
mod clock;
mod disk;
mod export;
mod filter;
mod forget;
mod fresh;
mod import;
mod joining;
mod keys;
mod known_names;
mod lanes;
mod learned;
mod lease;
mod lessons;
mod line;
mod many_rows;
mod merge;
mod message_reads;
mod names;
mod number_hash;
mod numbering;
mod open;
mod outbox;
mod pending;
mod pieces;
mod provider_feedback;
mod purge;
mod reads;
mod registers;
mod rows;
mod send_rows;
mod sends;
mod sync;
mod thread_names;
mod threads;
mod turns;
mod work_rows;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{Notify, Semaphore};

pub use backup::{is_empty, look_into_backup, restore};
pub use claim_index::ClaimSize;
use clock::follow as follow_clock;
use hapax_domain::{EventId, Fence, ItemId, MessageId, Outgoing, ThreadId, limits};
use hapax_store::clock::Clock;
use hapax_store::{
    Accepted, Arrival, Changed, Copies, Forget, Forgotten, Inbox, InboxLease, LaneRef, LeaseRequest, Moving, NewMessage, Outbox,
    OutboxLease, OutboxLeaseRequest, Outcome, Promise, Purged, Redrive, SendOutcome, Settled, StoreError, Submitted, Upkeep,
};
pub use keys::PeriodSize;
use line::Line;
pub use open::Options;
use pending::Reach;
use sync::{Progress, SyncLog};
use writer::{Gauges, StepError, Writer};

/// A handle to the one engine that owns the file. Clones are further instances on the same data.
#[derive(Clone)]
pub struct SqliteStore(Arc<Engine>);

struct Engine {
    path: PathBuf,
    line: Arc<Line>,
    writer: Option<JoinHandle<()>>,
    syncer: Option<JoinHandle<()>>,
    merger: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    readers: Mutex<Vec<Connection>>,
    /// Places for questions: each has a connection that is kept, and none is opened for one question alone.
    reading: Arc<Semaphore>,
    gauges: Arc<Gauges>,
    outbox_max: Arc<AtomicUsize>,
    claims_max: Arc<AtomicUsize>,
    work: Arc<Notify>,
    /// Places in the line for steps that share their transaction with no other.
    alone: Semaphore,
    _file: Arc<std::fs::File>,
    _owner: open::Owner,
}

/// Events after the last written count.
const UNCOUNTED_EVENTS: &str = "SELECT count(*) FROM events WHERE number > (SELECT value FROM meta WHERE name = 'events_to')";

/// Questions at once. Each has a connection with its own cache, which is kept for the next.
const READERS: usize = 8;

fn not_opened(source: rusqlite::Error) -> StoreError {
    StoreError::Failed { what: "opening the store", retryable: false, source: source.into() }
}

fn not_started(source: std::io::Error) -> StoreError {
    StoreError::Failed { what: "starting the writer", retryable: false, source: source.into() }
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(not_started)
}

impl SqliteStore {
    /// Opens or creates the file, takes it for this process alone, and ends the leases of whoever owned it before.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, options: &Options) -> Result<Self, StoreError> {
        Self::open_with(path, clock, options, sync::of_log)
    }

    fn open_with(
        path: &Path,
        clock: Arc<dyn Clock>,
        options: &Options,
        sync_of: impl FnOnce(&Path) -> std::io::Result<SyncLog>,
    ) -> Result<Self, StoreError> {
        let folder = open::folder(path)?;
        let path = &open::real_path(&folder, path)?;
        let owner = open::own(path)?;
        let mut db = open::writing(path)?;
        let (merger, merging, file) = merge::both_ends(&mut db, path).map_err(not_opened)?;
        let line = Arc::new(Line::new(options.queue));
        let (gauges, work) = (Arc::<Gauges>::default(), Arc::<Notify>::default());
        let ((progress, synced), (to_sync, batches)) = (Progress::new(), sync::line());
        let outbox_max = Arc::new(AtomicUsize::new(limits::OUTBOX_MAX));
        let claims_max = Arc::new(AtomicUsize::new(limits::CLAIMS_MAX));
        let start = |db: Connection| -> rusqlite::Result<Writer> {
            db.execute_batch("BEGIN IMMEDIATE")?;
            let now_ms = clock.now_ms();
            let keys = begin(&db, options.period, now_ms)?;
            let (last_number, last_fence) = high_marks(&db)?;
            let claims = claim_index::ClaimIndex::load(&db, options.claims, Arc::clone(&claims_max))?;
            let mut writer = Writer::new(writer::Start {
                uncounted: db.query_row(UNCOUNTED_EVENTS, [], |row| row.get(0))?,
                db,
                keys,
                lanes: lanes::Lanes::new(lanes::INBOX, options.window),
                outgoing: lanes::Lanes::new(outbox::OUTBOX, limits::OUTBOX_MAX + 1),
                outbox_max: Arc::clone(&outbox_max),
                claims,
                log: merger,
                disk: disk::DiskFloor::new(folder.clone(), options.disk_floor_bytes),
                clock: Arc::clone(&clock),
                gauges: Arc::clone(&gauges),
                progress: Arc::clone(&progress),
                to_sync,
                line: Arc::clone(&line),
                last_number,
                last_fence,
            })?;
            writer.take_over()?;
            Ok(writer)
        };
        let writer = start(db).map_err(not_opened)?;
        open::make_durable(&writer.db, path)?;
        let woken = Arc::clone(&work);
        let sync_log = sync_of(&open::log_path(path)).map_err(not_started)?;
        let (told, nudged) = (Arc::clone(&progress), Arc::clone(&line));
        let syncer = move || sync::run(&batches, sync_log, &told, &synced, &woken, &nudged);
        let syncer = start_thread("hapax-sync", syncer)?;
        let merger = start_thread("hapax-merger", move || merging.run())?;
        let writer = start_thread("hapax-writer", move || writer.run())?;
        Ok(Self(Arc::new(Engine {
            path: path.to_owned(),
            line,
            writer: Some(writer),
            syncer: Some(syncer),
            merger: Some(merger),
            progress,
            readers: Mutex::default(),
            reading: Arc::new(Semaphore::new(READERS)),
            gauges,
            outbox_max,
            claims_max,
            work,
            alone: Semaphore::new(pieces::IN_LINE),
            _file: file,
            _owner: owner,
        })))
    }

    /// Does a step that may look at all there is, and change it.
    async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        patient: bool,
        step: impl FnOnce(&mut Writer) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_with(Reach::All, what, patient, step).await
    }

    /// Does a step in the writer's next batch. `patient` callers wait for a place in the line; the others are told it is full, and take back what
    /// they brought when they give up before its turn has come.
    async fn write_with<T: Send + 'static>(
        &self,
        reach: Reach,
        what: &'static str,
        patient: bool,
        step: impl FnOnce(&mut Writer) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (job, answer) = call::job(what, patient, step);
        let job = job.reaching(reach);
        if patient {
            self.0.line.put(job).await?;
        } else {
            self.0.line.try_put(job)?;
        }
        answer.await
    }

    /// Does a step in a transaction of its own, for what is large. Few such steps stand in line at once.
    async fn write_alone<T: Send + 'static>(
        &self,
        what: &'static str,
        step: impl FnOnce(&mut Writer) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _place = self.0.alone.acquire().await.map_err(|_| StoreError::Closed)?;
        let (job, answer) = call::job(what, true, step);
        self.0.line.put(job.alone()).await?;
        answer.await
    }

    /// Asks a question on a reader connection, away from the async threads.
    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let engine = Arc::clone(&self.0);
        let failed = move |source: rusqlite::Error| StoreError::Failed { what, retryable: true, source: source.into() };
        let place = Arc::clone(&engine.reading).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let asked = tokio::task::spawn_blocking(move || {
            let _place = place;
            let kept = engine.readers().pop();
            let reader = kept.map_or_else(|| open::reading(&engine.path), Ok)?;
            // In a transaction, so that all a question reads is of one moment.
            let found = reader.unchecked_transaction().and_then(|snapshot| question(&snapshot));
            engine.readers().push(reader);
            // What it saw was committed, and is told only once it is on disk.
            found.map(|found| (found, engine.progress.seen()))
        });
        let (found, seen) = asked.await.map_err(|_| StoreError::Closed)?.map_err(failed)?;
        self.0.progress.synced(seen).await?;
        Ok(found)
    }

    /// Has the last words of all threads written, so that whoever asks next reads them.
    async fn write_threads(&self) -> Result<(), StoreError> {
        let step = |writer: &mut Writer| Ok(writer.threads.write_some(&writer.db, writer.now_ms, writer.last_number, true)?);
        self.write_with(Reach::Looks, "writing threads", true, step).await
    }

    fn gauges(&self) -> &Gauges {
        &self.0.gauges
    }

    /// The sizes of the file and of its log.
    fn file_sizes(&self) -> (u64, u64) {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        (size(&self.0.path), size(&open::log_path(&self.0.path)))
    }
}

impl Engine {
    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.line.close();
        for thread in [self.writer.take(), self.syncer.take(), self.merger.take()].into_iter().flatten() {
            // Whoever opens the file next must find it free, and all that was written in it.
            let _ = thread.join();
        }
    }
}

/// Brings the file to where this process can go on from; gives its keys.
fn begin(db: &Connection, period: PeriodSize, now_ms: i64) -> rusqlite::Result<keys::KeySet> {
    follow_clock(db, now_ms)?;
    backup::begin_anew(db, now_ms)?;
    known_names::complete(db)?;
    let mut keys = keys::KeySet::load(db, period, now_ms)?;
    // Keys of before a clock that was set ahead do not share a period with what comes now.
    if keys.wants_closing(now_ms) {
        keys.close(db, now_ms)?;
    }
    Ok(keys)
}

/// The highest number and fence that may ever have been handed out.
fn high_marks(db: &Connection) -> rusqlite::Result<(u64, u64)> {
    let number: i64 = db.query_row(
        "SELECT max((SELECT value FROM meta WHERE name = 'last_number'), ifnull((SELECT max(number) FROM events), 0),
             ifnull((SELECT max(last) FROM (SELECT (SELECT max(item) FROM inbox i WHERE i.channel = c.id) AS last FROM channels c)), 0), ifnull((SELECT max(item) FROM parked), 0),
             ifnull((SELECT max(first) FROM attempts), 0), ifnull((SELECT max(number) FROM messages), 0),
             ifnull((SELECT max(thread) FROM threads), 0))",
        [],
        |row| row.get(0),
    )?;
    // A file that is to be replaced may be of an older version.
    let is_there = db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'learned'")?.exists([])?;
    let learned = "SELECT ifnull(max(number), 0) FROM learned";
    let learned: i64 = if is_there { db.query_row(learned, [], |row| row.get(0))? } else { 0 };
    let fence: i64 = db.query_row("SELECT value FROM meta WHERE name = 'last_fence'", [], |row| row.get(0))?;
    Ok((number.max(learned) as u64, fence as u64))
}

#[async_trait]
impl Inbox for SqliteStore {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let hashed = accept::hash(&arrival);
        self.write_with(Reach::TakesIn, "taking in", false, move |writer| writer.take_in(&arrival, &hashed)).await
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.write_with(Reach::Looks, "counting copies", true, move |writer| writer.note_copies(&copies)).await
    }

    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        self.write_with(Reach::Looks, "leasing", true, move |writer| writer.lease(&ask)).await
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.write("extending leases", true, move |writer| {
            Ok(writer.lanes.extend(&writer.db, &leases, writer.now_ms + hold_ms)?)
        })
        .await
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        self.write_with(Reach::Own, "settling", true, move |writer| writer.settle(lane, fence, &outcome)).await
    }

    async fn redrive(&self, which: Redrive, max: usize) -> Result<usize, StoreError> {
        self.write("redriving", true, move |writer| writer.redrive(&which, max)).await
    }

    async fn replay(&self, event: EventId) -> Result<Option<ItemId>, StoreError> {
        self.write("replaying", true, move |writer| writer.replay(event)).await
    }

    async fn mark_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let ThreadId { account, peer } = thread.clone();
        let mark = move |writer: &mut Writer| Ok(writer.threads.mark_read(&writer.db, &account, &peer, writer.last_number)?);
        self.write("marking as read", true, mark).await
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError> {
        let step = move |writer: &mut Writer| writer.submit_within_room(&message);
        self.write_with(Reach::Own, "submitting", false, step).await
    }

    async fn lease_outbox(&self, ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        self.write_with(Reach::Own, "leasing messages", true, move |writer| writer.lease_outbox(&ask)).await
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        self.write_with(Reach::Own, "beginning to send", true, move |writer| writer.begin(lane, fence)).await
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.write("extending leases", true, move |writer| {
            Ok(writer.outgoing.extend(&writer.db, &leases, writer.now_ms + hold_ms)?)
        })
        .await
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        self.write_with(Reach::Own, "settling a send", true, move |writer| writer.settle_outbox(lane, fence, &outcome)).await
    }

    async fn settle_late(&self, id: MessageId, attempt: u32, outcome: SendOutcome) -> Result<Changed, StoreError> {
        self.write("settling a send late", true, move |writer| writer.settle_late(id, attempt, &outcome)).await
    }

    async fn retry_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        self.write("retrying a message", true, move |writer| writer.change_message(id, Outgoing::retry)).await
    }

    async fn cancel_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        self.write("cancelling a message", true, move |writer| writer.change_message(id, Outgoing::cancel)).await
    }

    async fn pause_account(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        let (channel, account, why) = (channel.to_owned(), account.to_owned(), why.map(str::to_owned));
        self.write("pausing an account", true, move |writer| writer.pause_account(&channel, &account, why.as_deref())).await
    }

    fn limit_outbox(&self, most: usize) {
        self.0.outbox_max.store(most, Ordering::Relaxed);
    }
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        let retention = retention.to_vec();
        self.write("purging", true, move |writer| writer.purge(&retention, max)).await
    }

    async fn forget(&self, what: Forget) -> Result<Forgotten, StoreError> {
        self.write("forgetting", true, move |writer| writer.forget(&what)).await
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.back_up(to).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.write_with(Reach::Own, "pinging", false, Writer::ping).await
    }

    fn promise(&self) -> Promise {
        Promise::Full
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.0.work).notified_owned())
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Ok(self)
    }
}

#[cfg(test)]
mod at_hand_tests;
#[cfg(test)]
mod tests;
