//! Claims over HTTP and with `hapax once`: many callers, two instances, one winner; and holders that are killed.

use std::process::Stdio;
use std::sync::Arc;

use futures_util::future::join_all;
use hapax::StoreUrl;
use hapax_store::clock::{Clock, SystemClock};
use hapax_testkit::servers::Engine;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::rig::{Opened, Rig, eventually};

const TOKEN: &str = "an admin token for tests";
const CALLERS: usize = 200;
/// Each is a process of its own.
const PROGRAMS: usize = 12;

async fn post(rig: &Rig, path: &str, body: &Value) -> (u16, Value) {
    let request = rig.client.post(rig.url(path)).bearer_auth(TOKEN).json(body);
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// `hapax once`, told where a server is.
fn once(rig: &Rig, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.arg("once").args(args).env("HAPAX_SERVER", rig.url("")).env("HAPAX_ADMIN_TOKEN", TOKEN);
    command.env_remove("HAPAX_CONFIG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn one_of_many_wins(rigs: Vec<Rig>) {
    let asks = (0..CALLERS).map(|n| {
        let rig = &rigs[n % rigs.len()];
        async move { post(rig, "/v1/claims", &json!({"key": "raced", "lease": "60s"})).await }
    });
    let answers = join_all(asks).await;
    let won: Vec<&Value> = answers.iter().filter(|(status, _)| *status == 201).map(|(_, answer)| answer).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    let others = answers.iter().filter(|(status, answer)| *status == 409 && answer["code"] == "claim_in_progress").count();
    assert_eq!(others, CALLERS - 1);

    let folder = crate::quick_folder();
    let runs = folder.path().join("runs");
    let script = format!("echo ran >> {}; echo said; exit 3", runs.display());
    let programs = (0..PROGRAMS).map(|n| {
        let mut command = once(&rigs[n % rigs.len()], &["nightly", "--wait", "60s", "--", "sh", "-c", &script]);
        async move { command.output().await.expect("it ends") }
    });
    for ended in join_all(programs).await {
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stdout).as_ref()), (Some(3), "said\n"), "{words}");
    }
    assert_eq!(std::fs::read_to_string(&runs).expect("it ran"), "ran\n", "once, and all heard the same");
    for rig in rigs {
        rig.stop().await;
    }
}

async fn two_on(engine: Engine) {
    let Some(server) = engine.shared().await else { return };
    let url = server.fresh().await;
    let address = StoreUrl::read(&url).expect("an address");
    let mut rigs = Vec::new();
    for _ in 0..2 {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = hapax::Options { queue: 10_000, disk_floor_bytes: 0 };
        let store = hapax::open_store(&address, &options, Arc::clone(&clock)).await.expect("it opens");
        rigs.push(Rig::start(Opened { store, clock, folder: None }, Vec::new()).await);
    }
    one_of_many_wins(rigs).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_embedded_store() {
    one_of_many_wins(vec![Rig::start(Opened::sqlite(), Vec::new()).await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_postgres() {
    two_on(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_mariadb() {
    two_on(Engine::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_redis() {
    two_on(Engine::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_firestore() {
    two_on(Engine::Firestore).await;
}

/// The holder is killed in the middle: of those that wait, one runs it, when the lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_of_once_is_followed_by_one_other() {
    let rig = Rig::start(Opened::sqlite(), Vec::new()).await;
    let folder = crate::quick_folder();
    let runs = folder.path().join("runs");
    // The first one waits for ever; its process id stands in the file.
    let script = format!("echo $$ >> {}; [ $(wc -l < {0}) -gt 1 ] && exit 0; exec tail -f /dev/null", runs.display());
    let args = ["job", "--lease", "2s", "--wait", "60s", "--", "sh", "-c", &script];
    let mut first = once(&rig, &args).spawn().expect("it starts");
    let lines = || std::fs::read_to_string(&runs).unwrap_or_default().lines().count();
    eventually("the command runs", async || lines() == 1).await;
    first.kill().await.expect("killed");
    let others = (0..4).map(|_| {
        let mut command = once(&rig, &args);
        async move { command.output().await.expect("it ends").status.code() }
    });
    assert_eq!(join_all(others).await, [Some(0); 4]);
    assert_eq!(lines(), 2, "one takeover");
    let orphan = std::fs::read_to_string(&runs).expect("it ran").lines().next().unwrap_or_default().to_owned();
    let _ = Command::new("kill").args(["-9", &orphan]).status().await;
    rig.stop().await;
}

/// The claim is taken away while the command runs: it is ended, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_claim_was_lost_is_ended() {
    let rig = Rig::start(Opened::sqlite(), Vec::new()).await;
    let folder = crate::quick_folder();
    let begun = folder.path().join("begun");
    let script = format!("touch {}; exec tail -f /dev/null", begun.display());
    let running = once(&rig, &["job", "--lease", "1s", "--", "sh", "-c", &script]).spawn().expect("it starts");
    eventually("the command runs", async || begun.exists()).await;
    let deleted = rig.client.delete(rig.url("/v1/claims?scope=once&key=job")).bearer_auth(TOKEN).send().await.expect("an answer");
    assert_eq!(deleted.status().as_u16(), 200);
    let ended = running.wait_with_output().await.expect("it ends");
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(70) && words.contains("the claim was lost"), "{:?}: {words}", ended.status);
    rig.stop().await;
}

/// Nobody reads what the command says: the claim is held all the same, and all of it comes when it is read at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stalls_does_not_stop_the_heartbeat() {
    let rig = Rig::start(Opened::sqlite(), Vec::new()).await;
    let folder = crate::quick_folder();
    let begun = folder.path().join("begun");
    let script = format!("touch {}; yes | head -c 3000000", begun.display());
    let running = once(&rig, &["job", "--lease", "1s", "--", "sh", "-c", &script]).spawn().expect("it starts");
    eventually("the command runs", async || begun.exists()).await;
    let other = once(&rig, &["job", "--wait", "4s", "--", "true"]).output().await.expect("it ends");
    assert_eq!(other.status.code(), Some(75), "{}", String::from_utf8_lossy(&other.stderr));
    let ended = running.wait_with_output().await.expect("it ends");
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(0), 3_000_000));
    rig.stop().await;
}

/// What the command has started is ended with it, also what does not listen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_command_is_left_when_its_claim_is_lost() {
    let rig = Rig::start(Opened::sqlite(), Vec::new()).await;
    let folder = crate::quick_folder();
    let begun = folder.path().join("begun");
    let script = format!("(trap '' TERM; exec tail -f /dev/null > /dev/null 2>&1) & echo $! > {}; wait", begun.display());
    let running = once(&rig, &["job", "--lease", "1s", "--", "sh", "-c", &script]).spawn().expect("it starts");
    let started = || std::fs::read_to_string(&begun).unwrap_or_default().trim().to_owned();
    eventually("the command runs", async || !started().is_empty()).await;
    let deleted = rig.client.delete(rig.url("/v1/claims?scope=once&key=job")).bearer_auth(TOKEN).send().await.expect("an answer");
    assert_eq!(deleted.status().as_u16(), 200);
    let ended = running.wait_with_output().await.expect("it ends");
    assert_eq!(ended.status.code(), Some(70));
    // A process that has ended, and that nobody has asked about yet, has no command line.
    let gone = async || std::fs::read(format!("/proc/{}/cmdline", started())).unwrap_or_default().is_empty();
    eventually("all of it has ended", gone).await;
    rig.stop().await;
}
