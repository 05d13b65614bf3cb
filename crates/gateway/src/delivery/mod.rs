//! From the inbox to the target: the bot gets what the provider would have sent, and its word ends the item.

mod answers;
mod circuit;
mod composer;
mod hints;
mod judge;
mod passing;
mod places;
mod pull;
mod replies;
mod routes;
mod run;
mod standard;
mod target;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use answers::{Answers, Verdict};
pub(crate) use composer::as_json;
pub use hints::likely_cause;
pub use passing::{Passage, Passed};
pub use pull::{Ended, Pull, Pulled, Word};
pub(crate) use run::PUT_OFF_MS;
pub(crate) use standard::StandardSigner;

use hapax_domain::limits::RETRY_AFTER_MAX_MS;
use hapax_domain::{EventId, Fence, fingerprint};
use hapax_store::clock::Clock;
use hapax_store::{
    Answer, Beside, InboxLease, LaneRef, LeaseRequest, Outcome, Reason, Resting, Settled, Store, StoreError, in_time, keep_beside,
};

use self::circuit::{Pass, Trip, TurnedAway};
use self::judge::{Heard, Judgement, judge, next_wait_ms, turned_away_wait_ms};
use self::routes::Routes;
use self::target::Target;
use crate::channels::Channels;
use crate::dropin::{DropInState, redo};
use crate::http_client::BadCalls;
use crate::settings::{self, Mode, OnPoison};
use crate::telemetry::{TargetTelemetry, Telemetry};
use crate::typing::Typing;
use crate::worker::{self, CallGuard, Hold, Work};

/// How long the store may take to keep a reply that was not sent.
const KEEP_PATIENCE: Duration = Duration::from_secs(5);

/// Delivers the inbox of all channels that have a target for anybody.
pub struct Delivery {
    routes: HashMap<Arc<str>, Routes>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    answers: Arc<Answers>,
    telemetry: Arc<Telemetry>,
    typing: Arc<Typing>,
    /// Where sends of the bot find out which event they belong to.
    dropin: DropInState,
}

/// Said of a call that was open when the grace period of a stop was over.
pub(crate) const CUT_BY_STOP: &str = "cut, because hapax stopped; the target may still be at work on it";

/// How one attempt ended.
struct Attempt {
    outcome: Outcome,
    /// For the provider that waits, in proxy mode.
    verdict: Verdict,
    took: Duration,
    /// Replies that could not be sent.
    unsent: Option<Unsent>,
}

/// An answer with replies in it that could not be sent.
struct Unsent {
    why: String,
    content: Bytes,
}

impl Delivery {
    pub fn new(
        channels: &Channels,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        answers: Arc<Answers>,
        telemetry: Arc<Telemetry>,
        typing: Arc<Typing>,
        dropin: DropInState,
    ) -> Result<Self, BadCalls> {
        let client = target::client()?;
        let mut routes = HashMap::new();
        for channel in channels.iter().filter(|channel| !channel.settings.is_pulled()) {
            routes.insert(Arc::clone(channel.name()), Routes::new(channel, &client, &telemetry)?);
        }
        Ok(Self { routes, store, clock, answers, telemetry, typing, dropin })
    }

    /// Another config is in force. What is under way ends here; who is dead is found out there.
    pub fn retire(&self) {
        self.routes.values().for_each(Routes::retire);
    }

    /// The channels to lease, with slots, by the length of their leases: one loop for each length.
    pub fn loops(&self) -> HashMap<i64, Vec<(Arc<str>, usize)>> {
        let mut loops: HashMap<i64, Vec<_>> = HashMap::new();
        for (name, routes) in &self.routes {
            loops.entry(routes.settings.lease_ms).or_default().push((Arc::clone(name), routes.slots()));
        }
        loops
    }

