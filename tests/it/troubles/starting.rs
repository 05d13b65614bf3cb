//! It does not start, or does not take its config.

use std::net::TcpListener;

use hapax_testkit::process::Program;

use super::page::Heard;
use super::stage::{Ended, Folder, Stage, closed_port, config, config_on, target};
use crate::program::store_path;

fn at_start(ended: Ended) -> Heard {
    Some(vec![("start", ended.words), ("exit code", ended.code)])
}

/// Starts the program in a folder of its own with this config, and waits for its end.
async fn refused(config: impl FnOnce(&Folder) -> String) -> Heard {
    let folder = Folder::new();
    folder.write(&config(&folder));
    at_start(folder.run(&["serve"]).await)
}

pub(super) async fn port_taken() -> Heard {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = other.local_addr().expect("an address").port().to_string();
    refused(|folder| config(folder.path(), "", "").replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))).await
}

pub(super) async fn slip() -> Heard {
    let folder = Folder::new();
    folder.write(&config(folder.path(), "", "tarket = \"http://127.0.0.1:3000/webhook\""));
    let (start, check, doctor) = (folder.run(&["serve"]).await, folder.run(&["check"]).await, folder.run(&["doctor"]).await);
    for words in [&start.words, &check.words, &doctor.words] {
        assert!(words.contains("hapax.toml:10: channel.shop.tarket: ") && words.contains("did you mean `target`"), "{words}");
    }
    assert_eq!((start.code.as_str(), doctor.code.as_str()), ("3", "3"));
    Some(vec![("start", start.words), ("hapax check", check.words), ("exit code", check.code), ("doctor", doctor.words)])
}

pub(super) async fn new_config_refused() -> Heard {
    let stage = Stage::with("", "").await;
    stage.folder.write(&config(stage.folder.path(), "", "timeout = \"soon\""));
    let reload = stage.run(&["reload"]).await;
    assert!(reload.words.contains("channel.shop.timeout: `soon` is not a time"), "{}", reload.words);
    let check = stage.folder.run(&["check"]).await;
    assert!(check.words.contains("channel.shop.timeout: `soon` is not a time"), "{}", check.words);
    stage.take("wamid.1").await;
    Some(vec![("log", stage.log("is refused").await), ("hapax reload", reload.words), ("exit code", reload.code)])
}

pub(super) async fn second_process() -> Heard {
    let stage = Stage::with("", "").await;
    let store = format!("sqlite:{}", store_path(stage.folder.path()).display());
    refused(|_| config_on(&store, "", "")).await
}

pub(super) async fn foreign_socket() -> Heard {
    let folder = Folder::new();
    let config = config(folder.path(), "", "").replace("127.0.0.1:0", &format!("127.0.0.1:{}", closed_port()));
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let ended = program.on_socket(TcpListener::bind("127.0.0.1:0").expect("a port")).ends().await.expect("it ends");
    at_start(Ended { code: ended.code.map(|code| code.to_string()).unwrap_or_default(), words: ended.words })
}

pub(super) async fn own_header() -> Heard {
    let more = format!("{}\ntarget_headers = {{ \"Hapax-Fence\" = \"1\" }}", target("http://127.0.0.1:3000/webhook"));
    refused(|folder| config(folder.path(), "", &more)).await
}

pub(super) async fn store_not_there() -> Heard {
    let port = closed_port();
    let heard = refused(|_| config_on(&format!("redis://someone:hunter2@127.0.0.1:{port}"), "", "")).await;
    for (_, words) in heard.iter().flatten() {
        assert!(!words.contains("hunter2"), "{words}");
    }
    heard
}
