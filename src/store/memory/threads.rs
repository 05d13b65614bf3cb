//! The model's threads: who talks with whom, and what was said last.

use std::collections::{BTreeMap, HashMap};

use crate::domain::{Direction, Event, Kind, ThreadId};
use crate::store::{EntryId, ThreadRow};

#[derive(Default)]
pub(super) struct Threads {
    pub(super) rows: BTreeMap<ThreadId, ThreadRow>,
    /// Every name of a peer, and the name its thread goes by.
    names: HashMap<(String, String), String>,
    /// In the order accepted.
    pub(super) entries: Vec<(ThreadId, EntryId)>,
}

/// What makes or updates a thread.
pub(super) struct Said<'s> {
    pub(super) channel: &'s str,
    pub(super) entry: EntryId,
    pub(super) direction: Direction,
    pub(super) text: Option<&'s String>,
}

impl Threads {
    /// The name that a peer's thread goes by.
    pub(super) fn canonical(&self, account: &str, peer: &str) -> String {
        self.names.get(&(account.to_owned(), peer.to_owned())).cloned().unwrap_or_else(|| peer.to_owned())
    }

    /// Takes note of an event: its names, and what it says if it is a message.
    pub(super) fn hear(&mut self, event: &Event, channel: &str, entry: EntryId, now: i64) {
        let Some(peer) = &event.peer else { return };
        let canonical = self.learn_names(&event.account, peer, &event.aliases);
        if event.kind == Kind::Message {
            let direction = if event.echo { Direction::Out } else { Direction::In };
            let id = ThreadId { account: event.account.clone(), peer: canonical };
            self.say(id, Said { channel, entry, direction, text: event.text.as_ref() }, now);
        }
    }

    /// Names seen together are one person; the name that was known first stays.
    fn learn_names(&mut self, account: &str, peer: &str, aliases: &[String]) -> String {
        let key = |name: &str| (account.to_owned(), name.to_owned());
        let all = || std::iter::once(peer).chain(aliases.iter().map(String::as_str));
        let known: Vec<String> = all().filter_map(|name| self.names.get(&key(name)).cloned()).collect();
        let canonical = known.first().cloned().unwrap_or_else(|| peer.to_owned());
        for other in known.iter().filter(|other| **other != canonical) {
            self.merge(account, other, &canonical);
        }
        if aliases.is_empty() && known.is_empty() {
            return canonical;
        }
        for name in all() {
            self.names.insert(key(name), canonical.clone());
            if name != canonical
                && let Some(row) = self.rows.get_mut(&ThreadId { account: account.to_owned(), peer: canonical.clone() })
                && !row.aliases.iter().any(|alias| alias == name)
            {
                row.aliases.push(name.to_owned());
                row.aliases.sort();
            }
        }
        canonical
    }
}
