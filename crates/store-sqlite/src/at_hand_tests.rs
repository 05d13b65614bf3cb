//! What stands at hand says the same as rows do, and what was gathered is there for whoever looks.

use std::sync::Arc;

use hapax_store::prelude::*;
use hapax_store::{InboxLease, MessageRow, Outcome, SendOutcome, Settled};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::{START_MS, accept, accept_one, ask, lease, message, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};

use super::pending::Reach;
use super::writer::{StepError, Writer};
use super::{Options, SqliteStore};

fn open() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let opened = SqliteStore::open(&folder.path().join("s.db"), Arc::new(HandClock::at(START_MS)), &options);
    (folder, opened.expect("it opens"))
}

fn delivered() -> Outcome {
    Outcome::Delivered { status: 200, answer: None, replies: Vec::new() }
}

/// Any other step: whoever may look at all there is.
async fn look(store: &SqliteStore) {
    store.write("looking", true, |_| Ok(())).await.expect("done");
}

async fn count(store: &SqliteStore, of: &'static str) -> i64 {
    let sql = format!("SELECT count(*) FROM {of}");
    store.read("counting", move |db| db.query_row(&sql, [], |row| row.get(0))).await.expect("an answer")
}

/// An item that was taken in while somebody leases from its channel.
async fn leased(forgotten: bool) -> (InboxLease, bool) {
    let (_folder, store) = open();
    accept_one(&store, message("first", "ana")).await;
    let first = lease(&store, 1).await.remove(0);
    store.settle_inbox(first.lane, first.fence, delivered()).await.expect("settled");
    let mut event = message("m", "lid-7");
    event.aliases = vec!["ana".to_owned()];
    let mut arrival = webhook(vec![event]);
    arrival.headers.push("x-hub-signature-256", b"sha256=00");
    arrival.body = "a body".into();
    accept(&store, arrival).await;
    if forgotten {
        look(&store).await;
    }
    let at_hand =
        store.write_with(Reach::Own, "asking", true, |writer: &mut Writer| Ok(!writer.fresh.is_empty())).await.expect("done");
    (lease(&store, 1).await.remove(0), at_hand)
}

#[tokio::test]
async fn what_is_at_hand_is_leased_as_its_rows_say() {
    let ((at_hand, was_at_hand), (of_rows, was_forgotten)) = (leased(false).await, leased(true).await);
    assert!(was_at_hand && !was_forgotten);
    assert_eq!(format!("{at_hand:?}"), format!("{of_rows:?}"));
}

#[tokio::test]
async fn what_is_gathered_is_seen_by_every_other_step() {
    let (_folder, store) = open();
    for (id, peer) in [("a", "ana"), ("b", "bo")] {
        accept_one(&store, message(id, peer)).await;
    }
    let leases = lease(&store, 2).await;
    assert_eq!((count(&store, "leases").await, count(&store, "inbox").await), (2, 2));
    let seen = move |writer: &mut Writer| {
        let mut seen = Vec::new();
        for lease in &leases {
            assert_eq!(writer.settle(lease.lane, lease.fence, &delivered()).ok(), Some(Settled::Done));
        }
        for settled in [false, true] {
            if settled {
                writer.make_way(Reach::All)?;
            }
            let sql = "SELECT (SELECT count(*) FROM leases), (SELECT count(*) FROM inbox), (SELECT count(*) FROM attempts)";
            seen.push(writer.db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?);
        }
        Ok(seen)
    };
    let seen: Vec<(i64, i64, i64)> = store.write_with(Reach::Own, "settling at once", true, seen).await.expect("done");
    assert_eq!(seen, [(2, 2, 0), (0, 0, 2)]);
    assert_eq!((count(&store, "leases").await, count(&store, "inbox").await, count(&store, "attempts").await), (0, 0, 2));
}

/// Takes in what follows the leased item in its lane, settles that, and leases what came, all in one batch.
fn all_in_one(first: &InboxLease, fails: bool) -> impl FnOnce(&mut Writer) -> Result<usize, StepError> + use<> {
    let (lane, fence, arrival) = (first.lane, first.fence, Arc::new(webhook(vec![message("b", "ana")])));
    move |writer| {
        writer.take_in(&arrival, &super::accept::hash(&arrival))?;
        writer.settle(lane, fence, &delivered())?;
        writer.make_way(Reach::Looks)?;
        let leased = writer.lease(&ask(9))?.len();
        if fails { Err(StepError::Sql(rusqlite::Error::QueryReturnedNoRows)) } else { Ok(leased) }
    }
}

async fn rows(store: &SqliteStore) -> [i64; 4] {
    let tables = ["events", "inbox", "leases", "attempts"];
    [count(store, tables[0]).await, count(store, tables[1]).await, count(store, tables[2]).await, count(store, tables[3]).await]
}

