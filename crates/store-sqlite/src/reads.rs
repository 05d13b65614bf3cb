//! Questions, answered by a few short readers beside the writer.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_domain::ids::number_of;
use hapax_domain::{EventId, ItemId, MessageId, ThreadId};
use hapax_store::{
    Answer, AttemptRow, ChannelCounts, Copies, EntryId, EventDetail, EventQuery, EventRow, EventState, InboxQuery, InboxRow,
    ItemState, KeptHeaders, MessageRow, OutboxQuery, Page, PausedAccount, Reads, Stats, StoreError, ThreadMessage, ThreadQuery,
    ThreadRow, WithBot,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::message_reads;
use super::pending::Reach;
use super::rows::{event_id, fence_of, item_id, kind_number, kind_of};

#[async_trait]
impl Reads for SqliteStore {
    async fn events(&self, query: EventQuery) -> Result<Page<EventRow>, StoreError> {
        self.read("listing events", move |db| events(db, &query)).await
    }

    async fn details(&self, ids: Vec<EventId>) -> Result<Vec<Option<EventDetail>>, StoreError> {
        self.read("reading events", move |db| ids.into_iter().map(|id| event(db, id)).collect()).await
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Page<InboxRow>, StoreError> {
        self.read("listing the inbox", move |db| inbox(db, &query)).await
    }

    /// Asked of the writer, in whose memory the lanes are.
    async fn with_bot(&self, channel: &str) -> Result<Vec<WithBot>, StoreError> {
        let channel = channel.to_owned();
        self.write_with(Reach::Looks, "looking who is with the bot", true, move |writer| writer.with_bot(&channel)).await
    }

    async fn answer(&self, id: EventId) -> Result<Option<Answer>, StoreError> {
        self.read("reading an answer", move |db| answer(db, id)).await
    }

    async fn threads(&self, query: ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        self.write_threads().await?;
        self.read("listing threads", move |db| message_reads::threads(db, &query)).await
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.write_threads().await?;
        let id = id.clone();
        self.read("reading a thread", move |db| message_reads::thread(db, &id)).await
    }

    async fn person(&self, name: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.write_threads().await?;
        let name = name.clone();
        self.read("reading a thread", move |db| message_reads::person(db, &name)).await
    }

    async fn thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError> {
        self.write_threads().await?;
        let id = id.clone();
        self.read("reading a thread", move |db| message_reads::thread_messages(db, &id, before, limit)).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        self.read("reading a message", move |db| message_reads::message(db, id)).await
    }

    async fn message_by_provider_id(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError> {
        let (account, provider_id) = (account.to_owned(), provider_id.to_owned());
        self.read("finding a message", move |db| message_reads::by_provider_id(db, &account, &provider_id)).await
    }

    async fn outbox(&self, query: OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        self.read("listing the outbox", move |db| message_reads::outbox(db, &query)).await
    }

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        self.read("listing accounts", message_reads::paused_accounts).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let keys = self.gauges().keys.load(Ordering::Relaxed);
        let (store_bytes, log_bytes) = self.file_sizes();
        let now_ms = self.write_claims().await?;
        let claims = move |db: &Connection| super::claims::counts(db, now_ms);
        self.read("counting", move |db| Ok(Stats { keys, store_bytes, log_bytes, claims: claims(db)?, ..counts(db)? })).await
    }
}

const EVENT_COLUMNS: &str = "SELECT e.number, e.received, c.name, e.kind, e.account, e.provider_id, e.peer, e.echo, e.at,
    coalesce(length(e.body), (SELECT length(h.body) FROM events h WHERE h.number = e.webhook), 0),
    CASE WHEN e.item IS NULL THEN 'kept'
         WHEN EXISTS (SELECT 1 FROM inbox i WHERE i.channel = e.channel AND i.item = e.item) THEN 'waiting'
         ELSE coalesce((SELECT iif(p.quarantined, 'quarantined', 'parked') FROM parked p WHERE p.item = e.item), 'delivered') END
    FROM events e JOIN channels c ON c.id = e.channel";

fn events(db: &Connection, query: &EventQuery) -> rusqlite::Result<Page<EventRow>> {
    let sql = format!(
        "{EVENT_COLUMNS} WHERE e.number < ?1 AND (?2 IS NULL OR c.name = ?2) AND (?3 IS NULL OR e.kind = ?3)
         AND (?4 IS NULL OR (e.account = ?4 AND e.peer = ?5)) ORDER BY e.number DESC LIMIT ?6"
    );
    let before = query.before.map_or(i64::MAX, |id| number_of(id.0) as i64);
    let thread = query.thread.as_ref();
    let rows = db
        .prepare_cached(&sql)?
        .query_map(
            params![
                before,
                query.channel,
                query.kind.map(kind_number),
                thread.map(|thread| &thread.account),
                thread.map(|thread| &thread.peer),
                query.limit as i64 + 1
            ],
            event_row,
        )?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(page(rows, query.limit))
}

fn event_row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    let (number, received_ms): (i64, i64) = (row.get(0)?, row.get(1)?);
    let state = match row.get_ref(10)?.as_str()? {
        "kept" => EventState::Kept,
        "waiting" => EventState::Waiting,
        "parked" => EventState::Parked,
        "quarantined" => EventState::Quarantined,
        _ => EventState::Delivered,
    };
    Ok(EventRow {
        id: event_id(received_ms, number as u64),
        channel: row.get(2)?,
        kind: kind_of(row.get(3)?),
        account: row.get(4)?,
        provider_id: row.get(5)?,
        peer: row.get(6)?,
        echo: row.get(7)?,
        received_ms,
        at_ms: row.get(8)?,
        state,
        body_bytes: row.get(9)?,
    })
}

fn event(db: &Connection, id: EventId) -> rusqlite::Result<Option<EventDetail>> {
    let number = number_of(id.0) as i64;
    let row = db.prepare_cached(&format!("{EVENT_COLUMNS} WHERE e.number = ?1"))?.query_row([number], event_row).optional()?;
    let Some(row) = row.filter(|row| row.id == id) else { return Ok(None) };
    let held = "SELECT h.headers, h.body, e.item FROM events e JOIN events h ON h.number = e.webhook WHERE e.number = ?1";
    let held = db
        .prepare_cached(held)?
        .query_row([number], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, Option<i64>>(2)?)))
        .optional()?;
    let Some((headers, body, item)) = held else { return Ok(None) };
    let item = item.unwrap_or(number);
    Ok(Some(EventDetail {
        row,
        headers: KeptHeaders(headers),
        body: Bytes::from(body),
        copies: copies(db, id, number)?,
        attempts: attempts(db, item, number)?,
        open: open_items(db, item, number)?,
    }))
}