    async fn attempt(&self, target: &Target, lease: &InboxLease, guard: &CallGuard) -> Attempt {
        let now_ms = self.clock.now_ms();
        if let Some(stale) = too_old(&target.settings, lease, now_ms) {
            return Attempt::without_request(stale, 504);
        }
        let pass = match target.circuit.pass(now_ms) {
            Ok(pass) => pass,
            Err(wait_ms) => {
                return Attempt::without_request(hand_back(target.places.wait_for_recovery(Instant::now(), wait_ms)), 503);
            }
        };
        let _place = match target.places.take(Instant::now()) {
            Ok(place) => place,
            Err(wait_ms) => return Attempt::without_request(hand_back(wait_ms), 503),
        };
        let Some(body) = target.composer.body(lease) else {
            return Attempt::without_request(cannot_be_cut(&target.settings), 502);
        };
        let run = match self.begin_run(target, lease).await {
            Ok(run) => run,
            Err(wait_ms) => return Attempt::without_request(hand_back(wait_ms), 503),
        };
        let begun = Instant::now();
        let (heard, answer) = target.post(lease, body, guard, self.clock.wall_ms()).await;
        if let Some(run) = run {
            run.heard(&heard, guard.refused()).await;
        }
        if guard.refused() {
            // Another instance may have it by now; if so, this is refused as well.
            return Attempt::without_request(hand_back(0), 503);
        }
        let took = begun.elapsed();
        if matches!(heard, Heard::Status { status: 200..=299, .. })
            && let Some(again) = redo::instead(&self.dropin, &target.settings, lease).await
        {
            if pass.alive(lease.item) {
                target.telemetry.circuit_closed();
            }
            return Attempt { verdict: verdict_of(&heard, answer), outcome: again, took, unsent: None };
        }
        // A thread that is to wait for each of its events waits for what was refused with a 4xx too.
        let gives_up_on_4xx = target.settings.park_on_4xx && on_poison(&target.settings, lease) == OnPoison::Park;
        let judgement = judge(&heard, gives_up_on_4xx);
        let (outcome, unsent) = self.outcome(target, lease, pass, judgement, &heard, answer.as_ref());
        Attempt { verdict: verdict_of(&heard, answer), outcome, took, unsent }
    }

    /// Tells the circuit what was heard, and says what becomes of the item.
    fn outcome(
        &self,
        target: &Target,
        lease: &InboxLease,
        pass: Pass<'_>,
        judgement: Judgement,
        heard: &Heard,
        answer: Option<&Answer>,
    ) -> (Outcome, Option<Unsent>) {
        let now_ms = self.clock.now_ms();
        let tripped = |trip: Trip, why: &str| {
            if trip.opened {
                target.telemetry.circuit_opened(trip.wait_ms, why, now_ms);
            } else if let Some(probe_at_ms) = target.circuit.probe_at_ms() {
                target.telemetry.still_down(probe_at_ms, why);
            }
            trip.wait_ms
        };
        match judgement {
            Judgement::Dead { why } => (hand_back(tripped(pass.dead(now_ms), &why)), None),
            Judgement::TurnedAway { why, asked_ms } => {
                let wait_ms = match pass.turned_away(now_ms, &thread_of(lease), lease.item) {
                    TurnedAway::ByItsOwnFault => return (failure(&target.settings, lease, why, asked_ms), None),
                    // What it asks for holds its lane; the others find out for themselves.
                    TurnedAway::WithAll(trip) => tripped(trip, &why).max(asked_ms.unwrap_or(0).min(RETRY_AFTER_MAX_MS)),
                    TurnedAway::Alone { times } => turned_away_wait_ms(target.settings.retry, times, rand::random(), asked_ms),
                };
                (Outcome::HandBack { wait_ms, why: Some(why), called: true }, None)
            }
            Judgement::Taken | Judgement::Again { .. } | Judgement::Hopeless { .. } => {
                if !matches!(heard, Heard::Status { .. }) {
                    pass.unanswered(now_ms);
                } else if pass.alive(lease.item) {
                    target.telemetry.circuit_closed();
                }
                match judgement {
                    Judgement::Again { why, asked_ms } => (failure(&target.settings, lease, why, asked_ms), None),
                    Judgement::Hopeless { why } => (Outcome::Parked { why, charged: true }, None),
                    _ => taken(target, lease, heard, answer, self.clock.wall_ms()),
                }
            }
        }
    }

