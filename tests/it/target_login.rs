//! A user and password in a target's address: the bot gets them, and nobody else sees them.

use std::net::TcpListener;
use std::process::Stdio;

use hapax_gateway::settings::Channel;
use hapax_providers::settings::{FieldSource, GenericSettings, Settings, SignatureRule};
use hapax_testkit::fake_bot::{FakeBot, Say};

use crate::program::{ADMIN_TOKEN, Poster};
use crate::rig::{Opened, Rig, SECRET, channel, eventually, signature, text};

const PASSWORD: &str = "hunter2@home";

/// A server like any other, as its operator starts it, with all that it can log; colours are not turned off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_a_targets_address_reaches_the_bot_and_no_words_of_ours() {
    let bot = FakeBot::start(|call| Say::Status(if call.number == 0 { 500 } else { 200 })).await.expect("a bot");
    let with_login = |url: &str| url.replace("http://", "http://ana:hunter2%40home@");
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port that was free");
    let folder = crate::quick_folder();
    let channel = |name: &str, target: &str| {
        format!(
            "[channel.{name}]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\nbackoff = \"20ms\"\n\
             target = \"{0}\"\n[channel.{name}.targets]\n700009 = \"{0}\"\n",
            with_login(target)
        )
    };
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"memory:\"\n[log]\nfilter = \"trace\"\n{}{}",
        channel("shop", &bot.url()),
        channel("dead", &format!("http://{closed}/in"))
    );
    std::fs::write(folder.path().join("hapax.toml"), config).expect("a config");
    let hapax = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.args(arguments).current_dir(folder.path()).env_remove("NO_COLOR").stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let file = |name: &str| std::fs::File::create(folder.path().join(name)).expect("a file");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("readable");
    let serving = hapax(&["serve"]).stdout(file("said")).stderr(file("logged")).spawn().expect("it starts");
    eventually("it listens", async || read("said").contains("Stop with Ctrl-C")).await;
    let address = read("said").split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let address = address.expect("an address");

    let poster = Poster::new();
    assert_eq!(poster.post(address, text("wamid.A", "1")).await.expect("an answer").status, 200);
    let body = text("wamid.B", "2");
    let dead = reqwest::Client::new()
        .post(format!("http://{address}/in/dead"))
        .header("x-hub-signature-256", signature(body.as_bytes()));
    assert_eq!(dead.body(body).send().await.expect("an answer").status(), 200);
    let calls = bot.called(2).await;
    // What `printf 'ana:hunter2@home' | base64` says.
    assert_eq!(calls[0].header("authorization"), "Basic YW5hOmh1bnRlcjJAaG9tZQ==");
    eventually("the dead one is noticed", async || read("logged").contains("the target seems dead")).await;

    let mut shown = String::new();
    for path in ["/v1/channels", "/v1/inbox", "/v1/events", "/metrics", "/readyz"] {
        shown += &poster.get(address, path).await.expect("an answer");
    }
    let events: serde_json::Value =
        serde_json::from_str(&poster.get(address, "/v1/events").await.expect("events")).expect("JSON");
    for event in events["events"].as_array().expect("a list") {
        let path = format!("/v1/events/{}/story", event["id"].as_str().expect("an id"));
        shown += &poster.get(address, &path).await.expect("a story");
    }
    for arguments in [&["check"][..], &["config", "show"], &["config", "show", "--json"]] {
        let output = hapax(arguments).output().await.expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        shown += &String::from_utf8_lossy(&output.stdout);
        shown += &String::from_utf8_lossy(&output.stderr);
    }
    drop(serving);
    let logged = read("logged");
    assert!(logged.contains("hyper"), "the client's own words are logged too");
    for secret in [PASSWORD, "hunter2", "YW5hOmh1bnRlcjJAaG9tZQ"] {
        assert!(!shown.contains(secret) && !read("said").contains(secret) && !logged.contains(secret), "{secret} is shown");
    }
    assert!(!logged.contains('\u{1b}'), "a file is no terminal: there are no colours in it");
}

/// What a channel signs with is what its bot checks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_in_the_address_does_not_replace_the_channels_own_proof() {
    let bot = FakeBot::willing().await.expect("a bot");
    let header = http::header::AUTHORIZATION;
    let signature = SignatureRule::Token { header, prefix: "Bearer ".to_owned(), secrets: vec!["a-token-of-the-sender".into()] };
    let generic = GenericSettings {
        channel: "any".to_owned(),
        signature,
        id: Some(FieldSource::Pointer("/id".to_owned())),
        id_parts: Vec::new(),
        thread: None,
    };
    let target = bot.url().replace("http://", "http://ana:hunter2@");
    let any = Channel { provider: Settings::Generic(generic), ..channel("any", Some(target)) };
    let rig = Rig::start(Opened::memory(), vec![any]).await;
    let ask = rig.client.post(rig.url("/in/any")).bearer_auth("a-token-of-the-sender");
    assert_eq!(ask.body(r#"{"id":"1"}"#).send().await.expect("an answer").status(), 200);
    assert_eq!(bot.called(1).await[0].header("authorization"), "Bearer a-token-of-the-sender");
}

/// Users and passwords are bytes: none is cut, and none stays in the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_no_text_is_sent_whole() {
    // What `printf 'an\377:p' | base64` and `printf 'ana:p\377w' | base64` say.
    for (login, sent) in [("an%ff:p", "Basic YW7/OnA="), ("ana:p%FFw", "Basic YW5hOnD/dw=="), (":p%40", "Basic OnBA")] {
        let bot = FakeBot::willing().await.expect("a bot");
        let target = bot.url().replace("http://", &format!("http://{login}@"));
        let rig = Rig::start(Opened::memory(), vec![channel("shop", Some(target))]).await;
        rig.accepted("shop", text("wamid.A", "1")).await;
        assert_eq!(bot.called(1).await[0].header("authorization"), sent, "{login}");
        rig.stop().await;
    }
}
