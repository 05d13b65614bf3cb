//! What the gateway runs with: checked values, whoever read them from where.

mod network;
mod target_access;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hapax_domain::address::hide_userinfo;
use hapax_domain::units::write_ms;
use hapax_domain::{Coalesce, Kind, Replay, RetryPolicy};
use hapax_providers::settings::Settings as ProviderSettings;
use http::HeaderMap;
use secrecy::SecretString;

pub use network::Network;
pub use target_access::{BadTargetTls, TargetAccess, TargetTls};

use crate::resp::tls::Tls;

/// Everything the gateway is told. Contradictions do not get this far.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Network>,
    /// Web pages of these origins may call `/v1`.
    pub cors_origins: Vec<String>,
    /// By which names the pages may be reached, beside those of this machine; an unspecified address stands for all addresses.
    pub hosts: Vec<String>,
    /// How people reach this server: scheme, host and port.
    pub public_url: Option<String>,
    /// Bodies and texts are shown as their lengths to callers without scope `admin`.
    pub hide_payloads: bool,
    /// `None`: one is made at first start.
    pub admin_token: Option<SecretString>,
    /// Shown on leases; made from host and process when not set.
    pub instance: Option<String>,
    /// How long a stop may take in all.
    pub stop_grace_ms: i64,
    pub limits: Limits,
    pub claims: Claims,
    /// Who collects traces; `None`: nobody.
    pub otel: Option<Otel>,
    pub backups: Backups,
    /// Who is told what is wrong.
    pub notify: Option<Notify>,
    /// What the Redis door shows, where it speaks TLS.
    pub resp_tls: Option<Tls>,
    pub channels: Vec<Channel>,
}

impl Settings {
    /// What people may see of it, by the names of the config; of secrets, whether there are any.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let list = |all: &[String]| if all.is_empty() { "–".to_owned() } else { all.join(", ") };
        let proxies: Vec<String> = self.trusted_proxies.iter().map(ToString::to_string).collect();
        vec![
            ("public_url", self.public_url.clone().unwrap_or_else(|| "–".to_owned())),
            ("hosts", list(&self.hosts)),
            ("trusted_proxies", list(&proxies)),
            ("cors_origins", list(&self.cors_origins)),
            ("hide_payloads", self.hide_payloads.to_string()),
            (
                "admin_token",
                if self.admin_token.is_some() { "set, hidden" } else { "made at the first start, hidden" }.to_owned(),
            ),
            ("instance", self.instance.clone().unwrap_or_else(|| "host and process".to_owned())),
            ("stop_grace", write_ms(self.stop_grace_ms)),
            ("limits.connections", self.limits.connections.to_string()),
            ("limits.outbox", self.limits.outbox.to_string()),
            ("claims.ttl", write_ms(self.claims.ttl_ms)),
            ("claims.lease", write_ms(self.claims.lease_ms)),
            ("claims.max", self.claims.max.to_string()),
        ]
    }
}

/// A collector of traces that speaks OTLP over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Otel {
    /// Without `/v1/traces`.
    pub endpoint: String,
    /// Sent with every request; marked as secret.
    pub headers: HeaderMap,
    pub service_name: String,
    /// Of a hundred traces that begin here, so many are kept.
    pub sample_percent: u8,
}

/// Where notices go.
#[derive(Clone)]
pub struct Notify {
    /// It may hold a password.
    pub url: String,
    /// Signs them, as Standard Webhooks are signed.
    pub secret: SecretString,
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").field("url", &hide_userinfo(&self.url)).finish_non_exhaustive()
    }
}

/// How the store is backed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backups {
    /// By us.
    Here {
        /// Where the store's own file is: there is room for a copy that somebody reads.
        beside: PathBuf,
        schedule: Option<BackupSchedule>,
    },
    /// By the server's own tools; which, in words.
    OwnTools(String),
}

/// Copies that are made by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSchedule {
    /// The folder.
    pub to: PathBuf,
    pub every_ms: i64,
    /// So many are kept, the youngest ones.
    pub keep: usize,
}

/// One configured connection to a provider.
#[derive(Clone)]
pub struct Channel {
    pub name: Arc<str>,
    pub provider: ProviderSettings,
    /// Where events go whose account has no target of its own. `None`: they wait until there is one, or, where no account has one, are pulled.
    pub target: Option<String>,
    /// The targets of single accounts.
    pub targets: BTreeMap<String, String>,
    /// What its targets want to see beside the webhook.
    pub access: TargetAccess,
    pub mode: Mode,
    pub deliver: Deliver,
    pub window_ms: i64,
    pub retention_ms: i64,
    pub retry: RetryPolicy,
    /// How long one request to the target may take.
    pub timeout_ms: i64,
    pub lease_ms: i64,
    pub on_poison: OnPoison,
    pub park_on_4xx: bool,
    pub on_store_failure: OnStoreFailure,
    /// The same signed body under another id is parked as a suspected replay.
    pub replay_guard: bool,
    /// Events received longer ago than this are parked, not delivered.
    pub stale_after_ms: Option<i64>,
    /// Gathers the messages of a thread into turns.
    pub turns: Option<Turns>,
    /// Adds Standard Webhooks headers made with this secret.
    pub sign_with: Option<SecretString>,
    pub max_body: usize,
    /// Requests to each target at once.
    pub concurrency: usize,
    /// Shows people that somebody is writing while the handler works.
    pub typing: bool,
    /// How messages are sent; `None`: this channel only receives.
    pub send: Option<Send>,
    /// The provider's own API is served for its bot; only where it can send.
    pub dropin: Option<DropIn>,
}

