//! The real program on a real PostgreSQL that goes away: each channel does what it was told, and the spool outlives a kill.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::process::Program;
use hapax_testkit::servers::Engine;
use serde_json::Value;

use crate::program::{ADMIN_TOKEN, disk_folder};
use crate::rig::{SECRET, eventually, signature, text};

const CHOICES: [&str; 4] = ["retry", "spool", "pass", "drop"];

/// How long the store is away.
const OUTAGE: Duration = Duration::from_secs(20);
const SENDERS: usize = 5;

/// The program with a channel for each choice, named after it.
fn program(folder: &Path, store: &str, bots: &HashMap<&str, FakeBot>) -> Program {
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config(folder, store, bots)).expect("a config file")
}

fn config(folder: &Path, store: &str, bots: &HashMap<&str, FakeBot>) -> String {
    let mut config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"{store}\"\nspool = \"{}\"\n[log]\nfilter = \"off\"\n",
        folder.join("spool.db").display()
    );
    for (choice, bot) in bots {
        config += &format!(
            "[channel.{choice}]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\ntarget = \"{}\"\non_store_failure = \"{choice}\"\n\
             lease = \"5s\"\n",
            bot.url()
        );
    }
    config
}

async fn willing(choices: &[&'static str]) -> HashMap<&'static str, FakeBot> {
    let bots = join_all(choices.iter().map(|_| FakeBot::willing())).await;
    choices.iter().copied().zip(bots.into_iter().map(|bot| bot.expect("a bot"))).collect()
}

struct Outside {
    client: reqwest::Client,
    address: SocketAddr,
}

impl Outside {
    fn of(address: SocketAddr) -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().expect("a client");
        Self { client, address }
    }

    /// Posts one message of one of the senders; gives the status and how long it took.
    async fn post(&self, channel: &str, number: usize) -> (u16, Duration) {
        let body = text(&format!("wamid.{number}"), &(number % SENDERS).to_string());
        let request =
            self.client.post(format!("http://{}/in/{channel}", self.address)).header("content-type", "application/json");
        let begun = Instant::now();
        let answer = request.header("x-hub-signature-256", signature(body.as_bytes())).body(body).send().await;
        (answer.expect("an answer").status().as_u16(), begun.elapsed())
    }

    async fn stats(&self) -> Option<Value> {
        let request = self.client.get(format!("http://{}/v1/stats", self.address)).bearer_auth(ADMIN_TOKEN);
        request.send().await.ok()?.json().await.ok()
    }

    /// What waits in the spool, and whether the store is up.
    async fn spooled(&self) -> Option<(u64, bool)> {
        let stats = self.stats().await?;
        let waiting = stats["spool"].as_array()?.iter().map(|row| row["waiting"].as_u64()).sum::<Option<u64>>()?;
        Some((waiting, stats["store"] == "up"))
    }

    async fn all_done(&self) -> bool {
        let Some(stats) = self.stats().await else { return false };
        let idle = |row: &Value| row["waiting"] == 0 && row["leased"].as_u64().unwrap_or_default() == 0;
        let none = |rows: &Value| rows.as_array().is_some_and(|rows| rows.iter().all(idle));
        none(&stats["spool"]) && none(&stats["channels"])
    }
}

/// The numbers a bot heard of, in order, for each sender.
fn heard(bot: &FakeBot) -> HashMap<usize, Vec<usize>> {
    let mut by_sender: HashMap<usize, Vec<usize>> = HashMap::new();
    for call in bot.calls() {
        let body: Value = serde_json::from_slice(&call.body).expect("JSON");
        let id = &body["entry"][0]["changes"][0]["value"]["messages"][0]["id"];
        let number: usize = id.as_str().and_then(|id| id.strip_prefix("wamid.")?.parse().ok()).expect("a number");
        by_sender.entry(number % SENDERS).or_default().push(number);
    }
    by_sender
}

fn in_order(numbers: impl Iterator<Item = usize>) -> HashMap<usize, Vec<usize>> {
    let mut by_sender: HashMap<usize, Vec<usize>> = HashMap::new();
    numbers.for_each(|number| by_sender.entry(number % SENDERS).or_default().push(number));
    by_sender
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_seconds_without_the_store() {
    let Some(mut server) = Engine::Postgres.private().await else { return };
    let folder = disk_folder();
    let bots = willing(&CHOICES).await;
    let (process, address) = program(folder.path(), &server.fresh().await, &bots).serve().await.expect("it starts");
    let outside = Outside::of(address);
    for channel in CHOICES {
        assert_eq!(outside.post(channel, 0).await.0, 200);
    }
    for bot in bots.values() {
        bot.called(1).await;
    }

    server.stop().await;
    let (begun, mut number) = (Instant::now(), 1);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while begun.elapsed() < OUTAGE {
        let said = join_all(CHOICES.map(|channel| outside.post(channel, number))).await;
        let statuses: Vec<_> = said.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [503, 200, 200, 200], "number {number} after {:?}", begun.elapsed());
        assert!(said.iter().all(|(_, took)| *took < Duration::from_secs(2)), "{said:?}");
        number += 1;
        ticks.tick().await;
    }
    let during = 1..number;
    assert!(during.len() > 10);
    assert_eq!(outside.spooled().await, Some((during.len() as u64, false)), "shown while the store is away");
    assert_eq!(bots["spool"].calls().len(), 1);
    assert_eq!(bots["pass"].calls().len(), number, "passed at once, each of them");

    server.restart().await;
    bots["spool"].called(number).await;
    eventually("the spool is empty", async || outside.spooled().await == Some((0, true))).await;
    for again in during.clone() {
        assert_eq!(outside.post("retry", again).await.0, 200, "the provider's own retry");
    }
    bots["retry"].called(number).await;
    eventually("all is done", async || outside.all_done().await).await;
    assert_eq!(heard(&bots["spool"]), in_order(0..number), "each once, in order");
    assert_eq!(heard(&bots["retry"]), in_order(0..number));
    assert_eq!(heard(&bots["pass"]), in_order(0..number));
    assert_eq!(heard(&bots["drop"]), in_order(0..1), "dropped, as told");
    process.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_with_a_full_spool() {
    const SPOOLED: usize = 200;
    let Some(mut server) = Engine::Postgres.private().await else { return };
    let folder = disk_folder();
    let bots = willing(&["spool"]).await;
    let hapax = program(folder.path(), &server.fresh().await, &bots);
    let (process, address) = hapax.serve().await.expect("it starts");
    let outside = Outside::of(address);
    assert_eq!(outside.post("spool", 0).await.0, 200);
    bots["spool"].called(1).await;

    server.kill9().await;
    for number in 1..=SPOOLED {
        assert_eq!(outside.post("spool", number).await.0, 200);
    }
    process.kill_nine().await.expect("killed");
    let (process, address) = hapax.serve().await.expect("it starts without its store");
    let outside = Outside::of(address);
    assert_eq!(outside.post("spool", SPOOLED + 1).await.0, 200);
    assert_eq!(outside.spooled().await, Some((SPOOLED as u64 + 1, false)));

    server.restart().await;
    bots["spool"].called(20).await;
    // Killed again in the middle of it: what the store has may still be in the spool.
    process.kill_nine().await.expect("killed");
    let (process, address) = hapax.serve().await.expect("it starts");
    let outside = Outside::of(address);
    assert_eq!(outside.post("spool", SPOOLED + 2).await.0, 200);
    eventually("all is done", async || outside.all_done().await).await;
    // The second kill may have cut off deliveries: those were repeated, under the same id.
    let mut first = HashMap::<String, usize>::new();
    for call in bots["spool"].calls() {
        *first.entry(call.event_id().to_owned()).or_default() += 1;
    }
    assert_eq!(first.len(), SPOOLED + 3, "each is one event");
    let mut heard = heard(&bots["spool"]);
    heard.values_mut().for_each(|numbers| numbers.dedup());
    assert_eq!(heard, in_order(0..SPOOLED + 3), "in order");
    process.stop().await.expect("it stops");
}

/// Where nothing was ever taken in, a wrong address is likelier than an outage; without a spool there is nothing to go on with; and a token that
/// hapax made itself is in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_needs_the_store() {
    let Some(mut server) = Engine::Postgres.private().await else { return };
    let folder = disk_folder();
    let url = server.fresh().await;
    server.kill9().await;
    let spools = program(folder.path(), &url, &willing(&["spool"]).await);
    let ended = spools.ends().await.expect("it ends");
    assert_eq!(ended.code, Some(4), "{}", ended.words);
    server.restart().await;
    let (process, _) = spools.serve().await.expect("it starts");
    process.stop().await.expect("it stops");

    server.kill9().await;
    let retries = program(folder.path(), &url, &willing(&["retry"]).await);
    let ended = retries.ends().await.expect("it ends");
    assert_eq!(ended.code, Some(4), "{}", ended.words);

    let spools = config(folder.path(), &url, &willing(&["spool"]).await);
    let without_token = spools.replace(&format!("admin_token = \"{ADMIN_TOKEN}\"\n"), "");
    assert_ne!(without_token, spools);
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &without_token).expect("a config file");
    let ended = program.ends().await.expect("it ends");
    assert_eq!(ended.code, Some(4), "{}", ended.words);
}
