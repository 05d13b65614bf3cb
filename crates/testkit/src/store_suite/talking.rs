//! Threads: one person is one thread, two accounts never mix, and the last words are the last words.

use hapax_domain::{Direction, Event, EventKey, Kind, Status, ThreadId};
use hapax_store::{EntryId, Outcome, Redrive, Store, StoreError, ThreadQuery};

use crate::store_fixture::{StoreFixture, accept, accept_one, lease, message, webhook};
use crate::store_suite::sending::outgoing;

fn fine<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

fn said(id: &str, peer: &str, text: &str) -> Event {
    Event { text: Some(text.to_owned()), ..message(id, peer) }
}

fn thread(account: &str, peer: &str) -> ThreadId {
    ThreadId { account: account.to_owned(), peer: peer.to_owned() }
}

pub async fn a_message_makes_and_updates_its_thread(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept(&*store, webhook(vec![said("m1", "ana", "hi"), said("m2", "ana", "there")])).await;
    fixture.clock().advance(1_000);
    fine(store.submit(outgoing("r1", "ana")).await);
    drop(store);
    let store = fixture.crash();
    let row = fine(store.thread(&thread("acc", "ana")).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((row.unread, row.last_direction, row.last_text.as_deref()), (2, Direction::Out, Some("hello r1")));
    assert_eq!(row.last_ms, crate::store_fixture::START_MS + 1_000);
    assert!(fine(store.mark_read(&row.id).await));
    assert!(!fine(store.mark_read(&thread("acc", "nobody")).await));
    accept(&*store, webhook(vec![said("m1", "ana", "hi"), said("m3", "ana", "again")])).await;
    let row = fine(store.thread(&row.id).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((row.unread, row.last_text.as_deref()), (1, Some("again")), "a copy says nothing");
}

pub async fn two_accounts_never_share_a_thread(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let of = |account: &str| {
        let key = EventKey::new("generic", account, Kind::Message, "m1", &[]);
        Event { account: account.to_owned(), key, ..said("m1", "ana", account) }
    };
    accept(&*store, webhook(vec![of("one"), of("two")])).await;
    for account in ["one", "two"] {
        let row = fine(store.thread(&thread(account, "ana")).await).unwrap_or_else(|| unreachable!("it is there"));
        assert_eq!((row.unread, row.last_text.as_deref()), (1, Some(account)));
        assert_eq!(fine(store.thread_messages(&row.id, None, 10).await).rows.len(), 1);
    }
}

pub async fn one_person_is_one_thread(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let by = |id: &str, peer: &str, aliases: &[&str]| Event {
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        ..said(id, peer, id)
    };
    accept(&*store, webhook(vec![by("m1", "5511", &["BR.1"])])).await;
    accept(&*store, webhook(vec![by("m2", "BR.1", &[])])).await;
    drop(store);
    let store = fixture.crash();
    accept(&*store, webhook(vec![by("m3", "99@lid", &["5511"])])).await;
    fine(store.submit(outgoing("r1", "99@lid")).await);
    let threads = fine(store.threads(ThreadQuery { limit: 10, ..ThreadQuery::default() }).await);
    let [row] = &threads.rows[..] else { unreachable!("one thread, not {}", threads.rows.len()) };
    assert_eq!((&row.id, &row.aliases[..]), (&thread("acc", "5511"), &["99@lid".to_owned(), "BR.1".to_owned()][..]));
    assert_eq!(row.unread, 3);
    assert_eq!(fine(store.thread(&thread("acc", "BR.1")).await).as_ref(), Some(row), "found by any name");
    assert_eq!(fine(store.thread_messages(&row.id, None, 10).await).rows.len(), 4);
}

/// What is over goes after this long.
const KEEP_MS: i64 = 100_000;

async fn deliver_all(store: &dyn Store) {
    for held in lease(store, 10).await {
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
        fine(store.settle_inbox(held.lane, held.fence, delivered).await);
    }
}

async fn purge(store: &dyn Store) {
    while fine(store.purge(&[("shop".to_owned(), KEEP_MS)], 10).await).more {}
}

pub async fn a_thread_goes_with_the_last_of_what_was_said(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let named = Event { aliases: vec!["BR.1".to_owned()], ..said("m1", "5511", "a secret") };
    accept(&*store, webhook(vec![named])).await;
    accept(&*store, webhook(vec![said("m2", "bob", "kept")])).await;
    deliver_all(&*store).await;
    fixture.clock().advance(KEEP_MS - 1);
    accept(&*store, webhook(vec![said("m3", "bob", "young")])).await;
    deliver_all(&*store).await;
    purge(&*store).await;
    assert!(fine(store.thread(&thread("acc", "BR.1")).await).is_some(), "too young");
    fixture.clock().advance(1);
    purge(&*store).await;
    drop(store);
    let store = fixture.crash();
    for name in ["5511", "BR.1"] {
        assert_eq!(fine(store.thread(&thread("acc", name)).await), None);
        assert!(!fine(store.mark_read(&thread("acc", name)).await));
    }
    let left = fine(store.threads(ThreadQuery { limit: 10, ..ThreadQuery::default() }).await);
    let left: Vec<_> = left.rows.iter().map(|row| (row.id.peer.as_str(), row.last_text.as_deref())).collect();
    assert_eq!(left, [("bob", Some("young"))]);

    // Nothing is remembered of who was who.
    accept(&*store, webhook(vec![said("m4", "BR.1", "hi")])).await;
    let anew = fine(store.thread(&thread("acc", "BR.1")).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((&anew.id, &anew.aliases[..], anew.unread), (&thread("acc", "BR.1"), &[][..], 1));
}

pub async fn last_words_do_not_outlive_what_said_them(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept(&*store, webhook(vec![said("m1", "ana", "parked")])).await;
    for held in lease(&*store, 10).await {
        fine(store.settle_inbox(held.lane, held.fence, Outcome::Parked { why: "no".to_owned(), charged: true }).await);
    }
    accept(&*store, webhook(vec![said("m2", "ana", "a secret")])).await;
    deliver_all(&*store).await;
    fixture.clock().advance(KEEP_MS);
    purge(&*store).await;
    drop(store);
    let store = fixture.crash();
    let row = fine(store.thread(&thread("acc", "ana")).await).unwrap_or_else(|| unreachable!("something of it is left"));
    assert_eq!(row.last_text, None);
    fine(store.redrive(Redrive::All, 10).await);
    deliver_all(&*store).await;
    purge(&*store).await;
    assert_eq!(fine(store.thread(&thread("acc", "ana")).await), None);
}

pub async fn an_outgoing_message_keeps_its_thread(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    fine(store.submit(outgoing("r1", "ana")).await);
    fixture.clock().advance(KEEP_MS);
    purge(&*store).await;
    assert!(fine(store.thread(&thread("acc", "ana")).await).is_some(), "it was not sent yet");
    let rows = fine(store.thread_messages(&thread("acc", "ana"), None, 10).await).rows;
    let [EntryId::Message(id)] = rows.iter().map(|row| row.id).collect::<Vec<_>>()[..] else { unreachable!("one message") };
    fine(store.cancel_message(id).await);
    purge(&*store).await;
    assert_eq!(fine(store.thread(&thread("acc", "ana")).await), None);
}

pub async fn a_thread_is_read_backwards_in_pages(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for n in 0..5 {
        accept(&*store, webhook(vec![said(&format!("m{n}"), "ana", &format!("in {n}")), said(&format!("b{n}"), "bob", "x")]))
            .await;
        fine(store.submit(outgoing(&format!("r{n}"), "ana")).await);
        fixture.clock().advance(700);
    }
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = fine(store.thread_messages(&thread("acc", "ana"), before, 3).await);
        before = page.rows.last().map(|row| row.id);
        seen.extend(page.rows);
        if !page.more {
            break;
        }
    }
    let texts: Vec<_> = seen.iter().filter_map(|row| row.text.as_deref()).collect();
    let expected: Vec<String> = (0..5).rev().flat_map(|n| [format!("hello r{n}"), format!("in {n}")]).collect();
    assert_eq!(texts, expected);
    let out = seen
        .iter()
        .filter(|row| matches!(row.id, EntryId::Message(_)) && row.direction == Direction::Out && row.status.is_some());
    assert_eq!(out.count(), 5);
}

pub async fn what_came_in_is_delivered_and_read_once_it_was_marked(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let thread = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
    let shown = async || {
        let page = store.thread_messages(&thread, None, 10).await.unwrap_or_else(|error| unreachable!("{error}"));
        page.rows.into_iter().map(|row| (row.direction, row.status)).collect::<Vec<_>>()
    };
    let (delivered, read) = ((Direction::In, Some(Status::Delivered)), (Direction::In, Some(Status::Read)));
    for id in ["m1", "m2"] {
        accept_one(&*store, message(id, "ana")).await;
    }
    assert_eq!(shown().await, [delivered, delivered], "hapax has taken them, whether or not the bot has");
    assert!(store.mark_read(&thread).await.unwrap_or_else(|error| unreachable!("{error}")));
    assert_eq!(shown().await, [read, read]);
    accept_one(&*store, Event { echo: true, ..message("m3", "ana") }).await;
    accept_one(&*store, message("m4", "ana")).await;
    assert_eq!(shown().await, [delivered, (Direction::Out, None), read, read], "up to when it was marked");
}

pub async fn threads_are_listed_newest_first(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for (n, peer) in ["ana", "bob", "cid", "ana"].into_iter().enumerate() {
        accept(&*store, webhook(vec![said(&format!("m{n}"), peer, "x")])).await;
        fixture.clock().advance(1_000);
    }
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = fine(store.threads(ThreadQuery { before, limit: 2, ..ThreadQuery::default() }).await);
        before = page.rows.last().map(|row| (row.last_ms, row.id.clone()));
        seen.extend(page.rows.into_iter().map(|row| row.id.peer));
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, ["ana", "cid", "bob"]);
    let none = ThreadQuery { account: Some("other".to_owned()), limit: 10, ..ThreadQuery::default() };
    assert!(fine(store.threads(none).await).rows.is_empty());
}
