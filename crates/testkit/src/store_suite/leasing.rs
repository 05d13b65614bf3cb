//! Leasing: lanes in order, one holder, a fence that grows.

use std::collections::HashSet;
use std::sync::Arc;

use hapax_domain::{Event, Kind};
use hapax_store::{InboxLease, LeaseRequest, Outcome, Resting, Settled, Store};

use crate::store_fixture::{HOLD_MS, StoreFixture, accept, accept_one, ask, ask_as, ids, lease, message, notice, webhook};

const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

pub async fn a_lease_carries_what_came(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let arrival = webhook(vec![message("m1", "ana")]);
    let id = accept(&*store, arrival.clone()).await[0].event();
    let leases = lease(&*store, 10).await;
    let [lease] = &leases[..] else { unreachable!("one lease, not {}", leases.len()) };
    assert_eq!(ids(lease), [id]);
    assert_eq!((&lease.body, &lease.headers), (&arrival.body, &arrival.headers));
    assert_eq!((lease.attempt, lease.replay, lease.webhook_events), (1, None, 1));
    assert_eq!((&*lease.channel, lease.events[0].kind), ("shop", Kind::Message));
    assert_eq!(lease.events[0].thread.as_ref().map(ToString::to_string).as_deref(), Some("acc__ana"));
    assert!(lease.until_ms >= lease.received_ms + HOLD_MS);
}

pub async fn events_of_one_lane_in_one_webhook_are_one_item(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let batch = webhook(vec![message("a1", "ana"), message("b1", "bob"), message("a2", "ana"), notice("n1"), notice("n2")]);
    let accepted: Vec<_> = accept(&*store, batch).await.into_iter().map(|one| one.event()).collect();
    let leases = lease(&*store, 10).await;
    let mut items: Vec<_> = leases.iter().map(ids).collect();
    items.sort();
    assert_eq!(items, [vec![accepted[0], accepted[2]], vec![accepted[1]], vec![accepted[3]], vec![accepted[4]]]);
    assert_eq!(leases.iter().find(|lease| lease.events.len() == 2).map(|lease| lease.events[1].index), Some(2));
}

pub async fn a_lane_gives_one_item_at_a_time_in_order(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut sent = Vec::new();
    for n in 0..5 {
        sent.push(accept_one(&*store, message(&format!("m{n}"), "ana")).await);
    }
    let mut got = Vec::new();
    while let [held] = &lease(&*store, 10).await[..] {
        assert!(lease(&*store, 10).await.is_empty(), "the lane is held");
        got.extend(ids(held));
        let settled = store.settle_inbox(held.lane, held.fence, DELIVERED).await;
        assert_eq!(settled.ok(), Some(Settled::Done));
    }
    assert_eq!(got, sent);
}

pub async fn lanes_do_not_wait_for_each_other(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for peer in ["ana", "ana", "bob", "cid"] {
        accept_one(&*store, message(&format!("{peer}{}", rand::random::<u64>()), peer)).await;
    }
    let leases = lease(&*store, 10).await;
    let peers: HashSet<_> = leases.iter().filter_map(|lease| lease.events[0].thread.clone()).map(|thread| thread.peer).collect();
    assert_eq!((leases.len(), peers.len()), (3, 3));
}

/// Where it goes depends on it, whether it is of a thread or not.
pub async fn a_lease_says_whose_its_events_are(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let of = |event: Event, account: &str| Event { account: account.to_owned(), ..event };
    accept(&*store, webhook(vec![of(message("m1", "ana"), "7001"), of(notice("n1"), "7002"), of(message("m2", "ana"), "7002")]))
        .await;
    let mut leased: Vec<_> =
        lease(&*store, 10).await.into_iter().map(|lease| (lease.events[0].account.clone(), lease.events[0].kind)).collect();
    leased.sort_unstable();
    let expected = [("7001", Kind::Message), ("7002", Kind::Message), ("7002", Kind::Notice)];
    assert_eq!(leased, expected.map(|(account, kind)| (account.to_owned(), kind)));
}

