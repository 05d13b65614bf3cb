//! The whole contract on top of an engine's records.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_domain::{ClaimAnswer, EventId, Fence, ItemId, MessageId, ThreadId, limits};

use super::accept::AcceptAll;
use super::admin::{ChangeMessage, MarkRead, RedriveParked, Replay};
use super::claims::{Asks, ClaimAll, ClaimRoom};
use super::engine::{Engine, Pool};
use super::forget::forget;
use super::lease::{Extend, LeaseInbox};
use super::outbox::{BeginAll, LeaseOutbox, SendEnded, SettleOutbox};
use super::purge::{Cursors, purge};
use super::room::Rooms;
use super::run::{Batch, Batcher, run};
use super::settle::{Ended, SettleInbox, replies};
use super::submit::{Asked, SubmitAll};
use crate::pieces::Piece;
use crate::registers;
use crate::{
    Accepted, Arrival, Changed, Copies, Forget, Forgotten, Inbox, InboxLease, LaneRef, LeaseRequest, Moving, NewMessage, Outbox,
    OutboxLease, OutboxLeaseRequest, Outcome, Pieces, Promise, Purged, Redrive, Registers, SendOutcome, Settled, StoreError,
    Submitted, Upkeep,
};

/// A store on a server. Any number of instances may share its data.
pub struct ServerStore<E: Engine> {
    pub(super) engine: Arc<E>,
    accepts: Batcher<Arc<Arrival>, Vec<Accepted>>,
    settles: Batcher<Ended, Settled>,
    submits: Batcher<Asked, Result<Submitted, StoreError>>,
    begins: Batcher<(LaneRef, Fence), Settled>,
    sends: Batcher<SendEnded, Settled>,
    pub(super) asked_claims: Batcher<(Asks, Arc<ClaimRoom>), Vec<ClaimAnswer>>,
    pub(super) claim_room: Arc<ClaimRoom>,
    cursors: Cursors,
    rooms: Arc<Rooms>,
    /// The highest number that was put by an import.
    pub(super) put_to: AtomicU64,
}

impl<E: Engine> ServerStore<E> {
    pub fn new(engine: Arc<E>) -> Self {
        let (ingest, workers) = (engine.in_flight(Pool::Ingest), engine.in_flight(Pool::Workers));
        Self {
            accepts: Batcher::start::<E, Accepts>(&engine, ingest),
            settles: Batcher::start::<E, Settles>(&engine, workers),
            submits: Batcher::start::<E, Submits>(&engine, ingest),
            begins: Batcher::start::<E, Begins>(&engine, workers),
            sends: Batcher::start::<E, Sends>(&engine, workers),
            asked_claims: Batcher::start::<E, AskedClaims>(&engine, ingest),
            claim_room: ClaimRoom::new(),
            engine,
            cursors: Cursors::default(),
            rooms: Rooms::new(limits::OUTBOX_MAX),
            put_to: AtomicU64::new(0),
        }
    }

    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }
}

/// So much of a body weighs as much as an event.
const BODY_BYTES: usize = 8 << 10;

/// Says how a kind of call is run together with others of its kind.
macro_rules! batch {
    ($name:ident, $call:ty => $out:ty, $step:path, $apart:expr) => {
        struct $name;

        #[async_trait]
        impl<E: Engine> Batch<E> for $name {
            type Call = $call;
            type Out = $out;

            fn apart(call: &$call) -> Option<[u8; 32]> {
                let apart: fn(&$call) -> Option<[u8; 32]> = $apart;
                apart(call)
            }

            async fn perform(engine: &E, calls: Vec<$call>) -> Result<Vec<$out>, StoreError> {
                run(engine, &$step(calls)).await
            }
        }
    };
}

batch!(Accepts, Arc<Arrival> => Vec<Accepted>, AcceptAll::new, |_| None);
batch!(Settles, Ended => Settled, SettleInbox, |(lane, ..)| Some(lane.0));
batch!(Submits, Asked => Result<Submitted, StoreError>, SubmitAll, |_| None);
batch!(AskedClaims, (Asks, Arc<ClaimRoom>) => Vec<ClaimAnswer>, ClaimAll, |_| None);
batch!(Begins, (LaneRef, Fence) => Settled, BeginAll, |(lane, _)| Some(lane.0));
batch!(Sends, SendEnded => Settled, SettleOutbox, |(lane, _, _)| Some(lane.0));

