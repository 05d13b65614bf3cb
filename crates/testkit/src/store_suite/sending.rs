//! Sending: recorded before it leaves, once per request, in order, and never simply repeated when in doubt.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Fence, Kind, MessageId, Priority, Status, ThreadId};
use hapax_store::clock::Clock;
use hapax_store::{
    Changed, MessageRow, NewMessage, OutboxLease, OutboxLeaseRequest, OutboxQuery, OutboxState, Outcome, SendOutcome, Settled,
    Store, StoreError, Submitted, asked_request_id,
};

use crate::store_fixture::{HOLD_MS, StoreFixture, accept, accept_one, lease, message as inbound, webhook};

pub(super) fn fine<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

/// A message to `peer` under this request id.
pub fn outgoing(request_id: &str, peer: &str) -> NewMessage {
    NewMessage {
        channel: "shop".into(),
        account: "acc".to_owned(),
        peer: peer.to_owned(),
        request_id: request_id.to_owned(),
        fingerprint: [1; 32],
        text: Some(format!("hello {request_id}")),
        payload: Bytes::from(format!("{{\"text\":\"hello {request_id}\"}}")),
        priority: Priority::Normal,
        reply_to: None,
        send_at_ms: None,
    }
}

pub fn ask_out(max: usize) -> OutboxLeaseRequest {
    OutboxLeaseRequest { worker: "sender".into(), wants: vec![("shop".into(), max)], resting: vec![], hold_ms: HOLD_MS }
}

pub(super) async fn submit(store: &dyn Store, message: NewMessage) -> MessageId {
    fine(store.submit(message).await).message()
}

pub(super) async fn take(store: &dyn Store, max: usize) -> Vec<OutboxLease> {
    fine(store.lease_outbox(ask_out(max)).await)
}

pub(super) async fn row(store: &dyn Store, id: MessageId) -> MessageRow {
    fine(store.message(id).await).unwrap_or_else(|| unreachable!("{id} is there"))
}

pub(super) async fn settle(store: &dyn Store, held: &OutboxLease, outcome: SendOutcome) -> Settled {
    fine(store.settle_outbox(held.lane, held.fence, outcome).await)
}

pub(super) fn sent(provider_id: &str) -> SendOutcome {
    SendOutcome::Sent { provider_id: provider_id.to_owned() }
}

fn unknown(check_ms: Option<i64>) -> SendOutcome {
    SendOutcome::Unknown { why: "cut off".to_owned(), check_ms }
}

/// A status webhook about the message that the provider calls so.
pub fn status(provider_id: &str, status: Status, handle: Option<MessageId>, at_ms: i64) -> Event {
    let key = EventKey::new("generic", "acc", Kind::Status, provider_id, &[status.name()]);
    let event = Event::new(Kind::Status, "acc", provider_id, key, 7);
    Event { status: Some(status), handle, at_ms: Some(at_ms), peer: Some("ana".to_owned()), ..event }
}

pub async fn a_message_is_recorded_before_it_leaves(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    drop(store);
    let store = fixture.crash();
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.request_id.as_str()), (Status::Queued, "r1"));
    assert!(matches!(message.outbox.map(|place| place.state), Some(OutboxState::Waiting { .. })));
    let held = take(&*store, 10).await.remove(0);
    assert_eq!((held.message, held.attempt, held.in_doubt_since_ms), (id, 1, None));
    assert_eq!((held.account.as_str(), held.peer.as_str(), held.request_id.as_str()), ("acc", "ana", "r1"));
    assert_eq!(held.payload, outgoing("r1", "ana").payload);
    assert_eq!(fine(store.begin(held.lane, held.fence).await), Settled::Done);
    assert_eq!(row(&*store, id).await.steps.status(), Status::Sending);
    assert_eq!(settle(&*store, &held, sent("wamid.1")).await, Settled::Done);
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id.as_deref()), (Status::Sent, Some("wamid.1")));
    assert_eq!((message.outbox, message.tries.len()), (None, 1));
    assert_eq!(fine(store.message_by_provider_id("acc", "wamid.1").await), Some(id));
    assert!(take(&*store, 10).await.is_empty());
}