    /// Writes the outcome down. False when it does not count.
    async fn settle(&self, routes: &Routes, target: &Target, lease: &InboxLease, hold: &Hold, outcome: &Outcome) -> bool {
        let attempt = || self.store.settle_inbox(hold.lane, hold.fence, outcome.clone());
        match worker::settle(hold, "settle_inbox", &self.telemetry, &routes.unsettled, attempt).await {
            Some(Settled::Done) => true,
            Some(Settled::Kept) => {
                if let Outcome::Delivered { replies, .. } = outcome {
                    let account = replies.first().map_or("", |reply| reply.account.as_str());
                    self.telemetry.outbox_full(&lease.channel, account);
                    target.telemetry.parked(first_event(lease), lease.attempt, "there is no room in the outbox for its replies");
                }
                true
            }
            Some(Settled::Lost) => {
                target.telemetry.fence_lost(first_event(lease), hold.fence);
                false
            }
            // Refused for good, a reply larger than the store takes, say: the handler is not asked again for what would be refused again.
            None if matches!(outcome, Outcome::Delivered { .. }) && !hold.has_ended() => {
                let why = "the handler answered 2xx, and the store refuses to keep its answer; the log says why".to_owned();
                target.telemetry.parked(first_event(lease), lease.attempt, &why);
                let parked =
                    || self.store.settle_inbox(hold.lane, hold.fence, Outcome::Parked { why: why.clone(), charged: false });
                worker::settle(hold, "settle_inbox", &self.telemetry, &routes.unsettled, parked).await;
                false
            }
            None => false,
        }
    }

    /// Shows in the event's story what was not sent. It was counted and logged already.
    async fn keep_unsent(&self, target: &Target, lease: &InboxLease, Unsent { why, content }: Unsent) {
        let thread = lease.events.first().and_then(|event| event.thread.as_ref());
        let beside = Beside {
            reason: Reason::Unsent,
            first: first_event(lease),
            channel: Arc::clone(&lease.channel),
            account: thread.map_or_else(String::new, |thread| thread.account.clone()),
            window_ms: target.settings.window_ms,
            why: format!("the handler's reply was not sent: {why}"),
            fingerprint: fingerprint::of_bytes(&content),
            content,
        };
        if let Err(error) = in_time("keeping a reply", KEEP_PATIENCE, keep_beside(&*self.store, beside)).await {
            self.telemetry.store_unavailable("accept", &error);
        }
    }

    fn tell(&self, target: &Target, lease: &InboxLease, attempt: Attempt) {
        tell(&target.telemetry, lease, &attempt.outcome, attempt.took);
        self.announce(&target.settings, lease, &attempt.verdict);
    }

    /// Tells a provider that waits how it went.
    fn announce(&self, settings: &settings::Channel, lease: &InboxLease, verdict: &Verdict) {
        if settings.mode == Mode::Proxy {
            for event in &lease.events {
                self.answers.announce(event.id, verdict.clone());
            }
        }
    }

    /// Puts an item back whose account has no target. It says so, and comes again in case another instance has one.
    async fn keep_waiting(&self, routes: &Routes, lease: &InboxLease, hold: &Hold) {
        let account = account_of(lease);
        let outcome = routes.without_target(account);
        let attempt = || self.store.settle_inbox(hold.lane, hold.fence, outcome.clone());
        let settled = worker::settle(hold, "settle_inbox", &self.telemetry, &routes.unsettled, attempt).await;
        if settled == Some(Settled::Done) {
            self.telemetry.without_target(&lease.channel, account);
            self.announce(&routes.settings, lease, &Verdict::Failed { status: 503 });
        }
    }
}

