//! A handler that runs again gets what the first run has sent.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::Replay;
use hapax_store::{InboxRow, ItemState};
use hapax_testkit::fake_bot::{Call, Say};
use hapax_testkit::fake_provider::Play;

use super::{Library, chat_of, served, texts, update, with_dropin};
use crate::phones::{Phones, sending, with_send};
use crate::rig::{Opened, Rig, eventually, text};

on_every_store! {
    a_bot_that_dies_after_the_first_of_three_sends_sends_three
    other_words_in_the_same_place_are_the_same_message
    with_replay_by_content_other_words_are_another_message
    after_an_answer_with_an_error_other_words_are_another_message
    two_sends_at_once_and_a_crash_are_neither_swapped_nor_doubled
    two_equal_sends_of_one_run_are_two_messages
    events_of_two_threads_at_once_do_not_meet
    two_workers_of_one_bot_that_die_in_turn_send_each_message_once
    a_send_to_another_chat_belongs_to_the_only_event_with_the_bot
    a_call_that_reaches_another_instance_finds_the_run
    a_handler_that_goes_on_after_its_run_was_cut_sends_nothing_twice
    what_somebody_else_sends_between_two_runs_takes_no_place
    a_replay_sends_anew
    what_the_provider_refused_is_tried_again_by_the_next_run
    what_the_provider_refused_takes_no_result_of_the_next
    what_the_provider_refused_when_nobody_listened_is_tried_again_too
    who_passes_the_event_on_is_believed
    a_bot_on_the_cloud_api_that_dies_sends_once_too
}

const CHAT: i64 = 77;

/// Dies in the first run after so many sends, and goes to the end in the later ones.
async fn dies_after(
    library: &Library,
    sends: usize,
    first: &'static [&'static str],
    later: &'static [&'static str],
) -> hapax_testkit::fake_bot::FakeBot {
    let handle = move |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            let (texts, most) = if call.attempt() == 1 { (first, sends) } else { (later, later.len()) };
            for text in texts.iter().take(most) {
                match library.send(chat_of(&call), text).await {
                    Some(answer) if answer.status == 200 => {}
                    _ => return Say::Status(500),
                }
            }
            if call.attempt() == 1 { Say::Hang } else { Say::Status(200) }
        })
    };
    library.bot(handle).await
}

async fn story(rig: &Rig, event: &str) -> String {
    let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
    story.send().await.expect("an answer").text().await.expect("a story")
}

async fn a_bot_that_dies_after_the_first_of_three_sends_sends_three(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let bot = dies_after(&library, 1, &["one", "two", "three"], &["one", "two", "three"]).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
    assert_eq!(texts(&phones, CHAT), ["one", "two", "three"]);
    let heard = library.heard("one");
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[0], heard[1], "the library got the same bytes both times");
    assert!(heard[0].contains("\"message_id\":1"), "{heard:?}");
    rig.counted(r#"hapax_dropin_sends_total{channel="helpbot"}"#, 4).await;
    rig.counted(r#"hapax_dropin_sends_again_total{channel="helpbot"}"#, 1).await;
    let event = bot.calls()[0].event_id().to_owned();
    eventually("the story tells all of them", async || {
        let story = story(&rig, &event).await;
        ["sendMessage as msg_", ": one; asked for once more, and not sent again", ": three"]
            .iter()
            .all(|part| story.contains(part))
    })
    .await;
}

async fn other_words_in_the_same_place_are_the_same_message(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let bot = dies_after(&library, 2, &["Hello", "How are you?"], &["Hi there", "How do you do?", "Bye"]).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["Hello", "How are you?", "Bye"]);
    assert_eq!(library.heard("Hello"), library.heard("Hi there"));
    assert_eq!(library.heard("How are you?"), library.heard("How do you do?"));
    rig.counted(r#"hapax_dropin_sends_reworded_total{channel="helpbot"}"#, 2).await;
    let story = story(&rig, bot.calls()[0].event_id()).await;
    assert!(story.contains("Hello") && story.contains("run 2 said it so: Hi there"), "{story}");
}

async fn with_replay_by_content_other_words_are_another_message(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let bot = dies_after(&library, 2, &["Hello", "Same"], &["Hi there", "Same"]).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.replay = Replay::Content);
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["Hello", "Same", "Hi there"]);
}

