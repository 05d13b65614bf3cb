//! What hapax does beside its work: pausing, counting, forgetting in small steps.

use std::collections::BTreeMap;

use hapax_domain::age::Dated;
use hapax_domain::ids;
use hapax_store::steps::records::{EventRec, Hash, ItemPlace, Queue};
use hapax_store::{ChannelCounts, Copies, Stats, StoreError};

use super::lists::LISTED_EVENTS;
use super::rows::{InTable, ListKey, list_of_webhook};
use super::sql::{List, ROWS_MAX, Raw, Sql, account_key, channel_key};
use super::{MysqlEngine, load};

/// Rows of a table that are counted one by one; of larger tables the server's own estimate is shown.
const COUNTED_MAX: u64 = 10_000;
/// How long the row that proves a commit is kept; it is asked for within seconds.
const PROOF_S: u32 = 3_600;

pub(super) async fn pause(engine: &MysqlEngine, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
    let mut sql = Sql::default();
    let keys = (channel_key(channel), account_key(account));
    match why {
        Some(why) => sql.add(
            "INSERT INTO hapax_paused (channel_key, account_key, channel, account, why, since_ms) VALUES (?, ?, ?, ?, ?, ?)
             ON DUPLICATE KEY UPDATE why = VALUES(why)",
            &[&keys.0, &keys.1, &channel, &account, &why, &Raw(&engine.now())],
        ),
        None => sql.add("DELETE FROM hapax_paused WHERE channel_key = ? AND account_key = ?", &[&keys.0, &keys.1]),
    }
    write(engine, sql).await
}

pub(super) async fn write(engine: &MysqlEngine, sql: Sql) -> Result<(), StoreError> {
    for packet in sql.into_packets() {
        engine.write(&packet).await?;
    }
    Ok(())
}

/// Counts are a hint: a lost answer may count a copy twice.
pub(super) async fn note_copies(engine: &MysqlEngine, copies: &[Copies]) -> Result<(), StoreError> {
    let mut sorted: Vec<Copies> = copies.to_vec();
    sorted.sort_unstable_by_key(|more| more.event);
    let mut sql = Sql::default();
    for some in sorted.chunks(ROWS_MAX) {
        let row = |more: &Copies| {
            let Copies { event, copies, conflicts, last_ms, .. } = more;
            let (event, kept) = (ids::number_of(event.0), more.write_kept());
            format!(
                "SELECT {event} AS event, {copies} AS copies, {conflicts} AS conflicts, {last_ms} AS last_ms, CAST('{kept}' AS CHAR(64)) AS kept"
            )
        };
        let rows = some.iter().map(row).collect::<Vec<_>>().join(" UNION ALL ");
        // Only of events that are still there.
        let add = "INSERT INTO hapax_copies (event, copies, conflicts, last_ms, kept)
                   SELECT m.event, m.copies, m.conflicts, m.last_ms, m.kept FROM (?) m JOIN hapax_events e ON e.number = m.event
                   ON DUPLICATE KEY UPDATE copies = hapax_copies.copies + VALUES(copies),
                   conflicts = hapax_copies.conflicts + VALUES(conflicts), last_ms = GREATEST(hapax_copies.last_ms, VALUES(last_ms)),
                   kept = IF(hapax_copies.kept = '', VALUES(kept), hapax_copies.kept)";
        sql.add(add, &[&Raw(&rows)]);
    }
    write(engine, sql).await
}

/// Rows of expired keys that are looked at together; one names a thousand keys at most, but for moved ones.
const EXPIRING_ROWS: usize = 64;

/// Expired keys are looked up first, and then removed by key as they are claimed, so that a purge and a claim never wait for each other in a circle.
/// A key that was claimed anew since is kept: it expires later now, and is named again where it does. The rows that name them go last.
pub(super) async fn purge_keys(engine: &MysqlEngine, max: usize) -> Result<u64, StoreError> {
    let (now, page) = (engine.now(), EXPIRING_ROWS.min(max));
    let mut removed = 0;
    while removed < max as u64 {
        let mut sql = Sql::default();
        let expired =
            "SELECT expires_ms, event, packed FROM hapax_expiring WHERE expires_ms <= ? ORDER BY expires_ms, event LIMIT ?";
        sql.add(expired, &[&Raw(&now), &page]);
        let rows: Vec<(i64, u64, Vec<u8>)> =
            engine.ask(sql).await?.read(|fields| Ok((fields.next()?, fields.next()?, fields.next()?)))?;
        let is_last = rows.len() < page;
        let (mut keys, mut named): (Vec<Hash>, Vec<String>) = (Vec::new(), Vec::new());
        for (expires_ms, event, packed) in rows {
            keys.extend(packed.as_chunks().0);
            named.push(format!("expires_ms = {expires_ms} AND event = {event}"));
        }
        removed += remove_keys(engine, &now, keys).await?;
        if !named.is_empty() {
            engine.write(&format!("DELETE FROM hapax_expiring WHERE {}", named.join(" OR "))).await?;
        }
        if is_last {
            break;
        }
    }
    // There are more of them than of keys: one for every transaction, many for a key.
    purge_numbers(engine, max * 10).await?;
    Ok(removed)
}

