//! `hapax bench`: how fast this machine takes in webhooks, as ratios to the same server that verifies and parses but stores nothing.
//!
//! Everything is started here and ends here: servers as child processes on loopback, the load and the bot in this process. Rounds are
//! repeated and the phases of a round run one after the other, so that a ratio compares neighbours in time.

mod bot;
mod child;
mod load;
mod no_store;
mod preload;
mod requests;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use child::serve_child;

use self::child::{Child, Side, StoreKind};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On the disk to be measured; emptied and removed afterwards.
    pub folder: PathBuf,
    pub rounds: usize,
    pub requests: usize,
    /// How many keys to put into the store beforehand, one measurement each.
    pub preloads: Vec<u64>,
}

/// One line of the table: a phase over all rounds.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Requests a second, per round.
    pub rates: Vec<f64>,
    /// This phase's rate to its yardstick's of the same round.
    pub ratios: Vec<f64>,
    pub yardstick: &'static str,
    pub p50_us: u64,
    pub p99_us: u64,
    /// Most memory the server held.
    pub peak_mb: u64,
}

/// The whole outcome.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub lines: Vec<Line>,
    /// One append of 4 KB with fdatasync on this disk, in microseconds.
    pub sync_us: u64,
    /// Time from starting the server to its first 200, by keys preloaded.
    pub restarts: Vec<(u64, Duration)>,
}

/// Told about progress: what runs now, and how far it is (0 to 1).
pub type Progress<'p> = &'p mut (dyn FnMut(&str, f64) + Send);

/// Why a benchmark ended early.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

const NO_STORE_64: &str = "no store, 64 connections";
const NO_STORE_256: &str = "no store, 256 connections";
const FRESH_64: &str = "fresh keys, 64 connections";
const BARE_LOOP: &str = "bare sending loop, 64 connections";
/// Phases of one round.
const PHASES: usize = 8;

/// Runs the plan.
pub async fn run(plan: &Plan, progress: Progress<'_>) -> Result<Report, BenchError> {
    std::fs::create_dir_all(&plan.folder)?;
    let outcome = run_in(plan, progress).await;
    let _ = std::fs::remove_dir_all(&plan.folder);
    outcome
}

async fn run_in(plan: &Plan, progress: Progress<'_>) -> Result<Report, BenchError> {
    let mut report = Report { sync_us: sync_us(&plan.folder)?, ..Report::default() };
    let mut stage = Stage { plan, report: &mut report, round: 0 };
    for round in 0..plan.rounds {
        stage.round = round;
        stage.round_of_phases(progress).await?;
    }
    for &keys in &plan.preloads {
        let path = plan.folder.join(format!("preloaded-{keys}.db"));
        preload::preload(&path, keys, &mut |done| progress(&format!("putting in {keys} keys"), done)).await?;
        let started = Instant::now();
        let server = Child::start(StoreKind::Sqlite(&path), Side::Nobody).await?;
        let first = requests::fresh(&format!("first{keys}"), 1, 1);
        load::run(server.address, first).await?;
        stage.report.restarts.push((keys, started.elapsed()));
        drop(server);
        for round in 0..plan.rounds {
            stage.round = round;
            progress(&format!("round {}: {keys} keys in the store", round + 1), round as f64 / plan.rounds as f64);
            stage.preloaded(keys, &path).await?;
        }
        std::fs::remove_file(&path)?;
    }
    Ok(report)
}

struct Stage<'a> {
    plan: &'a Plan,
    report: &'a mut Report,
    round: usize,
}

