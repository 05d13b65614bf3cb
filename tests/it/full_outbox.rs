//! A full outbox holds up nothing but itself: other channels go on, the thread goes on, and the reply is sent when there is room.

use hapax_domain::{EventId, Priority};
use hapax_store::{NewMessage, Redrive};
use hapax_testkit::fake_bot::{FakeBot, Say};

use crate::chat_pages::{Browser, TOKEN};
use crate::phones::{ACCOUNT, Phones, all_sent, new_message, sending};
use crate::rig::{Opened, Rig, config, eventually, text};

on_every_store! {
    a_full_outbox_stops_no_other_channel
    a_refused_message_is_told_whose_outbox_is_full
}

fn replying() -> Say {
    let headers = vec![("content-type", "application/vnd.hapax.replies+json".to_owned())];
    Say::Answer { status: 200, headers, body: r#"{"replies":[{"text":"on its way"}]}"#.to_owned() }
}

/// Room for one message and one reply of each account.
async fn narrow(opened: Opened, shop: &FakeBot, desk: &FakeBot, phones: &Phones) -> Rig {
    let channels = vec![sending("shop", Some(shop.url()), phones), sending("desk", Some(desk.url()), phones)];
    let mut config = config(channels);
    config.limits.outbox = 1;
    Rig::start_with(opened, config).await
}

async fn ready(rig: &Rig) -> serde_json::Value {
    rig.client
        .get(rig.url("/readyz"))
        .bearer_auth("an admin token for tests")
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON")
}

async fn a_full_outbox_stops_no_other_channel(opened: Opened) {
    let shop_bot = FakeBot::start(|_| replying()).await.expect("a bot");
    let desk_bot = FakeBot::start(|_| replying()).await.expect("a bot");
    let phones = Phones::willing().await;
    let rig = narrow(opened, &shop_bot, &desk_bot, &phones).await;
    ready(&rig).await;
    rig.store.pause_account("shop", ACCOUNT, Some("for the test")).await.expect("paused");
    // The first reply fills the share of replies; those of the other two find no room.
    for number in 0..3 {
        rig.accepted("shop", text(&format!("wamid.shop{number}"), "5511900001")).await;
        shop_bot.called(number + 1).await;
    }
    eventually("two are parked", async || rig.inbox().await.len() == 2).await;
    rig.settled().await;

    for number in 0..20 {
        rig.accepted("desk", text(&format!("wamid.desk{number}"), "5511900002")).await;
        eventually("its reply is on the phone, and only the shop's waits", async || {
            phones.reached().len() == number + 1 && rig.store.stats().await.expect("stats").outbox_waiting == 1
        })
        .await;
    }
    assert_eq!(desk_bot.calls().len(), 20, "the other channel goes on");
    assert_eq!(ready(&rig).await["full_outboxes"], serde_json::json!(["shop"]));
    assert_eq!(rig.metric(r#"hapax_outbox_full{channel="shop"}"#), 1);
    let overview = Browser::sign_in(&rig, TOKEN).await.see("/").await.html;
    assert!(
        overview.contains("The outbox of <strong>shop</strong> is full") && overview.contains("<small>oldest "),
        "{overview}"
    );

    let parked = rig.inbox().await;
    let story = rig.client.get(rig.url(&format!("/v1/events/{}/story", EventId(parked[0].item.0))));
    let story = story.bearer_auth("an admin token for tests").send().await.expect("an answer").text().await.expect("a story");
    assert!(story.contains("the outbox of account 700001 is full") && story.contains("its reply is kept"), "{story}");
    assert_eq!(rig.store.redrive(Redrive::Item(parked[0].item), 1).await.expect("answers"), 0, "there is no room yet");

    rig.store.pause_account("shop", ACCOUNT, None).await.expect("resumed");
    eventually("all replies are on the phone", async || {
        rig.store.redrive(Redrive::Channel("shop".to_owned()), 10).await.expect("answers");
        phones.reached().len() == 23
    })
    .await;
    all_sent(&rig.store).await;
    assert!(rig.inbox().await.is_empty());
    phones.assert_nobody_got_one_twice();
    assert_eq!(shop_bot.calls().len(), 3, "each message called the bot once");
    rig.counted(r#"hapax_outbox_full{channel="shop"}"#, 0).await;
    assert_eq!(ready(&rig).await.get("full_outboxes"), None);
    rig.stop().await;
}

async fn a_refused_message_is_told_whose_outbox_is_full(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let phones = Phones::willing().await;
    let rig = narrow(opened, &bot, &bot, &phones).await;
    ready(&rig).await;
    rig.store.pause_account("shop", ACCOUNT, Some("for the test")).await.expect("paused");
    let bulk = NewMessage { priority: Priority::Bulk, ..new_message(ACCOUNT, "5511900001", "one", "r1") };
    rig.store.submit(bulk).await.expect("there is room for one");
    let ask = serde_json::json!({ "channel": "shop", "account": ACCOUNT, "to": "5511900001", "text": "two" });
    let asked = rig.client.post(rig.url("/v1/messages")).bearer_auth("an admin token for tests").json(&ask).send();
    let answer = asked.await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    let problem: serde_json::Value = answer.json().await.expect("a problem");
    let detail = problem["detail"].as_str().expect("words");
    assert!(detail.contains("the outbox of account 700001 on channel shop is full"), "{detail}");
    rig.counted(r#"hapax_outbox_refused_total{channel="shop"}"#, 1).await;
    rig.stop().await;
}
