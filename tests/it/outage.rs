//! A store on a server that goes away for a while: each channel does what its `on_store_failure` says, and the spool loses and doubles
//! nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hapax::{StoreAddress, StoreUrl};
use hapax_gateway::settings::{Channel, OnStoreFailure};
use hapax_providers::settings::{FieldSource, GenericSettings, Settings, SignatureRule};
use hapax_server::config::Config;
use hapax_store::{EventState, InboxQuery};
use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use serde_json::{Value, json};

use crate::faulty::{Faulty, Outage, with};
use crate::rig::{Opened, Rig, channel, config, eventually, signature, status, text, webhook};

on_every_store! {
    a_store_that_hangs_is_answered_503_within_two_seconds_and_the_repeat_is_a_copy
    what_was_spooled_is_delivered_once_and_in_order
    nothing_overtakes_however_often_the_store_comes_and_goes
    each_channel_does_what_it_was_told_at_the_same_time
    a_crash_with_a_full_spool_loses_and_doubles_nothing
    a_crash_between_the_store_and_the_spool_doubles_nothing
    a_spool_without_room_is_answered_503
    what_the_store_refuses_stays_in_the_spool_and_holds_up_nobody
    what_would_be_read_otherwise_is_not_spooled
    passed_webhooks_are_the_providers_own
    what_cannot_be_passed_is_left_to_the_provider
    a_bad_signature_is_401_whatever_the_store_does
    the_api_says_503_and_all_goes_on_by_itself
    readiness_tells_what_happens_now
}

/// As if the store were a server elsewhere, with the spool in this folder.
fn at_a_server(folder: &Path, channels: Vec<Channel>) -> Config {
    let store = StoreUrl::Postgres(StoreAddress::new("postgres://elsewhere/hapax"));
    Config { store, spool: folder.join("spool.db"), ..config(channels) }
}

fn on_failure(name: &str, bot: &FakeBot, on_store_failure: OnStoreFailure) -> Channel {
    Channel { on_store_failure, ..channel(name, Some(bot.url())) }
}

fn message_of(call: &Call) -> (String, String) {
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    let message = &body["entry"][0]["changes"][0]["value"]["messages"][0];
    (message["from"].as_str().expect("a sender").to_owned(), message["id"].as_str().expect("an id").to_owned())
}

/// What the bot heard of each sender, in the order it heard it.
fn heard(bot: &FakeBot) -> HashMap<String, Vec<String>> {
    let mut by_sender: HashMap<String, Vec<String>> = HashMap::new();
    for (from, id) in bot.calls().iter().map(message_of) {
        by_sender.entry(from).or_default().push(id);
    }
    by_sender
}

async fn stats(rig: &Rig) -> Value {
    let asked = rig.client.get(rig.url("/v1/stats")).bearer_auth("an admin token for tests").send().await.expect("an answer");
    assert_eq!(asked.status(), 200);
    asked.json().await.expect("JSON")
}

async fn spooled(rig: &Rig) -> u64 {
    let stats = stats(rig).await;
    stats["spool"].as_array().expect("a spool").iter().map(|row| row["waiting"].as_u64().expect("a count")).sum()
}

async fn a_store_that_hangs_is_answered_503_within_two_seconds_and_the_repeat_is_a_copy(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", Some(bot.url()))]).await;
    faulty.outage(Outage::Hangs);
    let begun = Instant::now();
    let body = text("wamid.A", "1");
    let answer = rig.request("shop", body.as_bytes()).body(body.clone()).send().await.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    faulty.outage(Outage::Over);
    eventually("the call that was given up takes effect", async || rig.events().await.len() == 1).await;
    let (status, answer) = rig.post("shop", body).await;
    assert_eq!((status, &answer["status"]), (200, &"duplicate".into()));
    rig.settled().await;
    assert_eq!(bot.calls().len(), 1);
}

