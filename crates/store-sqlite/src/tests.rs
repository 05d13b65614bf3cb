//! What the engine does that no other has a reason to.

use std::sync::mpsc::channel;

use futures_util::FutureExt;

use super::*;
use bytes::Bytes;
use hapax_domain::{Event, Status};
use hapax_store::EventQuery;
use hapax_store::prelude::*;
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::{START_MS, accept_one, lease, message, notice, webhook};

fn open() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let opened = SqliteStore::open(&folder.path().join("s.db"), Arc::new(HandClock::at(START_MS)), &options);
    (folder, opened.expect("it opens"))
}

/// Numbers of a batch that failed are in no row; a thread may be marked as read up to them.
#[tokio::test]
async fn a_number_that_was_marked_as_read_is_not_given_out_after_a_crash() {
    let (folder, store) = open();
    let thread = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
    accept_one(&store, message("m1", "ana")).await;
    let skipped = |writer: &mut Writer| {
        writer.last_number += 9;
        Ok(())
    };
    store.write("skipping some numbers", true, skipped).await.expect("done");
    assert!(store.mark_read(&thread).await.expect("an answer"));
    drop(store);
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let clock = Arc::new(HandClock::at(START_MS + 1));
    let store = SqliteStore::open(&folder.path().join("s.db"), clock, &options).expect("it opens");
    accept_one(&store, message("m2", "ana")).await;
    let said = store.thread_messages(&thread, None, 9).await.expect("readable").rows;
    assert_eq!(said.iter().map(|entry| entry.status).collect::<Vec<_>>(), [Some(Status::Delivered), Some(Status::Read)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_from_one_moment() {
    let (_folder, store) = open();
    accept_one(&store, notice("n1")).await;
    let (asked, is_asked) = channel();
    let (go_on, goes_on) = channel::<()>();
    let asking = tokio::spawn({
        let store = store.clone();
        async move {
            let count = |db: &Connection| db.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0));
            let question = move |db: &Connection| {
                let before = count(db)?;
                let _ = asked.send(());
                let _ = goes_on.recv();
                Ok((before, count(db)?))
            };
            store.read("counting twice", question).await
        }
    });
    tokio::task::spawn_blocking(move || is_asked.recv()).await.expect("no panic").expect("it was asked");
    accept_one(&store, notice("n2")).await;
    drop(go_on);
    assert_eq!(asking.await.expect("no panic").expect("an answer"), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_of_an_older_version_are_purged_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.db");
    let db = Connection::open(&path).expect("a file");
    for migration in &open::MIGRATIONS[..3] {
        db.execute_batch(migration).expect("the old schema");
    }
    let (kind, old) = (rows::kind_number(hapax_domain::Kind::Message), START_MS - 10_000);
    db.execute_batch(&format!(
        "PRAGMA application_id = {}; PRAGMA user_version = 3; PRAGMA journal_mode = WAL; INSERT INTO channels VALUES (1, 'shop');
         INSERT INTO threads VALUES (1, 1, 'acc', 'ana', 2, {old}, 'a secret', 0, 1), (3, 1, 'acc', 'bob', 4, {START_MS}, 'hi', 0, 1);
         INSERT INTO names VALUES ('acc', 'ana', 1), ('acc', 'bob', 3);
         INSERT INTO events VALUES (4, {START_MS}, 1, {kind}, 0, 0, 4, 1, NULL, 'acc', 'm', 'bob', NULL, 'hi', 3, 0, x'', x'7b7d');
         UPDATE meta SET value = 4 WHERE name = 'threads_to'",
        open::APPLICATION_ID
    ))
    .expect("a thread of which nothing is left, and another");
    drop(db);
    let clock = HandClock::at(START_MS);
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let store = SqliteStore::open(&path, Arc::new(clock.clone()), &options).expect("it opens");
    let peers = async || {
        while store.purge(&[("shop".to_owned(), 1_000)], 10).await.expect("purged").more {}
        let threads = store.threads(hapax_store::ThreadQuery { limit: 10, ..Default::default() }).await.expect("threads");
        threads.rows.into_iter().map(|row| row.id.peer).collect::<Vec<_>>()
    };
    assert_eq!(peers().await, ["bob"]);
    clock.advance(1_000);
    assert!(peers().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_version_left_in_two_lanes_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.db");
    let db = Connection::open(&path).expect("a file");
    for migration in &open::MIGRATIONS[..3] {
        db.execute_batch(migration).expect("the old schema");
    }
    let kind = rows::kind_number(hapax_domain::Kind::Message);
    db.execute_batch(&format!(
        "PRAGMA application_id = {}; PRAGMA user_version = 3; PRAGMA journal_mode = WAL; INSERT INTO channels VALUES (1, 'shop');
         INSERT INTO threads VALUES (1, 1, 'acc', 'phone', 2, {START_MS}, 'hi', 0, 1), (3, 1, 'acc', 'lid', 4, {START_MS}, 'hi', 0, 1);
         INSERT INTO names VALUES ('acc', 'user', 1), ('acc', 'phone', 3), ('acc', 'lid', 3);
         INSERT INTO events VALUES (2, {START_MS}, 1, {kind}, 0, 0, 2, 1, 2, 'acc', 'm1', 'user', NULL, 'hi', 1, 0, x'', x'7b7d'),
             (4, {START_MS}, 1, {kind}, 0, 0, 4, 1, 4, 'acc', 'm2', 'lid', NULL, 'hi', 3, 0, x'', x'7b7d');
         INSERT INTO inbox VALUES (1, 2, x'01', 2, NULL, 0, NULL, {START_MS}, {START_MS}, NULL),
             (1, 4, x'02', 4, NULL, 0, NULL, {START_MS}, {START_MS}, NULL);
         UPDATE meta SET value = 4 WHERE name IN ('threads_to', 'last_number')",
        open::APPLICATION_ID
    ))
    .expect("two items of one person, each in a lane of its own");
    // Lanes were named by 16 bytes.
    for (item, peer) in [(2, "user"), (4, "lid")] {
        let lane = accept::lane_name("shop", "acc", peer);
        db.execute("UPDATE inbox SET lane = ?2 WHERE item = ?1", rusqlite::params![item, lane]).expect("named");
    }
    drop(db);
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let store = SqliteStore::open(&path, Arc::new(HandClock::at(START_MS)), &options).expect("it opens");
    for _ in 0..2 {
        let held = lease(&store, 10).await;
        assert_eq!(held.len(), 1, "one at a time");
        assert_eq!(held[0].events[0].thread.as_ref().map(|thread| thread.peer.as_str()), Some("lid"));
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
        store.settle_inbox(held[0].lane, held[0].fence, delivered).await.expect("settled");
    }
}

/// Each `open` finds what a store left that was dropped in mid-work: nothing is written when one is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_learned_outlives_a_crash() {
    const PEOPLE: usize = 3_000;
    let folder = tempfile::tempdir().expect("a folder");
    let clock = HandClock::at(START_MS);
    let open = || {
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        SqliteStore::open(&folder.path().join("s.db"), Arc::new(clock.clone()), &options).expect("it opens")
    };
    let say = async |store: &SqliteStore, id: String, peer: String, alias: Option<String>| {
        let event = Event { aliases: alias.into_iter().collect(), ..message(&id, &peer) };
        accept_one(store, event).await;
    };
    let store = open();
    for n in 0..PEOPLE {
        say(&store, format!("a{n}"), format!("phone {n}"), Some(format!("lid {n}"))).await;
    }
    // Before a round, in the middle of one, and after it.
    drop(store);
    for (round, rest) in ["b", "c", "d"].into_iter().zip([5_000, 0, 60_000]) {
        let store = open();
        clock.advance(rest);
        for n in 0..PEOPLE / 300 {
            say(&store, format!("{round}{n}"), format!("lid {}", n * 300), None).await;
        }
        drop(store);
    }
    let store = open();
    for n in [0, 300, 1, PEOPLE - 1] {
        let id = ThreadId { account: "acc".to_owned(), peer: format!("lid {n}") };
        let thread = store.thread(&id).await.expect("read").expect("there is one");
        assert_eq!(thread.id.peer, format!("phone {n}"));
        assert_eq!(thread.aliases, [format!("lid {n}")]);
        assert_eq!(thread.unread, if n % 300 == 0 { 4 } else { 1 });
    }
    let count = |sql: &'static str| store.read("counting", move |db| db.query_row(sql, [], |row| row.get::<_, usize>(0)));
    assert_eq!(count("SELECT count(*) FROM threads").await.expect("read"), PEOPLE);
    assert_eq!(count("SELECT count(*) FROM names").await.expect("read"), 2 * PEOPLE);
    assert_eq!(count("SELECT count(*) FROM threads WHERE names IS NOT NULL").await.expect("read"), PEOPLE);
    assert_eq!(count("SELECT count(*) FROM learned").await.expect("read"), 0);
}

/// A purge hands out no numbers: what two of them note has the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_are_purged_in_two_steps_leave_a_store_that_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = HandClock::at(START_MS);
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let open = || SqliteStore::open(&folder.path().join("s.db"), Arc::new(clock.clone()), &options).expect("it opens");
    let store = open();
    for peer in ["ana", "bob", "cid"] {
        let kept = hapax_testkit::store_fixture::webhook_then(vec![(message(peer, peer), hapax_store::Disposition::Keep)]);
        store.accept(kept.into()).await.expect("taken");
    }
    clock.advance(10_000);
    while store.purge(&[("shop".to_owned(), 1_000)], 1).await.expect("purged").more {}
    drop(store);
    let store = open();
    accept_one(&store, message("m4", "ana")).await;
    let threads = store.threads(hapax_store::ThreadQuery { limit: 10, ..Default::default() }).await.expect("threads");
    assert_eq!(threads.rows.len(), 1);
}

/// What waits to be sent outlives the names that led to its lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_sent_under_a_forgotten_name_is_joined() {
    use hapax_testkit::store_suite::sending::{ask_out, outgoing};
    let folder = tempfile::tempdir().expect("a folder");
    let clock = HandClock::at(START_MS);
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let store = SqliteStore::open(&folder.path().join("s.db"), Arc::new(clock.clone()), &options).expect("it opens");
    let also = |id: &str, peer: &str| Event { aliases: vec!["x".to_owned()], ..message(id, peer) };
    store.submit(outgoing("r1", "x")).await.expect("queued");
    let kept = hapax_testkit::store_fixture::webhook_then(vec![(also("m1", "phone"), hapax_store::Disposition::Keep)]);
    store.accept(kept.into()).await.expect("taken");
    clock.advance(10_000);
    while store.purge(&[("shop".to_owned(), 1_000)], 10).await.expect("purged").more {}
    accept_one(&store, also("m2", "user")).await;
    store.submit(outgoing("r2", "user")).await.expect("queued");
    let leased = store.lease_outbox(ask_out(10)).await.expect("leased");
    assert_eq!(leased.iter().map(|lease| &*lease.request_id).collect::<Vec<_>>(), ["r1"], "one at a time");
}

