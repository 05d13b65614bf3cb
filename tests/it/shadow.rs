//! `hapax shadow` as an operator starts it: nothing changes for the bot or its provider, and what it counts is right.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::gated_bot::GatedBot;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::phones::Phones;
use crate::rig::{SECRET, eventually, in_time, signature, text};

/// A shadow that runs, and where it listens.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
    webhooks: SocketAddr,
    sends: Option<SocketAddr>,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Running {
    async fn start(arguments: &[&str], config: Option<&str>) -> Self {
        let folder = crate::quick_folder();
        if let Some(config) = config {
            std::fs::write(folder.path().join("hapax.toml"), config).expect("a config");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.arg("shadow").args(["--json", "--listen", "127.0.0.1:0"]).args(arguments);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("its words"));
        let first = next_object(&mut said).await;
        let at = |way: &Value| way["listen"].as_str().and_then(|url| url.strip_prefix("http://")?.parse().ok());
        let webhooks = at(&first["ways"]["webhooks"]).expect("an address");
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { child, said, webhooks, sends: at(&first["ways"]["sends"]), client, _folder: folder }
    }

    async fn post(&self, body: &str) -> reqwest::Response {
        let body = body.to_owned();
        let posted = self.client.post(format!("http://{}/webhook", self.webhooks)).header("content-type", "application/json");
        let signed = posted.header("x-hub-signature-256", signature(body.as_bytes()));
        signed.body(body).send().await.expect("an answer")
    }

    /// Stops it as Ctrl-C does, and reads its last report.
    async fn report(mut self) -> Value {
        let id = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().expect("it is told").success());
        let report = in_time("its report", next_object(&mut self.said)).await;
        assert!(in_time("its end", self.child.wait()).await.expect("it ends").success());
        assert_eq!(report["shadow"], "ended");
        report
    }
}

/// The next object that is printed; it ends with a brace in the first column.
async fn next_object(said: &mut BufReader<ChildStdout>) -> Value {
    let mut object = String::new();
    loop {
        let mut line = String::new();
        let read = in_time("a line", said.read_line(&mut line)).await.expect("text");
        assert!(read > 0, "it ended: {object}");
        object += &line;
        if line.trim_end() == "}" {
            return serde_json::from_str(&object).expect("JSON");
        }
    }
}

