//! `outbox/{requestId}`: one document for a message that goes out, while it is in the outbox and after. Front ends listen to it.

use hapax_domain::{Direction, EventId, Priority};
use hapax_store::StoreError;
use hapax_store::steps::records::{Held, MessageRec, OutRec, read_past, read_steps, request_hash, write_past, write_steps};

use super::value::{Doc, Fields, bytes, flag, hash, int, null, number, text, time};

/// What changes as a message goes its way, and is told in its thread's entry too.
pub(super) const MOVING_FIELDS: &[&str] = &[
    "status",
    "providerId",
    "steps",
    "error",
    "past",
    "open",
    "lane",
    "attempt",
    "failures",
    "nextAttemptAt",
    "inLine",
    "begunAt",
    "begun",
    "unknown",
];

/// All that never changes, and what changes too.
pub(super) fn message_fields(message: &MessageRec, thread_doc: Option<&str>) -> Fields {
    lasting_fields(message, thread_doc).and(progress_fields(message))
}

/// All that never changes.
pub(super) fn lasting_fields(message: &MessageRec, thread_doc: Option<&str>) -> Fields {
    let payload = std::str::from_utf8(&message.payload).map_or_else(|_| bytes(&message.payload), text);
    Fields::default()
        .with("number", number(message.number))
        .with("request", hash(&request_hash(&message.account, &message.request_id)))
        .with("requestId", text(&message.request_id))
        .with("messageId", text(&message.message_id().to_string()))
        .with("createdAt", time(message.created_ms))
        .with("channel", text(&message.channel))
        .with("account", text(&message.account))
        .with("to", text(&message.peer))
        .with("fingerprint", hash(&message.fingerprint))
        .with_some("text", message.text.as_deref(), text)
        .with("payload", payload)
        .with("priority", text(message.priority.name()))
        .with_some("replyTo", message.reply_to, |event| text(&event.to_string()))
        .with("home", hash(&message.home))
        .with("thread", hash(&message.thread))
        .with_some("threadId", thread_doc, text)
}

/// What changes as the message goes its way.
pub(super) fn progress_fields(message: &MessageRec) -> Fields {
    Fields::default()
        .with("status", text(message.steps.status().name()))
        .with_some("providerId", message.provider_id.as_deref(), text)
        .with("steps", text(&write_steps(&message.steps)))
        .with_some("error", message.why.as_deref(), text)
        .with_some("past", write_past(&message.past).as_deref(), text)
}

pub(super) fn read_message(doc: &Doc) -> Result<MessageRec, StoreError> {
    let payload = doc.maybe_text("payload").map(String::into_bytes).or_else(|| doc.maybe_bytes("payload"));
    Ok(MessageRec {
        number: doc.number("number")?,
        created_ms: doc.time("createdAt")?,
        channel: doc.text("channel")?.into(),
        account: doc.text("account")?,
        peer: doc.text("to")?,
        request_id: doc.text("requestId")?,
        fingerprint: doc.hash("fingerprint")?,
        text: doc.maybe_text("text"),
        payload: payload.ok_or_else(|| super::value::broken(&doc.name, "payload"))?.into(),
        priority: doc.named("priority", Priority::from_name)?,
        reply_to: doc.maybe_text("replyTo").and_then(|id| id.parse::<EventId>().ok()),
        home: doc.hash("home")?,
        thread: doc.hash("thread")?,
        provider_id: doc.maybe_text("providerId"),
        steps: read_steps(&doc.text("steps")?),
        why: doc.maybe_text("error"),
        past: read_past(doc.maybe_text("past").as_deref()),
    })
}

/// Its place in the outbox. `inLine` is what the lane's line is found by, `begun` what an account is sending.
pub(super) fn out_fields(out: &OutRec) -> Fields {
    Fields::default()
        .with("open", flag(true))
        .with("lane", hash(&out.lane))
        .with("attempt", int(out.attempt.into()))
        .with("failures", int(out.failures.into()))
        .with_some("nextAttemptAt", out.due_ms, time)
        .with("inLine", flag(out.due_ms.is_some()))
        .with_some("begunAt", out.begun_ms, time)
        .with("begun", flag(out.begun_ms.is_some()))
        .with("unknown", flag(out.unknown))
}

/// It has left the outbox.
pub(super) fn closed_fields() -> Fields {
    let open =
        ["open", "inLine", "begun", "unknown"].into_iter().fold(Fields::default(), |fields, name| fields.with(name, flag(false)));
    ["nextAttemptAt", "begunAt"].into_iter().fold(open, |fields, name| fields.with(name, null()))
}

/// Who works on it. Extra words for front ends: the lane is what decides.
pub(super) fn lease_fields(held: Option<&Held>) -> Fields {
    Fields::default()
        .with("leased", flag(held.is_some()))
        .with_some("claimedBy", held.map(|held| held.worker.as_str()), text)
        .with_some("leaseUntil", held.map(|held| held.until_ms), time)
}

pub(super) fn read_out(doc: &Doc) -> Result<Option<OutRec>, StoreError> {
    if !doc.flag("open") {
        return Ok(None);
    }
    Ok(Some(OutRec {
        number: doc.number("number")?,
        created_ms: doc.time("createdAt")?,
        channel: doc.text("channel")?.into(),
        account: doc.text("account")?,
        lane: doc.hash("lane")?,
        priority: doc.named("priority", Priority::from_name)?,
        attempt: doc.small("attempt")?,
        failures: doc.small("failures").unwrap_or_default(),
        due_ms: doc.maybe_time("nextAttemptAt"),
        begun_ms: doc.maybe_time("begunAt"),
        unknown: doc.flag("unknown"),
    }))
}

/// What a front end sees of a message in its thread.
pub(super) fn entry_of_message(message: &MessageRec) -> Fields {
    Fields::default()
        .with("number", number(message.number))
        .with("direction", text(Direction::Out.name()))
        .with_some("text", message.text.as_deref(), text)
        .with("at", time(message.created_ms))
        .with("requestId", text(&message.request_id))
        .and(progress_fields(message))
}