#[async_trait]
impl<E: Engine> Inbox for ServerStore<E> {
    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let weight = arrival.events.len() + arrival.body.len() / BODY_BYTES;
        let accepted = self.accepts.call(arrival, weight).await?;
        if accepted.iter().any(|one| one.is_new()) {
            self.engine.wake();
        }
        Ok(accepted)
    }

    async fn note_copies(&self, copies: Vec<Copies>) -> Result<(), StoreError> {
        self.engine.note_copies(&copies).await
    }

    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        run(&*self.engine, &LeaseInbox(ask)).await
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        run(&*self.engine, &Extend { leases, hold_ms }).await
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        let weight = 1 + replies(&outcome).len();
        let settled = self.settles.call((lane, fence, outcome, Arc::clone(&self.rooms)), weight).await?;
        self.engine.wake();
        Ok(settled)
    }

    async fn redrive(&self, which: Redrive, max: usize) -> Result<usize, StoreError> {
        let moved = run(&*self.engine, &RedriveParked { which, max, rooms: Arc::clone(&self.rooms) }).await?;
        self.engine.wake();
        Ok(moved)
    }

    async fn replay(&self, event: EventId) -> Result<Option<ItemId>, StoreError> {
        let item = run(&*self.engine, &Replay(event)).await?;
        self.engine.wake();
        Ok(item)
    }

    async fn mark_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        run(&*self.engine, &MarkRead(thread.clone())).await
    }
}

#[async_trait]
impl<E: Engine> Outbox for ServerStore<E> {
    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError> {
        let submitted = self.submits.call((message, Arc::clone(&self.rooms)), 1).await??;
        self.engine.wake();
        Ok(submitted)
    }

    async fn lease_outbox(&self, mut ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        let mut leases: Vec<OutboxLease> = Vec::new();
        loop {
            let leased = match run(&*self.engine, &LeaseOutbox(ask.clone())).await {
                Ok(leased) => leased,
                // What an earlier round has leased is leased, and must not be forgotten.
                Err(error) if leases.is_empty() => return Err(error),
                Err(_) => return Ok(leases),
            };
            for (channel, max) in &mut ask.wants {
                *max -= leased.leases.iter().filter(|lease| lease.channel == *channel).count().min(*max);
            }
            leases.extend(leased.leases);
            if !leased.again || ask.wants.iter().all(|(_, max)| *max == 0) {
                return Ok(leases);
            }
        }
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        self.begins.call((lane, fence), 1).await
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        run(&*self.engine, &Extend { leases, hold_ms }).await
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        let settled = self.sends.call((lane, fence, outcome), 1).await?;
        self.engine.wake();
        Ok(settled)
    }

    async fn settle_late(&self, id: MessageId, attempt: u32, outcome: SendOutcome) -> Result<Changed, StoreError> {
        let changed = run(&*self.engine, &ChangeMessage::SettleLate(id, attempt, outcome)).await?;
        self.engine.wake();
        Ok(changed)
    }

    async fn retry_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        let changed = run(&*self.engine, &ChangeMessage::Retry(id)).await?;
        self.engine.wake();
        Ok(changed)
    }

    async fn cancel_message(&self, id: MessageId) -> Result<Changed, StoreError> {
        run(&*self.engine, &ChangeMessage::Cancel(id)).await
    }

    async fn pause_account(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        self.engine.pause(channel, account, why).await?;
        self.engine.wake();
        Ok(())
    }

    fn limit_outbox(&self, most: usize) {
        self.rooms.limit(most);
    }
}

#[async_trait]
impl<E: Engine> Registers for ServerStore<E> {
    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        registers::check(name, Some(value), None)?;
        self.engine.remember(name, value).await
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let keep_ms = registers::check(name, new, keep_ms)?;
        self.engine.amend(name, expected, new, keep_ms).await
    }
}

#[async_trait]
impl<E: Engine> Pieces for ServerStore<E> {
    async fn put_piece(&self, name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> Result<(), StoreError> {
        let piece = Piece::new(name, n, bytes, keep_ms, self.engine.now_ms().await?)?;
        self.engine.put_piece(&piece).await
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        self.engine.piece(name, n).await
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        self.engine.drop_pieces(name).await
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.engine.pieces_held().await
    }
}

#[async_trait]
impl<E: Engine> Upkeep for ServerStore<E> {
    async fn purge(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        purge(&*self.engine, &self.cursors, retention, max).await
    }

    async fn forget(&self, what: Forget) -> Result<Forgotten, StoreError> {
        forget(&*self.engine, what).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.engine.ping().await
    }

    fn promise(&self) -> Promise {
        self.engine.promise()
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        self.engine.wait()
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Ok(self)
    }
}
