//! Turns: a burst of messages of one thread is one call to the bot, whatever becomes of that call.

use std::sync::Arc;

use hapax_domain::Coalesce;
use hapax_gateway::settings::{Channel, TurnFormat, Turns};
use hapax_providers::settings::{FieldSource, GenericSettings, Settings, SignatureRule};
use hapax_store::memory::MemoryStore;
use hapax_store::{ItemState, Store};
use hapax_store_sqlite::{Options, SqliteStore};
use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::START_MS;
use http::HeaderName;
use serde_json::{Value, json};

use crate::rig::{Opened, Rig, channel, eventually, in_time, message, signature, text};

const TELEGRAM: &str = "a-secret-of-telegram";
const COALESCE: Coalesce = Coalesce { quiet_ms: 3_000, max_ms: 30_000, members: 50 };

fn shop(bot: &FakeBot, format: TurnFormat) -> Channel {
    Channel { turns: Some(Turns { coalesce: COALESCE, format }), ..channel("shop", Some(bot.url())) }
}

fn messages(call: &Call) -> Vec<String> {
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    let entries = body["entry"].as_array().expect("entries");
    let changes = entries.iter().flat_map(|entry| entry["changes"].as_array().expect("changes"));
    let messages = changes.flat_map(|change| change["value"]["messages"].as_array().expect("messages"));
    messages.map(|message| message["id"].as_str().expect("an id").to_owned()).collect()
}

fn ids(from: usize, to: usize) -> Vec<String> {
    (from..=to).map(|n| format!("m{n}")).collect()
}

