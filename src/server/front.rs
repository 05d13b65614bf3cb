//! The first look at every request: webhooks go straight to ingress, the rest to the routes that are served here.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::ingress::{self, Ingress};
use crate::store::{Promise, Store};
use crate::telemetry::Telemetry;

/// What one listener serves.
pub(super) struct Front {
    /// `None` on a listener of its own for the admin surface.
    pub(super) ingress: Option<Arc<Ingress>>,
    pub(super) routes: Router,
}

impl Front {
    pub(super) async fn handle(self: Arc<Self>, request: Request<Incoming>) -> http::Response<Either<Full<Bytes>, Body>> {
        // Before the router: webhooks are nearly all there is, and need none of what it does.
        if let Some(ingress) = &self.ingress
            && request.uri().path().starts_with(ingress::PATH)
        {
            return ingress.handle(request).await.map(Either::Left);
        }
        match self.routes.clone().oneshot(request.map(Body::new)).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }
}

#[derive(Clone)]
pub(super) struct Vitals {
    store: Arc<dyn Store>,
    telemetry: Arc<Telemetry>,
    pinged: Arc<Mutex<Option<Ping>>>,
}

/// When the store was last pinged, and what was wrong then.
struct Ping {
    at: Instant,
    trouble: Option<String>,
}

/// A ping writes to disk and anybody may ask: all who ask within this time share one.
const PING_HOLDS: Duration = Duration::from_secs(1);

impl Vitals {
    pub(super) fn new(store: Arc<dyn Store>, telemetry: Arc<Telemetry>) -> Self {
        Self { store, telemetry, pinged: Arc::default() }
    }

    /// What keeps the store from being written to, if anything.
    async fn trouble(&self) -> Option<String> {
        let mut pinged = self.pinged.lock().await;
        if let Some(last) = pinged.as_ref().filter(|last| last.at.elapsed() < PING_HOLDS) {
            return last.trouble.clone();
        }
        let trouble = self.store.ping().await.err().map(|error| {
            self.telemetry.store_unavailable("ping", &error);
            error.to_string()
        });
        *pinged = Some(Ping { at: Instant::now(), trouble: trouble.clone() });
        trouble
    }
}

/// Whether the process lives, and whether it can take webhooks.
pub(super) fn health(vitals: Vitals) -> Router {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readyz)).with_state(vitals)
}

pub(super) fn metrics(vitals: Vitals) -> Router {
    let show = |State(vitals): State<Vitals>| async move {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], vitals.telemetry.render())
    };
    Router::new().route("/metrics", get(show)).with_state(vitals)
}

async fn readyz(State(vitals): State<Vitals>) -> Response {
    let json = |status, body: serde_json::Value| (status, axum::Json(body)).into_response();
    if let Some(why) = vitals.trouble().await {
        return json(StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({"status": "unready", "why": why}));
    }
    match vitals.store.promise() {
        Promise::Full => json(StatusCode::OK, serde_json::json!({"status": "ready", "promise": "full"})),
        Promise::Degraded(why) => json(StatusCode::OK, serde_json::json!({"status": "ready", "promise": "degraded", "why": why})),
    }
}
