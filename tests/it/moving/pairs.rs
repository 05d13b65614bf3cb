//! From every store to every store.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use hapax_store::Table;
use hapax_store::clock::Clock;

use super::*;

/// A new fixture of every store that can be moved; none where its server is not installed.
pub(super) async fn fixtures() -> Vec<(&'static str, Option<Box<dyn StoreFixture>>)> {
    vec![
        ("sqlite", Some(Box::new(sqlite()))),
        ("postgres", on(Engine::Postgres, postgres::open).await),
        ("mariadb", on(Engine::Mariadb, mysql::open).await),
        ("redis", on(Engine::Redis, redis::open).await),
        ("firestore", on(Engine::Firestore, firestore::open).await),
    ]
}

async fn on<S: Store>(
    engine: Engine,
    open: impl AsyncFn(&str, Option<Arc<dyn Clock>>) -> Result<S, StoreError> + Send + Sync + 'static,
) -> Option<Box<dyn StoreFixture>> {
    Some(Box::new(ServerFixture::on(engine, open).await?))
}

/// What people do by hand, to everything that was moved: the answers are the same, and so is all that is told afterwards.
pub(super) async fn handle_alike(what: &str, stores: &[Arc<dyn Store>], records: &[Moved]) {
    let (events, messages) = ids(records);
    let mut answers = Vec::new();
    for store in stores {
        let mut said = Vec::new();
        for (n, &id) in messages.iter().enumerate() {
            let changed = if n % 2 == 0 { store.retry_message(id).await } else { store.cancel_message(id).await };
            said.push(format!("{:?}", changed.expect("an answer")));
        }
        for &id in events.iter().step_by(2) {
            said.push(format!("{:?}", store.redrive(Redrive::Event(id), 9).await.expect("an answer")));
            said.push(format!("{:?}", store.redrive(Redrive::Item(hapax_domain::ItemId(id.0)), 9).await.expect("an answer")));
        }
        for row in store.threads(ThreadQuery { limit: 1, ..ThreadQuery::default() }).await.expect("threads").rows {
            said.push(format!("{:?}", store.mark_read(&row.id).await.expect("an answer")));
        }
        let copies = |id: &EventId| hapax_store::Copies { event: *id, copies: 2, conflicts: 0, last_ms: 7, kept: None };
        store.note_copies(events.iter().map(copies).collect()).await.expect("noted");
        said.extend(snapshot(&**store, records).await.iter().map(|line| without_new_names(line, &messages)));
        // What a replay is called is each store's own affair.
        for &id in events.iter().step_by(3) {
            said.push(format!("{:?}", store.replay(id).await.expect("an answer").is_some()));
        }
        answers.push(said);
    }
    answers.iter().for_each(|said| same(&format!("{what}, by hand"), &answers[0], said));
}

/// What a message is called that was queued by hand, out of a kept reply, is each store's own affair too.
fn without_new_names(line: &str, known: &[MessageId]) -> String {
    let mut parts = line.split("msg_");
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_at_checked(32).unwrap_or((part, ""));
        let is_known = known.iter().any(|id| id.to_string().ends_with(name));
        masked.push_str(if is_known { name } else { "new" });
        masked.push_str(rest);
    }
    masked
}

/// Everything goes when its time is over.
async fn end_alike(what: &str, fixtures: &[&dyn StoreFixture], stores: &[Arc<dyn Store>]) {
    let mut left = Vec::new();
    for (fixture, store) in fixtures.iter().zip(stores) {
        fixture.clock().advance(100 * hapax_testkit::store_fixture::WINDOW_MS);
        while store.purge(&[("shop".to_owned(), 1_000)], 50).await.expect("purged").more {}
        let stats = store.stats().await.expect("stats");
        left.push((stats.events, stats.channels, stats.outbox_waiting, stats.outbox_unknown));
    }
    left.iter().for_each(|stats| assert_eq!(&left[0], stats, "{what}"));
}

/// One store to all, and from there back to records: nothing is different anywhere, then and afterwards. Answers with the kinds of
/// record that there were.
async fn move_to_all(name: &str, source: &dyn StoreFixture, seed: u64) -> HashSet<Discriminant<Moved>> {
    let from = filled(source, seed).await;
    let records = export(&*from).await;
    let expected = snapshot(&*from, &records).await;
    let (mut kept, mut stores) = (Vec::new(), vec![from]);
    for (to, fixture) in fixtures().await {
        let Some(fixture) = fixture else { continue };
        let what = format!("seed {seed}, {name} to {to}");
        let store = open_at(&*fixture, source);
        import(&*store, &records).await;
        same(&what, &expected, &snapshot(&*store, &records).await);
        drop(store);
        let store = fixture.crash();
        same(&format!("{what}, after a crash"), &expected, &snapshot(&*store, &records).await);
        same_records(&what, &normal::normal(&records), &normal::normal(&export(&*store).await));
        assert_eq!(store.remember("token", "another").await.expect("remembered"), "a secret's hash", "{what}");
        kept.push(fixture);
        stores.push(store);
    }
    let mut fixtures: Vec<&dyn StoreFixture> = vec![source];
    fixtures.extend(kept.iter().map(|fixture| &**fixture));
    fixtures.iter().for_each(|fixture| fixture.clock().advance(1_000));
    let what = format!("seed {seed}, from {name}");
    handle_alike(&what, &stores, &records).await;
    go_on_alike(&what, &stores, highest(&records)).await;
    end_alike(&what, &fixtures, &stores).await;
    records.iter().map(discriminant).collect()
}

async fn move_from(wanted: &str) {
    let mut kinds = HashSet::new();
    // Six are enough to meet every kind of record.
    for seed in 1_000..1_000 + hapax_testkit::store_compare::sequences(6).max(6) {
        let source = fixtures().await.into_iter().find(|(name, _)| *name == wanted).and_then(|(_, fixture)| fixture);
        let Some(source) = source else { return };
        kinds.extend(move_to_all(wanted, &*source, seed).await);
    }
    assert_eq!(kinds.len(), Table::ALL.len(), "{wanted}: a kind of record was never moved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_from_the_embedded_store_to_all() {
    move_from("sqlite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_from_postgresql_to_all() {
    move_from("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_from_mariadb_to_all() {
    move_from("mariadb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_from_redis_to_all() {
    move_from("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_from_firestore_to_all() {
    move_from("firestore").await;
}

/// Over all stores in a row, and back into the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_all_the_way_round_and_comes_back() {
    for seed in 2_000..2_002 {
        let first = sqlite();
        let from = filled(&first, seed).await;
        let mut records = export(&*from).await;
        let expected = snapshot(&*from, &records).await;
        let mut way: Vec<_> = fixtures().await;
        way.rotate_left(1);
        way.extend(fixtures().await);
        for (name, fixture) in way {
            let Some(fixture) = fixture else { continue };
            let store = open_at(&*fixture, &first);
            import(&*store, &records).await;
            same(&format!("seed {seed}, {name}"), &expected, &snapshot(&*store, &records).await);
            let again = export(&*store).await;
            same_records(&format!("seed {seed}, {name}"), &normal::normal(&records), &normal::normal(&again));
            records = again;
        }
    }
}
