//! Claims as a Rust program uses them: races, errors, panics, cancelled futures, takeovers and leases that are outlived.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::{ClaimStore, Claimed, Error, Guard, OnAbandoned, OnceError, Ran};
use hapax_domain::claim::ClaimKey;
use hapax_store::memory::MemoryStore;
use hapax_store::{Claims, Moving, Outbox, Promise, Store, StoreError, StoreWrapper, Upkeep};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::servers::Engine;
use tokio::sync::Notify;

const CALLERS: usize = 200;
const LEASE: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// A store whose time the test turns.
struct Turned {
    clock: HandClock,
    inner: Arc<dyn Store>,
    store: ClaimStore,
}

fn turned() -> Turned {
    let clock = HandClock::at(1_760_000_000_000);
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    Turned { clock, store: ClaimStore::over(Arc::clone(&inner)).lease(LEASE), inner }
}

impl Turned {
    /// Lets the present lease run out.
    fn outlive(&self) {
        self.clock.advance(LEASE.as_millis() as i64 + 1);
    }

    fn clock_ms(&self) -> i64 {
        hapax_store::clock::Clock::now_ms(&self.clock)
    }

    async fn lease_until_ms(&self, key: &str) -> i64 {
        let claim = self.inner.claim(&ClaimKey::new("default", key)).await.expect("it answers");
        claim.expect("it is there").lease_until_ms
    }
}

async fn won(store: &ClaimStore, key: &str) -> Guard {
    match store.claim(key).await.expect("an answer") {
        Claimed::Won(guard) => guard,
        Claimed::Completed(done) => panic!("it was done before: {done:?}"),
    }
}

async fn in_time<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming).await.expect("it comes in time")
}

