//! What was learned of people and is not in their tables yet. A person nobody knew is a random page for each name, so that many are written
//! at once, in the order of the table.
//!
//! Until then they stand in memory, and as lessons in `learned`, appended batch by batch: after a crash they are learned again from there.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::keys::KeyIsHash;
use super::many_rows::insert_rows;
use super::names::{NameHash, WRITE_NAME, WRITE_NAME_OF};
use super::number_hash::NumberHash;

/// One thing that was learned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lesson<'l> {
    /// A thread that is new.
    Thread { thread: i64, channel: i64, account: &'l str, peer: &'l str },
    /// A name that leads to a thread from now on.
    Name { thread: i64, account: &'l str, name: &'l str },
    /// A thread that is gone, with all names that led there.
    Gone { thread: i64 },
}

/// A name, and where it leads.
struct NewName {
    account: Arc<str>,
    name: Arc<str>,
    thread: i64,
}

#[derive(Default)]
pub(super) struct Learned {
    names: HashMap<NameHash, NewName, BuildHasherDefault<KeyIsHash>>,
    /// How many of them lead to a thread: most lead to new ones, so that nothing is to be looked for of an old one.
    of_thread: HashMap<i64, u32, BuildHasherDefault<NumberHash>>,
    /// Names to be written in this round, by thread and by name, as the two tables are sorted, the first ones last.
    by_thread: Vec<(i64, NameHash)>,
    by_name: Vec<NameHash>,
    /// What the batch has learned so far.
    lessons: Vec<u8>,
    /// The number of the last lessons in the table; `None`: there are none.
    appended: Option<u64>,
    /// The account that the last name belongs to: mostly the next one does, too.
    account: Option<Arc<str>>,
}

