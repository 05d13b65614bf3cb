//! The model's outbox: messages, their lanes, and sends in doubt.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hapax_domain::age::Dated;
use hapax_domain::{Event, Fence, MessageId, Outgoing, PendingSend, Steps, ThreadId, Word, ids, limits};

use super::threads::Threads;
use crate::{
    Changed, MessageRow, NewMessage, OutboxLease, OutboxLeaseRequest, OutboxPlace, OutboxState, PausedAccount, SendOutcome,
    Settled, Submitted, TryRow, end_after_set_back,
};

/// Everything about messages that go out.
#[derive(Default)]
pub(super) struct Outbox {
    messages: BTreeMap<MessageId, Kept>,
    requests: HashMap<(String, String), MessageId>,
    /// By account and provider id: the message that was last called so.
    provider_ids: HashMap<(String, String), MessageId>,
    /// Statuses of messages whose provider id is not known yet, and when the last of them came.
    early: HashMap<(String, String), (Steps, i64)>,
    /// How many of an account may wait, and as many replies beside them.
    pub(super) most: Option<usize>,
    leases: BTreeMap<MessageId, Held>,
    /// Lanes that became one with another because their names did, and the one that speaks for both.
    joined: BTreeMap<Lane, Lane>,
    pub(super) paused: BTreeMap<(String, String), PausedAccount>,
}

struct Kept {
    new: NewMessage,
    created_ms: i64,
    /// The lane of its thread, to which it comes when its time has come, or back after doubt.
    home: Lane,
    state: Outgoing,
    tries: Vec<TryRow>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Lane {
    Thread {
        channel: Arc<str>,
        account: String,
        peer: String,
    },
    /// A message in doubt, or one that is to be sent later, keeps nobody waiting.
    Own(MessageId),
}

#[derive(Clone)]
struct Held {
    message: MessageId,
    /// The lane it was given under.
    lane: Lane,
    fence: Fence,
    worker: Arc<str>,
    leased_ms: i64,
    until_ms: i64,
}

impl Lane {
    fn new(channel: &Arc<str>, thread: &ThreadId) -> Self {
        Lane::Thread { channel: Arc::clone(channel), account: thread.account.clone(), peer: thread.peer.clone() }
    }
}

impl Kept {
    fn lane(&self, id: MessageId, place: &PendingSend) -> Lane {
        if place.is_alone() { Lane::Own(id) } else { self.home.clone() }
    }
}

impl Outbox {
    /// Whether this would be one more than may wait.
    pub(super) fn is_full_for(&self, new: &NewMessage) -> bool {
        if self.known_request(new).is_ok() {
            return false;
        }
        let beside = |(_, message, place): &(MessageId, &Kept, PendingSend)| {
            let of = &message.new;
            let alike = of.channel == new.channel && of.account == new.account;
            alike && !place.unknown && of.priority.is_reply() == new.priority.is_reply()
        };
        self.open().filter(beside).count() >= self.most.unwrap_or(limits::OUTBOX_MAX)
    }

    /// The message that was made for this request before, or the id under which the request is kept now.
    fn known_request(&self, new: &NewMessage) -> Result<MessageId, String> {
        let of = |request_id: String| self.requests.get(&(new.account.clone(), request_id)).copied();
        let is_own = |id: &MessageId| self.messages.get(id).is_some_and(|message| message.new.channel == new.channel);
        let (plain, apart) = (of(new.request_id.clone()), of(new.request_id_apart()));
        match apart.or(plain.filter(is_own)) {
            Some(known) => Ok(known),
            None if plain.is_some() => Err(new.request_id_apart()),
            None => Err(new.request_id.clone()),
        }
    }

    /// `peer` is the name its thread goes by.
    pub(super) fn submit(&mut self, mut new: NewMessage, peer: String, id: MessageId, now: i64) -> Submitted {
        match self.known_request(&new) {
            Ok(known) => {
                let same = self.messages.get(&known).is_some_and(|message| message.new.fingerprint == new.fingerprint);
                return if same { Submitted::Replayed(known) } else { Submitted::Mismatch(known) };
            }
            Err(kept) => new.request_id = kept,
        }
        let request = (new.account.clone(), new.request_id.clone());
        let thread = ThreadId { account: new.account.clone(), peer };
        self.join(&new.channel, &ThreadId { peer: new.peer.clone(), ..thread.clone() }, &thread);
        let home = self.spoken_for(Lane::new(&new.channel, &thread));
        self.requests.insert(request, id);
        let state = Outgoing::new(now, new.held_until(now));
        self.messages.insert(id, Kept { new, created_ms: now, home, state, tries: vec![] });
        Submitted::New(id)
    }

