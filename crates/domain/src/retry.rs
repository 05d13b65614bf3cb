//! When to try again, and when to stop.

/// Doubling waits with a cap, and a number of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub first_ms: i64,
    pub cap_ms: i64,
    pub attempts: u32,
}

impl RetryPolicy {
    /// Gives the wait after attempt number `attempt` (from 1), or `None` when that was the last one.
    ///
    /// `draw` is a random number in 0..1: the wait is shortened by up to a quarter so that items which failed together do not come
    /// back together. `asked_ms` is what the other side asked for (`Retry-After`); it can lengthen the wait, never shorten it.
    pub fn wait_ms(&self, attempt: u32, draw: f64, asked_ms: Option<i64>) -> Option<i64> {
        if attempt >= self.attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(30);
        let full = self.first_ms.saturating_mul(1 << doublings).min(self.cap_ms);
        let jittered = full - (full as f64 * 0.25 * draw.clamp(0.0, 1.0)) as i64;
        Some(jittered.max(asked_ms.unwrap_or(0).min(super::limits::RETRY_AFTER_MAX_MS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 5 };

    #[test]
    fn waits_double_to_the_cap_and_end() {
        let waits: Vec<_> = (1..=5).map(|n| POLICY.wait_ms(n, 0.0, None)).collect();
        assert_eq!(waits, [Some(1_000), Some(2_000), Some(4_000), Some(8_000), None]);
        assert_eq!(RetryPolicy { attempts: 99, ..POLICY }.wait_ms(40, 0.0, None), Some(60_000));
    }

    #[test]
    fn jitter_only_shortens_and_retry_after_only_lengthens() {
        assert_eq!(POLICY.wait_ms(1, 1.0, None), Some(750));
        assert_eq!(POLICY.wait_ms(1, 0.0, Some(10)), Some(1_000));
        assert_eq!(POLICY.wait_ms(1, 0.0, Some(90_000)), Some(90_000));
        assert_eq!(POLICY.wait_ms(1, 0.0, Some(i64::MAX)), Some(crate::limits::RETRY_AFTER_MAX_MS));
    }
}