async fn after_an_answer_with_an_error_other_words_are_another_message(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            let (text, status) = if call.attempt() == 1 { ("Working on it", 500) } else { ("Sorry, that failed", 200) };
            library.send(chat_of(&call), text).await;
            Say::Status(status)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["Working on it", "Sorry, that failed"]);
    rig.counted(r#"hapax_dropin_sends_reworded_total{channel="helpbot"}"#, 0).await;
}

async fn two_sends_at_once_and_a_crash_are_neither_swapped_nor_doubled(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            let chat = chat_of(&call);
            if call.attempt() == 1 {
                tokio::join!(library.send(chat, "left"), library.send(chat, "right"));
                return Say::Hang;
            }
            // In the other order, and one of them in other words.
            tokio::join!(library.send(chat, "RIGHT"), library.send(chat, "left"));
            library.send(chat, "more").await;
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    let mut arrived = texts(&phones, CHAT);
    assert_eq!(arrived.pop().as_deref(), Some("more"));
    arrived.sort();
    assert_eq!(arrived, ["left", "right"]);
    assert_eq!(library.heard("right"), library.heard("RIGHT"));
    let left = library.heard("left");
    assert_eq!(left[0], left[1], "the same words got the same message, although others came first");
}

async fn two_equal_sends_of_one_run_are_two_messages(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let bot = dies_after(&library, 3, &["ha", "ha", "ha"], &["ha", "ha", "ha", "ha"]).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["ha"; 4]);
    let mut heard = library.heard("ha");
    assert_eq!(heard.len(), 7);
    assert_eq!(heard[..3], heard[3..6], "in the same order");
    heard.sort();
    heard.dedup();
    assert_eq!(heard.len(), 4);
}

async fn events_of_two_threads_at_once_do_not_meet(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let handle = move |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        let both = std::sync::Arc::clone(&both);
        Box::pin(async move {
            // Both are with the bot before either sends.
            if call.attempt() == 1 {
                both.wait().await;
            }
            library.send(chat_of(&call), "the same to both").await;
            if call.attempt() == 1 {
                return Say::Hang;
            }
            library.send(chat_of(&call), "and more").await;
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, 101).await;
    update(&rig, "helpbot", 2, 102).await;
    rig.settled().await;
    for chat in [101, 102] {
        assert_eq!(texts(&phones, chat), ["the same to both", "and more"], "{chat}");
    }
}

/// Ten conversations at once; each first run dies over its second send, and the other worker, a process of its own, gets the second run.
async fn two_workers_of_one_bot_that_die_in_turn_send_each_message_once(opened: Opened) {
    const PEOPLE: i64 = 10;
    let (phones, workers) = (Phones::willing().await, [Library::default(), Library::default()]);
    let both = workers.clone();
    let handle = move |_: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        let worker = both[(chat_of(&call) + i64::from(call.attempt())) as usize % 2].clone();
        Box::pin(async move {
            let most = if call.attempt() == 1 { 2 } else { 3 };
            for place in 1..=most {
                worker.send(chat_of(&call), &format!("{place} of 3")).await.expect("an answer");
            }
            if call.attempt() == 1 { Say::Hang } else { Say::Status(200) }
        })
    };
    let bot = workers[0].bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    workers.iter().for_each(|worker| worker.is_given(&rig));
    for person in 1..=PEOPLE {
        update(&rig, "helpbot", person, 1_000 + person).await;
    }
    rig.settled().await;
    for person in 1..=PEOPLE {
        assert_eq!(texts(&phones, 1_000 + person), ["1 of 3", "2 of 3", "3 of 3"], "person {person}");
    }
    let heard: usize = workers.iter().map(|worker| worker.heard("1 of 3").len()).sum();
    assert_eq!(heard, 2 * PEOPLE as usize, "each handler ran twice");
}