    /// Those that are in the outbox, oldest first, and where they stand there.
    fn open(&self) -> impl Iterator<Item = (MessageId, &Kept, PendingSend)> {
        self.messages.iter().filter_map(|(id, message)| Some((*id, message, message.state.place?)))
    }

    pub(super) fn open_ids(&self) -> impl Iterator<Item = MessageId> {
        self.open().map(|(id, ..)| id)
    }

    /// The lane that a message waits in, or the one that speaks for it.
    fn lane_of(&self, id: MessageId) -> Option<Lane> {
        let message = self.messages.get(&id)?;
        Some(self.spoken_for(message.lane(id, message.state.place.as_ref()?)))
    }

    fn spoken_for(&self, lane: Lane) -> Lane {
        self.joined.get(&lane).cloned().unwrap_or(lane)
    }

    /// Makes two lanes one, if anything waits in the first. What waits in it stays in line by its number, and leases are held on.
    pub(super) fn join(&mut self, channel: &Arc<str>, thread: &ThreadId, into: &ThreadId) {
        let lane = Lane::new(channel, thread);
        let (from, into) = (self.spoken_for(lane.clone()), self.spoken_for(Lane::new(channel, into)));
        if from != into && self.is_there(&lane) {
            self.joined.values_mut().filter(|speaker| **speaker == from).for_each(|speaker| speaker.clone_from(&into));
            self.joined.insert(from, into);
        }
    }

    /// Whether anything waits in the lane itself, is leased under its name, or was joined into it.
    fn is_there(&self, lane: &Lane) -> bool {
        self.open().any(|(id, message, place)| place.due_ms.is_some() && message.lane(id, &place) == *lane)
            || self.leases.values().any(|held| held.lane == *lane)
            || self.joined.values().any(|speaker| speaker == lane)
    }

    /// Forgets lanes that were joined, once nothing is left of them.
    fn tidy(&mut self) {
        let over: Vec<Lane> = self.joined.keys().filter(|lane| !self.is_there(lane)).cloned().collect();
        self.joined.retain(|lane, _| !over.contains(lane));
    }

    /// Changes a message; one that comes to its thread's lane by that comes to the lane the thread has today.
    fn change<T>(&mut self, id: MessageId, threads: &Threads, change: impl FnOnce(&mut Outgoing) -> T) -> Option<T> {
        let message = self.messages.get_mut(&id)?;
        let is_in_line = |state: &Outgoing| state.place.is_some_and(|place| !place.is_alone());
        let before = is_in_line(&message.state);
        let changed = change(&mut message.state);
        if is_in_line(&message.state) && !before {
            let (channel, account) = (Arc::clone(&message.new.channel), message.new.account.clone());
            let root = threads.leads_to(&account, &message.new.peer);
            let home = root.map_or(message.home.clone(), |peer| Lane::Thread { channel, account, peer });
            let home = self.spoken_for(home);
            self.messages.get_mut(&id)?.home = home;
        }
        self.tidy();
        Some(changed)
    }

    pub(super) fn lease(&mut self, ask: &OutboxLeaseRequest, now: i64, fence: &mut u64, threads: &Threads) -> Vec<OutboxLease> {
        let mut leases = Vec::new();
        for (channel, max) in &ask.wants {
            let mut left = *max;
            while left > 0
                && let Some(lane) = self.next_lane(channel, ask, now)
            {
                if let Some(lease) = self.lease_lane(&lane, ask, now, fence, threads) {
                    leases.push(lease);
                    left -= 1;
                }
            }
        }
        leases
    }

    /// The lane to be taken next: by priority of its first message, then by when that is due, then by age.
    fn next_lane(&self, channel: &Arc<str>, ask: &OutboxLeaseRequest, now: i64) -> Option<Lane> {
        let mut heads: BTreeMap<Lane, (MessageId, &Kept, i64)> = BTreeMap::new();
        for (id, message, place) in self.open() {
            let Some(due_ms) = place.due_ms else { continue };
            heads.entry(self.spoken_for(message.lane(id, &place))).or_insert((id, message, due_ms));
        }
        let turn = |(lane, (id, message, due_ms)): (Lane, (MessageId, &Kept, i64))| {
            let message = &message.new;
            let account = (Arc::clone(&message.channel), message.account.clone());
            let paused = self.paused.contains_key(&(message.channel.to_string(), message.account.clone()));
            let due = self.leases_of(&lane).map(|held| held.until_ms).max().unwrap_or(due_ms);
            let wanted = message.channel == *channel && due <= now && !paused && !ask.resting.contains(&account);
            wanted.then_some(((message.priority, due, id), lane))
        };
        heads.into_iter().filter_map(turn).min_by_key(|(turn, _)| *turn).map(|(_, lane)| lane)
    }

