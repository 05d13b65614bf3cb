//! Which claims there are. By key in memory; what has changed lately in memory and in a log, one row for each batch; the rest in blocks of the
//! file, many claims in each. See `docs/decisions/0031`.
//!
//! *Invariant:* the last change of a claim is in the log until a block has it. So what the log says is never older than what a block says.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::{Connection, OptionalExtension, params};

use super::claim_entry::{Entry, Short, short};
use super::claim_rows;
use super::keys::KeyIsHash;

/// When claims are written into blocks, and how.
#[derive(Clone, Copy, Debug)]
pub struct ClaimSize {
    /// What has changed is written when the log has grown by so much.
    pub round_bytes: usize,
    /// Most bytes in a block of several claims.
    pub block_bytes: usize,
    /// Blocks that are written with one batch, unless more claims were changed by it.
    pub step_blocks: usize,
}

impl Default for ClaimSize {
    fn default() -> Self {
        // A block is what fits into a page.
        Self { round_bytes: 2 << 20, block_bytes: 8_000, step_blocks: 64 }
    }
}

pub(super) struct ClaimIndex {
    fences: HashMap<Short, i64, BuildHasherDefault<KeyIsHash>>,
    /// Bodies of entries that are not in a block yet, as they are now.
    young: BTreeMap<i64, Box<[u8]>>,
    /// None of them ends earlier.
    young_ends_ms: i64,
    /// What the batch has changed so far, as it is to stand in the log, and how many changes that is.
    changes: Vec<u8>,
    changed: usize,
    /// The last row of the log, and how many bytes came to it since the last round began.
    log_to: i64,
    log_bytes: usize,
    /// No block has a fence above.
    blocks_to: i64,
    round: Option<Round>,
    /// What was there before the batch, to be put back if it fails.
    undo: Vec<Undo>,
    most: Arc<AtomicUsize>,
    size: ClaimSize,
}

/// Young claims on their way into blocks, in the order of their fences.
#[derive(Clone, Copy)]
struct Round {
    next: i64,
    to: i64,
    /// What is in the log up to here is in blocks once the round is over.
    log_to: i64,
}

enum Undo {
    Fence(Short, Option<i64>),
    Young(i64, Option<Box<[u8]>>),
}

