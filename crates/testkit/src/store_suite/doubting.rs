//! Doubt: a send that may have gone out stays in doubt, and what its provider has named does not go out again.

use hapax_domain::limits::ROUNDS_MAX;
use hapax_domain::{MessageId, Status};
use hapax_store::{Changed, OutboxLease, SendOutcome, Settled, Store};

use super::sending::{fine, outgoing, row, sent, settle, status, submit, take};
use crate::store_fixture::{HOLD_MS, StoreFixture, accept, webhook};

/// After so many rounds a new message has to be written: the first round's name is still no name of the last.
pub async fn a_message_is_retried_so_often(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    for round in 0..=ROUNDS_MAX {
        let held = take(&*store, 1).await.remove(0);
        fine(store.begin(held.lane, held.fence).await);
        settle(&*store, &held, sent(&format!("w{round}"))).await;
        accept(&*store, webhook(vec![status(&format!("w{round}"), Status::Failed, Some(id), 7)])).await;
        let changed = fine(store.retry_message(id).await);
        assert_eq!(changed, if round < ROUNDS_MAX { Changed::Done } else { Changed::TooLate }, "{round}");
    }
    accept(&*store, webhook(vec![status("w0", Status::Delivered, Some(id), 8)])).await;
    let last = row(&*store, id).await;
    assert_eq!((last.steps.status(), last.provider_id), (Status::Failed, Some(format!("w{ROUNDS_MAX}"))));
}

/// Sent but unheard, sent again by choice, and then refused: nobody can say that it did not go out.
pub async fn a_doubt_outlives_the_tries_after_it(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, SendOutcome::Resend { wait_ms: 0, why: "cut".to_owned() }).await;
    let queued = row(&*store, id).await;
    assert_eq!(
        (queued.steps.status(), queued.past.doubt, queued.tries[0].outcome.as_str()),
        (Status::Queued, Some(1), "unknown")
    );
    let held = take(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.failures), (2, 1));
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, SendOutcome::Failed { why: "131026".to_owned() }).await;
    let refused = row(&*store, id).await;
    assert_eq!(refused.steps.status(), Status::Unknown, "it has not failed: try 1 may have gone out");
    assert_eq!(refused.why.as_deref(), Some("131026; try 1 may have gone out"));
    assert_eq!(fine(store.retry_message(id).await), Changed::Done);
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, sent("wamid.3")).await;
    let twice = row(&*store, id).await;
    assert_eq!((twice.steps.status(), twice.past.doubt), (Status::Sent, Some(1)));
    assert_eq!(twice.why.as_deref(), Some("try 1 may have gone out too"));
}

/// The word that it went out comes while it waits to be sent again: it is not.
pub async fn one_that_was_heard_of_is_not_sent_again(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let next = submit(&*store, outgoing("r2", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, SendOutcome::Resend { wait_ms: 500, why: "cut".to_owned() }).await;
    accept(&*store, webhook(vec![status("wamid.1", Status::Delivered, Some(id), 5)])).await;
    fixture.clock().advance(500);
    let taken: Vec<_> = take(&*store, 10).await.iter().map(|held| held.message).collect();
    assert_eq!(taken, [next]);
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.outbox, message.past.doubt), (Status::Delivered, None, None));
}

