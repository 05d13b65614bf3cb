//! A store that fails when told, and what hapax makes of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::future::BoxFuture;
use hapax_domain::Fence;
use hapax_store::{
    Accepted, Arrival, EventState, InboxLease, LaneRef, LeaseRequest, NewMessage, OutboxLease, OutboxLeaseRequest, Outcome,
    Promise, SendOutcome, Settled, Store, StoreError, StoreWrapper, Submitted,
};
use hapax_testkit::fake_bot::FakeBot;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::rig::{Opened, Rig, channel, eventually, text};

on_every_store! {
    a_store_that_cannot_commit_is_answered_503_and_the_repeat_is_taken
    an_answer_that_is_refused_for_good_parks_its_item
    an_outcome_waits_for_the_store_to_come_back
    an_outcome_that_waits_holds_its_own_channel_only
    an_outcome_outlives_its_lease_while_the_store_is_away
    a_worker_whose_lease_was_lost_lets_go
    pings_are_shared_by_all_who_ask_within_a_second
    a_store_that_closed_ends_the_server
}

/// What happens at that moment.
type Happening = Box<dyn FnOnce() + Send>;

/// Passes everything on, except what it was told to fail.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    accepts_fail: AtomicBool,
    settles_fail: AtomicBool,
    answers_are_refused: AtomicBool,
    /// What is kept beside events waits until so many come at once.
    together: Mutex<Option<Arc<tokio::sync::Barrier>>>,
    extends_fail: AtomicBool,
    leases_are_lost: AtomicBool,
    closed: AtomicBool,
    pings: AtomicUsize,
    failed: AtomicUsize,
    /// Steps until this process is dead, counted down; see [`Faulty::die_at`].
    steps_left: AtomicUsize,
    dead: CancellationToken,
    outage: watch::Sender<Outage>,
    accepts: AtomicUsize,
    /// Webhooks with this in them are refused for good.
    refused: Mutex<Option<String>>,
    accepts_are_not_heard: AtomicBool,
    unheard: AtomicUsize,
    then: Mutex<Option<(Moment, Happening)>>,
}

/// A moment at which the store has answered and whoever asked has not heard it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A lease that found some.
    LeaseInbox,
    Begin,
}

/// How the whole store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Well.
    Over,
    /// Every call fails at once.
    Fails,
    /// Every call waits for the end of the outage. What was to be taken in is taken in then, whether or not anybody still waits.
    Hangs,
}

