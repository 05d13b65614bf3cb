//! Bots that ask for their updates: `getUpdates` of a channel that has drop-in sending and no target.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::Coalesce;
use hapax_gateway::settings::{Channel, TurnFormat, Turns};
use hapax_store::memory::MemoryStore;
use hapax_store::{EventQuery, EventState, ItemState};
use hapax_testkit::fake_provider::Play;
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::START_MS;
use serde_json::{Value, json};

use super::{Library, TOKEN, served, texts, update, with_dropin};
use crate::phones::Phones;
use crate::rig::{Opened, Rig, eventually, in_time};

on_every_store! {
    what_was_given_and_is_below_the_offset_is_done_and_a_thread_has_one_at_a_time
    a_bot_that_asks_anew_gets_it_again_and_sends_nothing_twice
    an_update_that_is_never_confirmed_is_parked_and_its_thread_goes_on
    a_second_poll_ends_the_first_with_an_empty_list
    two_bots_that_poll_in_turn_lose_nothing
    offsets_that_jump_lose_nothing
    a_negative_offset_parks_what_came_before
    kinds_that_the_bot_does_not_want_are_not_given
    after_a_crash_of_hapax_what_was_given_can_still_be_confirmed
    after_a_crash_of_hapax_what_the_bot_is_at_is_its_run_still
    what_the_bot_was_given_by_one_instance_it_may_confirm_at_another
    a_bot_that_was_not_heard_of_any_more_gets_it_again
    a_stop_ends_a_poll_at_once
    a_bot_that_confirms_before_it_works_is_told_of
    with_redo_confirmed_a_bot_that_dies_after_confirming_gets_it_again
    with_redo_confirmed_a_bot_that_dies_with_hapax_gets_it_again
    with_redo_confirmed_a_bot_that_lives_on_is_not_asked_again
    with_redo_after_429_a_bot_that_gave_up_gets_it_once_more
    a_thread_that_a_person_has_taken_over_is_not_given
}

const CHAT: i64 = 77;
const OTHER: i64 = 88;
const POLLS: &str = r#"hapax_dropin_polls_total{channel="helpbot"}"#;

/// Numbers and chats of what a poll got.
type Got = Vec<(i64, i64)>;

impl Library {
    async fn poll(&self, asked: Value) -> Option<Got> {
        let answer = self.call("getUpdates", asked).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let updates = answer.json()["result"].as_array().cloned().unwrap_or_else(|| panic!("{answer:?}"));
        let of = |update: &Value| {
            let chat = update["message"]["chat"]["id"].as_i64().unwrap_or_default();
            (update["update_id"].as_i64().expect("a number"), chat)
        };
        Some(updates.iter().map(of).collect())
    }

    /// What a long poll from this offset gets.
    async fn get(&self, offset: i64) -> Got {
        let polling = self.poll(json!({"offset": offset, "timeout": 50}));
        in_time("updates", polling).await.expect("an answer")
    }

    /// What is there right now.
    async fn peek(&self, offset: i64) -> Got {
        in_time("an answer", self.poll(json!({"offset": offset, "timeout": 0}))).await.expect("an answer")
    }
}

async fn start(opened: Opened, phones: &Phones, library: &Library) -> Rig {
    let rig = Rig::start(opened, vec![served("helpbot", None, phones)]).await;
    library.is_given(&rig);
    rig
}

async fn attempts(rig: &Rig) -> Vec<u32> {
    rig.inbox().await.into_iter().map(|row| row.attempt).collect()
}

async fn states(rig: &Rig) -> Vec<EventState> {
    let events = rig.store.events(EventQuery { limit: 50, ..EventQuery::default() }).await.expect("events").rows;
    events.into_iter().map(|row| row.state).collect()
}