impl ClaimIndex {
    pub(super) fn load(db: &Connection, size: ClaimSize, most: Arc<AtomicUsize>) -> rusqlite::Result<Self> {
        take_over(db, size)?;
        let mut index = Self {
            fences: HashMap::default(),
            young: BTreeMap::new(),
            young_ends_ms: i64::MAX,
            changes: Vec::new(),
            changed: 0,
            log_to: 0,
            log_bytes: 0,
            blocks_to: i64::MIN,
            round: None,
            undo: Vec::new(),
            most,
            size,
        };
        let mut blocks = db.prepare("SELECT claims FROM claim_blocks ORDER BY first")?;
        let mut rows = blocks.query([])?;
        while let Some(row) = rows.next()? {
            for entry in Entry::all(row.get_ref(0)?.as_blob()?) {
                index.fences.insert(short(name_of(entry)?), entry.fence);
                index.blocks_to = entry.fence;
            }
        }
        let mut log = db.prepare("SELECT number, changes FROM claim_changes ORDER BY number")?;
        let mut rows = log.query([])?;
        while let Some(row) = rows.next()? {
            let changes = row.get_ref(1)?.as_blob()?;
            for entry in Entry::all(changes) {
                match entry.gone() {
                    Some(at) => index.remove(at, entry.fence),
                    None => index.put(short(name_of(entry)?), entry.fence, entry.body.into()),
                }
            }
            index.log_to = row.get(0)?;
            index.log_bytes += changes.len();
        }
        index.changes.clear();
        index.committed();
        Ok(index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.fences.len() >= self.most.load(Ordering::Relaxed)
    }

    pub(super) fn is_taken(&self, at: &Short) -> bool {
        self.fences.contains_key(at)
    }

    /// Finds what is kept under a key, and lets it be read.
    pub(super) fn find<T>(
        &self,
        db: &Connection,
        at: &Short,
        read: impl FnOnce(Entry<'_>) -> Option<T>,
    ) -> rusqlite::Result<Option<T>> {
        let Some(&fence) = self.fences.get(at) else { return Ok(None) };
        if let Some(body) = self.young.get(&fence) {
            return read(Entry { fence, body }).map(Some).ok_or_else(unreadable);
        }
        let mut select = db.prepare_cached(BLOCK_OF)?;
        let mut rows = select.query([fence])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let found = Entry::all(row.get_ref(1)?.as_blob()?).find(|entry| entry.fence == fence);
        found.map(|entry| read(entry).ok_or_else(unreadable)).transpose()
    }

    pub(super) fn put(&mut self, at: Short, fence: i64, body: Box<[u8]>) {
        let entry = Entry { fence, body: &body };
        self.young_ends_ms = self.young_ends_ms.min(entry.ends_ms().unwrap_or(i64::MAX));
        entry.write(&mut self.changes);
        self.changed += 1;
        self.set_young(fence, Some(body));
        self.undo.push(Undo::Fence(at, self.fences.insert(at, fence)));
    }

    pub(super) fn remove(&mut self, at: Short, fence: i64) {
        Entry { fence, body: &at }.write(&mut self.changes);
        self.changed += 1;
        // A block that may have it has to be told.
        self.set_young(fence, (fence <= self.blocks_to).then(|| at.into()));
        self.forget(at, fence);
    }

    /// Another claim may have the key by now.
    fn forget(&mut self, at: Short, fence: i64) {
        if self.fences.get(&at) == Some(&fence) {
            self.undo.push(Undo::Fence(at, self.fences.remove(&at)));
        }
    }

    fn set_young(&mut self, fence: i64, body: Option<Box<[u8]>>) {
        let before = set(&mut self.young, fence, body);
        self.undo.push(Undo::Young(fence, before));
    }

    /// Removes about `max` that are over; gives how many.
    pub(super) fn purge(&mut self, db: &Connection, now_ms: i64, max: usize) -> rusqlite::Result<usize> {
        let mut removed = if self.young_ends_ms <= now_ms { self.purge_young(now_ms, max)? } else { 0 };
        while removed < max {
            let first_over = "SELECT first, claims FROM claim_blocks WHERE ends <= ?1 ORDER BY ends LIMIT 1";
            let found = db.prepare_cached(first_over)?.query_row([now_ms], read_block).optional()?;
            let Some((first, claims)) = found else { break };
            remove_block(db, first)?;
            let mut blocks = Blocks::new(db, self.size);
            for entry in Entry::all(&claims) {
                if !entry.is_over(now_ms) {
                    blocks.push(entry)?;
                    continue;
                }
                removed += 1;
                // Where it was changed since, that is written in its place.
                if !self.young.contains_key(&entry.fence) {
                    self.forget(short(name_of(entry)?), entry.fence);
                }
            }
            blocks.end()?;
        }
        Ok(removed)
    }

    fn purge_young(&mut self, now_ms: i64, max: usize) -> rusqlite::Result<usize> {
        let entries = || self.young.iter().map(|(fence, body)| Entry { fence: *fence, body });
        let over = entries().filter(|entry| entry.is_over(now_ms)).take(max);
        let over: Vec<(Short, i64)> =
            over.map(|entry| Ok((short(name_of(entry)?), entry.fence))).collect::<rusqlite::Result<_>>()?;
        if over.len() < max {
            let ends = entries().filter_map(Entry::ends_ms).filter(|ends_ms| *ends_ms > now_ms);
            self.young_ends_ms = ends.min().unwrap_or(i64::MAX);
        }
        over.iter().for_each(|(at, fence)| self.remove(*at, *fence));
        Ok(over.len())
    }

    /// Writes what the batch has changed to the log, and now and then some of what has changed lately into blocks.
    pub(super) fn write_some(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let most = self.size.step_blocks.max(self.changed);
        self.append(db)?;
        if self.round.is_none() && self.log_bytes >= self.size.round_bytes {
            self.begin_round();
        }
        if self.round.is_some() { self.write_blocks(db, most) } else { Ok(()) }
    }

    /// Writes all of it, for whoever is about to read.
    pub(super) fn write_all(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.append(db)?;
        while self.round.is_some() || !self.young.is_empty() {
            if self.round.is_none() {
                self.begin_round();
            }
            self.write_blocks(db, usize::MAX)?;
        }
        Ok(())
    }

    fn append(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        self.log_to += 1;
        db.prepare_cached("INSERT INTO claim_changes VALUES (?1, ?2)")?.execute(params![self.log_to, self.changes])?;
        self.log_bytes += self.changes.len();
        self.changes.clear();
        self.changes.shrink_to(self.size.round_bytes);
        Ok(())
    }

    fn begin_round(&mut self) {
        let to = self.young.last_key_value().map_or(i64::MIN, |(fence, _)| *fence);
        self.round = Some(Round { next: i64::MIN, to, log_to: self.log_to });
        self.log_bytes = 0;
    }

    /// Goes on with the round, in at most so many blocks that are there.
    fn write_blocks(&mut self, db: &Connection, most: usize) -> rusqlite::Result<()> {
        let Some(mut round) = self.round.take() else { return Ok(()) };
        for _ in 0..most {
            let next = if round.next <= round.to { self.young.range(round.next..=round.to).next() } else { None };
            let Some((&fence, _)) = next else {
                db.prepare_cached("DELETE FROM claim_changes WHERE number <= ?1")?.execute([round.log_to])?;
                return Ok(());
            };
            let next = "SELECT first FROM claim_blocks WHERE first > ?1 ORDER BY first LIMIT 1";
            let next: Option<i64> = db.prepare_cached(next)?.query_row([fence], |row| row.get(0)).optional()?;
            let to = next.map_or(round.to, |next| round.to.min(next - 1));
            self.merge(db, fence, to)?;
            round.next = to.saturating_add(1);
        }
        self.round = Some(round);
        Ok(())
    }

    /// Writes the young claims of these fences into the block that they belong to, and as many more as that takes.
    fn merge(&mut self, db: &Connection, from: i64, to: i64) -> rusqlite::Result<()> {
        let block = db.prepare_cached(BLOCK_OF)?.query_row([from], read_block).optional()?;
        if let Some((first, _)) = &block {
            remove_block(db, *first)?;
        }
        let mut there = block.iter().flat_map(|(_, claims)| Entry::all(claims)).peekable();
        let mut blocks = Blocks::new(db, self.size);
        for (fence, body) in self.young.range(from..=to) {
            while let Some(before) = there.next_if(|there| there.fence < *fence) {
                blocks.push(before)?;
            }
            there.next_if(|there| there.fence == *fence);
            let entry = Entry { fence: *fence, body };
            if entry.gone().is_none() {
                blocks.push(entry)?;
            }
        }
        for after in there {
            blocks.push(after)?;
        }
        blocks.end()?;
        self.blocks_to = self.blocks_to.max(to);
        let written: Vec<i64> = self.young.range(from..=to).map(|(fence, _)| *fence).collect();
        written.into_iter().for_each(|fence| self.set_young(fence, None));
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        self.undo.clear();
        self.changed = 0;
    }

    pub(super) fn rolled_back(&mut self) {
        for undo in std::mem::take(&mut self.undo).into_iter().rev() {
            match undo {
                Undo::Young(fence, body) => {
                    set(&mut self.young, fence, body);
                }
                Undo::Fence(at, before) => {
                    match before {
                        Some(fence) => self.fences.insert(at, fence),
                        None => self.fences.remove(&at),
                    };
                }
            }
        }
        // All that is young was there before, or is again: another round begins with it.
        (self.round, self.changed, self.young_ends_ms) = (None, 0, i64::MIN);
        self.changes.clear();
    }
}

const BLOCK_OF: &str = "SELECT first, claims FROM claim_blocks WHERE first <= ?1 ORDER BY first DESC LIMIT 1";

fn read_block(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Vec<u8>)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn remove_block(db: &Connection, first: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM claim_blocks WHERE first = ?1")?.execute([first])?;
    Ok(())
}

fn set(young: &mut BTreeMap<i64, Box<[u8]>>, fence: i64, body: Option<Box<[u8]>>) -> Option<Box<[u8]>> {
    match body {
        Some(body) => young.insert(fence, body),
        None => young.remove(&fence),
    }
}

fn name_of<'e>(entry: Entry<'e>) -> rusqlite::Result<&'e [u8]> {
    entry.name().ok_or_else(unreadable)
}

