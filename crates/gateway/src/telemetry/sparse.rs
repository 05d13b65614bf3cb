//! Lines that would come in floods are let through now and then, and say how many were held back.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// One line in this time.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Sparse(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl Sparse {
    /// `Some` when a line may be written now, with how many were held back since the last one.
    pub(super) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_none_is_forgotten() {
        let (sparse, first) = (Sparse::default(), Instant::now());
        assert_eq!(sparse.pass_at(first), Some(0));
        assert_eq!((sparse.pass_at(first), sparse.pass_at(first)), (None, None));
        assert_eq!(sparse.pass_at(first + EVERY), Some(2));
        assert_eq!(sparse.pass_at(first + EVERY), None);
    }
}