async fn what_was_given_and_is_below_the_offset_is_done_and_a_thread_has_one_at_a_time(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    assert_eq!(library.peek(0).await, [], "nothing is there, and the bot does not want to wait");
    for (number, chat) in [(1, CHAT), (2, CHAT), (3, OTHER)] {
        update(&rig, "helpbot", number, chat).await;
    }
    assert_eq!(library.get(0).await, [(1, CHAT), (3, OTHER)], "the second of a thread waits for the first");
    assert_eq!(library.get(4).await, [(4, CHAT)], "2, under a number that the bot has not confirmed yet");
    assert_eq!(library.peek(5).await, []);
    rig.settled().await;
    assert_eq!(states(&rig).await, [EventState::Delivered; 3]);
    rig.counted(r#"hapax_deliveries_total{channel="helpbot"}"#, 3).await;
    update(&rig, "helpbot", 4, CHAT).await;
    assert_eq!(library.get(5).await, [(5, CHAT)], "its own number was given to another");
    update(&rig, "helpbot", 9, CHAT).await;
    assert_eq!(library.get(6).await, [(9, CHAT)]);
    library.peek(10).await;
    rig.settled().await;
}

async fn a_bot_that_asks_anew_gets_it_again_and_sends_nothing_twice(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    let first = library.send(CHAT, "one").await.expect("an answer");
    // It dies, and is started again.
    assert_eq!(library.get(0).await, [(1, CHAT)], "under the same number");
    assert_eq!(attempts(&rig).await, [2]);
    let again = library.send(CHAT, "one, in other words").await.expect("an answer");
    assert_eq!(again, first, "the same bytes");
    library.send(CHAT, "two").await.expect("an answer");
    library.peek(2).await;
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
    rig.counted(r#"hapax_dropin_sends_reworded_total{channel="helpbot"}"#, 1).await;
    assert_eq!(library.send(CHAT, "two").await.expect("an answer").message_id(), 3, "now nothing is with the bot");
}

async fn an_update_that_is_never_confirmed_is_parked_and_its_thread_goes_on(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    update(&rig, "helpbot", 1, CHAT).await;
    update(&rig, "helpbot", 2, CHAT).await;
    for _ in 0..5 {
        assert_eq!(library.get(0).await, [(1, CHAT)]);
    }
    assert_eq!(library.get(0).await, [(2, CHAT)], "the first one has had its five attempts");
    let parked = rig.inbox().await.into_iter().find(|row| matches!(row.state, ItemState::Parked)).expect("it is parked");
    assert_eq!((parked.attempt, parked.failures), (5, 5));
    assert!(parked.why.as_ref().is_some_and(|why| why.contains("had not confirmed")), "{parked:?}");
}

async fn a_second_poll_ends_the_first_with_an_empty_list(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    let waits = tokio::spawn({
        let library = library.clone();
        async move { library.get(0).await }
    });
    rig.counted(POLLS, 1).await;
    assert_eq!(update_count(&library).await, 0);
    let second = tokio::spawn({
        let library = library.clone();
        async move { library.get(0).await }
    });
    assert_eq!(in_time("its end", waits).await.expect("no panic"), [], "never 409");
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(in_time("an update", second).await.expect("no panic"), [(1, CHAT)]);
    assert_eq!(library.peek(2).await, []);
    rig.settled().await;
}

/// A call that has nothing to do with polling.
async fn update_count(library: &Library) -> u64 {
    let info = library.call("getWebhookInfo", json!({})).await.expect("an answer").json();
    assert_eq!(info["result"]["url"], "", "a bot that polls has no webhook");
    info["result"]["pending_update_count"].as_u64().expect("a number")
}

async fn two_bots_that_poll_in_turn_lose_nothing(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    for number in 1..=20 {
        update(&rig, "helpbot", number, 1_000 + number).await;
    }
    let (mut offsets, mut seen) = ([0, 0], std::collections::BTreeSet::new());
    for turn in 0..200 {
        let which = turn % 2;
        let got = library.poll(json!({"offset": offsets[which], "timeout": 1, "limit": 3})).await.expect("an answer");
        seen.extend(got.iter().map(|(_, chat)| *chat));
        offsets[which] = got.last().map_or(offsets[which], |(number, _)| number + 1);
        let stats = rig.store.stats().await.expect("stats");
        if stats.channels.iter().all(|counts| counts.waiting + counts.leased == 0) {
            break;
        }
    }
    assert_eq!(seen.len(), 20, "each was given to one of them: {seen:?}");
    rig.settled().await;
    let parked = rig.inbox().await.len();
    let done = states(&rig).await.into_iter().filter(|state| *state == EventState::Delivered).count();
    assert_eq!(done + parked, 20);
}

async fn offsets_that_jump_lose_nothing(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    update(&rig, "helpbot", 10, CHAT).await;
    update(&rig, "helpbot", 11, OTHER).await;
    assert_eq!(library.peek(900).await, [(900, CHAT), (901, OTHER)], "from far ahead: neither was given before");
    assert_eq!(library.poll(json!({"offset": 901, "limit": 1, "timeout": 50})).await.expect("an answer"), [(901, OTHER)]);
    eventually("the confirmed one is done", async || rig.inbox().await.len() == 1).await;
    assert_eq!(library.get(5).await, [(901, OTHER)], "backwards confirms nothing");
    assert_eq!(library.get(i64::MAX).await, [(901, OTHER)], "an offset that leaves no room for numbers confirms nothing");
    assert_eq!(library.peek(902).await, []);
    rig.settled().await;
    assert_eq!(states(&rig).await, [EventState::Delivered; 2]);
    update(&rig, "helpbot", 12, CHAT).await;
    assert_eq!(library.get(902).await, [(902, CHAT)], "and numbers go on from where they were");
}

async fn a_negative_offset_parks_what_came_before(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    for number in 1..=5 {
        update(&rig, "helpbot", number, CHAT).await;
    }
    let got = library.poll(json!({"offset": -1, "limit": 1, "timeout": 0})).await.expect("an answer");
    assert_eq!(got, [(5, CHAT)], "the last one");
    assert_eq!(library.peek(6).await, []);
    let left = rig.inbox().await;
    assert_eq!(left.len(), 4, "parked, and not lost");
    assert!(left.iter().all(|row| matches!(row.state, ItemState::Parked) && row.failures == 0), "{left:?}");
}

async fn kinds_that_the_bot_does_not_want_are_not_given(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    let none: Got =
        library.poll(json!({"offset": 0, "timeout": 0, "allowed_updates": ["callback_query"]})).await.expect("an answer");
    assert_eq!(none, []);
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.peek(0).await, [], "as it said before");
    rig.settled().await;
    let event = rig.events().await[0].id;
    let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
    let story = story.send().await.expect("an answer").text().await.expect("a story");
    assert!(story.contains("does not want updates of this kind") && !story.contains("took it"), "{story}");
    assert_eq!(library.poll(json!({"timeout": 0, "allowed_updates": "[]"})).await.expect("an answer"), []);
    update(&rig, "helpbot", 2, CHAT).await;
    assert_eq!(library.get(0).await, [(2, CHAT)]);
}

async fn after_a_crash_of_hapax_what_was_given_can_still_be_confirmed(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let again = || Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: None };
    let mut channel = served("helpbot", None, &phones);
    channel.lease_ms = 150;
    let first = Rig::start(again(), vec![channel.clone()]).await;
    library.is_given(&first);
    update(&first, "helpbot", 1, CHAT).await;
    update(&first, "helpbot", 2, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    first.kill();
    let second = Rig::start(again(), vec![channel.clone()]).await;
    library.is_given(&second);
    assert_eq!(library.get(2).await, [(2, CHAT)], "the first was confirmed, though its lease was another's");
    second.kill();
    let third = Rig::start(again(), vec![channel]).await;
    library.is_given(&third);
    assert_eq!(library.get(0).await, [(2, CHAT)], "the bot died too");
    library.peek(3).await;
    third.settled().await;
    assert_eq!(states(&third).await, [EventState::Delivered; 2]);
    third.stop().await;
}

/// The bot lives on, and has not polled since: what it sends now, an update that comes again must not send twice.
async fn after_a_crash_of_hapax_what_the_bot_is_at_is_its_run_still(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let again = || Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: None };
    let mut channel = served("helpbot", None, &phones);
    channel.lease_ms = 150;
    let first = Rig::start(again(), vec![channel.clone()]).await;
    library.is_given(&first);
    update(&first, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    library.send(CHAT, "one").await.expect("an answer");
    first.kill();
    eventually("its lease is over", async || opened.store.with_bot("helpbot").await.is_ok_and(|held| held.is_empty())).await;
    let second = Rig::start(again(), vec![channel]).await;
    library.is_given(&second);
    library.send(CHAT, "two").await.expect("an answer");
    library.send(CHAT, "two").await.expect("an answer");
    assert_eq!(library.get(0).await, [(1, CHAT)], "the bot died too");
    for text in ["one", "two", "two"] {
        assert_eq!(library.send(CHAT, text).await.expect("an answer").status, 200);
    }
    library.peek(2).await;
    second.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one", "two", "two"]);
    second.stop().await;
}

async fn what_the_bot_was_given_by_one_instance_it_may_confirm_at_another(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let again = || Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: None };
    let (one, other) = (start(again(), &phones, &Library::default()).await, start(again(), &phones, &library).await);
    library.is_given(&one);
    update(&one, "helpbot", 1, CHAT).await;
    update(&one, "helpbot", 2, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    library.is_given(&other);
    assert_eq!(library.get(2).await, [(2, CHAT)], "the one that held the first has let it go");
    library.is_given(&one);
    library.peek(3).await;
    one.settled().await;
    assert_eq!(states(&one).await, [EventState::Delivered; 2]);
}

async fn a_bot_that_was_not_heard_of_any_more_gets_it_again(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let mut channel = served("helpbot", None, &phones);
    channel.timeout_ms = 100;
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    eventually("it is let go", async || {
        let row = rig.inbox().await.remove(0);
        matches!(row.state, ItemState::Waiting { .. }) && row.failures == 1
    })
    .await;
    tokio::select! {
        got = library.get(2) => panic!("it was confirmed late, and is given again: {got:?}"),
        () = rig.settled() => {}
    }
    assert_eq!(states(&rig).await, [EventState::Delivered]);
}

async fn a_stop_ends_a_poll_at_once(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    let waits = tokio::spawn({
        let library = library.clone();
        async move { library.poll(json!({"timeout": 50})).await }
    });
    rig.counted(POLLS, 1).await;
    in_time("the stop", rig.stop()).await;
    let got = in_time("the end of the poll", waits).await.expect("no panic");
    assert!(got.is_none_or(|got| got.is_empty()));
}

async fn a_bot_that_confirms_before_it_works_is_told_of(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    library.peek(2).await;
    rig.settled().await;
    library.send(CHAT, "late").await.expect("an answer");
    rig.counted(r#"hapax_dropin_early_answers_total{channel="helpbot"}"#, 1).await;
}

async fn with_redo_confirmed_a_bot_that_dies_after_confirming_gets_it_again(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.redo_confirmed_ms = Some(300_000));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    assert_eq!(library.peek(2).await, [], "confirmed before it was handled");
    let first = library.send(CHAT, "one").await.expect("an answer");
    assert_eq!(library.peek(2).await, [], "it lives");
    // It dies, and is started again.
    assert_eq!(library.get(0).await, [(2, CHAT)]);
    assert_eq!(library.peek(3).await, []);
    assert_eq!(library.send(CHAT, "one").await.expect("an answer"), first);
    library.send(CHAT, "two").await.expect("an answer");
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
    assert_eq!(attempts(&rig).await, [2]);
}

/// The bot sends once more while hapax is back and before both are started anew: the machine goes down in two steps.
async fn with_redo_confirmed_a_bot_that_dies_with_hapax_gets_it_again(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let again = || Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: None };
    let mut channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.redo_confirmed_ms = Some(300_000));
    channel.lease_ms = 150;
    let first = Rig::start(again(), vec![channel.clone()]).await;
    library.is_given(&first);
    update(&first, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    assert_eq!(library.peek(2).await, [], "confirmed before it was handled");
    let one = library.send(CHAT, "one").await.expect("an answer");
    first.kill();
    eventually("its lease is over", async || opened.store.with_bot("helpbot").await.is_ok_and(|held| held.is_empty())).await;
    let second = Rig::start(again(), vec![channel]).await;
    library.is_given(&second);
    let two = library.send(CHAT, "two").await.expect("an answer");
    assert_eq!(library.get(0).await, [(2, CHAT)], "it comes again");
    assert_eq!(library.send(CHAT, "one").await.expect("an answer"), one);
    assert_eq!(library.send(CHAT, "two").await.expect("an answer"), two);
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
    assert_eq!(states(&second).await, [EventState::Waiting]);
    second.stop().await;
}

