//! Everything in the file, page by page, as records that any store understands.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_domain::{Direction, EventId};
use hapax_store::moving::{Dumped, IMPORTING, LONG_PAGE, PAGE_BYTES, half_filled};
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, ItemPlace, ItemRec, KeyRec, MessageRec, NameRec, OutRec, ProviderNameRec, Queue,
    ThreadRec, inbox_lane, outbox_lane, own_lane, read_past, thread_hash,
};
use hapax_store::{After, Answer, Bookmark, Copies, KeptHeaders, Moved, Moving, StoreError, Table, read_replies};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::SqliteStore;
use super::keys::{Claim, Key, entries};
use super::numbering::Numbering;
use super::purge::LAST_OF_WEBHOOK;
use super::registers;
use super::rows::{event_id, kind_of, lane_thread, members_of, priority_of, steps_of};
use super::writer::Writer;

/// How often it is looked whether a period of keys is sealed.
const SEALING: Duration = Duration::from_millis(10);

#[async_trait]
impl Moving for SqliteStore {
    async fn export(&self, from: Option<Bookmark>, limit: usize) -> Result<(Vec<Moved>, Option<Bookmark>), StoreError> {
        if from.is_none() {
            self.make_ready_to_export().await?;
        }
        let at = from.unwrap_or_else(Bookmark::start);
        let now_ms = match at.table {
            Table::Keys => self.keys_at_rest().await?,
            Table::Claims => self.write_claims().await?,
            Table::Settings => self.write("asking for the time", true, |writer| Ok(writer.now_ms)).await?,
            _ => 0,
        };
        let reading = at.clone();
        let (records, after) = self.read("exporting", move |db| page(db, &reading, limit.max(1), now_ms)).await?;
        Ok((records, at.then(after)))
    }

    async fn begin_import(&self) -> Result<(), StoreError> {
        self.write("beginning an import", true, Writer::begin_import).await
    }

    async fn import(&self, records: Vec<Moved>) -> Result<(), StoreError> {
        self.write("importing", true, move |writer| writer.import(&records)).await
    }

    async fn end_import(&self) -> Result<(), StoreError> {
        self.chain_threads().await?;
        self.write("ending an import", true, Writer::end_import).await
    }

    async fn is_half_filled(&self) -> Result<bool, StoreError> {
        self.read("looking for an import", |db| registers::is_there(db, IMPORTING)).await
    }
}

impl SqliteStore {
    async fn make_ready_to_export(&self) -> Result<(), StoreError> {
        if self.is_half_filled().await? {
            return Err(half_filled());
        }
        let leased = "SELECT EXISTS (SELECT 1 FROM leases WHERE NOT outside) OR EXISTS (SELECT 1 FROM out_leases)";
        if self.read("looking for leases", move |db| db.query_row(leased, [], |row| row.get(0))).await? {
            let why = "somebody is at work on the store; stop that first, then export";
            return Err(StoreError::Refused(why.to_owned()));
        }
        self.write("ending leases", true, |writer| Ok(writer.end_outside_leases()?)).await?;
        self.write_threads().await
    }

    /// Waits until no keys are on their way from one table to another; gives the time.
    async fn keys_at_rest(&self) -> Result<i64, StoreError> {
        loop {
            let look = |writer: &mut Writer| Ok((writer.keys.is_at_rest(writer.now_ms), writer.now_ms));
            let (at_rest, now_ms) = self.write("looking at the keys", true, look).await?;
            if at_rest {
                return Ok(now_ms);
            }
            tokio::time::sleep(SEALING).await;
        }
    }
}

