//! What a person asks for: retry, cancel, mark as read, redrive, replay.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::{EventId, ItemId, MessageId, Outgoing, SendOutcome, ThreadId, ids, limits};

use super::engine::{First, Loaded, Pool, Tx, TxError, Wanted};
use super::records::{EventRec, ItemPlace, ItemRec, Queue, own_lane, thread_hash};
use super::room::Rooms;
use super::run::Step;
use super::work::Work;
use crate::{Changed, Redrive, SUSPECTED};

/// Retries or cancels one message, or ends a try of it after its lease.
pub(super) enum ChangeMessage {
    Retry(MessageId),
    Cancel(MessageId),
    SettleLate(MessageId, u32, SendOutcome),
}

#[async_trait]
impl Step for ChangeMessage {
    type Out = Changed;
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Changed, TxError> {
        let (ChangeMessage::Retry(id) | ChangeMessage::Cancel(id) | ChangeMessage::SettleLate(id, ..)) = self;
        let number = ids::number_of(id.0);
        let mut work = Work::new(tx.now_ms());
        work.load(tx, Wanted { messages: vec![number], outs: vec![number], ..Wanted::default() }).await?;
        let Some(message) = work.messages.get(&number).filter(|message| message.message_id() == *id) else {
            return Ok(Changed::NotFound);
        };
        let account = message.account.clone();
        let out = work.outs.get(&number).cloned();
        let lane = out.as_ref().map_or_else(|| own_lane(Queue::Outbox, number), |out| out.lane);
        work.load(tx, Wanted { lanes: vec![lane], ..Wanted::default() }).await?;
        work.load_groups(tx).await?;
        work.load(tx, Wanted { lowest_outs: work.group(&lane), ..Wanted::default() }).await?;
        if !matches!(self, ChangeMessage::Cancel(_)) && out.is_none_or(|out| out.is_alone()) {
            work.load_homes(tx, vec![number]).await?;
        }
        if let ChangeMessage::SettleLate(_, _, SendOutcome::Sent { provider_id }) = self {
            work.load(tx, Wanted { provider_names: vec![(account.clone(), provider_id.clone())], ..Wanted::default() }).await?;
        }
        let changed = match self {
            ChangeMessage::Retry(_) => work.change_message(number, Outgoing::retry),
            ChangeMessage::Cancel(_) => work.change_message(number, Outgoing::cancel),
            ChangeMessage::SettleLate(_, attempt, outcome) => work.settle_late(number, &account, *attempt, outcome),
        };
        if changed == Changed::Done {
            tx.save(work.changes()).await?;
        }
        Ok(changed)
    }
}

impl Work {
    fn change_message(&mut self, number: u64, change: impl Fn(&mut Outgoing, bool, i64) -> Changed) -> Changed {
        let Some(mut state) = self.outgoing(number) else { return Changed::NotFound };
        let changed = change(&mut state, self.is_leased(number), self.now_ms);
        if changed == Changed::Done {
            self.keep(number, state);
        }
        changed
    }

    fn settle_late(&mut self, number: u64, account: &str, attempt: u32, outcome: &SendOutcome) -> Changed {
        let (leased, state) = (self.is_leased(number), self.outgoing(number));
        let Some(mut state) = state.filter(|state| state.takes_late(attempt, outcome, leased)) else { return Changed::TooLate };
        if let SendOutcome::Sent { provider_id } = outcome {
            let early = self.name(number, account, provider_id);
            state.call_it(provider_id, &early);
        }
        state.settle_late(attempt, outcome, leased, self.now_ms);
        self.keep(number, state);
        Changed::Done
    }
}

pub(super) struct MarkRead(pub(super) ThreadId);

#[async_trait]
impl Step for MarkRead {
    type Out = bool;
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        1
    }

    fn first(&self) -> First {
        let name = (self.0.account.clone(), self.0.peer.clone());
        First { names: vec![name.clone()], threads: vec![name], ..First::default() }
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, TxError> {
        let mut work = Work::new(tx.now_ms());
        let ThreadId { account, peer } = &self.0;
        let (own, names) = (thread_hash(account, peer), vec![(account.clone(), peer.clone())]);
        work.load(tx, Wanted { names, threads: vec![own], ..Wanted::default() }).await?;
        let mut hash = own;
        if work.threads.get(&own).is_none() {
            work.load_names(tx, work.names.ahead()).await?;
            let thread = work.thread_of(account, peer);
            hash = thread_hash(&thread.account, &thread.peer);
            work.load(tx, Wanted { threads: vec![hash], ..Wanted::default() }).await?;
        }
        let number = tx.number();
        let Some(thread) = work.threads.change(&hash) else { return Ok(false) };
        let unread = std::mem::take(&mut thread.unread);
        thread.read_to = thread.read_to.max(number);
        work.marked_read.push((hash, unread));
        tx.save(work.changes()).await?;
        Ok(true)
    }
}

