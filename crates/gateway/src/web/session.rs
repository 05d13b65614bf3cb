//! Sessions: a random word in a cookie, of which the store keeps a hash, the token it was made with, and an end. All instances know it; with its
//! token it is gone.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hapax_store::{Store, StoreError};
use http::{HeaderMap, HeaderValue, Method, header};

use super::flash::Flash;
use super::guard::is_https;
use super::trouble::{Said, Trouble};
use super::visitor::{Visitor, zone_ms};
use super::{Web, cookies, sign_in};
use crate::api::auth::{OF_PAGES, hash_token};
use crate::api::{Caller, Scope, TokenHash};
use crate::connections::peer::Peer;
use crate::connections::places::Standing;

const KEEP_MS: i64 = 7 * 86_400_000;
/// Longer than any session that was made in it.
const ROUND_KEEP_MS: i64 = KEEP_MS + 86_400_000;
/// Somebody else may end all sessions at the same time, but hardly this often.
const CHANGE_TRIES: u32 = 20;
/// A script that looks for news asks with this header: what was told stays for the person.
pub(super) const LIVE_HEADER: &str = "hapax-live";

/// Browsers take a `__Host-` cookie only from this very host, over https.
pub(super) fn cookie_name(https: bool) -> &'static str {
    if https { "__Host-hapax" } else { "hapax" }
}

/// Lets those pass who have signed in; others are sent to do so.
pub(super) async fn need(State(web): State<Arc<Web>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let visitor = match find(&web, request.headers(), peer).await {
        Ok(Some(visitor)) => visitor,
        Ok(None) => return sign_in::first(&web, request).await,
        Err(error) => return Trouble::from(error).into_response(),
    };
    if let Err(problem) = visitor.caller.need(Scope::Read) {
        return Trouble::from(problem).into_response();
    }
    request.extensions().get::<Standing>().inspect(|standing| standing.proved());
    let shows_flash = visitor.flash.is_some() && request.method() == Method::GET;
    request.extensions_mut().insert(visitor.clone());
    let mut response = next.run(request).await;
    if let Some(said) = response.extensions_mut().remove::<Said>() {
        *response.body_mut() = said.to(&visitor).into_string().into();
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    if shows_flash && response.status().is_success() {
        Flash::forget(&mut response);
    }
    response
}

/// Who sent this, if that is known.
pub(super) async fn find(web: &Web, headers: &HeaderMap, peer: Option<Peer>) -> Result<Option<Visitor>, StoreError> {
    let Some(word) = cookies::read(headers, cookie_name(is_https(web, headers, peer))) else { return Ok(None) };
    if !web.api.auth.has_made(word) {
        return Ok(None);
    }
    let session = register(word);
    let Some(caller) = caller_of(web, &session).await? else { return Ok(None) };
    let live = headers.contains_key(LIVE_HEADER);
    let flash = Flash::read(headers).filter(|_| !live);
    Ok(Some(Visitor { caller, now_ms: web.api.clock.now_ms(), flash, zone_ms: zone_ms(headers), session, live }))
}

/// Whose session this is, as long as it and its token hold.
pub(super) async fn caller_of(web: &Web, session: &str) -> Result<Option<Caller>, StoreError> {
    let store = &*web.api.store;
    let Some(kept) = look(store, session).await? else { return Ok(None) };
    let Some((token, round)) = parse(&kept) else { return Ok(None) };
    if look(store, &round_of(token)).await?.unwrap_or_default() != round {
        return Ok(None);
    }
    Ok(web.api.auth.still_believes(&token.0).await)
}

/// Makes a session for the holder of a token, and the cookie that goes with it.
pub(super) async fn open(web: &Web, token: TokenHash, https: bool) -> Result<Option<HeaderValue>, StoreError> {
    let store = &*web.api.store;
    let word = web.api.auth.make_word();
    let round_register = round_of(token);
    let round = look(store, &round_register).await?;
    if let Some(round) = &round {
        // It must outlive the session.
        store.amend(&round_register, Some(round), Some(round), Some(ROUND_KEEP_MS)).await?;
    }
    let kept = format!("{} {}", hex::encode(token.0), round.unwrap_or_default());
    store.amend(&register(&word), None, Some(&kept), Some(KEEP_MS)).await?;
    Ok(cookies::set(cookie_name(https), &word, KEEP_MS / 1_000, https))
}

/// Ends one session.
pub(super) async fn close(store: &dyn Store, session: &str) -> Result<(), StoreError> {
    let mut kept = look(store, session).await?;
    while let Some(value) = kept {
        kept = store.amend(session, Some(&value), None, None).await?;
    }
    Ok(())
}

/// Ends all sessions of a token.
pub(super) async fn close_all(store: &dyn Store, token: TokenHash) -> Result<(), StoreError> {
    let register = round_of(token);
    let next = hex::encode(rand::random::<[u8; 16]>());
    let mut kept = look(store, &register).await?;
    for _ in 0..CHANGE_TRIES {
        let now = store.amend(&register, kept.as_deref(), Some(&next), Some(ROUND_KEEP_MS)).await?;
        if now.as_ref() == Some(&next) {
            return Ok(());
        }
        kept = now;
    }
    Err(StoreError::Busy)
}

/// Takes the cookies back, by both names.
pub(super) fn forget() -> impl Iterator<Item = HeaderValue> {
    [true, false].into_iter().filter_map(|https| cookies::set(cookie_name(https), "", 0, https))
}

async fn look(store: &dyn Store, register: &str) -> Result<Option<String>, StoreError> {
    store.amend(register, None, None, None).await
}

fn register(word: &str) -> String {
    format!("{OF_PAGES}session:{}", hex::encode(hash_token(word)))
}

fn round_of(token: TokenHash) -> String {
    format!("{OF_PAGES}round:{}", hex::encode(token.0))
}

fn parse(kept: &str) -> Option<(TokenHash, &str)> {
    let (token, round) = kept.split_once(' ')?;
    let mut hash = [0; 32];
    hex::decode_to_slice(token, &mut hash).ok()?;
    Some((TokenHash(hash), round))
}