fn copies(db: &Connection, event: EventId, number: i64) -> rusqlite::Result<Option<Copies>> {
    let read = |row: &Row<'_>| {
        let kept = Copies::read_kept(&row.get::<_, String>(3)?);
        Ok(Copies { event, copies: row.get(0)?, conflicts: row.get(1)?, last_ms: row.get(2)?, kept })
    };
    let select = "SELECT copies, conflicts, last, kept FROM copies WHERE number = ?1";
    db.prepare_cached(select)?.query_row([number], read).optional()
}

/// Attempts of the item it came in with, and of its own replays.
fn attempts(db: &Connection, item: i64, number: i64) -> rusqlite::Result<Vec<AttemptRow>> {
    db.prepare_cached(
        "SELECT a.item, a.attempt, a.fence, a.worker, a.leased, a.ended, a.outcome, a.detail, a.received
         FROM attempts a WHERE a.first = ?2 OR (a.first = ?1 AND a.item = ?1) ORDER BY a.fence",
    )?
    .query_map([item, number], |row| {
        Ok(AttemptRow {
            item: item_id(row.get(8)?, row.get(0)?),
            attempt: row.get(1)?,
            fence: fence_of(row.get(2)?),
            worker: row.get(3)?,
            leased_ms: row.get(4)?,
            ended_ms: row.get(5)?,
            outcome: row.get(6)?,
            detail: row.get(7)?,
        })
    })?
    .collect()
}

