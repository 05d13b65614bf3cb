//! `GET /v1/claims` and `DELETE /v1/claims`: who holds what, and, for admins, an end to it. Tokens of claims are shown to nobody.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimOp, ShownState};
use hapax_store::ClaimQuery;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::list::{Asked, page_limit};
use super::super::time::rfc3339;
use super::super::{Api, Caller, Cursors, Problem};
use super::{asks, no_claim};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimParams {
    pub(crate) scope: Option<String>,
    /// The beginning of the key.
    pub(crate) key: Option<String>,
    /// `held`, `abandoned`, `completed` or `value`.
    pub(crate) state: Option<String>,
    /// Where the page begins: the `next` of the page before.
    pub(crate) cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    pub(crate) limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ClaimRow)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) scope: String,
    /// held, abandoned, completed, or value (of the Redis door).
    pub(crate) state: &'static str,
    pub(crate) fence: u64,
    pub(crate) holder: Option<String>,
    pub(crate) fingerprint: Option<String>,
    /// takeover or hold.
    pub(crate) on_abandoned: &'static str,
    pub(crate) claimed_at: String,
    /// Of one that is held or abandoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<String>,
    /// When it is forgotten; null: not by itself.
    pub(crate) ends_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimPage {
    pub(crate) items: Vec<Row>,
    /// Give it as `cursor` to get the next page; there is none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl Row {
    fn new(claim: Claim, now_ms: i64) -> Self {
        let state = claim.shown(now_ms);
        let is_held = matches!(state, ShownState::Held | ShownState::Abandoned);
        Self {
            state: state.name(),
            fence: claim.fence,
            holder: claim.holder,
            fingerprint: claim.fingerprint,
            on_abandoned: claim.on_abandoned.name(),
            claimed_at: rfc3339(claim.claimed_at_ms),
            lease_until: is_held.then(|| rfc3339(claim.lease_until_ms)),
            completed_at: claim.completed_at_ms.map(rfc3339),
            ends_at: claim.ends_ms.map(rfc3339),
            key: claim.key.key,
            scope: claim.key.scope,
        }
    }
}

/// Lists claims, the last one claimed first.
#[utoipa::path(
    get,
    path = "/claims",
    operation_id = "listClaims",
    tag = "claims",
    params(ClaimParams),
    responses((status = 200, description = "One page, newest first", body = ClaimPage)),
)]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<ClaimParams>,
) -> Result<Json<ClaimPage>, Problem> {
    // One of some channels is told about a scope that is its own, never about all of them.
    if caller.is_limited() || ask.scope.is_some() {
        asks::need_scope(&caller, ask.scope.as_deref().unwrap_or_default())?;
    }
    let state = ask.state.as_deref().filter(|state| !state.is_empty());
    let state = state.map(|name| {
        let known = || ShownState::ALL.map(ShownState::name).join(", ");
        ShownState::from_name(name)
            .ok_or_else(|| Problem::bad_request(format!("there is no such `state`; use one of {}", known())))
    });
    let within = [ask.scope.as_deref(), ask.key.as_deref(), ask.state.as_deref()].map(Option::unwrap_or_default).join("\n");
    let cursors = Cursors::new(&api, &caller, "claims", &within);
    let odd = |_| Problem::bad_request("the cursor is not from a page of this list");
    let query = ClaimQuery {
        scope: ask.scope.filter(|scope| !scope.is_empty()),
        prefix: ask.key.filter(|key| !key.is_empty()),
        state: state.transpose()?,
        before: cursors.place(ask.cursor.as_deref(), |place| place.parse().map_err(odd))?,
        limit: page_limit(ask.limit),
    };
    let page = api.store.list_claims(query).await?;
    let next = page.rows.last().filter(|_| page.more).map(|last| cursors.write(&last.fence.to_string()));
    let now_ms = api.clock.now_ms();
    let rows = page.rows.into_iter().map(|claim| Row::new(claim, now_ms)).collect();
    Ok(Json(ClaimPage { items: rows, next }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParams {
    pub(crate) key: String,
    pub(crate) scope: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = DeletedClaim)]
pub(crate) struct Deleted {
    /// `deleted`
    status: &'static str,
    key: String,
    scope: String,
}

/// Removes a claim, whatever its state: whoever holds it has lost it, and what was completed may be done again.
#[utoipa::path(
    delete,
    path = "/claims",
    operation_id = "deleteClaim",
    tag = "claims",
    params(DeleteParams),
    responses((status = 200, description = "It is gone", body = Deleted), (status = 404)),
)]
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<DeleteParams>,
) -> Result<Json<Deleted>, Problem> {
    let key = asks::key_of(&ask.key, ask.scope.as_deref(), &caller)?;
    match api.ask_claim(&key, ClaimOp::Delete).await? {
        ClaimAnswer::Removed(true) => {
            api.claims.wake();
            api.telemetry.claim_deleted(&key.scope, &caller.name);
            Ok(Json(Deleted { status: "deleted", key: key.key, scope: key.scope }))
        }
        _ => Err(no_claim(&key)),
    }
}
