//! The admin token: kept as a hash, compared in constant time.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq;

use super::{Api, Problem};

/// What is kept of an admin token. Tokens are long and random, so a plain hash cannot be searched.
pub fn hash_token(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

/// Lets a request with `Authorization: Bearer TOKEN` pass and tells any other what is missing.
pub fn check(headers: &HeaderMap, token_hash: &[u8; 32]) -> Result<(), Problem> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
    match given {
        Some(token) if bool::from(hash_token(token).ct_eq(token_hash)) => Ok(()),
        Some(_) => Err(refused("this admin token is not the one this server knows")),
        None => Err(refused("the admin token is missing")),
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn refused(what: &str) -> Problem {
    let todo = "send `Authorization: Bearer TOKEN` with the token that the first start has written to hapax.token, or set \
                HAPAX_ADMIN_TOKEN for the server and use that";
    Problem::new(StatusCode::UNAUTHORIZED, "The admin token is needed", format!("{what}; {todo}"))
}

pub(super) async fn require(State(api): State<Arc<Api>>, request: Request, next: Next) -> Result<Response, Problem> {
    check(request.headers(), &api.token_hash)?;
    Ok(next.run(request).await)
}
