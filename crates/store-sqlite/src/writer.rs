//! The one thread that writes. All calls that wait share one transaction and one fsync, which [`super::sync`] makes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use hapax_domain::age::Dated;
use hapax_store::StoreError;
use hapax_store::clock::Clock;
use rusqlite::Connection;

use super::call::{Finish, Job, job};
use super::claim_index::ClaimIndex;
use super::clock::Mark;
use super::disk::DiskFloor;
use super::fresh::FreshItems;
use super::keys::{self, KeySet};
use super::lanes::Lanes;
use super::line::{self, Line};
use super::merge::LogMerger;
use super::pending::{Pending, Reach};
use super::purge::Sweep;
use super::sends::Sends;
use super::sync::{self, Committed, Progress};
use super::threads::Threads;

/// Most calls in one transaction: bounds how long the first one waits for the last.
const BATCH_JOBS: usize = 1_024;
/// A batch of so many calls is committed as soon as the disk has nothing to do: with whoever comes meanwhile it would go on growing until all
/// callers are in it, and then all of them wait for the disk, and nothing else is done.
const WORTH_A_SYNC: usize = 32;
/// Rows moved to a sorted table per step, at least: about a millisecond.
const SEAL_ROWS: usize = 1_000;

/// What the writer's thread owns.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) keys: KeySet,
    pub(super) lanes: Lanes,
    pub(super) fresh: FreshItems,
    pub(super) sends: Sends,
    /// Whether a status was heard of under a name that we did not know, where that is known.
    pub(super) any_early: Option<bool>,
    /// The lanes of what goes out.
    pub(super) outgoing: Lanes,
    pub(super) outbox_max: Arc<AtomicUsize>,
    pub(super) claims: ClaimIndex,
    pub(super) threads: Threads,
    /// Gathered by this batch, and not written yet.
    pub(super) pending: Pending,
    /// The clock's time at the start of the job, never less than at an earlier one.
    pub(super) now_ms: i64,
    pub(super) last_number: u64,
    pub(super) last_fence: u64,
    pub(super) fences_reserved: u64,
    pub(super) channels: HashMap<Arc<str>, i64>,
    pub(super) channel_names: HashMap<i64, Arc<str>>,
    /// By channel, up to where items may wait under names that lead nowhere.
    pub(super) nameless: HashMap<i64, i64>,
    /// Lanes were joined, so that it is worth looking for them on disk.
    pub(super) has_joins: bool,
    /// Those in which a turn may be open.
    pub(super) turning: HashSet<i64>,
    pub(super) disk: DiskFloor,
    pub(super) count: EventCount,
    /// Set when the batch made work that a worker may be waiting for.
    pub(super) work_made: bool,
    /// Where purge stands, for each retention.
    pub(super) sweeps: HashMap<i64, Sweep>,
    /// The last message that purge looked at in this round, and the last thread, by its last words.
    pub(super) messages_swept: i64,
    pub(super) threads_swept: (i64, i64),
    pub(super) messages_witness: Option<Dated>,
    mark: Mark,
    log: LogMerger,
    failed: Option<String>,
    clock: Arc<dyn Clock>,
    gauges: Arc<Gauges>,
    /// Batches so far; the last one's number.
    batches: u64,
    progress: Arc<Progress>,
    /// Where batches go to be synced.
    to_sync: SyncSender<Committed>,
    line: Arc<Line>,
}

/// How many events there are, written down now and then: writing it with every batch would cost a page each time.
#[derive(Default)]
pub(super) struct EventCount {
    /// Events recorded less events purged, since it was last written down.
    since: i64,
    pub(super) in_batch: i64,
    /// Rows already counted are gone: the written count must follow at once.
    pub(super) write_now: bool,
}

const COUNT_EVERY: i64 = 10_000;

/// What readers may know of the writer's memory.
#[derive(Default)]
pub(super) struct Gauges {
    pub(super) keys: AtomicU64,
}

