//! The engine's side of the contract, method by method.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_domain::age::Dated;
use hapax_store::pieces::Piece;
use hapax_store::registers::Register;
use hapax_store::steps::records::{AttemptRec, ClaimRec, EventRec, Hash, ItemRec, LaneRec, OutRec, Queue, ThreadRec};
use hapax_store::steps::{Engine, Entry, First, Loaded, Pool, TxError, Wanted};
use hapax_store::{
    After, Answer, ClaimCounts, ClaimQuery, Copies, EventQuery, InboxQuery, Moved, OutboxQuery, PausedAccount, Promise, Stats,
    StoreError, Table, ThreadQuery,
};

use super::FirestoreEngine;
use super::load::load;
use super::read_set::ReadSet;
use super::tx::FirestoreTx;

/// Other instances are not heard of: whoever waits looks so often.
const POLL: Duration = Duration::from_millis(500);

#[async_trait]
impl Engine for FirestoreEngine {
    type Tx = FirestoreTx;

    /// Several small commits at once: a large one is more likely to cross another.
    fn in_flight(&self, pool: Pool) -> usize {
        match pool {
            Pool::Ingest => 8,
            Pool::Workers => 4,
            Pool::Admin => 2,
        }
    }

    async fn begin(&self, pool: Pool, numbers: usize) -> Result<FirestoreTx, TxError> {
        self.begin_for(pool, numbers, &First::default()).await
    }

    /// Every transaction reads the clock: what it is sure to look at is read with it.
    async fn begin_for(&self, pool: Pool, _numbers: usize, first: &First) -> Result<FirestoreTx, TxError> {
        let pass = self.inner.gates.enter(pool).await;
        let mut read_set = ReadSet::default();
        let ahead = read_set.expect(first);
        let got = self.read_with_clock(ahead).await?;
        let begun_micros = got.read_micros;
        read_set.fetched(got);
        let now_ms = self.inner.clock.as_ref().map_or(begun_micros / 1_000, |clock| clock.now_ms());
        Ok(FirestoreTx::new(self, pass, read_set, (now_ms, begun_micros)))
    }

    async fn peek(&self, wanted: &Wanted) -> Result<Loaded, StoreError> {
        load(&self.inner.client, wanted, &mut ReadSet::default()).await
    }

    async fn list_events(&self, query: &EventQuery, before: Option<u64>, limit: usize) -> Result<Vec<EventRec>, StoreError> {
        self.events(query, before, limit).await
    }

    async fn list_items(&self, query: &InboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<ItemRec>, StoreError> {
        self.items(query, after, limit).await
    }

    async fn list_replays(&self, event: u64) -> Result<Vec<ItemRec>, StoreError> {
        self.replays(event).await
    }

    async fn list_attempts(&self, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError> {
        self.attempts(queue, of).await
    }

    async fn copies(&self, events: &[u64]) -> Result<Vec<Copies>, StoreError> {
        self.copies_of(events).await
    }

    async fn answer(&self, event: u64) -> Result<Option<Answer>, StoreError> {
        self.answer_to(event).await
    }

    async fn list_threads(&self, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError> {
        self.threads(query, limit).await
    }

    async fn names_of(&self, account: &str, peer: &str) -> Result<Vec<String>, StoreError> {
        self.names(account, peer).await
    }

    async fn thread_entries(
        &self,
        thread: &Hash,
        above: u64,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.entries(thread, above, below, limit).await
    }

    async fn list_outs(&self, query: &OutboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<OutRec>, StoreError> {
        self.outs(query, after, limit).await
    }

    async fn paused(&self) -> Result<Vec<PausedAccount>, StoreError> {
        self.paused_accounts().await
    }

    async fn pause(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        self.pause_or_resume(channel, account, why).await
    }

    async fn note_copies(&self, copies: &[Copies]) -> Result<(), StoreError> {
        self.add_copies(copies).await
    }

    async fn purge_keys(&self, max: usize) -> Result<u64, StoreError> {
        self.purge_expired(max).await
    }

    async fn webhooks_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        self.carriers_after(after, max).await
    }

    async fn events_of(&self, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError> {
        self.events_of_webhooks(webhooks).await
    }

    async fn messages_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        self.ended_after(after, max).await
    }

    async fn purge_names(&self, before_ms: i64, max: usize) -> Result<u64, StoreError> {
        self.purge_old_names(before_ms, max).await
    }

    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        Ok(self.amend_setting(name, (None, Some(value)), None).await?.unwrap_or_default())
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        self.amend_setting(name, (expected, new), keep_ms).await
    }

    async fn put_register(&self, name: &str, register: &Register) -> Result<(), StoreError> {
        self.put_setting(name, register).await
    }

    async fn purge_registers(&self, max: usize) -> Result<u64, StoreError> {
        self.purge_settings(max).await
    }

    async fn put_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        self.put_file_piece(piece).await
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        self.file_piece(name, n).await
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        self.drop_file(name).await
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.files_held().await
    }

    async fn purge_pieces(&self, max: usize) -> Result<u64, StoreError> {
        self.purge_files(max).await
    }

    async fn list_claims(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Result<Vec<ClaimRec>, StoreError> {
        self.claims_listed(query, now_ms, limit).await
    }

    async fn count_claims(&self, now_ms: i64) -> Result<ClaimCounts, StoreError> {
        self.claims_counted(now_ms).await
    }

    async fn purge_claims(&self, max: usize) -> Result<u64, StoreError> {
        self.claims_purged(max).await
    }

    async fn list_held(&self, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError> {
        self.held_lanes(channel, now_ms, limit).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.count_all().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.prove().await
    }

    fn promise(&self) -> Promise {
        match self.inner.emulated {
            false => Promise::Full,
            true => {
                Promise::Degraded(vec!["firestore: the emulator keeps everything in memory; it is lost when it stops".to_owned()])
            }
        }
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        let hint = self.hint().notified_owned();
        Box::pin(async move {
            let _ = tokio::time::timeout(POLL, hint).await;
        })
    }

    fn wake(&self) {
        self.inner.work.notify_waiters();
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        self.clock_ms().await
    }

    async fn dump(&self, table: Table, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        self.dump_page(table, after, limit).await
    }

    async fn put_paused(&self, paused: &PausedAccount) -> Result<(), StoreError> {
        self.put_pause(paused).await
    }

    async fn forget(&self, name: &str) -> Result<(), StoreError> {
        self.forget_setting(name).await
    }

    async fn raise_numbers(&self, above: u64) -> Result<(), StoreError> {
        self.outgrow(above).await
    }
}