pub(super) fn unreadable() -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(1, "claims".to_owned(), rusqlite::types::Type::Blob)
}

/// Writes entries, in the order of their fences, into as few blocks as they take.
struct Blocks<'d> {
    db: &'d Connection,
    most_bytes: usize,
    first: i64,
    ends_ms: Option<i64>,
    claims: Vec<u8>,
}

impl<'d> Blocks<'d> {
    fn new(db: &'d Connection, size: ClaimSize) -> Self {
        Self { db, most_bytes: size.block_bytes, first: 0, ends_ms: None, claims: Vec::with_capacity(size.block_bytes) }
    }

    fn push(&mut self, entry: Entry<'_>) -> rusqlite::Result<()> {
        if self.claims.len() + entry.body.len() > self.most_bytes {
            self.end()?;
        }
        if self.claims.is_empty() {
            (self.first, self.ends_ms) = (entry.fence, None);
        }
        self.ends_ms = self.ends_ms.into_iter().chain(entry.ends_ms()).min();
        entry.write(&mut self.claims);
        Ok(())
    }

    fn end(&mut self) -> rusqlite::Result<()> {
        if self.claims.is_empty() {
            return Ok(());
        }
        let insert = "INSERT INTO claim_blocks VALUES (?1, ?2, ?3)";
        self.db.prepare_cached(insert)?.execute(params![self.first, self.ends_ms, self.claims])?;
        self.claims.clear();
        Ok(())
    }
}

/// Puts what an older version left into blocks.
fn take_over(db: &Connection, size: ClaimSize) -> rusqlite::Result<()> {
    let mut blocks = Blocks::new(db, size);
    let is_there = claim_rows::read_all(db, |fence, body| blocks.push(Entry { fence, body }))?;
    blocks.end()?;
    if is_there { db.execute_batch("DROP TABLE claims") } else { Ok(()) }
}

#[cfg(test)]
mod tests;
