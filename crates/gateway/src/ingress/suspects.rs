//! How many suspected replays of a channel are kept. Each says what the first of its content said, so a person loses nothing when further ones
//! are only counted, among the copies of the first; whoever captured one request cannot fill the store with it.

use std::sync::atomic::{AtomicU64, Ordering};

use hapax_domain::limits::{PAGE_MAX, SUSPECTS_MAX, SUSPECTS_MAX_BYTES};
use hapax_store::{InboxQuery, SUSPECTED, Store, StoreError};

/// Pages of parked items that are looked through for suspects.
const PAGES_LOOKED_AT: usize = 20;

/// What is known of one channel's suspects here. Counted anew in the store now and then: other instances add, people take away.
#[derive(Default)]
pub(super) struct Suspects {
    kept: AtomicU64,
    /// Of those that came since the start.
    bytes: AtomicU64,
}

impl Suspects {
    pub(super) fn is_full(&self) -> bool {
        self.kept.load(Ordering::Relaxed) >= SUSPECTS_MAX || self.bytes.load(Ordering::Relaxed) >= SUSPECTS_MAX_BYTES
    }

    /// One more was kept; true when there is no room for another.
    pub(super) fn add(&self, bytes: usize) -> bool {
        let was_full = self.is_full();
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        !was_full && self.is_full()
    }

    pub(super) async fn recount(&self, store: &dyn Store, channel: &str) -> Result<(), StoreError> {
        let (mut kept, mut after) = (0, None);
        for _ in 0..PAGES_LOOKED_AT {
            let query = InboxQuery { channel: Some(channel.to_owned()), parked: Some(true), after, limit: PAGE_MAX };
            let page = store.inbox(query).await?;
            let is_suspect = |why: &Option<String>| why.as_ref().is_some_and(|why| why.starts_with(SUSPECTED));
            kept += page.rows.iter().filter(|row| is_suspect(&row.why)).count() as u64;
            after = page.rows.last().map(|row| row.item);
            if !page.more || kept >= SUSPECTS_MAX {
                break;
            }
        }
        let before = self.kept.swap(kept, Ordering::Relaxed);
        // Nobody says how large those are that went; they count as large as the others.
        let of = |bytes: u64| if before > kept { bytes / before * kept } else { bytes };
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| Some(of(bytes)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded_in_number_and_in_bytes() {
        let suspects = Suspects::default();
        let filled = (1..=SUSPECTS_MAX).filter(|_| suspects.add(10)).count();
        assert!(suspects.is_full() && filled == 1, "it is told once");
        let suspects = Suspects::default();
        assert!(!suspects.add(1));
        assert!(suspects.add(SUSPECTS_MAX_BYTES as usize) && suspects.is_full());
    }
}
