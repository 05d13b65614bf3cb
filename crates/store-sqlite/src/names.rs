//! Who is who: every name of a peer leads straight to its thread, and the name which that thread goes by is what its lanes are called.

use std::sync::Arc;

use hapax_domain::key::KeyHasher;
use rusqlite::{Connection, OptionalExtension, params};

use super::lanes::LaneName;
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

/// Names held in memory; when there are more, all of them are let go.
pub(super) const NAMES_MAX: usize = 100_000;

/// A thread and the name it goes by.
type Root = (i64, Arc<str>);

/// Whom the names in a message belong to.
pub(super) struct Person {
    pub(super) thread: i64,
    /// The name the thread goes by.
    pub(super) peer: Arc<str>,
    /// Names that lead there only from now on: whatever waits under one of them waits with the others.
    pub(super) joined: Vec<String>,
}

impl Threads {
    /// The thread that a name leads to; `None` when nobody has talked with it.
    fn known(&mut self, db: &Connection, account: &str, name: &str, hash: NameHash) -> rusqlite::Result<Option<i64>> {
        if let Some(&thread) = self.names.get(&hash) {
            return Ok(Some(thread));
        }
        let found: Option<i64> = db.prepare_cached(LEADS_TO)?.query_row([account, name], |row| row.get(0)).optional()?;
        if let Some(thread) = found {
            self.touched = true;
            self.keep_name(hash, thread);
        }
        Ok(found)
    }

    fn keep_name(&mut self, hash: NameHash, thread: i64) {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(hash, thread);
    }

    fn peer_of(&mut self, db: &Connection, thread: i64) -> rusqlite::Result<Arc<str>> {
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
                person.joined.push(self.talk(db, known)?.peer.to_string());
                for name in names_of_thread(db, known)? {
                    self.lead(db, account, &name, name_hash(account, &name), thread)?;
                }
            }
            self.lead(db, account, name, *hash, thread)?;
            person.joined.push((*name).to_owned());
        }
        person.joined.retain(|name| **name != *person.peer);
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
        if let Some(&thread) = threads_called(db, account, peer)?.first() {
            return Ok(thread);
        }
        let thread = number();
        db.prepare_cached("INSERT INTO threads VALUES (?1, ?2, ?3, ?4, 0, 0, NULL, 0, 0, 0, 0)")?
            .execute(params![thread, channel, account, peer])?;
        Ok(thread)
    }

    /// Makes a name lead to a thread.
    fn lead(&mut self, db: &Connection, account: &str, name: &str, hash: NameHash, thread: i64) -> rusqlite::Result<()> {
        write_name(db, account, name, thread)?;
        self.keep_name(hash, thread);
        Ok(())
    }

    /// Forgets all names that lead to a thread.
    pub(super) fn forget_names(&mut self, db: &Connection, thread: i64) -> rusqlite::Result<()> {
        let account: String =
            db.prepare_cached("SELECT account FROM threads WHERE thread = ?1")?.query_row([thread], |row| row.get(0))?;
        for name in names_of_thread(db, thread)? {
            self.names.remove(&name_hash(&account, &name));
        }
        db.prepare_cached("DELETE FROM names WHERE thread = ?1")?.execute([thread])?;
        Ok(())
    }
}

const LEADS_TO: &str = "SELECT thread FROM names WHERE account = ?1 AND name = ?2";

fn write_name(db: &Connection, account: &str, name: &str, thread: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO names VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET thread = excluded.thread")?
        .execute(params![account, name, thread])?;
    Ok(())
}

fn names_of_thread(db: &Connection, thread: i64) -> rusqlite::Result<Vec<String>> {
    db.prepare_cached("SELECT name FROM names WHERE thread = ?1")?.query_map([thread], |row| row.get(0))?.collect()
}

fn threads_called(db: &Connection, account: &str, peer: &str) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT thread FROM threads WHERE account = ?1 AND peer = ?2 ORDER BY thread";
    db.prepare_cached(sql)?.query_map([account, peer], |row| row.get(0))?.collect()
}

/// The thread that goes by this name, or else the one that the name leads to now.
pub(super) fn find_thread(db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<i64>> {
    match threads_called(db, account, name)?.first() {
        Some(&thread) => Ok(Some(thread)),
        None => db.prepare_cached(LEADS_TO)?.query_row([account, name], |row| row.get(0)).optional(),
    }
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
        straight.push((account, name, end));
    }
    for (account, name, thread) in &straight {
        write_name(db, account, name, *thread)?;
    }
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
