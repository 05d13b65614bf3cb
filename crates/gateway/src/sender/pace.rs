//! How fast an account may send, and how fast one chat may be written to.
//!
//! Kept per process: several instances that share an account each keep the pace for themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::settings::Rate;

/// A turn that comes this soon is waited for with the lease in hand; a later one is handed back.
pub(super) const WAIT_IN_HAND_MS: i64 = 250;

/// Above this many chats, those that have rested long enough are forgotten.
const CHATS_MAX: usize = 10_000;

pub(super) struct Pace {
    account_rate: Rhythm,
    chat_rate: Rhythm,
    /// Shared with whoever kept the pace before.
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    accounts: HashMap<String, Account>,
    chats: HashMap<(String, String), f64>,
}

#[derive(Default)]
struct Account {
    /// When the last turn given out would have been due at an even pace.
    even_ms: f64,
    /// The provider asked for silence until then.
    silent_until_ms: i64,
}

/// When a message may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// After this wait; the turn is its own.
    In { wait_ms: i64 },
    /// Not soon; it gets no turn and should ask again then.
    Later { wait_ms: i64 },
}

/// An even pace with a burst.
#[derive(Clone, Copy)]
struct Rhythm {
    every_ms: f64,
    ahead_ms: f64,
}

impl Rhythm {
    fn of(rate: Rate) -> Self {
        let every_ms = rate.per_ms.max(1) as f64 / f64::from(rate.count.max(1));
        Self { every_ms, ahead_ms: every_ms * f64::from(rate.burst.max(1) - 1) }
    }

    fn wait_ms(self, even_ms: f64, now_ms: i64) -> i64 {
        (even_ms - self.ahead_ms - now_ms as f64).max(0.0).ceil() as i64
    }

    fn after_turn(self, even_ms: f64, at_ms: i64) -> f64 {
        even_ms.max(at_ms as f64) + self.every_ms
    }
}

impl Pace {
    pub(super) fn new(account_rate: Rate, chat_rate: Rate) -> Self {
        Self { account_rate: Rhythm::of(account_rate), chat_rate: Rhythm::of(chat_rate), state: Arc::default() }
    }

    /// Goes on from the turns that another has given out.
    pub(super) fn follow(&mut self, before: &Pace) {
        self.state = Arc::clone(&before.state);
    }

    /// Gives the message a turn, if there is one soon.
    pub(super) fn turn(&self, account: &str, peer: &str, now_ms: i64) -> Turn {
        let mut state = self.lock();
        if state.chats.len() >= CHATS_MAX {
            state.chats.retain(|_, even_ms| self.chat_rate.wait_ms(*even_ms, now_ms) > 0);
        }
        let chat = (account.to_owned(), peer.to_owned());
        let chat_even_ms = state.chats.get(&chat).copied().unwrap_or_default();
        let known = state.accounts.entry(account.to_owned()).or_default();
        let wait_ms = self.account_wait_ms(known, now_ms).max(self.chat_rate.wait_ms(chat_even_ms, now_ms));
        if wait_ms > WAIT_IN_HAND_MS {
            return Turn::Later { wait_ms };
        }
        known.even_ms = self.account_rate.after_turn(known.even_ms, now_ms + wait_ms);
        state.chats.insert(chat, self.chat_rate.after_turn(chat_even_ms, now_ms + wait_ms));
        Turn::In { wait_ms }
    }

    /// Keeps an account silent until then, whatever turns it has been given.
    pub(super) fn silence(&self, account: &str, until_ms: i64) {
        let mut state = self.lock();
        let known = state.accounts.entry(account.to_owned()).or_default();
        known.silent_until_ms = known.silent_until_ms.max(until_ms);
    }

    /// How long the account must still be silent.
    pub(super) fn silent_for_ms(&self, account: &str, now_ms: i64) -> i64 {
        self.lock().accounts.get(account).map_or(0, |known| (known.silent_until_ms - now_ms).max(0))
    }

