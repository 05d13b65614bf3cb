//! What was wrong once: doubts that a person has ended, accounts that rest, events of no chat, handlers that gave up.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use hapax_store::clock::{Clock, SystemClock};
use hapax_store::{Changed, OutboxQuery};
use hapax_testkit::fake_bot::{Call, Say};
use hapax_testkit::fake_provider::Play;
use serde_json::{Value, json};

use super::{Library, SECRET, chat_of, served, texts, update, with_dropin};
use crate::phones::{Phones, refuse};
use crate::rig::{Opened, Rig, eventually, in_time};

on_every_store! {
    a_doubt_that_a_person_has_ended_is_told_and_not_sent_again
    a_bot_whose_account_rests_hears_what_the_provider_said
    what_happens_in_no_chat_belongs_to_the_person
    a_handler_that_gave_up_runs_once_more_when_its_message_is_out
    without_redo_after_429_a_handler_that_gave_up_is_done
    a_handler_that_goes_on_is_known_to_other_instances
}

const CHAT: i64 = 77;

async fn a_doubt_that_a_person_has_ended_is_told_and_not_sent_again(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number == 0 { Play::ActThenCut } else { Play::Act }).await;
    let library = Library::default();
    let handle = |library: Library, call: Call| -> BoxFuture<'static, Say> {
        Box::pin(async move {
            match library.send(chat_of(&call), "hi").await.expect("an answer").status {
                400 => Say::Status(200),
                _ => Say::Status(500),
            }
        })
    };
    let bot = library.bot(handle).await;
    let mut channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.wait_ms = Some(100));
    channel.retry.attempts = 1_000;
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    bot.called(2).await;
    let in_doubt =
        rig.store.outbox(OutboxQuery { limit: 10, unknown: true, ..OutboxQuery::default() }).await.expect("the outbox");
    let message = in_doubt.rows.first().expect("it is in doubt").id;
    assert_eq!(rig.store.cancel_message(message).await.expect("answers"), Changed::Done);
    rig.settled().await;
    let last = library.heard("hi").pop().expect("an answer");
    assert!(last.contains("given up while in doubt") && last.contains("\"ok\":false"), "{last}");
    assert_eq!(texts(&phones, CHAT), ["hi"]);
}

async fn a_bot_whose_account_rests_hears_what_the_provider_said(opened: Opened) {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refusals);
    let phones = Phones::start(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => refuse(401, "Unauthorized"),
        _ => Play::Act,
    })
    .await;
    let library = Library::default();
    let channel = with_dropin(served("helpbot", None, &phones), |dropin| dropin.wait_ms = Some(60_000));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    let first = in_time("the first answer", library.send(CHAT, "one")).await.expect("an answer");
    assert_eq!((first.status, first.json()["error_code"].as_i64()), (401, Some(401)), "{first:?}");
    let second = in_time("the second answer", library.send(CHAT, "two")).await.expect("an answer");
    assert_eq!(second, first, "word by word, and long before the time is over");
    assert_eq!(refusals.load(Ordering::Relaxed), 1, "Telegram was asked once");
    rig.store.pause_account("helpbot", "helpbot", None).await.expect("resumed");
    let back = in_time("an answer", library.send(CHAT, "one")).await.expect("an answer");
    assert_eq!((back.status, back.message_id()), (200, 1), "who comes back gets the message that waited");
    eventually("both are out", async || texts(&phones, CHAT).len() == 2).await;
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
}

/// An inline query names no chat; while another event is with the bot too, what is sent to the person still belongs to it.
async fn what_happens_in_no_chat_belongs_to_the_person(opened: Opened) {
    const PERSON: i64 = 88;
    let (phones, library) = (Phones::willing().await, Library::default());
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let handle = move |library: Library, call: Call| -> BoxFuture<'static, Say> {
        let both = Arc::clone(&both);
        Box::pin(async move {
            let body: Value = serde_json::from_slice(&call.body).expect("JSON");
            if call.attempt() == 1 {
                both.wait().await;
            }
            let Some(person) = body["inline_query"]["from"]["id"].as_i64() else {
                // Stays with the bot until the other is done.
                return if call.attempt() == 1 { Say::Status(503) } else { Say::Status(200) };
            };
            library.send(person, "found").await.expect("an answer");
            if call.attempt() == 1 { Say::Hang } else { Say::Status(200) }
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    let query = json!({"update_id": 2, "inline_query": {"id": "5", "from": {"id": PERSON}, "query": "x", "offset": ""}});
    let posted = rig.client.post(rig.url("/in/helpbot")).header("x-telegram-bot-api-secret-token", SECRET);
    assert_eq!(posted.body(query.to_string()).send().await.expect("an answer").status(), 200);
    rig.settled().await;
    assert_eq!(texts(&phones, PERSON), ["found"]);
    assert_eq!(library.heard("found").len(), 2);
}

/// Handles an update with two sends, and gives up, saying nothing of it, when it is told to slow down.
async fn gives_up(library: &Library) -> hapax_testkit::fake_bot::FakeBot {
    let handle = |library: Library, call: Call| -> BoxFuture<'static, Say> {
        Box::pin(async move {
            for text in ["one", "two", "three"] {
                if library.send(chat_of(&call), text).await.expect("an answer").status != 200 {
                    break;
                }
            }
            Say::Status(200)
        })
    };
    library.bot(handle).await
}

/// A provider that has no time for the first message, nor for the second.
async fn busy_twice() -> Phones {
    let asked_for: Arc<Mutex<Vec<String>>> = Arc::default();
    Phones::start(move |asked| {
        let mut asked_for = asked_for.lock().expect("no panic");
        let text = asked.text.clone().unwrap_or_default();
        let is_new = text != "three" && !asked_for.contains(&text);
        asked_for.push(text);
        if is_new { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }
    })
    .await
}

async fn a_handler_that_gave_up_runs_once_more_when_its_message_is_out(opened: Opened) {
    let (phones, library) = (busy_twice().await, Library::default());
    let bot = gives_up(&library).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| {
        (dropin.wait_ms, dropin.redo_after_429) = (Some(100), true);
    });
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2, "once more, and no third time");
    eventually("both are out", async || texts(&phones, CHAT).len() == 2).await;
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
    let heard = library.heard("one");
    assert!(heard.len() == 2 && heard[0].contains("429") && heard[1].contains("\"message_id\":1"), "{heard:?}");
}

