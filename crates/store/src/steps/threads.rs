//! Who talks with whom, and what was said last.

use hapax_domain::{Direction, Event, Kind, ThreadId, limits};

use super::records::{Hash, NameRec, ThreadRec, thread_hash};
use super::work::Work;

/// Something said in a thread.
pub(super) struct Said<'s> {
    pub(super) channel: &'s str,
    pub(super) number: u64,
    pub(super) direction: Direction,
    pub(super) text: Option<&'s str>,
}

/// The peer whose thread an event is an entry of.
pub(super) fn talker(event: &Event) -> Option<&String> {
    event.peer.as_ref().filter(|_| event.kind == Kind::Message)
}

/// All names of the peer of a message.
pub(super) fn names_in(event: &Event) -> impl Iterator<Item = (String, String)> {
    let names = talker(event).into_iter().flat_map(|peer| std::iter::once(peer).chain(&event.aliases));
    names.map(|name| (event.account.clone(), name.clone()))
}

impl Work {
    /// The thread of a peer, under the name it goes by.
    pub(super) fn thread_of(&self, account: &str, peer: &str) -> ThreadId {
        let known = self.names.get(&(account.to_owned(), peer.to_owned()));
        ThreadId { account: account.to_owned(), peer: known.cloned().unwrap_or_else(|| peer.to_owned()) }
    }

    /// The thread a message belongs to, once all its names are taken note of.
    pub(super) fn thread_heard(&self, event: &Event) -> Option<ThreadId> {
        let peer = talker(event)?;
        let known = names_in(event).find_map(|name| self.names.get(&name).cloned());
        Some(ThreadId { account: event.account.clone(), peer: known.unwrap_or_else(|| peer.clone()) })
    }

    /// Takes note of a message: the names of its peer, and what it says. Returns its thread.
    pub(super) fn hear_message(&mut self, event: &Event, channel: &str, number: u64) -> Option<Hash> {
        let thread = self.thread_heard(event)?;
        if self.threads.get(&thread_hash(&thread.account, &thread.peer)).is_none() {
            // It may have been purged since its names were looked up, and they with it.
            self.names.retain(|(account, _), peer| *account != thread.account || *peer != thread.peer);
        }
        for (account, name) in names_in(event) {
            self.learn(account, name, &thread.peer);
        }
        let direction = if event.echo { Direction::Out } else { Direction::In };
        Some(self.say(&thread, &Said { channel, number, direction, text: event.text.as_deref() }))
    }

    fn learn(&mut self, account: String, name: String, peer: &str) {
        let key = (account, name);
        if self.names.get(&key).is_none_or(|known| known != peer) {
            self.names.insert(key.clone(), peer.to_owned());
            let (account, name) = key;
            self.new_names.retain(|known| known.account != account || known.name != name);
            self.new_names.push(NameRec { account, name, peer: peer.to_owned() });
        }
    }

    pub(super) fn say(&mut self, thread: &ThreadId, said: &Said<'_>) -> Hash {
        let (hash, now_ms) = (thread_hash(&thread.account, &thread.peer), self.now_ms);
        let named = (thread.account.clone(), thread.peer.clone());
        if !self.names.contains_key(&named) || self.threads.get(&hash).is_none() {
            self.names.remove(&named);
            self.learn(thread.account.clone(), thread.peer.clone(), &thread.peer);
        }
        let unread = u64::from(said.direction == Direction::In);
        let last_text = said.text.map(limits::preview);
        match self.threads.change(&hash) {
            Some(row) => {
                row.last_ms = now_ms;
                row.last_text = last_text;
                row.last_direction = said.direction;
                row.unread += unread;
                // It was given its number before the thread was marked as read, and came after.
                row.read_to = row.read_to.min(said.number.saturating_sub(1));
            }
            None => {
                let row = ThreadRec {
                    account: thread.account.clone(),
                    peer: thread.peer.clone(),
                    channel: said.channel.to_owned(),
                    last_ms: now_ms,
                    last_text,
                    last_direction: said.direction,
                    unread,
                    purged_to: 0,
                    read_to: 0,
                };
                self.threads.put(hash, row);
            }
        }
        hash
    }
}
