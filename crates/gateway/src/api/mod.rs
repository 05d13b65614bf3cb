//! `/v1`: what a person or a program may ask and tell a running hapax. One file per resource; every answer is a hand-made twin of a
//! domain type, and every error is a problem (RFC 9457) that says what to change.

pub(crate) mod accounts;
pub(crate) mod audit;
pub mod auth;
mod backup;
mod caller;
mod changing;
pub(crate) mod channels;
pub(crate) mod chat;
pub(crate) mod claims;
mod codes;
mod cors;
pub(crate) mod cursor;
pub(crate) mod down;
pub(crate) mod event_ref;
pub(crate) mod events;
pub(crate) mod feed;
pub(crate) mod filtered;
mod forget;
pub(crate) mod glance;
mod guesses;
pub(crate) mod history;
mod idempotency;
pub(crate) mod inbox;
mod lease_handle;
pub(crate) mod list;
pub(crate) mod messages;
mod notices;
pub(crate) mod openapi;
mod origin;
pub(crate) mod outbox;
mod outside;
mod payloads;
mod prefer;
mod problem;
mod pull;
mod purge;
pub(crate) mod redrive;
mod reload;
mod reply_story;
mod run_story;
mod seen;
pub(crate) mod send;
pub(crate) mod send_story;
pub(crate) mod sign_in_links;
pub(crate) mod stats;
pub(crate) mod story;
mod stream;
pub(crate) mod takeovers;
mod thread_view;
pub(crate) mod threads;
mod time;
pub(crate) mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, header};
use http_body_util::Full;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use hapax_domain::limits::ANSWER_MAX_BYTES;
use hapax_store::Store;
use hapax_store::clock::Clock;

use crate::backups::Backups;
use crate::channels::Channels;
use crate::delivery::Pull;
use crate::dropin::Books;
use crate::ingress::spool::Spool;
use crate::server::Reloads;
use crate::takeover::Takeovers;
use crate::telemetry::{Memory, Telemetry};

pub use audit::kept::Audit;
pub use auth::Auth;
pub use caller::{Caller, Scope, TokenHash};
pub use claims::ClaimDesk;
pub use codes::Code;
use cursor::Cursors;
pub use feed::Feed;
pub use history::kept::{History, Range};
pub(crate) use notices::Notices;
pub use openapi::document_json;
pub use problem::Problem;
pub(crate) use problem::{nothing_here, other_method};
pub use purge::{LastPurge, PurgeLog, purge_step};
pub use stats::Counting;
pub use stream::Streams;
pub(crate) use time::rfc3339;

/// The largest body any request to `/v1` needs.
const REQUEST_MAX_BYTES: usize = 64 << 10;

/// All that the admin surface works with.
pub struct Api {
    pub store: Arc<dyn Store>,
    pub channels: Channels,
    /// Whose tokens are believed.
    pub auth: Arc<Auth>,
    pub clock: Arc<dyn Clock>,
    /// Bodies and texts are shown as their lengths to callers without scope `admin`.
    pub hide_payloads: bool,
    /// How people reach this server, where that was told.
    pub public_url: Option<String>,
    /// Whose web pages may call.
    pub cors_origins: Vec<String>,
    /// Shared with the upkeep that purges by itself.
    pub purges: Arc<PurgeLog>,
    /// What was counted, shared with the upkeep that writes it down.
    pub history: Arc<History>,
    /// Who did what.
    pub audit: Arc<Audit>,
    /// Threads that people have taken over.
    pub takeovers: Arc<Takeovers>,
    /// Tells what the memory in front of the store holds.
    pub memory: Box<dyn Fn() -> Memory + Send + Sync>,
    pub spool: Option<Arc<Spool>>,
    /// Copies the store, for whoever may have all of it.
    pub backups: Arc<Backups>,
    pub telemetry: Arc<Telemetry>,
    /// The channels without a target, for workers that ask.
    pub pull: Arc<Pull>,
    /// New events, for all who listen.
    pub feed: Arc<Feed>,
    pub streams: Arc<Streams>,
    /// What handlers sent by their provider's own API.
    pub books: Arc<Books>,
    /// What claims are when callers say nothing else, and who waits for one.
    pub claims: Arc<ClaimDesk>,
    /// Has the config read anew.
    pub reloads: Reloads,
    /// Hands a request to our own ingress.
    pub post: Box<PostWebhook>,
}

