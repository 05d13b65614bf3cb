//! Who talks with whom, and what was said last.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hapax_domain::limits::NAME_HOPS_MAX;
use hapax_domain::{Direction, Event, Kind, ThreadId, limits};

use super::engine::{Tx, TxError, Wanted};
use super::lanes::empty;
use super::records::{
    EventRec, Hash, ItemRec, LaneRec, NameRec, Queue, ThreadRec, inbox_lane, outbox_lane, own_lane, thread_hash,
};
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

/// All names of the peer of an event that is an entry of a thread, or waits in one's lane.
pub(super) fn names_in(event: &Event) -> impl Iterator<Item = (String, String)> {
    let spelt = event.peer.iter().filter(|_| event.kind.waits_in_thread());
    spelt.flat_map(|peer| std::iter::once(peer).chain(&event.aliases)).map(|name| (event.account.clone(), name.clone()))
}

/// Follows names to the one that leads to itself, or nowhere; nothing where the first is not known.
pub(super) fn root(names: &HashMap<(String, String), String>, account: &str, name: &str) -> Option<String> {
    let mut way = vec![name.to_owned()];
    for _ in 0..NAME_HOPS_MAX {
        let last = way.last().cloned().unwrap_or_default();
        let Some(next) = names.get(&(account.to_owned(), last)) else { break };
        if let Some(again) = way.iter().position(|seen| seen == next) {
            // In names that older versions left there may be more than one in the circle.
            return way[again..].iter().min().cloned();
        }
        way.push(next.clone());
    }
    way.pop().filter(|_| !way.is_empty())
}

impl Work {
    /// The name that a name leads to in the end, if it is known. All names on the way must have been loaded.
    pub(super) fn root(&self, account: &str, name: &str) -> Option<String> {
        root(&self.names, account, name)
    }

    /// The thread of a peer, under the name it goes by.
    pub(super) fn thread_of(&self, account: &str, peer: &str) -> ThreadId {
        ThreadId { account: account.to_owned(), peer: self.root(account, peer).unwrap_or_else(|| peer.to_owned()) }
    }

    /// The thread that an event belongs to: the first of its names that is known decides.
    pub(super) fn thread_of_event(&self, event: &Event) -> Option<ThreadId> {
        let peer = event.peer.clone()?;
        let known = names_in(event).find_map(|(account, name)| self.root(&account, &name));
        Some(ThreadId { account: event.account.clone(), peer: known.unwrap_or(peer) })
    }

    /// Names that others were found to lead to, and that were not looked up yet.
    pub(super) fn names_ahead(&self) -> Vec<(String, String)> {
        let next = self.names.iter().map(|((account, _), peer)| (account.clone(), peer.clone()));
        next.filter(|name| !self.asked_names.contains(name)).collect()
    }

    /// Other names in a message that lead to its thread only from now on, and what they led to.
    pub(super) fn others(&self, event: &Event, thread: &ThreadId) -> BTreeSet<String> {
        let mut others = BTreeSet::new();
        for (account, name) in names_in(event) {
            let led = self.root(&account, &name);
            if led.as_ref() != Some(&thread.peer) {
                others.insert(name);
                others.extend(led);
            }
        }
        others.remove(&thread.peer);
        others
    }

    /// Takes note of the names in a message, and makes the lanes one that turn out to be of one person. Gives the thread it belongs to.
    pub(super) fn learn_names(&mut self, event: &Event, channel: &Arc<str>) -> Option<ThreadId> {
        talker(event)?;
        let thread = self.thread_of_event(event)?;
        let others = self.others(event, &thread);
        // All names go on leading straight to the name their thread goes by.
        let led = self.names.iter().filter(|((account, _), led)| *account == thread.account && others.contains(*led));
        let led: Vec<(String, String)> = led.map(|(name, _)| name.clone()).collect();
        let own = (thread.account.clone(), thread.peer.clone());
        for (account, name) in names_in(event).chain(led).chain([own]) {
            self.learn(account, name, &thread.peer);
        }
        for other in others {
            // It is written even where nothing is said in it, for engines that notice by this that somebody was faster.
            self.threads.change(&thread_hash(&thread.account, &other));
            let other = ThreadId { account: thread.account.clone(), peer: other };
            self.join_inbox(channel, &other, &thread);
            self.join_outbox(channel, &other, &thread);
        }
        Some(thread)
    }

    /// Makes two threads' lanes one.
    pub(super) fn join_inbox(&mut self, channel: &Arc<str>, other: &ThreadId, thread: &ThreadId) {
        let into = empty(Queue::Inbox, inbox_lane(channel, Some(thread), 0), channel);
        self.join(&inbox_lane(channel, Some(other), 0), LaneRec { peer: Some(thread.peer.clone()), ..into });
    }

