//! The connection, and how a call is made over it: within a short time, once, and again under the same name when the line was cut.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionManager;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};

use super::row::Row;
use super::script::Call;
use crate::clock::Clock;
use crate::store::StoreError;

/// The longest a call may take in all, tries included: a provider that waits for its answer is told in time.
pub(super) const CALL_TIME: Duration = Duration::from_millis(1_500);
/// The first pause before a call is sent again; doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How long a call waits until the replicas have it. What they have not by then they get later; the call is answered all the same.
const REPLICAS_MS: u64 = 500;

/// What all parts of the engine share.
#[derive(Clone)]
pub(super) struct Link {
    wire: ConnectionManager,
    prefix: Arc<str>,
    /// The channel on which instances tell each other that there is work.
    news: Arc<str>,
    /// A clock turned by hand, in tests. `None`: time is the server's.
    clock: Option<Arc<dyn Clock>>,
    replicas: u32,
}

impl Link {
    pub(super) fn new(wire: ConnectionManager, prefix: &str, clock: Option<Arc<dyn Clock>>) -> Self {
        Self { wire, prefix: prefix.into(), news: news_channel(prefix).into(), clock, replicas: 0 }
    }

    /// From now on what must not be lost waits for this many replicas.
    pub(super) fn with_replicas(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// A call on the keys of one account.
    pub(super) fn call(&self, script: &'static Script, account: u32) -> Call {
        self.call_at(script, &self.root(account))
    }

    /// A call on what all accounts share.
    pub(super) fn shared_call(&self, script: &'static Script) -> Call {
        self.call_at(script, &self.shared_root())
    }

    pub(super) fn shared_root(&self) -> String {
        format!("{}:{{all}}:", self.prefix)
    }

    /// Every key of an account begins so; what stands in braces decides on which node of a cluster it is.
    pub(super) fn root(&self, account: u32) -> String {
        format!("{}:{{{account}}}:", self.prefix)
    }

    /// The root of the keys that were moved here and begin with these four bits: nobody knows whose they are, so they are spread over
    /// the nodes by themselves.
    pub(super) fn root_of_moved(&self, part: u8) -> String {
        format!("{}:{{k{part:x}}}:", self.prefix)
    }

    pub(super) fn call_at(&self, script: &'static Script, root: &str) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(1).arg(root);
        match &self.clock {
            Some(clock) => command.arg(clock.now_ms()),
            None => command.arg(""),
        };
        command.arg(&rand::random::<u64>().to_le_bytes()[..]).arg(&*self.news);
        Call { script, command }
    }

    /// Makes a call. When the connection is lost on the way nobody knows whether the script ran: it is called again under the same name.
    pub(super) async fn run(&self, what: &'static str, call: Call) -> Result<Value, StoreError> {
        let deadline = Instant::now() + CALL_TIME;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match timeout_at(deadline, self.try_call(&call)).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => return Err(late(what)),
            };
            if !is_passing(&error) || Instant::now() + pause >= deadline {
                return Err(failed(what, error));
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Makes a call whose effect must not be lost: where there are replicas, it waits until they have it, for a time.
    pub(super) async fn run_safely(&self, what: &'static str, call: Call) -> Result<Value, StoreError> {
        let value = self.run(what, call).await?;
        if self.replicas > 0 {
            let mut wait = redis::cmd("WAIT");
            wait.arg(self.replicas).arg(REPLICAS_MS);
            match self.send(&wait).await {
                Ok(Value::Int(reached)) if reached >= i64::from(self.replicas) => {}
                Ok(_) => tracing::warn!(what, "not all replicas have it yet"),
                Err(error) => tracing::warn!(what, %error, "could not wait for the replicas"),
            }
        }
        Ok(value)
    }

    async fn try_call(&self, call: &Call) -> RedisResult<Value> {
        match self.send(&call.command).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                call.script.load_async(&mut self.wire.clone()).await?;
                self.send(&call.command).await
            }
            answer => answer,
        }
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.wire.clone()).await
    }

    /// The time, for a look that decides nothing.
    pub(super) async fn now_ms(&self) -> Result<i64, StoreError> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now_ms());
        }
        let mut parts = Row::of(self.ask("asking redis for the time", &redis::cmd("TIME")).await?)?;
        Ok(parts.int()? * 1_000 + parts.int()? / 1_000)
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
}

pub(super) fn news_channel(prefix: &str) -> String {
    format!("{prefix}:news")
}

/// Whether the same call may succeed in a moment: the line was cut, or the server is on its way up.
fn is_passing(error: &RedisError) -> bool {
    let passing = ["LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "UNBLOCKED"];
    error.is_io_error() || error.code().is_some_and(|code| passing.contains(&code))
}

/// Everything that Redis refuses may be fixed on its side while hapax runs: memory is freed, a disk is emptied, a master comes back.
pub(super) fn failed(what: &'static str, error: RedisError) -> StoreError {
    StoreError::Failed { what, retryable: true, source: error.into() }
}

fn late(what: &'static str) -> StoreError {
    StoreError::Failed { what, retryable: true, source: "redis did not answer in time".into() }
}
