//! What somebody has said is forgotten: no words are left, and a copy is still a copy.

use std::path::Path;
use std::process::Stdio;

use hapax_testkit::fake_bot::FakeBot;
use serde_json::Value;

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, program};
use crate::rig::{change, eventually, message, text, webhook};

async fn forget(folder: &Path, address: std::net::SocketAddr, contact: &str) -> (Option<i32>, Value, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
    let server = format!("http://{address}");
    command.current_dir(folder).args(["forget", "--json", "--server", &server, "--contact", contact]);
    let done = command.env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN).stdin(Stdio::null()).output().await.expect("it runs");
    let answer = serde_json::from_slice(&done.stdout).unwrap_or_default();
    (done.status.code(), answer, String::from_utf8_lossy(&done.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_somebody_said_is_left_and_copies_are_recognised() {
    let folder = disk_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let (process, address) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts");
    let poster = Poster::new();
    let hers = text("wamid.hers", "5511900001");
    assert_eq!(poster.post_until_taken(address, hers.clone()).await.word, "accepted");
    let other = hers.replace("this is wamid.hers", "that was another secret");
    assert_eq!(poster.post_until_taken(address, other).await.word, "conflict");
    assert_eq!(poster.post_until_taken(address, text("wamid.his", "5511900002")).await.word, "accepted");
    eventually("all are settled", async || poster.on_their_way(address).await == Some(0)).await;
    let (code, answer, said) = forget(folder.path(), address, "5511900001").await;
    assert_eq!((code, &answer["threads"], &answer["open"]), (Some(0), &1.into(), &0.into()), "{answer} {said}");
    assert_eq!(answer["events"], 2, "hers, and the other content under its key: {answer}");
    for path in ["/v1/events?limit=50", "/v1/threads", "/v1/events/latest/story", "/v1/threads/700001__5511900001/messages"] {
        let shown = poster.get(address, path).await.expect("an answer");
        assert!(!shown.contains("this is wamid.hers") && !shown.contains("another secret"), "{path}: {shown}");
    }
    let threads = poster.get(address, "/v1/threads").await.expect("threads");
    assert!(threads.contains("this is wamid.his"), "his words are there: {threads}");
    assert_eq!(poster.post_until_taken(address, hers).await.word, "duplicate", "a copy is a copy");
    let audit = poster.get(address, "/v1/audit").await.expect("the audit");
    assert!(audit.contains("\"action\":\"forget\"") && !audit.contains("5511900001"), "{audit}");
    let (code, _, said) = forget(folder.path(), address, "nobody").await;
    assert_eq!((code, said.contains("nobody is called")), (Some(5), true), "{said}");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_still_waits_keeps_its_words_and_is_told() {
    let folder = disk_folder();
    let (process, address) = program(folder.path(), Some("http://127.0.0.1:1/webhook"), "").serve().await.expect("it starts");
    Poster::new().post_until_taken(address, text("wamid.1", "5511900001")).await;
    let (code, answer, said) = forget(folder.path(), address, "5511900001").await;
    assert_eq!((code, &answer["open"], &answer["events"]), (Some(1), &1.into(), &0.into()), "{answer} {said}");
    let shown = Poster::new().get(address, "/v1/threads/700001__5511900001/messages").await.expect("an answer");
    assert!(shown.contains("this is wamid.1"), "{shown}");
    assert!(process.stop().await.expect("it stops").success());
}

/// A thread that stood apart before its names were joined is this contact's too, whichever of the names one asks by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_words_under_names_that_were_joined_later_go_too() {
    let bot = FakeBot::willing().await.expect("a bot");
    for contact in ["5511900001", "BR.900001"] {
        let folder = disk_folder();
        let (process, address) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts");
        let poster = Poster::new();
        let by = |id: &str, phone: bool, user_id: bool| {
            let mut message = message(id, "5511900001");
            if !phone {
                message.as_object_mut().expect("an object").remove("from");
            }
            if user_id {
                message["from_user_id"] = "BR.900001".into();
            }
            webhook(&[change(&[message], &[])])
        };
        for posted in [by("wamid.phone", true, false), by("wamid.user", false, true), by("wamid.both", true, true)] {
            assert_eq!(poster.post_until_taken(address, posted).await.word, "accepted");
        }
        eventually("all are settled", async || poster.on_their_way(address).await == Some(0)).await;
        let (code, answer, said) = forget(folder.path(), address, contact).await;
        assert_eq!((code, &answer["events"]), (Some(0), &3.into()), "{answer} {said}");
        for path in ["/v1/threads", "/v1/threads/700001__BR.900001/messages", "/v1/threads/700001__5511900001/messages"] {
            let shown = poster.get(address, path).await.expect("an answer");
            assert!(!shown.contains("this is"), "{contact}, {path}: {shown}");
        }
        assert!(process.stop().await.expect("it stops").success());
    }
}
