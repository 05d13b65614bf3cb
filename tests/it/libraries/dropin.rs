//! The bots send through hapax, which they take for their provider. What is on the phones is what counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hapax_testkit::fake_provider::{Asked, Play, Purpose};
use hapax_testkit::process::Process;

use super::stage::{Bot, Library, Stage};
use crate::rig::eventually;

with_every_library! {
    three_messages_whoever_is_killed_after_the_first
    three_messages_sent_at_once_and_a_kill
    what_a_lost_answer_leaves_in_doubt_is_not_sent_again
    a_429_that_nobody_catches
}

/// As long as hapax waits by itself for libraries that wait longer; those that do not are told to, see `tests/clients`.
const PATIENT: &str = "dropin = true\nwait = \"25s\"";

#[derive(Clone, Copy, Debug)]
enum Killed {
    Bot,
    Hapax,
    Both,
}

/// The two that can be killed.
struct Lives {
    hapax: Process,
    bot: Bot,
}

/// In the same words the second time, and in others, as a language model would.
async fn three_messages_whoever_is_killed_after_the_first(library: Library) {
    let stage = Stage::new(library, PATIENT, |_| Play::Act).await;
    let hapax = stage.hapax().await;
    let Some(bot) = stage.bot().await else { return };
    let mut lives = Lives { hapax, bot };
    let mut number = 0;
    for words in ["the same", "other"] {
        if words == "other" {
            stage.home.tell("reword");
        }
        for killed in [Killed::Bot, Killed::Hapax, Killed::Both] {
            number += 1;
            let text = format!("{killed:?}, {words} words");
            lives = kill(&stage, lives, killed, number, &text).await;
            stage.settled().await;
            stage.assert_three(number, &text);
            let first = format!("{text}: 1 of 3");
            assert_eq!(stage.home.ids(&first).len(), 2, "{text}: the handler ran twice");
        }
    }
    assert_eq!(stage.phones.journal().len(), 3 * 6);
}

/// Somebody writes; after the first of three answers there is death. Gives who lives afterwards.
async fn kill(stage: &Stage, lives: Lives, killed: Killed, number: i64, text: &str) -> Lives {
    let Lives { hapax, bot } = lives;
    match killed {
        Killed::Bot => {
            stage.home.tell("die");
            stage.write(number, text).await;
            bot.died().await;
            Lives { hapax, bot: stage.bot().await.expect("it was there") }
        }
        Killed::Hapax => {
            stage.home.tell("wait");
            stage.write(number, text).await;
            stage.written(&format!("{text}: 1 of 3"), 1).await;
            hapax.kill_nine().await.expect("killed");
            // Its second send reaches nobody, and the handler ends. Would hapax be back before, there were two at work at the same time.
            let failed = stage.home.ids("failed").len();
            stage.home.take_back("wait");
            stage.written("failed", failed + 1).await;
            Lives { hapax: stage.hapax().await, bot }
        }
        Killed::Both => {
            stage.home.tell("die");
            stage.write(number, text).await;
            bot.died().await;
            hapax.kill_nine().await.expect("killed");
            let hapax = stage.hapax().await;
            Lives { hapax, bot: stage.bot().await.expect("it was there") }
        }
    }
}

/// How many of the three have gone out when the bot dies nobody can tell, nor which.
async fn three_messages_sent_at_once_and_a_kill(library: Library) {
    let stage = Stage::new(library, PATIENT, |_| Play::Act).await;
    let _hapax = stage.hapax().await;
    let Some(mut bot) = stage.bot().await else { return };
    stage.home.tell("together");
    for number in 1..=3 {
        let text = format!("life {number}");
        stage.home.tell("die");
        stage.write(number, &text).await;
        bot.died().await;
        bot = stage.bot().await.expect("it was there");
        stage.settled().await;
        stage.assert_three_in_any_order(number, &text);
    }
}

const PEOPLE: i64 = 10;

