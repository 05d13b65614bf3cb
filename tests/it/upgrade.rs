//! A store that the version before has written opens and goes on, on every engine: nothing is forgotten, nothing comes twice. The stores are
//! `tests/fixtures/upgrade`, whose README says what is in them.

mod restore;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hapax_testkit::fake_bot::Call;
use hapax_testkit::fake_provider::FakeProvider;
use hapax_testkit::gated_bot::GatedBot;
use hapax_testkit::process::Program;
use hapax_testkit::servers::{Engine, Server};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::conversation::all_done;
use crate::program::{Poster, disk_folder, store_path};
use crate::rig::{SECRET, change, eventually, status, webhook};

const PAUSED: &str = "700002";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_version_before_left_goes_on_in_sqlite() {
    let folder = disk_folder();
    let path = store_path(folder.path());
    restore::sqlite(&path);
    goes_on(&format!("sqlite:{}", path.display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_version_before_left_goes_on_in_postgres() {
    let Some((server, url)) = fresh(Engine::Postgres).await else { return };
    restore::postgres(&url).await;
    goes_on(&url).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_version_before_left_goes_on_in_mariadb() {
    let Some((server, url)) = fresh(Engine::Mariadb).await else { return };
    restore::mariadb(&url).await;
    goes_on(&url).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_version_before_left_goes_on_in_redis() {
    let Some((server, url)) = fresh(Engine::Redis).await else { return };
    restore::redis(&url).await;
    goes_on(&url).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_version_before_left_goes_on_in_firestore() {
    let Some((server, url)) = fresh(Engine::Firestore).await else { return };
    restore::firestore(&url).await;
    goes_on(&url).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_start_at_once_upgrade_a_postgres_store_together() {
    let Some((server, url)) = fresh(Engine::Postgres).await else { return };
    restore::postgres(&url).await;
    two_start_at_once(&url).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_start_at_once_upgrade_a_mariadb_store_together() {
    let Some((server, url)) = fresh(Engine::Mariadb).await else { return };
    restore::mariadb(&url).await;
    two_start_at_once(&url).await;
    server.remove(&url).await;
}

/// All instances of the version before are stopped; those of today may come up in any order.
async fn two_start_at_once(store: &str) {
    let (bot, provider) = (Bot::start().await, FakeProvider::willing().await.expect("a provider"));
    let folders = [crate::quick_folder(), crate::quick_folder()];
    let [one, other] = folders.each_ref().map(|folder| program(folder.path(), store, &bot, &provider));
    let (one, other) = tokio::join!(one.serve(), other.serve());
    let ((one, first), (other, second)) = (one.expect("it opens"), other.expect("the other opens"));
    for at in [first, second] {
        Asker { poster: Poster::new(), at }.all_are_copies().await;
    }
    let body = webhook(&[change(&[crate::rig::message("wamid.new", "5511900009")], &[])]);
    let words = [first, second].map(|at| Asker { poster: Poster::new(), at });
    let (a, b) = tokio::join!(words[0].word_of("shop", &body), words[1].word_of("shop", &body));
    let mut words = [a, b];
    words.sort();
    assert_eq!(words, ["accepted", "duplicate"], "one of the two took it in");
    // The bot never answers some of them: a stop would wait for it.
    one.kill_nine().await.expect("it was there");
    other.kill_nine().await.expect("it was there");
}

async fn fresh(engine: Engine) -> Option<(Server, String)> {
    let server = engine.shared().await?;
    let url = server.fresh().await;
    Some((server, url))
}

/// What was told to the version before.
fn story() -> Value {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/upgrade/story.json"));
    serde_json::from_str(text).expect("a story")
}

/// A part of the story, and the part that was told after it.
fn told(part: &str) -> Vec<Value> {
    let story = story();
    [part.to_owned(), format!("then_{part}")].iter().flat_map(|part| story[part].as_array().cloned().expect("a list")).collect()
}

/// Everybody takes everything this time. There is no admin token in it: the store knows the one that was made.
fn program(folder: &Path, store: &str, bot: &Bot, provider: &FakeProvider) -> Program {
    let both = format!("secret = \"{SECRET}\"\ntarget = \"{}\"\napi_base = \"{}\"\n", bot.0.fake.url(), provider.url());
    let config = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"{store}\"\ninstance = \"after\"\nspool = \"{}\"\n[log]\nfilter = \"off\"\n\
         [defaults]\nretention = \"3650d\"\nattempts = 1000\nbackoff = \"20ms\"\nbackoff_cap = \"100ms\"\nlease = \"5s\"\n\
         send_timeout = \"10s\"\nsend_lease = \"15s\"\n\
         [channel.shop]\nprovider = \"whatsapp\"\ntoken = \"a token for tests only\"\n{both}[channel.desk]\nprovider = \"gowa\"\n{both}",
        folder.join("spool.db").display()
    );
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file")
}

/// A bot that takes everything, and answers the calls of the person with two names when it is let.
struct Bot(GatedBot);

/// What the provider calls the first message or status that a call is about.
fn id_in(call: &Call) -> String {
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    let value = &body["entry"][0]["changes"][0]["value"];
    let ids = [&body["payload"]["id"], &value["messages"][0]["id"], &value["statuses"][0]["id"]];
    ids.into_iter().find_map(Value::as_str).expect("an id").to_owned()
}

fn of_ana(id: &str) -> bool {
    ["lid", "phone", "both"].iter().any(|name| id.starts_with(name))
}

impl Bot {
    async fn start() -> Self {
        Self(GatedBot::start(|call| of_ana(&id_in(call))).await)
    }

    fn heard(&self) -> Vec<String> {
        self.0.fake.calls().iter().map(id_in).collect()
    }

    /// What was heard of these, in that order.
    fn heard_of(&self, names: &[&str]) -> Vec<String> {
        self.heard().into_iter().filter(|id| names.contains(&id.as_str())).collect()
    }
}

/// Asks as an operator and as a provider.
struct Asker {
    poster: Poster,
    at: SocketAddr,
}

impl Asker {
    async fn get(&self, path: &str) -> Value {
        let text = self.poster.get(self.at, path).await.expect("an answer");
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"))
    }

    async fn word_of(&self, channel: &str, body: &str) -> String {
        let said = self.poster.post_to(self.at, channel, body.to_owned()).await.expect("an answer");
        assert_eq!(said.status, 200, "{body}");
        said.word
    }

    /// Everything that was told to the version before is told again.
    async fn all_are_copies(&self) {
        for hook in told("webhooks") {
            let word = self.word_of(hook["channel"].as_str().expect("a channel"), hook["body"].as_str().expect("a body")).await;
            assert_eq!(word, "duplicate", "{}", hook["name"]);
        }
    }

    /// The messages by their texts: their requests, made again, lead to them.
    async fn messages(&self) -> HashMap<String, Value> {
        let mut found = HashMap::new();
        for message in told("messages") {
            let (status, receipt) = self.poster.send(self.at, &message).await.expect("an answer");
            assert_eq!((status, &receipt["replayed"]), (200, &json!(true)), "{receipt}");
            let shown = self.get(&format!("/v1/messages/{}", receipt["id"].as_str().expect("an id"))).await;
            found.insert(message["text"].as_str().expect("a text").to_owned(), shown);
        }
        found
    }

    async fn events(&self) -> HashMap<String, Value> {
        let list = self.get("/v1/events?limit=500").await;
        let events = list["events"].as_array().expect("events").iter();
        events.map(|event| (event["provider_id"].as_str().expect("an id").to_owned(), event.clone())).collect()
    }

    async fn has_status(&self, text: &str, status: &str) {
        eventually(&format!("{text} is {status}"), async || self.messages().await[text]["status"] == status).await;
    }

    /// All that an operator sees, line by line.
    async fn everything(&self) -> Vec<String> {
        let mut all = Vec::new();
        for list in ["events", "inbox", "outbox", "threads"] {
            let page = self.get(&format!("/v1/{list}?limit=500")).await;
            let rows = page.as_object().expect("a page").values().find_map(Value::as_array).expect("rows");
            all.extend(rows.iter().map(Value::to_string));
        }
        let mut messages = self.messages().await;
        for message in told("messages") {
            let mut shown = messages.remove(message["text"].as_str().expect("a text")).expect("it is there");
            // It ends with what can be done now.
            shown["story"].take();
            all.push(shown.to_string());
        }
        all
    }
}

/// A status that names a message by what the provider calls it, and by our handle of it.
fn status_of(provider_id: &str, word: &str, handle: Option<&str>) -> String {
    let mut status = status(provider_id, word);
    if let Some(handle) = handle {
        status["biz_opaque_callback_data"] = json!(handle);
    }
    webhook(&[change(&[], &[status])])
}

async fn goes_on(store: &str) {
    let (bot, provider, folder) = (Bot::start().await, FakeProvider::willing().await.expect("a provider"), crate::quick_folder());
    let hapax = program(folder.path(), store, &bot, &provider);
    cut_off_and_ended(folder.path()).await;
    let (process, at) = hapax.serve().await.expect("it opens what the version before has left");
    let asker = Asker { poster: Poster::new(), at };
    asker.all_are_copies().await;
    two_names_are_one_person(&asker, &bot).await;
    eventually("all that waited is delivered", async || asker.poster.on_their_way(at).await == Some(0)).await;
    the_inbox_went_on(&asker, &bot).await;
    the_outbox_went_on(&asker, &provider).await;
    what_was_said_is_listed(&asker).await;
    asker.all_are_copies().await;
    all_done(at).await;

    let (before, heard, sent) = (asker.everything().await, bot.heard(), provider.journal());
    process.kill_nine().await.expect("it was there");
    let (process, at) = hapax.serve().await.expect("it opens again");
    let asker = Asker { at, ..asker };
    asker.all_are_copies().await;
    let after = asker.everything().await;
    let changed = before.iter().zip(&after).find(|(before, after)| before != after);
    assert_eq!((changed, after.len()), (None, before.len()), "a second opening changes nothing");
    assert_eq!((bot.heard(), provider.journal()), (heard, sent), "and nobody hears anything again");
    assert!(process.stop().await.expect("it stops").success());
}

/// Opens the store with a command that does nothing but read it, and kills that ever later, until it has ended by itself: an upgrade that was cut
/// off at any point is gone on with.
async fn cut_off_and_ended(folder: &Path) {
    let mut time = Duration::from_millis(10);
    loop {
        let mut export = Command::new(env!("CARGO_BIN_EXE_hapax"));
        export.args(["export", "--config"]).arg(folder.join("hapax.toml")).kill_on_drop(true);
        export.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut export = export.spawn().expect("it starts");
        if let Ok(ended) = tokio::time::timeout(time, export.wait()).await {
            return assert!(ended.expect("it ends").success());
        }
        export.kill().await.expect("it was there");
        time = time.mul_f64(1.5);
    }
}

/// What waited in two lanes, because the version before had one for each name, comes one at a time and in the order accepted.
async fn two_names_are_one_person(asker: &Asker, bot: &Bot) {
    let names = ["lid1", "phone1", "both", "lid2", "phone2"];
    for n in 1..=names.len() {
        eventually("the next of ana's", async || bot.heard_of(&names).len() >= n).await;
        bot.0.let_go(1);
    }
    all_done(asker.at).await;
    assert_eq!(bot.heard_of(&names), names);
    assert_eq!(bot.0.most_at_once(), 1, "one at a time");
    let threads: Vec<String> = bot
        .0
        .fake
        .calls()
        .iter()
        .filter(|call| of_ana(&id_in(call)))
        .map(|call| call.header("hapax-thread").to_owned())
        .collect();
    assert!(threads.iter().all(|thread| *thread == threads[0]), "one thread: {threads:?}");
}

async fn the_inbox_went_on(asker: &Asker, bot: &Bot) {
    for lane in [&["wait1", "wait2", "wait3"][..], &["wait4"], &["held1", "held2"], &["other1"]] {
        assert_eq!(bot.heard_of(lane), lane, "once each, and in order");
    }
    assert!(bot.heard_of(&["done1", "done2", "done3", "park1"]).is_empty(), "what was done with stays so");
    let calls = bot.0.fake.calls();
    let events = asker.events().await;
    for call in calls.iter().filter(|call| ["wait1", "wait2", "held1"].contains(&id_in(call).as_str())) {
        let id = id_in(call);
        assert_eq!(call.event_id(), events[&id]["id"], "{id} is the same event");
        assert_eq!(call.attempt(), if id == "wait2" { 1 } else { 2 }, "{id} was with the bot as often");
    }

    let shown = asker.get("/v1/inbox?parked=true").await;
    let item = |item: &Value| format!("{}: {}", item["state"], item["why"]);
    let mut items: Vec<String> = shown["items"].as_array().expect("items").iter().map(item).collect();
    items.sort();
    let wait = [r#""parked": "the target answered 422""#, r#""quarantined": "not readable as JSON at line 1, column 47""#];
    assert_eq!(items, wait, "they still wait for a person");
    let redriven = asker.poster.ask(asker.at, "/v1/redrive", &json!({ "event": events["park1"]["id"] })).await;
    assert_eq!(redriven.expect("it was done")["redriven"], 1);
    eventually("park1 is delivered", async || asker.events().await["park1"]["state"] == "delivered").await;
    assert_eq!(bot.heard_of(&["park1"]), ["park1"]);
    let done = async || asker.get(&format!("/v1/events/{}", events["done1"]["id"].as_str().expect("an id"))).await;
    assert_eq!(done().await["attempts"].as_array().map(Vec::len), Some(1), "the one of then");
    eventually("a copy of then and two of now are counted", async || done().await["copies"] == 3).await;
}

async fn the_outbox_went_on(asker: &Asker, provider: &FakeProvider) {
    let on_phones = |names: &[&str]| -> Vec<String> {
        provider.journal().into_iter().filter_map(|arrived| arrived.text).filter(|text| names.contains(&text.as_str())).collect()
    };
    eventually("what waited is sent", async || provider.journal().len() >= 5).await;
    assert_eq!(on_phones(&["later1", "later2"]), ["later1", "later2"]);
    assert_eq!(on_phones(&["to-lid1", "to-phone1", "to-lid2"]), ["to-lid1", "to-phone1", "to-lid2"]);
    let paused = asker.get("/v1/accounts").await;
    assert_eq!(paused["accounts"][0]["account"], PAUSED, "{paused}");
    assert_eq!(paused["accounts"][0]["why"], "WhatsApp error 190: refused");
    assert!(on_phones(&["again1", "stop1"]).is_empty(), "its account is paused");

    let messages = asker.messages().await;
    assert_eq!(messages["fail1"]["status"], "failed");
    assert_eq!(messages["sent1"]["status"], "delivered");
    for text in ["doubt1", "begun1"] {
        asker.has_status(text, "unknown").await;
    }
    // The provider's word, by our handle and by its own id of then.
    let handle = messages["doubt1"]["id"].as_str();
    asker.word_of("shop", &status_of("wamid.OLD.doubt1", "delivered", handle)).await;
    asker.has_status("doubt1", "delivered").await;
    asker.word_of("shop", &status_of("wamid.OLD.sent1", "read", None)).await;
    asker.has_status("sent1", "read").await;

    asker.poster.ask(asker.at, &format!("/v1/accounts/shop/{PAUSED}/resume"), &json!({})).await.expect("it was paused");
    a_persons_retry_is_told_truly(asker, provider).await;
    asker.has_status("stop1", "sent").await;
    let mut all: Vec<_> = provider.journal().into_iter().filter_map(|arrived| arrived.text).collect();
    all.sort();
    assert_eq!(all, ["again1", "later1", "later2", "stop1", "to-lid1", "to-lid2", "to-phone1"], "once each, and nothing else");
}

/// It was sent, failed, and was asked for once more: what is heard of the first try says nothing about the second.
async fn a_persons_retry_is_told_truly(asker: &Asker, provider: &FakeProvider) {
    asker.has_status("again1", "sent").await;
    let arrived = provider.journal().into_iter().find(|arrived| arrived.text.as_deref() == Some("again1")).expect("it is out");
    let again = &asker.messages().await["again1"];
    assert_eq!(again["provider_id"], arrived.provider_id.as_str(), "{again}");
    assert!(again["story"].to_string().contains("wamid.OLD.again1"), "the first try is not forgotten: {again}");
    let of_then = status_of("wamid.OLD.again1", "read", None).replace("700001", PAUSED);
    asker.word_of("shop", &of_then).await;
    assert_eq!(asker.messages().await["again1"]["status"], "sent");
    let of_now = status_of(&arrived.provider_id, "delivered", None).replace("700001", PAUSED);
    asker.word_of("shop", &of_now).await;
    asker.has_status("again1", "delivered").await;
}

async fn what_was_said_is_listed(asker: &Asker) {
    let list = asker.get("/v1/threads?limit=500").await;
    let threads = list["threads"].as_array().expect("threads");
    let peers: Vec<&str> = threads.iter().map(|thread| thread["peer"].as_str().expect("a peer")).collect();
    for n in 1..=7 {
        assert!(peers.contains(&format!("551190000000{n}").as_str()), "{peers:?}");
    }
    let first = threads.iter().find(|thread| thread["peer"] == "5511900000001").expect("it is listed");
    let said = asker.get(&format!("/v1/threads/{}/messages", first["id"].as_str().expect("an id"))).await;
    let said: Vec<&str> =
        said["messages"].as_array().expect("messages").iter().filter_map(|entry| entry["text"].as_str()).collect();
    assert_eq!(said, ["sent1", "this is done2", "this is done1"]);
}
