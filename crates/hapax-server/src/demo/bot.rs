//! The echo bot: answers every message with its own words, and crashes, hangs or fails now and then.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::BOT_TIMEOUT_MS;
use super::journal::{Journal, reply_to};
use super::wire::Say;

const CRASHES: f64 = 0.06;
const FAILS: f64 = 0.05;
const HANGS: f64 = 0.005;

/// What the bot does with one webhook.
pub(super) async fn hear(journal: Arc<Journal>, body: Vec<u8>) -> Say {
    let ids = message_ids(&body);
    let draw: f64 = if ids.is_empty() { 1.0 } else { rand::random() };
    if draw < CRASHES + FAILS + HANGS {
        journal.bot_failed();
    }
    if draw < CRASHES {
        return Say::Cut;
    }
    if draw < CRASHES + FAILS {
        return Say::Answer { status: 500, content_type: "text/plain", body: "something broke".to_owned() };
    }
    if draw < CRASHES + FAILS + HANGS {
        tokio::time::sleep(Duration::from_millis(2 * BOT_TIMEOUT_MS)).await;
        return Say::Cut;
    }
    ids.iter().for_each(|id| journal.handled(id));
    let replies: Vec<Value> = ids.iter().map(|id| json!({ "text": reply_to(id) })).collect();
    let body = json!({ "replies": replies }).to_string();
    Say::Answer { status: 200, content_type: "application/vnd.hapax.replies+json", body }
}

/// The messages of a webhook; statuses have none.
fn message_ids(body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let changes = list(&body["entry"]).into_iter().flat_map(|entry| list(&entry["changes"]));
    let messages = changes.flat_map(|change| list(&change["value"]["messages"]));
    messages.filter_map(|message| message["id"].as_str().map(str::to_owned)).collect()
}