async fn what_was_spooled_is_delivered_once_and_in_order(opened: Opened) {
    const SENDERS: usize = 5;
    const EACH: usize = 40;
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let shop = on_failure("shop", &bot, OnStoreFailure::Spool);
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop])).await;
    rig.accepted("shop", text("wamid.before", "0")).await;
    rig.settled().await;
    faulty.outage(Outage::Hangs);
    let begun = Instant::now();
    rig.accepted("shop", text("wamid.0.0", "0")).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "the first one waited for the store: {:?}", begun.elapsed());
    faulty.outage(Outage::Fails);
    for number in 1..SENDERS * EACH {
        let body = text(&format!("wamid.{}.{}", number % SENDERS, number / SENDERS), &(number % SENDERS).to_string());
        rig.accepted("shop", body.clone()).await;
        if number % 7 == 0 {
            assert_eq!(rig.post("shop", body).await.1["status"], "duplicate", "the spool knows what it holds");
        }
    }
    assert_eq!(rig.post("shop", text("wamid.before", "0")).await.1["status"], "duplicate", "memory knows it without the store");
    assert_eq!(spooled(&rig).await, (SENDERS * EACH) as u64);
    let shown = stats(&rig).await;
    assert_eq!((&shown["store"], &shown["keys"]), (&json!("down"), &Value::Null));
    assert!(shown["spool"][0]["oldest_at"].is_string());
    rig.counted(r#"hapax_spool_webhooks_total{channel="shop"}"#, (SENDERS * EACH) as u64).await;

    faulty.outage(Outage::Over);
    bot.called(1 + SENDERS * EACH).await;
    eventually("the spool is empty", async || spooled(&rig).await == 0).await;
    rig.settled().await;
    let heard = heard(&bot);
    for sender in 0..SENDERS {
        let expected: Vec<_> = (0..EACH).map(|number| format!("wamid.{sender}.{number}")).collect();
        let got: Vec<_> = heard[&sender.to_string()].iter().filter(|id| *id != "wamid.before").cloned().collect();
        assert_eq!(got, expected, "each once, in order");
    }
    rig.counted(r#"hapax_spool_drained_total{channel="shop"}"#, (SENDERS * EACH) as u64).await;
    let (asked, direct) = (faulty.accepts(), text("wamid.after", "1"));
    rig.accepted("shop", direct).await;
    assert_eq!(faulty.accepts(), asked + 1, "straight to the store again");
    rig.counted(r#"hapax_spool_webhooks_total{channel="shop"}"#, (SENDERS * EACH) as u64).await;
}

/// The moment at which the spool becomes empty, over and over: a message must never pass the one before it.
async fn nothing_overtakes_however_often_the_store_comes_and_goes(opened: Opened) {
    const SENDERS: usize = 4;
    const EACH: usize = 150;
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let shop = on_failure("shop", &bot, OnStoreFailure::Spool);
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop])).await;
    // Each sender waits for its answer before it sends the next, as phones do.
    let send = async |sender: usize| {
        for number in 0..EACH {
            rig.accepted("shop", text(&format!("wamid.{sender}.{number}"), &sender.to_string())).await;
            if sender == 0 && number % 10 == 0 {
                faulty.outage(Outage::Fails);
            }
            // The others go on sending while the spool runs dry.
            if sender == 0 && number % 10 == 5 {
                faulty.outage(Outage::Over);
                eventually("the spool is empty", async || spooled(&rig).await == 0).await;
            }
        }
    };
    futures_util::future::join_all((0..SENDERS).map(send)).await;
    faulty.outage(Outage::Over);
    bot.called(SENDERS * EACH).await;
    eventually("the spool is empty", async || spooled(&rig).await == 0).await;
    rig.settled().await;
    let heard = heard(&bot);
    for sender in 0..SENDERS {
        let expected: Vec<_> = (0..EACH).map(|number| format!("wamid.{sender}.{number}")).collect();
        assert_eq!(heard[&sender.to_string()], expected);
    }
    assert!(rig.metric(r#"hapax_spool_webhooks_total{channel="shop"}"#) >= 10, "the spool was used");
    assert!(rig.metric(r#"hapax_spool_webhooks_total{channel="shop"}"#) < (SENDERS * EACH) as u64, "and left");
}

async fn each_channel_does_what_it_was_told_at_the_same_time(opened: Opened) {
    let folder = crate::quick_folder();
    let [retry, spool, pass, drop] = [(); 4].map(|()| FakeBot::willing());
    let [retry, spool, pass, drop] = [retry.await, spool.await, pass.await, drop.await].map(|bot| bot.expect("a bot"));
    let faulty = Faulty::around(&opened);
    let channels = vec![
        on_failure("retry", &retry, OnStoreFailure::Retry),
        on_failure("spool", &spool, OnStoreFailure::Spool),
        on_failure("pass", &pass, OnStoreFailure::Pass),
        on_failure("drop", &drop, OnStoreFailure::Drop),
    ];
    let inner = Arc::clone(&opened.store);
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), channels)).await;
    for outage in [Outage::Fails, Outage::Hangs] {
        faulty.outage(outage);
        let body = text(&format!("wamid.{outage:?}"), "1");
        let begun = Instant::now();
        let said =
            futures_util::future::join_all(["retry", "spool", "pass", "drop"].map(|name| rig.post(name, body.clone()))).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{outage:?}: {:?}", begun.elapsed());
        let statuses: Vec<_> = said.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [503, 200, 200, 200], "{outage:?}");
        assert_eq!(said[3].1["status"], "ignored");
    }
    assert_eq!((spool.calls().len(), pass.calls().len(), drop.calls().len()), (0, 2, 0));
    rig.counted(r#"hapax_webhooks_passed_total{channel="pass"}"#, 2).await;
    rig.counted(r#"hapax_webhooks_dropped_total{channel="drop"}"#, 2).await;
    rig.counted(r#"hapax_webhooks_refused_total{channel="retry",why="store"}"#, 2).await;

    faulty.outage(Outage::Over);
    rig.accepted("retry", text("wamid.Fails", "1")).await;
    let of = async |channel: &str| {
        let events = inner.events(hapax_store::EventQuery { channel: Some(channel.to_owned()), limit: 9, ..Default::default() });
        events.await.expect("events").rows
    };
    eventually("what was spooled is delivered", async || {
        let events = of("spool").await;
        events.len() == 2 && events.iter().all(|event| event.state == EventState::Delivered)
    })
    .await;
    rig.settled().await;
    assert_eq!(spool.calls().len(), 2);
    let of_failing = |events: Vec<hapax_store::EventRow>| events.iter().any(|event| event.provider_id == "wamid.Fails");
    assert!(!of_failing(of("pass").await), "no record of it");
    assert!(!of_failing(of("drop").await), "lost, as told");
    assert!(!drop.calls().iter().any(|call| message_of(call).1 == "wamid.Fails"));
}

/// What a kill would leave behind: the spool's files as they are now. Nothing may be writing.
pub(crate) fn crash_image(folder: &Path) -> PathBuf {
    let image = folder.join("image");
    std::fs::create_dir(&image).expect("a folder");
    for ending in ["", "-wal", "-shm"] {
        let name = format!("spool.db{ending}");
        std::fs::copy(folder.join(&name), image.join(&name)).expect("a file of the spool");
    }
    image
}

async fn a_crash_with_a_full_spool_loses_and_doubles_nothing(opened: Opened) {
    const WEBHOOKS: usize = 150;
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let (store, clock, keep) = (Arc::clone(&opened.store), Arc::clone(&opened.clock), opened.folder.clone());
    let shop = || on_failure("shop", &bot, OnStoreFailure::Spool);
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop()])).await;
    faulty.outage(Outage::Fails);
    for number in 0..WEBHOOKS {
        rig.accepted("shop", text(&format!("wamid.{number}"), "1")).await;
    }
    let image = crash_image(folder.path());
    rig.kill();

    // It comes back while the store is away still; what waits goes first, and what comes goes behind it.
    let again = Faulty::around(&Opened { store: Arc::clone(&store), clock: Arc::clone(&clock), folder: keep.clone() });
    again.outage(Outage::Fails);
    let opened = with(&again, Opened { store, clock, folder: keep });
    let rig = Rig::start_with(opened, at_a_server(&image, vec![shop()])).await;
    let asked = again.accepts();
    rig.accepted("shop", text(&format!("wamid.{WEBHOOKS}"), "1")).await;
    assert_eq!(again.accepts(), asked, "the store was not asked: it would have overtaken");
    assert_eq!(rig.post("shop", text("wamid.7", "1")).await.1["status"], "duplicate");
    assert_eq!(spooled(&rig).await, WEBHOOKS as u64 + 1);
    again.outage(Outage::Over);
    bot.called(WEBHOOKS + 1).await;
    eventually("the spool is empty", async || spooled(&rig).await == 0).await;
    rig.settled().await;
    let expected: Vec<_> = (0..=WEBHOOKS).map(|number| format!("wamid.{number}")).collect();
    assert_eq!(heard(&bot)["1"], expected, "each once, in order");
}

