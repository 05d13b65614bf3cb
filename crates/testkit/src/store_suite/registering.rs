//! Registers: changed only as they were seen, and gone when their time is over.

use futures_util::future::join_all;
use hapax_domain::limits::{REGISTER_MAX_BYTES, REGISTER_NAME_MAX_BYTES};
use hapax_store::{Store, StoreError};

use crate::store_fixture::StoreFixture;
use crate::store_suite::clocks::set_back;

const YEAR_MS: i64 = 365 * 24 * 3_600_000;

fn fine<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

fn is(value: &str) -> Option<String> {
    Some(value.to_owned())
}

async fn look(store: &dyn Store, name: &str) -> Option<String> {
    fine(store.amend(name, None, None, None).await)
}

pub async fn a_setting_is_remembered_once(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    assert_eq!(fine(store.remember("token", "a").await), "a");
    assert_eq!(fine(fixture.open().remember("token", "b").await), "a");
    drop(store);
    assert_eq!(fine(fixture.crash().remember("token", "c").await), "a");
}

pub async fn a_setting_is_amended_only_as_it_was_seen(fixture: &dyn StoreFixture) {
    let (one, other) = (fixture.open(), fixture.open());
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(fine(one.amend("s", None, None, None).await), None);
    assert_eq!(fine(one.amend("s", Some("a"), Some("b"), None).await), None, "nothing was there");
    assert_eq!(fine(one.amend("s", None, Some("a"), None).await), is("a"));
    assert_eq!(fine(other.amend("s", None, Some("b"), None).await), is("a"), "something was there");
    assert_eq!(fine(other.amend("s", Some("A"), Some("b"), None).await), is("a"), "something else was there");
    assert_eq!(fine(other.amend("s", Some("a"), Some("b "), None).await), is("b "));
    assert_eq!(fine(one.amend("s", Some("b"), None, None).await), is("b "), "every blank counts");
    let values: Vec<String> = (0..8).map(|n| format!("value {n}")).collect();
    let races = values.iter().map(|value| one.amend("s", Some("b "), Some(value), None));
    let said: Vec<_> = futures_util::future::join_all(races).await.into_iter().map(fine).collect();
    let won = fine(other.amend("s", None, None, None).await).expect("one has won");
    assert!(values.contains(&won) && said.iter().all(|said| said.as_ref() == Some(&won)), "{said:?}");
    drop((one, other));
    let again = fixture.crash();
    assert_eq!(fine(again.remember("s", "c").await), won);
    assert_eq!(fine(again.amend("s", Some(&won), None, None).await), None);
    assert_eq!(fine(again.amend("s", None, Some("d"), None).await), is("d"));
}

pub async fn a_register_ends_after_its_time(fixture: &dyn StoreFixture) {
    let (one, other) = (fixture.open(), fixture.open());
    assert_eq!(fine(one.amend("r", None, Some("a"), Some(1_000)).await), is("a"));
    fixture.clock().advance(999);
    assert_eq!(look(&*other, "r").await, is("a"));
    assert_eq!(fine(other.remember("r", "b").await), "a");
    drop((one, other));
    let one = fixture.crash();
    assert_eq!(look(&*one, "r").await, is("a"), "a crash shortens nothing");
    fixture.clock().advance(1);
    assert_eq!(look(&*one, "r").await, None);
    assert_eq!(fine(one.amend("r", Some("a"), Some("b"), None).await), None, "nothing is there");
    assert_eq!(fine(one.amend("r", Some("a"), None, None).await), None);
    assert_eq!(fine(one.remember("r", "c").await), "c");
    fixture.clock().advance(YEAR_MS);
    assert_eq!(look(&*one, "r").await, is("c"), "what is remembered has no end");
}

/// Everybody writes behind the others, as long as that takes; who was told that it has won writes nothing again.
pub async fn who_has_amended_is_told_so_whatever_follows(fixture: &dyn StoreFixture) {
    let stores = [fixture.open(), fixture.open(), fixture.open()];
    let writers = stores.iter().enumerate().map(async |(who, store)| {
        for line in 0..20 {
            let mut there = look(&**store, "list").await;
            loop {
                let new = format!("{}{who}.{line};", there.as_deref().unwrap_or_default());
                let after = fine(store.amend("list", there.as_deref(), Some(&new), None).await);
                if after.as_ref() == Some(&new) {
                    break;
                }
                there = after;
            }
        }
    });
    join_all(writers).await;
    let list = look(&*stores[0], "list").await.expect("a list");
    let mut lines: Vec<&str> = list.split_terminator(';').collect();
    assert_eq!(lines.len(), 60, "{list}");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 60, "{list}");
}

