//! The happenings at one target of a channel, with their meters made once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hapax_domain::{EventId, Fence};
use metrics::{Gauge, Histogram};
use tokio::sync::mpsc;

use super::bot_answers::BotAnswers;
use super::tally::{Count, Tally};
use super::traces::Traces;
use super::troubles::TroubleCounts;
use super::{Happening, Telemetry, names};

counters! {
    Counters {
        delivered: DELIVERED,
        pulled: PULLED,
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

pub struct TargetTelemetry {
    pub(super) channel: Arc<str>,
    /// `None`: the channel's default.
    target: Option<Arc<str>>,
    /// For the log: an account's name may be a phone number.
    shown: Option<String>,
    counts: Counters,
    tally: Arc<Tally>,
    delivery_seconds: Histogram,
    circuit_open: Gauge,
    open_since: Gauge,
    down: Arc<DownTargets>,
    /// Another config is in force: whether it is dead is told by who calls it now.
    retired: AtomicBool,
    bot_answers: Arc<BotAnswers>,
    troubles: Arc<TroubleCounts>,
    watch: Option<mpsc::Sender<Happening>>,
    pub(super) traces: Option<Arc<Traces>>,
}

/// Enough to tell accounts apart.
fn last_signs(account: &str) -> String {
    let signs: Vec<char> = account.chars().collect();
    // What stands behind an `@` is the same for all.
    let own = signs.iter().position(|sign| *sign == '@').unwrap_or(signs.len());
    format!("…{}", signs[own.saturating_sub(4)..own].iter().collect::<String>())
}

/// A channel's name, and the target's, which the default has not.
type TargetName = (Arc<str>, Option<Arc<str>>);

/// Which targets are taken for dead, and since when.
#[derive(Default)]
pub(super) struct DownTargets(Mutex<BTreeMap<TargetName, Down>>);

struct Down {
    since_ms: i64,
    next_ms: i64,
    why: String,
}

/// A target that is taken for dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownTarget {
    pub channel: Arc<str>,
    /// The first account that goes there; `None`: it is the channel's default.
    pub target: Option<Arc<str>>,
    pub since_ms: i64,
    /// When it is tried again.
    pub next_ms: i64,
    pub why: String,
}

impl DownTargets {
    fn opened(&self, channel: &Arc<str>, target: Option<&Arc<str>>, down: Down) {
        let name = (Arc::clone(channel), target.cloned());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, down);
    }

    fn still(&self, channel: &Arc<str>, target: Option<&Arc<str>>, next_ms: i64, why: &str) {
        let mut down = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(down) = down.get_mut(&(Arc::clone(channel), target.cloned())) {
            down.next_ms = next_ms;
            why.clone_into(&mut down.why);
        }
    }

    fn closed(&self, channel: &Arc<str>, target: Option<&Arc<str>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(Arc::clone(channel), target.cloned()));
    }

    /// The targets are others now: who of them is dead is found out anew.
    pub(super) fn forget(&self, telemetry: &Telemetry) {
        let down = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (channel, target) in down.into_keys() {
            let mut labels = vec![("channel", &*channel)];
            labels.extend(target.as_deref().map(|target| ("target", target)));
            telemetry.gauge(names::CIRCUIT_OPEN, &labels).set(0.0);
            telemetry.gauge(names::CIRCUIT_OPEN_SINCE, &labels).set(0.0);
        }
    }

    pub(super) fn list(&self) -> Vec<DownTarget> {
        let down = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |((channel, target), down): (&TargetName, &Down)| DownTarget {
            channel: Arc::clone(channel),
            target: target.clone(),
            since_ms: down.since_ms,
            next_ms: down.next_ms,
            why: down.why.clone(),
        };
        down.iter().map(shown).collect()
    }
}

impl TargetTelemetry {
    /// Only what goes to a target of its own is counted under its name: who has one target sees what he always saw.
    pub(super) fn new(telemetry: &Telemetry, channel: &str, target: Option<&str>) -> Self {
        let mut labels = vec![("channel", channel)];
        labels.extend(target.map(|target| ("target", target)));
        Self {
            channel: Arc::from(channel),
            target: target.map(Arc::from),
            shown: target.map(last_signs),
            counts: Counters::new(telemetry, &labels),
            tally: telemetry.tally(channel),
            delivery_seconds: telemetry.histogram(names::DELIVERY_SECONDS, &labels),
            circuit_open: telemetry.gauge(names::CIRCUIT_OPEN, &labels),
            open_since: telemetry.gauge(names::CIRCUIT_OPEN_SINCE, &labels),
            down: Arc::clone(&telemetry.down),
            retired: AtomicBool::new(false),
            bot_answers: Arc::clone(&telemetry.bot_answers),
            troubles: Arc::clone(&telemetry.troubles),
            watch: telemetry.watch.clone(),
            traces: telemetry.traces.clone(),
        }
    }

    pub fn delivered(&self, event: EventId, attempt: u32, status: u16, took: Duration) {
        self.counts.delivered.increment(1);
        self.tally.delivered(took);
        self.delivery_seconds.record(took.as_secs_f64());
        let took_ms = took.as_millis() as u64;
        tracing::debug!(channel = &*self.channel, target = self.shown.as_deref(), %event, attempt, status, took_ms, "delivered");
        self.tell(|channel| Happening::Delivered { channel, event, attempt, status, took_ms });
    }

    /// A worker asked for it, and has it now.
    pub fn pulled(&self, event: EventId, attempt: u32) {
        self.counts.pulled.increment(1);
        tracing::debug!(channel = &*self.channel, %event, attempt, "pulled");
    }

    /// Remembers for a while what the bot said, for people who look for a fault.
    pub fn answered(&self, event: EventId, status: u16, content_type: Option<&str>, body: &[u8]) {
        self.bot_answers.note(event, status, content_type, body);
    }

