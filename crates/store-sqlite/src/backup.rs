//! A copy of the file while it is in use, and how a store goes on that was made from such a copy.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hapax_store::{BackupFacts, StoreError};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::keys::ENTRY_BYTES;
use super::{Engine, SqliteStore, disk, open};

/// In `meta` of a copy: when it was made. A store that has it is opened for the first time since.
const MADE_AT: &str = "backup_at";
/// In `meta` of a copy that takes the place of another store: how far that one's fences and numbers went.
const FENCES_ABOVE: &str = "fences_above";
const NUMBERS_ABOVE: &str = "numbers_above";

/// What a store may have counted, at most, since it was copied. A claim has 40 bits for its number.
const NUMBERS_SKIPPED: i64 = 1 << 30;
/// Fences of a restored store begin above so many for each second since 1970: more than any store hands out.
const FENCES_PER_SECOND: i64 = 1 << 20;

/// Copied beyond the file's own size: for what is written meanwhile.
const ROOM_TO_SPARE: u64 = 64 << 20;

impl SqliteStore {
    /// Rebuilds the file, as it is at one moment, into a new one: rows that were deleted are not in it, not even as traces.
    ///
    /// On a connection of its own: it reads for long, and the log cannot be merged further meanwhile.
    pub(super) async fn back_up(&self, to: &Path) -> Result<(), StoreError> {
        let now_ms = self.write("looking at the clock", true, |writer| Ok(writer.now_ms)).await?;
        if to.exists() {
            return Err(StoreError::Refused(format!("{} is there already; choose another name", to.display())));
        }
        let (engine, to) = (Arc::clone(&self.0), to.to_owned());
        let copying = tokio::task::spawn_blocking(move || {
            let made = copy(&engine, &to, now_ms);
            if made.is_err() {
                // What is half there is nothing to keep.
                let _ = std::fs::remove_file(&to);
            }
            made
        });
        copying.await.map_err(|_| StoreError::Closed)??;
        // What was copied is told of once the store has it for good.
        self.0.progress.synced(self.0.progress.seen()).await
    }
}

fn copy(engine: &Engine, to: &Path, now_ms: i64) -> Result<(), StoreError> {
    let failed = |source: rusqlite::Error| StoreError::Failed { what: "backing up", retryable: true, source: source.into() };
    let size = std::fs::metadata(&engine.path).map_or(0, |meta| meta.len());
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if disk::free_bytes(folder).is_some_and(|free| free < size.saturating_add(ROOM_TO_SPARE)) {
        let needed = (size + ROOM_TO_SPARE) >> 20;
        return Err(StoreError::Refused(format!("{} has not the {needed} MB free that a backup may take", folder.display())));
    }
    open::create_private(to)?;
    let name = to.to_str().ok_or_else(|| StoreError::Refused("the name of a backup must be UTF-8".to_owned()))?;
    let reader = open::reading(&engine.path).map_err(failed)?;
    reader.execute("VACUUM INTO ?1", [name]).map_err(failed)?;
    drop(reader);
    let made = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    made.and_then(|made| made.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", params![MADE_AT, now_ms]))
        .map_err(failed)?;
    let synced = File::open(to).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::Refused(format!("{} cannot be synced: {error}", to.display())))?;
    open::sync_folder(to)
}