impl Work for Delivery {
    type Lease = InboxLease;

    const LEASE: &'static str = "lease_inbox";
    const EXTEND: &'static str = "extend";

    async fn lease(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        self.store.lease_inbox(ask).await
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.store.extend(leases, hold_ms).await
    }

    fn of(lease: &InboxLease) -> (&Arc<str>, LaneRef, Fence) {
        (&lease.channel, lease.lane, lease.fence)
    }

    fn allowance(&self, channel: &str) -> usize {
        // When the store is back after longer than our leases last, what we know must be written down before anything is leased:
        // the same items would be leased again, and the bot asked again for what it has answered.
        match self.routes.get(channel) {
            Some(routes) if routes.unsettled.load(Ordering::Acquire) == 0 => routes.allowance(self.clock.now_ms()),
            _ => 0,
        }
    }

    fn resting(&self, channel: &Arc<str>) -> Option<Resting> {
        self.routes.get(channel)?.resting(self.clock.now_ms())
    }

    async fn perform(self: Arc<Self>, lease: InboxLease, mut hold: Hold) {
        // Only channels with targets are asked for.
        let Some(routes) = self.routes.get(&lease.channel) else { return };
        let Some(target) = routes.target(account_of(&lease)) else {
            hold.free_slot();
            return self.keep_waiting(routes, &lease, &hold).await;
        };
        let guard = hold.guard();
        let mut attempt = tokio::select! {
            biased;
            attempt = self.attempt(target, &lease, &guard) => attempt,
            () = hold.ended() => {
                if hold.is_lost() {
                    target.telemetry.fence_lost(first_event(&lease), hold.fence);
                    return;
                }
                let called = guard.let_go();
                let why = called.then(|| CUT_BY_STOP.to_owned());
                Attempt::without_request(Outcome::HandBack { wait_ms: 0, why, called }, 503)
            }
            never = self.typing.show(&lease, self.clock.now_ms()) => match never {},
        };
        hold.free_slot();
        if target.settings.dropin.is_some() {
            self.dropin.note_parked(&lease, &attempt.outcome, target.settings.retention_ms, &self.telemetry).await;
        }
        if self.settle(routes, target, &lease, &hold, &attempt.outcome).await {
            let unsent = attempt.unsent.take();
            self.tell(target, &lease, attempt);
            if let Some(unsent) = unsent {
                self.keep_unsent(target, &lease, unsent).await;
            }
        }
    }
}

impl Attempt {
    fn without_request(outcome: Outcome, status: u16) -> Self {
        Self { outcome, verdict: Verdict::Failed { status }, took: Duration::ZERO, unsent: None }
    }
}

/// Says how an attempt ended.
fn tell(telemetry: &TargetTelemetry, lease: &InboxLease, outcome: &Outcome, took: Duration) {
    let event = first_event(lease);
    match outcome {
        Outcome::Delivered { status, replies, .. } => {
            telemetry.delivered(event, lease.attempt, *status, took);
            if !replies.is_empty() {
                telemetry.replied(event, replies.len() as u64);
            }
        }
        Outcome::Retry { wait_ms, why } => telemetry.retried(event, lease.attempt, *wait_ms, why),
        Outcome::Parked { why, .. } => telemetry.parked(event, lease.attempt, why),
        Outcome::HandBack { why, .. } => {
            let why = why.as_deref().unwrap_or("the target is not there or has no place, hapax stops, or the lease was too old");
            telemetry.handed_back(event, why);
        }
    }
}

/// Nothing was called, and nothing is charged.
fn hand_back(wait_ms: i64) -> Outcome {
    Outcome::HandBack { wait_ms, why: None, called: false }
}

