//! Settling: fenced, once, and every outcome does what its name says.

use bytes::Bytes;
use hapax_store::{Answer, EventState, InboxLease, Outcome, Redrive, Settled, Store};

use crate::store_fixture::{HOLD_MS, StoreFixture, accept, accept_one, ids, lease, message, webhook};

const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

async fn settle(store: &dyn Store, held: &InboxLease, outcome: Outcome) -> Settled {
    store.settle_inbox(held.lane, held.fence, outcome).await.unwrap_or_else(|error| unreachable!("settle: {error}"))
}

fn handed_back(wait_ms: i64, called: Option<&str>) -> Outcome {
    Outcome::HandBack { wait_ms, why: called.map(str::to_owned), called: called.is_some() }
}

fn parked(why: &str) -> Outcome {
    Outcome::Parked { why: why.to_owned(), charged: true }
}

async fn state(store: &dyn Store, id: hapax_domain::EventId) -> Option<EventState> {
    store.event(id).await.unwrap_or_else(|error| unreachable!("{error}")).map(|detail| detail.row.state)
}

pub async fn a_delivered_item_is_gone(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!(state(&*store, id).await, Some(EventState::Waiting));
    assert_eq!(settle(&*store, &held, DELIVERED).await, Settled::Done);
    assert_eq!(state(&*store, id).await, Some(EventState::Delivered));
    fixture.clock().advance(10 * HOLD_MS);
    assert!(lease(&*store, 10).await.is_empty());
    drop(store);
    assert!(lease(&*fixture.crash(), 10).await.is_empty());
}

pub async fn a_late_answer_is_refused(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    let late = lease(&*store, 10).await.remove(0);
    fixture.clock().advance(HOLD_MS);
    let held = lease(&*store, 10).await.remove(0);
    for outcome in [
        DELIVERED,
        parked("late"),
        handed_back(0, None),
        handed_back(0, Some("cut")),
        Outcome::Retry { wait_ms: 0, why: String::new() },
    ] {
        assert_eq!(settle(&*store, &late, outcome).await, Settled::Lost);
    }
    assert!(lease(&*store, 10).await.is_empty(), "a refused answer changes nothing");
    assert_eq!(settle(&*store, &held, DELIVERED).await, Settled::Done);
}

pub async fn an_answer_counts_once(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    accept_one(&*store, message("m2", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!(settle(&*store, &held, DELIVERED).await, Settled::Done);
    assert_eq!(settle(&*store, &held, DELIVERED).await, Settled::Lost);
    assert_eq!(lease(&*store, 10).await.len(), 1, "the second message is still there");
}

pub async fn a_lease_that_ran_out_untaken_may_still_be_settled(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    fixture.clock().advance(10 * HOLD_MS);
    assert_eq!(settle(&*store, &held, DELIVERED).await, Settled::Done);
}

pub async fn a_retry_waits_and_counts(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = accept_one(&*store, message("m1", "ana")).await;
    accept_one(&*store, message("m2", "ana")).await;
    for attempt in 1..4 {
        let held = lease(&*store, 10).await.remove(0);
        assert_eq!((ids(&held), held.attempt, held.failures), (vec![first], attempt, attempt - 1), "the first one stays first");
        settle(&*store, &held, Outcome::Retry { wait_ms: 5_000, why: "503".to_owned() }).await;
        fixture.clock().advance(4_999);
        assert!(lease(&*store, 10).await.is_empty());
        fixture.clock().advance(1);
    }
}

pub async fn handing_back_does_not_count(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    for _ in 0..3 {
        let held = lease(&*store, 10).await.remove(0);
        assert_eq!((held.attempt, held.failures), (1, 0));
        settle(&*store, &held, handed_back(1_000, None)).await;
        assert!(lease(&*store, 10).await.is_empty());
        fixture.clock().advance(1_000);
    }
}

/// What waits for somebody to change something says so, and was not tried for it.
pub async fn what_is_handed_back_for_a_reason_shows_it_and_does_not_count(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    for why in [Some("no target"), None] {
        let held = lease(&*store, 10).await.remove(0);
        let outcome = Outcome::HandBack { wait_ms: 0, why: why.map(str::to_owned), called: false };
        assert_eq!(settle(&*store, &held, outcome).await, Settled::Done);
        let detail = store.event(id).await.ok().flatten().unwrap_or_else(|| unreachable!("it is there"));
        assert_eq!(detail.open[0].why.as_deref(), Some("no target"), "the last reason stays");
        assert_eq!((detail.open[0].attempt, detail.open[0].failures, detail.attempts.len()), (0, 0, 0));
    }
    assert_eq!(lease(&*store, 10).await.remove(0).attempt, 1);
}

/// What may have reached the target counts as an attempt and stands in the story, whoever cut it; only failures are charged.
pub async fn a_call_that_was_cut_counts_and_is_not_charged(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    settle(&*store, &held, handed_back(1_000, Some("hapax stopped"))).await;
    assert!(lease(&*store, 10).await.is_empty());
    fixture.clock().advance(1_000);
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.failures), (2, 0));
    settle(&*store, &held, Outcome::Retry { wait_ms: 0, why: "500".to_owned() }).await;
    // Its worker dies.
    lease(&*store, 10).await;
    drop(store);
    let store = fixture.crash();
    fixture.clock().advance(HOLD_MS);
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.failures), (4, 1), "a crash counts and charges nothing");
    settle(&*store, &held, handed_back(0, None)).await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.failures), (4, 1), "what was not called does not count");
    settle(&*store, &held, parked("400")).await;
    let detail = store.event(id).await.ok().flatten().unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((detail.open[0].attempt, detail.open[0].failures), (4, 2), "the last failure is shown too");
    assert_eq!(store.redrive(Redrive::All, 10).await.ok(), Some(1));
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.failures), (5, 0), "redrive forgets the failures and counts the attempts on");
    let detail = store.event(id).await.ok().flatten().unwrap_or_else(|| unreachable!("it is there"));
    let story: Vec<_> = detail.attempts.iter().map(|row| (row.attempt, row.outcome.as_str())).collect();
    assert_eq!(story, [(1, "handed back"), (2, "retry"), (3, "lost"), (4, "parked")]);
    assert_eq!((detail.attempts[0].detail.as_str(), detail.open[0].failures), ("hapax stopped", 0));
}

