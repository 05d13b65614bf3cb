//! `/v1/purge`: remove now what is past its time, in small steps so that accept never waits long.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::{Extension, Json};
use hapax_store::{Purged, Store, StoreError};
use serde::Serialize;
use utoipa::ToSchema;

use super::audit::Noted;
use super::{Api, Caller, Problem};

/// Rows of one step.
const STEP_ROWS: usize = 1_000;
/// Steps of one call; whoever wants more asks again.
const STEPS_MAX: usize = 200;

/// The last purge that removed something or was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPurge {
    pub at_ms: i64,
    pub keys: u64,
    pub events: u64,
}

/// Where upkeep and the API write down their purges.
#[derive(Debug, Default)]
pub struct PurgeLog(Mutex<Option<LastPurge>>);

impl PurgeLog {
    pub fn record(&self, at_ms: i64, purged: Purged) {
        let last = LastPurge { at_ms, keys: purged.keys, events: purged.events };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    pub fn last(&self) -> Option<LastPurge> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one small step; upkeep calls it with pauses in between.
pub async fn purge_step(store: &dyn Store, retention: &[(String, i64)]) -> Result<Purged, StoreError> {
    store.purge(retention, STEP_ROWS).await
}

#[derive(Serialize, ToSchema)]
#[schema(as = Purged)]
pub(super) struct Done {
    keys: u64,
    events: u64,
    /// True when there is more: call again.
    more: bool,
}

/// Removes now what is past its time.
#[utoipa::path(
    post,
    path = "/purge",
    operation_id = "purge",
    tag = "upkeep",
    responses((status = 200, description = "What was removed", body = Done)),
)]
pub(super) async fn purge(State(api): State<Arc<Api>>, caller: Caller) -> Result<(Extension<Noted>, Json<Done>), Problem> {
    caller.need_all_channels()?;
    let retention = api.channels.retention();
    let mut all = Purged::default();
    let mut failed = None;
    for _ in 0..STEPS_MAX {
        match purge_step(&*api.store, &retention).await {
            Ok(step) => all = all.and(step),
            Err(error) => failed = Some(error),
        }
        if failed.is_some() || !all.more {
            break;
        }
        tokio::task::yield_now().await;
    }
    api.telemetry.purged(all);
    if let Some(error) = failed {
        return Err(error.into());
    }
    let now_ms = api.clock.now_ms();
    api.purges.record(now_ms, all);
    if !all.more {
        api.telemetry.purge_ended(now_ms);
    }
    let noted =
        Noted { target: None, result: Some(format!("{} events and {} keys removed", all.events, all.keys)), ..Noted::default() };
    Ok((Extension(noted), Json(Done { keys: all.keys, events: all.events, more: all.more })))
}