async fn a_crash_between_the_store_and_the_spool_doubles_nothing(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let (store, clock, keep) = (Arc::clone(&opened.store), Arc::clone(&opened.clock), opened.folder.clone());
    let shop = || on_failure("shop", &bot, OnStoreFailure::Spool);
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop()])).await;
    faulty.outage(Outage::Fails);
    for number in 0..3 {
        rig.accepted("shop", text(&format!("wamid.{number}"), "1")).await;
    }
    faulty.swallow_answers();
    faulty.outage(Outage::Over);
    eventually("the store has the first one, and the spool does not know", async || faulty.swallowed() == 1).await;
    let image = crash_image(folder.path());
    rig.kill();

    let opened = Opened { store, clock, folder: keep };
    let rig = Rig::start_with(opened, at_a_server(&image, vec![shop()])).await;
    bot.called(3).await;
    eventually("the spool is empty", async || spooled(&rig).await == 0).await;
    rig.settled().await;
    assert_eq!(heard(&bot)["1"], ["wamid.0", "wamid.1", "wamid.2"]);
    assert_eq!(rig.events().await.len(), 3);
}

async fn a_spool_without_room_is_answered_503(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let mut full = at_a_server(folder.path(), vec![on_failure("shop", &bot, OnStoreFailure::Spool)]);
    full.engine.disk_floor_bytes = 1 << 60;
    let rig = Rig::start_with(with(&faulty, opened), full).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    faulty.outage(Outage::Fails);
    let body = text("wamid.B", "1");
    let answer = rig.request("shop", body.as_bytes()).body(body.clone()).send().await.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let ready = rig.client.get(rig.url("/readyz")).bearer_auth("an admin token for tests").send().await.expect("an answer");
    assert_eq!(ready.status(), 503, "nothing can be taken in now");
    faulty.outage(Outage::Over);
    rig.accepted("shop", body).await;
    bot.called(2).await;
}

