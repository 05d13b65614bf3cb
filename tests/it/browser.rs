//! The pages in a real Chromium, driven by playwright: what a person sends twice reaches the phone once, what happens appears by itself, and
//! everybody can read it. Where Chromium or playwright is not installed, the tests are skipped.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use hapax_providers::settings::Settings;
use hapax_store::clock::{Clock, SystemClock};
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::{FakeProvider, Play};
use hapax_testkit::process::{Process, Program};
use hapax_testkit::servers::skip;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

use crate::libraries::post_signed;
use crate::program::{ADMIN_TOKEN, Poster, store_path};
use crate::rig::{eventually, in_time, text};

const SECRET: &str = "a-secret-for-the-browser-test";
const PERSON: &str = "5511988887777";
/// What strangers write is shown as they wrote it.
const HOSTILE: &str = r#"{"object":"whatsapp_business_account","entry":[{"id":"9","changes":[{"field":"messages","value":{
    "messaging_product":"whatsapp","metadata":{"display_phone_number":"1555","phone_number_id":"700001"},
    "contacts":[{"profile":{"name":"\"><script>alert(1)</script>"},"wa_id":"5511988887777"}],
    "messages":[{"from":"5511988887777","id":"wamid.\"><img src=x onerror=alert(2)>","timestamp":"1760000000","type":"text",
    "text":{"body":"'\"><svg onload=alert(3)><script>alert(4)</script>"}}]}}]}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_sends_twice_arrives_once_and_everybody_can_read_it() {
    let Some(stage) = Stage::new().await else { return };
    let stage = stage.drive("browser.mjs").await;
    let hostile = r#"'"><img src=x onerror=alert(5)></textarea><script>alert(6)</script>"#;
    let all = ["a double click", "Enter, and Enter again", "typed twice", "typed twice", hostile, "without a script"];
    eventually("all are sent", async || stage.texts().len() >= all.len()).await;
    assert_eq!(stage.texts(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_shows_what_happens_and_outlives_the_server() {
    let Some(stage) = Stage::new().await else { return };
    let mut stage = stage.drive("browser_live.mjs").await;
    let all = ["watch me", "from three tabs", "back and again", "while it was away"];
    eventually("all are sent", async || stage.texts().len() >= all.len()).await;
    assert_eq!(stage.texts(), all, "each is sent once");
    stage.hapax.take().expect("it runs").stop().await.expect("it stops");
}

/// hapax with one channel, its bot and its phones, on an address that stays the same.
struct Stage {
    phones: FakeProvider,
    bot: FakeBot,
    program: Program,
    hapax: Option<Process>,
    at: SocketAddr,
    /// Until this is true, nothing leaves.
    open: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Option<Self> {
        let clients = clients();
        if !clients.join("node/node_modules/playwright-core").is_dir() || !Path::new("/usr/bin/chromium").exists() {
            skip("Chromium or playwright-core", "run tests/install-clients.sh", true);
            return None;
        }
        let (open, door) = watch::channel(false);
        let phones = FakeProvider::start_slow(Arc::new(SystemClock::new()), move |asked| {
            let mut door = door.clone();
            Box::pin(async move {
                if asked.text.as_deref() == Some("watch me") {
                    // The sender lives as long as the test.
                    let _ = door.wait_for(|open| *open).await;
                }
                Play::Act
            })
        });
        let phones = phones.await.expect("phones");
        let refused = |body: &[u8], attempt| attempt == 1 && String::from_utf8_lossy(body).contains("poison");
        let bot = FakeBot::start(move |call| Say::Status(if refused(&call.body, call.attempt()) { 404 } else { 200 }));
        let bot = bot.await.expect("a bot");
        let at = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let folder = crate::quick_folder();
        let config = format!(
            "listen = \"{at}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n[channel.shop]\n\
             provider = \"whatsapp\"\nsecret = \"{SECRET}\"\ntoken = \"a-token-for-tests-only\"\napi_base = \"{}\"\ntarget = \"{}\"\n",
            store_path(folder.path()).display(),
            phones.url(),
            bot.url(),
        );
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
        let (hapax, _) = program.serve().await.expect("hapax starts");
        let stage = Self { phones, bot, program, hapax: Some(hapax), at, open, _folder: folder };
        stage.post(HOSTILE.to_owned()).await;
        Some(stage)
    }

    fn texts(&self) -> Vec<String> {
        self.phones.phone(PERSON).into_iter().filter_map(|arrived| arrived.text).collect()
    }

    async fn post(&self, body: String) {
        let settings = Settings::Whatsapp { secrets: vec![SECRET.into()], verify_token: None };
        assert_eq!(post_signed(&settings, &format!("http://{}/in/shop", self.at), body).await, 200);
    }

    /// Runs a script, and does what it asks for meanwhile.
    async fn drive(mut self, script: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients").join(script);
        let arguments = [format!("http://{}", self.at), ADMIN_TOKEN.to_owned(), format!("700001__{PERSON}")];
        let mut command = Command::new("node");
        command.arg(script).args(arguments).env("HAPAX_CLIENTS", clients()).kill_on_drop(true);
        let mut node = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node runs");
        let mut answers = node.stdin.take().expect("its input");
        let mut lines = BufReader::new(node.stdout.take().expect("its output")).lines();
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.expect("readable") {
            match line.strip_prefix("do ") {
                Some(wish) => {
                    in_time(wish, self.fulfil(wish)).await;
                    answers.write_all(b"done\n").await.expect("it waits for this");
                }
                None => said = said + &line + "\n",
            }
        }
        assert!(node.wait().await.expect("it ended").success(), "{said}");
        self
    }

    async fn fulfil(&mut self, wish: &str) {
        let (verb, rest) = wish.split_once(' ').unwrap_or((wish, ""));
        match verb {
            "let" => drop(self.open.send(true)),
            "status" => {
                let (word, of) = rest.split_once(' ').expect("a status and a text");
                let arrived = self.phones.phone(PERSON).into_iter().find(|arrived| arrived.text.as_deref() == Some(of));
                let body = arrived.expect("it is on the phone").status_webhook(word, SystemClock::new().wall_ms());
                self.post(body.expect("WhatsApp tells")).await;
            }
            "post" => {
                self.post(text("wamid.once-more", PERSON)).await;
                self.calls_with("once-more", 1).await;
            }
            "replayed" => self.calls_with("once-more", 2).await,
            "poison" => {
                for number in 1..=3 {
                    self.post(text(&format!("wamid.poison{number}"), &number.to_string())).await;
                }
                let parked = "/v1/inbox?parked=true";
                eventually("all are parked", async || {
                    let listed = Poster::new().get(self.at, parked).await.unwrap_or_default();
                    listed.matches("\"state\":\"parked\"").count() == 3
                })
                .await;
            }
            "kill" => drop(self.hapax.take().expect("it runs").kill_nine().await.expect("it ends")),
            "stop" => drop(self.hapax.take().expect("it runs").stop().await.expect("it ends")),
            "start" => {
                self.hapax = Some(self.program.serve().await.expect("hapax starts again").0);
                self.post(text(&format!("wamid.{rest}"), rest)).await;
            }
            _ => panic!("nobody knows how to {wish}"),
        }
    }

    async fn calls_with(&self, id: &str, times: usize) {
        let of = |body: &[u8]| String::from_utf8_lossy(body).contains(id);
        eventually("the bot is called", async || self.bot.calls().iter().filter(|call| of(&call.body)).count() >= times).await;
    }
}

fn clients() -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients")
}
