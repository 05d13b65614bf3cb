//! Where a bot would tell its provider where it is: hapax knows, and nothing changes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hapax_domain::address::hide_userinfo;
use hapax_providers::dropin::{Refusal, telegram};
use http::request::Parts;
use http::{Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::admission::Served;
use super::{DropIns, reply};

const NO_POLLING: &str = "hapax delivers updates to the channel's `target`: run the bot with a webhook there, or take `target` out of the channel's config";

/// A certificate may come with it.
const BODY_MAX_BYTES: usize = 1 << 20;
const BODY_TIME: Duration = Duration::from_secs(30);

impl DropIns {
    /// Many bots do this at their start, and die when it is refused.
    pub(super) async fn set_webhook(&self, served: &Arc<Served>, head: &Parts, body: Incoming) -> Response<Body> {
        let body = drain(body).await;
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        // Without an address it is a `deleteWebhook`.
        let set = telegram::webhook_url(head.uri.query(), content_type, &body).is_some();
        served.telemetry.webhook_asked_for("setWebhook");
        reply::of(telegram::done(Some(if set { "Webhook was set" } else { "Webhook was deleted" })))
    }

    pub(super) async fn delete_webhook(&self, served: &Arc<Served>, body: Incoming) -> Response<Body> {
        drain(body).await;
        served.telemetry.webhook_asked_for("deleteWebhook");
        reply::of(telegram::done(Some("Webhook was deleted")))
    }

    /// For bots that poll: of channels that have no target.
    pub(super) async fn updates(&self, served: &Arc<Served>, head: &Parts, body: Incoming) -> Response<Body> {
        let body = drain(body).await;
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let asked = telegram::updates_asked(head.uri.query(), content_type, &body);
        served.telemetry.polled();
        match self.polling.poll(served.channel.name(), &asked).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => self.not_stored(served, &error),
            None => reply::of(served.adapter.reply(&Refusal::Refused(NO_POLLING.to_owned()))),
        }
    }

    pub(super) async fn webhook_info(&self, served: &Arc<Served>) -> Response<Body> {
        let name = served.channel.name();
        let stats = self.store.stats().await.unwrap_or_default();
        let waiting = stats.channels.iter().find(|counts| *counts.channel == **name).map_or(0, |counts| counts.waiting);
        let url = served.channel.settings.target.as_deref().map(hide_userinfo).unwrap_or_default();
        reply::of(telegram::webhook_info(&telegram::WebhookInfo { url, pending: waiting, ..telegram::WebhookInfo::default() }))
    }
}

/// Reads to the end, so that the caller sees the answer.
async fn drain(body: Incoming) -> Bytes {
    let read = tokio::time::timeout(BODY_TIME, Limited::new(body, BODY_MAX_BYTES).collect()).await;
    read.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default()
}