pub async fn the_same_request_is_one_message(fixture: &dyn StoreFixture) {
    let instances = [fixture.open(), fixture.open()];
    let mut tasks = Vec::new();
    for caller in 0..8 {
        let store = Arc::clone(&instances[caller % 2]);
        tasks.push(tokio::spawn(async move { fine(store.submit(outgoing("r1", "ana")).await) }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap_or_else(|error| unreachable!("{error}")));
    }
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Submitted::New(_))).count(), 1);
    assert!(answers.iter().all(|answer| answer.message() == answers[0].message()));
    let store = &instances[0];
    let other = NewMessage { fingerprint: [2; 32], ..outgoing("r1", "ana") };
    assert_eq!(fine(store.submit(other).await), Submitted::Mismatch(answers[0].message()));
    let elsewhere = NewMessage { account: "other".to_owned(), ..outgoing("r1", "ana") };
    assert!(matches!(fine(store.submit(elsewhere).await), Submitted::New(_)), "request ids belong to an account");
    assert_eq!(take(&**store, 10).await.len(), 2);
}

/// Two channels of one account: neither takes the other's request ids, nor hears of them.
pub async fn a_request_id_belongs_to_its_channel(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let help = |request: &str| NewMessage { channel: "help".into(), fingerprint: [2; 32], ..outgoing(request, "ana") };
    let first = submit(&*store, outgoing("r1", "ana")).await;
    let second = submit(&*store, help("r1")).await;
    assert_ne!(first, second);
    for _ in 0..2 {
        assert_eq!(fine(store.submit(outgoing("r1", "ana")).await), Submitted::Replayed(first));
        assert_eq!(fine(store.submit(help("r1")).await), Submitted::Replayed(second));
        let other = NewMessage { fingerprint: [3; 32], ..help("r1") };
        assert_eq!(fine(store.submit(other).await), Submitted::Mismatch(second));
    }
    assert_eq!(asked_request_id(&row(&*store, second).await.request_id), "r1");
    // What one channel purges makes nothing new of the other's.
    for held in take(&*store, 10).await {
        fine(store.begin(held.lane, held.fence).await);
        settle(&*store, &held, sent("wamid.1")).await;
    }
    fixture.clock().advance(10_000);
    while fine(store.purge(&[("shop".to_owned(), 1_000), ("help".to_owned(), 99_000)], 100).await).more {}
    assert_eq!(fine(store.message(first).await), None);
    assert_eq!(fine(store.submit(help("r1")).await), Submitted::Replayed(second));
}

pub async fn messages_of_a_thread_leave_in_order(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(submit(&*store, outgoing(&format!("a{n}"), "ana")).await);
    }
    let bob = submit(&*store, outgoing("b", "bob")).await;
    let first = take(&*store, 10).await;
    assert_eq!(first.iter().map(|held| held.message).collect::<Vec<_>>(), [ids[0], bob]);
    settle(&*store, &first[0], SendOutcome::Retry { wait_ms: 500, why: "429".to_owned(), charged: true }).await;
    assert!(take(&*store, 10).await.is_empty(), "the next one waits behind the first");
    fixture.clock().advance(500);
    for (n, id) in ids.iter().enumerate() {
        let held = take(&*store, 10).await.remove(0);
        assert_eq!((held.message, held.attempt), (*id, if n == 0 { 2 } else { 1 }));
        settle(&*store, &held, sent(&format!("w{n}"))).await;
    }
}

