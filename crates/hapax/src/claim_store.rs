//! The store as a caller sees it: terms, a key, a job.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, ClaimResult, OnAbandoned};
use hapax_store::clock::SystemClock;
use hapax_store::{Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::guard::Guard;
use crate::{Error, OnceError, Options, StoreUrl, open_store};

/// Of the embedded store: writes that may wait, and the free disk below which nothing is taken.
const OPTIONS: Options = Options { queue: 8_192, disk_floor_bytes: 64 << 20 };
/// Times that a call is made before its error is the caller's, at least.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const SLOWEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a key is looked at that another holds: polling is the truth, a completion in this process a hint.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const SLOWEST_LOOK: Duration = Duration::from_secs(1);
const PURGE_EVERY: Duration = Duration::from_secs(600);
const PURGE_STEP: usize = 1_000;
const PURGE_STEPS_MAX: usize = 100;
/// Webhooks in the same store are another's: none is old enough.
const KEEP_WEBHOOKS_MS: i64 = 100 * 366 * 86_400_000;

/// Opens the store that an address names, such as `sqlite:hapax.db` or `postgres://user:password@host/database`.
///
/// Needs a tokio runtime. While the store is open, claims whose time is over are removed from it in the background.
///
/// # Errors
///
/// [`Error::BadUrl`] says what to write; [`Error::Store`] why the store cannot be opened: no such server, a file that another
/// process owns, or an engine that was not compiled in.
pub async fn open(url: &str) -> Result<ClaimStore, Error> {
    let url = StoreUrl::read(url).map_err(Error::BadUrl)?;
    let store = open_store(&url, &OPTIONS, Arc::new(SystemClock::new())).await?;
    let upkeep = Arc::downgrade(&store);
    tokio::spawn(async move {
        loop {
            sleep(PURGE_EVERY).await;
            let Some(store) = upkeep.upgrade() else { return };
            // What could not be removed now is removed the next time; until then it only takes room.
            let _ = purge(&*store).await;
        }
    });
    Ok(ClaimStore::over(store))
}

async fn purge(store: &dyn Store) -> Result<(), StoreError> {
    let retention = [("default".to_owned(), KEEP_WEBHOOKS_MS)];
    for _ in 0..PURGE_STEPS_MAX {
        if !store.purge(&retention, PURGE_STEP).await?.more {
            break;
        }
    }
    Ok(())
}

/// An open store, and the terms under which its keys are claimed. Clones share the store.
///
/// The methods that change a term return a store of their own, so that each family of jobs has its terms in one place:
///
/// ```
/// use std::time::Duration;
/// use hapax::OnAbandoned;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), hapax::Error> {
/// let store = hapax::open("memory:").await?;
/// let payments = store
///     .scope("payments")
///     .ttl(Duration::from_secs(90 * 86_400))
///     .lease(Duration::from_secs(30))
///     .wait(Duration::from_secs(10))
///     .on_abandoned(OnAbandoned::Hold);
/// # drop(payments); Ok(()) }
/// ```
#[derive(Clone)]
pub struct ClaimStore {
    shared: Arc<Shared>,
    terms: Terms,
}

pub(crate) struct Shared {
    store: Arc<dyn Store>,
    /// A claim of this process has ended.
    ended: Notify,
}

#[derive(Clone, Debug)]
struct Terms {
    scope: String,
    ttl: Duration,
    lease: Duration,
    wait: Duration,
    fingerprint: Option<String>,
    on_abandoned: OnAbandoned,
    holder: String,
}

/// What a key was found to be.
#[must_use = "a claim that is dropped is abandoned"]
#[derive(Debug)]
pub enum Claimed {
    /// It is this caller's: run the job, then end the claim by the guard.
    Won(Guard),
    /// The job was done before.
    Completed(Completed),
}

/// What is stored of a job that was done before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// When, in milliseconds since 1970 by the store's clock.
    pub completed_at_ms: i64,
    /// What kind of bytes the result is; `None`: JSON.
    pub content_type: Option<String>,
    /// The result, if one was stored.
    pub result: Option<Bytes>,
}

/// The result of a job, and whether it ran now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran<T> {
    /// The job ran in this call.
    Now(T),
    /// It ran before; this is its stored result.
    Before(T),
}

impl<T> Ran<T> {
    /// The result, whenever it came to be.
    pub fn into_inner(self) -> T {
        match self {
            Ran::Now(value) | Ran::Before(value) => value,
        }
    }
}

