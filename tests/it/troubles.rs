//! docs/troubleshooting.md is true: everything in its tables goes wrong here, and every message that it quotes is heard where it says.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use hapax_testkit::process::{Process, Program};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, store_path};
use crate::rig::{SECRET, text};

/// Heard by tests elsewhere: there is no network filesystem to put a store on.
const ELSEWHERE: &[&str] = &["a network filesystem, where neither locks nor syncs can be relied on"];

const PATIENCE: Duration = Duration::from_secs(120);

/// One row of the tables: a message, and where it is heard.
struct Row {
    quote: String,
    places: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let cells = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what"));
    let row = |line: &str| {
        let cell = line.split('|').nth(2).expect("what hapax says");
        let (quote, rest) = cell.split_once('“').and_then(|(_, rest)| rest.split_once('”')).expect("a message");
        let known = [
            ("the log", "log"),
            ("`story`", "story"),
            ("`listen`", "listen"),
            ("`parked`", "parked"),
            ("at start", "start"),
            ("`hapax check`", "check"),
            ("`hapax ready`", "ready"),
            ("`messages ID`", "messages"),
        ];
        let mut places: Vec<_> = known.iter().filter(|(words, _)| rest.contains(words)).map(|(_, place)| *place).collect();
        if places.is_empty() {
            places.push("commands");
        }
        Row { quote: quote.to_owned(), places }
    };
    cells.map(row).collect()
}

/// What was heard, by place.
#[derive(Default)]
struct Heard(BTreeMap<&'static str, String>);

impl Heard {
    fn add(&mut self, place: &'static str, words: &str) {
        let flat = words.split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.entry(place).or_default().push_str(&flat);
    }

    /// The rows of these places that were not heard.
    fn missing<'r>(&self, rows: &'r [Row], of: &[&str]) -> Vec<(&'r str, &'static str)> {
        let told = |quote: &str, place: &str| self.0.get(place).is_some_and(|words| words.contains(quote.trim()));
        let wanted = rows.iter().flat_map(|row| row.places.iter().map(|place| (row.quote.as_str(), *place)));
        let wanted = wanted.filter(|(quote, place)| of.contains(place) && !ELSEWHERE.contains(quote));
        wanted.filter(|(quote, place)| !told(quote, place)).collect()
    }
}

/// Runs a command of the program; gives all that it said.
async fn hapax(folder: &Path, token: bool, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.current_dir(folder).args(arguments).env("NO_COLOR", "1").env_remove("HAPAX_ADMIN_TOKEN").stdin(Stdio::null());
    if token {
        command.env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN);
    }
    let done = command.output().await.expect("it runs");
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// A running hapax that logs into a file.
struct Running {
    folder: TempDir,
    process: Process,
    at: SocketAddr,
}

