//! The clients in `clients/`, each tested by its language's own runner against the real program.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::process::{Process, Program};
use hapax_testkit::servers::skip;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::program::{ADMIN_TOKEN, Poster, store_path};
use crate::rig::{SECRET, in_time, text};

const SIGNED_WITH: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// How many messages the tests of `pull` find waiting.
const WAITING: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_passes_its_tests() {
    passes("python", "python3", &["-W", "error", "-m", "unittest", "discover", "-t", ".", "-s", "tests", "-v"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_client_passes_its_tests() {
    passes("node", "node", &["--test", "test/"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_php_client_passes_its_tests() {
    passes("php", "php", &["tests/run.php"]).await;
}

/// Starts hapax for a client's tests and runs them.
async fn passes(client: &str, runner: &str, arguments: &[&str]) {
    let there = Command::new(runner).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    if there.is_err() {
        return skip(runner, "tests/install-clients.sh", true);
    }
    let folder = crate::quick_folder();
    let stage = Stage::new(folder.path()).await;
    let mut command = Command::new(runner);
    command.args(arguments).current_dir(package(client)).env("no_proxy", "*").env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("HAPAX_SERVER", &stage.url).env("HAPAX_TOKEN", &stage.token).env("HAPAX_PULL_CHANNEL", "pulled");
    command.env("HAPAX_DELIVERED", &stage.delivered).env_remove("HAPAX_ADMIN_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = in_time(client, command.spawn().expect("it starts").wait_with_output()).await.expect("it ends");
    let words = format!("{}\n{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{words}");
    // What needs a server must not have passed it over.
    let skipped = words.lines().filter(|line| line.contains("skipped") || line.contains("# SKIP"));
    let skipped: Vec<&str> = skipped.filter(|line| !line.contains("skipped 0") && !line.contains("0 skipped")).collect();
    assert!(skipped.is_empty(), "{skipped:?}");
}

fn package(client: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(client)
}

/// A running hapax with what the clients' tests look for.
struct Stage {
    url: String,
    /// May work, and nothing else.
    token: String,
    /// A file with a request as a bot got it.
    delivered: PathBuf,
    _hapax: Process,
}

impl Stage {
    async fn new(folder: &Path) -> Self {
        let bot = FakeBot::willing().await.expect("a bot");
        let config = format!(
            "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n\
             [channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\ntarget = \"{}\"\nsign_with = \"{SIGNED_WITH}\"\n\
             [channel.pulled]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nmode = \"pull\"\n",
            store_path(folder).display(),
            bot.url(),
        );
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file");
        let (hapax, at) = program.serve().await.expect("hapax starts");
        let url = format!("http://{at}");
        let poster = Poster::new();
        for n in 0..WAITING {
            let said = poster.post_to(at, "pulled", text(&format!("wamid.{n}"), &n.to_string())).await;
            assert_eq!(said.expect("an answer").status, 200);
        }
        let said = poster.post_to(at, "shop", text("wamid.signed", "1")).await;
        assert_eq!(said.expect("an answer").status, 200);
        let delivered = folder.join("delivered.json");
        std::fs::write(&delivered, first_call(&bot).await.to_string()).expect("written");
        let token = work_token(&url).await;
        Self { url, token, delivered, _hapax: hapax }
    }
}

async fn first_call(bot: &FakeBot) -> Value {
    in_time("a delivery", bot.called(1)).await;
    let call = bot.calls().remove(0);
    let headers: serde_json::Map<String, Value> =
        call.headers.iter().map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes())))).collect();
    let body = String::from_utf8(call.body.to_vec()).expect("UTF-8");
    json!({ "id": call.header("webhook-id"), "headers": headers, "body": body, "secret": SIGNED_WITH })
}

async fn work_token(url: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let asked = client.post(format!("{url}/v1/tokens")).bearer_auth(ADMIN_TOKEN);
    let answer = asked.json(&json!({ "name": "worker", "scopes": ["work", "read"] })).send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    let answer: Value = answer.json().await.expect("JSON");
    answer["token"].as_str().expect("a token").to_owned()
}
