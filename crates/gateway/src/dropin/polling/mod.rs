//! Bots that poll: `getUpdates` on one side, the inbox of a channel without a target on the other.
//!
//! An update is leased like any other work when a poll waits for it, and held until it is confirmed: fence, heartbeat, attempts and order are
//! those of a delivery. While it is with the bot, what the bot sends to its thread belongs to it.

mod answering;
mod desk;
mod written;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hapax_domain::limits::KEEP_MAX_MS;
use hapax_domain::{Fence, PollBook};
use hapax_providers::dropin::telegram;
use hapax_store::clock::Clock;
use hapax_store::{InboxLease, LaneRef, LeaseRequest, Outcome, Settled, Store, StoreError};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::desk::{Desk, Held, Place, Verdict};
use super::runs::RunEnd;
use super::{DropInState, redo};
use crate::channels::{Channel, Channels};
use crate::delivery::{CUT_BY_STOP, PUT_OFF_MS, failure, first_event, too_old};
use crate::telemetry::Telemetry;
use crate::typing::Typing;
use crate::worker::{self, Hold, Work};

/// How often it is looked whether an item is still held for somebody.
const REVIEW: Duration = Duration::from_millis(500);

/// The most that one answer holds, and with `redo_confirmed` as many as may be under way behind it.
const SLOTS: usize = 100;
const SLOTS_WITH_REDO: usize = 1_000;

/// In place of the bot's answer to an update of a kind that it does not want. To one that it took that is 200.
pub(crate) const UNWANTED: u16 = 204;

/// A turn that was gathered before the bot polled.
const A_TURN: &str = "several messages were gathered for one delivery (coalesce), and a poll gives them one by one; \
                      give the channel a target or pull it, and `hapax redrive` delivers them";

/// Serves the polls of all channels whose bot polls.
pub struct Polling {
    desks: HashMap<Arc<str>, Arc<Desk>>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    typing: Arc<Typing>,
    dropin: DropInState,
    /// A poll has begun.
    asked: Notify,
}

impl Polling {
    pub fn new(
        channels: &Channels,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        telemetry: Arc<Telemetry>,
        typing: Arc<Typing>,
        dropin: DropInState,
    ) -> Self {
        let desk = |channel: &Channel| {
            let desk = Desk::new(&channel.settings, telemetry.target(channel.name(), None), &dropin.runs);
            (Arc::clone(channel.name()), Arc::new(desk))
        };
        let desks = channels.iter().filter(|channel| channel.settings.is_polled()).map(desk).collect();
        Self { desks, store, clock, telemetry, typing, dropin, asked: Notify::new() }
    }

    /// The channels to lease for, by the length of their leases.
    pub fn loops(&self) -> HashMap<i64, Vec<(Arc<str>, usize)>> {
        let mut loops: HashMap<i64, Vec<_>> = HashMap::new();
        for (name, desk) in &self.desks {
            let slots = if desk.redoes() { SLOTS_WITH_REDO } else { SLOTS };
            loops.entry(desk.settings.lease_ms).or_default().push((Arc::clone(name), slots));
        }
        loops
    }

    /// Ends all polls: hapax stops.
    pub fn close(&self) {
        self.desks.values().for_each(|desk| desk.close());
    }

    /// A bot has called.
    pub(super) fn heard(&self, channel: &str) {
        if let Some(desk) = self.desks.get(channel) {
            desk.heard();
        }
    }

    /// Waits for what becomes of an item that lies on the desk.
    async fn wait(&self, desk: &Desk, lease: &InboxLease, verdict: oneshot::Receiver<Verdict>) -> Verdict {
        let mut verdict = std::pin::pin!(verdict);
        loop {
            tokio::select! {
                biased;
                verdict = &mut verdict => return verdict.unwrap_or(Verdict::NotAsked),
                () = tokio::time::sleep(REVIEW) => desk.review(lease.item),
            }
            if desk.may_be_polled_elsewhere()
                && let Ok(Some(book)) = self.dropin.books.look::<PollBook>(&book_name(&lease.channel)).await
                && book.process != self.dropin.books.process()
            {
                desk.polled_elsewhere(&book);
            }
        }
    }

