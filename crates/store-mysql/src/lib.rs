//! MariaDB 10.6+ and MySQL 8: for several instances, on a server that many already run.
//!
//! - A packet of statements is one round trip ([`sql`]): an accept begins, claims and looks in one of them, and writes and commits in a few more,
//!   however many webhooks share it.
//! - A key is claimed by one multi-row INSERT that takes over what has expired and leaves the rest; whose number stands in the row afterwards
//!   has won ([`tx`]). No SELECT before the INSERT, and no INSERT IGNORE, which would hide other errors.
//! - Deadlocks and waits that took too long are run again, and are never taken for duplicates ([`link`]).
//! - Every transaction inserts a row of its own, which gives it its numbers and afterwards proves that it was committed.
//!
//! Expired keys are removed in small steps, not by dropping partitions: a unique key of a partitioned table must contain what it is partitioned
//! by, and then the same key could be claimed once in every partition.

mod alone;
mod claims;
mod clock;
mod dump;
mod foreign;
mod link;
mod lists;
mod load;
mod naive_claim;
mod open;
mod peers;
mod pieces;
mod registers;
mod rows;
mod save;
mod sql;
mod tx;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use self::link::{Links, Sets};
use self::load::Asked;
use self::sql::Sql;
use self::tx::Beginning;
pub use foreign::read_rows;
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
pub use naive_claim::naive_claim;
pub use tx::MysqlTx;

const INGEST_LINKS: usize = 6;
const WORKER_LINKS: usize = 4;
const ADMIN_LINKS: usize = 3;

/// How long other instances' work may stay unnoticed: MySQL cannot tell us.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The server's clock. `NOW` is when the statement began; the session's zone is UTC, so that no hour comes twice.
const NOW: &str = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";

pub struct MysqlEngine {
    ingest: Arc<Links>,
    workers: Arc<Links>,
    admin: Arc<Links>,
    degraded: Vec<String>,
    packet_max: usize,
    /// In place of the server's clock.
    clock: Option<Arc<dyn Clock>>,
    work: Arc<Notify>,
    copies: Arc<RecentCopies>,
}

/// Opens the database at `mysql://user:password@host/database` and brings its schema up to date. Its clock is the server's, unless one is given.
pub async fn open(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<ServerStore<MysqlEngine>, StoreError> {
    let server = open::server(address).await?;
    let links = |max| Links::new(server.opts.clone(), server.setup.clone(), max);
    let engine = MysqlEngine {
        ingest: links(INGEST_LINKS),
        workers: links(WORKER_LINKS),
        admin: links(ADMIN_LINKS),
        degraded: server.degraded,
        packet_max: server.packet_max,
        clock,
        work: Arc::default(),
        copies: Arc::default(),
    };
    if let Err(error) = engine.follow_clock().await {
        tracing::warn!(%error, "the server's clock could not be followed; purge tries again");
    }
    ServerStore::open(Arc::new(engine)).await
}

impl MysqlEngine {
    /// The present time, to be put into a statement.
    fn now(&self) -> String {
        self.clock.as_ref().map_or_else(|| NOW.to_owned(), |clock| clock.now_ms().to_string())
    }

    fn links(&self, pool: Pool) -> &Arc<Links> {
        match pool {
            Pool::Ingest => &self.ingest,
            Pool::Workers => &self.workers,
            Pool::Admin => &self.admin,
        }
    }

    /// Asks outside any transaction.
    async fn ask(&self, sql: Sql) -> Result<Sets, StoreError> {
        let mut answers = Vec::new();
        for packet in sql.into_packets() {
            let (link, sets) = self.admin.open_with(&packet).await.map_err(|failure| failure.into_error("mysql: read"))?;
            link.give_back();
            answers.push(sets);
        }
        Ok(Sets::chain(answers))
    }

    /// Runs statements that each are a step of their own and may be run twice; again when somebody was in the way.
    async fn write(&self, sql: &str) -> Result<Sets, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.admin.open_with(sql).await {
                Ok((link, sets)) => {
                    link.give_back();
                    return Ok(sets);
                }
                Err(failure) if failure.in_the_way() && tries < WRITE_TRIES => {}
                Err(failure) => return Err(failure.into_error("mysql: write")),
            }
        }
    }
}

const WRITE_TRIES: u32 = 5;

#[async_trait]
impl Engine for MysqlEngine {
    type Tx = MysqlTx;

    /// Half of the connections, since accepts and submits share some of them, and settles and sends others.
    fn in_flight(&self, pool: Pool) -> usize {
        let links: usize = match pool {
            Pool::Ingest => INGEST_LINKS,
            Pool::Workers => WORKER_LINKS,
            Pool::Admin => ADMIN_LINKS,
        };
        links.div_ceil(2)
    }

    async fn begin(&self, pool: Pool, numbers: usize) -> Result<MysqlTx, TxError> {
        self.begin_for(pool, numbers, &First::default()).await
    }

    async fn begin_for(&self, pool: Pool, numbers: usize, first: &First) -> Result<MysqlTx, TxError> {
        let (links, now, copies) = (self.links(pool), self.now(), &self.copies);
        MysqlTx::begin(&Beginning { links, numbers, first, now: &now, packet_max: self.packet_max, copies }).await
    }

