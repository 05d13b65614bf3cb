//! What a server's clock that was set back does to waits and leases.

use std::time::Duration;

use hapax_domain::limits::WAIT_MAX_MS;
use hapax_store::StoreError;
use hapax_store::steps::records::ItemRec;

use super::link::{Failure, Link};
use super::rows::InTable;
use super::{MysqlEngine, alone};

/// A server's clock that is corrected by less holds nobody up for longer than that.
const SLACK_MS: i64 = 1_000;
/// The longest lease that a config may ask for (`config/channel.rs`).
const LEASE_MAX_MS: i64 = 3_600_000;
/// A long outbox and inbox are gone through as a whole.
const FOLLOW_TIME: Duration = Duration::from_secs(60);

/// Writes the time down, unless a later one is there, which proves that the server takes writes. Gives the latest time that was seen, and the
/// present one.
pub(super) async fn mark(engine: &MysqlEngine) -> Result<(i64, i64), StoreError> {
    let sql = format!(
        "SET @hapax_now = {now};
         UPDATE hapax_clock SET seen_ms = IF(seen_ms > @hapax_now + {SLACK_MS}, seen_ms, @hapax_now) WHERE one = 1;
         SELECT seen_ms, CAST(@hapax_now AS SIGNED) FROM hapax_clock WHERE one = 1",
        now = engine.now()
    );
    let mut sets = engine.write(&sql).await?;
    sets.skip();
    sets.skip();
    sets.one(|fields| Ok((fields.next()?, fields.next()?)))
}

/// Moves what waits with a clock that was set back. Of several instances that see it one does.
pub(super) async fn follow(engine: &MysqlEngine) -> Result<(), StoreError> {
    let (seen_ms, now_ms) = mark(engine).await?;
    if seen_ms <= now_ms + SLACK_MS {
        return Ok(());
    }
    let failed = |failure: Failure| failure.into_error("mysql: following the clock");
    let mut link = engine.admin.link().await.map_err(failed)?;
    let moved = move_all(&mut link, seen_ms, now_ms).await;
    link.undo().await;
    link.give_back();
    if moved? {
        tracing::warn!(back_ms = seen_ms - now_ms, "the server's clock was set back; what waits is moved with it");
    }
    Ok(())
}

async fn move_all(link: &mut Link, seen_ms: i64, now_ms: i64) -> Result<bool, StoreError> {
    let failed = |failure: Failure| failure.into_error("mysql: following the clock");
    let first = format!(
        "START TRANSACTION; UPDATE hapax_clock SET seen_ms = {now_ms} WHERE one = 1 AND seen_ms = {seen_ms}; SELECT ROW_COUNT()"
    );
    let mut sets = link.run(&first).await.map_err(failed)?;
    sets.skip();
    sets.skip();
    if sets.one(|fields| fields.next::<i64>())? == 0 {
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
    let scheduled = "SELECT 1 FROM hapax_messages m WHERE m.number = o.number AND o.in_doubt = 0 AND m.home <> o.lane";
    // One that is alone is due when it came: now it is due earlier.
    let (columns, alone) = (ItemRec::columns(), &*alone::COLUMNS);
    let rest = format!(
        "UPDATE hapax_lanes l SET due_ms = CASE WHEN joined_to IS NOT NULL THEN due_ms WHEN held_until_ms IS NULL THEN LEAST(due_ms - {back}, {most}) ELSE {lease_end} END,
             held_until_ms = {lease_end}
             WHERE NOT EXISTS (SELECT 1 FROM hapax_outs o WHERE l.queue = 1 AND o.number = l.first AND EXISTS ({scheduled}));
         UPDATE hapax_lanes l JOIN (SELECT joined_to, MAX(held_until_ms) AS until_ms FROM hapax_lanes
             WHERE joined_to IS NOT NULL AND held_until_ms IS NOT NULL GROUP BY joined_to) j ON l.hash = j.joined_to
             SET l.due_ms = GREATEST(COALESCE(l.held_until_ms, j.until_ms), j.until_ms);
         INSERT INTO hapax_items ({columns},channel_key,first_event) SELECT {alone},channel_key,first FROM hapax_lanes
             WHERE alone_ms IS NOT NULL;
         UPDATE hapax_lanes SET alone_ms = NULL WHERE alone_ms IS NOT NULL;
         UPDATE hapax_items SET due_ms = LEAST(due_ms - {back}, {most}) WHERE place = 0;
         UPDATE hapax_outs o SET due_ms = LEAST(due_ms - {back}, {most}) WHERE due_ms IS NOT NULL AND NOT EXISTS ({scheduled});
         UPDATE hapax_provider_names SET heard_ms = {now_ms} WHERE heard_ms > {now_ms};
         UPDATE hapax_numbers SET at_s = UNIX_TIMESTAMP() WHERE at_s > UNIX_TIMESTAMP();
         COMMIT"
    );
    link.run_within(&rest, FOLLOW_TIME).await.map_err(failed)?;
    Ok(true)
}
