//! Which outboxes were found full, and have sent nothing since.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Telemetry, names};

/// Channel and account of each.
#[derive(Default)]
pub(super) struct FullOutboxes {
    full: Mutex<BTreeSet<(String, String)>>,
    /// Looked at for every message that leaves.
    any: AtomicBool,
}

impl Telemetry {
    /// A message, or an answer with replies, found no room. The account's name may be a phone number: it is not logged.
    pub fn outbox_full(&self, channel: &str, account: &str) {
        self.counter(names::OUTBOX_REFUSED, &[("channel", channel)]).increment(1);
        let mut full = self.full.full.lock().unwrap_or_else(PoisonError::into_inner);
        if full.insert((channel.to_owned(), account.to_owned())) {
            tracing::warn!(channel, "the outbox of an account is full; nothing more is taken until some of it has been sent");
        }
        self.full.any.store(true, Ordering::Release);
        self.show_full(channel, &full);
    }

    /// A message of the account has left the outbox.
    pub fn outbox_has_room(&self, channel: &str, account: &str) {
        if !self.full.any.load(Ordering::Acquire) {
            return;
        }
        let mut full = self.full.full.lock().unwrap_or_else(PoisonError::into_inner);
        if full.remove(&(channel.to_owned(), account.to_owned())) {
            self.full.any.store(!full.is_empty(), Ordering::Release);
            self.show_full(channel, &full);
        }
    }

    /// There may be more room now.
    pub(super) fn forget_full(&self) {
        let mut full = self.full.full.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *full);
        self.full.any.store(false, Ordering::Release);
        before.iter().for_each(|(channel, _)| self.show_full(channel, &full));
    }

    /// The channels with an account whose outbox is full.
    pub fn full_outboxes(&self) -> Vec<String> {
        let full = self.full.full.lock().unwrap_or_else(PoisonError::into_inner);
        let mut channels: Vec<String> = full.iter().map(|(channel, _)| channel.clone()).collect();
        channels.dedup();
        channels
    }

    fn show_full(&self, channel: &str, full: &BTreeSet<(String, String)>) {
        let accounts = full.iter().filter(|(of, _)| of == channel).count();
        self.gauge(names::OUTBOX_FULL, &[("channel", channel)]).set(accounts as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_full_until_something_leaves() {
        let telemetry = Telemetry::new();
        telemetry.outbox_full("shop", "7001");
        telemetry.outbox_full("shop", "7001");
        telemetry.outbox_has_room("shop", "7002");
        let text = telemetry.render();
        assert!(text.contains(r#"hapax_outbox_full{channel="shop"} 1"#), "{text}");
        assert!(text.contains(r#"hapax_outbox_refused_total{channel="shop"} 2"#), "{text}");
        assert_eq!(telemetry.full_outboxes(), ["shop"]);
        telemetry.outbox_has_room("shop", "7001");
        assert!(telemetry.render().contains(r#"hapax_outbox_full{channel="shop"} 0"#));
        assert!(telemetry.full_outboxes().is_empty());
    }
}
