//! From the outbox to the provider: the one way out, for what people submit and for what handlers answer.
//!
//! `begin` is on disk before the first byte leaves. What happens after it either ends with the provider's own word or leaves the
//! message in doubt; *invariant:* a message in doubt is sent again only where the channel chose `on_unknown = "resend"`.

mod judge;
mod kept;
mod pace;
mod pieces;
mod wakes;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use hapax_domain::Fence;
use hapax_providers::sending::{Found, Outgoing, Reconcile, Sending};
use hapax_store::clock::Clock;
use hapax_store::{Changed, LaneRef, LeaseRequest, OutboxLease, OutboxLeaseRequest, SendOutcome, Settled, Store, StoreError};

use self::judge::{AccountFate, Heard, Judgement, Tried, after_lookup, judge, still_in_doubt};
use self::pace::{Pace, Turn};
use self::wakes::Wakes;
use crate::channels::Channels;
use crate::dropin::Outcomes;
use crate::http_client::{BadCalls, Base, Request};
use crate::settings::{self, OnUnknown};
use crate::telemetry::{SendTelemetry, Telemetry};
use crate::typing::Typing;
use crate::worker::{self, CallGuard, Hold, POLL, Work};

/// Messages that were leased before their account was paused are kept from going out for this long; then the store keeps them.
const PAUSE_SETTLES_MS: i64 = 1_000;
/// Sends the outbox of all channels that can send.
pub struct Sender {
    outlets: HashMap<Arc<str>, Outlet>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    wakes: Wakes,
    typing: Arc<Typing>,
    /// Bots that wait for what becomes of their messages.
    outcomes: Arc<Outcomes>,
}

/// One channel's sending side.
struct Outlet {
    settings: settings::Send,
    api: Base,
    adapter: Arc<dyn Sending>,
    pace: Pace,
    /// Calls at once; messages that wait for their turn hold none.
    calls: Semaphore,
    /// Outcomes that are known and not written down.
    unsettled: AtomicUsize,
    telemetry: SendTelemetry,
    /// How long answers are kept.
    keep_ms: i64,
    /// Bots wait for these answers.
    serves_bots: bool,
}

/// A leased message and its place in its account's pace.
pub struct Leased {
    lease: OutboxLease,
    turn: Turn,
}

impl Sender {
    pub fn new(
        channels: &Channels,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        telemetry: Arc<Telemetry>,
        typing: Arc<Typing>,
        outcomes: Arc<Outcomes>,
    ) -> Result<Self, BadCalls> {
        let (mut outlets, client) = (HashMap::new(), wire::client()?);
        for channel in channels.iter() {
            let (Some(settings), Some(adapter)) = (channel.settings.send.clone(), channel.sending.clone()) else { continue };
            let name = Arc::clone(channel.name());
            let outlet = Outlet {
                api: client.base("api_base", &name, &settings.api_base)?,
                pace: Pace::new(settings.rate, settings.chat_rate),
                calls: Semaphore::new(settings.concurrency.max(1)),
                unsettled: AtomicUsize::new(0),
                telemetry: telemetry.sending(&name),
                keep_ms: channel.settings.retention_ms,
                serves_bots: channel.settings.dropin.is_some(),
                settings,
                adapter,
            };
            outlets.insert(name, outlet);
        }
        Ok(Self { outlets, store, clock, telemetry, wakes: Wakes::default(), typing, outcomes })
    }

    /// Goes on from the turns that the sender of an earlier config has given out: a reload is no burst.
    #[must_use]
    pub fn at_the_pace_of(mut self, before: &Sender) -> Self {
        for (name, outlet) in &mut self.outlets {
            if let Some(before) = before.outlets.get(name) {
                outlet.pace.follow(&before.pace);
            }
        }
        self
    }

