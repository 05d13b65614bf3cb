//! Whether the outbox of an account has room. Counting is left out while this instance knows that there is plenty.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hapax_domain::limits;

use super::engine::{Tx, TxError, Wanted};
use super::work::Work;
use crate::NewMessage;

/// How long a count is believed, and how many more than counted may be there: what other instances have added meanwhile.
const BELIEVED_MS: i64 = 10_000;
const MARGIN_MIN: usize = 1_000;

/// Channel, account, and whether its replies are meant or the rest.
pub(super) type Outbox = (String, String, bool);

pub(super) fn outbox_of(new: &NewMessage) -> Outbox {
    (new.channel.to_string(), new.account.clone(), new.priority.is_reply())
}

/// How many messages may wait in each outbox, and how many were there when they were last counted.
pub(super) struct Rooms {
    most: AtomicUsize,
    seen: Mutex<HashMap<Outbox, Seen>>,
}

struct Seen {
    waiting: usize,
    at_ms: i64,
}

impl Rooms {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: AtomicUsize::new(most), seen: Mutex::default() })
    }

    pub(super) fn limit(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether there is room without counting; what is about to be added is taken note of.
    fn has_plenty(&self, outbox: &Outbox, now_ms: i64) -> bool {
        let most = self.most();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = seen.get_mut(outbox) else { return most == usize::MAX };
        seen.waiting += 1;
        let fresh = (0..BELIEVED_MS).contains(&(now_ms - seen.at_ms));
        fresh && seen.waiting + (most / 10).max(MARGIN_MIN) <= most
    }

    fn counted(&self, outbox: Outbox, waiting: usize, now_ms: i64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Accounts come and go; a forgotten one is counted again.
        if seen.len() > limits::PAGE_MAX * 20 {
            seen.clear();
        }
        seen.insert(outbox, Seen { waiting, at_ms: now_ms });
    }
}

impl Work {
    /// Counts what waits in the outboxes that may be full, unless this step has done so: it adds what it queues itself. What the messages
    /// were asked for before must have been loaded.
    pub(super) async fn look_for_room<T: Tx>(
        &mut self,
        tx: &mut T,
        rooms: &Rooms,
        messages: impl Iterator<Item = &NewMessage> + Send,
    ) -> Result<(), TxError> {
        self.outbox_max = rooms.most();
        let new = messages.filter(|new| self.known_request(new).is_none());
        let uncounted = new.map(outbox_of).filter(|outbox| !self.waiting.contains_key(outbox));
        let doubtful: Vec<Outbox> = uncounted.filter(|outbox| !rooms.has_plenty(outbox, self.now_ms)).collect();
        let waiting = doubtful.into_iter().map(|(channel, account, _)| (channel, account)).collect();
        self.load(tx, Wanted { waiting, ..Wanted::default() }).await?;
        for (outbox, waiting) in &self.waiting {
            rooms.counted(outbox.clone(), *waiting, self.now_ms);
        }
        Ok(())
    }

    /// Whether this would be one more than may wait, as far as it was counted.
    pub(super) fn is_full_for(&self, new: &NewMessage) -> bool {
        let waiting = self.waiting.get(&outbox_of(new)).copied();
        waiting.is_some_and(|waiting| waiting >= self.outbox_max) && self.known_request(new).is_none()
    }
}
