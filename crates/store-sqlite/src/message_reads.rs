//! Questions about threads, messages and the outbox.

use bytes::Bytes;
use hapax_domain::ids::number_of;
use hapax_domain::{Direction, EventId, MessageId, ThreadId, status_of_inbound};
use hapax_store::steps::records::read_past;
use hapax_store::{
    EntryId, MessageRow, OutboxPlace, OutboxQuery, OutboxState, Page, PausedAccount, ThreadMessage, ThreadQuery, ThreadRow,
    TryRow,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::names::{find_person, find_thread};
use super::outbox::message_number;
use super::reads::page;
use super::rows::{event_id, fence_of, message_id, priority_of, steps_of};
use super::thread_names;
use super::threads::thread_row;

const THREADS: &str = "SELECT t.thread, c.name, t.account, t.peer, t.last_at, t.last_text, t.last_out, t.unread
    FROM threads t JOIN channels c ON c.id = t.channel";

pub(super) fn threads(db: &Connection, query: &ThreadQuery) -> rusqlite::Result<Page<ThreadRow>> {
    let sql = format!(
        "{THREADS} WHERE t.last > 0 AND (?1 IS NULL OR c.name = ?1) AND (?2 IS NULL OR t.account = ?2)
         AND (?3 IS NULL OR (t.last_at, t.account, t.peer) < (?3, ?4, ?5))
         ORDER BY t.last_at DESC, t.account DESC, t.peer DESC LIMIT ?6"
    );
    let before = query.before.as_ref();
    let rows = db
        .prepare_cached(&sql)?
        .query_map(
            params![
                query.channel,
                query.account,
                before.map(|(at, _)| *at),
                before.map(|(_, id)| &id.account),
                before.map(|(_, id)| &id.peer),
                query.limit as i64 + 1
            ],
            thread_row,
        )?
        .collect::<Result<Vec<_>, _>>()?;
    let rows = rows.into_iter().map(|(thread, row)| with_aliases(db, thread, row)).collect::<Result<Vec<_>, _>>()?;
    Ok(page(rows, query.limit))
}

fn with_aliases(db: &Connection, thread: i64, row: ThreadRow) -> rusqlite::Result<ThreadRow> {
    let names: Option<String> =
        db.prepare_cached("SELECT names FROM threads WHERE thread = ?1")?.query_row([thread], |row| row.get(0))?;
    let mut aliases: Vec<String> = thread_names::read(names.as_deref()).map(str::to_owned).collect();
    aliases.sort_unstable();
    Ok(ThreadRow { aliases, ..row })
}

pub(super) fn thread(db: &Connection, id: &ThreadId) -> rusqlite::Result<Option<ThreadRow>> {
    let Some(thread) = find_thread(db, &id.account, &id.peer)? else { return Ok(None) };
    row_of(db, thread)
}

pub(super) fn person(db: &Connection, name: &ThreadId) -> rusqlite::Result<Option<ThreadRow>> {
    let Some(thread) = find_person(db, &name.account, &name.peer)? else { return Ok(None) };
    row_of(db, thread)
}

fn row_of(db: &Connection, thread: i64) -> rusqlite::Result<Option<ThreadRow>> {
    let sql = format!("{THREADS} WHERE t.thread = ?1 AND t.last > 0");
    let row = db.prepare_cached(&sql)?.query_row([thread], thread_row).optional()?;
    row.map(|(thread, row)| with_aliases(db, thread, row)).transpose()
}

/// Walks a thread backwards: every entry names the one before it.
pub(super) fn thread_messages(
    db: &Connection,
    id: &ThreadId,
    before: Option<EntryId>,
    limit: usize,
) -> rusqlite::Result<Page<ThreadMessage>> {
    let Some(thread) = find_thread(db, &id.account, &id.peer)? else { return Ok(Page { rows: vec![], more: false }) };
    let (last, read_to) = db
        .prepare_cached("SELECT last, read_to FROM threads WHERE thread = ?1")?
        .query_row([thread], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut next = match before {
        None => last,
        Some(entry) => match read_entry(db, thread, entry_number(entry), read_to)? {
            Some((_, prev)) => prev,
            None => 0,
        },
    };
    let mut rows = Vec::new();
    while next > 0
        && rows.len() <= limit
        && let Some((entry, prev)) = read_entry(db, thread, next, read_to)?
    {
        rows.push(entry);
        next = prev;
    }
    Ok(page(rows, limit))
}

fn entry_number(entry: EntryId) -> i64 {
    match entry {
        EntryId::Event(EventId(id)) | EntryId::Message(MessageId(id)) => number_of(id) as i64,
    }
}

/// One entry and the number of the one before it.
fn read_entry(db: &Connection, thread: i64, number: i64, read_to: i64) -> rusqlite::Result<Option<(ThreadMessage, i64)>> {
    let event = db
        .prepare_cached(
            "SELECT received, echo, text, provider_id, prev, (SELECT name FROM channels WHERE id = channel)
             FROM events WHERE number = ?1 AND thread = ?2",
        )?
        .query_row([number, thread], |row| {
            let (at_ms, echo): (_, bool) = (row.get(0)?, row.get(1)?);
            let entry = ThreadMessage {
                id: EntryId::Event(event_id(at_ms, number as u64)),
                channel: row.get(5)?,
                direction: if echo { Direction::Out } else { Direction::In },
                at_ms,
                text: row.get(2)?,
                provider_id: row.get(3)?,
                status: (!echo).then(|| status_of_inbound(number as u64, read_to as u64)),
            };
            Ok((entry, row.get(4)?))
        })
        .optional()?;
    if event.is_some() {
        return Ok(event);
    }
    db.prepare_cached(
        "SELECT created, text, provider_id, steps, prev, (SELECT name FROM channels WHERE id = channel)
         FROM messages WHERE number = ?1 AND thread = ?2",
    )?
    .query_row([number, thread], |row| {
        let at_ms = row.get(0)?;
        let steps: String = row.get(3)?;
        let entry = ThreadMessage {
            id: EntryId::Message(message_id(at_ms, number)),
            channel: row.get(5)?,
            direction: Direction::Out,
            at_ms,
            text: row.get(1)?,
            provider_id: row.get(2)?,
            status: Some(steps_of(&steps).status()),
        };
        Ok((entry, row.get(4)?))
    })
    .optional()
}

const MESSAGES: &str =
    "SELECT m.number, m.created, c.name, m.account, m.peer, m.request_id, m.text, m.payload, m.priority, m.reply_to,
        m.provider_id, m.steps, m.why, o.number, o.attempt, o.due, o.begun, o.unknown, l.worker, l.ends, l.fence,
        m.past, o.failures
    FROM messages m JOIN channels c ON c.id = m.channel
    LEFT JOIN outbox o ON o.number = m.number LEFT JOIN out_leases l ON l.item = m.number";

pub(super) fn message(db: &Connection, id: MessageId) -> rusqlite::Result<Option<MessageRow>> {
    let sql = format!("{MESSAGES} WHERE m.number = ?1");
    let row = db.prepare_cached(&sql)?.query_row([message_number(id)], message_row).optional()?;
    row.filter(|row| row.id == id).map(|row| with_tries(db, row)).transpose()
}

fn message_row(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    let created_ms = row.get(1)?;
    let steps: String = row.get(11)?;
    let outbox = match row.get::<_, Option<i64>>(13)? {
        None => None,
        Some(_) => Some(OutboxPlace { state: outbox_state(row)?, attempt: row.get(14)?, failures: row.get(22)? }),
    };
    Ok(MessageRow {
        id: message_id(created_ms, row.get(0)?),
        channel: row.get(2)?,
        account: row.get(3)?,
        peer: row.get(4)?,
        request_id: row.get(5)?,
        text: row.get(6)?,
        payload: Bytes::from(row.get::<_, Vec<u8>>(7)?),
        priority: priority_of(row.get(8)?),
        reply_to: row.get::<_, Option<[u8; 16]>>(9)?.map(|bytes| EventId(uuid::Uuid::from_bytes(bytes))),
        created_ms,
        provider_id: row.get(10)?,
        steps: steps_of(&steps),
        why: row.get(12)?,
        past: read_past(row.get::<_, Option<String>>(21)?.as_deref()),
        outbox,
        tries: Vec::new(),
    })
}

fn outbox_state(row: &Row<'_>) -> rusqlite::Result<OutboxState> {
    let due: Option<i64> = row.get(15)?;
    Ok(match row.get::<_, Option<String>>(18)? {
        Some(worker) => OutboxState::Leased {
            worker,
            until_ms: row.get(19)?,
            fence: fence_of(row.get(20)?),
            begun: row.get::<_, Option<i64>>(16)?.is_some(),
        },
        None if row.get(17)? => OutboxState::Unknown { check_ms: due },
        None => OutboxState::Waiting { due_ms: due.unwrap_or_default() },
    })
}

fn with_tries(db: &Connection, row: MessageRow) -> rusqlite::Result<MessageRow> {
    let tries = db
        .prepare_cached(
            "SELECT attempt, fence, worker, leased, ended, outcome, detail FROM tries WHERE number = ?1 ORDER BY fence",
        )?
        .query_map([message_number(row.id)], |row| {
            Ok(TryRow {
                attempt: row.get(0)?,
                fence: fence_of(row.get(1)?),
                worker: row.get(2)?,
                leased_ms: row.get(3)?,
                ended_ms: row.get(4)?,
                outcome: row.get(5)?,
                detail: row.get(6)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(MessageRow { tries, ..row })
}

pub(super) fn by_provider_id(db: &Connection, account: &str, provider_id: &str) -> rusqlite::Result<Option<MessageId>> {
    db.prepare_cached(
        "SELECT m.created, m.number FROM provider_names n JOIN messages m ON m.number = n.number
         WHERE n.account = ?1 AND n.provider_id = ?2",
    )?
    .query_row([account, provider_id], |row| Ok(message_id(row.get(0)?, row.get(1)?)))
    .optional()
}

pub(super) fn outbox(db: &Connection, query: &OutboxQuery) -> rusqlite::Result<Page<MessageRow>> {
    let sql = format!(
        "{MESSAGES} WHERE o.number > ?1 AND (?2 IS NULL OR c.name = ?2) AND (?3 IS NULL OR m.account = ?3)
         AND (NOT ?4 OR (o.unknown AND l.item IS NULL)) ORDER BY o.number LIMIT ?5"
    );
    let after = query.after.map_or(0, message_number);
    let rows = db
        .prepare_cached(&sql)?
        .query_map(params![after, query.channel, query.account, query.unknown, query.limit as i64 + 1], message_row)?
        .collect::<Result<Vec<_>, _>>()?;
    let rows = rows.into_iter().map(|row| with_tries(db, row)).collect::<Result<Vec<_>, _>>()?;
    Ok(page(rows, query.limit))
}

pub(super) fn paused_accounts(db: &Connection) -> rusqlite::Result<Vec<PausedAccount>> {
    db.prepare_cached("SELECT channel, account, why, since FROM paused ORDER BY channel, account")?
        .query_map([], |row| {
            Ok(PausedAccount { channel: row.get(0)?, account: row.get(1)?, why: row.get(2)?, since_ms: row.get(3)? })
        })?
        .collect()
}
