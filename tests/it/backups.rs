//! A backup is made while webhooks come in, and put back: what it has is known, and what came since is new.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, program, program_with, store_path};
use crate::rig::{eventually, text};

/// Runs a command of the program in its folder; gives the exit code and what it said.
async fn hapax(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.current_dir(folder).args(arguments).env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN).env("NO_COLOR", "1").stdin(Stdio::null());
    let done = command.output().await.expect("it runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code().expect("a code"), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_whole_and_can_be_put_back() {
    let folder = disk_folder();
    let program = program(folder.path(), None, "disk_floor = \"0MB\"");
    let (process, address) = program.serve().await.expect("it starts");
    let server = format!("http://{address}");
    let poster = Poster::new();
    for n in 0..20 {
        assert_eq!(poster.post_until_taken(address, text(&format!("before-{n}"), "ana")).await.word, "accepted");
    }
    let stop = tokio_util::sync::CancellationToken::new();
    let storm = tokio::spawn({
        let (poster, stop) = (poster.clone(), stop.clone());
        async move {
            let mut taken = 0;
            while !stop.is_cancelled() {
                let said = poster.post(address, text(&format!("during-{taken}"), "bob")).await.expect("an answer");
                assert_eq!(said.status, 200, "nobody waits for a backup, and nobody is refused");
                taken += 1;
            }
            taken
        }
    });
    let (code, said) = hapax(folder.path(), &["backup", "--server", &server, "b.db"]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = hapax(folder.path(), &["backup", "--server", &server, "b.db"]).await;
    assert_eq!((code, said.contains("is there already")), (1, true), "{said}");
    let audit = poster.get(address, "/v1/audit").await.expect("the audit");
    assert!(audit.contains("\"action\":\"backup\""), "who has a copy of everything is written down: {audit}");
    stop.cancel();
    assert!(storm.await.expect("no refusal") > 0);
    assert_eq!(poster.post_until_taken(address, text("after", "ana")).await.word, "accepted");
    let (code, said) = hapax(folder.path(), &["restore", "--config", "hapax.toml", "b.db"]).await;
    assert_eq!((code, said.contains("belongs to another hapax")), (1, false), "asks before it looks: {said}");
    let (code, said) = hapax(folder.path(), &["restore", "--config", "hapax.toml", "--force", "b.db"]).await;
    assert_eq!((code, said.contains("belongs to another hapax")), (1, true), "{said}");
    assert!(process.stop().await.expect("it stops").success());

    let (code, said) = hapax(folder.path(), &["restore", "--config", "hapax.toml", "b.db"]).await;
    assert_eq!((code, said.contains("is not empty")), (1, true), "{said}");
    let (code, said) = hapax(folder.path(), &["restore", "--config", "hapax.toml", "--force", "b.db"]).await;
    assert_eq!((code, said.contains("Keys won since then are gone")), (0, true), "{said}");
    let (process, address) = program.serve().await.expect("it starts");
    for n in 0..20 {
        assert_eq!(poster.post_until_taken(address, text(&format!("before-{n}"), "ana")).await.word, "duplicate");
    }
    assert_eq!(poster.post_until_taken(address, text("after", "ana")).await.word, "accepted", "its key is gone, as was said");
    assert!(process.stop().await.expect("it stops").success());
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").filter_map(|entry| entry.ok()).collect();
    let half = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().contains("partial");
    assert!(!left.iter().any(half), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_are_made_by_themselves() {
    let folder = disk_folder();
    let to = folder.path().join("copies");
    let more = format!("[backup]\nto = \"{}\"\nevery = \"1h\"\nkeep = 2", to.display());
    let program = program_with(folder.path(), None, "disk_floor = \"0MB\"", &more);
    std::fs::create_dir(&to).expect("a folder");
    for old in ["hapax-20200101T000000Z.db", "hapax-20200102T000000Z.db", "mine.db"] {
        std::fs::write(to.join(old), "old").expect("written");
    }
    let (process, address) = program.serve().await.expect("it starts");
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&to).expect("a folder").filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    eventually("a backup of its own, and the oldest gone", async || {
        let names = names();
        names.len() == 3 && names[0] == "hapax-20200102T000000Z.db" && names[2] == "mine.db"
    })
    .await;
    let made = to.join(&names()[1]);
    assert!(Poster::new().get(address, "/metrics").await.expect("metrics").contains("hapax_backups_total{outcome=\"made\"} 1"));
    assert!(process.stop().await.expect("it stops").success());
    std::fs::remove_file(store_path(folder.path())).expect("the disk is gone");
    let _ = std::fs::remove_file(folder.path().join("hapax.db-wal"));
    let made = made.to_str().expect("a name");
    let (code, said) = hapax(folder.path(), &["restore", "--config", "hapax.toml", made]).await;
    assert_eq!(code, 0, "{said}");
    let (process, _) = program.serve().await.expect("it starts");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test]
async fn a_server_store_is_backed_up_with_its_own_tools() {
    let folder = disk_folder();
    for (store, tool) in [
        ("postgres://u:pw@127.0.0.1:1/d", "pg_dump"),
        ("mysql://u:pw@127.0.0.1:1/d", "mysqldump"),
        ("redis://127.0.0.1:1", "appendonlydir"),
        ("firestore://project", "gcloud firestore export"),
    ] {
        std::fs::write(folder.path().join("hapax.toml"), format!("store = \"{store}\"\n")).expect("written");
        for command in ["backup", "restore"] {
            let (code, said) = hapax(folder.path(), &[command, "b.db"]).await;
            assert_eq!(code, 1, "{said}");
            assert!(said.contains(tool) && !said.contains("pw@"), "{said}");
        }
    }
}
