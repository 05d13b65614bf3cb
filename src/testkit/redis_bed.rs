//! The Redis engine on a server that the environment names, each bed under a prefix of its own.

use std::sync::Arc;

use super::hand_clock::HandClock;
use super::store_bed::{Bed, START_MS};
use crate::store::Store;
use crate::store::redis::RedisStore;

pub struct RedisBed {
    clock: HandClock,
    address: String,
}

impl RedisBed {
    /// `server` is an address without a prefix.
    pub fn new(server: &str) -> Self {
        let address = format!("{server}?prefix=bed-{:x}", rand::random::<u64>());
        Self { clock: HandClock::at(START_MS), address }
    }

    /// The address with this bed's prefix.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn open_engine(&self) -> RedisStore {
        let opening = crate::store::redis::open(&self.address, Some(Arc::new(self.clock.clone())));
        let opened = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opening));
        opened.unwrap_or_else(|error| unreachable!("the server can hold a store: {error}"))
    }
}

impl Bed for RedisBed {
    fn clock(&self) -> &HandClock {
        &self.clock
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.open_engine())
    }

    /// The server goes on, and so do the leases of the dead instance until they end.
    fn crash(&self) -> Arc<dyn Store> {
        self.open()
    }

    fn shares(&self) -> bool {
        true
    }
}