/// Five in two seconds, a call that fails, and a sixth meanwhile.
async fn a_burst_is_one_turn(store: Arc<dyn Store>, clock: HandClock, folder: Option<Arc<tempfile::TempDir>>) {
    let bot = FakeBot::start(|call| if call.number == 0 { Say::Status(500) } else { Say::Status(200) }).await.expect("a bot");
    let opened = Opened { store, clock: Arc::new(clock.clone()), folder };
    let rig = Rig::start(opened, vec![shop(&bot, TurnFormat::Batch)]).await;
    for n in 1..=5 {
        rig.accepted("shop", text(&format!("m{n}"), "5511")).await;
        clock.advance(400);
    }
    assert!(bot.calls().is_empty(), "more may come");
    clock.advance(2_600);
    let first = in_time("the turn", bot.called(1)).await.remove(0);
    assert_eq!(messages(&first), ids(1, 5));
    assert_eq!(first.header("x-hub-signature-256"), signature(&first.body), "the bot's own check passes");
    let events: Vec<String> = rig.events().await.iter().rev().map(|event| event.id.to_string()).collect();
    assert_eq!(first.header("hapax-event-ids"), events.join(","));
    assert_eq!((first.event_id(), first.header("idempotency-key")), (&*events[0], &*events[0]));
    eventually("the failure is written down", async || rig.inbox().await.iter().any(|item| item.failures == 1)).await;
    rig.accepted("shop", text("m6", "5511")).await;
    clock.advance(3_000);
    let calls = in_time("the turn again, and the next", bot.called(3)).await;
    assert_eq!((messages(&calls[1]), calls[1].attempt(), calls[1].event_id()), (ids(1, 5), 2, first.event_id()));
    assert_eq!((messages(&calls[2]), calls[2].attempt()), (ids(6, 6), 1), "a sixth message is a new turn");
    rig.settled().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_one_turn_in_memory() {
    let clock = HandClock::at(START_MS);
    a_burst_is_one_turn(Arc::new(MemoryStore::new(Arc::new(clock.clone()))), clock, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_one_turn_on_disk() {
    let (clock, folder) = (HandClock::at(START_MS), crate::quick_folder());
    let store = SqliteStore::open(&folder.path().join("it.db"), Arc::new(clock.clone()), &Options::default());
    a_burst_is_one_turn(Arc::new(store.expect("a fresh store opens")), clock, Some(Arc::new(folder))).await;
}

async fn update(rig: &Rig, n: u32) {
    let update = json!({"update_id": n, "message": {"message_id": n, "date": 1_760_000_000, "text": "hi",
        "chat": {"id": 77, "type": "private"}, "from": {"id": 77, "is_bot": false, "first_name": "Ana"}}});
    let request = rig.client.post(rig.url("/in/shop")).header("x-telegram-bot-api-secret-token", TELEGRAM);
    assert_eq!(request.json(&update).send().await.expect("an answer").status(), 200);
}

fn updates(call: &Call) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    body.as_array().expect("a list").iter().map(|update| update["update_id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_without_batches_is_delivered_in_a_list() {
    let clock = HandClock::at(START_MS);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let bot = FakeBot::willing().await.expect("a bot");
    let provider = Settings::Telegram { secrets: vec![TELEGRAM.into()], bot: "help".to_owned() };
    let rig = Rig::start(
        Opened { store, clock: Arc::new(clock.clone()), folder: None },
        vec![Channel { provider, ..shop(&bot, TurnFormat::Array) }],
    )
    .await;
    for n in 1..=3 {
        update(&rig, n).await;
    }
    clock.advance(3_000);
    let call = in_time("the turn", bot.called(1)).await.remove(0);
    assert_eq!(updates(&call), [json!(1), json!(2), json!(3)]);
    assert_eq!(call.header("x-telegram-bot-api-secret-token"), TELEGRAM);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_pulled_as_one_item() {
    let clock = HandClock::at(START_MS);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let turns = Some(Turns { coalesce: COALESCE, format: TurnFormat::Batch });
    let opened = Opened { store, clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened, vec![Channel { turns, ..channel("shop", None) }]).await;
    for n in 1..=3 {
        rig.accepted("shop", crate::rig::webhook(&[crate::rig::change(&[message(&format!("m{n}"), "5511")], &[])])).await;
    }
    let pull = async || {
        let request = rig.client.post(rig.url("/v1/pull")).bearer_auth("an admin token for tests");
        let body: Value = request.json(&json!({"channel": "shop"})).send().await.expect("an answer").json().await.expect("JSON");
        body["items"].as_array().expect("items").clone()
    };
    assert!(pull().await.is_empty());
    clock.advance(3_000);
    let items = pull().await;
    assert_eq!(items[0]["event_ids"].as_array().map(Vec::len), Some(3), "{items:?}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_gathered_is_delivered_when_the_channel_has_turns_no_more() {
    let clock = HandClock::at(START_MS);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let bot = FakeBot::willing().await.expect("a bot");
    let provider = Settings::Telegram { secrets: vec![TELEGRAM.into()], bot: "help".to_owned() };
    let with = Channel { provider, ..shop(&bot, TurnFormat::Array) };
    let opened = || Opened { store: Arc::clone(&store), clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened(), vec![with.clone()]).await;
    for n in 1..=2 {
        update(&rig, n).await;
    }
    rig.stop().await;
    let rig = Rig::start(opened(), vec![Channel { turns: None, ..with }]).await;
    clock.advance(3_000);
    let call = in_time("the turn", bot.called(1)).await.remove(0);
    assert_eq!(updates(&call), [json!(1), json!(2)]);
    update(&rig, 3).await;
    let call = in_time("the next", bot.called(2)).await.remove(1);
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    assert_eq!(body["update_id"], 3, "from now on as Telegram sends them");
    rig.stop().await;
}

/// Of a sender whose headers say what a webhook is, so that its body need not be JSON.
fn any(bot: &FakeBot, format: TurnFormat) -> Channel {
    let from = |header| Some(FieldSource::Header(HeaderName::from_static(header)));
    let generic = GenericSettings {
        channel: "any".to_owned(),
        signature: SignatureRule::None,
        id: from("x-id"),
        id_parts: Vec::new(),
        thread: from("x-thread"),
    };
    let turns = Some(Turns { coalesce: COALESCE, format });
    Channel { provider: Settings::Generic(generic), turns, ..channel("any", Some(bot.url())) }
}

async fn post_any(rig: &Rig, bodies: &[&'static str]) {
    for (n, body) in bodies.iter().enumerate() {
        let kind = if body.starts_with('{') { "application/json" } else { "application/x-www-form-urlencoded" };
        let request = rig.client.post(rig.url("/in/any")).header("x-id", n.to_string()).header("x-thread", "ana");
        let answer = request.header("content-type", kind).body(*body).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
    }
}

fn json_of(call: &Call) -> Value {
    assert_eq!(call.header("content-type"), "application/json");
    serde_json::from_slice(&call.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_in_a_list_is_quarantined_and_holds_nothing_up() {
    let clock = HandClock::at(START_MS);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let bot = FakeBot::willing().await.expect("a bot");
    let opened = Opened { store, clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened, vec![any(&bot, TurnFormat::Array)]).await;
    post_any(&rig, &[r#"{"a":1}"#, "a=1&b=2", r#"{"a":2}"#]).await;
    let kept = rig.inbox().await.into_iter().find(|item| item.state == ItemState::Quarantined).expect("the form");
    assert!(kept.why.as_ref().is_some_and(|why| why.contains("can hold only JSON")), "{kept:?}");
    clock.advance(3_000);
    let call = in_time("the turn", bot.called(1)).await.remove(0);
    assert_eq!(json_of(&call), json!([{"a": 1}, {"a": 2}]));
    rig.settled().await;
    assert_eq!(rig.inbox().await.len(), 1, "nothing is parked");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_before_lists_and_does_not_fit_in_one_is_a_string_in_it() {
    let clock = HandClock::at(START_MS);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let bot = FakeBot::willing().await.expect("a bot");
    let opened = || Opened { store: Arc::clone(&store), clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened(), vec![any(&bot, TurnFormat::Batch)]).await;
    post_any(&rig, &["a=1&b=2", r#"{"a":2}"#]).await;
    rig.stop().await;
    let rig = Rig::start(opened(), vec![any(&bot, TurnFormat::Array)]).await;
    clock.advance(3_000);
    let call = in_time("the turn", bot.called(1)).await.remove(0);
    assert_eq!(json_of(&call), json!(["a=1&b=2", {"a": 2}]));
    rig.stop().await;
}
