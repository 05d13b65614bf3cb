//! From a file, the environment and flags to one checked [`Config`], or to all mistakes at once with their lines.

mod address;
mod channel;
mod generic;
mod load;
mod mistake;
mod network;
mod secret;
mod section;
mod send;
mod starter;
mod store_url;
mod tree;
mod units;
mod warnings;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;

#[cfg(test)]
mod tests;

pub use address::hide_userinfo;
pub use load::{Admin, Flags, SourceFile, Sources, load, load_admin};
pub use mistake::{Mistake, Mistakes, Origin};
pub use network::Network;
pub use starter::starter;
pub use store_url::{StoreAddress, StoreUrl};
pub use tree::Environment;
pub use units::{read_ms, write_bytes, write_ms};
pub use warnings::warnings;

use crate::domain::{Kind, RetryPolicy};
use crate::providers::settings::Settings;

/// The commented default: the weakest layer of every config, and its manual.
pub const DEFAULT: &str = include_str!("default.toml");

/// Everything hapax was told, checked. Contradictions do not get this far.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where the admin surface listens when it is not beside `/in`.
    pub admin_listen: Option<SocketAddr>,
    /// The admin surface may stand beside `/in` where other machines reach it.
    pub admin_public: bool,
    /// Whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Network>,
    /// `None`: one is made at first start.
    pub admin_token: Option<SecretString>,
    pub store: StoreUrl,
    /// The file that webhooks wait in while the store is down, for channels with `on_store_failure = "spool"`.
    pub spool: PathBuf,
    /// Shown on leases; made from host and process when not set.
    pub instance: Option<String>,
    /// How long a stop may take in all.
    pub stop_grace_ms: i64,
    pub limits: Limits,
    pub log: Log,
    /// By name.
    pub channels: Vec<Channel>,
}

/// One configured connection to a provider.
#[derive(Clone)]
pub struct Channel {
    pub name: Arc<str>,
    pub provider: Settings,
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
    /// As it was chosen; [`Config::on_store_failure`] says what is done.
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
    /// The thread waits.
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

impl Config {
    /// What a channel really does when the store fails: beside an embedded store a spool would be the same disk.
    pub fn on_store_failure(&self, channel: &Channel) -> OnStoreFailure {
        match channel.on_store_failure {
            OnStoreFailure::Spool if self.store.is_embedded() => OnStoreFailure::Retry,
            chosen => chosen,
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
    /// Writes waiting for the store; more are answered 503.
    pub store_queue: usize,
    /// Below this much free disk nothing new is taken in.
    pub disk_floor_bytes: u64,
    pub cache_keys: u64,
    /// Messages of one account that may wait in a channel's outbox, and as many replies beside them.
    pub outbox: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A `tracing` filter: `info`, `hapax=debug`.
    pub filter: String,
    pub json: bool,
}
