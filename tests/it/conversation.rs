//! A provider's conversations with a program that dies and comes back, and what must be true of them afterwards.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use hapax_store::{EventQuery, EventState, Reads};
use hapax_testkit::fake_bot::{Call, Say};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::program::{Poster, on_their_way};
use crate::rig::text;

pub(crate) const SEED: u64 = 0x6870_6178;
const THREADS: usize = 24;

/// Where webhooks are taken at the moment: nowhere, or by one of several.
pub(crate) type Listening = watch::Receiver<Vec<SocketAddr>>;

/// One id, and every word that a copy of it was answered with: first those that came together, then those sent again later.
pub(crate) struct Posted {
    pub(crate) id: String,
    body: String,
    words: Vec<String>,
    pub(crate) later: Vec<String>,
}

/// Many people who talk at once until it is enough.
pub(crate) struct Load {
    talks: JoinSet<Vec<Posted>>,
    enough: CancellationToken,
    ids: Arc<AtomicUsize>,
}

impl Load {
    pub(crate) fn start(listening: &Listening) -> Self {
        let (mut talks, enough, ids) = (JoinSet::new(), CancellationToken::new(), Arc::default());
        for thread in 0..THREADS {
            talks.spawn(converse(thread, Poster::new(), listening.clone(), enough.clone(), Arc::clone(&ids)));
        }
        Self { talks, enough, ids }
    }

    /// How many messages were answered so far.
    pub(crate) fn ids(&self) -> usize {
        self.ids.load(Ordering::Relaxed)
    }

    pub(crate) async fn end(self) -> Vec<Posted> {
        self.enough.cancel();
        self.talks.join_all().await.into_iter().flatten().collect()
    }
}

/// Takes most at once, some late, and refuses a few, so that kills meet items in every state.
pub(crate) fn moody(number: usize) -> Say {
    match number % 40 {
        7 => Say::Late(Duration::from_millis((number * 37 % 400) as u64), 200),
        19 | 23 => Say::Late(Duration::from_millis((number * 13 % 50) as u64), 200),
        31 => Say::Status(500),
        _ => Say::Status(200),
    }
}

/// One person's messages, one after the other, as a provider sends them: in up to three copies at once, each until it gets 200.
async fn converse(
    thread: usize,
    poster: Poster,
    listening: Listening,
    enough: CancellationToken,
    ids: Arc<AtomicUsize>,
) -> Vec<Posted> {
    let mut random = StdRng::seed_from_u64(SEED + 1 + thread as u64);
    // No faster, or the bot would work for minutes after the last kill.
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut posted = Vec::new();
    while !enough.is_cancelled() {
        pace.tick().await;
        let id = format!("wamid.{thread}.{}", posted.len());
        let body = text(&id, &format!("5511{thread}"));
        let copies = random.random_range(1..=3);
        let words = join_all((0..copies).map(|_| until_answered(&poster, listening.clone(), &body))).await;
        posted.push(Posted { id, body, words, later: Vec::new() });
        ids.fetch_add(1, Ordering::Relaxed);
        // One from any time before, most of them from before several kills.
        if random.random_ratio(1, 4) {
            let earlier = random.random_range(0..posted.len());
            let word = until_answered(&poster, listening.clone(), &posted[earlier].body).await;
            posted[earlier].later.push(word);
        }
    }
    posted
}

pub(crate) async fn send_all_again(at: SocketAddr, posted: &mut [Posted]) {
    let poster = Poster::new();
    for some in posted.chunks_mut(THREADS) {
        let said = join_all(some.iter().map(|posted| poster.post(at, posted.body.clone()))).await;
        for (posted, said) in some.iter_mut().zip(said) {
            posted.later.push(said.expect("nobody kills it any more").word);
        }
    }
}

/// Posts to one of those who are there, and to whoever is there then when that one has no answer.
pub(crate) async fn until_answered(poster: &Poster, mut listening: Listening, body: &str) -> String {
    loop {
        let at = {
            let open = listening.wait_for(|open| !open.is_empty()).await.expect("the test runs");
            open[rand::random_range(0..open.len())]
        };
        match poster.post(at, body.to_owned()).await {
            Some(said) if said.status == 200 => return said.word,
            // It died, or is about to: tried again when somebody is back, or soon.
            _ => drop(tokio::time::timeout(Duration::from_millis(20), listening.changed()).await),
        }
    }
}

/// Waits as long as the work left becomes less. Where it does not, says what was last heard, which may be nothing.
pub(crate) async fn all_done(at: SocketAddr) {
    let poster = Poster::new();
    let (mut left, mut heard) = (u64::MAX, None);
    while left > 0 {
        let less = async {
            // Each look is five statements of the store.
            let mut looks = tokio::time::interval(Duration::from_millis(20));
            loop {
                looks.tick().await;
                heard = poster.get(at, "/v1/stats").await;
                if let Some(now) = heard.as_deref().and_then(on_their_way).filter(|now| *now < left) {
                    return now;
                }
            }
        };
        let now = tokio::time::timeout(Duration::from_secs(120), less).await;
        left = now.unwrap_or_else(|_| panic!("nothing more is delivered, with {left} left: {heard:?}"));
    }
}

pub(crate) fn nothing_was_accepted_twice(posted: &[Posted]) {
    for Posted { id, words, later, .. } in posted {
        assert!(words.iter().all(|word| word == "accepted" || word == "duplicate"), "{id}: {words:?}");
        assert!(words.iter().filter(|word| *word == "accepted").count() <= 1, "{id} was accepted twice: {words:?}");
        assert!(
            !later.is_empty() && later.iter().all(|word| word == "duplicate"),
            "{id} was forgotten: {words:?}, later {later:?}"
        );
    }
}

pub(crate) fn everything_answered_was_delivered(posted: &[Posted], calls: &[Call]) {
    let taken: HashMap<String, &Call> = calls
        .iter()
        .filter(|call| !matches!(moody(call.number), Say::Status(500)))
        .map(|call| (place_of(call).2, call))
        .collect();
    let lost: Vec<_> = posted.iter().map(|posted| &posted.id).filter(|id| !taken.contains_key(*id)).collect();
    assert!(lost.is_empty(), "answered 200 and never delivered: {lost:?}");
    assert_eq!(taken.len(), posted.len(), "what was delivered was sent");
}

/// A thread's next message comes only after the one before was done; a crash may repeat the one under way.
pub(crate) fn threads_kept_their_order(calls: &[Call]) {
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

/// Gives how many calls were repeats.
pub(crate) fn repeats_can_be_told(calls: &[Call]) -> usize {
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
    let events: HashSet<&str> = before.values().map(|call| call.event_id()).collect();
    assert_eq!(events.len(), before.len(), "each message has one event id, and no two have the same");
    repeats
}

pub(crate) async fn the_store_holds_each_once(store: &dyn Reads, posted: &[Posted]) {
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
    assert!(posted.iter().all(|posted| held.contains_key(&posted.id)) && held.len() == posted.len());
}

/// The id of the message that the bot is called about.
pub(crate) fn id_in(call: &Call) -> String {
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    body["entry"][0]["changes"][0]["value"]["messages"][0]["id"].as_str().expect("an id").to_owned()
}

/// Thread, number within it, and id.
fn place_of(call: &Call) -> (usize, usize, String) {
    let id = id_in(call);
    let (thread, number) = id.trim_start_matches("wamid.").split_once('.').expect("two numbers");
    (thread.parse().expect("a thread"), number.parse().expect("a number"), id)
}