/// Every tenth answer of the provider is lost. Meta tells later by a status that the message went out, and nobody notices a thing; Telegram
/// never tells, so what is in doubt stays so, and the rest of that conversation waits behind it.
async fn what_a_lost_answer_leaves_in_doubt_is_not_sent_again(library: Library) {
    let lost: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = {
        let (lost, sends) = (Arc::clone(&lost), AtomicUsize::new(0));
        move |asked: &Asked| {
            let loses = asked.purpose == Purpose::Message && sends.fetch_add(1, Ordering::Relaxed) % 10 == 4;
            if loses {
                lost.lock().expect("no panic").extend(asked.text.clone());
            }
            if loses { Play::ActThenCut } else { Play::Act }
        }
    };
    let settled_by_statuses = library.is_of_whatsapp();
    let lines = if settled_by_statuses { PATIENT } else { "dropin = true\nwait = \"1s\"" };
    let stage = Stage::new(library, lines, script).await;
    let _hapax = stage.hapax().await;
    let Some(_bot) = stage.bot().await else { return };
    for person in 1..=PEOPLE {
        stage.write(person, &format!("person {person}")).await;
    }
    let told = tell_statuses(&stage, settled_by_statuses);
    let lost_of = |person: i64| {
        let lost = lost.lock().expect("no panic").clone();
        lost.into_iter().find(|text| text.starts_with(&format!("person {person}:")))
    };
    let all_there = async {
        for person in 1..=PEOPLE {
            let has_all = async || match lost_of(person).filter(|_| !settled_by_statuses) {
                None => stage.home.ids(&format!("person {person}: 3")).len() == 1,
                Some(_) => true,
            };
            eventually("the third message, or a doubt", has_all).await;
        }
        // The bot has been told to come back, has come back, and nothing was sent.
        let doubts = if settled_by_statuses { 0 } else { lost.lock().expect("no panic").len() };
        stage.written("failed", 2 * doubts).await;
    };
    tokio::select! {
        () = told => {}
        () = all_there => {}
    }
    assert!(!lost.lock().expect("no panic").is_empty(), "some were lost");
    for person in 1..=PEOPLE {
        match lost_of(person).filter(|_| !settled_by_statuses) {
            None => stage.assert_three(person, &format!("person {person}")),
            Some(last) => {
                let texts: Vec<_> = stage.arrived(person).into_iter().filter_map(|arrived| arrived.text).collect();
                let upto = (1..=3).map(|place| format!("person {person}: {place} of 3")).take_while(|text| *text <= last);
                assert_eq!(texts, upto.collect::<Vec<_>>(), "nothing twice, and nothing behind what is in doubt");
            }
        }
    }
}

/// Says of each message that arrives that it was sent, where the provider is one that does; never ends.
async fn tell_statuses(stage: &Stage, tells: bool) {
    if !tells {
        return std::future::pending().await;
    }
    for told in 0.. {
        let arrived = stage.phones.arrived(told + 1).await.remove(told);
        let webhook = arrived.status_webhook("sent", arrived.at_ms).expect("Meta tells");
        stage.post(webhook).await;
    }
}

/// The provider asks for a second's patience, which is longer than hapax may wait here, and the bot does nothing about it.
async fn a_429_that_nobody_catches(library: Library) {
    let sends = AtomicUsize::new(0);
    let stage = Stage::new(library, "dropin = true\nwait = \"200ms\"", move |asked| {
        let is_first = asked.purpose == Purpose::Message && sends.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }
    })
    .await;
    let _hapax = stage.hapax().await;
    let Some(_bot) = stage.bot().await else { return };
    stage.write(1, "hello").await;
    if library == Library::Pywa {
        // It hides the error behind a 200: what was queued goes out, and what the handler would have done then is lost.
        stage.written("failed", 1).await;
        stage.phones.arrived(1).await;
        stage.settled().await;
        let texts: Vec<_> = stage.arrived(1).into_iter().filter_map(|arrived| arrived.text).collect();
        assert_eq!(texts, ["hello: 1 of 3"]);
        return;
    }
    // The handler fails, and runs again until the message is out; then it gets that one, and goes on.
    stage.written("hello: 3 of 3", 1).await;
    stage.settled().await;
    stage.assert_three(1, "hello");
    assert!(!stage.home.ids("failed").is_empty(), "it was told to slow down");
}
