//! The API answers as it is described: schemathesis makes requests from `openapi.json`, right ones and wrong ones, and looks at what comes
//! back. `tests/install-clients.sh` gets it; where it was not run these tests are skipped.

use std::path::Path;
use std::process::Stdio;

use hapax_testkit::servers::skip;
use tokio::process::Command;

use crate::rig::{Opened, Rig, channel, text};

/// No 500, no status, header or body that the document does not have, no wrong request that is taken, no method that is not told of. Wrong
/// tokens are slowed down, so none are guessed; and not every request of the right shape names something that is there.
const LEFT_OUT: &str = "ignored_auth,positive_data_acceptance";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_token_every_answer_is_one_that_is_described() {
    let rig = filled().await;
    answers_as_described(&rig, Some("Authorization: Bearer an admin token for tests")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_every_answer_is_one_that_is_described() {
    let rig = filled().await;
    answers_as_described(&rig, None).await;
}

async fn filled() -> Rig {
    let rig = Rig::start(Opened::memory(), vec![channel("shop", None), channel("phone", None)]).await;
    for n in 0..3 {
        rig.accepted("shop", text(&format!("wamid.{n}"), &n.to_string())).await;
    }
    rig
}

async fn answers_as_described(rig: &Rig, header: Option<&str>) {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    if !installed.join("python.installed").exists() {
        skip("schemathesis", "tests/install-clients.sh", true);
        return;
    }
    let folder = crate::quick_folder();
    let mut command = Command::new(installed.join("python/bin/python"));
    command
        .args(["-m", "schemathesis.cli", "run", &rig.url("/openapi.json")])
        .args(["--seed", "1", "--max-examples", "8", "--phases", "coverage,fuzzing", "--workers", "1"])
        .args(["--exclude-checks", LEFT_OUT, "--no-shrink", "--warnings", "off", "--request-timeout", "40"])
        .args(["--generation-with-security-parameters", "false", "--exclude-path", "/v1/stream"])
        .args(header.map(|header| ["--header", header]).into_iter().flatten())
        .current_dir(folder.path())
        .env("no_proxy", "*")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(" passed"), "{said}");
}

/// What is at no path, and what takes another method, is told as a problem everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_v1_too_errors_are_problems() {
    let rig = Rig::start(Opened::memory(), vec![channel("shop", None)]).await;
    for (method, path, status, code) in [
        ("GET", "/nowhere", 404, "no_such_path"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("PUT", "/in/shop", 405, "method_not_allowed"),
    ] {
        let method = method.parse().expect("a method");
        let answer = rig.client.request(method, rig.url(path)).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.headers().contains_key("allow"), status == 405, "{path}");
        let problem: serde_json::Value = answer.json().await.expect("a problem");
        assert_eq!(problem["code"], code, "{path}");
    }
}
