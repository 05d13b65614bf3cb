//! A clock that moves only when told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hapax_store::clock::Clock;

/// Clones show the same time.
#[derive(Clone)]
pub struct HandClock {
    now_ms: Arc<AtomicI64>,
    /// How far wall time is ahead.
    wall_ahead_ms: Arc<AtomicI64>,
}

impl HandClock {
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms: Arc::new(AtomicI64::new(now_ms)), wall_ahead_ms: Arc::default() }
    }

    pub fn advance(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Sets the machine's clock without time passing, as after a suspended night.
    pub fn step_wall(&self, by_ms: i64) {
        self.wall_ahead_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn wall_ms(&self) -> i64 {
        self.now_ms() + self.wall_ahead_ms.load(Ordering::SeqCst)
    }
}
