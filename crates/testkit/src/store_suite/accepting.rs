//! Taking in: once per key, whatever the copies, instances and crashes.

use std::collections::HashSet;

use hapax_domain::{Event, EventKey, Kind, fingerprint};
use hapax_store::{Accepted, Beside, Copies, Disposition, EventQuery, EventState, Reason, Redrive, keep_beside, suspected};

use crate::store_fixture::{StoreFixture, WINDOW_MS, accept, accept_one, lease, message, notice, webhook, webhook_then};

pub async fn a_new_event_is_taken_in_once(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = accept(&*store, webhook(vec![message("m1", "ana")])).await;
    assert!(first[0].is_new());
    for _ in 0..3 {
        assert_eq!(accept(&*store, webhook(vec![message("m1", "ana")])).await, [Accepted::Duplicate(first[0].event())]);
    }
    assert_eq!(lease(&*store, 10).await.len(), 1);
}

pub async fn the_same_key_twice_in_one_webhook_is_a_duplicate(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let accepted = accept(&*store, webhook(vec![message("m1", "ana"), message("m1", "ana")])).await;
    assert_eq!(accepted[1], Accepted::Duplicate(accepted[0].event()));
    assert_eq!(lease(&*store, 10).await[0].events.len(), 1);
}

pub async fn another_content_under_the_same_key_is_a_conflict(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let other = Event { fingerprint: 8, ..message("m1", "ana") };
    assert_eq!(accept(&*store, webhook(vec![other])).await, [Accepted::Conflict(id)]);
    assert_eq!(lease(&*store, 10).await.len(), 1);
}

/// A message that was handled before hapax was there: its id is known, and what it said is not.
pub async fn what_holds_a_key_unseen_has_every_content(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let unseen = Event { fingerprint: fingerprint::UNKNOWN, peer: None, ..message("m1", "ana") };
    let kept = webhook_then(vec![(unseen, Disposition::Keep)]);
    let id = accept(&*store, kept).await[0].event();
    assert_eq!(accept(&*store, webhook(vec![message("m1", "ana")])).await, [Accepted::Duplicate(id)]);
    let other = Event { fingerprint: 8, ..message("m1", "ana") };
    assert_eq!(accept(&*store, webhook(vec![other.clone()])).await, [Accepted::Duplicate(id)]);
    drop(store);
    let store = fixture.crash();
    assert_eq!(accept(&*store, webhook(vec![other])).await, [Accepted::Duplicate(id)]);
    assert!(lease(&*store, 10).await.is_empty(), "it goes nowhere");
}

pub async fn a_webhook_with_old_and_new_events_takes_the_new_ones(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let old = accept_one(&*store, message("m2", "ana")).await;
    let batch = webhook(vec![message("m1", "bob"), message("m2", "ana"), message("m3", "bob")]);
    let accepted = accept(&*store, batch).await;
    assert_eq!(accepted.iter().map(|one| one.is_new()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(accepted[1], Accepted::Duplicate(old));
    let leases = lease(&*store, 10).await;
    let batch = leases.iter().find(|lease| lease.events[0].id == accepted[0].event());
    assert_eq!(batch.map(|lease| (lease.events.len(), lease.webhook_events)), Some((2, 3)));
}

pub async fn keys_outlive_a_crash(fixture: &dyn StoreFixture) {
    let id = accept_one(&*fixture.open(), message("m1", "ana")).await;
    let store = fixture.crash();
    assert_eq!(accept(&*store, webhook(vec![message("m1", "ana")])).await, [Accepted::Duplicate(id)]);
}

pub async fn a_key_is_forgotten_after_its_window_and_not_before(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    fixture.clock().advance(WINDOW_MS - 1);
    assert_eq!(accept(&*store, webhook(vec![message("m1", "ana")])).await, [Accepted::Duplicate(id)]);
    fixture.clock().advance(120_000);
    let again = accept(&*store, webhook(vec![message("m1", "ana")])).await;
    assert!(again[0].is_new() && again[0].event() != id);
    assert_eq!(accept(&*store, webhook(vec![message("m1", "ana")])).await, [Accepted::Duplicate(again[0].event())]);
}

/// Enough keys to cross every internal border an engine may have, over days and crashes.
pub async fn many_keys_stay_taken_over_periods_and_crashes(fixture: &dyn StoreFixture) {
    let mut store = fixture.open();
    let mut taken = Vec::new();
    for day in 0..5 {
        for n in 0..60 {
            let event = notice(&format!("{day}/{n}"));
            taken.push((event.clone(), accept_one(&*store, event).await));
        }
        for (event, id) in &taken {
            assert_eq!(accept(&*store, webhook(vec![event.clone()])).await, [Accepted::Duplicate(*id)], "{}", event.id);
        }
        fixture.clock().advance(24 * 3_600_000 + 1);
        drop(store);
        store = fixture.crash();
    }
    let ids: HashSet<_> = taken.iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), taken.len());
    for (event, id) in &taken {
        assert_eq!(accept(&*store, webhook(vec![event.clone()])).await, [Accepted::Duplicate(*id)], "{}", event.id);
    }
}