fn page(db: &Connection, at: &Bookmark, limit: usize, now_ms: i64) -> rusqlite::Result<Dumped> {
    let number = match at.after {
        Some(After::Number(number)) => number as i64,
        _ => 0,
    };
    match at.table {
        Table::Settings => settings(db, at.after.as_ref(), limit.min(LONG_PAGE), now_ms),
        Table::Paused => Ok((super::message_reads::paused_accounts(db)?.into_iter().map(Moved::Paused).collect(), None)),
        Table::Keys => keys(db, at.after.as_ref(), limit, now_ms),
        Table::Threads => threads(db, number, limit),
        Table::Names => names(db, at.after.as_ref(), limit),
        Table::Events => events(db, number, limit),
        Table::Copies => numbered(db, COPIES, number, limit, copies),
        Table::Answers => answers(db, number, limit),
        Table::Items => items(db, at.after.as_ref(), limit),
        Table::Messages => numbered(db, MESSAGES, number, limit, message),
        Table::ProviderNames => provider_names(db, at.after.as_ref(), limit),
        Table::Outs => numbered(db, OUTS, number, limit, out),
        Table::Attempts => attempts(db, at.after.as_ref(), limit),
        Table::Claims => super::claims::dump(db, at.after.as_ref(), limit, now_ms),
        Table::Pieces => super::pieces::dump(db, at.after.as_ref(), limit.min(LONG_PAGE)),
    }
}

/// Reads a page; the position of its last row when it is full.
pub(super) fn rows<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    limit: usize,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<(T, After)>,
) -> rusqlite::Result<(Vec<T>, Option<After>)> {
    let read: Vec<(T, After)> = db.prepare_cached(sql)?.query_map(params, |row| read(row))?.collect::<Result<_, _>>()?;
    let last = read.last().filter(|_| read.len() >= limit).map(|(_, after)| after.clone());
    Ok((read.into_iter().map(|(record, _)| record).collect(), last))
}

/// A page of a table whose first column is its number: `?1` is the last one read, `?2` the limit.
fn numbered<T>(
    db: &Connection,
    sql: &str,
    after: i64,
    limit: usize,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<(Vec<T>, Option<After>)> {
    rows(db, sql, [after, limit as i64], limit, |row| Ok((read(row)?, After::Number(row.get::<_, i64>(0)? as u64))))
}

fn settings(db: &Connection, after: Option<&After>, limit: usize, now_ms: i64) -> rusqlite::Result<Dumped> {
    let after = match after {
        Some(After::Setting(name)) => Some(name),
        _ => None,
    };
    let page = "SELECT name, ends, value FROM registers WHERE (?1 IS NULL OR name > ?1) AND (ends IS NULL OR ends > ?3)
                ORDER BY name LIMIT ?2";
    rows(db, page, params![after, limit as i64, now_ms], limit, |row| {
        let (name, register) = registers::read(row)?;
        Ok((Moved::Setting { name: name.clone(), register }, After::Setting(name)))
    })
}

/// Keys of one period: a log by number, or a sorted table by key.
fn keys(db: &Connection, after: Option<&After>, limit: usize, now_ms: i64) -> rusqlite::Result<Dumped> {
    let (from, last) = match after {
        Some(After::Period(period, last)) => (*period, last.clone()),
        _ => (0, None),
    };
    let next = "SELECT period, sealed, moved_s FROM periods WHERE period >= ?1 ORDER BY period LIMIT 1";
    let next = db.prepare_cached(next)?.query_row([from], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get(2)?)));
    let Some((period, sealed, moved_s)) = next.optional()? else {
        return guards(db, from, last.as_deref(), limit, now_ms);
    };
    let last = last.filter(|_| period == from).unwrap_or_default();
    let mut read: Vec<(Key, Claim)> = Vec::new();
    // Where the page ends, if it is full.
    let mut ends = None;
    if sealed {
        let sql = format!("SELECT key, claim FROM sealed_{period} WHERE key > ?1 ORDER BY key LIMIT ?2");
        let mut select = db.prepare_cached(&sql)?;
        let mut rows = select.query(params![last, limit as i64])?;
        while let Some(row) = rows.next()? {
            let key: Key = row.get(0)?;
            read.extend(Claim::from_bytes(row.get_ref(1)?.as_blob()?).map(|claim| (key, claim)));
            ends = (read.len() >= limit).then(|| key.to_vec());
        }
    } else {
        let after = last.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        let sql = format!("SELECT number, claim FROM keys_{period} WHERE number > ?1 ORDER BY number");
        let mut select = db.prepare_cached(&sql)?;
        let mut rows = select.query([after])?;
        while let Some(row) = rows.next()? {
            // A batch of keys is one row: a page may have a few more than it was to have.
            read.extend(entries(row.get_ref(1)?.as_blob()?));
            if read.len() >= limit {
                ends = Some(row.get::<_, i64>(0)?.to_be_bytes().to_vec());
                break;
            }
        }
    }
    let after = if ends.is_some() { After::Period(period, ends) } else { After::Period(period + 1, None) };
    let numbering = Numbering::load(db)?;
    let mut held = Vec::new();
    for (key, claim) in read {
        held.extend(key_of(db, &numbering, key, claim, moved_s)?.filter(|key| key.expires_ms > now_ms).map(Moved::Key));
    }
    Ok((held, Some(after)))
}

