//! The happenings of one channel's drop-in sending, with their meters made once.

use std::sync::Arc;

use hapax_domain::EventId;

use super::Telemetry;
use super::sparse::Sparse;

counters! {
    Counters {
        sends: DROPIN_SENDS,
        again: DROPIN_AGAIN,
        reworded: DROPIN_REWORDED,
        come_back: DROPIN_COME_BACK,
        early: DROPIN_EARLY,
        books_full: DROPIN_BOOKS_FULL,
        through: DROPIN_THROUGH,
        not_reached: DROPIN_NOT_REACHED,
        polls: DROPIN_POLLS,
    }
}

pub struct DropInTelemetry {
    channel: Arc<str>,
    counts: Counters,
    rewordings: Sparse,
    earlies: Sparse,
    failures: Sparse,
}

impl DropInTelemetry {
    pub(super) fn new(telemetry: &Telemetry, name: &str) -> Self {
        Self {
            channel: Arc::from(name),
            counts: Counters::new(telemetry, &[("channel", name)]),
            rewordings: Sparse::default(),
            earlies: Sparse::default(),
            failures: Sparse::default(),
        }
    }

    /// A bot sent something; `again`: what it or an earlier run had asked for before.
    pub fn sent(&self, again: bool) {
        self.counts.sends.increment(1);
        if again {
            self.counts.again.increment(1);
        }
    }

    pub fn reworded(&self, event: EventId, method: &str) {
        self.sent(true);
        self.counts.reworded.increment(1);
        if let Some(held_back) = self.rewordings.pass() {
            tracing::warn!(
                channel = &*self.channel,
                %event,
                method,
                held_back,
                "the handler ran again and sends other words in the place of what went out before; the first words stand (`replay`)"
            );
        }
    }

    /// The caller did not get its outcome in time.
    pub fn told_to_come_back(&self, seconds: u64) {
        self.counts.come_back.increment(1);
        tracing::debug!(channel = &*self.channel, seconds, "a bot was told to slow down; its message is on its way");
    }

    pub fn answered_early(&self, event: EventId) {
        self.counts.early.increment(1);
        if let Some(held_back) = self.earlies.pass() {
            tracing::warn!(
                channel = &*self.channel,
                %event,
                held_back,
                "the bot answers its webhooks before it has worked on them: if it dies, nobody runs its handler again. Its library has a \
                 setting for that; see docs/dropin.md"
            );
        }
    }

    pub fn book_full(&self, event: EventId) {
        self.counts.books_full.increment(1);
        tracing::debug!(channel = &*self.channel, %event, "a handler sends more than is kept apart for one event; the rest are plain sends");
    }

    /// Too many files wait to be sent.
    pub fn no_room_for_files(&self) {
        if let Some(held_back) = self.failures.pass() {
            tracing::warn!(channel = &*self.channel, held_back, "there is no room for a bot's file until others have been sent");
        }
    }

    /// A bot asked for updates.
    pub fn polled(&self) {
        self.counts.polls.increment(1);
    }

    pub fn passed_through(&self) {
        self.counts.through.increment(1);
    }

    pub fn not_reached(&self, why: &str) {
        self.counts.not_reached.increment(1);
        if let Some(held_back) = self.failures.pass() {
            tracing::warn!(channel = &*self.channel, why, held_back, "a bot's call did not get through to the provider");
        }
    }

    pub fn webhook_asked_for(&self, method: &str) {
        tracing::info!(channel = &*self.channel, method, "the bot asked for it; nothing changes, `target` says where it is");
    }
}
