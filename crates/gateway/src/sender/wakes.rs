//! When something that was put back comes due, so that the loop looks in time and not at the next poll.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

/// More than this many are not kept: the poll finds the rest.
const MOST: usize = 10_000;

#[derive(Default)]
pub(super) struct Wakes(Mutex<BinaryHeap<Reverse<i64>>>);

impl Wakes {
    pub(super) fn note(&self, at_ms: i64) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() < MOST {
            times.push(Reverse(at_ms));
        }
    }

    /// Forgets what has come due: whoever asks looks right after.
    pub(super) fn next_ms(&self, now_ms: i64) -> Option<i64> {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while times.peek().is_some_and(|Reverse(at_ms)| *at_ms <= now_ms) {
            times.pop();
        }
        times.peek().map(|Reverse(at_ms)| at_ms - now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_still_to_come_is_next() {
        let wakes = Wakes::default();
        for at_ms in [50, 20, 90] {
            wakes.note(at_ms);
        }
        assert_eq!(wakes.next_ms(0), Some(20));
        assert_eq!(wakes.next_ms(20), Some(30));
        assert_eq!(wakes.next_ms(100), None);
    }
}
