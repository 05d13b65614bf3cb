//! Keeps the transactions of one instance from crossing each other.
//!
//! Nothing is locked on the server, so transactions that want the same thread come to nothing but one. As long as that does not happen,
//! several run at once. Once it has happened, those of the same pool go one by one for a while; calls that wait are then taken together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax_store::steps::Pool;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// So many transactions go one by one after two have crossed.
const CALM: u32 = 32;
/// Nobody waits longer for the one before: crossing is only a waste.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Gates {
    ingest: Arc<Gate>,
    workers: Arc<Gate>,
    admin: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    one: Arc<Mutex<()>>,
    /// How many are still to go one by one.
    left: AtomicU32,
}

/// The right to run a transaction, for as long as it is held.
pub(super) struct Pass {
    gate: Arc<Gate>,
    _alone: Option<OwnedMutexGuard<()>>,
}

impl Gates {
    pub(super) async fn enter(&self, pool: Pool) -> Pass {
        let gate = match pool {
            Pool::Ingest => &self.ingest,
            Pool::Workers => &self.workers,
            Pool::Admin => &self.admin,
        };
        let alone = match gate.left.load(Ordering::Relaxed) {
            0 => None,
            _ => tokio::time::timeout(PATIENCE, Arc::clone(&gate.one).lock_owned()).await.ok(),
        };
        Pass { gate: Arc::clone(gate), _alone: alone }
    }
}

impl Pass {
    pub(super) fn crossed(&self) {
        self.gate.left.store(CALM, Ordering::Relaxed);
    }

    pub(super) fn went_well(&self) {
        let _ = self.gate.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    }
}
