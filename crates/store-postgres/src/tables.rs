//! The columns of what comes in: keys, events, items, lanes, threads and names.

use hapax_domain::{Direction, Kind, Priority};
use hapax_store::steps::records::{
    Carried, EventRec, Hash, Held, ItemRec, KeyRec, LaneRec, NameRec, Place, Queue, ThreadRec, name_hash, read_hashes,
    read_numbers, thread_hash, write_hashes, write_numbers,
};
use hapax_store::{KeptHeaders, NewMessage, read_replies, write_replies};

use super::rows::{Fields, Kept, Param, column};
use super::texts::escape;
use super::trouble::Failure;

/// The rank by which lanes are sorted.
pub(super) fn priority_code(priority: Priority) -> i16 {
    match priority {
        Priority::Reply => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

pub(super) fn read_priority(fields: &mut Fields<'_>) -> Result<Priority, Failure> {
    let code: i16 = fields.take()?;
    fields.known(Priority::ALL.into_iter().find(|priority| priority_code(*priority) == code), "a priority")
}

pub(super) fn read_queue(fields: &mut Fields<'_>) -> Result<Queue, Failure> {
    let code = fields.take()?;
    fields.known(Queue::from_code(code), "a queue")
}

impl Kept for KeyRec {
    const TABLE: &'static str = "hapax_keys";
    const COLUMNS: &'static [(&'static str, &'static str)] =
        &[("key", "bytea"), ("event", "int8"), ("at_ms", "int8"), ("fingerprint", "int4"), ("expires_ms", "int8")];

    type Key = Hash;

    fn key(&self) -> Hash {
        self.key
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |key| &key.key[..]),
            column(of, |key| key.event as i64),
            column(of, |key| key.at_ms),
            column(of, |key| key.fingerprint as i32),
            column(of, |key| key.expires_ms),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            key: fields.hash()?,
            event: fields.number()?,
            at_ms: fields.take()?,
            fingerprint: fields.small()?,
            expires_ms: fields.take()?,
        })
    }
}

impl Kept for EventRec {
    const TABLE: &'static str = "hapax_events";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("number", "int8"),
        ("webhook", "int8"),
        ("received_ms", "int8"),
        ("channel", "text"),
        ("kind", "text"),
        ("account", "text"),
        ("id", "text"),
        ("peer", "text"),
        ("echo", "bool"),
        ("at_ms", "int8"),
        ("text", "text"),
        ("ordinal", "int4"),
        ("item", "int8"),
        ("part", "bool"),
        ("thread", "bytea"),
        ("replays", "int4"),
        ("body_bytes", "int8"),
        ("headers", "bytea"),
        ("body", "bytea"),
        ("webhook_events", "int4"),
    ];
    const EXTRA: usize = 3;

    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |event| event.number as i64),
            column(of, |event| event.webhook as i64),
            column(of, |event| event.received_ms),
            column(of, |event| escape(&event.channel)),
            column(of, |event| event.kind.name()),
            column(of, |event| escape(&event.account)),
            column(of, |event| escape(&event.id)),
            column(of, |event| event.peer.as_deref().map(escape)),
            column(of, |event| event.echo),
            column(of, |event| event.at_ms),
            column(of, |event| event.text.as_deref().map(escape)),
            column(of, |event| event.index as i32),
            column(of, |event| event.item.map(|item| item as i64)),
            column(of, |event| event.part),
            column(of, |event| event.thread.as_ref().map(|thread| &thread[..])),
            column(of, |event| event.replays as i32),
            column(of, |event| event.body_bytes as i64),
            column(of, |event| event.carried.as_ref().map(|carried| &carried.headers.0[..])),
            column(of, |event| event.carried.as_ref().map(|carried| &carried.body[..])),
            column(of, |event| event.carried.as_ref().map(|carried| carried.events as i32)),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            number: fields.number()?,
            webhook: fields.number()?,
            received_ms: fields.take()?,
            channel: fields.shared_text()?,
            kind: read_kind(fields)?,
            account: fields.text()?,
            id: fields.text()?,
            peer: fields.text_or_null()?,
            echo: fields.take()?,
            at_ms: fields.take()?,
            text: fields.text_or_null()?,
            index: fields.small()?,
            item: fields.number_or_null()?,
            part: fields.take()?,
            thread: fields.hash_or_null()?,
            replays: fields.small()?,
            body_bytes: fields.number()?,
            carried: if fields.more() { read_carried(fields)? } else { None },
        })
    }
}

