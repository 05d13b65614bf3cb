//! What the gateway runs with: checked values, whoever read them from where.

mod network;

use std::fmt;
use std::sync::Arc;

use hapax_domain::address::hide_userinfo;
use hapax_domain::{Kind, RetryPolicy};
use hapax_providers::settings::Settings as ProviderSettings;
use secrecy::SecretString;

pub use network::Network;

/// Everything the gateway is told. Contradictions do not get this far.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Network>,
    /// `None`: one is made at first start.
    pub admin_token: Option<SecretString>,
    /// Shown on leases; made from host and process when not set.
    pub instance: Option<String>,
    /// How long a stop may take in all.
    pub stop_grace_ms: i64,
    pub limits: Limits,
    pub channels: Vec<Channel>,
}

/// One configured connection to a provider.
#[derive(Clone)]
pub struct Channel {
    pub name: Arc<str>,
    pub provider: ProviderSettings,
    /// `None`: events wait to be pulled.
    pub target: Option<String>,
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
    /// Adds Standard Webhooks headers made with this secret.
    pub sign_with: Option<SecretString>,
    pub max_body: usize,
    /// Requests to the target at once.
    pub concurrency: usize,
    /// How messages are sent; `None`: this channel only receives.
    pub send: Option<Send>,
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

impl fmt::Debug for Channel {
    /// In short, and without what the target's address may carry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target.as_deref().map(hide_userinfo);
        let mut channel = f.debug_struct("Channel");
        channel.field("name", &self.name).field("provider", &self.provider).field("target", &target).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Answer the provider first, then deliver.
    Queue,
    /// The provider gets the target's own answer.
    Proxy,
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
