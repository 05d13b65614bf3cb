//! The second half of a commit: while one batch is being synced, the writer makes the next. Nothing is told of a batch before its sync ended.
//!
//! *Invariant:* whatever leaves this engine, an answer, a wake-up or a read, depends on no commit whose sync has not ended. See
//! `docs/decisions/0020`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hapax_store::StoreError;
use tokio::sync::{Notify, watch};

use super::call::Finish;
use super::line::Line;

/// Makes all that was written to the log so far last.
pub(super) type SyncLog = Box<dyn FnMut() -> io::Result<()> + Send>;

/// Batches that may wait for the sync that runs now. With more the writer would run ahead in small batches, which cost it more each.
const WAITING: usize = 1;

/// A batch that is committed and not synced.
#[derive(Default)]
pub(super) struct Committed {
    pub(super) number: u64,
    /// False when nothing was changed: then there is nothing to sync either.
    pub(super) wrote: bool,
    pub(super) finishes: Vec<Finish>,
    /// It made work that a worker may be waiting for.
    pub(super) work_made: bool,
}

/// How far commits and syncs have come, by the numbers of batches.
pub(super) struct Progress {
    /// Set before the commit it is about, so that whoever sees rows sees their number.
    committing: AtomicU64,
    /// The last batch that is synced.
    ended: AtomicU64,
    /// Told by the thread that syncs; once that is gone, nobody waits for it.
    synced: watch::Receiver<u64>,
}

impl Progress {
    pub(super) fn new() -> (Arc<Self>, watch::Sender<u64>) {
        let (tell, synced) = watch::channel(0);
        let (committing, ended) = Default::default();
        (Arc::new(Self { committing, ended, synced }), tell)
    }

    pub(super) fn commits(&self, number: u64) {
        self.committing.store(number, Ordering::SeqCst);
    }

    /// The last batch that somebody who has looked until now may have seen.
    pub(super) fn seen(&self) -> u64 {
        self.committing.load(Ordering::SeqCst)
    }

    /// True while a batch up to this one is not synced.
    pub(super) fn is_syncing(&self, number: u64) -> bool {
        self.ended.load(Ordering::SeqCst) < number
    }

    fn ends(&self, number: u64, line: &Line) {
        self.ended.store(number, Ordering::SeqCst);
        line.nudge();
    }

    /// Waits until a batch, and so all before it, is on disk.
    pub(super) async fn synced(&self, number: u64) -> Result<(), StoreError> {
        self.synced.clone().wait_for(|synced| *synced >= number).await.map(drop).map_err(|_| StoreError::Closed)
    }
}

/// Opens the log a second time. SQLite has its locks on the other files, so that closing this one again loses none.
pub(super) fn of_log(log: &Path) -> io::Result<SyncLog> {
    let log = File::options().read(true).write(true).open(log)?;
    Ok(Box::new(move || log.sync_data()))
}

pub(super) fn line() -> (SyncSender<Committed>, Receiver<Committed>) {
    sync_channel(WAITING)
}

/// Syncs what comes, all that waits at once, and then lets it be known; until the writer is gone.
pub(super) fn run(
    batches: &Receiver<Committed>,
    mut sync: SyncLog,
    progress: &Progress,
    synced: &watch::Sender<u64>,
    work: &Notify,
    line: &Line,
) {
    while let Ok(first) = batches.recv() {
        let taken: Vec<Committed> = std::iter::once(first).chain(batches.try_iter()).collect();
        if taken.iter().any(|batch| batch.wrote)
            && let Err(error) = sync()
        {
            end_process(&error.to_string());
        }
        if let Some(last) = taken.last() {
            progress.ends(last.number, line);
        }
        for batch in taken {
            synced.send_replace(batch.number);
            batch.finishes.into_iter().for_each(|finish| finish.tell(None));
            if batch.work_made {
                work.notify_waiters();
            }
        }
    }
}