/// How messages are gathered into turns, and what a turn looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    pub coalesce: Coalesce,
    pub format: TurnFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnFormat {
    /// The provider's own way to put several events into a webhook.
    Batch,
    /// A JSON array of webhooks; everything of the channel is delivered so.
    Array,
}

/// How a bot is served that was given hapax's address for its provider's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// What stands before the provider's paths: empty, or `/gowa`.
    pub prefix: String,
    /// How long an answer is waited for; `None`: by the library.
    pub wait_ms: Option<i64>,
    pub replay: Replay,
    /// A handler that was told to slow down, and ended, runs once more when its message is out.
    pub redo_after_429: bool,
    /// What a polling bot confirmed is held for so long, and given again when the bot is started anew meanwhile.
    pub redo_confirmed_ms: Option<i64>,
}

/// The sending side of a channel.
#[derive(Clone, Debug)]
pub struct Send {
    /// What the provider's API wants to see: a bearer token, a bot token, or `user:password`.
    pub token: Option<SecretString>,
    /// Where its API lives, without a slash at the end.
    pub api_base: String,
    pub on_unknown: OnUnknown,
    pub retry: RetryPolicy,
    pub lease_ms: i64,
    /// How long one call may take; shorter than the lease.
    pub timeout_ms: i64,
    /// Messages a second, per account.
    pub rate: Rate,
    /// Messages a second to one peer.
    pub chat_rate: Rate,
    /// Calls at once.
    pub concurrency: usize,
}

/// So many in so much time, with a burst of as many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub count: u32,
    pub per_ms: i64,
    pub burst: u32,
}

/// What becomes of a send whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// Wait for the provider's own word, by webhook or lookup.
    Reconcile,
    /// Wait for a person.
    Hold,
    /// Send it again: it may arrive twice.
    Resend,
}

impl Channel {
    /// True when some of its events have somewhere to go.
    pub fn has_target(&self) -> bool {
        self.addresses().next().is_some()
    }

    /// True when its events wait for workers that ask for them.
    pub fn is_pulled(&self) -> bool {
        self.mode == Mode::Pull || !self.has_target()
    }

    /// True when its bot asks for its updates.
    pub fn is_polled(&self) -> bool {
        matches!(self.provider, ProviderSettings::Telegram { .. }) && self.dropin.is_some() && !self.has_target()
    }

    /// The addresses of all its targets, the default first. They may hold passwords.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.target.iter().chain(self.targets.values()).map(String::as_str)
    }

    /// The targets of single accounts, as they may be shown.
    pub fn shown_targets(&self) -> BTreeMap<String, String> {
        self.targets.iter().map(|(account, address)| (account.clone(), hide_userinfo(address))).collect()
    }
}

impl fmt::Debug for Channel {
    /// In short, and without what the target's address may carry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target.as_deref().map(hide_userinfo);
        let mut channel = f.debug_struct("Channel");
        let channel = channel.field("name", &self.name).field("provider", &self.provider).field("target", &target);
        channel.field("targets", &self.shown_targets()).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Answer the provider first, then deliver.
    Queue,
    /// The provider gets the target's own answer.
    Proxy,
    /// There is no target: workers ask for what is there.
    Pull,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Queue => "queue",
            Mode::Proxy => "proxy",
            Mode::Pull => "pull",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPoison {
    /// The item is parked and the thread goes on.
    Park,
    /// The item is tried on, whatever the target answers, and the thread waits. What nobody waits behind is parked.
    Block,
}

/// What becomes of a webhook that the store cannot take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// 503: the provider sends it again.
    Retry,
    /// It is kept on a disk of our own, answered 200, and goes to the store when that is back.
    Spool,
    /// It goes to the target as it is, copies included.
    Pass,
    /// 200, and it is lost.
    Drop,
}

impl OnStoreFailure {
    pub fn name(self) -> &'static str {
        match self {
            OnStoreFailure::Retry => "retry",
            OnStoreFailure::Spool => "spool",
            OnStoreFailure::Pass => "pass",
            OnStoreFailure::Drop => "drop",
        }
    }
}

/// Which events go to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub kinds: Vec<Kind>,
    /// Our own messages, seen again.
    pub echoes: bool,
}

/// What holds for claims whose callers say nothing else, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// How long a completed key is kept, and a key of the Redis door without an end.
    pub ttl_ms: i64,
    /// How long a holder may go without a heartbeat.
    pub lease_ms: i64,
    pub max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    pub header_timeout_ms: u64,
    pub body_timeout_ms: u64,
    /// Bodies in memory at once; beyond it ingress answers 503.
    pub bodies_bytes: usize,
    pub cache_keys: u64,
    /// Messages of one account that may wait in a channel's outbox, and as many replies beside them.
    pub outbox: usize,
}
