//! `/v1/channels`: what is configured, without its secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Api;
use crate::config::{Mode, OnPoison, hide_userinfo};

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
    max_body: usize,
}

pub(super) async fn list(State(api): State<Arc<Api>>) -> Json<List> {
    Json(List { channels: api.config.channels.iter().map(Channel::from).collect() })
}

impl From<&crate::config::Channel> for Channel {
    fn from(channel: &crate::config::Channel) -> Self {
        let kinds = channel.deliver.kinds.iter().map(|kind| kind.name());
        Self {
            name: channel.name.to_string(),
            provider: channel.provider.provider(),
            path: format!("/in/{}", channel.name),
            target: channel.target.as_deref().map(hide_userinfo),
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
            max_body: channel.max_body,
        }
    }
}