impl Faulty {
    pub(crate) fn around(opened: &Opened) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(&opened.store),
            accepts_fail: AtomicBool::new(false),
            settles_fail: AtomicBool::new(false),
            answers_are_refused: AtomicBool::new(false),
            together: Mutex::default(),
            extends_fail: AtomicBool::new(false),
            leases_are_lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            pings: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            steps_left: AtomicUsize::new(usize::MAX),
            dead: CancellationToken::new(),
            outage: watch::Sender::new(Outage::Over),
            accepts: AtomicUsize::new(0),
            refused: Mutex::default(),
            accepts_are_not_heard: AtomicBool::new(false),
            unheard: AtomicUsize::new(0),
            then: Mutex::default(),
        })
    }

    /// Does something the next time that the moment comes.
    pub(crate) fn after_next(&self, moment: Moment, does: impl FnOnce() + Send + 'static) {
        *self.then.lock().expect("no panic") = Some((moment, Box::new(does)));
    }

    fn reached(&self, moment: Moment) {
        let then = self.then.lock().expect("no panic").take_if(|(wanted, _)| *wanted == moment);
        if let Some((_, does)) = then {
            does();
        }
    }

    pub(crate) fn outage(&self, outage: Outage) {
        self.outage.send_replace(outage);
    }

    /// How often anybody wanted to take something in.
    pub(crate) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    pub(crate) fn refuse(&self, part: Option<&str>) {
        *self.refused.lock().expect("no panic") = part.map(str::to_owned);
    }

    pub(crate) fn keep_together(&self, many: usize) {
        *self.together.lock().expect("no panic") = Some(Arc::new(tokio::sync::Barrier::new(many)));
    }

    /// From now on what is taken in is taken in, and whoever asked for it never hears of it.
    pub(crate) fn swallow_answers(&self) {
        self.accepts_are_not_heard.store(true, Ordering::SeqCst);
    }

    pub(crate) fn swallowed(&self) -> usize {
        self.unheard.load(Ordering::SeqCst)
    }

    async fn in_reach(&self) -> Result<(), StoreError> {
        let outage = *self.outage.borrow();
        match outage {
            Outage::Over => Ok(()),
            Outage::Fails => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                Err(StoreError::Failed { what: "the outage", retryable: true, source: "for the test".into() })
            }
            Outage::Hangs => {
                // The sender lives as long as we do.
                let _ = self.outage.subscribe().wait_for(|outage| *outage != Outage::Hangs).await;
                Ok(())
            }
        }
    }

    async fn accept_late(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let (inner, mut outage) = (Arc::clone(&self.inner), self.outage.subscribe());
        let late = tokio::spawn(async move {
            let _ = outage.wait_for(|outage| *outage != Outage::Hangs).await;
            inner.accept(arrival).await
        });
        late.await.unwrap_or(Err(StoreError::Closed))
    }

    /// From the given step on nothing of this process reaches the store, as if it had been killed there. Steps are the moments right
    /// before and right after each write that ends or begins work, and after each lease that found some.
    pub(crate) fn die_at(&self, step: usize) {
        self.steps_left.store(step, Ordering::SeqCst);
    }

    /// Resolves when it died.
    pub(crate) async fn died(&self) {
        self.dead.cancelled().await;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    async fn step(&self) {
        let left = self.steps_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        if left == Ok(0) {
            self.dead.cancel();
        }
        self.alive().await;
    }

    /// Never comes back in a dead process.
    async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    fn check(&self, switch: &AtomicBool) -> Result<(), StoreError> {
        if !switch.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Failed { what: "told to fail", retryable: true, source: "for the test".into() })
    }
}

impl StoreWrapper for Faulty {
    async fn reach(&self) -> Result<&dyn Store, StoreError> {
        self.in_reach().await?;
        Ok(&*self.inner)
    }

