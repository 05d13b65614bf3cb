//! What is over loses its words, and nothing else: keys, ids and what became of it stay.

use bytes::Bytes;
use hapax_domain::{Event, EventId, MessageId, ThreadId};
use hapax_store::{Accepted, Answer, Forget, Forgotten, Outcome, Store, StoreError};

use crate::store_fixture::{StoreFixture, accept, accept_one, lease, message, webhook};
use crate::store_suite::sending::{outgoing, sent, settle, submit, take};

fn fine<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

fn said(id: &str, peer: &str, text: &str) -> Event {
    Event { text: Some(text.to_owned()), ..message(id, peer) }
}

fn thread(peer: &str) -> ThreadId {
    ThreadId { account: "acc".to_owned(), peer: peer.to_owned() }
}

fn events(ids: &[EventId]) -> Forget {
    Forget { events: ids.to_vec(), ..Forget::default() }
}

async fn deliver_all(store: &dyn Store) {
    for held in lease(store, 10).await {
        let answer = Answer { status: 200, content_type: None, body: Bytes::from_static(b"thank you, Ana") };
        let delivered = Outcome::Delivered { status: 200, answer: Some(answer), replies: Vec::new() };
        fine(store.settle_inbox(held.lane, held.fence, delivered).await);
    }
}

/// A message that has gone out.
async fn send(store: &dyn Store, peer: &str) -> MessageId {
    let id = submit(store, outgoing("r1", peer)).await;
    let held = take(store, 1).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(store, &held, sent("p1")).await;
    id
}

async fn texts(store: &dyn Store, peer: &str) -> Vec<Option<String>> {
    fine(store.thread_messages(&thread(peer), None, 10).await).rows.into_iter().map(|row| row.text).collect()
}

pub async fn what_is_over_loses_its_words_and_keeps_its_key(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = Event { aliases: vec!["BR.1".to_owned()], ..said("m1", "ana", "a secret") };
    let event = accept_one(&*store, first.clone()).await;
    deliver_all(&*store).await;
    let message = send(&*store, "ana").await;
    let what = Forget { events: vec![event, event], messages: vec![message], threads: vec![thread("BR.1")] };
    let done = Forgotten { events: 1, messages: 1, open: 0 };
    assert_eq!(fine(store.forget(what.clone()).await), done);
    assert_eq!(fine(store.forget(what).await), done, "asked twice, it answers the same");
    drop(store);
    let store = fixture.crash();
    let shown = fine(store.event(event).await).unwrap_or_else(|| unreachable!("it is there"));
    assert!(shown.body.is_empty() && shown.headers.0.is_empty() && shown.row.body_bytes == 0, "{shown:?}");
    assert_eq!((shown.row.provider_id.as_str(), shown.attempts.len()), ("m1", 1), "what became of it stays");
    assert_eq!(fine(store.answer(event).await), None);
    assert_eq!(texts(&*store, "ana").await, [None, None]);
    let row = fine(store.thread(&thread("ana")).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((row.last_text, row.unread), (None, 1));
    let row = fine(store.message(message).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((row.text, &row.payload[..], row.provider_id.as_deref()), (None, &b""[..], Some("p1")));
    assert_eq!(accept(&*store, webhook(vec![first])).await, [Accepted::Duplicate(event)], "a copy is recognised");
    assert_eq!(fine(store.submit(outgoing("r1", "ana")).await).message(), message, "and so is the same request");
    accept_one(&*store, said("m2", "ana", "something new")).await;
    assert_eq!(texts(&*store, "ana").await[0].as_deref(), Some("something new"), "the thread goes on");
}

pub async fn what_is_open_keeps_its_words(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let waiting = accept_one(&*store, said("m1", "ana", "a secret")).await;
    let message = submit(&*store, outgoing("r1", "ana")).await;
    let what = Forget { events: vec![waiting], messages: vec![message], threads: vec![] };
    let open = Forgotten { open: 2, ..Forgotten::default() };
    assert_eq!(fine(store.forget(what.clone()).await), open);
    let held = lease(&*store, 1).await.remove(0);
    assert!(!held.body.is_empty(), "it is delivered as it came");
    assert_eq!(fine(store.forget(what.clone()).await), open, "leased");
    fine(store.settle_inbox(held.lane, held.fence, Outcome::Parked { why: "no".to_owned(), charged: true }).await);
    assert_eq!(fine(store.forget(what.clone()).await), open, "parked");
    fine(store.redrive(hapax_store::Redrive::All, 10).await);
    deliver_all(&*store).await;
    fine(store.replay(waiting).await);
    assert_eq!(fine(store.forget(what.clone()).await), open, "being replayed");
    deliver_all(&*store).await;
    fine(store.cancel_message(message).await);
    assert_eq!(fine(store.forget(what).await), Forgotten { events: 1, messages: 1, open: 0 });
}

pub async fn who_came_in_the_same_webhook_keeps_his_texts(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let accepted = accept(&*store, webhook(vec![said("m1", "ana", "a secret"), said("m2", "bob", "hello")])).await;
    let (ana, bob) = (accepted[0].event(), accepted[1].event());
    let held = lease(&*store, 10).await;
    let of_ana = held.iter().find(|held| held.events[0].id == ana).unwrap_or_else(|| unreachable!("it is leased"));
    let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
    fine(store.settle_inbox(of_ana.lane, of_ana.fence, delivered.clone()).await);
    assert_eq!(fine(store.forget(events(&[ana])).await), Forgotten { open: 1, ..Forgotten::default() }, "bob's needs the body");
    let of_bob = held.iter().find(|held| held.events[0].id == bob).unwrap_or_else(|| unreachable!("it is leased"));
    fine(store.settle_inbox(of_bob.lane, of_bob.fence, delivered).await);
    let nobody = EventId(uuid::Uuid::from_u128(7));
    assert_eq!(fine(store.forget(events(&[ana, nobody])).await), Forgotten { events: 1, ..Forgotten::default() });
    assert_eq!((texts(&*store, "ana").await, texts(&*store, "bob").await), (vec![None], vec![Some("hello".to_owned())]));
    for event in [ana, bob] {
        let shown = fine(store.event(event).await).unwrap_or_else(|| unreachable!("it is there"));
        assert!(shown.body.is_empty() && shown.row.body_bytes == 0, "{shown:?}");
    }
}
