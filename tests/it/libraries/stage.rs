//! A bot written with somebody's library, the real program before it, and phones.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hapax_providers::Unsigned;
use hapax_providers::settings::Settings;
use hapax_store::clock::{Clock, SystemClock};
use hapax_testkit::fake_provider::{Arrived, Asked, FakeProvider, Play};
use hapax_testkit::process::{Process, Program};
use hapax_testkit::servers::skip;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::conversation::all_done;
use crate::program::{ADMIN_TOKEN, store_path};
use crate::rig::{eventually, in_time};

/// Stripe takes it as it stands, Standard Webhooks decode it.
pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    PythonTelegramBot,
    Pywa,
    PyTelegramBotApi,
    Grammy,
    Telegraf,
    GrammyPolling,
    TelegrafPolling,
    PythonTelegramBotPolling,
    /// stripe and standardwebhooks: they send nothing.
    Verifiers,
}

impl Library {
    pub(super) fn is_of_whatsapp(self) -> bool {
        self == Library::Pywa
    }

    pub(super) fn polls(self) -> bool {
        matches!(self, Library::GrammyPolling | Library::TelegrafPolling | Library::PythonTelegramBotPolling)
    }

    /// `None` where the library is not installed, which was said.
    pub(super) fn command(self) -> Option<Command> {
        let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
        let (runtime, mark, file) = match self {
            Library::PythonTelegramBot => (installed.join("python/bin/python"), "python", "python_telegram_bot.py"),
            Library::Pywa => (installed.join("python/bin/python"), "python", "pywa_flask.py"),
            Library::PyTelegramBotApi => (installed.join("python/bin/python"), "python", "telebot_flask.py"),
            Library::Verifiers => (installed.join("python/bin/python"), "python", "verifiers.py"),
            Library::Grammy => (PathBuf::from("node"), "node", "grammy.mjs"),
            Library::Telegraf => (PathBuf::from("node"), "node", "telegraf.mjs"),
            Library::GrammyPolling => (PathBuf::from("node"), "node", "grammy_polling.mjs"),
            Library::TelegrafPolling => (PathBuf::from("node"), "node", "telegraf_polling.mjs"),
            Library::PythonTelegramBotPolling => {
                (installed.join("python/bin/python"), "python", "python_telegram_bot_polling.py")
            }
        };
        if !installed.join(format!("{mark}.installed")).exists() {
            skip(&format!("{self:?}"), "tests/install-clients.sh", true);
            return None;
        }
        let mut command = Command::new(runtime);
        command
            .arg(sources.join(file))
            .env("LIBRARIES", installed.join("node"))
            .env("no_proxy", "*")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        Some(command)
    }
}

/// A bot at work.
pub(super) struct Bot(Child);

impl Bot {
    /// Waits for it to end itself with signal 9.
    pub(super) async fn died(mut self) {
        let ended = in_time("the bot's death", self.0.wait()).await.expect("a status");
        assert_eq!(ended.signal(), Some(9), "{ended}");
    }

    /// Waits for it to end by itself, because its handler has failed.
    pub(super) async fn ended(&mut self) {
        let ended = in_time("the bot's end", self.0.wait()).await.expect("a status");
        assert_eq!(ended.code(), Some(1), "{ended}");
    }

    pub(super) async fn kill(mut self) {
        self.0.kill().await.expect("it was there");
    }

    pub(super) fn lives(&mut self) -> bool {
        self.0.try_wait().expect("a status").is_none()
    }
}

/// Where a bot is, what it is given for its provider's address, and what it writes down.
pub(super) struct Home {
    pub(super) library: Library,
    pub(super) port: u16,
    pub(super) journal: PathBuf,
}

impl Home {
    pub(super) fn new(library: Library, folder: &Path) -> Self {
        Self { library, port: free_port(), journal: folder.join("journal") }
    }