async fn what_the_store_refuses_stays_in_the_spool_and_holds_up_nobody(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let (store, clock, keep) = (Arc::clone(&opened.store), Arc::clone(&opened.clock), opened.folder.clone());
    let shop = || on_failure("shop", &bot, OnStoreFailure::Spool);
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop()])).await;
    faulty.outage(Outage::Fails);
    faulty.refuse(Some("wamid.odd"));
    for id in ["wamid.0", "wamid.odd", "wamid.1"] {
        rig.accepted("shop", text(id, "1")).await;
    }
    faulty.outage(Outage::Over);
    bot.called(2).await;
    eventually("it is shown", async || {
        let spool = stats(&rig).await["spool"][0].clone();
        spool["waiting"] == 0 && spool["parked"] == 1
    })
    .await;
    rig.settled().await;
    let image = crash_image(folder.path());
    rig.kill();

    let rig = Rig::start_with(Opened { store, clock, folder: keep }, at_a_server(&image, vec![shop()])).await;
    bot.called(3).await;
    rig.settled().await;
    assert_eq!(heard(&bot)["1"], ["wamid.0", "wamid.1", "wamid.odd"], "tried again at the next start");
}

fn generic(name: &str, id: &'static str) -> Channel {
    let settings = GenericSettings {
        channel: name.to_owned(),
        id: Some(FieldSource::Header(http::HeaderName::from_static(id))),
        id_parts: Vec::new(),
        thread: None,
        signature: SignatureRule::None,
    };
    Channel { provider: Settings::Generic(settings), on_store_failure: OnStoreFailure::Spool, ..channel(name, None) }
}

