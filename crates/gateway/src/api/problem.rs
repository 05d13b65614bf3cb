//! Errors as RFC 9457 problems: what happened, and what to change.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use hapax_domain::BadDraft;
use hapax_domain::ids::BadId;
use hapax_domain::limits::PAGE_MAX;
use hapax_store::StoreError;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde::Serialize;
use utoipa::ToSchema;

use super::Code;
use super::idempotency::InDoubt;

const RETRY_AFTER_S: u32 = 2;

/// An answer that is no success.
#[derive(Debug)]
pub struct Problem {
    code: Code,
    detail: String,
    retry_after_s: Option<u32>,
    /// Nobody can say whether what was asked for was done.
    in_doubt: bool,
}

/// An error, as RFC 9457 has it.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Wire {
    /// Always `about:blank`: `code` tells errors apart.
    r#type: &'static str,
    title: &'static str,
    /// The status code once more.
    status: u16,
    /// What happened, and what to change. For people: its words may change.
    detail: String,
    /// What happened, for programs: its words never change.
    code: &'static str,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), retry_after_s: None, in_doubt: false }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, detail)
    }

    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(Code::Unprocessable, detail)
    }

    pub(super) fn too_late(detail: impl Into<String>) -> Self {
        Self::new(Code::TooLate, detail)
    }

    pub(super) fn lease_lost(detail: impl Into<String>) -> Self {
        Self::new(Code::LeaseLost, detail)
    }

    /// Another instance, or this one when it is back, has an answer.
    pub(crate) fn stopping() -> Self {
        let detail = "this instance gives out no more work; try again in a moment";
        Self::new(Code::Stopping, detail).retry_after(RETRY_AFTER_S)
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(Code::Unauthorized, detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, detail)
    }

    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(Code::TooMany, detail).retry_after(RETRY_AFTER_S)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Code::NotFound, detail)
    }

    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// In how many seconds the caller may come again.
    pub(super) fn retries_after(&self) -> Option<u32> {
        self.retry_after_s
    }

    /// What happened, in both ways.
    pub(crate) fn told(self) -> (Code, String) {
        (self.code, self.detail)
    }

    /// Says more at the end.
    pub(super) fn and(self, words: &str) -> Self {
        Self { detail: self.detail + words, ..self }
    }

    /// Asks the caller to come again after this time.
    pub(super) fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }
}

impl From<BadDraft> for Problem {
    fn from(bad: BadDraft) -> Self {
        let detail = bad.to_string();
        match bad {
            BadDraft::TooLarge => Self::new(Code::TooLarge, detail),
            _ => Self::unprocessable(detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (code, status) = (self.code, self.status());
        let wire =
            Wire { r#type: "about:blank", title: code.title(), status: status.as_u16(), detail: self.detail, code: code.name() };
        let mut response = (status, axum::Json(wire)).into_response();
        response.extensions_mut().insert(code);
        if self.in_doubt {
            response.extensions_mut().insert(InDoubt);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hapax\""));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let retryable = error.retryable();
        let code = match error {
            StoreError::OutboxFull { .. } => Code::OutboxFull,
            _ if retryable => Code::StoreUnavailable,
            _ => Code::StoreRefused,
        };
        let in_doubt = matches!(error, StoreError::Failed { .. });
        let todo = if retryable { "; try again in a moment" } else { "; the server's log says more" };
        Self { retry_after_s: retryable.then_some(RETRY_AFTER_S), in_doubt, ..Self::new(code, format!("{error}{todo}")) }
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(in_plain_words(&rejection.body_text()))
    }
}

/// Says which parameter it is, and what to write in its place.
fn in_plain_words(said: &str) -> String {
    let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    let Some((name, why)) = said.split_once(": ").filter(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    else {
        return format!("the query cannot be read: {said}; see /openapi.json for what it may hold");
    };
    let todo = match name {
        "limit" => format!("write a whole number from 1 to {PAGE_MAX}, like ?limit=50"),
        _ if why.contains("digit") || why.contains("number") => format!("write a whole number, like ?{name}=50"),
        _ if why.contains("true") => format!("write ?{name}=true or ?{name}=false"),
        _ => "see /openapi.json for what it may hold".to_owned(),
    };
    format!("`{name}` cannot be read ({why}); {todo}")
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let code = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
            StatusCode::UNPROCESSABLE_ENTITY => Code::Unprocessable,
            _ => Code::InvalidRequest,
        };
        match code {
            Code::TooLarge => {
                Self::new(code, "the body is longer than this request takes; send less, or keep what is long elsewhere")
            }
            _ => Self::new(code, rejection.body_text()),
        }
    }
}

impl From<BadId> for Problem {
    fn from(bad: BadId) -> Self {
        Self::bad_request(bad.to_string())
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let known = super::openapi::resources().join(", ");
    Problem::new(Code::NoSuchPath, format!("`/v1{path}` is not a resource; there are {known}"))
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("`/v1{}` does not take {method}; the `Allow` header names what it takes", uri.path());
    Problem::new(Code::MethodNotAllowed, detail)
}

/// For paths beside `/v1`.
pub(crate) async fn nothing_here(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(Code::NoSuchPath, format!("there is nothing at `{path}`; docs/api.md tells what is where"))
}

/// For paths beside `/v1`.
pub(crate) async fn other_method(method: Method) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("this does not take {method}; the `Allow` header names what it takes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_may_recover_is_a_503_with_a_time_to_come_back() {
        let response = Problem::from(StoreError::Busy).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "2");
        let response = Problem::from(StoreError::Refused("a newer schema".to_owned())).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!response.headers().contains_key("retry-after"));
    }

    #[test]
    fn a_parameter_that_cannot_be_read_is_named_with_what_to_write() {
        for (said, words) in [
            ("Failed to deserialize query string: limit: invalid digit found in string", "?limit=50"),
            ("Failed to deserialize query string: unknown: provided string was not `true` or `false`", "?unknown=true"),
            ("Failed to deserialize query string: duplicate field `limit`", "the query cannot be read: duplicate field"),
        ] {
            let shown = in_plain_words(said);
            assert!(shown.contains(words) && !shown.contains("deserialize"), "{shown}");
        }
    }
}