    async fn accept(&self, arrival: Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        self.accepts.fetch_add(1, Ordering::SeqCst);
        if *self.outage.borrow() == Outage::Hangs {
            return self.accept_late(arrival).await;
        }
        self.in_reach().await?;
        self.check(&self.accepts_fail)?;
        if self.refused.lock().expect("no panic").as_ref().is_some_and(|id| contains(&arrival.body, id)) {
            return Err(StoreError::Refused("told to refuse".to_owned()));
        }
        let beside = arrival.events.iter().any(|new| new.event.id.starts_with("conflict:"));
        let together = self.together.lock().expect("no panic").clone().filter(|_| beside);
        if let Some(barrier) = together {
            barrier.wait().await;
        }
        let accepted = self.inner.accept(arrival).await;
        if self.accepts_are_not_heard.load(Ordering::SeqCst) {
            self.unheard.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        accepted
    }

    fn limit_claims(&self, most: usize) {
        self.inner.limit_claims(most);
    }

    async fn lease_inbox(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        self.in_reach().await?;
        self.alive().await;
        let leases = self.inner.lease_inbox(ask).await?;
        if !leases.is_empty() {
            self.step().await;
            self.reached(Moment::LeaseInbox);
        }
        Ok(leases)
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.in_reach().await?;
        self.alive().await;
        if self.extends_fail.load(Ordering::SeqCst) {
            return Err(StoreError::Busy);
        }
        if self.leases_are_lost.load(Ordering::SeqCst) {
            return Ok(vec![false; leases.len()]);
        }
        self.inner.extend(leases, hold_ms).await
    }

    async fn settle_inbox(&self, lane: LaneRef, fence: Fence, outcome: Outcome) -> Result<Settled, StoreError> {
        self.in_reach().await?;
        self.check(&self.settles_fail)?;
        if matches!(outcome, Outcome::Delivered { .. }) && self.answers_are_refused.load(Ordering::SeqCst) {
            return Err(StoreError::Refused("larger than it takes".to_owned()));
        }
        self.step().await;
        let settled = self.inner.settle_inbox(lane, fence, outcome).await;
        self.step().await;
        settled
    }

    async fn lease_outbox(&self, ask: OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        self.in_reach().await?;
        self.alive().await;
        let leases = self.inner.lease_outbox(ask).await?;
        if !leases.is_empty() {
            self.step().await;
        }
        Ok(leases)
    }

    async fn begin(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        self.in_reach().await?;
        self.step().await;
        let begun = self.inner.begin(lane, fence).await;
        self.step().await;
        self.reached(Moment::Begin);
        begun
    }

    async fn extend_outbox(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.in_reach().await?;
        self.alive().await;
        self.inner.extend_outbox(leases, hold_ms).await
    }

    async fn settle_outbox(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        self.in_reach().await?;
        self.step().await;
        let settled = self.inner.settle_outbox(lane, fence, outcome).await;
        self.step().await;
        settled
    }

    async fn submit(&self, message: NewMessage) -> Result<Submitted, StoreError> {
        self.in_reach().await?;
        self.step().await;
        let submitted = self.inner.submit(message).await;
        self.step().await;
        submitted
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        self.in_reach().await?;
        self.alive().await;
        if expected.is_none() && new.is_none() {
            return self.inner.amend(name, None, None, None).await;
        }
        self.step().await;
        let there = self.inner.amend(name, expected, new, keep_ms).await;
        self.step().await;
        there
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        self.inner.wait()
    }

    fn limit_outbox(&self, most: usize) {
        self.inner.limit_outbox(most);
    }

    fn moving(&self) -> Result<&dyn hapax_store::Moving, StoreError> {
        self.inner.moving()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.pings.fetch_add(1, Ordering::SeqCst);
        self.in_reach().await?;
        if self.closed.load(Ordering::SeqCst) { Err(StoreError::Closed) } else { self.inner.ping().await }
    }

    fn promise(&self) -> Promise {
        self.inner.promise()
    }
}

pub(crate) fn with(faulty: &Arc<Faulty>, opened: Opened) -> Opened {
    let store: Arc<dyn Store> = Arc::<Faulty>::clone(faulty);
    Opened { store, ..opened }
}

fn contains(body: &[u8], part: &str) -> bool {
    body.windows(part.len()).any(|window| window == part.as_bytes())
}

async fn a_store_that_cannot_commit_is_answered_503_and_the_repeat_is_taken(opened: Opened) {
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", None)]).await;
    faulty.accepts_fail.store(true, Ordering::SeqCst);
    let body = text("wamid.A", "1");
    for _ in 0..2 {
        let answer = rig.request("shop", body.as_bytes()).body(body.clone()).send().await.expect("an answer");
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
    }
    assert_eq!(rig.events().await.len(), 0);
    faulty.accepts_fail.store(false, Ordering::SeqCst);
    // The failure must not have been remembered as a key that was taken.
    rig.accepted("shop", body).await;
    rig.counted(r#"hapax_store_failures_total{call="accept"}"#, 2).await;
}

async fn an_answer_that_is_refused_for_good_parks_its_item(opened: Opened) {
    let faulty = Faulty::around(&opened);
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", Some(bot.url()))]).await;
    faulty.answers_are_refused.store(true, Ordering::SeqCst);
    rig.accepted("shop", text("wamid.A", "1")).await;
    eventually("it is parked", async || rig.store.stats().await.expect("stats").channels[0].parked == 1).await;
    let row = rig.inbox().await.remove(0);
    assert!(row.why.as_ref().is_some_and(|why| why.contains("the store refuses to keep its answer")), "{row:?}");
    faulty.answers_are_refused.store(false, Ordering::SeqCst);
    rig.accepted("shop", text("wamid.B", "1")).await;
    bot.called(2).await;
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2, "the first was not asked again, and its thread goes on");
}

async fn an_outcome_waits_for_the_store_to_come_back(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", Some(bot.url()))]).await;
    faulty.settles_fail.store(true, Ordering::SeqCst);
    rig.accepted("shop", text("wamid.A", "1")).await;
    eventually("two settles failed", async || faulty.failed.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(rig.events().await[0].state, EventState::Waiting);
    faulty.settles_fail.store(false, Ordering::SeqCst);
    eventually("delivered", async || rig.events().await[0].state == EventState::Delivered).await;
    assert_eq!(bot.calls().len(), 1, "the bot is not asked again for an outcome we know");
}

async fn an_outcome_that_waits_holds_its_own_channel_only(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let channels = ["shop", "other"].map(|name| channel(name, Some(bot.url())));
    let rig = Rig::start(with(&faulty, opened), channels.into()).await;
    faulty.settles_fail.store(true, Ordering::SeqCst);
    rig.accepted("shop", text("wamid.A", "1")).await;
    eventually("a settle failed", async || faulty.failed.load(Ordering::SeqCst) >= 1).await;
    rig.accepted("other", text("wamid.B", "1")).await;
    bot.called(2).await;
    faulty.settles_fail.store(false, Ordering::SeqCst);
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
}

async fn an_outcome_outlives_its_lease_while_the_store_is_away(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let mut shop = channel("shop", Some(bot.url()));
    shop.lease_ms = 60;
    let rig = Rig::start(with(&faulty, opened), vec![shop]).await;
    faulty.extends_fail.store(true, Ordering::SeqCst);
    faulty.settles_fail.store(true, Ordering::SeqCst);
    rig.accepted("shop", text("wamid.A", "1")).await;
    // The fourth comes after 700 ms: the lease ran out long ago, and the loop polls every 500 ms.
    eventually("four settles failed", async || faulty.failed.load(Ordering::SeqCst) >= 4).await;
    faulty.settles_fail.store(false, Ordering::SeqCst);
    eventually("delivered", async || rig.events().await[0].state == EventState::Delivered).await;
    assert_eq!(bot.calls().len(), 1, "the bot is not asked again for an outcome we know");
    rig.accepted("shop", text("wamid.B", "1")).await;
    bot.called(2).await;
}

async fn a_worker_whose_lease_was_lost_lets_go(opened: Opened) {
    let bot = FakeBot::start_slow(|_| Box::pin(std::future::pending())).await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let mut shop = channel("shop", Some(bot.url()));
    shop.lease_ms = 60;
    let rig = Rig::start(with(&faulty, opened), vec![shop]).await;
    faulty.leases_are_lost.store(true, Ordering::SeqCst);
    rig.accepted("shop", text("wamid.A", "1")).await;
    let calls = bot.called(2).await;
    assert_eq!(calls[0].event_id(), calls[1].event_id());
    assert!(calls[1].fence() > calls[0].fence());
    assert!(rig.metric(r#"hapax_fences_lost_total{channel="shop"}"#) >= 1, "it is counted and logged");
}

async fn pings_are_shared_by_all_who_ask_within_a_second(opened: Opened) {
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", None)]).await;
    let (begun, before) = (Instant::now(), faulty.pings.load(Ordering::SeqCst));
    for _ in 0..100 {
        assert_eq!(rig.client.get(rig.url("/readyz")).send().await.expect("an answer").status(), 200);
    }
    let pings = faulty.pings.load(Ordering::SeqCst) - before;
    // One per second asked, one per second by the server itself, and those at the edges.
    assert!(pings <= 4 + 2 * begun.elapsed().as_secs() as usize, "{pings} pings for 100 questions");
}

async fn a_store_that_closed_ends_the_server(opened: Opened) {
    let faulty = Faulty::around(&opened);
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", None)]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    faulty.closed.store(true, Ordering::SeqCst);
    let why = rig.ended().await.expect_err("a store that is gone is no clean stop");
    assert!(why.to_string().contains("the store is closed"), "{why}");
}
