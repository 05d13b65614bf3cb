//! Who talks with whom, and what was said last.

use std::collections::BTreeSet;
use std::sync::Arc;

use hapax_domain::limits::NAME_HOPS_MAX;
use hapax_domain::{Direction, Event, Kind, ThreadId, limits};

use super::engine::{Tx, TxError, Wanted};
use super::lanes::empty;
use super::records::{EventRec, Hash, ItemRec, LaneRec, Queue, ThreadRec, inbox_lane, outbox_lane, own_lane, thread_hash};
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
    spelt_names(event).map(|name| (event.account.clone(), name.clone()))
}

pub(super) fn spelt_names(event: &Event) -> impl Iterator<Item = &String> {
    let spelt = event.peer.iter().filter(|_| event.kind.waits_in_thread());
    spelt.flat_map(|peer| std::iter::once(peer).chain(&event.aliases))
}

impl Work {
    /// The name that a name leads to in the end, if it is known. All names on the way must have been loaded.
    pub(super) fn root<'n>(&'n self, account: &str, name: &'n str) -> Option<&'n str> {
        self.names.root(account, name)
    }

    /// The thread of a peer, under the name it goes by.
    pub(super) fn thread_of(&self, account: &str, peer: &str) -> ThreadId {
        ThreadId { account: account.to_owned(), peer: self.root(account, peer).unwrap_or(peer).to_owned() }
    }

    /// The thread that an event belongs to: the first of its names that is known decides.
    pub(super) fn thread_of_event(&self, event: &Event) -> Option<ThreadId> {
        let peer = event.peer.as_ref()?;
        let known = spelt_names(event).find_map(|name| self.root(&event.account, name));
        Some(ThreadId { account: event.account.clone(), peer: known.unwrap_or(peer).to_owned() })
    }

    /// Other names in a message that lead to its thread only from now on, and what they led to.
    pub(super) fn others(&self, event: &Event, thread: &ThreadId) -> BTreeSet<String> {
        let mut others = BTreeSet::new();
        for name in spelt_names(event) {
            let led = self.root(&event.account, name);
            if led != Some(thread.peer.as_str()) {
                others.insert(name.clone());
                others.extend(led.map(str::to_owned));
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
        let led = others.iter().flat_map(|other| self.names.leading_to(&thread.account, other));
        let led: Vec<String> = spelt_names(event).chain(led).chain([&thread.peer]).cloned().collect();
        for name in led {
            self.names.learn(&thread.account, name, &thread.peer);
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

    /// Makes two threads' lanes one, if anything waits in the other's.
    pub(super) fn join_inbox(&mut self, channel: &Arc<str>, other: &ThreadId, thread: &ThreadId) {
        let lane = inbox_lane(channel, Some(other), 0);
        if self.lanes.get(&lane).is_some() {
            let into = empty(Queue::Inbox, inbox_lane(channel, Some(thread), 0), channel);
            self.join(&lane, LaneRec { account: thread.account.clone(), peer: Some(thread.peer.clone()), ..into });
        }
    }

    /// The same in the outbox.
    pub(super) fn join_outbox(&mut self, channel: &Arc<str>, other: &ThreadId, thread: &ThreadId) {
        let lane = outbox_lane(channel, &other.account, &other.peer);
        if self.lanes.get(&lane).is_some() {
            let into = empty(Queue::Outbox, outbox_lane(channel, &thread.account, &thread.peer), channel);
            self.join(&lane, LaneRec { account: thread.account.clone(), ..into });
        }
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
            let account = event.map(|event| event.account.clone()).unwrap_or_default();
            return self.add_item(ItemRec { lane, ..item }, account, None);
        };
        let thread = self.thread_of(&spelt.account, &spelt.peer);
        let lane = self.inbox_lane(channel, &spelt, &thread);
        self.add_item(ItemRec { lane, ..item }, thread.account, Some(thread.peer));
    }

    /// Loads names and all that they lead to.
    pub(super) async fn load_names<T: Tx>(&mut self, tx: &mut T, names: Vec<(String, String)>) -> Result<(), TxError> {
        let mut names: Vec<_> = names.into_iter().filter(|name| !self.names.was_asked(name)).collect();
        for _ in 0..NAME_HOPS_MAX {
            self.load(tx, Wanted { names, ..Wanted::default() }).await?;
            names = self.names.ahead();
            if names.is_empty() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn say(&mut self, thread: &ThreadId, said: &Said<'_>) -> Hash {
        let (hash, now_ms) = (thread_hash(&thread.account, &thread.peer), self.now_ms);
        // Even if it was looked up before: it may have been purged since, with a thread that is not there any more.
        if self.threads.get(&hash).is_none() {
            self.names.forget(&thread.account, &thread.peer);
        }
        self.names.learn(&thread.account, thread.peer.clone(), &thread.peer);
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
