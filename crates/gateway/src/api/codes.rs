//! Every way in which an answer of `/v1` can be no success, by a name that programs may rely on. docs/api.md tells what to do about each.

use http::StatusCode;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    InvalidRequest,
    InvalidCursor,
    InvalidFilter,
    Unauthorized,
    Forbidden,
    NotFound,
    NoSuchPath,
    MethodNotAllowed,
    BodyTimeout,
    TooLate,
    NameTaken,
    IdempotencyInProgress,
    IdempotencyInDoubt,
    ClaimInProgress,
    ClaimLost,
    ClaimHeld,
    LeaseLost,
    DeliveryInProgress,
    TooLarge,
    UnsupportedMediaType,
    Unprocessable,
    RequestIdMismatch,
    IdempotencyMismatch,
    FingerprintMismatch,
    TooMany,
    StoreRefused,
    StoreUnavailable,
    OutboxFull,
    ClaimsFull,
    Overloaded,
    Stopping,
    TargetFailed,
    TargetTimeout,
}

impl Code {
    pub const ALL: [Code; 33] = [
        Code::InvalidRequest,
        Code::InvalidCursor,
        Code::InvalidFilter,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::NoSuchPath,
        Code::MethodNotAllowed,
        Code::BodyTimeout,
        Code::TooLate,
        Code::NameTaken,
        Code::IdempotencyInProgress,
        Code::IdempotencyInDoubt,
        Code::ClaimInProgress,
        Code::ClaimLost,
        Code::ClaimHeld,
        Code::LeaseLost,
        Code::DeliveryInProgress,
        Code::TooLarge,
        Code::UnsupportedMediaType,
        Code::Unprocessable,
        Code::RequestIdMismatch,
        Code::IdempotencyMismatch,
        Code::FingerprintMismatch,
        Code::TooMany,
        Code::StoreRefused,
        Code::StoreUnavailable,
        Code::OutboxFull,
        Code::ClaimsFull,
        Code::Overloaded,
        Code::Stopping,
        Code::TargetFailed,
        Code::TargetTimeout,
    ];

    /// The name on the wire: once released, it never changes.
    pub fn name(self) -> &'static str {
        self.parts().1
    }

    pub fn status(self) -> StatusCode {
        self.parts().0
    }

    /// What people read.
    pub fn title(self) -> &'static str {
        self.parts().2
    }

    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Code::InvalidRequest => (StatusCode::BAD_REQUEST, "invalid_request", "The request cannot be read"),
            Code::InvalidCursor => (StatusCode::BAD_REQUEST, "invalid_cursor", "The cursor is not one of this list"),
            Code::InvalidFilter => (StatusCode::BAD_REQUEST, "invalid_filter", "The filter cannot be read"),
            Code::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "A token is needed"),
            Code::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "The token does not allow this"),
            Code::NotFound => (StatusCode::NOT_FOUND, "not_found", "There is no such thing"),
            Code::NoSuchPath => (StatusCode::NOT_FOUND, "no_such_path", "There is no such path"),
            Code::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "The method does not fit"),
            Code::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout", "The body came too slowly"),
            Code::TooLate => (StatusCode::CONFLICT, "too_late", "It is too late for that"),
            Code::NameTaken => (StatusCode::CONFLICT, "name_taken", "The name is taken"),
            Code::IdempotencyInProgress => (StatusCode::CONFLICT, "idempotency_in_progress", "The first request still runs"),
            Code::IdempotencyInDoubt => {
                (StatusCode::CONFLICT, "idempotency_in_doubt", "Nobody knows how the first request ended")
            }
            Code::ClaimInProgress => (StatusCode::CONFLICT, "claim_in_progress", "Another holds this claim"),
            Code::ClaimLost => (StatusCode::CONFLICT, "claim_lost", "The claim is not yours any more"),
            Code::ClaimHeld => (StatusCode::CONFLICT, "claim_held", "The claim waits for a person"),
            Code::LeaseLost => (StatusCode::CONFLICT, "lease_lost", "The lease is not yours any more"),
            Code::DeliveryInProgress => (StatusCode::CONFLICT, "delivery_in_progress", "The first request still runs"),
            Code::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The request is too large"),
            Code::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The content type does not fit")
            }
            Code::Unprocessable => (StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", "The request cannot be done as it is"),
            Code::RequestIdMismatch => {
                (StatusCode::UNPROCESSABLE_ENTITY, "request_id_mismatch", "The request id belongs to another message")
            }
            Code::IdempotencyMismatch => {
                (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch", "The key belongs to another request")
            }
            Code::FingerprintMismatch => {
                (StatusCode::UNPROCESSABLE_ENTITY, "fingerprint_mismatch", "The key belongs to another job")
            }
            Code::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too_many", "Too many at once"),
            Code::StoreRefused => (StatusCode::INTERNAL_SERVER_ERROR, "store_refused", "The store refused"),
            Code::StoreUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "The store cannot answer now"),
            Code::OutboxFull => (StatusCode::SERVICE_UNAVAILABLE, "outbox_full", "The outbox of this account is full"),
            Code::ClaimsFull => (StatusCode::SERVICE_UNAVAILABLE, "claims_full", "There is no room for more claims"),
            Code::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Too much is being handled at once"),
            Code::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping", "hapax stops"),
            Code::TargetFailed => (StatusCode::BAD_GATEWAY, "target_failed", "The target did not take it"),
            Code::TargetTimeout => (StatusCode::GATEWAY_TIMEOUT, "target_timeout", "The target has not answered yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own_and_a_row_in_the_document() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
        let page = std::fs::read_to_string(page).expect("docs/api.md");
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        for code in Code::ALL {
            let row = format!("| `{}` | {} |", code.name(), code.status().as_u16());
            assert!(page.contains(&row), "docs/api.md has no row that begins with {row}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
