//! What is over loses its words.

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;
use hapax_domain::{ThreadId, ids};

use super::engine::{Engine, Pool, Tx, TxError, Wanted};
use super::records::{EventRec, MessageRec, thread_hash};
use super::run::{Step, run};
use super::work::Work;
use crate::{Forget, Forgotten, StoreError};

pub(super) async fn forget<E: Engine>(engine: &E, what: Forget) -> Result<Forgotten, StoreError> {
    let Forget { events, messages, threads } = what;
    let mut forgotten = Forgotten::default();
    let numbers = events.iter().map(|id| ids::number_of(id.0)).collect();
    let found = engine.peek(&Wanted { events: numbers, ..Wanted::default() }).await?.events;
    let asked: HashSet<_> = events.into_iter().collect();
    let found: Vec<EventRec> = found.into_values().filter(|event| asked.contains(&event.event_id())).collect();
    if !found.is_empty() {
        forgotten = forgotten.and(forget_events(engine, &found).await?);
    }
    let numbers = messages.iter().map(|id| ids::number_of(id.0)).collect();
    let found = engine.peek(&Wanted { messages: numbers, ..Wanted::default() }).await?.messages;
    let asked: HashSet<_> = messages.into_iter().collect();
    let found: Vec<MessageRec> = found.into_values().filter(|message| asked.contains(&message.message_id())).collect();
    if !found.is_empty() {
        forgotten = forgotten.and(run(engine, &ForgetMessages(found)).await?);
    }
    for thread in threads {
        run(engine, &ForgetLastWords(thread)).await?;
    }
    Ok(forgotten)
}

async fn forget_events<E: Engine>(engine: &E, wanted: &[EventRec]) -> Result<Forgotten, StoreError> {
    let webhooks: BTreeSet<u64> = wanted.iter().map(|event| event.webhook).collect();
    let all = engine.events_of(&webhooks.into_iter().collect::<Vec<_>>()).await?;
    let mut replayed = HashSet::new();
    for event in all.iter().filter(|event| event.replays > 0) {
        if !engine.list_replays(event.number).await?.is_empty() {
            replayed.insert(event.webhook);
        }
    }
    run(engine, &ForgetEvents { all, wanted: wanted.iter().map(|event| event.number).collect(), replayed }).await
}

struct ForgetEvents {
    /// Of whole webhooks.
    all: Vec<EventRec>,
    wanted: HashSet<u64>,
    /// Webhooks of which something is being replayed.
    replayed: HashSet<u64>,
}

#[async_trait]
impl Step for ForgetEvents {
    type Out = Forgotten;
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Forgotten, TxError> {
        let mut work = Work::new(tx.now_ms());
        let items = self.all.iter().filter_map(|event| event.item).collect();
        let locked_events = self.all.iter().map(|event| event.number).collect();
        work.load(tx, Wanted { items, locked_events, ..Wanted::default() }).await?;
        let is_open = |event: &EventRec| event.item.is_some_and(|item| work.items.get(&item).is_some());
        // Somebody may have asked for a replay since it was looked at.
        let is_same = |event: &EventRec| work.events.get(&event.number).is_none_or(|now| now.replays == event.replays);
        let busy = self.all.iter().filter(|event| is_open(event) || !is_same(event)).map(|event| event.webhook);
        let busy: HashSet<u64> = busy.chain(self.replayed.iter().copied()).collect();
        let (open, over): (Vec<&EventRec>, Vec<&EventRec>) =
            self.all.iter().filter(|event| self.wanted.contains(&event.number)).partition(|event| busy.contains(&event.webhook));
        let forgotten = Forgotten { events: over.len() as u64, open: open.len() as u64, ..Forgotten::default() };
        if over.is_empty() {
            return Ok(forgotten);
        }
        let webhooks: HashSet<u64> = over.iter().map(|event| event.webhook).collect();
        work.forgotten_events = over.iter().map(|event| event.number).collect();
        work.forgotten_events.sort_unstable();
        work.forgotten_bodies = self.all.iter().filter(|event| webhooks.contains(&event.webhook)).cloned().collect();
        work.forgotten_bodies.sort_unstable_by_key(|event| event.number);
        tx.save(work.changes()).await?;
        Ok(forgotten)
    }
}

struct ForgetMessages(Vec<MessageRec>);

#[async_trait]
impl Step for ForgetMessages {
    type Out = Forgotten;
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Forgotten, TxError> {
        let mut work = Work::new(tx.now_ms());
        let numbers: Vec<u64> = self.0.iter().map(|message| message.number).collect();
        work.load(tx, Wanted { messages: numbers.clone(), outs: numbers, ..Wanted::default() }).await?;
        let there = self.0.iter().filter(|message| work.messages.get(&message.number).is_some());
        let (open, over): (Vec<&MessageRec>, Vec<&MessageRec>) =
            there.partition(|message| work.outs.get(&message.number).is_some());
        let forgotten = Forgotten { messages: over.len() as u64, open: open.len() as u64, ..Forgotten::default() };
        work.forgotten_messages = over.into_iter().cloned().collect();
        work.forgotten_messages.sort_unstable_by_key(|message| message.number);
        if !work.forgotten_messages.is_empty() {
            tx.save(work.changes()).await?;
        }
        Ok(forgotten)
    }
}

struct ForgetLastWords(ThreadId);

#[async_trait]
impl Step for ForgetLastWords {
    type Out = ();
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), TxError> {
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
        if let Some(thread) = work.threads.change(&hash) {
            thread.last_text = None;
            tx.save(work.changes()).await?;
        }
        Ok(())
    }
}