/// The word comes between the lease and the first byte: nothing leaves, and what its worker gives back is known to be sent.
pub async fn one_that_was_heard_of_after_its_lease_is_not_begun(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let next = submit(&*store, outgoing("r2", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, SendOutcome::Resend { wait_ms: 0, why: "cut".to_owned() }).await;
    let held = take(&*store, 10).await.remove(0);
    assert_eq!((held.message, held.attempt), (id, 2));
    accept(&*store, webhook(vec![status("wamid.1", Status::Delivered, Some(id), 5)])).await;
    assert_eq!(fine(store.begin(held.lane, held.fence).await), Settled::Lost, "it would arrive twice");
    assert_eq!(fine(store.cancel_message(id).await), Changed::TooLate);
    assert_eq!(settle(&*store, &held, SendOutcome::HandBack { wait_ms: 0 }).await, Settled::Done);
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.outbox, message.why), (Status::Delivered, None, None));
    assert_eq!((message.past.tries, message.past.doubt), (1, None), "the second try was never made");
    let held = take(&*store, 10).await.remove(0);
    assert_eq!(held.message, next, "its lane goes on at once");
    fine(store.begin(held.lane, held.fence).await);
    accept(&*store, webhook(vec![status("wamid.2", Status::Sent, Some(next), 6)])).await;
    settle(&*store, &held, SendOutcome::Failed { why: "131026".to_owned() }).await;
    let message = row(&*store, next).await;
    assert_eq!((message.steps.status(), message.outbox), (Status::Sent, None), "a name is more than a refusal");
}

/// What the message was called before a person's retry is in the history too, and is not the new try.
pub async fn a_name_of_an_earlier_round_is_not_found_again(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, sent("3EB0")).await;
    accept(&*store, webhook(vec![status("3EB0", Status::Failed, None, 5)])).await;
    assert_eq!(fine(store.retry_message(id).await), Changed::Done);
    let found = |ids: &[&str]| SendOutcome::Found {
        provider_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        why: "not shown".to_owned(),
        check_ms: Some(500),
    };
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, found(&["3EB0"])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id), (Status::Unknown, None));
    fixture.clock().advance(500);
    let held = take(&*store, 10).await.remove(0);
    settle(&*store, &held, found(&["3EB0", "3EB1"])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id.as_deref()), (Status::Sent, Some("3EB1")));
}

/// It was begun and given back, and no doubt was written down.
pub async fn a_begun_send_cannot_be_cancelled_as_if_it_had_not_gone_out(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut ids = Vec::new();
    for peer in ["ana", "bob"] {
        ids.push(submit(&*store, outgoing(peer, peer)).await);
        let held = take(&*store, 10).await.remove(0);
        fine(store.begin(held.lane, held.fence).await);
        let hand_back = SendOutcome::HandBack { wait_ms: if peer == "ana" { 9_000_000 } else { 0 } };
        settle(&*store, &held, hand_back).await;
    }
    assert_eq!(fine(store.cancel_message(ids[0]).await), Changed::Done);
    let message = row(&*store, ids[0]).await;
    assert_eq!((message.steps.status(), message.past.doubt), (Status::Unknown, Some(1)));
    let held = take(&*store, 10).await.remove(0);
    assert!(held.in_doubt_since_ms.is_some());
    settle(&*store, &held, SendOutcome::Failed { why: "131026".to_owned() }).await;
    assert_eq!(row(&*store, ids[1]).await.steps.status(), Status::Unknown, "the try before may have gone out");
}

/// A message whose worker stands still once the first byte has left, and the lease that another one takes over.
async fn taken_over(fixture: &dyn StoreFixture, store: &dyn Store, request: &str) -> (MessageId, OutboxLease, OutboxLease) {
    let id = submit(store, outgoing(request, "ana")).await;
    let first = take(store, 10).await.remove(0);
    assert_eq!(fine(store.begin(first.lane, first.fence).await), Settled::Done);
    fixture.clock().advance(HOLD_MS);
    let second = take(store, 10).await.remove(0);
    assert_eq!((second.message, second.in_doubt_since_ms.is_some()), (id, true));
    (id, first, second)
}

fn nobody_knows() -> SendOutcome {
    SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None }
}

fn refused() -> SendOutcome {
    SendOutcome::Failed { why: "no".to_owned() }
}

