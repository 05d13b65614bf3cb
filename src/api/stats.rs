//! `/v1/stats`: how much there is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::time::rfc3339;
use super::{Api, Problem};
use crate::store::{ChannelCounts, Promise};

#[derive(Serialize)]
pub(super) struct Stats {
    keys: u64,
    events: u64,
    store_bytes: u64,
    log_bytes: u64,
    /// `full`, or `degraded` with what is not kept and why.
    promise: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_kept: Vec<String>,
    last_purge: Option<Purge>,
    outbox: Outbox,
    channels: Vec<Channel>,
}

#[derive(Serialize)]
struct Purge {
    at: String,
    keys: u64,
    events: u64,
}

/// Messages on their way out.
#[derive(Serialize)]
struct Outbox {
    waiting: u64,
    unknown: u64,
}

#[derive(Serialize)]
struct Channel {
    channel: String,
    waiting: u64,
    leased: u64,
    parked: u64,
    quarantined: u64,
    oldest_at: Option<String>,
}

pub(super) async fn stats(State(api): State<Arc<Api>>) -> Result<Json<Stats>, Problem> {
    let stats = api.store.stats().await?;
    let (promise, not_kept) = match api.store.promise() {
        Promise::Full => ("full", Vec::new()),
        Promise::Degraded(reasons) => ("degraded", reasons),
    };
    let last_purge = api.purges.last().map(|last| Purge { at: rfc3339(last.at_ms), keys: last.keys, events: last.events });
    Ok(Json(Stats {
        keys: stats.keys,
        events: stats.events,
        store_bytes: stats.store_bytes,
        log_bytes: stats.log_bytes,
        promise,
        not_kept,
        last_purge,
        outbox: Outbox { waiting: stats.outbox_waiting, unknown: stats.outbox_unknown },
        channels: stats.channels.into_iter().map(Channel::from).collect(),
    }))
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