/// Guards come behind the last period, and are keys like others anywhere else.
fn guards(db: &Connection, from: i64, last: Option<&[u8]>, limit: usize, now_ms: i64) -> rusqlite::Result<Dumped> {
    let sql = "SELECT key, event, at, expires FROM guards WHERE key > ?1 AND expires > ?2 ORDER BY key LIMIT ?3";
    let mut select = db.prepare_cached(sql)?;
    let found = select.query_map(params![last.unwrap_or_default(), now_ms, limit as i64], |row| {
        let key = KeyRec {
            key: row.get(0)?,
            event: row.get::<_, i64>(1)? as u64,
            at_ms: row.get(2)?,
            fingerprint: 0,
            expires_ms: row.get(3)?,
        };
        Ok(key)
    })?;
    let held: Vec<KeyRec> = found.collect::<rusqlite::Result<_>>()?;
    let after = held.last().filter(|_| held.len() >= limit).map(|key| After::Period(from, Some(key.key.to_vec())));
    Ok((held.into_iter().map(Moved::Key).collect(), after))
}

fn key_of(db: &Connection, numbering: &Numbering, key: Key, claim: Claim, moved_s: i64) -> rusqlite::Result<Option<KeyRec>> {
    Ok(numbering.number_of(db, claim)?.map(|event| KeyRec {
        key,
        event,
        at_ms: i64::from(claim.at_s) * 1_000,
        fingerprint: claim.fingerprint,
        expires_ms: (claim.expires_s() + moved_s) * 1_000,
    }))
}

const THREADS: &str =
    "SELECT t.thread, t.account, t.peer, c.name, t.last_at, t.last_text, t.last_out, t.unread, t.last, t.read_to
    FROM threads t JOIN channels c ON c.id = t.channel WHERE t.thread > ?1 ORDER BY t.thread LIMIT ?2";

fn threads(db: &Connection, after: i64, limit: usize) -> rusqlite::Result<Dumped> {
    numbered(db, THREADS, after, limit, |row| {
        Ok(Moved::Thread(ThreadRec {
            account: row.get(1)?,
            peer: row.get(2)?,
            channel: row.get(3)?,
            last_ms: row.get(4)?,
            last_text: row.get(5)?,
            last_direction: if row.get(6)? { Direction::Out } else { Direction::In },
            unread: row.get(7)?,
            purged_to: purged_to(db, row.get(0)?, row.get(8)?)? as u64,
            read_to: row.get::<_, i64>(9)? as u64,
        }))
    })
}

/// Walks a thread backwards to the first entry that is gone.
fn purged_to(db: &Connection, thread: i64, last: i64) -> rusqlite::Result<i64> {
    let mut select = db.prepare_cached(
        "SELECT prev FROM events WHERE number = ?1 AND thread = ?2
         UNION ALL SELECT prev FROM messages WHERE number = ?1 AND thread = ?2 LIMIT 1",
    )?;
    let mut next = last;
    while next > 0 {
        match select.query_row([next, thread], |row| row.get(0)).optional()? {
            Some(prev) => next = prev,
            None => break,
        }
    }
    Ok(next)
}

