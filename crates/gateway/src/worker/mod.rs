//! The one lease loop: register for the wake-up, look, work, then wait for hint or poll. Polling is the truth.
//!
//! What the work is, [`Work`] says; slots, heartbeat, lost leases and the clean stop are the same for all of it.

mod guard;
mod hold;
mod settle;
mod slots;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use guard::Age;
pub use guard::CallGuard;
use hapax_domain::{Fence, RetryPolicy};
use hapax_store::clock::{Clock, Moment};
use hapax_store::{LaneRef, LeaseRequest, Resting, Store, StoreError};
pub use hold::Hold;
use hold::Holds;
pub use settle::settle;
use slots::{AT_ONCE, Slots};

use crate::telemetry::Telemetry;

/// One kind of leased work.
pub trait Work: Send + Sync + 'static {
    type Lease: Send + 'static;

    /// The store's names of the two calls, for whoever reads that they failed.
    const LEASE: &'static str;
    const EXTEND: &'static str;

    fn lease(&self, ask: LeaseRequest) -> impl Future<Output = Result<Vec<Self::Lease>, StoreError>> + Send;

    fn extend(&self, leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Channel, lane and fence of a lease.
    fn of(lease: &Self::Lease) -> (&Arc<str>, LaneRef, Fence);

    /// The most items of this channel that make sense now, slots aside: none while its target is dead.
    fn allowance(&self, channel: &str) -> usize;

    /// Whose items make no sense now, though others of the channel do.
    fn resting(&self, _channel: &Arc<str>) -> Option<Resting> {
        None
    }

    /// How long the loop may wait before it looks again without a hint. Asked before each look; never longer than [`POLL`].
    fn poll_interval(&self) -> Duration {
        POLL
    }

    /// Resolves when something has changed of which the store knows nothing.
    fn woken(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Works on one item to its end and settles it. Minds [`Hold::ended`].
    fn perform(self: Arc<Self>, lease: Self::Lease, hold: Hold) -> impl Future<Output = ()> + Send;
}

/// How one loop works.
#[derive(Clone)]
pub struct Plan {
    /// Shown on leases.
    pub worker: Arc<str>,
    /// Channels with the number of items worked on at once.
    pub channels: Vec<(Arc<str>, usize)>,
    pub hold_ms: i64,
    /// Tells how old a lease is, here and not in the store.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when work in flight has had its time to finish after `stop`: then it is handed back.
    pub give_up: CancellationToken,
}

pub const POLL: Duration = Duration::from_millis(500);

/// After looks that failed: a store that comes back must not meet all its instances at once.
const PAUSES: RetryPolicy = RetryPolicy { first_ms: POLL.as_millis() as i64, cap_ms: 5_000, attempts: u32::MAX };

/// Leases and works until `stop`; returns when everything in flight was settled or handed back. Who waits for that, waits in bounds: a store
/// that is away takes no outcome.
pub async fn run<W: Work>(work: Arc<W>, store: Arc<dyn Store>, plan: Plan, telemetry: Arc<Telemetry>, stop: CancellationToken) {
    let slots = Slots::new(&plan.channels);
    let holds = Arc::new(Holds::default());
    let tasks = TaskTracker::new();
    let heartbeats = heartbeat(Arc::clone(&holds), Arc::clone(&work), plan.clone(), Arc::clone(&telemetry));
    let _heart = AbortOnDropHandle::new(tokio::spawn(heartbeats));
    let mut failures = 0;
    while !stop.is_cancelled() {
        // Before looking: what comes in while we look must not be missed.
        let hint = store.wait();
        let mut poll_interval = work.poll_interval().min(POLL);
        let wants = slots.wants(|channel| work.allowance(channel));
        let (mut failed, mut more) = (false, false);
        if !wants.is_empty() {
            let ask = LeaseRequest {
                worker: Arc::clone(&plan.worker),
                wants: wants.clone(),
                resting: wants.iter().filter_map(|(channel, _)| work.resting(channel)).collect(),
                hold_ms: plan.hold_ms,
                outside: false,
            };
            let asked = Moment::now(&*plan.clock);
            match work.lease(ask).await {
                Ok(leases) => {
                    failures = 0;
                    // Of a channel that gave as much as was asked for at once, there may be more.
                    let of = |name: &Arc<str>| leases.iter().filter(|lease| W::of(lease).0 == name).count();
                    more = wants.iter().any(|(name, most)| *most >= AT_ONCE && of(name) >= *most);
                    for lease in leases {
                        let (channel, lane, fence) = W::of(&lease);
                        let age = Age::new(asked, plan.hold_ms, Arc::clone(&plan.clock));
                        let hold = holds.take((lane, fence), age, &plan.give_up, slots.occupy(channel));
                        tasks.spawn(Arc::clone(&work).perform(lease, hold));
                    }
                }
                Err(error) => {
                    failed = true;
                    failures += 1;
                    poll_interval = pause(failures, rand::random());
                    telemetry.store_unavailable(W::LEASE, &error);
                }
            }
        }
        if more {
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = work.woken(), if !failed => {}
            () = hint, if !wants.is_empty() && !failed => {}
            // Also after a look that found nothing: the channel whose slot is freed now was not asked for then.
            () = slots.freed(), if !failed => {}
            () = tokio::time::sleep(poll_interval) => {}
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// How long to wait after so many failed looks in a row.
fn pause(failures: u32, draw: f64) -> Duration {
    Duration::from_millis(PAUSES.wait_ms(failures, draw, None).unwrap_or(PAUSES.cap_ms).unsigned_abs())
}

/// Keeps all leases of one loop alive, in one call, three times per lease.
async fn heartbeat<W: Work>(holds: Arc<Holds>, work: Arc<W>, plan: Plan, telemetry: Arc<Telemetry>) {
    let every = Duration::from_millis((plan.hold_ms / 3).max(1) as u64);
    loop {
        tokio::time::sleep(every).await;
        let leases = holds.all();
        if leases.is_empty() {
            continue;
        }
        let asked = Moment::now(&*plan.clock);
        match work.extend(leases.clone(), plan.hold_ms).await {
            Ok(still) => {
                for ((lane, fence), still) in leases.into_iter().zip(still) {
                    holds.extended(lane, fence, still, asked);
                }
            }
            // The leases run on; if they run out, the fence refuses what we would settle late.
            Err(error) => telemetry.store_unavailable(W::EXTEND, &error),
        }
    }
}

/// Wakes the loop when a slot is free again.
type Freed = Arc<Notify>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_fail_come_ever_more_slowly_and_not_together() {
        let waits: Vec<_> = (1..=6).map(|failures| pause(failures, 0.0).as_millis()).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert!(pause(9, 0.9) < pause(9, 0.1));
    }
}
