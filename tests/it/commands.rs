//! Small commands, as they are run beside a real server: `ready`, `top` without a terminal, `man`.

use std::net::SocketAddr;
use std::path::Path;

use tokio::process::Command;

use crate::program::{Poster, disk_folder, program};
use crate::rig::{in_time, text};

/// Runs a command against a server; gives its exit code and what it printed on both streams.
async fn run(folder: &Path, at: SocketAddr, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(words).arg("--config").arg(folder.join("hapax.toml")).args(["--server", &format!("http://{at}")]);
    let output = in_time("its end", command.env("NO_COLOR", "1").output()).await.expect("it ran");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_tells_whether_webhooks_are_taken() {
    let folder = disk_folder();
    let (process, at) = program(folder.path(), None, "").serve().await.expect("it starts");
    assert_eq!(run(folder.path(), at, &["ready"]).await, (Some(0), "ready\n".to_owned()));
    process.stop().await.expect("it stops");
    let (code, said) = run(folder.path(), at, &["ready", "--wait", "300ms"]).await;
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("is `hapax serve` running?"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_without_a_terminal_prints_one_snapshot() {
    let folder = disk_folder();
    let (process, at) = program(folder.path(), None, "").serve().await.expect("it starts");
    assert_eq!(Poster::new().post(at, text("wamid.1", "1")).await.expect("an answer").status, 200);
    let (code, said) = run(folder.path(), at, &["top"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("this is no terminal") && said.lines().any(|line| line.starts_with("shop\t")), "{said}");
    let (_, said) = run(folder.path(), at, &["top", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    assert_eq!((&shown["channels"][0]["channel"], &shown["channels"][0]["waiting"]), (&"shop".into(), &1.into()), "{said}");
    process.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manual_has_a_page_for_every_command() {
    let folder = disk_folder();
    let page = Command::new(env!("CARGO_BIN_EXE_hapax")).arg("man").output().await.expect("it ran");
    assert!(String::from_utf8_lossy(&page.stdout).contains(".TH hapax 1"), "{page:?}");
    let mut all = Command::new(env!("CARGO_BIN_EXE_hapax"));
    assert!(all.args(["man", "--out"]).arg(folder.path().join("man1")).status().await.expect("it ran").success());
    for command in ["hapax", "hapax-serve", "hapax-top", "hapax-token-create"] {
        assert!(folder.path().join(format!("man1/{command}.1")).exists(), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_of_the_command_signs_a_browser_in_once() {
    let folder = disk_folder();
    let (process, at) = program(folder.path(), None, "").serve().await.expect("it starts");
    let token_file = folder.path().join("viewer.token").display().to_string();
    let (code, said) = run(folder.path(), at, &["token", "create", "viewer", "--scope", "read", "--out", &token_file]).await;
    assert_eq!(code, Some(0), "{said}");
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    for (words, name) in [(vec!["token", "link"], "admin"), (vec!["token", "link", "--token-file", &token_file], "viewer")] {
        let (code, said) = run(folder.path(), at, &words).await;
        let link = said.trim();
        assert!(code == Some(0) && link.starts_with(&format!("http://{at}/sign-in?code=")), "{said}");
        let shown = client.get(link).send().await.expect("an answer").text().await.expect("a page");
        assert!(shown.contains("Continue"), "{shown}");
        let enter = || {
            let form = format!("code={}", link.split('=').next_back().expect("a code"));
            let request = client.post(format!("http://{at}/sign-in")).header("origin", format!("http://{at}"));
            request.header("content-type", "application/x-www-form-urlencoded").body(form).send()
        };
        let entered = enter().await.expect("an answer");
        assert_eq!(entered.status(), 303);
        let cookie = entered.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
        let page = client.get(format!("http://{at}/")).header("cookie", cookie).send().await.expect("an answer");
        let page = page.text().await.expect("a page");
        assert!(page.contains(&format!("Signed in with the token <code>{name}</code>")), "{page}");
        assert_eq!(enter().await.expect("an answer").status(), 401, "once");
    }
    process.stop().await.expect("it stops");
}
