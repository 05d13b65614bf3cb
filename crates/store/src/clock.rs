//! Where time comes from. Passed in everywhere, so that tests can turn it by hand.

use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970. Never goes backwards within one process.
    fn now_ms(&self) -> i64;

    /// What the world's clocks show, for times that others signed or will check. May jump either way.
    fn wall_ms(&self) -> i64 {
        self.now_ms()
    }

    /// What both of these say at one moment.
    fn both(&self) -> Both {
        Both { now_ms: self.now_ms(), wall_ms: self.wall_ms() }
    }

    /// Milliseconds since some moment of the past. Nobody sets it, and it counts the time that the machine was asleep.
    fn boot_ms(&self) -> i64 {
        self.now_ms()
    }
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Both {
    pub now_ms: i64,
    pub wall_ms: i64,
}

/// A moment, to tell how long ago it was.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    boot_ms: i64,
    wall_ms: i64,
}

impl Moment {
    pub fn now(clock: &dyn Clock) -> Self {
        Self { boot_ms: clock.boot_ms(), wall_ms: clock.wall_ms() }
    }

    /// The time that passed since, by the clock that says more: a restored machine may have only the one of them put right.
    pub fn elapsed_ms(self, clock: &dyn Clock) -> i64 {
        (clock.boot_ms() - self.boot_ms).max(clock.wall_ms() - self.wall_ms)
    }
}

/// The machine's clock, made safe against being set: it runs with the monotonic clock and bends towards wall time by at most a tenth
/// of the time that passed. A clock set back or ahead by an hour therefore neither freezes leases nor ends them all at once. After a
/// suspended night it lags for hours, so signed times are compared with [`Clock::wall_ms`].
pub struct SystemClock {
    last: Mutex<(Instant, f64)>,
}

impl SystemClock {
    pub fn new() -> Self {
        Self { last: Mutex::new((Instant::now(), wall_ms())) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        self.both().now_ms
    }

    fn both(&self) -> Both {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        let passed = now.duration_since(last.0).as_secs_f64() * 1_000.0;
        let wall_ms = wall_ms();
        *last = (now, bend(last.1, passed, wall_ms));
        Both { now_ms: last.1 as i64, wall_ms: wall_ms as i64 }
    }

    fn wall_ms(&self) -> i64 {
        wall_ms() as i64
    }

    #[cfg(target_os = "linux")]
    fn boot_ms(&self) -> i64 {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        since.tv_sec.saturating_mul(1_000).saturating_add(since.tv_nsec / 1_000_000)
    }
}

/// Advances `shown` by `passed`, plus or minus at most a tenth of it towards `wall`.
fn bend(shown: f64, passed: f64, wall: f64) -> f64 {
    let straight = shown + passed;
    straight + (wall - straight).clamp(-0.1 * passed, 0.1 * passed)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
fn wall_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_an_hour_still_runs_forward() {
        let mut shown = 10_000_000.0;
        let mut wall = shown - 3_600_000.0;
        for _ in 0..100 {
            wall += 1_000.0;
            let next = bend(shown, 1_000.0, wall);
            assert!((900.0..=1_100.0).contains(&(next - shown)));
            shown = next;
        }
    }

    #[test]
    fn small_differences_are_taken_over_at_once() {
        assert_eq!(bend(1_000.0, 1_000.0, 2_050.0), 2_050.0);
    }
}