/// After a sync that failed nobody knows what is on the disk, and a second one that works proves nothing: the system may have dropped what
/// it could not write. What was committed cannot be taken back either. The next process reads the log anew.
pub(super) fn end_process(error: &str) -> ! {
    tracing::error!(
        error,
        "the write-ahead log could not be synced: what was written last may be lost, so this process ends; start it again"
    );
    std::process::exit(4)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use hapax_store::Accepted;
    use hapax_store::prelude::*;
    use hapax_testkit::hand_clock::HandClock;
    use hapax_testkit::store_fixture::{START_MS, message, webhook};

    use super::super::line::SOME;
    use super::super::{Options, SqliteStore};
    use super::*;

    /// A store whose syncs say that they began, and end when they are told to.
    struct Held {
        store: SqliteStore,
        began: Receiver<()>,
        go_on: Sender<()>,
        _folder: tempfile::TempDir,
    }

    fn held() -> Held {
        let folder = tempfile::tempdir().expect("a folder");
        let ((begin, began), (go_on, goes_on)) = (channel(), channel());
        let sync: SyncLog = Box::new(move || {
            let _ = begin.send(());
            let _ = goes_on.recv();
            Ok(())
        });
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        let clock = Arc::new(HandClock::at(START_MS));
        let opened = SqliteStore::open_with(&folder.path().join("s.db"), clock, &options, |_| Ok(sync));
        Held { store: opened.expect("it opens"), began, go_on, _folder: folder }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nothing_is_told_before_its_sync_has_ended() {
        let Held { store, began, go_on, _folder } = held();
        let woken = tokio::spawn(store.wait());
        let take = |store: &SqliteStore| {
            let (store, arrival) = (store.clone(), webhook(vec![message("m1", "ana")]));
            tokio::spawn(async move { store.accept(arrival.into()).await })
        };
        let first = take(&store);
        tokio::task::block_in_place(|| began.recv()).expect("its sync began, so it is committed");

        let copy = take(&store);
        let (ran, has_run) = channel();
        let after_copy = {
            let (store, ran) = (store.clone(), ran.clone());
            // It is not woken for fewer.
            let say = (0..SOME).map(move |n| {
                let (store, ran) = (store.clone(), ran.clone());
                let say = move |_: &mut super::super::Writer| {
                    let _ = if n == 0 { ran.send(()) } else { Ok(()) };
                    Ok(())
                };
                async move { store.write("saying so", true, say).await }
            });
            tokio::spawn(futures_util::future::try_join_all(say))
        };
        tokio::task::block_in_place(|| has_run.recv()).expect("the writer does not wait for the sync");
        let read = {
            let store = store.clone();
            let count = move |db: &rusqlite::Connection| {
                let seen: i64 = db.query_row("SELECT count(*) FROM events", [], |row| row.get(0))?;
                let _ = ran.send(());
                Ok(seen)
            };
            tokio::spawn(async move { store.read("counting", count).await })
        };
        tokio::task::block_in_place(|| has_run.recv()).expect("the question was asked");
        let told = [first.is_finished(), copy.is_finished(), after_copy.is_finished(), read.is_finished(), woken.is_finished()];
        assert_eq!(told, [false; 5], "nobody was told anything");

        drop(go_on);
        let Ok(first) = first.await.expect("no panic") else { panic!("it was taken in") };
        assert!(matches!(first[..], [Accepted::New(_)]));
        let Ok(copy) = copy.await.expect("no panic") else { panic!("it was answered") };
        assert_eq!(copy, [Accepted::Duplicate(first[0].event())]);
        assert_eq!(read.await.expect("no panic").expect("an answer"), 1);
        after_copy.await.expect("no panic").expect("done");
        woken.await.expect("no panic");
    }

    /// What was taken in comes into the tables later in the batch, but before another step looks for it there.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_step_finds_what_was_taken_in_before_it_in_its_batch() {
        let Held { store, began, go_on, _folder } = held();
        let first = {
            let (store, arrival) = (store.clone(), webhook(vec![message("m1", "ana")]));
            tokio::spawn(async move { store.accept(arrival.into()).await })
        };
        tokio::task::block_in_place(|| began.recv()).expect("its sync began, so it is committed");
        let (taken, arrival) = (store.clone(), webhook(vec![message("m2", "bob"), message("m3", "ana")]));
        let after = tokio::spawn(async move {
            let count = |writer: &mut super::super::Writer| -> Result<(i64, i64), super::super::StepError> {
                let count = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM inbox)";
                Ok(writer.db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
            };
            tokio::join!(taken.accept(arrival.into()), taken.write("counting", true, count), taken.write("again", true, count))
        });
        while store.0.line.len() < 2 {
            tokio::task::yield_now().await;
        }
        drop(go_on);
        assert!(matches!(first.await, Ok(Ok(_))));
        let (accepted, counted, again) = after.await.expect("no panic");
        assert_eq!(accepted.map(|new| new.len()).ok(), Some(2));
        assert_eq!((counted.ok(), again.ok()), (Some((3, 3)), Some((3, 3))));
    }

    /// Otherwise it would take in whoever comes, until all wait for the same sync.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_batch_that_is_worth_a_sync_goes_when_the_disk_has_nothing_to_do() {
        let Held { store, began, go_on, _folder } = held();
        let (busy, is_busy) = channel();
        let (free, is_free) = channel::<()>();
        let holding = {
            let store = store.clone();
            let hold = move |_: &mut super::super::Writer| {
                let _ = busy.send(());
                let _ = is_free.recv();
                Ok(())
            };
            tokio::spawn(async move { store.write("holding the writer", true, hold).await })
        };
        tokio::task::block_in_place(|| is_busy.recv()).expect("the writer is at it");
        let told = Arc::<AtomicU64>::default();
        let all: Vec<_> = (0..40)
            .map(|n| {
                let (store, told, arrival) = (store.clone(), Arc::clone(&told), webhook(vec![message(&format!("m{n}"), "ana")]));
                tokio::spawn(async move {
                    store.accept(arrival.into()).await.expect("taken in");
                    told.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        while store.0.line.len() < all.len() {
            tokio::task::yield_now().await;
        }
        drop(free);
        let a_while = std::time::Duration::from_secs(60);
        tokio::task::block_in_place(|| began.recv_timeout(a_while)).expect("the first sync");
        go_on.send(()).expect("somebody waits for it");
        tokio::task::block_in_place(|| began.recv_timeout(a_while)).expect("another sync, for the rest");
        assert!(told.load(Ordering::SeqCst) < all.len() as u64, "the rest waits for it");
        drop(go_on);
        holding.await.expect("no panic").expect("held");
        for one in all {
            one.await.expect("no panic");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_changed_nothing_waits_for_no_sync() {
        let Held { store, began, go_on, _folder } = held();
        // The first batch notes the time.
        go_on.send(()).expect("somebody waits for it");
        for _ in 0..3 {
            store.write("doing nothing", true, |_| Ok(())).await.expect("it works");
        }
        assert!(began.try_iter().count() <= 1, "nothing more was synced");
    }
}
