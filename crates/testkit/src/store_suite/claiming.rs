//! Claims: one holder at a time, one completion, and values that end. What becomes of a key is the domain's rule, with tests of its own; here
//! each engine shows that it keeps it between instances, over crashes, and by its own clock.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use hapax_domain::claim::{
    Claim, ClaimAnswer, ClaimKey, ClaimOp, ClaimResult, ClaimState, Condition, Ends, OnAbandoned, Previous, ShownState, ValueLeft,
};
use hapax_domain::limits::{CLAIM_KEY_MAX_BYTES, CLAIM_RESULT_MAX_BYTES, CLAIM_SCOPE_MAX_BYTES};
use hapax_store::{ClaimCounts, ClaimQuery, Store, StoreError};

use crate::store_fixture::StoreFixture;
use crate::store_suite::clocks::set_back;

const TTL_MS: i64 = 3_600_000;
const LEASE_MS: i64 = 10_000;
const YEAR_MS: i64 = 365 * 24 * 3_600_000;

fn fine<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

fn key(key: &str) -> ClaimKey {
    ClaimKey::new("jobs", key)
}

fn claim(token: &str) -> ClaimOp {
    ClaimOp::Claim {
        token: token.to_owned(),
        ttl_ms: TTL_MS,
        lease_ms: LEASE_MS,
        fingerprint: None,
        on_abandoned: OnAbandoned::Takeover,
        holder: Some("host".to_owned()),
    }
}

fn hold(token: &str) -> ClaimOp {
    ClaimOp::Claim {
        token: token.to_owned(),
        ttl_ms: TTL_MS,
        lease_ms: LEASE_MS,
        fingerprint: Some("print".to_owned()),
        on_abandoned: OnAbandoned::Hold,
        holder: None,
    }
}

fn result(bytes: impl Into<Bytes>) -> Option<ClaimResult> {
    Some(ClaimResult { content_type: Some("text/plain".to_owned()), bytes: bytes.into() })
}

fn complete(token: &str, bytes: &'static str) -> ClaimOp {
    ClaimOp::Complete { token: token.to_owned(), result: result(bytes), keep_ms: None }
}

fn set(value: &'static str, condition: Condition, ends: Ends) -> ClaimOp {
    ClaimOp::Set { value: Bytes::from_static(value.as_bytes()), condition, ends, tell: true }
}

async fn ask(store: &dyn Store, name: &str, op: ClaimOp) -> ClaimAnswer {
    fine(store.claims(vec![(key(name), op)]).await).remove(0)
}

fn fence_of(answer: &ClaimAnswer) -> u64 {
    match answer {
        ClaimAnswer::Claimed { fence, .. } => *fence,
        other => unreachable!("not claimed: {other:?}"),
    }
}

fn is_in_progress(answer: &ClaimAnswer) -> bool {
    matches!(answer, ClaimAnswer::InProgress { .. })
}

pub async fn a_claim_has_one_holder_and_one_completion(fixture: &dyn StoreFixture) {
    let (one, other) = (fixture.open(), fixture.open());
    let now_ms = hapax_store::clock::Clock::now_ms(fixture.clock());
    let first = ask(&*one, "k", claim("a")).await;
    let (fence, lease_until_ms) = (fence_of(&first), now_ms + LEASE_MS);
    assert_eq!(first, ClaimAnswer::Claimed { token: "a".to_owned(), fence, lease_until_ms, previous: Previous::None });
    assert_eq!(ask(&*other, "k", claim("b")).await, ClaimAnswer::InProgress { lease_until_ms });
    assert_eq!(ask(&*other, "k", complete("b", "no")).await, ClaimAnswer::Lost);
    fixture.clock().advance(LEASE_MS - 1);
    let extended = ask(&*other, "k", ClaimOp::Extend { token: "a".to_owned(), lease_ms: LEASE_MS }).await;
    assert_eq!(extended, ClaimAnswer::Extended { lease_until_ms: now_ms + 2 * LEASE_MS - 1 });
    fixture.clock().advance(LEASE_MS - 1);
    assert!(is_in_progress(&ask(&*one, "k", claim("b")).await));
    let completed_at_ms = now_ms + 2 * LEASE_MS - 2;
    let done = ClaimAnswer::Done { completed_at_ms, ends_ms: Some(completed_at_ms + TTL_MS) };
    assert_eq!(ask(&*other, "k", complete("a", "yes")).await, done);
    assert_eq!(ask(&*one, "k", complete("a", "yes")).await, done, "the same completion twice is one");
    drop((one, other));
    let one = fixture.crash();
    let replayed = ClaimAnswer::Completed { result: result("yes"), completed_at_ms };
    fixture.clock().advance(TTL_MS - 1);
    assert_eq!(ask(&*one, "k", claim("c")).await, replayed);
    let kept = fine(one.claim(&key("k")).await).expect("it is kept");
    assert_eq!(
        (kept.fence, kept.state, kept.result, kept.holder.as_deref()),
        (fence, ClaimState::Completed, result("yes"), Some("host"))
    );
    fixture.clock().advance(1);
    assert_eq!(fine(one.claim(&key("k")).await), None, "it is over");
    let anew = ask(&*one, "k", claim("c")).await;
    assert!(fence_of(&anew) > fence);
    let kept = fine(one.claim(&key("k")).await).expect("it is held");
    assert_eq!((kept.state, kept.result, kept.completed_at_ms), (ClaimState::Held, None, None), "nothing of before is left");
}