    /// The channels to lease, with slots, by the length of their leases: one loop for each length.
    pub fn loops(&self) -> HashMap<i64, Vec<(Arc<str>, usize)>> {
        let mut loops: HashMap<i64, Vec<_>> = HashMap::new();
        for (name, outlet) in &self.outlets {
            loops.entry(outlet.settings.lease_ms).or_default().push((Arc::clone(name), outlet.settings.concurrency));
        }
        loops
    }

    /// Works on one message to its end; nothing when the lease was lost on the way, so that no outcome counts.
    /// `begun`: from then on the try that has begun.
    async fn work_on(&self, outlet: &Outlet, leased: &Leased, hold: &mut Hold, begun: &mut Option<u32>) -> Option<SendOutcome> {
        if let Some(said) = self.said_before(outlet, &leased.lease).await {
            return self.unless_lost(outlet, &leased.lease, hold, said);
        }
        match leased.lease.in_doubt_since_ms {
            Some(since_ms) if outlet.settings.on_unknown != OnUnknown::Resend => {
                self.reconcile(outlet, &leased.lease, since_ms, hold).await
            }
            _ => self.begin_and_send(outlet, leased, hold, begun).await,
        }
    }

    async fn begin_and_send(
        &self,
        outlet: &Outlet,
        leased: &Leased,
        hold: &mut Hold,
        begun: &mut Option<u32>,
    ) -> Option<SendOutcome> {
        let lease = &leased.lease;
        let wait_ms = match leased.turn {
            Turn::In { wait_ms } => wait_ms,
            Turn::Later { wait_ms } => return Some(SendOutcome::HandBack { wait_ms }),
        };
        let guard = hold.guard();
        let request = match outlet.request(lease, &guard, &self.store) {
            Ok(request) => request,
            Err(why) => return Some(SendOutcome::Failed { why }),
        };
        if self.file_is_gone(outlet, lease).await {
            return Some(SendOutcome::Failed { why: "its file is gone".to_owned() });
        }
        if wait_ms > 0 {
            hold.free_slot();
        }
        let call = tokio::select! {
            call = outlet.turn(wait_ms) => call,
            () = hold.ended() => None,
        };
        let Some(_call) = call else {
            return self.unless_lost(outlet, lease, hold, SendOutcome::HandBack { wait_ms: 0 });
        };
        // The account may have been told to be silent while this one waited for its turn.
        let silent_ms = outlet.pace.silent_for_ms(&lease.account, self.clock.now_ms());
        if silent_ms > 0 {
            return Some(SendOutcome::HandBack { wait_ms: silent_ms });
        }
        let beginning = async {
            self.forget_answer(outlet, lease).await?;
            self.store.begin(hold.lane, hold.fence).await
        };
        match beginning.await {
            Ok(Settled::Done | Settled::Kept) => {}
            // The lease is another's; or the provider has named the message since, and handing it back ends it as sent.
            Ok(Settled::Lost) => return self.unless_lost(outlet, lease, hold, SendOutcome::HandBack { wait_ms: 0 }),
            Err(error) => {
                self.telemetry.store_unavailable("begin", &error);
                // Not handed back: it may count as begun, and is certainly not sent.
                let why = format!("the store could not note that it begins: {error}");
                return Some(SendOutcome::Retry { wait_ms: outlet.settings.retry.first_ms, why, charged: false });
            }
        }
        // What was begun before is another try.
        *begun = Some(lease.attempt + u32::from(lease.in_doubt_since_ms.is_some()));
        self.send(outlet, lease, request, &guard, hold).await
    }

