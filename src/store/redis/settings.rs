//! What the server's own settings allow hapax to promise.

use std::collections::HashMap;

use redis::Value;

use super::link::Link;
use super::row::{Row, odd};
use crate::store::{Promise, StoreError};

const OLDEST: (u32, u32) = (6, 2);

/// What the server says about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// The lines of `INFO`.
    info: HashMap<String, String>,
    /// `None` where the server does not let us ask.
    config: Option<HashMap<String, String>>,
}

impl Settings {
    pub(super) async fn ask(link: &Link) -> Result<Self, StoreError> {
        let mut info = HashMap::new();
        for section in ["server", "replication", "cluster"] {
            info.extend(ask_info(link, section).await?);
        }
        let mut config = HashMap::new();
        for name in ["maxmemory", "maxmemory-policy", "appendonly", "appendfsync"] {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            let Some(answer) = link.ask_if_allowed("asking redis for its settings", &command).await? else {
                return Ok(Self { info, config: None });
            };
            let mut pair = Row::of(answer)?;
            if let (Some(name), Some(value)) = (pair.maybe_text()?, pair.maybe_text()?) {
                config.insert(name, value);
            }
        }
        let config = (config.len() == 4).then_some(config);
        Ok(Self { info, config })
    }

    fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    pub(super) fn replicas(&self) -> u32 {
        self.info("connected_slaves").parse().unwrap_or(0)
    }

    /// Refuses a server on which the promise cannot be kept at all; otherwise tells how much of it is.
    pub(super) fn judge(&self) -> Result<Promise, StoreError> {
        self.refuse_unfit()?;
        let mut lacks = Vec::new();
        match &self.config {
            None => lacks.push(
                "redis: its settings could not be checked (CONFIG is forbidden); see that it keeps everything: maxmemory-policy \
                 noeviction, appendonly yes, appendfsync always"
                    .to_owned(),
            ),
            Some(config) => lacks.extend(lacks_of(config)?),
        }
        let replicas = self.replicas();
        if replicas > 0 {
            lacks.push(format!(
                "redis: it has {replicas} replicas, and a failover loses what the new master had not got yet: an accepted webhook may be \
                 lost, a finished one may be delivered again"
            ));
        }
        Ok(if lacks.is_empty() { Promise::Full } else { Promise::Degraded(lacks) })
    }

    fn refuse_unfit(&self) -> Result<(), StoreError> {
        let version = self.info("redis_version");
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
            return Err(StoreError::Refused(format!("redis {version} is too old: hapax needs 6.2 or newer, or Valkey")));
        }
        if self.info("role") == "slave" {
            let why = "this redis is a replica and takes no writes; give hapax the address of the master";
            return Err(StoreError::Refused(why.to_owned()));
        }
        if self.info("cluster_enabled") == "1" {
            let why = "this redis is a node of a cluster; hapax does not talk to clusters yet, give it a server of its own";
            return Err(StoreError::Refused(why.to_owned()));
        }
        Ok(())
    }
}

fn lacks_of(config: &HashMap<String, String>) -> Result<Vec<String>, StoreError> {
    let get = |name: &str| config.get(name).map_or("", String::as_str);
    let mut lacks = Vec::new();
    let policy = get("maxmemory-policy");
    if policy != "noeviction" {
        if get("maxmemory") != "0" {
            return Err(StoreError::Refused(format!(
                "redis drops keys when its memory is full (maxmemory-policy {policy}): accepted webhooks would vanish and copies would be \
                 delivered again; set maxmemory-policy noeviction"
            )));
        }
        lacks.push(format!(
            "redis: maxmemory-policy is {policy}; nothing is dropped while maxmemory is 0, but set it to noeviction"
        ));
    }
    if get("appendonly") != "yes" {
        lacks.push("redis: appendonly is off; when redis stops, everything since its last snapshot is lost".to_owned());
    } else if get("appendfsync") != "always" {
        let fsync = get("appendfsync");
        lacks.push(format!("redis: appendfsync is {fsync}; up to a second of accepted webhooks can be lost with the power"));
    }
    Ok(lacks)
}

/// How much memory the server has filled, and how long its log is.
pub(super) async fn sizes(link: &Link) -> Result<(u64, u64), StoreError> {
    let (memory, log) = (ask_info(link, "memory").await?, ask_info(link, "persistence").await?);
    let number = |info: &HashMap<String, String>, name: &str| info.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok((number(&memory, "used_memory"), number(&log, "aof_current_size")))
}

async fn ask_info(link: &Link, section: &str) -> Result<HashMap<String, String>, StoreError> {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    match link.ask("asking redis about itself", &command).await? {
        Value::BulkString(text) => Ok(read_info(&String::from_utf8_lossy(&text)).collect()),
        _ => Err(odd("no text")),
    }
}

fn read_info(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(info: &str, config: Option<&[(&str, &str)]>) -> Settings {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Settings { info: read_info(info).collect(), config: config.map(|config| config.iter().map(pair).collect()) }
    }

    const SAFE: &[(&str, &str)] =
        &[("maxmemory", "0"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "always")];
    const MASTER: &str = "redis_version:7.0.15\r\nrole:master\r\nconnected_slaves:0\r\ncluster_enabled:0\r\n";

    #[test]
    fn everything_is_promised_only_with_every_setting_right() {
        assert_eq!(server(MASTER, Some(SAFE)).judge().ok(), Some(Promise::Full));
        for (name, value) in [("maxmemory-policy", "allkeys-lru"), ("appendonly", "no"), ("appendfsync", "everysec")] {
            let mut config = SAFE.to_vec();
            config.retain(|(known, _)| *known != name);
            config.push((name, value));
            let promise = server(MASTER, Some(&config)).judge().expect("degraded, not refused");
            assert!(matches!(&promise, Promise::Degraded(lacks) if lacks.len() == 1 && lacks[0].contains(name)), "{promise:?}");
        }
        let replicated = MASTER.replace("connected_slaves:0", "connected_slaves:2");
        assert!(
            matches!(server(&replicated, Some(SAFE)).judge(), Ok(Promise::Degraded(lacks)) if lacks[0].contains("2 replicas"))
        );
        assert!(
            matches!(server(MASTER, None).judge(), Ok(Promise::Degraded(lacks)) if lacks[0].contains("could not be checked"))
        );
    }

    #[test]
    fn a_server_that_may_drop_keys_is_refused() {
        let config =
            [("maxmemory", "1000000"), ("maxmemory-policy", "volatile-lru"), ("appendonly", "yes"), ("appendfsync", "always")];
        let error = server(MASTER, Some(&config)).judge().expect_err("refused");
        assert!(!error.retryable() && error.to_string().contains("volatile-lru"), "{error}");
        let roomy =
            [("maxmemory", "1000000"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "always")];
        assert_eq!(server(MASTER, Some(&roomy)).judge().ok(), Some(Promise::Full));
    }

    #[test]
    fn an_old_server_a_replica_and_a_cluster_are_refused() {
        for (from, to) in [
            ("redis_version:7.0.15", "redis_version:6.0.16"),
            ("role:master", "role:slave"),
            ("cluster_enabled:0", "cluster_enabled:1"),
        ] {
            assert!(server(&MASTER.replace(from, to), Some(SAFE)).judge().is_err(), "{to}");
        }
        let valkey = "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrole:master\r\n";
        assert_eq!(server(valkey, Some(SAFE)).judge().ok(), Some(Promise::Full));
    }
}