#[tokio::test]
async fn what_came_and_went_in_one_batch_is_there_after_a_crash() {
    let (folder, store) = open();
    accept_one(&store, message("a", "ana")).await;
    let first = lease(&store, 1).await.remove(0);
    let leased = store.write_with(Reach::TakesIn, "all in one batch", true, all_in_one(&first, false)).await.expect("done");
    assert_eq!((leased, rows(&store).await), (1, [2, 1, 1, 1]));
    drop(store);
    let options = Options { disk_floor_bytes: 0, ..Options::default() };
    let store = SqliteStore::open(&folder.path().join("s.db"), Arc::new(HandClock::at(START_MS)), &options).expect("it opens");
    let again = lease(&store, 9).await;
    assert_eq!(again.iter().map(|lease| lease.attempt).collect::<Vec<_>>(), [2], "its first attempt was lost with the process");
}

#[tokio::test]
async fn a_batch_that_fails_leaves_nothing_of_what_it_gathered() {
    let (_folder, store) = open();
    accept_one(&store, message("a", "ana")).await;
    let first = lease(&store, 1).await.remove(0);
    let failed = store.write_with(Reach::TakesIn, "all in one batch", true, all_in_one(&first, true)).await;
    failed.expect_err("it failed");
    assert_eq!(rows(&store).await, [1, 1, 1, 0]);
    // What it knew of lanes is read anew by the settle, beside what the same batch has taken in.
    let leased = store.write_with(Reach::TakesIn, "all in one batch", true, all_in_one(&first, false)).await.expect("done");
    assert_eq!((leased, rows(&store).await), (1, [2, 1, 1, 1]));
}

/// A message on its way, each time with what is at hand, or never.
async fn sent(forgets: bool, outcome: SendOutcome) -> (Vec<String>, MessageRow) {
    let (_folder, store) = open();
    let mut seen = Vec::new();
    for (request, peer) in [("r1", "ana"), ("r2", "bo")] {
        seen.push(format!("{:?}", store.submit(outgoing(request, peer)).await.expect("submitted")));
    }
    let mut id = None;
    for _ in 0..2 {
        if forgets {
            look(&store).await;
        }
        let lease = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
        seen.push(format!("{lease:?}"));
        id = id.or(Some(lease.message));
        if forgets {
            look(&store).await;
        }
        seen.push(format!("{:?}", store.begin(lease.lane, lease.fence).await.expect("begun")));
        if forgets {
            look(&store).await;
        }
        seen.push(format!("{:?}", store.settle_outbox(lease.lane, lease.fence, outcome.clone()).await.expect("settled")));
        seen.push(format!("{:?}", store.submit(outgoing("r1", "ana")).await.expect("answered")));
    }
    for of in ["outbox", "out_leases", "tries", "provider_names", "outbox WHERE begun IS NOT NULL", "outbox WHERE unknown"] {
        seen.push(format!("{of}: {}", count(&store, of).await));
    }
    let waiting = "SELECT ifnull(sum(waiting), 0) FROM outbox_counts";
    let waiting: i64 = store.read("counting", move |db| db.query_row(waiting, [], |row| row.get(0))).await.expect("an answer");
    seen.push(format!("waiting: {waiting}"));
    let row = store.message(id.expect("one was leased")).await.expect("readable").expect("it is there");
    (seen, row)
}

#[tokio::test]
async fn what_is_at_hand_of_a_message_goes_out_as_its_rows_say() {
    let sent_as = |id: &str| SendOutcome::Sent { provider_id: id.to_owned() };
    let why = || "so".to_owned();
    let outcomes = [
        sent_as("w1"),
        SendOutcome::Failed { why: why() },
        SendOutcome::Retry { wait_ms: 0, why: why(), charged: true },
        SendOutcome::Retry { wait_ms: 60_000, why: why(), charged: false },
        SendOutcome::Resend { wait_ms: 0, why: why() },
        SendOutcome::Unknown { why: why(), check_ms: None },
        SendOutcome::Unknown { why: why(), check_ms: Some(0) },
        SendOutcome::HandBack { wait_ms: 0 },
    ];
    for outcome in outcomes {
        let (at_hand, of_rows) = (sent(false, outcome.clone()).await, sent(true, outcome.clone()).await);
        assert_eq!(at_hand.0, of_rows.0, "{outcome:?}");
        assert_eq!(format!("{:?}", at_hand.1), format!("{:?}", of_rows.1), "{outcome:?}");
    }
}

/// An account's room in the outbox is what its rows say, whatever was submitted and sent before.
#[tokio::test]
async fn the_room_in_the_outbox_is_counted_as_messages_come_and_go() {
    let (_folder, store) = open();
    store.limit_outbox(2);
    for request in ["r1", "r2"] {
        store.submit(outgoing(request, request)).await.expect("there is room");
    }
    store.submit(outgoing("r3", "r3")).await.expect_err("there is none");
    let lease = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
    store.begin(lease.lane, lease.fence).await.expect("begun");
    store.settle_outbox(lease.lane, lease.fence, SendOutcome::Sent { provider_id: "w".to_owned() }).await.expect("settled");
    store.submit(outgoing("r3", "r3")).await.expect("one has gone");
    store.submit(outgoing("r4", "r4")).await.expect_err("and no other");
    look(&store).await;
    store.submit(outgoing("r4", "r4")).await.expect_err("the rows say so too");
}
