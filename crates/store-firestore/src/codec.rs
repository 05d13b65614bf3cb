//! Records as documents and back: events, items, lanes, names, threads, attempts. What goes out is in `outbox_doc.rs`.

use bytes::Bytes;
use hapax_domain::{Direction, Kind, Priority, Status};
use hapax_store::steps::records::{
    AttemptRec, Carried, EventRec, Held, ItemRec, KeyRec, LaneRec, NameRec, Place, ProviderNameRec, Queue, ThreadRec,
    read_hashes, read_steps, thread_hash, write_hashes, write_steps,
};
use hapax_store::{Answer, Copies, KeptHeaders, StoreError, read_replies, write_replies};

use super::paths;
use super::value::{Doc, Fields, bytes, flag, hash, int, list, null, number, text, time};

/// So much of a body stands in the document it belongs to; the rest stands in pieces. Firestore allows 1 MiB for a document.
pub(super) const INLINE_MAX_BYTES: usize = 600 << 10;
pub(super) const PIECE_BYTES: usize = 900 << 10;

/// All fields of an event but those it carries for its webhook.
pub(super) const EVENT_FIELDS: &[&str] = &[
    "number",
    "webhook",
    "received_ms",
    "channel",
    "kind",
    "account",
    "id",
    "peer",
    "echo",
    "at_ms",
    "text",
    "index",
    "item",
    "part",
    "thread",
    "thread_doc",
    "replays",
    "body_bytes",
    "copies",
    "conflicts",
    "copied_ms",
    "kept",
    "pieces",
];

pub(super) fn key_fields(key: &KeyRec) -> Fields {
    Fields::default()
        .with("event", number(key.event))
        .with("processed_at", time(key.at_ms))
        .with("fingerprint", int(key.fingerprint.into()))
        .with("expires_at", time(key.expires_ms))
}

pub(super) fn read_key(doc: &Doc, key: [u8; 32]) -> Result<KeyRec, StoreError> {
    Ok(KeyRec {
        key,
        event: doc.number("event")?,
        at_ms: doc.time("processed_at")?,
        fingerprint: doc.small("fingerprint")?,
        expires_ms: doc.time("expires_at")?,
    })
}

/// `thread_doc` is the document of the thread that the event is an entry of.
pub(super) fn event_fields(event: &EventRec, thread_doc: Option<&str>) -> Fields {
    let own_thread = event.peer.as_ref().map(|peer| thread_hash(&event.account, peer));
    let fields = Fields::default()
        .with("number", number(event.number))
        .with("webhook", number(event.webhook))
        .with("carrier", flag(event.webhook == event.number))
        .with("received_ms", int(event.received_ms))
        .with("channel", text(&event.channel))
        .with("kind", text(event.kind.name()))
        .with("account", text(&event.account))
        .with("id", text(&event.id))
        .with_some("peer", event.peer.as_deref(), text)
        .with_some("own_thread", own_thread.as_ref(), hash)
        .with("echo", flag(event.echo))
        .with_some("at_ms", event.at_ms, int)
        .with_some("text", event.text.as_deref(), text)
        .with("index", int(event.index.into()))
        .with_some("item", event.item, number)
        .with("part", flag(event.part))
        .with_some("thread", event.thread.as_ref(), hash)
        .with_some("thread_doc", thread_doc, text)
        .with("replays", int(event.replays.into()))
        .with("body_bytes", number(event.body_bytes));
    let Some(carried) = &event.carried else { return fields };
    let (inline, pieces) = split(&carried.body);
    fields
        .with("headers", bytes(&carried.headers.0))
        .with("body", bytes(inline))
        .with("pieces", int(pieces.len() as i64))
        .with("webhook_events", int(carried.events.into()))
}

