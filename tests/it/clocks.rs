//! Clocks that are set, ahead and back, between two runs of the embedded store and under the real program.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hapax_store::prelude::*;
use hapax_store::{Accepted, Outcome, Purged, Reads, SendOutcome, Settled};
use hapax_store_sqlite::{Options, PeriodSize, SqliteStore};
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::Play;
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::servers::skip;
use hapax_testkit::store_fixture::{START_MS, WINDOW_MS, accept, accept_one, lease, message, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};
use serde_json::Value;

use crate::phones::{ACCOUNT, Phones};
use crate::program::{Poster, disk_folder, program_with, store_path};
use crate::quick_folder;
use crate::rig::{Opened, Rig, channel, eventually, in_time, text};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;

/// One file, opened again and again under clocks that show what the test says.
struct File(tempfile::TempDir);

impl File {
    fn open(&self, at_ms: i64) -> (SqliteStore, HandClock) {
        let clock = HandClock::at(at_ms);
        let options = Options { period: PeriodSize { keys: 4, ms: DAY_MS }, disk_floor_bytes: 0, ..Options::default() };
        let store = SqliteStore::open(&store_path(self.0.path()), Arc::new(clock.clone()), &options);
        (store.expect("the store opens"), clock)
    }
}

async fn deliver_all(store: &SqliteStore) {
    for held in lease(store, 1_000).await {
        let done = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
        assert_eq!(store.settle_inbox(held.lane, held.fence, done).await.expect("settled"), Settled::Done);
    }
}

async fn send_all(store: &SqliteStore) {
    for held in store.lease_outbox(ask_out(1_000)).await.expect("leased") {
        let sent = SendOutcome::Sent { provider_id: format!("w {}", held.request_id) };
        assert_eq!(store.settle_outbox(held.lane, held.fence, sent).await.expect("settled"), Settled::Done);
    }
}

async fn is_copy(store: &SqliteStore, id: &str) -> bool {
    matches!(accept(store, webhook(vec![message(id, "someone")])).await[0], Accepted::Duplicate(_))
}

async fn purge_all(store: &SqliteStore, keep_ms: i64) -> Purged {
    let mut all = Purged::default();
    loop {
        all = all.and(store.purge(&[("shop".to_owned(), keep_ms)], 7).await.expect("purged"));
        if !all.more {
            return all;
        }
    }
}

async fn requests(store: &SqliteStore) -> Vec<String> {
    let leases = store.lease_outbox(ask_out(10)).await.expect("leased");
    let mut requests: Vec<_> = leases.into_iter().map(|held| held.request_id).collect();
    requests.sort();
    requests
}

#[tokio::test]
async fn a_clock_set_back_holds_no_message_up() {
    let file = File(quick_folder());
    let (store, _clock) = file.open(START_MS);
    for (id, peer) in [("leased", "1"), ("checked", "2"), ("retried", "3"), ("waiting", "4")] {
        store.submit(outgoing(id, peer)).await.expect("submitted");
    }
    for held in store.lease_outbox(ask_out(3)).await.expect("leased") {
        store.begin(held.lane, held.fence).await.expect("begun");
        let outcome = match held.request_id.as_str() {
            "checked" => SendOutcome::Unknown { why: "cut".to_owned(), check_ms: Some(1_000) },
            "retried" => SendOutcome::Retry { wait_ms: 1_000, why: "busy".to_owned(), charged: true },
            _ => continue,
        };
        assert_eq!(store.settle_outbox(held.lane, held.fence, outcome).await.expect("settled"), Settled::Done);
    }
    drop(store);

    // It is followed once, however often hapax is started before it shows as much again.
    drop(file.open(START_MS - HOUR_MS));
    let (store, clock) = file.open(START_MS - HOUR_MS);
    assert_eq!(requests(&store).await, ["leased", "waiting"], "what was due is due, what was leased is free");
    clock.advance(900);
    assert_eq!(requests(&store).await, [""; 0], "the others wait as long as they should");
    clock.advance(-900);
    clock.advance(1_001);
    assert_eq!(requests(&store).await, ["checked", "retried"], "the others wait a second, not an hour");
}

/// Nothing new came for a while: only what was written last tells how far the clock had been.
#[tokio::test]
async fn a_clock_set_back_after_a_quiet_time_holds_nothing_up() {
    let file = File(quick_folder());
    let (store, clock) = file.open(START_MS);
    accept_one(&store, message("retried", "1")).await;
    store.submit(outgoing("retried", "1")).await.expect("submitted");
    clock.advance(HOUR_MS);
    let held = lease(&store, 1).await.remove(0);
    let again = Outcome::Retry { wait_ms: 1_000, why: "busy".to_owned() };
    assert_eq!(store.settle_inbox(held.lane, held.fence, again).await.expect("settled"), Settled::Done);
    let held = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
    let again = SendOutcome::Retry { wait_ms: 1_000, why: "busy".to_owned(), charged: true };
    assert_eq!(store.settle_outbox(held.lane, held.fence, again).await.expect("settled"), Settled::Done);
    drop(store);

    let (store, clock) = file.open(START_MS + MINUTE_MS);
    clock.advance(1_001);
    assert_eq!((lease(&store, 10).await.len(), requests(&store).await.len()), (1, 1));
}

