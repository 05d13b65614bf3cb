//! What a server's clock that was set back does to waits and leases.

use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use hapax_domain::limits::WAIT_MAX_MS;
use hapax_store::steps::records::ItemRec;

use super::failure::Failure;
use super::rows::{Fields, plain_columns};
use super::sql_call::{SqlCall, run_one};

/// A server's clock that is corrected by less holds nobody up for longer than that.
const SLACK_MS: i64 = 1_000;
/// The longest lease that a config may ask for (`config/channel.rs`).
const LEASE_MAX_MS: i64 = 3_600_000;
/// A long outbox and inbox are gone through as a whole.
const FOLLOW_TIME: Duration = Duration::from_secs(60);

/// Writes the time down, unless a later one is there. The row is there since the tables were made; writing it proves that the server takes writes.
const MARK: &str = "UPDATE hapax_schema AS s SET pinged_ms = t.now_ms,
        seen_ms = CASE WHEN s.seen_ms > t.now_ms + $2::int8 THEN s.seen_ms ELSE t.now_ms END
    FROM (SELECT coalesce($1::int8, (extract(epoch FROM clock_timestamp()) * 1000)::int8) AS now_ms) AS t
    RETURNING s.seen_ms, t.now_ms";

/// The latest time that was seen, and the present one.
pub(super) async fn mark(client: &ClientWrapper, now_ms: Option<i64>) -> Result<(i64, i64), Failure> {
    let rows = run_one(client, SqlCall::new(MARK, vec![Box::new(now_ms), Box::new(SLACK_MS)])).await?;
    let mut fields = rows.first().map(Fields::new).ok_or(Failure::Unreadable("a database without its schema's row"))?;
    Ok((fields.take()?, fields.take()?))
}

/// Moves what waits with a clock that was set back. Of several instances that see it one does.
pub(super) async fn follow(client: &ClientWrapper, now_ms: Option<i64>) -> Result<(), Failure> {
    let (seen_ms, now_ms) = mark(client, now_ms).await?;
    if seen_ms <= now_ms + SLACK_MS {
        return Ok(());
    }
    let moved = tokio::time::timeout(FOLLOW_TIME, move_all(client, seen_ms, now_ms)).await.unwrap_or(Err(Failure::Silent));
    if moved.as_ref().is_err_and(Failure::is_definite) {
        client.batch_execute("ROLLBACK").await?;
    }
    if moved? {
        tracing::warn!(back_ms = seen_ms - now_ms, "the server's clock was set back; what waits is moved with it");
    }
    Ok(())
}

async fn move_all(client: &ClientWrapper, seen_ms: i64, now_ms: i64) -> Result<bool, Failure> {
    client.batch_execute("BEGIN; SET LOCAL statement_timeout = '60s'").await?;
    let first = format!("UPDATE hapax_schema SET seen_ms = {now_ms} WHERE seen_ms = {seen_ms}");
    if client.execute(&*first, &[]).await? == 0 {
        client.batch_execute("ROLLBACK").await?;
        return Ok(false);
    }
    let (back, most) = (seen_ms - now_ms, now_ms + WAIT_MAX_MS);
    // Leases that were given or lengthened since the clock was set are right already, and who has one works: only an end that no lease of now can
    // have is moved, and one that is over. One that is moved too little holds its lane for no longer than a lease may.
    let lease_max = now_ms + LEASE_MAX_MS;
    let lease_end = format!(
        "CASE WHEN held_until_ms > {lease_max} THEN LEAST(held_until_ms - {back}, {lease_max})
                  WHEN held_until_ms <= {now_ms} THEN held_until_ms - {back} ELSE held_until_ms END"
    );
    // All other waits, so that whose turn came first is still first. A message that waits alone and is not in doubt waits for a time that a
    // person named.
    let scheduled = "SELECT 1 FROM hapax_messages m WHERE m.number = o.number AND NOT o.unknown AND m.home <> o.lane";
    // One that is alone is due when it came: now it is due earlier.
    let (columns, alone) = (plain_columns::<ItemRec>(""), &*super::alone::COLUMNS);
    client
        .batch_execute(&format!(
            "UPDATE hapax_lanes l SET due_ms = CASE WHEN joined_to IS NOT NULL THEN due_ms WHEN held_until_ms IS NULL THEN LEAST(due_ms - {back}, {most}) ELSE {lease_end} END,
                 held_until_ms = {lease_end}
                 WHERE NOT EXISTS (SELECT 1 FROM hapax_outs o WHERE l.queue = 1 AND o.number = l.first AND EXISTS ({scheduled}));
             UPDATE hapax_lanes l SET due_ms = GREATEST(l.held_until_ms, j.until_ms)
                 FROM (SELECT joined_to, max(held_until_ms) AS until_ms FROM hapax_lanes
                     WHERE joined_to IS NOT NULL AND held_until_ms IS NOT NULL GROUP BY joined_to) j WHERE l.hash = j.joined_to;
             INSERT INTO hapax_items ({columns}, first) SELECT {alone}, first FROM hapax_lanes WHERE alone_ms IS NOT NULL;
             UPDATE hapax_lanes SET alone_ms = NULL WHERE alone_ms IS NOT NULL;
             UPDATE hapax_items SET due_ms = LEAST(due_ms - {back}, {most}) WHERE place = 0;
             UPDATE hapax_outs o SET due_ms = LEAST(due_ms - {back}, {most}) WHERE due_ms IS NOT NULL AND NOT EXISTS ({scheduled});
             UPDATE hapax_provider_names SET heard_ms = {now_ms} WHERE heard_ms > {now_ms};
             UPDATE hapax_nonces SET at_ms = {now_ms} WHERE at_ms > {now_ms};
             COMMIT"
        ))
        .await?;
    Ok(true)
}
