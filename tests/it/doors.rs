//! Which listener serves what.

use std::net::SocketAddr;

use hapax::config::Channel;
use hapax::providers::settings::Settings;
use hapax::server::{Listeners, Server};
use hapax::telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rig::{Opened, Rig, SECRET, channel, config, eventually, text};
use crate::wire::{Wire, signed};

on_every_store! {
    a_sample_is_signed_by_the_server_and_taken_in_like_any_webhook
    the_admin_surface_on_its_own_port_is_not_on_the_public_one
}

async fn status_of(address: SocketAddr, request: &[u8]) -> u16 {
    let mut wire = Wire::open(address).await;
    wire.send(request).await;
    wire.hear().await.expect("an answer").status
}

async fn the_admin_surface_on_its_own_port_is_not_on_the_public_one(opened: Opened) {
    let server = Server::on(opened.store, opened.clock, config(vec![channel("shop", None)]), Telemetry::new()).await;
    let server = server.expect("the server opens");
    let (public, admin) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
    let (public, admin) = (public.expect("a port"), admin.expect("a port"));
    let (public_at, admin_at) = (public.local_addr().expect("an address"), admin.local_addr().expect("an address"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(Listeners { public, admin: Some(admin) }, stop.clone()));

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
    assert!(answer.status.success() && words.contains("1 accepted, 2 suppressed"), "{words}{answer:?}");
    serving.kill().await.expect("it was there");
}
