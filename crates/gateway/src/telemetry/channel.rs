//! The happenings of one channel, with their meters made once.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::{Event, EventId, Identity};
use metrics::{Counter, Histogram};
use tokio::sync::mpsc;

use super::sparse::Sparse;
use super::tally::{Count, Tally};
use super::traces::Traces;
use super::troubles::TroubleCounts;
use super::{Happening, Telemetry, names};

/// Why ingress turned a request away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedWhy {
    Signature,
    TooLarge,
    Slow,
    Cut,
    Overload,
    Store,
    Method,
}

impl RefusedWhy {
    const ALL: [RefusedWhy; 7] = [
        RefusedWhy::Signature,
        RefusedWhy::TooLarge,
        RefusedWhy::Slow,
        RefusedWhy::Cut,
        RefusedWhy::Overload,
        RefusedWhy::Store,
        RefusedWhy::Method,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RefusedWhy::Signature => "signature",
            RefusedWhy::TooLarge => "too large",
            RefusedWhy::Slow => "slow body",
            RefusedWhy::Cut => "cut off",
            RefusedWhy::Overload => "overload",
            RefusedWhy::Store => "store",
            RefusedWhy::Method => "method",
        }
    }
}

/// Why a request was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disbelief {
    NoSignature,
    BadSignature,
    Stale,
    Handshake,
}

impl Disbelief {
    /// What happened, and what to look at.
    pub fn words(self) -> &'static str {
        match self {
            Disbelief::NoSignature => {
                "it carries no signature: is it the provider that posts here, and was the secret entered there?"
            }
            Disbelief::BadSignature => {
                "the signature does not match: is `secret` the one that the provider has, and does no proxy change the body?"
            }
            Disbelief::Stale => {
                "the signature is too old or from the future: is this machine's clock right? A replay looks the same"
            }
            Disbelief::Handshake => "it is no set-up request with the channel's `verify_token`",
        }
    }
}

counters! {
    Counters {
        accepted: ACCEPTED,
        duplicates: DUPLICATES,
        conflicts: CONFLICTS,
        suspected: SUSPECTED,
        fallback_keys: FALLBACK_KEYS,
        no_key: NO_KEY,
        quarantined: QUARANTINED,
        ignored: IGNORED,
        spooled: SPOOLED,
        drained: DRAINED,
        passed: PASSED,
        dropped: DROPPED,
    }
}

pub struct ChannelTelemetry {
    pub(super) channel: Arc<str>,
    counts: Counters,
    tally: Arc<Tally>,
    copy_lines: Sparse,
    no_key_lines: Sparse,
    disbelief_lines: Sparse,
    refused: [Counter; RefusedWhy::ALL.len()],
    accept_seconds: Histogram,
    troubles: Arc<TroubleCounts>,
    watch: Option<mpsc::Sender<Happening>>,
    pub(super) traces: Option<Arc<Traces>>,
}

impl ChannelTelemetry {
    pub(super) fn new(telemetry: &Telemetry, name: &str) -> Self {
        Self {
            channel: Arc::from(name),
            counts: Counters::new(telemetry, &[("channel", name)]),
            tally: telemetry.tally(name),
            copy_lines: Sparse::default(),
            no_key_lines: Sparse::default(),
            disbelief_lines: Sparse::default(),
            refused: RefusedWhy::ALL.map(|why| telemetry.counter(names::REFUSED, &[("channel", name), ("why", why.name())])),
            accept_seconds: telemetry.histogram(names::ACCEPT_SECONDS, &[("channel", name)]),
            troubles: Arc::clone(&telemetry.troubles),
            watch: telemetry.watch.clone(),
            traces: telemetry.traces.clone(),
        }
    }

    pub fn accepted(&self, events: u64) {
        self.counts.accepted.increment(events);
        self.tally.add(Count::Accepted, events);
        tracing::debug!(channel = &*self.channel, events, "accepted");
    }

    /// Shows one accepted event to whoever watches.
    pub fn show_accepted(&self, id: EventId, event: &Event) {
        self.tell(|channel| Happening::Accepted {
            channel,
            event: id,
            kind: event.kind,
            thread: event.thread(),
            text: event.text.clone(),
        });
    }

    pub fn duplicate(&self, event: EventId) {
        self.counts.duplicates.increment(1);
        self.tally.add(Count::Copies, 1);
        match self.copy_lines.pass() {
            Some(more) => tracing::info!(channel = &*self.channel, %event, more, "suppressed a copy"),
            None => tracing::debug!(channel = &*self.channel, %event, "suppressed a copy"),
        }
        self.tell(|channel| Happening::Suppressed { channel, event, conflict: false });
    }

