//! Guests who behave badly: they are hung up on, and cost little.

use std::net::SocketAddr;
use std::path::Path;

use hapax_testkit::process::{Process, Program};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::OpenDoor;
use super::talk::Talk;
use crate::program::{ADMIN_TOKEN, store_path};
use crate::rig::{Opened, eventually, in_time};

/// Everything that is said before the connection ends.
async fn last_words(mut talk: TcpStream) -> String {
    let mut heard = Vec::new();
    let _ = in_time("the end of a connection", talk.read_to_end(&mut heard)).await;
    String::from_utf8_lossy(&heard).into_owned()
}

/// The program with a door, which is at this address; `more` are lines of its config, and `limits` those of that section.
async fn serve(folder: &Path, more: &str, limits: &str) -> (Process, SocketAddr) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nresp_listen = \"127.0.0.1:{port}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n\
         {more}[log]\nfilter = \"off\"\n[limits]\n{limits}\n",
        store_path(folder).display()
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file");
    let (process, _) = program.serve().await.expect("it starts");
    (process, SocketAddr::from(([127, 0, 0, 1], port)))
}

async fn sends(door: &OpenDoor, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(door.at).await.expect("a connection");
    // Who is hung up on in the middle of a write may get an error for it.
    let _ = stream.write_all(bytes).await;
    last_words(stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_and_garbage_are_hung_up_on() {
    let door = OpenDoor::start(Opened::memory()).await;
    let posted = sends(&door, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nSET a b\r\n").await;
    assert_eq!(posted, "", "not a word");
    let got = sends(&door, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(got, "-NOAUTH Authentication required.\r\n");
    for (garbage, said) in [
        (&b"*1\r\n$1073741824\r\n"[..], "invalid bulk length"),
        (b"*1073741824\r\n", "invalid multibulk length"),
        (b"*11\r\n", "invalid multibulk length"),
        (b"*1\r\n+OK\r\n", "expected '$', got '+'"),
        (b"\"open\r\n", "unbalanced quotes in request"),
        (&[b'x'; 8 << 10], "too big inline request"),
    ] {
        assert_eq!(sends(&door, garbage).await, format!("-ERR Protocol error: {said}\r\n"));
    }
    assert_eq!(door.metric(r#"hapax_resp_refused_total{why="http"}"#), 2);
    assert_eq!(door.metric(r#"hapax_resp_refused_total{why="protocol"}"#), 6);
    door.stop().await;
}

/// A gigabyte that is only announced is refused at once, also from somebody who is known; what is too long for a key or a value too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_is_refused_to_everybody() {
    let door = OpenDoor::start(Opened::memory()).await;
    let mut talk = Talk::signed_in(door.at).await;
    let (key, value) = ("k".repeat(256), "v".repeat(1 << 20));
    assert_eq!(talk.ask(&["SET", &key, "v"]).await, "-ERR a key is a UTF-8 text of 1 to 255 bytes here\r\n");
    assert_eq!(talk.ask(&["SET", "", "v"]).await, "-ERR a key is a UTF-8 text of 1 to 255 bytes here\r\n");
    assert_eq!(talk.ask(&["SET", "long", &value]).await, "+OK\r\n");
    assert_eq!(talk.ask(&["GET", "long"]).await.len(), value.len() + "$1048576\r\n\r\n".len());
    let many: Vec<&str> = std::iter::once("MGET").chain(std::iter::repeat_n("long", 20)).collect();
    assert!(talk.ask(&many).await.starts_with("-ERR these values are too long together"));
    assert_eq!(talk.line("SET a v EX 4000000000").await, "-ERR invalid expire time in 'set' command\r\n", "over 100 years");
    talk.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1073741824\r\n").await;
    assert_eq!(talk.hear().await.as_deref(), Some("-ERR Protocol error: invalid bulk length\r\n"));
    assert_eq!(talk.hear().await, None);
    door.stop().await;
}

/// Ten thousand connections that never finish a command hold little memory, and keep nobody out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_half_open_connections_keep_nobody_out() {
    let folder = crate::quick_folder();
    let (process, at) = serve(folder.path(), "", "connections = 400").await;
    let mut worker = Talk::open(at).await;
    assert_eq!(worker.ask(&["AUTH", ADMIN_TOKEN]).await, "+OK\r\n");
    let before = process.resident_mb().expect("its size");
    let mut open = std::collections::VecDeque::new();
    for n in 0..10_000 {
        let mut stream = TcpStream::connect(at).await.expect("a connection");
        let _ = stream.write_all(b"*3\r\n$3\r\nSET\r\n$4000\r\nhalf").await;
        open.push_back(stream);
        // This process may hold fewer files than the other.
        if open.len() > 600 {
            open.pop_front();
        }
        if n % 1_000 == 0 {
            assert_eq!(worker.line(&format!("SET k{n} v NX EX 60")).await, "+OK\r\n", "who was in before is served");
        }
    }
    let mut newcomer = Talk::open(at).await;
    assert_eq!(newcomer.ask(&["AUTH", ADMIN_TOKEN]).await, "+OK\r\n", "there is always room for one more");
    assert_eq!(newcomer.line("GET k0").await, "$1\r\nv\r\n");
    let after = process.resident_mb().expect("its size");
    assert!(after < before + 64, "{before} MB before, {after} MB after");
    drop(open);
    assert!(process.stop().await.expect("it stops").success());
}

/// Who asks for long values and does not read them holds no more memory than there is room for, however many do so, keeps nobody from
/// claiming, and holds up no stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stall_hold_bounded_memory() {
    const READERS: usize = 60;
    let folder = crate::quick_folder();
    let (process, at) = serve(folder.path(), "stop_grace = \"10m\"\n", "").await;
    let mut worker = Talk::open(at).await;
    assert_eq!(worker.ask(&["AUTH", ADMIN_TOKEN]).await, "+OK\r\n");
    assert_eq!(worker.ask(&["SET", "long", &"v".repeat(1 << 20)]).await, "+OK\r\n");
    let before = process.resident_mb().expect("its size");
    let mut stalled = Vec::new();
    for n in 0..READERS {
        let mut reader = Talk::open(at).await;
        assert_eq!(reader.ask(&["AUTH", ADMIN_TOKEN]).await, "+OK\r\n");
        let ask = if n % 2 == 0 { "GET long\r\n".repeat(16) } else { format!("MGET{}\r\n", " long".repeat(15)) };
        reader.send(ask.as_bytes()).await;
        stalled.push(reader);
        assert_eq!(worker.line(&format!("SET k{n} v NX EX 60")).await, "+OK\r\n", "who claims does not wait for them");
    }
    let after = process.resident_mb().expect("its size");
    assert!(after < before + 600, "{before} MB before, {after} MB after");
    drop(stalled);
    assert_eq!(worker.line("GET k0").await, "$1\r\nv\r\n", "there is room again");
    worker.send("GET long\r\n".repeat(16).as_bytes()).await;
    assert_eq!(worker.hear().await.map(|value| value.len()), Some((1 << 20) + "$1048576\r\n\r\n".len()));
    assert!(in_time("a stop", process.stop()).await.expect("it stops").success());
}

/// A stop answers what was asked and closes the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_nobody_wait() {
    let door = OpenDoor::start(Opened::memory()).await;
    let (mut idle, mut half) = (Talk::signed_in(door.at).await, Talk::signed_in(door.at).await);
    half.send(b"*2\r\n$3\r\nGET\r\n").await;
    eventually("both are in", async || door.metric("hapax_resp_commands_total") == 2).await;
    door.stop().await;
    assert_eq!((idle.hear().await, half.hear().await), (None, None));
}

/// There are as many keys as the config allows; who ends makes room once it is purged, and what is there can still be changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_keys_is_bounded() {
    let few = hapax_gateway::settings::Claims { ttl_ms: 60_000, lease_ms: 60_000, max: 3 };
    let config = hapax_server::config::Config { claims: few, ..crate::rig::config(Vec::new()) };
    for opened in [Opened::memory(), Opened::sqlite()] {
        let door = OpenDoor::start_with(opened, config.clone()).await;
        let mut talk = Talk::signed_in(door.at).await;
        for key in ["a", "b", "c"] {
            assert_eq!(talk.ask(&["SET", key, "v", "NX"]).await, "+OK\r\n");
        }
        assert_eq!(talk.line("SET d v NX").await, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        assert_eq!(talk.line("SET a w").await, "+OK\r\n");
        let left: i64 = talk.line("PTTL a").await.trim().trim_start_matches(':').parse().expect("a number");
        assert!((1..=60_000).contains(&left), "a key without an end has the usual one: {left}");
        assert_eq!(talk.line("DEL a").await, ":1\r\n");
        assert_eq!(talk.line("SET d v NX").await, "+OK\r\n");
        door.stop().await;
    }
}