/// What the writer starts from.
pub(super) struct Start {
    pub(super) db: Connection,
    pub(super) keys: KeySet,
    pub(super) lanes: Lanes,
    pub(super) outgoing: Lanes,
    pub(super) outbox_max: Arc<AtomicUsize>,
    pub(super) claims: ClaimIndex,
    pub(super) log: LogMerger,
    pub(super) disk: DiskFloor,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) progress: Arc<Progress>,
    pub(super) to_sync: SyncSender<Committed>,
    pub(super) line: Arc<Line>,
    pub(super) last_number: u64,
    pub(super) last_fence: u64,
    /// Events recorded since their count was last written down.
    pub(super) uncounted: i64,
}

impl Writer {
    pub(super) fn new(start: Start) -> rusqlite::Result<Self> {
        let mut writer = Self {
            now_ms: start.clock.now_ms(),
            db: start.db,
            keys: start.keys,
            lanes: start.lanes,
            fresh: FreshItems::default(),
            sends: Sends::default(),
            any_early: None,
            outgoing: start.outgoing,
            outbox_max: start.outbox_max,
            claims: start.claims,
            threads: Threads::new(),
            pending: Pending::default(),
            log: start.log,
            last_number: start.last_number,
            last_fence: start.last_fence,
            fences_reserved: start.last_fence,
            channels: HashMap::new(),
            channel_names: HashMap::new(),
            nameless: HashMap::new(),
            has_joins: false,
            turning: HashSet::new(),
            disk: start.disk,
            count: EventCount { since: start.uncounted, ..EventCount::default() },
            work_made: false,
            sweeps: HashMap::new(),
            messages_swept: 0,
            threads_swept: (0, 0),
            messages_witness: None,
            mark: Mark::default(),
            failed: None,
            clock: start.clock,
            gauges: start.gauges,
            batches: 0,
            progress: start.progress,
            to_sync: start.to_sync,
            line: start.line,
        };
        writer.load_channels()?;
        writer.has_joins = writer.db.prepare("SELECT 1 FROM joined_lanes LIMIT 1")?.exists([])?;
        writer.load_turns()?;
        writer.gauges.keys.store(writer.keys.len(), Ordering::Relaxed);
        Ok(writer)
    }

    /// Ends what the process that owned the file before has left, and with it the transaction that opened the file.
    pub(super) fn take_over(&mut self) -> rusqlite::Result<()> {
        self.join_old_lanes()?;
        self.end_old_leases()?;
        self.end_all_tries()?;
        self.db.execute_batch("COMMIT")?;
        self.keys.committed();
        Ok(())
    }

    /// Works until the line is closed, and nobody stands there.
    pub(super) fn run(mut self) {
        let _end = line::End(Arc::clone(&self.line));
        self.sort_if_closed();
        let mut jobs = VecDeque::new();
        while !jobs.is_empty() || self.somebody_comes() {
            self.line.take(&mut jobs);
            self.batch(&mut jobs);
            self.tend_periods();
            self.log.tend(&self.db);
        }
    }

    /// Waits for the first job of a batch; while the one before is synced, for some more of them.
    fn somebody_comes(&self) -> bool {
        if self.progress.is_syncing(self.batches) {
            self.line.wait_for_some();
        }
        self.line.wait()
    }

    /// Does the first job, and with it those that wait, up to one that wants to be alone.
    fn batch(&mut self, jobs: &mut VecDeque<Job>) {
        let mut finishes = Vec::with_capacity(64);
        let changes = self.db.total_changes();
        let begun = self.transact("BEGIN IMMEDIATE");
        self.failed = begun.err().map(|error| error.to_string());
        // Who cannot begin has waited long enough for all that stand in line: none of them waits as long once more.
        let refuse_all = self.failed.is_some();
        if refuse_all {
            self.line.take(jobs);
        }
        let most = if refuse_all { jobs.len() } else { BATCH_JOBS };
        let mut next = jobs.pop_front();
        while let Some(mut job) = next {
            self.line.leaves(&mut job);
            self.now_ms = self.now_ms.max(self.clock.now_ms());
            self.lanes.now_ms = self.now_ms;
            self.outgoing.now_ms = self.now_ms;
            let alone = job.alone && !refuse_all;
            let reach = job.reach;
            let _ = self.run_step(|writer| Ok(writer.make_way(reach)?));
            finishes.push(job.run(self));
            let goes = finishes.len() >= most
                || (finishes.len() >= WORTH_A_SYNC && !refuse_all && !self.progress.is_syncing(self.batches));
            let more = !alone && !goes && (refuse_all || self.failed.is_none());
            next = if more { self.next_of_batch(jobs, refuse_all) } else { None };
            if let Some(left) = next.take_if(|next| next.alone && !refuse_all) {
                jobs.push_front(left);
            }
        }
        let failed = self.commit();
        if let Some(why) = failed {
            // That something failed depends on no disk.
            finishes.drain(..).for_each(|finish| finish.tell(Some(&why)));
            self.work_made = false;
        }
        self.hand_over(changes, finishes);
    }

