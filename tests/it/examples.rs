//! The bots in `examples/`, each started as its first lines say, behind the real program. Where its language or library is not installed, a
//! test is skipped.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hapax_providers::settings::Settings;
use hapax_testkit::fake_provider::{FakeProvider, Play};
use hapax_testkit::process::Program;
use hapax_testkit::servers::skip;
use tokio::process::{Child, Command};

use crate::libraries::post_signed;
use crate::program::{ADMIN_TOKEN, store_path};
use crate::rig::eventually;

const SECRET: &str = "a-secret-that-the-example-has-too";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_flask_bot_answers_once() {
    let python = installed("python/bin/python");
    answers_once("whatsapp", python, &["flask_bot.py"], "You said: hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fastapi_bot_answers_once_after_thinking() {
    let server = installed("python/bin/uvicorn");
    let arguments = ["--app-dir", "", "--port", "PORT", "fastapi_llm:app"];
    answers_once("telegram", server, &arguments, "After 0.2 seconds of thought: hello?").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_bot_answers_once() {
    answers_once("whatsapp", Some("node".into()), &["bot.mjs"], "You said: hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_php_bot_answers_once() {
    answers_once("whatsapp", Some("php".into()), &["-S", "127.0.0.1:PORT", "bot.php"], "You said: hello").await;
}

/// Three copies of one message come in, and one answer goes out.
async fn answers_once(provider: &str, runtime: Option<PathBuf>, arguments: &[&str], expected: &str) {
    let folder = crate::quick_folder();
    let port = free_port();
    let Some(_bot) = start(runtime, arguments, port).await else { return };
    let phones = FakeProvider::start(|_| Play::Act).await.expect("phones");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n[channel.shop]\n\
         provider = \"{provider}\"\nsecret = \"{SECRET}\"\ntarget = \"http://127.0.0.1:{port}/webhook\"\ntoken = \"12345:a-token-for-tests-only\"\n\
         api_base = \"{}\"\n",
        store_path(folder.path()).display(),
        phones.url(),
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let (_hapax, at) = program.serve().await.expect("hapax starts");
    let secrets = vec![SECRET.into()];
    let (settings, body) = match provider {
        "telegram" => (Settings::Telegram { secrets, bot: "shop".to_owned() }, TELEGRAM),
        _ => (Settings::Whatsapp { secrets, verify_token: None }, WHATSAPP),
    };
    for _ in 0..3 {
        assert_eq!(post_signed(&settings, &format!("http://{at}/in/shop"), body.to_owned()).await, 200);
    }
    eventually("an answer", async || !phones.phone("5511988887777").is_empty()).await;
    crate::conversation::all_done(at).await;
    let texts: Vec<_> = phones.phone("5511988887777").into_iter().filter_map(|arrived| arrived.text).collect();
    assert_eq!(texts, [expected]);
}

/// Starts a bot and waits until it listens; `None` where it cannot run, which was said.
async fn start(runtime: Option<PathBuf>, arguments: &[&str], port: u16) -> Option<Child> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let argument = |text: &&str| match *text {
        "" => examples.display().to_string(),
        file if file.ends_with(".py") || file.ends_with(".mjs") || file.ends_with(".php") => {
            examples.join(file).display().to_string()
        }
        text => text.replace("PORT", &port.to_string()),
    };
    let spawned = runtime.as_ref().and_then(|runtime| {
        let mut command = Command::new(runtime);
        command.args(arguments.iter().map(argument)).env("PORT", port.to_string());
        command.env("META_APP_SECRET", SECRET).env("TELEGRAM_SECRET", SECRET).env("THINKING_SECONDS", "0.2");
        command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true).spawn().ok()
    });
    let Some(child) = spawned else {
        skip(arguments.last().copied().unwrap_or_default(), "tests/install-clients.sh", true);
        return None;
    };
    eventually("the bot listens", async || tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()).await;
    Some(child)
}

fn installed(file: &str) -> Option<PathBuf> {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    Some(clients.join(file)).filter(|path| clients.join("python.installed").exists() && path.exists())
}

fn free_port() -> u16 {
    loop {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

const WHATSAPP: &str = r#"{"object":"whatsapp_business_account","entry":[{"id":"900001","changes":[{"field":"messages","value":{
    "messaging_product":"whatsapp","metadata":{"display_phone_number":"15550009999","phone_number_id":"700001"},
    "messages":[{"from":"5511988887777","id":"wamid.1","timestamp":"1760000000","type":"text","text":{"body":"hello"}}]}}]}]}"#;

const TELEGRAM: &str = r#"{"update_id":1,"message":{"message_id":1,"date":1760000000,"text":"hello",
    "chat":{"id":5511988887777,"type":"private"},"from":{"id":5511988887777,"is_bot":false,"first_name":"Ana"}}}"#;
