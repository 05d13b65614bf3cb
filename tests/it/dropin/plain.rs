//! Sends that belong to no event, waits that end, and callers that come back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax_testkit::fake_bot::{Call, Say};
use hapax_testkit::fake_provider::Play;
use serde_json::json;

use super::{Library, TOKEN, chat_of, served, texts, update, with_dropin};
use crate::phones::{Phones, with_send};
use crate::rig::{Opened, Rig, eventually};

on_every_store! {
    the_same_words_twice_are_two_messages_once_the_first_was_answered
    who_is_told_to_come_back_gets_the_same_message
    who_hangs_up_and_comes_back_gets_the_same_message
    a_run_that_is_told_to_come_back_gets_the_same_message
    who_was_told_in_a_run_and_comes_back_after_it_gets_the_same_message
    what_one_event_has_left_swallows_no_reply_to_the_next
    an_answer_that_was_lost_is_in_doubt_and_not_sent_again
    what_is_told_to_slow_down_again_and_again_has_not_failed
    an_idempotency_key_wins
    a_bot_that_answers_before_it_works_is_told_of
}

const CHAT: i64 = 77;

async fn the_same_words_twice_are_two_messages_once_the_first_was_answered(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    library.is_given(&rig);
    let first = library.send(CHAT, "hi").await.expect("an answer");
    let second = library.send(CHAT, "hi").await.expect("an answer");
    assert_eq!((first.message_id(), second.message_id()), (1, 2));
    let (third, fourth) = tokio::join!(library.send(CHAT, "ho"), library.send(CHAT, "ho"));
    assert_ne!(third.expect("an answer").message_id(), fourth.expect("an answer").message_id(), "two at once are two");
    assert_eq!(texts(&phones, CHAT), ["hi", "hi", "ho", "ho"]);
}

async fn who_is_told_to_come_back_gets_the_same_message(opened: Opened) {
    let phones =
        Phones::start(|asked| if asked.number == 0 { Play::TooMany { retry_after_s: Some(2) } } else { Play::Act }).await;
    let library = Library::default();
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.wait_ms = Some(300));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    let told = library.send(CHAT, "hi").await.expect("an answer");
    assert_eq!(told.status, 429);
    let seconds = told.json()["parameters"]["retry_after"].as_u64().unwrap_or_else(|| panic!("{told:?}"));
    assert!((1..=2).contains(&seconds), "the time that is really left: {told:?}");
    phones.provider.arrived(1).await;
    eventually("the answer is there", async || library.send(CHAT, "hi").await.is_some_and(|answer| answer.status == 200)).await;
    assert_eq!(texts(&phones, CHAT), ["hi"], "however often it came back");
    let other = library.send(CHAT, "hi").await.expect("an answer");
    assert_eq!(other.message_id(), 2, "it has been answered: now it is another");
}

async fn who_hangs_up_and_comes_back_gets_the_same_message(opened: Opened) {
    let phones =
        Phones::start(|asked| if asked.number == 0 { Play::ActThenLate(Duration::from_secs(4)) } else { Play::Act }).await;
    let library = Library::default();
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.wait_ms = Some(60_000));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    // Cut off when the message is out and its answer is not.
    tokio::select! {
        _ = library.send(CHAT, "hi") => panic!("it was answered"),
        _ = phones.provider.arrived(1) => {}
    }
    let again = library.send(CHAT, "hi").await.expect("an answer");
    assert_eq!((again.status, again.message_id()), (200, 1));
    assert_eq!(texts(&phones, CHAT), ["hi"]);
}

async fn a_run_that_is_told_to_come_back_gets_the_same_message(opened: Opened) {
    let phones =
        Phones::start(|asked| if asked.number == 0 { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }).await;
    let library = Library::default();
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            // As a library does that tries again, and does not even wait as it was told.
            while library.send(chat_of(&call), "one").await.expect("an answer").status == 429 {}
            library.send(chat_of(&call), "two").await;
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.wait_ms = Some(200));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert!(library.heard("one").len() > 1, "it was told at least once");
    eventually("both are there", async || texts(&phones, CHAT).len() == 2).await;
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
    assert_eq!(bot.calls().len(), 1);
}

/// What a bystander sends to another chat belongs to the only event that is with the bot, and to none when the bystander comes back.
async fn who_was_told_in_a_run_and_comes_back_after_it_gets_the_same_message(opened: Opened) {
    const ELSEWHERE: i64 = 88;
    let phones =
        Phones::start(|asked| if asked.number == 0 { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }).await;
    let library = Library::default();
    let handle = |library: Library, _: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            assert_eq!(library.send(ELSEWHERE, "sale").await.expect("an answer").status, 429);
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.wait_ms = Some(200));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    let is_out = async || library.send(ELSEWHERE, "sale").await.is_some_and(|answer| answer.status == 200);
    eventually("the answer is there", is_out).await;
    assert_eq!(texts(&phones, ELSEWHERE), ["sale"]);
    assert_eq!(library.send(ELSEWHERE, "sale").await.expect("an answer").message_id(), 2, "now it is another");
}