pub async fn two_instances_have_one_winner_per_key(fixture: &dyn StoreFixture) {
    let instances = [fixture.open(), fixture.open()];
    let mut tasks = Vec::new();
    for caller in 0..8 {
        let store = std::sync::Arc::clone(&instances[caller % 2]);
        tasks.push(tokio::spawn(async move {
            let mut won = Vec::new();
            for n in 0..100 {
                // Each caller starts elsewhere, so that all meet on the same key again and again.
                let id = format!("m{}", (n + caller * 13) % 100);
                if accept(&*store, webhook(vec![message(&id, "ana")])).await[0].is_new() {
                    won.push(id);
                }
            }
            won
        }));
    }
    let mut won = Vec::new();
    for task in tasks {
        won.extend(task.await.unwrap_or_else(|error| unreachable!("{error}")));
    }
    won.sort();
    let all: HashSet<_> = won.iter().collect();
    assert_eq!((won.len(), all.len()), (100, 100));
}

pub async fn a_stub_does_not_take_the_key_of_the_message(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let key = EventKey::new("generic", "acc", Kind::Notice, "m1", &["stub"]);
    let stub = Event { key, kind: Kind::Notice, ..message("m1", "ana") };
    assert!(accept(&*store, webhook(vec![stub])).await[0].is_new());
    assert!(accept(&*store, webhook(vec![message("m1", "ana")])).await[0].is_new());
}

pub async fn copies_and_conflicts_are_counted(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    let copies = |copies, conflicts, last_ms| Copies { event: id, copies, conflicts, last_ms, kept: None };
    for more in [copies(2, 0, 10), copies(3, 1, 5)] {
        store.note_copies(vec![more]).await.unwrap_or_else(|error| unreachable!("{error}"));
    }
    let detail = store.event(id).await.unwrap_or_else(|error| unreachable!("{error}"));
    assert_eq!(detail.and_then(|detail| detail.copies), Some(copies(5, 1, 10)));
}

pub async fn an_event_may_be_remembered_for_a_time_of_its_own(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let brief = || Event { window_ms: Some(60_000), ..message("m1", "ana") };
    let accepted = accept(&*store, webhook(vec![brief(), message("m2", "ana")])).await;
    assert_eq!(accept(&*store, webhook(vec![brief()])).await, [Accepted::Duplicate(accepted[0].event())]);
    fixture.clock().advance(240_000);
    let again = accept(&*store, webhook(vec![brief(), message("m2", "ana")])).await;
    assert!(matches!(again[0], Accepted::New(id) if id != accepted[0].event()), "{again:?}");
    assert_eq!(again[1], Accepted::Duplicate(accepted[1].event()));
}

