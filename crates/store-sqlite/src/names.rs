//! Who is who: every name of a peer leads straight to its thread, and the name which that thread goes by is what its lanes are called.

use std::collections::BTreeSet;
use std::sync::Arc;

use hapax_domain::key::KeyHasher;
use rusqlite::{Connection, OptionalExtension, params};

use super::lanes::LaneName;
use super::learned::ANY_NAME;
use super::lessons::Lesson;
use super::many_rows::insert_rows;
use super::thread_names;
use super::threads::Threads;

/// Account and name, hashed: names are compared with every message, and this is much shorter.
pub(super) type NameHash = LaneName;

pub(super) fn name_hash(account: &str, name: &str) -> NameHash {
    let mut hasher = KeyHasher::new("name");
    hasher.part(account.as_bytes());
    hasher.part(name.as_bytes());
    let mut hash = NameHash::default();
    hash.copy_from_slice(&hasher.finish()[..16]);
    hash
}

/// Names held in memory that are in the table; when there are more, all of them are let go.
pub(super) const NAMES_MAX: usize = 100_000;

/// The thread that a name leads to; below zero while that is not in the table.
#[derive(Clone, Copy)]
pub(super) struct Leads(i64);

impl Leads {
    fn thread(self) -> i64 {
        self.0.abs()
    }

    fn is_new(self) -> bool {
        self.0 < 0
    }
}

/// A thread and the name it goes by.
type Root = (i64, Arc<str>);

/// Whom the names in a message belong to.
pub(super) struct Person {
    pub(super) thread: i64,
    /// The name the thread goes by.
    pub(super) peer: Arc<str>,
    /// Names that lead there only from now on, and whether they led elsewhere before: whatever waits under one of them waits with the others.
    pub(super) joined: Vec<(String, bool)>,
}

impl Threads {
    /// The thread that a name leads to; `None` when nobody has talked with it.
    fn known(&mut self, db: &Connection, account: &str, name: &str, hash: NameHash) -> rusqlite::Result<Option<i64>> {
        if let Some(leads) = self.names.get(&hash) {
            return Ok(Some(leads.thread()));
        }
        if !self.known.may_hold(&hash) {
            return Ok(None);
        }
        let found: Option<i64> = db.prepare_cached(LEADS_TO)?.query_row([account, name], |row| row.get(0)).optional()?;
        if let Some(thread) = found {
            self.touched = true;
            self.keep_name(hash, thread);
        }
        Ok(found)
    }

    /// Keeps a name that was found in the table.
    fn keep_name(&mut self, hash: NameHash, thread: i64) {
        self.let_names_go();
        self.names.insert(hash, Leads(thread));
    }

    fn let_names_go(&mut self) {
        if self.names.len() - self.new_names >= NAMES_MAX {
            self.names.retain(|_, leads| leads.is_new());
        }
    }

    /// The name that a thread goes by.
    pub(super) fn peer_of(&mut self, db: &Connection, thread: i64) -> rusqlite::Result<Arc<str>> {
        self.touched = true;
        Ok(Arc::clone(&self.talk(db, thread)?.peer))
    }

    /// The thread, and the name it goes by, that the first of these names leads to which is known.
    pub(super) fn resolve<'n>(
        &mut self,
        db: &Connection,
        account: &str,
        names: impl IntoIterator<Item = (&'n str, NameHash)>,
    ) -> rusqlite::Result<Option<Root>> {
        self.make_ready(db)?;
        for (name, hash) in names {
            if let Some(thread) = self.known(db, account, name, hash)? {
                return Ok(Some((thread, self.peer_of(db, thread)?)));
            }
        }
        Ok(None)
    }