async fn what_one_event_has_left_swallows_no_reply_to_the_next(opened: Opened) {
    let phones =
        Phones::start(|asked| if asked.number == 0 { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }).await;
    let library = Library::default();
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            library.send(chat_of(&call), "menu").await.expect("an answer");
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.wait_ms = Some(200));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    update(&rig, "helpbot", 2, CHAT).await;
    rig.settled().await;
    assert!(library.heard("menu")[0].contains("retry_after"), "the first handler gave up");
    eventually("each was answered", async || texts(&phones, CHAT).len() == 2).await;
    assert_eq!(texts(&phones, CHAT), ["menu", "menu"]);
}

async fn an_answer_that_was_lost_is_in_doubt_and_not_sent_again(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number == 0 { Play::ActThenCut } else { Play::Act }).await;
    let library = Library::default();
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.wait_ms = Some(200));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    for _ in 0..3 {
        let told = library.send(CHAT, "hi").await.expect("an answer");
        assert_eq!(told.status, 429, "{told:?}");
        assert!(told.json()["parameters"]["retry_after"].as_u64().is_some_and(|seconds| seconds >= 1), "{told:?}");
    }
    assert_eq!(texts(&phones, CHAT), ["hi"]);
}

async fn what_is_told_to_slow_down_again_and_again_has_not_failed(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number < 3 { Play::TooMany { retry_after_s: Some(0) } } else { Play::Act }).await;
    let library = Library::default();
    let channel = with_send(served("helpbot", None, &phones), |send| send.retry.attempts = 2);
    let channel = with_dropin(channel, |dropin| dropin.wait_ms = Some(60_000));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    let sent = library.send(CHAT, "hi").await.expect("an answer");
    assert_eq!((sent.status, sent.message_id()), (200, 1), "{sent:?}");
    assert_eq!(texts(&phones, CHAT), ["hi"]);
}

async fn an_idempotency_key_wins(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    library.is_given(&rig);
    let sent = async |key: &str, text: &str| {
        let asked = library.client.post(library.url("sendMessage")).header("idempotency-key", key);
        let asked = asked.header("content-type", "application/json").body(json!({"chat_id": CHAT, "text": text}).to_string());
        let answer = asked.send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    };
    let first = sent("order-5", "paid").await;
    assert_eq!(sent("order-5", "paid").await, first, "the same bytes");
    assert_eq!(sent("order-5", "something else").await.0, 400);
    assert_ne!(sent("order-6", "paid").await, first);
    assert_eq!(texts(&phones, CHAT), ["paid", "paid"]);
}

async fn a_bot_that_answers_before_it_works_is_told_of(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let left: Arc<Mutex<Option<(Library, i64)>>> = Arc::default();
    let works_on = Arc::clone(&left);
    let handle = move |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        let works_on = Arc::clone(&works_on);
        Box::pin(async move {
            *works_on.lock().expect("no panic") = Some((library, chat_of(&call)));
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    let (library, chat) = left.lock().expect("no panic").take().expect("it was called");
    library.send(chat, "late").await.expect("an answer");
    assert_eq!(texts(&phones, CHAT), ["late"]);
    rig.counted(r#"hapax_dropin_early_answers_total{channel="helpbot"}"#, 1).await;
    let event = bot.calls()[0].event_id().to_owned();
    let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
    let story = story.send().await.expect("an answer").text().await.expect("a story");
    assert!(story.contains("answered early") && story.contains("before it worked on it"), "{story}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once() {
    let opened = Opened::sqlite();
    let phones = Phones::willing().await;
    let channel = with_send(served("helpbot", None, &phones), |send| send.concurrency = 64);
    let channel = with_dropin(channel, |dropin| dropin.wait_ms = Some(60_000));
    let rig = Rig::start(opened, vec![channel]).await;
    let client = reqwest::Client::builder().pool_max_idle_per_host(1_024).build().expect("a client");
    let calls = (0..1_000).map(|chat| {
        let asked = client.post(rig.url(&format!("/bot{TOKEN}/sendMessage"))).header("content-type", "application/json");
        let asked = asked.body(json!({"chat_id": 1_000 + chat, "text": "all at once"}).to_string());
        async move { asked.send().await.expect("an answer").status().as_u16() }
    });
    let statuses = futures_util::future::join_all(calls).await;
    assert!(statuses.iter().all(|status| *status == 200), "{:?}", statuses.iter().find(|status| **status != 200));
    assert_eq!(phones.reached().len(), 1_000);
}