fn names(db: &Connection, after: Option<&After>, limit: usize) -> rusqlite::Result<Dumped> {
    let select = |which: &str| {
        format!(
            "SELECT n.account, n.name, t.peer FROM names n JOIN threads t ON t.thread = n.thread {which}
             ORDER BY n.account, n.name LIMIT ?1"
        )
    };
    let read = |row: &Row<'_>| {
        let name = NameRec { account: row.get(0)?, name: row.get(1)?, peer: row.get(2)? };
        let after = After::Name(Some((name.account.clone(), name.name.clone())));
        Ok((Moved::Name(name), after))
    };
    match after {
        Some(After::Name(Some((account, name)))) => {
            let sql = select("WHERE (n.account, n.name) > (?2, ?3)");
            rows(db, &sql, params![limit as i64, account, name], limit, read)
        }
        _ => rows(db, &select(""), [limit as i64], limit, read),
    }
}

const EVENTS: &str =
    "SELECT e.number, e.webhook, e.received, c.name, e.kind, e.account, e.provider_id, e.peer, e.echo, e.at, e.text,
        e.place, e.item, EXISTS (SELECT 1 FROM parked p WHERE p.item = e.item AND p.quarantined = 1), t.account, t.peer,
        (SELECT count(*) FROM (SELECT item FROM attempts WHERE first = e.number AND item > e.number
             UNION SELECT item FROM inbox WHERE first = e.number AND replay IS NOT NULL
             UNION SELECT item FROM parked WHERE first = e.number AND replay IS NOT NULL)),
        coalesce(length(e.body), (SELECT length(h.body) FROM events h WHERE h.number = e.webhook), 0),
        e.headers, e.body, e.webhook_events
    FROM events e JOIN channels c ON c.id = e.channel LEFT JOIN threads t ON t.thread = e.thread
    WHERE e.number > ?1 ORDER BY e.number LIMIT ?2";

/// Ends where the bodies become too much for one page.
fn events(db: &Connection, after: i64, limit: usize) -> rusqlite::Result<Dumped> {
    let mut select = db.prepare_cached(EVENTS)?;
    let mut rows = select.query([after, limit as i64])?;
    let (mut records, mut bytes, mut last) = (Vec::new(), 0, 0);
    while let Some(row) = rows.next()? {
        let event = event(row)?;
        last = event.number;
        bytes += event.carried.as_ref().map_or(0, |carried| carried.body.len() as u64);
        records.push(Moved::Event(event));
        if bytes >= PAGE_BYTES {
            return Ok((records, Some(After::Number(last))));
        }
    }
    let full = records.len() >= limit;
    Ok((records, full.then_some(After::Number(last))))
}

fn event(row: &Row<'_>) -> rusqlite::Result<EventRec> {
    let number = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
    let thread = row.get::<_, Option<String>>(14)?.zip(row.get::<_, Option<String>>(15)?);
    let carried = row.get::<_, Option<Vec<u8>>>(18)?.zip(row.get::<_, Option<Vec<u8>>>(19)?);
    let events = row.get(20)?;
    Ok(EventRec {
        number: number(0)?,
        webhook: number(1)?,
        received_ms: row.get(2)?,
        channel: row.get::<_, String>(3)?.into(),
        kind: kind_of(row.get(4)?),
        account: row.get(5)?,
        id: row.get(6)?,
        peer: row.get(7)?,
        echo: row.get(8)?,
        at_ms: row.get(9)?,
        text: row.get(10)?,
        index: row.get(11)?,
        item: row.get::<_, Option<i64>>(12)?.map(|item| item as u64),
        part: row.get(13)?,
        thread: thread.map(|(account, peer)| thread_hash(&account, &peer)),
        replays: row.get(16)?,
        body_bytes: row.get(17)?,
        carried: carried.map(|(headers, body)| Carried { headers: KeptHeaders(headers), body: Bytes::from(body), events }),
    })
}