pub async fn an_outcome_told_after_its_lease_ends_the_doubt(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let (id, first, second) = taken_over(fixture, &*store, "r1").await;
    settle(&*store, &second, nobody_knows()).await;
    assert_eq!(settle(&*store, &first, sent("w1")).await, Settled::Lost);
    assert_eq!(fine(store.settle_late(id, first.attempt + 1, sent("w1")).await), Changed::TooLate, "another try");
    accept(&*store, webhook(vec![status("w1", Status::Delivered, None, 7)])).await;
    assert_eq!(fine(store.settle_late(id, first.attempt, sent("w1")).await), Changed::Done);
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.outbox, message.past.doubt, message.why), (Status::Delivered, None, None, None));
    assert_eq!(fine(store.message_by_provider_id("acc", "w1").await), Some(id));
    assert_eq!(fine(store.settle_late(id, first.attempt, refused()).await), Changed::TooLate, "once");

    let (id, first, second) = taken_over(fixture, &*store, "r2").await;
    settle(&*store, &second, nobody_knows()).await;
    assert_eq!(fine(store.settle_late(id, first.attempt, refused()).await), Changed::Done);
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.outbox, message.past.doubt), (Status::Failed, None, None));

    let (id, first, second) = taken_over(fixture, &*store, "r3").await;
    settle(&*store, &second, nobody_knows()).await;
    let busy = SendOutcome::Retry { wait_ms: 500, why: "429".to_owned(), charged: false };
    assert_eq!(fine(store.settle_late(id, first.attempt, busy).await), Changed::Done);
    assert!(take(&*store, 10).await.is_empty(), "it waits");
    fixture.clock().advance(500);
    let again = take(&*store, 10).await.remove(0);
    assert_eq!((again.message, again.attempt, again.in_doubt_since_ms), (id, 2, None), "it did not go out");
}

/// It was begun and handed back before the first byte, and waits in its lane: what follows it there goes on waiting.
pub async fn a_refusal_told_late_leaves_the_lane_in_order(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let (id, first, second) = taken_over(fixture, &*store, "r1").await;
    let next = submit(&*store, outgoing("r2", "ana")).await;
    settle(&*store, &second, SendOutcome::HandBack { wait_ms: 0 }).await;
    let busy = SendOutcome::Retry { wait_ms: 500, why: "429".to_owned(), charged: true };
    assert_eq!(fine(store.settle_late(id, first.attempt, busy).await), Changed::Done);
    assert!(take(&*store, 10).await.is_empty(), "the first waits, and the next behind it");
    fixture.clock().advance(500);
    for expected in [id, next] {
        let held = take(&*store, 10).await;
        assert_eq!(held.iter().map(|held| held.message).collect::<Vec<_>>(), [expected], "one at a time");
        fine(store.begin(held[0].lane, held[0].fence).await);
        settle(&*store, &held[0], sent(&held[0].request_id)).await;
    }
}

pub async fn an_outcome_told_late_leaves_a_later_try_alone(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let (id, first, second) = taken_over(fixture, &*store, "r1").await;
    assert_eq!(fine(store.settle_late(id, first.attempt, refused()).await), Changed::TooLate, "somebody is at it");
    assert_eq!(fine(store.begin(second.lane, second.fence).await), Settled::Done);
    assert_eq!(fine(store.settle_late(id, first.attempt, sent("w1")).await), Changed::TooLate, "another try has begun");
    settle(&*store, &second, sent("w2")).await;
    let message = row(&*store, id).await;
    assert_eq!((message.provider_id.as_deref(), message.past.doubt), (Some("w2"), Some(1)));

    let (id, first, second) = taken_over(fixture, &*store, "r2").await;
    assert_eq!(fine(store.settle_late(id, first.attempt, sent("w3")).await), Changed::Done);
    assert_eq!(fine(store.begin(second.lane, second.fence).await), Settled::Lost, "it was sent, and does not go out again");
    settle(&*store, &second, SendOutcome::HandBack { wait_ms: 0 }).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.outbox, message.past.doubt), (Status::Sent, None, None));
    assert!(take(&*store, 10).await.is_empty());
}
