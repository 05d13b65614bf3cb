//! A checked config as text, without its secrets.

use std::collections::BTreeMap;

use hapax_domain::Kind;
use hapax_domain::address::hide_userinfo;
use hapax_domain::units::{write_bytes, write_ms};
use hapax_gateway::settings::{Channel, DropIn, OnPoison, OnUnknown, Rate, Send, TurnFormat};
use hapax_providers::settings::{EvolutionProof, Settings, SignatureRule};
use serde::Serialize;

use crate::config::Config;

const HIDDEN: &str = "(hidden)";

/// What `hapax config show` prints: every value that is in force, secrets hidden.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    listen: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_listen: Option<String>,
    admin_public: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropin_listen: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dropin_public: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resp_listen: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    resp_public: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resp_tls_cert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resp_tls_key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trusted_proxies: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cors_origins: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_url: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hide_payloads: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    write_config: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_token: Option<&'static str>,
    store: String,
    spool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    stop_grace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    notify: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notify_secret: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<ShownBackup>,
    limits: ShownLimits,
    claims: ShownClaims,
    log: ShownLog,
    #[serde(skip_serializing_if = "Option::is_none")]
    otel: Option<ShownOtel>,
    channel: BTreeMap<String, ShownChannel>,
}

#[derive(Debug, Serialize)]
struct ShownBackup {
    to: String,
    every: String,
    keep: usize,
}

#[derive(Debug, Serialize)]
struct ShownLimits {
    connections: usize,
    header_timeout: String,
    body_timeout: String,
    bodies: String,
    store_queue: usize,
    disk_floor: String,
    cache_keys: u64,
    outbox: usize,
}

#[derive(Debug, Serialize)]
struct ShownClaims {
    ttl: String,
    lease: String,
    max: usize,
}

#[derive(Debug, Serialize)]
struct ShownLog {
    filter: String,
    json: bool,
}

#[derive(Debug, Serialize)]
struct ShownOtel {
    endpoint: String,
    service_name: String,
    sample: u8,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, &'static str>,
}