async fn without_redo_after_429_a_handler_that_gave_up_is_done(opened: Opened) {
    let (phones, library) = (busy_twice().await, Library::default());
    let bot = gives_up(&library).await;
    let channel = with_dropin(served("helpbot", Some(bot.url()), &phones), |dropin| dropin.wait_ms = Some(100));
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    rig.settled().await;
    phones.provider.arrived(1).await;
    assert_eq!((bot.calls().len(), texts(&phones, CHAT)), (1, vec!["one".to_owned()]));
}

/// The handler's calls reach another instance than the one that delivers, also after its run was cut.
async fn a_handler_that_goes_on_is_known_to_other_instances(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let goes_on: Arc<tokio::sync::Notify> = Arc::default();
    let told = Arc::clone(&goes_on);
    let handle = move |library: Library, call: Call| -> BoxFuture<'static, Say> {
        let told = Arc::clone(&told);
        Box::pin(async move {
            if call.attempt() == 1 {
                library.send(chat_of(&call), "one").await.expect("an answer");
                // Its connection breaks, and it does not notice.
                tokio::spawn(async move {
                    told.notified().await;
                    library.send(CHAT, "two").await.expect("an answer");
                    told.notify_one();
                });
                return Say::Hang;
            }
            for text in ["one", "two"] {
                library.send(chat_of(&call), text).await.expect("an answer");
            }
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    let again = || Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: None };
    let mut channel = served("helpbot", Some(bot.url()), &phones);
    channel.retry.first_ms = 1_500;
    channel.retry.cap_ms = 1_500;
    let delivers = Rig::start(again(), vec![channel]).await;
    let serves = Rig::start(again(), vec![served("helpbot", None, &phones)]).await;
    library.is_given(&serves);
    update(&delivers, "helpbot", 1, CHAT).await;
    eventually("its run has failed", async || delivers.inbox().await.first().is_some_and(|row| row.failures == 1)).await;
    goes_on.notify_one();
    delivers.settled().await;
    assert_eq!(texts(&phones, CHAT), ["one", "two"]);
}

/// The machine's clock, and how much later it is said to be.
struct Later {
    machine: SystemClock,
    by_ms: AtomicI64,
}

impl Later {
    fn new() -> Arc<Self> {
        Arc::new(Self { machine: SystemClock::new(), by_ms: AtomicI64::new(0) })
    }
}

impl Clock for Later {
    fn now_ms(&self) -> i64 {
        self.machine.now_ms() + self.by_ms.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_memory_what_was_parked_for_long_finds_what_it_has_sent() {
    let clock = Later::new();
    what_was_parked_for_long_finds_what_it_has_sent(Opened::memory_at(Arc::clone(&clock) as _), &clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_what_was_parked_for_long_finds_what_it_has_sent() {
    let clock = Later::new();
    what_was_parked_for_long_finds_what_it_has_sent(Opened::sqlite_at(Arc::clone(&clock) as _), &clock).await;
}

/// The book, the message and its answer are all older than `retention` when somebody decides.
async fn what_was_parked_for_long_finds_what_it_has_sent(opened: Opened, clock: &Later) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> BoxFuture<'static, Say> {
        Box::pin(async move {
            library.send(chat_of(&call), "one").await.expect("an answer");
            if call.attempt() == 1 { Say::Status(400) } else { Say::Status(200) }
        })
    };
    let bot = library.bot(handle).await;
    let channel = served("helpbot", Some(bot.url()), &phones);
    let retention = [("helpbot".to_owned(), channel.retention_ms)];
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, CHAT).await;
    eventually("it is parked", async || rig.inbox().await.first().is_some_and(|row| row.state == hapax_store::ItemState::Parked))
        .await;
    let message = rig.store.message_by_provider_id("helpbot", "77:1").await.expect("answers").expect("it was sent");
    clock.by_ms.store(2 * retention[0].1, Ordering::SeqCst);
    eventually("the message is purged", async || {
        rig.store.purge(&retention, 100).await.expect("purged");
        rig.store.message(message).await.expect("answers").is_none()
    })
    .await;
    rig.store.redrive(hapax_store::Redrive::All, 10).await.expect("put back");
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
    assert_eq!(texts(&phones, CHAT), ["one"]);
    let heard = library.heard("one");
    assert_eq!(heard[0], heard[1]);
}
