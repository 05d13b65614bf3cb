//! People see that somebody is writing while the handler works, and only then.

use hapax_domain::Status;
use hapax_gateway::settings::Channel;
use hapax_providers::settings::Settings;
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::{Asked, Purpose};
use hapax_testkit::gated_bot::GatedBot;
use serde_json::{Value, json};

use crate::phones::{ACCOUNT, Phones, all_sent, has_status, sending, submit, with_send};
use crate::rig::{Opened, Rig, change, eventually, message, text, webhook};

on_every_store! {
    while_a_whatsapp_handler_works_its_message_is_read_and_answered
    while_a_telegram_handler_works_the_chat_shows_it
    nothing_is_shown_for_a_replay_a_paused_account_or_once_something_was_said
}

fn typing(target: String, phones: &Phones) -> Channel {
    Channel { typing: true, ..sending("shop", Some(target), phones) }
}

fn telegram(target: String, phones: &Phones) -> Channel {
    let mut shop = with_send(typing(target, phones), |send| send.token = Some("12345:a-token-for-tests-only".into()));
    shop.provider = Settings::Telegram { secrets: vec!["a telegram secret".into()], bot: "helpbot".to_owned() };
    shop
}

async fn update(rig: &Rig, number: u32) {
    let update =
        json!({"update_id": number, "message": {"message_id": number, "date": 1_760_000_000, "chat": {"id": 77}, "text": "hi"}});
    let posted = rig.client.post(rig.url("/in/shop")).header("x-telegram-bot-api-secret-token", "a telegram secret");
    assert_eq!(posted.body(update.to_string()).send().await.expect("an answer").status(), 200);
}

/// What was asked of the provider that puts nothing on a phone.
fn notices(phones: &Phones) -> Vec<Asked> {
    phones.provider.calls().into_iter().filter(|asked| asked.purpose == Purpose::Notice).collect()
}

fn about(asked: &Asked) -> String {
    let body: Value = serde_json::from_slice(&asked.body).expect("JSON");
    body["message_id"].as_str().expect("a message").to_owned()
}

async fn while_a_whatsapp_handler_works_its_message_is_read_and_answered(opened: Opened) {
    let (bot, phones) = (GatedBot::start(|_| true).await, Phones::willing().await);
    let rig = Rig::start(opened, vec![typing(bot.fake.url(), &phones)]).await;
    rig.accepted("shop", text("wamid.A", "5511988887777")).await;
    let asked = phones.provider.called(1).await.remove(0);
    assert_eq!(asked.path_and_query, format!("/v25.0/{ACCOUNT}/messages"));
    let body: Value = serde_json::from_slice(&asked.body).expect("JSON");
    let expected =
        json!({"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.A", "typing_indicator": {"type": "text"}});
    assert_eq!(body, expected);
    bot.let_go(1);
    rig.settled().await;
    assert_eq!(rig.store.stats().await.expect("stats").outbox_waiting, 0, "it is no message");
    assert_eq!((bot.fake.calls().len(), phones.reached().len()), (1, 0));
    rig.stop().await;
}

async fn while_a_telegram_handler_works_the_chat_shows_it(opened: Opened) {
    let (bot, phones) = (GatedBot::start(|_| true).await, Phones::willing().await);
    let rig = Rig::start(opened, vec![telegram(bot.fake.url(), &phones)]).await;
    update(&rig, 1).await;
    // The second beat comes before the first has faded.
    for asked in phones.provider.called(2).await {
        assert_eq!(asked.path_and_query, "/bot12345:a-token-for-tests-only/sendChatAction");
        assert_eq!(&asked.body[..], br#"{"chat_id":77,"action":"typing"}"#);
    }
    bot.let_go(1);
    rig.settled().await;
    rig.stop().await;
    assert_eq!(notices(&phones).len(), phones.provider.calls().len(), "no message came of it");
}

/// Those that show nothing come first: by the time that the last one shows something, theirs would be there.
async fn nothing_is_shown_for_a_replay_a_paused_account_or_once_something_was_said(opened: Opened) {
    let (bot, phones) =
        (GatedBot::start(|call| call.header("hapax-thread") != "700001__5511900000").await, Phones::willing().await);
    let rig = Rig::start(opened, vec![typing(bot.fake.url(), &phones)]).await;
    // Answered at once: the handler is not at work for a second.
    rig.accepted("shop", text("wamid.quick", "5511900000")).await;
    rig.settled().await;
    let quick = rig.events().await[0].id;
    rig.store.pause_account("shop", "700009", Some("tests")).await.expect("paused");
    let mut of_paused = change(&[message("wamid.paused", "5511900001")], &[]);
    of_paused["value"]["metadata"]["phone_number_id"] = "700009".into();
    rig.accepted("shop", webhook(&[of_paused])).await;
    rig.accepted("shop", text("wamid.said", "5511900002")).await;
    bot.fake.called(3).await;
    let said = submit(&rig.store, ACCOUNT, "5511900002", "one moment").await;
    has_status(&rig.store, said, Status::Sent).await;
    let edited = rig.store.replay(quick).await.expect("answers").expect("an item");
    bot.fake.called(4).await;
    rig.accepted("shop", text("wamid.last", "5511900003")).await;
    eventually("the last one shows it", async || !notices(&phones).is_empty()).await;
    let shown: Vec<String> = notices(&phones).iter().map(about).collect();
    assert_eq!(shown, ["wamid.last"], "the replay is {edited}");
    bot.let_go(10);
    rig.settled().await;
    rig.stop().await;
}

/// Telegram does what stands in the answer; what shows typing there is over when it comes, and is no message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_action_in_the_answer_becomes_no_message() {
    let answers = [
        r#"{"method":"sendChatAction","chat_id":77,"action":"typing"}"#,
        r#"{"method":"sendMessage","chat_id":77,"text":"hello"}"#,
    ];
    let bot = FakeBot::start(move |call| Say::Answer {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: answers[call.number.min(1)].to_owned(),
    });
    let (bot, phones) = (bot.await.expect("a bot"), Phones::willing().await);
    let rig = Rig::start(Opened::memory(), vec![telegram(bot.url(), &phones)]).await;
    for number in 1..=2 {
        update(&rig, number).await;
        rig.settled().await;
    }
    phones.provider.arrived(1).await;
    all_sent(&rig.store).await;
    assert_eq!(phones.provider.calls().len(), 1, "the message alone");
    rig.stop().await;
}