/// What a wrong clock dated before this version could know of it: nobody waits that long by hapax's own doing.
#[tokio::test]
async fn what_is_due_later_than_any_wait_is_due() {
    let file = File(quick_folder());
    let (store, _clock) = file.open(START_MS);
    accept_one(&store, message("far", "1")).await;
    store.submit(outgoing("far", "1")).await.expect("submitted");
    drop(store);
    let db = rusqlite::Connection::open(store_path(file.0.path())).expect("the file");
    for table in ["inbox", "outbox"] {
        db.execute(&format!("UPDATE {table} SET due = ?1"), [START_MS + YEAR_MS]).expect("dated");
    }
    drop(db);
    let (store, _clock) = file.open(START_MS);
    assert_eq!((lease(&store, 10).await.len(), requests(&store).await.len()), (1, 1));
}

#[tokio::test]
async fn a_clock_set_ahead_and_corrected_forgets_no_key_and_keeps_none_for_ever() {
    let file = File(quick_folder());
    let (store, _clock) = file.open(START_MS);
    accept_one(&store, message("before", "1")).await;
    drop(store);
    // A week ahead, before's window is not over; five keys, so that periods are closed meanwhile.
    let ahead_ms = WINDOW_MS - DAY_MS;
    let (store, _clock) = file.open(START_MS + ahead_ms);
    for n in 0..5 {
        accept_one(&store, message(&format!("ahead {n}"), "2")).await;
    }
    assert!(is_copy(&store, "before").await);
    drop(store);

    let (store, clock) = file.open(START_MS + HOUR_MS);
    accept_one(&store, message("after", "3")).await;
    assert_eq!(lease(&store, 10).await.len(), 3, "nothing is held up");
    clock.advance(WINDOW_MS - 2 * HOUR_MS);
    for id in ["before", "ahead 0", "ahead 4", "after"] {
        assert!(is_copy(&store, id).await, "{id} is known within its window");
    }
    drop(store);
    let (store, clock) = file.open(START_MS + WINDOW_MS - HOUR_MS);
    assert!(is_copy(&store, "ahead 4").await && is_copy(&store, "after").await, "also after a start");
    clock.advance(HOUR_MS + DAY_MS);
    for id in ["before", "ahead 0", "ahead 4", "after"] {
        assert!(!is_copy(&store, id).await, "{id} is forgotten a day after its window at the latest");
    }
}

/// A process keeps to its own pace when the clock is set ahead, and catches up with it at the next start.
#[tokio::test]
async fn keys_claimed_by_a_clock_that_lags_are_kept_for_their_window() {
    let file = File(quick_folder());
    let (store, clock) = file.open(START_MS);
    clock.step_wall(YEAR_MS);
    accept_one(&store, message("lagging", "1")).await;
    drop(store);
    let (store, clock) = file.open(START_MS + YEAR_MS);
    clock.advance(WINDOW_MS - HOUR_MS);
    assert!(is_copy(&store, "lagging").await, "within its window by the world's clock");
    clock.advance(HOUR_MS + MINUTE_MS);
    assert!(!is_copy(&store, "lagging").await);
}

#[tokio::test]
async fn rows_from_the_future_stop_no_purge_and_go_with_the_others() {
    let file = File(quick_folder());
    // More than a step looks at.
    for (at_ms, rows) in [(START_MS, 5), (START_MS + YEAR_MS, 20), (START_MS + HOUR_MS, 5)] {
        let (store, _clock) = file.open(at_ms);
        for n in 0..rows {
            accept_one(&store, message(&format!("{at_ms} {n}"), "1")).await;
            store.submit(outgoing(&format!("{at_ms} {n}"), "1")).await.expect("submitted");
            deliver_all(&store).await;
            send_all(&store).await;
        }
    }
    let (store, clock) = file.open(START_MS + 2 * HOUR_MS);
    assert_eq!(purge_all(&store, DAY_MS).await.events, 0, "nothing is that old");
    accept_one(&store, message("young", "1")).await;
    clock.advance(DAY_MS - HOUR_MS - MINUTE_MS);
    assert_eq!(purge_all(&store, DAY_MS).await.events, 5, "those of before");
    // The rows from the future are as old as those behind them; each round over all of them takes some.
    clock.advance(2 * MINUTE_MS);
    let mut rounds = 0;
    while store.stats().await.expect("stats").events > 1 {
        clock.advance(HOUR_MS);
        purge_all(&store, DAY_MS).await;
        rounds += 1;
        assert!(rounds < 10, "{:?}", store.stats().await);
    }
    drop(store);
    let db = rusqlite::Connection::open(store_path(file.0.path())).expect("the file");
    let left: i64 = db.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).expect("counted");
    assert_eq!(left, 0, "messages too");
}