pub(super) fn read_event(doc: &Doc) -> Result<EventRec, StoreError> {
    Ok(EventRec {
        number: doc.number("number")?,
        webhook: doc.number("webhook")?,
        received_ms: doc.int("received_ms")?,
        channel: doc.text("channel")?.into(),
        kind: doc.named("kind", Kind::from_name)?,
        account: doc.text("account")?,
        id: doc.text("id")?,
        peer: doc.maybe_text("peer"),
        echo: doc.flag("echo"),
        at_ms: doc.maybe_int("at_ms"),
        text: doc.maybe_text("text"),
        index: doc.small("index")?,
        item: doc.maybe_number("item"),
        part: doc.flag("part"),
        thread: doc.maybe_hash("thread"),
        replays: doc.small("replays")?,
        body_bytes: doc.number("body_bytes")?,
        carried: None,
    })
}

/// The body without its pieces, if the document was read with it.
pub(super) fn read_carried(doc: &Doc) -> Option<Carried> {
    let body = doc.maybe_bytes("body")?;
    let headers = KeptHeaders(doc.maybe_bytes("headers")?);
    Some(Carried { headers, body: body.into(), events: doc.small("webhook_events").ok()? })
}

pub(super) fn read_copies(doc: &Doc) -> Result<Option<Copies>, StoreError> {
    let Some(copies) = doc.maybe_number("copies") else { return Ok(None) };
    let event = read_event(doc)?.event_id();
    let (conflicts, last_ms) =
        (doc.maybe_number("conflicts").unwrap_or_default(), doc.maybe_int("copied_ms").unwrap_or_default());
    let kept = doc.texts("kept").first().and_then(|kept| Copies::read_kept(kept));
    Ok(Some(Copies { event, copies, conflicts, last_ms, kept }))
}

/// What fits beside the other fields, and the rest in pieces that each fit in a document.
pub(super) fn split(body: &Bytes) -> (&[u8], Vec<&[u8]>) {
    let (inline, rest) = body.split_at(body.len().min(INLINE_MAX_BYTES));
    (inline, rest.chunks(PIECE_BYTES).collect())
}

pub(super) fn answer_fields(answer: &Answer) -> Fields {
    let (inline, pieces) = split(&answer.body);
    Fields::default()
        .with("status", int(answer.status.into()))
        .with_some("content_type", answer.content_type.as_deref(), text)
        .with("body", bytes(inline))
        .with("pieces", int(pieces.len() as i64))
}

/// Without its pieces.
pub(super) fn read_answer(doc: &Doc) -> Result<Answer, StoreError> {
    let status = u16::try_from(doc.small("status")?).unwrap_or_default();
    Ok(Answer { status, content_type: doc.maybe_text("content_type"), body: doc.bytes("body")?.into() })
}

pub(super) fn item_fields(item: &ItemRec) -> Fields {
    Fields::default()
        .with("number", number(item.number))
        .with("received_ms", int(item.received_ms))
        .with("channel", text(&item.channel))
        .with("lane", hash(&item.lane))
        .with("place", int(item.place.code().into()))
        .with("parked", flag(item.place != Place::InLane))
        .with("events", list(item.events.iter().map(|&event| number(event)).collect()))
        .with("events_ms", int(item.events_ms))
        .with("webhook", number(item.webhook))
        .with("attempt", int(item.attempt.into()))
        .with("failures", int(item.failures.into()))
        .with_some("replay", item.replay, |replay| int(replay.into()))
        .with("is_replay", flag(item.replay.is_some()))
        .with_some("why", item.why.as_deref(), text)
        .with("due_ms", int(item.due_ms))
        .with_some("replies", write_replies(&item.replies).as_deref(), bytes)
}

