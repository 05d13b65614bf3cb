//! The real program and a real bot, killed with signal 9; and what passes through it in bounded memory.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use hapax_testkit::fake_provider::FakeProvider;
use hapax_testkit::process::Program;
use hapax_testkit::servers::Engine;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;

use super::{SECRET, TOKEN};
use crate::program::{ADMIN_TOKEN, disk_folder};
use crate::rig::in_time;

/// Handles one update at a time with three sends; told so, it kills itself with signal 9 after the first.
const BOT: &str = r#"
import http.server, json, os, sys, urllib.request
address, port, dies = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "dies"
def send(chat, text):
    body = json.dumps({"chat_id": chat, "text": text}).encode()
    request = urllib.request.Request(address + "/sendMessage", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["result"]["message_id"]
class Bot(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        update = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for text in ["one", "two", "three"]:
            print(text, send(update["message"]["chat"]["id"], text), flush=True)
            if dies: os.kill(os.getpid(), 9)
        self.send_response(200)
        self.end_headers()
        if not dies: print("done", flush=True)
    def log_message(self, *ignored): pass
http.server.HTTPServer(("127.0.0.1", port), Bot).serve_forever()
"#;

pub(super) fn config(store: &str, target: &str, api_base: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"{store}\"\n[log]\nfilter = \"off\"\n\
         [channel.helpbot]\nprovider = \"telegram\"\nsecret = \"{SECRET}\"\ntoken = \"{TOKEN}\"\napi_base = \"{api_base}\"\n\
         dropin = true\nchat_rate = \"1000/s\"\nattempts = 1000\nbackoff = \"20ms\"\nbackoff_cap = \"100ms\"\n{target}\n",
    )
}

fn start_bot(hapax: SocketAddr, port: u16, dies: &str) -> Child {
    let address = format!("http://{hapax}/bot{TOKEN}");
    let mut command = Command::new("python3");
    command.args(["-c", BOT, &address, &port.to_string(), dies]).env("no_proxy", "*").stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("python3 runs")
}

async fn has_python() -> bool {
    let there = Command::new("python3").arg("--version").stdout(Stdio::null()).status().await.is_ok();
    assert!(there || std::env::var_os("CI").is_none(), "python3 is missing");
    there
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address").port()
}

async fn post_update(hapax: SocketAddr) {
    let message = json!({"message_id": 3, "date": 1_760_000_000, "chat": {"id": 77, "type": "private"}, "text": "hi"});
    let posted =
        reqwest::Client::new().post(format!("http://{hapax}/in/helpbot")).header("x-telegram-bot-api-secret-token", SECRET);
    let answer = posted.body(json!({"update_id": 5, "message": message}).to_string()).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
}

/// What the bot said until it ended, or until it was done.
async fn words_of(bot: &mut Child) -> Vec<String> {
    let mut said = bot.stdout.take().expect("its output");
    let (mut text, mut part) = (String::new(), [0; 256]);
    while !text.contains("done") {
        match said.read(&mut part).await.expect("readable") {
            0 => break,
            read => text.push_str(&String::from_utf8_lossy(&part[..read])),
        }
    }
    text.lines().map(str::to_owned).collect()
}

fn arrived(phones: &FakeProvider) -> Vec<String> {
    phones.phone("77").into_iter().filter_map(|arrived| arrived.text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_killed_with_signal_nine_after_its_first_send_and_started_again_sends_three() {
    if !has_python().await {
        return;
    }
    let (phones, folder, port) = (FakeProvider::willing().await.expect("a provider"), disk_folder(), free_port().await);
    let store = format!("sqlite:{}", folder.path().join("hapax.db").display());
    let target = format!("target = \"http://127.0.0.1:{port}/\"");
    let hapax =
        Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config(&store, &target, &phones.url())).expect("a config");
    let (process, at) = hapax.serve().await.expect("it starts");
    let mut bot = start_bot(at, port, "dies");
    post_update(at).await;
    assert_eq!(in_time("its death", words_of(&mut bot)).await, ["one 1"]);
    assert!(!bot.wait().await.expect("it ended").success());
    // hapax dies too, for good measure.
    process.kill_nine().await.expect("it was there");
    let (process, at) = hapax.serve().await.expect("it starts again");
    let mut bot = start_bot(at, port, "lives");
    assert_eq!(in_time("its work", words_of(&mut bot)).await, ["one 1", "two 2", "three 3", "done"]);
    assert_eq!(arrived(&phones), ["one", "two", "three"]);
    assert!(process.stop().await.expect("it stops").success());
}

/// One instance delivers, the bot's calls reach the other; then the one that delivers is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_call_to_another_instance_than_the_one_that_delivers_finds_its_run() {
    let Some(server) = Engine::Postgres.private().await else { return };
    if !has_python().await {
        return;
    }
    let (phones, port, store) = (FakeProvider::willing().await.expect("a provider"), free_port().await, server.fresh().await);
    let folders = [crate::quick_folder(), crate::quick_folder()];
    let program = |folder: &tempfile::TempDir, target: &str| {
        Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config(&store, target, &phones.url())).expect("a config")
    };
    let target = format!("target = \"http://127.0.0.1:{port}/\"\nlease = \"5s\"");
    let (delivers, serves) = (program(&folders[0], &target), program(&folders[1], ""));
    let (delivering, at) = delivers.serve().await.expect("it starts");
    let (serving, for_bot) = serves.serve().await.expect("it starts beside the other");
    let mut bot = start_bot(for_bot, port, "dies");
    post_update(at).await;
    assert_eq!(in_time("its death", words_of(&mut bot)).await, ["one 1"]);
    delivering.kill_nine().await.expect("it was there");
    let mut bot = start_bot(for_bot, port, "lives");
    let (delivering, _) = delivers.serve().await.expect("it starts again");
    assert_eq!(in_time("its work", words_of(&mut bot)).await, ["one 1", "two 2", "three 3", "done"]);
    assert_eq!(arrived(&phones), ["one", "two", "three"]);
    assert!(delivering.stop().await.expect("it stops").success() && serving.stop().await.expect("it stops").success());
}

