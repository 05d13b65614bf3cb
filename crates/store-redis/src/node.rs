//! One server: the connection that all calls to it share, and how a call is made over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax_store::StoreError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::link::{CALL_TIME, failed, late};
use super::row::odd;
use super::script::Call;
use super::settings::awake_replicas;

const CONNECT_TIME: Duration = Duration::from_secs(1);
/// How long a call waits until the replicas have it. What they have not by then they get later; the call is answered all the same.
const REPLICAS_MS: u64 = 500;

pub(super) struct Node {
    /// Host and port, as the operator knows it.
    name: String,
    client: Client,
    wire: ConnectionManager,
    /// How many replicas listened to it when it was last asked.
    replicas: AtomicU32,
    /// Something is not as it was: all nodes should be looked at again.
    again: Arc<Notify>,
}

impl Node {
    /// Connects when it is first needed.
    pub(super) fn new(info: ConnectionInfo, again: &Arc<Notify>) -> RedisResult<Self> {
        let name = info.addr().to_string();
        let client = Client::open(info)?;
        let wire = ConnectionManager::new_lazy_with_config(client.clone(), patience())?;
        Ok(Self { name, client, wire, replicas: AtomicU32::new(0), again: Arc::clone(again) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// How to reach another node of its cluster: as this one is reached, with the same user and over the same kind of line.
    /// A node that does not know its own host is where this one is.
    pub(super) fn neighbour(&self, host: &str, port: u16) -> ConnectionInfo {
        let info = self.client.get_connection_info().clone();
        let own = match info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.as_str(),
            _ => "localhost",
        };
        let host = if host.is_empty() { own } else { host }.to_owned();
        let addr = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls { host, port, insecure, tls_params },
            _ => ConnectionAddr::Tcp(host, port),
        };
        info.set_addr(addr)
    }

    /// Makes a call once. A script that this server has not seen yet is brought to it.
    pub(super) async fn call(&self, call: &Call, safely: bool) -> RedisResult<Value> {
        match (self.send_call(call, safely).await, call.script) {
            (Err(error), Some(script)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                script.load_async(&mut self.wire.clone()).await?;
                self.send_call(call, safely).await
            }
            (answer, _) => answer,
        }
    }

    /// A call whose effect must not be lost goes with a `WAIT` behind it, on the same connection and in the same breath: an answer means
    /// that the replicas have it, or that it was told that they have not.
    async fn send_call(&self, call: &Call, safely: bool) -> RedisResult<Value> {
        let replicas = self.replicas.load(Ordering::Relaxed);
        if !safely || replicas == 0 {
            return self.send(&call.command).await;
        }
        let mut both = redis::pipe();
        both.add_command(call.command.clone()).cmd("WAIT").arg(replicas).arg(REPLICAS_MS);
        let mut answers = self.wire.clone().send_packed_commands(&both, 0, 2).await?.into_iter();
        let value = answers.next().unwrap_or(Value::Nil).extract_error()?;
        // A server that stops being the master while it waits says so: then the call is made again where the master is now.
        match answers.next().unwrap_or(Value::Nil).extract_error()? {
            Value::Int(reached) if reached >= i64::from(replicas) => {}
            _ => {
                tracing::warn!(node = self.name, "not all replicas have it yet");
                self.again.notify_one();
            }
        }
        Ok(value)
    }

    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.wire.clone()).await
    }

    /// Counts the replicas that listen. One that hangs is not waited for, and one that is there again is.
    pub(super) async fn count_replicas(&self) {
        match self.ask_text("counting replicas", redis::cmd("INFO").arg("replication")).await {
            Ok(info) => self.replicas.store(awake_replicas(&info), Ordering::Relaxed),
            Err(error) => tracing::debug!(node = self.name, %error, "could not count the replicas"),
        }
    }

    /// Asks for something that a server may forbid: then `None`.
    pub(super) async fn ask_if_allowed(&self, what: &'static str, command: &Cmd) -> Result<Option<Value>, StoreError> {
        match timeout_at(Instant::now() + CALL_TIME, self.send(command)).await {
            Ok(Ok(value)) => Ok(Some(value)),
            Ok(Err(error)) if error.code().is_some() => Ok(None),
            Ok(Err(error)) => Err(failed(what, error)),
            Err(_) => Err(late(what)),
        }
    }

    /// A plain command that changes nothing.
    pub(super) async fn ask(&self, what: &'static str, command: &Cmd) -> Result<Value, StoreError> {
        match timeout_at(Instant::now() + CALL_TIME, self.send(command)).await {
            Ok(answer) => answer.map_err(|error| failed(what, error)),
            Err(_) => Err(late(what)),
        }
    }

    pub(super) async fn ask_text(&self, what: &'static str, command: &Cmd) -> Result<String, StoreError> {
        match self.ask(what, command).await? {
            Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            _ => Err(odd("no text")),
        }
    }
}

/// A lost connection is made again for ever: each call that finds it broken starts a few tries, and waits for them no longer than it may.
fn patience() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(CONNECT_TIME))
        .set_response_timeout(Some(CALL_TIME))
        .set_number_of_retries(2)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_pipeline_buffer_size(1_000)
}
