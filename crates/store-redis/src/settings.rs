//! What the server's own settings allow hapax to promise.

use std::collections::HashMap;

use hapax_store::{Promise, StoreError};

use super::node::Node;
use super::nodes::Nodes;
use super::row::Row;

const OLDEST: (u32, u32) = (6, 2);
/// A replica that has not been heard for longer is not waited for.
const LAG_MAX_S: u64 = 3;

/// What a server says about itself.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// The lines of `INFO`.
    info: HashMap<String, String>,
    /// `None` where the server does not let us ask.
    config: Option<HashMap<String, String>>,
}

/// What a server lacks, or why it is no good at all. Both go on from the server's name.
type Verdict = Result<Vec<String>, String>;

/// Asks the server, or every master of a cluster, what it can promise.
pub(super) async fn ask_promise(nodes: &Nodes) -> Result<Promise, StoreError> {
    let mut verdicts = Vec::new();
    for node in nodes.masters() {
        let verdict = Settings::ask(&node).await?.judge(nodes.is_cluster());
        verdicts.push((format!("redis {}", node.name()), verdict));
    }
    if let ([(name, _)], false) = (&mut verdicts[..], nodes.is_cluster()) {
        "redis".clone_into(name);
    }
    sum_up(verdicts)
}

/// The worst counts. What several lack is said once, with the names of all of them.
fn sum_up(verdicts: Vec<(String, Verdict)>) -> Result<Promise, StoreError> {
    let mut lacks: Vec<(String, String)> = Vec::new();
    for (name, verdict) in verdicts {
        for lack in verdict.map_err(|why| StoreError::Refused(format!("{name} {why}")))? {
            match lacks.iter_mut().find(|(_, known)| *known == lack) {
                Some((names, _)) => *names = format!("{names}, {}", name.trim_start_matches("redis ")),
                None => lacks.push((name.clone(), lack)),
            }
        }
    }
    let lacks: Vec<_> = lacks.into_iter().map(|(names, lack)| format!("{names}: {lack}")).collect();
    Ok(if lacks.is_empty() { Promise::Full } else { Promise::Degraded(lacks) })
}

