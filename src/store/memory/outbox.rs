//! The model's outbox: messages, their lanes, and sends in doubt.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::domain::age::Dated;
use crate::domain::{Event, Fence, MessageId, Status, Steps, ids, limits};
use crate::store::{
    Changed, MessageRow, NewMessage, OutboxAsk, OutboxLease, OutboxPlace, OutboxState, PausedAccount, SendOutcome, Settled,
    Submitted, TryRow,
};

/// Everything about messages that go out.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) messages: BTreeMap<MessageId, Outgoing>,
    requests: HashMap<(String, String), MessageId>,
    provider_ids: HashMap<(String, String), MessageId>,
    /// Statuses of messages whose provider id is not known yet, and when the last of them came.
    early: HashMap<(String, String), (Steps, i64)>,
    pub(super) open: BTreeMap<MessageId, Open>,
    /// How many of an account may wait, and as many replies beside them.
    pub(super) most: Option<usize>,
    leases: HashMap<Lane, Held>,
    pub(super) paused: BTreeMap<(String, String), PausedAccount>,
}

pub(super) struct Outgoing {
    pub(super) new: NewMessage,
    pub(super) created_ms: i64,
    /// The lane of its thread, to which it comes when its time has come, or back after doubt.
    home: Lane,
    pub(super) provider_id: Option<String>,
    pub(super) steps: Steps,
    pub(super) why: Option<String>,
    pub(super) tries: Vec<TryRow>,
}

/// A message that is still in the outbox.
pub(super) struct Open {
    lane: Lane,
    pub(super) attempt: u32,
    due_ms: Option<i64>,
    /// Set from `begin` on until it is known what became of it.
    begun_ms: Option<i64>,
    /// It has left its thread's lane, and waits for somebody's word.
    unknown: bool,
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
    fence: Fence,
    worker: Arc<str>,
    leased_ms: i64,
    until_ms: i64,
}

impl Outbox {
    /// Whether this would be one more than may wait.
    pub(super) fn is_full_for(&self, new: &NewMessage) -> bool {
        if self.requests.contains_key(&(new.account.clone(), new.request_id.clone())) {
            return false;
        }
        let beside = |(id, open): &(&MessageId, &Open)| {
            let of = self.messages.get(*id).map(|message| &message.new);
            !open.unknown
                && of.is_some_and(|of| {
                    of.channel == new.channel && of.account == new.account && of.priority.is_reply() == new.priority.is_reply()
                })
        };
        self.open.iter().filter(beside).count() >= self.most.unwrap_or(limits::OUTBOX_MAX)
    }

    pub(super) fn submit(&mut self, new: NewMessage, peer: String, id: MessageId, now: i64) -> Submitted {
        let request = (new.account.clone(), new.request_id.clone());
        if let Some(&known) = self.requests.get(&request) {
            let same = self.messages.get(&known).is_some_and(|message| message.new.fingerprint == new.fingerprint);
            return if same { Submitted::Replayed(known) } else { Submitted::Mismatch(known) };
        }
        let home = Lane::Thread { channel: Arc::clone(&new.channel), account: new.account.clone(), peer };
        let (lane, due_ms) = match new.held_until(now) {
            Some(at_ms) => (Lane::Own(id), at_ms),
            None => (home.clone(), now),
        };
        self.requests.insert(request, id);
        self.open.insert(id, Open { lane, attempt: 0, due_ms: Some(due_ms), begun_ms: None, unknown: false });
        let steps = Steps::new(vec![(Status::Queued, now)]);
        self.messages.insert(id, Outgoing { new, created_ms: now, home, provider_id: None, steps, why: None, tries: vec![] });
        Submitted::New(id)
    }

    pub(super) fn lease(&mut self, ask: &OutboxAsk, now: i64, fence: &mut u64) -> Vec<OutboxLease> {
        let mut leases = Vec::new();
        for (channel, max) in &ask.wants {
            let mut left = *max;
            while left > 0
                && let Some(lane) = self.next_lane(channel, ask, now)
            {
                if let Some(lease) = self.lease_lane(&lane, ask, now, fence) {
                    leases.push(lease);
                    left -= 1;
                }
            }
        }
        leases
    }

