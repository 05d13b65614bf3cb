//! A dead target: stop asking, charge nobody, look once in a while.
//!
//! A target is dead when it cannot be reached, or when it turns several threads away (502, 503, 504) and answers nobody meanwhile. One
//! thread that is turned away says nothing about the others: it waits alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hapax_domain::ItemId;

const FIRST_WAIT_MS: i64 = 1_000;
const WAIT_CAP_MS: i64 = 30_000;

/// Calls that are under way for this long without having failed let the next ones go: a handler's whole run may take minutes.
const PROBE_HOLDS_MS: i64 = 2_000;

/// So many threads, turned away with nobody answered meanwhile, make a dead target.
const THREADS: usize = 2;

/// An item that is turned away this often while others get through is itself the trouble: it is charged.
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
    /// Threads that were turned away since the last such answer.
    turned_away: HashSet<String>,
    suspects: HashMap<ItemId, Suspect>,
    /// Names half-open times, so that a call of an earlier one is not taken for a probe of this one.
    last_half: u64,
}

struct Open {
    wait_ms: i64,
    probe_at_ms: i64,
    half: Option<Half>,
}

/// Half-open: 1, 2, 4… calls, as long as none fails.
struct Half {
    number: u64,
    /// How many calls this round admits, and how many of them are left.
    round: usize,
    left: usize,
    since_ms: i64,
}

#[derive(Default)]
struct Suspect {
    answers_before: u64,
    strikes: u32,
    times: u32,
}

/// The right to make one request.
pub(super) struct Pass<'c> {
    circuit: &'c Circuit,
    /// The half-open time that it probes in.
    probe: Option<u64>,
}

/// What a dead target means for the circuit and for the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trip {
    /// True for the failure that opened the circuit.
    pub(super) opened: bool,
    /// How long the item waits.
    pub(super) wait_ms: i64,
}

/// What it means that an item was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnedAway {
    /// Because the target is dead.
    WithAll(Trip),
    /// Nobody knows why; so many times by now.
    Alone { times: u32 },
    /// Because of what it is: others get through.
    ByItsOwnFault,
}

impl Circuit {
    /// The most items worth leasing now.
    pub(super) fn allowance(&self, now_ms: i64) -> usize {
        match &self.lock().open {
            None => usize::MAX,
            Some(open) if now_ms < open.probe_at_ms => 0,
            Some(Open { half: None, .. }) => 1,
            Some(Open { half: Some(half), .. }) if half.left > 0 => half.left,
            Some(Open { half: Some(half), .. }) if half.next_round_in_ms(now_ms) > 0 => 0,
            Some(Open { half: Some(half), .. }) => half.round.saturating_mul(2),
        }
    }