    /// The leases that are out of a lane and of those that were joined into it, by rising message.
    fn leases_of(&self, lane: &Lane) -> impl Iterator<Item = &Held> {
        self.leases.values().filter(|held| self.lane_of(held.message).as_ref() == Some(lane))
    }

    fn lease_lane(
        &mut self,
        lane: &Lane,
        ask: &OutboxLeaseRequest,
        now: i64,
        fence: &mut u64,
        threads: &Threads,
    ) -> Option<OutboxLease> {
        let lost: Vec<Held> = self.leases_of(lane).cloned().collect();
        let gone = lost.iter().filter(|lost| self.lose(lost, now, "the lease ran out", threads)).count();
        if gone > 0 {
            return None;
        }
        let mut open = self.open();
        let first = open.find(|(id, _, place)| place.due_ms.is_some() && self.lane_of(*id).as_ref() == Some(lane));
        // A lease that was out when its lane was joined may end while the first of all still waits for its time.
        let id = first.filter(|(_, _, place)| place.due_ms.is_some_and(|due_ms| due_ms <= now)).map(|(id, ..)| id)?;
        drop(open);
        if !self.change(id, threads, |state| state.lease(now))? {
            return None;
        }
        let was_held = |state: &mut Outgoing| state.place.as_mut().is_some_and(|place| std::mem::take(&mut place.held));
        if self.change(id, threads, was_held)? {
            // The time it was held until has come.
            return None;
        }
        let message = self.messages.get_mut(&id)?;
        let place = message.state.place.as_mut()?;
        place.attempt = place.leased_attempt();
        *fence += 1;
        let held = Held {
            message: id,
            lane: lane.clone(),
            fence: Fence(*fence),
            worker: Arc::clone(&ask.worker),
            leased_ms: now,
            until_ms: now + ask.hold_ms,
        };
        self.leases.insert(id, held.clone());
        Some(OutboxLease {
            lane: super::state::lane_ref(ids::number_of(id.0)),
            fence: held.fence,
            until_ms: held.until_ms,
            message: id,
            request_id: message.new.request_id.clone(),
            channel: Arc::clone(&message.new.channel),
            account: message.new.account.clone(),
            peer: message.new.peer.clone(),
            payload: message.new.payload.clone(),
            text: message.new.text.clone(),
            attempt: place.attempt,
            failures: place.failures,
            created_ms: message.created_ms,
            in_doubt_since_ms: place.begun_ms,
        })
    }

    /// Writes down a lease that nobody settled; true when the message has left the outbox because it was heard of.
    fn lose(&mut self, lost: &Held, now: i64, why: &str, threads: &Threads) -> bool {
        self.leases.remove(&lost.message);
        self.log_try(lost, now, "lost", why);
        let lose = |state: &mut Outgoing| {
            state.lose_lease(now);
            state.place.is_none()
        };
        self.change(lost.message, threads, lose).unwrap_or(false)
    }

    fn held(&mut self, number: u64, fence: Fence) -> Option<&mut Held> {
        let id = self.open_ids().find(|id| ids::number_of(id.0) == number)?;
        self.leases.get_mut(&id).filter(|held| held.fence == fence)
    }

    pub(super) fn begin(&mut self, number: u64, fence: Fence, now: i64) -> Settled {
        let Some(id) = self.held(number, fence).map(|held| held.message) else { return Settled::Lost };
        let begun = self.messages.get_mut(&id).is_some_and(|message| message.state.begin(now));
        if begun { Settled::Done } else { Settled::Lost }
    }

    pub(super) fn extend(&mut self, number: u64, fence: Fence, until: i64) -> bool {
        self.held(number, fence).map(|held| held.until_ms = until).is_some()
    }

    pub(super) fn settle(&mut self, number: u64, fence: Fence, outcome: SendOutcome, now: i64, threads: &Threads) -> Settled {
        let Some(id) = self.held(number, fence).map(|held| held.message) else { return Settled::Lost };
        let Some(held) = self.leases.remove(&id) else { return Settled::Lost };
        let Some(message) = self.messages.get(&id) else { return Settled::Lost };
        let account = message.new.account.clone();
        let outcome = outcome.matched(|name| {
            let owner = self.by_provider_id(&account, name);
            owner.is_none_or(|owner| owner == id) && !message.state.past.was_called(name)
        });
        if let Some(detail) = outcome.detail() {
            self.log_try(&held, now, outcome.name(), detail);
        }
        let early = match &outcome {
            SendOutcome::Sent { provider_id } => Some((provider_id, self.name(id, &account, provider_id))),
            _ => None,
        };
        self.change(id, threads, |state| {
            if let Some((provider_id, early)) = early {
                state.call_it(provider_id, &early);
            }
            state.settle(&outcome, now);
        });
        Settled::Done
    }

