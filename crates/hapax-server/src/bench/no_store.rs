//! The yardsticks: takes everything in and keeps nothing, or nothing but the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use hapax_domain::{EventId, ids};
use hapax_store::clock::SystemClock;
use hapax_store::memory::MemoryStore;
use hapax_store::{Accepted, Arrival, Copies, Moving, NaiveClaim, Promise, Store, StoreError, StoreWrapper};

/// An empty store that stays empty.
pub(super) struct NoStore {
    empty: MemoryStore,
    last: AtomicU64,
    /// Takes each key by a round trip of its own.
    naive_claim: Option<Arc<dyn NaiveClaim>>,
}

impl NoStore {
    pub(super) fn new(naive_claim: Option<Arc<dyn NaiveClaim>>) -> Self {
        Self { empty: MemoryStore::new(Arc::new(SystemClock::new())), last: AtomicU64::new(0), naive_claim }
    }
}

impl StoreWrapper for NoStore {
    async fn reach(&self) -> Result<&dyn Store, StoreError> {
        Ok(&self.empty)
    }

    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let mut accepted = Vec::with_capacity(arrival.events.len());
        for new in &arrival.events {
            let id = EventId(ids::numbered(0, self.last.fetch_add(1, Ordering::Relaxed)));
            let won = match &self.naive_claim {
                None => true,
                Some(naive_claim) => naive_claim.claim(&new.event.key.0).await?,
            };
            accepted.push(if won { Accepted::New(id) } else { Accepted::Duplicate(id) });
        }
        Ok(accepted)
    }

    async fn note_copies(&self, _: Vec<Copies>) -> Result<(), StoreError> {
        Ok(())
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn limit_outbox(&self, _most: usize) {}

    fn limit_claims(&self, _most: usize) {}

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Err(StoreError::Refused("there is nothing in it to move".to_owned()))
    }

    fn promise(&self) -> Promise {
        Promise::Degraded(vec!["keeps nothing at all".to_owned()])
    }
}