#[derive(Debug, Serialize)]
struct ShownChannel {
    provider: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify_token: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    target_headers: BTreeMap<String, &'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_tls: Option<&'static str>,
    mode: &'static str,
    deliver: Vec<&'static str>,
    window: String,
    retention: String,
    attempts: u32,
    backoff: String,
    backoff_cap: String,
    timeout: String,
    lease: String,
    concurrency: usize,
    on_poison: &'static str,
    park_on_4xx: bool,
    on_store_failure: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replay_guard: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coalesce: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coalesce_max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coalesce_format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_with: Option<&'static str>,
    max_body: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    typing: bool,
    #[serde(flatten)]
    send: Option<ShownSend>,
    #[serde(flatten)]
    dropin: Option<ShownDropIn>,
    /// A table, so it comes last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    targets: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct ShownDropIn {
    dropin: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    dropin_prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<String>,
    replay: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    redo_after_429: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    redo_confirmed: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShownSend {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'static str>,
    api_base: String,
    on_unknown: &'static str,
    rate: String,
    chat_rate: String,
    send_attempts: u32,
    send_timeout: String,
    send_lease: String,
    send_concurrency: usize,
}

pub(super) fn show(config: &Config) -> Shown {
    let limits = &config.limits;
    let resp = config.resp.as_ref();
    let resp_tls = resp.and_then(|resp| resp.tls.as_ref());
    Shown {
        listen: config.listen.to_string(),
        admin_listen: config.admin_listen.map(|address| address.to_string()),
        admin_public: config.admin_public,
        dropin_listen: config.dropin_listen.map(|address| address.to_string()),
        dropin_public: config.dropin_public,
        resp_listen: resp.map(|resp| resp.listen.to_string()),
        resp_public: resp.is_some_and(|resp| resp.public),
        resp_tls_cert: resp_tls.map(|tls| tls.cert.clone()),
        resp_tls_key: resp_tls.map(|tls| tls.key.clone()),
        trusted_proxies: config.trusted_proxies.iter().map(ToString::to_string).collect(),
        cors_origins: config.cors_origins.clone(),
        hosts: config.web.hosts.clone(),
        public_url: config.web.public_url.clone(),
        hide_payloads: config.web.hide_payloads,
        write_config: config.web.write_config,
        admin_token: config.admin_token.as_ref().map(|_| HIDDEN),
        store: config.store.to_string(),
        spool: config.spool.display().to_string(),
        instance: config.instance.clone(),
        stop_grace: write_ms(config.stop_grace_ms),
        notify: config.notify.as_ref().map(|notify| hide_userinfo(&notify.url)),
        notify_secret: config.notify.as_ref().map(|_| HIDDEN),
        backup: config.backup.as_ref().map(|backup| ShownBackup {
            to: backup.to.display().to_string(),
            every: write_ms(backup.every_ms),
            keep: backup.keep,
        }),
        limits: ShownLimits {
            connections: limits.connections,
            header_timeout: write_ms(limits.header_timeout_ms as i64),
            body_timeout: write_ms(limits.body_timeout_ms as i64),
            bodies: write_bytes(limits.bodies_bytes as i64),
            store_queue: config.engine.queue,
            disk_floor: write_bytes(config.engine.disk_floor_bytes as i64),
            cache_keys: limits.cache_keys,
            outbox: limits.outbox,
        },
        claims: ShownClaims {
            ttl: write_ms(config.claims.ttl_ms),
            lease: write_ms(config.claims.lease_ms),
            max: config.claims.max,
        },
        log: ShownLog { filter: config.log.filter.clone(), json: config.log.json },
        otel: config.otel.as_ref().map(|otel| ShownOtel {
            endpoint: otel.endpoint.clone(),
            service_name: otel.service_name.clone(),
            sample: otel.sample_percent,
            headers: otel.headers.keys().map(|name| (name.to_string(), HIDDEN)).collect(),
        }),
        channel: config.channels.iter().map(|channel| (channel.name.to_string(), show_channel(config, channel))).collect(),
    }
}

fn show_channel(config: &Config, channel: &Channel) -> ShownChannel {
    let (secrets, verify_token) = secrets(&channel.provider);
    ShownChannel {
        provider: channel.provider.provider(),
        secret: secrets.then_some(HIDDEN),
        verify_token: verify_token.then_some(HIDDEN),
        target: channel.target.as_deref().map(hide_userinfo),
        targets: channel.shown_targets(),
        target_headers: channel.access.headers.keys().map(|name| (name.to_string(), HIDDEN)).collect(),
        target_tls: (!channel.access.tls.is_usual()).then_some(HIDDEN),
        mode: channel.mode.name(),
        deliver: channel
            .deliver
            .kinds
            .iter()
            .map(|kind: &Kind| kind.name())
            .chain(channel.deliver.echoes.then_some("echo"))
            .collect(),
        window: write_ms(channel.window_ms),
        retention: write_ms(channel.retention_ms),
        attempts: channel.retry.attempts,
        backoff: write_ms(channel.retry.first_ms),
        backoff_cap: write_ms(channel.retry.cap_ms),
        timeout: write_ms(channel.timeout_ms),
        lease: write_ms(channel.lease_ms),
        concurrency: channel.concurrency,
        on_poison: match channel.on_poison {
            OnPoison::Park => "park",
            OnPoison::Block => "block",
        },
        park_on_4xx: channel.park_on_4xx,
        on_store_failure: config.on_store_failure(channel).name(),
        replay_guard: channel.replay_guard,
        stale_after: channel.stale_after_ms.map(write_ms),
        coalesce: channel.turns.map(|turns| write_ms(turns.coalesce.quiet_ms)),
        coalesce_max: channel.turns.map(|turns| write_ms(turns.coalesce.max_ms)),
        coalesce_format: channel.turns.filter(|turns| turns.format == TurnFormat::Array).map(|_| "array"),
        sign_with: channel.sign_with.as_ref().map(|_| HIDDEN),
        max_body: write_bytes(channel.max_body as i64),
        typing: channel.typing,
        send: channel.send.as_ref().map(show_send),
        dropin: channel.dropin.as_ref().map(show_dropin),
    }
}

fn show_send(send: &Send) -> ShownSend {
    ShownSend {
        token: send.token.as_ref().map(|_| HIDDEN),
        api_base: hide_userinfo(&send.api_base).trim_end_matches('/').to_owned(),
        on_unknown: match send.on_unknown {
            OnUnknown::Reconcile => "reconcile",
            OnUnknown::Hold => "hold",
            OnUnknown::Resend => "resend",
        },
        rate: write_rate(send.rate),
        chat_rate: write_rate(send.chat_rate),
        send_attempts: send.retry.attempts,
        send_timeout: write_ms(send.timeout_ms),
        send_lease: write_ms(send.lease_ms),
        send_concurrency: send.concurrency,
    }
}

fn show_dropin(dropin: &DropIn) -> ShownDropIn {
    ShownDropIn {
        dropin: true,
        dropin_prefix: dropin.prefix.clone(),
        wait: dropin.wait_ms.map(write_ms),
        replay: dropin.replay.name(),
        redo_after_429: dropin.redo_after_429,
        redo_confirmed: dropin.redo_confirmed_ms.map(write_ms),
    }
}

/// As the config reads it: `80/s`, `1/6s burst 45`.
fn write_rate(rate: Rate) -> String {
    let per = if rate.per_ms == 1_000 { "s".to_owned() } else { write_ms(rate.per_ms) };
    let burst = if rate.burst == rate.count { String::new() } else { format!(" burst {}", rate.burst) };
    format!("{}/{per}{burst}", rate.count)
}

/// Tells whether there are secrets, and whether there is a verify token.
fn secrets(settings: &Settings) -> (bool, bool) {
    match settings {
        Settings::Whatsapp { secrets, verify_token }
        | Settings::Messenger { secrets, verify_token }
        | Settings::Instagram { secrets, verify_token } => (!secrets.is_empty(), verify_token.is_some()),
        Settings::Telegram { secrets, .. }
        | Settings::Gowa { secrets }
        | Settings::Waha { secrets }
        | Settings::Stripe { secrets }
        | Settings::Github { secrets }
        | Settings::Standard { secrets }
        | Settings::Shopify { secrets }
        | Settings::Slack { secrets }
        | Settings::Twilio { secrets, .. } => (!secrets.is_empty(), false),
        Settings::Evolution { proof, .. } => (!matches!(proof, EvolutionProof::Header(SignatureRule::None)), false),
        Settings::Generic(generic) => (!matches!(generic.signature, SignatureRule::None), false),
    }
}