impl Stage<'_> {
    async fn round_of_phases(&mut self, progress: Progress<'_>) -> Result<(), BenchError> {
        let total = (self.plan.rounds * PHASES) as f64;
        let done = self.round * PHASES;
        let round = self.round + 1;
        let mut at = |step: usize, name: &str| progress(&format!("round {round}: {name}"), (done + step) as f64 / total);
        at(0, NO_STORE_64);
        self.fresh(NO_STORE_64, NO_STORE_64, StoreKind::None, 64).await?;
        at(1, FRESH_64);
        let path = self.new_store();
        self.fresh(FRESH_64, NO_STORE_64, StoreKind::Sqlite(&path), 64).await?;
        at(2, NO_STORE_256);
        self.fresh(NO_STORE_256, NO_STORE_256, StoreKind::None, 256).await?;
        at(3, "fresh keys, 256 connections");
        let path = self.new_store();
        self.fresh("fresh keys, 256 connections", NO_STORE_256, StoreKind::Sqlite(&path), 256).await?;
        at(4, "half copies");
        self.copies("half copies, 64 connections", 2).await?;
        at(5, "only copies");
        self.copies("only copies, 64 connections", 1).await?;
        at(6, "accept + deliver");
        self.delivered().await?;
        at(7, "sending");
        self.sent().await
    }

    /// Submitting and sending, against a client that makes the same calls to the provider itself, one after the other per connection.
    async fn sent(&mut self) -> Result<(), BenchError> {
        let provider = bot::Bot::start(|n| format!(r#"{{"messages":[{{"id":"wamid.{n}"}}]}}"#)).await?;
        let requests = self.plan.requests / 4;
        let bare = load::run(provider.address, requests::direct_sends(64, requests)).await?;
        self.note(BARE_LOOP, BARE_LOOP, &bare, 0);
        let path = self.new_store();
        let api = format!("http://{}", provider.address);
        let server = Child::start(StoreKind::Sqlite(&path), Side::Provider(&api)).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let submits = requests::submits(&tag, 64, requests);
        let count: usize = submits.iter().map(|connection| connection.len()).sum();
        let started = Instant::now();
        let mut measured = load::run(server.address, submits).await?;
        self.note("submit, 64 connections", BARE_LOOP, &measured, server.peak_mb());
        tokio::time::timeout(Duration::from_secs(120), provider.handled(bare.requests + count)).await?;
        measured.seconds = started.elapsed().as_secs_f64();
        self.note("submit + send + settle, 64 connections", BARE_LOOP, &measured, server.peak_mb());
        Ok(())
    }

    fn new_store(&self) -> PathBuf {
        self.plan.folder.join(format!("{:x}.db", rand::random::<u64>()))
    }

    async fn fresh(
        &mut self,
        name: &str,
        yardstick: &'static str,
        store: StoreKind<'_>,
        connections: usize,
    ) -> Result<(), BenchError> {
        let server = Child::start(store, Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        load::run(server.address, requests::fresh(&format!("{tag}w"), connections, 2_000)).await?;
        let measured = load::run(server.address, requests::fresh(&tag, connections, self.plan.requests)).await?;
        self.note(name, yardstick, &measured, server.peak_mb());
        Ok(())
    }

    /// Every `one_in`-th request is a copy of a message that was taken in before; `one_in = 1` means all of them.
    async fn copies(&mut self, name: &str, one_in: usize) -> Result<(), BenchError> {
        let path = self.new_store();
        let server = Child::start(StoreKind::Sqlite(&path), Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        load::run(server.address, requests::fresh(&tag, 64, requests::COPIED)).await?;
        let mixed = requests::mixed(&tag, 64, self.plan.requests, one_in);
        let measured = load::run(server.address, mixed).await?;
        self.note(name, NO_STORE_64, &measured, server.peak_mb());
        Ok(())
    }

    async fn delivered(&mut self) -> Result<(), BenchError> {
        let bot = bot::Bot::start(|_| String::new()).await?;
        let path = self.new_store();
        let target = format!("http://{}/bot", bot.address);
        let server = Child::start(StoreKind::Sqlite(&path), Side::Target(&target)).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let requests = requests::fresh(&tag, 64, self.plan.requests);
        let count: usize = requests.iter().map(|connection| connection.len()).sum();
        let started = Instant::now();
        let mut measured = load::run(server.address, requests).await?;
        tokio::time::timeout(Duration::from_secs(120), bot.handled(count)).await?;
        measured.seconds = started.elapsed().as_secs_f64();
        self.note("accept + deliver + settle, 64 connections", NO_STORE_64, &measured, server.peak_mb());
        Ok(())
    }

    async fn preloaded(&mut self, keys: u64, path: &Path) -> Result<(), BenchError> {
        let empty = self.new_store();
        let server = Child::start(StoreKind::Sqlite(&empty), Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let yardstick = load::run(server.address, requests::fresh(&tag, 64, self.plan.requests)).await?;
        drop(server);
        let server = Child::start(StoreKind::Sqlite(path), Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let measured = load::run(server.address, requests::fresh(&tag, 64, self.plan.requests)).await?;
        let name = format!("fresh keys, {} million in the store", keys as f64 / 1e6);
        self.line(&name, "the same, empty store", measured.rate() / yardstick.rate(), &measured, server.peak_mb());
        Ok(())
    }

    /// Adds a measurement whose yardstick was measured in this round already.
    fn note(&mut self, name: &str, yardstick: &'static str, measured: &load::Measured, peak_mb: u64) {
        let round = self.round;
        let base = self.report.lines.iter().find(|line| line.name == yardstick).and_then(|line| line.rates.get(round).copied());
        self.line(name, yardstick, measured.rate() / base.unwrap_or(measured.rate()), measured, peak_mb);
    }

    fn line(&mut self, name: &str, yardstick: &'static str, ratio: f64, measured: &load::Measured, peak_mb: u64) {
        let at = self.report.lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            let new = Line { name: name.to_owned(), rates: vec![], ratios: vec![], yardstick, p50_us: 0, p99_us: 0, peak_mb: 0 };
            self.report.lines.push(new);
            self.report.lines.len() - 1
        });
        let line = &mut self.report.lines[at];
        line.rates.push(measured.rate());
        line.ratios.push(ratio);
        line.p50_us = measured.p50_us;
        line.p99_us = line.p99_us.max(measured.p99_us);
        line.peak_mb = line.peak_mb.max(peak_mb);
    }
}

/// Measures what one durable append costs here, which every figure above rests on.
fn sync_us(folder: &Path) -> std::io::Result<u64> {
    use std::io::Write;
    let path = folder.join("sync");
    let mut file = std::fs::File::create(&path)?;
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..100 {
        let started = Instant::now();
        file.write_all(&[0; 4_096])?;
        file.sync_data()?;
        took.push(started.elapsed());
    }
    std::fs::remove_file(&path)?;
    took.sort_unstable();
    Ok(took[took.len() / 2].as_micros() as u64)
}