pub async fn a_message_for_later_keeps_nobody_waiting(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let at_ms = fixture.clock().now_ms() + 90_000;
    let later = NewMessage { send_at_ms: Some(at_ms), ..outgoing("later", "ana") };
    let id = submit(&*store, later.clone()).await;
    assert_eq!(fine(store.submit(later).await), Submitted::Replayed(id));
    let past = NewMessage { send_at_ms: Some(at_ms - 100_000), ..outgoing("past", "ana") };
    let past = submit(&*store, past).await;
    let unwanted = NewMessage { send_at_ms: Some(at_ms), ..outgoing("unwanted", "ana") };
    let unwanted = submit(&*store, unwanted).await;
    let held = take(&*store, 10).await;
    assert_eq!(held.iter().map(|held| held.message).collect::<Vec<_>>(), [past], "a time that is over is now");
    settle(&*store, &held[0], sent("w1")).await;
    assert_eq!(fine(store.cancel_message(unwanted).await), Changed::Done);
    drop(store);
    let store = fixture.crash();
    let message = row(&*store, id).await;
    assert_eq!(message.steps.status(), Status::Queued);
    let place = message.outbox.map(|place| place.state);
    assert!(matches!(place, Some(OutboxState::Waiting { due_ms }) if due_ms == at_ms), "{place:?}");
    fixture.clock().advance(89_999);
    assert!(take(&*store, 10).await.is_empty());
    fixture.clock().advance(1);
    let held = take(&*store, 10).await;
    assert_eq!(held.iter().map(|held| (held.message, held.attempt)).collect::<Vec<_>>(), [(id, 1)]);
    assert_eq!(settle(&*store, &held[0], sent("w2")).await, Settled::Done);
}

pub async fn a_message_for_later_joins_its_thread_when_it_is_due(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let at_ms = fixture.clock().now_ms() + 500;
    let mut later = Vec::new();
    for (id, peer) in [("later1", "ana"), ("later2", "ana"), ("later3", "bob")] {
        later.push(submit(&*store, NewMessage { send_at_ms: Some(at_ms), ..outgoing(id, peer) }).await);
    }
    let (ana, behind) = (submit(&*store, outgoing("now", "ana")).await, submit(&*store, outgoing("behind", "ana")).await);
    let first = take(&*store, 10).await.remove(0);
    assert_eq!(first.message, ana);
    fixture.clock().advance(500);
    let due = take(&*store, 10).await;
    assert_eq!(due.iter().map(|held| held.message).collect::<Vec<_>>(), [later[2]], "one of a thread at a time");
    settle(&*store, &first, sent("w1")).await;
    for (n, id) in [later[0], later[1], behind].into_iter().enumerate() {
        let held = take(&*store, 10).await;
        assert_eq!(held.iter().map(|held| held.message).collect::<Vec<_>>(), [id]);
        settle(&*store, &held[0], sent(&format!("v{n}"))).await;
    }
}

pub async fn replies_go_before_the_rest(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let of = |id: &str, priority| NewMessage { priority, ..outgoing(id, id) };
    let bulk = submit(&*store, of("bulk", Priority::Bulk)).await;
    let normal = submit(&*store, of("normal", Priority::Normal)).await;
    fixture.clock().advance(10);
    let reply = submit(&*store, of("reply", Priority::Reply)).await;
    let order: Vec<_> = take(&*store, 10).await.iter().map(|held| held.message).collect();
    assert_eq!(order, [reply, normal, bulk]);
}

pub async fn resting_and_paused_accounts_send_nothing(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let of = |account: &str| NewMessage { account: account.to_owned(), ..outgoing("r", "ana") };
    for account in ["resting", "paused", "awake"] {
        submit(&*store, of(account)).await;
    }
    fine(store.pause_account("shop", "paused", Some("token expired")).await);
    let ask = || OutboxLeaseRequest { resting: vec![("shop".into(), "resting".to_owned())], ..ask_out(10) };
    let taken = fine(store.lease_outbox(ask()).await);
    assert_eq!(taken.iter().map(|held| held.account.as_str()).collect::<Vec<_>>(), ["awake"]);
    let paused = fine(store.paused_accounts().await);
    assert_eq!(
        paused.iter().map(|one| (one.account.as_str(), one.why.as_str())).collect::<Vec<_>>(),
        [("paused", "token expired")]
    );
    fine(store.pause_account("shop", "paused", None).await);
    assert_eq!(fine(store.lease_outbox(ask()).await).len(), 1);
    assert_eq!(take(&*store, 10).await.len(), 1);
}

