//! The happenings of one channel, with their meters made once.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::{Event, EventId, Fence, Identity};
use metrics::{Counter, Gauge, Histogram};
use tokio::sync::mpsc;

use super::sparse::Sparse;
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
        delivered: DELIVERED,
        retried: RETRIED,
        parked: PARKED,
        handed_back: HANDED_BACK,
        fence_lost: FENCE_LOST,
        answers_too_long: ANSWERS_TOO_LONG,
        circuit_opened: CIRCUIT_OPENED,
        replies: REPLIES,
        replies_bad: REPLIES_BAD,
    }
}

pub struct ChannelTelemetry {
    channel: Arc<str>,
    counts: Counters,
    copy_lines: Sparse,
    no_key_lines: Sparse,
    refused: [Counter; RefusedWhy::ALL.len()],
    accept_seconds: Histogram,
    delivery_seconds: Histogram,
    circuit_open: Gauge,
    watch: Option<mpsc::Sender<Happening>>,
}

impl ChannelTelemetry {
    pub(super) fn new(telemetry: &Telemetry, name: &str) -> Self {
        Self {
            channel: Arc::from(name),
            counts: Counters::new(telemetry, name),
            copy_lines: Sparse::default(),
            no_key_lines: Sparse::default(),
            refused: RefusedWhy::ALL.map(|why| telemetry.counter(names::REFUSED, &[("channel", name), ("why", why.name())])),
            accept_seconds: telemetry.histogram(names::ACCEPT_SECONDS, &[("channel", name)]),
            delivery_seconds: telemetry.histogram(names::DELIVERY_SECONDS, &[("channel", name)]),
            circuit_open: telemetry.gauge(names::CIRCUIT_OPEN, &[("channel", name)]),
            watch: telemetry.watch.clone(),
        }
    }

    pub fn accepted(&self, events: u64) {
        self.counts.accepted.increment(events);
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
        tracing::warn!(channel = &*self.channel, %event, "the same signed content came under another id; parked as a suspected replay");
        self.tell(|channel| Happening::Parked { channel, event, why: "suspected replay".to_owned() });
    }

    pub fn conflict(&self, event: EventId) {
        self.counts.conflicts.increment(1);
        tracing::warn!(channel = &*self.channel, %event, "the same id came with another content; it is delivered nowhere");
        self.tell(|channel| Happening::Suppressed { channel, event, conflict: true });
    }

    pub fn quarantined(&self, event: EventId, why: &str) {
        self.counts.quarantined.increment(1);
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

    pub fn delivered(&self, event: EventId, attempt: u32, status: u16, took: Duration) {
        self.counts.delivered.increment(1);
        self.delivery_seconds.record(took.as_secs_f64());
        let took_ms = took.as_millis() as u64;
        tracing::debug!(channel = &*self.channel, %event, attempt, status, took_ms, "delivered");
        self.tell(|channel| Happening::Delivered { channel, event, attempt, status, took_ms });
    }

    pub fn retried(&self, event: EventId, attempt: u32, wait_ms: i64, why: &str) {
        self.counts.retried.increment(1);
        tracing::info!(channel = &*self.channel, %event, attempt, wait_ms, why, "delivery failed; it comes again");
        self.tell(|channel| Happening::Retried { channel, event, attempt, wait_ms, why: why.to_owned() });
    }

    pub fn parked(&self, event: EventId, attempt: u32, why: &str) {
        self.counts.parked.increment(1);
        tracing::warn!(channel = &*self.channel, %event, attempt, why, "parked; `hapax parked` shows it, `hapax redrive` tries again");
        self.tell(|channel| Happening::Parked { channel, event, why: why.to_owned() });
    }

    pub fn handed_back(&self, event: EventId, why: &str) {
        self.counts.handed_back.increment(1);
        tracing::debug!(channel = &*self.channel, %event, why, "handed back; nothing is charged");
    }

    pub fn fence_lost(&self, event: EventId, fence: Fence) {
        self.counts.fence_lost.increment(1);
        tracing::warn!(channel = &*self.channel, %event, %fence, "another worker holds this lane now; the outcome here does not count");
    }

    pub fn answer_too_long(&self, event: Option<EventId>, limit_bytes: usize) {
        self.counts.answers_too_long.increment(1);
        let event = event.map(tracing::field::display);
        tracing::warn!(
            channel = &*self.channel,
            event,
            limit_bytes,
            "the target's answer is too long to be passed on; the caller gets 502"
        );
    }

    pub fn circuit_opened(&self, wait_ms: i64, why: &str) {
        self.counts.circuit_opened.increment(1);
        self.circuit_open.set(1.0);
        tracing::warn!(channel = &*self.channel, wait_ms, why, "the target seems dead; deliveries wait and spend no attempts");
        self.tell(|channel| Happening::CircuitOpened { channel, wait_ms, why: why.to_owned() });
    }

    pub fn circuit_closed(&self) {
        self.circuit_open.set(0.0);
        tracing::info!(channel = &*self.channel, "the target answers again");
        self.tell(|channel| Happening::CircuitClosed { channel });
    }

    /// The handler answered with messages; they are in the outbox.
    pub fn replied(&self, event: EventId, replies: u64) {
        self.counts.replies.increment(replies);
        tracing::debug!(channel = &*self.channel, %event, replies, "the handler answered with messages");
    }

    pub fn replies_bad(&self, event: EventId, count: u64, why: &str) {
        self.counts.replies_bad.increment(count);
        tracing::warn!(channel = &*self.channel, %event, count, why, "replies that could not be read were not sent");
        self.tell(|channel| Happening::RepliesBad { channel, event, why: why.to_owned() });
    }

    fn tell(&self, happening: impl FnOnce(Arc<str>) -> Happening) {
        if let Some(watch) = &self.watch {
            // A watcher that does not keep up misses lines; webhooks never wait for a terminal.
            let _ = watch.try_send(happening(Arc::clone(&self.channel)));
        }
    }
}