/// A reaction of somebody nobody knows waits under that name, and goes with the person once the name is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_under_an_unknown_name_is_joined() {
    let (_folder, store) = open();
    let reaction = Event { kind: hapax_domain::Kind::Reaction, ..message("r1", "lid") };
    let first = accept_one(&store, reaction).await;
    let second = accept_one(&store, Event { aliases: vec!["lid".to_owned()], ..message("m1", "ana") }).await;
    for id in [first, second] {
        let held = lease(&store, 10).await;
        assert_eq!(held.len(), 1, "one at a time");
        assert_eq!(held[0].events[0].id, id);
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
        store.settle_inbox(held[0].lane, held[0].fence, delivered).await.expect("settled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_is_not_committed_joins_nothing() {
    let (_folder, store) = open();
    for (id, peer) in [("m1", "ana"), ("m2", "lid")] {
        accept_one(&store, message(id, peer)).await;
    }
    assert!(lease(&store, 0).await.is_empty(), "the lanes are in memory");
    let arrival = Arc::new(webhook(vec![Event { aliases: vec!["lid".to_owned()], ..message("m3", "ana") }]));
    let hashed = accept::hash(&arrival);
    let failing = move |writer: &mut Writer| {
        writer.accept(&arrival, &hashed)?;
        Err::<(), _>(StepError::Sql(rusqlite::Error::InvalidQuery))
    };
    assert!(store.write("failing", true, failing).await.is_err());
    assert_eq!(lease(&store, 10).await.len(), 2, "nobody has said that they are one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_too_young_is_looked_at_again_in_the_next_purge() {
    let folder = tempfile::tempdir().expect("a folder");
    let (options, clock) = (Options { disk_floor_bytes: 0, ..Options::default() }, HandClock::at(START_MS));
    let store = SqliteStore::open(&folder.path().join("s.db"), Arc::new(clock.clone()), &options).expect("it opens");
    let keep = |event| hapax_testkit::store_fixture::webhook_then(vec![(event, hapax_store::Disposition::Keep)]);
    store.accept(keep(notice("old")).into()).await.expect("taken");
    clock.advance(1_000);
    store.accept(keep(notice("young")).into()).await.expect("taken");
    for left in [1, 0] {
        // As many as a page holds.
        while store.purge(&[("shop".to_owned(), 1_000)], 2).await.expect("purged").more {}
        assert_eq!(store.events(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("events").rows.len(), left);
        clock.advance(1_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_takes_back_what_it_brought() {
    let (_folder, store) = open();
    let (begun, has_begun) = channel();
    let (go_on, goes_on) = channel::<()>();
    let hanging = tokio::spawn({
        let store = store.clone();
        let hang = move |_: &mut Writer| {
            let _ = begun.send(());
            let _ = goes_on.recv();
            Ok(())
        };
        async move { store.write("hanging", true, hang).await }
    });
    tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("no panic").expect("it hangs");
    let body = Bytes::from(vec![0; 1 << 20]);
    let arrival = Arrival { body: body.clone(), ..webhook(vec![notice("n1")]) };
    assert!(store.accept(arrival.into()).now_or_never().is_none(), "it waits, and is given up");
    assert!(body.is_unique(), "nobody holds the body any more");
    drop(go_on);
    hanging.await.expect("no panic").expect("done");
    store.ping().await.expect("it works");
    assert!(store.events(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("events").rows.is_empty());
}

/// One that fails takes nobody's commit along: so it was in none but its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_shares_its_commit_with_nobody() {
    let (_folder, store) = open();
    let (begun, has_begun) = channel();
    let (go_on, goes_on) = channel::<()>();
    let hang = move |_: &mut Writer| {
        let _ = begun.send(());
        let _ = goes_on.recv();
        Ok(())
    };
    let hanging = store.write("hanging", true, hang);
    let failing = store.write_alone("failing", |_| Err::<(), _>(StepError::Sql(rusqlite::Error::InvalidQuery)));
    let before = store.accept(webhook(vec![notice("before")]).into());
    let after = store.accept(webhook(vec![notice("after")]).into());
    let release = async {
        tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("no panic").expect("it hangs");
        drop(go_on);
    };
    let (hung, before, failed, after, ()) = tokio::join!(hanging, before, failing, after, release);
    assert!(hung.is_ok() && before.is_ok() && after.is_ok(), "{before:?} {after:?}");
    assert!(failed.is_err());
}