pub async fn a_send_not_begun_is_handed_out_again(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    submit(&*store, outgoing("r1", "ana")).await;
    let late = take(&*store, 10).await.remove(0);
    fixture.clock().advance(HOLD_MS);
    let held = take(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.in_doubt_since_ms), (2, None));
    assert!(held.fence > late.fence);
    assert_eq!(fine(store.begin(late.lane, late.fence).await), Settled::Lost, "a paused worker cannot begin");
    assert_eq!(settle(&*store, &late, sent("late")).await, Settled::Lost);
    assert_eq!(fine(store.extend_outbox(vec![(late.lane, late.fence), (held.lane, held.fence)], HOLD_MS).await), [false, true]);
    settle(&*store, &held, SendOutcome::HandBack { wait_ms: 0 }).await;
    assert_eq!(take(&*store, 10).await.remove(0).attempt, 2, "handing back does not count");
}

pub async fn a_begun_send_that_was_lost_is_in_doubt(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    drop(store);
    let store = fixture.crash();
    fixture.clock().advance(HOLD_MS);
    let doubted = take(&*store, 10).await.remove(0);
    assert!(doubted.in_doubt_since_ms.is_some(), "nobody may simply send it");
    assert_eq!((doubted.message, doubted.attempt), (id, 1));
    settle(&*store, &doubted, unknown(None)).await;
    fixture.clock().advance(100 * HOLD_MS);
    assert!(take(&*store, 10).await.is_empty(), "it is never sent by itself");
    assert_eq!(row(&*store, id).await.steps.status(), Status::Unknown);
    let held = fine(store.outbox(OutboxQuery { unknown: true, limit: 10, ..OutboxQuery::default() }).await);
    assert_eq!(held.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
}

pub async fn one_in_doubt_keeps_nobody_waiting(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = submit(&*store, outgoing("r1", "ana")).await;
    let second = submit(&*store, outgoing("r2", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, unknown(Some(5_000))).await;
    assert_eq!(take(&*store, 10).await.remove(0).message, second);
    fixture.clock().advance(5_000);
    let checked = take(&*store, 10).await.remove(0);
    assert_eq!(checked.message, first);
    assert!(checked.in_doubt_since_ms.is_some());
    settle(&*store, &checked, sent("found")).await;
    assert_eq!(row(&*store, first).await.steps.status(), Status::Sent);
}

pub async fn a_status_settles_a_send_in_doubt(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, unknown(None)).await;
    accept(&*store, webhook(vec![status("wamid.1", Status::Delivered, Some(id), 5)])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id.as_deref()), (Status::Delivered, Some("wamid.1")));
    assert_eq!((message.outbox, message.why), (None, None));
    accept(&*store, webhook(vec![status("wamid.1", Status::Read, None, 9)])).await;
    assert_eq!(row(&*store, id).await.steps.status(), Status::Read);
}

/// The webhook overtakes the answer, and then the worker dies: the send is known to have happened.
pub async fn a_status_during_the_send_is_proof(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    accept(&*store, webhook(vec![status("wamid.1", Status::Sent, Some(id), 5)])).await;
    fixture.clock().advance(HOLD_MS);
    assert!(take(&*store, 10).await.is_empty());
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.outbox), (Status::Sent, None));
}

pub async fn early_statuses_are_taken_over(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    accept(&*store, webhook(vec![status("wamid.1", Status::Read, None, 9), status("wamid.1", Status::Delivered, None, 7)])).await;
    settle(&*store, &held, sent("wamid.1")).await;
    let steps = row(&*store, id).await.steps;
    assert_eq!(steps.status(), Status::Read);
    assert!(steps.iter().any(|step| step == (Status::Delivered, 7)));
}