async fn with_redo_confirmed_a_bot_that_lives_on_is_not_asked_again(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.redo_confirmed_ms = Some(100));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    update(&rig, "helpbot", 2, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    assert_eq!(library.get(2).await, [(2, CHAT)], "the thread goes on when the time is over");
    let polls_on = async {
        loop {
            library.poll(json!({"offset": 3, "timeout": 1})).await;
        }
    };
    tokio::select! {
        () = rig.settled() => {}
        () = polls_on => {}
    }
    assert_eq!(states(&rig).await, [EventState::Delivered; 2]);
    assert_eq!(library.peek(0).await, [], "a bot that is started anew later gets nothing again");
}

async fn with_redo_after_429_a_bot_that_gave_up_gets_it_once_more(opened: Opened) {
    let phones =
        Phones::start(|asked| if asked.number == 0 { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }).await;
    let library = Library::default();
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| {
        (dropin.wait_ms, dropin.redo_after_429) = (Some(100), true);
    });
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    assert_eq!(library.send(CHAT, "one").await.expect("an answer").status, 429);
    assert_eq!(library.get(2).await, [(2, CHAT)], "it was confirmed, and comes once more");
    assert_eq!(library.send(CHAT, "one").await.expect("an answer").message_id(), 1, "when its message is out");
    assert_eq!(library.peek(3).await, []);
    rig.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one"]);
}