    /// What a verdict means for the item.
    async fn outcome(&self, desk: &Desk, lease: &InboxLease, verdict: &Verdict, begun: bool) -> Outcome {
        let done = |status| Outcome::Delivered { status, answer: None, replies: Vec::new() };
        let failed = |why: &str| failure(&desk.settings, lease, why.to_owned(), None);
        match verdict {
            Verdict::Confirmed => match redo::instead(&self.dropin, &desk.settings, lease).await {
                Some(again) => {
                    self.comes_again(desk, lease).await;
                    again
                }
                None => done(200),
            },
            Verdict::Redo => {
                self.comes_again(desk, lease).await;
                failed("the bot confirmed it, and was started anew a moment later (redo_confirmed)")
            }
            Verdict::Unwanted => done(UNWANTED),
            Verdict::Cut => failed("the bot asked for updates again and had not confirmed this one"),
            Verdict::Silent => failed("the bot did not confirm it, and was not heard of any more"),
            Verdict::Forgotten => {
                let why =
                    "the bot asked, with a negative offset, to forget what waited before; `hapax redrive` gives it all the same";
                Outcome::Parked { why: why.to_owned(), charged: false }
            }
            Verdict::NotAsked => {
                let why = begun.then(|| "the bot polls at another instance of hapax".to_owned());
                Outcome::HandBack { wait_ms: 0, why, called: begun }
            }
        }
    }

    /// Takes back that it was confirmed.
    async fn comes_again(&self, desk: &Desk, lease: &InboxLease) {
        let take_back = |book: &mut PollBook| {
            book.given.retain(|given| given.item != lease.item);
            book.confirmed.retain(|item| *item != lease.item);
        };
        if let Err(error) = self.dropin.books.change(&book_name(&lease.channel), KEEP_MAX_MS, take_back).await {
            self.telemetry.store_unavailable("amend", &error);
        }
        desk.comes_again(lease.item);
    }

    async fn settle(&self, desk: &Desk, lease: &InboxLease, hold: &Hold, outcome: Outcome, took: Duration) {
        let attempt = || self.store.settle_inbox(hold.lane, hold.fence, outcome.clone());
        let event = first_event(lease);
        match worker::settle(hold, "settle_inbox", &self.telemetry, &desk.unsettled, attempt).await {
            Some(Settled::Done | Settled::Kept) => {}
            Some(Settled::Lost) => return desk.telemetry.fence_lost(event, hold.fence),
            None => return,
        }
        match outcome {
            Outcome::Delivered { status, .. } => {
                desk.settled(lease.item);
                desk.telemetry.delivered(event, lease.attempt, status, took);
            }
            Outcome::Retry { wait_ms, why } => desk.telemetry.retried(event, lease.attempt, wait_ms, &why),
            Outcome::Parked { why, .. } => desk.telemetry.parked(event, lease.attempt, &why),
            Outcome::HandBack { why, .. } => {
                desk.telemetry.handed_back(event, why.as_deref().unwrap_or("nobody polls for it any more, or hapax stops"));
            }
        }
    }
}

impl Work for Polling {
    type Lease = InboxLease;

    const LEASE: &'static str = "lease_inbox";
    const EXTEND: &'static str = "extend";

    async fn lease(&self, ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        let (wants, began) = (ask.wants.clone(), Instant::now());
        let leases = self.store.lease_inbox(ask).await?;
        for (channel, _) in wants {
            if let Some(desk) = self.desks.get(&channel) {
                desk.looked(leases.iter().filter(|lease| lease.channel == channel).count(), began);
            }
        }
        Ok(leases)
    }

    async fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Result<Vec<bool>, StoreError> {
        self.store.extend(leases, hold_ms).await
    }

