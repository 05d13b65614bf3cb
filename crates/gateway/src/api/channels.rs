//! `/v1/channels`: what is configured, without its secrets, and samples to try it with.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use bytes::Bytes;
use hapax_domain::address::hide_userinfo;
use hapax_providers::{Unsigned, samples};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::down::{self, Down};
use super::{Api, Caller, Problem};
use crate::ingress::Counted;
use crate::settings::{self, Mode, OnPoison};

#[derive(Serialize, ToSchema)]
#[schema(as = Channels)]
pub(crate) struct List {
    pub(crate) channels: Vec<Channel>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Channel)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) provider: &'static str,
    /// Where the provider posts, below the server's own address.
    pub(crate) path: String,
    pub(crate) target: Option<String>,
    /// The targets of single accounts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) targets: BTreeMap<String, String>,
    /// Whether messages can be sent through it.
    pub(crate) sends: bool,
    pub(crate) mode: &'static str,
    pub(crate) deliver: Vec<&'static str>,
    pub(crate) window_ms: i64,
    pub(crate) retention_ms: i64,
    pub(crate) attempts: u32,
    pub(crate) timeout_ms: i64,
    pub(crate) lease_ms: i64,
    pub(crate) concurrency: usize,
    pub(crate) on_poison: &'static str,
    park_on_4xx: bool,
    pub(crate) on_store_failure: &'static str,
    pub(crate) max_body: usize,
    /// Its targets that are taken for dead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) down: Vec<Down>,
}

/// Lists what is configured, without its secrets.
#[utoipa::path(
    get,
    path = "/channels",
    operation_id = "listChannels",
    tag = "channels",
    responses((status = 200, description = "All of them", body = List)),
)]
pub(crate) async fn list(State(api): State<Arc<Api>>, caller: Caller) -> Json<List> {
    let seen = api.channels.iter().filter(|channel| caller.sees(channel.name()));
    let shown = seen.map(|channel| {
        let settings = &*channel.settings;
        Channel { down: down::of_channel(&api, settings), ..Channel::from(settings) }
    });
    Json(List { channels: shown.collect() })
}

/// What to make a sample of.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskTrigger {
    /// `text`, or in full `whatsapp.text`.
    pub(crate) kind: String,
    /// The same nonce makes the same message, a copy.
    pub(crate) nonce: u64,
}

/// What ingress said to a sample.
#[derive(Serialize, ToSchema)]
pub(crate) struct Triggered {
    pub(crate) channel: String,
    pub(crate) sample: String,
    pub(crate) nonce: u64,
    /// The status code that a provider would have seen.
    pub(crate) status: u16,
    /// The body of that answer; a text where it is no JSON.
    pub(crate) answer: Value,
}

/// Signs a sample and posts it to ourselves. The signed request stays inside: some providers' signature is the secret itself.
#[utoipa::path(
    post,
    path = "/channels/{name}/trigger",
    operation_id = "trigger",
    tag = "channels",
    params(("name" = String, Path, description = "The channel")),
    request_body = AskTrigger,
    responses((status = 200, description = "What ingress answered to the sample", body = Triggered), (status = 404)),
)]
pub(crate) async fn trigger(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
    ask: Result<Json<AskTrigger>, JsonRejection>,
) -> Result<Json<Triggered>, Problem> {
    caller.need_channel(&name)?;
    let Json(ask) = ask?;
    let provider = &api
        .channels
        .get(name.as_str())
        .ok_or_else(|| Problem::not_found(format!("there is no channel `{name}`; GET /v1/channels lists them")))?
        .provider;
    let wall_ms = api.clock.wall_ms();
    let wanted = if ask.kind.contains('.') { ask.kind } else { format!("{}.{}", provider.name(), ask.kind) };
    let sample =
        samples::sample(&wanted, ask.nonce, wall_ms).filter(|sample| sample.provider == provider.name()).ok_or_else(|| {
            let known = samples::list().iter().map(|(known, _)| *known).filter(|known| known.starts_with(provider.name()));
            let known = known.collect::<Vec<_>>().join(", ");
            Problem::bad_request(format!("there is no sample `{wanted}` for channel `{name}`; use one of {known}"))
        })?;
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("{}{name}", crate::ingress::PATH).parse().map_err(|_| Problem::not_found("no such channel"))?;
    let content_type = (http::header::CONTENT_TYPE, HeaderValue::from_static(sample.content_type));
    request.headers_mut().extend(std::iter::once(content_type).chain(sample.headers));
    let unsigned = Unsigned { url: None, headers: request.headers(), body: &sample.body };
    let signed = provider.sign(unsigned, wall_ms);
    request.headers_mut().extend(signed);
    *request.body_mut() = Full::new(Bytes::from(sample.body));
    let (head, body) = (api.post)(request).await.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    // What the provider would hear may be in words of its own.
    let said = head.extensions.get::<Counted>().map_or(&body, |counted| &counted.0);
    let answer = serde_json::from_slice(said).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(said)));
    Ok(Json(Triggered { channel: name, sample: wanted, nonce: ask.nonce, status: head.status.as_u16(), answer }))
}

impl From<&settings::Channel> for Channel {
    fn from(channel: &settings::Channel) -> Self {
        let kinds = channel.deliver.kinds.iter().map(|kind| kind.name());
        Self {
            name: channel.name.to_string(),
            provider: channel.provider.provider(),
            path: format!("/in/{}", channel.name),
            target: channel.target.as_deref().map(hide_userinfo),
            targets: channel.shown_targets(),
            sends: channel.send.is_some(),
            mode: if channel.is_pulled() { Mode::Pull.name() } else { channel.mode.name() },
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
            on_store_failure: channel.on_store_failure.name(),
            max_body: channel.max_body,
            down: Vec::new(),
        }
    }
}
