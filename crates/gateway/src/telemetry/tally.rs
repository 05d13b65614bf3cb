//! What is counted of each channel for the history that hapax keeps itself: plain numbers, added to on the way and taken away by the upkeep.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Telemetry;

/// What is counted. The places of stored numbers: new ones come at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Accepted,
    /// Suppressed, those with another content included.
    Copies,
    Delivered,
    Sent,
    Failed,
    Parked,
    /// Sends that came to be in doubt.
    Unknown,
    /// How long the bot took for what it did: added up, and how many took no longer than this.
    BotMs,
    Bot100Ms,
    Bot1S,
    Bot10S,
}

pub const COUNTS: usize = 11;

/// The numbers of one channel and one stretch of time, by [`Count`].
pub type Counted = [u64; COUNTS];

#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: [AtomicU64; COUNTS],
    /// How often anything happened that an open page shows.
    stirs: AtomicU64,
}

impl Tally {
    pub(super) fn add(&self, count: Count, n: u64) {
        self.counts[count as usize].fetch_add(n, Ordering::Relaxed);
        self.stir();
    }

    pub(super) fn stir(&self) {
        self.stirs.fetch_add(1, Ordering::Relaxed);
    }

    /// The bot did its work.
    pub(super) fn delivered(&self, took: Duration) {
        self.add(Count::Delivered, 1);
        let took_ms = took.as_millis() as u64;
        self.add(Count::BotMs, took_ms);
        for (count, most_ms) in [(Count::Bot100Ms, 100), (Count::Bot1S, 1_000), (Count::Bot10S, 10_000)] {
            if took_ms <= most_ms {
                self.add(count, 1);
            }
        }
    }

    fn take(&self) -> Counted {
        std::array::from_fn(|place| self.counts[place].swap(0, Ordering::Relaxed))
    }
}

/// By channel; only configured ones have any.
#[derive(Default)]
pub(super) struct Tallies(Mutex<BTreeMap<String, Arc<Tally>>>);

impl Telemetry {
    pub(super) fn tally(&self, channel: &str) -> Arc<Tally> {
        let mut tallies = self.tallies.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tallies.entry(channel.to_owned()).or_default())
    }

    /// A message of the channel is written down, and waits to be sent.
    pub fn queued(&self, channel: &str) {
        self.tally(channel).stir();
    }

    /// A number that grows whenever something happens in one of these channels, on this instance.
    pub(crate) fn stirs(&self, mut of: impl FnMut(&str) -> bool) -> u64 {
        let tallies = self.tallies.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stirs = tallies.iter().filter(|(channel, _)| of(channel)).map(|(_, tally)| tally.stirs.load(Ordering::Relaxed));
        stirs.fold(0, u64::wrapping_add)
    }

    /// The same, channel by channel.
    pub(crate) fn stirs_by_channel(&self) -> BTreeMap<String, u64> {
        let tallies = self.tallies.0.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.iter().map(|(channel, tally)| (channel.to_string(), tally.stirs.load(Ordering::Relaxed))).collect()
    }

    /// What has been counted since the last call, of channels where that is anything.
    pub fn take_counts(&self) -> Vec<(String, Counted)> {
        let tallies = self.tallies.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = tallies.iter().map(|(channel, tally)| (channel.clone(), tally.take()));
        taken.filter(|(_, counted)| counted.iter().any(|n| *n > 0)).collect()
    }
}
