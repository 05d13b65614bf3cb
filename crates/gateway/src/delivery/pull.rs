//! Delivery to workers that ask: the same items, bodies, headers, budget and story as for a target, and the worker says how it went.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_domain::limits::{PULL_MAX_BYTES, RETRY_AFTER_MAX_MS};
use hapax_providers::sending::Sending;
use hapax_store::clock::Clock;
use hapax_store::{Answer, AttemptRow, InboxLease, LeaseRequest, Outcome, Settled, Store, StoreError};
use http::HeaderMap;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::composer::{Composer, Destination};
use super::{cannot_be_cut, failure, first_event, hand_back, on_poison, replies, tell, too_old};
use crate::channels::{Channel, Channels};
use crate::settings::{self, OnPoison};
use crate::telemetry::{TargetTelemetry, Telemetry};

/// The hint may be lost: so often it is looked anyway.
const POLL: Duration = Duration::from_millis(500);
/// The hint comes with the work of other channels too: no more often than this it is looked.
const REST: Duration = Duration::from_millis(20);

/// So many leases in a row that end without a word weigh as much as one failure.
const SILENT_LEASES: u32 = 3;

/// What is told in the story of an item that was done, as if a target had answered so.
const DONE: u16 = 200;

/// The inbox of all channels without a target, for those who ask.
pub struct Pull {
    channels: HashMap<Arc<str>, PullChannel>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    /// From then on nothing more is leased.
    stop: CancellationToken,
}

struct PullChannel {
    settings: Arc<settings::Channel>,
    composer: Composer,
    sending: Option<Arc<dyn Sending>>,
    telemetry: TargetTelemetry,
    /// Of all who wait only the first looks: a wake-up costs one look, however many wait.
    line: Mutex<()>,
}

/// An item, as a target would have got it.
pub struct Pulled {
    pub lease: InboxLease,
    pub hold_ms: i64,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What a worker says of its item.
pub enum Word {
    /// With the replies as a target would have answered them: `{"replies":[..]}`.
    Done {
        replies: Option<Bytes>,
    },
    Retry {
        after_ms: Option<i64>,
        why: Option<String>,
    },
    Park {
        why: Option<String>,
    },
    HandBack {
        after_ms: Option<i64>,
        why: Option<String>,
    },
}

/// What became of it.
pub enum Ended {
    Settled {
        outcome: Outcome,
        /// There was no room for the replies: the item is parked with them.
        kept: bool,
        /// The same was said before, and counts since then.
        repeated: bool,
    },
    /// Another lease was given out since, or the item has ended otherwise.
    Lost,
    /// Nothing was settled: the replies cannot be sent, for this reason.
    BadReplies(String),
    /// The channel is not pulled from, any more.
    NotPulled,
}

impl Pull {
    pub fn new(
        channels: &Channels,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        telemetry: Arc<Telemetry>,
        stop: CancellationToken,
    ) -> Self {
        let pulled = channels.iter().filter(|channel| channel.settings.is_pulled());
        let channels = pulled.map(|channel| (Arc::clone(channel.name()), PullChannel::new(channel, &telemetry))).collect();
        Self { channels, store, clock, telemetry, stop }
    }

    /// True when workers may ask for this channel.
    pub fn serves(&self, channel: &str) -> bool {
        self.channels.contains_key(channel)
    }

    /// True from when on nothing more is leased.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Leases up to `max` items, and waits for the first of them if there is none. Empty when there is none in time, or hapax stops.
    pub async fn take(
        self: &Arc<Self>,
        channel: &str,
        worker: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Pulled>, StoreError> {
        let Some((name, of)) = self.channels.get_key_value(channel) else { return Ok(Vec::new()) };
        let deadline = Instant::now() + wait;
        let ask = LeaseRequest {
            worker: worker.into(),
            wants: vec![(Arc::clone(name), max)],
            resting: Vec::new(),
            hold_ms: of.settings.lease_ms,
            outside: true,
        };
        let first = self.lease(ask.clone()).await?;
        if !first.is_empty() || wait.is_zero() {
            return Ok(first);
        }
        tokio::select! {
            () = self.stop.cancelled() => Ok(Vec::new()),
            looked = self.look_until(of, ask, deadline) => looked,
        }
    }

    async fn look_until(
        self: &Arc<Self>,
        of: &PullChannel,
        ask: LeaseRequest,
        deadline: Instant,
    ) -> Result<Vec<Pulled>, StoreError> {
        let Ok(_first_in_line) = tokio::time::timeout_at(deadline, of.line.lock()).await else { return Ok(Vec::new()) };
        loop {
            // Before looking: what comes in while we look must not be missed.
            let hint = self.store.wait();
            let pulled = self.lease(ask.clone()).await?;
            if !pulled.is_empty() || Instant::now() >= deadline {
                return Ok(pulled);
            }
            let rested = (Instant::now() + REST).min(deadline);
            let _ = tokio::time::timeout_at(deadline.min(Instant::now() + POLL), hint).await;
            tokio::time::sleep_until(rested).await;
        }
    }

    /// Leases beside the request: a caller that hangs up while the store answers must not take an item with it.
    async fn lease(self: &Arc<Self>, ask: LeaseRequest) -> Result<Vec<Pulled>, StoreError> {
        let (told, hears) = oneshot::channel();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let Err(unheard) = told.send(this.lease_now(ask).await) else { return };
            for pulled in unheard.into_iter().flatten() {
                // What fails here comes again when its lease has run out.
                let _ = this.store.settle_inbox(pulled.lease.lane, pulled.lease.fence, hand_back(0)).await;
            }
        });
        hears.await.unwrap_or_else(|_| Err(StoreError::Closed))
    }