pub async fn a_parked_item_leaves_the_lane_and_comes_back_by_redrive(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let poison = accept_one(&*store, message("m1", "ana")).await;
    let next = accept_one(&*store, message("m2", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    settle(&*store, &held, parked("400 Bad Request")).await;
    assert_eq!(state(&*store, poison).await, Some(EventState::Parked));
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!(ids(&held), [next], "the thread goes on");
    settle(&*store, &held, DELIVERED).await;
    assert!(lease(&*store, 10).await.is_empty());
    drop(store);
    let store = fixture.crash();
    assert_eq!(store.redrive(Redrive::Item(hapax_domain::ItemId(poison.0)), 10).await.ok(), Some(1));
    assert_eq!(state(&*store, poison).await, Some(EventState::Waiting));
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), held.attempt, held.failures), (vec![poison], 2, 0));
    settle(&*store, &held, Outcome::Parked { why: "stale".to_owned(), charged: false }).await;
    let detail = store.event(poison).await.ok().flatten().unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((detail.open[0].attempt, detail.open[0].failures), (2, 0), "the target did not fail it");
    assert_eq!(store.redrive(Redrive::All, 10).await.ok(), Some(1));
    let held = lease(&*store, 10).await.remove(0);
    settle(&*store, &held, DELIVERED).await;
    assert_eq!(state(&*store, poison).await, Some(EventState::Delivered));
}

pub async fn redrive_by_event_channel_and_all(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let batch = webhook(vec![message("m1", "ana"), message("m2", "ana"), message("m3", "bob"), message("m4", "cid")]);
    let accepted = accept(&*store, batch).await;
    for held in lease(&*store, 10).await {
        settle(&*store, &held, parked("no")).await;
    }
    let redrive = async |which| store.redrive(which, 10).await.unwrap_or_else(|error| unreachable!("{error}"));
    assert_eq!(redrive(Redrive::Event(accepted[1].event())).await, 1, "found by its second event too");
    assert_eq!(redrive(Redrive::Channel("nothing".to_owned())).await, 0);
    assert_eq!(store.redrive(Redrive::Channel("shop".to_owned()), 1).await.ok(), Some(1), "at most as many as asked");
    assert_eq!(redrive(Redrive::All).await, 1);
    assert_eq!(redrive(Redrive::All).await, 0);
    assert_eq!(lease(&*store, 10).await.len(), 3);
}

pub async fn a_replay_is_delivered_again_with_a_nonce(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    settle(&*store, &held, DELIVERED).await;
    for nonce in 1..3 {
        fixture.clock().advance(1_500);
        let item = store.replay(id).await.unwrap_or_else(|error| unreachable!("{error}"));
        let held = lease(&*store, 10).await.remove(0);
        assert_eq!((Some(held.item), ids(&held), held.replay, held.attempt), (item, vec![id], Some(nonce), 1));
        settle(&*store, &held, DELIVERED).await;
    }
    assert_eq!(state(&*store, id).await, Some(EventState::Delivered));
    let unknown = hapax_domain::EventId(hapax_domain::ids::numbered(0, 999_999));
    assert_eq!(store.replay(unknown).await.ok(), Some(None));
}

pub async fn an_answer_is_kept_for_every_event_of_the_item(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let accepted = accept(&*store, webhook(vec![message("m1", "ana"), message("m2", "ana")])).await;
    let held = lease(&*store, 10).await.remove(0);
    let answer = Answer { status: 201, content_type: Some("text/plain".to_owned()), body: Bytes::from_static(b"thanks") };
    settle(&*store, &held, Outcome::Delivered { status: 201, answer: Some(answer.clone()), replies: vec![] }).await;
    drop(store);
    let store = fixture.crash();
    for one in accepted {
        assert_eq!(store.answer(one.event()).await.ok(), Some(Some(answer.clone())));
    }
}
