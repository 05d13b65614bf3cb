//! Claims over HTTP and with `hapax once`: many callers, two instances, one winner; and holders that are killed.

use std::process::Stdio;

use futures_util::future::join_all;
use hapax_testkit::process::Program;
use hapax_testkit::servers::Engine;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::program::{ADMIN_TOKEN, Poster, store_path};
use crate::rig::{Opened, Rig, eventually, on_two_instances};

const TOKEN: &str = "an admin token for tests";
const CALLERS: usize = 200;
/// Those who wait for a claim whose holder is gone.
const FOLLOWERS: usize = 50;

async fn post(rig: &Rig, path: &str, body: &Value) -> (u16, Value) {
    answered(rig.client.post(rig.url(path)).bearer_auth(TOKEN).json(body)).await
}

/// Claims, and asks again for as long as another is at it.
async fn post_waiting(rig: &Rig, body: &Value) -> (u16, Value) {
    loop {
        let request = rig.client.post(rig.url("/v1/claims")).bearer_auth(TOKEN).header("prefer", "wait=10").json(body);
        let (status, answer) = answered(request).await;
        if status != 409 {
            return (status, answer);
        }
    }
}

async fn answered(request: reqwest::RequestBuilder) -> (u16, Value) {
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

async fn one_of_many_wins(opened: Vec<Opened>) {
    let mut rigs = Vec::new();
    for opened in opened {
        rigs.push(Rig::start(opened, Vec::new()).await);
    }
    one_of_many_callers_wins(&rigs).await;
    one_of_many_takes_over(&rigs).await;
    one_of_many_programs_runs(&rigs).await;
    for rig in rigs {
        rig.stop().await;
    }
}

async fn one_of_many_callers_wins(rigs: &[Rig]) {
    let asks = (0..CALLERS).map(|n| {
        let rig = &rigs[n % rigs.len()];
        async move {
            loop {
                // A store that is too busy for so many at once says so, and did nothing.
                let answer = post(rig, "/v1/claims", &json!({"key": "raced", "lease": "60s"})).await;
                if answer.0 != 503 {
                    return answer;
                }
            }
        }
    });
    let answers = join_all(asks).await;
    let won = answers.iter().filter(|(status, _)| *status == 201).count();
    assert_eq!(won, 1, "{answers:?}");
    let others = answers.iter().filter(|(status, answer)| *status == 409 && answer["code"] == "claim_in_progress").count();
    assert_eq!(others, CALLERS - 1, "{answers:?}");
}

/// A holder that says nothing more is followed by one of those who wait, whichever instance they ask, and is not believed any more.
async fn one_of_many_takes_over(rigs: &[Rig]) {
    let claim = json!({"key": "left", "lease": "1s"});
    let (status, dead) = post(&rigs[0], "/v1/claims", &claim).await;
    assert_eq!(status, 201, "{dead}");
    let asks = (0..FOLLOWERS).map(|n| {
        let (rig, claim) = (&rigs[n % rigs.len()], json!({"key": "left", "lease": "60s"}));
        async move {
            // Who has the claim completes it, so that nobody waits for it in vain.
            let (status, answer) = post_waiting(rig, &claim).await;
            if status == 201 {
                let done = json!({"key": "left", "token": answer["token"], "result": n});
                let (completed, said) = post(rig, "/v1/claims/complete", &done).await;
                assert_eq!(completed, 200, "{said}");
            }
            (n, status, answer)
        }
    });
    let answers = join_all(asks).await;
    let won: Vec<_> = answers.iter().filter(|(_, status, _)| *status == 201).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    let (winner, _, taken) = won[0];
    assert_eq!((&taken["previous"], taken["fence"].as_u64() > dead["fence"].as_u64()), (&json!("abandoned"), true), "{taken}");
    let heard = answers.iter().filter(|(_, status, answer)| *status == 200 && answer["result"] == json!(winner)).count();
    assert_eq!(heard, FOLLOWERS - 1, "{answers:?}");
    for (n, path) in ["/v1/claims/complete", "/v1/claims/extend", "/v1/claims/release"].iter().enumerate() {
        let (status, said) = post(&rigs[n % rigs.len()], path, &json!({"key": "left", "token": dead["token"]})).await;
        assert_eq!((status, &said["code"]), (409, &json!("claim_lost")), "{path}");
    }
}

async fn one_of_many_programs_runs(rigs: &[Rig]) {
    let folder = crate::quick_folder();
    let runs = folder.path().join("runs");
    let script = format!("echo ran >> {}; echo said; exit 3", runs.display());
    let programs = (0..CALLERS).map(|n| {
        let mut command = once(&rigs[n % rigs.len()], &["nightly", "--wait", "10m", "--", "sh", "-c", &script]);
        async move { command.output().await.expect("it ends") }
    });
    for ended in join_all(programs).await {
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stdout).as_ref()), (Some(3), "said\n"), "{words}");
    }
    assert_eq!(std::fs::read_to_string(&runs).expect("it ran"), "ran\n", "once, and all heard the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_embedded_store() {
    one_of_many_wins(vec![Opened::sqlite()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_postgres() {
    on_two_instances(Engine::Postgres, one_of_many_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_mariadb() {
    on_two_instances(Engine::Mariadb, one_of_many_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_redis() {
    on_two_instances(Engine::Redis, one_of_many_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_firestore() {
    on_two_instances(Engine::Firestore, one_of_many_wins).await;
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

/// Who waits outlives the server: it is asked again when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_command_waits_for_the_server_too() {
    let folder = crate::quick_folder();
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let config = format!(
        "listen = \"127.0.0.1:{port}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n",
        store_path(folder.path()).display()
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let (process, address) = program.serve().await.expect("it starts");
    let poster = Poster::new();
    let name = json!({"key": "job", "scope": "once"});
    let held = poster.ask(address, "/v1/claims", &name).await.expect("claimed");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["once", "job", "--wait", "5m", "--", "echo", "said"]).env("HAPAX_SERVER", format!("http://{address}"));
    command.env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN).env_remove("HAPAX_CONFIG").stdin(Stdio::null()).stdout(Stdio::piped());
    let waiting = command.kill_on_drop(true).spawn().expect("it starts");
    let asked = async || {
        let metrics = poster.get(address, "/metrics").await.unwrap_or_default();
        metrics.lines().any(|line| line == "hapax_connections 2")
    };
    eventually("it waits", asked).await;
    process.kill_nine().await.expect("it ended");
    let (process, address) = program.serve().await.expect("it starts");
    let release = json!({"key": "job", "scope": "once", "token": held["token"]});
    poster.ask(address, "/v1/claims/release", &release).await.expect("released");
    let ended = waiting.wait_with_output().await.expect("it ends");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stdout).as_ref()), (Some(0), "said\n"));
    assert!(process.stop().await.expect("it stops").success());
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
    // A lease that a busy machine does not miss by itself.
    let running = once(&rig, &["job", "--lease", "4s", "--", "sh", "-c", &script]).spawn().expect("it starts");
    eventually("the command runs", async || begun.exists()).await;
    let other = once(&rig, &["job", "--wait", "9s", "--", "true"]).output().await.expect("it ends");
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