pub async fn many_claim_a_key_and_one_gets_it(fixture: &dyn StoreFixture) {
    let stores = [fixture.open(), fixture.open()];
    for round in 0..5 {
        let name = format!("raced {round}");
        let asks = (0..40).map(|n| {
            let (store, name) = (&stores[n % 2], &name);
            async move { ask(&**store, name, claim(&format!("t{n}"))).await }
        });
        let answers = join_all(asks).await;
        let won: Vec<&ClaimAnswer> = answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Claimed { .. })).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| is_in_progress(answer)).count(), 39, "{answers:?}");
    }
}

/// Each takes the key, looks, and lets it go, while others are on their way to it.
pub async fn the_fences_of_a_key_only_rise(fixture: &dyn StoreFixture) {
    let stores = [fixture.open(), fixture.open()];
    let highest = AtomicU64::new(0);
    let takes = async |n: usize| {
        let mut got = 0;
        for round in 0..60 {
            let (store, token) = (&*stores[n % 2], format!("{n}/{round}"));
            if let ClaimAnswer::Claimed { fence, .. } = ask(store, "k", claim(&token)).await {
                let before = highest.swap(fence, Ordering::SeqCst);
                assert!(before < fence, "{fence} after {before}");
                ask(store, "k", ClaimOp::Release { token }).await;
                got += 1;
            }
        }
        got
    };
    let got: usize = join_all((0..8).map(takes)).await.into_iter().sum();
    assert!(got > 0);
}

pub async fn a_dead_holder_is_followed_by_one_other(fixture: &dyn StoreFixture) {
    let stores = [fixture.open(), fixture.open()];
    let first = fence_of(&ask(&*stores[0], "k", claim("dead")).await);
    fixture.clock().advance(LEASE_MS - 1);
    assert!(is_in_progress(&ask(&*stores[1], "k", claim("early")).await));
    fixture.clock().advance(1);
    let asks = (0..20).map(|n| ask_as(&*stores[n % 2], n));
    let answers = join_all(asks).await;
    let taken: Vec<&ClaimAnswer> =
        answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Claimed { previous: Previous::Abandoned, .. })).collect();
    assert_eq!(taken.len(), 1, "{answers:?}");
    assert!(fence_of(taken[0]) > first);
    assert_eq!(answers.iter().filter(|answer| is_in_progress(answer)).count(), 19);
    for late in [complete("dead", "late"), ClaimOp::Release { token: "dead".to_owned() }] {
        assert_eq!(ask(&*stores[0], "k", late).await, ClaimAnswer::Lost);
    }
    let extend = ClaimOp::Extend { token: "dead".to_owned(), lease_ms: LEASE_MS };
    assert_eq!(ask(&*stores[1], "k", extend).await, ClaimAnswer::Lost);
}

async fn ask_as(store: &dyn Store, n: usize) -> ClaimAnswer {
    ask(store, "k", claim(&format!("t{n}"))).await
}

pub async fn a_late_completion_counts_until_another_has_begun(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    ask(&*store, "k", claim("slow")).await;
    fixture.clock().advance(5 * LEASE_MS);
    assert!(matches!(ask(&*store, "k", complete("slow", "yes")).await, ClaimAnswer::Done { .. }));
    assert!(matches!(ask(&*store, "k", claim("b")).await, ClaimAnswer::Completed { .. }));
}