    /// `None`: there is no such library here.
    pub(super) async fn start(&self, api: &str) -> Option<Bot> {
        let mut command = self.library.command()?;
        command.env("HAPAX", api).env("PORT", self.port.to_string()).env("SECRET", SECRET).env("JOURNAL", &self.journal);
        let mut child = command.spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("its words")).lines();
        let ready = in_time("a bot", said.next_line()).await.expect("words");
        assert_eq!(ready.as_deref(), Some("ready"), "{:?}", self.library);
        Some(Bot(child))
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// What it has written down so far: a text or a word, and the id that its library gave or a reason.
    pub(super) fn rows(&self) -> Vec<(String, String)> {
        let written = std::fs::read_to_string(&self.journal).unwrap_or_default();
        let whole = written.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        whole.map(|row| (text_of(&row[0]), text_of(&row[1]))).collect()
    }

    /// Ids of what was sent with such a beginning.
    pub(super) fn ids(&self, beginning: &str) -> Vec<String> {
        let rows = self.rows().into_iter();
        rows.filter(|(text, _)| text.starts_with(beginning)).map(|(_, id)| id).collect()
    }

    /// Tells the bot something by a file; see tests/clients/bot.py.
    pub(super) fn tell(&self, word: &str) {
        std::fs::write(self.journal.with_extension(word), "").expect("written");
    }

    pub(super) fn take_back(&self, word: &str) {
        std::fs::remove_file(self.journal.with_extension(word)).expect("it was told");
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The whole scene.
pub(super) struct Stage {
    pub(super) home: Home,
    pub(super) phones: FakeProvider,
    pub(super) at: SocketAddr,
    program: Program,
    /// Removed with the scene.
    _folder: tempfile::TempDir,
}

impl Stage {
    /// `lines` go into the channel's section.
    pub(super) async fn new(library: Library, lines: &str, script: impl Fn(&Asked) -> Play + Send + Sync + 'static) -> Self {
        let folder = crate::quick_folder();
        let home = Home::new(library, folder.path());
        let phones = FakeProvider::start(script).await.expect("phones");
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (provider, token) = match library.is_of_whatsapp() {
            true => ("whatsapp", "a token for tests only"),
            false => ("telegram", "12345:a-token-for-tests-only"),
        };
        let target = if library.polls() { String::new() } else { format!("target = \"{}\"\n", home.url("/")) };
        let config = format!(
            "listen = \"{at}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n[channel.shop]\n\
             provider = \"{provider}\"\nsecret = \"{SECRET}\"\n{target}token = \"{token}\"\napi_base = \"{}\"\n\
             chat_rate = \"1000/s burst 1000\"\ndeliver = [\"message\"]\nattempts = 1000\nbackoff = \"20ms\"\n\
             backoff_cap = \"100ms\"\n{lines}\n",
            store_path(folder.path()).display(),
            phones.url(),
        );
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
        Self { home, phones, at, program, _folder: folder }
    }

    pub(super) async fn hapax(&self) -> Process {
        let (process, at) = self.program.serve().await.expect("hapax starts");
        assert_eq!(at, self.at);
        process
    }

    /// Starts the bot with hapax's address in place of its provider's.
    pub(super) async fn bot(&self) -> Option<Bot> {
        self.home.start(&format!("http://{}", self.at)).await
    }

    /// Somebody writes to the bot.
    pub(super) async fn write(&self, number: i64, text: &str) {
        let (phone, id) = (phone(number), format!("in.{number}"));
        let body = match self.home.library.is_of_whatsapp() {
            true => whatsapp_message(&id, &phone, text),
            false => telegram_message(number, &phone, text),
        };
        self.post(body.to_string()).await;
    }

    /// The provider posts this.
    pub(super) async fn post(&self, body: String) {
        let url = format!("http://{}/in/shop", self.at);
        assert_eq!(post_signed(&self.settings(), &url, body).await, 200);
    }

    fn settings(&self) -> Settings {
        let secrets = vec![SECRET.into()];
        match self.home.library.is_of_whatsapp() {
            true => Settings::Whatsapp { secrets, verify_token: None },
            false => Settings::Telegram { secrets, bot: "shop".to_owned() },
        }
    }

    /// Resolves when nothing is on its way to the bot any more.
    pub(super) async fn settled(&self) {
        all_done(self.at).await;
    }

    /// Resolves when the bot has asked so often for updates.
    pub(super) async fn polled(&self, times: u64) {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        eventually("polls", async || {
            let metrics = client.get(format!("http://{}/metrics", self.at)).bearer_auth(ADMIN_TOKEN).send().await;
            let text = metrics.expect("an answer").text().await.expect("a text");
            let line = text.lines().find_map(|line| line.strip_prefix("hapax_dropin_polls_total{channel=\"shop\"} "));
            line.and_then(|number| number.parse::<u64>().ok()).is_some_and(|polls| polls >= times)
        })
        .await;
    }

    /// Resolves when the bot has written down so many rows with such a beginning.
    pub(super) async fn written(&self, beginning: &str, rows: usize) {
        eventually(beginning, async || self.home.ids(beginning).len() >= rows).await;
    }

    /// What arrived at somebody's phone.
    pub(super) fn arrived(&self, number: i64) -> Vec<Arrived> {
        // Who has a name beside the number is written to by that name.
        let name = if self.home.library.is_of_whatsapp() { user(&phone(number)) } else { phone(number) };
        self.phones.phone(&name)
    }

    /// Three messages, in order, and each has one id: on the phone, and in each result that the library ever gave for it.
    pub(super) fn assert_three(&self, number: i64, text: &str) {
        self.assert_are_three(&self.arrived(number), text);
    }

    pub(super) fn assert_three_in_any_order(&self, number: i64, text: &str) {
        let mut arrived = self.arrived(number);
        arrived.sort_by(|one, other| one.text.cmp(&other.text));
        self.assert_are_three(&arrived, text);
    }

    fn assert_are_three(&self, arrived: &[Arrived], text: &str) {
        let texts: Vec<&str> = arrived.iter().filter_map(|arrived| arrived.text.as_deref()).collect();
        assert_eq!(texts.len(), 3, "{text}: {texts:?}");
        for (place, arrived) in arrived.iter().enumerate() {
            let beginning = format!("{text}: {} of 3", place + 1);
            assert!(texts[place].starts_with(&beginning), "{texts:?}");
            let id = arrived.provider_id.rsplit(':').next().unwrap_or_default();
            let ids = self.home.ids(&beginning);
            assert!(
                !ids.is_empty() && ids.iter().all(|own| own == id),
                "{beginning} is {id} on the phone, and {ids:?} for the bot"
            );
        }
    }
}

/// Posts as a provider with these settings does; gives the status.
pub(crate) async fn post_signed(settings: &Settings, url: &str, body: String) -> u16 {
    let mut headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HeaderName::from_static("webhook-id"), HeaderValue::from_static("msg_1")),
    ]);
    let unsigned = Unsigned { url: None, headers: &headers, body: body.as_bytes() };
    let signed = hapax_providers::build(settings).sign(unsigned, SystemClock::new().wall_ms());
    headers.extend(signed.into_iter().map(|(name, value)| (Some(name), value)));
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    client.post(url).headers(headers).body(body).send().await.expect("an answer").status().as_u16()
}