/// All ask at once, some by each of the stores; all get what the one that won returned.
async fn race(stores: &[ClaimStore]) {
    let runs = Arc::new(AtomicU32::new(0));
    let gate = Arc::new(tokio::sync::Barrier::new(CALLERS));
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (store, runs, gate) = (stores[n % stores.len()].clone(), Arc::clone(&runs), Arc::clone(&gate));
            tokio::spawn(async move {
                gate.wait().await;
                let job = || async { Ok::<_, Error>((n, runs.fetch_add(1, Ordering::SeqCst))) };
                store.wait(PATIENCE).run("order-4711", job).await.expect("a result")
            })
        })
        .collect();
    let mut ran_now = 0;
    let mut results = Vec::new();
    for caller in callers {
        let ran = in_time(caller).await.expect("no panic");
        ran_now += u32::from(matches!(ran, Ran::Now(_)));
        results.push(ran.into_inner());
    }
    results.dedup();
    assert_eq!((ran_now, runs.load(Ordering::SeqCst), results.len()), (1, 1, 1), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_tasks_one_wins_in_memory() {
    race(&[hapax::open("memory:").await.expect("it opens")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_tasks_one_wins_on_the_embedded_store_and_it_is_remembered() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("claims.db").display());
    let store = hapax::open(&url).await.expect("it opens");
    race(std::slice::from_ref(&store)).await;
    drop(store);
    let again = hapax::open(&url).await.expect("it opens again");
    let ran = again.run("order-4711", || async { Ok::<_, Error>((0_usize, 0_u32)) }).await.expect("a result");
    assert!(matches!(ran, Ran::Before(_)), "{ran:?}");
}

/// Two opens are two processes to the database.
async fn race_on_two_opens(engine: Engine) {
    let Some(server) = engine.shared().await else { return };
    let url = server.fresh().await;
    let stores = [hapax::open(&url).await.expect("it opens"), hapax::open(&url).await.expect("it opens twice")];
    race(&stores).await;
    drop(stores);
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_tasks_on_two_opens_of_postgres_one_wins() {
    race_on_two_opens(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_tasks_on_two_opens_of_mariadb_one_wins() {
    race_on_two_opens(Engine::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_tasks_on_two_opens_of_redis_one_wins() {
    race_on_two_opens(Engine::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_tasks_on_two_opens_of_firestore_one_wins() {
    race_on_two_opens(Engine::Firestore).await;
}

#[tokio::test]
async fn an_error_releases() {
    let Turned { store, .. } = turned();
    let failed = store.once("k", || async { Err::<(), _>("no connection") }).await;
    assert!(matches!(failed, Err(OnceError::Job("no connection"))), "{failed:?}");
    assert!(!won(&store, "k").await.was_abandoned());
}

#[tokio::test]
async fn a_panic_leaves_the_claim_abandoned() {
    let turned = turned();
    let store = turned.store.clone();
    let job = || async { if true { panic!("the job breaks down") } else { Ok::<(), Error>(()) } };
    let broken = tokio::spawn(async move { store.once("k", job).await });
    assert!(broken.await.expect_err("it panics").is_panic());
    assert!(matches!(turned.store.claim("k").await, Err(Error::InProgress { .. })));
    turned.outlive();
    assert!(won(&turned.store, "k").await.was_abandoned());
}

#[tokio::test]
async fn a_cancelled_future_leaves_the_claim_abandoned_and_a_payment_is_not_made_again() {
    let turned = turned();
    let payments = turned.store.on_abandoned(OnAbandoned::Hold);
    let begun = Arc::new(Notify::new());
    let (store, begins) = (payments.clone(), Arc::clone(&begun));
    let paying = tokio::spawn(async move {
        let job = || async {
            begins.notify_one();
            pending::<Result<(), Error>>().await
        };
        store.once("pay-1", job).await
    });
    begun.notified().await;
    paying.abort();
    assert!(paying.await.expect_err("it was cancelled").is_cancelled());
    turned.outlive();
    for _ in 0..2 {
        let again = payments.once("pay-1", || async { Ok::<(), Error>(()) }).await;
        assert!(matches!(again, Err(OnceError::Claim(Error::Held))), "{again:?}");
    }
    // A person has looked.
    assert!(payments.forget("pay-1").await.expect("an answer"));
    assert!(!won(&payments, "pay-1").await.was_abandoned());
}

#[tokio::test]
async fn a_takeover_has_a_higher_fence_and_the_old_holder_is_refused() {
    let turned = turned();
    let old = won(&turned.store.lease(Duration::from_secs(3_600)), "k").await;
    turned.clock.advance(3_600_001);
    let new = won(&turned.store, "k").await;
    assert!(new.was_abandoned() && new.fence() > old.fence());
    assert!(matches!(old.extend(LEASE).await, Err(Error::Lost)));
    assert!(matches!(old.complete("late").await, Err(Error::Lost)));
    new.complete("in time").await.expect("it is the holder's");
    assert_eq!(turned.store.once("k", || async { Ok::<String, Error>(String::new()) }).await.expect("a result"), "in time");
}

/// Late is not lost: nobody else has begun.
#[tokio::test]
async fn a_completion_after_the_lease_counts_while_nobody_has_taken_over() {
    let turned = turned();
    let guard = won(&turned.store.lease(Duration::from_secs(3_600)), "k").await;
    turned.clock.advance(7_200_000);
    guard.complete(&1).await.expect("still the holder's");
}

#[tokio::test]
async fn a_guard_outlives_its_lease_by_its_heartbeat() {
    let turned = turned();
    let guard = won(&turned.store, "k").await;
    for _ in 0..10 {
        turned.clock.advance(LEASE.as_millis() as i64 - 1);
        let extended = turned.clock_ms() + LEASE.as_millis() as i64;
        in_time(async {
            while turned.lease_until_ms("k").await != extended {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(matches!(turned.store.claim("k").await, Err(Error::InProgress { .. })));
    }
    guard.release().await.expect("still the holder's");
}

#[tokio::test]
async fn a_job_whose_claim_is_lost_is_dropped() {
    let turned = turned();
    let begun = Arc::new(Notify::new());
    let (store, begins) = (turned.store.clone(), Arc::clone(&begun));
    let job = tokio::spawn(async move {
        let job = || async {
            begins.notify_one();
            pending::<Result<(), Error>>().await
        };
        store.once("k", job).await
    });
    begun.notified().await;
    assert!(turned.store.forget("k").await.expect("an answer"));
    let lost = in_time(job).await.expect("no panic");
    assert!(matches!(lost, Err(OnceError::Claim(Error::Lost))), "{lost:?}");
}

/// Turns away as many calls as it is told to.
struct Away {
    inner: MemoryStore,
    calls: Arc<AtomicU32>,
}

impl StoreWrapper for Away {
    async fn reach(&self) -> Result<&dyn Store, StoreError> {
        match self.calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Err(StoreError::Busy),
            Err(_) => Ok(&self.inner),
        }
    }

    fn wait(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Upkeep::wait(&self.inner)
    }

    fn promise(&self) -> Promise {
        Upkeep::promise(&self.inner)
    }

    fn limit_outbox(&self, most: usize) {
        Outbox::limit_outbox(&self.inner, most);
    }

    fn limit_claims(&self, most: usize) {
        Claims::limit_claims(&self.inner, most);
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Upkeep::moving(&self.inner)
    }
}

/// The store is away when the job is done, for longer than other calls would wait: what was done is written down when it is back.
#[tokio::test]
async fn a_job_that_is_done_is_told_until_the_store_is_back() {
    let clock = HandClock::at(1_760_000_000_000);
    let calls = Arc::new(AtomicU32::new(0));
    let away = Away { inner: MemoryStore::new(Arc::new(clock)), calls: Arc::clone(&calls) };
    let store = ClaimStore::over(Arc::new(away));
    let job = || async {
        calls.store(6, Ordering::SeqCst);
        Ok::<_, Error>(1)
    };
    assert_eq!(in_time(store.once("k", job)).await.expect("it was written down"), 1);
    let again = store.run("k", || async { Ok::<_, Error>(2) }).await.expect("an answer");
    assert_eq!(again, Ran::Before(1));
}

#[tokio::test]
async fn another_fingerprint_is_refused_and_scopes_are_apart() {
    let Turned { store, .. } = turned();
    won(&store.fingerprint("10 EUR"), "k").await.complete(&()).await.expect("completed");
    let other = store.fingerprint("20 EUR").claim("k").await;
    assert!(matches!(other, Err(Error::FingerprintMismatch)), "{other:?}");
    drop(won(&store.scope("b"), "k").await);
}

#[tokio::test]
async fn a_result_that_cannot_be_kept_runs_nothing_again() {
    let Turned { store, .. } = turned();
    let huge = store.once("k", || async { Ok::<_, Error>("x".repeat(2 << 20)) }).await;
    assert!(matches!(huge, Err(OnceError::Claim(Error::ResultNotKept(_)))), "{huge:?}");
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(won(&store, "odd").await.complete(&odd).await, Err(Error::ResultNotKept(_))));
    for key in ["k", "odd"] {
        let again = store.once(key, || async { Ok::<Option<String>, Error>(Some("again".to_owned())) }).await;
        assert_eq!(again.expect("nothing is what is stored"), None);
    }
    let unreadable = store.once("k", || async { Ok::<u32, Error>(1) }).await;
    assert!(matches!(unreadable, Err(OnceError::Claim(Error::ResultUnreadable(_)))), "{unreadable:?}");
}

#[tokio::test]
async fn bad_keys_and_addresses_say_what_to_change() {
    let Turned { store, .. } = turned();
    for key in [String::new(), "k".repeat(256)] {
        let refused = store.claim(&key).await.expect_err("it is refused");
        assert!(!refused.retryable() && refused.to_string().contains("key"), "{refused}");
    }
    assert!(store.lease(Duration::ZERO).claim("k").await.is_err());
    assert!(matches!(hapax::open("oracle://x").await, Err(Error::BadUrl(_))));
}