/// Items on their way, and parked items, in the same columns.
const WAITING: &str =
    "SELECT i.item, i.received, c.name, i.first, coalesce(length(i.members) / 8, 1), coalesce(l.attempt, i.attempt),
        i.replay, i.why, iif(l.item IS NULL, 'waiting', 'leased'), coalesce(l.ends, i.due), l.worker, l.fence,
        (SELECT e.received FROM events e WHERE e.number = i.first), i.failures
    FROM inbox i JOIN channels c ON c.id = i.channel LEFT JOIN leases l ON l.item = i.item";
const PARKED: &str = "SELECT p.item, p.received, c.name, p.first, coalesce(length(p.members) / 8, 1), p.attempt,
        p.replay, p.why, iif(p.quarantined, 'quarantined', 'parked'), 0, NULL, 0,
        (SELECT e.received FROM events e WHERE e.number = p.first), p.failures
    FROM parked p JOIN channels c ON c.id = p.channel";

fn inbox_row(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    let received_ms = row.get(1)?;
    let state = match row.get_ref(8)?.as_str()? {
        "leased" => ItemState::Leased {
            worker: row.get::<_, Option<String>>(10)?.unwrap_or_default(),
            until_ms: row.get(9)?,
            fence: fence_of(row.get(11)?),
        },
        "parked" => ItemState::Parked,
        "quarantined" => ItemState::Quarantined,
        _ => ItemState::Waiting { due_ms: row.get(9)? },
    };
    Ok(InboxRow {
        item: item_id(received_ms, row.get(0)?),
        event: event_id(row.get::<_, Option<i64>>(12)?.unwrap_or(received_ms), row.get::<_, i64>(3)? as u64),
        channel: row.get(2)?,
        events: row.get(4)?,
        attempt: row.get(5)?,
        failures: row.get(13)?,
        replay: row.get(6)?,
        state,
        why: row.get(7)?,
        received_ms,
    })
}

/// The event's own item and its replays, as far as they are open.
fn open_items(db: &Connection, item: i64, number: i64) -> rusqlite::Result<Vec<InboxRow>> {
    let own = "i.channel = (SELECT channel FROM events WHERE number = ?2) AND i.item = ?1";
    let mut rows = Vec::new();
    for sql in [
        format!("{WAITING} WHERE {own}"),
        format!("{WAITING} WHERE i.first = ?2 AND i.replay IS NOT NULL AND i.item <> ?1"),
        format!("{PARKED} WHERE p.item = ?1 OR (p.first = ?2 AND p.replay IS NOT NULL)"),
    ] {
        let found = db.prepare_cached(&sql)?.query_map([item, number], inbox_row)?.collect::<Result<Vec<_>, _>>()?;
        rows.extend(found);
    }
    rows.sort_by_key(|row: &InboxRow| number_of(row.item.0));
    Ok(rows)
}

