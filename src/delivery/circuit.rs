//! A dead target: stop asking, spend no attempts, look once in a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::ItemId;
use crate::domain::limits::RETRY_AFTER_MAX_MS;

const FIRST_WAIT_MS: i64 = 1_000;
const WAIT_CAP_MS: i64 = 30_000;

/// An item that gets 503 this often while others get through is itself the trouble: its attempts are spent.
const STRIKES: u32 = 3;
const SUSPECTS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Circuit {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Grows with every answer of a living target.
    answers: u64,
    suspects: HashMap<ItemId, Suspect>,
}

struct Open {
    wait_ms: i64,
    probe_at_ms: i64,
    probing: bool,
}

#[derive(Default)]
struct Suspect {
    answers_before: u64,
    strikes: u32,
}

/// The right to make one request.
pub(super) struct Pass<'c> {
    circuit: &'c Circuit,
    probe: bool,
}

/// What a dead target means for the circuit and for the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trip {
    /// True for the failure that opened the circuit.
    pub(super) opened: bool,
    /// How long the item waits.
    pub(super) wait_ms: i64,
}

impl Circuit {
    /// The most items worth leasing now.
    pub(super) fn allowance(&self, now_ms: i64) -> usize {
        match &self.lock().open {
            None => usize::MAX,
            Some(open) if open.probing || now_ms < open.probe_at_ms => 0,
            Some(_) => 1,
        }
    }

    /// Gives a pass, or the time to wait for the next chance of one.
    pub(super) fn pass(&self, now_ms: i64) -> Result<Pass<'_>, i64> {
        let mut state = self.lock();
        let Some(open) = &mut state.open else { return Ok(Pass { circuit: self, probe: false }) };
        if open.probing || now_ms < open.probe_at_ms {
            return Err((open.probe_at_ms - now_ms).max(FIRST_WAIT_MS));
        }
        open.probing = true;
        Ok(Pass { circuit: self, probe: true })
    }

    /// True when this item got 503 again and again while others got through.
    pub(super) fn is_the_items_own(&self, item: ItemId) -> bool {
        let mut state = self.lock();
        let answers = state.answers;
        if state.suspects.len() >= SUSPECTS_MAX && !state.suspects.contains_key(&item) {
            state.suspects.clear();
        }
        let suspect = state.suspects.entry(item).or_default();
        if suspect.strikes == 0 || answers > suspect.answers_before {
            suspect.strikes += 1;
        }
        suspect.answers_before = answers;
        suspect.strikes > STRIKES
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// The target answered. True when that closed the circuit.
    pub(super) fn alive(self) -> bool {
        let mut state = self.circuit.lock();
        state.answers += 1;
        state.open.take().is_some()
    }

    /// The target is dead. `asked_ms` is the wait it asked for, if it could still say so.
    pub(super) fn dead(self, now_ms: i64, asked_ms: Option<i64>) -> Trip {
        let asked_ms = asked_ms.unwrap_or(0).min(RETRY_AFTER_MAX_MS);
        let mut state = self.circuit.lock();
        match &mut state.open {
            Some(open) if self.probe => {
                open.wait_ms = (open.wait_ms * 2).min(WAIT_CAP_MS);
                let wait_ms = open.wait_ms.max(asked_ms);
                open.probe_at_ms = now_ms + wait_ms;
                open.probing = false;
                // A little behind the others, so that the next probe is another item.
                Trip { opened: false, wait_ms: wait_ms + FIRST_WAIT_MS }
            }
            // Requests that were under way when it opened.
            Some(open) => {
                open.probe_at_ms = open.probe_at_ms.max(now_ms + asked_ms);
                Trip { opened: false, wait_ms: (open.probe_at_ms - now_ms).max(FIRST_WAIT_MS) }
            }
            None => {
                let wait_ms = asked_ms.max(FIRST_WAIT_MS);
                state.open = Some(Open { wait_ms: FIRST_WAIT_MS, probe_at_ms: now_ms + wait_ms, probing: false });
                Trip { opened: true, wait_ms }
            }
        }
    }
}

