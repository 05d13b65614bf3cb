//! The embedded engine: one file, one owner, one writer thread with group commit, a few short readers.
//!
//! Events are appended and never changed; identity is decided in memory and in sorted tables by period ([`keys`]); whose turn it is, in
//! memory too ([`lanes`]), from items that have rows only while they are open. Everything that writes goes through [`writer`], so all that waits shares one fsync.

mod accept;
mod admin;
mod backup;
mod claims;
mod clock;
mod disk;
mod export;
mod filter;
mod forget;
mod import;
mod joining;
mod keys;
mod lanes;
mod lease;
mod message_reads;
mod names;
mod number_hash;
mod numbering;
mod open;
mod outbox;
mod pieces;
mod provider_feedback;
mod purge;
mod reads;
mod registers;
mod rows;
mod threads;
mod turns;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{Notify, Semaphore, mpsc};

pub use backup::{is_empty, look_into_backup, restore};
use clock::follow as follow_clock;
use hapax_domain::{EventId, Fence, ItemId, MessageId, Outgoing, ThreadId, limits};
use hapax_store::clock::Clock;
use hapax_store::offer::offer;
use hapax_store::{
    Accepted, Arrival, Changed, Copies, Forget, Forgotten, Inbox, InboxLease, LaneRef, LeaseRequest, Moving, NewMessage, Outbox,
    OutboxLease, OutboxLeaseRequest, Outcome, Promise, Purged, Redrive, SendOutcome, Settled, StoreError, Submitted, Upkeep,
};
pub use keys::PeriodSize;
pub use open::Options;
use writer::{Gauges, Job, StepError, Writer};

/// A handle to the one engine that owns the file. Clones are further instances on the same data.
#[derive(Clone)]
pub struct SqliteStore(Arc<Engine>);

struct Engine {
    path: PathBuf,
    /// Taken when the engine is dropped, so that the writer's thread sees the end of the line.
    line: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    readers: Mutex<Vec<Connection>>,
    gauges: Arc<Gauges>,
    outbox_max: Arc<AtomicUsize>,
    claims_max: Arc<AtomicUsize>,
    work: Arc<Notify>,
    /// Places in the line for steps that share their transaction with no other.
    alone: Semaphore,
    _owner: open::Owner,
}

/// Events after the last written count.
const UNCOUNTED_EVENTS: &str = "SELECT count(*) FROM events WHERE number > (SELECT value FROM meta WHERE name = 'events_to')";

/// Reader connections kept open between questions.
const READERS_KEPT: usize = 4;