/// A webhook's id may be in a header that the target never sees, or in one that is never kept.
async fn what_would_be_read_otherwise_is_not_spooled(opened: Opened) {
    let folder = crate::quick_folder();
    let faulty = Faulty::around(&opened);
    let inner = Arc::clone(&opened.store);
    let channels = vec![generic("named", "idempotency-key"), generic("secret", "authorization")];
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), channels)).await;
    let post = async |channel: &str, header: &str, id: &str| {
        let request = rig.client.post(rig.url(&format!("/in/{channel}"))).header(header, id).body("{}");
        request.send().await.expect("an answer").status().as_u16()
    };
    faulty.outage(Outage::Fails);
    assert_eq!(post("named", "idempotency-key", "first").await, 200);
    assert_eq!(post("named", "idempotency-key", "second").await, 200);
    assert_eq!(post("secret", "authorization", "hush").await, 503, "it would be another event when read again");
    faulty.outage(Outage::Over);
    eventually("taken in", async || rig.events().await.len() == 2).await;
    assert_eq!(post("named", "idempotency-key", "first").await, 200);
    let page = inner.events(hapax_store::EventQuery { limit: 9, ..Default::default() }).await.expect("events");
    let mut ids: Vec<_> = page.rows.iter().map(|event| event.provider_id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["first", "second"], "the copy was a copy");
}

async fn passed_webhooks_are_the_providers_own(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let mut shop = on_failure("shop", &bot, OnStoreFailure::Pass);
    shop.deliver.kinds = vec![hapax_domain::Kind::Message];
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop])).await;
    faulty.outage(Outage::Fails);
    let body = text("wamid.A", "1");
    for _ in 0..2 {
        rig.accepted("shop", body.clone()).await;
    }
    let mixed = webhook(&[crate::rig::change(&[crate::rig::message("wamid.B", "1")], &[status("wamid.out", "read")])]);
    rig.accepted("shop", mixed.clone()).await;
    let calls = bot.calls();
    assert_eq!(calls.len(), 3, "copies are passed too");
    assert_eq!(calls[0].body, body, "byte for byte");
    assert_eq!(calls[0].header("x-hub-signature-256"), signature(body.as_bytes()), "the bot's own check passes");
    assert_eq!((calls[0].header("hapax-passed"), calls[0].header("hapax-thread")), ("1", "700001__1"));
    assert_eq!((calls[0].event_id(), calls[0].header("hapax-fence")), ("", ""), "no store has given it a name");
    assert!(!calls[0].header("idempotency-key").is_empty());
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"), "a copy can be recognised");
    assert_ne!(calls[0].header("idempotency-key"), calls[2].header("idempotency-key"));
    assert!(String::from_utf8_lossy(&calls[2].body).contains("wamid.B"));
    assert!(!String::from_utf8_lossy(&calls[2].body).contains("wamid.out"), "only what the bot is to get");
    faulty.outage(Outage::Over);
    assert_eq!(rig.events().await.len(), 0);
}

