//! The real program on a real disk, killed with signal 9 again and again while webhooks pour in.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hapax::clock::SystemClock;
use hapax::store::sqlite::{Options, SqliteStore};
use hapax::store::{EventQuery, EventState, Reads};
use hapax::testkit::fake_bot::{Call, FakeBot, Say};
use hapax::testkit::process::Program;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::program::{Poster, disk_folder, program, store_path};
use crate::rig::{eventually, text};

/// Kills of a process that takes webhooks; those of one that is still starting come on top.
const KILLS: usize = 200;
const THREADS: usize = 24;
const SEED: u64 = 0x6870_6178;

/// One id, and every word that a copy of it was answered with: first those that came together, then those sent again later.
struct Told {
    id: String,
    body: String,
    words: Vec<String>,
    later: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_under_load() {
    let bot = FakeBot::start(|call| moody(call.number)).await.expect("a bot");
    let folder = disk_folder();
    let hapax = program(folder.path(), Some(&bot.url()), "");
    let (there, address) = watch::channel(None);
    let enough = CancellationToken::new();
    let mut load = JoinSet::new();
    for thread in 0..THREADS {
        load.spawn(converse(thread, Poster::new(), address.clone(), enough.clone()));
    }

    kill_again_and_again(&hapax, &there).await;
    let (last, at) = hapax.serve().await.expect("it starts after the last kill");
    there.send_replace(Some(at));
    enough.cancel();
    let mut told: Vec<Told> = load.join_all().await.into_iter().flatten().collect();
    assert!(told.len() > KILLS * 10, "there was load: {} ids", told.len());
    assert!(told.iter().map(|told| told.later.len()).sum::<usize>() > KILLS, "copies were sent again after later restarts");
    send_all_again(at, &mut told).await;
    all_done(at).await;
    assert!(last.stop().await.expect("it stops").success());

    let calls = bot.calls();
    nothing_was_accepted_twice(&told);
    everything_answered_was_delivered(&told, &calls);
    threads_kept_their_order(&calls);
    repeats_can_be_told(&calls);
    the_store_holds_each_once(folder.path(), &told).await;
}

/// Takes most at once, some late, and refuses a few, so that kills meet items in every state.
fn moody(number: usize) -> Say {
    match number % 40 {
        7 => Say::Late(Duration::from_millis((number * 37 % 400) as u64), 200),
        19 | 23 => Say::Late(Duration::from_millis((number * 13 % 50) as u64), 200),
        31 => Say::Status(500),
        _ => Say::Status(200),
    }
}

async fn kill_again_and_again(hapax: &Program, there: &watch::Sender<Option<SocketAddr>>) {
    let mut random = StdRng::seed_from_u64(SEED);
    let mut kills = 0;
    while kills < KILLS {
        let mut process = hapax.start().expect("it starts");
        let status = if random.random_ratio(1, 8) {
            process.kill_nine_after(Duration::from_micros(random.random_range(0..40_000))).await
        } else {
            there.send_replace(Some(process.address().await.expect("it listens")));
            kills += 1;
            process.kill_nine_after(Duration::from_micros(random.random_range(5_000..300_000))).await
        };
        there.send_replace(None);
        assert_eq!(status.expect("it ended").signal(), Some(9), "it ran until it was killed");
    }
}

/// One person's messages, one after the other, as a provider sends them: in up to three copies at once, each until it gets 200.
async fn converse(
    thread: usize,
    poster: Poster,
    address: watch::Receiver<Option<SocketAddr>>,
    enough: CancellationToken,
) -> Vec<Told> {
    let mut random = StdRng::seed_from_u64(SEED + 1 + thread as u64);
    // No faster, or the bot would work for minutes after the last kill.
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = Vec::new();
    while !enough.is_cancelled() {
        pace.tick().await;
        let id = format!("wamid.{thread}.{}", told.len());
        let body = text(&id, &format!("5511{thread}"));
        let copies = random.random_range(1..=3);
        let words = join_all((0..copies).map(|_| until_answered(&poster, address.clone(), &body))).await;
        told.push(Told { id, body, words, later: Vec::new() });
        // One from any time before, most of them from before several kills.
        if random.random_ratio(1, 4) {
            let earlier = random.random_range(0..told.len());
            let word = until_answered(&poster, address.clone(), &told[earlier].body).await;
            told[earlier].later.push(word);
        }
    }
    told
}

async fn send_all_again(at: SocketAddr, told: &mut [Told]) {
    let poster = Poster::new();
    for some in told.chunks_mut(THREADS) {
        let said = join_all(some.iter().map(|told| poster.post(at, told.body.clone()))).await;
        for (told, said) in some.iter_mut().zip(said) {
            told.later.push(said.expect("nobody kills it any more").word);
        }
    }
}

async fn until_answered(poster: &Poster, mut address: watch::Receiver<Option<SocketAddr>>, body: &str) -> String {
    loop {
        let at = address.wait_for(Option::is_some).await.expect("the test runs").expect("it is there");
        match poster.post(at, body.to_owned()).await {
            Some(said) if said.status == 200 => return said.word,
            // It died, or is about to: tried again when it is back, or soon.
            _ => drop(tokio::time::timeout(Duration::from_millis(20), address.changed()).await),
        }
    }
}

/// Waits as long as the work left becomes less.
async fn all_done(at: SocketAddr) {
    let poster = Poster::new();
    let mut left = u64::MAX;
    while left > 0 {
        let mut now = left;
        eventually("more is delivered", async || {
            now = poster.on_their_way(at).await.unwrap_or(left);
            now < left
        })
        .await;
        left = now;
    }
}

fn nothing_was_accepted_twice(told: &[Told]) {
    for Told { id, words, later, .. } in told {
        assert!(words.iter().all(|word| word == "accepted" || word == "duplicate"), "{id}: {words:?}");
        assert!(words.iter().filter(|word| *word == "accepted").count() <= 1, "{id} was accepted twice: {words:?}");
        assert!(
            !later.is_empty() && later.iter().all(|word| word == "duplicate"),
            "{id} was forgotten: {words:?}, later {later:?}"
        );
    }
}

fn everything_answered_was_delivered(told: &[Told], calls: &[Call]) {
    let taken: HashMap<String, &Call> = calls
        .iter()
        .filter(|call| !matches!(moody(call.number), Say::Status(500)))
        .map(|call| (place_of(call).2, call))
        .collect();
    let lost: Vec<_> = told.iter().map(|told| &told.id).filter(|id| !taken.contains_key(*id)).collect();
    assert!(lost.is_empty(), "answered 200 and never delivered: {lost:?}");
    assert_eq!(taken.len(), told.len(), "what was delivered was sent");
}

/// A thread's next message comes only after the one before was done; a crash may repeat the one under way.
fn threads_kept_their_order(calls: &[Call]) {
    let mut first_come = HashMap::<usize, usize>::new();
    for call in calls {
        let (thread, number, id) = place_of(call);
        let next = first_come.entry(thread).or_default();
        assert!(number <= *next, "{id} came before {next}");
        *next = (*next).max(number + 1);
    }
    // By fence, which is the order in which they were leased: a call of a killed process may be read late, but was made early.
    let mut by_fence: Vec<&Call> = calls.iter().collect();
    by_fence.sort_by_key(|call| call.fence());
    let mut last = HashMap::<usize, usize>::new();
    for call in by_fence {
        let (thread, number, id) = place_of(call);
        let before = last.insert(thread, number);
        let fits = before.map_or(number == 0, |before| number == before || number == before + 1);
        assert!(fits, "{id} was leased after number {before:?} of its thread");
    }
}

fn repeats_can_be_told(calls: &[Call]) {
    let mut by_fence: Vec<&Call> = calls.iter().collect();
    by_fence.sort_by_key(|call| call.fence());
    assert!(by_fence.windows(2).all(|pair| pair[0].fence() < pair[1].fence()), "no fence is handed out twice");
    let mut before = HashMap::<String, &Call>::new();
    let mut repeats = 0;
    for call in by_fence {
        if let Some(earlier) = before.insert(place_of(call).2, call) {
            assert_eq!(call.event_id(), earlier.event_id(), "a repeat has the same event id");
            assert_eq!(call.header("idempotency-key"), earlier.header("idempotency-key"));
            assert!(call.attempt() > earlier.attempt(), "a repeat has a higher attempt");
            repeats += 1;
        }
    }
    assert!(repeats > 0, "kills hit work under way");
    let events: HashSet<&str> = before.values().map(|call| call.event_id()).collect();
    assert_eq!(events.len(), before.len(), "each message has one event id, and no two have the same");
}

async fn the_store_holds_each_once(folder: &Path, told: &[Told]) {
    let clock = Arc::new(SystemClock::new());
    let store = SqliteStore::open(&store_path(folder), clock, &Options::default()).expect("the store opens");
    let mut held = HashMap::<String, usize>::new();
    let mut before = None;
    loop {
        let query = EventQuery { before, limit: 500, ..EventQuery::default() };
        let page = store.events(query).await.expect("events");
        for row in &page.rows {
            assert_eq!(row.state, EventState::Delivered, "{row:?}");
            *held.entry(row.provider_id.clone()).or_default() += 1;
        }
        before = page.rows.last().map(|row| row.id);
        if !page.more {
            break;
        }
    }
    assert!(held.values().all(|times| *times == 1), "one event for each id");
    assert!(told.iter().all(|told| held.contains_key(&told.id)) && held.len() == told.len());
}

/// Thread, number within it, and id.
fn place_of(call: &Call) -> (usize, usize, String) {
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    let id = body["entry"][0]["changes"][0]["value"]["messages"][0]["id"].as_str().expect("an id").to_owned();
    let (thread, number) = id.trim_start_matches("wamid.").split_once('.').expect("two numbers");
    (thread.parse().expect("a thread"), number.parse().expect("a number"), id)
}