/// Reads a page of each channel and of the parked, and merges them: no list is ever sorted as a whole.
fn inbox(db: &Connection, query: &InboxQuery) -> rusqlite::Result<Page<InboxRow>> {
    let after = query.after.map_or(0, |id: ItemId| number_of(id.0) as i64);
    let limit = query.limit as i64 + 1;
    let mut rows = Vec::new();
    if query.parked != Some(true) {
        let sql = format!("{WAITING} WHERE i.channel = ?1 AND i.item > ?2 ORDER BY i.item LIMIT ?3");
        let channels: Vec<i64> = db
            .prepare_cached("SELECT id FROM channels WHERE ?1 IS NULL OR name = ?1")?
            .query_map([&query.channel], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for channel in channels {
            let found = db.prepare_cached(&sql)?.query_map([channel, after, limit], inbox_row)?.collect::<Result<Vec<_>, _>>()?;
            rows.extend(found);
        }
    }
    if query.parked != Some(false) {
        let sql = format!("{PARKED} WHERE p.item > ?1 AND (?2 IS NULL OR c.name = ?2) ORDER BY p.item LIMIT ?3");
        let found = db
            .prepare_cached(&sql)?
            .query_map(params![after, query.channel, limit], inbox_row)?
            .collect::<Result<Vec<_>, _>>()?;
        rows.extend(found);
    }
    rows.sort_by_key(|row: &InboxRow| number_of(row.item.0));
    rows.truncate(query.limit + 1);
    Ok(page(rows, query.limit))
}

fn answer(db: &Connection, id: EventId) -> rusqlite::Result<Option<Answer>> {
    db.prepare_cached(
        "SELECT a.status, a.content_type, a.body FROM events e JOIN answers a ON a.item = e.item WHERE e.number = ?1",
    )?
    .query_row([number_of(id.0) as i64], |row| {
        Ok(Answer { status: row.get(0)?, content_type: row.get(1)?, body: Bytes::from(row.get::<_, Vec<u8>>(2)?) })
    })
    .optional()
}

/// Each number of rows where they lie: nothing is joined or sorted to be counted.
fn counts(db: &Connection) -> rusqlite::Result<Stats> {
    let mut channels: BTreeMap<i64, ChannelCounts> = BTreeMap::new();
    let mut named = db.prepare_cached("SELECT id, name FROM channels")?;
    let mut rows = named.query([])?;
    while let Some(row) = rows.next()? {
        channels.insert(row.get(0)?, ChannelCounts { channel: row.get(1)?, ..ChannelCounts::default() });
    }
    for (id, counts) in &mut channels {
        let waiting = "SELECT count(*), (SELECT received FROM inbox WHERE channel = ?1 ORDER BY item LIMIT 1)
            FROM inbox WHERE channel = ?1";
        (counts.waiting, counts.oldest_ms) = db.prepare_cached(waiting)?.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    }
    let leased =
        "SELECT l.channel FROM leases l WHERE EXISTS (SELECT 1 FROM inbox i WHERE i.channel = l.channel AND i.item = l.item)";
    let mut leased = db.prepare_cached(leased)?;
    let mut rows = leased.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(counts) = channels.get_mut(&row.get(0)?) {
            (counts.waiting, counts.leased) = (counts.waiting.saturating_sub(1), counts.leased + 1);
        }
    }
    let mut parked = db.prepare_cached("SELECT channel, count(*), sum(quarantined) FROM parked GROUP BY channel")?;
    let mut rows = parked.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(counts) = channels.get_mut(&row.get(0)?) {
            counts.quarantined = row.get(2)?;
            counts.parked = row.get::<_, u64>(1)?.saturating_sub(counts.quarantined);
        }
    }
    let number = |sql: &str| db.prepare_cached(sql)?.query_row([], |row| row.get::<_, u64>(0));
    let events = number("SELECT value FROM meta WHERE name = 'events'")? + number(super::UNCOUNTED_EVENTS)?;
    let unknown = number("SELECT count(*) FROM outbox WHERE unknown = 1")?;
    let outbox_waiting = number("SELECT count(*) FROM outbox")?.saturating_sub(unknown);
    let mut channels: Vec<ChannelCounts> = channels.into_values().collect();
    channels.retain(|counts| counts.waiting + counts.leased + counts.parked + counts.quarantined > 0);
    channels.sort_by(|one, other| one.channel.cmp(&other.channel));
    Ok(Stats { events, channels, outbox_waiting, outbox_unknown: unknown, ..Stats::default() })
}

pub(super) fn page<T>(mut rows: Vec<T>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    Page { rows, more }
}
