//! What must be done now and then: count copies, purge, measure. Never in the way of accept.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hapax_store::clock::Clock;
use hapax_store::{Purged, Store, StoreError, in_time};
use tokio_util::sync::CancellationToken;

use crate::api::outbox::oldest_waiting;
use crate::api::{History, PurgeLog, purge_step};
use crate::channels::Channels;
use crate::ingress::Ingress;
use crate::ingress::spool::Spool;
use crate::telemetry::Telemetry;

const TICK: Duration = Duration::from_secs(1);
const FOLD_TICKS: u64 = 5;
const PING_TICKS: u64 = 5;
const SIZES_TICKS: u64 = 10;
const HISTORY_TICKS: u64 = 10;
const PURGE_TICKS: u64 = 60;
/// A store that hangs must not keep the rest of the upkeep from being done.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two purge steps, so that accept always comes in between.
const PURGE_PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Upkeep {
    pub(super) tended: Arc<Tended>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) spool: Option<Arc<Spool>>,
    pub(super) purges: Arc<PurgeLog>,
    pub(super) history: Arc<History>,
}

/// What a reload replaces.
pub(super) struct Tended(RwLock<Arc<Tends>>);

pub(super) struct Tends {
    pub(super) ingress: Arc<Ingress>,
    /// The channels that can send.
    sending: Vec<String>,
    /// By channel.
    retention: Vec<(String, i64)>,
}

impl Tends {
    pub(super) fn new(channels: &Channels, ingress: &Arc<Ingress>) -> Self {
        let sending = channels.iter().filter(|channel| channel.sending.is_some());
        Self {
            ingress: Arc::clone(ingress),
            sending: sending.map(|channel| channel.name().to_string()).collect(),
            retention: channels.retention(),
        }
    }
}

impl Tended {
    pub(super) fn new(tends: Tends) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(tends))))
    }

    pub(super) fn now(&self) -> Arc<Tends> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put(&self, tends: Tends) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tends);
    }
}

impl Upkeep {
    /// Runs until `stop`. A store that is closed never opens again in this process: then `stop_all` is called, and the error given back,
    /// so that whoever watches over the process can start a new one.
    pub(super) async fn run(self, stop: CancellationToken, stop_all: CancellationToken) -> Result<(), StoreError> {
        let this = Arc::new(self);
        let purging = tokio::spawn({
            let (this, stop) = (Arc::clone(&this), stop.clone());
            async move { this.purge_now_and_then(&stop).await }
        });
        let mut tick = 0;
        let mut health = Ok(());
        while stop.run_until_cancelled(tokio::time::sleep(TICK)).await.is_some() {
            tick += 1;
            this.tended.now().ingress.flush_copies().await;
            this.history.collect().await;
            if tick % HISTORY_TICKS == 0 {
                this.keep_history().await;
            }
            if tick % FOLD_TICKS == 0 {
                this.telemetry.upkeep();
            }
            if tick % SIZES_TICKS == 1 {
                this.measure().await;
            }
            if tick % PING_TICKS == 0
                && let Err(closed @ StoreError::Closed) = in_time("pinging", PATIENCE, this.store.ping()).await
            {
                this.telemetry.store_unavailable("ping", &closed);
                health = Err(closed);
                stop_all.cancel();
            }
        }
        this.tended.now().ingress.flush_copies().await;
        this.keep_history().await;
        // It ends at its next pause; a panic in it has been reported already.
        let _ = purging.await;
        health
    }

    async fn keep_history(&self) {
        if let Err(error) = self.history.flush().await {
            self.telemetry.store_unavailable("amend", &error);
        }
    }

    async fn measure(&self) {
        self.telemetry.memory(self.tended.now().ingress.memory());
        self.telemetry.promise(&self.store.promise());
        if let Some(spool) = &self.spool {
            match spool.counts().await {
                Ok(counts) => self.telemetry.spool(&counts, self.clock.now_ms()),
                Err(error) => self.telemetry.store_unavailable("spool", &error),
            }
        }
        match in_time("counting", PATIENCE, self.store.stats()).await {
            Ok(stats) => {
                self.telemetry.sizes(&stats, self.clock.now_ms());
                self.measure_outbox(stats.outbox_waiting > 0).await;
            }
            Err(error) => self.telemetry.store_unavailable("stats", &error),
        }
    }

    /// The age of the oldest message that is not in doubt, where anything waits at all.
    async fn measure_outbox(&self, anything: bool) {
        for channel in &self.tended.now().sending {
            let looking = async { if anything { oldest_waiting(&*self.store, Some(channel)).await } else { Ok(None) } };
            let oldest_ms = match in_time("looking into the outbox", PATIENCE, looking).await {
                Ok(oldest_ms) => oldest_ms,
                Err(error) => return self.telemetry.store_unavailable("outbox", &error),
            };
            self.telemetry.oldest_outgoing(channel, oldest_ms, self.clock.now_ms());
        }
    }

    /// What has gone to the store leaves the spool for good.
    async fn purge_spool(&self, stop: &CancellationToken) {
        let Some(spool) = &self.spool else { return };
        loop {
            match spool.purge().await {
                Ok(step) if step.more => {}
                Ok(_) => return,
                Err(error) => return self.telemetry.store_unavailable("spool", &error),
            }
            if stop.run_until_cancelled(tokio::time::sleep(PURGE_PAUSE)).await.is_none() {
                return;
            }
        }
    }

    async fn purge_now_and_then(&self, stop: &CancellationToken) {
        self.tended.now().ingress.recount_suspects().await;
        while stop.run_until_cancelled(tokio::time::sleep(TICK * PURGE_TICKS as u32)).await.is_some() {
            self.tended.now().ingress.recount_suspects().await;
            self.purge_spool(stop).await;
            let (removed, ended) = self.purge_all(stop).await;
            self.telemetry.purged(removed);
            if ended {
                let now_ms = self.clock.now_ms();
                self.purges.record(now_ms, removed);
                self.telemetry.purge_ended(now_ms);
            }
        }
    }

    /// What was removed, and whether it came to its end: a run that failed is none.
    async fn purge_all(&self, stop: &CancellationToken) -> (Purged, bool) {
        let mut all = Purged::default();
        loop {
            match purge_step(&*self.store, &self.tended.now().retention).await {
                Ok(step) => all = all.and(step),
                Err(error) => {
                    self.telemetry.store_unavailable("purge", &error);
                    return (all, false);
                }
            }
            if !all.more {
                return (all, true);
            }
            if stop.run_until_cancelled(tokio::time::sleep(PURGE_PAUSE)).await.is_none() {
                return (all, false);
            }
        }
    }
}
