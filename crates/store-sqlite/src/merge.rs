//! Merging the write-ahead log into the file. Nearly all of it is merged beside the writer, by a thread and a connection of its own; the rest,
//! little by then, by the writer between two batches, because the log can begin anew only when nothing is added to it meanwhile.
//!
//! *Invariant:* after a sync of the file that failed nothing is merged any more: the system may have dropped pages that it could not write, and
//! SQLite would not write them again. The process ends, and the next one merges the whole log anew.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, ffi};

use super::sync::end_process;

/// Merging begins when so many pages are in the log: 16 MB.
const BEGIN_PAGES: u32 = 2_000;
/// The writer merges by itself what is no more than this: a few milliseconds.
const REST_PAGES: u32 = 250;
/// Passes beside the writer before it merges the rest, however much that is; and the pages at which it does not wait for them.
const PASSES_MAX: u32 = 5;
const LOG_PAGES_MAX: u32 = 8_000;
/// After a try that came no further, because somebody reads for long or the disk is full.
const REST: Duration = Duration::from_secs(1);

/// The writer's end.
pub(super) struct LogMerger {
    /// Pages in the log after the last commit.
    pages: Arc<AtomicU32>,
    /// Pages of it that are merged.
    merged: u32,
    /// Passes that were begun since the log was found long enough.
    passes: u32,
    begin: SyncSender<()>,
    ended: Receiver<u32>,
    is_under_way: bool,
    rests_until: Option<Instant>,
}

/// The other end, to be run by a thread.
pub(super) struct Merging {
    db: Connection,
    file: Arc<File>,
    asked: Receiver<()>,
    ended: Sender<u32>,
}

/// Makes both ends. The file stays open until SQLite has closed it everywhere: closing it earlier would drop the locks that SQLite holds on it.
pub(super) fn both_ends(writer: &mut Connection, path: &Path) -> rusqlite::Result<(LogMerger, Merging, Arc<File>)> {
    let pages = Arc::<AtomicU32>::default();
    let count = Arc::clone(&pages);
    writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
        count.store(pages.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    }))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    let cannot = |error: std::io::Error| rusqlite::Error::InvalidPath(format!("{}: {error}", path.display()).into());
    let file = Arc::new(File::open(path).map_err(cannot)?);
    let (begin, asked) = sync_channel(1);
    let (tell, ended) = channel();
    let merger = LogMerger { pages, merged: 0, passes: 0, begin, ended, is_under_way: false, rests_until: None };
    let merging = Merging { db, file: Arc::clone(&file), asked, ended: tell };
    Ok((merger, merging, file))
}

impl LogMerger {
    /// Does what there is to do between two batches.
    pub(super) fn tend(&mut self, db: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.merged {
            // It was begun anew.
            (self.merged, self.passes) = (0, 0);
        }
        if self.is_under_way {
            let ended = if pages < LOG_PAGES_MAX { self.ended.try_recv().ok() } else { self.ended.recv().ok() };
            let Some(merged) = ended else { return };
            self.is_under_way = false;
            self.came_to(merged);
        }
        let rest = pages - self.merged.min(pages);
        if self.rests() || (self.passes == 0 && rest < BEGIN_PAGES) {
            return;
        }
        if pages >= LOG_PAGES_MAX || (self.passes > 0 && (rest <= REST_PAGES || self.passes >= PASSES_MAX)) {
            self.passes = 0;
            self.came_to(merge(db));
        } else if self.begin.try_send(()).is_ok() {
            self.passes += 1;
            self.is_under_way = true;
        }
    }

    fn came_to(&mut self, merged: u32) {
        if merged <= self.merged {
            self.rests_until = Some(Instant::now() + REST);
        }
        self.merged = merged;
    }

    fn rests(&mut self) -> bool {
        self.rests_until = self.rests_until.filter(|until| Instant::now() < *until);
        self.rests_until.is_some()
    }
}

impl Merging {
    /// Merges whenever it is asked to, until the writer is gone.
    pub(super) fn run(self) {
        while self.asked.recv().is_ok() {
            let merged = merge(&self.db);
            // SQLite syncs the file when it has merged all. Most of that is done here, where nobody waits for it.
            if let Err(error) = self.file.sync_data() {
                end_process(&error.to_string());
            }
            let _ = self.ended.send(merged);
        }
    }
}

/// Merges what no reader stands before; gives how many pages of the log are merged.
fn merge(db: &Connection) -> u32 {
    match db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(2)) {
        Ok(merged) => u32::try_from(merged).unwrap_or(0),
        Err(error) if is_failed_sync(&error) => end_process(&error.to_string()),
        Err(error) => {
            tracing::warn!(%error, "the write-ahead log could not be merged into the file; it grows until that works");
            0
        }
    }
}

fn is_failed_sync(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_FSYNC)
}
