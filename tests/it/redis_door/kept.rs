//! What was answered is on disk.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hapax_testkit::process::Program;
use redis::Value;

use super::talk::Talk;
use crate::program::{ADMIN_TOKEN, disk_folder, store_path};
use crate::rig::eventually;

const LIVES: usize = 3;
const CALLERS: usize = 8;
const PER_LIFE: usize = 100;

/// Callers claim fresh keys until hapax is killed under them; in its next life each key that was answered `OK` is still taken, by who got it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_survive_kill_nine() {
    let folder = disk_folder();
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nresp_listen = \"127.0.0.1:{port}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n\
         [log]\nfilter = \"off\"\n",
        store_path(folder.path()).display()
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let mut answered: Vec<(String, String)> = Vec::new();
    for life in 0..LIVES {
        let (process, _) = program.serve().await.expect("it starts");
        all_are_taken(at, &answered).await;
        let count = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..CALLERS).map(|n| tokio::spawn(claims(at, format!("{life}-{n}"), Arc::clone(&count)))).collect();
        eventually("enough claims", async || count.load(Ordering::Relaxed) >= PER_LIFE).await;
        assert_eq!(process.kill_nine().await.expect("it ended").signal(), Some(9));
        for caller in callers {
            answered.extend(caller.await.expect("no panic"));
        }
    }
    assert!(answered.len() >= LIVES * PER_LIFE);
    let (process, _) = program.serve().await.expect("it starts");
    all_are_taken(at, &answered).await;
    assert!(process.stop().await.expect("it stops").success());
}

/// Takes keys until the connection breaks; gives those that were answered.
async fn claims(at: SocketAddr, name: String, count: Arc<AtomicUsize>) -> Vec<(String, String)> {
    let client = redis::Client::open(format!("redis://:{ADMIN_TOKEN}@{at}")).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut taken = Vec::new();
    loop {
        let (key, value) = (format!("{name}-{}", taken.len()), format!("{name} {:x}", rand::random::<u64>()));
        let asked =
            redis::cmd("SET").arg(&key).arg(&value).arg("NX").arg("EX").arg(3_600).query_async::<Value>(&mut connection).await;
        match asked {
            Ok(Value::Okay) => taken.push((key, value)),
            Ok(other) => panic!("a fresh key was answered {other:?}"),
            Err(_) => return taken,
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn all_are_taken(at: SocketAddr, answered: &[(String, String)]) {
    let mut talk = Talk::open(at).await;
    assert_eq!(talk.ask(&["AUTH", ADMIN_TOKEN]).await, "+OK\r\n");
    for (key, value) in answered {
        assert_eq!(talk.ask(&["SET", key, "another", "NX", "EX", "60"]).await, "$-1\r\n", "{key}");
        assert_eq!(talk.ask(&["GET", key]).await, format!("${}\r\n{value}\r\n", value.len()));
    }
}