    /// The lane to be taken next: by priority of its first message, then by when that is due, then by age.
    fn next_lane(&self, channel: &Arc<str>, ask: &OutboxAsk, now: i64) -> Option<Lane> {
        let mut heads: BTreeMap<&Lane, (MessageId, &Open)> = BTreeMap::new();
        for (id, open) in self.open.iter().filter(|(_, open)| open.due_ms.is_some()) {
            heads.entry(&open.lane).or_insert((*id, open));
        }
        let turn = |(lane, (id, open)): (&Lane, (MessageId, &Open))| {
            let message = &self.messages.get(&id)?.new;
            let account = (Arc::clone(&message.channel), message.account.clone());
            let paused = self.paused.contains_key(&(message.channel.to_string(), message.account.clone()));
            let due = self.leases.get(lane).map_or(open.due_ms?, |held| held.until_ms);
            let wanted = message.channel == *channel && due <= now && !paused && !ask.resting.contains(&account);
            wanted.then(|| ((message.priority, due, id), lane.clone()))
        };
        heads.into_iter().filter_map(turn).min_by_key(|(turn, _)| *turn).map(|(_, lane)| lane)
    }

    fn lease_lane(&mut self, lane: &Lane, ask: &OutboxAsk, now: i64, fence: &mut u64) -> Option<OutboxLease> {
        if let Some(lost) = self.leases.remove(lane) {
            self.log_try(&lost, now, "lost", "the lease ran out");
            if self.settle_by_known_id(lost.message, now) {
                return None;
            }
        }
        let (&id, _) = self.open.iter().find(|(_, open)| open.lane == *lane && open.due_ms.is_some())?;
        let open = self.open.get_mut(&id)?;
        if matches!(open.lane, Lane::Own(_)) && !open.unknown {
            // The time it was held until has come.
            open.lane = self.messages.get(&id)?.home.clone();
            return None;
        }
        open.attempt += u32::from(open.begun_ms.is_none());
        *fence += 1;
        let held = Held {
            message: id,
            fence: Fence(*fence),
            worker: Arc::clone(&ask.worker),
            leased_ms: now,
            until_ms: now + ask.hold_ms,
        };
        self.leases.insert(lane.clone(), held.clone());
        let message = self.messages.get(&id)?;
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
            attempt: open.attempt,
            created_ms: message.created_ms,
            in_doubt_since_ms: open.begun_ms,
        })
    }

    /// A send in doubt whose provider id was heard of meanwhile has been sent.
    fn settle_by_known_id(&mut self, id: MessageId, now: i64) -> bool {
        let in_doubt = self.open.get(&id).is_some_and(|open| open.begun_ms.is_some());
        let Some(message) = self.messages.get_mut(&id).filter(|message| in_doubt && message.provider_id.is_some()) else {
            return false;
        };
        message.steps.hear(Status::Sent, now);
        message.why = None;
        self.open.remove(&id);
        true
    }

    fn held(&mut self, number: u64, fence: Fence) -> Option<(Lane, &mut Held)> {
        let lane = self.open.iter().find(|(id, _)| ids::number_of(id.0) == number).map(|(_, open)| open.lane.clone())?;
        let held = self.leases.get_mut(&lane).filter(|held| held.fence == fence && ids::number_of(held.message.0) == number)?;
        Some((lane, held))
    }

    pub(super) fn begin(&mut self, number: u64, fence: Fence, now: i64) -> Settled {
        let Some(id) = self.held(number, fence).map(|(_, held)| held.message) else { return Settled::Lost };
        if let Some(open) = self.open.get_mut(&id) {
            open.begun_ms = Some(now);
        }
        if let Some(message) = self.messages.get_mut(&id) {
            message.steps.hear(Status::Sending, now);
        }
        Settled::Done
    }

    pub(super) fn extend(&mut self, number: u64, fence: Fence, until: i64) -> bool {
        self.held(number, fence).map(|(_, held)| held.until_ms = until).is_some()
    }

    pub(super) fn settle(&mut self, number: u64, fence: Fence, outcome: SendOutcome, now: i64) -> Settled {
        let Some(lane) = self.held(number, fence).map(|(lane, _)| lane) else { return Settled::Lost };
        let Some(held) = self.leases.remove(&lane) else { return Settled::Lost };
        let id = held.message;
        let name = outcome.name();
        match outcome {
            SendOutcome::Sent { provider_id } => {
                self.log_try(&held, now, name, &provider_id);
                self.name(id, &provider_id);
                self.end(id, Status::Sent, None, now);
            }
            SendOutcome::Failed { why } => {
                self.log_try(&held, now, name, &why);
                self.end(id, Status::Failed, Some(why), now);
            }
            SendOutcome::Retry { wait_ms, why } => {
                self.log_try(&held, now, name, &why);
                self.requeue(id, now + wait_ms, Some(why));
            }
            SendOutcome::Unknown { why, check_ms } => {
                self.log_try(&held, now, name, &why);
                self.doubt(id, why, check_ms.map(|wait| now + wait), now);
            }
            SendOutcome::HandBack { wait_ms } => {
                if let Some(open) = self.open.get_mut(&id) {
                    open.attempt -= u32::from(open.begun_ms.is_none());
                    open.due_ms = Some(now + wait_ms);
                }
            }
        }
        Settled::Done
    }

    /// Learns what the provider calls a message, and takes over the statuses that came before.
    fn name(&mut self, id: MessageId, provider_id: &str) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.provider_id = Some(provider_id.to_owned());
        let name = (message.new.account.clone(), provider_id.to_owned());
        for (status, at_ms) in self.early.remove(&name).iter().flat_map(|(steps, _)| steps.iter()) {
            message.steps.hear(status, at_ms);
        }
        self.provider_ids.insert(name, id);
    }

    fn end(&mut self, id: MessageId, status: Status, why: Option<String>, now: i64) {
        self.open.remove(&id);
        if let Some(message) = self.messages.get_mut(&id) {
            message.steps.hear(status, now);
            message.why = why;
        }
    }

    /// Puts the message back into its thread's lane, certainly unsent.
    fn requeue(&mut self, id: MessageId, due_ms: i64, why: Option<String>) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.why = why;
        if let Some(open) = self.open.get_mut(&id) {
            open.begun_ms = None;
            open.due_ms = Some(due_ms);
            if open.unknown {
                open.unknown = false;
                open.lane = message.home.clone();
            }
        }
    }

    fn doubt(&mut self, id: MessageId, why: String, check_ms: Option<i64>, now: i64) {
        if self.settle_by_known_id(id, now) {
            return;
        }
        if let Some(open) = self.open.get_mut(&id) {
            open.begun_ms.get_or_insert(now);
            open.due_ms = check_ms;
            open.unknown = true;
            open.lane = Lane::Own(id);
        }
        if let Some(message) = self.messages.get_mut(&id) {
            message.steps.hear(Status::Unknown, now);
            message.why = Some(why);
        }
    }

    fn log_try(&mut self, held: &Held, now: i64, outcome: &str, detail: &str) {
        let attempt = self.open.get(&held.message).map_or(0, |open| open.attempt);
        if let Some(message) = self.messages.get_mut(&held.message) {
            message.tries.push(TryRow {
                attempt,
                fence: held.fence,
                worker: held.worker.to_string(),
                leased_ms: held.leased_ms,
                ended_ms: now,
                outcome: outcome.to_owned(),
                detail: detail.to_owned(),
            });
        }
    }

    /// Takes note of a status webhook; true when it is about a message of ours.
    pub(super) fn hear(&mut self, event: &Event, now: i64) -> bool {
        let Some(status) = event.status else { return false };
        let at_ms = event.at_ms.unwrap_or(now);
        let by_handle =
            event.handle.filter(|id| self.messages.get(id).is_some_and(|message| message.new.account == event.account));
        let name = (event.account.clone(), event.id.clone());
        if let Some(id) = by_handle {
            self.name(id, &event.id);
        }
        let Some(id) = by_handle.or_else(|| self.provider_ids.get(&name).copied()) else {
            if self.is_sending(&event.account) {
                let (steps, heard_ms) = self.early.entry(name).or_default();
                steps.hear(status, at_ms);
                *heard_ms = now;
            }
            return false;
        };
        if let Some(message) = self.messages.get_mut(&id) {
            message.steps.hear(status, at_ms);
        }
        if self.open.get(&id).is_some_and(|open| open.unknown) && !self.is_leased(id) {
            self.settle_by_known_id(id, at_ms);
        }
        true
    }

    /// Takes note of our own message seen again; true when it settles a send that was in doubt.
    pub(super) fn hear_echo(&mut self, event: &Event, now: i64) -> bool {
        let Some(text) = &event.text else { return false };
        let doubted = self.open.iter().filter(|(_, open)| open.unknown).map(|(id, _)| *id);
        let same = |id: &MessageId| {
            self.messages.get(id).is_some_and(|message| {
                message.new.account == event.account
                    && Some(&message.new.peer) == event.peer.as_ref()
                    && message.new.text.as_ref() == Some(text)
            })
        };
        let Some(id) = doubted.filter(|id| !self.is_leased(*id)).find(same) else { return false };
        self.name(id, &event.id);
        self.settle_by_known_id(id, now)
    }

    fn is_sending(&self, account: &str) -> bool {
        let of_account = |id: &MessageId| self.messages.get(id).is_some_and(|message| message.new.account == account);
        self.open.iter().any(|(id, open)| open.begun_ms.is_some() && of_account(id))
    }

    fn is_leased(&self, id: MessageId) -> bool {
        self.leases.values().any(|held| held.message == id)
    }

    pub(super) fn retry(&mut self, id: MessageId, now: i64) -> Changed {
        let Some(message) = self.messages.get_mut(&id) else { return Changed::NotFound };
        let failed = !self.open.contains_key(&id) && message.steps.status() == Status::Failed;
        let doubted = self.open.get(&id).is_some_and(|open| open.unknown);
        if !(failed || doubted) || self.is_leased(id) {
            return Changed::TooLate;
        }
        let Some(message) = self.messages.get_mut(&id) else { return Changed::NotFound };
        message.steps = Steps::new(vec![(Status::Queued, message.created_ms)]);
        let attempt = 0;
        let open = Open { lane: Lane::Own(id), attempt, due_ms: Some(now), begun_ms: None, unknown: true };
        self.open.insert(id, open);
        self.requeue(id, now, None);
        Changed::Done
    }

    pub(super) fn cancel(&mut self, id: MessageId, now: i64) -> Changed {
        if !self.messages.contains_key(&id) {
            return Changed::NotFound;
        }
        let leased = self.is_leased(id);
        match self.open.get(&id) {
            Some(open) if !leased && open.unknown => {
                self.open.remove(&id);
                if let Some(message) = self.messages.get_mut(&id) {
                    message.why = Some("given up while in doubt".to_owned());
                }
                Changed::Done
            }
            Some(_) if !leased => {
                self.end(id, Status::Failed, Some("cancelled".to_owned()), now);
                Changed::Done
            }
            _ => Changed::TooLate,
        }
    }

    pub(super) fn end_all_leases(&mut self, now: i64) {
        for held in std::mem::take(&mut self.leases).into_values() {
            self.log_try(&held, now, "lost", "hapax stopped");
            self.settle_by_known_id(held.message, now);
        }
    }

    fn state_of(&self, id: MessageId) -> Option<(OutboxState, u32)> {
        let open = self.open.get(&id)?;
        let held = self.leases.get(&open.lane).filter(|held| held.message == id);
        let state = match (held, open.unknown) {
            (Some(held), _) => OutboxState::Leased {
                worker: held.worker.to_string(),
                until_ms: held.until_ms,
                fence: held.fence,
                begun: open.begun_ms.is_some(),
            },
            (None, true) => OutboxState::Unknown { check_ms: open.due_ms },
            (None, false) => OutboxState::Waiting { due_ms: open.due_ms.unwrap_or_default() },
        };
        Some((state, open.attempt))
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
            provider_id: message.provider_id.clone(),
            steps: message.steps.clone(),
            why: message.why.clone(),
            outbox: self.state_of(id).map(|(state, attempt)| OutboxPlace { state, attempt }),
            tries: message.tries.clone(),
        })
    }

    /// How many are in doubt, or how many are not.
    pub(super) fn count_open(&self, unknown: bool) -> u64 {
        self.open.values().filter(|open| open.unknown == unknown).count() as u64
    }

    /// Forgets ended messages of the channels after their retention.
    /// `sift` picks those that may go from all that have ended, with the time they count by.
    pub(super) fn purge(&mut self, sift: impl Fn(&[Dated]) -> Vec<Dated>, is_over: impl Fn(&str, i64) -> bool) {
        let ended = self.messages.iter().filter(|(id, _)| !self.open.contains_key(id));
        let page: Vec<Dated> =
            ended.map(|(id, message)| Dated { number: ids::number_of(id.0), at_ms: message.created_ms }).collect();
        let old: HashMap<u64, i64> = sift(&page).into_iter().map(|row| (row.number, row.at_ms)).collect();
        let over = |id: &MessageId, message: &Outgoing| {
            old.get(&ids::number_of(id.0)).is_some_and(|at_ms| is_over(&message.new.channel, *at_ms))
        };
        let gone: Vec<MessageId> = self.messages.iter().filter(|(id, message)| over(id, message)).map(|(id, _)| *id).collect();
        for id in &gone {
            self.messages.remove(id);
        }
        self.requests.retain(|_, id| !gone.contains(id));
        self.provider_ids.retain(|_, id| !gone.contains(id));
    }

    pub(super) fn holds(&self, id: MessageId) -> bool {
        self.messages.contains_key(&id)
    }

    /// Moves waits and leases with a clock that was set back. What a person wants sent at a certain time stays where it is.
    pub(super) fn follow_clock(&mut self, back: i64, now: i64) {
        let scheduled = |open: &Open| matches!(open.lane, Lane::Own(_)) && !open.unknown;
        let waiting = self.open.values_mut().filter(|open| !scheduled(open));
        waiting.filter_map(|open| open.due_ms.as_mut()).for_each(|due_ms| *due_ms -= back);
        self.leases.values_mut().for_each(|held| held.until_ms -= back);
        self.early.values_mut().for_each(|(_, heard_ms)| *heard_ms = now.min(*heard_ms));
    }

    /// Gives up statuses that were last heard of so long ago.
    pub(super) fn purge_early(&mut self, before_ms: i64) {
        self.early.retain(|_, (_, heard_ms)| *heard_ms > before_ms);
    }
}