pub(super) fn read_item(doc: &Doc) -> Result<ItemRec, StoreError> {
    let place = i16::try_from(doc.int("place")?).ok().and_then(Place::from_code);
    Ok(ItemRec {
        number: doc.number("number")?,
        received_ms: doc.int("received_ms")?,
        channel: doc.text("channel")?.into(),
        lane: doc.hash("lane")?,
        place: place.ok_or_else(|| super::value::broken(&doc.name, "place"))?,
        events: doc.numbers("events"),
        events_ms: doc.int("events_ms")?,
        webhook: doc.number("webhook")?,
        attempt: doc.small("attempt")?,
        failures: doc.small("failures").unwrap_or_default(),
        replay: doc.small("replay").ok(),
        why: doc.maybe_text("why"),
        due_ms: doc.int("due_ms")?,
        replies: doc.maybe_bytes("replies").and_then(|bytes| read_replies(&bytes)).unwrap_or_default(),
    })
}

/// `held_doc` is the document of the message that is being worked on.
pub(super) fn lane_fields(lane: &LaneRec, held_doc: Option<&str>) -> Fields {
    let held = lane.held.as_ref();
    Fields::default()
        .with("queue", int(lane.queue.code().into()))
        .with("channel", text(&lane.channel))
        .with("account", text(&lane.account))
        .with("priority", int(priority_code(lane.priority)))
        .with("first", number(lane.first))
        .with("due_ms", int(lane.due_ms))
        .with("peer", lane.peer.as_deref().map_or_else(null, text))
        .with("joined_to", lane.joined_to.as_ref().map_or_else(null, hash))
        .with("joined", if lane.joined.is_empty() { null() } else { bytes(&write_hashes(&lane.joined)) })
        .with("leased", flag(held.is_some()))
        .with_some("held_number", held.map(|held| held.number), number)
        .with_some("held_attempt", held.map(|held| held.attempt), |attempt| int(attempt.into()))
        .with_some("fence", held.map(|held| held.fence), number)
        .with_some("worker", held.map(|held| held.worker.as_str()), text)
        .with_some("leased_ms", held.map(|held| held.leased_ms), int)
        .with_some("until_ms", held.map(|held| held.until_ms), int)
        .with("held_doc", held_doc.map_or_else(null, text))
}

pub(super) fn read_lane(doc: &Doc) -> Result<LaneRec, StoreError> {
    let broken = |part: &str| super::value::broken(&doc.name, part);
    let mut hash = [0; 32];
    hex::decode_to_slice(doc.id(), &mut hash).map_err(|_| broken("id"))?;
    let queue = i16::try_from(doc.int("queue")?).ok().and_then(Queue::from_code);
    let held = match doc.flag("leased") {
        false => None,
        true => Some(Held {
            number: doc.number("held_number")?,
            attempt: doc.small("held_attempt")?,
            fence: doc.number("fence")?,
            worker: doc.text("worker")?,
            leased_ms: doc.int("leased_ms")?,
            until_ms: doc.int("until_ms")?,
        }),
    };
    Ok(LaneRec {
        hash,
        queue: queue.ok_or_else(|| broken("queue"))?,
        channel: doc.text("channel")?.into(),
        account: doc.text("account")?,
        priority: priority_of(doc.int("priority")?).ok_or_else(|| broken("priority"))?,
        first: doc.number("first")?,
        due_ms: doc.int("due_ms")?,
        held,
        peer: doc.maybe_text("peer"),
        joined_to: doc.maybe_hash("joined_to"),
        joined: doc.maybe_bytes("joined").map(|bytes| read_hashes(&bytes)).unwrap_or_default(),
    })
}

