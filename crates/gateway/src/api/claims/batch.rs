//! `POST /v1/claims/batch`: many claims in one request, decided in their order; one that cannot be asked keeps none of the others back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp};
use hapax_domain::limits::CLAIM_BATCH_MAX;
use hapax_store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::{Api, Caller, Code, Problem};
use super::answers::{BatchAnswer, told};
use super::asks::{BatchBody, ClaimBody};

/// Asked of the store at once: their results are in memory together.
const ASKED_AT_ONCE: usize = 64;
/// Of all results in one answer.
const RESULTS_MAX_BYTES: usize = 16 << 20;

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
    let mut found = api.claimed(ops).await?.into_iter();
    let now_ms = api.clock.now_ms();
    let answers = asks.into_iter().map(|ask| {
        let one = ask.and_then(|(key, _)| {
            let answer = found.next().unwrap_or(Ok(ClaimAnswer::Lost))?;
            api.telemetry.claim_answered(&answer);
            told(&key, answer, now_ms)
        });
        one.unwrap_or_else(BatchAnswer::from)
    });
    Ok(Json(BatchAnswers { answers: answers.collect() }))
}

impl Api {
    /// One answer each. Results that are too long together are left out; when the store goes away in the middle, what was claimed before is told.
    async fn claimed(&self, mut asks: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<Result<ClaimAnswer, Problem>>, StoreError> {
        let (mut answers, mut bytes) = (Vec::with_capacity(asks.len()), 0);
        while !asks.is_empty() {
            let rest = asks.split_off(ASKED_AT_ONCE.min(asks.len()));
            let (count, first) = (asks.len(), answers.is_empty());
            match self.store.claims(std::mem::replace(&mut asks, rest)).await {
                Ok(found) => answers.extend(found.into_iter().map(|answer| fits(answer, &mut bytes))),
                Err(error) if first => return Err(error),
                Err(error) => {
                    let why = error.to_string();
                    let left = count + std::mem::take(&mut asks).len();
                    answers.extend((0..left).map(|_| Err(Problem::new(Code::StoreUnavailable, why.clone()))));
                }
            }
        }
        Ok(answers)
    }
}

fn fits(answer: ClaimAnswer, bytes: &mut usize) -> Result<ClaimAnswer, Problem> {
    if let ClaimAnswer::Completed { result: Some(result), .. } = &answer {
        *bytes += result.bytes.len();
        if *bytes > RESULTS_MAX_BYTES {
            let todo = "it is completed, and the results of this batch are too long together: ask for this key by itself";
            return Err(Problem::new(Code::TooLarge, todo));
        }
    }
    Ok(answer)
}
