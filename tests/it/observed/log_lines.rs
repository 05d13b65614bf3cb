//! With `log.json` every line of `hapax serve` is JSON, also when it does not get so far as to serve.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::program::{Poster, disk_folder, store_path};
use crate::rig::{SECRET, in_time};

fn serve(folder: &Path, config: &str) -> Command {
    std::fs::write(folder.join("hapax.toml"), config).expect("a config file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.arg("serve").current_dir(folder).env("NO_COLOR", "1").stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn config(folder: &Path, listen: &str, more: &str) -> String {
    format!(
        "listen = \"{listen}\"\nstore = \"sqlite:{}\"\n[log]\njson = true\nfilter = \"debug\"\n[channel.shop]\nprovider = \"whatsapp\"\n\
         secret = \"{SECRET}\"\n{more}\n",
        store_path(folder).display()
    )
}

fn parsed(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    assert!(value["timestamp"].is_string() && value["level"].is_string(), "{line}");
    value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_of_a_running_hapax_is_json() {
    let folder = disk_folder();
    let mut child = serve(folder.path(), &config(folder.path(), "127.0.0.1:0", "")).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    let mut all = Vec::new();
    let address = loop {
        let line = in_time("the line that it listens", lines.next_line()).await.expect("readable").expect("a line");
        all.push(line.clone());
        if let Some(listen) = parsed(&line)["fields"]["listen"].as_str() {
            break listen.trim_start_matches("http://").parse().expect("an address");
        }
    };
    assert_eq!(Poster::new().post_to(address, "nowhere", "{}".to_owned()).await.expect("an answer").status, 401);
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("a process");
    kill_process(id, Signal::TERM).expect("told to stop");
    while let Some(line) = in_time("the end", lines.next_line()).await.expect("readable") {
        all.push(line);
    }
    let messages: Vec<String> = all.iter().map(|line| parsed(line)["fields"]["message"].to_string()).collect();
    for said in ["listens on", "channel that is not configured", "stopping"] {
        assert!(messages.iter().any(|message| message.contains(said)), "{said}: {messages:#?}");
    }
    let mut plain = String::new();
    child.stdout.take().expect("standard output").read_to_string(&mut plain).await.expect("readable");
    assert_eq!(plain, "", "nothing is said beside the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_fails_says_so_in_json() {
    let folder = disk_folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("an address").to_string();
    for (config, code, said) in [
        (config(folder.path(), &listen, ""), 1, "is another hapax running?"),
        (config(folder.path(), "127.0.0.1:0", "tokn = 'x'"), 3, "hapax.toml:9: channel.shop.tokn"),
    ] {
        let output = in_time("the end", serve(folder.path(), &config).output()).await.expect("it ran");
        assert_eq!(output.status.code(), Some(code));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<Value> = text.lines().map(parsed).collect();
        let last = lines.last().unwrap_or_else(|| panic!("nothing was said: {text}"));
        assert!(last["fields"]["message"].as_str().is_some_and(|words| words.contains(said)), "{text}");
        assert_eq!(last["level"], "ERROR");
    }
}
