//! Every engine runs the whole store suite.

use hapax_store::prelude::*;
use hapax_testkit::store_compare::{compare, sequences};

mod memory {
    use hapax_testkit::store_fixture::MemoryFixture;

    hapax_testkit::store_suite!(MemoryFixture::new());
}

mod sqlite {
    use hapax_testkit::store_fixture::SqliteFixture;

    hapax_testkit::store_suite!(SqliteFixture::new(crate::quick_folder().keep()));
}

/// What the server engines share, without a server.
mod plain_records {
    use hapax_testkit::plain_records::PlainFixture;

    hapax_testkit::store_suite!(PlainFixture::new());
}

/// How many random sequences each engine is compared over.
const SEQUENCES: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_answer_like_the_model() {
    for seed in 0..sequences(SEQUENCES) {
        compare(&hapax_testkit::plain_records::PlainFixture::new(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_answers_like_the_model() {
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..2 {
        lanes.spawn(async move {
            for seed in (lane..sequences(SEQUENCES)).step_by(2) {
                let fixture = hapax_testkit::store_fixture::SqliteFixture::new(crate::quick_folder().keep());
                compare(&fixture, seed).await;
            }
        });
    }
    lanes.join_all().await;
}

/// A window of 4 items in memory, 200 in the inbox: nothing is forgotten, and every lane keeps its order, over a restart too.
#[tokio::test]
async fn a_long_inbox_keeps_its_order_in_a_short_window() {
    use hapax_store::Outcome;
    use hapax_store_sqlite::{Options, SqliteStore};
    use hapax_testkit::store_fixture::{accept_one, ids, lease, message};

    let folder = crate::quick_folder();
    let clock = std::sync::Arc::new(hapax_store::clock::SystemClock::new());
    let options = Options { window: 4, ..Options::default() };
    let open = || SqliteStore::open(&folder.path().join("window.db"), clock.clone(), &options).expect("the store opens");
    let mut store = open();
    let mut sent = vec![Vec::new(); 7];
    for n in 0..200 {
        sent[n % 7].push(accept_one(&store, message(&format!("m{n}"), &format!("p{}", n % 7))).await);
    }
    let mut got = vec![Vec::new(); 7];
    for round in 0.. {
        let leases = lease(&store, 3).await;
        if leases.is_empty() {
            break;
        }
        for held in leases {
            let lane = sent.iter().position(|lane| lane.contains(&ids(&held)[0])).expect("one of ours");
            got[lane].extend(ids(&held));
            let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
            store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
        }
        if round == 20 {
            drop(store);
            store = open();
        }
    }
    assert_eq!(got, sent);
}

/// A channel that nobody leases from gathers many windows of items; the other one's only item is handed out all the same.
#[tokio::test]
async fn a_backlog_of_one_channel_does_not_hide_another() {
    use hapax_store::LeaseRequest;
    use hapax_store_sqlite::{Options, SqliteStore};
    use hapax_testkit::store_fixture::{accept, ask, message, webhook};

    let folder = crate::quick_folder();
    let clock = std::sync::Arc::new(hapax_store::clock::SystemClock::new());
    let options = Options { window: 4, ..Options::default() };
    let store = SqliteStore::open(&folder.path().join("two.db"), clock, &options).expect("the store opens");
    for n in 0..100 {
        accept(&store, webhook(vec![message(&format!("a{n}"), &format!("p{n}"))])).await;
    }
    let mut other = webhook(vec![message("b", "ana")]);
    other.channel = "quiet".into();
    let id = accept(&store, other).await[0].event();
    let only_quiet = LeaseRequest { wants: vec![("quiet".into(), 10)], ..ask(0) };
    let leases = store.lease_inbox(only_quiet).await.expect("leased");
    assert_eq!(leases.iter().map(|lease| lease.events[0].id).collect::<Vec<_>>(), [id]);
}

/// Thousands of calls in a few batches, while small periods are closed and sealed beneath them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealing_keeps_up_with_a_flood() {
    use hapax_store_sqlite::{Options, PeriodSize, SqliteStore};
    use hapax_testkit::store_fixture::{notice, webhook};

    let folder = crate::quick_folder();
    let clock = std::sync::Arc::new(hapax_store::clock::SystemClock::new());
    let options = Options { period: PeriodSize { keys: 200, ms: 86_400_000 }, ..Options::default() };
    let open = || SqliteStore::open(&folder.path().join("flood.db"), clock.clone(), &options).expect("the store opens");
    let mut store = open();
    for fresh in [true, false] {
        let calls = (0..6_000).map(|n| store.accept(webhook(vec![notice(&format!("n{n}"))]).into()));
        for accepted in futures_util::future::join_all(calls).await {
            assert_eq!(accepted.expect("no batch fails")[0].is_new(), fresh);
        }
        drop(store);
        store = open();
    }
}

/// An outbox without room refuses whole steps: a completion with replies stays undone, and is done when there is room again.
/// Many replays of one event at the same moment, by two instances: each has a number of its own, by which the bot tells them apart.
pub(crate) async fn replays_at_once_are_told_apart(fixture: &dyn hapax_testkit::store_fixture::StoreFixture) {
    use hapax_testkit::store_fixture::{accept_one, lease, notice};
    use std::collections::BTreeSet;

    let instances = [fixture.open(), fixture.open()];
    let id = accept_one(&*instances[0], notice("n1")).await;
    for item in futures_util::future::join_all((0..8).map(|n| instances[n % 2].replay(id))).await {
        assert!(item.expect("it is replayed").is_some());
    }
    let numbers: BTreeSet<Option<u32>> = lease(&*instances[0], 20).await.iter().map(|held| held.replay).collect();
    assert_eq!(numbers, (1..=8).map(Some).chain([None]).collect());
}

/// Events whose time is over, and somebody who wants them again at that very moment: who is promised a replay gets it.
pub(crate) async fn a_replay_is_not_purged_with_its_event(fixture: &dyn hapax_testkit::store_fixture::StoreFixture) {
    use hapax_store::Outcome;
    use hapax_testkit::store_fixture::{accept, lease, notice, webhook};

    let (one, other) = (fixture.open(), fixture.open());
    let mut events = Vec::new();
    for n in 0..30 {
        events.push(accept(&*one, webhook(vec![notice(&format!("n{n}"))])).await[0].event());
    }
    for held in lease(&*one, 30).await {
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
        one.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
    }
    fixture.clock().advance(2_000);
    let purging = async { while one.purge(&[("shop".to_owned(), 1_000)], 3).await.expect("purged").more {} };
    let replays = futures_util::future::join_all(events.iter().rev().map(|event| other.replay(*event)));
    let (promised, ()) = tokio::join!(replays, purging);
    let promised = promised.into_iter().filter(|replay| replay.as_ref().expect("an answer").is_some()).count();
    assert_eq!(lease(&*one, 60).await.len(), promised);
}

#[tokio::test]
async fn on_the_embedded_store_claims_that_are_over_take_no_place() {
    use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, Condition, Ends};
    use hapax_testkit::store_fixture::StoreFixture as _;
    let fixture = hapax_testkit::store_fixture::SqliteFixture::new(crate::quick_folder().keep());
    let store = fixture.open();
    store.limit_claims(2);
    let set = async |key: &str| {
        let op = ClaimOp::Set { value: "x".into(), condition: Condition::Always, ends: Ends::In(1_000), tell: false };
        store.claims(vec![(ClaimKey::new("redis", key), op)]).await.expect("asked").remove(0)
    };
    assert!(matches!((set("a").await, set("b").await), (ClaimAnswer::Set { .. }, ClaimAnswer::Set { .. })));
    assert_eq!(set("c").await, ClaimAnswer::NoRoom);
    fixture.clock().advance(1_000);
    assert!(matches!(set("c").await, ClaimAnswer::Set { .. }), "nobody has purged yet");
}