pub async fn what_was_signed_before_is_parked_under_another_id(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let guard = Some(EventKey::from_content("signed", "shop", b"a body"));
    let signed = |id: &str| Event { guard, ..notice(id) };
    let first = accept(&*store, webhook(vec![signed("d1")])).await[0];
    assert!(matches!(first, Accepted::New(_)), "{first:?}");
    assert_eq!(
        accept(&*store, webhook(vec![signed("d1")])).await,
        [Accepted::Duplicate(first.event())],
        "a redelivery is a copy"
    );
    drop(store);
    let store = fixture.crash();
    let replayed = accept(&*store, webhook(vec![signed("d2")])).await[0];
    let Accepted::Suspected(id) = replayed else { unreachable!("{replayed:?}") };
    assert_eq!(accept(&*store, webhook(vec![signed("d2")])).await, [Accepted::Duplicate(id)]);
    let detail = store.event(id).await.ok().flatten().unwrap_or_else(|| unreachable!("it is recorded"));
    assert_eq!(detail.row.state, EventState::Parked);
    assert_eq!(detail.open[0].why, Some(suspected(first.event())));
    assert_eq!(lease(&*store, 10).await.len(), 1, "only the first is delivered");
    for many in [Redrive::Channel("shop".to_owned()), Redrive::All] {
        assert_eq!(store.redrive(many, 10).await.ok(), Some(0), "a redrive of many delivers nothing that may be forged");
    }
    assert_eq!(store.redrive(Redrive::Event(id), 10).await.ok(), Some(1));
    let leases = lease(&*store, 10).await;
    assert_eq!(leases.iter().map(|lease| lease.events[0].id).collect::<Vec<_>>(), [id], "a person may say so");
    fixture.clock().advance(WINDOW_MS + 120_000);
    assert!(matches!(accept(&*store, webhook(vec![signed("d3")])).await[..], [Accepted::New(_)]), "after the window it is new");
}

pub async fn when_suspects_are_full_one_more_is_a_copy(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let guard = Some(EventKey::from_content("signed", "shop", b"a body"));
    let signed = |id: &str| Event { guard, guard_suppresses: true, ..notice(id) };
    let first = accept(&*store, webhook(vec![signed("d1")])).await[0];
    assert!(matches!(first, Accepted::New(_)), "the first is none: {first:?}");
    assert_eq!(accept(&*store, webhook(vec![signed("d2")])).await, [Accepted::Duplicate(first.event())]);
    assert_eq!(accept(&*store, webhook(vec![signed("d2")])).await, [Accepted::Duplicate(first.event())], "and so is its copy");
    let again = accept(&*store, webhook(vec![signed("d2"), signed("d2"), signed("d4")])).await;
    assert_eq!(again, [Accepted::Duplicate(first.event()); 3]);
    let all = store.events(EventQuery { limit: 10, ..EventQuery::default() }).await.ok();
    assert_eq!(all.map(|page| page.rows.len()), Some(1), "nothing was recorded of it");
    let room = Event { guard_suppresses: false, ..signed("d3") };
    assert!(matches!(accept(&*store, webhook(vec![room])).await[..], [Accepted::Suspected(_)]));
}

pub async fn what_is_kept_beside_an_event_is_linked_once(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = accept_one(&*store, message("m1", "ana")).await;
    let other = |content: &'static str, fingerprint| Beside {
        reason: Reason::Conflict,
        first,
        channel: "shop".into(),
        account: "acc".to_owned(),
        window_ms: WINDOW_MS,
        why: "for the test".to_owned(),
        content: content.into(),
        fingerprint,
    };
    for (content, fingerprint) in [("one", 3), ("one", 3), ("two", 4), ("three", 12), ("two", 4), ("three", 12)] {
        assert!(keep_beside(&*store, other(content, fingerprint)).await.is_ok(), "{content}");
    }
    drop(store);
    let store = fixture.crash();
    let copies = store.event(first).await.ok().flatten().and_then(|detail| detail.copies);
    let kept = copies.and_then(|copies| copies.kept).unwrap_or_else(|| unreachable!("it is linked: {copies:?}"));
    let kept = store.event(kept).await.ok().flatten().unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((&kept.body[..], kept.row.state), (&b"one"[..], EventState::Kept));
    assert_eq!(Reason::of_shown(&kept.row.provider_id), Some((Reason::Conflict, first)));
    let all = async || store.events(EventQuery { limit: 50, ..EventQuery::default() }).await.map(|page| page.rows.len()).ok();
    assert_eq!(all().await, Some(4), "the first, and three contents, whatever their fingerprints have in common");
    for fingerprint in [20, 28, 36, 44, 52, 60, 3, 12, 20] {
        assert!(keep_beside(&*store, other("more", fingerprint)).await.is_ok());
    }
    assert_eq!(all().await, Some(9), "eight others are kept");
    assert_eq!(lease(&*store, 10).await.len(), 1);
}
