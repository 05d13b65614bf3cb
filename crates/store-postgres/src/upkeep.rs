//! Small writes outside the steps, what grows old, and how much there is.

use std::collections::{BTreeMap, HashMap};

use deadpool_postgres::ClientWrapper;
use hapax_domain::ids;
use hapax_store::{ChannelCounts, Copies, Stats};
use tokio_postgres::Row;

use super::failure::Failure;
use super::rows::Fields;
use super::sql_call::{SqlCall, run, run_one};
use super::texts::escape;

const PAUSE: &str = "INSERT INTO hapax_paused (channel, account, why, since_ms) VALUES ($1, $2, $3, $4)
    ON CONFLICT (channel, account) DO UPDATE SET why = excluded.why";
const RESUME: &str = "DELETE FROM hapax_paused WHERE channel = $1 AND account = $2";

pub(super) async fn pause(
    client: &ClientWrapper,
    channel: &str,
    account: &str,
    why: Option<&str>,
    now_ms: i64,
) -> Result<(), Failure> {
    let (channel, account) = (Box::new(escape(channel)), Box::new(escape(account)));
    let ask = match why {
        Some(why) => SqlCall::new(PAUSE, vec![channel, account, Box::new(escape(why)), Box::new(now_ms)]),
        None => SqlCall::new(RESUME, vec![channel, account]),
    };
    run_one(client, ask).await.map(|_| ())
}

const NOTE_COPIES: &str = "INSERT INTO hapax_copies (event, copies, conflicts, last_ms, kept)
    SELECT n.event, n.copies, n.conflicts, n.last_ms, n.kept
    FROM UNNEST($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[]) AS n (event, copies, conflicts, last_ms, kept)
    JOIN hapax_events e ON e.number = n.event ORDER BY n.event
    ON CONFLICT (event) DO UPDATE SET copies = hapax_copies.copies + excluded.copies,
        conflicts = hapax_copies.conflicts + excluded.conflicts, last_ms = GREATEST(hapax_copies.last_ms, excluded.last_ms),
        kept = CASE hapax_copies.kept WHEN '' THEN excluded.kept ELSE hapax_copies.kept END";

/// Several notes about one event become one.
pub(super) async fn note_copies(client: &ClientWrapper, copies: &[Copies]) -> Result<(), Failure> {
    let mut sums: BTreeMap<u64, Copies> = BTreeMap::new();
    for more in copies {
        let none = Copies { copies: 0, conflicts: 0, ..*more };
        sums.entry(ids::number_of(more.event.0)).or_insert(none).add(more);
    }
    let events: Vec<i64> = sums.keys().map(|&event| event as i64).collect();
    let counts: Vec<i64> = sums.values().map(|sum| sum.copies as i64).collect();
    let conflicts: Vec<i64> = sums.values().map(|sum| sum.conflicts as i64).collect();
    let last_ms: Vec<i64> = sums.values().map(|sum| sum.last_ms).collect();
    let kept: Vec<String> = sums.values().map(Copies::write_kept).collect();
    let params: Vec<super::rows::Param<'_>> =
        vec![Box::new(events), Box::new(counts), Box::new(conflicts), Box::new(last_ms), Box::new(kept)];
    run_one(client, SqlCall::new(NOTE_COPIES, params)).await.map(|_| ())
}

const PURGE_KEYS: &str = "DELETE FROM hapax_keys WHERE key IN
    (SELECT key FROM hapax_keys WHERE expires_ms <= $1::int8 ORDER BY expires_ms LIMIT $2::int8 FOR UPDATE SKIP LOCKED) RETURNING 1";
/// Nobody asks about a commit after an hour.
const PURGE_NONCES: &str = "DELETE FROM hapax_nonces WHERE nonce IN
    (SELECT nonce FROM (SELECT nonce, at_ms FROM hapax_nonces ORDER BY nonce LIMIT $1::int8) AS oldest
     WHERE at_ms < (extract(epoch FROM clock_timestamp()) * 1000)::int8 - 3600000)";

pub(super) async fn purge_keys(client: &ClientWrapper, max: usize, now_ms: i64) -> Result<u64, Failure> {
    let keys = SqlCall::new(PURGE_KEYS, vec![Box::new(now_ms), Box::new(max as i64)]);
    // There are more of them than of keys: one for every transaction, many for a key.
    let nonces = SqlCall::new(PURGE_NONCES, vec![Box::new(max as i64 * 10)]);
    let answers = run(client, &[keys, nonces]).await?;
    Ok(answers.first().map_or(0, Vec::len) as u64)
}