impl Completed {
    /// Reads the result, which [`ClaimStore::once`] and [`Guard::complete`] store as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::ResultUnreadable`] when it is of another type. No result at all reads as `null`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(self.result.as_deref().unwrap_or(b"null")).map_err(Error::ResultUnreadable)
    }
}

impl ClaimStore {
    /// Claims on a store that is open already.
    pub fn over(store: Arc<dyn Store>) -> Self {
        let terms = Terms {
            scope: "default".to_owned(),
            ttl: Duration::from_secs(86_400),
            lease: Duration::from_secs(60),
            wait: Duration::ZERO,
            fingerprint: None,
            on_abandoned: OnAbandoned::default(),
            holder: format!("process {}", std::process::id()),
        };
        Self { shared: Arc::new(Shared { store, ended: Notify::new() }), terms }
    }

    fn with(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.terms);
        changed
    }

    /// The family of jobs that keys belong to, 1 to 64 bytes; `default` if never said.
    #[must_use]
    pub fn scope(&self, scope: &str) -> Self {
        self.with(|terms| terms.scope = scope.to_owned())
    }

    /// How long a completed key is remembered; a day if never said.
    #[must_use]
    pub fn ttl(&self, ttl: Duration) -> Self {
        self.with(|terms| terms.ttl = ttl)
    }

    /// How long a crash keeps others waiting; a minute if never said. A job may take longer: it is extended while the guard lives.
    #[must_use]
    pub fn lease(&self, lease: Duration) -> Self {
        self.with(|terms| terms.lease = lease)
    }

    /// How long to wait for another holder; not at all if never said.
    #[must_use]
    pub fn wait(&self, wait: Duration) -> Self {
        self.with(|terms| terms.wait = wait)
    }

    /// What the job is about, as a hash or a short text: the same key with another one is refused.
    #[must_use]
    pub fn fingerprint(&self, fingerprint: &str) -> Self {
        self.with(|terms| terms.fingerprint = Some(fingerprint.to_owned()))
    }

    /// What becomes of a claim whose holder went away in mid-job; taken over if never said.
    #[must_use]
    pub fn on_abandoned(&self, on_abandoned: OnAbandoned) -> Self {
        self.with(|terms| terms.on_abandoned = on_abandoned)
    }

    /// Who claims, for lists; the process id if never said.
    #[must_use]
    pub fn holder(&self, holder: &str) -> Self {
        self.with(|terms| terms.holder = holder.to_owned())
    }

    /// Runs `job` unless it was done before, and returns its result, which is stored as JSON.
    ///
    /// A job that returns an error releases its key. One that panics, or whose future is dropped, leaves it abandoned. When
    /// another caller has taken over, which needs a process that stood still for longer than its lease, the job is dropped.
    ///
    /// # Errors
    ///
    /// [`OnceError::Job`] has the job's own error. [`OnceError::Claim`] tells why it was not run, or its end not recorded.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), hapax::Error> {
    /// use hapax::OnceError;
    ///
    /// let store = hapax::open("memory:").await?;
    /// let failed = store.once("mail-1", || async { Err::<(), _>("no connection") }).await;
    /// assert!(matches!(failed, Err(OnceError::Job("no connection"))));
    /// // The key was released, so that it can be tried again.
    /// assert!(store.once("mail-1", || async { Ok::<_, &str>(()) }).await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn once<T, E, F, Fut>(&self, key: &str, job: F) -> Result<T, OnceError<E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.run(key, job).await.map(Ran::into_inner)
    }

    /// Like [`once`](Self::once), and tells whether the job ran now.
    ///
    /// # Errors
    ///
    /// Those of [`once`](Self::once).
    pub async fn run<T, E, F, Fut>(&self, key: &str, job: F) -> Result<Ran<T>, OnceError<E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let guard = match self.claim(key).await? {
            Claimed::Won(guard) => guard,
            Claimed::Completed(done) => return Ok(Ran::Before(done.json()?)),
        };
        let outcome = tokio::select! {
            biased;
            outcome = job() => outcome,
            () = guard.lost() => return Err(Error::Lost.into()),
        };
        match outcome {
            Ok(value) => {
                guard.complete(&value).await?;
                Ok(Ran::Now(value))
            }
            Err(error) => {
                guard.release_quietly().await;
                Err(OnceError::Job(error))
            }
        }
    }

    /// Claims a key, or finds that its job was done before.
    ///
    /// # Errors
    ///
    /// [`Error::InProgress`] when another caller is still at work after [`wait`](Self::wait).
    pub async fn claim(&self, key: &str) -> Result<Claimed, Error> {
        let key = ClaimKey::new(&self.terms.scope, key);
        let token = format!("{:032x}", rand::random::<u128>());
        let until = Instant::now() + self.terms.wait;
        let mut look = FIRST_LOOK;
        loop {
            // From here on no end of a claim is missed.
            let mut ended = std::pin::pin!(self.shared.ended.notified());
            ended.as_mut().enable();
            match self.try_claim(&key, &token).await {
                Err(Error::InProgress { .. }) if Instant::now() < until => {
                    let left = until.saturating_duration_since(Instant::now());
                    let _ = timeout(look.min(left), ended).await;
                    look = (look * 2).min(SLOWEST_LOOK);
                }
                decided => return decided,
            }
        }
    }

    async fn try_claim(&self, key: &ClaimKey, token: &str) -> Result<Claimed, Error> {
        let terms = &self.terms;
        let op = ClaimOp::Claim {
            token: token.to_owned(),
            ttl_ms: in_ms(terms.ttl),
            lease_ms: in_ms(terms.lease),
            fingerprint: terms.fingerprint.clone(),
            on_abandoned: terms.on_abandoned,
            holder: Some(terms.holder.clone()),
        };
        match self.shared.ask(key, op).await? {
            ClaimAnswer::Claimed { token, fence, previous, .. } => {
                Ok(Claimed::Won(Guard::new(Arc::clone(&self.shared), key.clone(), token, fence, previous, terms.lease)))
            }
            ClaimAnswer::Completed { result, completed_at_ms } => {
                let (content_type, result) = match result {
                    Some(ClaimResult { content_type, bytes }) => (content_type, Some(bytes)),
                    None => (None, None),
                };
                Ok(Claimed::Completed(Completed { completed_at_ms, content_type, result }))
            }
            ClaimAnswer::InProgress { lease_until_ms } => Err(Error::InProgress { lease_until_ms }),
            ClaimAnswer::HeldForPerson { .. } => Err(Error::Held),
            ClaimAnswer::FingerprintMismatch => Err(Error::FingerprintMismatch),
            ClaimAnswer::NoRoom => Err(Error::NoRoom),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes what is kept under a key, whatever it is, and tells whether anything was: a person has looked.
    ///
    /// Who still works on it has lost its claim.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub async fn forget(&self, key: &str) -> Result<bool, Error> {
        let key = ClaimKey::new(&self.terms.scope, key);
        match self.shared.ask(&key, ClaimOp::Delete).await? {
            ClaimAnswer::Removed(removed) => {
                self.shared.note_end();
                Ok(removed)
            }
            other => Err(unexpected(&other)),
        }
    }
}

