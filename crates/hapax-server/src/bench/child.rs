//! The server under measurement, in a process of its own: its memory is its own, and killing it is the end of it.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hapax::{StoreAddress, StoreUrl};
use hapax_domain::{Kind, Replay, RetryPolicy, limits as bounds};
use hapax_gateway::server::{Listeners, Server};
use hapax_gateway::settings::{
    Backups, Channel, Claims, Deliver, DropIn, Limits, Mode, OnPoison, OnStoreFailure, OnUnknown, Rate, Send, Settings,
    TargetAccess,
};
use hapax_gateway::telemetry::Telemetry;
use hapax_store::Store;
use hapax_store::clock::{Clock, SystemClock};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::load::{self, Measured};
use super::no_store::NoStore;
use super::requests::Script;
use super::{BenchError, bare, requests};

/// The hidden command that [`Child::start`] starts this program with.
pub(super) const COMMAND: &str = "bench-server";

/// What the server keeps its events in.
#[derive(Clone, Copy)]
pub(super) enum StoreKind<'p> {
    /// No hapax at all.
    Bare,
    None,
    Sqlite(&'p Path),
    Server(&'p StoreAddress),
    /// Keeps nothing but keys, each taken as people do it by hand.
    NaiveClaim(&'p StoreAddress),
}

/// The address goes by the environment: a command line can be read by everybody on the machine.
const STORE: &str = "HAPAX_BENCH_STORE";

/// Who is on the other side of the server.
#[derive(Clone, Copy)]
pub(super) enum Side<'u> {
    /// Events wait.
    Nobody,
    /// A bot that takes events.
    Target(&'u str),
    /// A provider's API that takes messages.
    Provider(&'u str),
}

pub(super) struct Child {
    process: tokio::process::Child,
    pub(super) address: SocketAddr,
    /// The Redis door.
    pub(super) door: SocketAddr,
}

impl Child {
    pub(super) async fn start(store: StoreKind<'_>, side: Side<'_>) -> Result<Self, BenchError> {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command.args(arguments(store, side)).stdout(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true);
        match store {
            StoreKind::Bare | StoreKind::None => {}
            StoreKind::Sqlite(path) => drop(command.env(STORE, format!("sqlite:{}", path.display()))),
            StoreKind::Server(address) | StoreKind::NaiveClaim(address) => drop(command.env(STORE, address.expose())),
        }
        let mut process = command.spawn()?;
        let said = process.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).await?;
        let (address, door) = addresses(&line).ok_or("the server did not start; its reason is above")?;
        Ok(Self { process, address, door })
    }

    /// Ends it, and waits until its store is free.
    pub(super) async fn end(mut self) -> Result<(), BenchError> {
        Ok(self.process.kill().await?)
    }

    /// Sends everything, and says what that cost the server.
    pub(super) async fn load(&self, scripts: Vec<Script>) -> Result<Measured, BenchError> {
        let before = self.cpu();
        let measured = load::run(self.address, scripts).await?;
        Ok(self.with_cpu(measured, before))
    }

    pub(super) fn with_cpu(&self, measured: Measured, before: Duration) -> Measured {
        measured.with_cpu(self.cpu() - before)
    }

    /// Processor time so far.
    pub(super) fn cpu(&self) -> Duration {
        cpu_of(self.process.id())
    }

    /// The most memory the server held so far.
    pub(super) fn peak_mb(&self) -> u64 {
        let status =
            self.process.id().and_then(|id| std::fs::read_to_string(format!("/proc/{id}/status")).ok()).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1_024
    }
}

/// Processor time of all threads of a process so far: fields 14 and 15 of the line, in hundredths of a second. The name before them may hold
/// anything.
pub(super) fn cpu_of(process: Option<u32>) -> Duration {
    let stat = process.and_then(|id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok()).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// What this program is started with to be the server.
fn arguments<'a>(store: StoreKind<'_>, side: Side<'a>) -> Vec<&'a str> {
    let mut arguments = vec![COMMAND];
    match store {
        StoreKind::Bare => arguments.push("--bare"),
        StoreKind::NaiveClaim(_) => arguments.push("--naive-claim"),
        StoreKind::None | StoreKind::Sqlite(_) | StoreKind::Server(_) => {}
    }
    match side {
        Side::Nobody => {}
        Side::Target(target) => arguments.extend(["--target", target]),
        Side::Provider(api_base) => arguments.extend(["--api-base", api_base]),
    }
    arguments
}

/// What the server says when it has started.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (address, door) = line.trim().split_once(' ')?;
    Some((address.parse().ok()?, door.parse().ok()?))
}

/// Runs the server until it is killed; says its addresses on standard output.
pub async fn serve_child(
    bare: bool,
    naive_claim: bool,
    target: Option<String>,
    api_base: Option<String>,
) -> Result<(), BenchError> {
    let (public, door) = (TcpListener::bind(("127.0.0.1", 0)).await?, TcpListener::bind(("127.0.0.1", 0)).await?);
    let mut said = std::io::stdout();
    let addresses = format!("{} {}", public.local_addr()?, door.local_addr()?);
    if bare {
        writeln!(said, "{addresses}")?;
        let provider = api_base.as_deref().and_then(|base| base.strip_prefix("http://")).map(str::parse).transpose()?;
        return Ok(bare::serve(public, provider).await?);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let url = std::env::var(STORE).ok().map(|text| StoreUrl::read(&text)).transpose()?;
    let store: Arc<dyn Store> = match url {
        None => Arc::new(NoStore::new(None)),
        Some(url) if naive_claim => Arc::new(NoStore::new(Some(hapax::open_naive_claim(&url).await?))),
        Some(url) => hapax::open_store(&url, &OPTIONS, Arc::clone(&clock)).await?,
    };
    let server = Server::on(store, None, clock, settings(target, api_base), Telemetry::new()).await?;
    writeln!(said, "{addresses}")?;
    said.flush()?;
    server.run(Listeners { public, admin: None, dropin: None, resp: Some(door) }, CancellationToken::new()).await?;
    Ok(())
}

/// The bounds of the embedded store.
pub(super) const OPTIONS: hapax::Options = hapax::Options { queue: 8_192, disk_floor_bytes: 64 << 20 };

fn limits() -> Limits {
    Limits {
        connections: bounds::CONNECTIONS_MAX,
        header_timeout_ms: bounds::HEADER_TIMEOUT_MS,
        body_timeout_ms: bounds::BODY_TIMEOUT_MS,
        bodies_bytes: bounds::BODIES_IN_FLIGHT_BYTES,
        cache_keys: bounds::CACHE_KEYS,
        outbox: bounds::OUTBOX_MAX,
    }
}

/// Sends as fast as it can.
fn unlimited(api_base: String) -> Send {
    let rate = Rate { count: 1_000_000, per_ms: 1_000, burst: 1_000_000 };
    Send {
        token: Some(requests::TOKEN.into()),
        api_base,
        on_unknown: OnUnknown::Hold,
        retry: RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 5 },
        lease_ms: 60_000,
        timeout_ms: 30_000,
        rate,
        chat_rate: rate,
        concurrency: 64,
    }
}

/// Waits as long as a call may take: a slow store is to be measured, not to have its callers told to come back.
fn patient() -> DropIn {
    DropIn {
        prefix: String::new(),
        wait_ms: Some(30_000),
        replay: Replay::Ordinal,
        redo_after_429: false,
        redo_confirmed_ms: None,
    }
}

fn settings(target: Option<String>, api_base: Option<String>) -> Settings {
    let waiting = Channel {
        name: requests::WAITING.into(),
        provider: requests::settings(),
        target: None,
        targets: Default::default(),
        mode: Mode::Queue,
        deliver: Deliver { kinds: Kind::ALL.to_vec(), echoes: true },
        window_ms: 8 * 86_400_000,
        retention_ms: 7 * 86_400_000,
        retry: RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 10 },
        timeout_ms: 60_000,
        lease_ms: 60_000,
        on_poison: OnPoison::Park,
        park_on_4xx: true,
        on_store_failure: OnStoreFailure::Retry,
        replay_guard: false,
        stale_after_ms: None,
        turns: None,
        access: TargetAccess::default(),
        sign_with: None,
        max_body: bounds::BODY_MAX_BYTES,
        concurrency: 64,
        typing: false,
        dropin: api_base.as_ref().map(|_| patient()),
        send: api_base.map(unlimited),
    };
    let delivered = target.map(|target| {
        let (name, target) = (requests::DELIVERED.into(), Some(target));
        Channel { name, target, send: None, dropin: None, ..waiting.clone() }
    });
    Settings {
        trusted_proxies: Vec::new(),
        cors_origins: Vec::new(),
        hosts: Vec::new(),
        public_url: None,
        hide_payloads: false,
        admin_token: Some(requests::TOKEN.into()),
        instance: Some("bench".to_owned()),
        stop_grace_ms: 5_000,
        limits: limits(),
        claims: Claims { ttl_ms: 86_400_000, lease_ms: 60_000, max: 10_000_000 },
        notify: None,
        backups: Backups::OwnTools("nothing of a benchmark is kept".to_owned()),
        resp_tls: None,
        otel: None,
        channels: std::iter::once(waiting).chain(delivered).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hapax_store::ThreadQuery;
    use hapax_store::memory::MemoryStore;

    use super::super::bot::Bot;
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn this_program_knows_the_arguments_it_is_started_with() {
        let Ok(StoreUrl::Postgres(address)) = StoreUrl::read("postgres://bench@127.0.0.1/bench") else {
            panic!("it is an address");
        };
        for store in [StoreKind::Bare, StoreKind::None, StoreKind::Server(&address), StoreKind::NaiveClaim(&address)] {
            for side in [Side::Nobody, Side::Target("http://127.0.0.1:1/bot"), Side::Provider("http://127.0.0.1:1")] {
                let arguments = arguments(store, side);
                let read = Cli::try_parse_from(std::iter::once("hapax").chain(arguments.iter().copied()));
                assert!(read.is_ok(), "{arguments:?}: {:?}", read.err());
            }
        }
    }

    #[tokio::test]
    async fn the_calls_of_the_bare_loop_are_sends_when_hapax_gets_them() {
        let provider = Bot::start(|n| format!(r#"{{"messages":[{{"id":"wamid.{n}"}}]}}"#)).await.unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock)));
        let settings = settings(None, Some(format!("http://{}", provider.address)));
        let server = Server::on(Arc::clone(&store), None, clock, settings, Telemetry::new()).await.unwrap();
        let public = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = public.local_addr().unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(Listeners { public, admin: None, dropin: None, resp: None }, stop.clone()));
        let measured = load::run(address, requests::direct_sends("t", 4, 40)).await.unwrap();
        stop.cancel();
        running.await.unwrap().unwrap();
        assert_eq!((measured.requests, provider.count()), (40, 40));
        let threads = store.threads(ThreadQuery { limit: 100, ..ThreadQuery::default() }).await.unwrap();
        assert_eq!(threads.rows.len(), 40, "each went through the outbox");
    }
}
