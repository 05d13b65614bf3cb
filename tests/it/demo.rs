//! `hapax demo` as people run it, for a few seconds: what its provider and its bot have written down must add up.

use std::process::Stdio;

use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_loses_nothing_doubles_nothing_and_leaves_nothing_behind() {
    let folder = crate::quick_folder();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_hapax"));
    demo.args(["demo", "--seconds", "3", "--json"]).current_dir(folder.path()).env("TMPDIR", folder.path());
    // Somebody's own settings are none of the demo's.
    demo.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/x").env("HAPAX_LISTEN", "127.0.0.1:1");
    let ended = demo.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("it runs");
    let tally: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    let count = |key: &str| tally[key].as_u64().expect("a count");
    assert_eq!((count("lost"), count("doubled")), (0, 0), "{tally}");
    assert!(ended.status.success(), "{ended:?}");
    assert!(count("messages") >= 10 && count("suppressed") > 0 && count("received") > count("messages"), "{tally}");
    assert_eq!((count("delivered"), count("sent")), (count("messages"), count("messages")), "{tally}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}
