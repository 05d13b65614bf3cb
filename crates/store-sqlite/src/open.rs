//! Opening the file: one owner, a real disk, a schema we know.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hapax_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::claim_index::ClaimSize;
use super::disk;
use super::keys::PeriodSize;

/// How the embedded engine is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Calls waiting for the writer; an accept beyond that is refused as busy.
    pub queue: usize,
    /// Below this much free disk nothing new is taken in.
    pub disk_floor_bytes: u64,
    pub period: PeriodSize,
    pub claims: ClaimSize,
    /// How many items on their way are held in memory; the rest of a longer inbox waits on disk.
    pub window: usize,
}

impl Default for Options {
    fn default() -> Self {
        let (period, claims) = Default::default();
        Self { queue: 8_192, disk_floor_bytes: 64 << 20, period, claims, window: 100_000 }
    }
}

/// Each entry brings the schema from its index to the next; the file's `user_version` says how many were done.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("spans.sql"),
    include_str!("moved.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("turns.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
];

/// "hpax", so that a file of another program is never taken for ours.
pub(super) const APPLICATION_ID: i64 = 0x6870_6178;

/// The log is cut back to this when it is begun anew and once grew beyond.
const LOG_CAP_BYTES: u64 = 64 << 20;

/// How long a lock that somebody else put on the file is waited for; shorter than ingress waits for us, so that it hears what happened.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// The lock that makes this process the only owner of the file. Freed when dropped, or by the system when the process dies.
pub(super) struct Owner(#[expect(dead_code, reason = "held for the lock, never read")] File);

/// Takes the file for this process alone.
///
/// *Invariant:* nobody here opens the database file itself beside SQLite: closing it again would drop the locks that SQLite holds on it.
pub(super) fn own(path: &Path) -> Result<Owner, StoreError> {
    let lock_path = beside(path, "-owner");
    let io = |source: std::io::Error| refused(format!("{} cannot be opened: {source}", lock_path.display()));
    let mut lock = File::options().create(true).truncate(false).read(true).write(true).open(&lock_path).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = lock.read_to_string(&mut owner);
            return Err(refused(format!(
                "{} belongs to another hapax (process {}); stop it first, or talk to it with the other commands",
                path.display(),
                owner.trim()
            )));
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let _ = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
    Ok(Owner(lock))
}

/// The folder the file is in; must exist and be on a disk of this machine.
pub(super) fn folder(path: &Path) -> Result<PathBuf, StoreError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        return Err(refused(format!("the folder {} does not exist; create it, or change `store`", folder.display())));
    }
    match disk::network_filesystem(&folder) {
        Some(name) => Err(refused(on_network(&folder, name))),
        None => Ok(folder),
    }
}

fn on_network(folder: &Path, name: &str) -> String {
    let folder = folder.display();
    format!("{folder} is on {name}, a network filesystem, where neither locks nor syncs can be relied on; use a local disk")
}

/// The file itself, whatever links lead to it: two names of one file must meet at one lock.
pub(super) fn real_path(folder: &Path, path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error: std::io::Error| refused(format!("{} cannot be opened: {error}", path.display()));
    if path.exists() {
        return path.canonicalize().map_err(failed);
    }
    let name = path.file_name().ok_or_else(|| refused(format!("{} names no file", path.display())))?;
    Ok(folder.canonicalize().map_err(failed)?.join(name))
}

/// Makes the file readable for its owner alone before anything is in it: other people's messages will be.
pub(super) fn create_private(path: &Path) -> Result<(), StoreError> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(refused(format!("{} cannot be opened: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Opens the connection that writes, and brings the schema up to date.
pub(super) fn writing(path: &Path) -> Result<Connection, StoreError> {
    create_private(path)?;
    let db = Connection::open(path).map_err(|error| cannot_open(path, error))?;
    db.busy_timeout(LOCK_PATIENCE).map_err(|error| cannot_open(path, error))?;
    // Before anything is set: a file that is not ours stays as it is.
    let version = known_version(&db, path)?;
    prepare(&db).and_then(|()| migrate(&db, version)).map_err(|error| cannot_open(path, error))?;
    // SQLite says no other way that it could not: and without a log nothing here is synced.
    let mode = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let mode = db.pragma_query_value(None, "journal_mode", mode).map_err(|error| cannot_open(path, error))?;
    if mode != "wal" {
        return Err(refused(format!("{} cannot have a write-ahead log there; put it on a local disk", path.display())));
    }
    Ok(db)
}

/// Puts what was found in the log into the file, and syncs both: before anything is answered for it.
///
/// What a killed process wrote and did not sync is seen by this one, and lost when the power goes. A bare sync would not do: the system may
/// have failed to write these pages once and call them clean since. So they are written anew.
pub(super) fn make_durable(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let merge = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
    let (busy, found, merged) =
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], merge).map_err(|error| cannot_open(path, error))?;
    // Busy with all merged means that somebody reads what was merged, so that the log could not be cut.
    if merged < found || (busy != 0 && found < 0) {
        return Err(refused(format!(
            "{} is being used by another program, so what was written last cannot be made safe; end that program",
            path.display()
        )));
    }
    sync_folder(path)
}

/// Makes the names of new files last, as far as the system can.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let synced = if cfg!(unix) { File::open(folder).and_then(|folder| folder.sync_all()) } else { Ok(()) };
    synced.map_err(|error| refused(format!("{} cannot be synced: {error}", folder.display())))
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "page_size", 8_192)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    // Syncs around checkpoints and when the log is begun anew; each commit's sync is made in `sync.rs`, and checkpoints in `merge.rs`.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    db.pragma_update(None, "journal_size_limit", LOG_CAP_BYTES)?;
    db.pragma_update(None, "cache_size", -16_384)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    keep_plans(db)
}

