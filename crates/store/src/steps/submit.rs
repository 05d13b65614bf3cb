//! Messages on their way out: recorded once per request, before anything leaves.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::limits::NAME_HOPS_MAX;
use hapax_domain::{Direction, Past, Status, Steps, ThreadId};

use super::engine::{Engine, First, Pool, Tx, TxError, Wanted};
use super::records::{Hash, MessageRec, OutRec, Queue, outbox_lane, own_lane, request_hash, thread_hash};
use super::room::{Rooms, outbox_of};
use super::run::{Step, run};
use super::threads::Said;
use super::work::Work;
use crate::{NewMessage, StoreError, Submitted};

/// Submits one message, on an engine that found it by itself.
pub async fn submit<E: Engine>(engine: &E, message: NewMessage) -> Result<Submitted, StoreError> {
    // It is in the outbox already: there is nobody to refuse it to.
    let mut submitted = run(engine, &SubmitAll(vec![(message, Rooms::new(usize::MAX))])).await?;
    submitted.pop().ok_or(StoreError::Closed)?
}

/// Puts a message that is in the outbox back in line, on an engine that found it out of place.
pub async fn rejoin<E: Engine>(engine: &E, number: u64) -> Result<(), StoreError> {
    run(engine, &Rejoin(number)).await
}

struct Rejoin(u64);

#[async_trait]
impl Step for Rejoin {
    type Out = ();
    const POOL: Pool = Pool::Ingest;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), TxError> {
        let mut work = Work::new(tx.now_ms());
        work.load(tx, Wanted { messages: vec![self.0], outs: vec![self.0], ..Wanted::default() }).await?;
        if let Some(out) = work.outs.get(&self.0).filter(|out| out.due_ms.is_some()).cloned() {
            work.load(tx, Wanted { lanes: vec![out.lane], ..Wanted::default() }).await?;
            work.load_groups(tx).await?;
            work.come_home(out);
        }
        tx.save(work.changes()).await
    }
}

/// What is looked at for new messages, if each peer goes by the name it is written to.
pub(super) fn first_of_submit<'m>(messages: impl Iterator<Item = &'m NewMessage>) -> First {
    let mut first = First::default();
    for new in messages {
        first.lanes.push(outbox_lane(&new.channel, &new.account, &new.peer));
        first.names.push((new.account.clone(), new.peer.clone()));
        first.threads.push((new.account.clone(), new.peer.clone()));
        first.requests.push((new.account.clone(), new.request_id.clone()));
        first.requests.push((new.account.clone(), new.request_id_apart()));
    }
    first
}

/// Messages that share a transaction.
pub(super) struct SubmitAll(pub(super) Vec<Asked>);

/// A message, and the room there is for it.
pub(super) type Asked = (NewMessage, Arc<Rooms>);

#[async_trait]
impl Step for SubmitAll {
    type Out = Vec<Result<Submitted, StoreError>>;
    const POOL: Pool = Pool::Ingest;

    fn numbers(&self) -> usize {
        self.0.len()
    }

