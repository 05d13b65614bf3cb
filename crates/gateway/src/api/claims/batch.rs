//! `POST /v1/claims/batch`: many claims in one request, decided in their order; one that cannot be asked keeps none of the others back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use hapax_domain::claim::ClaimAnswer;
use hapax_domain::limits::CLAIM_BATCH_MAX;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::{Api, Caller, Problem};
use super::answers::{BatchAnswer, told};
use super::asks::{BatchBody, ClaimBody};

#[derive(Serialize, ToSchema)]
pub(in crate::api) struct BatchAnswers {
    /// One for each claim, in the same order.
    answers: Vec<BatchAnswer>,
}

/// Claims up to 500 keys at once; one answer each, in the same order.
#[utoipa::path(
    post,
    path = "/claims/batch",
    operation_id = "claimBatch",
    tag = "claims",
    request_body = BatchBody,
    responses((status = 200, description = "One answer each", body = BatchAnswers)),
)]
pub(in crate::api) async fn batch(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<BatchBody>, JsonRejection>,
) -> Result<Json<BatchAnswers>, Problem> {
    let Json(BatchBody { claims }) = ask?;
    if claims.is_empty() || claims.len() > CLAIM_BATCH_MAX {
        let count = claims.len();
        return Err(Problem::bad_request(format!("`claims` has {count} entries; give it 1 to {CLAIM_BATCH_MAX}")));
    }
    let read = |claim: &str| {
        let body: ClaimBody = serde_json::from_str(claim).map_err(|why| Problem::bad_request(why.to_string()))?;
        body.read(&api.claims.defaults, &caller)
    };
    let asks: Vec<_> = claims.iter().map(|claim| read(claim.get())).collect();
    let ops: Vec<_> = asks.iter().filter_map(|ask| ask.as_ref().ok().cloned()).collect();
    let mut found = if ops.is_empty() { Vec::new() } else { api.store.claims(ops).await? }.into_iter();
    let now_ms = api.clock.now_ms();
    let answers = asks.into_iter().map(|ask| {
        let one = ask.and_then(|(key, _)| {
            let answer = found.next().unwrap_or(ClaimAnswer::Lost);
            api.telemetry.claim_answered(&answer);
            told(&key, answer, now_ms)
        });
        one.unwrap_or_else(BatchAnswer::from)
    });
    Ok(Json(BatchAnswers { answers: answers.collect() }))
}
