//! Records as documents: where their fields stand, and what stands beside them to be found or seen. What goes out is in `outbox_doc.rs`.

use std::sync::LazyLock;

use hapax_domain::{Direction, Status};
use hapax_store::steps::record::Record;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, EventRec, ItemPlace, ItemRec, KeyRec, LaneRec, NameRec, ProviderNameRec, Queue, ThreadRec, thread_hash,
};
use hapax_store::{Copies, StoreError};

use super::document::{InDocument, Shape, fields_of, name_of, read, split};
use super::paths;
use super::value::{Doc, Fields, bytes, flag, hash, int, null, number, text, time};

impl InDocument for KeyRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] =
        &[("key", "", Shape::Id), ("at_ms", "processed_at", Shape::Time), ("expires_ms", "expires_at", Shape::Time)];
}

impl InDocument for EventRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[("body", "body", Shape::Inline)];
}

impl InDocument for AnswerRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[("event", "", Shape::Id), ("body", "body", Shape::Inline)];
}

impl InDocument for ItemRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[("events", "events", Shape::Numbers)];
}

impl InDocument for LaneRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[
        ("hash", "", Shape::Id),
        ("held_fence", "fence", Shape::Plain),
        ("held_worker", "worker", Shape::Plain),
        ("held_leased_ms", "leased_ms", Shape::Plain),
        ("held_until_ms", "until_ms", Shape::Plain),
    ];
}

impl InDocument for ThreadRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[
        ("last_ms", "lastAt", Shape::Time),
        ("last_text", "lastMessage", Shape::Plain),
        ("last_out", "lastDirection", Shape::Named),
        ("purged_to", "purgedTo", Shape::Plain),
        ("read_to", "readTo", Shape::Plain),
    ];
}

impl InDocument for NameRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[];
}

impl InDocument for ProviderNameRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[];
}

impl InDocument for AttemptRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] = &[];
}

/// All fields of an event but those it carries for its webhook.
pub(super) fn plain_event() -> &'static [&'static str] {
    static FIELDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let beside = ["thread_doc", "copies", "conflicts", "copied_ms", "kept", "pieces"];
        EventRec::plain_fields().iter().map(name_of).chain(beside).collect()
    });
    &FIELDS
}

/// `thread_doc` is the document of the thread that the event is an entry of.
pub(super) fn event_fields(event: &EventRec, thread_doc: Option<&str>) -> Fields {
    let own_thread = event.peer.as_ref().map(|peer| thread_hash(&event.account, peer));
    let fields = fields_of(event)
        .with("carrier", flag(event.webhook == event.number))
        .with_some("own_thread", own_thread.as_ref(), hash)
        .with_some("thread_doc", thread_doc, text);
    match &event.carried {
        Some(carried) => fields.with("pieces", int(split(&carried.body).1.len() as i64)),
        None => fields,
    }
}

/// What an event is without the body of its webhook, which it may have carried.
pub(super) fn without_body(is_carrier: bool) -> Fields {
    let fields = Fields::default().with("body_bytes", int(0));
    match is_carrier {
        true => fields.with("headers", bytes(&[])).with("body", bytes(&[])).with("pieces", int(0)),
        false => fields,
    }
}

pub(super) fn read_copies(doc: &Doc) -> Result<Option<Copies>, StoreError> {
    let Some(copies) = doc.maybe_number("copies") else { return Ok(None) };
    let event = read::<EventRec>(doc)?.event_id();
    let (conflicts, last_ms) =
        (doc.maybe_number("conflicts").unwrap_or_default(), doc.maybe_int("copied_ms").unwrap_or_default());
    let kept = doc.texts("kept").first().and_then(|kept| Copies::read_kept(kept));
    Ok(Some(Copies { event, copies, conflicts, last_ms, kept }))
}

pub(super) fn answer_fields(kept: &AnswerRec) -> Fields {
    fields_of(kept).with("pieces", int(split(&kept.answer.body).1.len() as i64))
}

pub(super) fn item_fields(item: &ItemRec) -> Fields {
    fields_of(item).with("parked", flag(item.place != ItemPlace::InLane)).with("is_replay", flag(item.replay.is_some()))
}

/// `held_doc` is the document of the message that is being worked on.
pub(super) fn lane_fields(lane: &LaneRec, held_doc: Option<&str>) -> Fields {
    fields_of(lane).with("leased", flag(lane.held.is_some())).with_some("held_doc", held_doc, text)
}

pub(super) fn name_fields(name: &NameRec) -> Fields {
    fields_of(name).with("thread", hash(&thread_hash(&name.account, &name.peer)))
}

pub(super) fn thread_fields(thread: &ThreadRec) -> Fields {
    fields_of(thread).with("hash", hash(&thread_hash(&thread.account, &thread.peer)))
}

/// What a front end sees of an event in its thread.
pub(super) fn entry_of_event(event: &EventRec) -> Fields {
    let direction = if event.echo { Direction::Out } else { Direction::In };
    let status = if event.echo { null() } else { text(Status::Delivered.name()) };
    Fields::default()
        .with("number", number(event.number))
        .with("direction", text(direction.name()))
        .with_some("text", event.text.as_deref(), text)
        .with("at", time(event.received_ms))
        .with("status", status)
        .with("providerId", text(&event.id))
}

pub(super) fn attempt_path(attempt: &AttemptRec) -> String {
    attempt_path_of(attempt.queue, attempt.of, attempt.fence)
}

pub(super) fn attempt_path_of(queue: Queue, of: u64, fence: u64) -> String {
    format!("{}-{}-{fence:016x}", paths::numbered(paths::ATTEMPTS, of), queue.code())
}
