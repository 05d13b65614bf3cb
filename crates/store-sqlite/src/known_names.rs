//! Which names lead somewhere, nearly: says "certainly nobody" of most that do not, without a look into their table.
//!
//! Filters that are full stand in `name_filters`, each as large as all before it together, so that there are few. What the last one holds
//! is in `young_names`, as hashes, a row for each round of writing; what is not written yet is among the lessons ([`super::learned`]).

use rusqlite::{Connection, params};

use super::filter::Filter;
use super::names::{NameHash, name_hash};

/// Names in the first filter.
const FIRST: usize = 1 << 18;
/// Set once every name of the table is in a filter.
const COMPLETE: &str = "names_known";
const HASH_BYTES: usize = 16;

#[derive(Default)]
pub(super) struct KnownNames {
    /// False while nothing was read: then any name may be known.
    is_complete: bool,
    full: Vec<Filter>,
    /// Names in all of `full`, as many as fit.
    room_before: usize,
    young: Option<Filter>,
    /// Names in the young one that are in the table.
    young_count: usize,
    /// Hashes of names that were written in this round.
    written: Vec<u8>,
    /// Names that were forgotten since the last round.
    forgotten: usize,
}

impl KnownNames {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut known = Self { is_complete: is_complete(db)?, ..Self::default() };
        let mut full = db.prepare_cached("SELECT filter, room FROM name_filters ORDER BY filter_number")?;
        let mut rows = full.query([])?;
        while let Some(row) = rows.next()? {
            known.room_before += row.get::<_, usize>(1)?;
            match Filter::from_bytes(row.get_ref(0)?.as_blob()?) {
                Some(filter) => known.full.push(filter),
                None => known.is_complete = false,
            }
        }
        let mut young = db.prepare_cached("SELECT hashes FROM young_names")?;
        let mut rows = young.query([])?;
        while let Some(row) = rows.next()? {
            for hash in row.get_ref(0)?.as_blob()?.as_chunks::<HASH_BYTES>().0 {
                known.insert(hash);
                known.young_count += 1;
            }
        }
        Ok(known)
    }

    /// False means that the name certainly leads nowhere.
    pub(super) fn may_hold(&self, hash: &NameHash) -> bool {
        let (block, bits) = halves(hash);
        !self.is_complete || self.young.iter().chain(&self.full).any(|filter| filter.may_hold_halves(block, bits))
    }

    pub(super) fn insert(&mut self, hash: &NameHash) {
        let (block, bits) = halves(hash);
        let room = self.room();
        // Filters are made for keys, whose tables are larger: here one in a hundred may be looked for in vain.
        self.young.get_or_insert_with(|| Filter::for_keys(room / 4 * 3)).insert_halves(block, bits);
    }

    fn room(&self) -> usize {
        self.room_before.max(FIRST)
    }

    /// Takes note of a name that is in the table now.
    pub(super) fn note_written(&mut self, hash: &NameHash) {
        self.written.extend_from_slice(hash);
    }

    /// Takes note of a name that leads nowhere any more: filters cannot forget.
    pub(super) fn note_forgotten(&mut self) {
        self.forgotten += 1;
    }

    /// When half of what the filters hold is gone, they are made anew when the file is opened next.
    fn count_forgotten(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let forgotten = std::mem::take(&mut self.forgotten);
        if forgotten == 0 {
            return Ok(());
        }
        let add =
            "INSERT INTO meta VALUES ('names_forgotten', ?1) ON CONFLICT (name) DO UPDATE SET value = value + ?1 RETURNING value";
        let all: usize = db.prepare_cached(add)?.query_row([forgotten], |row| row.get(0))?;
        if all > self.room() / 2 {
            doubt(db)?;
        }
        Ok(())
    }

    /// Writes down what was written in the round that ends.
    pub(super) fn end_round(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.count_forgotten(db)?;
        if self.written.is_empty() {
            return Ok(());
        }
        self.young_count += self.written.len() / HASH_BYTES;
        db.prepare_cached("INSERT INTO young_names (hashes) VALUES (?1)")?.execute([&self.written])?;
        self.written.clear();
        let room = self.room();
        if self.young_count < room {
            return Ok(());
        }
        if let Some(filter) = self.young.take() {
            db.prepare_cached("INSERT INTO name_filters (filter, room) VALUES (?1, ?2)")?
                .execute(params![filter.to_bytes(), room])?;
            db.execute("DELETE FROM young_names", [])?;
            self.full.push(filter);
            self.room_before += room;
            self.young_count = 0;
        }
        Ok(())
    }
}

fn halves(hash: &NameHash) -> (u64, u64) {
    let (block, bits) = hash.split_at(HASH_BYTES / 2);
    let number = |half: &[u8]| half.try_into().map_or(0, u64::from_le_bytes);
    (number(block), number(bits))
}

fn is_complete(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare("SELECT 1 FROM meta WHERE name = ?1")?.exists([COMPLETE])
}

/// Makes the filter of a table that was filled without one, if that was not done yet.
pub(super) fn complete(db: &Connection) -> rusqlite::Result<()> {
    if is_complete(db)? {
        return Ok(());
    }
    let count: usize = db.query_row("SELECT count(*) FROM names", [], |row| row.get(0))?;
    let mut known = KnownNames { room_before: count, ..KnownNames::default() };
    let mut select = db.prepare("SELECT account, name FROM names")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        known.insert(&name_hash(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?));
    }
    db.execute_batch("DELETE FROM name_filters; DELETE FROM young_names; DELETE FROM meta WHERE name = 'names_forgotten'")?;
    if let Some(filter) = known.young {
        let room = count.max(FIRST);
        db.execute("INSERT INTO name_filters (filter, room) VALUES (?1, ?2)", params![filter.to_bytes(), room])?;
    }
    db.execute("INSERT INTO meta VALUES (?1, 1)", [COMPLETE])?;
    Ok(())
}

/// Says that names came into the table that no filter knows.
pub(super) fn doubt(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM meta WHERE name = ?1", [COMPLETE]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: usize = 3 * FIRST;

    fn hash(n: usize) -> NameHash {
        name_hash("acc", &n.to_string())
    }

    #[test]
    fn what_was_learned_is_known_and_little_else_also_when_it_is_read_again() {
        let db = Connection::open_in_memory().expect("a database");
        for migration in super::super::open::MIGRATIONS {
            db.execute_batch(migration).expect("the schema");
        }
        assert!(KnownNames::load(&db).expect("read").may_hold(&hash(0)), "nobody has said that there is none");
        complete(&db).expect("complete");
        let mut known = KnownNames::load(&db).expect("read");
        assert!(!known.may_hold(&hash(0)));
        for n in 0..NAMES {
            known.insert(&hash(n));
            known.note_written(&hash(n));
            if n % 50_000 == 0 {
                known.end_round(&db).expect("written");
            }
        }
        known.end_round(&db).expect("written");
        assert!(known.full.len() < 3);
        for known in [known, KnownNames::load(&db).expect("read again")] {
            assert!((0..NAMES).all(|n| known.may_hold(&hash(n))));
            let wrong = (NAMES..NAMES + 100_000).filter(|n| known.may_hold(&hash(*n))).count();
            assert!(wrong < 3_000, "{wrong} of 100000 may be known");
        }
    }
}
