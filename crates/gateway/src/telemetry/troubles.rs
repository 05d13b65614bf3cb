//! How often something happened that a person has to look at, for whoever tells people.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct TroubleCounts {
    parked: AtomicU64,
    unknown: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    pub(crate) parked: u64,
    pub(crate) unknown: u64,
}

impl TroubleCounts {
    pub(super) fn parked(&self) {
        self.parked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Troubles {
        Troubles { parked: self.parked.load(Ordering::Relaxed), unknown: self.unknown.load(Ordering::Relaxed) }
    }
}