/// Whoever has a name locked is about to call a message so, or to hear of it: it is left for the next time.
const PURGE_NAMES: &str = "DELETE FROM hapax_provider_names WHERE hash IN
    (SELECT n.hash FROM hapax_provider_names n WHERE n.heard_ms <= $1::int8
        AND (n.message IS NULL OR NOT EXISTS (SELECT 1 FROM hapax_messages m WHERE m.number = n.message))
     ORDER BY n.heard_ms LIMIT $2::int8 FOR UPDATE OF n SKIP LOCKED) RETURNING 1";

pub(super) async fn purge_names(client: &ClientWrapper, before_ms: i64, max: usize) -> Result<u64, Failure> {
    let names = SqlCall::new(PURGE_NAMES, vec![Box::new(before_ms), Box::new(max as i64)]);
    Ok(run_one(client, names).await?.len() as u64)
}

pub(super) async fn now_ms(client: &ClientWrapper) -> Result<i64, Failure> {
    let rows = run_one(client, SqlCall::new("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8", vec![])).await?;
    rows.first().map_or(Ok(0), |row| Fields::new(row).take())
}

/// Tables up to this size are counted; of larger ones the server's own estimate is good enough, and costs nothing. A server that has not
/// looked yet estimates nothing.
const COUNTED_MAX: i64 = 10_000;
const COUNTS: &str = "SELECT
    (SELECT CASE WHEN reltuples >= $1::int8 THEN reltuples::int8 ELSE
        (SELECT count(*) FROM (SELECT 1 FROM hapax_keys LIMIT $1) AS k) END FROM pg_class WHERE oid = 'hapax_keys'::regclass),
    (SELECT CASE WHEN reltuples >= $1 THEN reltuples::int8 ELSE
        (SELECT count(*) FROM (SELECT 1 FROM hapax_events LIMIT $1) AS e) END FROM pg_class WHERE oid = 'hapax_events'::regclass),
    (SELECT count(*) FROM hapax_outs WHERE NOT unknown),
    (SELECT count(*) FROM hapax_outs WHERE unknown),
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class c
     WHERE c.relkind = 'r' AND c.relname LIKE 'hapax\\_%' AND pg_table_is_visible(c.oid))";
const ITEMS: &str = "SELECT channel, place, count(*), min(received_ms) FROM
    (SELECT channel, place, received_ms FROM hapax_items
     UNION ALL SELECT channel, 0::int2, alone_ms FROM hapax_lanes WHERE alone_ms IS NOT NULL) AS i GROUP BY channel, place";
const LEASED: &str = "SELECT channel, count(*) FROM hapax_lanes WHERE queue = 0 AND held_number IS NOT NULL GROUP BY channel";

pub(super) async fn stats(client: &ClientWrapper) -> Result<Stats, Failure> {
    let counts = SqlCall::new(COUNTS, vec![Box::new(COUNTED_MAX)]);
    let answers = run(client, &[counts, SqlCall::new(ITEMS, vec![]), SqlCall::new(LEASED, vec![])]).await?;
    let [counts, items, leased] = &answers[..] else { return Ok(Stats::default()) };
    let mut stats = Stats { channels: channels(items, leased)?, ..Stats::default() };
    if let Some(row) = counts.first() {
        let mut fields = Fields::new(row);
        stats.keys = fields.number()?;
        stats.events = fields.number()?;
        stats.outbox_waiting = fields.number()?;
        stats.outbox_unknown = fields.number()?;
        stats.store_bytes = fields.number()?;
    }
    Ok(stats)
}

fn channels(items: &[Row], leased: &[Row]) -> Result<Vec<ChannelCounts>, Failure> {
    let mut held: HashMap<String, u64> = HashMap::new();
    for row in leased {
        let mut fields = Fields::new(row);
        held.insert(fields.text()?, fields.number()?);
    }
    let mut channels: BTreeMap<String, ChannelCounts> = BTreeMap::new();
    for row in items {
        let mut fields = Fields::new(row);
        let channel = fields.text()?;
        let (place, count, oldest_ms): (i16, u64, i64) = (fields.take()?, fields.number()?, fields.take()?);
        let counts = channels.entry(channel.clone()).or_default();
        match place {
            0 => {
                counts.leased = held.get(&channel).copied().unwrap_or_default();
                counts.waiting = count.saturating_sub(counts.leased);
                counts.oldest_ms = Some(oldest_ms);
            }
            1 => counts.parked = count,
            _ => counts.quarantined = count,
        }
        counts.channel = channel;
    }
    Ok(channels.into_values().collect())
}
