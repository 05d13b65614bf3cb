//! Which listener serves what.

use std::net::SocketAddr;
use std::sync::Arc;

use hapax_gateway::server::Listeners;
use hapax_gateway::settings::Channel;
use hapax_gateway::telemetry::Telemetry;
use hapax_providers::samples::fresh_nonce;
use hapax_providers::settings::Settings;
use hapax_server::open::open_on;
use hapax_store::memory::MemoryStore;
use hapax_testkit::hand_clock::HandClock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rig::{Opened, Rig, SECRET, channel, config, eventually, text};
use crate::wire::{Wire, signed};

on_every_store! {
    strangers_hear_whether_it_is_ready_and_no_more
    a_token_made_once_does_not_come_back_when_the_operators_own_is_unset
    a_sample_is_signed_by_the_server_and_taken_in_like_any_webhook
    the_admin_surface_on_its_own_port_is_not_on_the_public_one
}

async fn status_of(address: SocketAddr, request: &[u8]) -> u16 {
    let mut wire = Wire::open(address).await;
    wire.send(request).await;
    wire.hear().await.expect("an answer").status
}

async fn the_admin_surface_on_its_own_port_is_not_on_the_public_one(opened: Opened) {
    let server = open_on(opened.store, opened.clock, &config(vec![channel("shop", None)]), Telemetry::new()).await;
    let server = server.expect("the server opens");
    let (public, admin) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
    let (public, admin) = (public.expect("a port"), admin.expect("a port"));
    let (public_at, admin_at) = (public.local_addr().expect("an address"), admin.local_addr().expect("an address"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(Listeners { public, admin: Some(admin), dropin: None, resp: None }, stop.clone()));

    let get = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: hapax\r\nauthorization: Bearer an admin token for tests\r\n\r\n").into_bytes()
    };
    for (path, on_public, on_admin) in
        [("/healthz", 200, 200), ("/readyz", 200, 200), ("/metrics", 404, 200), ("/v1/stats", 404, 200)]
    {
        assert_eq!(status_of(public_at, &get(path)).await, on_public, "{path} on the public port");
        assert_eq!(status_of(admin_at, &get(path)).await, on_admin, "{path} on the admin port");
    }
    let webhook = signed("shop", &text("wamid.A", "1"));
    assert_eq!(status_of(admin_at, &webhook).await, 404);
    assert_eq!(status_of(public_at, &webhook).await, 200);

    stop.cancel();
    running.await.expect("it ends").expect("it ends well");
}

/// The secret of a provider whose signature is the secret must not leave, not even towards an admin.
async fn a_sample_is_signed_by_the_server_and_taken_in_like_any_webhook(opened: Opened) {
    let telegram = Settings::Telegram { secrets: vec![SECRET.replace(' ', "-").into()], bot: "help".to_owned() };
    let rig = Rig::start(opened, vec![Channel { provider: telegram, ..channel("help", None) }]).await;
    for (nonce, word) in [(1, "accepted"), (1, "duplicate"), (2, "accepted")] {
        let ask = rig.client.post(rig.url("/v1/channels/help/trigger")).bearer_auth("an admin token for tests");
        let answer = ask.json(&serde_json::json!({"kind": "text", "nonce": nonce})).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let said = answer.text().await.expect("a whole answer");
        assert!(!said.contains("secret"), "{said}");
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!((&said["status"], &said["answer"]["status"]), (&200.into(), &word.into()), "{said}");
    }
    assert_eq!(rig.events().await.len(), 2);
    rig.stop().await;
}

/// A sample that comes again is a copy, however much later: its times are its nonce's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_nonce_is_a_copy_an_hour_later() {
    let noon_ms = 1_760_011_200_000;
    let clock = HandClock::at(noon_ms);
    let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let opened = Opened { store, clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let fresh = fresh_nonce(noon_ms, 4_711);
    for (nonce, word) in [(7, "accepted"), (fresh, "accepted"), (7, "duplicate"), (fresh, "duplicate")] {
        let ask = rig.client.post(rig.url("/v1/channels/shop/trigger")).bearer_auth("an admin token for tests");
        let answer = ask.json(&serde_json::json!({"kind": "text", "nonce": nonce})).send().await.expect("an answer");
        let said: serde_json::Value = answer.json().await.expect("JSON");
        assert_eq!(said["answer"]["status"], word, "{said}");
        clock.advance(3_600_000);
    }
    rig.stop().await;
}

/// What a person does first: start it, and try it from another terminal. No token is shown anywhere, and none is typed.
#[tokio::test]
async fn the_first_token_goes_to_a_private_file_and_nowhere_else() {
    use std::os::unix::fs::PermissionsExt;
    let folder = crate::quick_folder();
    let hapax = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
        command
            .args(arguments)
            .current_dir(folder.path())
            .env_remove("HAPAX_ADMIN_TOKEN")
            .env("NO_COLOR", "1")
            .kill_on_drop(true);
        command
    };
    let out = std::fs::File::create(folder.path().join("said")).expect("a file");
    let mut serving = hapax(&["serve", "--listen", "127.0.0.1:0"]);
    serving.stdin(std::process::Stdio::null()).stdout(out.try_clone().expect("a handle")).stderr(out);
    let mut serving = serving.spawn().expect("it starts");
    let said = || std::fs::read_to_string(folder.path().join("said")).expect("readable");
    eventually("it listens", async || said().contains("Stop with Ctrl-C")).await;

    let file = folder.path().join("hapax.token");
    assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).expect("readable");
    assert!(token.starts_with("hpx_") && !said().contains("hpx_"), "{}", said());
    let server = said().lines().find_map(|line| Some(format!("http://{}", line.split("http://").nth(1)?))).expect("an address");
    let answer = hapax(&["trigger", "telegram.text", "--times", "3", "--server", &server]).output().await.expect("it runs");
    let words = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.status.success() && words.contains("1 accepted, 2 copies suppressed"), "{words}{answer:?}");
    serving.kill().await.expect("it was there");
}