impl Settings {
    async fn ask(node: &Node) -> Result<Self, StoreError> {
        let mut info = HashMap::new();
        for section in ["server", "replication"] {
            info.extend(ask_info(node, section).await?);
        }
        let mut config = HashMap::new();
        for name in ["maxmemory", "maxmemory-policy", "appendonly", "appendfsync"] {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            let Some(answer) = node.ask_if_allowed("asking redis for its settings", &command).await? else {
                return Ok(Self { info, config: None });
            };
            let mut pair = Row::new(answer)?;
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

    /// Refuses a server on which the promise cannot be kept at all; otherwise tells how much of it is.
    fn judge(&self, of_cluster: bool) -> Verdict {
        let version = self.info("redis_version");
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
            return Err(format!("is too old ({version}): hapax needs 6.2 or newer, or Valkey"));
        }
        // The masters of a cluster are found by hapax, also when they change.
        if self.info("role") == "slave" && !of_cluster {
            return Err("is a replica and takes no writes; give hapax the address of the master".to_owned());
        }
        let mut lacks = Vec::new();
        match &self.config {
            None => lacks.push(
                "its settings could not be checked (CONFIG is forbidden); see that it keeps everything: maxmemory-policy \
                 noeviction, appendonly yes, appendfsync always"
                    .to_owned(),
            ),
            Some(config) => lacks.extend(lacks_of(config)?),
        }
        let replicas = self.info("connected_slaves");
        if !["0", ""].contains(&replicas) {
            lacks.push(format!(
                "it has {replicas} replicas, and a failover loses what the new master had not got yet: an accepted webhook may be lost, a \
                 finished one may be delivered again"
            ));
        }
        Ok(lacks)
    }
}

fn lacks_of(config: &HashMap<String, String>) -> Verdict {
    let get = |name: &str| config.get(name).map_or("", String::as_str);
    let mut lacks = Vec::new();
    let policy = get("maxmemory-policy");
    if policy != "noeviction" {
        if get("maxmemory") != "0" {
            return Err(format!(
                "drops keys when its memory is full (maxmemory-policy {policy}): accepted webhooks would vanish and copies would be \
                 delivered again; set maxmemory-policy noeviction"
            ));
        }
        lacks.push(format!("maxmemory-policy is {policy}; nothing is dropped while maxmemory is 0, but set it to noeviction"));
    }
    if get("appendonly") != "yes" {
        lacks.push("appendonly is off; when redis stops, everything since its last snapshot is lost".to_owned());
    } else if get("appendfsync") != "always" {
        let fsync = get("appendfsync");
        lacks.push(format!("appendfsync is {fsync}; up to a second of accepted webhooks can be lost with the power"));
    }
    Ok(lacks)
}

/// How much memory the servers have filled, and how long their logs are.
pub(super) async fn sizes(nodes: &Nodes) -> Result<(u64, u64), StoreError> {
    let number = |info: &HashMap<String, String>, name: &str| info.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut sizes = (0, 0);
    for node in nodes.masters() {
        sizes.0 += number(&ask_info(&node, "memory").await?, "used_memory");
        sizes.1 += number(&ask_info(&node, "persistence").await?, "aof_current_size");
    }
    Ok(sizes)
}

async fn ask_info(node: &Node, section: &str) -> Result<HashMap<String, String>, StoreError> {
    let text = node.ask_text("asking redis about itself", redis::cmd("INFO").arg(section)).await?;
    Ok(read_info(&text).collect())
}

pub(super) fn read_info(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
}

/// How many replicas listen, by `INFO replication`: `slave0:ip=…,state=online,offset=…,lag=1`.
pub(super) fn awake_replicas(info: &str) -> u32 {
    let is_awake = |(name, value): &(String, String)| {
        let field = |name: &str| value.split(',').find_map(|field| field.strip_prefix(name));
        let lag = field("lag=").and_then(|lag| lag.parse::<u64>().ok());
        name.starts_with("slave") && field("state=") == Some("online") && lag.is_some_and(|lag| lag <= LAG_MAX_S)
    };
    u32::try_from(read_info(info).filter(is_awake).count()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(info: &str, config: Option<&[(&str, &str)]>) -> Settings {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Settings { info: read_info(info).collect(), config: config.map(|config| config.iter().map(pair).collect()) }
    }

    fn judge(server: &Settings) -> Result<Promise, StoreError> {
        sum_up(vec![("redis".to_owned(), server.judge(false))])
    }

    const SAFE: &[(&str, &str)] =
        &[("maxmemory", "0"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "always")];
    const MASTER: &str = "redis_version:7.0.15\r\nrole:master\r\nconnected_slaves:0\r\n";

    #[test]
    fn everything_is_promised_only_with_every_setting_right() {
        assert_eq!(judge(&server(MASTER, Some(SAFE))).ok(), Some(Promise::Full));
        for (name, value) in [("maxmemory-policy", "allkeys-lru"), ("appendonly", "no"), ("appendfsync", "everysec")] {
            let mut config = SAFE.to_vec();
            config.retain(|(known, _)| *known != name);
            config.push((name, value));
            let promise = judge(&server(MASTER, Some(&config))).expect("degraded, not refused");
            assert!(matches!(&promise, Promise::Degraded(lacks) if lacks.len() == 1 && lacks[0].contains(name)), "{promise:?}");
        }
        let replicated = MASTER.replace("connected_slaves:0", "connected_slaves:2");
        assert!(
            matches!(judge(&server(&replicated, Some(SAFE))), Ok(Promise::Degraded(lacks)) if lacks[0].contains("2 replicas"))
        );
        assert!(
            matches!(judge(&server(MASTER, None)), Ok(Promise::Degraded(lacks)) if lacks[0].contains("could not be checked"))
        );
    }

    #[test]
    fn a_server_that_may_drop_keys_is_refused() {
        let config =
            [("maxmemory", "1000000"), ("maxmemory-policy", "volatile-lru"), ("appendonly", "yes"), ("appendfsync", "always")];
        let error = judge(&server(MASTER, Some(&config))).expect_err("refused");
        assert!(!error.retryable() && error.to_string().contains("volatile-lru"), "{error}");
        let roomy =
            [("maxmemory", "1000000"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "always")];
        assert_eq!(judge(&server(MASTER, Some(&roomy))).ok(), Some(Promise::Full));
    }

    #[test]
    fn an_old_server_and_a_replica_are_refused() {
        for (from, to) in [("redis_version:7.0.15", "redis_version:6.0.16"), ("role:master", "role:slave")] {
            assert!(judge(&server(&MASTER.replace(from, to), Some(SAFE))).is_err(), "{to}");
        }
        let valkey = "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrole:master\r\n";
        assert_eq!(judge(&server(valkey, Some(SAFE))).ok(), Some(Promise::Full));
    }

    #[test]
    fn of_a_cluster_the_worst_node_counts_and_is_named() {
        let good = server(MASTER, Some(SAFE)).judge(true);
        let lax = server(MASTER, Some(&[("maxmemory-policy", "noeviction"), ("appendonly", "no")])).judge(true);
        let name = |port: u16| format!("redis h:{port}");
        assert_eq!(sum_up(vec![(name(1), good.clone()), (name(2), good.clone())]).ok(), Some(Promise::Full));
        let promise = sum_up(vec![(name(1), lax.clone()), (name(2), good.clone()), (name(3), lax)]).expect("degraded");
        assert!(
            matches!(&promise, Promise::Degraded(lacks) if lacks.len() == 1 && lacks[0].starts_with("redis h:1, h:3: appendonly")),
            "{promise:?}"
        );
        let greedy = server(MASTER, Some(&[("maxmemory", "1"), ("maxmemory-policy", "allkeys-lru")])).judge(true);
        let error = sum_up(vec![(name(1), good), (name(2), greedy)]).expect_err("refused").to_string();
        assert!(error.contains("redis h:2 drops keys"), "{error}");
    }

    #[test]
    fn a_replica_that_hangs_is_not_counted() {
        let replica = |n: u32, state: &str, lag: u32| format!("slave{n}:ip=::1,port=1,state={state},offset=14,lag={lag}\r\n");
        let info =
            ["role:master\r\n", &replica(0, "online", 1), &replica(1, "online", 60), &replica(2, "wait_bgsave", 0)].concat();
        assert_eq!(awake_replicas(&info), 1);
    }
}
