//! Writing what a step decided. Tables in the order they are locked in, rows in the order of their key: whoever waits, waits for one who
//! is further on.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hapax_store::steps::Changes;
use hapax_store::steps::records::{EventRec, KeyRec, Queue, name_hash, thread_hash, write_past, write_steps};

use super::link::Packet;
use super::rows::{
    ANSWER, ATTEMPT, BODY_BESIDE_BYTES, EVENT, EVENT_CARRIED, EVENT_KEYS, ITEM, LANE, LISTED, ListKey, MESSAGE, NAME, OUT,
    PROVIDER_NAME, THREAD, lists_of, put_answer, put_attempt, put_event, put_item, put_lane, put_listed, put_message, put_name,
    put_out, put_provider_name, put_thread,
};
use super::sql::{List, Literal, ROWS_MAX, Sql, Values, over};

/// The statements that write all of it, and the bodies that are too large for a statement.
pub(super) fn packets(changes: &Changes) -> Vec<Packet> {
    let (many, events) = put_many_events(&changes.new_events);
    let mut sql = Sql::default();
    save_lanes(&mut sql, changes);
    save_threads(&mut sql, changes);
    save_messages(&mut sql, changes);
    save_outs(&mut sql, changes);
    save_events(&mut sql, &events, changes);
    save_items(&mut sql, changes);
    put_rows(&mut sql, "hapax_attempts", ATTEMPT, &changes.attempts, Put::New, |a| (a.queue.code(), a.of, a.fence), put_attempt);
    put_rows(&mut sql, "hapax_answers", ANSWER, &changes.answers, Put::Over, |answer| answer.event, put_answer);
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
        values.put(expires_ms).put(&row.0).put(row.1.as_slice());
    });
}

fn save_lanes(sql: &mut Sql, changes: &Changes) {
    put_rows(sql, "hapax_lanes", LANE, &changes.lanes, Put::Over, |lane| lane.hash, put_lane);
    put_rows(sql, "hapax_lanes", LANE, &changes.new_lanes, Put::New, |lane| lane.hash, put_lane);
    remove(sql, "hapax_lanes WHERE hash", &changes.gone_lanes);
}

fn save_threads(sql: &mut Sql, changes: &Changes) {
    let hash = |thread: &hapax_store::steps::records::ThreadRec| thread_hash(&thread.account, &thread.peer);
    let name = |name: &hapax_store::steps::records::NameRec| name_hash(&name.account, &name.name);
    put_rows(sql, "hapax_names", NAME, &changes.names, Put::Over, name, put_name);
    put_rows(sql, "hapax_names", NAME, &changes.new_names, Put::New, name, put_name);
    put_rows(sql, "hapax_threads", THREAD, &changes.threads, Put::Over, hash, put_thread);
    put_rows(sql, "hapax_threads", THREAD, &changes.new_threads, Put::New, hash, put_thread);
    remove(sql, "hapax_names WHERE thread", &changes.gone_threads);
    remove(sql, "hapax_threads WHERE hash", &changes.gone_threads);
}

fn save_messages(sql: &mut Sql, changes: &Changes) {
    let hash = |name: &hapax_store::steps::records::ProviderNameRec| name_hash(&name.account, &name.provider_id);
    let (table, columns) = ("hapax_provider_names", PROVIDER_NAME);
    put_rows(sql, table, columns, &changes.provider_names, Put::Over, hash, put_provider_name);
    put_rows(sql, table, columns, &changes.new_provider_names, Put::New, hash, put_provider_name);
    remove(sql, "hapax_provider_names WHERE hash", &changes.gone_provider_names);
    let mut changed: Vec<_> = changes.messages.iter().collect();
    changed.sort_unstable_by_key(|message| message.number);
    for message in changed {
        sql.add(
            "UPDATE hapax_messages SET home = ?, provider_id = ?, steps = ?, why = ?, past = ? WHERE number = ?",
            &[
                &message.home,
                &message.provider_id,
                &write_steps(&message.steps),
                &message.why,
                &write_past(&message.past),
                &message.number,
            ],
        );
    }
    put_rows(sql, "hapax_messages", MESSAGE, &changes.new_messages, Put::New, |message| message.number, put_message);
    remove(sql, "hapax_messages WHERE number", &changes.gone_messages);
    remove_attempts(sql, Queue::Outbox, &changes.gone_messages);
}

