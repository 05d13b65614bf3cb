//! The real program on a disk that loses power: whatever was answered is on disk, and stays taken in once.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hapax_store::clock::SystemClock;
use hapax_store::prelude::*;
use hapax_store_sqlite::{Options, SqliteStore};
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::power::{Cut, Disk, PowerRig};
use hapax_testkit::process::{Process, Program};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rusqlite::Connection;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::conversation::{
    Listening, Load, SEED, all_done, everything_answered_was_delivered, moody, nothing_was_accepted_twice, repeats_can_be_told,
    send_all_again, the_store_holds_each_once, threads_kept_their_order,
};
use crate::program::{ADMIN_TOKEN, Poster, store_path};
use crate::rig::{SECRET, change, eventually, message, text, webhook};

/// Cuts under load; `make soak` asks for more.
const CUTS: usize = 12;

const ACCOUNT: &str = "700001";

/// A program that takes webhooks and messages to send, and its disk. The account that would send them rests, so that nothing but the
/// test itself makes the program write.
struct Bench {
    hapax: Program,
    rig: PowerRig,
    folder: tempfile::TempDir,
    _beside: tempfile::TempDir,
}

impl Bench {
    async fn new(target: Option<&str>, disk: Disk) -> Self {
        let (folder, beside) = (crate::quick_folder(), crate::quick_folder());
        let store = open(folder.path());
        store.pause_account("shop", ACCOUNT, Some("a test")).await.expect("paused");
        drop(store);
        let target = target.map_or_else(String::new, |target| format!("target = \"{target}\"\n"));
        let config = format!(
            "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n\
             [channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\n\
             token = \"a token for tests only\"\napi_base = \"http://127.0.0.1:9\"\n\
             attempts = 1000\nbackoff = \"20ms\"\nbackoff_cap = \"100ms\"\n{target}",
            store_path(folder.path()).display()
        );
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), beside.path(), &config).expect("a config file");
        let shim = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/power/shim.c"));
        let rig = PowerRig::new(&shim, folder.path(), beside.path()).expect("the shim compiles");
        Self { hapax: rig.under(program, disk), rig, folder, _beside: beside }
    }

    /// Starts it, and lets it write something: the head of a new log has a sync of its own, before anything stands in it.
    async fn warm(&self) -> (Process, SocketAddr) {
        let (process, at) = self.hapax.serve().await.expect("it starts");
        let said = Poster::new().post(at, text("wamid.first", "5511")).await.expect("an answer");
        assert_eq!((said.status, said.word.as_str()), (200, "accepted"));
        (process, at)
    }

    /// The power goes; what is left must be a whole database.
    fn cut(&mut self, cut: Cut<'_>) {
        self.rig.cut(cut).expect("the folder is put back");
        let copy = crate::quick_folder();
        for entry in std::fs::read_dir(self.folder.path()).expect("the folder") {
            let entry = entry.expect("a file");
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a copy");
        }
        let db = Connection::open(store_path(copy.path())).expect("the file opens");
        let said: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("it is checked");
        assert_eq!(said, "ok");
    }
}

fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(&store_path(folder), Arc::new(SystemClock::new()), &Options::default()).expect("the store opens")
}

/// Queues a message; gives the status and the message's id.
async fn submit(poster: &Poster, at: SocketAddr, request_id: &str) -> Option<(u16, String)> {
    let to = "5511988887777";
    let body = serde_json::json!({"account": ACCOUNT, "channel": "shop", "to": to, "text": "hello", "request_id": request_id});
    let (status, answer) = poster.send(at, &body).await?;
    assert!(!(400..500).contains(&status), "{answer}");
    Some((status, answer["id"].as_str().unwrap_or_default().to_owned()))
}