    /// What else belongs to the batch: all that waits, and all that comes until the sync of the batch before has ended, because it could not be
    /// synced any sooner by itself.
    fn next_of_batch(&self, jobs: &mut VecDeque<Job>, at_once: bool) -> Option<Job> {
        loop {
            if jobs.is_empty() {
                self.line.take(jobs);
            }
            let next = jobs.pop_front();
            let waits = next.is_none() && !at_once && self.progress.is_syncing(self.batches);
            if !waits || !self.line.wait_for_some() {
                return next;
            }
        }
    }

    /// Does one step, unless the batch has failed; a step that fails for the database's sake fails the batch.
    pub(super) fn run_step<T>(&mut self, step: impl FnOnce(&mut Writer) -> Result<T, StepError>) -> Result<T, StepError> {
        if self.failed.is_some() {
            return Err(StepError::Skipped);
        }
        let done = step(self);
        if let Err(StepError::Sql(error)) = &done {
            self.failed = Some(error.to_string());
        }
        done
    }

    /// Gives the batch to be synced; waits while two others are.
    fn hand_over(&mut self, changes_before: u64, finishes: Vec<Finish>) {
        let work_made = std::mem::take(&mut self.work_made);
        let wrote = self.db.total_changes() != changes_before;
        let batch = Committed { number: self.batches, wrote, finishes, work_made };
        if self.to_sync.send(batch).is_err() {
            sync::end_process("the thread that syncs is gone");
        }
    }

    /// Ends the transaction; says why if it could not be committed.
    fn commit(&mut self) -> Option<String> {
        let EventCount { since, in_batch, write_now } = std::mem::take(&mut self.count);
        let written = write_now || since + in_batch >= COUNT_EVERY;
        if self.failed.is_none() {
            let written = self.write_pending().and_then(|()| self.keys.append(&self.db));
            let appended = written.and_then(|()| self.claims.write_some(&self.db));
            let said = appended.and_then(|()| self.threads.write_some(&self.db, self.now_ms, self.last_number, false));
            let marked = said.and_then(|()| self.mark.write_some(&self.db, self.now_ms));
            self.failed = marked.err().map(|error| error.to_string());
        }
        self.batches += 1;
        self.progress.commits(self.batches);
        if self.failed.is_none() {
            let counted = if written { self.write_count(since + in_batch) } else { Ok(()) };
            self.failed = counted.and_then(|()| self.transact("COMMIT")).err().map(|error| error.to_string());
        }
        let failed = self.failed.take();
        self.count.since = match failed {
            Some(_) => since,
            None if written => 0,
            None => since + in_batch,
        };
        if failed.is_some() {
            // Some failures end the transaction by themselves; rolling back nothing is harmless.
            let _ = self.db.execute_batch("ROLLBACK");
            self.pending.clear();
            self.keys.rolled_back();
            self.lanes.rolled_back();
            self.forget_at_hand();
            self.outgoing.rolled_back();
            self.threads.rolled_back();
            self.claims.rolled_back();
            self.fences_reserved = self.last_fence;
            if let Err(error) = self.load_channels() {
                tracing::error!(%error, "could not read the channels after a failed commit");
            }
        } else {
            self.keys.committed();
            self.lanes.committed();
            self.outgoing.committed();
            self.threads.committed();
            self.claims.committed();
        }
        self.gauges.keys.store(self.keys.len(), Ordering::Relaxed);
        failed
    }

