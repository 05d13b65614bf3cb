//! What an answer means when it does not explain itself, and the waits that providers ask for.

use http::header::RETRY_AFTER;

use super::{CallAnswer, Verdict};

/// The wait in the `Retry-After` header. Dates are not used by the APIs we call.
pub(super) fn retry_after_ms(answer: &CallAnswer) -> Option<i64> {
    let seconds = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse::<u32>().ok()?;
    Some(i64::from(seconds) * 1_000)
}

/// Judges by the status alone: only a refusal proves that nothing went out.
pub(super) fn by_status(answer: &CallAnswer, why: String) -> Verdict {
    match answer.status.as_u16() {
        300..=399 => Verdict::StopAccount { why: format!("{why}; is `api_base` right?") },
        401 => Verdict::StopAccount { why: format!("{why}; is `token` right?") },
        // The server gave up waiting for the rest of the request, or says so after it acted.
        408 => Verdict::Unknown { why },
        425 => Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: false },
        429 => Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: true },
        400..=499 => Verdict::Failed { why },
        _ => Verdict::Unknown { why },
    }
}
