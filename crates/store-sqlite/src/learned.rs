//! What was learned of people and is not in their tables yet. A person nobody knew is a random page for each name, so that many are written
//! at once, in the order of the table.
//!
//! Until then they stand in memory, and as lessons in `learned`, appended batch by batch: after a crash they are learned again from there.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, LazyLock};

use rusqlite::{Connection, params};

use super::lessons::{Lesson, Lessons, Reader};
use super::many_rows::{Insert, insert_rows};
use super::names::NameHash;
use super::number_hash::NumberHash;

/// A name, and where it leads.
pub(super) struct NewName {
    pub(super) hash: NameHash,
    account: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) thread: i64,
    /// It may be in the table, and lead elsewhere.
    may_be_there: bool,
}

/// Further names of a thread.
type NamesOf = Vec<(NameHash, Arc<str>)>;

#[derive(Default)]
pub(super) struct Learned {
    /// Names to be written in the next round, as they came.
    names: Vec<NewName>,
    /// Those of this round, and their places by name, the first ones last.
    writing: Vec<NewName>,
    order: Vec<u32>,
    /// Names of threads that are in the table, but not yet with these.
    of_thread: HashMap<i64, NamesOf, BuildHasherDefault<NumberHash>>,
    /// What the batch has learned so far.
    lessons: Lessons,
    /// The number of the last lessons in the table; `None`: there are none.
    appended: Option<u64>,
    /// The account that the last name belongs to: mostly the next one does, too.
    account: Option<Arc<str>>,
}

static NEW_NAME: LazyLock<Insert> = LazyLock::new(|| Insert::new("INSERT OR IGNORE INTO names VALUES", "(?, ?, ?)", ""));
/// Costs twice as much as [`NEW_NAME`].
pub(super) static ANY_NAME: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("INSERT INTO names VALUES", "(?, ?, ?)", "ON CONFLICT DO UPDATE SET thread = excluded.thread"));

impl Learned {
    /// How many names are to be written.
    pub(super) fn len(&self) -> usize {
        self.names.len() + self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.of_thread.is_empty()
    }

    /// Takes note of something for the case of a crash.
    pub(super) fn note(&mut self, lesson: &Lesson<'_>) {
        self.lessons.add(lesson);
    }

    /// Takes a name that is to be written.
    pub(super) fn add(&mut self, hash: NameHash, account: &str, name: Arc<str>, thread: i64, may_be_there: bool) {
        let account = self.shared(account);
        self.names.push(NewName { hash, account, name, thread, may_be_there });
    }

    /// Takes note that a name belongs into the row of its thread.
    pub(super) fn add_to_thread(&mut self, thread: i64, hash: NameHash, name: Arc<str>) {
        self.of_thread.entry(thread).or_default().push((hash, name));
    }