async fn what_cannot_be_passed_is_left_to_the_provider(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::start(|_| Say::Status(500)).await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let mut shop = on_failure("shop", &bot, OnStoreFailure::Pass);
    shop.deliver.kinds = vec![hapax_domain::Kind::Message];
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), vec![shop])).await;
    faulty.outage(Outage::Fails);
    assert_eq!(rig.post("shop", text("wamid.A", "1")).await.0, 503, "the bot did not take it");
    let statuses = webhook(&[crate::rig::change(&[], &[status("wamid.out", "read")])]);
    assert_eq!(rig.post("shop", statuses).await.0, 503, "not for the bot, and nowhere to keep it");
    assert_eq!(rig.post("shop", r#"{"object":"#).await.0, 503, "unreadable, and nowhere to quarantine it");
    assert_eq!(bot.calls().len(), 1);
    rig.counted(r#"hapax_webhooks_passed_total{channel="shop"}"#, 0).await;
}

async fn a_bad_signature_is_401_whatever_the_store_does(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let all = [OnStoreFailure::Retry, OnStoreFailure::Spool, OnStoreFailure::Pass, OnStoreFailure::Drop];
    let channels = all.map(|does| on_failure(does.name(), &bot, does));
    let rig = Rig::start_with(with(&faulty, opened), at_a_server(folder.path(), channels.into())).await;
    faulty.outage(Outage::Hangs);
    for does in all {
        let forged = rig.request(does.name(), b"another body").body(text("wamid.A", "1")).send().await.expect("an answer");
        assert_eq!(forged.status(), 401, "{does:?}");
    }
    assert_eq!((faulty.accepts(), bot.calls().len()), (0, 0));
    faulty.outage(Outage::Fails);
    assert_eq!(spooled(&rig).await, 0);
}

async fn the_api_says_503_and_all_goes_on_by_itself(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let inner = Arc::clone(&opened.store);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", Some(bot.url()))]).await;
    faulty.outage(Outage::Fails);
    for path in ["/v1/events", "/v1/inbox", "/v1/threads", "/v1/outbox"] {
        let asked = rig.client.get(rig.url(path)).bearer_auth("an admin token for tests").send().await.expect("an answer");
        assert_eq!(asked.status(), 503, "{path}");
        assert!(asked.headers().contains_key("retry-after"), "{path}");
        assert_eq!(asked.headers()["content-type"], "application/problem+json", "{path}");
    }
    // Taken in by another instance, which reaches the store.
    let other = Rig::start(
        Opened { store: Arc::clone(&inner), clock: Arc::new(hapax_store::clock::SystemClock::new()), folder: None },
        vec![channel("shop", None)],
    )
    .await;
    other.accepted("shop", text("wamid.A", "1")).await;
    let open = inner.inbox(InboxQuery { limit: 9, ..InboxQuery::default() }).await.expect("the inbox");
    assert_eq!(open.rows.len(), 1);
    faulty.outage(Outage::Over);
    bot.called(1).await;
    rig.settled().await;
}

async fn readiness_tells_what_happens_now(opened: Opened) {
    let folder = crate::quick_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let (store, clock, keep) = (Arc::clone(&opened.store), Arc::clone(&opened.clock), opened.folder.clone());
    let all = [OnStoreFailure::Spool, OnStoreFailure::Pass, OnStoreFailure::Drop];
    for with_retry in [false, true] {
        let opened = Opened { store: Arc::clone(&store), clock: Arc::clone(&clock), folder: keep.clone() };
        let faulty = Faulty::around(&opened);
        let mut channels: Vec<_> = all.iter().map(|does| on_failure(does.name(), &bot, *does)).collect();
        if with_retry {
            channels.push(on_failure("retry", &bot, OnStoreFailure::Retry));
        }
        let home = folder.path().join(with_retry.to_string());
        std::fs::create_dir(&home).expect("a folder");
        let rig = Rig::start_with(with(&faulty, opened), at_a_server(&home, channels)).await;
        let ready = async || {
            let answer =
                rig.client.get(rig.url("/readyz")).bearer_auth("an admin token for tests").send().await.expect("an answer");
            (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
        };
        assert_eq!(ready().await.0, 200);
        faulty.outage(Outage::Hangs);
        let begun = Instant::now();
        eventually("the store is seen to be down", async || ready().await.1["store"] == "down").await;
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        let (status, said) = ready().await;
        let (expected, word) = if with_retry { (503, "unready") } else { (200, "ready") };
        assert_eq!((status, &said["status"]), (expected, &json!(word)), "{said}");
        assert_eq!(said["on_store_failure"]["spool"], "spool", "{said}");
        assert!(said["why"].as_str().is_some_and(|why| why.contains("no answer within")), "{said}");
        faulty.outage(Outage::Over);
        eventually("it is back", async || ready().await.1["promise"].is_string()).await;
        assert_eq!(ready().await.0, 200);
    }
}