/// A webhook whose sync was under way when the process was killed is sent again to the next process, which has a disk like this, and then the
/// power goes. Gives what the provider hears when it sends it once more.
async fn heard_after_the_cut(next: Disk) -> String {
    let mut bench = Bench::new(None, Disk::default()).await;
    let body = text("wamid.A", "5511");
    let (process, at) = bench.warm().await;
    bench.rig.hold_syncs().expect("held");
    let first = tokio::spawn({
        let body = body.clone();
        async move { Poster::new().post(at, body).await }
    });
    eventually("its sync is under way", async || bench.rig.holds_a_sync()).await;
    process.kill_nine().await.expect("killed");
    assert!(first.await.expect("no panic").is_none(), "it was never answered");
    bench.rig.killed().expect("the journal is read");
    bench.rig.release_syncs().expect("released");

    let (process, at) = bench.rig.under(bench.hapax.clone(), next).serve().await.expect("it starts again");
    let said = Poster::new().post(at, body.clone()).await.expect("an answer");
    assert_eq!((said.status, said.word.as_str()), (200, "duplicate"), "a kill loses nothing that was written");
    process.kill_nine().await.expect("killed");
    bench.cut(Cut::Everything);

    let (_process, at) = bench.hapax.serve().await.expect("it starts after the cut");
    let said = Poster::new().post(at, body).await.expect("an answer");
    assert_eq!(said.status, 200);
    said.word
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_answered_after_a_kill_in_mid_sync_was_taken_in_for_good() {
    assert_eq!(heard_after_the_cut(Disk::default()).await, "duplicate", "what was answered 200 is there");
    assert_eq!(
        heard_after_the_cut(Disk { lies: true, ..Disk::default() }).await,
        "accepted",
        "without the sync at opening it is lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_answered_again_after_a_kill_in_mid_sync_was_queued_for_good() {
    let mut bench = Bench::new(None, Disk::default()).await;
    let (process, at) = bench.warm().await;
    bench.rig.hold_syncs().expect("held");
    let first = tokio::spawn(async move { submit(&Poster::new(), at, "order-1").await });
    eventually("its sync is under way", async || bench.rig.holds_a_sync()).await;
    process.kill_nine().await.expect("killed");
    assert!(first.await.expect("no panic").is_none(), "it was never answered");
    bench.rig.killed().expect("the journal is read");
    bench.rig.release_syncs().expect("released");

    let (process, at) = bench.hapax.serve().await.expect("it starts again");
    let (status, id) = submit(&Poster::new(), at, "order-1").await.expect("an answer");
    assert_eq!(status, 200, "a kill loses nothing that was written");
    process.kill_nine().await.expect("killed");
    bench.cut(Cut::Everything);

    let (_process, at) = bench.hapax.serve().await.expect("it starts after the cut");
    assert_eq!(submit(&Poster::new(), at, "order-1").await, Some((200, id)), "what was answered 200 is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_ends_the_process_and_nobody_is_answered() {
    let mut bench = Bench::new(None, Disk::default()).await;
    let body = text("wamid.A", "5511");
    let (process, at) = bench.warm().await;
    bench.rig.fail_syncs().expect("it fails");
    assert!(Poster::new().post(at, body.clone()).await.is_none(), "it was never answered");
    let status = process.kill_nine_after(Duration::from_secs(60)).await.expect("it ended");
    assert_eq!(status.code(), Some(4), "it ended by itself");
    bench.rig.heal().expect("healed");
    bench.cut(Cut::Everything);

    let (_process, at) = bench.hapax.serve().await.expect("it starts again");
    let said = Poster::new().post(at, body).await.expect("an answer");
    assert_eq!((said.status, said.word.as_str()), (200, "accepted"));
    let said = Poster::new().post(at, text("wamid.first", "5511")).await.expect("an answer");
    assert_eq!((said.status, said.word.as_str()), (200, "duplicate"), "what was synced before is there");
}

/// The log is merged into the file beside the writer; SQLite would take for written what a failed sync of the file has dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_synced_ends_the_process() {
    // More than the log holds before it is merged.
    const WEBHOOKS: usize = 400;
    let mut bench = Bench::new(None, Disk::default()).await;
    let (process, at) = bench.warm().await;
    bench.rig.fail_syncs_but_of_logs().expect("it fails");
    let (poster, mut taken) = (Poster::new(), Vec::new());
    let body = |number: usize| {
        let mut long = message(&format!("wamid.{number}"), "5511");
        long["text"]["body"] = "x".repeat(60_000).into();
        webhook(&[change(&[long], &[])])
    };
    for number in 0..WEBHOOKS {
        match poster.post(at, body(number)).await {
            Some(said) => assert_eq!((said.status, said.word.as_str()), (200, "accepted")),
            None => break,
        }
        taken.push(number);
    }
    assert!((100..WEBHOOKS).contains(&taken.len()), "{} were answered", taken.len());
    let status = process.kill_nine_after(Duration::from_secs(60)).await.expect("it ended");
    assert_eq!(status.code(), Some(4), "it ended by itself");
    bench.rig.heal().expect("healed");
    bench.cut(Cut::Everything);

    let (_process, at) = bench.hapax.serve().await.expect("it starts again");
    for number in taken {
        let said = poster.post(at, body(number)).await.expect("an answer");
        assert_eq!((said.status, said.word.as_str()), (200, "duplicate"), "what was answered is there");
    }
}

/// Takes in some webhooks, one after the other, then the power goes; gives how many of those answered 200 are not there.
async fn lost_by_a_cut(disk: Disk) -> usize {
    let mut bench = Bench::new(None, disk).await;
    let poster = Poster::new();
    let (process, at) = bench.hapax.serve().await.expect("it starts");
    let bodies: Vec<String> = (0..20).map(|number| text(&format!("wamid.{number}"), "5511")).collect();
    for body in &bodies {
        let said = poster.post(at, body.clone()).await.expect("an answer");
        assert_eq!((said.status, said.word.as_str()), (200, "accepted"));
    }
    process.kill_nine().await.expect("killed");
    bench.cut(Cut::Everything);
    let (_process, at) = bench.hapax.serve().await.expect("it starts after the cut");
    let mut lost = 0;
    for body in bodies {
        let said = poster.post(at, body).await.expect("an answer");
        lost += usize::from(said.word != "duplicate");
    }
    lost
}

/// The rig itself: it would be of no use if it could not see a sync that was left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_is_left_out_is_found_out() {
    assert_eq!(lost_by_a_cut(Disk { lies: true, ..Disk::default() }).await, 20);
    assert_eq!(lost_by_a_cut(Disk::default()).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_under_load_lose_and_double_nothing() {
    let cuts = std::env::var("HAPAX_POWER_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(CUTS);
    let bot = FakeBot::start(|call| moody(call.number)).await.expect("a bot");
    let mut bench = Bench::new(Some(&bot.url()), Disk { sync_us: 2_000, lies: false }).await;
    let (there, listening) = watch::channel(Vec::new());
    let (load, enough) = (Load::start(&listening), CancellationToken::new());
    let submits = tokio::spawn(submit_until(enough.clone(), listening));

    let mut random = StdRng::seed_from_u64(SEED);
    for cut in 0..cuts {
        // Some kills in between, after which what was not synced is still seen, and may be answered for.
        for _ in 0..=cut % 3 {
            let mut process = bench.hapax.start().expect("it starts");
            there.send_replace(vec![process.address().await.expect("it listens")]);
            // Also where the machine is so busy elsewhere that nothing would be answered between two cuts.
            eventually("load", async || load.ids() > (cut + 1) * 5).await;
            let run = Duration::from_micros(random.random_range(5_000..200_000));
            let status = process.kill_nine_after(run).await.expect("it ended");
            there.send_replace(Vec::new());
            assert_eq!(status.signal(), Some(9), "it ran until it was killed");
            bench.rig.killed().expect("the journal is read");
        }
        let everything = random.random_ratio(1, 4);
        bench.cut(if everything { Cut::Everything } else { Cut::Random(&mut random) });
    }

    let (last, at) = bench.hapax.serve().await.expect("it starts after the last cut");
    there.send_replace(vec![at]);
    enough.cancel();
    let mut posted = load.end().await;
    assert!(posted.len() > cuts * 5, "there was load: {} ids", posted.len());
    send_all_again(at, &mut posted).await;
    all_done(at).await;
    let poster = Poster::new();
    for (request_id, id) in submits.await.expect("no panic") {
        assert_eq!(submit(&poster, at, &request_id).await, Some((200, id)), "{request_id} was answered for");
    }
    assert!(last.stop().await.expect("it stops").success());

    let calls = bot.calls();
    nothing_was_accepted_twice(&posted);
    everything_answered_was_delivered(&posted, &calls);
    threads_kept_their_order(&calls);
    assert!(repeats_can_be_told(&calls) > 0, "cuts hit work under way");
    the_store_holds_each_once(&open(bench.folder.path()), &posted).await;
}

/// Queues message after message, each until it was answered; gives them all, with the ids they were answered with.
async fn submit_until(enough: CancellationToken, mut listening: Listening) -> Vec<(String, String)> {
    let (poster, mut answered) = (Poster::new(), Vec::new());
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    while !enough.is_cancelled() {
        pace.tick().await;
        let request_id = format!("order-{}", answered.len());
        let id = loop {
            let at = listening.wait_for(|open| !open.is_empty()).await.expect("the test runs")[0];
            match submit(&poster, at, &request_id).await {
                Some((200 | 202, id)) => break id,
                _ => drop(tokio::time::timeout(Duration::from_millis(20), listening.changed()).await),
            }
        };
        answered.push((request_id, id));
    }
    answered
}
