//! Fixtures on real servers: each `open` is another instance that shares the data with the others.

use std::sync::Arc;

use hapax_store::clock::Clock;
use hapax_store::{Store, StoreError};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::hand_clock::HandClock;
use super::servers::{Engine, Server};
use super::store_compare::compare;
use super::store_fixture::{START_MS, StoreFixture};

type Open = Box<dyn Fn(Arc<dyn Clock>) -> Result<Arc<dyn Store>, StoreError> + Send + Sync>;

/// A store of its own on the server that all tests share. Its tests run on several threads, since `open` waits for the server.
pub struct ServerFixture {
    clock: HandClock,
    server: Server,
    url: String,
    open: Open,
    /// What a new store holds by itself.
    first_rows: Vec<String>,
}

impl ServerFixture {
    /// `open` is the engine's own, such as `store::postgres::open`: given a clock, it goes by that and not by the server's. `None`: the
    /// server is not installed.
    pub async fn on<S: Store>(
        engine: Engine,
        open: impl AsyncFn(&str, Option<Arc<dyn Clock>>) -> Result<S, StoreError> + Send + Sync + 'static,
    ) -> Option<Self> {
        let server = engine.shared().await?;
        let url = server.fresh().await;
        let address = url.clone();
        let open: Open = Box::new(move |clock| {
            let opening = open(&address, Some(clock));
            let opened = tokio::task::block_in_place(|| Handle::current().block_on(opening));
            Ok(Arc::new(opened?))
        });
        let mut fixture = Self { clock: HandClock::at(START_MS), server, url, open, first_rows: Vec::new() };
        drop(fixture.open());
        fixture.first_rows = fixture.server.first_rows(&fixture.url).await;
        Some(fixture)
    }

    /// Makes the store as new, without its past. Nobody may have it open. Firestore's emulator remembers what is gone, and gets slower by it: there it is
    /// another store.
    async fn renewed<S: Store>(
        self,
        engine: Engine,
        open: &(impl AsyncFn(&str, Option<Arc<dyn Clock>>) -> Result<S, StoreError> + Send + Sync + Clone + 'static),
    ) -> Self {
        if engine == Engine::Firestore
            && let Some(another) = Self::on(engine, open.clone()).await
        {
            self.remove().await;
            return another;
        }
        self.server.empty(&self.url, &self.first_rows).await;
        self
    }

    /// Removes the store.
    pub async fn remove(self) {
        self.server.remove(&self.url).await;
    }
}

/// How many sequences run at the same time.
const LANES: u64 = 4;

/// Compares an engine with the model over many random sequences. Does nothing where the server is not installed.
pub async fn compare_with_model<S: Store>(
    engine: Engine,
    open: impl AsyncFn(&str, Option<Arc<dyn Clock>>) -> Result<S, StoreError> + Send + Sync + Clone + 'static,
    sequences: u64,
) {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let Some(mut fixture) = ServerFixture::on(engine, open.clone()).await else { return };
        let open = open.clone();
        lanes.spawn(async move {
            for seed in (lane..sequences).step_by(LANES as usize) {
                compare(&fixture, seed).await;
                fixture = fixture.renewed(engine, &open).await;
            }
            fixture.remove().await;
        });
    }
    lanes.join_all().await;
}

impl StoreFixture for ServerFixture {
    fn clock(&self) -> &HandClock {
        &self.clock
    }

    fn open(&self) -> Arc<dyn Store> {
        let opened = (self.open)(Arc::new(self.clock.clone()));
        opened.unwrap_or_else(|error| unreachable!("a fresh store opens: {error}"))
    }

    fn crash(&self) -> Arc<dyn Store> {
        self.open()
    }

    fn may_be_set_back(&self) -> bool {
        self.server.engine() != Engine::Firestore
    }

    fn shares(&self) -> bool {
        true
    }
}
