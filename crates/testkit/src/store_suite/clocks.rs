//! The store's clock is set, back or ahead and back: nothing is held up by it, and nothing is kept for ever.

use std::sync::Arc;

use hapax_domain::{Status, ThreadId};
use hapax_store::{Accepted, Outcome, Purged, SendOutcome, Settled, Store, StoreError, Submitted, ThreadQuery};

use super::sending::{ask_out, outgoing};
use crate::store_fixture::{HOLD_MS, StoreFixture, WINDOW_MS, accept, accept_one, lease, message, notice, webhook};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;

fn fine<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

/// Sets the clock while nobody runs; whoever opens the store next, or purges, follows it.
pub(super) async fn set_back(fixture: &dyn StoreFixture, store: Arc<dyn Store>, by_ms: i64) -> Arc<dyn Store> {
    purge(&*store, 3 * YEAR_MS).await;
    drop(store);
    fixture.clock().advance(-by_ms);
    let store = fixture.crash();
    purge(&*store, 3 * YEAR_MS).await;
    store
}

async fn purge(store: &dyn Store, keep_ms: i64) -> Purged {
    let mut all = Purged::default();
    loop {
        all = all.and(fine(store.purge(&[("shop".to_owned(), keep_ms)], 100).await));
        if !all.more {
            return all;
        }
    }
}

async fn requests(store: &dyn Store) -> Vec<String> {
    let mut requests: Vec<_> = fine(store.lease_outbox(ask_out(10)).await).into_iter().map(|held| held.request_id).collect();
    requests.sort();
    requests
}

pub async fn a_clock_set_back_holds_nothing_up(fixture: &dyn StoreFixture) {
    if !fixture.may_be_set_back() {
        return;
    }
    let store = fixture.open();
    for (id, peer) in [("retried", "1"), ("held", "2"), ("waiting", "3"), ("behind", "3")] {
        accept_one(&*store, message(id, peer)).await;
        fine(store.submit(outgoing(id, peer)).await);
    }
    let held = lease(&*store, 2).await;
    let again = Outcome::Retry { wait_ms: 1_000, why: "busy".to_owned() };
    assert_eq!(fine(store.settle_inbox(held[0].lane, held[0].fence, again).await), Settled::Done);
    let sends = fine(store.lease_outbox(ask_out(2)).await);
    let again = SendOutcome::Retry { wait_ms: 1_000, why: "busy".to_owned(), charged: true };
    assert_eq!(fine(store.settle_outbox(sends[0].lane, sends[0].fence, again).await), Settled::Done);
    let store = set_back(fixture, store, HOUR_MS).await;

    // Where one process owns the data, its leases have ended with it.
    let free = if fixture.shares() { 1 } else { 2 };
    assert_eq!((lease(&*store, 10).await.len(), requests(&*store).await.len()), (free, free), "what was due is due");
    fixture.clock().advance(1_001);
    assert_eq!(
        (lease(&*store, 10).await.len(), requests(&*store).await),
        (1, vec!["retried".to_owned()]),
        "a second, not an hour"
    );
    fixture.clock().advance(HOLD_MS);
    let (inbox, outbox) = (lease(&*store, 10).await, requests(&*store).await);
    assert_eq!(
        (inbox.len(), outbox),
        (3, ["held", "retried", "waiting"].map(str::to_owned).into()),
        "leases end as they would have"
    );
    assert!(inbox.iter().all(|lease| lease.fence > held[1].fence));
}

/// The clock is set back while somebody runs; what is leased before the store has followed it is held to its end.
pub async fn leases_given_after_a_clock_was_set_back_hold(fixture: &dyn StoreFixture) {
    if !fixture.may_be_set_back() {
        return;
    }
    let store = fixture.open();
    accept_one(&*store, message("m1", "1")).await;
    fine(store.submit(outgoing("r1", "1")).await);
    purge(&*store, 3 * YEAR_MS).await;
    fixture.clock().advance(-HOUR_MS);
    // What was due is due an hour later by this clock, unless the store has followed it; something new is due at once.
    accept_one(&*store, message("m2", "2")).await;
    fine(store.submit(outgoing("r2", "2")).await);
    let (items, sends) = (lease(&*store, 10).await, fine(store.lease_outbox(ask_out(10)).await));
    assert!(!items.is_empty() && !sends.is_empty());
    purge(&*store, 3 * YEAR_MS).await;
    fixture.clock().advance(HOLD_MS / 2);
    let held: Vec<_> = items.iter().map(|held| (held.lane, held.fence)).collect();
    let sending: Vec<_> = sends.iter().map(|held| (held.lane, held.fence)).collect();
    let lanes: Vec<_> = held.iter().chain(&sending).map(|(lane, _)| *lane).collect();
    let others = lease(&*store, 10).await.into_iter().map(|held| held.lane);
    let others: Vec<_> = others.chain(fine(store.lease_outbox(ask_out(10)).await).into_iter().map(|held| held.lane)).collect();
    assert!(others.iter().all(|lane| !lanes.contains(lane)), "nobody else gets what is held");
    assert!(fine(store.extend(held, HOLD_MS).await).into_iter().all(|still| still));
    assert!(fine(store.extend_outbox(sending, HOLD_MS).await).into_iter().all(|still| still));
}

