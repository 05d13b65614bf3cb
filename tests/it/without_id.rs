//! Webhooks that name no id: in doubt they are delivered twice and said so, never lost.

use std::sync::Arc;

use hapax_gateway::settings::Channel;
use hapax_providers::settings::Settings;
use hapax_store::memory::MemoryStore;
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::hand_clock::HandClock;
use serde_json::{Value, json};

use crate::faulty::{Faulty, Outage, with};
use crate::rig::{Opened, Rig, SECRET, channel, text, webhook};

on_every_store! {
    a_template_approved_paused_and_approved_again_is_three_changes
    a_gowa_message_without_an_id_is_delivered_once
    without_an_id_and_a_time_both_are_delivered_and_it_is_said
    a_purge_that_fails_is_no_run_and_one_asked_for_is_counted
}

fn gowa(name: &str, target: String) -> Channel {
    Channel { provider: Settings::Gowa { secrets: vec![SECRET.into()] }, ..channel(name, Some(target)) }
}

fn said(text: &str, at: Option<&str>) -> String {
    let mut payload = json!({"chat_id": "551188887777@s.whatsapp.net", "from": "551188887777@s.whatsapp.net", "body": text});
    if let Some(at) = at {
        payload["timestamp"] = at.into();
    }
    json!({"event": "message", "device_id": "551190000@s.whatsapp.net", "payload": payload}).to_string()
}

async fn word(rig: &Rig, channel: &str, body: String) -> Value {
    let (status, answer) = rig.post(channel, body).await;
    assert_eq!(status, 200, "{answer}");
    answer["status"].clone()
}

async fn a_template_approved_paused_and_approved_again_is_three_changes(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let update = |event: &str, time: i64| {
        let value = json!({"event": event, "message_template_id": 12, "message_template_name": "order_ready"});
        let change = json!({"field": "message_template_status_update", "value": value});
        let mut body: Value = serde_json::from_str(&webhook(&[change])).expect("JSON");
        body["entry"][0]["time"] = time.into();
        body.to_string()
    };
    for (event, time) in [("APPROVED", 1_760_000_100), ("PAUSED", 1_760_000_200), ("APPROVED", 1_760_000_300)] {
        assert_eq!(word(&rig, "shop", update(event, time)).await, "accepted", "{event} {time}");
        assert_eq!(word(&rig, "shop", update(event, time)).await, "duplicate", "Meta's retry of {event} {time}");
    }
    rig.settled().await;
    assert_eq!(bot.calls().len(), 3);
    rig.counted(r#"hapax_events_fallback_key_total{channel="shop"}"#, 3).await;
}

async fn a_gowa_message_without_an_id_is_delivered_once(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![gowa("phone", bot.url())]).await;
    let at = Some("2026-08-22T10:00:00Z");
    assert_eq!(word(&rig, "phone", said("oi", at)).await, "accepted");
    assert_eq!(word(&rig, "phone", said("oi", at)).await, "duplicate");
    assert_eq!(word(&rig, "phone", said("oi", Some("2026-08-22T10:00:07Z"))).await, "accepted", "said again later");
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
    assert!(rig.events().await.iter().all(|event| event.provider_id.starts_with("fallback:")));
}

async fn without_an_id_and_a_time_both_are_delivered_and_it_is_said(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![gowa("phone", bot.url())]).await;
    for _ in 0..2 {
        assert_eq!(word(&rig, "phone", said("oi", None)).await, "accepted");
    }
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
    rig.counted(r#"hapax_events_without_key_total{channel="phone"}"#, 2).await;
    let event = rig.events().await[0].id;
    let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
    let story = story.send().await.expect("an answer").text().await.expect("a story");
    assert!(story.contains("neither an id nor a time"), "{story}");
}

async fn a_purge_that_fails_is_no_run_and_one_asked_for_is_counted(opened: Opened) {
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", None)]).await;
    let purge = || rig.client.post(rig.url("/v1/purge")).bearer_auth("an admin token for tests").json(&json!({})).send();
    faulty.outage(Outage::Fails);
    assert!(purge().await.expect("an answer").status().is_server_error());
    let never = "hapax_purge_last_run_timestamp_seconds 0\n";
    assert!((rig.telemetry)().contains(never), "a failed purge is no run");
    faulty.outage(Outage::Over);
    assert_eq!(purge().await.expect("an answer").status(), 200);
    assert!(!(rig.telemetry)().contains(never));
}

/// A clock of our own, so that a window passes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_in_for_an_id_is_believed_only_while_the_provider_retries() {
    let clock = HandClock::at(1_760_000_000_000);
    let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let opened = Opened { store, clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened, vec![Channel { target: None, ..gowa("phone", String::new()) }]).await;
    let at = Some("2026-08-22T10:00:00Z");
    assert_eq!(word(&rig, "phone", said("oi", at)).await, "accepted");
    clock.advance(60_000);
    assert_eq!(word(&rig, "phone", said("oi", at)).await, "duplicate", "GOWA may still retry");
    clock.advance(600_000);
    assert_eq!(word(&rig, "phone", said("oi", at)).await, "accepted", "and now it does no longer");
    clock.advance(600_000);
    let purge = rig.client.post(rig.url("/v1/purge")).bearer_auth("an admin token for tests").json(&json!({}));
    assert_eq!(purge.send().await.expect("an answer").status(), 200);
    assert!(rig.metric("hapax_purged_keys_total") >= 1, "a purge that was asked for is counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_look_alike_are_two_also_in_one_webhook() {
    let rig = Rig::start(Opened::memory(), vec![channel("shop", None)]).await;
    let error = json!({"code": 131000, "title": "Something went wrong"});
    let value = json!({"metadata": {"phone_number_id": "700001"}, "errors": [error, error]});
    let body = webhook(&[json!({"field": "messages", "value": value})]);
    let mut timed: Value = serde_json::from_str(&body).expect("JSON");
    timed["entry"][0]["time"] = 1_760_000_100.into();
    let (_, answer) = rig.post("shop", timed.to_string()).await;
    assert_eq!(answer, json!({"status": "accepted", "accepted": 2, "repeated": 0}));
    let (_, answer) = rig.post("shop", timed.to_string()).await;
    assert_eq!(answer, json!({"status": "duplicate", "accepted": 0, "repeated": 2}));
    let (_, answer) = rig.post("shop", body.clone()).await;
    assert_eq!(answer["accepted"], 2, "without a time there is no telling");
    rig.accepted("shop", text("wamid.A", "1")).await;
}
