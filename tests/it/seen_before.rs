//! Messages that were handled before hapax was there are not answered again on day one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::servers::Engine;
use mysql_async::prelude::Queryable;
use serde_json::{Value, json};

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, program};
use crate::rig::{in_time, text};

/// Runs `import-seen` for the channel; gives the exit code, the sums and what was said besides.
async fn import(folder: &Path, address: SocketAddr, more: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
    let server = format!("http://{address}");
    command.current_dir(folder).args(["import-seen", "--json", "--server", &server, "--channel", "shop"]).args(more);
    let done = command.env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN).stdin(Stdio::null()).output().await.expect("it runs");
    let sums = serde_json::from_slice(&done.stdout).unwrap_or_default();
    (done.status.code(), sums, String::from_utf8_lossy(&done.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_before_is_not_delivered() {
    let folder = disk_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let (process, address) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts");
    let mut list: String = (0..1_200).map(|n| format!("old-{n}\n")).collect();
    list.push_str("# what follows is odd\nx\ty\tz\n{\"id\":7}\n{\"id\":\"\"}\n700001\tlast\n");
    std::fs::write(folder.path().join("ids.txt"), list).expect("written");
    let ids = ["--account", "700001", "ids.txt"];
    let (code, sums, said) = import(folder.path(), address, &ids).await;
    assert_eq!((code, &sums), (Some(1), &json!({"claimed": 1_201, "known": 0, "refused": 3})), "{said}");
    assert!(said.contains("line 1202") && said.contains("line 1203") && said.contains("line 1204"), "{said}");
    let (_, sums, _) = import(folder.path(), address, &ids).await;
    assert_eq!(sums, json!({"claimed": 0, "known": 1_201, "refused": 3}), "asked twice, it changes nothing");

    let poster = Poster::new();
    for old in ["old-0", "old-777", "old-1199", "last"] {
        assert_eq!(poster.post_until_taken(address, text(old, "ana")).await.word, "duplicate", "{old}");
    }
    assert_eq!(poster.post_until_taken(address, text("new", "ana")).await.word, "accepted");
    let calls = in_time("the new one", bot.called(1)).await;
    assert!(String::from_utf8_lossy(&calls[0].body).contains("this is new"), "nothing old comes to the bot");
    assert!(process.stop().await.expect("it stops").success());
}

/// How many messages each of the lists in servers has.
const LISTED: usize = 1_500;

/// What an import from somewhere must do: all are known, what is asked twice changes nothing, copies go nowhere.
async fn is_imported(from: &str, more: &[&str]) {
    let folder = disk_folder();
    let (process, address) = program(folder.path(), None, "").serve().await.expect("it starts");
    let (code, sums, said) = import(folder.path(), address, more).await;
    assert_eq!((code, sums), (Some(0), json!({"claimed": LISTED, "known": 0, "refused": 0})), "{from}: {said}");
    let (_, sums, _) = import(folder.path(), address, more).await;
    assert_eq!(sums["claimed"], 0, "{from}");
    let poster = Poster::new();
    for old in ["wamid.0", "wamid.777", "wamid.1499"] {
        assert_eq!(poster.post_until_taken(address, text(old, "ana")).await.word, "duplicate", "{from}: {old}");
    }
    assert_eq!(poster.post_until_taken(address, text("wamid.1500", "ana")).await.word, "accepted", "{from}");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_in_a_postgres_table_are_seen() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it answers");
    tokio::spawn(connection);
    let fill = format!(
        "CREATE TABLE seen (account bigint, id text);
         INSERT INTO seen SELECT 700001, 'wamid.' || n FROM generate_series(0, {}) n",
        LISTED - 1
    );
    client.batch_execute(&fill).await.expect("written");
    is_imported("postgres", &["--sql", &url, "--query", "SELECT account, id FROM seen"]).await;
    let folder = disk_folder();
    let (process, address) = program(folder.path(), None, "").serve().await.expect("it starts");
    let (code, _, said) = import(folder.path(), address, &["--sql", &url, "--query", "DELETE FROM seen RETURNING id"]).await;
    assert_eq!((code, said.contains("read-only")), (Some(1), true), "nothing of theirs is changed: {said}");
    let (code, _, said) = import(folder.path(), address, &["--sql", &url, "--query", "SELECT nothing FROM seen"]).await;
    assert_eq!((code, said.contains("nothing")), (Some(1), true), "the server's own words: {said}");
    assert!(process.stop().await.expect("it stops").success());
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_in_a_mysql_table_are_seen() {
    let Some(server) = Engine::Mariadb.shared().await else { return };
    let url = server.fresh().await;
    let mut client = mysql_async::Conn::from_url(&url).await.expect("it answers");
    client.query_drop("CREATE TABLE seen (account BIGINT, id VARCHAR(100))").await.expect("a table");
    let rows: Vec<String> = (0..LISTED).map(|n| format!("(700001, 'wamid.{n}')")).collect();
    client.query_drop(format!("INSERT INTO seen VALUES {}", rows.join(","))).await.expect("written");
    is_imported("mysql", &["--sql", &url, "--query", "SELECT account, id FROM seen"]).await;
    let folder = disk_folder();
    let (process, address) = program(folder.path(), None, "").serve().await.expect("it starts");
    let (code, _, said) = import(folder.path(), address, &["--sql", &url, "--query", "DELETE FROM seen"]).await;
    assert_eq!((code, said.contains("READ ONLY")), (Some(1), true), "nothing of theirs is changed: {said}");
    assert!(process.stop().await.expect("it stops").success());
    drop(client);
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_in_the_names_of_redis_keys_are_seen() {
    for engine in [Engine::Redis, Engine::RedisCluster] {
        let Some(server) = engine.shared().await else { continue };
        let url = server.fresh().await;
        let (host, prefix) = url.split_once("?prefix=").expect("a prefix of its own");
        let mut keys: Vec<String> = (0..LISTED).map(|n| format!("{prefix}-seen:700001:wamid.{n}")).collect();
        keys.push(format!("{prefix}-other:1"));
        put_keys(host, engine == Engine::RedisCluster, &keys).await;
        is_imported("redis", &["--redis", host, "--pattern", &format!("{prefix}-seen:*:*")]).await;
        server.remove(&url).await;
    }
}

/// Puts keys there, each where it belongs, for as long as the test takes.
async fn put_keys(host: &str, is_cluster: bool, keys: &[String]) {
    let set = |key: &String| redis::cmd("SET").arg(key).arg(1).arg("EX").arg(600).to_owned();
    let first = host.split(',').next().expect("a host");
    let client = redis::Client::open(first).expect("an address");
    let mut anyone = client.get_multiplexed_async_connection().await.expect("it answers");
    let mut nodes = HashMap::new();
    for key in keys {
        let done: redis::RedisResult<()> = set(key).query_async(&mut anyone).await;
        let Err(error) = done else { continue };
        assert!(is_cluster, "{error}");
        let (node, _) = error.redirect_node().expect("where it belongs");
        if !nodes.contains_key(node) {
            let there = redis::Client::open(format!("redis://{node}")).expect("an address");
            nodes.insert(node.to_owned(), there.get_multiplexed_async_connection().await.expect("it answers"));
        }
        let there = nodes.get_mut(node).expect("a connection");
        set(key).query_async::<()>(there).await.expect("it is put");
    }
}
