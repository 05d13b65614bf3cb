//! Who talks with whom, and what was said last. Kept in memory and written now and then: a row per message would be a random page each.
//!
//! Nothing is lost by that: every message names its thread and what came before it, so after a crash the last words are read again
//! from the messages since, and who is new from the lessons since ([`super::learned`]).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, LazyLock};

use hapax_domain::limits;
use rusqlite::{Connection, Row, params};

use super::keys::KeyIsHash;
use super::known_names::KnownNames;
use super::learned::{Learned, read_lessons};
use super::lessons::Lesson;
use super::many_rows::{Insert, insert_rows};
use super::names::{Leads, NameHash, name_hash};
use super::number_hash::NumberHash;
use super::thread_names;

pub(super) struct Threads {
    pub(super) talks: HashMap<i64, Box<ThreadTail>, BuildHasherDefault<NumberHash>>,
    /// Where names lead, as far as they were asked for lately or are not in the table.
    pub(super) names: HashMap<NameHash, Leads, BuildHasherDefault<KeyIsHash>>,
    /// How many of them are not in the table.
    pub(super) new_names: usize,
    /// Names that are there or among the learned, nearly.
    pub(super) known: KnownNames,
    /// What is to come into the tables of names and threads.
    pub(super) learned: Learned,
    /// A thread may stand aside.
    pub(super) any_aside: bool,
    /// Threads that changed before `written_to` was taken, to be written in small steps; and those that changed after.
    to_write: Vec<i64>,
    changed: Vec<i64>,
    /// Threads in the table that get further names in this round.
    pub(super) to_name: Vec<i64>,
    /// How many of `talks` have something to write.
    unwritten: usize,
    /// Rows that were left to be written since the last step of writing.
    pub(super) left: usize,
    /// What everything in `to_write` was about when the step began.
    written_to: u64,
    begun_ms: i64,
    stepped_ms: i64,
    ready: bool,
    pub(super) touched: bool,
    /// Threads looked at to find which can be let go.
    #[cfg(test)]
    looked_at: usize,
}

/// A thread: whom it is with, and its last words.
#[derive(Clone)]
pub(super) struct ThreadTail {
    pub(super) peer: Arc<str>,
    last: i64,
    last_at: i64,
    last_text: Option<String>,
    last_out: bool,
    unread: i64,
    /// Events and messages of it that are there.
    entries: i64,
    /// Not in the table yet.
    unwritten: bool,
    /// Among those that changed.
    listed: bool,
    /// The thread itself is not in the table yet.
    pub(super) new: Option<NewThread>,
}

/// What else there is to know of a thread.
#[derive(Clone)]
pub(super) struct NewThread {
    channel: i64,
    pub(super) account: Arc<str>,
    /// Names that lead there besides its peer's own.
    pub(super) names: Vec<Arc<str>>,
}

/// Something said in a thread.
pub(super) struct Said<'s> {
    pub(super) number: i64,
    pub(super) at: i64,
    pub(super) out: bool,
    pub(super) text: Option<&'s str>,
}

static NEW_THREAD: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("INSERT OR FAIL INTO threads VALUES", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)", ""));

/// Threads held in memory that have nothing to write; when there are more, all of them are let go.
const TALKS_MAX: usize = 50_000;
/// Rows written at once: about a millisecond. A few with every batch would write the same pages again and again.
const STEP_ROWS: usize = 1_000;
const STEP_EVERY_MS: i64 = 5_000;
const STEP_PAUSE_MS: i64 = 20;
/// Threads with something to write, and names; from here on two are written for each one that is left, so that there are never many more.
const UNWRITTEN_MAX: usize = 40_000;
const NEW_NAMES_MAX: usize = 80_000;

