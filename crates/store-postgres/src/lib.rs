//! The `postgres:` engine: any number of instances on one PostgreSQL database.
//!
//! It only keeps records; what they mean is decided in [`hapax_store::steps`]. A step is one transaction of a few round trips: begin with the
//! numbers it needs, claim, load under row locks, and save with the commit, each a pipeline of statements that take whole batches as
//! arrays. Every transaction that writes leaves a nonce, so that a commit whose answer was lost can be looked up.
//!
//! The SQL keeps to what the distributed family shares where it can: no trigger, no advisory lock on the way of a step, no system
//! column. See `docs/postgres.md`.

mod ahead;
mod alone;
mod claim;
mod claims;
mod clock;
mod connect;
mod dump;
mod even;
mod failure;
mod foreign;
mod lanes;
mod lists;
mod load;
mod migrate;
mod naive_claim;
mod notifier;
mod peers;
mod pieces;
mod registers;
mod rows;
mod save;
mod sql_call;
mod tables;
mod texts;
mod tls;
mod tx;
mod upkeep;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use deadpool_postgres::Object;
use futures_util::future::BoxFuture;

use connect::{Pools, Server};
use failure::Failure;
use hapax_domain::age::Dated;
use hapax_store::clock::Clock;
use hapax_store::pieces::Piece;
use hapax_store::registers::Register;
use hapax_store::steps::records::{AttemptRec, ClaimRec, EventRec, Hash, ItemRec, LaneRec, OutRec, Queue, ThreadRec};
use hapax_store::steps::{Engine, Entry, First, Loaded, Pool, RecentCopies, ServerStore, TxError, Wanted};
use hapax_store::{
    After, Answer, ClaimCounts, ClaimQuery, Copies, EventQuery, InboxQuery, Moved, OutboxQuery, PausedAccount, Promise, Stats,
    StoreError, Table, ThreadQuery,
};
use notifier::Notifier;
use tx::Beginning;

pub use foreign::read_rows;
pub use naive_claim::naive_claim;
pub use tx::PostgresTx;

/// One database, seen as records.
pub struct PostgresEngine {
    pools: Pools,
    /// In place of the server's clock, for tests.
    clock: Option<Arc<dyn Clock>>,
    promise: Promise,
    notifier: Notifier,
    copies: Arc<RecentCopies>,
}

