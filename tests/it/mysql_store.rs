//! The `mysql:` engine on a real MariaDB: the whole suite, the comparison with the model, and what only this engine can get wrong.

mod records;

use std::time::{Duration, Instant};

use hapax_store::prelude::*;
use hapax_store::steps::records::{Hash, LaneRec, Queue};
use hapax_store::steps::{Changes, Due, Engine as _, Pool, ServerStore, Tx, TxError, Wanted};
use hapax_store::{Accepted, Arrival, EventQuery, Promise, Reads, StoreError, ThreadQuery};
use hapax_store_mysql as mysql;
use hapax_store_mysql::MysqlEngine;
use hapax_testkit::cutting_proxy::CuttingProxy;
use hapax_testkit::server_fixtures::{ServerFixture, compare_with_model};
use hapax_testkit::servers::Engine;
use hapax_testkit::store_compare::sequences;
use hapax_testkit::store_fixture::{accept, message, webhook};
use hapax_testkit::store_suite::sending::outgoing;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

hapax_testkit::store_suite!(ServerFixture::on(Engine::Mariadb, mysql::open).await);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_at_once_are_told_apart() {
    if let Some(fixture) = ServerFixture::on(Engine::Mariadb, mysql::open).await {
        crate::stores::replays_at_once_are_told_apart(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_not_purged_with_its_event() {
    if let Some(fixture) = ServerFixture::on(Engine::Mariadb, mysql::open).await {
        crate::stores::a_replay_is_not_purged_with_its_event(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_answers_like_the_model() {
    compare_with_model(Engine::Mariadb, mysql::open, sequences(150)).await;
}

/// A store in a database of its own on the server that all tests share. `None`: it is not installed.
async fn fresh() -> Option<(String, ServerStore<MysqlEngine>)> {
    let url = Engine::Mariadb.shared().await?.fresh().await;
    let store = mysql::open(&url, None).await.expect("a fresh database opens");
    Some((url, store))
}

async fn run(url: &str, sql: &str) {
    let mut conn = Conn::from_url(url).await.expect("the server answers");
    conn.query_drop(sql).await.expect("it takes the statement");
    conn.disconnect().await.expect("a goodbye");
}

/// Goes back to the two tables that names and threads had before version 9.
async fn part_names_from_threads(url: &str) {
    let threads =
        "CREATE TABLE hapax_threads SELECT hash, account, name AS peer, channel, last_ms, last_text, last_out, unread, purged_to,
                   read_to, channel_key, account_key FROM hapax_peers WHERE last_ms IS NOT NULL";
    let names = "CREATE TABLE hapax_names SELECT hash, account, name, peer, thread FROM hapax_peers WHERE thread IS NOT NULL";
    for sql in [threads, names, "DROP TABLE hapax_peers"] {
        run(url, sql).await;
    }
}

async fn count(url: &str, sql: &str) -> u64 {
    let mut conn = Conn::from_url(url).await.expect("the server answers");
    let count = conn.query_first(sql).await.expect("it takes the statement");
    conn.disconnect().await.expect("a goodbye");
    count.expect("a row")
}

fn lane(n: u8) -> LaneRec {
    LaneRec {
        hash: [n; 32],
        queue: Queue::Inbox,
        channel: "shop".into(),
        account: String::new(),
        priority: hapax_domain::Priority::Normal,
        first: u64::from(n),
        due_ms: 0,
        held: None,
        peer: None,
        joined_to: None,
        joined: vec![],
        turn: None,
        alone_ms: None,
    }
}

async fn save(store: &ServerStore<MysqlEngine>, changes: Changes) {
    let mut tx = store.engine().begin(Pool::Workers, 0).await.expect("begun");
    tx.save(changes).await.expect("saved");
    tx.commit().await.expect("committed");
}

fn lanes(hashes: &[Hash]) -> Wanted {
    Wanted { lanes: hashes.to_vec(), ..Wanted::default() }
}

/// In a database whose texts compare without case, accents or trailing blanks, as most are.
#[tokio::test]
async fn names_that_a_collation_takes_for_one_are_two() {
    let Some((url, store)) = fresh().await else { return };
    let database = url.rsplit('/').next().expect("a database");
    drop(store);
    run(&url, &format!("DROP DATABASE {database}; CREATE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"))
        .await;
    let store = mysql::open(&url, None).await.expect("it opens");
    let ids = ["wamid.Ab", "wamid.aB", "wamid.aB ", "wamid.aB\u{301}"];
    for id in ids {
        for again in [false, true] {
            let accepted = accept(&store, webhook(vec![message(id, id)])).await;
            assert_eq!(matches!(accepted[0], Accepted::New(_)), !again, "{id:?}");
        }
    }
    let threads = store.threads(ThreadQuery { limit: 10, ..ThreadQuery::default() }).await.expect("listed").rows;
    assert_eq!(threads.len(), ids.len());
    for thread in threads {
        let query = EventQuery { thread: Some(thread.id.clone()), limit: 10, ..EventQuery::default() };
        assert_eq!(store.events(query).await.expect("listed").rows.len(), 1, "{}", thread.id);
        let said = store.thread_messages(&thread.id, None, 10).await.expect("listed").rows;
        assert_eq!(said[0].provider_id.as_deref(), Some(thread.id.peer.as_str()));
    }
}

#[tokio::test]
async fn a_deadlock_is_run_again_and_the_other_goes_on() {
    let Some((_, store)) = fresh().await else { return };
    save(&store, Changes { new_lanes: vec![lane(1), lane(2)], ..Changes::default() }).await;
    let engine = store.engine();
    let mut one = engine.begin(Pool::Workers, 0).await.expect("begun");
    let mut other = engine.begin(Pool::Workers, 0).await.expect("begun");
    one.load(&lanes(&[[1; 32]])).await.expect("locked");
    other.load(&lanes(&[[2; 32]])).await.expect("locked");
    let (crossed_one, crossed_other) = (lanes(&[[2; 32]]), lanes(&[[1; 32]]));
    let (first, second) = tokio::join!(one.load(&crossed_one), other.load(&crossed_other));
    let (won, lost) = if first.is_ok() { (first, second) } else { (second, first) };
    assert_eq!(won.expect("one of the two goes on").lanes.len(), 1);
    assert!(matches!(lost, Err(TxError::Conflict(why)) if why.contains("1213")), "a deadlock is no failure");
}

#[tokio::test]
async fn a_lock_is_waited_for_a_little_and_free_once_its_owner_is_gone() {
    let Some((_, store)) = fresh().await else { return };
    save(&store, Changes { new_lanes: vec![lane(1)], ..Changes::default() }).await;
    let engine = store.engine();
    let mut owner = engine.begin(Pool::Workers, 0).await.expect("begun");
    owner.load(&lanes(&[[1; 32]])).await.expect("locked");
    let mut other = engine.begin(Pool::Workers, 0).await.expect("begun");
    let began = Instant::now();
    let waited = other.load(&lanes(&[[1; 32]])).await;
    assert!(matches!(&waited, Err(TxError::Conflict(why)) if why.contains("1205")), "{waited:?}");
    assert!(began.elapsed() < Duration::from_secs(4));
    drop((owner, other));
    let mut third = engine.begin(Pool::Workers, 0).await.expect("begun");
    assert_eq!(third.load(&lanes(&[[1; 32]])).await.expect("nobody has it any more").lanes.len(), 1);
}

#[tokio::test]
async fn what_somebody_else_made_first_is_run_again() {
    let Some((_, store)) = fresh().await else { return };
    let changes = Changes { new_lanes: vec![lane(1)], ..Changes::default() };
    save(&store, changes.clone()).await;
    let mut tx = store.engine().begin(Pool::Workers, 0).await.expect("begun");
    tx.save(changes).await.expect("taken note of");
    assert!(matches!(tx.commit().await, Err(TxError::Conflict(why)) if why.contains("1062")));
}

/// Of a transaction that is dropped nothing stays, and its connection serves the next.
#[tokio::test]
async fn a_dropped_transaction_leaves_nothing() {
    let Some((_, store)) = fresh().await else { return };
    for _ in 0..10 {
        let mut tx = store.engine().begin(Pool::Admin, 0).await.expect("there is always a connection");
        tx.save(Changes { new_lanes: vec![lane(1)], ..Changes::default() }).await.expect("taken note of");
        // Asking sends what was saved.
        assert_eq!(tx.load(&lanes(&[[1; 32]])).await.expect("its own").lanes.len(), 1);
    }
    assert!(store.engine().peek(&lanes(&[[1; 32]])).await.expect("asked").lanes.is_empty());
}

#[tokio::test]
async fn numbers_grow_from_transaction_to_transaction() {
    let Some((_, store)) = fresh().await else { return };
    let mut last = 0;
    for wanted in [0, 1, 5_000, 3, 0] {
        let mut tx = store.engine().begin(Pool::Ingest, wanted).await.expect("begun");
        for _ in 0..wanted {
            let number = tx.number();
            assert!(number > last);
            last = number;
        }
        tx.save(Changes::default()).await.expect("saved");
        tx.commit().await.expect("committed");
    }
}

/// Of two that lease the same lane one after the other, the second has the higher fence, even if it began first.
#[tokio::test]
async fn a_later_lease_of_a_lane_has_a_higher_fence() {
    let Some((_, store)) = fresh().await else { return };
    save(&store, Changes { new_lanes: vec![lane(1)], ..Changes::default() }).await;
    let due = Due { queue: Queue::Inbox, channel: "shop", resting: &[], others: false, max: 9 };
    let mut early = store.engine().begin(Pool::Workers, 1).await.expect("begun");
    let mut late = store.engine().begin(Pool::Workers, 1).await.expect("begun");
    assert_eq!(late.due_lanes(&due).await.expect("leased").len(), 1);
    let first = late.number();
    drop(late);
    let mut leased = Vec::new();
    while leased.is_empty() {
        leased = early.due_lanes(&due).await.expect("leased");
    }
    assert!(early.number() > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_instances_open_a_new_database_at_once() {
    let Some(server) = Engine::Mariadb.shared().await else { return };
    let url = server.fresh().await.replace("mysql://", "mariadb://");
    let opened = futures_util::future::join_all((0..8).map(|_| mysql::open(&url, None))).await;
    for store in &opened {
        store.as_ref().expect("it opens").ping().await.expect("it can be written to");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let Some((url, _)) = fresh().await else { return };
    run(&url, "UPDATE hapax_schema SET version = 99").await;
    let refused = mysql::open(&url, None).await.err().expect("refused");
    assert!(matches!(&refused, StoreError::Refused(why) if why.contains("newer hapax")), "{refused}");
}

/// Back to the first version, and forth again: what is dropped was there, each time. A migration that was cut off is made again.
#[tokio::test]
async fn tables_of_the_first_version_are_brought_up_to_date() {
    let Some((url, store)) = fresh().await else { return };
    drop(store);
    for _ in 0..2 {
        run(&url, "ALTER TABLE hapax_provider_names DROP KEY by_age").await;
        part_names_from_threads(&url).await;
        run(&url, "UPDATE hapax_schema SET version = 1").await;
        drop(mysql::open(&url, None).await.expect("it opens"));
    }
    part_names_from_threads(&url).await;
    run(&url, "UPDATE hapax_schema SET version = 1").await;
    drop(mysql::open(&url, None).await.expect("it opens though most is done"));
    run(&url, "UPDATE hapax_schema SET version = version - 1").await;
    drop(mysql::open(&url, None).await.expect("it opens though all is done"));
}

/// Version 3 left the former name on a message that a person had retried; one that is being sent keeps the name it has.
#[tokio::test]
async fn a_message_that_was_retried_before_the_upgrade_has_its_name_behind_it() {
    let Some((url, store)) = fresh().await else { return };
    let (waits, begun) = (store.submit(outgoing("r1", "ana")).await, store.submit(outgoing("r2", "bob")).await);
    let (waits, begun) = (waits.expect("queued").message(), begun.expect("queued").message());
    drop(store);
    part_names_from_threads(&url).await;
    for sql in [
        "UPDATE hapax_messages SET provider_id = 'w', past = NULL",
        "UPDATE hapax_outs SET begun_ms = 5 WHERE number = (SELECT number FROM hapax_messages WHERE request_id = 'r2')",
        "UPDATE hapax_schema SET version = 3",
    ] {
        run(&url, sql).await;
    }
    let store = mysql::open(&url, None).await.expect("it is brought up to date");
    let row = store.message(waits).await.expect("readable").expect("it is there");
    let former: Vec<_> = row.past.rounds.iter().map(|round| round.provider_id.as_deref()).collect();
    assert_eq!((row.provider_id.as_deref(), former), (None, vec![Some("w")]));
    let row = store.message(begun).await.expect("readable").expect("it is there");
    assert_eq!((row.provider_id.as_deref(), row.past.rounds.len()), (Some("w"), 0));
}

/// The server's own settings may be odd: what we rely on we say in every session, and what we cannot say is judged.
#[tokio::test]
async fn odd_settings_are_overruled_or_refused() {
    let Some(server) = Engine::Mariadb.private().await else { return };
    let url = server.fresh().await;
    let odd = "SET GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES', GLOBAL sql_select_limit = 1, GLOBAL autocommit = 0,
               GLOBAL completion_type = 1, GLOBAL time_zone = '+11:00', GLOBAL auto_increment_increment = 7,
               GLOBAL innodb_flush_log_at_trx_commit = 2";
    run(&url, odd).await;
    let store = mysql::open(&url, None).await.expect("it opens");
    assert!(matches!(store.promise(), Promise::Degraded(why) if why[0].contains("innodb_flush_log_at_trx_commit")));
    let events = (0..3).map(|n| message(&format!("it's \"{n}\" \\"), "ana")).collect();
    let accepted = accept(&store, webhook(events)).await;
    assert_eq!(accepted.iter().filter(|one| one.is_new()).count(), 3);
    let listed = store.events(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("listed").rows;
    assert_eq!(listed.len(), 3, "no limit but our own");
    let wall_ms = hapax_store::clock::Clock::wall_ms(&hapax_store::clock::SystemClock::new());
    assert!((listed[0].received_ms - wall_ms).abs() < 60_000, "epoch time, whatever the zone");

    for (odd, says) in [("max_allowed_packet = 1048576", "max_allowed_packet"), ("read_only = 1", "primary")] {
        run(&url, &format!("SET GLOBAL {odd}")).await;
        let refused = mysql::open(&url, None).await.err().expect(says);
        assert!(matches!(&refused, StoreError::Refused(why) if why.contains(says)), "{refused}");
        run(&url, "SET GLOBAL max_allowed_packet = 16777216, GLOBAL read_only = 0").await;
    }
}

/// The server would close the connection over it; those that came at the same moment are none the worse for it.
#[tokio::test]
async fn a_body_beyond_the_servers_packets_is_refused_alone() {
    let Some((_, store)) = fresh().await else { return };
    let large = Arrival { body: vec![b'x'; 16 << 20].into(), ..webhook(vec![message("large", "ana")]) };
    let others = (0..20).map(|n| accept(&store, webhook(vec![message(&format!("small-{n}"), "ana")])));
    let (refused, accepted) = tokio::join!(store.accept(large.into()), futures_util::future::join_all(others));
    let refused = refused.expect_err("it does not fit");
    assert!(!refused.retryable() && refused.to_string().contains("max_allowed_packet"), "{refused}");
    assert!(accepted.iter().flatten().all(|one| one.is_new()), "{accepted:?}");
}

/// The server commits, and its answer is eaten on the way: the transaction's own row tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_found_to_have_taken_place() {
    let Some(server) = Engine::Mariadb.shared().await else { return };
    let proxy = CuttingProxy::start(server.port()).await.expect("a proxy");
    let direct = server.fresh().await;
    let url = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.address.port()));
    assert_ne!(url, direct);
    let store = mysql::open(&url, None).await.expect("it opens");
    for n in 0..3 {
        let id = format!("wamid.{n}");
        proxy.cut_commit_of(&id);
        assert!(accept(&store, webhook(vec![message(&id, "ana")])).await[0].is_new(), "acknowledged, since it is there");
        proxy.cut(n + 1).await;
        assert!(!accept(&store, webhook(vec![message(&id, "ana")])).await[0].is_new());
    }
    assert_eq!(store.stats().await.expect("counted").events, 3);
}

/// The server goes away and comes back: calls fail in time and say that they may be repeated; then they work again.
#[tokio::test]
async fn a_server_that_comes_back_is_used_again() {
    let Some(mut server) = Engine::Mariadb.private().await else { return };
    let store = mysql::open(&server.fresh().await, None).await.expect("it opens");
    accept(&store, webhook(vec![message("m1", "ana")])).await;
    server.kill9().await;
    let began = Instant::now();
    let failed = store.accept(webhook(vec![message("m2", "ana")]).into()).await.expect_err("there is no server");
    assert!(failed.retryable() && began.elapsed() < Duration::from_secs(12), "{failed} after {:?}", began.elapsed());
    server.restart().await;
    let accepted = accept(&store, webhook(vec![message("m1", "ana"), message("m2", "ana")])).await;
    assert!(matches!(accepted[0], Accepted::Duplicate(_)), "what was acknowledged is there");
    assert!(matches!(accepted[1], Accepted::New(_)), "what failed was not");
    store.ping().await.expect("it can be written to");
}