pub async fn the_last_amend_says_how_long(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    fine(store.amend("r", None, Some("a"), Some(1_000)).await);
    fixture.clock().advance(600);
    assert_eq!(fine(store.amend("r", None, Some("b"), Some(9_000)).await), is("a"), "lost: nothing changes");
    assert_eq!(fine(store.amend("r", Some("x"), Some("a"), Some(9_000)).await), is("a"), "lost");
    assert_eq!(fine(store.amend("r", Some("a"), Some("b"), Some(1_000)).await), is("b"));
    fixture.clock().advance(999);
    assert_eq!(fine(store.amend("r", Some("b"), Some("b"), Some(1_000)).await), is("b"), "the same for longer");
    fixture.clock().advance(999);
    assert_eq!(fine(store.amend("r", Some("b"), Some("b"), None).await), is("b"), "the same for ever");
    fixture.clock().advance(YEAR_MS);
    assert_eq!(look(&*store, "r").await, is("b"));
    assert_eq!(fine(store.amend("r", Some("b"), Some("b"), Some(10)).await), is("b"), "and no longer");
    fixture.clock().advance(10);
    assert_eq!(look(&*store, "r").await, None);
    assert_eq!(fine(store.amend("r", None, Some("c"), Some(10)).await), is("c"));
    assert_eq!(fine(store.amend("r", Some("c"), None, Some(10)).await), None, "removed before its time");
    assert_eq!(look(&*store, "r").await, None);
}

pub async fn what_is_over_is_put_anew_by_one(fixture: &dyn StoreFixture) {
    let (one, other) = (fixture.open(), fixture.open());
    fine(one.amend("r", None, Some("old"), Some(10)).await);
    fixture.clock().advance(10);
    let values: Vec<String> = (0..10).map(|n| format!("v{n}")).collect();
    let puts = values.iter().enumerate().map(|(n, value)| {
        let store = if n % 2 == 0 { &one } else { &other };
        store.amend("r", None, Some(value), Some(1_000))
    });
    let answers: Vec<Option<String>> = join_all(puts).await.into_iter().map(fine).collect();
    let won = look(&*one, "r").await;
    assert!(won.as_ref().is_some_and(|won| values.contains(won)));
    assert!(answers.iter().all(|answer| *answer == won), "all are told the same: {answers:?}");
}

pub async fn a_register_holds_so_much(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let name = "n".repeat(REGISTER_NAME_MAX_BYTES);
    let long = |last: char| "é\u{0}\"\\ ".repeat(REGISTER_MAX_BYTES / 6 - 1) + &String::from(last).repeat(6);
    let (a, b) = (long('a'), long('b'));
    assert_eq!(fine(store.amend(&name, None, Some(&a), Some(1_000)).await), is(&a));
    assert_eq!(fine(store.amend(&name, Some(&b), Some(&a), Some(1_000)).await), is(&a), "the last letter counts");
    assert_eq!(fine(store.amend(&name, Some(&a), Some(&b), Some(i64::MAX)).await), is(&b));
    let refused = |answer: Result<Option<String>, StoreError>| matches!(answer, Err(StoreError::Refused(_)));
    assert!(refused(store.amend(&name, Some(&b), Some(&"x".repeat(REGISTER_MAX_BYTES + 1)), None).await));
    assert!(refused(store.amend(&format!("{name}n"), None, Some("x"), None).await));
    assert!(store.remember(&format!("{name}n"), "x").await.is_err());
    assert_eq!(look(&*store, &name).await, is(&b));
}

pub async fn purge_forgets_registers_that_are_over(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    fine(store.remember("kept", "for ever").await);
    for n in 0..25 {
        fine(store.amend(&format!("r{n}"), None, Some("a"), Some(1_000)).await);
    }
    fine(store.amend("young", None, Some("a"), Some(1_001)).await);
    fixture.clock().advance(1_000);
    let (mut steps, retention) = (1, [("shop".to_owned(), YEAR_MS)]);
    while fine(store.purge(&retention, 10).await).more {
        steps += 1;
    }
    assert!(steps >= 3, "ten at a time");
    assert_eq!((look(&*store, "kept").await, look(&*store, "young").await), (is("for ever"), is("a")));
    if fixture.may_be_set_back() {
        let store = set_back(fixture, store, 500).await;
        for n in 0..25 {
            assert_eq!(look(&*store, &format!("r{n}")).await, None, "gone for good");
        }
        assert_eq!((look(&*store, "kept").await, look(&*store, "young").await), (is("for ever"), is("a")));
    }
}