/// What is leased for a poll that hangs up before it was answered is nobody's fault, and no attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_that_hangs_up_costs_nothing() {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(Opened::sqlite(), &phones, &library).await;
    for _ in 0..20 {
        let asked = rig.client.post(rig.url(&format!("/bot{TOKEN}/getUpdates?timeout=50"))).timeout(Duration::from_millis(20));
        assert!(asked.send().await.is_err_and(|error| error.is_timeout()));
    }
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    assert_eq!(attempts(&rig).await, [1]);
    library.peek(2).await;
    rig.settled().await;
}

/// The channel had turns, and a target perhaps, before its bot polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_parked_and_none_of_it_counts_as_delivered() {
    let (phones, library) = (Phones::willing().await, Library::default());
    let clock = HandClock::at(START_MS);
    let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let coalesce = Coalesce { quiet_ms: 3_000, max_ms: 30_000, members: 50 };
    let turns = Some(Turns { coalesce, format: TurnFormat::Array });
    let opened = Opened { store, clock: Arc::new(clock.clone()), folder: None };
    let rig = Rig::start(opened, vec![Channel { turns, ..served("helpbot", None, &phones) }]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    update(&rig, "helpbot", 2, CHAT).await;
    clock.advance(3_000);
    eventually("it is parked", async || {
        assert_eq!(library.peek(0).await, []);
        rig.inbox().await.iter().any(|row| matches!(row.state, ItemState::Parked))
    })
    .await;
    assert_eq!(states(&rig).await, [EventState::Parked; 2]);
}

