//! Which accounts have something in the inbox and no target.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::{Telemetry, names};

/// Accounts that are held by name; of further ones their items tell.
const MOST: usize = 10_000;

/// Channel and account of each, since the start.
#[derive(Default)]
pub(super) struct WithoutTarget(Mutex<BTreeSet<(String, String)>>);

impl Telemetry {
    /// An item waits because its account has no target. The account's name may be a phone number: it is not logged.
    pub fn without_target(&self, channel: &str, account: &str) {
        self.counter(names::WITHOUT_TARGET, &[("channel", channel)]).increment(1);
        let mut accounts = self.without_target.0.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() < MOST && accounts.insert((channel.to_owned(), account.to_owned())) {
            let todo = "add it to [channel.NAME.targets], or set `target`; `hapax inbox` shows what waits, and for whom";
            tracing::warn!(channel, "an account has no target, and its events wait; {todo}");
        }
    }

    /// They may have one now.
    pub(super) fn forget_without_target(&self) {
        self.without_target.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The channels with such an account.
    pub fn channels_without_target(&self) -> Vec<String> {
        let accounts = self.without_target.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut channels: Vec<String> = accounts.iter().map(|(channel, _)| channel.clone()).collect();
        channels.dedup();
        channels
    }
}
