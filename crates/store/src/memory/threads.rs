//! The model's threads: who talks with whom, and what was said last.

use std::collections::{BTreeMap, BTreeSet};

use hapax_domain::{Direction, Event, Kind, ThreadId, limits};

use crate::{EntryId, ThreadRow};

#[derive(Default)]
pub(super) struct Threads {
    rows: BTreeMap<ThreadId, ThreadTail>,
    /// Every name of a peer, and the name its thread goes by. That one leads to itself.
    names: BTreeMap<(String, String), String>,
    /// In the order accepted.
    pub(super) entries: Vec<(ThreadId, EntryId)>,
}

struct ThreadTail {
    channel: String,
    last_ms: i64,
    last_text: Option<String>,
    last_direction: Direction,
    unread: u64,
    /// Numbers up to this one were marked as read.
    read_to: u64,
}

/// Something said in a thread.
pub(super) struct Said<'s> {
    pub(super) channel: &'s str,
    pub(super) entry: EntryId,
    pub(super) direction: Direction,
    pub(super) text: Option<&'s String>,
}

/// What a message taught.
pub(super) struct Learned {
    pub(super) thread: ThreadId,
    /// Other names that lead to the thread only from now on.
    pub(super) others: BTreeSet<String>,
}

impl Threads {
    /// The thread of a peer, under the name it goes by.
    pub(super) fn of(&self, account: &str, peer: &str) -> ThreadId {
        ThreadId { account: account.to_owned(), peer: self.leads_to(account, peer).unwrap_or_else(|| peer.to_owned()) }
    }

    /// Where a name leads, if it is known.
    pub(super) fn leads_to(&self, account: &str, name: &str) -> Option<String> {
        self.names.get(&(account.to_owned(), name.to_owned())).cloned()
    }

    /// The thread that goes by this name, or else the one that the name leads to now.
    pub(super) fn find(&self, id: &ThreadId) -> ThreadId {
        if self.rows.contains_key(id) { id.clone() } else { self.of(&id.account, &id.peer) }
    }

    /// Takes note of the names in a message. Names seen together are one person from now on; the thread of the first of them that is known
    /// goes on.
    pub(super) fn learn(&mut self, event: &Event) -> Option<Learned> {
        let peer = event.peer.as_ref().filter(|_| event.kind == Kind::Message)?;
        let key = |name: &str| (event.account.clone(), name.to_owned());
        let all: Vec<&String> = std::iter::once(peer).chain(&event.aliases).collect();
        let root = self.known(event).unwrap_or_else(|| peer.clone());
        let mut others = BTreeSet::new();
        for name in &all {
            let led = self.names.get(&key(name));
            if led != Some(&root) {
                others.insert((*name).clone());
                others.extend(led.cloned());
            }
        }
        others.remove(&root);
        // All names go on leading straight to the name their thread goes by.
        if !others.is_empty() {
            let led = self.names.iter_mut().filter(|((account, _), led)| *account == event.account && others.contains(*led));
            led.for_each(|(_, led)| led.clone_from(&root));
        }
        for name in all {
            self.names.insert(key(name), root.clone());
        }
        Some(Learned { thread: ThreadId { account: event.account.clone(), peer: root }, others })
    }

    /// The name that the first known of an event's names leads to.
    fn known(&self, event: &Event) -> Option<String> {
        let mut all = event.peer.iter().chain(&event.aliases);
        all.find_map(|name| self.names.get(&(event.account.clone(), name.clone())).cloned())
    }

    /// The thread in whose lane an event waits.
    pub(super) fn lane_of(&self, event: &Event) -> Option<ThreadId> {
        let spelt = event.lane()?;
        Some(ThreadId { peer: self.known(event).unwrap_or(spelt.peer), account: spelt.account })
    }

    pub(super) fn say(&mut self, thread: ThreadId, said: &Said<'_>, now: i64) {
        self.names.entry((thread.account.clone(), thread.peer.clone())).or_insert_with(|| thread.peer.clone());
        self.entries.push((thread.clone(), said.entry));
        let row = self.rows.entry(thread).or_insert_with(|| ThreadTail {
            channel: said.channel.to_owned(),
            last_ms: now,
            last_text: None,
            last_direction: said.direction,
            unread: 0,
            read_to: 0,
        });
        row.last_ms = now;
        row.last_text = said.text.map(|text| limits::preview(text));
        row.last_direction = said.direction;
        row.unread += u64::from(said.direction == Direction::In);
    }

    pub(super) fn forget_words(&mut self, id: &ThreadId) {
        let found = self.find(id);
        if let Some(row) = self.rows.get_mut(&found) {
            row.last_text = None;
        }
    }

    /// Removes threads that are `old`, by channel and time of their last words, once nothing of them `is_there` any more; of the others that
    /// are old, the last words, when what said them is gone.
    pub(super) fn purge(&mut self, old: impl Fn(&str, i64) -> bool, is_there: impl Fn(EntryId) -> bool) {
        let mut newest: BTreeMap<&ThreadId, (u64, EntryId)> = BTreeMap::new();
        let mut left: BTreeSet<&ThreadId> = BTreeSet::new();
        for (thread, entry) in &self.entries {
            let number = entry.number();
            let known = newest.entry(thread).or_insert((number, *entry));
            *known = if number >= known.0 { (number, *entry) } else { *known };
            if is_there(*entry) {
                left.insert(thread);
            }
        }
        let mut gone = BTreeSet::new();
        for (id, talk) in self.rows.iter_mut().filter(|(_, talk)| old(&talk.channel, talk.last_ms)) {
            if !left.contains(id) {
                gone.insert(id.clone());
            } else if newest.get(id).is_some_and(|(_, entry)| !is_there(*entry)) {
                talk.last_text = None;
            }
        }
        self.rows.retain(|id, _| !gone.contains(id));
        // Of what is gone, the newest of a thread still tells where the thread begins now.
        let mut begins: BTreeMap<ThreadId, u64> = BTreeMap::new();
        for (thread, entry) in self.entries.iter().filter(|(_, entry)| !is_there(*entry)) {
            let begin = begins.entry(thread.clone()).or_default();
            *begin = entry.number().max(*begin);
        }
        self.entries.retain(|(thread, entry)| {
            !gone.contains(thread) && (is_there(*entry) || begins.get(thread) == Some(&entry.number()))
        });
        let leads_to = |account: &String, peer: &String| ThreadId { account: account.clone(), peer: peer.clone() };
        self.names.retain(|(account, _), peer| !gone.contains(&leads_to(account, peer)));
    }

    pub(super) fn mark_read(&mut self, id: &ThreadId, last_number: u64) -> bool {
        let id = self.find(id);
        self.rows.get_mut(&id).map(|row| (row.unread, row.read_to) = (0, last_number)).is_some()
    }

    pub(super) fn read_to(&self, id: &ThreadId) -> u64 {
        self.rows.get(id).map_or(0, |row| row.read_to)
    }

    pub(super) fn row(&self, id: &ThreadId) -> Option<ThreadRow> {
        let talk = self.rows.get(id)?;
        let alias = |((account, name), canonical): (&(String, String), &String)| {
            (*account == id.account && *canonical == id.peer && *name != id.peer).then(|| name.clone())
        };
        Some(ThreadRow {
            id: id.clone(),
            channel: talk.channel.clone(),
            aliases: self.names.iter().filter_map(alias).collect(),
            last_ms: talk.last_ms,
            last_text: talk.last_text.clone(),
            last_direction: talk.last_direction,
            unread: talk.unread,
        })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = ThreadRow> {
        self.rows.keys().filter_map(|id| self.row(id))
    }
}