async fn a_send_to_another_chat_belongs_to_the_only_event_with_the_bot(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            library.send(500, "to the admin: somebody wrote").await;
            if call.attempt() == 1 {
                return Say::Hang;
            }
            library.send(chat_of(&call), "thank you").await;
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, 500), ["to the admin: somebody wrote"]);
    assert_eq!(texts(&phones, CHAT), ["thank you"]);
}

/// One instance delivers, the bot's calls reach the other.
async fn a_call_that_reaches_another_instance_finds_the_run(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let bot = dies_after(&library, 2, &["one", "two"], &["one", "two", "three"]).await;
    let again = Opened {
        store: std::sync::Arc::clone(&opened.store),
        clock: std::sync::Arc::clone(&opened.clock),
        folder: opened.folder.clone(),
    };
    let delivers = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    let sends = Rig::start(again, vec![served("helpbot", None, &phones)]).await;
    library.is_given(&sends);
    update(&delivers, "helpbot", 1, CHAT).await;
    delivers.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one", "two", "three"]);
    assert_eq!(library.heard("two")[0], library.heard("two")[1]);
    sends.counted(r#"hapax_dropin_sends_again_total{channel="helpbot"}"#, 2).await;
    sends.stop().await;
    delivers.stop().await;
}

/// The library gives its webhook up, or hapax does, while the handler goes on: what it sends is still the first run's.
async fn a_handler_that_goes_on_after_its_run_was_cut_sends_nothing_twice(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            let chat = chat_of(&call);
            if call.attempt() == 1 {
                library.send(chat, "one").await;
                tokio::spawn(async move {
                    library.send(chat, "two").await;
                    library.send(chat, "three").await;
                });
                return Say::Status(500);
            }
            for text in ["one", "two", "three"] {
                library.send(chat, text).await;
            }
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let mut channel = served("helpbot", Some(bot.url()), &phones);
    // Longer than the other two sends take.
    channel.retry.first_ms = 1_000;
    channel.retry.cap_ms = 1_000;
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one", "two", "three"]);
}

/// A timer of the bot says something between the run that was cut and the next: other words of the handler are not taken for that.
async fn what_somebody_else_sends_between_two_runs_takes_no_place(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let bot = dies_after(&library, 1, &["one"], &["one", "the answer"]).await;
    let mut channel = served("helpbot", Some(bot.url()), &phones);
    channel.retry.first_ms = 3_000;
    channel.retry.cap_ms = 3_000;
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    eventually("the first run is over", async || {
        let waits = |row: &InboxRow| row.attempt == 1 && matches!(row.state, ItemState::Waiting { .. });
        rig.inbox().await.first().is_some_and(waits)
    })
    .await;
    assert_eq!(library.send(CHAT, "a reminder").await.expect("an answer").status, 200);
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one", "a reminder", "the answer"]);
}

async fn a_replay_sends_anew(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            library.send(chat_of(&call), "hello").await;
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    let event = rig.events().await[0].id;
    rig.store.replay(event).await.expect("answers").expect("an item");
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["hello", "hello"]);
}