    /// Makes the call, from the first byte to what it means.
    async fn send(
        &self,
        outlet: &Outlet,
        lease: &OutboxLease,
        request: Request,
        guard: &CallGuard,
        hold: &Hold,
    ) -> Option<SendOutcome> {
        self.typing.said(&lease.channel, &lease.account, &lease.peer);
        let begun = Instant::now();
        let mut said = None;
        let heard = tokio::select! {
            biased;
            answer = wire::exchange(request, outlet.settings.timeout_ms) => match answer {
                Ok(answer) => Heard::Said(outlet.adapter.classify(&outgoing(lease), said.insert(answer))),
                Err(silence) if silence.may_have_left && guard.let_go() => Heard::Nothing(silence.why),
                // Its body was never asked for: there was no connection to write it to.
                Err(silence) => Heard::Unreachable(silence.why),
            },
            () = hold.ended() => {
                if hold.is_lost() {
                    return self.lost(outlet, lease, hold);
                }
                if !guard.let_go() {
                    return Some(not_sent("hapax stopped before it was sent"));
                }
                Heard::Nothing("hapax stopped before the answer came".to_owned())
            }
        };
        if guard.refused() {
            return self.unless_lost(outlet, lease, hold, not_sent("its lease was too old when it was to be sent"));
        }
        let took = begun.elapsed();
        outlet.telemetry.called(took);
        let by = outlet.adapter.reconcile();
        let tried = Tried { attempt: lease.attempt, failures: lease.failures + 1 };
        let Judgement { outcome, account } = judge(heard, &outlet.settings, by, tried, rand::random());
        if let Some(answer) = &said {
            self.keep_answer(outlet, lease, answer, &outcome).await;
            if let AccountFate::Paused { why } = &account
                && outlet.serves_bots
            {
                self.keep_refusal(outlet, lease, answer, why).await;
            }
        }
        if let SendOutcome::Sent { .. } = outcome {
            outlet.telemetry.sent(lease.message, lease.attempt, took);
        }
        outlet.telemetry.traced(lease, why_not(&outcome), self.clock.wall_ms(), took);
        self.tell_account(outlet, lease, account).await;
        Some(outcome)
    }

    async fn tell_account(&self, outlet: &Outlet, lease: &OutboxLease, fate: AccountFate) {
        let now_ms = self.clock.now_ms();
        match fate {
            AccountFate::GoesOn => {}
            AccountFate::Silent { wait_ms } => outlet.pace.silence(&lease.account, now_ms + wait_ms),
            AccountFate::Paused { why } => {
                outlet.pace.silence(&lease.account, now_ms + PAUSE_SETTLES_MS);
                match self.store.pause_account(&lease.channel, &lease.account, Some(&why)).await {
                    Ok(()) => outlet.telemetry.account_paused(&lease.account, &why),
                    // The next message of the account hears the same and tries again to pause it.
                    Err(error) => {
                        self.telemetry.store_unavailable("pause_account", &error);
                        outlet.pace.silence(&lease.account, now_ms + outlet.settings.retry.cap_ms);
                    }
                }
            }
        }
    }

    /// Asks the provider about a message in doubt, where it can be asked. Never sends.
    async fn reconcile(&self, outlet: &Outlet, lease: &OutboxLease, since_ms: i64, hold: &Hold) -> Option<SendOutcome> {
        let (on_unknown, by) = (outlet.settings.on_unknown, outlet.adapter.reconcile());
        let message = outgoing(lease);
        let lookup = match (on_unknown, by) {
            (OnUnknown::Reconcile, Reconcile::ByLookup) => outlet.adapter.lookup(&message),
            _ => None,
        };
        let Some(call) = lookup else { return Some(still_in_doubt(on_unknown, by)) };
        let request = match wire::request(&outlet.api, call, None, &self.store) {
            Ok(request) => request,
            Err(why) => return Some(SendOutcome::Unknown { why, check_ms: None }),
        };
        let looking = async {
            let _call = outlet.turn(0).await;
            match wire::exchange(request, outlet.settings.timeout_ms).await {
                Ok(answer) => outlet.adapter.found(&message, &answer),
                Err(silence) => Found::NoAnswer { why: silence.why },
            }
        };
        let found = tokio::select! {
            found = looking => found,
            () = hold.ended() => Found::NoAnswer { why: "hapax stopped".to_owned() },
        };
        let outcome = after_lookup(found, (self.clock.now_ms() - since_ms).max(0));
        self.unless_lost(outlet, lease, hold, outcome)
    }

