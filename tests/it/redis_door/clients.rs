//! Programs that people use, unmodified: redis-cli, redis-benchmark, redis-py with its Lock, ioredis with redlock.

use std::path::Path;
use std::process::Stdio;

use hapax_gateway::resp::tls::Tls;
use hapax_server::config::{Resp, RespTls};
use hapax_testkit::servers::skip;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{OpenDoor, TOKEN};
use crate::rig::{Opened, config, in_time};

on_every_store! {
    redis_py_claims_and_locks
    ioredis_claims_and_redlock_locks
    redis_cli_and_redis_benchmark_work
}

/// A script of `tests/clients`; `None` where its libraries are not installed, which was said.
pub(super) fn client(file: &str, ports: &[u16], token: &str) -> Option<Command> {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    let (runtime, mark) = match file.ends_with(".py") {
        true => (installed.join("python/bin/python"), "python"),
        false => ("node".into(), "node"),
    };
    if !installed.join(format!("{mark}.installed")).exists() {
        skip(file, "tests/install-clients.sh", true);
        return None;
    }
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let mut command = Command::new(runtime);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients").join(file));
    command.env("LIBRARIES", installed.join("node")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PORTS", ports.join(",")).env("TOKEN", token).stdin(Stdio::null()).kill_on_drop(true);
    Some(command)
}

/// What it printed, if it ended well.
pub(super) async fn said(mut command: Command) -> String {
    let output = in_time("a client", command.output()).await.expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out.into_owned()
}

pub(super) async fn said_json(command: Command) -> Value {
    let said = said(command).await;
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
}

async fn redis_py_claims_and_locks(opened: Opened) {
    let door = OpenDoor::start(opened).await;
    let Some(mut python) = client("redis_door.py", &[door.at.port()], TOKEN) else { return };
    python.arg("all");
    let plain = json!({
        "first": true, "second": null, "get": "a", "ttl": true, "get_and_set": "a", "kept": true, "expire": true, "pttl": true,
        "mget": ["c", null], "exists": 2, "deleted": 1, "setnx": [true, false], "unlinked": 1, "ping": true, "pipeline": [true, true],
    });
    let lock = json!({
        "mine": true, "other": false, "owned": true, "extend": [true, true], "replace": [true, true], "reacquire": [true, true],
        "next": true, "stolen": true, "context": 1, "after": 0,
    });
    assert_eq!(said_json(python).await, json!({"two": plain, "three": plain, "lock": lock}));
    door.stop().await;
}

async fn ioredis_claims_and_redlock_locks(opened: Opened) {
    let door = OpenDoor::start(opened).await;
    let Some(node) = client("redis_door.mjs", &[door.at.port()], TOKEN) else { return };
    let expected = json!({
        "first": "OK", "second": null, "get": "a", "pipeline": [[null, "a"], [null, -2], [null, 1]], "setex": "OK", "buffer": "c",
        "notMine": 0, "mine": 1, "unknown": "ERR", "taken": "once", "extended": true, "half": "none", "three": 0, "released": 0,
    });
    assert_eq!(said_json(node).await, expected);
    door.stop().await;
}

async fn redis_cli_and_redis_benchmark_work(opened: Opened) {
    let door = OpenDoor::start(opened).await;
    let tool = |name: &str| {
        let mut command = Command::new(name);
        command.args(["-p", &door.at.port().to_string(), "-a", TOKEN]).stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    if Command::new("redis-cli").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        skip("redis-cli", "apt-get install redis-tools", true);
        return;
    }
    let cli = async |words: &[&str]| {
        let mut cli = tool("redis-cli");
        cli.arg("--no-auth-warning").args(words);
        said(cli).await
    };
    assert_eq!(cli(&["SET", "job", "host-1", "NX", "EX", "60"]).await, "OK\n");
    assert_eq!(cli(&["SET", "job", "host-2", "NX", "EX", "60"]).await, "\n");
    assert_eq!(cli(&["-3", "GET", "job"]).await, "host-1\n");
    assert!(cli(&["INFO"]).await.contains("redis_version:"));
    let mut benchmark = tool("redis-benchmark");
    benchmark.args(["-t", "set", "-n", "2000", "-c", "20", "-r", "1000", "--csv"]);
    assert!(said(benchmark).await.contains("\"SET\""));
    let mut pipelined = tool("redis-benchmark");
    pipelined.args([
        "-n",
        "2000",
        "-c",
        "10",
        "-P",
        "16",
        "-r",
        "100000",
        "--csv",
        "SET",
        "k:__rand_int__",
        "v",
        "NX",
        "EX",
        "60",
    ]);
    said(pipelined).await;
    assert!(door.metric("hapax_resp_commands_total") > 4_000);
    door.stop().await;
}

/// A certificate and its key, made for this test.
async fn certificate(folder: &Path) -> Option<(String, String)> {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=door", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"]).arg(&key).arg("-out").arg(&cert);
    openssl.output().await.ok().filter(|made| made.status.success())?;
    Some((std::fs::read_to_string(&cert).ok()?, std::fs::read_to_string(&key).ok()?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_checks_the_certificate_gets_in_over_tls() {
    let folder = crate::quick_folder();
    let Some((cert, key)) = certificate(folder.path()).await else {
        skip("openssl", "apt-get install openssl", true);
        return;
    };
    let tls = Tls::read(&cert, &key).expect("they belong together");
    let tls = Some(RespTls { cert: "cert.pem".to_owned(), key: "key.pem".to_owned(), tls });
    let resp = Some(Resp { listen: ([127, 0, 0, 1], 0).into(), public: false, tls });
    let door = OpenDoor::start_with(Opened::memory(), hapax_server::config::Config { resp, ..config(Vec::new()) }).await;
    let Some(mut python) = client("redis_door.py", &[door.at.port()], TOKEN) else { return };
    python.args(["race", "5", "tls"]).env("CA", folder.path().join("cert.pem"));
    assert_eq!(said_json(python).await["won"].as_array().map(Vec::len), Some(1));
    let Some(mut plain) = client("redis_door.py", &[door.at.port()], TOKEN) else { return };
    let plain = in_time("a client", plain.args(["race", "1", "plain"]).output()).await.expect("it starts");
    assert!(!plain.status.success(), "nothing is said without TLS");
    door.stop().await;
}
