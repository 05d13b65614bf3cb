//! The embedded store in trouble, under the real program: what cannot be kept is answered 503, and what was answered 200 is there.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax_store::prelude::*;
use hapax_store::{Outcome, Reads, Settled};
use hapax_store_sqlite::{Options, SqliteStore};
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::{START_MS, accept_one, lease, message};
use rusqlite::Connection;

use crate::program::{Poster, disk_folder, program, store_path};
use crate::rig::{eventually, text};

#[tokio::test]
async fn a_second_process_on_the_same_file_is_refused() {
    let folder = disk_folder();
    let hapax = program(folder.path(), None, "");
    let (_first, at) = hapax.serve().await.expect("the first one starts");
    let second = hapax.ends().await.expect("the second one ends");
    assert_eq!(second.code, Some(4));
    assert!(second.words.contains("belongs to another hapax"), "{}", second.words);
    let said = Poster::new().post(at, text("wamid.A", "1")).await.expect("the first one goes on");
    assert_eq!((said.status, said.word.as_str()), (200, "accepted"));
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let folder = disk_folder();
    let hapax = program(folder.path(), None, "");
    hapax.serve().await.expect("it starts").0.stop().await.expect("it stops");
    let db = Connection::open(store_path(folder.path())).expect("the file");
    db.pragma_update(None, "user_version", 99).expect("a version from the future");
    drop(db);
    let ended = hapax.ends().await.expect("it ends");
    assert_eq!(ended.code, Some(4));
    assert!(ended.words.contains("newer hapax (schema 99"), "{}", ended.words);
}

#[tokio::test]
async fn a_file_of_another_program_is_refused_and_left_alone() {
    let folder = disk_folder();
    let hapax = program(folder.path(), None, "");
    let path = store_path(folder.path());
    let db = Connection::open(&path).expect("a file");
    db.execute_batch("CREATE TABLE recipes (name TEXT); INSERT INTO recipes VALUES ('soup')").expect("another program's table");
    drop(db);
    let before = std::fs::read(&path).expect("the file");
    let ended = hapax.ends().await.expect("it ends");
    assert_eq!(ended.code, Some(4));
    assert!(ended.words.contains("a database of another program"), "{}", ended.words);
    assert!(std::fs::read(&path).expect("the file") == before, "not a byte was changed");

    std::fs::write(&path, "not a database at all, but long enough to look like a file with a header of a hundred bytes, or more")
        .expect("a text");
    let ended = hapax.ends().await.expect("it ends");
    assert_eq!(ended.code, Some(4));
    assert!(ended.words.contains("cannot be opened: file is not a database"), "{}", ended.words);
}

#[tokio::test]
async fn below_the_disk_floor_nothing_is_taken_in_and_deliveries_go_on() {
    let folder = disk_folder();
    let poster = Poster::new();
    let (process, at) = program(folder.path(), None, "").serve().await.expect("it starts");
    for number in 0..5 {
        assert_eq!(poster.post(at, text(&format!("wamid.{number}"), "1")).await.expect("an answer").status, 200);
    }
    process.kill_nine().await.expect("killed");

    let bot = FakeBot::willing().await.expect("a bot");
    let full = program(folder.path(), Some(&bot.url()), "disk_floor = \"1000000GB\"");
    let (process, at) = full.serve().await.expect("it starts");
    let said = poster.post(at, text("wamid.more", "1")).await.expect("an answer");
    assert_eq!(said.status, 503);
    assert!(said.retry_after.is_some());
    bot.called(5).await;
    eventually("all settled", async || poster.on_their_way(at).await == Some(0)).await;
    process.stop().await.expect("it stops");
    assert_eq!(events_in(folder.path()).await, 5, "what was refused is not there");
}

