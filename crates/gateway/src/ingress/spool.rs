//! Where webhooks wait while the store is away: the embedded engine on a disk of our own.
//!
//! A spooled webhook is one event of its own in there, with the body and the headers as they came; what it holds is read again when it
//! goes to the store. It leaves the spool only after the store has taken it in, so a crash in between makes a copy, which the store knows.
//!
//! *Invariant:* while a channel has anything in the spool, all that comes goes behind it: nothing overtakes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind};
use hapax_store::{
    Arrival, ChannelCounts, Disposition, InboxLease, KeptHeaders, LeaseRequest, NewEvent, Outcome, Purged, Redrive, Store,
    StoreError,
};
use tokio::sync::Notify;

/// Copies are recognised for this long, to save room. A later copy is spooled, and recognised by the store.
const WINDOW_MS: i64 = 3_600_000;

/// What has gone to the store is of no use here.
const RETENTION_MS: i64 = 60_000;

/// Nobody else takes from the spool, so a lease need not end.
const HOLD_MS: i64 = 24 * 3_600_000;

/// Webhooks taken out at once.
const BATCH: usize = 64;

const PURGE_STEP: usize = 1_000;
const REDRIVE_MAX: usize = 1_000_000;

/// The spool of one process, with a gate for each channel.
pub struct Spool {
    store: Arc<dyn Store>,
    /// One for each channel that ever spooled in this run.
    gates: Mutex<HashMap<Arc<str>, Arc<Gate>>>,
}

impl Spool {
    /// Takes over what an earlier run has left; what could not be taken in then is tried once more. `channels` says of all that are
    /// configured whether they spool.
    pub async fn open(store: Arc<dyn Store>, channels: Vec<(Arc<str>, bool)>) -> Result<Self, StoreError> {
        store.redrive(Redrive::All, REDRIVE_MAX).await?;
        let mut left = store.stats().await?.channels;
        left.retain(|counts| waiting(counts) > 0);
        let mut gates = HashMap::new();
        for (channel, spools) in channels {
            let holds = left.iter().any(|counts| *counts.channel == *channel);
            // One that no longer spools still has to send what it holds before anything new.
            if spools || holds {
                gates.insert(channel, Arc::new(Gate::new(holds)));
            }
        }
        for counts in &left {
            let (channel, webhooks) = (counts.channel.as_str(), waiting(counts));
            if gates.contains_key(channel) {
                tracing::info!(channel, webhooks, "the spool holds webhooks of an earlier run; they go to the store first");
            } else {
                tracing::warn!(
                    channel,
                    webhooks,
                    "the spool holds webhooks of a channel that is not configured; they stay there"
                );
            }
        }
        Ok(Self { store, gates: Mutex::new(gates) })
    }

    /// Makes gates for channels that spool from now on. They are shut at first: something of an earlier run may be there.
    pub(crate) fn admit(&self, channels: impl Iterator<Item = Arc<str>>) {
        let mut gates = self.gates();
        for channel in channels {
            gates.entry(channel).or_insert_with(|| Arc::new(Gate::new(true)));
        }
    }

    pub(super) fn gate(&self, channel: &str) -> Option<Arc<Gate>> {
        self.gates().get(channel).cloned()
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Gate>>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a webhook at the end; it is on disk when this returns. False: it was there already.
    pub(super) async fn put(self: &Arc<Self>, gate: &Arc<Gate>, webhook: Spooled) -> Result<bool, StoreError> {
        let (spool, gate) = (Arc::clone(self), Arc::clone(gate));
        gate.begin();
        // Ends whatever becomes of the request: a write that nobody waits for is in the spool all the same.
        let writing = tokio::spawn(async move {
            let accepted = spool.store.accept(webhook.into_arrival().into()).await;
            let new = accepted.map(|accepted| accepted.iter().any(|accepted| accepted.is_new()));
            gate.end(matches!(new, Ok(true)));
            new
        });
        writing.await.unwrap_or(Err(StoreError::Closed))
    }

    /// The oldest webhooks of a channel, in the order they came. They stay until they are let go.
    pub(super) async fn take(&self, channel: &Arc<str>) -> Result<Vec<InboxLease>, StoreError> {
        let wants = vec![(Arc::clone(channel), BATCH)];
        self.store
            .lease_inbox(LeaseRequest { worker: "spool".into(), wants, resting: Vec::new(), hold_ms: HOLD_MS, outside: false })
            .await
    }

    /// The store has it.
    pub(super) async fn let_go(&self, lease: &InboxLease) -> Result<(), StoreError> {
        let gone = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
        self.store.settle_inbox(lease.lane, lease.fence, gone).await.map(|_| ())
    }

    /// The store is well and does not take it: it waits for the next start, and the others go on.
    pub(super) async fn park(&self, lease: &InboxLease, why: &str) -> Result<(), StoreError> {
        self.store.settle_inbox(lease.lane, lease.fence, Outcome::Parked { why: why.to_owned(), charged: true }).await.map(|_| ())
    }

    /// What it holds of every channel that spools, or of which something is left.
    pub async fn counts(&self) -> Result<Vec<ChannelCounts>, StoreError> {
        let mut counts = self.store.stats().await?.channels;
        let gates = self.gates();
        counts.retain(|counts| waiting(counts) + counts.parked > 0 || gates.contains_key(counts.channel.as_str()));
        for channel in gates.keys() {
            if !counts.iter().any(|counts| *counts.channel == **channel) {
                counts.push(ChannelCounts { channel: channel.to_string(), ..ChannelCounts::default() });
            }
        }
        drop(gates);
        counts.sort_by(|a, b| a.channel.cmp(&b.channel));
        Ok(counts)
    }

    pub async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }

