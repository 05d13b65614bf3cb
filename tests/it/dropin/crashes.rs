//! hapax dies, at each step; the bot lives, and its sends take effect once.

use std::sync::Arc;
use std::time::Duration;

use hapax_store::OutboxQuery;
use hapax_testkit::fake_bot::{Call, Say};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, Library, chat_of, served, texts, update};
use crate::faulty::{Faulty, with};
use crate::phones::{Phones, all_sent, with_send};
use crate::rig::{Opened, Rig};

on_every_store! {
    three_sends_reach_the_phone_once_whatever_step_hapax_dies_at
    three_sends_of_a_polling_bot_reach_the_phone_once_whatever_step_hapax_dies_at
}

const WORDS: [&str; 3] = ["one", "two", "three"];

async fn three_sends_reach_the_phone_once_whatever_step_hapax_dies_at(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            for text in WORDS {
                match library.send(chat_of(&call), text).await {
                    Some(answer) if answer.status == 200 => {}
                    _ => return Say::Status(500),
                }
            }
            Say::Status(200)
        })
    };
    let bot = library.bot(handle).await;
    dies_at_every_step(opened, &phones, &library, Target::Url(bot.url())).await;
}

async fn three_sends_of_a_polling_bot_reach_the_phone_once_whatever_step_hapax_dies_at(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let (moved, moves) = watch::channel(0);
    let bot = PollingBot { library: library.clone(), moves };
    let _bot = AbortOnDropHandle::new(tokio::spawn(bot.polls()));
    dies_at_every_step(opened, &phones, &library, Target::Polled(moved)).await;
}

/// Where the updates go.
enum Target {
    Url(String),
    /// To a bot that is told when its connections break.
    Polled(watch::Sender<u32>),
}

/// A bot that confirms what it has handled, and is started anew when a send fails.
struct PollingBot {
    library: Library,
    moves: watch::Receiver<u32>,
}

impl PollingBot {
    /// `None`: the connection broke.
    async fn call(&mut self, method: &str, body: Value) -> Option<Answer> {
        let _ = self.moves.borrow_and_update();
        tokio::select! {
            answer = self.library.call(method, body) => answer,
            _ = self.moves.changed() => None,
        }
    }

    async fn polls(mut self) {
        let (mut offset, mut pauses) = (0, tokio::time::interval(Duration::from_millis(5)));
        loop {
            pauses.tick().await;
            let answer = self.call("getUpdates", json!({"offset": offset, "timeout": 50})).await;
            let Some(Value::Array(updates)) = answer.map(|answer| answer.json()["result"].clone()) else { continue };
            offset = match self.handle(&updates).await {
                Some(last) => last.map_or(offset, |last| last + 1),
                None => 0,
            };
        }
    }

    /// The last number; `None`: it has failed.
    async fn handle(&mut self, updates: &[Value]) -> Option<Option<i64>> {
        for update in updates {
            for text in WORDS {
                let body = json!({"chat_id": update["message"]["chat"]["id"], "text": text});
                self.call("sendMessage", body).await.filter(|answer| answer.status == 200)?;
            }
        }
        Some(updates.last().and_then(|update| update["update_id"].as_i64()))
    }
}

/// Runs once through every step at which the process can die, and lets a second one finish the work.
async fn dies_at_every_step(opened: Opened, phones: &Phones, library: &Library, target: Target) {
    let url = if let Target::Url(url) = &target { Some(url.clone()) } else { None };
    let channel = || {
        let mut channel = with_send(served("helpbot", url.clone(), phones), |send| send.lease_ms = 150);
        channel.lease_ms = 150;
        channel.dropin.as_mut().expect("it is served").wait_ms = Some(1_000);
        channel
    };
    let again = || Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: None };
    let mut step = 0;
    loop {
        let chat = 1_000 + step as i64;
        let faulty = Faulty::around(&opened);
        faulty.die_at(step);
        let first = Rig::start(with(&faulty, again()), vec![channel()]).await;
        library.is_given(&first);
        update(&first, "helpbot", step as i64 + 1, chat).await;
        let survived = tokio::select! {
            () = faulty.died() => false,
            () = async { first.settled().await; all_sent(&first.store).await } => !faulty.is_dead(),
        };
        first.kill();

        let second = Rig::start(again(), vec![channel()]).await;
        library.is_given(&second);
        if let Target::Polled(moved) = &target {
            moved.send_modify(|times| *times += 1);
        }
        second.settled().await;
        all_sent(&second.store).await;
        second.stop().await;
        if let Target::Polled(moved) = &target {
            moved.send_modify(|times| *times += 1);
        }

        let in_doubt = opened.store.outbox(OutboxQuery { limit: 10, unknown: true, ..OutboxQuery::default() });
        let in_doubt = in_doubt.await.expect("the outbox").rows.into_iter().filter(|row| row.peer == chat.to_string()).count();
        let arrived = texts(phones, chat);
        // In order, each once, from the first on; behind one in doubt nothing may follow, because its caller never heard of it.
        assert_eq!(arrived, WORDS[..arrived.len()], "died at step {step}");
        match in_doubt {
            0 => assert_eq!(arrived.len(), 3, "died at step {step}"),
            _ => assert!(in_doubt == 1, "died at step {step}: {in_doubt} in doubt"),
        }
        if survived {
            break;
        }
        step += 1;
    }
    assert!(step >= 30, "it died at every step: {step}");
}
