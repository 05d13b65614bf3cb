//! What a clock that was set between two runs does to the times on disk. Within a run it never goes backwards.

use hapax_domain::claim::{Claim, ClaimState};
use hapax_store::end_after_set_back;
use rusqlite::{Connection, params};

/// How much of the time that passes may be missing from the mark.
const MARK_EVERY_MS: i64 = 1_000;
/// How far the ends of keys may be moved; the window of a claim has room for that (`keys.rs`).
const MOVED_MAX_S: i64 = 20 * 365 * 86_400;

/// How far the store's clock lags behind the world's before it matters.
const LAG_MS: i64 = 1_000;

/// The store's time, written down now and then: a clock that shows less at the next start was set back. And how far it lags behind the
/// world's, which it catches up with then.
#[derive(Default)]
pub(super) struct Mark {
    written_ms: i64,
    lag_ms: i64,
    /// Changes of the connection when it was written.
    changes: u64,
}

impl Mark {
    /// Writes the time with a batch that writes anyway.
    pub(super) fn write_some(&mut self, db: &Connection, now_ms: i64, lag_ms: i64) -> rusqlite::Result<()> {
        let is_due = now_ms - self.written_ms >= MARK_EVERY_MS || (lag_ms - self.lag_ms).abs() >= LAG_MS;
        if is_due && db.total_changes() != self.changes {
            write(db, now_ms, lag_ms)?;
            *self = Self { written_ms: now_ms, lag_ms, changes: db.total_changes() };
        }
        Ok(())
    }
}

/// Writes the time down now.
pub(super) fn write(db: &Connection, now_ms: i64, lag_ms: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('clock', ?1), ('clock_lag', ?2)")?.execute([now_ms, lag_ms])?;
    Ok(())
}

/// The time of the last mark; in a file that has none yet, the latest time that anything was written at. Beside a mark that would be wrong:
/// what was once written ahead of time stays there.
fn last_seen(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row(
        "SELECT ifnull((SELECT value FROM meta WHERE name = 'clock'), max(
             ifnull((SELECT received FROM events ORDER BY number DESC LIMIT 1), 0),
             ifnull((SELECT created FROM messages ORDER BY number DESC LIMIT 1), 0),
             ifnull((SELECT max(leased) FROM leases), 0), ifnull((SELECT max(leased) FROM out_leases), 0)))",
        [],
        |row| row.get(0),
    )
}

/// What the clock did while nobody ran, for the times of claims, which are no rows.
pub(super) struct ClockStep {
    seen_ms: i64,
    now_ms: i64,
    /// By how much the store's clock was behind the world's, and has caught up.
    ahead_ms: i64,
    /// By how much it was set back.
    back_ms: i64,
}

impl ClockStep {
    pub(super) fn is_none(&self) -> bool {
        self.ahead_ms == 0 && self.back_ms == 0
    }

    /// Moves the times of a claim; false when they stay as they are.
    pub(super) fn moves(&self, claim: &mut Claim) -> bool {
        if self.ahead_ms > 0 && claim.state == ClaimState::Held && claim.lease_until_ms > self.seen_ms {
            claim.lease_until_ms += self.ahead_ms;
            return true;
        }
        // Those that were made or completed in what is the future now; the others end when they were told they would.
        let last_ms = claim.completed_at_ms.map_or(claim.claimed_at_ms, |at_ms| at_ms.max(claim.claimed_at_ms));
        if self.back_ms == 0 || last_ms <= self.now_ms {
            return false;
        }
        claim.claimed_at_ms = claim.claimed_at_ms.min(self.now_ms);
        claim.completed_at_ms = claim.completed_at_ms.map(|at_ms| at_ms.min(self.now_ms));
        claim.lease_until_ms -= self.back_ms;
        claim.ends_ms = claim.ends_ms.map(|ends_ms| ends_ms - self.back_ms);
        true
    }
}

/// What was held by others when the clock of the process before lagged is theirs for as long as they were told: that clock was not set ahead,
/// and this one is. Gives by how much it is ahead.
fn catch_up(db: &Connection, seen_ms: i64, now_ms: i64) -> rusqlite::Result<i64> {
    let lag = "SELECT ifnull((SELECT value FROM meta WHERE name = 'clock_lag'), 0)";
    let lag_ms: i64 = db.query_row(lag, [], |row| row.get(0))?;
    let ahead_ms = lag_ms.min(now_ms - seen_ms);
    if ahead_ms < LAG_MS {
        return Ok(0);
    }
    db.execute("UPDATE leases SET ends = ends + ?1 WHERE outside AND ends > ?2", [ahead_ms, seen_ms])?;
    Ok(ahead_ms)
}

/// Keeps waits as long as they were meant when the clock was set back while nobody ran: times of the store lie in the future then.
/// Claims are to be moved by what it gives.
pub(super) fn follow(db: &Connection, now_ms: i64) -> rusqlite::Result<ClockStep> {
    let seen_ms = last_seen(db)?;
    let ahead_ms = catch_up(db, seen_ms, now_ms)?;
    let back_ms = (seen_ms - now_ms).max(0);
    if back_ms > 0 {
        tracing::warn!(back_ms, "the clock was set back since hapax last ran; what waits is moved with it");
        // All of them, so that whose turn came first is still first. What a person wants sent at a certain time stays where it is.
        db.execute("UPDATE inbox SET due = due - ?1", [back_ms])?;
        let ends = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let held: Vec<(i64, i64)> =
            db.prepare("SELECT item, ends FROM leases")?.query_map([], ends)?.collect::<Result<_, _>>()?;
        for (item, ends) in held {
            let ends = end_after_set_back(ends, back_ms, now_ms);
            db.execute("UPDATE leases SET ends = ?2 WHERE item = ?1", [item, ends])?;
        }
        db.execute("UPDATE outbox SET due = due - ?1 WHERE due IS NOT NULL AND (lane IS NOT NULL OR unknown)", [back_ms])?;
        db.execute("UPDATE early SET heard = ?1 WHERE heard > ?1", [now_ms])?;
        // Keys that were claimed in what is the future now are remembered for their window from now on, and those before as they were. Moved
        // keys may have been claimed at any time: where there are some, all are remembered for longer.
        db.execute(
            "UPDATE periods SET opened = ?1, moved_s = CASE WHEN EXISTS (SELECT 1 FROM meta WHERE name = 'moved_until' AND value > 0)
                 THEN moved_s ELSE max(moved_s - (opened - ?1) / 1000, ?2) END WHERE opened > ?1",
            params![now_ms, -MOVED_MAX_S],
        )?;
    }
    write(db, now_ms, 0)?;
    Ok(ClockStep { seen_ms, now_ms, ahead_ms, back_ms })
}
