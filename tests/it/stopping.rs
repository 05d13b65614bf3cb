//! A stop hands back what is not done, charges nothing, loses nothing, and tells of the calls it cut.

use std::sync::Arc;
use std::time::Instant;

use hapax_store::ItemState;
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::process::Program;
use tokio::sync::Notify;

use crate::program::{Poster, disk_folder, program};
use crate::rig::{Opened, Rig, STOP_GRACE, channel, eventually, in_time, text};

on_every_store! {
    a_stop_lets_deliveries_end_within_the_grace
    a_stop_counts_the_call_it_cut_and_charges_nothing
    the_next_start_delivers_what_was_left
    a_bot_in_mid_run_still_sends_through_us_and_nothing_more_is_leased
    a_stop_has_one_deadline
}

#[tokio::test]
async fn a_stop_as_soon_as_it_listens_is_a_clean_one() {
    let folder = disk_folder();
    let program = program(folder.path(), None, "");
    for _ in 0..5 {
        let (process, _) = program.serve().await.expect("it starts");
        assert_eq!(process.stop().await.expect("it stops").code(), Some(0), "the signal did not end it by itself");
    }
}

/// The disk of the log is full, its reader has gone, or its terminal was closed.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let folder = disk_folder();
    let config = "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[log]\nfilter = \"trace\"\n";
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), config).expect("a config");
    let (process, _) = program.after("exec 2>/dev/full").serve().await.expect("it starts");
    assert_eq!(in_time("its end", process.stop()).await.expect("it stops").code(), Some(0));
}

fn slow(finish: &Arc<Notify>) -> impl Fn(hapax_testkit::fake_bot::Call) -> futures_util::future::BoxFuture<'static, Say> + use<> {
    let finish = Arc::clone(finish);
    move |_| {
        let finish = Arc::clone(&finish);
        Box::pin(async move {
            finish.notified().await;
            Say::Status(200)
        })
    }
}

async fn a_stop_lets_deliveries_end_within_the_grace(opened: Opened) {
    let finish = Arc::new(Notify::new());
    let bot = FakeBot::start_slow(slow(&finish)).await.expect("a bot");
    // The folder outlives the rig, so that the store can still be asked.
    let (store, _folder) = (Arc::clone(&opened.store), opened.folder.clone());
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    rig.begin_stop();
    finish.notify_one();
    rig.stop().await;
    let stats = store.stats().await.expect("stats");
    assert!(stats.channels.iter().all(|counts| counts.waiting + counts.leased == 0), "{stats:?}");
}

async fn a_stop_counts_the_call_it_cut_and_charges_nothing(opened: Opened) {
    let bot = FakeBot::start_slow(slow(&Arc::new(Notify::new()))).await.expect("a bot");
    // The folder outlives the rig, so that the store can still be asked.
    let (store, _folder) = (Arc::clone(&opened.store), opened.folder.clone());
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    rig.stop().await;
    let row = store.inbox(hapax_store::InboxQuery { limit: 1, ..Default::default() }).await.expect("the inbox").rows.remove(0);
    assert!(matches!(row.state, ItemState::Waiting { .. }), "{row:?}");
    assert_eq!((row.attempt, row.failures), (1, 0), "the bot may have done its work");
    let story = store.event(row.event).await.expect("the event").expect("it is there").attempts;
    assert_eq!(story.iter().map(|row| (row.attempt, row.outcome.as_str())).collect::<Vec<_>>(), [(1, "handed back")]);
    assert!(story[0].detail.contains("hapax stopped"), "{story:?}");
}

async fn the_next_start_delivers_what_was_left(opened: Opened) {
    let bot = FakeBot::start_slow(slow(&Arc::new(Notify::new()))).await.expect("a bot");
    let again = Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: opened.folder.clone() };
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let first = bot.called(1).await.remove(0);
    rig.stop().await;

    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(again, vec![channel("shop", Some(bot.url()))]).await;
    let second = bot.called(1).await.remove(0);
    assert_eq!(second.event_id(), first.event_id());
    assert_eq!((first.attempt(), second.attempt()), (1, 2));
    assert!(second.fence() > first.fence());
    // The new process has an empty cache and still knows the key.
    let (_, answer) = rig.post("shop", text("wamid.A", "1")).await;
    assert_eq!(answer["status"], "duplicate");
}

async fn a_bot_in_mid_run_still_sends_through_us_and_nothing_more_is_leased(opened: Opened) {
    let finish = Arc::new(Notify::new());
    let bot = FakeBot::start_slow(slow(&finish)).await.expect("a bot");
    let (store, _folder) = (Arc::clone(&opened.store), opened.folder.clone());
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    rig.begin_stop();
    let asked = rig.client.get(rig.url("/v1/stats")).bearer_auth("an admin token for tests").send();
    assert_eq!(asked.await.expect("the door is open").status(), 200);
    rig.accepted("shop", text("wamid.B", "2")).await;
    finish.notify_one();
    rig.stop().await;
    assert_eq!(bot.calls().len(), 1, "nothing is leased any more");
    let left = store.inbox(hapax_store::InboxQuery { limit: 10, ..Default::default() }).await.expect("the inbox").rows;
    assert_eq!(left.len(), 1, "the first was delivered, the second waits for the next start");
    assert_eq!((left[0].attempt, left[0].failures), (0, 0));
}

/// A request that never comes to its end and a handler that never answers: neither has a grace period of its own.
async fn a_stop_has_one_deadline(opened: Opened) {
    let bot = FakeBot::start_slow(slow(&Arc::new(Notify::new()))).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    let mut stalled = tokio::net::TcpStream::connect(rig.address).await.expect("a connection");
    let head = b"POST /in/shop HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{";
    tokio::io::AsyncWriteExt::write_all(&mut stalled, head).await.expect("sent");
    let begun = Instant::now();
    rig.stop().await;
    assert!(begun.elapsed() < STOP_GRACE * 3 / 2, "it took {:?}", begun.elapsed());
}

/// The real program and its default: a handler of some seconds is not cut, and its event is not delivered again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_of_six_seconds_ends_in_peace() {
    let bot = FakeBot::start(|_| Say::Late(std::time::Duration::from_secs(6), 200)).await.expect("a bot");
    let folder = crate::quick_folder();
    let program = crate::program::program(folder.path(), Some(&bot.url()), "");
    let (process, at) = program.serve().await.expect("it starts");
    let poster = Poster::new();
    assert_eq!(poster.post(at, text("wamid.A", "1")).await.expect("an answer").word, "accepted");
    in_time("the call", bot.called(1)).await;
    assert!(process.stop().await.expect("it stops").success());
    let (process, at) = program.serve().await.expect("it starts again");
    eventually("delivered", async || {
        let events = poster.get(at, "/v1/events").await.unwrap_or_default();
        events.contains("\"delivered\"")
    })
    .await;
    assert_eq!(bot.calls().len(), 1);
    assert!(process.stop().await.expect("it stops").success());
}
