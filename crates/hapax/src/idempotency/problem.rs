//! What the layer itself answers: problems (RFC 9457) that say what to change.

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::body::{Body, full};
use super::key::KEY_MAX_BYTES;
use crate::Error;

const RETRY_AFTER_S: u32 = 2;

/// An answer that is not the handler's.
#[derive(Debug)]
pub(super) enum Problem {
    MissingKey,
    BadKey,
    CutOff,
    TooLarge { most: usize },
    NotKept,
    Crashed,
    Claim(Error),
}

impl Problem {
    fn told(&self) -> (StatusCode, &'static str, String) {
        let (status, code, detail) = match self {
            Problem::MissingKey => {
                (StatusCode::BAD_REQUEST, "idempotency_key_missing", "send an `Idempotency-Key` header of your own making")
            }
            Problem::BadKey => {
                let detail = format!("send one `Idempotency-Key` of 1 to {KEY_MAX_BYTES} visible ASCII characters");
                return (StatusCode::BAD_REQUEST, "idempotency_key_invalid", detail);
            }
            Problem::CutOff => (StatusCode::BAD_REQUEST, "body_cut_off", "the body did not arrive whole; send it again"),
            Problem::TooLarge { most } => {
                let detail = format!("a request with an `Idempotency-Key` may have {most} bytes");
                return (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail);
            }
            Problem::NotKept => (
                StatusCode::CONFLICT,
                "response_not_kept",
                "this was done before, and its response was too large to be stored; look at what it made",
            ),
            Problem::Crashed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "handler_crashed",
                "the handler broke down in mid-request; how much of it was done is not known",
            ),
            Problem::Claim(error) => return told_of(error),
        };
        (status, code, detail.to_owned())
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let (status, code, detail) = self.told();
        let title = status.canonical_reason().unwrap_or("Error");
        let text = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail, "code": code });
        let mut response = Response::new(full(text.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(self, Problem::Claim(ref error) if error.retryable()) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        response
    }
}

fn told_of(error: &Error) -> (StatusCode, &'static str, String) {
    let (status, code, detail) = match error {
        Error::InProgress { .. } => {
            (StatusCode::CONFLICT, "claim_in_progress", "the first request with this key is still under way; try again later")
        }
        Error::Held => (
            StatusCode::CONFLICT,
            "claim_held",
            "the first request with this key broke down in mid-way; it waits until a person has looked",
        ),
        Error::FingerprintMismatch => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "fingerprint_mismatch",
            "this key was used for another request; use a new key for a new request",
        ),
        Error::Lost => {
            (StatusCode::CONFLICT, "claim_lost", "another request with this key has taken over; ask again for its answer")
        }
        // What exactly, the operator sees in the store's own log; callers need not know our addresses.
        _ => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "the request was not begun; send it again later"),
    };
    (status, code, detail.to_owned())
}