const MEGABYTE: usize = 1 << 20;
const LARGE_MB: usize = 20;

/// Gives twenty megabytes to whoever asks for a file, and counts what it is given.
struct Depot {
    address: SocketAddr,
    given: Arc<AtomicU64>,
    _serving: AbortOnDropHandle<()>,
}

impl Depot {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, given) = (listener.local_addr().expect("an address"), Arc::new(AtomicU64::new(0)));
        let routes = Router::new().fallback(depot).with_state(Arc::clone(&given));
        let serving = tokio::spawn(async move {
            axum::serve(listener, routes).await.expect("it serves");
        });
        Self { address, given, _serving: AbortOnDropHandle::new(serving) }
    }
}

async fn depot(State(given): State<Arc<AtomicU64>>, request: Request) -> Body {
    if request.uri().path().starts_with("/file/") {
        let pieces = (0..LARGE_MB).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; MEGABYTE])));
        return Body::from_stream(futures_util::stream::iter(pieces));
    }
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        given.fetch_add(frame.into_data().map_or(0, |data| data.len() as u64), Ordering::SeqCst);
    }
    Body::from(r#"{"ok":true,"result":true}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_pass_through_in_bounded_memory_also_to_a_bot_that_never_reads() {
    let (depot, folder) = (Depot::start().await, crate::quick_folder());
    let api_base = format!("http://{}", depot.address);
    let hapax = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config("memory:", "", &api_base)).expect("a config");
    let (process, at) = hapax.serve().await.expect("it starts");
    let client = reqwest::Client::new();
    let file = format!("http://{at}/file/bot{TOKEN}/documents/large.bin");
    client.get(&file).send().await.expect("an answer").bytes().await.expect("a first one, to warm up");
    let before = process.resident_mb();
    let down = futures_util::future::join_all((0..5).map(async |_| {
        let answer = client.get(&file).send().await.expect("an answer").bytes().await.expect("all of it");
        assert!(answer.len() == LARGE_MB * MEGABYTE && answer.iter().all(|byte| *byte == 7));
    }));
    let up = futures_util::future::join_all((0..5).map(async |_| {
        let pieces = (0..LARGE_MB).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from(vec![9; MEGABYTE])));
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let asked = client.post(format!("http://{at}/bot{TOKEN}/uploadStickerFile")).body(body);
        assert_eq!(asked.send().await.expect("an answer").status(), 200);
    }));
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut socket = TcpStream::connect(at).await.expect("a connection");
        let ask = format!("GET /file/bot{TOKEN}/documents/large.bin HTTP/1.1\r\nhost: x\r\n\r\n");
        socket.write_all(ask.as_bytes()).await.expect("written");
        deaf.push(socket);
    }
    in_time("all of it", futures_util::future::join(down, up)).await;
    assert_eq!(depot.given.load(Ordering::SeqCst), (5 * LARGE_MB * MEGABYTE) as u64);
    let (before, after) = (before.unwrap_or_default(), process.resident_mb().unwrap_or_default());
    assert!(after < before + 150, "200 MB passed through and 400 more wait: {before} MB before, {after} MB after");
    drop(deaf);
    in_time("its end", process.kill_nine_after(Duration::ZERO)).await.expect("it was there");
}
