//! What a webhook costs a server in rows, and that who writes rows in batches never waits in a circle.

use std::sync::Arc;

use hapax_domain::Event;
use hapax_store::{InboxQuery, Outcome, Store, StoreError};
use hapax_testkit::servers::{Engine, Server};
use hapax_testkit::store_fixture::{accept, accept_one, lease, message, webhook};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::redis_store::DELIVERED;

async fn open(engine: Engine, url: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match engine {
        Engine::Postgres => Arc::new(hapax_store_postgres::open(url, None).await?),
        _ => Arc::new(hapax_store_mysql::open(url, None).await?),
    })
}

/// What waits is counted and listed; whether it has a row of its own is told by the tables.
async fn check(store: &dyn Store, server: &Server, url: &str, waiting: usize, has_row: bool) {
    let listed = store.inbox(InboxQuery { limit: 9, ..InboxQuery::default() }).await.expect("listed").rows;
    assert_eq!(listed.len(), waiting);
    let counted = store.stats().await.expect("counted").channels.first().map_or(0, |shop| shop.waiting + shop.leased);
    assert_eq!(counted as usize, waiting);
    let filled = server.first_rows(url).await;
    assert_eq!(filled.iter().any(|table| table == "hapax_items"), has_row, "{filled:?}");
    assert_eq!(filled.iter().any(|table| table == "hapax_lanes"), waiting > 0, "{filled:?}");
}

async fn an_item_that_is_alone_has_no_row_until_it_is_tried(engine: Engine) {
    let Some(server) = engine.shared().await else { return };
    let url = server.fresh().await;
    let store = open(engine, &url).await.expect("it opens");
    let store = &*store;
    let settle = async |outcome: Outcome| {
        let held = lease(store, 1).await.remove(0);
        store.settle_inbox(held.lane, held.fence, outcome).await.expect("settled");
    };
    accept_one(store, message("1", "ana")).await;
    check(store, &server, &url, 1, false).await;
    settle(DELIVERED).await;
    check(store, &server, &url, 0, false).await;

    // It is tried and fails; then it is alone no longer, and nor is what comes behind it.
    let event = accept_one(store, message("2", "ana")).await;
    settle(Outcome::Retry { wait_ms: 0, why: "busy".to_owned() }).await;
    check(store, &server, &url, 1, true).await;
    let held = lease(store, 1).await.remove(0);
    assert_eq!((held.attempt, held.failures, held.events[0].id), (2, 1, event));
    store.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
    check(store, &server, &url, 0, false).await;

    for id in ["3", "4"] {
        accept_one(store, message(id, "ana")).await;
    }
    check(store, &server, &url, 2, true).await;
    settle(DELIVERED).await;
    settle(DELIVERED).await;
    check(store, &server, &url, 0, false).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_is_alone_has_no_row_on_postgres() {
    an_item_that_is_alone_has_no_row_until_it_is_tried(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_is_alone_has_no_row_on_mariadb() {
    an_item_that_is_alone_has_no_row_until_it_is_tried(Engine::Mariadb).await;
}

/// Ten people in each webhook, in any order, each under both names, whichever comes first; twelve such callers on two instances, who all meet the same
/// people, whom nobody knows at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_write_the_same_names_never_wait_in_a_circle() {
    let Some(private) = Engine::Postgres.private().await else { return };
    let url = private.fresh().await;
    let stores = [open(Engine::Postgres, &url).await.expect("opens"), open(Engine::Postgres, &url).await.expect("opens")];
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..12_u64 {
        let store = Arc::clone(&stores[caller as usize % 2]);
        callers.spawn(async move {
            let mut random = StdRng::seed_from_u64(caller);
            for round in 0..15 {
                let mut people: Vec<u64> = (0..10).map(|n| round * 10 + n).collect();
                people.shuffle(&mut random);
                let from = |(n, person): (usize, &u64)| {
                    let (phone, lid) = (format!("phone{person}"), format!("lid{person}"));
                    let id = format!("{caller}.{round}.{n}");
                    let (peer, other) = if random.random() { (phone, lid) } else { (lid, phone) };
                    Event { aliases: vec![other], ..message(&id, &peer) }
                };
                let events: Vec<Event> = people.iter().enumerate().map(from).collect();
                let accepted = accept(&*store, webhook(events)).await;
                assert!(accepted.iter().all(|one| one.is_new()));
            }
        });
    }
    callers.join_all().await;
    drop(stores);
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it answers");
    tokio::spawn(connection);
    let count = async |sql: &str| client.query_one(sql, &[]).await.expect("it answers").get::<_, i64>(0);
    // A connection tells what it met when it ends.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    crate::rig::eventually("the others have left", async || count(others).await == 0).await;
    assert_eq!(count("SELECT count(*) FROM hapax_events").await, 12 * 15 * 10);
    assert_eq!(count("SELECT sum(deadlocks)::int8 FROM pg_stat_database").await, 0, "circles that the server had to break");
}

/// People who are known by two names: one instance hears of them by the name that leads to their thread, the other by both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_by_another_name_and_who_comes_by_both_do_not_wait_in_a_circle() {
    let Some(private) = Engine::Postgres.private().await else { return };
    let url = private.fresh().await;
    let stores = [open(Engine::Postgres, &url).await.expect("opens"), open(Engine::Postgres, &url).await.expect("opens")];
    let both =
        |id: String, person: u64| Event { aliases: vec![format!("lid{person}")], ..message(&id, &format!("phone{person}")) };
    for person in 0..10 {
        accept_one(&*stores[0], both(format!("first.{person}"), person)).await;
    }
    let mut callers = tokio::task::JoinSet::new();
    for (caller, store) in stores.iter().enumerate() {
        let store = Arc::clone(store);
        callers.spawn(async move {
            for n in 0..200_u64 {
                let (id, person) = (format!("{caller}.{n}"), n % 10);
                let event = if caller == 0 { message(&id, &format!("lid{person}")) } else { both(id, person) };
                accept_one(&*store, event).await;
            }
        });
    }
    callers.join_all().await;
    drop(stores);
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it answers");
    tokio::spawn(connection);
    let count = async |sql: &str| client.query_one(sql, &[]).await.expect("it answers").get::<_, i64>(0);
    let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    crate::rig::eventually("the others have left", async || count(others).await == 0).await;
    assert_eq!(count("SELECT sum(deadlocks)::int8 FROM pg_stat_database").await, 0, "circles that the server had to break");
}