impl Learned {
    pub(super) fn leads_to(&self, hash: &NameHash) -> Option<i64> {
        self.names.get(hash).map(|new| new.thread)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Takes note of something for the case of a crash.
    pub(super) fn note(&mut self, lesson: &Lesson<'_>) {
        lesson.write(&mut self.lessons);
    }

    /// Takes note of a name, to be written later.
    pub(super) fn keep(&mut self, hash: NameHash, account: &str, name: &str, thread: i64) {
        self.note(&Lesson::Name { thread, account, name });
        self.learn(hash, account, name, thread);
    }

    /// The same of one that was noted before a crash.
    pub(super) fn learn(&mut self, hash: NameHash, account: &str, name: &str, thread: i64) {
        let account = self.shared(account);
        *self.of_thread.entry(thread).or_default() += 1;
        if let Some(before) = self.names.insert(hash, NewName { account, name: name.into(), thread }) {
            self.leads_elsewhere(before.thread);
        }
    }

    fn leads_elsewhere(&mut self, thread: i64) {
        if let Some(left) = self.of_thread.get_mut(&thread) {
            *left -= 1;
            if *left == 0 {
                self.of_thread.remove(&thread);
            }
        }
    }

    /// Takes note that a thread is gone, with its names. Where no lesson is left that could say otherwise after a crash, nothing is to be
    /// remembered: a purge of many would write one long row again and again.
    pub(super) fn note_gone(&mut self, thread: i64) {
        if self.appended.is_some() || !self.lessons.is_empty() {
            self.note(&Lesson::Gone { thread });
        }
    }

    pub(super) fn shared(&mut self, account: &str) -> Arc<str> {
        let kept = self.account.get_or_insert_with(|| account.into());
        if **kept != *account {
            *kept = account.into();
        }
        Arc::clone(kept)
    }

    /// The names that are to lead to a thread.
    pub(super) fn names_of(&self, thread: i64) -> impl Iterator<Item = &str> {
        let some = if self.of_thread.contains_key(&thread) { self.names.len() } else { 0 };
        self.names.values().take(some).filter(move |new| new.thread == thread).map(|new| &*new.name)
    }

    pub(super) fn forget(&mut self, hash: &NameHash) {
        if let Some(new) = self.names.remove(hash) {
            self.leads_elsewhere(new.thread);
        }
    }

    pub(super) fn forget_thread(&mut self, thread: i64) {
        if self.of_thread.remove(&thread).is_some() {
            self.names.retain(|_, new| new.thread != thread);
        }
    }

    /// Appends what the batch has learned; once for each commit.
    pub(super) fn append(&mut self, db: &Connection, last_number: u64) -> rusqlite::Result<()> {
        if self.lessons.is_empty() {
            return Ok(());
        }
        let append = "INSERT INTO learned VALUES (?1, ?2) ON CONFLICT (number) DO UPDATE SET lessons = CAST(lessons || excluded.lessons AS BLOB)";
        db.prepare_cached(append)?.execute(params![last_number as i64, self.lessons])?;
        self.lessons.clear();
        self.appended = Some(last_number);
        Ok(())
    }

    /// Forgets the lessons whose names and threads are in the tables.
    pub(super) fn forget_lessons(&mut self, db: &Connection, to_number: u64) -> rusqlite::Result<()> {
        db.prepare_cached("DELETE FROM learned WHERE number <= ?1")?.execute([to_number as i64])?;
        self.appended = self.appended.filter(|last| *last > to_number);
        Ok(())
    }

    /// Takes note of lessons that were found in the table.
    pub(super) fn note_found(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let last: Option<i64> = db.prepare_cached("SELECT max(number) FROM learned")?.query_row([], |row| row.get(0))?;
        self.appended = last.map(i64::cast_unsigned);
        Ok(())
    }

    pub(super) fn begin_round(&mut self) {
        let mut names: Vec<_> = self.names.iter().map(|(hash, new)| (&*new.account, &*new.name, *hash)).collect();
        names.sort_unstable_by(|one, other| (other.0, other.1).cmp(&(one.0, one.1)));
        self.by_name = names.into_iter().map(|(_, _, hash)| hash).collect();
        self.by_thread = self.names.iter().map(|(hash, new)| (new.thread, *hash)).collect();
        self.by_thread.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Writes some of this round's names by thread; gives how many.
    pub(super) fn write_by_thread(&mut self, db: &Connection, most: usize) -> rusqlite::Result<usize> {
        let from = self.by_thread.len().saturating_sub(most);
        let some = self.by_thread.split_off(from);
        // One that was forgotten since is not there.
        let left: Vec<&NewName> = some.iter().rev().filter_map(|(_, hash)| self.names.get(hash)).collect();
        insert_rows(db, WRITE_NAME_OF, &left, |new, places| {
            places.put(new.thread)?;
            places.put(&*new.name)
        })?;
        Ok(some.len())
    }

    /// Writes the next names of this round, with which they are no longer new; gives their threads.
    pub(super) fn write_by_name(&mut self, db: &Connection, most: usize) -> rusqlite::Result<Vec<(NameHash, i64)>> {
        let from = self.by_name.len().saturating_sub(most);
        let some = self.by_name.split_off(from);
        let left: Vec<(NameHash, NewName)> =
            some.into_iter().rev().filter_map(|hash| Some((hash, self.names.remove(&hash)?))).collect();
        insert_rows(db, WRITE_NAME, &left, |(_, new), places| {
            places.put(&*new.account)?;
            places.put(&*new.name)?;
            places.put(new.thread)
        })?;
        left.iter().for_each(|(_, new)| self.leads_elsewhere(new.thread));
        Ok(left.into_iter().map(|(hash, new)| (hash, new.thread)).collect())
    }

    pub(super) fn is_round_over(&self) -> bool {
        self.by_thread.is_empty() && self.by_name.is_empty()
    }
}

/// Tells all lessons that are left, in their order.
pub(super) fn read_lessons(db: &Connection, mut tell: impl FnMut(Lesson<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let mut select = db.prepare_cached("SELECT lessons FROM learned ORDER BY number")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let mut bytes = row.get_ref(0)?.as_blob()?;
        while let Some(lesson) = Lesson::read(&mut bytes) {
            tell(lesson)?;
        }
    }
    Ok(())
}

const THREAD: u8 = 1;
const NAME: u8 = 2;
const GONE: u8 = 3;

impl<'l> Lesson<'l> {
    fn write(&self, into: &mut Vec<u8>) {
        let text = |into: &mut Vec<u8>, text: &str| {
            into.extend_from_slice(&(text.len() as u32).to_le_bytes());
            into.extend_from_slice(text.as_bytes());
        };
        match *self {
            Lesson::Thread { thread, channel, account, peer } => {
                into.push(THREAD);
                into.extend_from_slice(&thread.to_le_bytes());
                into.extend_from_slice(&channel.to_le_bytes());
                text(into, account);
                text(into, peer);
            }
            Lesson::Name { thread, account, name } => {
                into.push(NAME);
                into.extend_from_slice(&thread.to_le_bytes());
                text(into, account);
                text(into, name);
            }
            Lesson::Gone { thread } => {
                into.push(GONE);
                into.extend_from_slice(&thread.to_le_bytes());
            }
        }
    }

    fn read(bytes: &mut &'l [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        *bytes = rest;
        let thread = number(bytes)?;
        match *kind {
            THREAD => Some(Lesson::Thread { thread, channel: number(bytes)?, account: text(bytes)?, peer: text(bytes)? }),
            NAME => Some(Lesson::Name { thread, account: text(bytes)?, name: text(bytes)? }),
            GONE => Some(Lesson::Gone { thread }),
            _ => None,
        }
    }
}

fn number(bytes: &mut &[u8]) -> Option<i64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(i64::from_le_bytes(*number))
}

fn text<'b>(bytes: &mut &'b [u8]) -> Option<&'b str> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lessons_are_read_as_they_were_written() {
        let lessons = [
            Lesson::Thread { thread: 7, channel: 1, account: "acc", peer: "ana" },
            Lesson::Name { thread: 7, account: "acc", name: "" },
            Lesson::Gone { thread: i64::MAX },
        ];
        let mut written = Vec::new();
        lessons.iter().for_each(|lesson| lesson.write(&mut written));
        let mut bytes = &*written;
        for lesson in &lessons {
            assert_eq!(Lesson::read(&mut bytes).as_ref(), Some(lesson));
        }
        assert_eq!(Lesson::read(&mut bytes), None);
    }
}
