//! The way to the phone: lost answers, retries, rates, stopped accounts, lookups and the clean stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hapax_domain::{MessageId, Priority, Status};
use hapax_gateway::settings::{OnUnknown, Rate};
use hapax_providers::settings::Settings;
use hapax_store::{OutboxQuery, OutboxState, Store, Submitted};
use hapax_testkit::fake_provider::{Play, Purpose};
use tokio::net::TcpListener;

use crate::phones::{
    ACCOUNT, OTHER_ACCOUNT, Phones, all_sent, has_status, message, new_message, refuse, sending, submit, with_send,
};
use crate::rig::{Opened, Rig, eventually};

on_every_store! {
    two_thousand_with_lost_answers_under_hold
    two_thousand_with_lost_answers_under_reconcile
    a_lost_answer_is_repeated_only_by_choice
    what_surely_did_not_go_out_is_tried_again
    attempts_end_in_failure
    what_concerns_the_whole_account_is_not_charged_to_a_message
    what_was_sent_again_out_of_doubt_and_refused_has_not_failed
    one_account_at_its_rate_leaves_the_other_its_pace
    a_stopped_account_waits_for_a_person_and_the_other_goes_on
    an_account_told_to_wait_waits_as_a_whole
    a_chat_has_its_own_pace
    a_reply_goes_before_the_rest
    a_stop_leaves_what_was_begun_in_doubt
    a_thread_keeps_its_order_through_retries
    a_lookup_gives_one_arrival_to_one_message
}

const SENDS: usize = 2_000;

fn cuts_one_in_twenty(number: usize) -> Play {
    if number % 20 == 7 { Play::ActThenCut } else { Play::Act }
}

async fn two_thousand(rig: &Rig) -> Vec<MessageId> {
    let mut ids = Vec::with_capacity(SENDS);
    for number in 0..SENDS {
        ids.push(submit(&rig.store, ACCOUNT, &format!("5511{:06}", number % 500), &format!("number {number}")).await);
    }
    all_sent(&rig.store).await;
    ids
}