fn read_kind(fields: &mut Fields<'_>) -> Result<Kind, Failure> {
    let name: String = fields.take()?;
    fields.known(Kind::from_name(&name), "a kind of event")
}

fn read_carried(fields: &mut Fields<'_>) -> Result<Option<Carried>, Failure> {
    let headers: Option<Vec<u8>> = fields.take()?;
    let body: Option<Vec<u8>> = fields.take()?;
    let events = fields.small_or_null()?;
    let carried = headers.zip(body).zip(events);
    Ok(carried.map(|((headers, body), events)| Carried { headers: KeptHeaders(headers), body: body.into(), events }))
}

impl Kept for ItemRec {
    const TABLE: &'static str = "hapax_items";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("number", "int8"),
        ("received_ms", "int8"),
        ("channel", "text"),
        ("lane", "bytea"),
        ("place", "int2"),
        ("events", "bytea"),
        ("events_ms", "int8"),
        ("webhook", "int8"),
        ("attempt", "int4"),
        ("replay", "int4"),
        ("why", "text"),
        ("due_ms", "int8"),
        ("failures", "int4"),
        ("replies", "bytea"),
        ("first", "int8"),
    ];
    /// The first event is among the events; the column is there to be searched.
    const EXTRA: usize = 1;

    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |item| item.number as i64),
            column(of, |item| item.received_ms),
            column(of, |item| escape(&item.channel)),
            column(of, |item| &item.lane[..]),
            column(of, |item| item.place.code()),
            column(of, |item| write_numbers(&item.events)),
            column(of, |item| item.events_ms),
            column(of, |item| item.webhook as i64),
            column(of, |item| item.attempt as i32),
            column(of, |item| item.replay.map(|replay| replay as i32)),
            column(of, |item| item.why.as_deref().map(escape)),
            column(of, |item| item.due_ms),
            column(of, |item| item.failures as i32),
            column(of, |item| write_replies(&item.replies)),
            column(of, |item| item.events.first().copied().unwrap_or_default() as i64),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            number: fields.number()?,
            received_ms: fields.take()?,
            channel: fields.shared_text()?,
            lane: fields.hash()?,
            place: read_place(fields)?,
            events: read_numbers(&fields.bytes()?),
            events_ms: fields.take()?,
            webhook: fields.number()?,
            attempt: fields.small()?,
            replay: fields.small_or_null()?,
            why: fields.text_or_null()?,
            due_ms: fields.take()?,
            failures: fields.small()?,
            replies: read_kept(fields)?,
        })
    }
}

fn read_kept(fields: &mut Fields<'_>) -> Result<Vec<NewMessage>, Failure> {
    match fields.take::<Option<Vec<u8>>>()? {
        None => Ok(Vec::new()),
        Some(bytes) => fields.known(read_replies(&bytes), "the replies of an item"),
    }
}

fn read_place(fields: &mut Fields<'_>) -> Result<Place, Failure> {
    let code = fields.take()?;
    fields.known(Place::from_code(code), "the place of an item")
}