const COPIES: &str =
    "SELECT c.number, e.received, c.copies, c.conflicts, c.last, c.kept FROM copies c JOIN events e ON e.number = c.number
    WHERE c.number > ?1 ORDER BY c.number LIMIT ?2";

fn copies(row: &Row<'_>) -> rusqlite::Result<Moved> {
    let event = event_id(row.get(1)?, row.get::<_, i64>(0)? as u64);
    let kept = Copies::read_kept(&row.get::<_, String>(5)?);
    Ok(Moved::Copies(Copies { event, copies: row.get(2)?, conflicts: row.get(3)?, last_ms: row.get(4)?, kept }))
}

/// An answer is kept once for all events of its item, which are of one webhook.
fn answers(db: &Connection, after: i64, limit: usize) -> rusqlite::Result<Dumped> {
    let sql = "SELECT item, status, content_type, body FROM answers WHERE item > ?1 ORDER BY item LIMIT ?2";
    let (kept, last) = numbered(db, sql, after, limit, |row| {
        let body = Bytes::from(row.get::<_, Vec<u8>>(3)?);
        Ok((row.get::<_, i64>(0)?, Answer { status: row.get(1)?, content_type: row.get(2)?, body }))
    })?;
    let mut of_item = db.prepare_cached(&format!(
        "SELECT e.number FROM events e WHERE e.item = ?1 AND e.number BETWEEN ?1 AND
             (SELECT {LAST_OF_WEBHOOK} FROM events w WHERE w.number = (SELECT webhook FROM events WHERE number = ?1))"
    ))?;
    let mut records = Vec::new();
    for (item, answer) in kept {
        let events: Vec<i64> = of_item.query_map([item], |row| row.get(0))?.collect::<Result<_, _>>()?;
        records.extend(events.into_iter().map(|event| Moved::Answer(AnswerRec { event: event as u64, answer: answer.clone() })));
    }
    Ok((records, last))
}

/// The name that the thread goes by which a name leads to.
const LEADS_TO: &str = "SELECT t.peer FROM names n JOIN threads t ON t.thread = n.thread WHERE n.account = ";

/// Items on their way by channel, then the parked ones.
fn items(db: &Connection, after: Option<&After>, limit: usize) -> rusqlite::Result<Dumped> {
    let first = format!("e.received, e.webhook, e.kind, e.account, ifnull(({LEADS_TO} e.account AND n.name = e.peer), e.peer)");
    if let Some(After::Number(parked)) = after {
        let sql = format!(
            "SELECT p.item, p.received, c.name, p.first, p.members, p.attempt, p.replay, p.why, p.received, 1 + p.quarantined, {first},
             p.failures, p.replies
             FROM parked p JOIN channels c ON c.id = p.channel JOIN events e ON e.number = p.first
             WHERE p.item > ?1 ORDER BY p.item LIMIT ?2"
        );
        return numbered(db, &sql, *parked as i64, limit, item);
    }
    let (channel, last) = match after {
        Some(After::Pair(channel, last)) => (*channel as i64, *last as i64),
        _ => (0, 0),
    };
    let sql = format!(
        "SELECT i.item, i.received, c.name, i.first, i.members, i.attempt, i.replay, i.why, i.due, 0, {first},
             i.failures, NULL, i.channel
         FROM inbox i JOIN channels c ON c.id = i.channel JOIN events e ON e.number = i.first
         WHERE (i.channel, i.item) > (?1, ?2) ORDER BY i.channel, i.item LIMIT ?3"
    );
    let (records, last) = rows(db, &sql, params![channel, last, limit as i64], limit, |row| {
        Ok((item(row)?, After::Pair(row.get::<_, i64>(17)? as u64, row.get::<_, i64>(0)? as u64)))
    })?;
    Ok((records, Some(last.unwrap_or(After::Number(0)))))
}

