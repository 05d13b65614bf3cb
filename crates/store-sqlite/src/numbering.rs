//! How the 40 bits that a claim has for its event lead to the event's number.
//!
//! A store that was never imported into counts from one, and its numbers fit as they are. Redis and Firestore hand out numbers of 60 bits,
//! and after a move this store goes on above them. So the claim of a moved key holds the place of its number in a table, which is read
//! only when a copy of it comes, and claims made here count from the highest number that was moved. A claim stays as small as it was,
//! and what is appended for each key too.

use rusqlite::{Connection, OptionalExtension, params};

use super::keys::Claim;

/// Rows that one step of forgetting takes.
const FORGOTTEN: usize = 10_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    /// Places up to this one are of moved keys.
    moved: u64,
    /// When the last of the moved keys ends; 0 when their numbers are forgotten.
    moved_until_s: i64,
    /// What the places above are counted from.
    from: u64,
}

impl Numbering {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut select = db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
        let mut read = |name: &str| -> rusqlite::Result<i64> {
            Ok(select.query_row([name], |row| row.get(0)).optional()?.unwrap_or_default())
        };
        let (moved, moved_until_s, from) = (read("moved_keys")?, read("moved_until")?, read("numbers_from")?);
        Ok(Self { moved: moved.cast_unsigned(), moved_until_s, from: from.cast_unsigned() })
    }

    pub(super) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut put = db.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?;
        put.execute(params!["moved_keys", self.moved as i64])?;
        put.execute(params!["moved_until", self.moved_until_s])?;
        put.execute(params!["numbers_from", self.from as i64])?;
        Ok(())
    }

    /// The place of a number that was made here.
    pub(super) fn place_of(&self, number: u64) -> u64 {
        number - self.from
    }

    /// The number of the event that holds a key; `None` when it was moved, has ended, and is forgotten.
    pub(super) fn number_of(&self, db: &Connection, claim: Claim) -> rusqlite::Result<Option<u64>> {
        let place = claim.place();
        if place > self.moved {
            return Ok(Some(place + self.from));
        }
        let mut select = db.prepare_cached("SELECT number FROM moved_numbers WHERE place = ?1")?;
        select.query_row([place as i64], |row| Ok(row.get::<_, i64>(0)?.cast_unsigned())).optional()
    }

    /// The place that a moved key gets.
    pub(super) fn next_moved(&self) -> u64 {
        self.moved + 1
    }

    pub(super) fn add_moved(&mut self, db: &Connection, number: u64, claim: Claim) -> rusqlite::Result<()> {
        db.prepare_cached("INSERT INTO moved_numbers VALUES (?1, ?2)")?.execute([claim.place() as i64, number as i64])?;
        self.moved = claim.place();
        self.moved_until_s = self.moved_until_s.max(claim.expires_s());
        Ok(())
    }

    /// Lets the numbers made here begin above this one.
    pub(super) fn begin_above(&mut self, last_number: u64) {
        self.from = last_number.saturating_sub(self.moved);
    }

    /// Forgets some of the numbers of moved keys when all of those have ended; true when there are more.
    pub(super) fn forget_moved(&mut self, db: &Connection, now_s: i64) -> rusqlite::Result<bool> {
        if self.moved_until_s == 0 || self.moved_until_s > now_s {
            return Ok(false);
        }
        let forget = "DELETE FROM moved_numbers WHERE place IN (SELECT place FROM moved_numbers LIMIT ?1)";
        let forgotten = db.prepare_cached(forget)?.execute([FORGOTTEN as i64])?;
        if forgotten < FORGOTTEN {
            self.moved_until_s = 0;
            self.write(db)?;
        }
        Ok(forgotten == FORGOTTEN)
    }
}