async fn remove_keys(engine: &MysqlEngine, now: &str, mut keys: Vec<Hash>) -> Result<u64, StoreError> {
    keys.sort_unstable();
    let mut removed = 0;
    for some in keys.chunks(ROWS_MAX) {
        let mut sql = Sql::default();
        sql.add("DELETE FROM hapax_keys WHERE k IN ? AND expires_ms <= ?", &[&List(some), &Raw(now)]);
        sql.add("SELECT ROW_COUNT()", &[]);
        removed += removed_by(engine, sql).await?;
    }
    Ok(removed)
}

/// Runs a statement that removes rows, and one that asks how many it were.
pub(super) async fn removed_by(engine: &MysqlEngine, sql: Sql) -> Result<u64, StoreError> {
    let mut removed = 0;
    for packet in sql.into_packets() {
        let mut sets = engine.write(&packet).await?;
        sets.skip();
        removed += sets.one(|fields| fields.next::<u64>())?;
    }
    Ok(removed)
}

/// Like keys, old names are looked up first, and then removed by name as they are locked by others, if they are still nobody's.
pub(super) async fn purge_names(engine: &MysqlEngine, before_ms: i64, max: usize) -> Result<u64, StoreError> {
    let nobodys = "heard_ms <= ? AND (message IS NULL
                   OR NOT EXISTS (SELECT 1 FROM hapax_messages m WHERE m.number = hapax_provider_names.message))";
    let mut sql = Sql::default();
    let old = format!("SELECT hash FROM hapax_provider_names FORCE INDEX (by_age) WHERE {nobodys} ORDER BY heard_ms LIMIT ?");
    sql.add(&old, &[&before_ms, &max]);
    let mut old: Vec<Hash> = engine.ask(sql).await?.read(|fields| fields.hash())?;
    old.sort_unstable();
    let mut removed = 0;
    for some in old.chunks(ROWS_MAX) {
        let mut sql = Sql::default();
        sql.add(&format!("DELETE FROM hapax_provider_names WHERE hash IN ? AND {nobodys}"), &[&List(some), &before_ms]);
        sql.add("SELECT ROW_COUNT()", &[]);
        removed += removed_by(engine, sql).await?;
    }
    Ok(removed)
}

/// Forgets transactions of long ago. The newest row stays, so that the counter can be seen to be above all others whatever happens to it.
async fn purge_numbers(engine: &MysqlEngine, max: usize) -> Result<(), StoreError> {
    let newest = engine.write("SELECT COALESCE(MAX(id), 0) FROM hapax_numbers").await?.one(|fields| fields.next::<u64>())?;
    let old =
        format!("DELETE FROM hapax_numbers WHERE id < {newest} AND at_s < UNIX_TIMESTAMP() - {PROOF_S} ORDER BY id LIMIT {max}");
    engine.write(&old).await.map(|_| ())
}

pub(super) async fn webhooks_after(engine: &MysqlEngine, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
    let page = "SELECT number, received_ms FROM hapax_events FORCE INDEX (PRIMARY) WHERE number > ? AND webhook = number
                ORDER BY number LIMIT ?";
    dated(engine, page, after, max).await
}

pub(super) async fn messages_after(engine: &MysqlEngine, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
    let page =
        "SELECT m.number, m.created_ms FROM hapax_messages m FORCE INDEX (PRIMARY) LEFT JOIN hapax_outs o ON o.number = m.number
                WHERE m.number > ? AND o.number IS NULL ORDER BY m.number LIMIT ?";
    dated(engine, page, after, max).await
}

async fn dated(engine: &MysqlEngine, page: &str, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
    let mut sql = Sql::default();
    sql.add(page, &[&after, &max]);
    engine.ask(sql).await?.read(|fields| Ok(Dated { number: fields.next()?, at_ms: fields.next()? }))
}

