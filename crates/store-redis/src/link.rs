//! How a call is made: within a short time, once, and again under the same name when the line was cut or the master has changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hapax_store::StoreError;
use hapax_store::clock::Clock;
use redis::{Cmd, RedisError, Script, Value};
use tokio::time::{Instant, timeout_at};

use super::nodes::Nodes;
use super::row::Row;
use super::script::Call;

/// The longest a call may take in all, tries included: a provider that waits for its answer is told in time.
pub(super) const CALL_TIME: Duration = Duration::from_millis(1_500);
/// The first pause before a call is sent again; doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What all parts of the engine share.
#[derive(Clone)]
pub(super) struct Link {
    nodes: Arc<Nodes>,
    prefix: Arc<str>,
    /// The channel on which instances tell each other that there is work.
    notifications: Arc<str>,
    /// A clock turned by hand, in tests. `None`: time is the server's.
    clock: Option<Arc<dyn Clock>>,
}

impl Link {
    pub(super) fn new(nodes: Arc<Nodes>, prefix: &str, clock: Option<Arc<dyn Clock>>) -> Self {
        Self { nodes, prefix: prefix.into(), notifications: notification_channel(prefix).into(), clock }
    }

    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
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

    /// One call on each of the nodes that have what all accounts share, or one of these accounts.
    pub(super) fn calls_on_all_nodes(&self, script: &'static Script, accounts: impl Iterator<Item = u32>) -> Vec<Call> {
        let mut seen = HashSet::new();
        let roots = std::iter::once(self.shared_root()).chain(accounts.map(|account| self.root(account)));
        roots.filter(|root| seen.insert(self.nodes.of(root).name().to_owned())).map(|root| self.call_at(script, &root)).collect()
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
        command.arg(&rand::random::<u64>().to_le_bytes()[..]).arg(&*self.notifications);
        Call { script: Some(script), root: root.to_owned(), command }
    }

    /// Makes a call. When the connection is lost on the way nobody knows whether the script ran: it is called again under the same name.
    pub(super) async fn run(&self, what: &'static str, call: Call) -> Result<Value, StoreError> {
        self.make(what, &call, false).await
    }

    /// Makes a call whose effect must not be lost: where there are replicas, it waits until they have it, for a time.
    pub(super) async fn run_safely(&self, what: &'static str, call: Call) -> Result<Value, StoreError> {
        self.make(what, &call, true).await
    }

    /// A plain command that changes nothing, on keys that begin with this root.
    pub(super) async fn ask(&self, what: &'static str, root: &str, command: Cmd) -> Result<Value, StoreError> {
        self.make(what, &Call { script: None, root: root.to_owned(), command }, false).await
    }

    /// The time, for a look that decides nothing.
    pub(super) async fn now_ms(&self) -> Result<i64, StoreError> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now_ms());
        }
        let mut parts = Row::new(self.ask("asking redis for the time", &self.shared_root(), redis::cmd("TIME")).await?)?;
        Ok(parts.int()? * 1_000 + parts.int()? / 1_000)
    }

    async fn make(&self, what: &'static str, call: &Call, safely: bool) -> Result<Value, StoreError> {
        let deadline = Instant::now() + CALL_TIME;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match timeout_at(deadline, self.nodes.call(call, safely)).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) if !is_passing(&error) => return Err(failed(what, error)),
                Ok(Err(error)) => failed(what, error),
                Err(_) => late(what),
            };
            self.nodes.look_again();
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

pub(super) fn notification_channel(prefix: &str) -> String {
    format!("{prefix}:news")
}

/// Whether the same call may succeed in a moment: the line was cut, the server is on its way up, or the master is another by then.
fn is_passing(error: &RedisError) -> bool {
    let passing = ["LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "UNBLOCKED", "MOVED", "ASK"];
    error.is_io_error() || error.code().is_some_and(|code| passing.contains(&code))
}

/// Everything that Redis refuses may be fixed on its side while hapax runs: memory is freed, a disk is emptied, a master comes back.
pub(super) fn failed(what: &'static str, error: RedisError) -> StoreError {
    StoreError::Failed { what, retryable: true, source: error.into() }
}

pub(super) fn late(what: &'static str) -> StoreError {
    StoreError::Failed { what, retryable: true, source: "redis did not answer in time".into() }
}
