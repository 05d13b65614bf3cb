//! `/v1/stats`: how much there is. What this process knows by itself it tells even while the store is away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use hapax_store::{self, ChannelCounts, ClaimCounts, Promise, Store, StoreError, in_time};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::outbox::oldest_waiting;
use super::time::rfc3339;
use super::{Api, Caller, Problem};

/// A store that takes longer to count is shown as down.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
/// What was counted for pages is good for so many times the time that it took.
const COUNTED_HOLDS: u32 = 20;
const COUNTED_HOLDS_MAX: Duration = Duration::from_secs(5);

#[derive(Serialize, ToSchema)]
pub(crate) struct Stats {
    /// `up`, or `down` with the reason; then what only the store knows is null.
    pub(crate) store: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) keys: Option<u64>,
    pub(crate) events: Option<u64>,
    pub(crate) store_bytes: Option<u64>,
    pub(crate) log_bytes: Option<u64>,
    /// `full`, or `degraded` with what is not kept and why.
    pub(crate) promise: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_kept: Vec<String>,
    /// Null, like all that is counted for all channels together, to a token of some.
    pub(crate) memory: Option<Memory>,
    pub(crate) last_purge: Option<Purge>,
    pub(crate) outbox: Option<Outbox>,
    pub(crate) claims: Option<Claims>,
    pub(crate) channels: Option<Vec<Channel>>,
    /// Those with an account whose outbox was found full, on this instance, and has sent nothing since.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) full_outboxes: Vec<String>,
    /// Null where no channel spools.
    pub(crate) spool: Option<Vec<Spooled>>,
}

/// The keys in front of the store, and the events that were answered by them in its place.
#[derive(Serialize, ToSchema)]
#[schema(as = KeysInMemory)]
pub(crate) struct Memory {
    pub(crate) keys: u64,
    pub(crate) hits: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LastPurge)]
pub(crate) struct Purge {
    pub(crate) at: String,
    pub(crate) keys: u64,
    pub(crate) events: u64,
}

/// Keys that are held for other jobs, and values of the Redis door.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimsCounts)]
pub(crate) struct Claims {
    pub(crate) held: u64,
    pub(crate) abandoned: u64,
    pub(crate) completed: u64,
    pub(crate) values: u64,
}

/// Messages on their way out.
#[derive(Serialize, ToSchema)]
#[schema(as = OutboxCounts)]
pub(crate) struct Outbox {
    pub(crate) waiting: u64,
    pub(crate) unknown: u64,
    /// When the oldest that waits was made; null when nothing waits.
    pub(crate) oldest_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ChannelCounts)]
pub(crate) struct Channel {
    pub(crate) channel: String,
    pub(crate) waiting: u64,
    pub(crate) leased: u64,
    pub(crate) parked: u64,
    pub(crate) quarantined: u64,
    pub(crate) oldest_at: Option<String>,
}

/// Webhooks of one channel that wait for the store to come back.
#[derive(Serialize, ToSchema)]
pub(crate) struct Spooled {
    pub(crate) channel: String,
    pub(crate) waiting: u64,
    /// Refused by the store when it was well; tried again at the next start.
    pub(crate) parked: u64,
    pub(crate) oldest_at: Option<String>,
}