    /// Gives a pass, or the time to wait for the next chance of one.
    pub(super) fn pass(&self, now_ms: i64) -> Result<Pass<'_>, i64> {
        let mut state = self.lock();
        let number = state.last_half + 1;
        let Some(open) = &mut state.open else { return Ok(Pass { circuit: self, probe: None }) };
        if now_ms < open.probe_at_ms {
            return Err((open.probe_at_ms - now_ms).max(FIRST_WAIT_MS));
        }
        let half = open.half.get_or_insert(Half { number, round: 1, left: 1, since_ms: now_ms });
        if half.left == 0 {
            let wait_ms = half.next_round_in_ms(now_ms);
            if wait_ms > 0 {
                return Err(wait_ms);
            }
            let round = half.round.saturating_mul(2);
            *half = Half { number: half.number, round, left: round, since_ms: now_ms };
        }
        half.left -= 1;
        let number = half.number;
        state.last_half = state.last_half.max(number);
        Ok(Pass { circuit: self, probe: Some(number) })
    }

    /// When the target is looked at next; `None`: it is not taken for dead.
    pub(super) fn probe_at_ms(&self) -> Option<i64> {
        self.lock().open.as_ref().map(|open| open.probe_at_ms)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Half {
    fn next_round_in_ms(&self, now_ms: i64) -> i64 {
        self.since_ms + PROBE_HOLDS_MS - now_ms
    }
}

impl State {
    /// Opens the circuit, or keeps it open.
    fn trip(&mut self, probe: Option<u64>, now_ms: i64) -> Trip {
        match &mut self.open {
            None => {
                self.open = Some(Open { wait_ms: FIRST_WAIT_MS, probe_at_ms: now_ms + FIRST_WAIT_MS, half: None });
                Trip { opened: true, wait_ms: FIRST_WAIT_MS }
            }
            Some(open) if probe.is_some() && open.half.as_ref().map(|half| half.number) == probe => {
                open.wait_ms = (open.wait_ms * 2).min(WAIT_CAP_MS);
                open.probe_at_ms = now_ms + open.wait_ms;
                open.half = None;
                // A little behind the others, so that the next probe is another item.
                Trip { opened: false, wait_ms: open.wait_ms + FIRST_WAIT_MS }
            }
            // Requests that were under way when it opened, or opened again.
            Some(open) => Trip { opened: false, wait_ms: (open.probe_at_ms - now_ms).max(FIRST_WAIT_MS) },
        }
    }

    fn suspect(&mut self, item: ItemId) -> &Suspect {
        let answers = self.answers;
        if self.suspects.len() >= SUSPECTS_MAX && !self.suspects.contains_key(&item) {
            self.suspects.clear();
        }
        let suspect = self.suspects.entry(item).or_default();
        if suspect.strikes == 0 || answers > suspect.answers_before {
            suspect.strikes += 1;
        }
        suspect.answers_before = answers;
        suspect.times += 1;
        suspect
    }
}

impl Pass<'_> {
    /// The target answered. True when that closed the circuit.
    pub(super) fn alive(self, item: ItemId) -> bool {
        let mut state = self.circuit.lock();
        state.answers += 1;
        state.turned_away.clear();
        state.suspects.remove(&item);
        state.open.take().is_some()
    }

    /// The target cannot be reached.
    pub(super) fn dead(mut self, now_ms: i64) -> Trip {
        let probe = self.probe.take();
        self.circuit.lock().trip(probe, now_ms)
    }

    /// The target answered 502, 503 or 504: it, or what stands before it, is not there for this call.
    pub(super) fn turned_away(mut self, now_ms: i64, thread: &str, item: ItemId) -> TurnedAway {
        let probe = self.probe.take();
        let mut state = self.circuit.lock();
        if state.turned_away.len() < THREADS {
            state.turned_away.insert(thread.to_owned());
        }
        if state.open.is_some() || state.turned_away.len() >= THREADS {
            return TurnedAway::WithAll(state.trip(probe, now_ms));
        }
        let suspect = state.suspect(item);
        if suspect.strikes > STRIKES { TurnedAway::ByItsOwnFault } else { TurnedAway::Alone { times: suspect.times } }
    }

    /// No answer came of a call that may have reached it. That opens nothing, but a probe has failed.
    pub(super) fn unanswered(mut self, now_ms: i64) {
        let probe = self.probe.take();
        let mut state = self.circuit.lock();
        if probe.is_some() && state.open.is_some() {
            state.trip(probe, now_ms);
        }
    }
}

