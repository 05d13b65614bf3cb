//! The pages: what a person sees of a running hapax, and does there. Made on the server, live by SSE, readable without a script.
//!
//! A page asks the functions behind `/v1`, with the same caller, and decides only how their answers look. A request passes the guard (host,
//! origin), then the session, then its page.
//!
//! *Invariant:* no page reads the store by itself, and none has a script or a style inside.

mod accounts;
mod assets;
mod audit;
mod audited;
mod bubbles;
mod bulk;
mod channels;
mod charts;
mod claims;
mod components;
mod cookies;
mod docs;
mod event;
mod events;
mod flash;
mod guard;
mod headers;
mod history;
mod hosts;
mod icons;
mod layout;
mod live;
mod once;
mod outbox;
mod overview;
mod parked;
mod session;
mod set_up;
mod settings;
mod shared;
mod sign_in;
mod thread;
mod threads;
mod tokens;
mod trouble;
mod visitor;
mod wizard;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use secrecy::SecretString;

use crate::api::{Api, Counting};
use crate::connections::peer::Proxies;

pub use hosts::Hosts;
pub use live::LivePages;

/// Largest form that a page sends: a text, each sign of which may take nine.
const FORM_MAX_BYTES: usize = 1 << 20;

/// All that pages work with.
pub struct Web {
    pub api: Arc<Api>,
    /// By which names the pages may be reached.
    pub hosts: Hosts,
    /// Whose word on `https` counts.
    pub proxies: Proxies,
    pub live: Arc<LivePages>,
    /// How much there is, counted for all who look.
    pub counting: Counting,
    /// Where channels stand.
    pub config_file: Option<Arc<dyn ConfigFile>>,
    /// What this server runs with, by the names of the config, without secrets.
    pub shown: Vec<(&'static str, String)>,
}

/// The file that channels stand in, as far as pages may touch it.
pub trait ConfigFile: Send + Sync {
    /// As people know it.
    fn name(&self) -> String;

    /// Why pages may not write it; nothing: they may.
    fn closed(&self) -> Option<String>;

    /// Adds a channel at its end, if the whole of it is good then. What is wrong is told without secrets.
    fn add(&self, channel: &NewChannel) -> Result<(), String>;
}

/// A channel as it is to stand in the file.
pub struct NewChannel {
    pub name: String,
    /// With their values, in order; some are secret.
    pub keys: Vec<(&'static str, SecretString)>,
}

/// Makes the pages.
pub fn router(web: Arc<Web>) -> Router {
    let pages = Router::new()
        .route("/", get(overview::show))
        .route("/events", get(events::list))
        .route("/events/{id}", get(event::show))
        .route("/events/{id}/replay", post(event::replay))
        .route("/events/{id}/redrive", post(event::redrive))
        .route("/docs", get(docs::show))
        .merge(talks())
        .merge(desks())
        .route("/live", get(live::stream))
        .route("/sign-out", post(sign_in::sign_out))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&web), audited::note))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&web), session::need));
    let open = Router::new().route("/sign-in", get(sign_in::form).post(sign_in::enter)).route(assets::ROUTE, get(assets::serve));
    pages
        .merge(open)
        .layer(DefaultBodyLimit::max(FORM_MAX_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&web), guard::check))
        .layer(middleware::map_response(headers::add))
        .with_state(web)
}

/// Who talks with whom.
fn talks() -> Router<Arc<Web>> {
    Router::new()
        .route("/threads", get(threads::list))
        .route("/threads/{id}", get(thread::show))
        .route("/threads/{id}/send", post(thread::send))
        .route("/threads/{id}/pause", post(thread::pause))
        .route("/threads/{id}/resume", post(thread::resume))
        .route("/threads/{id}/read", post(thread::read))
        .route("/messages/{id}/{verb}", post(thread::message))
        .route("/outbox", get(outbox::list))
        .route("/outbox/{verb}", post(outbox::bulk))
}

/// What people see to, and set.
fn desks() -> Router<Arc<Web>> {
    Router::new()
        .route("/parked", get(parked::list))
        .route("/parked/redrive", post(parked::redrive))
        .route("/claims", get(claims::list))
        .route("/claims/delete", post(claims::delete))
        .route("/claims/end", post(claims::end))
        .route("/claims/all/{verb}", post(claims::bulk))
        .route("/accounts", get(accounts::list))
        .route("/accounts/resume", post(accounts::resume))
        .route("/accounts/all/resume", post(accounts::resume_all))
        .route("/channels", get(channels::list))
        .route("/channels/{name}", get(channels::show))
        .route("/channels/{name}/trigger", post(channels::trigger))
        .route("/new-channel", get(wizard::begin).post(wizard::plan))
        .route("/new-channel/write", post(wizard::write))
        .route("/tokens", get(tokens::list).post(tokens::create))
        .route("/tokens/{name}/revoke", post(tokens::revoke))
        .route("/audit", get(audit::list))
        .route("/settings", get(settings::show))
}