/// In the order of priority, so that a query can sort by it.
pub(super) fn priority_code(priority: Priority) -> i64 {
    match priority {
        Priority::Reply => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

fn priority_of(code: i64) -> Option<Priority> {
    Priority::ALL.into_iter().find(|priority| priority_code(*priority) == code)
}

pub(super) fn name_fields(name: &NameRec) -> Fields {
    Fields::default()
        .with("account", text(&name.account))
        .with("name", text(&name.name))
        .with("peer", text(&name.peer))
        .with("thread", hash(&thread_hash(&name.account, &name.peer)))
}

pub(super) fn read_name(doc: &Doc) -> Result<NameRec, StoreError> {
    Ok(NameRec { account: doc.text("account")?, name: doc.text("name")?, peer: doc.text("peer")? })
}

pub(super) fn thread_fields(thread: &ThreadRec) -> Fields {
    Fields::default()
        .with("hash", hash(&thread_hash(&thread.account, &thread.peer)))
        .with("account", text(&thread.account))
        .with("peer", text(&thread.peer))
        .with("channel", text(&thread.channel))
        .with("lastAt", time(thread.last_ms))
        .with_some("lastMessage", thread.last_text.as_deref(), text)
        .with("lastDirection", text(thread.last_direction.name()))
        .with("unread", number(thread.unread))
        .with("purgedTo", number(thread.purged_to))
        .with("readTo", number(thread.read_to))
}

pub(super) fn read_thread(doc: &Doc) -> Result<ThreadRec, StoreError> {
    let direction = |name: &str| [Direction::In, Direction::Out].into_iter().find(|direction| direction.name() == name);
    Ok(ThreadRec {
        account: doc.text("account")?,
        peer: doc.text("peer")?,
        channel: doc.text("channel")?,
        last_ms: doc.time("lastAt")?,
        last_text: doc.maybe_text("lastMessage"),
        last_direction: doc.named("lastDirection", direction)?,
        unread: doc.number("unread")?,
        purged_to: doc.number("purgedTo")?,
        read_to: doc.maybe_number("readTo").unwrap_or_default(),
    })
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

pub(super) fn provider_name_fields(name: &ProviderNameRec) -> Fields {
    Fields::default()
        .with("account", text(&name.account))
        .with("provider_id", text(&name.provider_id))
        .with_some("message", name.message, number)
        .with("early", text(&write_steps(&name.early)))
        .with("heard_ms", int(name.heard_ms))
}

pub(super) fn read_provider_name(doc: &Doc) -> Result<ProviderNameRec, StoreError> {
    Ok(ProviderNameRec {
        account: doc.text("account")?,
        provider_id: doc.text("provider_id")?,
        message: doc.maybe_number("message"),
        early: read_steps(&doc.text("early")?),
        heard_ms: doc.int("heard_ms")?,
    })
}

pub(super) fn attempt_path(attempt: &AttemptRec) -> String {
    attempt_path_of(attempt.queue, attempt.of, attempt.fence)
}

pub(super) fn attempt_path_of(queue: Queue, of: u64, fence: u64) -> String {
    format!("{}-{}-{fence:016x}", paths::numbered(paths::ATTEMPTS, of), queue.code())
}

pub(super) fn attempt_fields(attempt: &AttemptRec) -> Fields {
    Fields::default()
        .with("queue", int(attempt.queue.code().into()))
        .with("of", number(attempt.of))
        .with("item", number(attempt.item))
        .with("item_ms", int(attempt.item_ms))
        .with("attempt", int(attempt.attempt.into()))
        .with("fence", number(attempt.fence))
        .with("worker", text(&attempt.worker))
        .with("leased_ms", int(attempt.leased_ms))
        .with("ended_ms", int(attempt.ended_ms))
        .with("outcome", text(&attempt.outcome))
        .with("detail", text(&attempt.detail))
}

pub(super) fn read_attempt(doc: &Doc) -> Result<AttemptRec, StoreError> {
    let queue = i16::try_from(doc.int("queue")?).ok().and_then(Queue::from_code);
    Ok(AttemptRec {
        queue: queue.ok_or_else(|| super::value::broken(&doc.name, "queue"))?,
        of: doc.number("of")?,
        item: doc.number("item")?,
        item_ms: doc.int("item_ms")?,
        attempt: doc.small("attempt")?,
        fence: doc.number("fence")?,
        worker: doc.text("worker")?,
        leased_ms: doc.int("leased_ms")?,
        ended_ms: doc.int("ended_ms")?,
        outcome: doc.text("outcome")?,
        detail: doc.text("detail")?,
    })
}
