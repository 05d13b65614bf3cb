//! `hapax export` and `hapax import`, the real program.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use hapax_testkit::process::Program;
use hapax_testkit::servers::Engine;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::program::{Poster, program, store_path};
use crate::quick_folder;
use crate::rig::text;

fn hapax(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.arg("--config").arg(folder.join("hapax.toml")).args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
    command.current_dir(folder).kill_on_drop(true);
    command
}

async fn run(folder: &Path, arguments: &[&str]) -> Output {
    hapax(folder, arguments).output().await.expect("it runs")
}

async fn fed(folder: &Path, arguments: &[&str], bytes: &[u8]) -> Output {
    let mut command = hapax(folder, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may have seen enough before the end.
    let _ = stdin.write_all(bytes).await;
    drop(stdin);
    child.wait_with_output().await.expect("it ends")
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fine(output: &Output) {
    assert!(output.status.success(), "{}", complaint(output));
}

fn failed(output: &Output, code: i32, words: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", complaint(output));
    assert!(complaint(output).contains(words), "{}", complaint(output));
}

/// A folder with a store that took two webhooks, and the file they were exported to.
async fn exported() -> (tempfile::TempDir, PathBuf) {
    let folder = quick_folder();
    let (process, at) = program(folder.path(), None, "").serve().await.expect("it starts");
    let poster = Poster::new();
    for id in ["wamid.1", "wamid.2"] {
        assert_eq!(poster.post(at, text(id, "1")).await.expect("an answer").word, "accepted");
    }
    process.stop().await.expect("it stops");
    let output = run(folder.path(), &["export", "all.ndjson", "--json"]).await;
    fine(&output);
    let said: Value = serde_json::from_slice(&output.stdout).expect("json");
    assert!(said["records"].as_u64().is_some_and(|records| records > 6), "{said}");
    let file = folder.path().join("all.ndjson");
    (folder, file)
}

fn store_at(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

#[tokio::test]
async fn what_was_exported_is_known_where_it_was_imported() {
    let (folder, file) = exported().await;
    let text_of_file = std::fs::read_to_string(&file).expect("readable");
    let lines: Vec<Value> = text_of_file.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
    assert_eq!((&lines[0]["hapax"], &lines[0]["version"]), (&"export".into(), &1.into()));
    assert_eq!(lines[lines.len() - 1]["end"]["records"].as_u64(), Some(lines.len() as u64 - 2));
    failed(&run(folder.path(), &["export", "all.ndjson"]).await, 1, "is there already");

    let new = quick_folder();
    program(new.path(), None, "");
    let output = run(new.path(), &["import", &file.display().to_string()]).await;
    fine(&output);
    failed(&run(new.path(), &["import", &file.display().to_string()]).await, 1, "not empty");
    // The way back, through pipes.
    let again = run(new.path(), &["export"]).await;
    fine(&again);
    let third = quick_folder();
    program(third.path(), None, "");
    fine(&fed(third.path(), &["import", "-"], &again.stdout).await);
    for folder in [&new, &third] {
        let (process, at) = program(folder.path(), None, "").serve().await.expect("it starts");
        let poster = Poster::new();
        assert_eq!(poster.on_their_way(at).await, Some(2));
        assert_eq!(poster.post(at, text("wamid.1", "1")).await.expect("an answer").word, "duplicate");
        assert_eq!(poster.post(at, text("wamid.3", "1")).await.expect("an answer").word, "accepted");
        process.stop().await.expect("it stops");
    }
}

#[tokio::test]
async fn a_file_that_is_not_whole_is_refused_before_anything_is_written() {
    let (folder, file) = exported().await;
    let whole = std::fs::read_to_string(&file).expect("readable");
    let cut = &whole[..whole.len() * 2 / 3];
    let without_end = whole.lines().take(whole.lines().count() - 1).map(|line| format!("{line}\n")).collect::<String>();
    let changed = whole.replacen("wamid.1", "wamid.9", 1);
    let newer = whole.replacen("\"version\":1", "\"version\":2", 1);
    let longer = format!("{whole}{{}}\n");
    for (content, words) in [
        (cut, "cut off"),
        (&without_end, "cut off"),
        (&changed, "not as it was written"),
        (&newer, "use that version"),
        (&longer, "goes on after its end"),
        ("", "no file of"),
        ("{\"hapax\":\"poem\",\"version\":1,\"program\":\"\",\"made_ms\":0}\n", "no file of"),
    ] {
        std::fs::write(folder.path().join("odd.ndjson"), content).expect("written");
        let store = folder.path().join("never.db");
        failed(&run(folder.path(), &["import", "odd.ndjson", "--store", &store_at(&store)]).await, 1, words);
        assert!(!store.exists(), "nothing was touched");
    }
    // A pipe cannot be read twice: what it brought stays behind, marked, and is not served.
    let half = quick_folder();
    program(half.path(), None, "");
    failed(&fed(half.path(), &["import"], cut.as_bytes()).await, 1, "empty it, and import again");
    let ended = program(half.path(), None, "").ends().await.expect("it runs");
    assert_eq!(ended.code, Some(4), "{}", ended.words);
    assert!(ended.words.contains("half filled"), "{}", ended.words);
    failed(&run(half.path(), &["import", &file.display().to_string()]).await, 1, "half filled");
}

#[tokio::test]
async fn a_store_that_is_not_there_or_in_use_is_not_exported() {
    let folder = quick_folder();
    let hapax = program(folder.path(), None, "");
    failed(&run(folder.path(), &["export"]).await, 4, "there is no store at");
    assert!(!store_path(folder.path()).exists());
    let (process, _) = hapax.serve().await.expect("it starts");
    failed(&run(folder.path(), &["export"]).await, 4, "");
    process.stop().await.expect("it stops");
    failed(&run(folder.path(), &["export", "--store", "memory:"]).await, 1, "neither be exported");
}

/// The records of a file, without its first and last line, and without how far the numbers of its store went.
fn records(file: &[u8]) -> std::collections::BTreeSet<String> {
    let lines: Vec<String> = String::from_utf8_lossy(file).lines().map(str::to_owned).collect();
    lines[1..lines.len() - 1].iter().filter(|line| !line.contains(r#""name":"numbers""#)).cloned().collect()
}

#[tokio::test]
async fn the_commands_reach_servers_by_their_addresses() {
    let (folder, file) = exported().await;
    let mut bytes = std::fs::read(&file).expect("readable");
    for engine in SERVERS {
        let Some(server) = engine.shared().await else { continue };
        let url = server.fresh().await;
        fine(&fed(folder.path(), &["import", "--store", &url], &bytes).await);
        failed(&run(folder.path(), &["import", "--store", &url, "all.ndjson"]).await, 1, "not empty");
        let again = run(folder.path(), &["export", "--store", &url]).await;
        fine(&again);
        assert_eq!(records(&bytes), records(&again.stdout), "{engine:?}");
        bytes = again.stdout;
        let (process, at) = on_server(folder.path(), &url).serve().await.expect("it starts");
        let poster = Poster::new();
        assert_eq!(poster.on_their_way(at).await, Some(2), "{engine:?}");
        assert_eq!(poster.post(at, text("wamid.1", "1")).await.expect("an answer").word, "duplicate", "{engine:?}");
        assert_eq!(poster.post(at, text("wamid.3", "1")).await.expect("an answer").word, "accepted", "{engine:?}");
        process.stop().await.expect("it stops");
        server.remove(&url).await;
    }
}

/// The servers whose stores can be moved.
const SERVERS: [Engine; 4] = [Engine::Postgres, Engine::Mariadb, Engine::Redis, Engine::Firestore];

/// The program of a folder, with a server's store.
fn on_server(folder: &Path, url: &str) -> Program {
    program(folder, None, "");
    let config = std::fs::read_to_string(folder.join("hapax.toml")).expect("a config file");
    let other = |line: &str| if line.starts_with("store = ") { format!("store = \"{url}\"\n") } else { format!("{line}\n") };
    let config: String = config.lines().map(other).collect();
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file")
}

/// Killed in the middle, an import leaves a store that nobody takes for a whole one.
#[tokio::test]
async fn a_store_that_an_import_was_killed_over_is_not_used() {
    let (folder, file) = exported().await;
    let bytes = std::fs::read(&file).expect("readable");
    for engine in SERVERS {
        let Some(server) = engine.shared().await else { continue };
        let (url, mut child, _stdin) = loop {
            let url = server.fresh().await;
            let mut command = hapax(folder.path(), &["import", "--store", &url]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
            let mut stdin = child.stdin.take().expect("a pipe");
            // Who has ended already reads nothing.
            let _ = stdin.write_all(&bytes[..bytes.len() / 2]).await;
            let _ = stdin.flush().await;
            if has_begun(folder.path(), &url, &mut child).await {
                break (url, child, stdin);
            }
            server.remove(&url).await;
        };
        child.kill().await.expect("killed");
        failed(&run(folder.path(), &["export", "--store", &url]).await, 1, "half filled");
        failed(&run(folder.path(), &["import", "--store", &url, "all.ndjson"]).await, 1, "half filled");
        let ended = on_server(folder.path(), &url).ends().await.expect("it runs");
        assert_eq!(ended.code, Some(4), "{engine:?}: {}", ended.words);
        assert!(ended.words.contains("half filled"), "{engine:?}: {}", ended.words);
        server.remove(&url).await;
    }
}

/// Waits until an import has begun, which it has when another command is told so. False when that command was the first to open the new store: it
/// draws numbers there, and the import ends because the store is not empty any more.
async fn has_begun(folder: &Path, url: &str, import: &mut tokio::process::Child) -> bool {
    loop {
        if complaint(&run(folder, &["export", "--store", url]).await).contains("half filled") {
            return true;
        }
        if import.try_wait().expect("a child").is_some() {
            return false;
        }
    }
}

/// Claims a key, lets it go, and gives the fence.
async fn fence_of(at: std::net::SocketAddr, key: &str) -> u64 {
    let poster = Poster::new();
    let claimed = poster.ask(at, "/v1/claims", &json!({ "key": key })).await.expect("claimed");
    let release = json!({ "key": key, "token": claimed["token"] });
    poster.ask(at, "/v1/claims/release", &release).await.expect("let go");
    claimed["fence"].as_u64().expect("a fence")
}

#[tokio::test]
async fn a_key_that_was_let_go_is_claimed_above_it_where_it_was_moved_to() {
    let (old, new) = (quick_folder(), quick_folder());
    let (process, at) = program(old.path(), None, "").serve().await.expect("it starts");
    let mut before = 0;
    for _ in 0..5 {
        before = fence_of(at, "k").await;
    }
    process.stop().await.expect("it stops");
    fine(&run(old.path(), &["export", "all.ndjson"]).await);
    program(new.path(), None, "");
    fine(&run(new.path(), &["import", &old.path().join("all.ndjson").display().to_string()]).await);
    let (process, at) = program(new.path(), None, "").serve().await.expect("it starts");
    let after = fence_of(at, "k").await;
    assert!(after > before, "{after} after {before}");
    process.stop().await.expect("it stops");
}