/// Parks what has waited for longer than its channel allows; a replay is somebody's wish.
pub(crate) fn too_old(settings: &settings::Channel, lease: &InboxLease, now_ms: i64) -> Option<Outcome> {
    let stale_after_ms = settings.stale_after_ms.filter(|_| lease.replay.is_none())?;
    let why = || {
        let after_s = stale_after_ms / 1_000;
        format!("older than stale_after ({after_s} s) when its turn came; `hapax replay` delivers it all the same")
    };
    (now_ms - lease.received_ms > stale_after_ms).then(|| Outcome::Parked { why: why(), charged: false })
}

/// The whole of it would bring the bot events that are not this item's: copies, or other lanes'.
fn cannot_be_cut(settings: &settings::Channel) -> Outcome {
    let why = format!("its part of the webhook could not be cut out for provider {}", settings.provider.provider());
    Outcome::Parked { why, charged: false }
}

/// All events of an item are of one account.
fn account_of(lease: &InboxLease) -> &str {
    lease.events.first().map_or("", |event| &event.account)
}

pub(crate) fn first_event(lease: &InboxLease) -> EventId {
    lease.events.first().map_or(EventId(lease.item.0), |event| event.id)
}

/// What the circuit knows a lease by: its thread, or itself.
fn thread_of(lease: &InboxLease) -> String {
    let thread = lease.events.first().and_then(|event| event.thread.as_ref());
    thread.map_or_else(|| lease.item.to_string(), ToString::to_string)
}

fn taken(target: &Target, lease: &InboxLease, heard: &Heard, answer: Option<&Answer>, wall_ms: i64) -> (Outcome, Option<Unsent>) {
    let mode = target.settings.mode;
    let status = if let Heard::Status { status, .. } = heard { *status } else { 0 };
    let (sending, reading) = (target.sending.as_ref(), target.reading.as_ref());
    let replies = answer.map(|answer| replies::read(lease, answer, sending, reading, mode, wall_ms)).unwrap_or_default();
    let mut unsent = None;
    if replies.bad > 0 {
        target.telemetry.replies_bad(first_event(lease), replies.bad, &replies.why);
        let content = answer.map(|answer| answer.body.clone()).unwrap_or_default();
        unsent = Some(Unsent { why: replies.why, content });
    }
    let kept = answer.filter(|_| mode == Mode::Proxy).cloned();
    (Outcome::Delivered { status, answer: kept, replies: replies.messages }, unsent)
}

/// What becomes of an item that fails too often. Where nobody waits behind it, it would be called for ever and nobody would notice.
fn on_poison(settings: &settings::Channel, lease: &InboxLease) -> OnPoison {
    let has_lane = lease.events.first().is_some_and(|event| event.thread.is_some() && event.kind.waits_in_thread());
    if has_lane { settings.on_poison } else { OnPoison::Park }
}

/// Charges one failure, which may be the last.
pub(crate) fn failure(settings: &settings::Channel, lease: &InboxLease, why: String, asked_ms: Option<i64>) -> Outcome {
    let number = lease.failures + 1;
    match next_wait_ms(settings.retry, on_poison(settings, lease), number, rand::random(), asked_ms) {
        Some(wait_ms) => Outcome::Retry { wait_ms, why },
        None => {
            let why = format!("{why}; that was failure {number} of {}", settings.retry.attempts);
            Outcome::Parked { why, charged: true }
        }
    }
}

fn verdict_of(heard: &Heard, answer: Option<Answer>) -> Verdict {
    match (heard, answer) {
        (Heard::Status { status: 200..=299, .. }, Some(answer)) => Verdict::Answered(answer),
        (Heard::Status { status, .. }, _) => Verdict::Failed { status: *status },
        (Heard::TimedOut { .. }, _) => Verdict::Failed { status: 504 },
        (Heard::Unreachable(_) | Heard::Broken(_), _) => Verdict::Failed { status: 502 },
    }
}
