//! Watching it, and the commands.

use std::collections::BTreeSet;

use hapax_testkit::fake_bot::{FakeBot, Say};
use tokio::process::Command;

use super::page::Heard;
use super::stage::{Folder, Stage, closed_port, config, target};
use crate::program::ADMIN_TOKEN;

/// Those that ask no server, or are one.
const BY_THEMSELVES: [&str; 14] = [
    "demo",
    "serve",
    "listen",
    "shadow",
    "restore",
    "export",
    "import",
    "check",
    "doctor",
    "config",
    "completions",
    "man",
    "openapi",
    "bench",
];

/// How each of the others is called.
fn call(command: &str) -> Vec<&str> {
    let rest: &[&str] = match command {
        "trigger" => &["whatsapp.text"],
        "send" => &["--to", "5511900001", "--text", "hello"],
        "messages" => &["1__2"],
        "once" => &["key", "--", "true"],
        "show" | "story" | "replay" => &["latest"],
        "redrive" => &["--channel", "shop"],
        "forget" => &["--contact", "5511900001"],
        "token" => &["list"],
        "backup" => &["copy.db"],
        "import-seen" => &["--channel", "shop", "-"],
        _ => &[],
    };
    [&[command], rest].concat()
}

/// Names of all commands, as `hapax --help` lists them.
async fn names() -> BTreeSet<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_hapax")).arg("--help").output().await.expect("it runs").stdout;
    let help = String::from_utf8_lossy(&help).into_owned();
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let name = |line: &str| {
        line.strip_prefix("  ")
            .filter(|line| !line.starts_with(' '))
            .and_then(|line| Some(line.split_whitespace().next()?.to_owned()))
    };
    list.lines().filter_map(name).filter(|name| name != "help" && !BY_THEMSELVES.contains(&name.as_str())).collect()
}

pub(super) async fn nobody_runs() -> Heard {
    let folder = Folder::new();
    folder.write(&config(folder.path(), "", "").replace("127.0.0.1:0", &format!("127.0.0.1:{}", closed_port())));
    let names = names().await;
    assert!(names.len() > 20, "{names:?}");
    let mut heard = Vec::new();
    for name in &names {
        let ended = folder.run(&call(name)).await;
        assert!(ended.code == "4", "{name}: exit code {}: {}", ended.code, ended.words);
        heard.extend([("every command", ended.words), ("exit code", ended.code)]);
    }
    Some(heard)
}

/// Asks for the metrics with this token, or none.
async fn scrape(stage: &Stage, token: Option<&str>) -> Heard {
    let request = reqwest::Client::new().get(format!("http://{}/metrics", stage.at));
    let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16().to_string();
    Some(vec![("its scrape", status), ("answer", answer.text().await.expect("words"))])
}

pub(super) async fn scrape_without_token() -> Heard {
    scrape(&Stage::with("", "").await, None).await
}

pub(super) async fn scrape_with_another_scope() -> Heard {
    let stage = Stage::with("", "").await;
    let made = stage.run(&["token", "create", "bot", "--scope", "send", "--out", "bot.token"]).await;
    assert_eq!(made.code, "0", "{}", made.words);
    let token = std::fs::read_to_string(stage.folder.path().join("bot.token")).expect("a token");
    scrape(&stage, Some(token.trim())).await
}

pub(super) async fn no_collector() -> Heard {
    let otel = format!("[otel]\nendpoint = \"http://127.0.0.1:{}\"", closed_port());
    let bot = FakeBot::willing().await.expect("a bot");
    let stage = Stage::with(&otel, &target(&bot.url())).await;
    stage.take("wamid.1").await;
    bot.called(1).await;
    Some(vec![("log", stage.log("collector").await)])
}

pub(super) async fn wrong_token() -> Heard {
    let stage = Stage::with("", "").await;
    std::fs::write(stage.folder.path().join("wrong"), "not the one").expect("written");
    let wrong = stage.run(&["events", "--token-file", "wrong"]).await;
    stage.folder.write(&config(stage.folder.path(), "", "").replace(&format!("admin_token = \"{ADMIN_TOKEN}\"\n"), ""));
    let missing = stage.run(&["stats"]).await;
    Some(vec![
        ("every command", wrong.words),
        ("exit code", wrong.code),
        ("every command", missing.words),
        ("exit code", missing.code),
    ])
}

pub(super) async fn lost_token() -> Heard {
    let folder = Folder::new();
    let lines = config(folder.path(), "", "").replace(&format!("admin_token = \"{ADMIN_TOKEN}\"\n"), "");
    let stage = Stage::start(folder, &lines).await;
    let folder = stage.stop().await;
    std::fs::remove_file(folder.path().join("hapax.token")).expect("there was one");
    let stage = Stage::start(folder, &lines).await;
    Some(vec![("log", stage.log("HAPAX_ADMIN_TOKEN").await)])
}

pub(super) async fn unknown_id() -> Heard {
    let stage = Stage::with("", "").await;
    let mut heard = Vec::new();
    for words in [["show", "evt_1nfw3va9"], ["story", "evt_1nfw3va9"], ["messages", "msg_1nfw3va9"]] {
        let ended = stage.run(&words).await;
        heard.extend([(words[0], ended.words), ("exit code", ended.code)]);
    }
    Some(heard)
}

pub(super) async fn not_hapax() -> Heard {
    let other =
        FakeBot::start(|_| Say::Answer { status: 200, headers: Vec::new(), body: "<html>".to_owned() }).await.expect("a server");
    let folder = Folder::new();
    folder.write(&config(folder.path(), "", ""));
    let ended = folder.run(&["events", "--server", &format!("http://{}", other.address)]).await;
    Some(vec![("every command", ended.words), ("exit code", ended.code)])
}

/// One message waits for a bot that is not there.
pub(super) async fn forget_too_early() -> Heard {
    let stage = Stage::with("", "").await;
    stage.take("wamid.1").await;
    let ended = stage.run(&["forget", "--contact", "5511900001"]).await;
    Some(vec![("hapax forget", ended.words), ("exit code", ended.code)])
}