    /// Makes a name lead to the message; gives what was heard under it before.
    fn name(&mut self, id: MessageId, account: &str, provider_id: &str) -> Steps {
        let name = (account.to_owned(), provider_id.to_owned());
        let early = self.early.remove(&name).map(|(steps, _)| steps).unwrap_or_default();
        self.provider_ids.insert(name, id);
        early
    }

    fn log_try(&mut self, held: &Held, now: i64, outcome: &str, detail: &str) {
        let Some(message) = self.messages.get_mut(&held.message) else { return };
        message.tries.push(TryRow {
            attempt: message.state.place.map_or(0, |place| place.attempt),
            fence: held.fence,
            worker: held.worker.to_string(),
            leased_ms: held.leased_ms,
            ended_ms: now,
            outcome: outcome.to_owned(),
            detail: detail.to_owned(),
        });
    }

    /// Takes note of a status or an echo; true when it is about a message of ours.
    pub(super) fn hear(&mut self, event: &Event, now: i64) -> bool {
        let Some(status) = event.says() else { return false };
        let at_ms = event.at_ms.unwrap_or(now);
        let by_handle =
            event.handle.filter(|id| self.messages.get(id).is_some_and(|message| message.new.account == event.account));
        let word = Word { provider_id: &event.id, status, at_ms, by_handle: by_handle.is_some() };
        let Some(id) = by_handle.or_else(|| self.by_provider_id(&event.account, &event.id)) else {
            if !event.echo && self.is_sending(&event.account) {
                let (steps, heard_ms) = self.early.entry((event.account.clone(), event.id.clone())).or_default();
                steps.hear(status, at_ms);
                *heard_ms = now;
            }
            return false;
        };
        let named = self.messages.get(&id).is_some_and(|message| message.state.is_named_by(&word));
        let early = if named { self.name(id, &event.account, &event.id) } else { Steps::default() };
        let leased = self.leases.contains_key(&id);
        if let Some(message) = self.messages.get_mut(&id) {
            message.state.hear(&word, &early, leased);
        }
        self.tidy();
        true
    }

    fn is_sending(&self, account: &str) -> bool {
        self.open().any(|(_, message, place)| place.begun_ms.is_some() && message.new.account == account)
    }

    pub(super) fn settle_late(
        &mut self,
        id: MessageId,
        attempt: u32,
        outcome: &SendOutcome,
        now: i64,
        threads: &Threads,
    ) -> Changed {
        let leased = self.leases.contains_key(&id);
        let Some(message) = self.messages.get(&id) else { return Changed::NotFound };
        if !message.state.takes_late(attempt, outcome, leased) {
            return Changed::TooLate;
        }
        let account = message.new.account.clone();
        let early = match outcome {
            SendOutcome::Sent { provider_id } => Some((provider_id, self.name(id, &account, provider_id))),
            _ => None,
        };
        self.change(id, threads, |state| {
            if let Some((provider_id, early)) = early {
                state.call_it(provider_id, &early);
            }
            state.settle_late(attempt, outcome, leased, now);
        });
        Changed::Done
    }

    pub(super) fn retry(&mut self, id: MessageId, now: i64, threads: &Threads) -> Changed {
        let leased = self.leases.contains_key(&id);
        self.change(id, threads, |state| state.retry(leased, now)).unwrap_or(Changed::NotFound)
    }

    pub(super) fn cancel(&mut self, id: MessageId, now: i64, threads: &Threads) -> Changed {
        let leased = self.leases.contains_key(&id);
        self.change(id, threads, |state| state.cancel(leased, now)).unwrap_or(Changed::NotFound)
    }

    pub(super) fn end_all_leases(&mut self, now: i64, threads: &Threads) {
        for held in self.leases.values().cloned().collect::<Vec<_>>() {
            self.lose(&held, now, "hapax stopped", threads);
        }
    }