/// Opens the store that a copy was made into: nothing that the store before it has handed out may be handed out once more, and what waited to
/// be sent may have been sent since.
pub(super) fn begin_anew(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    if read_meta(db, MADE_AT)?.is_none() {
        return Ok(());
    }
    let (fences, numbers) = (read_meta(db, FENCES_ABOVE)?.unwrap_or(0), read_meta(db, NUMBERS_ABOVE)?.unwrap_or(0));
    let epoch = (now_ms / 1_000).saturating_mul(FENCES_PER_SECOND);
    db.execute("UPDATE meta SET value = max(value, ?1) WHERE name = 'last_fence'", [fences.max(epoch)])?;
    let (last, _) = super::high_marks(db)?;
    let last = numbers.max(last.cast_signed()) + NUMBERS_SKIPPED;
    db.execute("UPDATE meta SET value = ?1 WHERE name = 'last_number'", [last])?;
    // As if each had been begun: whoever leases it asks the provider, or a person, and does not simply send.
    db.execute(
        "UPDATE outbox SET attempt = attempt + (number NOT IN (SELECT item FROM out_leases)), begun = ?1
         WHERE begun IS NULL AND unknown = 0 AND NOT (lane IS NULL AND due > ?1)",
        [now_ms],
    )?;
    db.execute("DELETE FROM meta WHERE name IN (?1, ?2, ?3)", [MADE_AT, FENCES_ABOVE, NUMBERS_ABOVE])?;
    Ok(())
}

fn read_meta(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    db.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0)).optional()
}

/// Looks into a copy without changing it; refuses what is none.
pub fn look_into_backup(path: &Path) -> Result<BackupFacts, StoreError> {
    let refused = |error: rusqlite::Error| StoreError::Refused(format!("{} cannot be read: {error}", path.display()));
    let none = |why: &str| StoreError::Refused(format!("{} is no backup of hapax: {why}", path.display()));
    if !path.is_file() {
        return Err(none("there is no such file"));
    }
    if std::fs::metadata(open::log_path(path)).is_ok_and(|log| log.len() > 0) {
        return Err(none("it is a store in use, or was one; stop its hapax, or make a copy with `hapax backup`"));
    }
    let db = open::reading(path).map_err(refused)?;
    open::known_version(&db, path)?;
    let Some(made_ms) = read_meta(&db, MADE_AT).map_err(|_| none("it is a file of another kind"))? else {
        return Err(none("it is a store, and no copy that `hapax backup` has made"));
    };
    let well: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(refused)?;
    if well != "ok" {
        return Err(StoreError::Refused(format!("{} is damaged: {well}; take another one", path.display())));
    }
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs).map_err(refused);
    Ok(BackupFacts {
        made_ms,
        events: count("SELECT count(*) FROM events")?,
        keys: count_keys(&db).map_err(refused)?,
        unsent: count("SELECT count(*) FROM outbox WHERE unknown = 0")?,
    })
}

/// Keys that are remembered, of all periods.
fn count_keys(db: &Connection) -> rusqlite::Result<u64> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND (name LIKE 'keys\\_%' ESCAPE '\\' OR name LIKE 'sealed\\_%' ESCAPE '\\')";
    let names: Vec<String> = db.prepare(tables)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let count = |name: &String| {
        // A row of a log has the keys of a batch.
        let sql = if name.starts_with("keys_") {
            format!("SELECT ifnull(sum(length(claim)), 0) / {ENTRY_BYTES} FROM {name}")
        } else {
            format!("SELECT count(*) FROM {name}")
        };
        db.query_row(&sql, [], |row| row.get::<_, i64>(0))
    };
    names.iter().map(|name| count(name).map(i64::unsigned_abs)).sum()
}

/// True when nothing was ever taken in there, or sent, or claimed. A file that cannot be read is not empty.
pub fn is_empty(path: &Path) -> bool {
    if !path.exists() {
        return true;
    }
    let any = |db: Connection| {
        let exists = |sql: &str| db.prepare(sql)?.exists([]);
        // Which of the tables of claims there are depends on the version.
        for table in ["events", "messages", "claims", "claim_blocks", "claim_changes"] {
            let is_there = exists(&format!("SELECT 1 FROM sqlite_schema WHERE name = '{table}'"))?;
            if is_there && exists(&format!("SELECT 1 FROM {table}"))? {
                return Ok(true);
            }
        }
        Ok(count_keys(&db)? > 0)
    };
    open::reading(path).and_then(any).is_ok_and(|any| !any)
}

