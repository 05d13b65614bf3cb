//! Which engine: from an address to an open store.

use std::path::Path;
use std::sync::Arc;

use hapax_store::clock::Clock;
use hapax_store::memory::MemoryStore;
use hapax_store::{NaiveClaim, Spelling, Store, StoreError};
#[cfg(feature = "firestore")]
use hapax_store_firestore as firestore;
#[cfg(feature = "mysql")]
use hapax_store_mysql as mysql;
#[cfg(feature = "postgres")]
use hapax_store_postgres as postgres;
#[cfg(feature = "redis")]
use hapax_store_redis as redis;
#[cfg(feature = "sqlite")]
use hapax_store_sqlite as sqlite;
use tokio::sync::mpsc;

use crate::StoreUrl;

/// The bounds of the embedded store. Servers have their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Writes that may wait; more are refused for now.
    pub queue: usize,
    /// Below this much free disk nothing new is taken in.
    pub disk_floor_bytes: u64,
}

/// Opens the engine that a store address names: the one place that knows there are several.
pub async fn open_store(url: &StoreUrl, options: &Options, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, StoreError> {
    match url {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(clock))),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => open_embedded(path, options, clock).await,
        // The clock of a server is its own: instances whose clocks differ still agree when a lease ends.
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(address) => Ok(Arc::new(postgres::open(address.expose(), None).await?)),
        #[cfg(feature = "mysql")]
        StoreUrl::Mysql(address) => Ok(Arc::new(mysql::open(address.expose(), None).await?)),
        #[cfg(feature = "redis")]
        StoreUrl::Redis(address) => Ok(Arc::new(redis::open(address.expose(), None).await?)),
        #[cfg(feature = "firestore")]
        StoreUrl::Firestore(address) => Ok(Arc::new(firestore::open(address.expose(), None).await?)),
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis", feature = "firestore")))]
        other => {
            drop((options, clock));
            let engine = other.engine();
            Err(StoreError::Refused(format!("{other} cannot be opened by this build; turn on the cargo feature `{engine}`")))
        }
    }
}

/// Opens it like [`open_store`]. Where others may put messages into the store by themselves, these are sent like all others, to whom `spelling` says.
pub async fn open_adopting(
    url: &StoreUrl,
    options: &Options,
    clock: Arc<dyn Clock>,
    spelling: Spelling,
) -> Result<Arc<dyn Store>, StoreError> {
    match url {
        #[cfg(feature = "firestore")]
        StoreUrl::Firestore(address) => Ok(Arc::new(firestore::open_adopting(address.expose(), spelling).await?)),
        other => {
            drop(spelling);
            open_store(other, options, clock).await
        }
    }
}

/// Opens the hand-made claim of a server, for `hapax bench` to measure against.
pub async fn open_naive_claim(url: &StoreUrl) -> Result<Arc<dyn NaiveClaim>, StoreError> {
    match url {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(address) => Ok(Arc::new(postgres::naive_claim(address.expose()).await?)),
        #[cfg(feature = "mysql")]
        StoreUrl::Mysql(address) => Ok(Arc::new(mysql::naive_claim(address.expose()).await?)),
        #[cfg(feature = "redis")]
        StoreUrl::Redis(address) => Ok(Arc::new(redis::naive_claim(address.expose()).await?)),
        #[cfg(feature = "firestore")]
        StoreUrl::Firestore(address) => Ok(Arc::new(firestore::naive_claim(address.expose()).await?)),
        other => Err(StoreError::Refused(format!("nobody claims by hand on {other}"))),
    }
}

/// Hands out what a query finds in somebody else's database, each row as the texts of its columns.
pub async fn read_rows(url: &StoreUrl, query: &str, rows: mpsc::Sender<Vec<String>>) -> Result<(), StoreError> {
    match url {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(address) => postgres::read_rows(address.expose(), query, rows).await,
        #[cfg(feature = "mysql")]
        StoreUrl::Mysql(address) => mysql::read_rows(address.expose(), query, rows).await,
        other => {
            drop((query, rows));
            Err(StoreError::Refused(format!("{other} is not asked by SQL")))
        }
    }
}

/// Hands out the keys that fit a pattern in somebody else's Redis.
pub async fn read_keys(url: &StoreUrl, pattern: &str, keys: mpsc::Sender<String>) -> Result<(), StoreError> {
    match url {
        #[cfg(feature = "redis")]
        StoreUrl::Redis(address) => redis::read_keys(address.expose(), pattern, keys).await,
        other => {
            drop((pattern, keys));
            Err(StoreError::Refused(format!("{other} has no keys to look for")))
        }
    }
}

/// Opens the embedded engine on a file.
#[cfg(feature = "sqlite")]
pub async fn open_embedded(path: &Path, options: &Options, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, StoreError> {
    let options =
        sqlite::Options { queue: options.queue, disk_floor_bytes: options.disk_floor_bytes, ..sqlite::Options::default() };
    let path = path.to_owned();
    let opening = tokio::task::spawn_blocking(move || sqlite::SqliteStore::open(&path, clock, &options));
    Ok(Arc::new(opening.await.map_err(|_| StoreError::Closed)??))
}

/// Looks into a backup of the embedded store; refuses what is none.
#[cfg(feature = "sqlite")]
pub fn look_into_backup(path: &Path) -> Result<hapax_store::BackupFacts, StoreError> {
    sqlite::look_into_backup(path)
}

/// True when nothing was ever put into the embedded store on this file, or there is none.
#[cfg(feature = "sqlite")]
pub fn is_empty(path: &Path) -> bool {
    sqlite::is_empty(path)
}

/// Puts a backup in the place of the embedded store on the file `to`, which no process may have open; gives where the former one is now.
#[cfg(feature = "sqlite")]
pub fn restore(from: &Path, to: &Path, now_ms: i64) -> Result<Option<std::path::PathBuf>, StoreError> {
    sqlite::restore(from, to, now_ms)
}

/// Opens the embedded engine on a file, where it is compiled in.
#[cfg(not(feature = "sqlite"))]
pub async fn open_embedded(_path: &Path, _options: &Options, _clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, StoreError> {
    Err(StoreError::Refused("this build has no embedded store".to_owned()))
}