pub(super) async fn events_of(engine: &MysqlEngine, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError> {
    let mut sql = Sql::default();
    let columns = load::qualified("e", EventRec::columns());
    let chunks = webhooks.chunks(ROWS_MAX);
    let statements = 2 * chunks.len();
    for some in chunks {
        sql.add("SELECT ? FROM hapax_events e FORCE INDEX (PRIMARY) WHERE number IN ?", &[&Raw(&columns), &List(some)]);
        let lists: Vec<ListKey> = some.iter().map(|webhook| list_of_webhook(*webhook)).collect();
        let others = "SELECT ? FROM ? WHERE l.list IN ? AND e.webhook IN ? AND e.webhook <> e.number";
        sql.add(others, &[&Raw(&columns), &Raw(LISTED_EVENTS), &List(&lists), &List(some)]);
    }
    let mut sets = engine.ask(sql).await?;
    let mut events = Vec::new();
    for _ in 0..statements {
        events.extend(sets.records::<EventRec>()?);
    }
    events.sort_unstable_by_key(|event: &EventRec| (event.webhook, event.number));
    Ok(events)
}

pub(super) async fn stats(engine: &MysqlEngine) -> Result<Stats, StoreError> {
    let mut sql = Sql::default();
    for table in ["hapax_keys", "hapax_events"] {
        let some = format!("SELECT COUNT(*) FROM (SELECT 1 FROM {table} LIMIT {COUNTED_MAX}) s");
        sql.add(
            &format!(
                "SELECT IF(({some}) < {COUNTED_MAX}, ({some}), GREATEST({COUNTED_MAX}, (SELECT TABLE_ROWS
            FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}')))"
            ),
            &[],
        );
    }
    sql.add(
        "SELECT COALESCE(SUM(DATA_LENGTH + INDEX_LENGTH), 0) FROM information_schema.TABLES
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'hapax\\_%'",
        &[],
    );
    sql.add("SELECT COALESCE(SUM(in_doubt = 0), 0), COALESCE(SUM(in_doubt = 1), 0) FROM hapax_outs", &[]);
    // In one statement, so that both halves see the same moment. The leased ones are found from their lanes, which are few.
    sql.add(
        "SELECT MIN(channel), place, FALSE, COUNT(*), MIN(received_ms) FROM hapax_items GROUP BY channel_key, place
         UNION ALL
         SELECT MIN(channel), 0, FALSE, COUNT(*), MIN(alone_ms) FROM hapax_lanes WHERE alone_ms IS NOT NULL GROUP BY channel_key
         UNION ALL
         SELECT MIN(a.channel), 0, TRUE, COUNT(*), MIN(a.alone_ms) FROM hapax_lanes l
             STRAIGHT_JOIN hapax_lanes a FORCE INDEX (by_first) ON a.first = l.held_number
             WHERE l.queue = ? AND l.held_number IS NOT NULL AND a.alone_ms IS NOT NULL GROUP BY a.channel_key
         UNION ALL
         SELECT MIN(i.channel), i.place, TRUE, COUNT(*), MIN(i.received_ms) FROM hapax_lanes l
             STRAIGHT_JOIN hapax_items i ON i.number = l.held_number
             WHERE l.queue = ? AND l.held_number IS NOT NULL AND i.place = ? GROUP BY i.channel_key, i.place",
        &[&Queue::Inbox.code(), &Queue::Inbox.code(), &ItemPlace::InLane.code()],
    );
    let mut sets = engine.ask(sql).await?;
    let mut stats = Stats {
        keys: sets.one(|fields| fields.next())?,
        events: sets.one(|fields| fields.next())?,
        store_bytes: sets.one(|fields| fields.next())?,
        ..Stats::default()
    };
    (stats.outbox_waiting, stats.outbox_unknown) = sets.one(|fields| Ok((fields.next()?, fields.next()?)))?;
    let mut channels: BTreeMap<String, ChannelCounts> = BTreeMap::new();
    let groups = sets.read(|fields| {
        Ok((
            fields.next::<String>()?,
            fields.next::<i16>()?,
            fields.next::<bool>()?,
            fields.next::<u64>()?,
            fields.next::<i64>()?,
        ))
    })?;
    for (channel, place, leased, count, oldest_ms) in groups {
        let counts = channels.entry(channel.clone()).or_default();
        counts.channel = channel;
        match ItemPlace::from_code(place) {
            Some(ItemPlace::Parked) => counts.parked += count,
            Some(ItemPlace::Quarantined) => counts.quarantined += count,
            _ if leased => {
                counts.leased += count;
                counts.waiting = counts.waiting.saturating_sub(count);
            }
            _ => {
                counts.waiting += count;
                counts.oldest_ms = Some(counts.oldest_ms.map_or(oldest_ms, |known| known.min(oldest_ms)));
            }
        }
    }
    stats.channels = channels.into_values().collect();
    Ok(stats)
}