/// A token of some channels is told about these alone: what is counted for all together is null.
#[utoipa::path(
    get,
    path = "/stats",
    operation_id = "stats",
    tag = "upkeep",
    responses((status = 200, description = "How much there is", body = Stats)),
)]
pub(crate) async fn stats(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<Stats>, Problem> {
    let counted = count(&*api.store).await;
    Ok(Json(shown(&api, &caller, counted).await?))
}

/// What was counted.
#[derive(Clone, Debug)]
struct Counted {
    stats: Arc<hapax_store::Stats>,
    /// When the oldest message that waits was made.
    oldest_ms: Option<i64>,
}

async fn count(store: &dyn Store) -> Result<Counted, StoreError> {
    let stats = in_time("counting", STORE_PATIENCE, store.stats()).await?;
    let oldest_ms = match stats.outbox_waiting {
        0 => None,
        _ => in_time("looking into the outbox", STORE_PATIENCE, oldest_waiting(store, None)).await.unwrap_or_default(),
    };
    Ok(Counted { stats: Arc::new(stats), oldest_ms })
}

/// What was counted last, for pages. Counting takes longer the more is open, and many people may look: it takes a twentieth of the time at most.
#[derive(Default)]
pub struct Counting {
    known: Mutex<Known>,
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Known {
    counted: Option<(Counted, Instant, Duration)>,
    /// How often it was forgotten.
    round: u64,
}

impl Counting {
    /// The numbers of a moment ago.
    pub(crate) async fn lately(&self, api: &Api, caller: &Caller) -> Result<Stats, Problem> {
        let counted = self.counted(&*api.store).await;
        shown(api, caller, counted).await
    }

    /// Somebody has done something, and is to see what came of it.
    pub(crate) fn forget(&self) {
        let mut known = self.known();
        *known = Known { counted: None, round: known.round.wrapping_add(1) };
    }

    async fn counted(&self, store: &dyn Store) -> Result<Counted, StoreError> {
        let before = self.known().clone();
        let asking = self.asking.try_lock();
        if let Some((counted, at, took)) = before.counted {
            // Whoever comes while somebody counts does not wait for it.
            if asking.is_err() || at.elapsed() < (took * COUNTED_HOLDS).min(COUNTED_HOLDS_MAX) {
                return Ok(counted);
            }
        }
        let begun = Instant::now();
        let counted = count(store).await?;
        let mut known = self.known();
        if known.round == before.round {
            known.counted = Some((counted.clone(), Instant::now(), begun.elapsed()));
        }
        Ok(counted)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this caller may see of it.
async fn shown(api: &Api, caller: &Caller, counted: Result<Counted, StoreError>) -> Result<Stats, Problem> {
    let seen = |counts: &ChannelCounts| caller.sees(&counts.channel);
    let spool = match &api.spool {
        Some(spool) => Some(spool.counts().await?.into_iter().filter(seen).map(Spooled::from).collect()),
        None => None,
    };
    let (counted, why) = match counted {
        Ok(counted) => (Some(counted), None),
        Err(error) if error.retryable() => (None, Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let (promise, not_kept) = match api.store.promise() {
        Promise::Full => ("full", Vec::new()),
        Promise::Degraded(reasons) => ("degraded", reasons),
    };
    let last_purge = api.purges.last().filter(|_| !caller.is_limited()).map(|last| Purge {
        at: rfc3339(last.at_ms),
        keys: last.keys,
        events: last.events,
    });
    let memory = (api.memory)();
    let whole = counted.as_ref().filter(|_| !caller.is_limited());
    let of = |number: fn(&hapax_store::Stats) -> u64| whole.map(|counted| number(&counted.stats));
    let channels = counted.as_ref().map(|counted| counted.stats.channels.iter().filter(|counts| seen(counts)).cloned());
    Ok(Stats {
        store: if counted.is_some() { "up" } else { "down" },
        why,
        keys: of(|stats| stats.keys),
        events: of(|stats| stats.events),
        store_bytes: of(|stats| stats.store_bytes),
        log_bytes: of(|stats| stats.log_bytes),
        promise,
        not_kept,
        memory: (!caller.is_limited()).then_some(Memory { keys: memory.keys, hits: memory.hits }),
        last_purge,
        outbox: whole.map(|counted| Outbox {
            waiting: counted.stats.outbox_waiting,
            unknown: counted.stats.outbox_unknown,
            oldest_at: counted.oldest_ms.map(rfc3339),
        }),
        claims: whole.map(|counted| Claims::from(counted.stats.claims)),
        channels: channels.map(|channels| channels.map(Channel::from).collect()),
        full_outboxes: api.telemetry.full_outboxes().into_iter().filter(|channel| caller.sees(channel)).collect(),
        spool,
    })
}

impl From<ClaimCounts> for Claims {
    fn from(counts: ClaimCounts) -> Self {
        let ClaimCounts { held, abandoned, completed, values } = counts;
        Self { held, abandoned, completed, values }
    }
}

impl From<ChannelCounts> for Channel {
    fn from(counts: ChannelCounts) -> Self {
        Self {
            channel: counts.channel,
            waiting: counts.waiting,
            leased: counts.leased,
            parked: counts.parked,
            quarantined: counts.quarantined,
            oldest_at: counts.oldest_ms.map(rfc3339),
        }
    }
}

impl From<ChannelCounts> for Spooled {
    fn from(counts: ChannelCounts) -> Self {
        Self {
            channel: counts.channel,
            waiting: counts.waiting + counts.leased,
            parked: counts.parked,
            oldest_at: counts.oldest_ms.map(rfc3339),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use hapax_store::clock::SystemClock;
    use hapax_store::memory::MemoryStore;
    use hapax_store::prelude::*;
    use hapax_store::{Moving, StoreWrapper};
    use tokio::sync::Semaphore;

    use super::*;

    /// A store that counts as often as it is let.
    struct Slow {
        store: MemoryStore,
        lets: Semaphore,
    }

    const EVENTS: u64 = 7;

    impl StoreWrapper for Slow {
        async fn reach(&self) -> Result<&dyn Store, StoreError> {
            Ok(&self.store)
        }

        fn wait(&self) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn promise(&self) -> Promise {
            Promise::Full
        }

        fn limit_outbox(&self, _: usize) {}

        fn limit_claims(&self, _: usize) {}

        fn moving(&self) -> Result<&dyn Moving, StoreError> {
            self.store.moving()
        }

        async fn stats(&self) -> Result<hapax_store::Stats, StoreError> {
            self.lets.acquire().await.map_err(|_| StoreError::Closed)?.forget();
            Ok(hapax_store::Stats { events: EVENTS, ..hapax_store::Stats::default() })
        }
    }

    impl Counting {
        fn knows(&self, events: u64, age: Duration, took: Duration) {
            let stats = Arc::new(hapax_store::Stats { events, ..hapax_store::Stats::default() });
            let at = Instant::now().checked_sub(age).expect("this machine is older");
            self.known().counted = Some((Counted { stats, oldest_ms: None }, at, took));
        }
    }

    #[tokio::test]
    async fn counting_takes_a_twentieth_of_the_time_and_nobody_waits_for_another() {
        let slow = Slow { store: MemoryStore::new(Arc::new(SystemClock::new())), lets: Semaphore::new(0) };
        let counting = Counting::default();
        let ask = async || counting.counted(&slow).await.expect("counted").stats.events;
        let second = Duration::from_secs(1);
        counting.knows(1, Duration::ZERO, second * 60);
        assert_eq!(ask().await, 1, "it was counted lately");

        for (age, took) in [(second * 5, second * 60), (second * 2, second / 10)] {
            counting.knows(1, age, took);
            let (counted, other, ()) = tokio::join!(ask(), ask(), async { slow.lets.add_permits(1) });
            assert_eq!((counted, other), (EVENTS, 1), "one counts, the other takes what is known");
        }

        counting.knows(1, Duration::ZERO, second * 60);
        counting.forget();
        slow.lets.add_permits(1);
        assert_eq!(ask().await, EVENTS, "somebody did something");

        // Counted while somebody did something: nobody knows whether that is in it.
        counting.forget();
        let (counted, ()) = tokio::join!(ask(), async {
            counting.forget();
            slow.lets.add_permits(1);
        });
        assert_eq!(counted, EVENTS);
        assert!(counting.known().counted.is_none());
    }
}