    /// A new event has no id of its own; `more` lines like it were held back.
    pub fn without_id(&self, event: EventId, identity: Identity) {
        match identity {
            Identity::Named => {}
            Identity::Fallback => {
                self.counts.fallback_keys.increment(1);
                tracing::debug!(channel = &*self.channel, %event, "no id; its copies are known by what they say, while the provider retries");
            }
            Identity::Unknown => {
                self.counts.no_key.increment(1);
                if let Some(more) = self.no_key_lines.pass() {
                    tracing::warn!(channel = &*self.channel, %event, more, "neither an id nor a time: a copy of it will be delivered too");
                }
            }
        }
    }

    pub fn suspects_full(&self) {
        let todo = "redrive by id what is meant; `hapax parked` shows them";
        tracing::warn!(
            channel = &*self.channel,
            "so many suspected replays are parked that further ones are only counted; {todo}"
        );
    }

    pub fn suspected(&self, event: EventId) {
        self.counts.suspected.increment(1);
        self.tally.add(Count::Parked, 1);
        tracing::warn!(channel = &*self.channel, %event, "the same signed content came under another id; parked as a suspected replay");
        self.tell(|channel| Happening::Parked { channel, event, why: "suspected replay".to_owned() });
    }

    pub fn conflict(&self, event: EventId) {
        self.counts.conflicts.increment(1);
        self.tally.add(Count::Copies, 1);
        tracing::warn!(channel = &*self.channel, %event, "the same id came with another content; it is delivered nowhere");
        self.tell(|channel| Happening::Suppressed { channel, event, conflict: true });
    }

    pub fn quarantined(&self, event: EventId, why: &str) {
        self.counts.quarantined.increment(1);
        self.troubles.parked();
        tracing::warn!(channel = &*self.channel, %event, why, "quarantined a signed part that could not be read");
        self.tell(|channel| Happening::Quarantined { channel, event, why: why.to_owned() });
    }

    pub fn ignored(&self) {
        self.counts.ignored.increment(1);
        tracing::debug!(channel = &*self.channel, "nothing in this webhook to take in");
    }

    pub fn refused(&self, why: RefusedWhy) {
        self.refused[why as usize].increment(1);
        tracing::debug!(channel = &*self.channel, why = why.name(), "refused");
        self.tell(|channel| Happening::Refused { channel, why: why.name() });
    }

    /// A request was not believed. Anybody can send such requests: the line comes now and then, `more` like it were held back.
    pub fn disbelieved(&self, why: Disbelief) {
        self.refused[RefusedWhy::Signature as usize].increment(1);
        if let Some(more) = self.disbelief_lines.pass() {
            tracing::warn!(channel = &*self.channel, why = why.words(), more, "refused a webhook");
        }
        self.tell(|channel| Happening::Refused { channel, why: why.words() });
    }

    /// The store is away; the webhook is on our own disk.
    pub fn spooled(&self, events: usize) {
        self.counts.spooled.increment(1);
        tracing::info!(channel = &*self.channel, events, "the store is away; a webhook waits in the spool");
        self.tell(|channel| Happening::InTrouble { channel, did: "spooled" });
    }

    /// A webhook went from the spool to the store.
    pub fn drained(&self) {
        self.counts.drained.increment(1);
        tracing::debug!(channel = &*self.channel, "a webhook went from the spool to the store");
    }

    /// The store is well, and does not take this webhook out of the spool.
    pub fn spool_parked(&self, why: &str) {
        tracing::error!(
            channel = &*self.channel,
            why,
            "the store refuses a webhook; it is kept in the spool and tried again at the next start"
        );
    }

    /// The store is away; the target took the webhook as it was.
    pub fn passed(&self, events: usize) {
        self.counts.passed.increment(1);
        tracing::warn!(
            channel = &*self.channel,
            events,
            "the store is away; a webhook was passed on unchecked and is recorded nowhere"
        );
        self.tell(|channel| Happening::InTrouble { channel, did: "passed" });
    }

    pub fn not_passed(&self, why: &str) {
        tracing::warn!(channel = &*self.channel, why, "the store is away, and the target did not take what was passed on");
    }

    /// The store is away; the webhook is lost, as the channel was told to. `ids` are the provider's.
    pub fn dropped(&self, events: usize, ids: &[&str]) {
        self.counts.dropped.increment(1);
        tracing::warn!(channel = &*self.channel, events, ?ids, "the store is away; a webhook was dropped and is lost");
        self.tell(|channel| Happening::InTrouble { channel, did: "dropped" });
    }

    pub fn answered(&self, took: Duration) {
        self.accept_seconds.record(took.as_secs_f64());
    }

    fn tell(&self, happening: impl FnOnce(Arc<str>) -> Happening) {
        if let Some(watch) = &self.watch {
            // A watcher that does not keep up misses lines; webhooks never wait for a terminal.
            let _ = watch.try_send(happening(Arc::clone(&self.channel)));
        }
    }
}