fn update(number: u32) -> String {
    json!({"update_id": number, "message": {"message_id": number, "date": 1, "chat": {"id": 77}, "text": "hi"}}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_a_request_and_all_of_its_answer_pass_unchanged() {
    let bot = FakeBot::start(|call| Say::Answer {
        status: if call.number == 0 { 418 } else { 201 },
        headers: vec![("x-of-the-bot", "kept".to_owned()), ("set-cookie", "a=1".to_owned()), ("set-cookie", "b=2".to_owned())],
        body: format!("heard {} bytes", call.body.len()),
    });
    let bot = bot.await.expect("a bot");
    let to = format!("http://{}", bot.address);
    let shadow = Running::start(&["--provider", "whatsapp", "--to", &to], None).await;
    // No webhook at all, not even JSON: passed on like any other.
    let odd =
        shadow.client.put(format!("http://{}/any/path?a=1&b=%2F", shadow.webhooks)).header("x-odd", "\u{e9}t\u{e9}".as_bytes());
    let answer = odd.header("accept", "text/x-verdict").body(vec![0_u8, 255, 10]).send().await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.headers()["x-of-the-bot"].as_bytes()), (418, &b"kept"[..]));
    let cookies: Vec<_> = answer.headers().get_all("set-cookie").iter().map(|value| value.as_bytes().to_vec()).collect();
    assert_eq!(cookies, [b"a=1".to_vec(), b"b=2".to_vec()]);
    assert_eq!(answer.text().await.expect("a body"), "heard 3 bytes");
    let large = format!("{{\"large\":\"{}\"}}", "x".repeat(3 << 20));
    let answer = shadow.post(&large).await;
    assert_eq!((answer.status().as_u16(), answer.text().await.expect("a body")), (201, format!("heard {} bytes", large.len())));
    let calls = bot.calls();
    assert_eq!((calls[0].headers["x-odd"].as_bytes(), &calls[0].body[..]), ("\u{e9}t\u{e9}".as_bytes(), &[0, 255, 10][..]));
    assert_eq!((calls[0].header("accept"), calls[0].header("content-length")), ("text/x-verdict", "3"));
    assert_eq!(calls[0].header("host"), shadow.webhooks.to_string(), "whom the provider called is part of some signatures");
    assert_eq!(calls[1].header("x-hub-signature-256"), signature(large.as_bytes()));
    let report = shadow.report().await;
    assert_eq!((&report["webhooks"]["all"], &report["events"]["unreadable"]), (&json!(1), &json!(1)), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_reach_the_bot_are_counted_by_what_it_was_doing() {
    let bot = GatedBot::start(|call| call.number < 2).await;
    let shadow = Arc::new(Running::start(&["--provider", "whatsapp", "--to", &bot.fake.url()], None).await);
    let post = |body: String| {
        let shadow = Arc::clone(&shadow);
        tokio::spawn(async move { shadow.post(&body).await.status().as_u16() })
    };
    let first = post(text("wamid.A", "1"));
    bot.fake.called(1).await;
    let second = post(text("wamid.A", "1"));
    bot.fake.called(2).await;
    bot.let_go(2);
    assert_eq!((first.await.expect("no panic"), second.await.expect("no panic")), (200, 200));
    for _ in 0..3 {
        assert_eq!(shadow.post(&text("wamid.A", "1")).await.status(), 200);
    }
    assert_eq!(shadow.post(&text("wamid.B", "1")).await.status(), 200);
    assert_eq!(bot.fake.calls().len(), 6, "all of them reached it");
    let report = Arc::into_inner(shadow).expect("nobody else has it").report().await;
    let copies = json!({"all": 4, "while_at_work": 1, "after_taken": 3, "after_failure": 0, "after_giving_up": 0, "with_other_content": 0});
    assert_eq!((&report["copies"], &report["events"]["all"]), (&copies, &json!(6)), "{report}");
    assert_eq!((&report["signatures_checked"], &report["sends"]), (&json!(false), &Value::Null));
}

/// The bot sends by itself, as bots do: run twice, it sends twice, and the report says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_after_a_copy_is_counted_as_one_too_many() {
    let phones = Phones::willing().await;
    let sends = Arc::new(std::sync::OnceLock::<SocketAddr>::new());
    let (client, known) = (reqwest::Client::builder().no_proxy().build().expect("a client"), Arc::clone(&sends));
    let script = move |_| -> BoxFuture<'static, Say> {
        let (client, known) = (client.clone(), Arc::clone(&known));
        Box::pin(async move {
            let api = format!("http://{}/bot12:abc/sendMessage", known.get().expect("it listens"));
            let sent = client.post(api).json(&json!({"chat_id": 77, "text": "Thank you!"})).send().await.expect("an answer");
            Say::Status(sent.status().as_u16())
        })
    };
    let bot = FakeBot::start_slow(script).await.expect("a bot");
    let arguments =
        ["--provider", "telegram", "--to", &bot.url(), "--send-listen", "127.0.0.1:0", "--send-to", &phones.provider.url()];
    let shadow = Running::start(&arguments, None).await;
    sends.set(shadow.sends.expect("an address")).expect("once");
    for body in [update(1), update(1), update(2)] {
        assert_eq!(shadow.post(&body).await.status(), 200);
    }
    assert_eq!(phones.reached().len(), 3, "nothing is held back");
    assert_eq!(phones.reached()[0].text.as_deref(), Some("Thank you!"));
    let report = shadow.report().await;
    assert_eq!(report["copies"]["all"], 1, "{report}");
    // The third equals the others too, but one copy explains one send.
    assert_eq!(report["sends"], json!({"all": 3, "double": 1, "repeated": 1}), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_channels_secret_signatures_are_checked_and_still_everything_passes() {
    let bot = FakeBot::willing().await.expect("a bot");
    let config = format!(
        "[channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\ntarget = \"{}\"\n",
        bot.url()
    );
    let shadow = Running::start(&["--channel", "shop"], Some(&config)).await;
    assert_eq!(shadow.post(&text("wamid.A", "1")).await.status(), 200);
    let forged = shadow.client.post(format!("http://{}/webhook", shadow.webhooks)).header("x-hub-signature-256", "sha256=00");
    assert_eq!(forged.body(text("wamid.B", "1")).send().await.expect("an answer").status(), 200);
    assert_eq!(bot.calls().len(), 2);
    let report = shadow.report().await;
    assert_eq!(report["webhooks"], json!({"all": 2, "refused": 1, "unanswered": 0}), "{report}");
    assert_eq!((&report["events"]["all"], &report["signatures_checked"]), (&json!(1), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_that_is_down_is_a_bad_gateway_and_one_that_takes_its_time_is_waited_for() {
    let bot = GatedBot::start(|_| true).await;
    let address = bot.fake.address;
    let shadow = Running::start(&["--provider", "whatsapp", "--to", &format!("http://{address}")], None).await;
    let url = format!("http://{}/webhook", shadow.webhooks);
    // The provider loses its patience; the bot is still at it when the copy comes.
    let hasty = shadow.client.post(&url).timeout(Duration::from_millis(300)).body(text("wamid.A", "1")).send().await;
    assert!(hasty.is_err_and(|error| error.is_timeout()));
    bot.let_go(5);
    eventually("the next one gets through", async || shadow.post(&text("wamid.A", "1")).await.status() == 200).await;
    drop(bot);
    eventually("it is gone", async || shadow.post(&text("wamid.B", "1")).await.status() == 502).await;
    let report = shadow.report().await;
    assert!(report["webhooks"]["unanswered"].as_u64().is_some_and(|count| count >= 1), "{report}");
    assert!(report["copies"]["after_giving_up"].as_u64().is_some_and(|count| count >= 1), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_watched_is_said_at_once() {
    for (arguments, said) in [
        (&["--provider", "telegramm", "--to", "http://127.0.0.1:1"][..], "`telegramm` is no provider; use one of whatsapp"),
        (&["--provider", "generic", "--to", "http://127.0.0.1:1"], "name the channel with --channel"),
        (
            &["--provider", "stripe", "--to", "http://127.0.0.1:1", "--send-listen", "127.0.0.1:0"],
            "--send-listen needs --send-to",
        ),
        (&["--to", "http://127.0.0.1:1"], "--provider <NAME>"),
        (&["--channel", "nope"], "there is no [channel.nope]"),
    ] {
        let folder = crate::quick_folder();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.arg("shadow").args(arguments).args(["--listen", "127.0.0.1:0"]).current_dir(folder.path());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
        let mut words = String::new();
        child.stderr.take().expect("its words").read_to_string(&mut words).await.expect("text");
        assert!(
            !in_time("its end", child.wait()).await.expect("it ends").success() && words.contains(said),
            "{arguments:?}: {words}"
        );
    }
}