pub async fn an_early_status_is_given_up_after_the_longest_retention(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    accept(&*store, webhook(vec![status("lost", Status::Read, None, 1), status("kept", Status::Delivered, None, 2)])).await;
    fixture.clock().advance(600);
    accept(&*store, webhook(vec![status("kept", Status::Read, None, 3)])).await;
    fixture.clock().advance(400);
    while fine(store.purge(&[("shop".to_owned(), 10), ("other".to_owned(), 1_000)], 10).await).more {}
    settle(&*store, &held, sent("wamid.1")).await;
    for (name, expected) in [("lost", Status::Sent), ("kept", Status::Read)] {
        let id = submit(&*store, outgoing(name, "ana")).await;
        let held = take(&*store, 10).await.remove(0);
        settle(&*store, &held, sent(name)).await;
        assert_eq!(row(&*store, id).await.steps.status(), expected, "{name}");
    }
}

/// The same text may be typed by a person on the phone: only an echo that names the message says anything about it.
pub async fn an_echo_settles_only_the_message_it_names(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, unknown(None)).await;
    let echo = |id: &str| Event { echo: true, text: Some("hello r1".to_owned()), ..inbound(id, "ana") };
    accept(&*store, webhook(vec![echo("3EB0")])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id), (Status::Unknown, None), "the text proves nothing");
    accept(&*store, webhook(vec![Event { handle: Some(id), ..echo("3EB1") }])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id.as_deref()), (Status::Sent, Some("3EB1")));
    assert_eq!((message.outbox, message.past.doubt, message.why), (None, None, None));
}

/// A look-up by content may find the message of another send: that is decided where it is settled, whoever looked.
pub async fn what_a_look_up_found_is_no_other_message_of_ours(fixture: &dyn StoreFixture) {
    let instances = [fixture.open(), fixture.open()];
    let mut held = Vec::new();
    for (peer, store) in ["ana", "bob"].iter().zip(&instances) {
        submit(&**store, outgoing(peer, peer)).await;
        let lease = take(&**store, 10).await.remove(0);
        fine(store.begin(lease.lane, lease.fence).await);
        held.push(lease);
    }
    let found = || SendOutcome::Found { provider_ids: vec!["3EB0".to_owned()], why: "taken".to_owned(), check_ms: Some(500) };
    let both = [settle(&*instances[0], &held[0], found()), settle(&*instances[1], &held[1], found())];
    let [first, second] = both;
    assert_eq!(tokio::join!(first, second), (Settled::Done, Settled::Done));
    let rows = [row(&*instances[0], held[0].message).await, row(&*instances[0], held[1].message).await];
    assert_eq!(rows.iter().filter(|row| row.steps.status() == Status::Sent).count(), 1, "{rows:?}");
    let other = rows.into_iter().find(|row| row.steps.status() == Status::Unknown).unwrap_or_else(|| unreachable!());
    assert_eq!((other.provider_id, other.why.as_deref()), (None, Some("taken")));
    fixture.clock().advance(500);
    let again = take(&*instances[0], 10).await.remove(0);
    assert_eq!(again.message, other.id);
    let next =
        SendOutcome::Found { provider_ids: vec!["3EB0".to_owned(), "3EB1".to_owned()], why: String::new(), check_ms: None };
    settle(&*instances[0], &again, next).await;
    assert_eq!(row(&*instances[0], other.id).await.provider_id.as_deref(), Some("3EB1"), "the first that is nobody else's");
}

