//! Puts a fixture of `tests/fixtures/upgrade` into a fresh store, as its readers of `dump.py` wrote it.

use std::path::Path;

use mysql_async::prelude::Queryable;
use serde_json::{Value, json};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/upgrade/schema3/", $name))
    };
}

/// What stands in the fixtures where a store has its own name.
const NAME: &str = "upgrade";

pub(super) fn sqlite(path: &Path) {
    let db = rusqlite::Connection::open(path).expect("a new file");
    db.execute_batch(fixture!("sqlite.sql")).expect("all of it is put");
    db.pragma_update(None, "journal_mode", "WAL").expect("as it was");
}

pub(super) async fn postgres(url: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it is there");
    tokio::spawn(connection);
    let schema: String = client.query_one("SELECT current_schema()::text", &[]).await.expect("an answer").get(0);
    let script = fixture!("postgres.sql").replace(&format!("{NAME}."), &format!("{schema}."));
    client.batch_execute(&script).await.expect("all of it is put");
}

pub(super) async fn mariadb(url: &str) {
    let mut client = mysql_async::Conn::from_url(url).await.expect("it is there");
    for statement in fixture!("mariadb.sql").split_terminator(";\n") {
        client.query_drop(statement).await.expect("it is put");
    }
    client.disconnect().await.expect("a goodbye");
}

pub(super) async fn redis(url: &str) {
    let (server, prefix) = url.split_once("?prefix=").expect("a prefix");
    let client = redis::Client::open(server).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("it is there");
    for line in fixture!("redis.jsonl").lines() {
        let (key, kind, value): (String, String, Value) = serde_json::from_str(line).expect("a key");
        let key = bytes_of(&key.replacen(NAME, prefix, 1));
        let (verb, values) = match (kind.as_str(), values_of(&value)) {
            ("string", values) => ("SET", values),
            ("hash", values) => ("HSET", values),
            ("list", values) => ("RPUSH", values),
            ("set", values) => ("SADD", values),
            ("zset", values) => ("ZADD", values.chunks(2).flat_map(|pair| [pair[1].clone(), pair[0].clone()]).collect()),
            (other, _) => unreachable!("no key is a {other}"),
        };
        redis::cmd(verb).arg(key).arg(values).exec_async(&mut connection).await.expect("it is put");
    }
}

fn values_of(value: &Value) -> Vec<Vec<u8>> {
    match value {
        Value::Array(values) => values.iter().flat_map(values_of).collect(),
        value => vec![bytes_of(value.as_str().expect("a text"))],
    }
}

/// A character stands for a byte.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).expect("a byte")).collect()
}

pub(super) async fn firestore(url: &str) {
    let (project, host) =
        url.strip_prefix("firestore://").and_then(|rest| rest.split_once("?emulator=")).expect("the emulator's");
    let root = format!("projects/{project}/databases/(default)/documents");
    let update = |line: &str| {
        let mut document: Value = serde_json::from_str(line).expect("a document");
        document["name"] = json!(format!("{root}/{}", document["name"].as_str().expect("a name")));
        json!({ "update": document })
    };
    let writes: Vec<Value> = fixture!("firestore.jsonl").lines().map(update).collect();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.post(format!("http://{host}/v1/{root}:commit")).bearer_auth("owner").json(&json!({ "writes": writes }));
    request.send().await.expect("an answer").error_for_status().expect("all of it is put");
}
