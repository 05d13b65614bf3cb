//! Captured requests that somebody sends again.

use hapax_domain::limits::SUSPECTS_MAX;
use hapax_gateway::settings::{Channel, OnStoreFailure};
use hapax_providers::settings::Settings;
use hapax_store::{EventState, Redrive};
use hapax_testkit::fake_bot::FakeBot;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::faulty::{Faulty, Outage, with};
use crate::rig::{Opened, Rig, SECRET, channel, eventually};

on_every_store! {
    a_signed_body_under_a_new_delivery_id_is_parked_and_a_redelivery_is_a_copy
    a_captured_request_does_not_fill_the_store
    without_the_guard_a_new_delivery_id_is_a_new_event
    what_was_signed_before_the_window_is_quarantined
    what_was_signed_before_the_window_is_not_passed_either
}

fn github(target: String) -> Channel {
    Channel { provider: Settings::Github { secrets: vec![SECRET.into()] }, replay_guard: true, ..channel("repo", Some(target)) }
}

async fn push(rig: &Rig, delivery: &str, hook: &str) -> Value {
    let body = br#"{"ref":"refs/heads/main","after":"6113728f","repository":{"id":1,"full_name":"ana/shop"}}"#;
    let request = rig.request("repo", body).header("x-github-event", "push").header("x-github-delivery", delivery);
    let answer = request.header("x-github-hook-id", hook).body(body.to_vec()).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.json::<Value>().await.expect("JSON")["status"].clone()
}

async fn a_signed_body_under_a_new_delivery_id_is_parked_and_a_redelivery_is_a_copy(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![github(bot.url())]).await;
    assert_eq!(push(&rig, "d1", "7").await, "accepted");
    assert_eq!(push(&rig, "d1", "7").await, "duplicate", "GitHub's own redelivery keeps the id");
    assert_eq!(push(&rig, "d2", "7").await, "accepted");
    assert_eq!(push(&rig, "d3", "8").await, "accepted", "the hook's id is not signed either");
    assert_eq!(push(&rig, "d2", "7").await, "duplicate");
    rig.settled().await;
    assert_eq!(bot.calls().len(), 1, "only the first reached the bot");
    rig.counted(r#"hapax_events_suspected_total{channel="repo"}"#, 2).await;
    let events = rig.events().await;
    let parked: Vec<_> = events.iter().filter(|event| event.state == EventState::Parked).collect();
    assert_eq!(parked.len(), 2, "nothing is suppressed without a word");
    let first = events.last().expect("the first").id;
    let why = rig.inbox().await[0].why.clone().expect("a reason");
    assert!(why.contains(&format!("suspected replay of {first}")), "{why}");

    rig.store.redrive(Redrive::Event(parked[0].id), 10).await.expect("redriven");
    eventually("the bot has both", async || bot.calls().len() == 2).await;
}

/// Up to the bound each is parked; further ones are counted with the first, and a new content is still taken in.
async fn a_captured_request_does_not_fill_the_store(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![github(bot.url())]).await;
    assert_eq!(push(&rig, "first", "7").await, "accepted");
    for n in 0..SUSPECTS_MAX {
        assert_eq!(push(&rig, &format!("d{n}"), "7").await, "accepted");
    }
    for _ in 0..2 {
        assert_eq!(push(&rig, "one-more", "7").await, "duplicate");
    }
    rig.counted(r#"hapax_events_suspected_total{channel="repo"}"#, SUSPECTS_MAX).await;
    assert_eq!(rig.store.stats().await.expect("stats").channels[0].parked, SUSPECTS_MAX);
    let body = br#"{"ref":"refs/heads/other","after":"7","repository":{"id":1,"full_name":"ana/shop"}}"#;
    let request = rig.request("repo", body).header("x-github-event", "push").header("x-github-delivery", "other");
    let answer = request.body(body.to_vec()).send().await.expect("an answer").json::<Value>().await.expect("JSON");
    assert_eq!(answer["status"], "accepted");
}

async fn without_the_guard_a_new_delivery_id_is_a_new_event(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![Channel { replay_guard: false, ..github(bot.url()) }]).await;
    assert_eq!(push(&rig, "d1", "7").await, "accepted");
    assert_eq!(push(&rig, "d2", "7").await, "accepted");
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
}

fn stripe(target: Option<String>) -> Channel {
    Channel { provider: Settings::Stripe { secrets: vec![SECRET.into()] }, window_ms: 60_000, ..channel("pay", target) }
}

async fn pay(rig: &Rig, id: &str, signed_s: i64) -> u16 {
    let body = format!(r#"{{"id":"{id}","object":"event","type":"invoice.paid"}}"#);
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any length will do");
    mac.update(format!("{signed_s}.{body}").as_bytes());
    let signature = format!("t={signed_s},v1={}", hex::encode(mac.finalize().into_bytes()));
    let request = rig.client.post(rig.url("/in/pay")).header("stripe-signature", signature).body(body);
    request.send().await.expect("an answer").status().as_u16()
}

async fn what_was_signed_before_the_window_is_quarantined(opened: Opened) {
    let now_s = opened.clock.wall_ms() / 1_000;
    let rig = Rig::start(opened, vec![stripe(None)]).await;
    assert_eq!(pay(&rig, "evt_1", now_s).await, 200);
    assert_eq!(pay(&rig, "evt_2", now_s - 200).await, 200, "within what clocks may differ, and older than keys are kept");
    assert_eq!(pay(&rig, "evt_3", now_s - 900).await, 401, "and this is simply too old");
    let state =
        |id: &str, events: &[hapax_store::EventRow]| events.iter().find(|event| event.provider_id == id).map(|event| event.state);
    let events = rig.events().await;
    assert_eq!(state("evt_1", &events), Some(EventState::Waiting));
    assert_eq!(state("evt_2", &events), Some(EventState::Quarantined));
    assert_eq!(events.len(), 2);
}

async fn what_was_signed_before_the_window_is_not_passed_either(opened: Opened) {
    let now_s = opened.clock.wall_ms() / 1_000;
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let channel = Channel { on_store_failure: OnStoreFailure::Pass, ..stripe(Some(bot.url())) };
    let rig = Rig::start(with(&faulty, opened), vec![channel]).await;
    faulty.outage(Outage::Fails);
    assert_eq!(pay(&rig, "evt_1", now_s - 200).await, 503, "it may be a replay, and there is nowhere to quarantine it");
    assert_eq!(pay(&rig, "evt_2", now_s).await, 200);
    assert_eq!(bot.calls().len(), 1);
}