async fn a_thread_that_a_person_has_taken_over_is_not_given(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = start(opened, &phones, &library).await;
    update(&rig, "helpbot", 1, CHAT).await;
    assert_eq!(library.get(0).await, [(1, CHAT)]);
    library.peek(2).await;
    rig.settled().await;
    let ask = async |method: http::Method, path: &str| {
        let request = rig.client.request(method, rig.url(path)).bearer_auth("an admin token for tests").json(&json!({}));
        request.send().await.expect("an answer").json::<Value>().await.expect("JSON")
    };
    let listed = ask(http::Method::GET, "/v1/threads").await;
    let path = format!("/v1/threads/{}", listed["threads"][0]["id"].as_str().expect("a thread"));
    assert!(ask(http::Method::POST, &format!("{path}/pause")).await["paused"].is_object());
    update(&rig, "helpbot", 2, CHAT).await;
    update(&rig, "helpbot", 3, OTHER).await;
    assert_eq!(library.get(2).await, [(3, OTHER)], "nothing of the thread that somebody has taken over");
    assert_eq!(library.peek(4).await, []);
    ask(http::Method::POST, &format!("{path}/resume")).await;
    let chats: Vec<i64> = library.get(4).await.into_iter().map(|(_, chat)| chat).collect();
    assert_eq!(chats, [CHAT], "it comes when the thread is handed back");
    rig.stop().await;
}