/// What a provider would do: a request for `/in/{channel}`, and its answer.
pub type PostWebhook = dyn Fn(http::Request<Full<Bytes>>) -> BoxFuture<'static, http::Response<Full<Bytes>>> + Send + Sync;

/// Makes the routes under `/v1`, and the document that describes them.
pub fn router(api: Arc<Api>) -> Router {
    let (routes, _) = routes().split_for_parts();
    let v1 = routes
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .layer(middleware::from_fn_with_state(api.clone(), pass))
        .with_state(Arc::clone(&api));
    let all = Router::new().nest("/v1", v1).merge(openapi::route());
    match cors::layer(&api.cors_origins) {
        Some(cors) => all.layer(cors),
        None => all,
    }
}

/// Every resource behind the scope it takes, with its description.
fn routes() -> OpenApiRouter<Arc<Api>> {
    let looks = OpenApiRouter::new()
        .routes(routes!(events::list))
        .routes(routes!(events::one))
        .routes(routes!(story::tell))
        .routes(routes!(inbox::list))
        .routes(routes!(stats::stats))
        .routes(routes!(history::history))
        .routes(routes!(channels::list))
        .routes(routes!(messages::one))
        .routes(routes!(threads::list))
        .routes(routes!(threads::one))
        .routes(routes!(threads::messages))
        .routes(routes!(outbox::list))
        .routes(routes!(accounts::list))
        .routes(routes!(claims::list))
        .routes(routes!(stream::stream))
        .routes(routes!(sign_in_links::make));
    let sends = OpenApiRouter::new()
        .routes(routes!(send::submit))
        .routes(routes!(messages::retry))
        .routes(routes!(messages::cancel))
        .routes(routes!(threads::read))
        .routes(routes!(takeovers::pause))
        .routes(routes!(takeovers::resume));
    let settles = OpenApiRouter::new().routes(routes!(pull::settle)).route_layer(DefaultBodyLimit::max(ANSWER_MAX_BYTES));
    let claims = OpenApiRouter::new()
        .routes(routes!(claims::claim))
        .routes(routes!(claims::complete))
        .routes(routes!(claims::extend))
        .routes(routes!(claims::release))
        .routes(routes!(claims::batch))
        .route_layer(DefaultBodyLimit::max(claims::BODY_MAX_BYTES));
    let works = OpenApiRouter::new().routes(routes!(pull::pull)).routes(routes!(pull::extend)).merge(settles).merge(claims);
    let seen = OpenApiRouter::new().routes(routes!(seen::import)).route_layer(DefaultBodyLimit::max(seen::BODY_MAX_BYTES));
    let rules = OpenApiRouter::new()
        .merge(seen)
        .routes(routes!(events::replay))
        .routes(routes!(redrive::redrive))
        .routes(routes!(purge::purge))
        .routes(routes!(backup::backup))
        .routes(routes!(reload::reload))
        .routes(routes!(forget::forget))
        .routes(routes!(channels::trigger))
        .routes(routes!(accounts::resume))
        .routes(routes!(claims::delete))
        .routes(routes!(audit::list))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke));
    let looks = behind(Scope::Read, looks).merge(behind(Scope::Send, sends));
    looks.merge(behind(Scope::Work, works)).merge(behind(Scope::Admin, rules))
}

fn behind(scope: Scope, routes: OpenApiRouter<Arc<Api>>) -> OpenApiRouter<Arc<Api>> {
    let need = move |caller: Caller, request: Request, next: Next| caller::need(scope, caller, request, next);
    let mut routes = routes.route_layer(middleware::from_fn(need));
    openapi::behind(routes.get_openapi_mut(), scope);
    routes
}

/// In front of every resource: whose token it is, whether it was done before, what is noted of it. One layer for all of it, because each costs
/// every request a copy of those behind it. Answers are for the one who asked, and for now.
async fn pass(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let asked = async {
        let (caller, request) = auth::identify(&api, request).await?;
        idempotency::once(Arc::clone(&api), caller, request, next).await
    };
    let mut response = asked.await.into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