/// Puts a copy of the backup `from` in the place of the store `to`, which nobody may have open. A store that is there is moved aside, and its
/// new path given back.
pub fn restore(from: &Path, to: &Path, now_ms: i64) -> Result<Option<PathBuf>, StoreError> {
    let folder = open::folder(to)?;
    let to = &open::real_path(&folder, to)?;
    let _owner = open::own(to)?;
    look_into_backup(from)?;
    let io = |what: &'static str| move |error: std::io::Error| StoreError::Refused(format!("{what}: {error}"));
    let half = open::beside(to, "-restoring");
    for left in [half.clone(), open::beside(&half, "-journal")] {
        let _ = std::fs::remove_file(left);
    }
    open::create_private(&half)?;
    let mut into = File::options().write(true).open(&half).map_err(io("the copy cannot be written"))?;
    let copied = File::open(from).and_then(|mut from| std::io::copy(&mut from, &mut into)).and_then(|_| into.sync_all());
    drop(into);
    copied.map_err(io("the backup cannot be copied"))?;
    if to.exists() {
        note_marks(to, &half)?;
    }
    let aside = move_aside(to, now_ms).map_err(io("the store that is there cannot be moved aside"))?;
    std::fs::rename(&half, to).map_err(io("the copy cannot be put in its place"))?;
    open::sync_folder(to)?;
    Ok(aside)
}

/// Writes into the copy how far the store counted that it takes the place of. One that cannot be read tells nothing.
fn note_marks(old: &Path, copy: &Path) -> Result<(), StoreError> {
    let read = |db: &Connection| open::known_version(db, old).is_ok().then(|| super::high_marks(db).ok()).flatten();
    let Some((number, fence)) = open::reading(old).ok().and_then(|db| read(&db)) else { return Ok(()) };
    let put = |db: Connection| {
        for (name, value) in [(NUMBERS_ABOVE, number), (FENCES_ABOVE, fence)] {
            db.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", params![name, value.cast_signed()])?;
        }
        Ok(())
    };
    Connection::open(copy).and_then(put).map_err(|error| StoreError::Refused(format!("the copy cannot be written: {error}")))
}

