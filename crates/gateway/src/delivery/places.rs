//! How many requests a target gets at once, and when that comes again for which it has no place.
//!
//! Items of all targets of a channel are leased together. What is leased for a target that is busy, or down, is handed back at once, so that
//! the next item may be another target's; it comes again about when its turn would be.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nothing is put off for longer than this beyond its own wait: whoever waits here hears nothing of a place that is free.
const LINE_MAX: Duration = Duration::from_secs(30);

/// How far apart items come again that wait for a target that is down.
const RECOVERY_APART: Duration = Duration::from_millis(5);

/// How much the latest request counts in the mean of their durations.
const LATEST_COUNTS: f64 = 0.2;

pub(super) struct Places {
    limit: usize,
    /// There is no other target beside it: no more is leased than it has places for.
    alone: bool,
    state: Mutex<State>,
    line: Line,
}

struct State {
    taken: usize,
    /// How long a request took lately, in seconds.
    mean_s: f64,
    /// When the last one began or ended.
    changed: Instant,
}

/// One place, taken until dropped.
pub(super) struct Place<'p> {
    places: &'p Places,
    begun: Instant,
}

/// Whom nobody calls in: each comes again by itself, a little after the one before.
#[derive(Default)]
pub(super) struct Line {
    next: Mutex<Option<Instant>>,
}

impl Places {
    pub(super) fn new(limit: usize, alone: bool) -> Self {
        let state = State { taken: 0, mean_s: 0.0, changed: Instant::now() };
        Self { limit: limit.max(1), alone, state: Mutex::new(state), line: Line::default() }
    }

    /// Takes a place, or tells how long to wait for one.
    pub(super) fn take(&self, now: Instant) -> Result<Place<'_>, i64> {
        let mut state = self.lock();
        if state.taken < self.limit {
            state.taken += 1;
            state.changed = now;
            return Ok(Place { places: self, begun: now });
        }
        // As places come free: a target that hangs gives none, and what waits for it comes ever more rarely.
        let apart_s = state.mean_s.max(now.saturating_duration_since(state.changed).as_secs_f64()) / self.limit as f64;
        drop(state);
        let apart = Duration::try_from_secs_f64(apart_s).unwrap_or(LINE_MAX).min(LINE_MAX);
        Err(self.line.wait_ms(now, apart, apart))
    }

    /// How long an item waits that would have to wait this long for a target that is down.
    pub(super) fn wait_for_recovery(&self, now: Instant, wait_ms: i64) -> i64 {
        match self.alone {
            true => wait_ms,
            false => self.line.wait_ms(now, Duration::from_millis(wait_ms.max(0).unsigned_abs()), RECOVERY_APART),
        }
    }

    fn leave(&self, begun: Instant, now: Instant) {
        let mut state = self.lock();
        state.taken -= 1;
        state.mean_s += (now.saturating_duration_since(begun).as_secs_f64() - state.mean_s) * LATEST_COUNTS;
        state.changed = now;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.leave(self.begun, Instant::now());
    }
}

impl Line {
    /// Goes to the end of the line, no sooner than after `least`; the next one comes `apart` later.
    pub(super) fn wait_ms(&self, now: Instant, least: Duration, apart: Duration) -> i64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (soonest, last) = (now + least, now + least + LINE_MAX);
        let turn = next.map_or(soonest, |next| next.clamp(soonest, last));
        *next = Some(turn + apart);
        // Never early: a whole millisecond more.
        i64::try_from((turn - now).as_millis()).unwrap_or(i64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Takes a place that the test gives back by itself.
    fn take(places: &Places, now: Instant) -> Instant {
        let place = places.take(now).expect("a place");
        let begun = place.begun;
        std::mem::forget(place);
        begun
    }

    #[test]
    fn what_finds_no_place_comes_again_as_places_come_free() {
        let (places, mut now) = (Places::new(2, false), Instant::now());
        for _ in 0..40 {
            let begun = take(&places, now);
            now += seconds(0.2);
            places.leave(begun, now);
        }
        let held = [take(&places, now), take(&places, now)];
        let waits: Vec<i64> = (0..4).map(|_| places.take(now).err().expect("no place")).collect();
        for (wait, turn) in waits.iter().zip(1..) {
            assert!((turn * 100 - 2..=turn * 100 + 2).contains(wait), "two of 200 ms at once are one every 100 ms: {waits:?}");
        }
        places.leave(held[0], now);
        assert!(places.take(now).is_ok());
    }

    #[test]
    fn a_target_that_hangs_is_asked_for_ever_more_rarely_and_at_least_now_and_then() {
        let (places, mut now) = (Places::new(1, false), Instant::now());
        take(&places, now);
        now += seconds(10.0);
        let waits: Vec<i64> = (0..6).map(|_| places.take(now).err().expect("no place")).collect();
        assert_eq!(waits, [10_001, 20_001, 30_001, 40_001, 40_001, 40_001]);
    }

    #[test]
    fn what_waits_for_a_target_that_is_down_does_not_come_all_at_once() {
        let (one_of_two, alone, now) = (Places::new(1, false), Places::new(1, true), Instant::now());
        assert_eq!([0; 3].map(|_| one_of_two.wait_for_recovery(now, 1_000)), [1_001, 1_006, 1_011]);
        assert_eq!([0; 3].map(|_| alone.wait_for_recovery(now, 1_000)), [1_000; 3], "nothing is leased for it meanwhile");
        let later = now + seconds(60.0);
        assert_eq!(one_of_two.wait_for_recovery(later, 1_000), 1_001, "nobody is in line any more");
    }
}