/// Its lane is that of whom the event's peer is now: who takes it in knows no more of it.
fn item(row: &Row<'_>) -> rusqlite::Result<Moved> {
    let number = row.get::<_, i64>(0)? as u64;
    let channel: String = row.get(2)?;
    let place = ItemPlace::from_code(row.get(9)?).unwrap_or(ItemPlace::Quarantined);
    let thread = lane_thread(kind_of(row.get(12)?), row.get(13)?, row.get(14)?);
    let lane = match place {
        ItemPlace::InLane | ItemPlace::Parked => inbox_lane(&channel, thread.as_ref(), number),
        ItemPlace::Quarantined => own_lane(Queue::Inbox, number),
    };
    let replies: Option<Vec<u8>> = row.get(16)?;
    Ok(Moved::Item(ItemRec {
        number,
        received_ms: row.get(1)?,
        channel: channel.into(),
        lane,
        place,
        events: members_of(row.get(3)?, row.get(4)?).into_iter().map(|event| event as u64).collect(),
        events_ms: row.get(10)?,
        webhook: row.get::<_, i64>(11)? as u64,
        attempt: row.get(5)?,
        failures: row.get(15)?,
        replay: row.get(6)?,
        why: row.get(7)?,
        due_ms: row.get(8)?,
        replies: replies.and_then(|bytes| read_replies(&bytes)).unwrap_or_default(),
    }))
}

/// `peer` is whom it was written to; it waits in the lane of whom that name leads to now.
const MESSAGES: &str =
    "SELECT m.number, m.created, c.name, m.account, m.peer, m.request_id, m.fingerprint, m.text, m.payload, m.priority,
        m.reply_to, t.peer, m.provider_id, m.steps, m.why, m.past,
        ifnull((SELECT r.peer FROM names n JOIN threads r ON r.thread = n.thread WHERE n.account = m.account AND n.name = m.peer), t.peer)
    FROM messages m JOIN channels c ON c.id = m.channel JOIN threads t ON t.thread = m.thread
    WHERE m.number > ?1 ORDER BY m.number LIMIT ?2";

fn message(row: &Row<'_>) -> rusqlite::Result<Moved> {
    let (channel, account): (String, String) = (row.get(2)?, row.get(3)?);
    Ok(Moved::Message(MessageRec {
        number: row.get::<_, i64>(0)? as u64,
        created_ms: row.get(1)?,
        home: outbox_lane(&channel, &account, &row.get::<_, String>(16)?),
        thread: thread_hash(&account, &row.get::<_, String>(11)?),
        channel: channel.into(),
        account,
        peer: row.get(4)?,
        request_id: row.get(5)?,
        fingerprint: row.get(6)?,
        text: row.get(7)?,
        payload: Bytes::from(row.get::<_, Vec<u8>>(8)?),
        priority: priority_of(row.get(9)?),
        reply_to: row.get::<_, Option<[u8; 16]>>(10)?.map(|bytes| EventId(uuid::Uuid::from_bytes(bytes))),
        provider_id: row.get(12)?,
        steps: steps_of(&row.get::<_, String>(13)?),
        why: row.get(14)?,
        past: read_past(row.get::<_, Option<String>>(15)?.as_deref()),
    }))
}

/// What providers call messages, and what was heard of names that nobody has yet.
fn provider_names(db: &Connection, after: Option<&After>, limit: usize) -> rusqlite::Result<Dumped> {
    let (account, provider_id) = match after {
        Some(After::Name(last)) => last.clone().unwrap_or_default(),
        _ => Default::default(),
    };
    let sql =
        "SELECT n.account, n.provider_id, n.number, m.created, '' FROM provider_names n JOIN messages m ON m.number = n.number
                   WHERE (n.account, n.provider_id) > (?1, ?2)
               UNION ALL SELECT account, provider_id, NULL, heard, steps FROM early WHERE (account, provider_id) > (?1, ?2)
               ORDER BY 1, 2 LIMIT ?3";
    rows(db, sql, params![account, provider_id, limit as i64], limit, |row| {
        let (account, provider_id): (String, String) = (row.get(0)?, row.get(1)?);
        let last = After::Name(Some((account.clone(), provider_id.clone())));
        let message = row.get::<_, Option<i64>>(2)?.map(|number| number as u64);
        let (heard_ms, early) = (row.get(3)?, steps_of(&row.get::<_, String>(4)?));
        Ok((Moved::ProviderName(ProviderNameRec { account, provider_id, message, early, heard_ms }), last))
    })
}