    fn place_of(&self, id: MessageId) -> Option<OutboxPlace> {
        let message = self.messages.get(&id)?;
        let place = message.state.place?;
        let state = match (self.leases.get(&id), place.unknown) {
            (Some(held), _) => OutboxState::Leased {
                worker: held.worker.to_string(),
                until_ms: held.until_ms,
                fence: held.fence,
                begun: place.begun_ms.is_some(),
            },
            (None, true) => OutboxState::Unknown { check_ms: place.due_ms },
            (None, false) => OutboxState::Waiting { due_ms: place.due_ms.unwrap_or_default() },
        };
        Some(OutboxPlace { state, attempt: place.attempt, failures: place.failures })
    }

    pub(super) fn by_provider_id(&self, account: &str, provider_id: &str) -> Option<MessageId> {
        self.provider_ids.get(&(account.to_owned(), provider_id.to_owned())).copied()
    }

    pub(super) fn pause(&mut self, channel: &str, account: &str, why: Option<&str>, now: i64) {
        let key = (channel.to_owned(), account.to_owned());
        match why {
            None => {
                self.paused.remove(&key);
            }
            Some(why) => {
                let since_ms = self.paused.get(&key).map_or(now, |paused| paused.since_ms);
                let (channel, account) = key.clone();
                self.paused.insert(key, PausedAccount { channel, account, why: why.to_owned(), since_ms });
            }
        }
    }

    pub(super) fn row(&self, id: MessageId) -> Option<MessageRow> {
        let message = self.messages.get(&id)?;
        Some(MessageRow {
            id,
            channel: message.new.channel.to_string(),
            account: message.new.account.clone(),
            peer: message.new.peer.clone(),
            request_id: message.new.request_id.clone(),
            text: message.new.text.clone(),
            payload: message.new.payload.clone(),
            priority: message.new.priority,
            reply_to: message.new.reply_to,
            created_ms: message.created_ms,
            provider_id: message.state.provider_id.clone(),
            steps: message.state.steps.clone(),
            why: message.state.why.clone(),
            past: message.state.past.clone(),
            outbox: self.place_of(id),
            tries: message.tries.clone(),
        })
    }

    /// How many are in doubt, or how many are not.
    pub(super) fn count_open(&self, unknown: bool) -> u64 {
        self.open().filter(|(_, _, place)| place.unknown == unknown).count() as u64
    }

    /// Forgets ended messages of the channels after their retention.
    /// `sift` picks those that may go from all that have ended, with the time they count by.
    pub(super) fn purge(&mut self, sift: impl Fn(&[Dated]) -> Vec<Dated>, is_over: impl Fn(&str, i64) -> bool) {
        let ended = self.messages.iter().filter(|(_, message)| message.state.place.is_none());
        let page: Vec<Dated> =
            ended.map(|(id, message)| Dated { number: ids::number_of(id.0), at_ms: message.created_ms }).collect();
        let old: HashMap<u64, i64> = sift(&page).into_iter().map(|row| (row.number, row.at_ms)).collect();
        let over = |id: &MessageId, message: &Kept| {
            old.get(&ids::number_of(id.0)).is_some_and(|at_ms| is_over(&message.new.channel, *at_ms))
        };
        let gone: Vec<MessageId> = self.messages.iter().filter(|(id, message)| over(id, message)).map(|(id, _)| *id).collect();
        for id in &gone {
            self.messages.remove(id);
        }
        self.requests.retain(|_, id| !gone.contains(id));
        self.provider_ids.retain(|_, id| !gone.contains(id));
    }

    /// Takes the words out of one that has ended; `false`: it has not.
    pub(super) fn forget(&mut self, id: MessageId) -> Option<bool> {
        let message = self.messages.get_mut(&id)?;
        if message.state.place.is_some() {
            return Some(false);
        }
        (message.new.text, message.new.payload) = (None, bytes::Bytes::new());
        Some(true)
    }

    pub(super) fn holds(&self, id: MessageId) -> bool {
        self.messages.contains_key(&id)
    }

    /// Moves waits and leases with a clock that was set back. What a person wants sent at a certain time stays where it is.
    pub(super) fn follow_clock(&mut self, back: i64, now: i64) {
        let places = self.messages.values_mut().filter_map(|message| message.state.place.as_mut());
        places.filter(|place| !place.held).filter_map(|place| place.due_ms.as_mut()).for_each(|due_ms| *due_ms -= back);
        self.leases.values_mut().for_each(|held| held.until_ms = end_after_set_back(held.until_ms, back, now));
        self.early.values_mut().for_each(|(_, heard_ms)| *heard_ms = now.min(*heard_ms));
    }

    /// Gives up statuses that were last heard of so long ago.
    pub(super) fn purge_early(&mut self, before_ms: i64) {
        self.early.retain(|_, (_, heard_ms)| *heard_ms > before_ms);
    }
}