fn save_outs(sql: &mut Sql, changes: &Changes) {
    put_rows(sql, "hapax_outs", OUT, &changes.outs, Put::Over, |out| out.number, put_out);
    put_rows(sql, "hapax_outs", OUT, &changes.new_outs, Put::New, |out| out.number, put_out);
    remove(sql, "hapax_outs WHERE number", &changes.gone_outs);
}

/// So many events at a time are put by a statement that the server has read once and for all: reading 21 columns of each anew costs it more
/// than all else it does with them. What is left goes into the text.
const MANY: [usize; 3] = [256, 64, FEW];
const FEW: usize = 16;
const MANY_COLUMNS: usize = 21;
/// Beyond it they do not go into one packet.
const MANY_BYTES: usize = 1 << 20;

static EVENT_COLUMNS: LazyLock<String> = LazyLock::new(|| format!("{EVENT},{EVENT_KEYS},{EVENT_CARRIED}"));
static MANY_EVENTS: LazyLock<[String; MANY.len()]> = LazyLock::new(|| {
    let row = format!("({})", ["?"; MANY_COLUMNS].join(","));
    MANY.map(|many| format!("INSERT INTO hapax_events ({}) VALUES {}", *EVENT_COLUMNS, vec![row.as_str(); many].join(",")))
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

fn save_events(sql: &mut Sql, events: &[&EventRec], changes: &Changes) {
    put_rows(
        sql,
        "hapax_events",
        &EVENT_COLUMNS,
        events,
        Put::New,
        |event| event.number,
        |event, values| put_event(event, values),
    );
    let listed: Vec<(ListKey, u64)> = changes.new_events.iter().flat_map(lists_of).collect();
    put_rows(sql, "hapax_event_lists", LISTED, &listed, Put::New, |listed| *listed, put_listed);
    for (event, replays) in &changes.replays {
        sql.add("UPDATE hapax_events SET replays = ? WHERE number = ?", &[replays, event]);
    }
    remove_events(sql, &changes.gone_events);
}

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
    put_rows(sql, "hapax_items", ITEM, &changes.items, Put::Over, |item| item.number, put_item);
    put_rows(sql, "hapax_items", ITEM, &changes.new_items, Put::New, |item| item.number, put_item);
    remove(sql, "hapax_items WHERE number", &changes.gone_items);
}

#[derive(Clone, Copy, PartialEq)]
enum Put {
    /// A row that is there already is an error: somebody else was faster.
    New,
    /// Rows that are there, locked or ours alone to change, or that may be there or not.
    Over,
}

fn put_rows<T, K: Ord>(
    sql: &mut Sql,
    table: &str,
    columns: &str,
    rows: &[T],
    how: Put,
    key: impl Fn(&T) -> K,
    put: impl Fn(&T, &mut Values<'_>),
) {
    if rows.is_empty() {
        return;
    }
    let mut sorted: Vec<&T> = rows.iter().collect();
    sorted.sort_by_cached_key(|row| key(row));
    let head = format!("INSERT INTO {table} ({columns}) VALUES ");
    let tail = if how == Put::Over { over(columns) } else { String::new() };
    sql.add_rows(&head, &sorted, &tail, |row, values| put(row, values));
}

fn remove<T: Literal + Ord + Clone>(sql: &mut Sql, from: &str, keys: &[T]) {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    for some in sorted.chunks(ROWS_MAX) {
        sql.add(&format!("DELETE FROM {from} IN ?"), &[&List(some)]);
    }
}

fn remove_attempts(sql: &mut Sql, queue: Queue, of: &[u64]) {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    for some in sorted.chunks(ROWS_MAX) {
        sql.add("DELETE FROM hapax_attempts WHERE queue = ? AND of_number IN ?", &[&queue.code(), &List(some)]);
    }
}
