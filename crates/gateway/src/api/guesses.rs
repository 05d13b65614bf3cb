//! Wrong tokens by address: the more came, the later the next one is answered. Right ones are never delayed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Typing errors are answered at once.
const FREE: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(250);
const DELAY_MAX: Duration = Duration::from_secs(4);
/// After so long without one, an address begins anew.
const FORGOTTEN_MS: i64 = 300_000;
/// Wrong tokens of one address that wait for their answer; while there are more, further wrong ones are refused at once.
const WAITING_MAX: u32 = 16;
/// One line of the log per address in this time.
const LINE_EVERY_MS: i64 = 10_000;
/// Addresses kept apart; those beyond share one place.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Guesses(HashMap<IpAddr, Guessed>);

struct Guessed {
    count: u32,
    waiting: u32,
    last_ms: i64,
    told_ms: Option<i64>,
}

/// What becomes of a wrong token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// Where it is counted, for [`Guesses::answered`].
    pub(super) place: IpAddr,
    pub(super) delay: Duration,
    pub(super) count: u32,
    pub(super) worth_a_line: bool,
}

impl Guesses {
    /// True when the address has as many answers outstanding as it may.
    pub(super) fn is_crowded(&self, from: IpAddr) -> bool {
        self.0.get(&self.place(from)).is_some_and(|guessed| guessed.waiting >= WAITING_MAX)
    }

    /// Counts a wrong token; [`Guesses::answered`] must follow.
    pub(super) fn failed(&mut self, from: IpAddr, now_ms: i64) -> Failed {
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&from) {
            self.0.retain(|_, guessed| guessed.waiting > 0 || now_ms - guessed.last_ms < FORGOTTEN_MS);
        }
        let place = self.place(from);
        let guessed = self.0.entry(place).or_insert(Guessed { count: 0, waiting: 0, last_ms: now_ms, told_ms: None });
        if now_ms - guessed.last_ms >= FORGOTTEN_MS {
            guessed.count = 0;
        }
        guessed.count = guessed.count.saturating_add(1);
        guessed.waiting += 1;
        guessed.last_ms = now_ms;
        let worth_a_line = guessed.told_ms.is_none_or(|told_ms| now_ms - told_ms >= LINE_EVERY_MS);
        if worth_a_line {
            guessed.told_ms = Some(now_ms);
        }
        let beyond = guessed.count.saturating_sub(FREE);
        let delay = match beyond {
            0 => Duration::ZERO,
            n => FIRST_DELAY.saturating_mul(1 << (n - 1).min(8)).min(DELAY_MAX),
        };
        Failed { place, delay, count: guessed.count, worth_a_line }
    }

    pub(super) fn answered(&mut self, place: IpAddr) {
        if let Some(guessed) = self.0.get_mut(&place) {
            guessed.waiting = guessed.waiting.saturating_sub(1);
        }
    }

    fn place(&self, from: IpAddr) -> IpAddr {
        let apart = self.0.contains_key(&from) || self.0.len() < ADDRESSES_MAX;
        if apart { from } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn each_wrong_token_of_an_address_waits_longer_and_others_do_not() {
        let (mut guesses, now_ms) = (Guesses::default(), 1_000);
        let delays: Vec<u128> = (0..9).map(|_| guesses.failed(ONE, now_ms).delay.as_millis()).collect();
        assert_eq!(delays, [0, 0, 0, 250, 500, 1_000, 2_000, 4_000, 4_000]);
        assert_eq!(guesses.failed(OTHER, now_ms), Failed { place: OTHER, delay: Duration::ZERO, count: 1, worth_a_line: true });
        assert!(!guesses.failed(OTHER, now_ms).worth_a_line, "one line is enough for a while");
        assert_eq!(guesses.failed(ONE, now_ms + FORGOTTEN_MS).delay, Duration::ZERO);
    }

    #[test]
    fn an_address_with_many_outstanding_answers_is_not_listened_to() {
        let (mut guesses, now_ms) = (Guesses::default(), 1_000);
        for _ in 0..WAITING_MAX {
            assert!(!guesses.is_crowded(ONE));
            guesses.failed(ONE, now_ms);
        }
        assert!(guesses.is_crowded(ONE) && !guesses.is_crowded(OTHER));
        guesses.answered(ONE);
        assert!(!guesses.is_crowded(ONE));
    }

    #[test]
    fn who_shared_a_place_leaves_that_place() {
        let (mut guesses, now_ms) = (Guesses::default(), 1_000);
        for n in 0..ADDRESSES_MAX as u32 {
            let failed = guesses.failed(IpAddr::V4(Ipv4Addr::from(n + 1)), now_ms);
            guesses.answered(failed.place);
        }
        let shared = guesses.failed(ONE, now_ms);
        // Room is made while the answer is held back.
        guesses.failed(OTHER, now_ms + FORGOTTEN_MS);
        guesses.answered(shared.place);
        assert!(guesses.0.get(&shared.place).is_none_or(|guessed| guessed.waiting == 0));
    }

    #[test]
    fn addresses_are_kept_apart_up_to_a_number() {
        let (mut guesses, now_ms) = (Guesses::default(), 1_000);
        for n in 0..2 * ADDRESSES_MAX as u32 {
            let from = IpAddr::V4(Ipv4Addr::from(n + 1));
            let failed = guesses.failed(from, now_ms);
            guesses.answered(failed.place);
        }
        assert!(guesses.0.len() <= ADDRESSES_MAX + 1);
        assert!(guesses.0.values().all(|guessed| guessed.waiting == 0), "nobody waits for ever");
    }
}