pub(super) struct RedriveParked {
    pub(super) which: Redrive,
    pub(super) max: usize,
    pub(super) rooms: Arc<Rooms>,
}

#[async_trait]
impl Step for RedriveParked {
    type Out = usize;
    const POOL: Pool = Pool::Admin;

    /// For the replies that are sent at last.
    fn numbers(&self) -> usize {
        self.max.saturating_mul(limits::REPLIES_MAX).min(REDRIVEN_REPLIES)
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<usize, TxError> {
        let mut work = Work::new(tx.now_ms());
        let (mut moved, mut after, mut numbers) = (0, 0, self.numbers());
        let mut looks_left = limits::redrive_looks_at(self.max);
        let of_many = matches!(self.which, Redrive::Channel(_) | Redrive::All);
        loop {
            let some = (self.max - moved).min(looks_left).min(limits::PAGE_MAX);
            let parked = tx.parked(&self.which, after, some).await?;
            let Some(last) = parked.last().map(|item| item.number) else { break };
            (after, looks_left) = (last, looks_left - parked.len());
            let items = parked.iter().map(|item| (item.number, item.clone())).collect();
            work.take(Loaded { items, ..Loaded::default() });
            let events = parked.iter().filter(|item| item.replies.is_empty()).filter_map(|item| item.events.first().copied());
            work.load(tx, Wanted { events: events.collect(), ..Wanted::default() }).await?;
            let of = |item: &ItemRec| work.events.get(item.events.first()?).cloned();
            let events: Vec<EventRec> = parked.iter().filter_map(of).collect();
            work.load_lanes_again(tx, &events).await?;
            let replies = || parked.iter().flat_map(|item| &item.replies);
            work.load_for_submit(tx, replies()).await?;
            work.look_for_room(tx, &self.rooms, replies()).await?;
            let is_suspected = |item: &ItemRec| item.why.as_deref().is_some_and(|why| why.starts_with(SUSPECTED));
            for item in parked.iter().filter(|item| !(of_many && is_suspected(item))) {
                if item.replies.is_empty() {
                    let due_ms = work.now_ms;
                    let event = item.events.first().and_then(|event| work.events.get(event)).cloned();
                    let item = ItemRec { place: ItemPlace::InLane, failures: 0, due_ms, ..item.clone() };
                    work.add_item_again(item, event.as_ref());
                } else if item.replies.iter().any(|reply| work.is_full_for(reply)) || item.replies.len() > numbers {
                    continue;
                } else {
                    numbers -= item.replies.len();
                    item.replies.iter().for_each(|reply| {
                        work.submit(reply, tx.number());
                    });
                    work.remove_item(item.number);
                }
                moved += 1;
            }
            if moved >= self.max || looks_left == 0 {
                break;
            }
        }
        if moved > 0 {
            tx.save(work.changes()).await?;
        }
        Ok(moved)
    }
}

/// The most replies that one redrive sends; the items of the others stay parked until the next.
const REDRIVEN_REPLIES: usize = 1_000;

pub(super) struct Replay(pub(super) EventId);

#[async_trait]
impl Step for Replay {
    type Out = Option<ItemId>;
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        1
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<ItemId>, TxError> {
        let mut work = Work::new(tx.now_ms());
        let event = ids::number_of(self.0.0);
        work.load(tx, Wanted { locked_events: vec![event], ..Wanted::default() }).await?;
        let Some(event) = work.events.get(&event).filter(|event| event.event_id() == self.0 && !event.part).cloned() else {
            return Ok(None);
        };
        let number = tx.number();
        let item = ItemRec {
            number,
            received_ms: work.now_ms,
            channel: Arc::clone(&event.channel),
            lane: own_lane(Queue::Inbox, number),
            place: ItemPlace::InLane,
            events: vec![event.number],
            events_ms: event.received_ms,
            webhook: event.webhook,
            attempt: 0,
            failures: 0,
            replay: Some(event.replays + 1),
            why: None,
            due_ms: work.now_ms,
            replies: Vec::new(),
        };
        let id = item.item_id();
        work.load_lanes_again(tx, std::slice::from_ref(&event)).await?;
        work.add_item_again(item, Some(&event));
        work.replays.push((event.number, event.replays + 1));
        tx.save(work.changes()).await?;
        Ok(Some(id))
    }
}
