//! A socket that the service manager holds: hapax restarts under load, and nobody hears of it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::process::Program;
use tokio::net::UnixDatagram;

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, store_path};
use crate::rig::{SECRET, eventually, in_time, signature, text};

const RESTARTS: usize = 3;
const POSTERS: usize = 8;
/// Webhooks between two restarts, at least.
const BETWEEN: usize = 60;

fn activated(folder: &Path, socket: TcpListener, listen: SocketAddr, target: &str) -> Program {
    let config = format!(
        "listen = \"{listen}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n\
         [channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\ntarget = \"{target}\"\n",
        store_path(folder).display()
    );
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file").on_socket(socket)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_under_load_refuse_nothing_and_call_nobody_twice() {
    let folder = disk_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("an address");
    let program = activated(folder.path(), socket, at, &bot.url());
    let (mut process, said) = program.serve().await.expect("it starts");
    assert_eq!(said, at, "it serves on the socket that it was given");

    let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let posting: Vec<_> =
        (0..POSTERS).map(|poster| tokio::spawn(post_on(poster, at, Arc::clone(&stop), Arc::clone(&taken)))).collect();
    for restart in 1..=RESTARTS {
        let wanted = restart * BETWEEN;
        eventually("some load", async || taken.load(Ordering::Relaxed) >= wanted).await;
        assert!(process.stop().await.expect("it stops").success(), "a clean stop");
        process = program.serve().await.expect("it starts again").0;
    }
    let wanted = taken.load(Ordering::Relaxed) + BETWEEN;
    eventually("load after the last restart", async || taken.load(Ordering::Relaxed) >= wanted).await;
    stop.store(true, Ordering::Relaxed);
    let mut posted = 0;
    for poster in posting {
        posted += poster.await.expect("every webhook was answered 200");
    }
    bot.called(posted).await;
    let poster = Poster::new();
    eventually("nothing waits", async || poster.on_their_way(at).await == Some(0)).await;
    process.stop().await.expect("it stops");
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in bot.calls() {
        *calls.entry(call.event_id().to_owned()).or_default() += 1;
    }
    assert_eq!(calls.len(), posted, "each webhook reached the bot");
    assert!(calls.values().all(|times| *times == 1), "and no more than once");
}

/// Posts webhooks of its own, each on a new connection, until told to stop; gives how many there were.
async fn post_on(poster: usize, at: SocketAddr, stop: Arc<AtomicBool>, taken: Arc<AtomicUsize>) -> usize {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let body = text(&format!("wamid.{poster}.{number}"), &format!("55119{poster:04}"));
        let request = client.post(format!("http://{at}/in/shop")).header("content-type", "application/json");
        let sent = request.header("x-hub-signature-256", signature(body.as_bytes())).body(body).send();
        let answer = in_time("an answer", sent).await.unwrap_or_else(|why| panic!("webhook {number} of {poster}: {why:?}"));
        assert_eq!(answer.status(), 200, "webhook {number} of {poster}");
        number += 1;
        taken.fetch_add(1, Ordering::Relaxed);
    }
    number
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_is_open_to_more_than_the_config_says_is_refused() {
    let folder = disk_folder();
    let socket = TcpListener::bind("0.0.0.0:0").expect("a port");
    let listen = SocketAddr::from(([127, 0, 0, 1], socket.local_addr().expect("an address").port()));
    // The config's own address is free: without the check both would be open, and strangers would wait at the other for ever.
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    for (listen, code) in [(listen, 1), (free, 3)] {
        let program = activated(folder.path(), socket.try_clone().expect("a copy"), listen, "http://127.0.0.1:1");
        let mut process = program.start().expect("it starts");
        assert!(process.address().await.is_err(), "it must not serve");
        assert_eq!(process.stop().await.expect("it ended").code(), Some(code));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_manager_hears_when_it_is_ready_and_when_it_stops() {
    let folder = disk_folder();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n",
        store_path(folder.path()).display()
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let (process, _) = program.after(&format!("export NOTIFY_SOCKET={}", path.display())).serve().await.expect("it starts");
    let mut heard = vec![0; 200];
    let long = in_time("a word", manager.recv(&mut heard)).await.expect("readable");
    assert_eq!(String::from_utf8_lossy(&heard[..long]).trim(), "READY=1");
    process.stop().await.expect("it stops");
    let long = in_time("a word", manager.recv(&mut heard)).await.expect("readable");
    assert_eq!(String::from_utf8_lossy(&heard[..long]).trim(), "STOPPING=1");
}