    pub fn retried(&self, event: EventId, attempt: u32, wait_ms: i64, why: &str) {
        self.counts.retried.increment(1);
        self.tally.stir();
        tracing::info!(channel = &*self.channel, target = self.shown.as_deref(), %event, attempt, wait_ms, why, "delivery failed; it comes again");
        self.tell(|channel| Happening::Retried { channel, event, attempt, wait_ms, why: why.to_owned() });
    }

    pub fn parked(&self, event: EventId, attempt: u32, why: &str) {
        self.counts.parked.increment(1);
        self.tally.add(Count::Parked, 1);
        self.troubles.parked();
        tracing::warn!(channel = &*self.channel, target = self.shown.as_deref(), %event, attempt, why, "parked; `hapax parked` shows it, `hapax redrive` tries again");
        self.tell(|channel| Happening::Parked { channel, event, why: why.to_owned() });
    }

    pub fn handed_back(&self, event: EventId, why: &str) {
        self.counts.handed_back.increment(1);
        tracing::debug!(channel = &*self.channel, target = self.shown.as_deref(), %event, why, "handed back; nothing is charged");
    }

    pub fn fence_lost(&self, event: EventId, fence: Fence) {
        self.counts.fence_lost.increment(1);
        tracing::warn!(channel = &*self.channel, target = self.shown.as_deref(), %event, %fence, "another worker holds this lane now; the outcome here does not count");
    }

    pub fn answer_too_long(&self, event: Option<EventId>, limit_bytes: usize) {
        self.counts.answers_too_long.increment(1);
        let event = event.map(tracing::field::display);
        tracing::warn!(
            channel = &*self.channel,
            target = self.shown.as_deref(),
            event,
            limit_bytes,
            "the target's answer is too long to be passed on; the caller gets 502"
        );
    }

    /// Says no more whether the target is dead.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub fn circuit_opened(&self, wait_ms: i64, why: &str, now_ms: i64) {
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        self.counts.circuit_opened.increment(1);
        self.circuit_open.set(1.0);
        self.tally.stir();
        self.open_since.set(now_ms as f64 / 1_000.0);
        let down = Down { since_ms: now_ms, next_ms: now_ms + wait_ms, why: why.to_owned() };
        self.down.opened(&self.channel, self.target.as_ref(), down);
        tracing::warn!(
            channel = &*self.channel,
            target = self.shown.as_deref(),
            wait_ms,
            why,
            "the target seems dead; deliveries wait and spend no attempts"
        );
        self.tell(|channel| Happening::CircuitOpened { channel, wait_ms, why: why.to_owned() });
    }

    /// It was tried once more, and is as dead as before.
    pub fn still_down(&self, next_ms: i64, why: &str) {
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        self.down.still(&self.channel, self.target.as_ref(), next_ms, why);
    }

    pub fn circuit_closed(&self) {
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        self.circuit_open.set(0.0);
        self.tally.stir();
        self.open_since.set(0.0);
        self.down.closed(&self.channel, self.target.as_ref());
        tracing::info!(channel = &*self.channel, target = self.shown.as_deref(), "the target answers again");
        self.tell(|channel| Happening::CircuitClosed { channel });
    }

    /// The handler answered with messages; they are in the outbox.
    pub fn replied(&self, event: EventId, replies: u64) {
        self.counts.replies.increment(replies);
        self.tally.stir();
        tracing::debug!(channel = &*self.channel, target = self.shown.as_deref(), %event, replies, "the handler answered with messages");
    }

    pub fn replies_bad(&self, event: EventId, count: u64, why: &str) {
        self.counts.replies_bad.increment(count);
        tracing::warn!(channel = &*self.channel, target = self.shown.as_deref(), %event, count, why, "replies that could not be read were not sent");
        self.tell(|channel| Happening::RepliesBad { channel, event, why: why.to_owned() });
    }

    fn tell(&self, happening: impl FnOnce(Arc<str>) -> Happening) {
        if let Some(watch) = &self.watch {
            // A watcher that does not keep up misses lines; deliveries never wait for a terminal.
            let _ = watch.try_send(happening(Arc::clone(&self.channel)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_down_by_itself_and_says_since_when() {
        let telemetry = Telemetry::new();
        let (default, second) = (telemetry.target("shop", None), telemetry.target("shop", Some("7002")));
        second.circuit_opened(1_000, "refused", 5_000);
        default.delivered(EventId(uuid::Uuid::from_u128(1)), 1, 200, Duration::from_millis(3));
        let text = telemetry.render();
        for line in [
            r#"hapax_circuit_open{channel="shop",target="7002"} 1"#,
            r#"hapax_circuit_open_since_timestamp_seconds{channel="shop",target="7002"} 5"#,
            r#"hapax_circuit_open{channel="shop"} 0"#,
            r#"hapax_deliveries_total{channel="shop"} 1"#,
            r#"hapax_deliveries_total{channel="shop",target="7002"} 0"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let down = |next_ms, why: &str| DownTarget {
            channel: "shop".into(),
            target: Some("7002".into()),
            since_ms: 5_000,
            next_ms,
            why: why.to_owned(),
        };
        assert_eq!(telemetry.down_targets(), [down(6_000, "refused")]);
        second.still_down(9_000, "no route");
        assert_eq!(telemetry.down_targets(), [down(9_000, "no route")]);
        default.still_down(9_000, "it is not down at all");
        assert_eq!(telemetry.down_targets().len(), 1);
        second.circuit_closed();
        assert_eq!(telemetry.down_targets(), []);
        assert!(telemetry.render().contains(r#"hapax_circuit_open_since_timestamp_seconds{channel="shop",target="7002"} 0"#));
    }
}