/// The target of some accounts is down: nothing of theirs is taken up, and whatever waits there holds up no others.
pub async fn resting_accounts_are_passed_by(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let of = |event: Event, account: &str| Event { account: account.to_owned(), ..event };
    let accounts = ["down", "up", "other"];
    // What was in line before anybody rested, and what comes then.
    let bring = async |store: &dyn Store, round: u32| {
        for account in accounts {
            let (first, alone) =
                (message(&format!("m{round} {account}"), &format!("ana {round}")), notice(&format!("n{round} {account}")));
            accept(store, webhook(vec![of(first, account), of(alone, account)])).await;
        }
    };
    let taken = async |store: &dyn Store, named: &[&str], others: bool, max: usize| {
        let accounts = named.iter().map(|account| (*account).to_owned()).collect();
        let ask = LeaseRequest { resting: vec![Resting { channel: "shop".into(), accounts, others }], ..ask(max) };
        let held = store.lease_inbox(ask).await.unwrap_or_else(|error| unreachable!("{error}"));
        let mut of: Vec<String> = held.iter().map(|held| held.events[0].account.clone()).collect();
        for held in held {
            let back = Outcome::HandBack { wait_ms: 0, why: None, called: false };
            assert_eq!(store.settle_inbox(held.lane, held.fence, back).await.ok(), Some(Settled::Done));
        }
        of.sort();
        of
    };
    bring(&*store, 1).await;
    assert_eq!(taken(&*store, &["down"], false, 10).await, ["other", "other", "up", "up"]);
    bring(&*store, 2).await;
    assert_eq!(taken(&*store, &["down", "other"], false, 10).await, ["up"; 4]);
    assert_eq!(taken(&*store, &["up"], true, 10).await, ["up"; 4], "all others rest");
    assert_eq!(taken(&*store, &["down"], true, 3).await, ["down"; 3], "as many as asked for");
    drop(store);
    let store = fixture.crash();
    assert_eq!(taken(&*store, &["up", "other"], false, 10).await, ["down"; 4]);
    bring(&*store, 3).await;
    assert_eq!(taken(&*store, &["unknown"], true, 10).await, [""; 0]);
    assert_eq!(lease(&*store, 50).await.len(), 18, "nobody rests any more");
}

pub async fn channels_are_leased_apart(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    let mut other = webhook(vec![notice("n1")]);
    other.channel = "other".into();
    accept(&*store, other).await;
    let ask = |channel: &str| LeaseRequest { wants: vec![(channel.into(), 10)], ..ask_as("w", 0) };
    for channel in ["nothing", "other", "shop"] {
        let leases = store.lease_inbox(ask(channel)).await.unwrap_or_else(|error| unreachable!("{error}"));
        assert!(leases.iter().all(|lease| &*lease.channel == channel));
        assert_eq!(leases.len(), usize::from(channel != "nothing"), "{channel}");
    }
}

pub async fn a_lease_that_ran_out_is_taken_over(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let first = lease(&*store, 10).await.remove(0);
    fixture.clock().advance(HOLD_MS - 1);
    assert!(lease(&*store, 10).await.is_empty());
    fixture.clock().advance(1);
    let second = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&second), second.attempt), (vec![id], 2));
    assert!(second.fence > first.fence);
}

pub async fn an_extended_lease_stays(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    for _ in 0..3 {
        fixture.clock().advance(HOLD_MS - 1);
        assert_eq!(store.extend(vec![(held.lane, held.fence)], HOLD_MS).await.ok(), Some(vec![true]));
        assert!(lease(&*store, 10).await.is_empty());
    }
}

pub async fn an_extension_after_takeover_is_refused(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    let late = lease(&*store, 10).await.remove(0);
    fixture.clock().advance(HOLD_MS);
    let held = lease(&*store, 10).await.remove(0);
    let answers = store.extend(vec![(late.lane, late.fence), (held.lane, held.fence)], HOLD_MS).await;
    assert_eq!(answers.ok(), Some(vec![false, true]));
}

