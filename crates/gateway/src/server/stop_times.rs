//! One deadline for the whole stop: who may still take how long, counted from the signal.

use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
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

/// How long a connection may lie still once the listeners close.
pub(super) fn stillness(grace: Duration) -> Duration {
    share(grace) * 2
}

/// Tasks that are asked to end, and made to when their time is over.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) set: JoinSet<()>,
    pub(super) stop: CancellationToken,
    /// They hand back, or drop, what they have.
    pub(super) cut: CancellationToken,
}

impl Tasks {
    /// Asks them to end and gives them until `at` to do so by themselves.
    async fn end_or_cut(&mut self, at: Instant) {
        self.stop.cancel();
        if timeout_at(at, self.ended()).await.is_err() {
            self.cut.cancel();
        }
    }

    async fn ended(&mut self) {
        while self.set.join_next().await.is_some() {}
    }
}

/// Ends the deliveries, then does what comes in between and ends the others, all at the same time. Deliveries that were cut hand back beside
/// them: a store that hangs, and takes no outcome, takes no time of the others either.
pub(super) async fn stop_in_order(mut deliveries: Tasks, between: impl FnOnce(), mut others: Vec<Tasks>, times: StopTimes) {
    deliveries.end_or_cut(times.deliveries).await;
    between();
    let end = async |tasks: &mut Tasks| {
        tasks.end_or_cut(times.requests).await;
        tasks.ended().await;
    };
    in_time(async { tokio::join!(deliveries.ended(), join_all(others.iter_mut().map(end))) }, times).await;
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
            assert!(times.deliveries + stillness(grace) <= times.requests, "whoever stalls is cut before");
            assert_eq!(times.end, now + grace);
        }
        let times = StopTimes::from(now, Duration::from_secs(30));
        assert_eq!(times.deliveries - now, Duration::from_secs(24));
    }

    /// The deliveries wait for a store that never answers; the sender is told in time, and its calls end.
    #[tokio::test]
    async fn deliveries_that_hang_take_no_time_of_the_others() {
        let (mut deliveries, mut sends) = (Tasks::default(), Tasks::default());
        deliveries.set.spawn(std::future::pending());
        let (stop, cut, (told, hears)) = (sends.stop.clone(), sends.cut.clone(), tokio::sync::oneshot::channel());
        sends.set.spawn(async move {
            stop.cancelled().await;
            cut.cancelled().await;
            told.send(()).expect("somebody hears it");
        });
        let times = StopTimes::from(Instant::now(), Duration::from_millis(300));
        stop_in_order(deliveries, || {}, vec![sends], times).await;
        hears.await.expect("the calls of the sender were handed back");
    }
}