pub async fn a_claim_that_is_held_waits_for_a_person(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    ask(&*store, "pay", hold("a")).await;
    assert_eq!(
        ask(
            &*store,
            "pay",
            ClaimOp::Claim {
                token: "b".to_owned(),
                ttl_ms: TTL_MS,
                lease_ms: LEASE_MS,
                fingerprint: Some("other".to_owned()),
                on_abandoned: OnAbandoned::Takeover,
                holder: None,
            }
        )
        .await,
        ClaimAnswer::FingerprintMismatch
    );
    fixture.clock().advance(YEAR_MS);
    while fine(store.purge(&[("shop".to_owned(), TTL_MS)], 10).await).more {}
    drop(store);
    let store = fixture.crash();
    assert!(matches!(ask(&*store, "pay", claim("b")).await, ClaimAnswer::HeldForPerson { .. }));
    assert_eq!(ask(&*store, "pay", ClaimOp::Release { token: "a".to_owned() }).await, ClaimAnswer::Released);
    fence_of(&ask(&*store, "pay", claim("b")).await);
    assert_eq!(ask(&*store, "pay", ClaimOp::Delete).await, ClaimAnswer::Removed(true));
    assert_eq!(ask(&*store, "pay", ClaimOp::Delete).await, ClaimAnswer::Removed(false));
    assert_eq!(fine(store.claim(&key("pay")).await), None);
}

pub async fn a_batch_is_decided_in_order(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let in_a_minute = Ends::In(60_000);
    let ops = vec![
        (key("a"), claim("1")),
        (key("b"), claim("2")),
        (key("a"), claim("3")),
        (key("a"), complete("1", "done")),
        (key("a"), claim("4")),
        (key("b"), ClaimOp::Release { token: "2".to_owned() }),
        (key("b"), claim("5")),
        (key("v"), set("x", Condition::IfAbsent, in_a_minute)),
        (key("v"), ClaimOp::Get),
        (key("v"), ClaimOp::Remove),
        (key("v"), ClaimOp::Get),
        (ClaimKey::new("other", "a"), claim("6")),
    ];
    let answers = fine(store.claims(ops).await);
    let (first, again) = (fence_of(&answers[1]), fence_of(&answers[6]));
    assert!(again > first);
    assert!(is_in_progress(&answers[2]), "{answers:?}");
    assert!(matches!(answers[3], ClaimAnswer::Done { .. }), "{answers:?}");
    assert!(matches!(&answers[4], ClaimAnswer::Completed { result: kept, .. } if *kept == result("done")), "{answers:?}");
    assert_eq!(answers[5], ClaimAnswer::Released);
    assert_eq!(answers[7], ClaimAnswer::Set { previous: None });
    let value = ValueLeft { value: Bytes::from_static(b"x"), left_ms: Some(60_000) };
    assert_eq!(answers[8..11], [ClaimAnswer::Value(Some(value)), ClaimAnswer::Removed(true), ClaimAnswer::Value(None)]);
    fence_of(&answers[11]);
    assert!(fine(store.claims(vec![]).await).is_empty());
}

pub async fn a_value_is_set_once_and_ends(fixture: &dyn StoreFixture) {
    let (one, other) = (fixture.open(), fixture.open());
    let sets = (0..20).map(|n| {
        let store = if n % 2 == 0 { &one } else { &other };
        async move { ask(&**store, "lock", set("mine", Condition::IfAbsent, Ends::In(1_000))).await }
    });
    let answers = join_all(sets).await;
    assert_eq!(answers.iter().filter(|answer| **answer == ClaimAnswer::Set { previous: None }).count(), 1, "{answers:?}");
    let other_value = ClaimOp::DeleteIfEquals { value: Bytes::from_static(b"yours") };
    assert_eq!(ask(&*other, "lock", other_value).await, ClaimAnswer::Removed(false));
    let longer = ClaimOp::ExpireIfEquals { value: Bytes::from_static(b"mine"), ends: Ends::Plus(500) };
    assert_eq!(ask(&*other, "lock", longer).await, ClaimAnswer::Expiring(true));
    fixture.clock().advance(1_499);
    drop((one, other));
    let one = fixture.crash();
    let left = ValueLeft { value: Bytes::from_static(b"mine"), left_ms: Some(1) };
    assert_eq!(ask(&*one, "lock", ClaimOp::Get).await, ClaimAnswer::Value(Some(left)));
    fixture.clock().advance(1);
    assert_eq!(ask(&*one, "lock", ClaimOp::Get).await, ClaimAnswer::Value(None));
    assert_eq!(ask(&*one, "lock", set("new", Condition::IfAbsent, Ends::Never)).await, ClaimAnswer::Set { previous: None });
    let seen = ClaimAnswer::NotSet { found: Some(Bytes::from_static(b"new")) };
    assert_eq!(ask(&*one, "lock", set("x", Condition::IfAbsent, Ends::Never)).await, seen);
    assert!(
        matches!(ask(&*one, "lock", claim("a")).await, ClaimAnswer::Completed { .. }),
        "a value is no job that can be claimed"
    );
    let mine = ClaimOp::DeleteIfEquals { value: Bytes::from_static(b"new") };
    assert_eq!(ask(&*one, "lock", mine).await, ClaimAnswer::Removed(true));
}

