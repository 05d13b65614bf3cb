//! `/v1/sign-in-links`: a link that opens the web pages once, for whoever holds it, as the holder of the token that asked. Of a link only a
//! hash is kept, for minutes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_store::{Store, StoreError};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::{OF_PAGES, hash_token};
use super::time::rfc3339;
use super::{Api, Auth, Caller, Problem, TokenHash};

const KEEP_MS: i64 = 10 * 60_000;

#[derive(Serialize, ToSchema)]
#[schema(as = SignInLink)]
pub(crate) struct Link {
    /// Below the server's own address.
    path: String,
    /// The whole, where the server's `public_url` is known.
    url: Option<String>,
    ends_at: String,
}

/// Makes a link that signs a browser in, once and soon, as this token.
#[utoipa::path(
    post,
    path = "/sign-in-links",
    operation_id = "makeSignInLink",
    tag = "tokens",
    responses((status = 201, description = "The link, shown this once", body = Link)),
)]
pub(crate) async fn make(State(api): State<Arc<Api>>, caller: Caller) -> Result<(StatusCode, Json<Link>), Problem> {
    let path = new(&api.auth, &*api.store, caller.token).await?;
    let url = api.public_url.as_ref().map(|base| format!("{base}{path}"));
    Ok((StatusCode::CREATED, Json(Link { path, url, ends_at: rfc3339(api.clock.now_ms() + KEEP_MS) })))
}

/// The path of a new link for the holder of this token.
pub(crate) async fn new(auth: &Auth, store: &dyn Store, token: TokenHash) -> Result<String, StoreError> {
    let code = auth.make_word();
    store.amend(&register(&code), None, Some(&hex::encode(token.0)), Some(KEEP_MS)).await?;
    Ok(format!("/sign-in?code={code}"))
}

/// Whose link this is, which is used up by that. `None`: it was used before, it is too old, or there never was one.
pub(crate) async fn take(auth: &Auth, store: &dyn Store, code: &str) -> Result<Option<TokenHash>, StoreError> {
    if !auth.has_made(code) {
        return Ok(None);
    }
    let register = register(code);
    let Some(kept) = store.amend(&register, None, None, None).await? else { return Ok(None) };
    // Of two who come at once, the one who puts the mark there has it.
    let mark = hex::encode(rand::random::<[u8; 16]>());
    let won = store.amend(&register, Some(&kept), Some(&mark), Some(KEEP_MS)).await? == Some(mark);
    let mut hash = [0; 32];
    Ok((won && hex::decode_to_slice(&kept, &mut hash).is_ok()).then_some(TokenHash(hash)))
}

fn register(code: &str) -> String {
    format!("{OF_PAGES}link:{}", hex::encode(hash_token(code)))
}
