//! What waits in a line for its turn, and whom it waits for: when the caller gives up, what it brought is let go at once.
//!
//! A line is bounded in calls, not in bytes. While a store hangs, callers give up one after the other; without this their bodies would
//! stay until the store is back.

use std::sync::{Arc, Mutex, PoisonError};

type Slot<T> = Arc<Mutex<Option<T>>>;

/// The caller's end. Dropped before its turn has come, it takes back what it offered.
pub struct Offer<T>(Slot<T>);

/// The end that stands in line.
pub struct Offered<T>(Slot<T>);

pub fn offer<T>(what: T) -> (Offer<T>, Offered<T>) {
    let slot = Arc::new(Mutex::new(Some(what)));
    (Offer(Arc::clone(&slot)), Offered(slot))
}

impl<T> Drop for Offer<T> {
    fn drop(&mut self) {
        drop(take(&self.0));
    }
}

impl<T> Offered<T> {
    /// Its turn has come; nothing, when the caller has given up.
    pub fn take(self) -> Option<T> {
        take(&self.0)
    }
}

fn take<T>(slot: &Slot<T>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_offered_goes_with_whoever_gives_up() {
        let body = Arc::new(());
        let (caller, line) = offer(Arc::clone(&body));
        drop(caller);
        assert_eq!(Arc::strong_count(&body), 1, "it is let go before its turn");
        assert!(line.take().is_none());
        let (_caller, line) = offer(7);
        assert_eq!(line.take(), Some(7));
    }
}
