//! Messages on their way out: recorded once per request, before anything leaves.

use std::sync::Arc;

use async_trait::async_trait;

use super::engine::{Engine, First, Pool, Trouble, Tx, Wanted};
use super::records::{Hash, MessageRec, OutRec, outbox_lane, request_hash, thread_hash};
use super::run::{Step, run};
use super::threads::Said;
use super::work::Work;
use crate::domain::{Direction, Status, Steps};
use crate::store::{NewMessage, StoreError, Submitted};

/// Submits one message, on an engine that found it by itself.
pub(in crate::store) async fn submit<E: Engine>(engine: &E, message: NewMessage) -> Result<Submitted, StoreError> {
    let mut submitted = run(engine, &SubmitAll(vec![message])).await?;
    submitted.pop().ok_or(StoreError::Closed)
}

/// What is looked at for new messages, if each peer goes by the name it is written to.
pub(super) fn first_of_submit<'m>(messages: impl Iterator<Item = &'m NewMessage>) -> First {
    let mut first = First::default();
    for new in messages {
        first.lanes.push(outbox_lane(&new.channel, &new.account, &new.peer));
        first.names.push((new.account.clone(), new.peer.clone()));
        first.threads.push((new.account.clone(), new.peer.clone()));
        first.requests.push((new.account.clone(), new.request_id.clone()));
    }
    first
}

/// Messages that share a transaction.
pub(super) struct SubmitAll(pub(super) Vec<NewMessage>);

#[async_trait]
impl Step for SubmitAll {
    type Out = Vec<Submitted>;
    const POOL: Pool = Pool::Ingest;

    fn numbers(&self) -> usize {
        self.0.len()
    }

    fn first(&self) -> First {
        first_of_submit(self.0.iter())
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Submitted>, Trouble> {
        let mut work = Work::new(tx.now_ms());
        work.load_for_submit(tx, self.0.iter()).await?;
        let submitted: Vec<Submitted> = self.0.iter().map(|new| work.submit(new, tx.number())).collect();
        if submitted.iter().any(|one| matches!(one, Submitted::New(_))) {
            tx.save(&work.changes()).await?;
        }
        Ok(submitted)
    }
}

impl Work {
    pub(super) async fn load_for_submit<T: Tx>(
        &mut self,
        tx: &mut T,
        messages: impl Iterator<Item = &NewMessage> + Clone + Send,
    ) -> Result<(), Trouble> {
        let mut wanted = Wanted::default();
        for new in messages.clone() {
            wanted.names.push((new.account.clone(), new.peer.clone()));
            wanted.requests.push(request_hash(&new.account, &new.request_id));
        }
        self.load(tx, wanted).await?;
        let mut wanted = Wanted::default();
        for new in messages {
            let thread = self.thread_of(&new.account, &new.peer);
            wanted.lanes.push(outbox_lane(&new.channel, &thread.account, &thread.peer));
            wanted.threads.push(thread_hash(&thread.account, &thread.peer));
            wanted.names.push((thread.account, thread.peer));
        }
        wanted.names.retain(|name| !self.names.contains_key(name));
        self.load(tx, wanted).await
    }

    /// Records a message under `number`, unless its request was made before.
    pub(super) fn submit(&mut self, new: &NewMessage, number: u64) -> Submitted {
        let known = self
            .messages
            .values()
            .find(|message| message.account == new.account && message.request_id == new.request_id)
            .map(|message| (message.message_id(), message.fingerprint == new.fingerprint));
        match known {
            Some((id, true)) => return Submitted::Replayed(id),
            Some((id, false)) => return Submitted::Mismatch(id),
            None => {}
        }
        let thread = self.thread_of(&new.account, &new.peer);
        let said = Said { channel: &new.channel, direction: Direction::Out, text: new.text.as_deref() };
        let hash = self.say(&thread, &said);
        let message = self.message_from(new, number, outbox_lane(&new.channel, &thread.account, &thread.peer), hash);
        let id = message.message_id();
        self.add_out(OutRec {
            number,
            created_ms: self.now_ms,
            channel: Arc::clone(&new.channel),
            account: new.account.clone(),
            lane: message.home,
            priority: new.priority,
            attempt: 0,
            due_ms: Some(self.now_ms),
            begun_ms: None,
            unknown: false,
        });
        self.messages.put(number, message);
        Submitted::New(id)
    }

    fn message_from(&self, new: &NewMessage, number: u64, home: Hash, thread: Hash) -> MessageRec {
        MessageRec {
            number,
            created_ms: self.now_ms,
            channel: Arc::clone(&new.channel),
            account: new.account.clone(),
            peer: new.peer.clone(),
            request_id: new.request_id.clone(),
            fingerprint: new.fingerprint,
            text: new.text.clone(),
            payload: new.payload.clone(),
            priority: new.priority,
            reply_to: new.reply_to,
            home,
            thread,
            provider_id: None,
            steps: Steps::new(vec![(Status::Queued, self.now_ms)]),
            why: None,
        }
    }
}
