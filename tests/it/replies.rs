//! What the handler answers with is sent once, whoever crashes.

use std::sync::Arc;

use hapax_domain::{Priority, Status};
use hapax_providers::settings::Settings;
use hapax_store::{EventRow, EventState, OutboxQuery, OutboxState};
use hapax_testkit::fake_bot::{FakeBot, Say};

use crate::faulty::{Faulty, with};
use crate::phones::{Phones, all_sent, sending, with_send};
use crate::rig::{Opened, Rig, channel, eventually, text};

on_every_store! {
    two_replies_reach_the_phone_whatever_step_it_dies_at
    replies_are_told_apart_and_go_where_they_say
    replies_that_cannot_be_read_do_not_undo_the_delivery
    a_reply_may_be_for_later_and_has_no_other_fields_than_a_message
    a_channel_that_cannot_send_says_so
    a_reply_in_telegrams_own_form_without_a_token_is_counted_and_told
    the_providers_own_reply_in_the_answer_is_sent
    a_replay_replies_again
}

const REPLIES: &str = "application/vnd.hapax.replies+json";

fn answer(body: &str) -> Say {
    Say::Answer { status: 200, headers: vec![("content-type", format!("{REPLIES}; charset=utf-8"))], body: body.to_owned() }
}

async fn bot(body: &'static str) -> FakeBot {
    FakeBot::start(move |_| answer(body)).await.expect("a bot")
}

/// Runs once through every step at which the process can die, and lets a second one finish the work.
async fn two_replies_reach_the_phone_whatever_step_it_dies_at(opened: Opened) {
    let bot = bot(r#"{"replies":[{"text":"one"},{"text":"two"}]}"#).await;
    let phones = Phones::willing().await;
    let shop = || {
        let mut shop = with_send(sending("shop", Some(bot.url()), &phones), |send| send.lease_ms = 150);
        shop.lease_ms = 150;
        shop
    };
    let mut step = 0;
    loop {
        let peer = format!("551190{step:04}");
        let faulty = Faulty::around(&opened);
        faulty.die_at(step);
        let mortal = with(&faulty, Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: None });
        let first = Rig::start(mortal, vec![shop()]).await;
        first.accepted("shop", text(&format!("wamid.{step}"), &peer)).await;
        let survived = tokio::select! {
            () = faulty.died() => false,
            () = async { first.settled().await; all_sent(&first.store).await } => !faulty.is_dead(),
        };
        first.kill();

        let second = Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: None };
        let second = Rig::start(second, vec![shop()]).await;
        second.settled().await;
        all_sent(&second.store).await;
        second.stop().await;

        let in_doubt = opened.store.outbox(OutboxQuery { limit: 10, unknown: true, ..OutboxQuery::default() });
        let in_doubt: Vec<_> = in_doubt
            .await
            .expect("the outbox")
            .rows
            .into_iter()
            .filter(|row| row.peer == peer)
            .filter_map(|row| row.text)
            .collect();
        let mut reached: Vec<String> =
            phones.reached().into_iter().filter(|asked| asked.to == peer).filter_map(|asked| asked.text).collect();
        phones.assert_nobody_got_one_twice();
        reached.extend(
            in_doubt
                .iter()
                .filter(|text| !phones.reached().iter().any(|asked| asked.to == peer && asked.text.as_ref() == Some(*text)))
                .cloned(),
        );
        reached.sort();
        assert_eq!(reached, ["one", "two"], "died at step {step}");
        // Until the first of them is begun nothing can be in doubt.
        if step < 4 {
            assert_eq!(in_doubt, Vec::<String>::new(), "died at step {step}");
        }
        if survived {
            break;
        }
        step += 1;
    }
    // One call takes it in, three end it, three send each reply; how many looks in between find nothing depends on the time.
    assert!(step >= 9, "it died at every step: {step}");
}