/// Sent, failed by status, sent once more, cut: what was said of the first message says nothing about the second.
pub async fn a_persons_retry_is_a_new_try_with_its_own_id(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, sent("wamid.1")).await;
    accept(&*store, webhook(vec![status("wamid.1", Status::Failed, Some(id), 5)])).await;
    assert_eq!(fine(store.retry_message(id).await), Changed::Done);
    let queued = row(&*store, id).await;
    assert_eq!((queued.steps.status(), queued.provider_id.as_deref()), (Status::Queued, None));
    assert!(queued.past.rounds[0].steps.iter().any(|step| step == (Status::Failed, 5)), "the provider's failed is kept");
    assert_eq!(fine(store.message_by_provider_id("acc", "wamid.1").await), Some(id), "the old id is still ours");
    let held = take(&*store, 10).await.remove(0);
    assert_eq!((held.attempt, held.failures, held.in_doubt_since_ms), (2, 0, None), "tries are numbered on");
    fine(store.begin(held.lane, held.fence).await);
    accept(&*store, webhook(vec![status("wamid.1", Status::Sent, Some(id), 4), status("wamid.1", Status::Delivered, None, 6)]))
        .await;
    assert_eq!(row(&*store, id).await.steps.status(), Status::Sending, "the old id says nothing about the new try");
    fixture.clock().advance(HOLD_MS);
    let doubted = take(&*store, 10).await.remove(0);
    assert!(doubted.in_doubt_since_ms.is_some(), "it must not be declared sent under the old id");
    settle(&*store, &doubted, unknown(None)).await;
    accept(&*store, webhook(vec![status("wamid.1", Status::Read, Some(id), 7)])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id.as_deref()), (Status::Unknown, None));
    let told: Vec<_> = message.past.rounds[0].steps.iter().map(|(status, _)| status).collect();
    let heard = [Status::Queued, Status::Sending, Status::Sent, Status::Failed, Status::Delivered, Status::Read];
    assert_eq!(told, heard, "it is told of the round it belongs to");
    assert_eq!(message.past.rounds[0].provider_id.as_deref(), Some("wamid.1"));
    accept(&*store, webhook(vec![status("wamid.2", Status::Delivered, Some(id), 8)])).await;
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.provider_id.as_deref()), (Status::Delivered, Some("wamid.2")));
}

/// What concerns the whole account or the network is told apart from what the message failed by.
pub async fn only_its_own_failures_are_charged_to_a_message(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    for (charged, failures) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let held = take(&*store, 10).await.remove(0);
        assert_eq!(held.failures, failures);
        fine(store.begin(held.lane, held.fence).await);
        settle(&*store, &held, SendOutcome::Retry { wait_ms: 0, why: "no".to_owned(), charged }).await;
    }
    fixture.clock().advance(HOLD_MS);
    let lost = take(&*store, 10).await.remove(0);
    fixture.clock().advance(HOLD_MS);
    let held = take(&*store, 10).await.remove(0);
    assert_eq!((lost.attempt, held.attempt, held.failures), (5, 6, 2), "a lease that ran out is not its fault");
    let place = row(&*store, id).await.outbox.unwrap_or_else(|| unreachable!());
    assert_eq!((place.attempt, place.failures), (6, 2));
    settle(&*store, &held, SendOutcome::Failed { why: "131026".to_owned() }).await;
    fine(store.retry_message(id).await);
    let again = take(&*store, 10).await.remove(0);
    assert_eq!((again.attempt, again.failures), (7, 0), "a person's retry has a budget of its own");
}

/// Between two tries a message is queued again; from `sent` on its status only moves forward.
pub async fn a_message_between_two_tries_is_queued(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    assert_eq!(row(&*store, id).await.steps.status(), Status::Queued);
    fine(store.begin(held.lane, held.fence).await);
    assert_eq!(row(&*store, id).await.steps.status(), Status::Sending);
    settle(&*store, &held, SendOutcome::Retry { wait_ms: 0, why: "190".to_owned(), charged: false }).await;
    fine(store.pause_account("shop", "acc", Some("190")).await);
    assert_eq!(row(&*store, id).await.steps.status(), Status::Queued);
    let thread = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
    let shown = fine(store.thread_messages(&thread, None, 10).await);
    assert_eq!(shown.rows[0].status, Some(Status::Queued));
    fine(store.pause_account("shop", "acc", None).await);
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, sent("wamid.1")).await;
    accept(&*store, webhook(vec![status("wamid.1", Status::Delivered, None, 9), status("wamid.1", Status::Sent, None, 8)])).await;
    assert_eq!(row(&*store, id).await.steps.status(), Status::Delivered);
}

