//! Writing what a step decided. Tables in the order they are locked in, rows in the order of their key: whoever waits, waits for one who
//! is further on.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hapax_store::steps::Changes;
use hapax_store::steps::record::{Field, Record, Value};
use hapax_store::steps::records::{EventRec, KeyRec, MessageRec, Queue};

use super::link::Packet;
use super::peers;
use super::rows::{BODY_BESIDE_BYTES, InTable, LISTED, ListKey, lists_of, name_of, put, put_event, put_listed};
use super::sql::{List, Literal, ROWS_MAX, Sql, Values};

/// The statements that write all of it, and the bodies that are too large for a statement.
pub(super) fn packets(changes: &Changes) -> Vec<Packet> {
    let (many, events) = put_many_events(&changes.new_events);
    let mut sql = Sql::default();
    save_lanes(&mut sql, changes);
    peers::save(&mut sql, changes);
    save_messages(&mut sql, changes);
    save_outs(&mut sql, changes);
    save_events(&mut sql, events, changes);
    save_items(&mut sql, changes);
    put_over(&mut sql, &changes.claims);
    put_new(&mut sql, &changes.new_claims);
    remove(&mut sql, "hapax_claims WHERE hash", &changes.gone_claims);
    put_new(&mut sql, &changes.attempts);
    put_over(&mut sql, &changes.answers);
    let mut packets = many;
    packets.extend(sql.into_packets().into_iter().map(Packet::Text));
    for event in &changes.new_events {
        if let Some(carried) = event.carried.as_ref().filter(|carried| carried.body.len() > BODY_BESIDE_BYTES) {
            packets.push(Packet::Body(event.number, carried.body.clone()));
        }
    }
    packets
}

/// Remembers when keys that were won expire: those that do together in one row. It is known by its lowest event, which no other row has.
pub(super) fn put_expiring(sql: &mut Sql, won: &[&KeyRec]) {
    let mut together: BTreeMap<i64, (u64, Vec<u8>)> = BTreeMap::new();
    for key in won {
        let (event, packed) = together.entry(key.expires_ms).or_insert((key.event, Vec::new()));
        *event = key.event.min(*event);
        packed.extend(key.key);
    }
    let rows: Vec<_> = together.into_iter().collect();
    // A key that is moved here once more is named once more.
    let more = " ON DUPLICATE KEY UPDATE packed=CONCAT(packed,VALUES(packed))";
    sql.add_rows("INSERT INTO hapax_expiring (expires_ms,event,packed) VALUES ", &rows, more, |(expires_ms, row), values| {
        values.put(Value::Int(*expires_ms));
        values.put(Value::Int(row.0 as i64));
        values.put(Value::Bytes(row.1.as_slice().into()));
    });
}

fn save_lanes(sql: &mut Sql, changes: &Changes) {
    put_over(sql, &changes.lanes);
    put_new(sql, &changes.new_lanes);
    remove(sql, "hapax_lanes WHERE hash", &changes.gone_lanes);
}

static CHANGE_MESSAGE: LazyLock<String> = LazyLock::new(|| {
    let sets = changing().map(|field| format!("{} = ", name_of::<MessageRec>(&field.column)));
    format!("UPDATE hapax_messages SET {}? WHERE number = ?", sets.collect::<Vec<_>>().join("?, "))
});

fn changing() -> impl Iterator<Item = &'static Field<MessageRec>> {
    MessageRec::FIELDS.iter().filter(|field| MessageRec::CHANGING.contains(&field.column.name))
}

fn save_messages(sql: &mut Sql, changes: &Changes) {
    put_over(sql, &changes.provider_names);
    put_new(sql, &changes.new_provider_names);
    remove(sql, "hapax_provider_names WHERE hash", &changes.gone_provider_names);
    for message in in_order(&changes.messages) {
        let values: Vec<Value<'_>> = changing().map(|field| (field.value)(message)).collect();
        let mut literals: Vec<&dyn Literal> = values.iter().map(|value| value as &dyn Literal).collect();
        literals.push(&message.number);
        sql.add(&CHANGE_MESSAGE, &literals);
    }
    put_new(sql, &changes.new_messages);
    let forgotten: Vec<u64> = changes.forgotten_messages.iter().map(|message| message.number).collect();
    change_all(sql, "hapax_messages SET text = NULL, payload = '' WHERE number", &forgotten);
    remove(sql, "hapax_messages WHERE number", &changes.gone_messages);
    remove_attempts(sql, Queue::Outbox, &changes.gone_messages);
}

fn save_outs(sql: &mut Sql, changes: &Changes) {
    put_over(sql, &changes.outs);
    put_new(sql, &changes.new_outs);
    remove(sql, "hapax_outs WHERE number", &changes.gone_outs);
}

/// So many events at a time are put by a statement that the server has read once and for all: reading all columns of each anew costs it more
/// than all else it does with them. What is left goes into the text.
const MANY: [usize; 5] = [256, 128, 64, 32, FEW];
const FEW: usize = 16;
const MANY_COLUMNS: usize = EventRec::FIELDS.len() + EventRec::BESIDE.len();
/// Beyond it they do not go into one packet.
const MANY_BYTES: usize = 1 << 20;

