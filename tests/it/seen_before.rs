//! Messages that were handled before hapax was there are not answered again on day one.

use std::process::Stdio;

use hapax_testkit::fake_bot::FakeBot;

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, program};
use crate::rig::{in_time, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_before_is_not_delivered() {
    let folder = disk_folder();
    let bot = FakeBot::willing().await.expect("a bot");
    let (process, address) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts");
    let mut list: String = (0..1_200).map(|n| format!("old-{n}\n")).collect();
    list.push_str("# what follows is odd\nx\ty\tz\n{\"id\":7}\n{\"id\":\"\"}\n700001\tlast\n");
    std::fs::write(folder.path().join("ids.txt"), list).expect("written");
    let import = async || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
        let server = format!("http://{address}");
        let arguments = ["import-seen", "--json", "--server", &server, "--channel", "shop", "--account", "700001", "ids.txt"];
        command.current_dir(folder.path()).args(arguments).env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN).stdin(Stdio::null());
        let done = command.output().await.expect("it runs");
        let sums: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        (done.status.code(), sums, String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, sums, said) = import().await;
    assert_eq!((code, &sums), (Some(1), &serde_json::json!({"claimed": 1_201, "known": 0, "refused": 3})), "{said}");
    assert!(said.contains("line 1202") && said.contains("line 1203") && said.contains("line 1204"), "{said}");
    let (_, sums, _) = import().await;
    assert_eq!(sums, serde_json::json!({"claimed": 0, "known": 1_201, "refused": 3}), "asked twice, it changes nothing");

    let poster = Poster::new();
    for old in ["old-0", "old-777", "old-1199", "last"] {
        assert_eq!(poster.post_until_taken(address, text(old, "ana")).await.word, "duplicate", "{old}");
    }
    assert_eq!(poster.post_until_taken(address, text("new", "ana")).await.word, "accepted");
    let calls = in_time("the new one", bot.called(1)).await;
    assert!(String::from_utf8_lossy(&calls[0].body).contains("this is new"), "nothing old comes to the bot");
    assert!(process.stop().await.expect("it stops").success());
}