/// Reaches the server, looks at its settings, brings the tables up to this version. Several instances may do so at once.
pub async fn open(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<ServerStore<PostgresEngine>, StoreError> {
    let server = Server::new(address)?;
    let found = migrate::prepare(&server).await?;
    let pools = server.pools()?;
    let notifier = Notifier::new(server, &found.schema);
    let engine = PostgresEngine { pools, clock, promise: found.promise, notifier, copies: Arc::default() };
    if let Err(error) = engine.follow_clock().await {
        tracing::warn!(%error, "the server's clock could not be followed; purge tries again");
    }
    ServerStore::open(Arc::new(engine)).await
}

impl PostgresEngine {
    async fn lend(&self) -> Result<Lent, Failure> {
        Ok(Lent(self.pools.get(Pool::Admin).await?))
    }

    async fn time_ms(&self, client: &Lent) -> Result<i64, Failure> {
        match &self.clock {
            Some(clock) => Ok(clock.now_ms()),
            None => upkeep::now_ms(&client.0).await,
        }
    }
}

/// A connection for one question.
struct Lent(Object);

impl Lent {
    /// A connection that failed in any way the server did not explain is not used again.
    fn back<T>(self, answer: Result<T, Failure>) -> Result<T, StoreError> {
        if answer.as_ref().is_err_and(|failure| !failure.is_definite()) {
            drop(Object::take(self.0));
        }
        Ok(answer?)
    }
}

#[async_trait]
impl Engine for PostgresEngine {
    type Tx = PostgresTx;

    /// Half of the connections, since accepts and submits share one pool, and settles and sends the other.
    fn in_flight(&self, pool: Pool) -> usize {
        self.pools.size(pool).div_ceil(2)
    }

    async fn begin(&self, pool: Pool, numbers: usize) -> Result<PostgresTx, TxError> {
        self.begin_for(pool, numbers, &First::default()).await
    }

    async fn begin_for(&self, pool: Pool, numbers: usize, first: &First) -> Result<PostgresTx, TxError> {
        let clock = self.clock.as_deref();
        let how = Beginning { pools: &self.pools, pool, numbers, first, clock, copies: &self.copies };
        match PostgresTx::begin(&how).await {
            // After a restart of the server the pool is full of connections that nobody has tried since.
            Err(Failure::Server(_)) => Ok(PostgresTx::begin(&how).await?),
            begun => Ok(begun?),
        }
    }

    async fn peek(&self, wanted: &Wanted) -> Result<Loaded, StoreError> {
        let client = self.lend().await?;
        let loaded = load::load(&client.0, wanted, false, Loaded::default()).await;
        client.back(loaded)
    }

    async fn list_events(&self, query: &EventQuery, before: Option<u64>, limit: usize) -> Result<Vec<EventRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::events(&client.0, query, before, limit).await;
        client.back(answer)
    }

    async fn list_items(&self, query: &InboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<ItemRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::items(&client.0, query, after, limit).await;
        client.back(answer)
    }

    async fn list_replays(&self, event: u64) -> Result<Vec<ItemRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::replays(&client.0, event).await;
        client.back(answer)
    }

    async fn list_attempts(&self, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::attempts(&client.0, queue, of).await;
        client.back(answer)
    }

    async fn copies(&self, events: &[u64]) -> Result<Vec<Copies>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::copies(&client.0, events).await;
        client.back(answer)
    }

    async fn answer(&self, event: u64) -> Result<Option<Answer>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::answer(&client.0, event).await;
        client.back(answer)
    }

    async fn list_threads(&self, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::threads(&client.0, query, limit).await;
        client.back(answer)
    }

    async fn names_of(&self, account: &str, peer: &str) -> Result<Vec<String>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::names_of(&client.0, account, peer).await;
        client.back(answer)
    }

    async fn thread_entries(
        &self,
        thread: &Hash,
        above: u64,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::entries(&client.0, thread, above, below, limit).await;
        client.back(answer)
    }

    async fn list_outs(&self, query: &OutboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<OutRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::outs(&client.0, query, after, limit).await;
        client.back(answer)
    }

    async fn paused(&self) -> Result<Vec<PausedAccount>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::paused(&client.0).await;
        client.back(answer)
    }

    async fn pause(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let paused = match self.time_ms(&client).await {
            Ok(now_ms) => upkeep::pause(&client.0, channel, account, why, now_ms).await,
            Err(failure) => Err(failure),
        };
        client.back(paused)
    }

    async fn note_copies(&self, copies: &[Copies]) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = upkeep::note_copies(&client.0, copies).await;
        client.back(answer)
    }

    async fn purge_keys(&self, max: usize) -> Result<u64, StoreError> {
        let client = self.lend().await?;
        let purged = match self.time_ms(&client).await {
            Ok(now_ms) => upkeep::purge_keys(&client.0, max, now_ms).await,
            Err(failure) => Err(failure),
        };
        client.back(purged)
    }

    async fn purge_names(&self, before_ms: i64, max: usize) -> Result<u64, StoreError> {
        let client = self.lend().await?;
        let purged = upkeep::purge_names(&client.0, before_ms, max).await;
        client.back(purged)
    }

    async fn follow_clock(&self) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let now_ms = self.clock.as_ref().map(|clock| clock.now_ms());
        let followed = clock::follow(&client.0, now_ms).await;
        client.back(followed)
    }

    async fn webhooks_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::webhooks_after(&client.0, after, max).await;
        client.back(answer)
    }

    async fn events_of(&self, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::events_of(&client.0, webhooks).await;
        client.back(answer)
    }

    async fn messages_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        let client = self.lend().await?;
        let answer = lists::messages_after(&client.0, after, max).await;
        client.back(answer)
    }

    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        Ok(self.amend(name, None, Some(value), None).await?.unwrap_or_default())
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let client = self.lend().await?;
        let now_ms = self.clock.as_ref().map(|clock| clock.now_ms());
        let answer = registers::amend(&client.0, name, (expected, new), keep_ms, now_ms).await;
        client.back(answer)
    }

    async fn put_register(&self, name: &str, register: &Register) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = registers::put(&client.0, name, register).await;
        client.back(answer)
    }

    async fn purge_registers(&self, max: usize) -> Result<u64, StoreError> {
        let client = self.lend().await?;
        let purged = match self.time_ms(&client).await {
            Ok(now_ms) => registers::purge(&client.0, max, now_ms).await,
            Err(failure) => Err(failure),
        };
        client.back(purged)
    }

    async fn put_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = pieces::put(&client.0, piece).await;
        client.back(answer)
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        let client = self.lend().await?;
        let answer = pieces::read(&client.0, name, n).await;
        client.back(answer)
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = pieces::drop_all(&client.0, name).await;
        client.back(answer)
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let client = self.lend().await?;
        let answer = pieces::held(&client.0).await;
        client.back(answer)
    }

    async fn purge_pieces(&self, max: usize) -> Result<u64, StoreError> {
        let client = self.lend().await?;
        let purged = match self.time_ms(&client).await {
            Ok(now_ms) => pieces::purge(&client.0, max, now_ms).await,
            Err(failure) => Err(failure),
        };
        client.back(purged)
    }

    async fn list_claims(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Result<Vec<ClaimRec>, StoreError> {
        let client = self.lend().await?;
        let answer = claims::list(&client.0, query, now_ms, limit).await;
        client.back(answer)
    }

    async fn count_claims(&self, now_ms: i64) -> Result<ClaimCounts, StoreError> {
        let client = self.lend().await?;
        let answer = claims::counts(&client.0, now_ms).await;
        client.back(answer)
    }

    async fn purge_claims(&self, max: usize) -> Result<u64, StoreError> {
        let client = self.lend().await?;
        let purged = match self.time_ms(&client).await {
            Ok(now_ms) => claims::purge(&client.0, max, now_ms).await,
            Err(failure) => Err(failure),
        };
        client.back(purged)
    }

    async fn list_held(&self, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError> {
        let client = self.lend().await?;
        let answer = lanes::held(&client.0, channel, now_ms, limit).await;
        client.back(answer)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let client = self.lend().await?;
        let answer = upkeep::stats(&client.0).await;
        client.back(answer)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let now_ms = self.clock.as_ref().map(|clock| clock.now_ms());
        let answer = clock::mark(&client.0, now_ms).await.map(|_| ());
        client.back(answer)
    }

    fn promise(&self) -> Promise {
        self.promise.clone()
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        self.notifier.wait()
    }

    fn wake(&self) {
        self.notifier.notify();
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        let client = self.lend().await?;
        let now_ms = self.time_ms(&client).await;
        client.back(now_ms)
    }

    async fn dump(&self, table: Table, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        let client = self.lend().await?;
        let answer = dump::dump(&client.0, table, after, limit).await;
        client.back(answer)
    }

    async fn put_paused(&self, paused: &PausedAccount) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = dump::put_paused(&client.0, paused).await;
        client.back(answer)
    }

    async fn forget(&self, name: &str) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = dump::forget(&client.0, name).await;
        client.back(answer)
    }

    async fn raise_numbers(&self, above: u64) -> Result<(), StoreError> {
        let client = self.lend().await?;
        let answer = dump::raise_numbers(&client.0, above).await;
        client.back(answer)
    }
}