const OUTS: &str =
    "SELECT o.number, m.created, c.name, o.account,
        ifnull((SELECT r.peer FROM names n JOIN threads r ON r.thread = n.thread WHERE n.account = m.account AND n.name = m.peer), t.peer),
        o.priority, o.attempt, o.due, o.begun, o.unknown, o.lane IS NULL,
        o.failures
    FROM outbox o JOIN messages m ON m.number = o.number JOIN channels c ON c.id = o.channel JOIN threads t ON t.thread = m.thread
    WHERE o.number > ?1 ORDER BY o.number LIMIT ?2";

fn out(row: &Row<'_>) -> rusqlite::Result<Moved> {
    let number = row.get::<_, i64>(0)? as u64;
    let (channel, account, peer): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
    Ok(Moved::Out(OutRec {
        number,
        created_ms: row.get(1)?,
        lane: if row.get(10)? { own_lane(Queue::Outbox, number) } else { outbox_lane(&channel, &account, &peer) },
        channel: channel.into(),
        account,
        priority: priority_of(row.get(5)?),
        attempt: row.get(6)?,
        failures: row.get(11)?,
        due_ms: row.get(7)?,
        begun_ms: row.get(8)?,
        unknown: row.get(9)?,
    }))
}

/// Attempts at items, then tries to send.
fn attempts(db: &Connection, after: Option<&After>, limit: usize) -> rusqlite::Result<Dumped> {
    const ENDED: &str = "attempt, worker, leased, ended, outcome, detail";
    if let Some(After::Pair(number, fence)) = after {
        let sql = format!(
            "SELECT r.number, r.number, r.fence, m.created, r.{} FROM tries r JOIN messages m ON m.number = r.number
             WHERE (r.number, r.fence) > (?1, ?2) ORDER BY r.number, r.fence LIMIT ?3",
            ENDED.replace(", ", ", r.")
        );
        let params = params![*number as i64, *fence as i64, limit as i64];
        return rows(db, &sql, params, limit, |row| {
            let attempt = attempt(row, Queue::Outbox)?;
            let last = After::Pair(attempt.of, attempt.fence);
            Ok((Moved::Attempt(attempt), last))
        });
    }
    let (first, item, fence) = match after {
        Some(After::Triple(first, item, fence)) => (*first, *item, *fence),
        _ => (0, 0, 0),
    };
    let sql = format!(
        "SELECT first, item, fence, received, {ENDED} FROM attempts WHERE (first, item, fence) > (?1, ?2, ?3)
         ORDER BY first, item, fence LIMIT ?4"
    );
    let params = params![first as i64, item as i64, fence as i64, limit as i64];
    let (records, last) = rows(db, &sql, params, limit, |row| {
        let attempt = attempt(row, Queue::Inbox)?;
        let last = After::Triple(attempt.of, attempt.item, attempt.fence);
        Ok((Moved::Attempt(attempt), last))
    })?;
    Ok((records, Some(last.unwrap_or(After::Pair(0, 0)))))
}

fn attempt(row: &Row<'_>, queue: Queue) -> rusqlite::Result<AttemptRec> {
    let number = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
    Ok(AttemptRec {
        queue,
        of: number(0)?,
        item: number(1)?,
        fence: number(2)?,
        item_ms: row.get(3)?,
        attempt: row.get(4)?,
        worker: row.get(5)?,
        leased_ms: row.get(6)?,
        ended_ms: row.get(7)?,
        outcome: row.get(8)?,
        detail: row.get(9)?,
    })
}
