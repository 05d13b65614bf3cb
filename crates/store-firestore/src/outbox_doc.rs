//! `outbox/{requestId}`: one document for a message that goes out, while it is in the outbox and after. Front ends listen to it.

use hapax_domain::Direction;
use hapax_store::StoreError;
use hapax_store::steps::record::Record;
use hapax_store::steps::records::{Held, MessageRec, OutRec, request_hash};

use super::document::{InDocument, Shape, name_of, read, some_fields};
use super::value::{Doc, Fields, flag, hash, null, number, text, time};

impl InDocument for MessageRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[
        ("created_ms", "createdAt", Shape::Time),
        ("peer", "to", Shape::Plain),
        ("request_id", "requestId", Shape::Plain),
        ("payload", "payload", Shape::MostlyText),
        ("priority", "priority", Shape::Named),
        ("reply_to", "replyTo", Shape::EventId),
        ("provider_id", "providerId", Shape::Plain),
        ("why", "error", Shape::Plain),
    ];
}

impl InDocument for OutRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[
        ("created_ms", "createdAt", Shape::Time),
        ("priority", "priority", Shape::Named),
        ("due_ms", "nextAttemptAt", Shape::Time),
        ("begun_ms", "begunAt", Shape::Time),
    ];
}

/// Columns of a message that change as it goes its way. Its home does too, and is nobody else's affair.
fn is_progress(column: &str) -> bool {
    column != "home" && MessageRec::CHANGING.contains(&column)
}

/// Columns of a place in the outbox that its message does not have too.
fn is_place(column: &str) -> bool {
    MessageRec::FIELDS.iter().all(|field| field.column.name != column)
}

/// What changes as a message goes its way, and is told in its thread's entry too.
pub(super) fn moving_fields() -> impl Iterator<Item = &'static str> {
    let progress = MessageRec::FIELDS.iter().filter(|field| is_progress(field.column.name)).map(name_of);
    let place = OutRec::FIELDS.iter().filter(|field| is_place(field.column.name)).map(name_of);
    progress.chain(place).chain(["status", "open", "inLine", "begun"])
}

/// All that never changes, and what changes too.
pub(super) fn message_fields(message: &MessageRec, thread_doc: Option<&str>) -> Fields {
    lasting_fields(message, thread_doc).and(progress_fields(message))
}

/// All that never changes.
pub(super) fn lasting_fields(message: &MessageRec, thread_doc: Option<&str>) -> Fields {
    some_fields(message, |column| !is_progress(column))
        .with("request", hash(&request_hash(&message.account, &message.request_id)))
        .with("messageId", text(&message.message_id().to_string()))
        .with_some("threadId", thread_doc, text)
}

/// What changes as the message goes its way.
pub(super) fn progress_fields(message: &MessageRec) -> Fields {
    some_fields(message, is_progress).with("status", text(message.steps.status().name()))
}

/// Its place in the outbox. `inLine` is what the lane's line is found by, `begun` what an account is sending.
pub(super) fn out_fields(out: &OutRec) -> Fields {
    some_fields(out, is_place)
        .with("open", flag(true))
        .with("inLine", flag(out.due_ms.is_some()))
        .with("begun", flag(out.begun_ms.is_some()))
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
    doc.flag("open").then(|| read(doc)).transpose()
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