    pub(super) fn resolve_name(&mut self, db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<Root>> {
        self.resolve(db, account, [(name, name_hash(account, name))])
    }

    /// Takes note that these names are of one person, and finds or makes its thread; `number` is for a new one. The first name that is
    /// known decides whose thread goes on, and all names of the others lead there too.
    pub(super) fn learn(
        &mut self,
        db: &Connection,
        channel: i64,
        account: &str,
        names: &[(&str, NameHash)],
        number: &mut dyn FnMut() -> i64,
    ) -> rusqlite::Result<Person> {
        self.make_ready(db)?;
        let mut known = Vec::with_capacity(names.len());
        for (name, hash) in names {
            known.push(self.known(db, account, name, *hash)?);
        }
        let thread = match known.iter().flatten().next() {
            Some(&thread) => thread,
            None => self.thread_by(db, channel, account, names[0].0, number)?,
        };
        let mut person = Person { thread, peer: self.peer_of(db, thread)?, joined: Vec::new() };
        for ((name, hash), known) in names.iter().zip(known).filter(|(_, known)| *known != Some(thread)) {
            if let Some(known) = known {
                person.joined.push((self.talk(db, known)?.peer.to_string(), true));
                for name in self.names_of(db, known)? {
                    self.lead(account, &name, name_hash(account, &name), thread, true);
                }
                self.put_aside(db, known, true)?;
            }
            // It may have come along with the others of its thread.
            if self.names.get(hash).is_none_or(|leads| leads.thread() != thread) {
                self.lead(account, name, *hash, thread, known.is_some());
            }
            if **name != *person.peer {
                person.joined.push(((*name).to_owned(), known.is_some()));
            }
        }
        person.joined.retain(|(name, _)| **name != *person.peer);
        person.joined.sort_unstable();
        person.joined.dedup();
        Ok(person)
    }

    /// Finds or makes the thread of a name, and teaches nothing; `number` is for a new one.
    pub(super) fn find(
        &mut self,
        db: &Connection,
        channel: i64,
        account: &str,
        name: &str,
        number: &mut dyn FnMut() -> i64,
    ) -> rusqlite::Result<Root> {
        self.make_ready(db)?;
        if let Some(root) = self.resolve_name(db, account, name)? {
            return Ok(root);
        }
        let person = self.learn(db, channel, account, &[(name, name_hash(account, name))], number)?;
        Ok((person.thread, person.peer))
    }

    /// The thread that goes by a name that leads nowhere: a new one, unless only its names were forgotten.
    fn thread_by(
        &mut self,
        db: &Connection,
        channel: i64,
        account: &str,
        peer: &str,
        number: &mut dyn FnMut() -> i64,
    ) -> rusqlite::Result<i64> {
        if let Some(thread) = self.find_aside(db, account, peer)? {
            self.put_aside(db, thread, false)?;
            return Ok(thread);
        }
        let thread = number();
        self.begin_thread(thread, channel, account, peer);
        Ok(thread)
    }

    /// The thread that goes by this name, or else the one that the name leads to now.
    pub(super) fn find_thread(&mut self, db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<i64>> {
        self.make_ready(db)?;
        match self.find_aside(db, account, name)? {
            Some(thread) => Ok(Some(thread)),
            None => self.known(db, account, name, name_hash(account, name)),
        }
    }

    fn find_aside(&self, db: &Connection, account: &str, peer: &str) -> rusqlite::Result<Option<i64>> {
        if self.any_aside { find_aside(db, account, peer) } else { Ok(None) }
    }

    /// Says of a thread whether its peer's own name leads elsewhere, and with it all others.
    fn put_aside(&mut self, db: &Connection, thread: i64, aside: bool) -> rusqlite::Result<()> {
        self.any_aside |= aside;
        self.write(db, thread)?;
        let sql = "UPDATE threads SET aside = ?2, names = CASE WHEN ?2 THEN NULL ELSE names END WHERE thread = ?1";
        db.prepare_cached(sql)?.execute(params![thread, aside])?;
        Ok(())
    }

    /// Makes a name lead to a thread.
    fn lead(&mut self, account: &str, name: &str, hash: NameHash, thread: i64, was_known: bool) {
        self.learned.note(&Lesson::Name { thread, account, name });
        self.learn_name(account, name, hash, thread, was_known);
        self.left += 1;
    }

    /// The same of one that was noted; `may_be_there` when it may be in the table.
    pub(super) fn learn_name(&mut self, account: &str, name: &str, hash: NameHash, thread: i64, may_be_there: bool) {
        self.known.insert(&hash);
        let before = self.names.insert(hash, Leads(-thread));
        self.new_names += usize::from(!before.is_some_and(Leads::is_new));
        if let Some(before) = before.map(Leads::thread).filter(|before| *before != thread) {
            self.learned.take_from_thread(before, name);
            if let Some(new) = self.talks.get_mut(&before).and_then(|talk| talk.new.as_mut()) {
                new.names.retain(|known| **known != *name);
            }
        }
        let mut shared: Option<Arc<str>> = None;
        match self.talks.get_mut(&thread).map(|talk| (&talk.peer, talk.new.as_mut())) {
            Some((peer, Some(_))) if **peer == *name => shared = Some(Arc::clone(peer)),
            // Lessons of a crash may say it twice.
            Some((_, Some(new))) if new.names.iter().any(|known| **known == *name) => {}
            Some((_, Some(new))) => new.names.push(Arc::clone(shared.insert(name.into()))),
            _ => self.learned.add_to_thread(thread, hash, Arc::clone(shared.insert(name.into()))),
        }
        self.learned.add(hash, account, shared.unwrap_or_else(|| name.into()), thread, may_be_there);
    }

    /// All names that lead to a thread.
    fn names_of(&self, db: &Connection, thread: i64) -> rusqlite::Result<BTreeSet<String>> {
        let mut names: BTreeSet<String> = self.learned.names_of(thread).map(str::to_owned).collect();
        if let Some((talk, new)) = self.talks.get(&thread).and_then(|talk| Some((talk, talk.new.as_ref()?))) {
            names.extend(new.names.iter().chain([&talk.peer]).map(|name| name.to_string()));
            return Ok(names);
        }
        let row = |row: &rusqlite::Row<'_>| {
            let (aside, peer): (bool, String) = (row.get(0)?, row.get(1)?);
            let others: Option<String> = row.get(2)?;
            names.extend(thread_names::read(others.as_deref()).map(str::to_owned));
            names.extend(Some(peer).filter(|_| !aside));
            Ok(())
        };
        db.prepare_cached("SELECT aside, peer, names FROM threads WHERE thread = ?1")?.query_row([thread], row).optional()?;
        Ok(names)
    }

    /// Writes names into the rows of threads that are in the table.
    pub(super) fn name_threads(&mut self, db: &Connection, most: usize) -> rusqlite::Result<usize> {
        let some = self.to_name.split_off(self.to_name.len().saturating_sub(most));
        for &thread in &some {
            let names = self.learned.take_names_of(thread);
            add_names(db, thread, names.iter().map(|(_, name)| &**name))?;
        }
        Ok(some.len())
    }

    /// Writes names to where they are looked for, with which they are no longer new.
    pub(super) fn write_names(&mut self, db: &Connection, most: usize) -> rusqlite::Result<usize> {
        let Self { learned, names, new_names, known, .. } = self;
        let written = learned.write_by_name(db, most, |new| {
            let Some(leads) = names.get_mut(&new.hash).filter(|leads| leads.0 == -new.thread) else { return false };
            *leads = Leads(new.thread);
            *new_names -= 1;
            known.note_written(&new.hash);
            true
        })?;
        self.let_names_go();
        Ok(written)
    }

    /// Forgets a thread that is gone, as far as it is not in the tables.
    pub(super) fn forget_new(&mut self, thread: i64) {
        let mut hashes: Vec<NameHash> = self.learned.take_names_of(thread).into_iter().map(|(hash, _)| hash).collect();
        if let Some((talk, new)) = self.talks.get(&thread).and_then(|talk| Some((talk, talk.new.as_ref()?))) {
            hashes.extend(new.names.iter().chain([&talk.peer]).map(|name| name_hash(&new.account, name)));
            self.let_go(thread);
        }
        for hash in hashes {
            if self.names.get(&hash).is_some_and(|leads| leads.thread() == thread) {
                self.forget_name(&hash);
            }
        }
    }

    fn forget_name(&mut self, hash: &NameHash) {
        self.new_names -= usize::from(self.names.remove(hash).is_some_and(Leads::is_new));
    }

    /// Forgets all names that lead to a thread.
    pub(super) fn forget_names(&mut self, db: &Connection, thread: i64) -> rusqlite::Result<()> {
        let account: String =
            db.prepare_cached("SELECT account FROM threads WHERE thread = ?1")?.query_row([thread], |row| row.get(0))?;
        for name in self.names_of(db, thread)? {
            self.forget_name(&name_hash(&account, &name));
            self.known.note_forgotten();
            db.prepare_cached("DELETE FROM names WHERE account = ?1 AND name = ?2")?.execute([&account, &name])?;
        }
        self.learned.take_names_of(thread);
        Ok(())
    }
}

const LEADS_TO: &str = "SELECT thread FROM names WHERE account = ?1 AND name = ?2";

fn write_name(db: &Connection, account: &str, name: &str, thread: i64) -> rusqlite::Result<()> {
    let written = insert_rows(db, &ANY_NAME, &[thread], |thread, places| {
        places.put(account)?;
        places.put(name)?;
        places.put(thread)
    });
    written.map(drop)
}

/// Writes names into the row of their thread, where they are not there yet.
pub(super) fn add_names<'n>(db: &Connection, thread: i64, more: impl Iterator<Item = &'n str>) -> rusqlite::Result<()> {
    change_names(db, thread, |peer, names| {
        names.extend(more.filter(|name| *name != peer).map(str::to_owned));
    })
}

