//! `/v1`: what a person or a program may ask and tell a running hapax. One file per resource; every answer is a hand-made twin of a
//! domain type, and every error is a problem (RFC 9457) that says what to change.

mod accounts;
pub mod auth;
mod caller;
mod channels;
mod cursor;
mod events;
mod guesses;
mod inbox;
mod list;
mod messages;
mod origin;
mod outbox;
mod prefer;
mod problem;
mod purge;
mod redrive;
mod send;
mod send_story;
mod stats;
mod story;
mod thread_view;
mod threads;
mod time;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{self, Next};
use axum::routing::{delete, get, post};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;

use hapax_store::Store;
use hapax_store::clock::Clock;

use crate::channels::Channels;
use crate::ingress::spool::Spool;
use crate::telemetry::{Memory, Telemetry};

pub use auth::Auth;
pub use caller::{Caller, Scope};
use cursor::Cursors;
pub use problem::Problem;
pub use purge::{LastPurge, PurgeLog, purge_step};

/// The largest body any request to `/v1` needs.
const REQUEST_MAX_BYTES: usize = 64 << 10;

/// All that the admin surface works with.
pub struct Api {
    pub store: Arc<dyn Store>,
    pub channels: Channels,
    /// Whose tokens are believed.
    pub auth: Arc<Auth>,
    pub clock: Arc<dyn Clock>,
    /// Shared with the upkeep that purges by itself.
    pub purges: Arc<PurgeLog>,
    /// Tells what the memory in front of the store holds.
    pub memory: Box<dyn Fn() -> Memory + Send + Sync>,
    pub spool: Option<Arc<Spool>>,
    pub telemetry: Arc<Telemetry>,
    /// Hands a request to our own webhook door.
    pub post: Box<PostWebhook>,
}

/// What a provider would do: a request for `/in/{channel}`, and its answer.
pub type PostWebhook = dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync;

/// Makes the routes under `/v1`, each behind the scope it takes.
pub fn router(api: Arc<Api>) -> Router {
    let looks = Router::new()
        .route("/events", get(events::list))
        .route("/events/{id}", get(events::one))
        .route("/events/{id}/story", get(story::tell))
        .route("/inbox", get(inbox::list))
        .route("/stats", get(stats::stats))
        .route("/channels", get(channels::list))
        .route("/messages/{id}", get(messages::one))
        .route("/threads", get(threads::list))
        .route("/threads/{id}", get(threads::one))
        .route("/threads/{id}/messages", get(threads::messages))
        .route("/outbox", get(outbox::list))
        .route("/accounts", get(accounts::list));
    let sends = Router::new()
        .route("/messages", post(send::submit))
        .route("/messages/{id}/retry", post(messages::retry))
        .route("/messages/{id}/cancel", post(messages::cancel))
        .route("/threads/{id}/read", post(threads::read));
    let rules = Router::new()
        .route("/events/{id}/replay", post(events::replay))
        .route("/redrive", post(redrive::redrive))
        .route("/purge", post(purge::purge))
        .route("/channels/{name}/trigger", post(channels::trigger))
        .route("/accounts/{channel}/{account}/resume", post(accounts::resume))
        .route("/tokens", get(tokens::list).post(tokens::create))
        .route("/tokens/{name}", delete(tokens::revoke));
    let v1 = behind(Scope::Read, looks)
        .merge(behind(Scope::Send, sends))
        .merge(behind(Scope::Admin, rules))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .layer(middleware::from_fn_with_state(api.clone(), auth::identify))
        .with_state(api);
    Router::new().nest("/v1", v1)
}

fn behind(scope: Scope, routes: Router<Arc<Api>>) -> Router<Arc<Api>> {
    let need = move |caller: Caller, request: axum::extract::Request, next: Next| caller::need(scope, caller, request, next);
    routes.route_layer(middleware::from_fn(need))
}