    fn of(lease: &InboxLease) -> (&Arc<str>, LaneRef, Fence) {
        (&lease.channel, lease.lane, lease.fence)
    }

    fn allowance(&self, channel: &str) -> usize {
        match self.desks.get(channel) {
            Some(desk) if desk.unsettled.load(Ordering::Acquire) == 0 => desk.wanted(),
            _ => 0,
        }
    }

    async fn woken(&self) {
        self.asked.notified().await;
    }

    async fn perform(self: Arc<Self>, lease: InboxLease, mut hold: Hold) {
        // Only channels with desks are asked for.
        let Some(desk) = self.desks.get(&lease.channel) else { return };
        let expected = Expected(desk);
        if let Some(parked) = too_old(&desk.settings, &lease, self.clock.now_ms()) {
            return self.settle(desk, &lease, &hold, parked, Duration::ZERO).await;
        }
        let most = Duration::from_millis(desk.settings.timeout_ms.unsigned_abs());
        if self.dropin.runs.goes_on(lease.item, most)
            || redo::is_too_early(&self.dropin, &self.store, &self.clock, &desk.settings, &lease).await
        {
            let put_off = Outcome::HandBack { wait_ms: PUT_OFF_MS, why: None, called: false };
            return self.settle(desk, &lease, &hold, put_off, Duration::ZERO).await;
        }
        let update = telegram::update_of(&lease.body).filter(|_| lease.rest.is_empty());
        let Some((own, word)) = update else {
            let why = match lease.rest.is_empty() {
                true => "this is no update that could be given to a poll".to_owned(),
                // Only the first would be given, and all would count as delivered.
                false => A_TURN.to_owned(),
            };
            return self.settle(desk, &lease, &hold, Outcome::Parked { why, charged: false }, Duration::ZERO).await;
        };
        let (verdict, heard) = oneshot::channel();
        let (lease, begun, since) = (Arc::new(lease), Arc::new(AtomicBool::new(false)), Instant::now());
        let held = Held {
            lease: Arc::clone(&lease),
            guard: hold.guard(),
            update: lease.body.clone(),
            own,
            word,
            verdict,
            begun: Arc::clone(&begun),
            place: Place::Ready,
        };
        desk.add(held);
        drop(expected);
        let verdict = tokio::select! {
            biased;
            verdict = self.wait(desk, &lease, heard) => Some(verdict),
            () = hold.ended() => None,
            never = self.typing.show(&lease, self.clock.now_ms()) => match never {},
        };
        desk.remove(lease.item, lease.attempt);
        hold.free_slot();
        let begun = begun.load(Ordering::Acquire);
        let end = match &verdict {
            _ if !begun => RunEnd::NotCalled,
            Some(Verdict::Confirmed) => RunEnd::Delivered,
            _ => RunEnd::Failed,
        };
        self.dropin.runs.end(lease.item, lease.attempt, end);
        let forgotten = verdict == Some(Verdict::Forgotten);
        let outcome = match verdict {
            Some(verdict) => self.outcome(desk, &lease, &verdict, begun).await,
            None if hold.is_lost() => return desk.telemetry.fence_lost(first_event(&lease), hold.fence),
            None => Outcome::HandBack { wait_ms: 0, why: begun.then(|| CUT_BY_STOP.to_owned()), called: begun },
        };
        if end == RunEnd::Failed {
            self.dropin.note_failed(&lease, &self.telemetry).await;
        }
        self.dropin.note_parked(&lease, &outcome, desk.settings.retention_ms, &self.telemetry).await;
        self.settle(desk, &lease, &hold, outcome, since.elapsed()).await;
        if forgotten {
            desk.forgot();
        }
    }
}

/// An item on its way to the desk.
struct Expected<'d>(&'d Desk);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.expects_one_less();
    }
}

/// The register of a channel's book.
pub(super) fn book_name(channel: &str) -> String {
    format!("polled/{channel}")
}
