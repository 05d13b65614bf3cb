//! What a front end wants sent, as its document says.

use hapax_domain::draft::check_name;
use hapax_domain::limits::{REQUEST_ID_MAX_BYTES, SEND_AHEAD_MAX_MS};
use hapax_domain::{Draft, Priority, SendAt};
use hapax_store::{NewMessage, Origin};

use super::value::{Doc, plain_json};

/// A document's fields, checked.
pub(super) struct OutboxRequest {
    pub(super) channel: Option<String>,
    pub(super) account: Option<String>,
    pub(super) to: String,
    pub(super) draft: Draft,
    /// What a person would read of it.
    text: Option<String>,
    priority: Priority,
}

impl OutboxRequest {
    pub(super) fn read(doc: &Doc, now_ms: i64) -> Result<Self, String> {
        let (channel, account) = (doc.maybe_text("channel"), doc.maybe_text("account"));
        let to = doc.maybe_text("to").or_else(|| doc.maybe_int("to").map(|to| to.to_string()));
        let to = to.ok_or("`to` is missing: say whom the message is for")?;
        for (what, name) in [("channel", channel.as_deref()), ("account", account.as_deref())] {
            name.map_or(Ok(()), |name| check_name(what, name)).map_err(|bad| bad.to_string())?;
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
        // It would go out at once. Other fields are the application's own, where its rules let them in.
        if let Some(name) = ["send_at", "sendAt"].into_iter().find(|name| doc.has(name)) {
            return Err(format!("a document has no `{name}`: say with `nextAttemptAt`, a timestamp, when it is to be sent"));
        }
        let send_at_ms = doc.maybe_time("nextAttemptAt");
        if send_at_ms.is_none() && doc.has("nextAttemptAt") {
            return Err("`nextAttemptAt` is no timestamp: leave it out, or say when the message is to be sent".to_owned());
        }
        if send_at_ms.is_some_and(|at_ms| at_ms.saturating_sub(now_ms) > SEND_AHEAD_MAX_MS) {
            return Err("`nextAttemptAt` is more than a year ahead; write the document later".to_owned());
        }
        let (text, draft) = what_to_send(doc, &to)?;
        let draft = Draft { send_at: send_at_ms.map(|ms| SendAt { ms, asked: ms.to_string() }), ..draft };
        Ok(Self { channel, account, to, draft, text, priority })
    }

    pub(super) fn message(self, doc: &Doc, channel: String, account: String) -> NewMessage {
        let origin = Origin { channel: channel.into(), account };
        let message = NewMessage::new(origin, self.to, self.draft, self.text, doc.id().to_owned());
        NewMessage { priority: self.priority, ..message }
    }
}

/// A text, or the provider's own request body as a map or as JSON in a text. A text beside a body is what people read of it.
fn what_to_send(doc: &Doc, to: &str) -> Result<(Option<String>, Draft), String> {
    let payload = match doc.fields.get("payload").and_then(plain_json) {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(json)) => Some(json),
        Some(map) => Some(map.to_string()),
    };
    let text = doc.maybe_text("text").filter(|text| !text.trim().is_empty());
    let content = text.as_deref().filter(|_| payload.is_none());
    let draft = Draft::read(Some(to.to_owned()), content, payload.as_deref()).map_err(|bad| bad.to_string())?;
    Ok((text, draft))
}