impl Drop for Pass<'_> {
    /// A probe that was given up halfway leaves the chance to the next.
    fn drop(&mut self) {
        if self.probe
            && let Some(open) = &mut self.circuit.lock().open
        {
            open.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn fail(circuit: &Circuit, now_ms: i64) -> Trip {
        circuit.pass(now_ms).expect("a pass").dead(now_ms, None)
    }

    #[test]
    fn one_probe_at_a_time_with_growing_waits_to_a_cap() {
        let circuit = Circuit::default();
        assert_eq!(circuit.allowance(0), usize::MAX);
        assert_eq!(fail(&circuit, 0), Trip { opened: true, wait_ms: 1_000 });
        assert_eq!(circuit.allowance(999), 0);
        assert_eq!(circuit.pass(400).err(), Some(1_000));

        let mut now_ms = 1_000;
        for expected in [2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            assert_eq!(circuit.allowance(now_ms), 1);
            let probe = circuit.pass(now_ms).expect("the probe");
            assert!(circuit.pass(now_ms).is_err(), "a second probe at once");
            assert_eq!(circuit.allowance(now_ms), 0);
            assert_eq!(probe.dead(now_ms, None), Trip { opened: false, wait_ms: expected + 1_000 });
            now_ms += expected;
        }
        assert!(circuit.pass(now_ms).expect("the probe").alive());
        assert_eq!(circuit.allowance(now_ms), usize::MAX);
    }

    #[test]
    fn an_abandoned_probe_leaves_the_chance_to_the_next() {
        let circuit = Circuit::default();
        fail(&circuit, 0);
        drop(circuit.pass(1_000));
        assert!(circuit.pass(1_000).is_ok());
    }

    #[test]
    fn a_target_that_says_when_to_come_back_is_left_alone_until_then() {
        let circuit = Circuit::default();
        let under_way = circuit.pass(0).expect("a pass");
        assert_eq!(circuit.pass(0).expect("a pass").dead(0, Some(7_000)), Trip { opened: true, wait_ms: 7_000 });
        assert_eq!((circuit.allowance(6_999), circuit.allowance(7_000)), (0, 1));
        assert_eq!(under_way.dead(100, Some(9_000)).wait_ms, 9_000);
        assert_eq!((circuit.allowance(9_099), circuit.allowance(9_100)), (0, 1));
        let probe = circuit.pass(9_100).expect("the probe");
        assert_eq!(probe.dead(9_100, Some(60_000)).wait_ms, 61_000);
        let probe = circuit.pass(69_100).expect("the probe");
        assert_eq!(probe.dead(69_100, None).wait_ms, 5_000, "its own waits grow by themselves");
        let probe = circuit.pass(73_100).expect("the probe");
        assert_eq!(probe.dead(73_100, Some(i64::MAX)).wait_ms, RETRY_AFTER_MAX_MS + 1_000);
    }

    #[test]
    fn requests_under_way_when_it_opens_do_not_lengthen_the_wait() {
        let circuit = Circuit::default();
        let (first, second) = (circuit.pass(0).expect("a pass"), circuit.pass(0).expect("a pass"));
        assert!(first.dead(0, None).opened);
        assert_eq!(second.dead(100, None), Trip { opened: false, wait_ms: 1_000 });
        assert_eq!(circuit.allowance(1_000), 1);
    }

    #[test]
    fn an_item_that_fails_alone_again_and_again_is_itself_the_trouble() {
        let circuit = Circuit::default();
        let poison = ItemId(Uuid::from_u128(1));
        for _ in 0..10 {
            assert!(!circuit.is_the_items_own(poison), "nobody else got through");
        }
        for _ in 0..2 {
            circuit.pass(0).expect("a pass").alive();
            assert!(!circuit.is_the_items_own(poison));
        }
        circuit.pass(0).expect("a pass").alive();
        assert!(circuit.is_the_items_own(poison));
    }
}