    /// A name of a thread leads elsewhere now.
    pub(super) fn take_from_thread(&mut self, thread: i64, name: &str) {
        if let Some(names) = self.of_thread.get_mut(&thread) {
            names.retain(|(_, known)| **known != *name);
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

    /// The names that are to come into the row of a thread.
    pub(super) fn names_of(&self, thread: i64) -> impl Iterator<Item = &str> {
        self.of_thread.get(&thread).into_iter().flatten().map(|(_, name)| &**name)
    }

    pub(super) fn take_names_of(&mut self, thread: i64) -> NamesOf {
        self.of_thread.remove(&thread).unwrap_or_default()
    }

    /// Threads that get names, in the order of their table.
    pub(super) fn named_threads(&self) -> Vec<i64> {
        let mut threads: Vec<i64> = self.of_thread.keys().copied().collect();
        threads.sort_unstable();
        threads
    }

    /// Appends what the batch has learned; once for each commit.
    pub(super) fn append(&mut self, db: &Connection, last_number: u64) -> rusqlite::Result<()> {
        if self.lessons.is_empty() {
            return Ok(());
        }
        let append = "INSERT INTO learned VALUES (?1, ?2) ON CONFLICT (number) DO UPDATE SET lessons = CAST(lessons || excluded.lessons AS BLOB)";
        db.prepare_cached(append)?.execute(params![last_number as i64, self.lessons.bytes()])?;
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
        self.writing.clear();
        std::mem::swap(&mut self.names, &mut self.writing);
        self.order = in_order(&self.writing);
    }

    /// Writes the next names of this round; `is_new` says whether one is still to be written, and leads where it did.
    pub(super) fn write_by_name(
        &mut self,
        db: &Connection,
        most: usize,
        mut is_new: impl FnMut(&NewName) -> bool,
    ) -> rusqlite::Result<usize> {
        let some = self.order.split_off(self.order.len().saturating_sub(most));
        let (mut new, mut others) = (Vec::with_capacity(some.len()), Vec::new());
        for name in some.iter().rev().map(|&at| &self.writing[at as usize]).filter(|name| is_new(name)) {
            if name.may_be_there { others.push(name) } else { new.push(name) }
        }
        if insert_names(db, &NEW_NAME, &new)? < new.len() {
            insert_names(db, &ANY_NAME, &new)?;
        }
        insert_names(db, &ANY_NAME, &others)?;
        if self.order.is_empty() {
            self.writing.clear();
        }
        Ok(some.len())
    }

    pub(super) fn is_round_over(&self) -> bool {
        self.order.is_empty()
    }
}

fn insert_names(db: &Connection, insert: &Insert, names: &[&NewName]) -> rusqlite::Result<usize> {
    insert_rows(db, insert, names, |new, places| {
        places.put(&*new.account)?;
        places.put(&*new.name)?;
        places.put(new.thread)
    })
}

/// The places of names by account and name, the last ones first. Sorted by how names begin, as numbers: looking at each name itself would be a
/// random look into memory each time.
fn in_order(names: &[NewName]) -> Vec<u32> {
    let begins = |name: &str| {
        let mut begins = [[0; 16]; 2];
        name.bytes().take(32).enumerate().for_each(|(at, byte)| begins[at / 16][at % 16] = byte);
        begins.map(u128::from_be_bytes)
    };
    let mut keys: Vec<([u128; 2], u32)> = names.iter().zip(0..).map(|(new, at)| (begins(&new.name), at)).collect();
    let of = |at: u32| &names[at as usize];
    let one_account = names.windows(2).all(|two| Arc::ptr_eq(&two[0].account, &two[1].account));
    keys.sort_unstable_by(|(one, at), (other, other_at)| {
        let by_account = if one_account { std::cmp::Ordering::Equal } else { of(*other_at).account.cmp(&of(*at).account) };
        by_account.then_with(|| other.cmp(one)).then_with(|| of(*other_at).name.cmp(&of(*at).name))
    });
    keys.into_iter().map(|(_, at)| at).collect()
}

/// Tells all lessons that are left, in their order.
pub(super) fn read_lessons(db: &Connection, mut tell: impl FnMut(Lesson<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let mut select = db.prepare_cached("SELECT lessons FROM learned ORDER BY number")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        Reader::new(row.get_ref(0)?.as_blob()?).try_for_each(&mut tell)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::names::name_hash;
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_table() {
        let long = "a".repeat(40);
        let all =
            [("b", "x"), ("a", "z"), ("a", long.as_str()), ("a", "a"), ("a", "a\0"), ("b", ""), ("a", &long[..33]), ("a", "ção")];
        let mut learned = Learned::default();
        for (account, name) in all {
            learned.add(name_hash(account, name), account, name.into(), 1, false);
        }
        let told = |at: &u32| (&*learned.names[*at as usize].account, &*learned.names[*at as usize].name);
        let order = in_order(&learned.names);
        assert!(order.iter().rev().map(told).is_sorted(), "{:?}", order.iter().rev().map(told).collect::<Vec<_>>());
        assert_eq!(order.len(), all.len());
    }
}
