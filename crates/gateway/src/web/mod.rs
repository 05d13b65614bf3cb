//! The pages: what a person sees of a running hapax, and does there. Made on the server, live by SSE, readable without a script.
//!
//! A page asks the functions behind `/v1`, with the same caller, and decides only how their answers look. A request passes the guard (host,
//! origin), then the session, then its page.
//!
//! *Invariant:* no page reads the store by itself, and none has a script or a style inside.

mod assets;
mod components;
mod cookies;
mod docs;
mod event;
mod events;
mod flash;
mod guard;
mod headers;
mod hosts;
mod icons;
mod layout;
mod live;
mod overview;
mod session;
mod sign_in;
mod trouble;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};

use crate::api::Api;
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
    pub live: LivePages,
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
        .route("/live", get(live::stream))
        .route("/sign-out", post(sign_in::sign_out))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&web), session::need));
    let open = Router::new().route("/sign-in", get(sign_in::form).post(sign_in::enter)).route(assets::ROUTE, get(assets::serve));
    pages
        .merge(open)
        .layer(DefaultBodyLimit::max(FORM_MAX_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&web), guard::check))
        .layer(middleware::map_response(headers::add))
        .with_state(web)
}
