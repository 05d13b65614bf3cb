//! What hapax answers in Telegram's place: webhooks, polling, and messages whose own answer was lost.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Value, json};

use super::parameters;
use crate::dropin::{Reply, Settled};
use crate::json as raw_json;

/// As Telegram has it.
const UPDATES_MAX: u32 = 100;
const POLL_MAX_S: u64 = 50;

/// What a poller asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdatesAsked {
    /// Everything below is confirmed; negative ones count from the end, 0 confirms nothing.
    pub offset: i64,
    /// 1 to 100.
    pub limit: u32,
    /// How long to wait when there is nothing; 0 to 50.
    pub timeout_s: u64,
    /// Kinds of updates. An empty list is all of them, none is what was asked for before.
    pub allowed_updates: Option<Vec<String>>,
}

/// Reads the parameters of `getUpdates`. What cannot be read has its usual value, as at Telegram.
pub fn updates_asked(query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> UpdatesAsked {
    let parameters = parameters(query, content_type, body).unwrap_or_default();
    let number = |name| parameters.get(name).and_then(|text| text.trim_ascii().parse::<i64>().ok());
    let limit = number("limit").and_then(|limit| u32::try_from(limit).ok()).filter(|limit| *limit > 0);
    UpdatesAsked {
        offset: number("offset").unwrap_or_default(),
        limit: limit.unwrap_or(UPDATES_MAX).min(UPDATES_MAX),
        timeout_s: number("timeout").and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default().min(POLL_MAX_S),
        allowed_updates: parameters.get("allowed_updates").and_then(|list| serde_json::from_str(list).ok()),
    }
}

/// The address in a call of `setWebhook`; `None`: there is none, which means `deleteWebhook`.
pub fn webhook_url(query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String> {
    let parameters = parameters(query, content_type, body).ok()?;
    parameters.get("url").filter(|url| !url.is_empty()).map(str::to_owned)
}

/// `{"ok":true,"result":true}`, with a sentence beside it where there is one.
pub fn done(description: Option<&str>) -> Reply {
    let mut body = json!({ "ok": true, "result": true });
    if let Some(description) = description {
        body["description"] = Value::from(description);
    }
    Reply::json(StatusCode::OK, body.to_string())
}

/// What a bot is told of its webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookInfo {
    /// The one that the bot has set, or that the config has; empty for a bot that polls.
    pub url: String,
    pub pending: u64,
    pub max_connections: Option<u32>,
    /// When a delivery failed last, in Unix seconds, and why.
    pub last_error: Option<(i64, String)>,
}

pub fn webhook_info(info: &WebhookInfo) -> Reply {
    let mut result = json!({ "url": info.url, "has_custom_certificate": false, "pending_update_count": info.pending });
    if let Some((date, words)) = &info.last_error {
        result["last_error_date"] = Value::from(*date);
        result["last_error_message"] = Value::from(words.as_str());
    }
    if let Some(most) = info.max_connections {
        result["max_connections"] = Value::from(most);
    }
    Reply::json(StatusCode::OK, json!({ "ok": true, "result": result }).to_string())
}

/// The updates, each the JSON that Telegram posted. None: an empty list.
pub fn updates<U: AsRef<[u8]>>(updates: &[U]) -> Reply {
    let mut body = br#"{"ok":true,"result":"#.to_vec();
    raw_json::write_array(&mut body, updates.iter());
    body.push(b'}');
    Reply::json(StatusCode::OK, body)
}

/// The number of an update, and the word for what happened.
pub fn update_of(update: &[u8]) -> Option<(Option<i64>, String)> {
    let members = raw_json::members(std::str::from_utf8(update).ok()?)?;
    let number = members.iter().rev().find(|(name, _)| name == UPDATE_ID).and_then(|(_, value)| value.get().parse().ok());
    let word = members.iter().find(|(name, _)| name != UPDATE_ID).map(|(name, _)| name.to_string());
    Some((number, word.unwrap_or_default()))
}

/// The same update under another number; everything else is as it was, to the last space.
pub fn renumbered(update: &[u8], number: i64) -> Option<Vec<u8>> {
    let members = raw_json::members(std::str::from_utf8(update).ok()?)?;
    let number = (UPDATE_ID, Cow::Owned(number.to_string().into_bytes()));
    let others = members.iter().filter(|(name, _)| name != UPDATE_ID);
    let mut out = Vec::with_capacity(update.len() + 20);
    let others = others.map(|(name, value)| (name.as_ref(), Cow::Borrowed(value.get().as_bytes())));
    raw_json::write_object(&mut out, std::iter::once(number).chain(others));
    Some(out)
}

const UPDATE_ID: &str = "update_id";

/// The least that libraries read as a message that was sent.
pub(super) fn stand_in(settled: &Settled<'_>) -> Reply {
    let payload = std::str::from_utf8(settled.payload).unwrap_or_default();
    let text = |name| raw_json::text(raw_json::member(payload, name));
    let method = text("method").unwrap_or_else(|| "sendMessage".to_owned());
    // Our name of a message is `chat:id`; one that made no message goes by a name of our own.
    let numbers = settled.provider_id.rsplit_once(':').and_then(|(chat, id)| Some((chat.parse().ok()?, id.parse().ok()?)));
    let Some((chat, id)) = numbers else { return done(None) };
    let result = match method.as_str() {
        "copyMessage" => json!({ "message_id": id }),
        "copyMessages" | "forwardMessages" => json!([{ "message_id": id }]),
        "sendMediaGroup" => json!([message(chat, id, settled.at_ms, None)]),
        _ => message(chat, id, settled.at_ms, text("text")),
    };
    Reply::json(StatusCode::OK, json!({ "ok": true, "result": result }).to_string())
}

fn message(chat: i64, id: i64, at_ms: i64, text: Option<String>) -> Value {
    let sort = match chat {
        1.. => "private",
        // Telegram numbers groups from -1 down, and supergroups and channels below this.
        ..=-1_000_000_000_000 => "supergroup",
        _ => "group",
    };
    let mut message = json!({ "message_id": id, "date": at_ms.div_euclid(1_000), "chat": { "id": chat, "type": sort } });
    if let Some(text) = text {
        message["text"] = Value::from(text);
    }
    message
}
