//! What is answered about claims, as it goes over the wire.

use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimResult};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::time::rfc3339;
use super::super::{Code, Problem};
use super::previous_name;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A holder may end any moment: nobody is sent away for longer.
const RETRY_AFTER_MAX_S: i64 = 10;

#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Claimed {
    /// `claimed`
    status: &'static str,
    key: String,
    scope: String,
    /// Proves that you hold it; give it to complete, extend and release.
    token: String,
    /// Grows with every claim: for systems that refuse who comes late.
    fence: u64,
    lease_until: String,
    /// `abandoned` when the holder before you went away without a word: part of the job may have been done.
    previous: Option<&'static str>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ClaimReplayed)]
pub(in crate::api) struct Replayed {
    /// `completed`
    status: &'static str,
    key: String,
    scope: String,
    /// What the job came to.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// What it came to, where that is no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    completed_at: String,
}

impl Replayed {
    fn new(key: &ClaimKey, result: Option<ClaimResult>, completed_at_ms: i64) -> Self {
        let (mut json, mut base64, mut content_type) = (None, None, None);
        if let Some(result) = result {
            let text = std::str::from_utf8(&result.bytes).ok().filter(|_| result.content_type.is_none());
            json = text.and_then(|text| serde_json::from_str(text).ok());
            base64 = json.is_none().then(|| STANDARD.encode(&result.bytes));
            content_type = result.content_type;
        }
        Self {
            status: "completed",
            key: key.key.clone(),
            scope: key.scope.clone(),
            result: json,
            result_base64: base64,
            content_type,
            completed_at: rfc3339(completed_at_ms),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Completed {
    /// `completed`
    status: &'static str,
    key: String,
    scope: String,
    completed_at: String,
    /// Until when the key is kept.
    ends_at: Option<String>,
}

impl Completed {
    pub(super) fn new(key: ClaimKey, completed_at_ms: i64, ends_ms: Option<i64>) -> Self {
        let ClaimKey { scope, key } = key;
        Self { status: "completed", key, scope, completed_at: rfc3339(completed_at_ms), ends_at: ends_ms.map(rfc3339) }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = ClaimExtended)]
pub(in crate::api) struct Extended {
    /// `claimed`
    status: &'static str,
    key: String,
    scope: String,
    lease_until: String,
}

impl Extended {
    pub(super) fn new(key: ClaimKey, lease_until_ms: i64) -> Self {
        Self { status: "claimed", key: key.key, scope: key.scope, lease_until: rfc3339(lease_until_ms) }
    }
}

#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Released {
    /// `released`
    status: &'static str,
    key: String,
    scope: String,
}

impl Released {
    pub(super) fn new(key: ClaimKey) -> Self {
        Self { status: "released", key: key.key, scope: key.scope }
    }
}

/// One answer of a batch: that of a claim, or what is wrong with it.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::api) enum BatchAnswer {
    Claimed(Claimed),
    Replayed(Replayed),
    Refused(Refused),
}

#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Refused {
    /// `refused`
    status: &'static str,
    code: &'static str,
    detail: String,
    /// In so many seconds it may be otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
}

impl From<Problem> for BatchAnswer {
    fn from(problem: Problem) -> Self {
        let retry_after = problem.retries_after();
        let (code, detail) = problem.told();
        BatchAnswer::Refused(Refused { status: "refused", code: code.name(), detail, retry_after })
    }
}

/// What a claim comes to: yours, done before, or why not.
pub(super) fn told(key: &ClaimKey, answer: ClaimAnswer, now_ms: i64) -> Result<BatchAnswer, Problem> {
    match answer {
        ClaimAnswer::Claimed { token, fence, lease_until_ms, previous } => Ok(BatchAnswer::Claimed(Claimed {
            status: "claimed",
            key: key.key.clone(),
            scope: key.scope.clone(),
            token,
            fence,
            lease_until: rfc3339(lease_until_ms),
            previous: previous_name(previous),
        })),
        ClaimAnswer::Completed { result, completed_at_ms } => {
            Ok(BatchAnswer::Replayed(Replayed::new(key, result, completed_at_ms)))
        }
        other => Err(refusal(&other, now_ms)),
    }
}

pub(super) fn answer(key: &ClaimKey, answer: ClaimAnswer, now_ms: i64) -> Result<Response, Problem> {
    Ok(match told(key, answer, now_ms)? {
        BatchAnswer::Replayed(replayed) => {
            let mut response = Json(replayed).into_response();
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        claimed => (StatusCode::CREATED, Json(claimed)).into_response(),
    })
}

/// Why it was not done.
pub(super) fn refusal(answer: &ClaimAnswer, now_ms: i64) -> Problem {
    match answer {
        ClaimAnswer::InProgress { lease_until_ms } => {
            let left_s = ((lease_until_ms - now_ms).saturating_add(999) / 1_000).clamp(1, RETRY_AFTER_MAX_S);
            let detail = format!(
                "another holds this claim, until {} unless it extends; come again after the time of `Retry-After`, or wait here with `Prefer: wait=30`",
                rfc3339(*lease_until_ms)
            );
            Problem::new(Code::ClaimInProgress, detail).retry_after(u32::try_from(left_s).unwrap_or(1))
        }
        ClaimAnswer::HeldForPerson { lease_until_ms } => Problem::new(
            Code::ClaimHeld,
            format!(
                "its holder went away, the lease ended at {}, and `on_abandoned` is `hold`: a person finds out whether the job was done, and then \
                 completes, releases or deletes it (`hapax claims`)",
                rfc3339(*lease_until_ms)
            ),
        ),
        ClaimAnswer::FingerprintMismatch => Problem::new(
            Code::FingerprintMismatch,
            "this key was claimed with another `fingerprint`, so for another request; use another key, or the same request",
        ),
        ClaimAnswer::NoRoom => Problem::new(
            Code::ClaimsFull,
            "the store keeps as many claims as it may; use a shorter `ttl`, or raise `max` in `[claims]`",
        )
        .retry_after(2),
        _ => Problem::new(
            Code::ClaimLost,
            "the token is not the holder's: another has taken the claim over, or it was completed, released or deleted; stop this job and claim anew",
        ),
    }
}