static MANY_EVENTS: LazyLock<[String; MANY.len()]> = LazyLock::new(|| {
    let row = format!("({})", ["?"; MANY_COLUMNS].join(","));
    MANY.map(|many| format!("{}{}", EventRec::texts().insert, vec![row.as_str(); many].join(",")))
});

/// Puts as many events as go beside such statements, and says which are left. They are new: nobody waits for their rows, so they may be
/// written before the rest.
fn put_many_events(events: &[EventRec]) -> (Vec<Packet>, Vec<&EventRec>) {
    let (mut packets, mut by_text, mut left) = (Vec::new(), Vec::new(), events);
    while !left.is_empty() {
        let fits = |many: usize| left.len() >= many && left[..many].iter().map(size_of).sum::<usize>() <= MANY_BYTES;
        let statement = MANY.into_iter().zip(MANY_EVENTS.iter()).find(|(many, _)| fits(*many));
        let (some, rest) = left.split_at(statement.map_or(left.len().min(FEW), |(many, _)| many));
        left = rest;
        let Some((many, statement)) = statement else {
            by_text.extend(some);
            continue;
        };
        let mut values = Vec::with_capacity(many * MANY_COLUMNS);
        for event in some {
            put_event(event, &mut Values::Beside(&mut values));
        }
        packets.push(Packet::Prepared(statement, values));
    }
    (packets, by_text)
}

/// What of an event can be large.
fn size_of(event: &EventRec) -> usize {
    let carried = event.carried.as_ref().map_or(0, |carried| carried.body.len() + carried.headers.0.len());
    carried + event.text.as_ref().map_or(0, String::len)
}

fn save_events(sql: &mut Sql, mut events: Vec<&EventRec>, changes: &Changes) {
    events.sort_unstable_by_key(|event| event.number);
    sql.add_rows(&EventRec::texts().insert, &events, "", |event, values| put_event(event, values));
    let mut listed: Vec<(ListKey, u64)> = changes.new_events.iter().flat_map(lists_of).collect();
    listed.sort_unstable();
    sql.add_rows(&format!("INSERT INTO hapax_event_lists ({LISTED}) VALUES "), &listed, "", put_listed);
    for (event, replays) in &changes.replays {
        sql.add("UPDATE hapax_events SET replays = ? WHERE number = ?", &[replays, event]);
    }
    change_all(sql, "hapax_events SET text = NULL WHERE number", &changes.forgotten_events);
    remove(sql, "hapax_answers WHERE event", &changes.forgotten_events);
    let bodies: Vec<u64> = changes.forgotten_bodies.iter().map(|event| event.number).collect();
    change_all(sql, EMPTY_BODIES, &bodies);
    remove_events(sql, &changes.gone_events);
}

const EMPTY_BODIES: &str = "hapax_events SET body_bytes = 0, headers = IF(headers IS NULL, NULL, ''), \
                            body = IF(body IS NULL, NULL, '') WHERE number";

fn remove_events(sql: &mut Sql, events: &[EventRec]) {
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    remove(sql, "hapax_events WHERE number", &numbers);
    let mut lists: BTreeMap<ListKey, Vec<u64>> = BTreeMap::new();
    for (list, number) in events.iter().flat_map(lists_of) {
        lists.entry(list).or_default().push(number);
    }
    for (list, numbers) in lists {
        sql.add("DELETE FROM hapax_event_lists WHERE list = ? AND number IN ?", &[&list, &List(&numbers)]);
    }
    remove_attempts(sql, Queue::Inbox, &numbers);
    remove(sql, "hapax_answers WHERE event", &numbers);
    remove(sql, "hapax_copies WHERE event", &numbers);
}

fn save_items(sql: &mut Sql, changes: &Changes) {
    put_over(sql, &changes.items);
    put_new(sql, &changes.new_items);
    remove(sql, "hapax_items WHERE number", &changes.gone_items);
}

/// A row that is there already is an error: somebody else was faster.
fn put_new<R: InTable>(sql: &mut Sql, records: &[R]) {
    sql.add_rows(&R::texts().insert, &in_order(records), "", |record, values| put(*record, values));
}

/// Rows that are there, locked or ours alone to change, or that may be there or not.
fn put_over<R: InTable>(sql: &mut Sql, records: &[R]) {
    sql.add_rows(&R::texts().insert, &in_order(records), &R::texts().over, |record, values| put(*record, values));
}

pub(super) fn in_order<R: Record>(records: &[R]) -> Vec<&R> {
    let mut sorted: Vec<&R> = records.iter().collect();
    sorted.sort_by_cached_key(|record| record.key());
    sorted
}

fn remove<T: Literal + Ord + Clone>(sql: &mut Sql, from: &str, keys: &[T]) {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    for some in sorted.chunks(ROWS_MAX) {
        sql.add(&format!("DELETE FROM {from} IN ?"), &[&List(some)]);
    }
}

/// Changes all rows with these numbers in the same way.
fn change_all(sql: &mut Sql, how: &str, numbers: &[u64]) {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    for some in sorted.chunks(ROWS_MAX) {
        sql.add(&format!("UPDATE {how} IN ?"), &[&List(some)]);
    }
}

fn remove_attempts(sql: &mut Sql, queue: Queue, of: &[u64]) {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    for some in sorted.chunks(ROWS_MAX) {
        sql.add("DELETE FROM hapax_attempts WHERE queue = ? AND of_number IN ?", &[&queue.code(), &List(some)]);
    }
}