    /// Accounts without a turn now, and how long each must wait.
    pub(super) fn resting(&self, now_ms: i64) -> Vec<(String, i64)> {
        let state = self.lock();
        let waits = state.accounts.iter().map(|(name, known)| (name, self.account_wait_ms(known, now_ms)));
        waits.filter(|(_, wait_ms)| *wait_ms > 0).map(|(name, wait_ms)| (name.clone(), wait_ms)).collect()
    }

    fn account_wait_ms(&self, known: &Account, now_ms: i64) -> i64 {
        self.account_rate.wait_ms(known.even_ms, now_ms).max(known.silent_until_ms - now_ms)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Rate = Rate { count: 1_000, per_ms: 1, burst: 1_000 };

    fn rate(count: u32, burst: u32) -> Rate {
        Rate { count, per_ms: 1_000, burst }
    }

    fn now(pace: &Pace, account: &str, peer: &str, now_ms: i64) -> bool {
        pace.turn(account, peer, now_ms) == Turn::In { wait_ms: 0 }
    }

    #[test]
    fn in_any_second_no_more_than_the_rate_and_the_burst() {
        let pace = Pace::new(rate(10, 5), FREE);
        let mut sent = Vec::new();
        for now_ms in 10_000..13_000 {
            while let Turn::In { wait_ms } = pace.turn("a", "x", now_ms) {
                sent.push(now_ms + wait_ms);
            }
        }
        assert_eq!(sent[..6], [10_000, 10_000, 10_000, 10_000, 10_000, 10_100]);
        let most = (10_000..12_000).map(|from| sent.iter().filter(|at| (from..from + 1_000).contains(*at)).count()).max();
        assert!(most <= Some(15), "{most:?}");
        assert!(sent.len() >= 34, "and no less: {}", sent.len());
    }

    #[test]
    fn turns_are_given_out_in_line_and_no_further_than_is_worth_waiting() {
        let pace = Pace::new(rate(10, 1), FREE);
        let turns: Vec<Turn> = (0..4).map(|_| pace.turn("a", "x", 5_000)).collect();
        assert_eq!(turns[..3], [0, 100, 200].map(|wait_ms| Turn::In { wait_ms }));
        assert_eq!(turns[3], Turn::Later { wait_ms: 300 });
        assert_eq!(pace.resting(5_000), [("a".to_owned(), 300)]);
        assert_eq!(pace.resting(5_300), []);
        assert!(now(&pace, "b", "x", 5_000), "another account keeps its pace");
    }

    #[test]
    fn one_chat_waits_while_the_account_goes_on() {
        let pace = Pace::new(rate(30, 30), rate(1, 1));
        assert!(now(&pace, "a", "x", 0));
        assert_eq!(pace.turn("a", "x", 0), Turn::Later { wait_ms: 1_000 });
        assert!(now(&pace, "a", "y", 0));
        assert!(now(&pace, "a", "x", 1_000));
    }

    #[test]
    fn silence_holds_for_the_account_that_was_told() {
        let pace = Pace::new(FREE, FREE);
        pace.silence("a", 4_000);
        pace.silence("a", 2_000);
        assert_eq!(pace.turn("a", "x", 1_000), Turn::Later { wait_ms: 3_000 });
        assert_eq!((pace.silent_for_ms("a", 1_000), pace.silent_for_ms("b", 1_000)), (3_000, 0));
        assert!(now(&pace, "b", "x", 1_000));
        assert!(now(&pace, "a", "x", 4_000));
    }

    #[test]
    fn chats_that_rested_are_forgotten() {
        let pace = Pace::new(FREE, rate(1, 1));
        for number in 0..CHATS_MAX {
            pace.turn("a", &number.to_string(), 0);
        }
        pace.turn("a", "one more", 10_000);
        assert_eq!(pace.lock().chats.len(), 1);
    }
}
