//! A server that could not be reached when hapax started: a store that is away until it has been opened.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::{Moving, Promise, Store, StoreError, StoreWrapper};

/// Opens the store, if it is there by now.
type Open = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync>;

/// Between two tries to open it, longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub struct DeferredStore {
    opened: OnceLock<Arc<dyn Store>>,
    came: watch::Sender<bool>,
    /// Why it could not be opened the last time.
    why: Mutex<String>,
    /// Set before it was there.
    outbox_max: Mutex<Option<usize>>,
    claims_max: Mutex<Option<usize>>,
}

impl DeferredStore {
    /// Tries to open it until that succeeds, or nobody has it any more. `why` it could not be opened the first time.
    pub fn store(why: &StoreError, open: Open) -> Arc<Self> {
        let this = Arc::new(Self {
            opened: OnceLock::new(),
            came: watch::Sender::new(false),
            why: Mutex::new(why.to_string()),
            outbox_max: Mutex::default(),
            claims_max: Mutex::default(),
        });
        tokio::spawn(keep_opening(Arc::downgrade(&this), open));
        this
    }

    fn there(&self) -> Result<&dyn Store, StoreError> {
        let away = || {
            let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
            StoreError::Failed { what: "the store was not there when hapax started", retryable: true, source: why.into() }
        };
        self.opened.get().map(|store| &**store).ok_or_else(away)
    }

    fn set_why(&self, error: &StoreError) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let now = error.to_string();
        if *why != now {
            tracing::warn!(error = %now, "the store cannot be opened");
            *why = now;
        }
    }

    fn set_opened(&self, store: Arc<dyn Store>) {
        // Under the lock, so that a limit set at this moment reaches the store on one way or the other.
        let mut outbox_max = self.outbox_max.lock().unwrap_or_else(PoisonError::into_inner);
        let mut claims_max = self.claims_max.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = outbox_max.take() {
            store.limit_outbox(most);
        }
        if let Some(most) = claims_max.take() {
            store.limit_claims(most);
        }
        // Nobody else sets it.
        let _ = self.opened.set(store);
        drop((outbox_max, claims_max));
        tracing::info!("the store is there, and open");
        self.came.send_replace(true);
    }
}

/// A store that refuses us is asked again too: whoever put it back may not be done yet.
async fn keep_opening(store: Weak<DeferredStore>, open: Open) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if store.strong_count() == 0 {
            return;
        }
        let opened = open().await;
        let Some(store) = store.upgrade() else { return };
        match opened {
            Ok(opened) => return store.set_opened(opened),
            Err(error) => store.set_why(&error),
        }
    }
}

impl StoreWrapper for DeferredStore {
    async fn reach(&self) -> Result<&dyn Store, StoreError> {
        self.there()
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        if let Some(store) = self.opened.get() {
            return store.wait();
        }
        let mut came = self.came.subscribe();
        Box::pin(async move {
            // The sender is gone only with the store, and then there is nothing to wait for.
            let _ = came.wait_for(|came| *came).await;
        })
    }

    fn promise(&self) -> Promise {
        let away = || Promise::Degraded(vec!["the server has not been reached since hapax started".to_owned()]);
        self.opened.get().map_or_else(away, |store| store.promise())
    }

    fn limit_outbox(&self, most: usize) {
        let mut kept = self.outbox_max.lock().unwrap_or_else(PoisonError::into_inner);
        match self.opened.get() {
            Some(store) => store.limit_outbox(most),
            None => *kept = Some(most),
        }
    }

    fn limit_claims(&self, most: usize) {
        let mut kept = self.claims_max.lock().unwrap_or_else(PoisonError::into_inner);
        match self.opened.get() {
            Some(store) => store.limit_claims(most),
            None => *kept = Some(most),
        }
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        self.there()?.moving()
    }
}
