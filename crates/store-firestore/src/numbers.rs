//! Numbers that grow over all instances, without a counter that all of them would wait for.
//!
//! A number is the server's time in microseconds and twelve bits of the instance that made it. A transaction that begins after another
//! has ended reads a later time, so its numbers are higher; [`lead_micros`] says how long one must wait with its end for that to be true.
//! Two instances may draw the same twelve bits and, in the same microsecond, the same number: what is made under it is made once, and
//! the other comes again.

use std::sync::atomic::{AtomicI64, Ordering};

/// The first of January 2024.
const EPOCH_MICROS: i64 = 1_704_067_200_000_000;
const INSTANCE_BITS: u32 = 12;

pub(super) struct Numbers {
    instance: u64,
    last_micros: AtomicI64,
}

impl Numbers {
    pub(super) fn new(random: u64) -> Self {
        Self { instance: random & ((1 << INSTANCE_BITS) - 1), last_micros: AtomicI64::new(0) }
    }

    /// The next number for a transaction that began at this time of the server's.
    pub(super) fn next(&self, begun_micros: i64) -> u64 {
        let later = |last: i64| Some((last + 1).max(begun_micros));
        let before = self.last_micros.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
        let micros = before.map_or(begun_micros, |last| (last + 1).max(begun_micros));
        let since = u64::try_from(micros - EPOCH_MICROS).unwrap_or_default();
        (since << INSTANCE_BITS) | self.instance
    }
}

/// How far a number is ahead of this time of the server's.
pub(super) fn lead_micros(number: u64, now_micros: i64) -> u64 {
    let made_micros = i64::try_from(number >> INSTANCE_BITS).unwrap_or_default() + EPOCH_MICROS;
    u64::try_from(made_micros - now_micros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_fit() {
        let numbers = Numbers::new(u64::MAX);
        let begun = 1_760_000_000_000_000;
        let first = numbers.next(begun);
        let second = numbers.next(begun);
        let later = numbers.next(begun + 1_000);
        assert!(first < second && second < later && later < 1 << 62);
        assert!(numbers.next(begun - 5) > later, "never back");
        assert_eq!(lead_micros(later, begun), 1_000);
        assert_eq!(lead_micros(later, begun + 5_000), 0);
        let in_2050 = Numbers::new(0).next(2_524_608_000_000_000);
        assert!(in_2050 > later && in_2050 < 1 << 62);
    }
}