    fn first(&self) -> First {
        first_of_submit(self.0.iter().map(|(new, _)| new))
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, TxError> {
        let mut work = Work::new(tx.now_ms());
        let Some((_, rooms)) = self.0.first() else { return Ok(Vec::new()) };
        let messages = || self.0.iter().map(|(new, _)| new);
        work.load_for_submit(tx, messages()).await?;
        work.look_for_room(tx, rooms, messages()).await?;
        let mut submit = |new: &NewMessage| match work.is_full_for(new) {
            true => Err(StoreError::outbox_full(new)),
            false => Ok(work.submit(new, tx.number())),
        };
        let submitted: Self::Out = messages().map(&mut submit).collect();
        if submitted.iter().any(|one| matches!(one, Ok(Submitted::New(_)))) {
            tx.save(work.changes()).await?;
        }
        Ok(submitted)
    }
}

impl Work {
    pub(super) async fn load_for_submit<T: Tx>(
        &mut self,
        tx: &mut T,
        messages: impl Iterator<Item = &NewMessage> + Clone + Send,
    ) -> Result<(), TxError> {
        let mut wanted = Wanted::default();
        for new in messages.clone() {
            wanted.names.push((new.account.clone(), new.peer.clone()));
            wanted.requests.push(request_hash(&new.account, &new.request_id));
            wanted.requests.push(request_hash(&new.account, &new.request_id_apart()));
        }
        self.load(tx, wanted).await?;
        for _ in 0..NAME_HOPS_MAX {
            let mut wanted = Wanted { names: self.names.ahead(), ..Wanted::default() };
            for new in messages.clone() {
                let thread = self.thread_of(&new.account, &new.peer);
                wanted.lanes.push(outbox_lane(&new.channel, &new.account, &new.peer));
                wanted.lanes.push(outbox_lane(&new.channel, &thread.account, &thread.peer));
                wanted.threads.push(thread_hash(&thread.account, &thread.peer));
                wanted.sure_names.push((new.account.clone(), new.peer.clone()));
            }
            let led = self.threads_of(messages.clone());
            self.load(tx, wanted).await?;
            // A name that closes a circle of older data leads nowhere new, and yet elsewhere.
            if self.names.ahead().is_empty() && self.threads_of(messages.clone()) == led {
                break;
            }
        }
        self.load_groups(tx).await
    }

    fn threads_of<'m>(&self, messages: impl Iterator<Item = &'m NewMessage>) -> Vec<ThreadId> {
        messages.map(|new| self.thread_of(&new.account, &new.peer)).collect()
    }

    /// The message that was made for this request before.
    pub(super) fn known_request(&self, new: &NewMessage) -> Option<&MessageRec> {
        let apart = new.request_id_apart();
        let is_it = |request_id: &str| request_id == new.request_id || request_id == apart;
        let mut of_account = self.messages.values().filter(|message| message.account == new.account);
        of_account.find(|message| message.channel == new.channel && is_it(&message.request_id))
    }

    /// The id under which a new request is kept.
    fn kept_request_id(&self, new: &NewMessage) -> String {
        let taken = |message: &MessageRec| message.account == new.account && message.request_id == new.request_id;
        if self.messages.values().any(taken) { new.request_id_apart() } else { new.request_id.clone() }
    }

    /// Records a message under `number`, unless its request was made before.
    pub(super) fn submit(&mut self, new: &NewMessage, number: u64) -> Submitted {
        if let Some(known) = self.known_request(new) {
            let id = known.message_id();
            return if known.fingerprint == new.fingerprint { Submitted::Replayed(id) } else { Submitted::Mismatch(id) };
        }
        if let Some(waiting) = self.waiting.get_mut(&outbox_of(new)) {
            *waiting += 1;
        }
        let thread = self.thread_of(&new.account, &new.peer);
        let spelt = ThreadId { account: new.account.clone(), peer: new.peer.clone() };
        if spelt != thread {
            self.join_outbox(&new.channel, &spelt, &thread);
        }
        let said = Said { channel: &new.channel, number, direction: Direction::Out, text: new.text.as_deref() };
        let hash = self.say(&thread, &said);
        let home = self.speaker(&outbox_lane(&new.channel, &thread.account, &thread.peer));
        let message = self.message_from(new, number, home, hash);
        let id = message.message_id();
        let (lane, due_ms) = match new.held_until(self.now_ms) {
            Some(at_ms) => (own_lane(Queue::Outbox, number), at_ms),
            None => (message.home, self.now_ms),
        };
        self.add_out(OutRec {
            number,
            created_ms: self.now_ms,
            channel: Arc::clone(&new.channel),
            account: new.account.clone(),
            lane,
            priority: new.priority,
            attempt: 0,
            failures: 0,
            due_ms: Some(due_ms),
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
            request_id: self.kept_request_id(new),
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
            past: Past::default(),
        }
    }
}
