//! What older versions left waiting, made to wait as it does today. Done by the first instance that opens their store, before anybody works on it.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::Round;

use super::engine::{Engine, Pool, Tx, TxError, Wanted};
use super::lanes::empty;
use super::records::{EventRec, LaneRec, Queue, outbox_lane};
use super::run::{Step, run};
use super::store::ServerStore;
use super::work::Work;
use crate::{InboxQuery, OutboxQuery, StoreError};

/// The setting that an engine makes when it changes what a version before [`ONE_LANE_SINCE`] has written. Gone when all is done, so that it goes
/// on after a crash.
pub const UPGRADING: &str = "upgrading";

/// The version of the tables since which all names of a person have one lane.
pub const ONE_LANE_SINCE: usize = 4;

/// How many are looked at in one transaction.
const SHARE: usize = 50;

impl<E: Engine> ServerStore<E> {
    /// Opens a store, and ends an upgrade that was begun.
    pub async fn open(engine: Arc<E>) -> Result<Self, StoreError> {
        let store = Self::new(engine);
        if store.engine.amend(UPGRADING, None, None, None).await?.is_some() {
            tracing::info!("an older version has written this store; what waits in it is put in line as this one does");
            store.upgrade().await?;
            store.engine.forget(UPGRADING).await?;
        }
        Ok(store)
    }

    /// Makes one lane of those that the version before had for each name of a person, and puts behind a message what it was called before a
    /// person asked for it once more.
    async fn upgrade(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let query = InboxQuery { parked: Some(false), limit: SHARE, ..InboxQuery::default() };
            let items = self.engine.list_items(&query, after, SHARE).await?;
            let Some(last) = items.last() else { break };
            after = Some(last.number);
            let events = items.iter().filter_map(|item| item.events.first().copied()).collect();
            run(&*self.engine, &Upgrade { events, messages: Vec::new() }).await?;
        }
        after = None;
        loop {
            let query = OutboxQuery { limit: SHARE, ..OutboxQuery::default() };
            let outs = self.engine.list_outs(&query, after, SHARE).await?;
            let Some(last) = outs.last() else { break };
            after = Some(last.number);
            let messages = outs.iter().map(|out| out.number).collect();
            run(&*self.engine, &Upgrade { events: Vec::new(), messages }).await?;
        }
        Ok(())
    }
}

/// The first events of items that wait, or messages in the outbox.
struct Upgrade {
    events: Vec<u64>,
    messages: Vec<u64>,
}

#[async_trait]
impl Step for Upgrade {
    type Out = ();
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), TxError> {
        let mut work = Work::new(tx.now_ms());
        let (events, messages) = (self.events.clone(), self.messages.clone());
        work.load(tx, Wanted { events, messages: messages.clone(), outs: messages, ..Wanted::default() }).await?;
        let events: Vec<EventRec> = self.events.iter().filter_map(|event| work.events.get(event).cloned()).collect();
        work.load_lanes_again(tx, &events).await?;
        work.load_homes(tx, self.messages.clone()).await?;
        for event in &events {
            if let Some(spelt) = event.spelt() {
                let thread = work.thread_of(&spelt.account, &spelt.peer);
                work.inbox_lane(&event.channel, &spelt, &thread);
            }
        }
        for number in &self.messages {
            work.join_home(*number);
            work.close_round(*number);
        }
        tx.save(work.changes()).await
    }
}

impl Work {
    /// Joins the lane that a message was put into to the one that its thread has today.
    fn join_home(&mut self, number: u64) {
        let Some(message) = self.messages.get(&number).cloned() else { return };
        let thread = self.thread_of(&message.account, &message.peer);
        let today = outbox_lane(&message.channel, &thread.account, &thread.peer);
        if message.home != today {
            let into = LaneRec { account: message.account, ..empty(Queue::Outbox, today, &message.channel) };
            self.join(&message.home, into);
        }
    }

    /// A retry left the former name on a message that waits to be sent anew: that name is of a round that is over. SQL engines have seen to it
    /// when their tables were changed.
    fn close_round(&mut self, number: u64) {
        let waits = self.outs.get(&number).is_some_and(|out| out.begun_ms.is_none());
        if !waits || self.messages.get(&number).is_none_or(|message| message.provider_id.is_none()) {
            return;
        }
        if let Some(message) = self.messages.change(&number) {
            let provider_id = message.provider_id.take();
            message.past.rounds.push(Round { provider_id, ..Round::default() });
        }
    }
}
