//! One person under two names, a phone number and a LID: once a webhook says both, the bot is never called twice at once for that person, and hears
//! one thread. With the real program.

use std::net::SocketAddr;

use hapax_testkit::fake_bot::Call;
use hapax_testkit::gated_bot::GatedBot;
use hapax_testkit::process::Program;
use hapax_testkit::servers::Engine;
use serde_json::json;

use crate::conversation::all_done;
use crate::program::{ADMIN_TOKEN, Poster, disk_folder, store_path};
use crate::rig::{SECRET, eventually};

const PHONE: &str = "551188887777@s.whatsapp.net";
const LID: &str = "99@lid";

/// How a webhook names who wrote it.
#[derive(Clone, Copy)]
enum By {
    Phone,
    Lid,
    Both,
    /// Somebody else.
    Other,
}

/// A GOWA webhook of one message.
fn webhook(id: &str, by: By) -> String {
    let (chat, lid) = match by {
        By::Phone => (PHONE, None),
        By::Lid => (LID, Some(LID)),
        By::Both => (PHONE, Some(LID)),
        By::Other => ("551100000000@s.whatsapp.net", None),
    };
    let timestamp = "2026-08-22T10:00:00Z";
    let mut payload =
        json!({ "id": id, "chat_id": chat, "from": chat, "timestamp": timestamp, "is_from_me": false, "body": "oi" });
    if let Some(lid) = lid {
        payload["from_lid"] = json!(lid);
    }
    json!({ "event": "message", "device_id": "551190000@s.whatsapp.net", "payload": payload }).to_string()
}

fn program(folder: &std::path::Path, store: &str, name: &str, bot: &Bot) -> Program {
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"{store}\"\ninstance = \"{name}\"\nspool = \"{}\"\n\
         [log]\nfilter = \"off\"\n[channel.shop]\nprovider = \"gowa\"\nsecret = \"{SECRET}\"\nattempts = 1000\nbackoff = \"20ms\"\nbackoff_cap = \"100ms\"\n\
         lease = \"5s\"\ntarget = \"{}\"\n",
        folder.join("spool.db").display(),
        bot.0.fake.url()
    );
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file")
}

/// A bot that answers a call of this person when it is let. Others are answered at once.
struct Bot(GatedBot);

fn id_in(call: &Call) -> String {
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    body["payload"]["id"].as_str().expect("an id").to_owned()
}

impl Bot {
    async fn start() -> Self {
        Self(GatedBot::start(|call| !id_in(call).starts_with("other")).await)
    }

    /// Waits until so many calls of this person have come.
    async fn called(&self, times: usize) {
        eventually("a call at the bot", async || self.heard(0).len() >= times).await;
    }

    /// The ids and threads of this person's calls, from this one on.
    fn heard(&self, from: usize) -> Vec<(String, String)> {
        let told = |call: &Call| (id_in(call), call.header("hapax-thread").to_owned());
        let calls = self.0.fake.calls();
        calls.iter().map(told).filter(|(id, _)| !id.starts_with("other")).skip(from).collect()
    }

    /// Lets the calls of this person go one by one; there are so many to come, beside those that were heard already.
    async fn let_go_one_by_one(&self, heard: usize, to_come: usize) {
        for n in 1..=to_come {
            self.0.let_go(1);
            self.called(heard + n).await;
        }
        self.0.let_go(1);
    }
}

/// Somebody else writes later and is heard: whatever of this person was due before has come.
async fn somebody_else_is_heard(poster: &Poster, bot: &Bot, at: SocketAddr) {
    let id = format!("other{}", bot.0.fake.calls().len());
    let said = poster.post(at, webhook(&id, By::Other)).await.expect("an answer");
    assert_eq!(said.status, 200);
    eventually("a call about somebody else", async || bot.0.fake.calls().iter().any(|call| id_in(call) == id)).await;
}

async fn post(poster: &Poster, at: SocketAddr, id: &str, by: By) {
    let said = poster.post(at, webhook(id, by)).await.expect("an answer");
    assert_eq!((said.status, said.accepted), (200, 1), "{id}");
}