impl SqliteStore {
    /// Opens or creates the file, takes it for this process alone, and ends the leases of whoever owned it before.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, options: &Options) -> Result<Self, StoreError> {
        let folder = open::folder(path)?;
        let path = &open::real_path(&folder, path)?;
        let owner = open::own(path)?;
        let db = open::writing(path)?;
        let (line, jobs) = mpsc::channel(options.queue.max(1));
        let (gauges, work) = (Arc::<Gauges>::default(), Arc::<Notify>::default());
        let outbox_max = Arc::new(AtomicUsize::new(limits::OUTBOX_MAX));
        let claims_max = Arc::new(AtomicUsize::new(limits::CLAIMS_MAX));
        let start = |db: Connection| -> rusqlite::Result<Writer> {
            db.execute_batch("BEGIN IMMEDIATE")?;
            let now_ms = clock.now_ms();
            follow_clock(&db, now_ms)?;
            backup::begin_anew(&db, now_ms)?;
            let mut keys = keys::KeySet::load(&db, options.period, now_ms)?;
            // Keys of before a clock that was set ahead do not share a period with what comes now.
            if keys.wants_closing(now_ms) {
                keys.close(&db, now_ms)?;
            }
            let (last_number, last_fence) = high_marks(&db)?;
            let claims = claims::ClaimIndex::load(&db, Arc::clone(&claims_max))?;
            let uncounted = db.query_row(UNCOUNTED_EVENTS, [], |row| row.get(0))?;
            let mut writer = Writer::new(writer::Start {
                db,
                keys,
                lanes: lanes::Lanes::new(lanes::INBOX, options.window),
                outgoing: lanes::Lanes::new(outbox::OUTBOX, limits::OUTBOX_MAX + 1),
                outbox_max: Arc::clone(&outbox_max),
                claims,
                log: disk::LogCap::new(open::log_path(path), open::LOG_CAP_BYTES),
                disk: disk::DiskFloor::new(folder.clone(), options.disk_floor_bytes),
                clock: Arc::clone(&clock),
                gauges: Arc::clone(&gauges),
                work: Arc::clone(&work),
                line: line.downgrade(),
                last_number,
                last_fence,
                uncounted,
            })?;
            writer.join_old_lanes()?;
            writer.end_old_leases()?;
            writer.end_all_tries()?;
            writer.db.execute_batch("COMMIT")?;
            writer.keys.committed();
            Ok(writer)
        };
        let failed =
            |source: rusqlite::Error| StoreError::Failed { what: "opening the store", retryable: false, source: source.into() };
        let writer = start(db).map_err(failed)?;
        open::make_durable(&writer.db, path)?;
        let thread = std::thread::Builder::new().name("hapax-writer".to_owned()).spawn(move || writer.run(jobs));
        let thread = thread.map_err(|source| StoreError::Failed {
            what: "starting the writer",
            retryable: false,
            source: source.into(),
        })?;
        Ok(Self(Arc::new(Engine {
            path: path.to_owned(),
            line: Some(line),
            writer: Some(thread),
            readers: Mutex::default(),
            gauges,
            outbox_max,
            claims_max,
            work,
            alone: Semaphore::new(pieces::IN_LINE),
            _owner: owner,
        })))
    }

    /// Does a step in the writer's next batch. `patient` callers wait for a place in the line; the others are told it is full, and take
    /// back what they brought when they give up before its turn has come.
    async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        patient: bool,
        step: impl FnOnce(&mut Writer) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let line = self.0.line.as_ref().ok_or(StoreError::Closed)?;
        if patient {
            let (job, answer) = writer::job(what, step);
            line.send(job).await.map_err(|_| StoreError::Closed)?;
            return answer.await.map_err(|_| StoreError::Closed)?;
        }
        let (_caller, step) = offer(step);
        let (job, answer) = writer::job(what, move |writer| step.take().map_or(Err(StepError::Skipped), |step| step(writer)));
        line.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Does a step in a transaction of its own, for what is large. Few such steps stand in line at once.
    async fn write_alone<T: Send + 'static>(
        &self,
        what: &'static str,
        step: impl FnOnce(&mut Writer) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _place = self.0.alone.acquire().await.map_err(|_| StoreError::Closed)?;
        let line = self.0.line.as_ref().ok_or(StoreError::Closed)?;
        let (job, answer) = writer::job(what, step);
        line.send(job.alone()).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Asks a question on a reader connection, away from the async threads.
    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let engine = Arc::clone(&self.0);
        let failed = move |source: rusqlite::Error| StoreError::Failed { what, retryable: true, source: source.into() };
        let asked = tokio::task::spawn_blocking(move || {
            let kept = engine.readers().pop();
            let reader = kept.map_or_else(|| open::reading(&engine.path), Ok)?;
            // In a transaction, so that all a question reads is of one moment.
            let found = reader.unchecked_transaction().and_then(|snapshot| question(&snapshot));
            let mut readers = engine.readers();
            if readers.len() < READERS_KEPT {
                readers.push(reader);
            }
            found
        });
        asked.await.map_err(|_| StoreError::Closed)?.map_err(failed)
    }

    /// Has the last words of all threads written, so that whoever asks next reads them.
    async fn write_threads(&self) -> Result<(), StoreError> {
        let step = |writer: &mut Writer| Ok(writer.threads.write_some(&writer.db, writer.now_ms, writer.last_number, true)?);
        self.write("writing threads", true, step).await
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
        self.line = None;
        if let Some(thread) = self.writer.take() {
            // Whoever opens the file next must find it free, and all that was written in it.
            let _ = thread.join();
        }
    }
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
    let fence: i64 = db.query_row("SELECT value FROM meta WHERE name = 'last_fence'", [], |row| row.get(0))?;
    Ok((number as u64, fence as u64))
}

