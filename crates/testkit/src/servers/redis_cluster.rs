//! A Redis cluster of three masters, with a replica each where a test needs them. All nodes run under one shell, which ends with them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use redis::Value;

use super::redis::{connect, unlink};
use super::{Recipe, ServerError, in_path};

const MASTERS: u16 = 3;

pub(super) struct RedisCluster {
    pub(super) replicas_each: u16,
}

/// `$0` is the server's program, then come the folder, the first port, the number of nodes and of replicas for each master, and after how many
/// milliseconds a silent node is taken for dead. The ports of the nodes follow one another, then those on which they talk to each other.
const NODES: &str = r#"
folder=$1 first=$2 nodes=$3 replicas=$4 patience=$5
last=$((first + nodes - 1))
trap 'kill -9 $servers; exit' TERM
for port in $(seq "$first" "$last"); do
    mkdir -p "$folder/$port"
    "$0" --dir "$folder/$port" --port "$port" --bind 127.0.0.1 --cluster-enabled yes --cluster-port $((port + nodes)) \
        --cluster-node-timeout "$patience" --appendonly yes --appendfsync always --save '' --repl-diskless-sync-delay 0 &
    servers="$servers $!"
done
for port in $(seq "$first" "$last"); do
    until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.05; done
    addresses="$addresses 127.0.0.1:$port"
done
redis-cli --cluster create $addresses --cluster-replicas "$replicas" --cluster-yes &
wait $!
wait
"#;

impl RedisCluster {
    fn nodes(&self) -> u16 {
        MASTERS * (1 + self.replicas_each)
    }
}

#[async_trait]
impl Recipe for RedisCluster {
    fn name(&self) -> &'static str {
        if self.replicas_each == 0 { "redis-cluster" } else { "redis-cluster-with-replicas" }
    }

    fn how_to_install(&self) -> &'static str {
        "apt-get install redis-server"
    }

    fn program(&self) -> Option<PathBuf> {
        in_path("redis-cli").and_then(|_| in_path("redis-server"))
    }

    fn ports(&self) -> u16 {
        2 * self.nodes()
    }

    fn line(&self, program: &Path, folder: &Path, port: u16) -> Vec<OsString> {
        // Where nobody can take over, a node that is only slow on a busy machine must not stop the cluster.
        let patience_ms = if self.replicas_each == 0 { 60_000 } else { 2_000 };
        let numbers = [port, self.nodes(), self.replicas_each, patience_ms].map(|number| number.to_string().into());
        [vec!["sh".into(), "-c".into(), NODES.into(), program.into(), folder.into()], numbers.to_vec()].concat()
    }

    /// Every node must know all of the cluster, and every replica its master's data: until then they send their callers astray.
    async fn greet(&self, port: u16) -> Result<(), ServerError> {
        for node in port..port + self.nodes() {
            let mut connection = connect(&format!("redis://127.0.0.1:{node}/")).await?;
            let state: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await?;
            let ranges: Vec<Vec<Value>> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
            let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
            let replicas = format!("connected_slaves:{}\r", self.replicas_each);
            let follows = if info.contains("role:master") { replicas.as_str() } else { "master_link_status:up" };
            // A range is its first and last slot, its master, and the replicas of that.
            let knows_all = ranges.iter().filter(|range| range.len() == usize::from(3 + self.replicas_each)).count();
            if !state.contains("cluster_state:ok") || knows_all != usize::from(MASTERS) || !info.contains(follows) {
                return Err(format!("node {node} is not ready: {state} {info}").into());
            }
        }
        Ok(())
    }

    async fn fresh(&self, port: u16, name: &str) -> Result<String, ServerError> {
        Ok(format!("redis://127.0.0.1:{port}/0?prefix={name}"))
    }

    async fn empty(&self, url: &str, _keep: &[String]) -> Result<(), ServerError> {
        let (server, prefix) = url.split_once("/0?prefix=").ok_or("no prefix in the address")?;
        let (_, port) = server.rsplit_once(':').ok_or("no port in the address")?;
        let first: u16 = port.parse()?;
        for node in first..first + self.nodes() {
            unlink(&format!("redis://127.0.0.1:{node}/"), prefix).await?;
        }
        Ok(())
    }
}