pub async fn two_instances_never_hold_the_same_lane(fixture: &dyn StoreFixture) {
    let instances = [fixture.open(), fixture.open()];
    for n in 0..200 {
        accept_one(&*instances[0], message(&format!("m{n}"), &format!("p{}", n % 20))).await;
    }
    let mut tasks = Vec::new();
    for worker in 0..4 {
        let store = Arc::clone(&instances[worker % 2]);
        tasks.push(tokio::spawn(async move {
            let mut done = Vec::new();
            loop {
                let leases =
                    store.lease_inbox(ask_as(&format!("w{worker}"), 3)).await.unwrap_or_else(|error| unreachable!("{error}"));
                if leases.is_empty() {
                    return done;
                }
                for held in leases {
                    tokio::task::yield_now().await;
                    let settled = store.settle_inbox(held.lane, held.fence, DELIVERED).await;
                    assert_eq!(settled.ok(), Some(Settled::Done), "nobody else can have taken it");
                    assert_eq!(held.attempt, 1);
                    done.extend(ids(&held));
                }
            }
        }));
    }
    let mut done = Vec::new();
    for task in tasks {
        done.extend(task.await.unwrap_or_else(|error| unreachable!("{error}")));
    }
    // A worker that found nothing while all lanes were held has stopped early; what is left is finished here.
    while let Some(held) = lease(&*instances[0], 1).await.pop() {
        done.extend(ids(&held));
        let _ = instances[0].settle_inbox(held.lane, held.fence, DELIVERED).await;
    }
    assert_eq!((done.len(), done.iter().collect::<HashSet<_>>().len()), (200, 200));
}

pub async fn a_dead_instances_lease_holds_until_it_ends(fixture: &dyn StoreFixture) {
    let (dying, living) = (fixture.open(), fixture.open());
    accept_one(&*dying, message("m1", "ana")).await;
    assert_eq!(lease(&*dying, 10).await.len(), 1);
    drop(dying);
    assert!(lease(&*living, 10).await.is_empty());
    fixture.clock().advance(HOLD_MS);
    assert_eq!(lease(&*living, 10).await.len(), 1);
}

pub async fn a_crash_gives_the_work_back_with_a_higher_fence(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let before = lease(&*store, 10).await.remove(0);
    drop(store);
    let store = fixture.crash();
    fixture.clock().advance(HOLD_MS);
    let after = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&after), after.attempt), (vec![id], 2));
    assert!(after.fence > before.fence);
    assert_eq!(store.settle_inbox(before.lane, before.fence, DELIVERED).await.ok(), Some(Settled::Lost));
}

/// The process that leased for it is gone, the worker is not: it may still say how it went, and nobody else gets its item meanwhile.
pub async fn a_worker_outside_keeps_its_lease_over_a_crash(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for (id, peer) in [("m1", "ana"), ("m2", "ben")] {
        accept_one(&*store, message(id, peer)).await;
    }
    let asked = store.lease_inbox(LeaseRequest { outside: true, ..ask(10) }).await;
    let held = asked.unwrap_or_else(|error| unreachable!("{error}"));
    assert_eq!(held.len(), 2);
    drop(store);
    let store = fixture.crash();
    assert!(lease(&*store, 10).await.is_empty(), "both are at work");
    assert_eq!(store.settle_inbox(held[0].lane, held[0].fence, DELIVERED).await.ok(), Some(Settled::Done));
    fixture.clock().advance(HOLD_MS / 2);
    assert_eq!(store.extend(vec![(held[1].lane, held[1].fence)], HOLD_MS).await.ok(), Some(vec![true]));
    fixture.clock().advance(HOLD_MS / 2);
    drop(store);
    let store = fixture.crash();
    assert!(lease(&*store, 10).await.is_empty(), "one of them still is");
    fixture.clock().advance(HOLD_MS / 2);
    drop(store);
    let store = fixture.crash();
    let again = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&again), again.attempt), (ids(&held[1]), 2));
    assert!(again.fence > held[1].fence);
    assert_eq!(store.settle_inbox(held[1].lane, held[1].fence, DELIVERED).await.ok(), Some(Settled::Lost));
}

pub async fn new_work_wakes_who_waits(fixture: &dyn StoreFixture) {
    let (store, other) = (fixture.open(), fixture.open());
    let hint = store.wait();
    accept_one(&*other, message("m1", "ana")).await;
    hint.await;
}

