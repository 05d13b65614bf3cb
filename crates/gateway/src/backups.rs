//! Copies of the store while it runs: for whoever asks over `/v1`, and by themselves at certain times. One at a time.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hapax_store::clock::Clock;
use hapax_store::{Store, StoreError};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::settings::{BackupSchedule, Backups as Settings};
use crate::telemetry::Telemetry;

/// How often it is looked whether a backup is due: a clock that is set and a machine that sleeps move it by no more.
const LOOK_EVERY: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 256 << 10;
/// What backups that are made by themselves are called: this, the time, and `.db`.
const NAME: &str = "hapax-";
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// Makes copies of the store.
pub struct Backups {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    settings: Settings,
    one_at_a_time: Arc<Mutex<()>>,
}

/// A whole copy, to be read once; it has no name any more.
pub struct BackupFile {
    file: File,
    pub bytes: u64,
    _turn: OwnedMutexGuard<()>,
}

/// Why there is no copy.
pub enum NoBackup {
    /// Another one is being made.
    Busy,
    /// The store is on a server; what to use instead.
    OwnTools(String),
    Store(StoreError),
}

impl Backups {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, telemetry: Arc<Telemetry>, settings: Settings) -> Self {
        Self { store, clock, telemetry, settings, one_at_a_time: Arc::default() }
    }

    /// Makes a copy beside the store, for one reader.
    pub async fn make(&self) -> Result<BackupFile, NoBackup> {
        let folder = match &self.settings {
            Settings::OwnTools(tools) => return Err(NoBackup::OwnTools(tools.clone())),
            Settings::Here { beside, .. } => beside,
        };
        let turn = Arc::clone(&self.one_at_a_time).try_lock_owned().map_err(|_| NoBackup::Busy)?;
        let path = folder.join(".hapax-backup.partial");
        // One that a crash has left.
        let _ = std::fs::remove_file(&path);
        let made = self.store.backup(&path).await.and_then(|()| {
            let file = File::open(&path).and_then(|file| file.metadata().map(|meta| (file, meta.len())));
            file.map_err(|error| StoreError::Refused(format!("the backup cannot be read: {error}")))
        });
        // Who has it open reads it to its end, and a crash leaves nothing behind.
        let _ = std::fs::remove_file(&path);
        self.telemetry.backed_up(made.as_ref().map(|_| self.clock.now_ms()).map_err(StoreError::to_string));
        let (file, bytes) = made.map_err(NoBackup::Store)?;
        Ok(BackupFile { file, bytes, _turn: turn })
    }

    /// Makes copies when they are due, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let Settings::Here { schedule: Some(schedule), .. } = &self.settings else { return };
        loop {
            if is_due(schedule, self.clock.now_ms()) {
                let turn = self.one_at_a_time.lock().await;
                let made = self.make_scheduled(schedule).await;
                drop(turn);
                self.telemetry.backed_up(made.map(|()| self.clock.now_ms()));
            }
            if stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// Writes under another name first: what has the final one is whole.
    async fn make_scheduled(&self, schedule: &BackupSchedule) -> Result<(), String> {
        let io = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        std::fs::create_dir_all(&schedule.to).map_err(io("the folder for backups cannot be made"))?;
        let partial = schedule.to.join(".hapax-backup.partial");
        let _ = std::fs::remove_file(&partial);
        let time = jiff::Timestamp::from_millisecond(self.clock.now_ms()).map_err(|error| error.to_string())?;
        let name = format!("{NAME}{}.db", time.strftime(TIME));
        self.store.backup(&partial).await.map_err(|error| error.to_string())?;
        std::fs::rename(&partial, schedule.to.join(&name)).map_err(io("the backup cannot be given its name"))?;
        sync_folder(&schedule.to).map_err(io("the folder for backups cannot be synced"))?;
        for old in too_many(found(&schedule.to), &name, schedule.keep) {
            std::fs::remove_file(schedule.to.join(old)).map_err(io("an old backup cannot be removed"))?;
        }
        Ok(())
    }
}

impl BackupFile {
    /// The bytes of it, in pieces.
    pub fn read(self) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
        stream::try_unfold(self, |mut this| async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut chunk = vec![0; CHUNK_BYTES];
                let length = this.file.read(&mut chunk)?;
                chunk.truncate(length);
                Ok((length > 0).then(|| (Bytes::from(chunk), this)))
            });
            read.await.map_err(std::io::Error::other)?
        })
    }
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// True when no backup is as young as it should be. One from the future was made by a clock that was wrong, and counts for nothing.
fn is_due(schedule: &BackupSchedule, now_ms: i64) -> bool {
    let made = found(&schedule.to).into_iter().filter_map(|name| made_ms(&name));
    !made.into_iter().any(|made| made <= now_ms && now_ms - made < schedule.every_ms)
}

/// The names of our own backups in a folder; nobody else's file is ever looked at.
fn found(folder: &PathBuf) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| made_ms(name).is_some()).collect()
}

fn made_ms(name: &str) -> Option<i64> {
    let time = name.strip_prefix(NAME)?.strip_suffix(".db")?;
    let civil = jiff::civil::DateTime::strptime(TIME, time).ok()?;
    Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// The oldest beyond `keep`; never the one just made.
fn too_many(mut names: Vec<String>, made: &str, keep: usize) -> Vec<String> {
    names.retain(|name| name != made);
    names.sort_unstable();
    let surplus = (names.len() + 1).saturating_sub(keep.max(1));
    names.truncate(surplus);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_time_and_strangers_are_left_alone() {
        assert_eq!(made_ms("hapax-20231114T221320Z.db"), Some(1_700_000_000_000));
        for odd in ["hapax-20231114T221320Z.db.gz", "hapax-.db", "hapax-99999999T999999Z.db", "other.db", "hapax.db"] {
            assert_eq!(made_ms(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_oldest_go_and_the_one_just_made_never() {
        let names = |days: &[u32]| days.iter().map(|day| format!("hapax-202311{day:02}T000000Z.db")).collect::<Vec<_>>();
        assert_eq!(too_many(names(&[3, 1, 2]), "hapax-20231103T000000Z.db", 2), names(&[1]));
        assert_eq!(too_many(names(&[1, 8, 9]), "hapax-20231101T000000Z.db", 1), names(&[8, 9]), "a clock that was set back");
        assert!(too_many(names(&[1]), "hapax-20231101T000000Z.db", 7).is_empty());
    }

    #[test]
    fn a_backup_is_due_by_the_age_of_the_youngest() {
        let folder = tempfile::tempdir().expect("a folder");
        let schedule = BackupSchedule { to: folder.path().to_owned(), every_ms: 3_600_000, keep: 2 };
        let at = 1_700_000_000_000;
        assert!(is_due(&schedule, at));
        std::fs::write(folder.path().join("hapax-20231114T221320Z.db"), "x").expect("written");
        assert!(!is_due(&schedule, at + 3_599_999));
        assert!(is_due(&schedule, at + 3_600_000));
        assert!(is_due(&schedule, at - 1), "the clock was set back: one from the future is none");
    }
}
