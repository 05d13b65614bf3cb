//! Identity: which keys are taken. Exact sets in memory for the open period, sorted tables with filters for the closed ones.
//!
//! A random unique index would write a page per key; this appends 48 bytes, all keys of a batch in one row. See `docs/decisions/0001`.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::filter::Filter;
use super::many_rows::{Insert, insert_rows};
use super::numbering::Numbering;

pub(super) type Key = [u8; 32];
type KeyMap = HashMap<Key, Claim, BuildHasherDefault<KeyIsHash>>;

/// Keys are BLAKE3 output: their first eight bytes are as good as any hash of them.
#[derive(Default)]
pub(super) struct KeyIsHash(u64);

impl Hasher for KeyIsHash {
    /// An array is hashed as its length and then its bytes; the last write, the bytes, is what counts.
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Who holds a key and until when, in 16 bytes: half of the memory of an open period is this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The place of the event's number in the upper 40 bits, see `numbering.rs`; its window in minutes in the lower 24.
    place_and_window: u64,
    pub(super) fingerprint: u32,
    pub(super) at_s: u32,
}

const WINDOW_BITS: u32 = 24;
const CLAIM_BYTES: usize = 16;
/// A key and its claim, as they stand in logs one behind the other.
pub(super) const ENTRY_BYTES: usize = 32 + CLAIM_BYTES;
/// Places of numbers are below it: the rest of their eight bytes holds the window.
const PLACE_LIMIT: u64 = 1 << (u64::BITS - WINDOW_BITS);

impl Claim {
    pub(super) fn new(place: u64, fingerprint: u32, at_ms: i64, window_ms: i64) -> Self {
        // Rounded up: a key is never forgotten early.
        let at_s = (at_ms / 1_000).clamp(0, i64::from(u32::MAX)) as u32;
        let minutes = ((window_ms + 1_000 + 59_999) / 60_000).clamp(1, (1 << WINDOW_BITS) - 1) as u64;
        Self { place_and_window: (place << WINDOW_BITS) | minutes, fingerprint, at_s }
    }

    /// A claim that ends at this time, or up to a minute later; nothing when it has no room for that.
    pub(super) fn until(place: u64, fingerprint: u32, at_ms: i64, expires_ms: i64) -> Option<Self> {
        let at_s = u32::try_from(at_ms / 1_000).ok()?;
        let window_ms = expires_ms - i64::from(at_s) * 1_000;
        let minutes = u64::try_from((window_ms + 59_999) / 60_000).ok()?.max(1);
        let fits = place < PLACE_LIMIT && minutes < 1 << WINDOW_BITS;
        fits.then_some(Self { place_and_window: (place << WINDOW_BITS) | minutes, fingerprint, at_s })
    }

    pub(super) fn place(self) -> u64 {
        self.place_and_window >> WINDOW_BITS
    }

    pub(super) fn expires_s(self) -> i64 {
        i64::from(self.at_s) + self.minutes() * 60
    }

    fn minutes(self) -> i64 {
        (self.place_and_window & ((1 << WINDOW_BITS) - 1)) as i64
    }

    /// The same claim with an end that is so much later, rounded up to minutes.
    fn later_by(self, seconds: i64) -> Self {
        let minutes = (self.minutes() + (seconds + 59) / 60).clamp(1, (1 << WINDOW_BITS) - 1) as u64;
        Self { place_and_window: (self.place() << WINDOW_BITS) | minutes, ..self }
    }

