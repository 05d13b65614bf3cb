//! The real binary, killed without warning again and again while webhooks pour in.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hapax::testkit::fake_bot::{Call, FakeBot};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::rig::{SECRET, eventually, signature, text};

const KILLS: usize = 200;
const THREADS: usize = 8;
/// Webhooks answered between two kills, at least.
const ANSWERS_PER_LIFE: usize = 5;

/// What the providers' side knows.
#[derive(Default)]
struct Told {
    answered: AtomicUsize,
    enough: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_under_load() {
    let bot = FakeBot::willing().await.expect("a bot");
    let folder = crate::quick_folder();
    let address = free_address().await;
    write_config(folder.path(), address, &bot.url());
    let told = Arc::new(Told::default());
    let mut senders = JoinSet::new();
    for thread in 0..THREADS {
        senders.spawn(send_one_after_the_other(address, thread, Arc::clone(&told)));
    }

    let mut child = start(folder.path());
    for kill in 0..KILLS {
        let before = told.answered.load(Ordering::SeqCst);
        // Now and then right after the start, else in the midst of it.
        let answers = if kill % 10 == 0 { 0 } else { ANSWERS_PER_LIFE + kill % 17 };
        eventually("webhooks are answered", async || told.answered.load(Ordering::SeqCst) >= before + answers).await;
        child.kill().await.expect("killed");
        child = start(folder.path());
    }
    told.enough.store(true, Ordering::SeqCst);

    let (mut accepted, mut answered) = (HashMap::<String, usize>::new(), HashSet::new());
    for (id, word) in senders.join_all().await.into_iter().flatten() {
        if word == "accepted" {
            *accepted.entry(id.clone()).or_default() += 1;
        }
        answered.insert(id);
    }
    assert!(answered.len() >= KILLS * ANSWERS_PER_LIFE / 2, "there was load: {}", answered.len());
    assert!(accepted.values().all(|times| *times == 1), "none is accepted twice");

    eventually("all that was answered is delivered", async || {
        let delivered: HashSet<String> = bot.calls().iter().map(|call| place_of(call).2).collect();
        answered.iter().all(|id| delivered.contains(id))
    })
    .await;
    assert_order(&bot.calls());
    stop(child).await;
}

/// Within a thread nothing comes before an earlier one is done; a crash may repeat the one that was under way.
fn assert_order(calls: &[Call]) {
    let mut last = HashMap::new();
    let mut attempts = HashMap::<String, (u32, u64)>::new();
    for call in calls {
        let (thread, number, id) = place_of(call);
        let before = last.insert(thread, number).unwrap_or(0);
        assert!(number == before || number == before + 1, "thread {thread}: {number} after {before}");
        if let Some((_, fence)) = attempts.insert(id, (call.attempt(), call.fence())) {
            assert!(call.fence() > fence, "a repeat has a higher fence");
        }
    }
}

/// Thread, number within it, and id.
fn place_of(call: &Call) -> (usize, usize, String) {
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    let id = body["entry"][0]["changes"][0]["value"]["messages"][0]["id"].as_str().expect("an id").to_owned();
    let (thread, number) = id.trim_start_matches("wamid.").split_once('.').expect("two numbers");
    (thread.parse().expect("a thread"), number.parse().expect("a number"), id)
}

/// As a provider does: the next message only after 200, and the same one again until then. Returns every answer.
async fn send_one_after_the_other(address: SocketAddr, thread: usize, told: Arc<Told>) -> Vec<(String, String)> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().expect("a client");
    let mut answers = Vec::new();
    let mut number = 0;
    while !told.enough.load(Ordering::SeqCst) {
        let id = format!("wamid.{thread}.{number}");
        let body = text(&id, &format!("5511{thread}"));
        let request = client.post(format!("http://{address}/in/shop")).header("x-hub-signature-256", signature(body.as_bytes()));
        let answer = match request.body(body).send().await {
            Ok(answer) if answer.status() == 200 => answer.json::<serde_json::Value>().await.ok(),
            _ => None,
        };
        match answer {
            Some(answer) => {
                answers.push((id, answer["status"].as_str().expect("a word").to_owned()));
                told.answered.fetch_add(1, Ordering::SeqCst);
                number += 1;
            }
            // Nobody is there just now.
            None => tokio::task::yield_now().await,
        }
    }
    answers
}

async fn free_address() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address")
}

fn write_config(folder: &Path, address: SocketAddr, target: &str) {
    let config = format!(
        "listen = \"{address}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"warn\"\n[channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\ntarget = \"{target}\"\n",
        folder.join("hapax.db").display()
    );
    std::fs::write(folder.join("hapax.toml"), config).expect("a config file");
}

fn start(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_hapax"))
        .args(["serve", "--config"])
        .arg(folder.join("hapax.toml"))
        .current_dir(folder)
        .env_remove("PORT")
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .expect("hapax starts")
}

/// The last one ends as an operator would end it.
async fn stop(mut child: Child) {
    let id = child.id().expect("it runs");
    let sent = Command::new("kill").args(["-TERM", &id.to_string()]).status().await.expect("kill runs");
    assert!(sent.success());
    let ended = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.expect("it stops").expect("it is waited for");
    assert!(ended.success(), "{ended}");
}