    async fn peek(&self, wanted: &Wanted) -> Result<Loaded, StoreError> {
        let Asked { sql, parts } = Asked::new(wanted, false);
        if sql.is_empty() {
            return Ok(Loaded::default());
        }
        Asked::read(&parts, self.ask(sql).await?, Loaded::default())
    }

    async fn list_events(&self, query: &EventQuery, before: Option<u64>, limit: usize) -> Result<Vec<EventRec>, StoreError> {
        lists::events(self, query, before, limit).await
    }

    async fn list_items(&self, query: &InboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<ItemRec>, StoreError> {
        lists::items(self, query, after, limit).await
    }

    async fn list_replays(&self, event: u64) -> Result<Vec<ItemRec>, StoreError> {
        lists::replays(self, event).await
    }

    async fn list_attempts(&self, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError> {
        lists::attempts(self, queue, of).await
    }

    async fn copies(&self, events: &[u64]) -> Result<Vec<Copies>, StoreError> {
        lists::copies(self, events).await
    }

    async fn answer(&self, event: u64) -> Result<Option<Answer>, StoreError> {
        lists::answer(self, event).await
    }

    async fn list_threads(&self, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError> {
        lists::threads(self, query, limit).await
    }

    async fn names_of(&self, account: &str, peer: &str) -> Result<Vec<String>, StoreError> {
        lists::names_of(self, account, peer).await
    }

    async fn thread_entries(
        &self,
        thread: &Hash,
        above: u64,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        lists::thread_entries(self, thread, above, below, limit).await
    }

    async fn list_outs(&self, query: &OutboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<OutRec>, StoreError> {
        lists::outs(self, query, after, limit).await
    }

    async fn paused(&self) -> Result<Vec<PausedAccount>, StoreError> {
        lists::paused(self).await
    }

    async fn pause(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        upkeep::pause(self, channel, account, why).await
    }

    async fn note_copies(&self, copies: &[Copies]) -> Result<(), StoreError> {
        upkeep::note_copies(self, copies).await
    }

    async fn purge_keys(&self, max: usize) -> Result<u64, StoreError> {
        upkeep::purge_keys(self, max).await
    }

    async fn purge_names(&self, before_ms: i64, max: usize) -> Result<u64, StoreError> {
        upkeep::purge_names(self, before_ms, max).await
    }

    async fn follow_clock(&self) -> Result<(), StoreError> {
        clock::follow(self).await
    }

    async fn webhooks_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        upkeep::webhooks_after(self, after, max).await
    }

    async fn events_of(&self, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError> {
        upkeep::events_of(self, webhooks).await
    }

    async fn messages_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        upkeep::messages_after(self, after, max).await
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
        registers::amend(self, name, (expected, new), keep_ms).await
    }

    async fn put_register(&self, name: &str, register: &Register) -> Result<(), StoreError> {
        registers::put(self, name, register).await
    }

    async fn purge_registers(&self, max: usize) -> Result<u64, StoreError> {
        registers::purge(self, max).await
    }

    async fn put_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        pieces::put(self, piece).await
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        pieces::read(self, name, n).await
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        pieces::drop_all(self, name).await
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        pieces::held(self).await
    }

    async fn purge_pieces(&self, max: usize) -> Result<u64, StoreError> {
        pieces::purge(self, max).await
    }

    async fn list_claims(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Result<Vec<ClaimRec>, StoreError> {
        claims::list(self, query, now_ms, limit).await
    }

    async fn count_claims(&self, now_ms: i64) -> Result<ClaimCounts, StoreError> {
        claims::counts(self, now_ms).await
    }

    async fn purge_claims(&self, max: usize) -> Result<u64, StoreError> {
        claims::purge(self, max).await
    }

    async fn list_held(&self, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError> {
        lists::held(self, channel, now_ms, limit).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        upkeep::stats(self).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        clock::mark(self).await.map(|_| ())
    }

    fn promise(&self) -> Promise {
        if self.degraded.is_empty() { Promise::Full } else { Promise::Degraded(self.degraded.clone()) }
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        let heard = Arc::clone(&self.work).notified_owned();
        Box::pin(async move {
            let _ = tokio::time::timeout(LOOK_AGAIN, heard).await;
        })
    }

    fn wake(&self) {
        self.work.notify_waiters();
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        match &self.clock {
            Some(clock) => Ok(clock.now_ms()),
            None => self.write(&format!("SELECT {NOW}")).await?.one(|fields| fields.next()),
        }
    }

    async fn dump(&self, table: Table, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        dump::dump(self, table, after, limit).await
    }

    async fn put_paused(&self, paused: &PausedAccount) -> Result<(), StoreError> {
        dump::put_paused(self, paused).await
    }

    async fn forget(&self, name: &str) -> Result<(), StoreError> {
        dump::forget(self, name).await
    }

    async fn raise_numbers(&self, above: u64) -> Result<(), StoreError> {
        dump::raise_numbers(self, above).await
    }
}