    async fn lease_now(&self, ask: LeaseRequest) -> Result<Vec<Pulled>, StoreError> {
        let hold_ms = ask.hold_ms;
        let leases =
            self.store.lease_inbox(ask).await.inspect_err(|error| self.telemetry.store_unavailable("lease_inbox", error))?;
        let (mut all, mut bytes) = (Vec::with_capacity(leases.len()), 0);
        for lease in leases {
            let Some(of) = self.channels.get(&lease.channel) else { continue };
            let size = lease.body.len() + lease.rest.iter().map(|part| part.body.len()).sum::<usize>();
            let composed = if !all.is_empty() && bytes + size > PULL_MAX_BYTES {
                Err(Box::new((lease, hand_back(0))))
            } else if let Some(poison) = self.is_poison(of, &lease).await {
                Err(Box::new((lease, poison)))
            } else {
                of.compose(lease, hold_ms, &*self.clock)
            };
            match composed {
                Ok(pulled) => {
                    bytes += size;
                    all.push(pulled);
                }
                Err(instead) => {
                    let (lease, outcome) = *instead;
                    // What fails here comes again when its lease has run out.
                    let settled = self.store.settle_inbox(lease.lane, lease.fence, outcome.clone()).await;
                    if let (Ok(Settled::Done), Some(why)) = (settled, outcome.why()) {
                        of.telemetry.parked(first_event(&lease), lease.attempt, why);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Parks what its workers never say a word about: it may be what kills them, and its thread waits behind it.
    async fn is_poison(&self, of: &PullChannel, lease: &InboxLease) -> Option<Outcome> {
        let most = of.settings.retry.attempts.saturating_mul(SILENT_LEASES);
        let uncharged = lease.attempt.saturating_sub(1).saturating_sub(lease.failures);
        if uncharged < most || on_poison(&of.settings, lease) == OnPoison::Block {
            return None;
        }
        // A story that cannot be read now is read when it is given out next.
        let story = self.store.event(first_event(lease)).await.ok()??;
        let times = silent_leases(&story.attempts, lease);
        (times >= most).then(|| {
            let why = format!(
                "given out {times} times in a row, and no worker said how it went before its lease was over; \
                 `hapax redrive` gives it out again"
            );
            Outcome::Parked { why, charged: false }
        })
    }

    /// Moves the end of a lease to its full length from now; `None` when it is lost.
    pub async fn extend(&self, lease: &InboxLease) -> Result<Option<i64>, StoreError> {
        let Some(of) = self.channels.get(&lease.channel) else { return Ok(None) };
        let hold_ms = of.settings.lease_ms;
        let held = self.store.extend(vec![(lease.lane, lease.fence)], hold_ms).await?;
        Ok(held.first().copied().unwrap_or_default().then_some(hold_ms))
    }

    /// Ends the work on an item, if it is still the worker's. `leased_ms` is when it was given out.
    pub async fn settle(&self, lease: &InboxLease, leased_ms: i64, word: Word) -> Result<Ended, StoreError> {
        let Some(of) = self.channels.get(&lease.channel) else { return Ok(Ended::NotPulled) };
        let outcome = match of.outcome(lease, word, self.clock.wall_ms()) {
            Ok(outcome) => outcome,
            Err(why) => return Ok(Ended::BadReplies(why)),
        };
        let settled = self.store.settle_inbox(lease.lane, lease.fence, outcome.clone()).await;
        match settled.inspect_err(|error| self.telemetry.store_unavailable("settle_inbox", error))? {
            Settled::Done => {
                let took = Duration::from_millis((self.clock.now_ms() - leased_ms).max(0).unsigned_abs());
                tell(&of.telemetry, lease, &outcome, took);
                Ok(Ended::Settled { outcome, kept: false, repeated: false })
            }
            Settled::Kept => {
                if let Outcome::Delivered { replies, .. } = &outcome {
                    self.telemetry.outbox_full(&lease.channel, replies.first().map_or("", |reply| reply.account.as_str()));
                }
                of.telemetry.parked(first_event(lease), lease.attempt, "there is no room in the outbox for its replies");
                Ok(Ended::Settled { outcome, kept: true, repeated: false })
            }
            Settled::Lost if self.was_said(lease, &outcome).await? => Ok(Ended::Settled { outcome, kept: false, repeated: true }),
            Settled::Lost => {
                of.telemetry.fence_lost(first_event(lease), lease.fence);
                Ok(Ended::Lost)
            }
        }
    }

    /// Whether the story says that this lease ended so: a worker that missed our answer says it again.
    async fn was_said(&self, lease: &InboxLease, outcome: &Outcome) -> Result<bool, StoreError> {
        let detail = self.store.event(first_event(lease)).await?;
        let same = |attempt: &AttemptRow| {
            (attempt.item, attempt.fence) == (lease.item, lease.fence) && attempt.outcome == outcome.name()
        };
        Ok(detail.is_some_and(|detail| detail.attempts.iter().any(same)))
    }
}

impl PullChannel {
    fn new(channel: &Channel, telemetry: &Telemetry) -> Self {
        Self {
            composer: Composer::new(Arc::clone(&channel.provider), &channel.settings),
            sending: channel.sending.clone(),
            telemetry: telemetry.target(&channel.settings.name, None),
            settings: Arc::clone(&channel.settings),
            line: Mutex::default(),
        }
    }

    /// Makes the request of it that a target would have got; or says what becomes of it instead.
    fn compose(&self, lease: InboxLease, hold_ms: i64, clock: &dyn Clock) -> Result<Pulled, Box<(InboxLease, Outcome)>> {
        if let Some(stale) = too_old(&self.settings, &lease, clock.now_ms()) {
            return Err(Box::new((lease, stale)));
        }
        let Some(body) = self.composer.body(&lease) else {
            let outcome = cannot_be_cut(&self.settings);
            return Err(Box::new((lease, outcome)));
        };
        let wall_ms = clock.wall_ms();
        let headers = self.composer.headers(Destination::default(), &lease.headers, &body, wall_ms, |headers, body| {
            self.composer.add_our_headers(headers, &lease, body, wall_ms);
        });
        self.telemetry.pulled(first_event(&lease), lease.attempt);
        Ok(Pulled { lease, hold_ms, headers, body })
    }

    fn outcome(&self, lease: &InboxLease, word: Word, wall_ms: i64) -> Result<Outcome, String> {
        let or = |why: Option<String>, else_why: &str| why.unwrap_or_else(|| else_why.to_owned());
        match word {
            Word::Done { replies: None } => Ok(Outcome::Delivered { status: DONE, answer: None, replies: Vec::new() }),
            Word::Done { replies: Some(body) } => {
                let answer = Answer { status: DONE, content_type: Some(replies::CONTENT_TYPE.to_owned()), body };
                let read = replies::read(lease, &answer, self.sending.as_ref(), None, self.settings.mode, wall_ms);
                match read.bad {
                    0 => Ok(Outcome::Delivered { status: DONE, answer: None, replies: read.messages }),
                    _ => Err(read.why),
                }
            }
            Word::Retry { after_ms, why } => {
                Ok(failure(&self.settings, lease, or(why, "the worker asked for a retry"), after_ms))
            }
            Word::Park { why } => Ok(Outcome::Parked { why: or(why, "the worker parked it"), charged: true }),
            // The worker has seen it: the attempt counts, and nothing is charged.
            Word::HandBack { after_ms, why } => Ok(Outcome::HandBack {
                wait_ms: after_ms.unwrap_or(0).min(RETRY_AFTER_MAX_MS),
                why: Some(or(why, "the worker handed it back")),
                called: true,
            }),
        }
    }
}

/// How many leases ended without a word since the last that ended with one. The story leaves out some of many attempts, and then nothing is
/// known of those: they count only beside one that is known.
fn silent_leases(attempts: &[AttemptRow], lease: &InboxLease) -> u32 {
    let own = || attempts.iter().filter(|row| row.item == lease.item);
    let spoken = own().filter(|row| row.outcome != "lost").map(|row| row.attempt).max().unwrap_or(0);
    match own().any(|row| row.attempt > spoken) {
        true => lease.attempt.saturating_sub(1).saturating_sub(spoken),
        false => 0,
    }
}
