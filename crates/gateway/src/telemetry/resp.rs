//! The happenings at the Redis door, with their meters made once.

use std::fmt::Display;
use std::net::IpAddr;

use hapax_store::StoreError;
use metrics::Counter;

use super::sparse::Sparse;
use super::{Telemetry, names};

pub struct RespTelemetry {
    commands: Counter,
    mistakes: Counter,
    broken: Counter,
    not_redis: Counter,
    unknown_scripts: Counter,
    store_failed: Counter,
    attacks: Sparse,
    scripts: Sparse,
    failures: Sparse,
}

impl RespTelemetry {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let refused = |why: &str| telemetry.counter(names::RESP_REFUSED, &[("why", why)]);
        Self {
            commands: telemetry.counter(names::RESP_COMMANDS, &[]),
            mistakes: refused("mistake"),
            broken: refused("protocol"),
            not_redis: refused("http"),
            unknown_scripts: refused("script"),
            store_failed: telemetry.counter(names::STORE_FAILED, &[("call", "claims")]),
            attacks: Sparse::default(),
            scripts: Sparse::default(),
            failures: Sparse::default(),
        }
    }

    /// A command came; `readable`: its words make sense.
    pub fn command(&self, readable: bool) {
        self.commands.increment(1);
        if !readable {
            self.mistakes.increment(1);
        }
    }

    pub fn broken(&self, why: &dyn Display) {
        self.broken.increment(1);
        tracing::debug!(%why, "a client of the Redis door does not speak the protocol; its connection is closed");
    }

    pub fn not_redis(&self, from: IpAddr) {
        self.not_redis.increment(1);
        if let Some(held_back) = self.attacks.pass() {
            tracing::warn!(%from, held_back, "HTTP came to the Redis door, perhaps from a browser that was led there; hung up");
        }
    }

    pub fn unknown_script(&self) {
        self.unknown_scripts.increment(1);
        if let Some(held_back) = self.scripts.pass() {
            tracing::warn!(held_back, "a client of the Redis door sent a script that is not known; see docs/redis-door.md");
        }
    }

    /// Its thread has ended, and nobody wanted that.
    pub fn broke_off(&self) {
        tracing::error!("the Redis door broke off: its thread panicked; it is closed until hapax is started again");
    }

    pub fn store_unavailable(&self, error: &StoreError) {
        self.store_failed.increment(1);
        if let Some(held_back) = self.failures.pass() {
            tracing::warn!(call = "claims", %error, held_back, "the store could not do its job");
        }
    }
}