pub async fn retry_and_cancel_do_what_a_person_says(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = submit(&*store, outgoing("r1", "ana")).await;
    assert_eq!(fine(store.retry_message(id).await), Changed::TooLate, "it is on its way");
    let held = take(&*store, 10).await.remove(0);
    assert_eq!(fine(store.cancel_message(id).await), Changed::TooLate, "somebody is at it");
    settle(&*store, &held, SendOutcome::Failed { why: "131026".to_owned() }).await;
    assert_eq!(row(&*store, id).await.steps.status(), Status::Failed);
    assert_eq!(fine(store.retry_message(id).await), Changed::Done);
    assert_eq!(row(&*store, id).await.steps.status(), Status::Queued);
    assert_eq!(fine(store.cancel_message(id).await), Changed::Done);
    let message = row(&*store, id).await;
    assert_eq!((message.steps.status(), message.why.as_deref()), (Status::Failed, Some("cancelled")));
    assert!(take(&*store, 10).await.is_empty());
    let nobody = MessageId(hapax_domain::ids::numbered(0, 999_999));
    assert_eq!(
        (fine(store.retry_message(nobody).await), fine(store.cancel_message(nobody).await)),
        (Changed::NotFound, Changed::NotFound)
    );
    let doubted = submit(&*store, outgoing("r2", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    fine(store.begin(held.lane, held.fence).await);
    settle(&*store, &held, unknown(None)).await;
    assert_eq!(fine(store.retry_message(doubted).await), Changed::Done);
    let again = take(&*store, 10).await.remove(0);
    assert_eq!((again.message, again.in_doubt_since_ms), (doubted, None), "a person may send it again");
}

pub async fn replies_enter_the_outbox_with_the_completion(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, inbound("m1", "ana")).await;
    let replies =
        || Outcome::Delivered { status: 200, answer: None, replies: vec![outgoing("evt.0", "ana"), outgoing("evt.1", "ana")] };
    let late = lease(&*store, 10).await.remove(0);
    fixture.clock().advance(HOLD_MS);
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!(fine(store.settle_inbox(late.lane, late.fence, replies()).await), Settled::Lost);
    assert!(take(&*store, 10).await.is_empty(), "a late worker's replies do not count");
    assert_eq!(fine(store.settle_inbox(held.lane, held.fence, replies()).await), Settled::Done);
    let first = take(&*store, 10).await;
    assert_eq!(first.iter().map(|held| held.request_id.as_str()).collect::<Vec<_>>(), ["evt.0"]);
    fine(store.settle_inbox(held.lane, Fence(held.fence.0), replies()).await);
    settle(&*store, &first[0], sent("w0")).await;
    let second = take(&*store, 10).await;
    assert_eq!(second.iter().map(|held| held.request_id.as_str()).collect::<Vec<_>>(), ["evt.1"]);
    settle(&*store, &second[0], sent("w1")).await;
    assert!(take(&*store, 10).await.is_empty());
}

pub async fn two_workers_share_the_outbox(fixture: &dyn StoreFixture) {
    let instances = [fixture.open(), fixture.open()];
    for n in 0..60 {
        submit(&*instances[0], outgoing(&format!("r{n}"), &format!("p{}", n % 12))).await;
    }
    let mut tasks = Vec::new();
    for worker in 0..4 {
        let store = Arc::clone(&instances[worker % 2]);
        tasks.push(tokio::spawn(async move {
            let mut done = Vec::new();
            loop {
                let leases = take(&*store, 2).await;
                if leases.is_empty() {
                    return done;
                }
                for held in leases {
                    tokio::task::yield_now().await;
                    assert_eq!(settle(&*store, &held, sent(&held.request_id)).await, Settled::Done);
                    done.push(held.message);
                }
            }
        }));
    }
    let mut done = Vec::new();
    for task in tasks {
        done.extend(task.await.unwrap_or_else(|error| unreachable!("{error}")));
    }
    // A worker that found nothing while all lanes were held has stopped early; what is left is finished here.
    while let Some(held) = take(&*instances[0], 1).await.pop() {
        settle(&*instances[0], &held, sent(&held.request_id)).await;
        done.push(held.message);
    }
    done.sort();
    done.dedup();
    assert_eq!(done.len(), 60);
}
