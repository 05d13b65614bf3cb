//! The happenings of one channel's sending side, with their meters made once.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::{Fence, MessageId};
use metrics::Histogram;
use tokio::sync::mpsc;

use super::tally::{Count, Tally};
use super::traces::Traces;
use super::troubles::TroubleCounts;
use super::{Happening, Telemetry, names};

counters! {
    Counters {
        sent: SENT,
        retried: SEND_RETRIED,
        failed: SEND_FAILED,
        unknown: SEND_UNKNOWN,
        reconciled: RECONCILED,
        handed_back: SEND_HANDED_BACK,
        account_paused: ACCOUNT_PAUSED,
        fence_lost: SEND_FENCE_LOST,
    }
}

pub struct SendTelemetry {
    pub(super) channel: Arc<str>,
    counts: Counters,
    tally: Arc<Tally>,
    seconds: Histogram,
    troubles: Arc<TroubleCounts>,
    watch: Option<mpsc::Sender<Happening>>,
    pub(super) traces: Option<Arc<Traces>>,
}

impl SendTelemetry {
    pub(super) fn new(telemetry: &Telemetry, name: &str) -> Self {
        Self {
            channel: Arc::from(name),
            counts: Counters::new(telemetry, &[("channel", name)]),
            tally: telemetry.tally(name),
            seconds: telemetry.histogram(names::SEND_SECONDS, &[("channel", name)]),
            troubles: Arc::clone(&telemetry.troubles),
            watch: telemetry.watch.clone(),
            traces: telemetry.traces.clone(),
        }
    }

    /// One call to the provider came to its end, whatever that was.
    pub fn called(&self, took: Duration) {
        self.seconds.record(took.as_secs_f64());
    }

    pub fn sent(&self, message: MessageId, attempt: u32, took: Duration) {
        self.counts.sent.increment(1);
        self.tally.add(Count::Sent, 1);
        let took_ms = took.as_millis() as u64;
        tracing::debug!(channel = &*self.channel, %message, attempt, took_ms, "sent");
        self.tell(|channel| Happening::Sent { channel, message, attempt, took_ms });
    }

    pub fn retried(&self, message: MessageId, attempt: u32, wait_ms: i64, why: &str) {
        self.counts.retried.increment(1);
        self.tally.stir();
        tracing::info!(channel = &*self.channel, %message, attempt, wait_ms, why, "it did not go out; it is tried again");
        self.tell(|channel| Happening::SendRetried { channel, message, attempt, wait_ms, why: why.to_owned() });
    }

    pub fn failed(&self, message: MessageId, attempt: u32, why: &str) {
        self.counts.failed.increment(1);
        self.tally.add(Count::Failed, 1);
        tracing::warn!(channel = &*self.channel, %message, attempt, why, "it did not go out and will not");
        self.tell(|channel| Happening::SendFailed { channel, message, why: why.to_owned() });
    }

    /// The outcome of a send is not known.
    pub fn unknown(&self, message: MessageId, attempt: u32, why: &str) {
        self.counts.unknown.increment(1);
        self.tally.add(Count::Unknown, 1);
        self.troubles.unknown();
        tracing::warn!(channel = &*self.channel, %message, attempt, why, "nobody knows whether it went out; it is not sent again by itself");
        self.tell(|channel| Happening::SendUnknown { channel, message, why: why.to_owned() });
    }

    /// A message that was in doubt before is so still.
    pub fn still_unknown(&self, message: MessageId, why: &str) {
        tracing::debug!(channel = &*self.channel, %message, why, "still in doubt");
    }

    pub fn reconciled(&self, message: MessageId) {
        self.counts.reconciled.increment(1);
        self.tally.stir();
        tracing::info!(channel = &*self.channel, %message, "the provider knows the message that was in doubt: it was sent");
        self.tell(|channel| Happening::Reconciled { channel, message });
    }

    pub fn handed_back(&self, message: MessageId, wait_ms: i64) {
        self.counts.handed_back.increment(1);
        tracing::debug!(channel = &*self.channel, %message, wait_ms, "not its turn, or hapax stops; the attempt is not counted");
    }

    /// The account's name may be a phone number: it is shown to whoever watches, and not logged.
    pub fn account_paused(&self, account: &str, why: &str) {
        self.counts.account_paused.increment(1);
        self.tally.stir();
        tracing::error!(
            channel = &*self.channel,
            why,
            "an account was stopped by its provider; its messages wait until it is resumed"
        );
        self.tell(|channel| Happening::AccountPaused { channel, account: account.to_owned(), why: why.to_owned() });
    }

    pub fn fence_lost(&self, message: MessageId, fence: Fence) {
        self.counts.fence_lost.increment(1);
        tracing::warn!(channel = &*self.channel, %message, %fence, "another worker holds this message now; the outcome here does not count");
    }

    fn tell(&self, happening: impl FnOnce(Arc<str>) -> Happening) {
        if let Some(watch) = &self.watch {
            // A watcher that does not keep up misses lines; nobody waits for a terminal.
            let _ = watch.try_send(happening(Arc::clone(&self.channel)));
        }
    }
}