async fn what_the_provider_refused_is_tried_again_by_the_next_run(opened: Opened) {
    let phones =
        Phones::start(
            |asked| if asked.number == 0 { crate::phones::refuse(403, "Forbidden: bot was blocked") } else { Play::Act },
        );
    let (phones, library) = (phones.await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            let answer = library.send(chat_of(&call), "hello").await.expect("an answer");
            Say::Status(if answer.status == 200 { 200 } else { 500 })
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    let heard = library.heard("hello");
    assert_eq!(heard[0], r#"{"description":"Forbidden: bot was blocked","error_code":403,"ok":false}"#);
    assert!(heard[1].contains("\"ok\":true"), "{heard:?}");
    assert_eq!(texts(&phones, CHAT), ["hello"]);
}

async fn what_the_provider_refused_takes_no_result_of_the_next(opened: Opened) {
    let phones =
        Phones::start(
            |asked| if asked.number == 0 { crate::phones::refuse(400, "Bad Request: chat not found") } else { Play::Act },
        );
    let (phones, library) = (phones.await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            library.send(chat_of(&call), "order confirmed").await.expect("an answer");
            library.send(chat_of(&call), "receipt").await.expect("an answer");
            if call.attempt() == 1 { Say::Hang } else { Say::Status(200) }
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["receipt", "order confirmed"]);
    assert_eq!(library.heard("receipt")[0], library.heard("receipt")[1]);
}

async fn what_the_provider_refused_when_nobody_listened_is_tried_again_too(opened: Opened) {
    let phones = Phones::start(|asked| match asked.number {
        0 => Play::TooMany { retry_after_s: Some(1) },
        1 => crate::phones::refuse(400, "Bad Request: can't parse entities"),
        _ => Play::Act,
    });
    let (phones, library) = (Arc::new(phones.await), Library::default());
    let seen = Arc::clone(&phones);
    let handle = move |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            if call.attempt() == 1 {
                assert_eq!(library.send(chat_of(&call), "*hello").await.expect("an answer").status, 429);
                seen.provider.called(2).await;
                return Say::Hang;
            }
            while library.send(chat_of(&call), "hello").await.expect("an answer").status == 429 {}
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.wait_ms = Some(200));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    eventually("it is out", async || !texts(&phones, CHAT).is_empty()).await;
    assert_eq!(texts(&phones, CHAT), ["hello"]);
}

/// With two events at the bot, a send to a third chat belongs to the one that it names.
async fn who_passes_the_event_on_is_believed(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let handle = move |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        let both = std::sync::Arc::clone(&both);
        Box::pin(async move {
            if call.attempt() == 1 {
                both.wait().await;
            }
            let body = serde_json::json!({"chat_id": 500, "text": format!("about {}", chat_of(&call))});
            let asked = library.client.post(library.url("sendMessage")).header("hapax-event-id", call.event_id());
            let sent = asked.header("content-type", "application/json").body(body.to_string()).send().await;
            assert_eq!(sent.expect("an answer").status(), 200);
            if call.attempt() == 1 {
                both.wait().await;
                return Say::Late(Duration::from_millis(1), 500);
            }
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, 101).await;
    update(&rig, "helpbot", 2, 102).await;
    rig.settled().await;
    let mut arrived = texts(&phones, 500);
    arrived.sort();
    assert_eq!(arrived, ["about 101", "about 102"]);
}

async fn a_bot_on_the_cloud_api_that_dies_sends_once_too(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            for text in ["one", "two"] {
                let url = format!("{}/v21.0/700001/messages", library.address.lock().expect("no panic"));
                let body = serde_json::json!({"messaging_product": "whatsapp", "to": "5511988887777", "type": "text", "text": {"body": text}});
                let asked = library.client.post(url).bearer_auth("a-token-for-tests-only").json(&body).send().await;
                let answer = asked.expect("an answer").text().await.expect("a body");
                library.heard.lock().expect("no panic").push(serde_json::json!([text, 200, answer]));
                if call.attempt() == 1 {
                    return Say::Hang;
                }
            }
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let mut channel =
        with_send(sending("shop", Some(bot.url()), &phones), |send| send.token = Some("a-token-for-tests-only".into()));
    channel.dropin = served("x", None, &phones).dropin;
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    rig.accepted("shop", text("wamid.A", "5511988887777")).await;
    rig.settled().await;
    let arrived: Vec<_> = phones.provider.phone("5511988887777").into_iter().filter_map(|arrived| arrived.text).collect();
    assert_eq!(arrived, ["one", "two"]);
    let heard = library.heard("one");
    assert!(heard[0] == heard[1] && heard[0].contains("wamid.OUT1"), "{heard:?}");
}