/// All was marked as read, replayed and gone; the process dies. What comes then is unread, whatever number it gets.
pub async fn what_comes_after_a_restart_is_not_read(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let thread = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
    let deliver = async |store: &dyn Store| {
        for held in lease(store, 10).await {
            let done = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
            assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done).await), Settled::Done);
        }
    };
    let first = accept_one(&*store, message("m1", "ana")).await;
    deliver(&*store).await;
    for n in 0..3 {
        // Numbers that no row shows any more.
        accept_one(&*store, notice(&format!("n{n}"))).await;
        fine(store.replay(first).await);
        deliver(&*store).await;
    }
    fixture.clock().advance(10_000);
    assert!(fine(store.mark_read(&thread).await));
    drop(store);
    let store = fixture.crash();
    accept_one(&*store, message("m2", "ana")).await;
    let said = fine(store.thread_messages(&thread, None, 10).await).rows;
    let statuses: Vec<_> = said.iter().map(|entry| entry.status).collect();
    assert_eq!(statuses, [Some(Status::Delivered), Some(Status::Read)]);
}

pub async fn keys_outlive_a_clock_that_is_set(fixture: &dyn StoreFixture) {
    if !fixture.may_be_set_back() {
        return;
    }
    let store = fixture.open();
    accept_one(&*store, message("before", "1")).await;
    fixture.clock().advance(WINDOW_MS - DAY_MS);
    accept_one(&*store, message("ahead", "1")).await;
    let store = set_back(fixture, store, WINDOW_MS - DAY_MS).await;
    fixture.clock().advance(WINDOW_MS - HOUR_MS);
    purge(&*store, YEAR_MS).await;
    for id in ["before", "ahead"] {
        let copy = accept(&*store, webhook(vec![message(id, "1")])).await;
        assert!(matches!(copy[0], Accepted::Duplicate(_)), "{id}");
    }
    fixture.clock().advance(WINDOW_MS);
    for id in ["before", "ahead"] {
        let new = accept(&*store, webhook(vec![message(id, "1")])).await;
        assert!(matches!(new[0], Accepted::New(_)), "{id} is not remembered for ever");
    }
}

/// A person who wrote while the clock was a year ahead, and never again: the thread goes with the words, not a year later.
pub async fn a_thread_from_the_future_goes_with_its_words(fixture: &dyn StoreFixture) {
    if !fixture.may_be_set_back() {
        return;
    }
    let mut store = fixture.open();
    fixture.clock().advance(YEAR_MS);
    for peer in ["1", "2", "3"] {
        accept_one(&*store, message(&format!("ahead {peer}"), peer)).await;
    }
    store = set_back(fixture, store, YEAR_MS).await;
    accept_one(&*store, message("after", "4")).await;
    fixture.clock().advance(HOLD_MS + 1);
    for held in lease(&*store, 10).await {
        let done = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
        assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done).await), Settled::Done);
    }
    purge(&*store, DAY_MS).await;
    let threads = async |store: &dyn Store| {
        let all = fine(store.threads(ThreadQuery { limit: 10, ..ThreadQuery::default() }).await).rows;
        all.into_iter().map(|row| row.id.peer).collect::<Vec<_>>()
    };
    assert_eq!(threads(&*store).await, ["3", "2", "1", "4"], "nothing is old yet");
    fixture.clock().advance(DAY_MS + HOUR_MS);
    for _ in 0..3 {
        purge(&*store, DAY_MS).await;
        fixture.clock().advance(HOUR_MS);
    }
    assert_eq!(threads(&*store).await, [""; 0]);
}

pub async fn rows_from_the_future_stop_no_purge(fixture: &dyn StoreFixture) {
    if !fixture.may_be_set_back() {
        return;
    }
    let mut store = fixture.open();
    for (from, by_ms) in [("before", YEAR_MS), ("ahead", 0), ("after", 0)] {
        for n in 0..3 {
            accept_one(&*store, message(&format!("{from} {n}"), "1")).await;
            fine(store.submit(outgoing(&format!("{from} {n}"), "1")).await);
            for held in lease(&*store, 10).await {
                let done = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
                assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done).await), Settled::Done);
            }
            for held in fine(store.lease_outbox(ask_out(10)).await) {
                let sent = SendOutcome::Sent { provider_id: format!("w {}", held.request_id) };
                assert_eq!(fine(store.settle_outbox(held.lane, held.fence, sent).await), Settled::Done);
            }
        }
        fixture.clock().advance(by_ms);
        if from == "ahead" {
            // What was there before is a year old for a while, and is left alone.
            store = set_back(fixture, store, YEAR_MS - HOUR_MS).await;
        }
    }
    fixture.clock().advance(DAY_MS + HOUR_MS);
    let mut events = 0;
    for _ in 0..3 {
        // A round may leave what nothing was known of; an hour later begins another.
        events += purge(&*store, DAY_MS).await.events;
        fixture.clock().advance(HOUR_MS);
    }
    assert_eq!(events, 9, "those from the future too");
    assert_eq!(fine(store.stats().await).events, 0);
    for from in ["before", "ahead", "after"] {
        let again = fine(store.submit(outgoing(&format!("{from} 0"), "1")).await);
        assert!(matches!(again, Submitted::New(_)), "the message {from} is gone as well");
    }
}