impl Drop for Pass<'_> {
    /// A probe that was given up halfway leaves the chance to the next.
    fn drop(&mut self) {
        if let Some(probe) = self.probe
            && let Some(open) = &mut self.circuit.lock().open
            && let Some(half) = open.half.as_mut().filter(|half| half.number == probe)
        {
            half.left += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn item(number: u128) -> ItemId {
        ItemId(Uuid::from_u128(number))
    }

    fn fail(circuit: &Circuit, now_ms: i64) -> Trip {
        circuit.pass(now_ms).expect("a pass").dead(now_ms)
    }

    fn turn_away(circuit: &Circuit, now_ms: i64, thread: &str, number: u128) -> TurnedAway {
        circuit.pass(now_ms).expect("a pass").turned_away(now_ms, thread, item(number))
    }

    fn answer(circuit: &Circuit, now_ms: i64, number: u128) -> bool {
        circuit.pass(now_ms).expect("a pass").alive(item(number))
    }

    #[test]
    fn probes_that_fail_come_with_growing_waits_to_a_cap() {
        let circuit = Circuit::default();
        assert_eq!(circuit.allowance(0), usize::MAX);
        assert_eq!(fail(&circuit, 0), Trip { opened: true, wait_ms: 1_000 });
        assert_eq!(circuit.allowance(999), 0);
        assert_eq!(circuit.pass(400).err(), Some(1_000));

        let mut now_ms = 1_000;
        for expected in [2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            assert_eq!(circuit.allowance(now_ms), 1);
            let probe = circuit.pass(now_ms).expect("the probe");
            assert_eq!(circuit.pass(now_ms).err(), Some(PROBE_HOLDS_MS), "a second probe at once");
            assert_eq!(circuit.allowance(now_ms), 0);
            assert_eq!(probe.dead(now_ms), Trip { opened: false, wait_ms: expected + 1_000 });
            now_ms += expected;
        }
        assert!(answer(&circuit, now_ms, 1));
        assert_eq!(circuit.allowance(now_ms), usize::MAX);
    }

    #[test]
    fn half_open_admits_one_two_four_while_none_fails() {
        let circuit = Circuit::default();
        fail(&circuit, 0);
        let (mut now_ms, mut under_way) = (1_000, Vec::new());
        for round in [1, 2, 4, 8] {
            for left in (1..=round).rev() {
                assert_eq!(circuit.allowance(now_ms), left);
                under_way.push(circuit.pass(now_ms).expect("a probe"));
            }
            assert_eq!(circuit.allowance(now_ms + 1_999), 0);
            assert_eq!(circuit.pass(now_ms + 1_500).err(), Some(500));
            now_ms += 2_000;
        }
        let late = under_way.pop().expect("a probe");
        assert_eq!(under_way.pop().expect("a probe").dead(now_ms), Trip { opened: false, wait_ms: 3_000 });
        assert_eq!(circuit.allowance(now_ms), 0);
        assert_eq!(late.dead(now_ms + 100).wait_ms, 1_900, "one failure lengthens the wait, not each");
        assert_eq!(circuit.allowance(now_ms + 2_000), 1, "it begins with one again");
        assert!(under_way.pop().expect("a probe").alive(item(1)), "whatever call is answered closes it");
        assert_eq!(circuit.allowance(now_ms), usize::MAX);
    }

    #[test]
    fn a_probe_without_an_answer_has_failed_and_another_call_has_not() {
        let circuit = Circuit::default();
        let under_way = circuit.pass(0).expect("a pass");
        circuit.pass(0).expect("a pass").unanswered(0);
        assert_eq!(circuit.allowance(0), usize::MAX);
        fail(&circuit, 0);
        under_way.unanswered(500);
        assert_eq!(circuit.allowance(1_000), 1);
        circuit.pass(1_000).expect("the probe").unanswered(1_000);
        assert_eq!((circuit.allowance(2_999), circuit.allowance(3_000)), (0, 1));
    }

    #[test]
    fn an_abandoned_probe_leaves_the_chance_to_the_next() {
        let circuit = Circuit::default();
        fail(&circuit, 0);
        drop(circuit.pass(1_000));
        assert!(circuit.pass(1_000).is_ok());
    }

    #[test]
    fn one_thread_that_is_turned_away_holds_no_other_and_two_do() {
        let circuit = Circuit::default();
        for times in 1..=20 {
            assert_eq!(turn_away(&circuit, 0, "ana", 1), TurnedAway::Alone { times });
            assert_eq!(circuit.allowance(0), usize::MAX);
        }
        answer(&circuit, 0, 2);
        assert!(matches!(turn_away(&circuit, 0, "bob", 3), TurnedAway::Alone { times: 1 }), "somebody was answered meanwhile");
        let opened = TurnedAway::WithAll(Trip { opened: true, wait_ms: 1_000 });
        assert_eq!(turn_away(&circuit, 0, "ana", 1), opened);
        assert_eq!(circuit.allowance(0), 0);
        let again = TurnedAway::WithAll(Trip { opened: false, wait_ms: 3_000 });
        assert_eq!(turn_away(&circuit, 1_000, "ana", 1), again, "one is enough to keep it open");
        assert!(answer(&circuit, 3_000, 1));
    }

    #[test]
    fn requests_under_way_when_it_opens_do_not_lengthen_the_wait() {
        let circuit = Circuit::default();
        let (first, second) = (circuit.pass(0).expect("a pass"), circuit.pass(0).expect("a pass"));
        assert!(first.dead(0).opened);
        assert_eq!(second.dead(100), Trip { opened: false, wait_ms: 1_000 });
        assert_eq!(circuit.allowance(1_000), 1);
    }

    #[test]
    fn an_item_that_is_turned_away_alone_again_and_again_is_itself_the_trouble() {
        let circuit = Circuit::default();
        for times in 1..=10 {
            assert_eq!(turn_away(&circuit, 0, "ana", 1), TurnedAway::Alone { times }, "nobody else got through");
        }
        for _ in 0..2 {
            answer(&circuit, 0, 2);
            assert!(matches!(turn_away(&circuit, 0, "ana", 1), TurnedAway::Alone { .. }));
        }
        answer(&circuit, 0, 2);
        assert_eq!(turn_away(&circuit, 0, "ana", 1), TurnedAway::ByItsOwnFault);
    }
}
