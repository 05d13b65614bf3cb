//! Room in the outbox: so many of an account, replies apart, and an answer whose replies find none is kept.

use hapax_domain::limits::redrive_looks_at;
use hapax_domain::{MessageId, Priority};
use hapax_store::clock::Clock;
use hapax_store::{
    InboxQuery, ItemState, NewMessage, OutboxQuery, Outcome, Redrive, SendOutcome, Settled, Store, StoreError, Submitted,
};

use crate::store_fixture::{StoreFixture, accept_one, lease, message};
use crate::store_suite::sending::{ask_out, outgoing};

fn fine<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

fn reply(id: &str) -> NewMessage {
    NewMessage { priority: Priority::Reply, ..outgoing(id, "ana") }
}

async fn refuses(store: &dyn Store, message: NewMessage) -> bool {
    let account = message.account.clone();
    match store.submit(message).await {
        Err(StoreError::OutboxFull { channel, account: named }) => channel == "shop" && named == account,
        Ok(_) => false,
        Err(error) => unreachable!("{error}"),
    }
}

/// Sends the next message.
async fn send_one(store: &dyn Store) -> MessageId {
    let held = fine(store.lease_outbox(ask_out(1)).await).remove(0);
    let sent = SendOutcome::Sent { provider_id: format!("w {}", held.request_id) };
    assert_eq!(fine(store.settle_outbox(held.lane, held.fence, sent).await), Settled::Done);
    held.message
}

pub async fn an_outbox_takes_so_many_of_an_account(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    store.limit_outbox(2);
    let first = fine(store.submit(outgoing("r1", "ana")).await).message();
    fine(store.submit(outgoing("r2", "bob")).await);
    assert!(refuses(&*store, outgoing("r3", "ana")).await);
    assert_eq!(fine(store.submit(outgoing("r1", "ana")).await), Submitted::Replayed(first), "what is there is there");
    let other = NewMessage { account: "other".to_owned(), ..outgoing("r3", "ana") };
    assert!(!refuses(&*store, other).await, "another account has room of its own");
    // One in doubt waits for somebody's word, not for the provider.
    let held = fine(store.lease_outbox(ask_out(1)).await).remove(0);
    assert!(refuses(&*store, outgoing("r3", "ana")).await, "what is being sent is still there");
    let unknown = SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None };
    fine(store.settle_outbox(held.lane, held.fence, unknown).await);
    assert!(!refuses(&*store, outgoing("r3", "ana")).await);
    assert!(refuses(&*store, outgoing("r4", "ana")).await);
    drop(store);
    let store = fixture.crash();
    store.limit_outbox(2);
    assert!(refuses(&*store, outgoing("r4", "ana")).await, "a restart makes no room");
    fine(store.retry_message(held.message).await);
    fine(store.cancel_message(held.message).await);
    assert!(refuses(&*store, outgoing("r4", "ana")).await);
    send_one(&*store).await;
    send_one(&*store).await;
    assert!(!refuses(&*store, outgoing("r4", "ana")).await);
}

pub async fn replies_are_not_refused_for_the_rest(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    store.limit_outbox(1);
    let bulk = NewMessage { priority: Priority::Bulk, ..outgoing("b1", "bob") };
    fine(store.submit(bulk).await);
    assert!(refuses(&*store, outgoing("r1", "bob")).await);
    let id = accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 1).await.remove(0);
    let done = Outcome::Delivered { status: 200, answer: None, replies: vec![reply("a1")] };
    assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done).await), Settled::Done);
    assert!(refuses(&*store, reply("a2")).await, "and they fill their own share");
    assert!(fine(store.event(id).await).is_some_and(|event| event.open.is_empty()));
}

