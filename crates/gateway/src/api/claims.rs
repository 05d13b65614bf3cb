//! `/v1/claims`: idempotency keys held for any job, by the rules of the IETF draft on `Idempotency-Key`. One holder at a time, one completion,
//! and who comes later gets what the job came to.

mod answers;
mod asks;
mod batch;
pub(crate) mod lists;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::Response;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, Previous};
use http::HeaderMap;

pub(super) use batch::*;
pub(super) use lists::*;
pub use waiting::ClaimDesk;

use self::answers::{Completed, Extended, Released, answer, refusal};
use self::asks::{ClaimBody, CompleteBody, ExtendBody, ReleaseBody};
use super::{Api, Caller, Code, Problem, Scope, prefer};

/// The largest body of a request about claims: a result, written as JSON, and the rest.
pub(super) const BODY_MAX_BYTES: usize = 4 << 20;

/// How long a caller may wait for the holder.
const WAIT_MAX_S: u64 = 30;

/// Claims a key: it is yours, or was completed before, or is another's.
#[utoipa::path(
    post,
    path = "/claims",
    operation_id = "claim",
    tag = "claims",
    params(("Prefer" = Option<String>, Header, description = "`wait=n`: the answer waits up to n seconds, 30 at most, for the holder")),
    request_body = ClaimBody,
    responses(
        (status = 201, description = "It is yours: do the job, extend while you do, then complete or release", body = answers::Claimed),
        (status = 200, description = "The job was done before; `Idempotent-Replayed: true`", body = answers::Replayed),
        (status = 409),
    ),
)]
pub(super) async fn claim(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    ask: Result<Json<ClaimBody>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(ask) = ask?;
    let wait = prefer::wait_up_to(&headers, WAIT_MAX_S)?;
    let (key, op) = ask.read(&api.claims.defaults, &caller)?;
    let told = api.claims.claim_within(&api, &key, &op, wait.unwrap_or_default()).await?;
    api.telemetry.claim_answered(&told);
    let mut response = answer(&key, told, api.clock.now_ms())?;
    if let Some(wait) = wait {
        prefer::applied(&mut response, wait);
    }
    Ok(response)
}

/// Ends the job, and keeps what it came to for whoever asks later.
#[utoipa::path(
    post,
    path = "/claims/complete",
    operation_id = "completeClaim",
    tag = "claims",
    request_body = CompleteBody,
    responses((status = 200, description = "It is completed", body = Completed), (status = 404), (status = 409)),
)]
pub(super) async fn complete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<CompleteBody>, JsonRejection>,
) -> Result<Json<Completed>, Problem> {
    let Json(ask) = ask?;
    let key = ask.key(&caller)?;
    let token = token(&api, &caller, &key, ask.token.as_deref()).await?;
    let op = ClaimOp::Complete { token, result: ask.result(), keep_ms: asks::time("keep", ask.keep.as_ref())? };
    match api.ask_claim(&key, op).await? {
        ClaimAnswer::Done { completed_at_ms, ends_ms } => {
            api.claims.wake();
            Ok(Json(Completed::new(key, completed_at_ms, ends_ms)))
        }
        other => Err(refusal(&other, api.clock.now_ms())),
    }
}

/// Keeps a claim for longer: the heartbeat of whoever holds it.
#[utoipa::path(
    post,
    path = "/claims/extend",
    operation_id = "extendClaim",
    tag = "claims",
    request_body = ExtendBody,
    responses((status = 200, description = "It is yours until then", body = Extended), (status = 409)),
)]
pub(super) async fn extend(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<ExtendBody>, JsonRejection>,
) -> Result<Json<Extended>, Problem> {
    let Json(ask) = ask?;
    let key = ask.of.key(&caller)?;
    let Some(token) = ask.of.token.clone() else { return Err(asks::token_missing()) };
    let lease_ms = asks::time("lease", ask.lease.as_ref())?.unwrap_or(api.claims.defaults.lease_ms);
    match api.ask_claim(&key, ClaimOp::Extend { token, lease_ms }).await? {
        ClaimAnswer::Extended { lease_until_ms } => Ok(Json(Extended::new(key, lease_until_ms))),
        other => Err(refusal(&other, api.clock.now_ms())),
    }
}

/// Gives a claim up: the next caller begins anew. Without a token, an admin ends one that waits for a person.
#[utoipa::path(
    post,
    path = "/claims/release",
    operation_id = "releaseClaim",
    tag = "claims",
    request_body = ReleaseBody,
    responses((status = 200, description = "It is free", body = Released), (status = 404), (status = 409)),
)]
pub(super) async fn release(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<ReleaseBody>, JsonRejection>,
) -> Result<Json<Released>, Problem> {
    let Json(ask) = ask?;
    let key = ask.of.key(&caller)?;
    give_up(&api, &caller, &key, ask.of.token.as_deref()).await?;
    Ok(Json(Released::new(key)))
}

/// A person ends a claim that somebody holds.
pub(crate) async fn end(api: &Api, caller: &Caller, key: &str, scope: &str) -> Result<(), Problem> {
    give_up(api, caller, &asks::key_of(key, Some(scope), caller)?, None).await
}

async fn give_up(api: &Api, caller: &Caller, key: &ClaimKey, given: Option<&str>) -> Result<(), Problem> {
    let token = token(api, caller, key, given).await?;
    match api.ask_claim(key, ClaimOp::Release { token }).await? {
        ClaimAnswer::Released => {
            api.claims.wake();
            if given.is_none() {
                api.telemetry.claim_released_by_person(&key.scope, &caller.name);
            }
            Ok(())
        }
        other => Err(refusal(&other, api.clock.now_ms())),
    }
}

/// The token that was given, or, for an admin who gave none, the holder's own.
async fn token(api: &Api, caller: &Caller, key: &ClaimKey, given: Option<&str>) -> Result<String, Problem> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if !caller.may(Scope::Admin) {
        return Err(asks::token_missing());
    }
    let held = api.store.claim(key).await?;
    held.map(|claim| claim.token).ok_or_else(|| no_claim(key))
}

fn no_claim(key: &ClaimKey) -> Problem {
    Problem::new(
        Code::NotFound,
        format!("there is no claim `{}` in scope `{}`; GET /v1/claims lists what there is", key.key, key.scope),
    )
}

impl Api {
    /// Asks one thing of one key.
    async fn ask_claim(&self, key: &ClaimKey, op: ClaimOp) -> Result<ClaimAnswer, Problem> {
        key.check().and_then(|()| op.check()).map_err(asks::bad)?;
        let mut answers = self.store.claims(vec![(key.clone(), op)]).await?;
        let answer = answers.pop().unwrap_or(ClaimAnswer::Lost);
        if answer == ClaimAnswer::Lost {
            self.telemetry.claim_lost(&key.scope);
        }
        Ok(answer)
    }
}

impl ClaimDesk {
    /// Claims; while another holds the key, again and again until the time is over.
    async fn claim_within(&self, api: &Api, key: &ClaimKey, op: &ClaimOp, wait: Duration) -> Result<ClaimAnswer, Problem> {
        let mut waiting = self.waiting(wait, api.feed.stop());
        loop {
            let hint = waiting.hint();
            let told = api.ask_claim(key, op.clone()).await?;
            if !matches!(told, ClaimAnswer::InProgress { .. }) || !waiting.go_on(hint).await {
                return Ok(told);
            }
        }
    }
}

/// As the telemetry and the wire call it.
fn previous_name(previous: Previous) -> Option<&'static str> {
    match previous {
        Previous::None => None,
        Previous::Abandoned => Some("abandoned"),
    }
}
