//! How long the spool, and the store behind it, know what came: not longer than the channel's window, and long enough for what waits in it.

use std::sync::Arc;

use hapax::{StoreAddress, StoreUrl};
use hapax_domain::{Event, EventKey, Kind};
use hapax_gateway::settings::{Channel, OnStoreFailure};
use hapax_providers::settings::Settings;
use hapax_server::config::Config;
use hapax_store::memory::MemoryStore;
use hapax_store::prelude::*;
use hapax_store::{Arrival, Disposition, KeptHeaders, NewEvent};
use hapax_store_sqlite::{self as sqlite, SqliteStore};
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::hand_clock::HandClock;

use crate::faulty::{Faulty, Outage, with};
use crate::rig::{Opened, Rig, SECRET, channel, config, eventually, signature, text};

const MINUTE_MS: i64 = 60_000;

fn spooling(folder: &std::path::Path, channel: Channel) -> Config {
    let store = StoreUrl::Postgres(StoreAddress::new("postgres://elsewhere/hapax"));
    let channel = Channel { on_store_failure: OnStoreFailure::Spool, target: None, ..channel };
    Config { store, spool: folder.join("spool.db"), ..config(vec![channel]) }
}

fn opened(clock: &HandClock) -> Opened {
    let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    Opened { store, clock: Arc::new(clock.clone()), folder: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_short_window_it_is_new_in_the_spool_too() {
    let (folder, clock) = (crate::quick_folder(), HandClock::at(1_760_000_000_000));
    let opened = opened(&clock);
    let faulty = Faulty::around(&opened);
    let shop = Channel { window_ms: 10 * MINUTE_MS, ..channel("shop", None) };
    let rig = Rig::start_with(with(&faulty, opened), spooling(folder.path(), shop)).await;
    faulty.outage(Outage::Fails);
    rig.accepted("shop", text("wamid.A", "1")).await;
    clock.advance(9 * MINUTE_MS);
    assert_eq!(rig.post("shop", text("wamid.A", "1")).await.1["status"], "duplicate");
    clock.advance(2 * MINUTE_MS);
    rig.accepted("shop", text("wamid.A", "1")).await;
}

/// Taken in by the store, and the spool did not hear of it: minutes later the store still knows it, although it has no id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_id_it_is_known_until_it_has_left_the_spool() {
    let (folder, clock) = (crate::quick_folder(), HandClock::at(1_760_000_000_000));
    let first = opened(&clock);
    let again = Opened { store: Arc::clone(&first.store), clock: Arc::clone(&first.clock), folder: None };
    let faulty = Faulty::around(&first);
    let phone = || Channel { provider: Settings::Gowa { secrets: vec![SECRET.into()] }, ..channel("phone", None) };
    let rig = Rig::start_with(with(&faulty, first), spooling(folder.path(), phone())).await;
    let payload = serde_json::json!({"chat_id": "1@s.whatsapp.net", "from": "1@s.whatsapp.net", "body": "oi"});
    let body = serde_json::json!({"event": "message", "device_id": "2@s.whatsapp.net", "payload": payload}).to_string();
    faulty.outage(Outage::Fails);
    rig.accepted("phone", body).await;
    faulty.swallow_answers();
    faulty.outage(Outage::Over);
    eventually("the store has it, and the spool does not know", async || faulty.swallowed() == 1).await;
    let image = crate::outage::crash_image(folder.path());
    rig.kill();
    clock.advance(10 * MINUTE_MS);
    let rig = Rig::start_with(again, spooling(&image, phone())).await;
    rig.counted(r#"hapax_spool_drained_total{channel="phone"}"#, 1).await;
    assert_eq!(rig.events().await.len(), 1);
}

/// The store would keep it and deliver it to nobody. The spool keeps no signatures: read back it would look like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_signed_before_its_window_does_not_pass_through_the_spool() {
    let (folder, clock) = (crate::quick_folder(), HandClock::at(1_760_000_000_000));
    let opened = opened(&clock);
    let faulty = Faulty::around(&opened);
    let provider = Settings::Slack { secrets: vec![SECRET.into()] };
    let slack = Channel { provider, window_ms: MINUTE_MS, ..channel("team", None) };
    let rig = Rig::start_with(with(&faulty, opened), spooling(folder.path(), slack)).await;
    let post = async |id: &str, signed_ms: i64| {
        let event = serde_json::json!({"type": "message", "channel": "C1", "user": "U1", "text": "oi", "ts": "1760000000.1"});
        let body = serde_json::json!({"type": "event_callback", "team_id": "T1", "event_id": id, "event": event}).to_string();
        let time = (signed_ms / 1_000).to_string();
        let proof = signature(format!("v0:{time}:{body}").as_bytes()).replace("sha256=", "v0=");
        let ask = rig.client.post(rig.url("/in/team")).header("x-slack-request-timestamp", time);
        ask.header("x-slack-signature", proof).body(body).send().await.expect("an answer").status().as_u16()
    };
    let old_ms = 1_760_000_000_000 - 2 * MINUTE_MS;
    faulty.outage(Outage::Fails);
    assert_eq!(post("Ev1", old_ms).await, 503, "the store is away");
    assert_eq!(post("Ev2", 1_760_000_000_000).await, 200);
    assert_eq!(post("Ev3", old_ms).await, 503, "the spool holds something");
    faulty.outage(Outage::Over);
    rig.counted(r#"hapax_spool_drained_total{channel="team"}"#, 1).await;
    assert_eq!(rig.events().await.len(), 1);
}

/// A version that kept more of a body may have left it in the spool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_lay_in_the_spool_does_not_get_to_the_store() {
    let (folder, clock) = (crate::quick_folder(), HandClock::at(1_760_000_000_000));
    let event = serde_json::json!({"type": "message", "channel": "C1", "user": "U1", "text": "oi", "ts": "1760000000.1"});
    let body =
        serde_json::json!({"token": "S3CRET", "type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event});
    let key = EventKey::from_content("webhook", "team", b"Ev1");
    let events = vec![NewEvent { event: Event::new(Kind::Notice, "team", "", key, 0), disposition: Disposition::Deliver }];
    let (headers, body) = (KeptHeaders::default(), body.to_string().into());
    let arrival = Arrival { channel: "team".into(), window_ms: MINUTE_MS, headers, body, events, coalesce: None };
    let spool = SqliteStore::open(&folder.path().join("spool.db"), Arc::new(clock.clone()), &sqlite::Options::default());
    spool.expect("it opens").accept(arrival.into()).await.expect("taken in");

    let provider = Settings::Slack { secrets: vec![SECRET.into()] };
    let slack = Channel { provider, ..channel("team", None) };
    let rig = Rig::start_with(opened(&clock), spooling(folder.path(), slack)).await;
    rig.counted(r#"hapax_spool_drained_total{channel="team"}"#, 1).await;
    let found = rig.store.event(rig.events().await[0].id).await.expect("found").expect("there");
    let body = String::from_utf8_lossy(&found.body);
    assert!(!body.contains("S3CRET") && body.contains("redacted"), "{body}");
}

/// What was taken in is the bot's once: while the other contents of a webhook cannot be kept, the provider is asked to send it again, and
/// nobody passes it on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_store_took_in_is_not_passed_on_as_well() {
    let bot = FakeBot::willing().await.expect("a bot");
    let opened = Opened::memory();
    let faulty = Faulty::around(&opened);
    let shop = Channel { on_store_failure: OnStoreFailure::Pass, ..channel("shop", Some(bot.url())) };
    let rig = Rig::start(with(&faulty, opened), vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    // The second never comes.
    faulty.keep_together(2);
    let mut other = crate::rig::message("wamid.A", "1");
    other["text"]["body"] = "another content".into();
    let body = crate::rig::webhook(&[crate::rig::change(&[other, crate::rig::message("wamid.B", "2")], &[])]);
    assert_eq!(rig.post("shop", body).await.0, 503);
    bot.called(2).await;
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2, "each once");
    assert_eq!(rig.metric(r#"hapax_webhooks_passed_total{channel="shop"}"#), 0);
}

/// A store far away takes its time for each other content that is kept; together they are in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_conflicts_of_one_webhook_are_kept_together() {
    const CONFLICTS: usize = 20;
    let opened = Opened::memory();
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", None)]).await;
    let messages = |word: &str| {
        let of = |n| {
            let mut message = crate::rig::message(&format!("wamid.{n}"), "1");
            message["text"]["body"] = format!("{word} {n}").into();
            message
        };
        crate::rig::webhook(&[crate::rig::change(&(0..CONFLICTS).map(of).collect::<Vec<_>>(), &[])])
    };
    rig.accepted("shop", messages("one")).await;
    faulty.keep_together(CONFLICTS);
    let (status, answer) = rig.post("shop", messages("other")).await;
    assert_eq!((status, &answer["status"]), (200, &"conflict".into()), "{answer}");
}
