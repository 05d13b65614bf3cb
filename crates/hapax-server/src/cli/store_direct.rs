//! The store itself, for commands that work on it while no server does.

use std::sync::Arc;

use hapax::StoreUrl;
use hapax_store::clock::SystemClock;
use hapax_store::{Store, StoreError};

use super::{Failure, Global, load_config};
use crate::config::Flags;

/// Opens the store that the flag or the config names; with `there`, it must have been made before.
pub(super) async fn open(global: &Global, store: Option<String>, there: bool) -> Result<Arc<dyn Store>, Failure> {
    let flags = Flags { store, ..Flags::default() };
    let config = load_config(global, flags)?;
    if let StoreUrl::Sqlite(path) = &config.store
        && there
        && !path.exists()
    {
        return Err(Failure::Unreachable(format!("there is no store at {}; name the right one with --store", path.display())));
    }
    let opened = hapax::open_store(&config.store, &config.engine, Arc::new(SystemClock::new())).await;
    opened.map_err(|error| Failure::Unreachable(error.to_string()))
}

/// What a store that failed means for the command.
pub(super) fn failed(error: StoreError) -> Failure {
    if error.retryable() { Failure::Unreachable(error.to_string()) } else { Failure::plain(error.to_string()) }
}