impl std::fmt::Debug for ClaimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimStore").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl Shared {
    /// Asks the store, again when it was busy or away: every op decides the same when it is made twice.
    pub(crate) async fn ask(&self, key: &ClaimKey, op: ClaimOp) -> Result<ClaimAnswer, Error> {
        self.ask_for(key, op, Duration::ZERO).await
    }

    /// .. for so long, if that is longer.
    pub(crate) async fn ask_for(&self, key: &ClaimKey, op: ClaimOp, patience: Duration) -> Result<ClaimAnswer, Error> {
        let (until, mut pause, mut left) = (Instant::now() + patience, FIRST_PAUSE, TRIES);
        loop {
            left = left.saturating_sub(1);
            match self.ask_once(key, &op).await {
                Err(error) if error.retryable() && (left > 0 || Instant::now() < until) => sleep(pause).await,
                answered => return answered.map_err(Error::Store),
            }
            pause = (pause * 2).min(SLOWEST_PAUSE);
        }
    }

    pub(crate) async fn ask_once(&self, key: &ClaimKey, op: &ClaimOp) -> Result<ClaimAnswer, StoreError> {
        let answers = self.store.claims(vec![(key.clone(), op.clone())]).await?;
        answers.into_iter().next().ok_or(StoreError::Closed)
    }

    pub(crate) fn note_end(&self) {
        self.ended.notify_waiters();
    }
}

pub(crate) fn unexpected(answer: &ClaimAnswer) -> Error {
    Error::Store(StoreError::Refused(format!("the store gave an answer to another question: {answer:?}")))
}

pub(crate) fn in_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
