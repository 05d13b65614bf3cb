//! From the spool to the store, in order, once the store is back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hapax_domain::{RetryPolicy, ThreadId};
use hapax_store::{Arrival, InboxLease, StoreError, in_time};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::spool::{Gate, Spool};
use super::{Ingress, IngressChannel};

/// How long the store may take; nobody waits for the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks at a store that is away, and after a failure of the spool itself.
const PAUSES: RetryPolicy = RetryPolicy { first_ms: 200, cap_ms: 5_000, attempts: u32::MAX };

/// One webhook out of the spool.
struct Waiting {
    lease: InboxLease,
    arrival: Arc<Arrival>,
}

impl Ingress {
    /// Takes webhooks from the spool to the store until `stop`. What is under way then stays in the spool, for the next start. Once `retired`, it
    /// brings what it has taken out to the store, and ends.
    pub async fn drain(self: Arc<Self>, stop: CancellationToken, retired: CancellationToken) {
        let Some(spool) = self.spool.clone() else { return };
        let mut draining = JoinSet::new();
        for (channel, gate) in self.channels.iter().filter_map(|(name, channel)| Some((name.clone(), channel.gate.clone()?))) {
            let (this, spool, stop, retired) = (Arc::clone(&self), Arc::clone(&spool), stop.clone(), retired.clone());
            draining.spawn(async move {
                let Some(channel) = this.channels.get(&channel) else { return };
                // Nothing is lost where it stops: what was not let go is there at the next start.
                stop.run_until_cancelled(this.drain_channel(channel, &gate, &spool, &retired)).await;
            });
        }
        draining.join_all().await;
    }

    async fn drain_channel(&self, channel: &IngressChannel, gate: &Gate, spool: &Spool, retired: &CancellationToken) {
        let mut failures = 0;
        // Asked before the spool is looked at: what comes in meanwhile must not be missed.
        while let Some(written) = retired.run_until_cancelled(gate.holding()).await {
            if retired.is_cancelled() {
                return;
            }
            match spool.take(&channel.name).await {
                Ok(batch) if batch.is_empty() => gate.open(written).await,
                Ok(batch) => {
                    failures = 0;
                    self.drain_batch(channel, spool, batch).await;
                }
                Err(error) => {
                    failures += 1;
                    self.telemetry.store_unavailable("spool", &error);
                    pause(failures).await;
                }
            }
        }
    }

    /// Ends when the store has all of them.
    async fn drain_batch(&self, channel: &IngressChannel, spool: &Spool, batch: Vec<InboxLease>) {
        self.store_is_back().await;
        let read = |lease: InboxLease| Waiting { arrival: Arc::new(channel.read_back(&lease.headers, &lease.body)), lease };
        for mut wave in waves(batch.into_iter().map(read).collect()) {
            let mut failures = 0;
            while !wave.is_empty() {
                let gone = join_all(wave.iter().map(|waiting| self.hand_over(channel, spool, waiting))).await;
                // A store that answers and takes nothing is not helped by being asked all the time.
                failures = if gone.contains(&true) { 0 } else { failures + 1 };
                let mut gone = gone.into_iter();
                wave.retain(|_| !gone.next().unwrap_or(false));
                if !wave.is_empty() {
                    if failures > 0 {
                        pause(failures).await;
                    }
                    self.store_is_back().await;
                }
            }
        }
    }

    /// True when the webhook has left the spool.
    async fn hand_over(&self, channel: &IngressChannel, spool: &Spool, waiting: &Waiting) -> bool {
        let Waiting { lease, arrival } = waiting;
        let now_ms = self.clock.now_ms();
        let accepted = in_time("taking in from the spool", PATIENCE, self.accept(channel, arrival)).await;
        let left = match &accepted {
            Ok(_) => spool.let_go(lease).await,
            Err(error) => {
                self.telemetry.store_unavailable("accept", error);
                // Not for ever in the way of the others: the store answers, and does not take this one.
                if error.retryable() || self.ping().await.is_err() {
                    return false;
                }
                channel.telemetry.spool_parked(&error.to_string());
                spool.park(lease, &error.to_string()).await
            }
        };
        if let Err(error) = left {
            self.telemetry.store_unavailable("spool", &error);
            return false;
        }
        if let Ok(accepted) = accepted {
            self.learn(arrival, &accepted, now_ms);
            self.count(channel, &arrival.events, &accepted, lease.body.len(), now_ms);
            channel.telemetry.drained();
        }
        true
    }

    /// Resolves when the store answers.
    async fn store_is_back(&self) {
        let mut failures = 0;
        while let Err(error) = self.ping().await {
            failures += 1;
            self.telemetry.store_unavailable("ping", &error);
            pause(failures).await;
        }
    }

    async fn ping(&self) -> Result<(), StoreError> {
        in_time("pinging", PATIENCE, self.store.ping()).await
    }
}

async fn pause(failures: u32) {
    let wait_ms = PAUSES.wait_ms(failures, rand::random(), None).unwrap_or(PAUSES.cap_ms);
    tokio::time::sleep(Duration::from_millis(wait_ms.unsigned_abs())).await;
}

/// Sorts webhooks into waves that the store may take in at once: a webhook comes after all earlier ones that share a lane with it.
fn waves(batch: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let mut next: HashMap<ThreadId, usize> = HashMap::new();
    let mut waves: Vec<Vec<Waiting>> = Vec::new();
    for waiting in batch {
        let lanes: Vec<ThreadId> = waiting.arrival.events.iter().filter_map(|new| new.event.lane()).collect();
        let wave = lanes.iter().filter_map(|lane| next.get(lane).copied()).max().unwrap_or(0);
        next.extend(lanes.into_iter().map(|lane| (lane, wave + 1)));
        if waves.len() <= wave {
            waves.resize_with(wave + 1, Vec::new);
        }
        waves[wave].push(waiting);
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::Fence;
    use hapax_store::{KeptHeaders, LaneRef};
    use hapax_testkit::store_fixture::{message, notice, webhook};

    fn waiting(number: u128, arrival: Arrival) -> Waiting {
        let lease = InboxLease {
            lane: LaneRef([0; 32]),
            fence: Fence(1),
            until_ms: 0,
            item: hapax_domain::ItemId(uuid::Uuid::from_u128(number)),
            channel: "shop".into(),
            attempt: 1,
            failures: 0,
            replay: None,
            received_ms: 0,
            headers: KeptHeaders::default(),
            body: arrival.body.clone(),
            webhook_events: 1,
            events: Vec::new(),
            rest: Vec::new(),
        };
        Waiting { lease, arrival: Arc::new(arrival) }
    }

    #[test]
    fn a_webhook_goes_after_all_that_share_a_lane_with_it() {
        let batch = vec![
            waiting(0, webhook(vec![message("a1", "a")])),
            waiting(1, webhook(vec![message("b1", "b")])),
            waiting(2, webhook(vec![message("a2", "a"), message("c1", "c")])),
            waiting(3, webhook(vec![notice("n")])),
            waiting(4, webhook(vec![message("b2", "b"), message("c2", "c")])),
            waiting(5, webhook(vec![message("c3", "c")])),
        ];
        let numbers = |wave: &Vec<Waiting>| wave.iter().map(|waiting| waiting.lease.item.0.as_u128()).collect::<Vec<_>>();
        assert_eq!(waves(batch).iter().map(numbers).collect::<Vec<_>>(), [vec![0, 1, 3], vec![2], vec![4], vec![5]]);
    }
}