impl Threads {
    pub(super) fn new() -> Self {
        Self {
            talks: HashMap::default(),
            names: HashMap::default(),
            new_names: 0,
            known: KnownNames::default(),
            learned: Learned::default(),
            any_aside: true,
            to_write: Vec::new(),
            changed: Vec::new(),
            to_name: Vec::new(),
            unwritten: 0,
            left: 0,
            written_to: 0,
            begun_ms: 0,
            stepped_ms: 0,
            ready: false,
            touched: false,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    pub(super) fn committed(&mut self) {
        self.touched = false;
    }

    /// Forgets what the failed batch may have changed; it is read again when it is needed.
    pub(super) fn rolled_back(&mut self) {
        if self.touched {
            *self = Self::new();
        }
    }

    /// Reads who was new since the tables were written, and what was said since.
    pub(super) fn make_ready(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.touched = true;
        if self.ready {
            return Ok(());
        }
        self.ready = true;
        self.any_aside = db.prepare_cached("SELECT 1 FROM threads WHERE aside LIMIT 1")?.exists([])?;
        self.known = KnownNames::load(db)?;
        read_lessons(db, |lesson| self.learn_again(db, lesson))?;
        self.learned.note_found(db)?;
        let mut since = db.prepare_cached(
            "SELECT thread, number, received AS at, echo AS out, text FROM events
                 WHERE number > (SELECT value FROM meta WHERE name = 'threads_to') AND prev IS NOT NULL
             UNION ALL
             SELECT thread, number, created, 1, text FROM messages
                 WHERE number > (SELECT value FROM meta WHERE name = 'threads_to')
             ORDER BY number",
        )?;
        let mut rows = since.query([])?;
        while let Some(row) = rows.next()? {
            let (thread, text): (i64, Option<String>) = (row.get(0)?, row.get(4)?);
            let said = Said { number: row.get(1)?, at: row.get(2)?, out: row.get(3)?, text: text.as_deref() };
            if self.talk(db, thread)?.last < said.number {
                self.say(db, thread, &said)?;
            }
        }
        Ok(())
    }

    fn learn_again(&mut self, db: &Connection, lesson: Lesson<'_>) -> rusqlite::Result<()> {
        match lesson {
            Lesson::Thread { thread, channel, account, peer } => {
                if !db.prepare_cached("SELECT 1 FROM threads WHERE thread = ?1")?.exists([thread])? {
                    self.add_thread(thread, channel, account, peer);
                }
            }
            Lesson::Name { thread, account, name } => {
                self.learn_name(account, name, name_hash(account, name), thread, true);
            }
            Lesson::Gone { thread } => self.forget_new(thread),
        }
        Ok(())
    }

    /// Begins a thread, in memory; it comes into the table later.
    pub(super) fn begin_thread(&mut self, thread: i64, channel: i64, account: &str, peer: &str) {
        self.learned.note(&Lesson::Thread { thread, channel, account, peer });
        self.add_thread(thread, channel, account, peer);
    }

    fn add_thread(&mut self, thread: i64, channel: i64, account: &str, peer: &str) {
        let new = Some(NewThread { channel, account: self.learned.shared(account), names: Vec::new() });
        let talk = ThreadTail {
            peer: peer.into(),
            last: 0,
            last_at: 0,
            last_text: None,
            last_out: false,
            unread: 0,
            entries: 0,
            unwritten: true,
            listed: true,
            new,
        };
        if self.talks.insert(thread, Box::new(talk)).is_none_or(|before| !before.unwritten) {
            self.unwritten += 1;
        }
        self.left += 1;
        self.changed.push(thread);
    }

    pub(super) fn let_go(&mut self, thread: i64) {
        if self.talks.remove(&thread).is_some_and(|talk| talk.unwritten) {
            self.unwritten -= 1;
        }
    }

    pub(super) fn talk(&mut self, db: &Connection, thread: i64) -> rusqlite::Result<&mut ThreadTail> {
        // A pass lets go of so many that its cost for each message stays the same, however many threads there are.
        if self.talks.len() - self.unwritten > TALKS_MAX {
            #[cfg(test)]
            {
                self.looked_at += self.talks.len();
            }
            self.talks.retain(|_, talk| talk.unwritten);
        }
        match self.talks.entry(thread) {
            std::collections::hash_map::Entry::Occupied(there) => Ok(there.into_mut()),
            std::collections::hash_map::Entry::Vacant(gap) => {
                let talk = db
                    .prepare_cached(
                        "SELECT last, last_at, last_text, last_out, unread, entries, peer FROM threads WHERE thread = ?1",
                    )?
                    .query_row([thread], |row| {
                        Ok(Box::new(ThreadTail {
                            peer: row.get::<_, String>(6)?.into(),
                            last: row.get(0)?,
                            last_at: row.get(1)?,
                            last_text: row.get(2)?,
                            last_out: row.get(3)?,
                            unread: row.get(4)?,
                            entries: row.get(5)?,
                            unwritten: false,
                            listed: false,
                            new: None,
                        }))
                    })?;
                Ok(gap.insert(talk))
            }
        }
    }

    /// Adds to a thread; gives the number of what was said before.
    pub(super) fn say(&mut self, db: &Connection, thread: i64, said: &Said<'_>) -> rusqlite::Result<i64> {
        let talk = self.talk(db, thread)?;
        let before = std::mem::replace(&mut talk.last, said.number);
        talk.last_at = said.at;
        talk.last_out = said.out;
        talk.unread += i64::from(!said.out);
        talk.entries += 1;
        talk.last_text = said.text.map(limits::preview);
        let was = (std::mem::replace(&mut talk.unwritten, true), std::mem::replace(&mut talk.listed, true));
        if !was.0 {
            self.unwritten += 1;
            self.left += 1;
        }
        if !was.1 {
            self.changed.push(thread);
        }
        Ok(before)
    }

    pub(super) fn mark_read(&mut self, db: &Connection, account: &str, peer: &str, last: u64) -> rusqlite::Result<bool> {
        let Some(thread) = self.find_thread(db, account, peer)? else { return Ok(false) };
        self.talk(db, thread)?.unread = 0;
        self.write(db, thread)?;
        db.prepare_cached("UPDATE threads SET read_to = ?2 WHERE thread = ?1")?.execute([thread, last as i64])?;
        // What comes after a restart must not get a number that was marked as read.
        db.prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE name = 'last_number'")?.execute([last as i64])?;
        Ok(true)
    }

    /// Takes the last words out of a thread, by any name of its peer.
    pub(super) fn forget_words(&mut self, db: &Connection, account: &str, peer: &str) -> rusqlite::Result<()> {
        let Some(thread) = self.find_thread(db, account, peer)? else { return Ok(()) };
        self.talk(db, thread)?.last_text = None;
        self.write(db, thread)
    }

    /// So many entries of the thread are gone. Written at once, in the commit that removes them.
    pub(super) fn forget(&mut self, db: &Connection, thread: i64, entries: i64) -> rusqlite::Result<()> {
        self.make_ready(db)?;
        self.talk(db, thread)?.entries -= entries;
        self.write(db, thread)
    }

    /// Removes the thread, with all names that lead to it, when its last words are older than `before_ms` and nothing of it is left; or its last
    /// words, when what said them is gone. True when it was removed.
    pub(super) fn purge(&mut self, db: &Connection, thread: i64, before_ms: i64, now_ms: i64) -> rusqlite::Result<bool> {
        self.make_ready(db)?;
        let talk = self.talk(db, thread)?;
        if talk.last_at > before_ms && talk.last_at <= now_ms {
            return Ok(false);
        }
        if talk.entries > 0 {
            let is_there = "SELECT 1 FROM events WHERE number = ?1 UNION ALL SELECT 1 FROM messages WHERE number = ?1";
            if talk.last_text.is_some() && !db.prepare_cached(is_there)?.exists([talk.last])? {
                talk.last_text = None;
                self.write(db, thread)?;
            }
            return Ok(false);
        }
        self.forget_names(db, thread)?;
        self.let_go(thread);
        self.learned.note_gone(thread);
        db.prepare_cached("DELETE FROM threads WHERE thread = ?1")?.execute([thread])?;
        Ok(true)
    }

    pub(super) fn write(&mut self, db: &Connection, thread: i64) -> rusqlite::Result<()> {
        let Some(talk) = self.talks.get_mut(&thread) else { return Ok(()) };
        if talk.new.is_some() {
            return self.write_new(db, &[thread]);
        }
        let ThreadTail { last, last_at, last_text, last_out, unread, entries, .. } = &**talk;
        db.prepare_cached(
            "UPDATE threads SET last = ?2, last_at = ?3, last_text = ?4, last_out = ?5, unread = ?6, entries = ?7 WHERE thread = ?1",
        )?
        .execute(params![thread, last, last_at, last_text, last_out, unread, entries])?;
        self.unwritten -= usize::from(std::mem::take(&mut talk.unwritten));
        Ok(())
    }

    /// Writes threads that are not in the table.
    fn write_new(&mut self, db: &Connection, threads: &[i64]) -> rusqlite::Result<()> {
        let talks = &self.talks;
        let new = |thread: &i64| talks.get(thread).and_then(|talk| Some((*thread, &**talk, talk.new.as_ref()?)));
        let rows: Vec<(i64, &ThreadTail, &NewThread)> = threads.iter().filter_map(new).collect();
        insert_rows(db, &NEW_THREAD, &rows, |(thread, talk, NewThread { channel, account, names }), places| {
            places.put(thread)?;
            places.put(channel)?;
            places.put(&**account)?;
            places.put(&*talk.peer)?;
            places.put(talk.last)?;
            places.put(talk.last_at)?;
            places.put(&talk.last_text)?;
            places.put(talk.last_out)?;
            places.put(talk.unread)?;
            places.put(talk.entries)?;
            places.put(thread_names::write(names.iter().map(|name| &**name)))
        })?;
        for thread in threads {
            let Some(talk) = self.talks.get_mut(thread) else { continue };
            talk.new = None;
            self.unwritten -= usize::from(std::mem::take(&mut talk.unwritten));
        }
        Ok(())
    }

    /// Writes some of what changed, at most every few seconds all of it; `all` for whoever is about to read.
    pub(super) fn write_some(&mut self, db: &Connection, now_ms: i64, last_number: u64, all: bool) -> rusqlite::Result<()> {
        if all {
            self.make_ready(db)?;
        }
        self.learned.append(db, last_number)?;
        let many = self.unwritten > UNWRITTEN_MAX || self.learned.len() > NEW_NAMES_MAX;
        let due = all || many || now_ms - self.begun_ms >= STEP_EVERY_MS;
        let mut rows = match (all, many) {
            (true, _) => usize::MAX,
            (false, true) if 2 * self.left < STEP_ROWS && now_ms - self.stepped_ms < STEP_PAUSE_MS => return Ok(()),
            (false, true) => STEP_ROWS.max(2 * self.left),
            (false, false) => STEP_ROWS,
        };
        (self.left, self.stepped_ms) = (0, now_ms);
        while rows > 0 {
            if self.is_round_over() {
                if !due || (self.changed.is_empty() && self.learned.is_empty()) {
                    return Ok(());
                }
                self.begin_step(now_ms, last_number);
            }
            self.touched = true;
            rows -= self.write_talks(db, rows)?;
            rows -= self.name_threads(db, rows)?;
            rows -= self.write_names(db, rows)?;
            if self.is_round_over() {
                db.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'threads_to'")?.execute([self.written_to as i64])?;
                self.known.end_round(db)?;
                self.learned.forget_lessons(db, self.written_to)?;
                // One step per batch, unless there is much to do.
                if !all && !many {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn begin_step(&mut self, now_ms: i64, last_number: u64) {
        for thread in self.changed.drain(..) {
            let Some(talk) = self.talks.get_mut(&thread) else { continue };
            // One that was let go and is there again stands there twice.
            if std::mem::take(&mut talk.listed) && talk.unwritten {
                self.to_write.push(thread);
            }
        }
        // In the order of the table, so that neighbours share a page.
        self.to_write.sort_unstable();
        self.to_name = self.learned.named_threads();
        self.learned.begin_round();
        self.written_to = last_number;
        self.begun_ms = now_ms;
    }

    fn is_round_over(&self) -> bool {
        self.to_write.is_empty() && self.to_name.is_empty() && self.learned.is_round_over()
    }

    /// Threads go before what leads to them.
    fn write_talks(&mut self, db: &Connection, most: usize) -> rusqlite::Result<usize> {
        let rows = most.min(self.to_write.len());
        let later = self.to_write.split_off(rows);
        let mut new = Vec::new();
        for thread in std::mem::replace(&mut self.to_write, later) {
            match self.talks.get(&thread).filter(|talk| talk.unwritten) {
                Some(talk) if talk.new.is_some() => new.push(thread),
                Some(_) => self.write(db, thread)?,
                None => {}
            }
        }
        self.write_new(db, &new)?;
        Ok(rows)
    }
}

/// Reads a row of `threads` joined with its channel's name; the aliases are read apart.
pub(super) fn thread_row(row: &Row<'_>) -> rusqlite::Result<(i64, hapax_store::ThreadRow)> {
    use hapax_domain::{Direction, ThreadId};
    let row_of = hapax_store::ThreadRow {
        id: ThreadId { account: row.get(2)?, peer: row.get(3)? },
        channel: row.get(1)?,
        aliases: Vec::new(),
        last_ms: row.get(4)?,
        last_text: row.get(5)?,
        last_direction: if row.get(6)? { Direction::Out } else { Direction::In },
        unread: row.get(7)?,
    };
    Ok((row.get(0)?, row_of))
}

#[cfg(test)]
mod tests {
    use super::super::names::{NAMES_MAX, name_hash};
    use super::*;

    const PEERS: i64 = 300_000;
    const BATCH: i64 = 1_000;

    fn in_memory() -> Connection {
        let db = Connection::open_in_memory().expect("a database");
        for migration in super::super::open::MIGRATIONS {
            db.execute_batch(migration).expect("the schema");
        }
        db
    }

    /// Says something to new people, in batches, as the writer does.
    fn many_people(db: &Connection, threads: &mut Threads, mut after_batch: impl FnMut(&Threads)) {
        for batch in 0..PEERS / BATCH {
            db.execute_batch("BEGIN").expect("begun");
            for peer in batch * BATCH..(batch + 1) * BATCH {
                let name = format!("5511{peer}");
                let names = [(name.as_str(), name_hash("acc", &name))];
                let thread = threads.learn(db, 1, "acc", &names, &mut || 2 * peer + 1).expect("a thread").thread;
                let said = Said { number: 2 * peer + 2, at: 7, out: false, text: Some("hello") };
                assert_eq!(threads.say(db, thread, &said).expect("said"), 0);
            }
            threads.write_some(db, 7, (2 * (batch + 1) * BATCH) as u64, false).expect("written");
            db.execute_batch("COMMIT").expect("committed");
            threads.committed();
            after_batch(threads);
        }
    }

    #[test]
    fn many_people_cost_as_much_each_as_few() {
        let (db, mut threads) = (in_memory(), Threads::new());
        many_people(&db, &mut threads, |threads| {
            assert!(threads.unwritten <= UNWRITTEN_MAX * 3 / 2, "{} unwritten", threads.unwritten);
            assert!(threads.learned.len() <= NEW_NAMES_MAX * 3 / 2, "{} new names", threads.learned.len());
            assert!(threads.new_names <= threads.learned.len(), "{} of {}", threads.new_names, threads.learned.len());
            assert!(threads.talks.len() <= TALKS_MAX + UNWRITTEN_MAX * 3 / 2, "{} in memory", threads.talks.len());
            assert!(threads.names.len() - threads.new_names <= NAMES_MAX);
        });
        assert!(threads.looked_at <= 2 * PEERS as usize, "{} looks at threads for {PEERS} messages", threads.looked_at);

        threads.write_some(&db, 7, 2 * PEERS as u64, true).expect("written");
        assert_eq!(threads.unwritten, 0);
        let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count");
        assert_eq!(count("SELECT count(*) FROM threads WHERE last = thread + 1 AND unread = 1 AND last_text = 'hello'"), PEERS);
        assert_eq!(count("SELECT value FROM meta WHERE name = 'threads_to'"), 2 * PEERS);
    }

    /// A full disk in the middle of a round, after each of its steps; what was committed of it before stays.
    #[test]
    fn a_round_that_is_rolled_back_begins_anew_and_loses_nobody() {
        const PEOPLE: i64 = 3_500;
        let db = in_memory();
        let mut threads = Threads::new();
        let (mut people, mut now_ms) = (0, STEP_EVERY_MS);
        for batch in 0..40 {
            db.execute_batch("BEGIN").expect("begun");
            let fails = batch % 3 == 2;
            let more = if fails { 10 } else { (PEOPLE - people).min(250) };
            for peer in people..people + more {
                let name = peer.to_string();
                let names = [(name.as_str(), name_hash("acc", &name))];
                // A number is not given twice, whatever becomes of the batch.
                let thread = 2 * peer + 1 + 100_000 * i64::from(fails) * (batch + 1);
                let thread = threads.learn(&db, 1, "acc", &names, &mut || thread).expect("a thread").thread;
                threads.say(&db, thread, &Said { number: thread + 1, at: 7, out: false, text: None }).expect("said");
            }
            now_ms += STEP_EVERY_MS;
            threads.write_some(&db, now_ms, (2 * (people + more) + 10) as u64, false).expect("written");
            if fails {
                db.execute_batch("ROLLBACK").expect("rolled back");
                threads.rolled_back();
            } else {
                db.execute_batch("COMMIT").expect("committed");
                threads.committed();
                people += more;
            }
        }
        assert_eq!(people, PEOPLE);
        // What is left is written by the process after a crash.
        let mut threads = Threads::new();
        for peer in 0..PEOPLE {
            let found = threads.resolve_name(&db, "acc", &peer.to_string()).expect("asked").map(|root| root.0);
            assert_eq!(found, Some(2 * peer + 1), "{peer}");
        }
        threads.write_some(&db, now_ms, 1_000_000, true).expect("written");
        let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count");
        for table in ["threads", "names"] {
            assert_eq!(count(&format!("SELECT count(*) FROM {table}")), PEOPLE, "{table}");
        }
        assert_eq!(count("SELECT count(*) FROM learned"), 0);
    }

    /// Ten people, one of them new, and what is left of the lessons when those in `gone` are purged.
    fn lessons_after_purge(gone: std::ops::Range<i64>) -> (Vec<i64>, Vec<Option<i64>>) {
        let (db, mut threads) = (in_memory(), Threads::new());
        let learn = |threads: &mut Threads, peer: i64| {
            let name = peer.to_string();
            let names = [(name.as_str(), name_hash("acc", &name))];
            threads.learn(&db, 1, "acc", &names, &mut || peer).expect("a thread");
            threads.say(&db, peer, &Said { number: 100 + peer, at: 7, out: false, text: None }).expect("said");
        };
        (1..10).for_each(|peer| learn(&mut threads, peer));
        threads.write_some(&db, 7, 109, true).expect("written");
        if gone.contains(&10) {
            learn(&mut threads, 10);
        }
        for thread in gone {
            threads.forget(&db, thread, 1).expect("its message is gone");
            assert!(threads.purge(&db, thread, 100, 200).expect("purged"));
            // What comes meanwhile has no number that was not there.
            threads.write_some(&db, 7, 110, false).expect("written");
        }
        let lengths = "SELECT length(lessons) FROM learned ORDER BY number";
        let lengths = db.prepare(lengths).expect("sql").query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>();
        // After a crash nobody is there who was gone.
        let mut again = Threads::new();
        let found = (1..=10).map(|peer| again.resolve_name(&db, "acc", &peer.to_string()).expect("asked").map(|root| root.0));
        (lengths.expect("read"), found.collect())
    }

    #[test]
    fn a_purge_leaves_lessons_only_where_there_are_others() {
        let (lessons, found) = lessons_after_purge(1..10);
        assert!(lessons.is_empty(), "{lessons:?}");
        assert!(found.iter().all(Option::is_none), "{found:?}");
        let (lessons, found) = lessons_after_purge(5..11);
        assert_eq!(lessons.len(), 1, "{lessons:?}");
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(4), None, None, None, None, None, None]);
    }

    #[test]
    fn what_was_let_go_is_read_again() {
        let (db, mut threads) = (in_memory(), Threads::new());
        many_people(&db, &mut threads, |_| {});
        assert!(!threads.talks.contains_key(&1), "the first was let go");
        let names = [("55110", name_hash("acc", "55110"))];
        let thread = threads.learn(&db, 1, "acc", &names, &mut || unreachable!("it is known")).expect("a thread").thread;
        let said = Said { number: 2 * PEERS + 1, at: 8, out: false, text: Some("again") };
        assert_eq!((thread, threads.say(&db, thread, &said).expect("said")), (1, 2));
        assert_eq!(threads.talk(&db, 1).expect("there").unread, 2);
    }
}