    fn unless_lost(&self, outlet: &Outlet, lease: &OutboxLease, hold: &Hold, outcome: SendOutcome) -> Option<SendOutcome> {
        if hold.is_lost() { self.lost(outlet, lease, hold) } else { Some(outcome) }
    }

    fn lost(&self, outlet: &Outlet, lease: &OutboxLease, hold: &Hold) -> Option<SendOutcome> {
        outlet.telemetry.fence_lost(lease.message, hold.fence);
        None
    }

    async fn tell(&self, outlet: &Outlet, lease: &OutboxLease, outcome: &SendOutcome) {
        let (message, attempt, telemetry) = (lease.message, lease.attempt, &outlet.telemetry);
        if outcome.comes_again_ms().is_none() {
            self.telemetry.outbox_has_room(&lease.channel, &lease.account);
        }
        let doubted = lease.in_doubt_since_ms.is_some() && outlet.settings.on_unknown != OnUnknown::Resend;
        match outcome {
            // Told when the provider said so: that it was sent is true even if the outcome comes too late to count.
            SendOutcome::Sent { .. } => {}
            SendOutcome::Retry { wait_ms, why, .. } | SendOutcome::Resend { wait_ms, why } => {
                telemetry.retried(message, attempt, *wait_ms, why);
            }
            SendOutcome::Failed { why } => telemetry.failed(message, attempt, why),
            SendOutcome::Unknown { why, check_ms: Some(_) } if doubted => telemetry.still_unknown(message, why),
            SendOutcome::Unknown { why, .. } => telemetry.unknown(message, attempt, why),
            SendOutcome::Found { why, .. } => match self.store.message(message).await {
                Ok(Some(row)) if row.outbox.is_none() => telemetry.reconciled(message),
                _ => telemetry.still_unknown(message, why),
            },
            SendOutcome::HandBack { wait_ms } => telemetry.handed_back(message, *wait_ms),
        }
    }
}

impl Work for Sender {
    type Lease = Leased;

    const LEASE: &'static str = "lease_outbox";
    const EXTEND: &'static str = "extend_outbox";

    /// Turns are given out here, in the store's order, so that a reply does not wait behind what is less urgent.
    async fn lease(&self, ask: LeaseRequest) -> Result<Vec<Leased>, StoreError> {
        let now_ms = self.clock.now_ms();
        let of_channel = |(channel, outlet): (&Arc<str>, &Outlet)| {
            let channel = Arc::clone(channel);
            outlet.pace.resting(now_ms).into_iter().map(move |(account, _)| (Arc::clone(&channel), account))
        };
        let resting = self.outlets.iter().flat_map(of_channel).collect();
        let ask = OutboxLeaseRequest { worker: ask.worker, wants: ask.wants, resting, hold_ms: ask.hold_ms };
        let leases = self.store.lease_outbox(ask).await?;
        let now_ms = self.clock.now_ms();
        let leased = |lease: OutboxLease| {
            let turn = match self.outlets.get(&lease.channel) {
                Some(outlet) if lease.in_doubt_since_ms.is_none() => outlet.pace.turn(&lease.account, &lease.peer, now_ms),
                _ => Turn::In { wait_ms: 0 },
            };
            Leased { lease, turn }
        };
        Ok(leases.into_iter().map(leased).collect())
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.store.extend_outbox(leases, hold_ms).await
    }

    fn of(leased: &Leased) -> (&Arc<str>, LaneRef, Fence) {
        (&leased.lease.channel, leased.lease.lane, leased.lease.fence)
    }

    fn allowance(&self, channel: &str) -> usize {
        // What we know must be written down before the same messages can be leased again.
        let all_written = |outlet: &Outlet| outlet.unsettled.load(Ordering::Acquire) == 0;
        if self.outlets.get(channel).is_some_and(all_written) { usize::MAX } else { 0 }
    }

