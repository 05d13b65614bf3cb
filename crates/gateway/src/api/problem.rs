//! Errors as RFC 9457 problems: what happened, and what to change.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use hapax_domain::BadDraft;
use hapax_domain::ids::BadId;
use hapax_store::StoreError;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde::Serialize;

const RETRY_AFTER_S: u32 = 2;

/// An answer that is no success.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    retry_after_s: Option<u32>,
}

#[derive(Serialize)]
struct Wire<'p> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'p str,
}

impl Problem {
    pub fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, title, detail: detail.into(), retry_after_s: None }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "The request cannot be read", detail)
    }

    pub(super) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "The request cannot be done as it is", detail)
    }

    pub(super) fn too_late(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "It is too late for that", detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "The token does not allow this", detail)
    }

    pub(super) fn too_many(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "Too many at once", detail);
        Self { retry_after_s: Some(RETRY_AFTER_S), ..problem }
    }

    /// Says more at the end.
    pub(super) fn and(self, words: &str) -> Self {
        Self { detail: self.detail + words, ..self }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "There is no such thing", detail)
    }
}

impl From<BadDraft> for Problem {
    fn from(bad: BadDraft) -> Self {
        let detail = bad.to_string();
        match bad {
            BadDraft::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "The message is too large", detail),
            _ => Self::unprocessable(detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let wire = Wire { r#type: "about:blank", title: self.title, status: self.status.as_u16(), detail: &self.detail };
        let mut response = (self.status, axum::Json(wire)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hapax\""));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let retryable = error.retryable();
        let (status, title) = match retryable {
            true if matches!(error, StoreError::OutboxFull { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "The outbox of this account is full")
            }
            true => (StatusCode::SERVICE_UNAVAILABLE, "The store cannot answer now"),
            false => (StatusCode::INTERNAL_SERVER_ERROR, "The store refused"),
        };
        let todo = if retryable { "; try again in a moment" } else { "; the server's log says more" };
        Self { retry_after_s: retryable.then_some(RETRY_AFTER_S), ..Self::new(status, title, format!("{error}{todo}")) }
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "The request cannot be read", rejection.body_text())
    }
}

impl From<BadId> for Problem {
    fn from(bad: BadId) -> Self {
        Self::bad_request(bad.to_string())
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!(
        "`/v1{}` is not a resource; there are /v1/messages, /v1/threads, /v1/outbox, /v1/accounts, /v1/events, /v1/inbox, /v1/redrive, \
         /v1/stats, /v1/purge, /v1/channels and /v1/tokens",
        uri.path()
    );
    Problem::not_found(detail)
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("`/v1{}` does not take {method}; the `Allow` header names what it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "The method does not fit", detail)
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
}
