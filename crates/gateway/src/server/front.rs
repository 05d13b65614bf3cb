//! The first look at every request: webhooks go straight to ingress, the rest to the routes that are served here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use hapax_store::{Promise, Store, in_time};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::api::{Auth, Problem, Scope, rfc3339};
use crate::connections::client::Client;
use crate::connections::peer::Peer;
use crate::dropin::DropIns;
use crate::ingress::spool::Spool;
use crate::ingress::{self, Ingress};
use crate::settings::OnStoreFailure;
use crate::telemetry::{DownTarget, Telemetry};

/// What one listener serves.
pub(super) struct Front {
    /// `None` on a listener of its own for the admin surface.
    pub(super) ingress: Option<Arc<Ingress>>,
    /// Who serves bots by their provider's API, where that is done here.
    pub(super) bots: Option<Arc<DropIns>>,
    pub(super) routes: Router,
}

impl Front {
    pub(super) async fn handle(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        client: Client,
    ) -> http::Response<Either<Full<Bytes>, Body>> {
        // Before the router: webhooks are nearly all there is, and need none of what it does.
        if let Some(ingress) = &self.ingress
            && request.uri().path().starts_with(ingress::PATH)
        {
            return ingress.handle(request, Some(&client)).await.map(Either::Left);
        }
        client.sign(&mut request);
        let request = match &self.bots {
            Some(bots) => match Box::pin(Arc::clone(bots).handle(request)).await {
                Ok(response) => return response.map(Either::Right),
                Err(request) => request,
            },
            None => request,
        };
        match self.routes.clone().oneshot(request.map(Body::new)).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }
}

#[derive(Clone)]
pub(super) struct Vitals {
    store: Arc<dyn Store>,
    in_trouble: Arc<InTrouble>,
    telemetry: Arc<Telemetry>,
    pinged: Arc<Mutex<Option<Ping>>>,
}

/// What is done with webhooks while the store is away.
pub(super) struct InTrouble {
    /// By channel.
    pub(super) channels: Vec<(String, OnStoreFailure)>,
    pub(super) spool: Option<Arc<Spool>>,
}

impl InTrouble {
    /// True when every channel still has an answer for its provider.
    async fn is_met(&self) -> bool {
        let any = |wanted| self.channels.iter().any(|(_, does)| *does == wanted);
        let spools = match &self.spool {
            Some(spool) => spool.ping().await.is_ok(),
            None => false,
        };
        !self.channels.is_empty() && !any(OnStoreFailure::Retry) && (spools || !any(OnStoreFailure::Spool))
    }
}

/// When the store was last pinged, and what was wrong then.
struct Ping {
    at: Instant,
    trouble: Option<String>,
}

/// A ping writes to disk and anybody may ask: all who ask within this time share one.
const PING_HOLDS: Duration = Duration::from_secs(1);

/// A store that takes longer to answer is not ready.
const PING_PATIENCE: Duration = Duration::from_millis(1_500);

impl Vitals {
    pub(super) fn new(store: Arc<dyn Store>, in_trouble: InTrouble, telemetry: Arc<Telemetry>) -> Self {
        Self { store, in_trouble: Arc::new(in_trouble), telemetry, pinged: Arc::default() }
    }

    /// What keeps the store from being written to, if anything.
    async fn trouble(&self) -> Option<String> {
        let mut pinged = self.pinged.lock().await;
        if let Some(last) = pinged.as_ref().filter(|last| last.at.elapsed() < PING_HOLDS) {
            return last.trouble.clone();
        }
        let trouble = in_time("pinging", PING_PATIENCE, self.store.ping()).await.err().map(|error| {
            self.telemetry.store_unavailable("ping", &error);
            error.to_string()
        });
        *pinged = Some(Ping { at: Instant::now(), trouble: trouble.clone() });
        trouble
    }
}

/// Who on a listener may know how hapax is doing inside.
#[derive(Clone)]
pub(super) enum Audience {
    /// Whoever reaches it: it is the admin surface's own.
    Everyone,
    /// Who has a token of scope `read`.
    TokenHolders(Arc<Auth>),
}

impl Audience {
    /// True when the request's token allows to look. A token that is wrong or of another scope is a problem.
    async fn may_look(&self, headers: &HeaderMap, peer: Option<Peer>) -> Result<(), Problem> {
        let Audience::TokenHolders(auth) = self else { return Ok(()) };
        let caller = auth.caller(headers, peer).await?;
        if !caller.may(Scope::Read) {
            return Err(Problem::forbidden("this takes a token of scope `read`"));
        }
        if caller.is_limited() {
            return Err(Problem::forbidden("this tells of all channels, and takes a token that is not limited to some"));
        }
        Ok(())
    }
}

/// Whether the process lives, and whether it can take webhooks.
pub(super) fn health(vitals: Vitals, audience: Audience) -> Router {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readyz)).with_state((vitals, audience))
}

pub(super) fn metrics(vitals: Vitals, audience: Audience) -> Router {
    let show = |State((vitals, audience)): State<(Vitals, Audience)>, peer: Option<Extension<Peer>>, headers: HeaderMap| async move {
        audience.may_look(&headers, peer.map(|peer| peer.0)).await?;
        Ok::<_, Problem>(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], vitals.telemetry.render()))
    };
    Router::new().route("/metrics", get(show)).with_state((vitals, audience))
}

/// Strangers hear whether hapax is ready, and no more.
async fn readyz(
    State((vitals, audience)): State<(Vitals, Audience)>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let in_full = match &audience {
        Audience::TokenHolders(_) if !headers.contains_key(header::AUTHORIZATION) => false,
        audience => audience.may_look(&headers, peer.map(|peer| peer.0)).await.map(|()| true)?,
    };
    let (status, body) = readiness(&vitals).await;
    let body = if in_full { body } else { serde_json::json!({ "status": body["status"] }) };
    Ok((status, axum::Json(body)).into_response())
}

async fn readiness(vitals: &Vitals) -> (StatusCode, serde_json::Value) {
    if let Some(why) = vitals.trouble().await {
        let (status, word) = match vitals.in_trouble.is_met().await {
            true => (StatusCode::OK, "ready"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "unready"),
        };
        let does: BTreeMap<_, _> = vitals.in_trouble.channels.iter().map(|(name, does)| (name, does.name())).collect();
        return (status, serde_json::json!({"status": word, "store": "down", "why": why, "on_store_failure": does}));
    }
    let mut body = match vitals.store.promise() {
        Promise::Full => serde_json::json!({"status": "ready", "promise": "full"}),
        Promise::Degraded(why) => serde_json::json!({"status": "ready", "promise": "degraded", "why": why}),
    };
    let full = vitals.telemetry.full_outboxes();
    if !full.is_empty() {
        body["full_outboxes"] = full.into();
    }
    let down = vitals.telemetry.down_targets();
    if !down.is_empty() {
        let shown = |down: &DownTarget| serde_json::json!({"channel": *down.channel, "target": down.target.as_deref(), "since": rfc3339(down.since_ms)});
        body["targets_down"] = down.iter().map(shown).collect();
    }
    let without_target = vitals.telemetry.channels_without_target();
    if !without_target.is_empty() {
        body["accounts_without_target"] = without_target.into();
    }
    (StatusCode::OK, body)
}