impl Running {
    async fn start(config: &str) -> Self {
        let folder = disk_folder();
        let config = config.replace("FOLDER", &folder.path().display().to_string());
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config");
        let log = folder.path().join("log");
        let (process, at) = program.after(&format!("exec 2>>{}", log.display())).serve().await.expect("it starts");
        Self { folder, process, at }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    async fn hapax(&self, arguments: &[&str]) -> String {
        let server = format!("http://{}", self.at);
        hapax(self.folder.path(), true, &[arguments, &["--server", &server]].concat()).await
    }

    async fn get(&self, path: &str) -> Value {
        let text = Poster::new().get(self.at, path).await.unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: String) -> u16 {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut request = client.post(format!("http://{}{path}", self.at)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    /// The newest event of a channel.
    async fn newest(&self, channel: &str) -> Option<String> {
        let page = self.get(&format!("/v1/events?channel={channel}&limit=1")).await;
        Some(page["events"][0]["id"].as_str()?.to_owned())
    }
}

const HEAD: &str = "listen = \"127.0.0.1:0\"\nadmin_token = \"an-admin-token-for-tests\"\n[log]\nfilter = \"info\"\n";

/// A channel with more lines of its own.
fn channel(name: &str, more: &str) -> String {
    format!(
        "[channel.{name}]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock\"\n\
         attempts = 1\nbackoff = \"20ms\"\nbackoff_cap = \"50ms\"\n{more}\n"
    )
}

/// The bots that are wrong in some way, and providers that do not send.
struct Cast {
    bots: Vec<(&'static str, FakeBot)>,
    replying: FakeBot,
    garbling: FakeBot,
    stopping: FakeBot,
    silent: FakeBot,
}

impl Cast {
    async fn assemble() -> Self {
        let status = async |status: u16| FakeBot::start(move |_| Say::Status(status)).await.expect("a bot");
        let answering = async |status: u16, kind: &'static str, body: &'static str| {
            let headers = move || vec![("content-type", kind.to_owned())];
            let say = move |_: &Call| Say::Answer { status, headers: headers(), body: body.to_owned() };
            FakeBot::start(say).await.expect("a bot")
        };
        let replies = "application/vnd.hapax.replies+json";
        let slow = FakeBot::start_slow(|_| Box::pin(std::future::pending())).await.expect("a bot");
        Self {
            bots: vec![
                ("path", status(404).await),
                ("secret", status(401).await),
                ("post", status(405).await),
                ("moved", status(301).await),
                ("broken", status(500).await),
                ("slow", slow),
            ],
            replying: answering(200, replies, r#"{"replies":[{"text":"on its way"}]}"#).await,
            garbling: answering(200, replies, "{").await,
            stopping: answering(401, "application/json", r#"{"error":{"message":"no","code":190}}"#).await,
            silent: FakeBot::start(|_| Say::Hang).await.expect("a provider"),
        }
    }

    fn config(&self) -> String {
        let base = |bot: &FakeBot| bot.url().replace("/webhook", "");
        let target = |bot: &FakeBot| format!("target = \"{}\"\n", bot.url());
        let sends = |api_base: &str| format!("token = \"a-token-for-tests\"\napi_base = \"{api_base}\"\n");
        let mut config = format!("{HEAD}[otel]\nendpoint = \"http://127.0.0.1:1\"\n[limits]\noutbox = 1\n");
        for (name, bot) in &self.bots {
            let timeout = if *name == "slow" { "timeout = \"1s\"\n" } else { "" };
            config += &channel(name, &format!("{}{timeout}", target(bot)));
        }
        config += &channel("dead", "target = \"http://127.0.0.1:1/webhook\"\n");
        config += &channel("nowhere", "targets = { \"999\" = \"http://127.0.0.1:1/webhook\" }\n");
        config += &channel("mute", &target(&self.replying));
        config += &channel("garbled", &format!("{}{}", target(&self.garbling), sends("http://127.0.0.1:1")));
        config += &channel("full", &format!("{}{}", target(&self.replying), sends("http://127.0.0.1:1")));
        config += &channel("stopped", &sends(&base(&self.stopping)));
        config += &channel("doubt", &sends(&base(&self.silent)));
        config += "[channel.pay]\nprovider = \"stripe\"\nsecret = \"whsec_for-tests-only\"\n";
        config.replacen("listen", "store = \"memory:\"\nlisten", 1)
    }
}

/// Posts what is refused, and what goes wrong on its way.
async fn let_it_go_wrong(on: &Running, cast: &Cast) -> String {
    let body = text("wamid.refused", "1");
    on.post("/in/dead", &[("x-hub-signature-256", "sha256=00")], body.clone()).await;
    on.post("/in/dead", &[], body.clone()).await;
    on.post("/in/nobody", &[("x-hub-signature-256", "sha256=00")], body).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let knock = format!("http://{}/in/dead?hub.mode=subscribe&hub.verify_token=wrong&hub.challenge=1", on.at);
    client.get(knock).send().await.expect("an answer");
    let mut mac = Hmac::<Sha256>::new_from_slice(b"whsec_for-tests-only").expect("any length will do");
    mac.update(b"1000000000.{}");
    let old = format!("t=1000000000,v1={}", hex::encode(mac.finalize().into_bytes()));
    on.post("/in/pay", &[("stripe-signature", &old)], "{}".to_owned()).await;
    let config = on.folder.path().join("hapax.toml");
    let good = std::fs::read_to_string(&config).expect("a config");
    std::fs::write(&config, format!("atempts = 3\n{good}")).expect("written");
    let bearer = format!("Bearer {ADMIN_TOKEN}");
    assert_eq!(on.post("/v1/reload", &[("authorization", &bearer)], String::new()).await, 422);
    let poster = Poster::new();
    for name in cast.bots.iter().map(|(name, _)| *name).chain(["nowhere", "mute", "garbled"]) {
        let said = poster.post_to(on.at, name, text(&format!("wamid.{name}"), "1")).await.expect("an answer");
        assert_eq!(said.status, 200, "{name}");
    }
    for peer in ["1", "2", "3", "4"] {
        for name in ["dead", "full"] {
            poster.post_to(on.at, name, text(&format!("wamid.{name}.{peer}"), peer)).await.expect("an answer");
        }
    }
    let mut doubt = String::new();
    for name in ["stopped", "doubt"] {
        let message = json!({"channel": name, "account": "700001", "to": "5511900001", "text": "hello"});
        let (status, sent) = poster.send(on.at, &message).await.expect("an answer");
        assert_eq!(status, 202, "{sent}");
        doubt = sent["id"].as_str().expect("an id").to_owned();
    }
    doubt
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_on_the_way_is_told_where_the_table_says() {
    let (rows, cast) = (rows(), Cast::assemble().await);
    assert!(rows.len() >= 20, "{}", rows.len());
    let on = Running::start(&cast.config()).await;
    let full = Running::start(&format!(
        "store = \"sqlite:FOLDER/hapax.db\"\n{HEAD}[limits]\ndisk_floor = \"1000000GB\"\n{}",
        channel("shop", "")
    ))
    .await;
    let refused = Poster::new().post(full.at, text("wamid.1", "1")).await.expect("an answer");
    assert_eq!(refused.status, 503, "nothing new is taken in");
    let doubt = let_it_go_wrong(&on, &cast).await;
    let (mut listen, mut listened) = listening().await;
    let mut missing = vec![("nothing was looked for", "")];
    let hearing = async {
        while !missing.is_empty() {
            let mut heard = Heard::default();
            heard.add("log", &(on.log() + &full.log()));
            heard.add("parked", &on.hapax(&["parked", "--wide", "--limit", "50"]).await);
            heard.add("messages", &on.hapax(&["messages", &doubt]).await);
            heard.add("ready", &full.hapax(&["ready"]).await);
            for name in cast.bots.iter().map(|(name, _)| *name).chain(["dead", "nowhere", "mute"]) {
                let Some(event) = on.newest(name).await else { continue };
                heard.add("story", &on.hapax(&["story", &event]).await);
            }
            while let Ok(Ok(Some(line))) = tokio::time::timeout(Duration::from_millis(50), listened.lines.next_line()).await {
                listened.said += &format!("{line}\n");
            }
            heard.add("listen", &listened.said);
            missing = heard.missing(&rows, &["log", "parked", "messages", "ready", "story", "listen"]);
        }
    };
    let heard = tokio::time::timeout(PATIENCE, hearing).await;
    assert!(heard.is_ok(), "never heard: {missing:?}");
    listen.kill().await.expect("it ends");
    for running in [on, full] {
        assert!(running.process.stop().await.expect("it stops").success());
    }
}

/// What `hapax listen` says.
struct Listened {
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    said: String,
    _folder: TempDir,
}

/// `hapax listen` with a bot that is not there, and some webhooks for it.
async fn listening() -> (Child, Listened) {
    let folder = disk_folder();
    std::fs::write(folder.path().join("hapax.toml"), channel("shop", "")).expect("a config");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["listen", "1/webhook", "--listen", "127.0.0.1:0", "--store", "memory:"]).current_dir(folder.path());
    command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its words")).lines();
    let first = lines.next_line().await.expect("a line").expect("a line");
    let at = first.split("http://").nth(1).and_then(|at| at.trim().parse().ok()).expect("an address");
    for peer in ["1", "2", "3", "4"] {
        Poster::new().post(at, text(&format!("wamid.{peer}"), peer)).await.expect("an answer");
    }
    (child, Listened { lines, said: String::new(), _folder: folder })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_it_from_starting_and_commands_from_working_is_told() {
    let (rows, mut heard) = (rows(), Heard::default());
    let folder = disk_folder();
    let config = folder.path().join("hapax.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("written");
    write("atempts = 3\n");
    heard.add("check", &hapax(folder.path(), true, &["check"]).await);
    write(&channel("shop", "target = \"http://127.0.0.1:1\"\ntarget_headers = { \"Hapax-Event-Id\" = \"mine\" }"));
    heard.add("start", &hapax(folder.path(), true, &["serve"]).await);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    write(&format!("listen = \"{}\"\nstore = \"memory:\"\n", taken.local_addr().expect("an address")));
    heard.add("start", &hapax(folder.path(), true, &["serve"]).await);
    let elsewhere = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), "listen = \"127.0.0.1:2\"\nstore = \"memory:\"\n");
    let elsewhere = elsewhere.expect("a config").on_socket(TcpListener::bind("127.0.0.1:0").expect("a port"));
    heard.add("start", &elsewhere.ends().await.expect("it ends").words);

    let on = Running::start(&format!("store = \"sqlite:FOLDER/hapax.db\"\n{HEAD}{}", channel("shop", ""))).await;
    write(&format!("listen = \"127.0.0.1:0\"\nstore = \"sqlite:{}\"\n", store_path(on.folder.path()).display()));
    heard.add("start", &hapax(folder.path(), true, &["serve"]).await);
    heard.add("commands", &hapax(folder.path(), true, &["stats", "--server", "http://127.0.0.1:1"]).await);
    heard.add("commands", &hapax(folder.path(), false, &["stats", "--server", &format!("http://{}", on.at)]).await);
    Poster::new().post_until_taken(on.at, text("wamid.1", "1")).await;
    let event = on.newest("shop").await.expect("an event");
    let other = Running::start(&format!("store = \"memory:\"\n{HEAD}{}", channel("shop", ""))).await;
    heard.add("commands", &other.hapax(&["show", &event]).await);
    let made = Poster::new().ask(on.at, "/v1/tokens", &json!({"name": "sender", "scopes": ["send"]})).await.expect("a token");
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let scrape = client.get(format!("http://{}/metrics", on.at)).bearer_auth(made["token"].as_str().expect("a token"));
    heard.add("commands", &scrape.send().await.expect("an answer").text().await.expect("words"));
    assert_eq!(heard.missing(&rows, &["check", "start", "commands"]), [], "{:#?}", heard.0);
    for running in [on, other] {
        assert!(running.process.stop().await.expect("it stops").success());
    }
}
