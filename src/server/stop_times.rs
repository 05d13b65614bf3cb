//! One deadline for the whole stop: who may still take how long, counted from the signal.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// A share of the grace period, and no more than this.
const SHARE: u32 = 10;
const SHARE_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StopTimes {
    /// Until then calls to targets may go on; then they are cut and handed back.
    pub(super) deliveries: Instant,
    /// Until then requests in flight, and calls to providers, may go on.
    pub(super) requests: Instant,
    pub(super) end: Instant,
}

impl StopTimes {
    pub(super) fn from(now: Instant, grace: Duration) -> Self {
        let (end, share) = (now + grace, share(grace));
        Self { deliveries: end - share * 3, requests: end - share, end }
    }
}

fn share(grace: Duration) -> Duration {
    (grace / SHARE).min(SHARE_MAX)
}

/// How long requests in flight may take once the doors close.
pub(super) fn time_for_requests(grace: Duration) -> Duration {
    share(grace) * 2
}

/// Waits for workers to end by themselves until `at`, then makes them hand back what they have.
pub(super) async fn end_workers(mut workers: JoinSet<()>, at: Instant, give_up: &CancellationToken, times: StopTimes) {
    let mut ended = async || while workers.join_next().await.is_some() {};
    if timeout_at(at, ended()).await.is_err() {
        give_up.cancel();
        in_time(ended(), times).await;
    }
}

/// Waits for what has its own bounds, and not longer than there is time.
pub(super) async fn in_time<T>(ending: impl Future<Output = T>, times: StopTimes) -> Option<T> {
    timeout_at(times.end, ending).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_ends_before_the_deadline() {
        let now = Instant::now();
        for grace in [0, 1, 200, 5_000, 30_000, 600_000].map(Duration::from_millis) {
            let times = StopTimes::from(now, grace);
            assert!(now <= times.deliveries && times.deliveries <= times.requests && times.requests <= times.end);
            assert!(times.deliveries + time_for_requests(grace) <= times.requests);
            assert_eq!(times.end, now + grace);
        }
        let times = StopTimes::from(now, Duration::from_secs(30));
        assert_eq!(times.deliveries - now, Duration::from_secs(24));
    }
}
