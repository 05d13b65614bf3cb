//! The steps on plain maps, for the suite.

use std::sync::Arc;

use hapax_store::Store;
use hapax_store::steps::ServerStore;

use super::PlainEngine;
use crate::hand_clock::HandClock;
use crate::store_fixture::{START_MS, StoreFixture};

/// All instances share one engine.
pub struct PlainFixture {
    clock: HandClock,
    engine: Arc<PlainEngine>,
}

impl PlainFixture {
    #[expect(clippy::new_without_default, reason = "a test fixture is made on purpose")]
    pub fn new() -> Self {
        let clock = HandClock::at(START_MS);
        Self { engine: Arc::new(PlainEngine::new(Arc::new(clock.clone()))), clock }
    }
}

impl StoreFixture for PlainFixture {
    fn clock(&self) -> &HandClock {
        &self.clock
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(ServerStore::new(Arc::clone(&self.engine)))
    }

    fn crash(&self) -> Arc<dyn Store> {
        self.open()
    }

    fn shares(&self) -> bool {
        true
    }
}