/// Two are with the bot under two names when a third message says that they are one, and two more wait: `at` are the doors they come in by.
async fn two_in_flight_become_one(poster: &Poster, bot: &Bot, at: [SocketAddr; 2]) {
    post(poster, at[0], "lid1", By::Lid).await;
    post(poster, at[1], "phone1", By::Phone).await;
    bot.called(2).await;
    let heard = bot.heard(0);
    assert_ne!(heard[0].1, heard[1].1, "nobody knows yet that they are one");
    post(poster, at[0], "both", By::Both).await;
    post(poster, at[1], "lid2", By::Lid).await;
    post(poster, at[0], "phone2", By::Phone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_heard_once_whether_its_sender_comes_with_both_names_or_with_the_lid_alone() {
    let (bot, poster, folder) = (Bot::start().await, Poster::new(), disk_folder());
    let store = format!("sqlite:{}", store_path(folder.path()).display());
    let (process, at) = program(folder.path(), &store, "one", &bot).serve().await.expect("it starts");
    for (id, first, then) in [("lid1", By::Both, By::Lid), ("lid2", By::Lid, By::Both)] {
        post(&poster, at, id, first).await;
        for by in [then, first] {
            let said = poster.post(at, webhook(id, by)).await.expect("an answer");
            assert_eq!((said.status, said.word.as_str()), (200, "duplicate"), "{id}");
        }
        // Somebody else may have chosen the same id.
        post(&poster, at, id, By::Other).await;
    }
    bot.0.let_go(4);
    all_done(at).await;
    assert_eq!(bot.0.fake.calls().len(), 4);
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_at_the_bot_may_end_and_then_one_comes_at_a_time() {
    let (bot, poster, folder) = (Bot::start().await, Poster::new(), disk_folder());
    let store = format!("sqlite:{}", store_path(folder.path()).display());
    let (process, at) = program(folder.path(), &store, "one", &bot).serve().await.expect("it starts");
    two_in_flight_become_one(&poster, &bot, [at, at]).await;
    somebody_else_is_heard(&poster, &bot, at).await;
    assert_eq!(bot.heard(0).len(), 2);
    // One of the two ends; the other still keeps the whole person waiting.
    bot.0.let_go(1);
    eventually("one has ended", async || poster.on_their_way(at).await == Some(4)).await;
    somebody_else_is_heard(&poster, &bot, at).await;
    assert_eq!(bot.heard(0).len(), 2);
    bot.0.most_at_once();
    bot.let_go_one_by_one(2, 3).await;
    all_done(at).await;
    assert_eq!(bot.0.most_at_once(), 1);
    let heard = bot.heard(2);
    assert_eq!(heard.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["both", "lid2", "phone2"]);
    assert!(heard.iter().all(|(_, thread)| *thread == heard[0].1), "one thread: {heard:?}");
    let shown = poster.get(at, &format!("/v1/threads/{}", heard[0].1)).await.expect("an answer");
    assert!(shown.contains(PHONE) && shown.contains(LID), "{shown}");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_they_are_still_one() {
    let (bot, poster, folder) = (Bot::start().await, Poster::new(), disk_folder());
    let store = format!("sqlite:{}", store_path(folder.path()).display());
    let hapax = program(folder.path(), &store, "one", &bot);
    let (process, at) = hapax.serve().await.expect("it starts");
    two_in_flight_become_one(&poster, &bot, [at, at]).await;
    process.kill_nine().await.expect("it was there");
    let (process, at) = hapax.serve().await.expect("it starts again");
    bot.called(3).await;
    bot.0.most_at_once();
    somebody_else_is_heard(&poster, &bot, at).await;
    assert_eq!(bot.heard(0).len(), 3, "the first of all comes again, alone");
    bot.let_go_one_by_one(3, 4).await;
    all_done(at).await;
    assert_eq!(bot.0.most_at_once(), 1);
    let heard = bot.heard(2);
    let order = ["lid1", "phone1", "both", "lid2", "phone2"];
    assert_eq!(heard.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), order);
    assert!(heard.iter().all(|(_, thread)| *thread == heard[0].1), "one thread: {heard:?}");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_call_the_bot_one_at_a_time() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let (bot, poster, url) = (Bot::start().await, Poster::new(), server.fresh().await);
    let folders = [crate::quick_folder(), crate::quick_folder()];
    let (one, at_one) = program(folders[0].path(), &url, "one", &bot).serve().await.expect("it starts");
    let (two, at_two) = program(folders[1].path(), &url, "two", &bot).serve().await.expect("it starts");
    two_in_flight_become_one(&poster, &bot, [at_one, at_two]).await;
    bot.0.let_go(1);
    eventually("one has ended", async || poster.on_their_way(at_one).await == Some(4)).await;
    for at in [at_one, at_two] {
        somebody_else_is_heard(&poster, &bot, at).await;
    }
    assert_eq!(bot.heard(0).len(), 2);
    bot.0.most_at_once();
    bot.let_go_one_by_one(2, 3).await;
    all_done(at_one).await;

    let mut sent = Vec::new();
    for n in 0..60 {
        let id = format!("storm{n}");
        post(&poster, [at_one, at_two][n % 2], &id, [By::Lid, By::Phone, By::Both][n % 3]).await;
        sent.push(id);
    }
    bot.called(6).await;
    bot.let_go_one_by_one(6, 59).await;
    all_done(at_two).await;
    assert_eq!(bot.0.most_at_once(), 1);
    let heard = bot.heard(2);
    assert_eq!(heard[3..].iter().map(|(id, _)| id).collect::<Vec<_>>(), sent.iter().collect::<Vec<_>>());
    assert!(heard.iter().all(|(_, thread)| *thread == heard[0].1), "one thread: {heard:?}");
    for process in [one, two] {
        assert!(process.stop().await.expect("it stops").success());
    }
    server.remove(&url).await;
}