    /// Begins or ends a transaction, by a statement that is kept.
    fn transact(&self, how: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(how)?.execute([]).map(drop)
    }

    fn write_count(&self, added: i64) -> rusqlite::Result<()> {
        self.db.prepare_cached("UPDATE meta SET value = value + ?1 WHERE name = 'events'")?.execute([added])?;
        let counted_to = self.last_number as i64;
        self.db.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'events_to'")?.execute([counted_to])?;
        Ok(())
    }

    /// Closes a full period, and keeps sealing going between batches.
    fn tend_periods(&mut self) {
        if self.keys.wants_closing(self.now_ms) {
            let changes = self.db.total_changes();
            let closed = self.transact("BEGIN IMMEDIATE").and_then(|()| self.keys.close(&self.db, self.now_ms));
            self.failed = closed.err().map(|error| error.to_string());
            if let Some(why) = self.commit() {
                tracing::warn!(why, "could not close a period of keys; it grows until that works");
            }
            self.hand_over(changes, Vec::new());
            self.sort_if_closed();
        }
        if self.keys.is_sealing() {
            // A full line means batches come anyway, and each asks again.
            let seal = |writer: &mut Writer| Ok(writer.keys.seal_some(&writer.db, SEAL_ROWS)?);
            let _ = self.line.try_put(job("sealing", true, seal).0.reaching(Reach::Own));
        }
    }

    fn sort_if_closed(&self) {
        let Some(to_sort) = self.keys.to_sort() else { return };
        let line = Arc::clone(&self.line);
        std::thread::spawn(move || {
            let sorted = keys::sort(&to_sort);
            let take = move |writer: &mut Writer| {
                writer.keys.take_sorted(sorted);
                Ok(())
            };
            let _ = line.push(job("taking in what was sorted", true, take).0.reaching(Reach::Own));
        });
    }

    pub(super) fn forget_at_hand(&mut self) {
        self.fresh.forget_all();
        self.sends.forget_all();
        self.any_early = None;
    }

    fn load_channels(&mut self) -> rusqlite::Result<()> {
        self.channels.clear();
        self.nameless.clear();
        let mut select = self.db.prepare_cached("SELECT id, name, nameless_to FROM channels")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
            let name: Arc<str> = name.into();
            self.nameless.insert(id, row.get(2)?);
            self.channel_names.insert(id, Arc::clone(&name));
            self.channels.insert(name, id);
        }
        Ok(())
    }

    /// The short name of a channel in the tables; made at first use.
    pub(super) fn channel(&mut self, name: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some(&id) = self.channels.get(name) {
            return Ok(id);
        }
        self.db.execute("INSERT INTO channels (name) VALUES (?1)", [&**name])?;
        let id = self.db.last_insert_rowid();
        self.channels.insert(Arc::clone(name), id);
        self.channel_names.insert(id, Arc::clone(name));
        Ok(id)
    }

    /// How far the clock lags behind the world's: one that was set ahead meanwhile is caught up with at the next start.
    pub(super) fn lag_ms(&self) -> i64 {
        (self.clock.wall_ms() - self.now_ms).max(0)
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The next fence. Reserved on disk in large steps, so that no restart hands out a fence twice.
    pub(super) fn fence(&mut self) -> rusqlite::Result<u64> {
        const STEP: u64 = 1_000;
        if self.last_fence == self.fences_reserved {
            let reserved = self.fences_reserved + STEP;
            self.db.execute("UPDATE meta SET value = ?1 WHERE name = 'last_fence'", [reserved as i64])?;
            self.fences_reserved = reserved;
        }
        self.last_fence += 1;
        Ok(self.last_fence)
    }
}

/// Why a step inside a batch ended early.
pub(super) enum StepError {
    /// The database failed: the whole batch is rolled back.
    Sql(rusqlite::Error),
    /// This step alone is refused, before it wrote anything.
    Refused(StoreError),
    /// The batch had failed before this step's turn came.
    Skipped,
}

impl From<rusqlite::Error> for StepError {
    fn from(error: rusqlite::Error) -> Self {
        StepError::Sql(error)
    }
}
