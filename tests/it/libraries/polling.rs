//! Bots that poll hapax, which they take for Telegram.

use hapax_testkit::fake_provider::{Asked, Play, Purpose};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stage::{Library, Stage};

/// Turns each function into one test per library that confirms an update after it was handled.
macro_rules! with_polling_libraries {
    ($($name:ident)*) => {
        with_every_library!(@ grammy GrammyPolling $($name)*);
        with_every_library!(@ telegraf TelegrafPolling $($name)*);
    };
}

with_polling_libraries! {
    three_messages_whoever_is_killed_after_the_first
    three_messages_sent_at_once_and_a_kill
    a_429_that_nobody_catches
    two_workers_of_one_bot
}

const PATIENT: &str = "dropin = true\nwait = \"25s\"";

/// In the same words the second time, and in others.
async fn three_messages_whoever_is_killed_after_the_first(library: Library) {
    let stage = Stage::new(library, PATIENT, |_| Play::Act).await;
    let mut hapax = stage.hapax().await;
    let Some(mut bot) = stage.bot().await else { return };
    let mut number = 0;
    for words in ["the same", "other"] {
        if words == "other" {
            stage.home.tell("reword");
        }
        for killed in ["bot", "hapax", "both"] {
            number += 1;
            let text = format!("{killed}, {words} words");
            stage.home.tell(if killed == "hapax" { "wait" } else { "die" });
            stage.write(number, &text).await;
            if killed == "hapax" {
                stage.written(&format!("{text}: 1 of 3"), 1).await;
                hapax.kill_nine().await.expect("killed");
                // Its second send reaches nobody, so it ends without confirming anything.
                stage.home.take_back("wait");
                bot.ended().await;
                hapax = stage.hapax().await;
            } else {
                bot.died().await;
                if killed == "both" {
                    hapax.kill_nine().await.expect("killed");
                    hapax = stage.hapax().await;
                }
            }
            bot = stage.bot().await.expect("it was there");
            stage.settled().await;
            stage.assert_three(number, &text);
            let first = format!("{text}: 1 of 3");
            assert_eq!(stage.home.ids(&first).len(), 2, "{text}: the handler ran twice");
        }
    }
    assert_eq!(stage.phones.journal().len(), 3 * 6);
}

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

/// The handler fails and the process ends; whoever starts it again gets the update again, until the message is out.
async fn a_429_that_nobody_catches(library: Library) {
    let sends = AtomicUsize::new(0);
    let stage = Stage::new(library, "dropin = true\nwait = \"200ms\"", move |asked: &Asked| {
        let is_first = asked.purpose == Purpose::Message && sends.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first { Play::TooMany { retry_after_s: Some(1) } } else { Play::Act }
    })
    .await;
    let _hapax = stage.hapax().await;
    let Some(mut bot) = stage.bot().await else { return };
    stage.write(1, "hello").await;
    while stage.home.ids("hello: 3 of 3").is_empty() {
        let done = stage.written("hello: 3 of 3", 1);
        tokio::select! {
            () = bot.ended() => bot = stage.bot().await.expect("it was there"),
            () = done => {}
        }
    }
    stage.settled().await;
    stage.assert_three(1, "hello");
    assert!(!stage.home.ids("failed").is_empty(), "it was told to slow down");
}

/// Two processes poll with one token: at Telegram each would get 409 in turn. Here nobody dies of it, and each update is answered.
async fn two_workers_of_one_bot(library: Library) {
    let stage = Stage::new(library, PATIENT, |_| Play::Act).await;
    let _hapax = stage.hapax().await;
    let Some(mut one) = stage.bot().await else { return };
    let mut other = stage.bot().await.expect("it was there");
    for person in 1..=5 {
        stage.write(person, &format!("person {person}")).await;
        stage.written(&format!("person {person}: 3"), 1).await;
    }
    assert!(one.lives() && other.lives());
    stage.settled().await;
    for person in 1..=5 {
        stage.assert_three(person, &format!("person {person}"));
    }
}

/// python-telegram-bot confirms first: what its handler would have done after the kill is lost, unless hapax is told to hold it for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_library_that_confirms_before_it_works_loses_what_it_was_at_unless_told_otherwise() {
    let library = Library::PythonTelegramBotPolling;
    for (line, expected) in [("", 1), ("\nredo_confirmed = \"60s\"", 3)] {
        let stage = Stage::new(library, &format!("{PATIENT}{line}"), |_| Play::Act).await;
        let _hapax = stage.hapax().await;
        let Some(bot) = stage.bot().await else { return };
        stage.home.tell("wait");
        stage.write(1, "hello").await;
        stage.written("hello: 1 of 3", 1).await;
        // The library has polled on meanwhile.
        stage.polled(3).await;
        bot.kill().await;
        stage.home.take_back("wait");
        let _bot = stage.bot().await.expect("it was there");
        if expected == 1 {
            stage.settled().await;
            stage.write(2, "next").await;
            stage.written("next: 3 of 3", 1).await;
        } else {
            stage.written("hello: 3 of 3", 1).await;
            stage.assert_three(1, "hello");
        }
        assert_eq!(stage.arrived(1).len(), expected, "{line}");
    }
}