/// What makes a program see another time.
pub(crate) fn false_clock() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1")).find(|file| file.is_file());
    if found.is_none() {
        skip("libfaketime", "apt-get install libfaketime", true);
    }
    found
}

/// Ahead by two days, corrected, and set back by another two: what waits goes on within seconds of each start, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_goes_on_at_once_whatever_its_clock_was_set_to() {
    let Some(library) = false_clock() else { return };
    let folder = disk_folder();
    let willing = Arc::new(AtomicBool::new(false));
    let is_willing = || {
        let willing = Arc::clone(&willing);
        move || willing.load(Ordering::SeqCst)
    };
    let (for_bot, for_phones) = (is_willing(), is_willing());
    let bot = FakeBot::start(move |_| Say::Status(if for_bot() { 200 } else { 500 })).await.expect("a bot");
    let phones = Phones::start(move |_| if for_phones() { Play::Act } else { Play::TooMany { retry_after_s: Some(2) } }).await;
    let sends = format!(
        "token = \"a token for tests\"\napi_base = \"{}\"\nretention = \"1s\"\nsend_attempts = 1000\nchat_rate = \"1000/s\"",
        phones.provider.url()
    );
    let hapax = program_with(folder.path(), Some(&bot.url()), "", &sends);
    let under = |by: &str| {
        let set = format!("export LD_PRELOAD={} FAKETIME={by} FAKETIME_DONT_FAKE_MONOTONIC=1", library.display());
        hapax.clone().after(&set)
    };
    let poster = Poster::new();
    let peer = |n: usize| format!("551190000{n}");
    let shown = ["+172800", "+0", "-172800", "-172800"];
    for n in 0..3 {
        willing.store(false, Ordering::SeqCst);
        let (process, at) = under(shown[n]).serve().await.expect("it starts");
        for earlier in 0..=n {
            let said = poster.post(at, text(&format!("wamid.{earlier}"), &peer(earlier))).await.expect("an answer");
            assert_eq!(said.word, if earlier == n { "accepted" } else { "duplicate" }, "{earlier} in run {n}");
        }
        let ask = serde_json::json!({ "channel": "shop", "account": ACCOUNT, "to": peer(n), "text": "hello" });
        let queued = poster.ask(at, "/v1/messages", &ask).await.expect("queued");
        bot.called(bot.calls().len() + 1).await;
        let message = format!("/v1/messages/{}", queued["id"].as_str().expect("an id"));
        // It is told to wait: from then on a crash leaves no doubt.
        eventually("it waits", async || {
            poster.get(at, &message).await.is_some_and(|told| told.contains("\"outcome\":\"retry\""))
        })
        .await;
        process.kill_nine().await.expect("killed");

        willing.store(true, Ordering::SeqCst);
        let (process, at) = under(shown[n + 1]).serve().await.expect("it starts");
        eventually("all is delivered", async || poster.on_their_way(at).await == Some(0)).await;
        eventually("all is sent", async || phones.provider.phone(&peer(n)).len() == 1).await;
        process.kill_nine().await.expect("killed");
    }
    let (process, at) = hapax.serve().await.expect("it starts by the right clock");
    // The first of them is from the future, and keeps none of the others.
    eventually("all is purged", async || {
        poster.ask(at, "/v1/purge", &Value::Null).await.expect("purged");
        let stats: Value = serde_json::from_str(&poster.get(at, "/v1/stats").await.unwrap_or_default()).unwrap_or_default();
        stats["events"] == 0
    })
    .await;
    process.stop().await.expect("it stops");
    assert_eq!(phones.reached().len(), 3, "each once");
}

/// Reads a stream of events until these have come, in any order.
async fn heard(rig: &Rig, after: Option<&str>, mut wanted: Vec<String>, meanwhile: impl Future<Output = ()>) {
    let mut request = rig.client.get(rig.url("/v1/stream")).bearer_auth("an admin token for tests");
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let mut stream = request.send().await.expect("a stream");
    meanwhile.await;
    let mut told = String::new();
    while !wanted.is_empty() {
        let chunk = in_time("more of the stream", stream.chunk()).await.expect("a whole stream").expect("more");
        told.push_str(std::str::from_utf8(&chunk).expect("text"));
        wanted.retain(|part| !told.contains(&**part));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_tells_what_comes_after_the_clock_was_set_back() {
    let file = File(quick_folder());
    let (store, _) = file.open(START_MS + HOUR_MS);
    let of_the_future = accept_one(&store, message("m0", "someone")).await;
    drop(store);
    let (store, clock) = file.open(START_MS);
    let opened = Opened { store: Arc::new(store), clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    heard(&rig, None, vec!["m1".to_owned(), "m2".to_owned()], async {
        rig.accepted("shop", text("m1", "5511")).await;
        clock.advance(5_000);
        rig.accepted("shop", text("m2", "5511")).await;
    })
    .await;
    heard(&rig, Some(&of_the_future.to_string()), vec!["m1".to_owned(), "m2".to_owned()], async {}).await;
    rig.stop().await;
}