fn change_names(db: &Connection, thread: i64, change: impl FnOnce(&str, &mut BTreeSet<String>)) -> rusqlite::Result<()> {
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let select = "SELECT peer, names FROM threads WHERE thread = ?1";
    let found: Option<(String, Option<String>)> = db.prepare_cached(select)?.query_row([thread], row).optional()?;
    let Some((peer, before)) = found else { return Ok(()) };
    let mut names: BTreeSet<String> = thread_names::read(before.as_deref()).map(str::to_owned).collect();
    change(&peer, &mut names);
    let after = thread_names::write(names.iter().map(String::as_str));
    if after != before {
        db.prepare_cached("UPDATE threads SET names = ?2 WHERE thread = ?1")?.execute(params![thread, after])?;
    }
    Ok(())
}

fn find_aside(db: &Connection, account: &str, peer: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT thread FROM threads WHERE account = ?1 AND peer = ?2 AND aside ORDER BY thread LIMIT 1";
    db.prepare_cached(sql)?.query_row([account, peer], |row| row.get(0)).optional()
}

/// The thread that goes by this name, or else the one that the name leads to now, as far as the tables know.
pub(super) fn find_thread(db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<i64>> {
    match find_aside(db, account, name)? {
        Some(thread) => Ok(Some(thread)),
        None => leads_to(db, account, name),
    }
}

/// The thread that the name leads to now, as far as the tables know, or else the one that goes by it.
pub(super) fn find_person(db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<i64>> {
    match leads_to(db, account, name)? {
        Some(thread) => Ok(Some(thread)),
        None => find_aside(db, account, name),
    }
}

fn leads_to(db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached(LEADS_TO)?.query_row([account, name], |row| row.get(0)).optional()
}

/// Makes every name lead straight to where it ends. Other versions let names lead on from one to the next, and even in a circle: that ends at
/// the smallest name of it, wherever one comes in. True when there were such.
pub(super) fn straighten(db: &Connection) -> rusqlite::Result<bool> {
    let bent: Vec<(String, String, i64)> = db
        .prepare(
            "SELECT n.account, n.name, n.thread FROM names n JOIN threads t ON t.thread = n.thread
             JOIN names p ON p.account = n.account AND p.name = t.peer AND p.thread <> n.thread",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let mut straight = Vec::with_capacity(bent.len());
    for (account, name, first) in bent {
        let end = end_of(db, &account, first)?;
        straight.push((account, name, first, end));
    }
    for (account, name, first, end) in &straight {
        write_name(db, account, name, *end)?;
        change_names(db, *first, |_, names| names.retain(|other| other != name))?;
        add_names(db, *end, std::iter::once(name.as_str()))?;
    }
    db.execute_batch(
        "UPDATE threads SET aside = NOT aside WHERE aside = EXISTS
             (SELECT 1 FROM names n WHERE n.account = threads.account AND n.name = threads.peer AND n.thread = threads.thread)",
    )?;
    Ok(!straight.is_empty())
}

fn end_of(db: &Connection, account: &str, from: i64) -> rusqlite::Result<i64> {
    let (mut way, mut at): (Vec<(String, i64)>, i64) = (Vec::new(), from);
    loop {
        if let Some(entered) = way.iter().position(|(_, thread)| *thread == at) {
            return Ok(way[entered..].iter().min().map_or(at, |(_, thread)| *thread));
        }
        let peer: String = db.prepare_cached("SELECT peer FROM threads WHERE thread = ?1")?.query_row([at], |row| row.get(0))?;
        let next: Option<i64> = db.prepare_cached(LEADS_TO)?.query_row([account, &peer], |row| row.get(0)).optional()?;
        let Some(next) = next.filter(|next| *next != at) else { return Ok(at) };
        way.push((peer, at));
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_came_along_with_others_stands_once_among_its_threads() {
        let db = Connection::open_in_memory().expect("a database");
        for migration in super::super::open::MIGRATIONS {
            db.execute_batch(migration).expect("the schema");
        }
        for written in [false, true] {
            let (mut threads, mut last) = (Threads::new(), if written { 20 } else { 0 });
            let mut learn = |threads: &mut Threads, names: &[&str]| {
                let names: Vec<(&str, NameHash)> = names.iter().map(|name| (*name, name_hash("acc", name))).collect();
                let mut next = || {
                    last += 1;
                    last
                };
                threads.learn(&db, 1, "acc", &names, &mut next).expect("learned").thread
            };
            let account = if written { "w" } else { "n" };
            let called = |name: &str| format!("{account}-{name}");
            let (ana, lid, user, jo) = (called("ana"), called("lid"), called("user"), called("jo"));
            let first = learn(&mut threads, &[&ana]);
            learn(&mut threads, &[&lid, &user]);
            if written {
                threads.write_some(&db, 1, 30, true).expect("written");
            }
            assert_eq!(learn(&mut threads, &[&ana, &lid, &user]), first);
            assert_eq!(learn(&mut threads, &[&jo, &lid]), first);
            threads.write_some(&db, 2, 40, true).expect("written");
            let names: Option<String> = db
                .query_row("SELECT names FROM threads WHERE thread = ?1", [first], |row| row.get(0))
                .expect("the thread is there");
            let mut names: Vec<&str> = thread_names::read(names.as_deref()).collect();
            names.sort_unstable();
            assert_eq!(names, [&*jo, &*lid, &*user]);
            for name in [&ana, &lid, &user, &jo] {
                let leads: i64 = db.query_row(LEADS_TO, ["acc", name.as_str()], |row| row.get(0)).expect("the name is there");
                assert_eq!(leads, first, "{name}");
            }
        }
    }
}
