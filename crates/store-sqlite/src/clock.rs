//! What a clock that was set between two runs does to the times on disk. Within a run it never goes backwards.

use hapax_store::end_after_set_back;
use rusqlite::{Connection, params};

/// How much of the time that passes may be missing from the mark.
const MARK_EVERY_MS: i64 = 1_000;
/// How far the ends of keys may be moved; the window of a claim has room for that (`keys.rs`).
const MOVED_MAX_S: i64 = 20 * 365 * 86_400;

/// The store's time, written down now and then: a clock that shows less at the next start was set back.
#[derive(Default)]
pub(super) struct Mark {
    written_ms: i64,
    /// Changes of the connection when it was written.
    changes: u64,
}

impl Mark {
    /// Writes the time with a batch that writes anyway.
    pub(super) fn write_some(&mut self, db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
        if now_ms - self.written_ms >= MARK_EVERY_MS && db.total_changes() != self.changes {
            write(db, now_ms)?;
            *self = Self { written_ms: now_ms, changes: db.total_changes() };
        }
        Ok(())
    }
}

/// Writes the time down now.
pub(super) fn write(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('clock', ?1)")?.execute([now_ms])?;
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

/// Keeps waits as long as they were meant when the clock was set back while nobody ran: times of the store lie in the future then.
pub(super) fn follow(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    let back_ms = last_seen(db)? - now_ms;
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
    write(db, now_ms)
}