    fn poll_interval(&self) -> Duration {
        let now_ms = self.clock.now_ms();
        let turns = self.outlets.values().flat_map(|outlet| outlet.pace.resting(now_ms)).map(|(_, wait_ms)| wait_ms);
        let next_ms = turns.chain(self.wakes.next_ms(now_ms)).min();
        next_ms.map_or(POLL, |wait_ms| Duration::from_millis(wait_ms.max(1) as u64))
    }

    async fn perform(self: Arc<Self>, leased: Leased, mut hold: Hold) {
        // Only channels that can send are asked for.
        let Some(outlet) = self.outlets.get(&leased.lease.channel) else { return };
        let mut begun = None;
        let ended = self.work_on(outlet, &leased, &mut hold, &mut begun).await;
        hold.free_slot();
        let Some(outcome) = ended else { return };
        if let Some(wait_ms) = outcome.comes_again_ms() {
            self.wakes.note(self.clock.now_ms() + wait_ms);
        }
        let attempt = || self.store.settle_outbox(hold.lane, hold.fence, outcome.clone());
        match worker::settle(&hold, "settle_outbox", &self.telemetry, &outlet.unsettled, attempt).await {
            Some(Settled::Done | Settled::Kept) => {
                self.outcomes.tell(leased.lease.message);
                self.drop_file(outlet, &leased.lease, &outcome).await;
                self.tell(outlet, &leased.lease, &outcome).await;
            }
            Some(Settled::Lost) => {
                outlet.telemetry.fence_lost(leased.lease.message, hold.fence);
                if let Some(attempt) = begun {
                    self.settle_late(outlet, &leased.lease, attempt, outcome).await;
                }
            }
            None => {}
        }
    }
}

impl Sender {
    /// hapax stood still, and the message was taken over: what became of it is true all the same, unless another try has begun.
    async fn settle_late(&self, outlet: &Outlet, lease: &OutboxLease, attempt: u32, outcome: SendOutcome) {
        match self.store.settle_late(lease.message, attempt, outcome.clone()).await {
            Ok(Changed::Done) => {
                self.outcomes.tell(lease.message);
                self.drop_file(outlet, lease, &outcome).await;
                self.tell(outlet, lease, &outcome).await;
            }
            Ok(Changed::NotFound | Changed::TooLate) => {}
            // It stays in doubt, as if the answer had never been heard.
            Err(error) => self.telemetry.store_unavailable("settle_late", &error),
        }
    }
}

impl Outlet {
    fn request(&self, lease: &OutboxLease, guard: &CallGuard, store: &Arc<dyn Store>) -> Result<Request, String> {
        // What a bot wrote in the provider's own words is the provider's to judge.
        if !kept::wants_answer(lease) {
            self.adapter.check(&lease.peer, &lease.payload)?;
        }
        wire::request(&self.api, self.adapter.call(&outgoing(lease))?, Some(guard), store)
    }

    /// Waits for the message's turn, then for the right to make a call. `None`: never comes.
    async fn turn(&self, wait_ms: i64) -> Option<SemaphorePermit<'_>> {
        if wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(wait_ms as u64)).await;
        }
        self.calls.acquire().await.ok()
    }
}

/// It was begun, and certainly did not go out: if nobody else has it by now, it is simply sent later.
fn not_sent(why: &str) -> SendOutcome {
    SendOutcome::Retry { wait_ms: 0, why: why.to_owned(), charged: false }
}

fn outgoing(lease: &OutboxLease) -> Outgoing<'_> {
    Outgoing {
        id: lease.message,
        account: &lease.account,
        peer: &lease.peer,
        payload: &lease.payload,
        begun_ms: lease.in_doubt_since_ms,
    }
}

/// Why a send is one that failed, for its span.
fn why_not(outcome: &SendOutcome) -> Option<&str> {
    match outcome {
        SendOutcome::Sent { .. } | SendOutcome::HandBack { .. } => None,
        SendOutcome::Retry { why, .. }
        | SendOutcome::Resend { why, .. }
        | SendOutcome::Failed { why }
        | SendOutcome::Unknown { why, .. }
        | SendOutcome::Found { why, .. } => Some(why),
    }
}