/// Renames the file and what belongs to it, so that nothing of it is lost or mixed with what takes its place.
fn move_aside(path: &Path, now_ms: i64) -> std::io::Result<Option<PathBuf>> {
    let aside = open::beside(path, &format!(".replaced-{now_ms}"));
    let mut moved = None;
    // The log first: a crash in between leaves a file that is whole but for its last writes, beside a log that has them.
    for ending in ["-wal", "-shm", ""] {
        let from = open::beside(path, ending);
        if from.exists() {
            std::fs::rename(&from, open::beside(&aside, ending))?;
            moved = Some(aside.clone());
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use hapax_store::prelude::*;
    use hapax_store::{Accepted, EventQuery};
    use hapax_testkit::hand_clock::HandClock;
    use hapax_testkit::store_fixture::{START_MS, accept_one, lease, message, notice, webhook};
    use hapax_testkit::store_suite::sending::{ask_out, outgoing};

    use super::super::Options;
    use super::*;

    fn open_at(path: &Path, at_ms: i64) -> SqliteStore {
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        SqliteStore::open(path, Arc::new(HandClock::at(at_ms)), &options).expect("it opens")
    }

    async fn event_count(store: &SqliteStore) -> usize {
        store.events(EventQuery { limit: 100, ..EventQuery::default() }).await.expect("events").rows.len()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_backup_has_what_was_there_and_its_fences_never_go_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (live, file) = (folder.path().join("s.db"), folder.path().join("b.db"));
        let store = open_at(&live, START_MS);
        accept_one(&store, message("m1", "ana")).await;
        store.backup(&file).await.expect("a backup");
        let facts = look_into_backup(&file).expect("it is one");
        assert_eq!((facts.events, facts.keys, facts.made_ms), (1, 1, START_MS));
        accept_one(&store, message("m2", "bob")).await;
        let held = lease(&store, 2).await;
        let highest = held.iter().map(|lease| lease.fence).max().expect("two leases");
        drop(store);

        for round in 1..=2 {
            let aside = restore(&file, &live, START_MS + round).expect("restored");
            assert!(aside.expect("the store of before is kept").exists());
            let store = open_at(&live, START_MS + round);
            assert_eq!(event_count(&store).await, 1, "what came after the backup is gone");
            let again = lease(&store, 2).await;
            assert_eq!(again.len(), 1);
            assert!(again[0].fence > highest, "{:?} is not above {highest:?}", again[0].fence);
        }
    }

    /// Restored to an empty disk twice: nothing tells how far the first restored store counted, but the time does.
    #[tokio::test]
    async fn fences_rise_without_the_store_of_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("b.db");
        let store = open_at(&folder.path().join("s.db"), START_MS);
        accept_one(&store, message("m1", "ana")).await;
        store.backup(&file).await.expect("a backup");
        let mut last = None;
        for round in 1..=2 {
            let place = folder.path().join(format!("r{round}.db"));
            assert_eq!(restore(&file, &place, START_MS).expect("restored"), None);
            let store = open_at(&place, START_MS + round * 1_000);
            let fence = lease(&store, 1).await[0].fence;
            assert!(last.is_none_or(|last| fence > last));
            last = Some(fence);
        }
    }

    #[tokio::test]
    async fn what_waited_to_be_sent_is_in_doubt_after_a_restore() {
        let folder = tempfile::tempdir().expect("a folder");
        let (live, file) = (folder.path().join("s.db"), folder.path().join("b.db"));
        let store = open_at(&live, START_MS);
        store.submit(outgoing("r1", "ana")).await.expect("queued");
        store.backup(&file).await.expect("a backup");
        drop(store);
        restore(&file, &live, START_MS).expect("restored");
        let store = open_at(&live, START_MS + 1_000);
        let leased = store.lease_outbox(ask_out(1)).await.expect("leased");
        assert_eq!(leased[0].in_doubt_since_ms, Some(START_MS + 1_000), "it may have been sent since the backup");
    }

    #[tokio::test]
    async fn what_is_no_backup_is_refused_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (live, file) = (folder.path().join("s.db"), folder.path().join("b.db"));
        let store = open_at(&live, START_MS);
        accept_one(&store, notice("n1")).await;
        store.backup(&file).await.expect("a backup");
        let whole = std::fs::read(&file).expect("a file");
        assert!(matches!(store.backup(&file).await, Err(StoreError::Refused(_))), "a backup overwrites nothing");
        assert_eq!(std::fs::read(&file).expect("a file"), whole);
        assert!(matches!(restore(&file, &live, START_MS), Err(StoreError::Refused(_))), "its hapax still runs");
        drop(store);
        let cut = folder.path().join("cut.db");
        std::fs::write(&cut, &whole[..whole.len() / 2]).expect("written");
        let text = folder.path().join("text.db");
        std::fs::write(&text, "not a database at all, but long enough to look at").expect("written");
        for odd in [cut, text, live.clone(), folder.path().join("none.db")] {
            assert!(restore(&odd, &live, START_MS).is_err(), "{}", odd.display());
            assert_eq!(event_count(&open_at(&live, START_MS)).await, 1, "the store is as it was");
        }
        assert!(!is_empty(&live));
        assert!(is_empty(&folder.path().join("none.db")));
    }

    #[tokio::test]
    async fn copies_are_recognised_in_a_restored_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let (live, file) = (folder.path().join("s.db"), folder.path().join("b.db"));
        let store = open_at(&live, START_MS);
        let first = accept_one(&store, message("m1", "ana")).await;
        store.backup(&file).await.expect("a backup");
        drop(store);
        restore(&file, &live, START_MS).expect("restored");
        let store = open_at(&live, START_MS + 5);
        let again = store.accept(webhook(vec![message("m1", "ana")]).into()).await.expect("an answer");
        assert_eq!(again, [Accepted::Duplicate(first)]);
    }
}