async fn replies_are_told_apart_and_go_where_they_say(opened: Opened) {
    let bot = bot(r#"{"replies":[{"text":"here"},{"to":"+55 11 90000-0009","payload":{"text":"there"}}]}"#).await;
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", Some(bot.url()), &phones)]).await;
    rig.accepted("shop", text("wamid.A", "5511900001")).await;
    eventually("both are sent", async || phones.reached().len() == 2).await;
    all_sent(&rig.store).await;
    let mut reached: Vec<_> = phones
        .reached()
        .into_iter()
        .map(|asked| (asked.to, asked.text.unwrap_or_default(), asked.handle.unwrap_or_default()))
        .collect();
    reached.sort();
    assert_eq!((reached[0].0.as_str(), reached[0].1.as_str()), ("5511900000009", "there"));
    assert_eq!((reached[1].0.as_str(), reached[1].1.as_str()), ("5511900001", "here"));
    let event = rig.events().await[0].id;
    let id = reached[0].2.parse().expect("our handle");
    let row = rig.store.message(id).await.expect("answers").expect("it is there");
    assert_eq!((row.request_id, row.reply_to, row.priority), (format!("{event}.1"), Some(event), Priority::Reply));
    rig.counted(r#"hapax_replies_total{channel="shop"}"#, 2).await;
}

async fn replies_that_cannot_be_read_do_not_undo_the_delivery(opened: Opened) {
    let mixed = r#"{"replies":[{"text":"good"},{"txt":"bad"},{"text":""},{"to":"nobody","text":"hi"}]}"#;
    let bodies = ["not json", r#"{"reply":[]}"#, mixed];
    let bot = FakeBot::start(move |call| answer(bodies[call.number])).await.expect("a bot");
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", Some(bot.url()), &phones)]).await;
    for number in 0..bodies.len() {
        rig.accepted("shop", text(&format!("wamid.{number}"), "5511900001")).await;
    }
    rig.settled().await;
    all_sent(&rig.store).await;
    // What could not be sent is kept beside the event.
    let beside = |event: &EventRow| event.provider_id.starts_with("unsent:");
    assert!(rig.events().await.iter().all(|event| event.state == EventState::Delivered || beside(event)));
    rig.counted(r#"hapax_replies_bad_total{channel="shop"}"#, 4).await;
    assert_eq!(phones.reached().len(), 1);
    // What is for nobody can be read and not be sent: it fails where people look for messages.
    rig.counted(r#"hapax_messages_failed_total{channel="shop"}"#, 1).await;
}

/// What `POST /v1/messages` honours or refuses, a reply does too.
async fn a_reply_may_be_for_later_and_has_no_other_fields_than_a_message(opened: Opened) {
    let odd = r#"{"text":"odd","sendAt":"2h"}"#;
    let later = r#"{"text":"later","send_at":"2h"}"#;
    let body = format!(r#"{{"replies":[{later},{odd},{{"text":"now"}}]}}"#);
    let bot = FakeBot::start(move |_| answer(&body)).await.expect("a bot");
    let phones = Phones::willing().await;
    let clock = Arc::clone(&opened.clock);
    let rig = Rig::start(opened, vec![sending("shop", Some(bot.url()), &phones)]).await;
    rig.accepted("shop", text("wamid.A", "5511900001")).await;
    rig.settled().await;
    eventually("one is out", async || !phones.reached().is_empty()).await;
    rig.counted(r#"hapax_replies_bad_total{channel="shop"}"#, 1).await;
    let queued = rig.store.outbox(OutboxQuery { limit: 10, ..OutboxQuery::default() });
    let later = queued.await.expect("the outbox").rows.into_iter().find(|row| row.text.as_deref() == Some("later"));
    let place = later.and_then(|row| row.outbox).expect("it waits");
    let OutboxState::Waiting { due_ms } = place.state else { panic!("{place:?}") };
    assert!((6_000_000..=7_200_000).contains(&(due_ms - clock.wall_ms())), "due in {} ms", due_ms - clock.wall_ms());
    assert_eq!(phones.reached().into_iter().filter_map(|arrived| arrived.text).collect::<Vec<_>>(), ["now"]);
    let event = rig.events().await.last().expect("the event").id;
    eventually("the story tells of the other", async || {
        let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
        let story = story.send().await.expect("an answer").text().await.expect("a story");
        story.contains("reply not sent") && story.contains("reply 1: a field that replies do not have")
    })
    .await;
}

async fn a_channel_that_cannot_send_says_so(opened: Opened) {
    let bot = bot(r#"{"replies":[{"text":"one"}]}"#).await;
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "5511900001")).await;
    rig.settled().await;
    let events = rig.events().await;
    assert_eq!(events.last().expect("the first").state, EventState::Delivered);
    rig.counted(r#"hapax_replies_bad_total{channel="shop"}"#, 1).await;
}

async fn a_reply_in_telegrams_own_form_without_a_token_is_counted_and_told(opened: Opened) {
    let bot = FakeBot::start(|_| Say::Answer {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: r#"{"method":"sendMessage","chat_id":77,"text":"hello"}"#.to_owned(),
    });
    let bot = bot.await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.provider = Settings::Telegram { secrets: vec!["a telegram secret".into()], bot: "helpbot".to_owned() };
    let rig = Rig::start(opened, vec![shop]).await;
    let update = r#"{"update_id":5,"message":{"message_id":3,"date":1760000000,"chat":{"id":77,"type":"private"},"text":"hi"}}"#;
    let posted = rig.client.post(rig.url("/in/shop")).header("x-telegram-bot-api-secret-token", "a telegram secret");
    assert_eq!(posted.body(update).send().await.expect("an answer").status(), 200);
    let event = rig.events().await.last().expect("the event").id;
    rig.counted(r#"hapax_replies_bad_total{channel="shop"}"#, 1).await;
    eventually("the story tells it", async || {
        let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
        let story = story.send().await.expect("an answer").text().await.expect("a story");
        story.contains("reply not sent") && story.contains("no `token`") && story.contains("hello")
    })
    .await;
}

async fn the_providers_own_reply_in_the_answer_is_sent(opened: Opened) {
    let bot = FakeBot::start(|_| Say::Answer {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: r#"{"method":"sendMessage","chat_id":77,"text":"hello"}"#.to_owned(),
    });
    let bot = bot.await.expect("a bot");
    let phones = Phones::willing().await;
    let mut shop = with_send(sending("shop", Some(bot.url()), &phones), |send| {
        send.token = Some("12345:a-token-for-tests-only".into());
    });
    shop.provider = Settings::Telegram { secrets: vec!["a telegram secret".into()], bot: "helpbot".to_owned() };
    let rig = Rig::start(opened, vec![shop]).await;
    let update = r#"{"update_id":5,"message":{"message_id":3,"date":1760000000,"chat":{"id":77,"type":"private"},"text":"hi"}}"#;
    let posted = rig.client.post(rig.url("/in/shop")).header("x-telegram-bot-api-secret-token", "a telegram secret");
    assert_eq!(posted.body(update).send().await.expect("an answer").status(), 200);
    let arrived = phones.provider.arrived(1).await;
    assert_eq!((arrived[0].to.as_str(), arrived[0].text.as_deref()), ("77", Some("hello")));
    all_sent(&rig.store).await;
    assert_eq!(phones.provider.calls().len(), 1);
}

async fn a_replay_replies_again(opened: Opened) {
    let bot = bot(r#"{"replies":[{"text":"one"}]}"#).await;
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", Some(bot.url()), &phones)]).await;
    rig.accepted("shop", text("wamid.A", "5511900001")).await;
    eventually("the reply is out", async || phones.reached().len() == 1).await;
    let event = rig.events().await[0].id;
    rig.store.replay(event).await.expect("answers").expect("an item");
    eventually("the second reply is out", async || phones.reached().len() == 2).await;
    let second = phones.reached().remove(1);
    let row = rig
        .store
        .message(second.handle.expect("a handle").parse().expect("our handle"))
        .await
        .expect("answers")
        .expect("it is there");
    assert_eq!(row.request_id, format!("{event}.r1.0"));
    eventually("it is settled", async || {
        let row = rig.store.message(row.id).await.expect("answers").expect("it is there");
        row.steps.status() == Status::Sent
    })
    .await;
}