async fn two_thousand_with_lost_answers_under_hold(opened: Opened) {
    let phones = Phones::start(|asked| cuts_one_in_twenty(asked.number)).await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let ids = two_thousand(&rig).await;
    phones.assert_nobody_got_one_twice();
    assert_eq!((phones.reached().len(), phones.provider.calls().len()), (SENDS, SENDS));
    let mut unknown = 0;
    for id in ids {
        let row = message(&rig.store, id).await;
        match row.steps.status() {
            Status::Sent => {}
            Status::Unknown => {
                unknown += 1;
                let why = row.why.expect("the story says why");
                assert!(why.contains("after the request may have been written"), "{why}");
                assert_eq!(row.tries.last().map(|last| last.outcome.as_str()), Some("unknown"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(unknown, SENDS / 20);
    rig.counted(r#"hapax_messages_unknown_total{channel="shop"}"#, unknown as u64).await;
}

async fn two_thousand_with_lost_answers_under_reconcile(opened: Opened) {
    let phones = Phones::start(|asked| cuts_one_in_twenty(asked.number)).await;
    let shop = with_send(sending("shop", None, &phones), |send| send.on_unknown = OnUnknown::Reconcile);
    let rig = Rig::start(opened, vec![shop]).await;
    let ids = two_thousand(&rig).await;
    assert_eq!(rig.store.stats().await.expect("stats").outbox_unknown, SENDS as u64 / 20);

    for arrived in phones.reached() {
        rig.accepted("shop", arrived.status_webhook("sent", arrived.at_ms).expect("a webhook")).await;
    }
    for id in ids {
        let row = message(&rig.store, id).await;
        assert_eq!((row.steps.status(), row.outbox), (Status::Sent, None));
        assert!(row.provider_id.is_some());
    }
    phones.assert_nobody_got_one_twice();
    assert_eq!(phones.reached().len(), SENDS);
}

async fn a_lost_answer_is_repeated_only_by_choice(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number == 0 { Play::ActThenCut } else { Play::Act }).await;
    let shop = with_send(sending("shop", None, &phones), |send| send.on_unknown = OnUnknown::Resend);
    let rig = Rig::start(opened, vec![shop]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, id, Status::Sent).await;
    assert_eq!(phones.reached().len(), 2, "that is what `resend` means");
}

async fn what_surely_did_not_go_out_is_tried_again(opened: Opened) {
    // A port where nobody listens yet.
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let phones = Phones::willing().await;
    let shop = with_send(sending("shop", None, &phones), |send| {
        send.api_base = format!("http://{port}");
        send.retry.attempts = 1_000;
    });
    let rig = Rig::start(opened, vec![shop]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    eventually("three tries", async || message(&rig.store, id).await.tries.len() >= 3).await;
    let row = message(&rig.store, id).await;
    assert!(row.tries.iter().all(|tried| tried.outcome == "retry"), "{:?}", row.tries);
    assert!(row.why.is_some_and(|why| why.contains("cannot be reached")));
    assert!(row.steps.status() != Status::Unknown);
}

async fn attempts_end_in_failure(opened: Opened) {
    let phones = Phones::start(|_| refuse(400, "131016")).await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, id, Status::Failed).await;
    assert_eq!(phones.provider.calls().len(), 5);
    let row = message(&rig.store, id).await;
    assert!(row.why.is_some_and(|why| why.ends_with("failure 5 of 5")));
    assert_eq!(row.tries.iter().map(|tried| tried.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

async fn what_concerns_the_whole_account_is_not_charged_to_a_message(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number < 7 { refuse(429, "130429") } else { refuse(400, "131016") }).await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, id, Status::Failed).await;
    assert_eq!(phones.provider.calls().len(), 7 + 5, "the first refusal of the message itself is not the last");
    let row = message(&rig.store, id).await;
    assert!(row.why.as_ref().is_some_and(|why| why.ends_with("failure 5 of 5")), "{:?}", row.why);
    assert_eq!(row.tries.last().map(|last| last.attempt), Some(12));
}

async fn what_was_sent_again_out_of_doubt_and_refused_has_not_failed(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number == 0 { Play::ActThenCut } else { refuse(400, "131026") }).await;
    let shop = with_send(sending("shop", None, &phones), |send| send.on_unknown = OnUnknown::Resend);
    let rig = Rig::start(opened, vec![shop]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, id, Status::Unknown).await;
    let row = message(&rig.store, id).await;
    assert_eq!(row.tries.iter().map(|tried| tried.outcome.as_str()).collect::<Vec<_>>(), ["unknown", "failed"]);
    let why = row.why.unwrap_or_default();
    assert!(why.contains("131026") && why.ends_with("; try 1 may have gone out"), "{why}");
    assert_eq!(phones.reached().len(), 1, "it did go out");
}

async fn one_account_at_its_rate_leaves_the_other_its_pace(opened: Opened) {
    let phones = Phones::willing().await;
    let shop = with_send(sending("shop", None, &phones), |send| send.rate = Rate { count: 1, per_ms: 60_000, burst: 3 });
    let rig = Rig::start(opened, vec![shop]).await;
    for number in 0..100 {
        submit(&rig.store, ACCOUNT, &format!("5511{number:06}"), "hello").await;
    }
    eventually("its burst is out", async || phones.reached().len() == 3).await;
    for number in 0..3 {
        let id = submit(&rig.store, OTHER_ACCOUNT, &format!("5511{number:06}"), "hello").await;
        has_status(&rig.store, id, Status::Sent).await;
    }
    let of_first = phones.reached().into_iter().filter(|asked| asked.account == ACCOUNT).count();
    assert_eq!(of_first, 3, "no more than its rate");
    let waiting = rig.store.outbox(OutboxQuery { limit: 500, ..OutboxQuery::default() }).await.expect("the outbox").rows;
    assert_eq!(waiting.len(), 97);
    let spent = |row: &hapax_store::MessageRow| row.outbox.as_ref().is_some_and(|place| place.attempt > 1);
    assert!(!waiting.iter().any(spent), "waiting for a turn spends no attempts");
}

async fn a_stopped_account_waits_for_a_person_and_the_other_goes_on(opened: Opened) {
    let expired = Arc::new(AtomicBool::new(true));
    let phones = Phones::start({
        let expired = Arc::clone(&expired);
        move |asked| {
            let stopped = asked.account == ACCOUNT && expired.load(Ordering::SeqCst);
            if stopped { refuse(401, "190") } else { Play::Act }
        }
    })
    .await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let first = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    eventually("it is paused", async || !rig.store.paused_accounts().await.expect("answers").is_empty()).await;
    let paused = rig.store.paused_accounts().await.expect("answers").remove(0);
    assert_eq!((paused.channel.as_str(), paused.account.as_str()), ("shop", ACCOUNT));
    assert!(paused.why.contains("190"), "{}", paused.why);
    let second = submit(&rig.store, ACCOUNT, "5511900002", "hello").await;
    let other = submit(&rig.store, OTHER_ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, other, Status::Sent).await;
    assert_eq!(message(&rig.store, second).await.steps.status(), Status::Queued);

    expired.store(false, Ordering::SeqCst);
    rig.store.pause_account("shop", ACCOUNT, None).await.expect("resumed");
    for id in [first, second] {
        has_status(&rig.store, id, Status::Sent).await;
    }
    phones.assert_nobody_got_one_twice();
    assert!(rig.metric(r#"hapax_accounts_paused_total{channel="shop"}"#) >= 1);
}

async fn an_account_told_to_wait_waits_as_a_whole(opened: Opened) {
    let phones = Phones::start(|asked| {
        let told = asked.account == ACCOUNT;
        if told { refuse(429, "130429") } else { Play::Act }
    })
    .await;
    let shop = with_send(sending("shop", None, &phones), |send| {
        send.retry.first_ms = 600_000;
        send.concurrency = 1;
    });
    let rig = Rig::start(opened, vec![shop]).await;
    let ids =
        [submit(&rig.store, ACCOUNT, "5511900001", "hello").await, submit(&rig.store, ACCOUNT, "5511900002", "hello").await];
    let other = submit(&rig.store, OTHER_ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, other, Status::Sent).await;
    eventually("the first was told", async || message(&rig.store, ids[0]).await.tries.len() == 1).await;
    let calls = phones.provider.calls().len();
    assert_eq!(calls, 2, "the second message of the account was not even tried");
    assert_eq!(message(&rig.store, ids[1]).await.steps.status(), Status::Queued);
}

async fn a_chat_has_its_own_pace(opened: Opened) {
    let phones = Phones::willing().await;
    let shop = with_send(sending("shop", None, &phones), |send| send.chat_rate = Rate { count: 1, per_ms: 60_000, burst: 1 });
    let rig = Rig::start(opened, vec![shop]).await;
    let first = submit(&rig.store, ACCOUNT, "5511900001", "one").await;
    let second = submit(&rig.store, ACCOUNT, "5511900001", "two").await;
    let other = submit(&rig.store, ACCOUNT, "5511900002", "three").await;
    for id in [first, other] {
        has_status(&rig.store, id, Status::Sent).await;
    }
    eventually("it is put off", async || {
        let place = message(&rig.store, second).await.outbox;
        place.is_some_and(|place| matches!(place.state, OutboxState::Waiting { due_ms } if due_ms > 0) && place.attempt == 0)
    })
    .await;
    assert_eq!(phones.reached().len(), 2);
}

async fn a_reply_goes_before_the_rest(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![with_send(sending("shop", None, &phones), |send| send.concurrency = 1)]).await;
    rig.store.pause_account("shop", ACCOUNT, Some("while they queue up")).await.expect("paused");
    for (number, priority) in [Priority::Bulk, Priority::Normal, Priority::Reply].into_iter().enumerate() {
        let new = new_message(ACCOUNT, &format!("551190000{number}"), priority.name(), priority.name());
        let submitted = rig.store.submit(hapax_store::NewMessage { priority, ..new }).await.expect("submitted");
        assert!(matches!(submitted, Submitted::New(_)));
    }
    rig.store.pause_account("shop", ACCOUNT, None).await.expect("resumed");
    all_sent(&rig.store).await;
    let order: Vec<String> = phones.reached().into_iter().filter_map(|asked| asked.text).collect();
    assert_eq!(order, ["reply", "normal", "bulk"]);
}

async fn a_stop_leaves_what_was_begun_in_doubt(opened: Opened) {
    let phones = Phones::start_slow(|_| Box::pin(std::future::pending())).await;
    let store: Arc<dyn Store> = Arc::clone(&opened.store);
    let folder = opened.folder.clone();
    let rig = Rig::start(opened, vec![with_send(sending("shop", None, &phones), |send| send.concurrency = 1)]).await;
    let begun = submit(&store, ACCOUNT, "5511900001", "begun").await;
    phones.provider.called(1).await;
    let queued = submit(&store, ACCOUNT, "5511900002", "queued").await;
    rig.stop().await;
    let row = message(&store, begun).await;
    assert_eq!(row.steps.status(), Status::Unknown);
    assert!(row.why.is_some_and(|why| why.contains("hapax stopped")));
    let row = message(&store, queued).await;
    assert_eq!(row.steps.status(), Status::Queued);
    assert_eq!(row.outbox.map(|place| place.attempt), Some(0));
    drop(folder);
}

async fn a_thread_keeps_its_order_through_retries(opened: Opened) {
    let phones = Phones::start(|asked| {
        let again = asked.number % 3 == 0;
        if again { refuse(500, "131016") } else { Play::Act }
    })
    .await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    for number in 0..12 {
        for peer in ["5511900001", "5511900002"] {
            submit(&rig.store, ACCOUNT, peer, &format!("{number:02}")).await;
        }
    }
    all_sent(&rig.store).await;
    for peer in ["5511900001", "5511900002"] {
        let reached = phones.reached().into_iter().filter(|asked| asked.to == peer).filter_map(|asked| asked.text);
        assert_eq!(reached.collect::<Vec<_>>(), (0..12).map(|number| format!("{number:02}")).collect::<Vec<_>>());
    }
}

/// GOWA gives no handle: of two messages that look alike, one of which arrived, one is found and the other stays in doubt.
async fn a_lookup_gives_one_arrival_to_one_message(opened: Opened) {
    let phones = Phones::start(|asked| match (asked.purpose, asked.number) {
        (Purpose::Message, 0) => Play::ActThenCut,
        (Purpose::Message, 1) => Play::Cut,
        _ => Play::Act,
    })
    .await;
    let mut shop = with_send(sending("shop", None, &phones), |send| send.on_unknown = OnUnknown::Reconcile);
    shop.provider = Settings::Gowa { secrets: vec![crate::rig::SECRET.into()] };
    let rig = Rig::start(opened, vec![shop]).await;
    let peer = "5511900001@s.whatsapp.net";
    let first = submit(&rig.store, "device", peer, "hello").await;
    has_status(&rig.store, first, Status::Unknown).await;
    let again = new_message("device", peer, "hello", "the same once more");
    let second = rig.store.submit(again).await.expect("submitted").message();

    for id in [first, second] {
        eventually("it was looked up", async || message(&rig.store, id).await.tries.len() == 2).await;
    }
    let mut rows = [message(&rig.store, first).await, message(&rig.store, second).await];
    rows.sort_by_key(|row| row.steps.status() == Status::Sent);
    let (lost, found) = (&rows[0], &rows[1]);
    assert_eq!((lost.steps.status(), lost.why.as_deref()), (Status::Unknown, Some("the provider's history does not show it")));
    assert_eq!(found.steps.status(), Status::Sent);
    assert_eq!(found.provider_id, Some(phones.reached()[0].provider_id.clone()));
    assert_eq!(phones.reached().len(), 1, "nothing was sent again");
    eventually("it is counted", async || rig.metric(r#"hapax_messages_reconciled_total{channel="shop"}"#) == 1).await;
}