/// A file that cannot grow is what a full disk looks like to the one who writes.
#[tokio::test]
async fn a_disk_that_takes_no_more_is_answered_503_and_nothing_answered_200_is_lost() {
    let folder = disk_folder();
    let hapax = program(folder.path(), None, "");
    let poster = Poster::new();
    // 1 MB: 2048 blocks of 512 bytes. Without the trap the system would kill whoever writes beyond.
    let limited = hapax.clone().after("trap '' XFSZ; ulimit -f 2048");
    let (process, at) = limited.serve().await.expect("it starts");
    let long = "x".repeat(20_000);
    let body = |number: usize| text(&format!("wamid.{number}"), &number.to_string()).replace("this is", &long);
    let mut kept = Vec::new();
    let refused = loop {
        let said = poster.post(at, body(kept.len())).await.expect("an answer");
        if said.status != 200 {
            break said;
        }
        kept.push(kept.len());
        assert!(kept.len() < 1_000, "the limit is never reached");
    };
    assert_eq!(refused.status, 503);
    assert!(refused.retry_after.is_some());
    assert!(kept.len() > 5, "some were taken in: {}", kept.len());
    for number in 0..20 {
        let said = poster.post(at, body(1_000 + number)).await.expect("an answer");
        assert_eq!(said.status, 503, "still no room");
    }
    process.kill_nine().await.expect("killed");

    let bot = FakeBot::willing().await.expect("a bot");
    let (process, at) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts without the limit");
    for &number in &kept {
        assert_eq!(poster.post(at, body(number)).await.expect("an answer").word, "duplicate", "{number} was kept");
    }
    assert_eq!(poster.post(at, body(2_000)).await.expect("an answer").word, "accepted");
    eventually("all settled", async || poster.on_their_way(at).await == Some(0)).await;
    process.stop().await.expect("it stops");
    assert_eq!(events_in(folder.path()).await, kept.len() + 1);
    assert_eq!(bot.calls().len(), kept.len() + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_an_outsider_locks_the_file_all_are_answered_503_soon_and_then_taken() {
    let folder = disk_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let (process, at) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts");
    let poster = Poster::new();
    assert_eq!(poster.post(at, text("wamid.before", "1")).await.expect("an answer").status, 200);
    bot.called(1).await;

    let outsider = Connection::open(store_path(folder.path())).expect("the file");
    outsider.busy_timeout(Duration::from_secs(5)).expect("patience");
    outsider.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let begun = Instant::now();
    let said = join_all((0..50).map(|number| poster.post(at, text(&format!("wamid.{number}"), "1")))).await;
    assert!(said.iter().flatten().all(|said| said.status == 503 && said.retry_after.is_some()), "{said:?}");
    assert_eq!(said.iter().flatten().count(), 50, "all are answered");
    assert!(begun.elapsed() < Duration::from_secs(10), "the last one did not wait for all the others: {:?}", begun.elapsed());

    outsider.execute_batch("ROLLBACK").expect("the lock is let go");
    for number in 0..50 {
        let said = poster.post(at, text(&format!("wamid.{number}"), "1")).await.expect("an answer");
        assert_eq!((said.status, said.word.as_str()), (200, "accepted"), "a 503 had no effect");
    }
    bot.called(51).await;
    eventually("all settled", async || poster.on_their_way(at).await == Some(0)).await;
    process.stop().await.expect("it stops");
    assert_eq!((events_in(folder.path()).await, bot.calls().len()), (51, 51));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_answered_503_at_once() {
    let folder = disk_folder();
    let (process, at) = program(folder.path(), None, "store_queue = 2").serve().await.expect("it starts");
    let outsider = Connection::open(store_path(folder.path())).expect("the file");
    outsider.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let poster = Poster::new();
    let begun = Instant::now();
    let told = join_all((0..20).map(async |number| {
        let said = poster.post(at, text(&format!("wamid.{number}"), "1")).await.expect("an answer");
        assert_eq!(said.status, 503);
        (said.retry_after.as_deref() == Some("1"), begun.elapsed())
    }))
    .await;
    let (told_at_once, waited): (Vec<_>, Vec<_>) = told.into_iter().partition(|(at_once, _)| *at_once);
    assert!(told_at_once.len() >= 17, "one is with the writer and two are in line: {told_at_once:?}");
    let first_that_waited = waited.iter().map(|(_, after)| *after).min().expect("somebody is in line");
    assert!(told_at_once.iter().all(|(_, after)| *after < first_that_waited), "{told_at_once:?}, in line: {waited:?}");
    outsider.execute_batch("ROLLBACK").expect("the lock is let go");
    assert_eq!(poster.post(at, text("wamid.1", "1")).await.expect("an answer").word, "accepted");
    process.stop().await.expect("it stops");
    assert_eq!(events_in(folder.path()).await, 1);
}

/// Within one process the clock never goes back (`clock.rs`); between two runs it may have been set by any amount.
#[tokio::test]
async fn a_clock_set_back_between_two_runs_holds_nothing_up() {
    const HOUR_MS: i64 = 3_600_000;
    let folder = disk_folder();
    let open = |at_ms: i64| {
        let clock = HandClock::at(at_ms);
        let store = SqliteStore::open(&store_path(folder.path()), Arc::new(clock.clone()), &Options::default());
        (store.expect("the store opens"), clock)
    };
    let (store, _clock) = open(START_MS);
    let leased = accept_one(&store, message("leased", "1")).await;
    let held = lease(&store, 1).await.remove(0);
    accept_one(&store, message("retried", "2")).await;
    let retried = lease(&store, 1).await.remove(0);
    let again = Outcome::Retry { wait_ms: 1_000, why: "busy".to_owned() };
    assert_eq!(store.settle_inbox(retried.lane, retried.fence, again).await.expect("settled"), Settled::Done);
    accept_one(&store, message("waiting", "3")).await;
    drop(store);

    let (store, clock) = open(START_MS - HOUR_MS);
    let found = lease(&store, 10).await;
    assert_eq!(found.len(), 2, "what was due is due, what was leased is free");
    assert!(found.iter().any(|lease| lease.events[0].id == leased && lease.attempt == 2 && lease.fence > held.fence));
    assert!(found.iter().all(|lease| lease.fence > retried.fence));
    clock.advance(1_001);
    let later = lease(&store, 10).await;
    assert_eq!(later.len(), 1, "the retry waits a second, not an hour");
    assert_eq!(later[0].events[0].id, retried.events[0].id);
    let copy = accept_one(&store, message("leased", "1")).await;
    assert_eq!(store.event(copy).await.expect("found").expect("an event").row.id, leased, "keys are still known");
}

/// How many events the file holds, once nobody owns it any more.
async fn events_in(folder: &Path) -> usize {
    let clock = Arc::new(hapax_store::clock::SystemClock::new());
    let store = SqliteStore::open(&store_path(folder), clock, &Options::default()).expect("the store opens");
    store.stats().await.expect("stats").events as usize
}
