//! What a new user does first works as it is printed.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use hapax_testkit::process::Program;
use tokio::process::Command;

use crate::program::ADMIN_TOKEN;
use crate::rig::{eventually, in_time};
use crate::troubles::stage::{Folder, Stage};

/// A first start with flags that no other command knows of: what it says to do next must bring them along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_first_start_says_to_do_next_works() {
    let folder = Folder::new();
    let out = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.args(["listen", "--listen", "127.0.0.1:0", "--store", "sqlite:elsewhere.db"]).current_dir(folder.path());
    command.env_remove("HAPAX_ADMIN_TOKEN").stdin(Stdio::null()).kill_on_drop(true);
    let _listening = command.stdout(std::fs::File::create(&out).expect("a file")).spawn().expect("it runs");
    let mut said = String::new();
    eventually("it listens", async || {
        said = std::fs::read_to_string(&out).unwrap_or_default();
        said.contains("Stop with Ctrl-C")
    })
    .await;
    let token = folder.path().join("elsewhere.token");
    assert_eq!(token.metadata().expect("a token").permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(token).expect("a token");
    assert!(!said.contains(token.trim()), "a pipe gets no token: {said}");

    let next = said.lines().skip_while(|line| *line != "Next, in another terminal:").nth(1).expect("what to do next");
    let mut shell = Command::new("sh");
    shell.args(["-c", next]).current_dir(folder.path()).env_remove("HAPAX_ADMIN_TOKEN").stdin(Stdio::null());
    let done = in_time("its end", shell.output()).await.expect("it runs");
    let words = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success() && words.contains("1 accepted, 4 copies suppressed"), "{next}: {words}");
    eventually("it is shown", async || std::fs::read_to_string(&out).unwrap_or_default().contains("delivered    evt_")).await;
}

/// The store remembers the hash of the token that a first start makes; whoever has not got the token itself must not be shut out for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_could_not_be_left_or_was_lost_is_no_dead_end() {
    let folder = Folder::new();
    let config = "listen = \"127.0.0.1:0\"\nstore = \"sqlite:hapax.db\"\n[log]\nfilter = \"off\"\n";
    let log = folder.path().join("log");
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), config).expect("a config file").at_home();
    let program = program.after(&format!("unset HAPAX_ADMIN_TOKEN; exec 2>'{}'", log.display()));
    let token = folder.path().join("hapax.token");
    std::fs::create_dir(&token).expect("something in its place");
    let ended = folder.run(&["serve"]).await;
    assert_eq!((ended.code.as_str(), ended.words.contains("cannot be written to hapax.token")), ("1", true), "{}", ended.words);
    std::fs::remove_dir(&token).expect("out of the way");
    let (process, at) = program.serve().await.expect("it starts");
    assert!(token.is_file(), "the second start leaves one");
    assert_eq!(folder.run(&["events", "--server", &format!("http://{at}")]).await.code, "0");
    assert!(process.stop().await.expect("it stops").success());

    std::fs::remove_file(&token).expect("lost");
    let (process, _) = program.serve().await.expect("it starts");
    eventually("it says that the token is lost, and what to do", async || {
        let said = std::fs::read_to_string(&log).expect("a log");
        said.contains("is not in hapax.token any more") && said.contains("HAPAX_ADMIN_TOKEN")
    })
    .await;
    assert!(process.stop().await.expect("it stops").success());
    let own = program.clone().after("export HAPAX_ADMIN_TOKEN=a-token-of-ones-own");
    assert!(own.serve().await.expect("it starts").0.stop().await.expect("it stops").success());
    let (process, _) = program.serve().await.expect("it starts");
    assert!(token.is_file(), "as it was told");
    assert!(process.stop().await.expect("it stops").success());
}

/// The store of a first start is `sqlite:hapax.db`, in the working folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_the_working_folder_is_backed_up_and_put_back() {
    let folder = Folder::new();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:hapax.db\"\n[log]\nfilter = \"off\"\n"
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let program = program.after(&format!("cd '{}'", folder.path().display()));
    let (process, at) = program.serve().await.expect("it starts");
    let backup = folder.run(&["backup", "--server", &format!("http://{at}"), "copy.db"]).await;
    assert_eq!(backup.code, "0", "{}", backup.words);
    assert!(process.stop().await.expect("it stops").success());
    let restore = folder.run(&["restore", "--force", "copy.db"]).await;
    assert_eq!(restore.code, "0", "{}", restore.words);
    let (process, _) = program.serve().await.expect("it starts");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_says_what_to_do_and_is_no_failure() {
    let stage = Stage::with("", "").await;
    let lists: [&[&str]; 9] = [
        &["events"],
        &["events", "state:parked"],
        &["inbox"],
        &["parked"],
        &["threads"],
        &["outbox"],
        &["accounts"],
        &["claims"],
        &["token", "list"],
    ];
    for words in lists {
        let ended = stage.run(words).await;
        assert!(ended.code == "0" && ended.words.trim().len() > 20, "{words:?}: {} {}", ended.code, ended.words);
    }
}

/// A message that no bot has had yet is not `delivered`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_in_is_read_or_unread() {
    let stage = Stage::with("", "").await;
    stage.take("wamid.1").await;
    let ended = stage.run(&["messages", "700001__5511900001"]).await;
    assert!(ended.words.contains("\tin\tunread\t"), "{}", ended.words);
    let asked = reqwest::Client::new().post(format!("http://{}/v1/threads/700001__5511900001/read", stage.at));
    let asked = asked.bearer_auth(ADMIN_TOKEN).json(&serde_json::json!({})).send().await.expect("an answer");
    assert!(asked.status().is_success(), "{asked:?}");
    let ended = stage.run(&["messages", "700001__5511900001"]).await;
    assert!(ended.words.contains("\tin\tread\t"), "{}", ended.words);
}