pub async fn replies_without_room_are_kept_with_the_item(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    store.limit_outbox(1);
    fine(store.submit(reply("r1")).await);
    accept_one(&*store, message("m1", "ana")).await;
    accept_one(&*store, message("m2", "ana")).await;
    let held = lease(&*store, 1).await.remove(0);
    let done = || Outcome::Delivered { status: 200, answer: None, replies: vec![reply("a1"), reply("a2")] };
    assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done()).await), Settled::Kept);
    assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done()).await), Settled::Lost, "it was settled");
    assert_eq!(fine(store.outbox(OutboxQuery { limit: 10, ..OutboxQuery::default() }).await).rows.len(), 1);
    let next = lease(&*store, 9).await;
    assert_eq!(next.len(), 1, "the thread goes on");
    assert_ne!(next[0].item, held.item);
    // An answer whose replies were taken in before needs no room.
    let again = Outcome::Delivered { status: 200, answer: None, replies: vec![reply("r1")] };
    assert_eq!(fine(store.settle_inbox(next[0].lane, next[0].fence, again).await), Settled::Done);
    let parked = fine(store.inbox(InboxQuery { parked: Some(true), limit: 9, ..InboxQuery::default() }).await).rows;
    let [row] = &parked[..] else { unreachable!("one is parked, not {}", parked.len()) };
    assert_eq!((row.item, &row.state), (held.item, &ItemState::Parked));
    let why = row.why.as_deref().unwrap_or_default();
    assert!(why.contains("the outbox of account acc is full") && why.contains("2 replies"), "{why}");
}

/// Many whose replies find no room: a redrive looks at some of them, not at all.
pub async fn a_redrive_looks_at_so_many(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    store.limit_outbox(1);
    fine(store.submit(reply("r1")).await);
    let stuck = redrive_looks_at(1);
    for n in 0..stuck {
        accept_one(&*store, message(&format!("m{n}"), "ana")).await;
        let held = lease(&*store, 1).await.remove(0);
        let done = Outcome::Delivered { status: 200, answer: None, replies: vec![reply(&format!("a{n}"))] };
        assert_eq!(fine(store.settle_inbox(held.lane, held.fence, done).await), Settled::Kept);
    }
    accept_one(&*store, message("last", "bob")).await;
    let held = lease(&*store, 1).await.remove(0);
    fine(store.settle_inbox(held.lane, held.fence, Outcome::Parked { why: "no".to_owned(), charged: true }).await);
    assert_eq!(fine(store.redrive(Redrive::All, 1).await), 0, "it looks at so many");
    assert_eq!(fine(store.redrive(Redrive::All, 9).await), 1, "and at more when more are wanted");
    let item = held.item;
    assert_eq!(lease(&*store, 9).await.first().map(|held| held.item), Some(item));
}

pub async fn kept_replies_go_out_by_redrive(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    store.limit_outbox(1);
    fine(store.submit(reply("r1")).await);
    let kept = accept_one(&*store, message("m1", "ana")).await;
    accept_one(&*store, message("m2", "bob")).await;
    let later = NewMessage { send_at_ms: Some(fixture.clock().now_ms() + 60_000), ..reply("a2") };
    for held in lease(&*store, 2).await {
        let outcome = match held.events[0].id == kept {
            true => Outcome::Delivered { status: 200, answer: None, replies: vec![reply("a1"), later.clone()] },
            false => Outcome::Parked { why: "no".to_owned(), charged: true },
        };
        fine(store.settle_inbox(held.lane, held.fence, outcome).await);
    }
    drop(store);
    let store = fixture.crash();
    store.limit_outbox(1);
    assert_eq!(fine(store.redrive(Redrive::Event(kept), 9).await), 0, "there is no room yet");
    assert_eq!(fine(store.redrive(Redrive::All, 1).await), 1, "one that stays does not stand in the way of another");
    assert_eq!(lease(&*store, 9).await.len(), 1);
    assert_eq!(send_one(&*store).await, fine(store.submit(reply("r1")).await).message());
    assert_eq!(fine(store.redrive(Redrive::Channel("shop".to_owned()), 9).await), 1);
    assert!(lease(&*store, 9).await.is_empty(), "the bot is not called again");
    assert!(fine(store.event(kept).await).is_some_and(|event| event.open.is_empty()));
    let held = fine(store.lease_outbox(ask_out(9)).await);
    assert_eq!(
        held.iter().map(|held| (held.request_id.as_str(), held.text.as_deref())).collect::<Vec<_>>(),
        [("a1", Some("hello a1"))]
    );
    let sent = SendOutcome::Sent { provider_id: "w a1".to_owned() };
    fine(store.settle_outbox(held[0].lane, held[0].fence, sent).await);
    assert!(fine(store.lease_outbox(ask_out(9)).await).is_empty(), "the other one is for later");
    fixture.clock().advance(60_000);
    assert_eq!(send_one(&*store).await, fine(store.submit(later).await).message());
    assert_eq!(fine(store.redrive(Redrive::All, 9).await), 0);
}
