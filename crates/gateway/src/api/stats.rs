//! `/v1/stats`: how much there is. What this process knows by itself it tells even while the store is away.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use hapax_store::{self, ChannelCounts, ClaimCounts, Promise, in_time};
use serde::Serialize;
use utoipa::ToSchema;

use super::outbox::oldest_waiting;
use super::time::rfc3339;
use super::{Api, Caller, Problem};

/// A store that takes longer to count is shown as down.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

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
    let oldest_ms = match &stats {
        Some(stats) if stats.outbox_waiting > 0 && !caller.is_limited() => {
            in_time("looking into the outbox", STORE_PATIENCE, oldest_waiting(&*api.store, None)).await.unwrap_or_default()
        }
        _ => None,
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
        outbox: whole.map(|stats| Outbox {
            waiting: stats.outbox_waiting,
            unknown: stats.outbox_unknown,
            oldest_at: oldest_ms.map(rfc3339),
        }),
        claims: whole.map(|stats| Claims::from(stats.claims)),
        channels: stats.map(|stats| stats.channels.into_iter().filter(seen).map(Channel::from).collect()),
        full_outboxes: api.telemetry.full_outboxes().into_iter().filter(|channel| caller.sees(channel)).collect(),
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