pub async fn a_claim_holds_so_much(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let long = ClaimKey::new("s".repeat(CLAIM_SCOPE_MAX_BYTES), "\u{0}é\"\\".repeat(CLAIM_KEY_MAX_BYTES / 5));
    assert_eq!(long.key.len(), CLAIM_KEY_MAX_BYTES);
    let blank = ClaimKey::new(long.scope.clone(), format!("{} ", &long.key[..CLAIM_KEY_MAX_BYTES - 1]));
    let bytes = Bytes::from((0..CLAIM_RESULT_MAX_BYTES).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
    let whole = ClaimOp::Complete { token: "a".to_owned(), result: result(bytes.clone()), keep_ms: Some(1_000) };
    let answers = fine(store.claims(vec![(long.clone(), claim("a")), (long.clone(), whole)]).await);
    assert!(matches!(answers[1], ClaimAnswer::Done { .. }), "{answers:?}");
    fence_of(&fine(store.claims(vec![(blank, claim("b"))]).await)[0]);
    let kept = fine(store.claim(&long).await).expect("it is kept");
    assert!(kept.key == long && kept.result == result(bytes.clone()));
    fixture.clock().advance(1_000);
    fence_of(&fine(store.claims(vec![(long.clone(), claim("c"))]).await)[0]);
    let small = ClaimOp::Complete { token: "c".to_owned(), result: None, keep_ms: None };
    fine(store.claims(vec![(long.clone(), small)]).await);
    assert_eq!(fine(store.claim(&long).await).expect("it is kept").result, None, "nothing of the large one is left");

    let refused = |answer: Result<Vec<ClaimAnswer>, StoreError>| matches!(answer, Err(StoreError::Refused(_)));
    for bad in [ClaimKey::new("jobs", "k".repeat(CLAIM_KEY_MAX_BYTES + 1)), ClaimKey::new("jobs", ""), ClaimKey::new("", "k")] {
        assert!(refused(store.claims(vec![(bad, claim("a"))]).await));
    }
    let large = ClaimOp::Complete { token: "c".to_owned(), result: result(vec![0; CLAIM_RESULT_MAX_BYTES + 1]), keep_ms: None };
    assert!(refused(store.claims(vec![(key("k"), claim("a")), (long, large)]).await));
    assert_eq!(fine(store.claim(&key("k")).await), None, "none of the call was done");
}

pub async fn claims_are_listed_newest_first(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let names = |rows: &[Claim]| rows.iter().map(|claim| claim.key.key.clone()).collect::<Vec<_>>();
    for name in ["a1", "a2", "b1"] {
        ask(&*store, name, claim(name)).await;
    }
    fine(store.claims(vec![(ClaimKey::new("other", "a9"), claim("x"))]).await);
    ask(&*store, "a2", complete("a2", "done")).await;
    ask(&*store, "v", set("x", Condition::Always, Ends::In(TTL_MS))).await;
    fixture.clock().advance(LEASE_MS);
    ask(&*store, "fresh", claim("f")).await;
    ask(&*store, "a1", claim("taken")).await;
    let list = async |query: ClaimQuery| fine(store.list_claims(query).await);
    let all = ClaimQuery { limit: 10, ..ClaimQuery::default() };
    let found = list(all.clone()).await;
    assert_eq!((names(&found.rows), found.more), (["a1", "fresh", "v", "a9", "b1", "a2"].map(str::to_owned).to_vec(), false));
    assert!(found.rows.iter().all(|claim| claim.result.is_none()), "without results");
    let page = list(ClaimQuery { limit: 2, ..all.clone() }).await;
    assert_eq!((names(&page.rows), page.more), (["a1", "fresh"].map(str::to_owned).to_vec(), true));
    let next = list(ClaimQuery { before: page.rows.last().map(|last| last.fence), limit: 4, ..all.clone() }).await;
    assert_eq!((names(&next.rows), next.more), (["v", "a9", "b1", "a2"].map(str::to_owned).to_vec(), false));
    let jobs = ClaimQuery { scope: Some("jobs".to_owned()), prefix: Some("a".to_owned()), ..all.clone() };
    assert_eq!(names(&list(jobs).await.rows), ["a1", "a2"]);
    assert_eq!(names(&list(ClaimQuery { prefix: Some("a".to_owned()), ..all.clone() }).await.rows), ["a1", "a9", "a2"]);
    for (state, expected) in [
        (ShownState::Held, &["a1", "fresh"][..]),
        (ShownState::Abandoned, &["a9", "b1"]),
        (ShownState::Completed, &["a2"]),
        (ShownState::Value, &["v"]),
    ] {
        assert_eq!(names(&list(ClaimQuery { state: Some(state), ..all.clone() }).await.rows), expected, "{state:?}");
    }
    let counts = ClaimCounts { held: 2, abandoned: 2, completed: 1, values: 1 };
    assert_eq!(fine(store.stats().await).claims, counts);
    fixture.clock().advance(TTL_MS);
    assert_eq!(names(&list(all).await.rows), ["a1", "fresh"], "what is over is not listed");
}

pub async fn so_many_claims_are_kept(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    store.limit_claims(3);
    let claimed = fine(store.claims((0..5).map(|n| (key(&format!("k{n}")), claim("a"))).collect()).await);
    assert!(claimed[..3].iter().all(|answer| matches!(answer, ClaimAnswer::Claimed { .. })), "{claimed:?}");
    assert_eq!(claimed[3..], [ClaimAnswer::NoRoom, ClaimAnswer::NoRoom]);
    assert_eq!(ask(&*store, "v", set("x", Condition::Always, Ends::Never)).await, ClaimAnswer::NoRoom);
    assert!(is_in_progress(&ask(&*store, "k0", claim("b")).await), "those that are there go on");
    assert_eq!(ask(&*store, "k1", ClaimOp::Release { token: "a".to_owned() }).await, ClaimAnswer::Released);
    fence_of(&ask(&*store, "k4", claim("b")).await);
    assert_eq!(ask(&*store, "k1", claim("b")).await, ClaimAnswer::NoRoom);
}

pub async fn purge_forgets_claims_that_are_over(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for n in 0..25 {
        let name = format!("k{n}");
        let keep = ClaimOp::Complete { token: "a".to_owned(), result: result("r"), keep_ms: Some(1_000) };
        fine(store.claims(vec![(key(&name), claim("a")), (key(&name), keep)]).await);
    }
    ask(&*store, "held", hold("a")).await;
    ask(&*store, "young", set("x", Condition::Always, Ends::In(1_001))).await;
    fixture.clock().advance(1_000);
    let (mut steps, retention) = (1, [("shop".to_owned(), YEAR_MS)]);
    while fine(store.purge(&retention, 10).await).more {
        steps += 1;
    }
    assert!(steps >= 3, "ten at a time");
    let counts = ClaimCounts { held: 1, abandoned: 0, completed: 0, values: 1 };
    assert_eq!(fine(store.stats().await).claims, counts);
    fence_of(&ask(&*store, "k0", claim("b")).await);
}

pub async fn a_claim_outlives_a_clock_that_was_set_back(fixture: &dyn StoreFixture) {
    if !fixture.may_be_set_back() {
        return;
    }
    let store = fixture.open();
    ask(&*store, "held", claim("a")).await;
    ask(&*store, "done", claim("a")).await;
    ask(&*store, "done", complete("a", "yes")).await;
    let store = set_back(fixture, store, 3_600_000).await;
    assert!(matches!(ask(&*store, "done", claim("b")).await, ClaimAnswer::Completed { .. }));
    assert!(is_in_progress(&ask(&*store, "held", claim("b")).await));
    fixture.clock().advance(LEASE_MS - 1);
    assert!(is_in_progress(&ask(&*store, "held", claim("b")).await));
    fixture.clock().advance(1);
    fence_of(&ask(&*store, "held", claim("b")).await);
}