#[async_trait]
impl Inbox for SqliteStore {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let hashed = accept::hash(&arrival);
        self.write("taking in", false, move |writer| writer.accept(&arrival, &hashed)).await
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.write("counting copies", true, move |writer| writer.note_copies(&copies)).await
    }

    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        self.write("leasing", true, move |writer| writer.lease(&ask)).await
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.write("extending leases", true, move |writer| {
            Ok(writer.lanes.extend(&writer.db, &leases, writer.now_ms + hold_ms)?)
        })
        .await
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        self.write("settling", true, move |writer| writer.settle(lane, fence, &outcome)).await
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
        self.write("submitting", false, step).await
    }

    async fn lease_outbox(&self, ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        self.write("leasing messages", true, move |writer| writer.lease_outbox(&ask)).await
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        self.write("beginning to send", true, move |writer| writer.begin(lane, fence)).await
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.write("extending leases", true, move |writer| {
            Ok(writer.outgoing.extend(&writer.db, &leases, writer.now_ms + hold_ms)?)
        })
        .await
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        self.write("settling a send", true, move |writer| writer.settle_outbox(lane, fence, &outcome)).await
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
        self.write("pinging", false, Writer::ping).await
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
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::FutureExt;

    use super::*;
    use bytes::Bytes;
    use hapax_domain::{Event, Status};
    use hapax_store::EventQuery;
    use hapax_store::prelude::*;
    use hapax_testkit::hand_clock::HandClock;
    use hapax_testkit::store_fixture::{START_MS, accept_one, lease, message, notice, webhook};

    fn open() -> (tempfile::TempDir, SqliteStore) {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        let opened = SqliteStore::open(&folder.path().join("s.db"), Arc::new(HandClock::at(START_MS)), &options);
        (folder, opened.expect("it opens"))
    }

    /// Numbers of a batch that failed are in no row; a thread may be marked as read up to them.
    #[tokio::test]
    async fn a_number_that_was_marked_as_read_is_not_given_out_after_a_crash() {
        let (folder, store) = open();
        let thread = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
        accept_one(&store, message("m1", "ana")).await;
        let skipped = |writer: &mut Writer| {
            writer.last_number += 9;
            Ok(())
        };
        store.write("skipping some numbers", true, skipped).await.expect("done");
        assert!(store.mark_read(&thread).await.expect("an answer"));
        drop(store);
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        let clock = Arc::new(HandClock::at(START_MS + 1));
        let store = SqliteStore::open(&folder.path().join("s.db"), clock, &options).expect("it opens");
        accept_one(&store, message("m2", "ana")).await;
        let said = store.thread_messages(&thread, None, 9).await.expect("readable").rows;
        assert_eq!(said.iter().map(|entry| entry.status).collect::<Vec<_>>(), [Some(Status::Delivered), Some(Status::Read)]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_question_is_answered_from_one_moment() {
        let (_folder, store) = open();
        accept_one(&store, notice("n1")).await;
        let (asked, is_asked) = channel();
        let (go_on, goes_on) = channel::<()>();
        let asking = tokio::spawn({
            let store = store.clone();
            async move {
                let count = |db: &Connection| db.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0));
                let question = move |db: &Connection| {
                    let before = count(db)?;
                    let _ = asked.send(());
                    let _ = goes_on.recv();
                    Ok((before, count(db)?))
                };
                store.read("counting twice", question).await
            }
        });
        tokio::task::spawn_blocking(move || is_asked.recv()).await.expect("no panic").expect("it was asked");
        accept_one(&store, notice("n2")).await;
        drop(go_on);
        assert_eq!(asking.await.expect("no panic").expect("an answer"), (1, 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn threads_of_an_older_version_are_purged_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        let db = Connection::open(&path).expect("a file");
        for migration in &open::MIGRATIONS[..3] {
            db.execute_batch(migration).expect("the old schema");
        }
        let (kind, old) = (rows::kind_number(hapax_domain::Kind::Message), START_MS - 10_000);
        db.execute_batch(&format!(
            "PRAGMA application_id = {}; PRAGMA user_version = 3; PRAGMA journal_mode = WAL; INSERT INTO channels VALUES (1, 'shop');
             INSERT INTO threads VALUES (1, 1, 'acc', 'ana', 2, {old}, 'a secret', 0, 1), (3, 1, 'acc', 'bob', 4, {START_MS}, 'hi', 0, 1);
             INSERT INTO names VALUES ('acc', 'ana', 1), ('acc', 'bob', 3);
             INSERT INTO events VALUES (4, {START_MS}, 1, {kind}, 0, 0, 4, 1, NULL, 'acc', 'm', 'bob', NULL, 'hi', 3, 0, x'', x'7b7d');
             UPDATE meta SET value = 4 WHERE name = 'threads_to'",
            open::APPLICATION_ID
        ))
        .expect("a thread of which nothing is left, and another");
        drop(db);
        let clock = HandClock::at(START_MS);
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        let store = SqliteStore::open(&path, Arc::new(clock.clone()), &options).expect("it opens");
        let peers = async || {
            while store.purge(&[("shop".to_owned(), 1_000)], 10).await.expect("purged").more {}
            let threads = store.threads(hapax_store::ThreadQuery { limit: 10, ..Default::default() }).await.expect("threads");
            threads.rows.into_iter().map(|row| row.id.peer).collect::<Vec<_>>()
        };
        assert_eq!(peers().await, ["bob"]);
        clock.advance(1_000);
        assert!(peers().await.is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_an_older_version_left_in_two_lanes_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        let db = Connection::open(&path).expect("a file");
        for migration in &open::MIGRATIONS[..3] {
            db.execute_batch(migration).expect("the old schema");
        }
        let kind = rows::kind_number(hapax_domain::Kind::Message);
        db.execute_batch(&format!(
            "PRAGMA application_id = {}; PRAGMA user_version = 3; PRAGMA journal_mode = WAL; INSERT INTO channels VALUES (1, 'shop');
             INSERT INTO threads VALUES (1, 1, 'acc', 'phone', 2, {START_MS}, 'hi', 0, 1), (3, 1, 'acc', 'lid', 4, {START_MS}, 'hi', 0, 1);
             INSERT INTO names VALUES ('acc', 'user', 1), ('acc', 'phone', 3), ('acc', 'lid', 3);
             INSERT INTO events VALUES (2, {START_MS}, 1, {kind}, 0, 0, 2, 1, 2, 'acc', 'm1', 'user', NULL, 'hi', 1, 0, x'', x'7b7d'),
                 (4, {START_MS}, 1, {kind}, 0, 0, 4, 1, 4, 'acc', 'm2', 'lid', NULL, 'hi', 3, 0, x'', x'7b7d');
             INSERT INTO inbox VALUES (1, 2, x'01', 2, NULL, 0, NULL, {START_MS}, {START_MS}, NULL),
                 (1, 4, x'02', 4, NULL, 0, NULL, {START_MS}, {START_MS}, NULL);
             UPDATE meta SET value = 4 WHERE name IN ('threads_to', 'last_number')",
            open::APPLICATION_ID
        ))
        .expect("two items of one person, each in a lane of its own");
        // Lanes were named by 16 bytes.
        for (item, peer) in [(2, "user"), (4, "lid")] {
            let lane = accept::lane_name("shop", "acc", peer);
            db.execute("UPDATE inbox SET lane = ?2 WHERE item = ?1", rusqlite::params![item, lane]).expect("named");
        }
        drop(db);
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        let store = SqliteStore::open(&path, Arc::new(HandClock::at(START_MS)), &options).expect("it opens");
        for _ in 0..2 {
            let held = lease(&store, 10).await;
            assert_eq!(held.len(), 1, "one at a time");
            assert_eq!(held[0].events[0].thread.as_ref().map(|thread| thread.peer.as_str()), Some("lid"));
            let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
            store.settle_inbox(held[0].lane, held[0].fence, delivered).await.expect("settled");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_join_that_is_not_committed_joins_nothing() {
        let (_folder, store) = open();
        for (id, peer) in [("m1", "ana"), ("m2", "lid")] {
            accept_one(&store, message(id, peer)).await;
        }
        assert!(lease(&store, 0).await.is_empty(), "the lanes are in memory");
        let arrival = webhook(vec![Event { aliases: vec!["lid".to_owned()], ..message("m3", "ana") }]);
        let hashed = accept::hash(&arrival);
        let failing = move |writer: &mut Writer| {
            writer.accept(&arrival, &hashed)?;
            Err::<(), _>(StepError::Sql(rusqlite::Error::InvalidQuery))
        };
        assert!(store.write("failing", true, failing).await.is_err());
        assert_eq!(lease(&store, 10).await.len(), 2, "nobody has said that they are one");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_too_young_is_looked_at_again_in_the_next_purge() {
        let folder = tempfile::tempdir().expect("a folder");
        let (options, clock) = (Options { disk_floor_bytes: 0, ..Options::default() }, HandClock::at(START_MS));
        let store = SqliteStore::open(&folder.path().join("s.db"), Arc::new(clock.clone()), &options).expect("it opens");
        let keep = |event| hapax_testkit::store_fixture::webhook_then(vec![(event, hapax_store::Disposition::Keep)]);
        store.accept(keep(notice("old")).into()).await.expect("taken");
        clock.advance(1_000);
        store.accept(keep(notice("young")).into()).await.expect("taken");
        for left in [1, 0] {
            // As many as a page holds.
            while store.purge(&[("shop".to_owned(), 1_000)], 2).await.expect("purged").more {}
            assert_eq!(store.events(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("events").rows.len(), left);
            clock.advance(1_000);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_gives_up_takes_back_what_it_brought() {
        let (_folder, store) = open();
        let (begun, has_begun) = channel();
        let (go_on, goes_on) = channel::<()>();
        let hanging = tokio::spawn({
            let store = store.clone();
            let hang = move |_: &mut Writer| {
                let _ = begun.send(());
                let _ = goes_on.recv();
                Ok(())
            };
            async move { store.write("hanging", true, hang).await }
        });
        tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("no panic").expect("it hangs");
        let body = Bytes::from(vec![0; 1 << 20]);
        let arrival = Arrival { body: body.clone(), ..webhook(vec![notice("n1")]) };
        assert!(store.accept(arrival.into()).now_or_never().is_none(), "it waits, and is given up");
        assert!(body.is_unique(), "nobody holds the body any more");
        drop(go_on);
        hanging.await.expect("no panic").expect("done");
        store.ping().await.expect("it works");
        assert!(store.events(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("events").rows.is_empty());
    }

    /// One that fails takes nobody's commit along: so it was in none but its own.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_piece_shares_its_commit_with_nobody() {
        let (_folder, store) = open();
        let (begun, has_begun) = channel();
        let (go_on, goes_on) = channel::<()>();
        let hang = move |_: &mut Writer| {
            let _ = begun.send(());
            let _ = goes_on.recv();
            Ok(())
        };
        let hanging = store.write("hanging", true, hang);
        let failing = store.write_alone("failing", |_| Err::<(), _>(StepError::Sql(rusqlite::Error::InvalidQuery)));
        let before = store.accept(webhook(vec![notice("before")]).into());
        let after = store.accept(webhook(vec![notice("after")]).into());
        let release = async {
            tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("no panic").expect("it hangs");
            drop(go_on);
        };
        let (hung, before, failed, after, ()) = tokio::join!(hanging, before, failing, after, release);
        assert!(hung.is_ok() && before.is_ok() && after.is_ok(), "{before:?} {after:?}");
        assert!(failed.is_err());
    }
}