    fn to_bytes(self) -> [u8; CLAIM_BYTES] {
        let mut bytes = [0; CLAIM_BYTES];
        bytes[..8].copy_from_slice(&self.place_and_window.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[12..].copy_from_slice(&self.at_s.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (place, rest) = bytes.split_first_chunk()?;
        let (fingerprint, rest) = rest.split_first_chunk()?;
        Some(Self {
            place_and_window: u64::from_le_bytes(*place),
            fingerprint: u32::from_le_bytes(*fingerprint),
            at_s: u32::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

/// All keys that are taken.
pub(super) struct KeySet {
    open: Open,
    /// Takes the place of `open` with the next commit.
    opening: Option<Open>,
    closing: Option<Closing>,
    /// Oldest first.
    sealed: Vec<Sealed>,
    /// Keys put in since the last commit, to be taken out again if it fails.
    uncommitted: Vec<Key>,
    /// The place of the first of them, and all of them as they are to stand in the log.
    block: Option<(u64, Vec<u8>)>,
    /// Keys put in since the last step of sealing.
    since_step: usize,
    size: PeriodSize,
    pub(super) numbering: Numbering,
}

/// When a period is closed.
#[derive(Clone, Copy, Debug)]
pub struct PeriodSize {
    pub keys: usize,
    pub ms: i64,
}

impl Default for PeriodSize {
    fn default() -> Self {
        // 458,752 keys fill a table of 2^19 places to seven eighths: 26 MB, and it never grows.
        Self { keys: 458_752, ms: 24 * 3_600_000 }
    }
}

struct Open {
    period: i64,
    opened_ms: i64,
    /// See the column of this name; here and below, `expires_s` is what came of it.
    moved_s: i64,
    expires_s: i64,
    keys: KeyMap,
    insert: String,
}

/// The number of a period that is not sealed, when it was opened, and by how much its claims' ends are moved.
type Log = (i64, i64, i64);

/// A full period on its way from the log to the sorted table.
struct Closing {
    period: i64,
    moved_s: i64,
    expires_s: i64,
    keys: Arc<KeyMap>,
    sorted: Option<Sorted>,
    written: usize,
    /// Where `written` will stand after the next commit.
    writing: usize,
}

pub(super) struct Sorted {
    rows: Vec<(Key, Claim)>,
    filter: Filter,
}

struct Sealed {
    period: i64,
    keys: u64,
    moved_s: i64,
    expires_s: i64,
    filter: Filter,
    select: String,
}

impl KeySet {
    /// Reads the filters of closed periods and the logs of open ones.
    pub(super) fn load(db: &Connection, size: PeriodSize, now_ms: i64) -> rusqlite::Result<Self> {
        let mut sealed = Vec::new();
        let mut logs = Vec::new();
        let mut periods =
            db.prepare("SELECT period, opened, keys, expires, sealed, filter, moved_s FROM periods ORDER BY period")?;
        let mut rows = periods.query([])?;
        while let Some(row) = rows.next()? {
            let (period, moved_s): (i64, i64) = (row.get(0)?, row.get(6)?);
            if row.get(4)? {
                let filter = row.get_ref(5)?.as_blob_or_null()?.and_then(Filter::from_bytes);
                let filter = filter.map_or_else(|| rebuild_filter(db, period, row.get(2)?), Ok)?;
                sealed.push(Sealed::new(period, row.get(2)?, moved_s, row.get::<_, i64>(3)? + moved_s, filter));
            } else {
                logs.push((period, row.get(1)?, moved_s));
            }
        }
        let open = match logs.pop() {
            Some(log) => Open::load(db, log, size)?,
            None => Open::create(db, sealed.last().map_or(1, |last| last.period + 1), now_ms, size)?,
        };
        let closing = match logs.pop() {
            Some(log) => Some(Closing::of(Open::load(db, log, size)?)),
            None => None,
        };
        Ok(Self {
            open,
            opening: None,
            closing,
            sealed,
            uncommitted: Vec::new(),
            block: None,
            since_step: 0,
            size,
            numbering: Numbering::load(db)?,
        })
    }

    /// Finds who holds the key now.
    pub(super) fn find(&self, db: &Connection, key: &Key, now_s: i64) -> rusqlite::Result<Option<Claim>> {
        let open = self.open.keys.get(key).map(|claim| (claim, self.open.moved_s));
        let closing = || self.closing.as_ref().and_then(|closing| Some((closing.keys.get(key)?, closing.moved_s)));
        if let Some((claim, _)) = open.or_else(closing).filter(|(claim, moved_s)| claim.expires_s() + moved_s > now_s) {
            return Ok(Some(*claim));
        }
        for period in self.sealed.iter().rev().filter(|period| period.expires_s > now_s && period.filter.may_hold(key)) {
            let found =
                db.prepare_cached(&period.select)?.query_row([key], |row| Ok(Claim::from_bytes(row.get_ref(0)?.as_blob()?)));
            let holds = |claim: &Claim| claim.expires_s() + period.moved_s > now_s;
            if let Some(claim) = found.optional()?.flatten().filter(holds) {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    /// Takes a key that [`KeySet::find`] found free; it is in the log once [`KeySet::append`] was called.
    pub(super) fn insert(&mut self, key: &Key, claim: Claim) {
        // It ends when it says, whatever the others of its period are moved by.
        let claim = if self.open.moved_s < 0 { claim.later_by(-self.open.moved_s) } else { claim };
        let (_, block) = self.block.get_or_insert_with(|| (claim.place(), Vec::with_capacity(64 * ENTRY_BYTES)));
        block.extend_from_slice(key);
        block.extend_from_slice(&claim.to_bytes());
        self.open.keys.insert(*key, claim);
        self.open.expires_s = self.open.expires_s.max(claim.expires_s() + self.open.moved_s);
        self.uncommitted.push(*key);
        self.since_step += 1;
    }

    /// Writes what was put in since the last commit to the log.
    pub(super) fn append(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let Some((place, block)) = self.block.take() else { return Ok(()) };
        db.prepare_cached(&self.open.insert)?.execute(params![place as i64, block])?;
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        self.uncommitted.clear();
        if let Some(next) = self.opening.take() {
            self.closing = Some(Closing::of(std::mem::replace(&mut self.open, next)));
        }
        let Some(closing) = &mut self.closing else { return };
        closing.written = closing.writing;
        if closing.sorted.as_ref().is_some_and(|sorted| sorted.rows.len() == closing.written)
            && let Some(Closing { period, moved_s, expires_s, sorted: Some(sorted), .. }) = self.closing.take()
        {
            self.sealed.push(Sealed::new(period, sorted.rows.len() as u64, moved_s, expires_s, sorted.filter));
        }
    }

    pub(super) fn rolled_back(&mut self) {
        for key in self.uncommitted.drain(..) {
            self.open.keys.remove(&key);
        }
        self.block = None;
        self.opening = None;
        if let Some(closing) = &mut self.closing {
            closing.writing = closing.written;
        }
    }

    pub(super) fn len(&self) -> u64 {
        let closing = self.closing.as_ref().map_or(0, |closing| closing.keys.len());
        (self.open.keys.len() + closing) as u64 + self.sealed.iter().map(|period| period.keys).sum::<u64>()
    }

    /// True while no key is on its way from one table to another.
    pub(super) fn is_at_rest(&self, now_ms: i64) -> bool {
        self.closing.is_none() && self.opening.is_none() && !self.wants_closing(now_ms)
    }

    /// True when the open period is full or old enough, and the one before it is sealed.
    pub(super) fn wants_closing(&self, now_ms: i64) -> bool {
        let full = self.open.keys.len() >= self.size.keys;
        let old = !self.open.keys.is_empty() && now_ms - self.open.opened_ms >= self.size.ms;
        self.closing.is_none() && (full || old)
    }

    /// Closes the open period and opens the next; to be called in a transaction of its own. The next step is to sort what it gives.
    pub(super) fn close(&mut self, db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
        self.opening = Some(Open::create(db, self.open.period + 1, now_ms, self.size)?);
        Ok(())
    }

    /// What must be sorted, away from the writer, before sealing goes on.
    pub(super) fn to_sort(&self) -> Option<Arc<KeyMap>> {
        self.closing.as_ref().filter(|closing| closing.sorted.is_none()).map(|closing| Arc::clone(&closing.keys))
    }

    pub(super) fn take_sorted(&mut self, sorted: Sorted) {
        if let Some(closing) = &mut self.closing {
            closing.sorted = Some(sorted);
        }
    }

    /// True while there are sorted rows to be written.
    pub(super) fn is_sealing(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.sorted.is_some())
    }

    /// Writes the next rows of the sorted table; with the last ones, the log goes. At least `rows`, and always more than came in
    /// meanwhile, so that a period is sealed before the next one is full.
    pub(super) fn seal_some(&mut self, db: &Connection, rows: usize) -> rusqlite::Result<()> {
        let rows = rows.max(std::mem::take(&mut self.since_step) * 2);
        let Some(closing) = &mut self.closing else { return Ok(()) };
        let Some(sorted) = &closing.sorted else { return Ok(()) };
        let period = closing.period;
        // Several steps may fall into one batch, so they go on from what is being written, not from what was committed.
        let from = closing.writing;
        if from == sorted.rows.len() {
            return Ok(());
        }
        if from == 0 {
            db.execute_batch(&format!(
                "DROP TABLE IF EXISTS sealed_{period};
                 CREATE TABLE sealed_{period} (key BLOB PRIMARY KEY, claim BLOB NOT NULL) WITHOUT ROWID;"
            ))?;
        }
        closing.writing = (from + rows).min(sorted.rows.len());
        let insert = Insert::new(&format!("INSERT OR FAIL INTO sealed_{period} VALUES"), "(?, ?)", "");
        insert_rows(db, &insert, &sorted.rows[from..closing.writing], |(key, claim), places| {
            places.put(key)?;
            places.put(claim.to_bytes())
        })?;
        if closing.writing == sorted.rows.len() {
            db.execute_batch(&format!("DROP TABLE keys_{period}"))?;
            db.execute(
                "UPDATE periods SET sealed = 1, keys = ?2, expires = ?3, filter = ?4 WHERE period = ?1",
                params![period, sorted.rows.len() as i64, closing.expires_s - closing.moved_s, sorted.filter.to_bytes()],
            )?;
        }
        Ok(())
    }

    /// Forgets the oldest period whose keys have all expired; returns how many keys that were.
    pub(super) fn drop_expired(&mut self, db: &Connection, now_s: i64) -> rusqlite::Result<u64> {
        let Some(at) = self.sealed.iter().position(|period| period.expires_s <= now_s) else { return Ok(0) };
        let period = self.sealed[at].period;
        db.execute_batch(&format!("DROP TABLE sealed_{period}; DELETE FROM periods WHERE period = {period};"))?;
        // An expired period answers no question any more, so it may leave memory before the commit.
        Ok(self.sealed.remove(at).keys)
    }
}

/// The keys of a row of a log.
pub(super) fn entries(block: &[u8]) -> impl Iterator<Item = (Key, Claim)> {
    block.chunks_exact(ENTRY_BYTES).filter_map(|entry| {
        let (key, claim) = entry.split_first_chunk()?;
        Some((*key, Claim::from_bytes(claim)?))
    })
}

/// Sorts a closed period and builds its filter. Takes tens of milliseconds: not for the writer's thread.
pub(super) fn sort(keys: &KeyMap) -> Sorted {
    let mut rows: Vec<(Key, Claim)> = keys.iter().map(|(key, claim)| (*key, *claim)).collect();
    rows.sort_unstable_by_key(|row| row.0);
    let mut filter = Filter::for_keys(rows.len());
    rows.iter().for_each(|(key, _)| filter.insert(key));
    Sorted { rows, filter }
}

impl Open {
    fn create(db: &Connection, period: i64, now_ms: i64, size: PeriodSize) -> rusqlite::Result<Self> {
        db.execute_batch(&format!("CREATE TABLE keys_{period} (number INTEGER PRIMARY KEY, claim BLOB NOT NULL)"))?;
        db.execute("INSERT INTO periods VALUES (?1, ?2, 0, 0, 0, NULL, 0)", params![period, now_ms])?;
        Ok(Self::empty((period, now_ms, 0), size))
    }

    fn empty((period, opened_ms, moved_s): Log, size: PeriodSize) -> Self {
        // Full size at once: growing would stop the writer to move hundreds of thousands of keys. Untouched memory costs nothing.
        let keys = KeyMap::with_capacity_and_hasher(size.keys, BuildHasherDefault::default());
        Self { period, opened_ms, moved_s, expires_s: 0, keys, insert: format!("INSERT INTO keys_{period} VALUES (?1, ?2)") }
    }

    fn load(db: &Connection, log: Log, size: PeriodSize) -> rusqlite::Result<Self> {
        let mut open = Self::empty(log, size);
        let mut select = db.prepare(&format!("SELECT claim FROM keys_{}", open.period))?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            for (key, claim) in entries(row.get_ref(0)?.as_blob()?) {
                open.expires_s = open.expires_s.max(claim.expires_s() + open.moved_s);
                open.keys.insert(key, claim);
            }
        }
        Ok(open)
    }
}

impl Closing {
    fn of(open: Open) -> Self {
        let Open { period, moved_s, expires_s, keys, .. } = open;
        Self { period, moved_s, expires_s, keys: Arc::new(keys), sorted: None, written: 0, writing: 0 }
    }
}

impl Sealed {
    fn new(period: i64, keys: u64, moved_s: i64, expires_s: i64, filter: Filter) -> Self {
        Self { period, keys, moved_s, expires_s, filter, select: format!("SELECT claim FROM sealed_{period} WHERE key = ?1") }
    }
}

fn rebuild_filter(db: &Connection, period: i64, keys: u64) -> rusqlite::Result<Filter> {
    let mut filter = Filter::for_keys(keys as usize);
    let mut select = db.prepare(&format!("SELECT key FROM sealed_{period}"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if let Ok(key) = row.get_ref(0)?.as_blob()?.try_into() {
            filter.insert(key);
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_whose_closing_was_rolled_back_stays_open() {
        let db = Connection::open_in_memory().expect("a database");
        for schema in crate::open::MIGRATIONS {
            db.execute_batch(schema).expect("the schema");
        }
        let mut keys = KeySet::load(&db, PeriodSize { keys: 1, ms: 1_000 }, 0).expect("keys");
        let claim = Claim::new(1, 0, 0, 3_600_000);
        let put = |keys: &mut KeySet, key: u8| {
            keys.insert(&[key; 32], claim);
            keys.append(&db).expect("a table to write to");
        };
        put(&mut keys, 1);
        keys.committed();

        db.execute_batch("BEGIN").expect("begun");
        keys.close(&db, 0).expect("closed");
        db.execute_batch("ROLLBACK").expect("the disk was full");
        keys.rolled_back();
        assert!(keys.wants_closing(0), "it is tried again");
        keys.insert(&[2; 32], Claim::new(2, 0, 0, 3_600_000));
        keys.append(&db).expect("the open period's table is there");

        keys.close(&db, 0).expect("closed");
        keys.committed();
        keys.insert(&[3; 32], Claim::new(3, 0, 0, 3_600_000));
        keys.append(&db).expect("the next period's table is there");
        for key in 1..=3 {
            assert!(keys.find(&db, &[key; 32], 0).expect("found").is_some());
        }
    }
}
