//! `/v1/channels`: what is configured, without its secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::{Api, Problem};
use crate::config::{self, Config, Mode, OnPoison, hide_userinfo};
use crate::providers::samples;

#[derive(Serialize)]
pub(super) struct List {
    channels: Vec<Channel>,
}

#[derive(Serialize)]
struct Channel {
    name: String,
    provider: &'static str,
    /// Where the provider posts, below the server's own address.
    path: String,
    target: Option<String>,
    /// Whether messages can be sent through it.
    sends: bool,
    mode: &'static str,
    deliver: Vec<&'static str>,
    window_ms: i64,
    retention_ms: i64,
    attempts: u32,
    timeout_ms: i64,
    lease_ms: i64,
    concurrency: usize,
    on_poison: &'static str,
    park_on_4xx: bool,
    on_store_failure: &'static str,
    max_body: usize,
}

pub(super) async fn list(State(api): State<Arc<Api>>) -> Json<List> {
    Json(List { channels: api.config.channels.iter().map(|channel| Channel::of(&api.config, channel)).collect() })
}

/// What to make a sample of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskSample {
    /// `text`, or in full `whatsapp.text`.
    kind: String,
    /// The same nonce makes the same message, a copy.
    nonce: u64,
}

/// A request that passes the channel's check, ready to be posted.
#[derive(Serialize)]
pub(super) struct Sample {
    method: &'static str,
    path: String,
    headers: Vec<Header>,
    body_base64: String,
}

#[derive(Serialize)]
struct Header {
    name: String,
    value: String,
}

pub(super) async fn sample(
    State(api): State<Arc<Api>>,
    Path(name): Path<String>,
    ask: Result<Json<AskSample>, JsonRejection>,
) -> Result<Json<Sample>, Problem> {
    let Json(ask) = ask?;
    let provider = api
        .providers
        .get(name.as_str())
        .ok_or_else(|| Problem::not_found(format!("there is no channel `{name}`; GET /v1/channels lists them")))?;
    let wall_ms = api.clock.wall_ms();
    let wanted = if ask.kind.contains('.') { ask.kind } else { format!("{}.{}", provider.name(), ask.kind) };
    let sample =
        samples::sample(&wanted, ask.nonce, wall_ms).filter(|sample| sample.provider == provider.name()).ok_or_else(|| {
            let known = samples::list().iter().map(|(known, _)| *known).filter(|known| known.starts_with(provider.name()));
            let known = known.collect::<Vec<_>>().join(", ");
            Problem::bad_request(format!("there is no sample `{wanted}` for channel `{name}`; use one of {known}"))
        })?;
    let content_type = (http::header::CONTENT_TYPE, HeaderValue::from_static(sample.content_type));
    let headers = std::iter::once(content_type).chain(sample.headers).chain(provider.sign(&sample.body, wall_ms));
    Ok(Json(Sample {
        method: "POST",
        path: format!("/in/{name}"),
        headers: headers.map(Header::from).collect(),
        body_base64: STANDARD.encode(&sample.body),
    }))
}

impl From<(HeaderName, HeaderValue)> for Header {
    fn from((name, value): (HeaderName, HeaderValue)) -> Self {
        Self { name: name.to_string(), value: String::from_utf8_lossy(value.as_bytes()).into_owned() }
    }
}

impl Channel {
    fn of(config: &Config, channel: &config::Channel) -> Self {
        let kinds = channel.deliver.kinds.iter().map(|kind| kind.name());
        Self {
            name: channel.name.to_string(),
            provider: channel.provider.provider(),
            path: format!("/in/{}", channel.name),
            target: channel.target.as_deref().map(hide_userinfo),
            sends: channel.send.is_some(),
            mode: match channel.mode {
                Mode::Queue => "queue",
                Mode::Proxy => "proxy",
            },
            deliver: kinds.chain(channel.deliver.echoes.then_some("echo")).collect(),
            window_ms: channel.window_ms,
            retention_ms: channel.retention_ms,
            attempts: channel.retry.attempts,
            timeout_ms: channel.timeout_ms,
            lease_ms: channel.lease_ms,
            concurrency: channel.concurrency,
            on_poison: match channel.on_poison {
                OnPoison::Park => "park",
                OnPoison::Block => "block",
            },
            park_on_4xx: channel.park_on_4xx,
            on_store_failure: config.on_store_failure(channel).name(),
            max_body: channel.max_body,
        }
    }
}