const ADMIN: &str = "an admin token for tests";

async fn strangers_hear_whether_it_is_ready_and_no_more(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let made = rig.client.post(rig.url("/v1/tokens")).bearer_auth(ADMIN);
    let made = made.json(&serde_json::json!({"name": "prometheus", "scopes": ["read"]})).send().await.expect("an answer");
    let made: serde_json::Value = made.json().await.expect("JSON");
    let reader = made["token"].as_str().expect("shown once").to_owned();
    let sender = rig.client.post(rig.url("/v1/tokens")).bearer_auth(ADMIN);
    let sender = sender.json(&serde_json::json!({"name": "bot", "scopes": ["send"]})).send().await.expect("an answer");
    let sender: serde_json::Value = sender.json().await.expect("JSON");
    let limited = rig.client.post(rig.url("/v1/tokens")).bearer_auth(ADMIN);
    let limited = limited.json(&serde_json::json!({"name": "shop", "scopes": ["read"], "channels": ["shop"]}));
    let limited: serde_json::Value = limited.send().await.expect("an answer").json().await.expect("JSON");
    let ask = async |path: &str, token: Option<&str>| {
        let ask = rig.client.get(rig.url(path));
        let ask = token.into_iter().fold(ask, |ask, token| ask.bearer_auth(token));
        let answer = ask.send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a whole answer"))
    };
    assert_eq!(ask("/readyz", None).await, (200, "{\"status\":\"ready\"}".to_owned()));
    assert_eq!(ask("/metrics", None).await.0, 401);
    for token in [ADMIN, &reader] {
        assert!(ask("/readyz", Some(token)).await.1.contains("promise"));
        assert!(ask("/metrics", Some(token)).await.1.contains("hapax_connections"));
    }
    for (path, token) in [("/metrics", &sender), ("/metrics", &limited), ("/readyz", &limited)] {
        assert_eq!(ask(path, token["token"].as_str()).await.0, 403, "{path}");
    }
    assert_eq!(ask("/readyz", Some("a wrong one")).await.0, 401);
    rig.counted("hapax_tokens_refused_total", 1).await;
    rig.stop().await;
}

async fn a_token_made_once_does_not_come_back_when_the_operators_own_is_unset(opened: Opened) {
    let Opened { store, clock, folder } = opened;
    let start = async |own: Option<&str>| {
        let config = hapax_server::config::Config { admin_token: own.map(Into::into), ..config(vec![channel("shop", None)]) };
        let server = open_on(std::sync::Arc::clone(&store), std::sync::Arc::clone(&clock), &config, Telemetry::new()).await;
        let server = server.expect("the server opens");
        let fresh = server.admin_token().fresh.clone();
        let public = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (at, stop) = (public.local_addr().expect("an address"), CancellationToken::new());
        let running = tokio::spawn(server.run(Listeners { public, admin: None, dropin: None, resp: None }, stop.clone()));
        (at, fresh, stop, running)
    };
    let get = async |at: SocketAddr, token: &str| {
        let ask = format!("GET /v1/inbox HTTP/1.1\r\nhost: hapax\r\nauthorization: Bearer {token}\r\n\r\n");
        status_of(at, ask.as_bytes()).await
    };
    let (at, made, stop, running) = start(None).await;
    let made = made.expect("made at the first start");
    let made = secrecy::ExposeSecret::expose_secret(&made);
    assert_eq!(get(at, made).await, 200);
    stop.cancel();
    running.await.expect("it ends").expect("it ends well");

    let (at, fresh, stop, running) = start(Some("a token of the operator's own")).await;
    assert!(fresh.is_none());
    assert_eq!((get(at, "a token of the operator's own").await, get(at, made).await), (200, 401));
    stop.cancel();
    running.await.expect("it ends").expect("it ends well");

    let (at, fresh, stop, running) = start(None).await;
    assert!(fresh.is_some(), "a new one is made");
    assert_eq!((get(at, "a token of the operator's own").await, get(at, made).await), (401, 401));
    stop.cancel();
    running.await.expect("it ends").expect("it ends well");
    drop(folder);
}

#[tokio::test]
async fn the_real_program_does_not_open_its_admin_surface_by_accident() {
    let folder = crate::quick_folder();
    let config = "listen = \"0.0.0.0:0\"\nstore = \"memory:\"\n";
    let program = hapax_testkit::process::Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), config).expect("a config");
    let ended = program.ends().await.expect("it runs");
    assert_eq!(ended.code, Some(3), "{}", ended.words);
    assert!(ended.words.contains("admin_listen") && ended.words.contains("Docker"), "{}", ended.words);
}