    /// Forgets what has gone to the store, one step.
    pub async fn purge(&self) -> Result<Purged, StoreError> {
        let retention: Vec<_> = self.gates().keys().map(|channel| (channel.to_string(), RETENTION_MS)).collect();
        self.store.purge(&retention, PURGE_STEP).await
    }
}

/// Webhooks on their way to the store.
fn waiting(counts: &ChannelCounts) -> u64 {
    counts.waiting + counts.leased
}

/// One webhook on its way into the spool.
pub(super) struct Spooled {
    pub(super) channel: Arc<str>,
    /// The same for copies.
    pub(super) key: EventKey,
    /// The store remembers at least one of its events no longer than this; afterwards the same webhook is a new one.
    pub(super) window_ms: i64,
    pub(super) headers: KeptHeaders,
    pub(super) body: Bytes,
}

impl Spooled {
    fn into_arrival(self) -> Arrival {
        // A notice is a lane of its own, so that many can be taken out at once; the order is that of their turns.
        let event = Event::new(Kind::Notice, &self.channel, "", self.key, 0);
        let events = vec![NewEvent { event, disposition: Disposition::Deliver }];
        Arrival {
            channel: self.channel,
            window_ms: self.window_ms.min(WINDOW_MS),
            headers: self.headers,
            body: self.body,
            events,
            coalesce: None,
        }
    }
}

/// Says for one channel whether a webhook may go straight to the store.
pub(super) struct Gate {
    state: Mutex<Inside>,
    changed: Notify,
}

#[derive(Default)]
struct Inside {
    /// Writes to the spool that are under way.
    writing: usize,
    /// Writes that have ended, in all.
    written: u64,
    /// There may be something in the spool.
    holds: bool,
}

/// How long to wait for a write that is under way before the spool is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Gate {
    fn new(holds: bool) -> Self {
        Self { state: Mutex::new(Inside { holds, ..Inside::default() }), changed: Notify::new() }
    }

    /// True while something is in the spool, or on its way there.
    pub(super) fn is_shut(&self) -> bool {
        let inside = self.lock();
        inside.holds || inside.writing > 0
    }

    fn begin(&self) {
        self.lock().writing += 1;
    }

    fn end(&self, new: bool) {
        let mut inside = self.lock();
        inside.writing -= 1;
        inside.written += 1;
        inside.holds |= new;
        drop(inside);
        self.changed.notify_one();
    }

    /// Resolves when there may be something to take out; says how many writes had ended by then.
    pub(super) async fn holding(&self) -> u64 {
        loop {
            {
                let inside = self.lock();
                if inside.holds {
                    return inside.written;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Opens the way to the store, unless something came in since `written` writes had ended: the spool was found empty after that.
    ///
    /// Under the same lock that [`Gate::is_shut`] takes: whoever comes now either sees it open, and all that came before is in the store,
    /// or was counted as writing.
    pub(super) async fn open(&self, written: u64) {
        {
            let mut inside = self.lock();
            if inside.writing == 0 && inside.written == written {
                inside.holds = false;
                return;
            }
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, self.changed.notified()).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_came_in_while_it_was_found_empty_keeps_the_gate_shut() {
        let gate = Gate::new(false);
        assert!(!gate.is_shut());
        gate.begin();
        assert!(gate.is_shut(), "on its way");
        gate.end(true);
        let seen = gate.holding().await;
        gate.begin();
        gate.open(seen).await;
        assert!(gate.is_shut(), "a write is under way");
        gate.end(true);
        gate.open(seen).await;
        assert!(gate.is_shut(), "a write ended since");
        gate.open(gate.holding().await).await;
        assert!(!gate.is_shut());
    }

    #[tokio::test]
    async fn a_write_that_failed_or_was_a_copy_shuts_nothing() {
        let gate = Gate::new(false);
        gate.begin();
        gate.end(false);
        assert!(!gate.is_shut());
    }
}