/// A statement is read and planned once in a connection's life.
fn keep_plans(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(512);
    // Without it, statements are planned anew whenever a bound value changes: an eighth of the writer's time.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// How many migrations the file has seen. Refuses files of other programs and of newer versions.
pub(super) fn known_version(db: &Connection, path: &Path) -> Result<usize, StoreError> {
    let read = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let known = |error| cannot_open(path, error);
    let (application, version) = (read("application_id").map_err(known)?, read("user_version").map_err(known)?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(known)?;
    if application != APPLICATION_ID && tables > 0 {
        return Err(refused(format!("{} is a database of another program; choose another file", path.display())));
    }
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > MIGRATIONS.len() {
        return Err(refused(format!(
            "{} was written by a newer hapax (schema {version}, this one knows {}); use that version",
            path.display(),
            MIGRATIONS.len()
        )));
    }
    Ok(version)
}

/// Does the migrations that are missing. Each marks the file as ours in its own commit: a crash in between leaves no stranger behind.
fn migrate(db: &Connection, version: usize) -> rusqlite::Result<()> {
    for (done, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        db.execute_batch(&format!(
            "BEGIN IMMEDIATE; {migration}; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}; COMMIT;",
            done + 1
        ))?;
    }
    Ok(())
}

/// Opens a connection that only reads.
pub(super) fn reading(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.pragma_update(None, "cache_size", -4_096)?;
    keep_plans(&db)?;
    Ok(db)
}

/// The log's file, beside the store's.
pub(super) fn log_path(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn refused(why: String) -> StoreError {
    StoreError::Refused(why)
}

fn cannot_open(path: &Path, error: rusqlite::Error) -> StoreError {
    refused(format!("{} cannot be opened: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use hapax_store::steps::records::read_past;

    use super::*;

    #[test]
    fn a_network_filesystem_is_refused_in_words() {
        let words = on_network(Path::new("/mnt/share"), "NFS");
        assert!(words.contains("a network filesystem, where neither locks nor syncs can be relied on"), "{words}");
    }

    /// NORMAL syncs around checkpoints; OFF would merge into the file what is not safe in the log. The sync of each commit is in `sync.rs`.
    #[test]
    fn checkpoints_sync_the_log_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let db = writing(&folder.path().join("s.db")).expect("opens");
        let read = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).expect("a setting");
        assert_eq!(read("synchronous"), 1, "NORMAL");
        let mode: String = db.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("a setting");
        assert_eq!(mode, "wal");
        assert_eq!((read("application_id"), read("user_version")), (APPLICATION_ID, MIGRATIONS.len() as i64));
    }

    /// Version 3 left the former name on a message that a person had retried; one that is being sent keeps the name it has.
    #[test]
    fn a_message_that_was_retried_before_the_upgrade_has_its_name_behind_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        let old = Connection::open(&path).expect("opens");
        for (done, migration) in MIGRATIONS[..3].iter().enumerate() {
            let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}", done + 1);
            old.execute_batch(&format!("BEGIN; {migration}; {marks}; COMMIT")).expect("version 3");
        }
        for (number, begun) in [(1, "NULL"), (2, "5")] {
            old.execute_batch(&format!(
                "INSERT INTO messages VALUES ({number}, 1, 1, '7', '55', x'0{number}', 'r{number}', x'00', 'hi', x'7b7d', 1, NULL, 9, 0,
                     'w{number}', 'queued 1', NULL);
                 INSERT INTO outbox VALUES ({number}, 1, '7', 7, NULL, 1, 1, 1, {begun}, 0)"
            ))
            .expect("a message of version 3");
        }
        drop(old);
        let db = writing(&path).expect("it is brought up to date");
        let read = |number: i64| {
            let sql = "SELECT provider_id, past FROM messages WHERE number = ?1";
            db.query_row(sql, [number], |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?)))
                .expect("it is there")
        };
        let (name, past) = read(1);
        let rounds = read_past(past.as_deref()).rounds;
        assert_eq!((name, rounds.len(), rounds[0].provider_id.as_deref()), (None, 1, Some("w1")));
        assert_eq!(read(2), (Some("w2".to_owned()), None));
        let leads_to: i64 = db
            .query_row("SELECT number FROM provider_names WHERE account = '7' AND provider_id = 'w1'", [], |row| row.get(0))
            .expect("the former name still leads to it");
        assert_eq!(leads_to, 1);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_a_new_store() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        let db = writing(&path).expect("opens");
        db.execute_batch("INSERT INTO meta VALUES ('x', 1)").expect("a write, so that there is a log");
        for file in [path.clone(), log_path(&path)] {
            let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", file.display());
        }
    }
}
