//! From a file, the environment and flags to one checked [`Config`], or to all mistakes at once with their lines.

mod backup;
mod channel;
mod claims;
mod dropin;
mod evolution;
mod generic;
mod headers;
mod load;
mod mistake;
mod notify;
mod otel;
mod reload;
mod resp;
mod secret;
mod section;
mod send;
mod starter;
mod target_access;
mod targets;
mod tree;
mod turns;
mod twilio;
mod warnings;
mod web;

use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::SecretString;

#[cfg(test)]
mod tests;

pub use channel::{provider_names, usual_window_ms};
pub use load::{Admin, Flags, SourceFile, Sources, channel_fingerprints, load, load_admin};
pub use mistake::{Mistake, Mistakes, Origin};
pub use reload::differences;
pub use resp::{Resp, RespTls};
pub use starter::starter;
pub use tree::Environment;
pub use warnings::{notes, warnings};
pub use web::Web;

use hapax::{Options, StoreUrl};
use hapax_gateway::settings::{
    BackupSchedule, Backups, Channel, Claims, Limits, Network, Notify, OnStoreFailure, Otel, Settings,
};

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
    /// Where bots that were given hapax's address for the provider's are served, when that is not beside `/in`.
    pub dropin_listen: Option<SocketAddr>,
    /// They may be served beside `/in` where other machines reach it.
    pub dropin_public: bool,
    /// The Redis door; `None`: there is none.
    pub resp: Option<Resp>,
    /// Whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Network>,
    /// Web pages of these origins may call `/v1`.
    pub cors_origins: Vec<String>,
    /// How the pages are reached, and what they show.
    pub web: Web,
    /// `None`: one is made at first start.
    pub admin_token: Option<SecretString>,
    pub store: StoreUrl,
    /// The file that webhooks wait in while the store is down, for channels with `on_store_failure = "spool"`.
    pub spool: PathBuf,
    /// Copies of the embedded store that are made by themselves.
    pub backup: Option<BackupSchedule>,
    /// Who is told what is wrong.
    pub notify: Option<Notify>,
    /// Shown on leases; made from host and process when not set.
    pub instance: Option<String>,
    /// How long a stop may take in all.
    pub stop_grace_ms: i64,
    pub limits: Limits,
    pub claims: Claims,
    /// The bounds of the embedded store.
    pub engine: Options,
    pub log: Log,
    /// Who collects traces.
    pub otel: Option<Otel>,
    /// By name.
    pub channels: Vec<Channel>,
}

impl Config {
    /// What a channel really does when the store fails: beside an embedded store a spool would be the same disk.
    pub fn on_store_failure(&self, channel: &Channel) -> OnStoreFailure {
        match channel.on_store_failure {
            OnStoreFailure::Spool if self.store.is_embedded() => OnStoreFailure::Retry,
            chosen => chosen,
        }
    }

    /// Who backs up the store.
    fn backups(&self) -> Backups {
        match (&self.store, self.store.own_tools()) {
            (_, Some(tools)) => Backups::OwnTools(tools.to_owned()),
            (StoreUrl::Sqlite(path), None) => {
                // `hapax.db` alone is in the folder where hapax runs, and that has a name too.
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let beside = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
                Backups::Here { beside, schedule: self.backup.clone() }
            }
            (_, None) => Backups::Here { beside: PathBuf::new(), schedule: None },
        }
    }

    /// What the gateway is to know of it.
    pub fn settings(&self) -> Settings {
        let resolved = |channel: &Channel| Channel { on_store_failure: self.on_store_failure(channel), ..channel.clone() };
        Settings {
            trusted_proxies: self.trusted_proxies.clone(),
            cors_origins: self.cors_origins.clone(),
            hosts: self.web.hosts_with(self.admin_listen.unwrap_or(self.listen)),
            public_url: self.web.public_url.clone(),
            hide_payloads: self.web.hide_payloads,
            admin_token: self.admin_token.clone(),
            instance: self.instance.clone(),
            stop_grace_ms: self.stop_grace_ms,
            limits: self.limits.clone(),
            claims: self.claims,
            otel: self.otel.clone(),
            backups: self.backups(),
            notify: self.notify.clone(),
            resp_tls: self.resp.as_ref().and_then(|resp| resp.tls.as_ref()).map(|files| files.tls.clone()),
            channels: self.channels.iter().map(resolved).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A `tracing` filter: `info`, `hapax=debug`.
    pub filter: String,
    pub json: bool,
}