impl Kept for LaneRec {
    const TABLE: &'static str = "hapax_lanes";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("hash", "bytea"),
        ("queue", "int2"),
        ("channel", "text"),
        ("account", "text"),
        ("priority", "int2"),
        ("first", "int8"),
        ("due_ms", "int8"),
        ("peer", "text"),
        ("joined_to", "bytea"),
        ("joined", "bytea"),
        ("held_number", "int8"),
        ("held_attempt", "int4"),
        ("held_fence", "int8"),
        ("held_worker", "text"),
        ("held_leased_ms", "int8"),
        ("held_until_ms", "int8"),
    ];

    type Key = Hash;

    fn key(&self) -> Hash {
        self.hash
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |lane| &lane.hash[..]),
            column(of, |lane| lane.queue.code()),
            column(of, |lane| escape(&lane.channel)),
            column(of, |lane| escape(&lane.account)),
            column(of, |lane| priority_code(lane.priority)),
            column(of, |lane| lane.first as i64),
            column(of, |lane| lane.due_ms),
            column(of, |lane| lane.peer.as_deref().map(escape)),
            column(of, |lane| lane.joined_to.as_ref().map(|lane| &lane[..])),
            column(of, |lane| (!lane.joined.is_empty()).then(|| write_hashes(&lane.joined))),
            column(of, |lane| lane.held.as_ref().map(|held| held.number as i64)),
            column(of, |lane| lane.held.as_ref().map(|held| held.attempt as i32)),
            column(of, |lane| lane.held.as_ref().map(|held| held.fence as i64)),
            column(of, |lane| lane.held.as_ref().map(|held| escape(&held.worker))),
            column(of, |lane| lane.held.as_ref().map(|held| held.leased_ms)),
            column(of, |lane| lane.held.as_ref().map(|held| held.until_ms)),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            hash: fields.hash()?,
            queue: read_queue(fields)?,
            channel: fields.shared_text()?,
            account: fields.text()?,
            priority: read_priority(fields)?,
            first: fields.number()?,
            due_ms: fields.take()?,
            peer: fields.text_or_null()?,
            joined_to: fields.hash_or_null()?,
            joined: fields.take::<Option<Vec<u8>>>()?.map(|bytes| read_hashes(&bytes)).unwrap_or_default(),
            held: read_held(fields)?,
        })
    }
}

fn read_held(fields: &mut Fields<'_>) -> Result<Option<Held>, Failure> {
    let Some(number) = fields.number_or_null()? else { return Ok(None) };
    Ok(Some(Held {
        number,
        attempt: fields.small()?,
        fence: fields.number()?,
        worker: fields.text()?,
        leased_ms: fields.take()?,
        until_ms: fields.take()?,
    }))
}

impl Kept for ThreadRec {
    const TABLE: &'static str = "hapax_threads";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("hash", "bytea"),
        ("account", "text"),
        ("peer", "text"),
        ("channel", "text"),
        ("last_ms", "int8"),
        ("last_text", "text"),
        ("last_out", "bool"),
        ("unread", "int8"),
        ("purged_to", "int8"),
        ("read_to", "int8"),
    ];

    type Key = Hash;

    fn key(&self) -> Hash {
        thread_hash(&self.account, &self.peer)
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |thread| thread.key().to_vec()),
            column(of, |thread| escape(&thread.account)),
            column(of, |thread| escape(&thread.peer)),
            column(of, |thread| escape(&thread.channel)),
            column(of, |thread| thread.last_ms),
            column(of, |thread| thread.last_text.as_deref().map(escape)),
            column(of, |thread| thread.last_direction == Direction::Out),
            column(of, |thread| thread.unread as i64),
            column(of, |thread| thread.purged_to as i64),
            column(of, |thread| thread.read_to as i64),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        fields.hash()?;
        Ok(Self {
            account: fields.text()?,
            peer: fields.text()?,
            channel: fields.text()?,
            last_ms: fields.take()?,
            last_text: fields.text_or_null()?,
            last_direction: if fields.take()? { Direction::Out } else { Direction::In },
            unread: fields.number()?,
            purged_to: fields.number()?,
            read_to: fields.number()?,
        })
    }
}

impl Kept for NameRec {
    const TABLE: &'static str = "hapax_names";
    const COLUMNS: &'static [(&'static str, &'static str)] =
        &[("hash", "bytea"), ("account", "text"), ("name", "text"), ("peer", "text"), ("thread", "bytea")];
    /// Follows from account and peer; the column is there to be searched.
    const EXTRA: usize = 1;

    type Key = Hash;

    fn key(&self) -> Hash {
        name_hash(&self.account, &self.name)
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |name| name.key().to_vec()),
            column(of, |name| escape(&name.account)),
            column(of, |name| escape(&name.name)),
            column(of, |name| escape(&name.peer)),
            column(of, |name| thread_hash(&name.account, &name.peer).to_vec()),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        fields.hash()?;
        Ok(Self { account: fields.text()?, name: fields.text()?, peer: fields.text()? })
    }
}