    /// The same in the outbox.
    pub(super) fn join_outbox(&mut self, channel: &Arc<str>, other: &ThreadId, thread: &ThreadId) {
        let into = empty(Queue::Outbox, outbox_lane(channel, &thread.account, &thread.peer), channel);
        self.join(&outbox_lane(channel, &other.account, &other.peer), LaneRec { account: thread.account.clone(), ..into });
    }

    /// The inbox lane of a thread. One that was left under the name as `spelt` is joined to it.
    pub(super) fn inbox_lane(&mut self, channel: &Arc<str>, spelt: &ThreadId, thread: &ThreadId) -> Hash {
        if spelt != thread {
            self.join_inbox(channel, spelt, thread);
        }
        inbox_lane(channel, Some(thread), 0)
    }

    /// Loads the lanes of events that are put in line again, and of their threads.
    pub(super) async fn load_lanes_again<T: Tx>(&mut self, tx: &mut T, events: &[EventRec]) -> Result<(), TxError> {
        let spelt: Vec<(&Arc<str>, ThreadId)> =
            events.iter().filter_map(|event| Some((&event.channel, event.spelt()?))).collect();
        let names: Vec<(String, String)> =
            spelt.iter().map(|(_, thread)| (thread.account.clone(), thread.peer.clone())).collect();
        self.load_names(tx, names.clone()).await?;
        let mut wanted = Wanted { sure_names: names, ..Wanted::default() };
        for (channel, spelt) in &spelt {
            let thread = self.thread_of(&spelt.account, &spelt.peer);
            wanted.lanes.extend([inbox_lane(channel, Some(spelt), 0), inbox_lane(channel, Some(&thread), 0)]);
            wanted.threads.push(thread_hash(&thread.account, &thread.peer));
        }
        self.load(tx, wanted).await?;
        self.load_groups(tx).await
    }

    /// Puts an item of an event in line again, in the lane that its thread has now. What was loaded for it must be there.
    pub(super) fn add_item_again(&mut self, item: ItemRec, event: Option<&EventRec>) {
        let Some((channel, spelt)) = event.and_then(|event| Some((&event.channel, event.spelt()?))) else {
            let lane = own_lane(Queue::Inbox, item.number);
            return self.add_item(ItemRec { lane, ..item }, None);
        };
        let thread = self.thread_of(&spelt.account, &spelt.peer);
        let lane = self.inbox_lane(channel, &spelt, &thread);
        self.add_item(ItemRec { lane, ..item }, Some(thread.peer));
    }

    /// Loads names and all that they lead to.
    pub(super) async fn load_names<T: Tx>(&mut self, tx: &mut T, names: Vec<(String, String)>) -> Result<(), TxError> {
        let mut names: Vec<_> = names.into_iter().filter(|name| !self.asked_names.contains(name)).collect();
        for _ in 0..NAME_HOPS_MAX {
            self.load(tx, Wanted { names, ..Wanted::default() }).await?;
            names = self.names_ahead();
            if names.is_empty() {
                break;
            }
        }
        Ok(())
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
        // Even if it was looked up before: it may have been purged since, with a thread that is not there any more.
        if self.threads.get(&hash).is_none() {
            self.names.remove(&(thread.account.clone(), thread.peer.clone()));
        }
        self.learn(thread.account.clone(), thread.peer.clone(), &thread.peer);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(links: &[(&str, &str)]) -> HashMap<(String, String), String> {
        links.iter().map(|(name, peer)| (("acc".to_owned(), (*name).to_owned()), (*peer).to_owned())).collect()
    }

    #[test]
    fn a_name_is_followed_to_the_one_that_leads_to_itself_or_nowhere() {
        let names = names(&[("bsuid", "phone"), ("phone", "lid"), ("lid", "lid"), ("old", "gone")]);
        for name in ["bsuid", "phone", "lid"] {
            assert_eq!(root(&names, "acc", name).as_deref(), Some("lid"));
        }
        assert_eq!(root(&names, "acc", "old").as_deref(), Some("gone"));
        assert_eq!(root(&names, "acc", "stranger"), None);
        assert_eq!(root(&names, "other", "lid"), None);
    }

    /// As older versions may have left them.
    #[test]
    fn a_circle_is_known_by_its_smallest_name_wherever_one_comes_in() {
        let names = names(&[("in", "c"), ("c", "b"), ("b", "d"), ("d", "c")]);
        for name in ["in", "b", "c", "d"] {
            assert_eq!(root(&names, "acc", name).as_deref(), Some("b"));
        }
    }

    #[test]
    fn a_chain_without_an_end_is_given_up() {
        let links: Vec<(String, String)> = (0..99).map(|n| (format!("n{n:02}"), format!("n{:02}", n + 1))).collect();
        let links: Vec<(&str, &str)> = links.iter().map(|(name, peer)| (name.as_str(), peer.as_str())).collect();
        assert_eq!(root(&names(&links), "acc", "n00").as_deref(), Some("n16"));
    }
}