fn phone(number: i64) -> String {
    (551_190_000 + number).to_string()
}

/// What Meta calls somebody beside the number.
fn user(phone: &str) -> String {
    format!("BR.{phone}")
}

fn telegram_message(number: i64, chat: &str, text: &str) -> Value {
    let id: i64 = chat.parse().expect("a number");
    let message = json!({"message_id": number, "date": 1_760_000_000, "text": text,
        "chat": {"id": id, "type": "private", "first_name": "Ana"}, "from": {"id": id, "is_bot": false, "first_name": "Ana"}});
    json!({"update_id": number, "message": message})
}

fn whatsapp_message(id: &str, from: &str, text: &str) -> Value {
    let user = user(from);
    let message = json!({"from": from, "from_user_id": user, "id": id, "timestamp": "1760000000", "type": "text",
        "text": {"body": text}});
    let value = json!({"messaging_product": "whatsapp", "messages": [message],
        "metadata": {"display_phone_number": "15550009999", "phone_number_id": "700001"},
        "contacts": [{"profile": {"name": "Ana"}, "wa_id": from, "user_id": user}]});
    json!({"object": "whatsapp_business_account", "entry": [{"id": "900001", "changes": [{"field": "messages", "value": value}]}]})
}

/// One that stays free while nobody listens there: not from the range that outgoing connections are given theirs from.
fn free_port() -> u16 {
    loop {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
