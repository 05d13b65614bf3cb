//! `/v1/stats`: how much there is. What this process knows by itself it tells even while the store is away.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use hapax_store::{self, ChannelCounts, ClaimCounts, Promise, in_time};
use serde::Serialize;
use utoipa::ToSchema;

use super::time::rfc3339;
use super::{Api, Caller, Problem};

/// A store that takes longer to count is shown as down.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Serialize, ToSchema)]
pub(super) struct Stats {
    /// `up`, or `down` with the reason; then what only the store knows is null.
    store: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    keys: Option<u64>,
    events: Option<u64>,
    store_bytes: Option<u64>,
    log_bytes: Option<u64>,
    /// `full`, or `degraded` with what is not kept and why.
    promise: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_kept: Vec<String>,
    /// Null, like all that is counted for all channels together, to a token of some.
    memory: Option<Memory>,
    last_purge: Option<Purge>,
    outbox: Option<Outbox>,
    claims: Option<Claims>,
    channels: Option<Vec<Channel>>,
    /// Null where no channel spools.
    spool: Option<Vec<Spooled>>,
}

/// The keys in front of the store, and the events that were answered by them in its place.
#[derive(Serialize, ToSchema)]
#[schema(as = KeysInMemory)]
struct Memory {
    keys: u64,
    hits: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LastPurge)]
struct Purge {
    at: String,
    keys: u64,
    events: u64,
}

/// Keys that are held for other jobs, and values of the Redis door.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimsCounts)]
struct Claims {
    held: u64,
    abandoned: u64,
    completed: u64,
    values: u64,
}

/// Messages on their way out.
#[derive(Serialize, ToSchema)]
#[schema(as = OutboxCounts)]
struct Outbox {
    waiting: u64,
    unknown: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ChannelCounts)]
struct Channel {
    channel: String,
    waiting: u64,
    leased: u64,
    parked: u64,
    quarantined: u64,
    oldest_at: Option<String>,
}

/// Webhooks of one channel that wait for the store to come back.
#[derive(Serialize, ToSchema)]
struct Spooled {
    channel: String,
    waiting: u64,
    /// Refused by the store when it was well; tried again at the next start.
    parked: u64,
    oldest_at: Option<String>,
}

/// A token of some channels is told about these alone: what is counted for all together is null.
#[utoipa::path(
    get,
    path = "/stats",
    operation_id = "stats",
    tag = "upkeep",
    responses((status = 200, description = "How much there is", body = Stats)),
)]
pub(super) async fn stats(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<Stats>, Problem> {
    let seen = |counts: &ChannelCounts| caller.sees(&counts.channel);
    let spool = match &api.spool {
        Some(spool) => Some(spool.counts().await?.into_iter().filter(seen).map(Spooled::from).collect()),
        None => None,
    };
    let (stats, why) = match in_time("counting", STORE_PATIENCE, api.store.stats()).await {
        Ok(stats) => (Some(stats), None),
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
    let whole = stats.as_ref().filter(|_| !caller.is_limited());
    let of = |number: fn(&hapax_store::Stats) -> u64| whole.map(number);
    Ok(Json(Stats {
        store: if stats.is_some() { "up" } else { "down" },
        why,
        keys: of(|stats| stats.keys),
        events: of(|stats| stats.events),
        store_bytes: of(|stats| stats.store_bytes),
        log_bytes: of(|stats| stats.log_bytes),
        promise,
        not_kept,
        memory: (!caller.is_limited()).then_some(Memory { keys: memory.keys, hits: memory.hits }),
        last_purge,
        outbox: whole.map(|stats| Outbox { waiting: stats.outbox_waiting, unknown: stats.outbox_unknown }),
        claims: whole.map(|stats| Claims::from(stats.claims)),
        channels: stats.map(|stats| stats.channels.into_iter().filter(seen).map(Channel::from).collect()),
        spool,
    }))
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
