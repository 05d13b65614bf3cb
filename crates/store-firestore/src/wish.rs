//! What a front end wants sent, as its document says.

use bytes::Bytes;
use hapax_domain::Priority;
use hapax_domain::key::KeyHasher;
use hapax_domain::limits::{MESSAGE_MAX_BYTES, NAME_MAX_BYTES, REQUEST_ID_MAX_BYTES, SEND_AHEAD_MAX_MS};
use hapax_store::NewMessage;

use super::value::{Doc, plain_json};

/// A document's fields, checked.
pub(super) struct Wish {
    pub(super) channel: Option<String>,
    pub(super) account: Option<String>,
    pub(super) to: String,
    text: Option<String>,
    pub(super) payload: Bytes,
    priority: Priority,
    send_at_ms: Option<i64>,
}

impl Wish {
    pub(super) fn read(doc: &Doc, now_ms: i64) -> Result<Self, String> {
        let short = |what: &str, name: &String| match name.trim().is_empty() || name.len() > NAME_MAX_BYTES {
            true => Err(format!("`{what}` is empty or too long")),
            false => Ok(()),
        };
        let (channel, account) = (doc.maybe_text("channel"), doc.maybe_text("account"));
        let to = doc.maybe_text("to").or_else(|| doc.maybe_int("to").map(|to| to.to_string()));
        let to = to.ok_or("`to` is missing: say whom the message is for")?;
        for (what, name) in [("channel", channel.as_ref()), ("account", account.as_ref()), ("to", Some(&to))] {
            name.map_or(Ok(()), |name| short(what, name))?;
        }
        if channel.is_none() && account.is_none() {
            return Err("say with `channel` or `account` who sends".to_owned());
        }
        if doc.id().len() > REQUEST_ID_MAX_BYTES {
            return Err(format!("the document's id is the request id and has at most {REQUEST_ID_MAX_BYTES} bytes"));
        }
        let priority = match doc.maybe_text("priority") {
            None => Priority::Normal,
            Some(name) => Priority::from_name(&name).ok_or("there is no such `priority`; use reply, normal or bulk")?,
        };
        let send_at_ms = doc.maybe_time("nextAttemptAt");
        if send_at_ms.is_none() && doc.has("nextAttemptAt") {
            return Err("`nextAttemptAt` is no timestamp: leave it out, or say when the message is to be sent".to_owned());
        }
        if send_at_ms.is_some_and(|at_ms| at_ms.saturating_sub(now_ms) > SEND_AHEAD_MAX_MS) {
            return Err("`nextAttemptAt` is more than a year ahead; write the document later".to_owned());
        }
        let (text, payload) = what_to_send(doc)?;
        Ok(Self { channel, account, to, text, payload, priority, send_at_ms })
    }

    pub(super) fn message(self, doc: &Doc, channel: String, account: String) -> NewMessage {
        let mut fingerprint = KeyHasher::new("outbox document");
        for part in [doc.name.as_bytes(), channel.as_bytes(), account.as_bytes(), self.to.as_bytes(), &self.payload] {
            fingerprint.part(part);
        }
        NewMessage {
            channel: channel.into(),
            account,
            peer: self.to,
            request_id: doc.id().to_owned(),
            fingerprint: fingerprint.finish(),
            text: self.text,
            payload: self.payload,
            priority: self.priority,
            reply_to: None,
            send_at_ms: self.send_at_ms,
        }
    }
}

/// A text, or the provider's own request body as a map or as JSON in a text.
fn what_to_send(doc: &Doc) -> Result<(Option<String>, Bytes), String> {
    let payload = match doc.fields.get("payload").and_then(plain_json) {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(json)) => Some(json),
        Some(map) => Some(map.to_string()),
    };
    let (text, payload) = match (doc.maybe_text("text").filter(|text| !text.trim().is_empty()), payload) {
        (Some(text), None) => (Some(text.clone()), serde_json::json!({ "text": text }).to_string()),
        (text, Some(payload)) if payload.starts_with('{') => (text, payload),
        (_, Some(_)) => return Err("`payload` must be a map: the provider's own request body".to_owned()),
        (None, None) => return Err("say what to send with `text` or `payload`".to_owned()),
    };
    match payload.len() > MESSAGE_MAX_BYTES {
        true => Err(format!("the message is larger than {MESSAGE_MAX_BYTES} bytes")),
        false => Ok((text, payload.into())),
    }
}
