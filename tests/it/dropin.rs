//! Bots that were given hapax's address in place of their provider's, and know of nothing else. The fake provider's journal is the witness.

mod crashes;
mod doors;
mod faults;
mod files;
mod plain;
mod polling;
mod program;
mod runs;

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use hapax_domain::Replay;
use hapax_gateway::settings::{Channel, DropIn};
use hapax_providers::settings::Settings;
use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use serde_json::{Value, json};

use crate::phones::{Phones, sending, with_send};
use crate::rig::Rig;

pub(super) const TOKEN: &str = "12345:a-token-for-tests-only";
const SECRET: &str = "a-telegram-secret";

/// A Telegram channel whose bot is served by Telegram's own API.
pub(super) fn served(name: &str, target: Option<String>, phones: &Phones) -> Channel {
    let mut channel = with_send(sending(name, target, phones), |send| send.token = Some(TOKEN.into()));
    channel.provider = Settings::Telegram { secrets: vec![SECRET.into()], bot: name.to_owned() };
    channel.dropin = Some(DropIn {
        prefix: String::new(),
        wait_ms: None,
        replay: Replay::Ordinal,
        redo_after_429: false,
        redo_confirmed_ms: None,
    });
    channel
}

pub(super) fn with_dropin(mut channel: Channel, change: impl FnOnce(&mut DropIn)) -> Channel {
    change(channel.dropin.as_mut().expect("it is served"));
    channel
}

/// A message from a chat.
pub(super) async fn update(rig: &Rig, channel: &str, number: i64, chat: i64) {
    let chat = json!({"id": chat, "type": "private"});
    let message = json!({"message_id": number, "date": 1_760_000_000, "chat": chat, "text": "hi"});
    let body = json!({"update_id": number, "message": message}).to_string();
    let posted = rig.client.post(rig.url(&format!("/in/{channel}"))).header("x-telegram-bot-api-secret-token", SECRET);
    assert_eq!(posted.body(body).send().await.expect("an answer").status(), 200);
}

/// What a bot's library does: calls an address that somebody gave it for Telegram's, and reads the answer.
#[derive(Clone, Default)]
pub(super) struct Library {
    /// Where it believes Telegram is.
    address: Arc<Mutex<String>>,
    client: reqwest::Client,
    heard: Arc<Mutex<Vec<Value>>>,
}

/// An answer as the bot saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub(super) fn message_id(&self) -> i64 {
        self.json()["result"]["message_id"].as_i64().unwrap_or_else(|| panic!("no message in {self:?}"))
    }
}

impl Library {
    pub(super) fn is_given(&self, rig: &Rig) {
        *self.address.lock().expect("no panic") = rig.url("");
    }

    fn url(&self, method: &str) -> String {
        format!("{}/bot{TOKEN}/{method}", self.address.lock().expect("no panic"))
    }

    /// `None`: the connection broke.
    pub(super) async fn call(&self, method: &str, body: Value) -> Option<Answer> {
        let asked = self.client.post(self.url(method)).header("content-type", "application/json").body(body.to_string());
        let response = asked.send().await.ok()?;
        let status = response.status().as_u16();
        Some(Answer { status, body: response.text().await.ok()? })
    }

    pub(super) async fn send(&self, chat: i64, text: &str) -> Option<Answer> {
        let answer = self.call("sendMessage", json!({"chat_id": chat, "text": text})).await?;
        self.heard.lock().expect("no panic").push(json!([text, answer.status, answer.body]));
        Some(answer)
    }

    /// The bodies of all answers to sends of this text.
    pub(super) fn heard(&self, text: &str) -> Vec<String> {
        let heard = self.heard.lock().expect("no panic");
        let of_text = heard.iter().filter(|heard| heard[0] == text);
        of_text.map(|heard| heard[2].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// A bot that handles its updates so.
    pub(super) async fn bot(&self, handle: impl Fn(Library, Call) -> BoxFuture<'static, Say> + Send + Sync + 'static) -> FakeBot {
        let library = self.clone();
        FakeBot::start_slow(move |call| handle(library.clone(), call)).await.expect("a bot")
    }
}

/// The chat of an update.
pub(super) fn chat_of(call: &Call) -> i64 {
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    body["message"]["chat"]["id"].as_i64().expect("a chat")
}

/// What stands on a chat's phone, in the order of arrival.
pub(super) fn texts(phones: &Phones, chat: i64) -> Vec<String> {
    phones.provider.phone(&chat.to_string()).into_iter().filter_map(|arrived| arrived.text).collect()
}