/// What is tried on for ever is told in full at first, and then now and then; how it ended is always told.
pub async fn a_story_of_many_attempts_stays_short(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let event = accept_one(&*store, message("m1", "ana")).await;
    for _ in 0..123 {
        let held = lease(&*store, 1).await.remove(0);
        let again = Outcome::Retry { wait_ms: 0, why: "500".to_owned() };
        assert_eq!(store.settle_inbox(held.lane, held.fence, again).await.ok(), Some(Settled::Done));
    }
    let held = lease(&*store, 1).await.remove(0);
    assert_eq!((held.attempt, held.failures), (124, 123), "all are counted");
    store.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
    let told = store.event(event).await.expect("found").expect("there").attempts;
    let numbers: Vec<u32> = told.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, (1..=100).chain([110, 120, 124]).collect::<Vec<_>>());
    assert_eq!(told.last().map(|last| last.outcome.as_str()), Some("delivered"));
}

pub async fn what_is_leased_is_with_the_bot(fixture: &dyn StoreFixture) {
    let (store, other) = (fixture.open(), fixture.open());
    let with_bot = async || other.with_bot("shop").await.unwrap_or_else(|error| unreachable!("{error}"));
    let batch = accept(&*store, webhook(vec![message("m1", "ana"), message("m2", "ana"), message("m3", "bob")])).await;
    accept_one(&*store, notice("n1")).await;
    assert!(with_bot().await.is_empty(), "nobody has begun");
    let held = lease(&*store, 10).await;
    assert_eq!(held.len(), 3);
    let told = with_bot().await;
    let told: Vec<_> = told.iter().map(|row| (row.item, row.event, row.attempt, row.thread.clone(), &*row.account)).collect();
    let mut ours: Vec<_> =
        held.iter().map(|held| (held.item, held.events[0].id, 1, held.events[0].thread.clone(), "acc")).collect();
    ours.sort_by_key(|row| row.0);
    assert_eq!(told, ours);
    assert_eq!(told[0].1, batch[0].event(), "of several the first");
    assert_eq!(told[2].3, None, "a notice is of no thread");
    assert!(other.with_bot("other").await.is_ok_and(|rows| rows.is_empty()));
    let of = |peer: &str| {
        let is_of = |held: &&InboxLease| held.events[0].thread.as_ref().is_some_and(|thread| thread.peer == peer);
        held.iter().find(is_of).unwrap_or_else(|| unreachable!("leased"))
    };
    let (ana, bob) = (of("ana"), of("bob"));
    assert_eq!(store.settle_inbox(ana.lane, ana.fence, DELIVERED).await.ok(), Some(Settled::Done));
    fixture.clock().advance(HOLD_MS / 2);
    assert_eq!(store.extend(vec![(bob.lane, bob.fence)], HOLD_MS).await.ok(), Some(vec![true]));
    fixture.clock().advance(HOLD_MS / 2);
    let left = with_bot().await;
    assert_eq!(left.iter().map(|row| row.item).collect::<Vec<_>>(), [bob.item], "one is done, one ran out, one goes on");
    fixture.clock().advance(HOLD_MS / 2);
    assert!(with_bot().await.is_empty());
    lease(&*store, 10).await;
    assert!(with_bot().await.iter().all(|row| row.attempt == 2), "handed out again");
}

pub async fn what_is_with_the_bot_goes_by_the_joined_name(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for (id, peer) in [("m1", "ana"), ("m2", "lid")] {
        accept_one(&*store, message(id, peer)).await;
    }
    let held = lease(&*store, 10).await;
    assert_eq!(held.len(), 2);
    accept_one(&*store, Event { aliases: vec!["lid".to_owned()], ..message("m3", "ana") }).await;
    let told = store.with_bot("shop").await.unwrap_or_else(|error| unreachable!("{error}"));
    let peers: Vec<_> = told.iter().filter_map(|row| Some(row.thread.as_ref()?.peer.as_str())).collect();
    assert_eq!(peers, ["ana", "ana"], "both are one person's");
}
