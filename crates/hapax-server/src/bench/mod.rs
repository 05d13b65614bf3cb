//! `hapax bench`: how fast this machine takes in webhooks, as ratios to a bare server that checks
//! the signature, parses and does nothing else. The ingress without a store stands beside it, so that the loss before the store shows.
//!
//! What is sent is compared with a bare sender, which makes the same calls and keeps nothing.
//!
//! Everything is started here and ends here: servers as child processes on loopback, the load and the bot in this process. Rounds are
//! repeated and the phases of a round run one after the other, so that a ratio compares neighbours in time.

mod bare;
mod bare_sender;
mod bot;
mod child;
mod claims;
mod filled;
mod load;
mod no_store;
mod pages;
mod preload;
mod requests;
mod resp;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use child::serve_child;

use hapax::{StoreAddress, StoreUrl};
use hapax_store::clock::SystemClock;

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
    /// How many events are many, for pages.
    pub events: usize,
    /// Servers to measure beside the embedded store.
    pub stores: Vec<StoreUrl>,
    /// What to measure.
    pub parts: Vec<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Webhooks that nobody has seen
    Accept,
    /// Webhooks that came before
    Copies,
    /// Taken in, delivered and settled
    Deliver,
    /// Submitted, sent and settled
    Send,
    /// Claims by the Redis door, over HTTP and in Rust
    Claims,
    /// Pages of the web with many events against few, and taking in while many of them are open
    Pages,
}

/// One line of the table: a phase over all rounds.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Requests a second, per round.
    pub rates: Vec<f64>,
    /// This phase's rate to its yardstick's of the same round.
    pub ratios: Vec<f64>,
    pub yardstick: String,
    /// Processor time of the server for each request, in microseconds, per round; empty where nobody looked.
    pub cpu_us: Vec<f64>,
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
    /// What could not be measured here, and why.
    pub notes: Vec<String>,
}

/// Told about progress: what runs now, and how far it is (0 to 1).
pub type Progress<'p> = &'p mut (dyn FnMut(&str, f64) + Send);

/// Why a benchmark ended early.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

const BARE_64: &str = "bare server, 64 connections";
const BARE_256: &str = "bare server, 256 connections";
const NO_STORE_64: &str = "no store, 64 connections";
const NO_STORE_256: &str = "no store, 256 connections";
const BARE_SENDER: &str = "bare sender, 64 connections";
const BARE_LOOP: &str = "bare sending loop, 64 connections";
/// The longest that what was taken in may take to be delivered or sent.
const DRAINED: Duration = Duration::from_secs(300);

/// Runs the plan.
pub async fn run(plan: &Plan, progress: Progress<'_>) -> Result<Report, BenchError> {
    std::fs::create_dir_all(&plan.folder)?;
    let outcome = run_in(plan, progress).await;
    let _ = std::fs::remove_dir_all(&plan.folder);
    outcome
}

async fn run_in(plan: &Plan, progress: Progress<'_>) -> Result<Report, BenchError> {
    let mut report = Report { sync_us: sync_us(&plan.folder)?, ..Report::default() };
    let mut stage = Stage { plan, report: &mut report, round: 0, steps: 0 };
    for round in 0..plan.rounds {
        (stage.round, stage.steps) = (round, 0);
        stage.round_of_phases(progress).await?;
    }
    if stage.measures(Part::Pages) {
        stage.pages_of_all(progress).await?;
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
    /// Measurements made in this round.
    steps: usize,
}

/// A store that is measured.
#[derive(Clone, Copy)]
struct Subject<'s> {
    name: &'static str,
    /// `None`: the embedded store, in a new file each time.
    server: Option<&'s StoreAddress>,
}

impl<'s> Subject<'s> {
    fn new(url: &'s StoreUrl) -> Self {
        let server = match url {
            StoreUrl::Memory | StoreUrl::Sqlite(_) => None,
            StoreUrl::Postgres(it) | StoreUrl::Mysql(it) | StoreUrl::Redis(it) | StoreUrl::Firestore(it) => Some(it),
        };
        Self { name: url.engine(), server }
    }

    fn kind<'k>(self, file: &'k Path) -> StoreKind<'k>
    where
        's: 'k,
    {
        self.server.map_or(StoreKind::Sqlite(file), StoreKind::Server)
    }

    fn line(self, phase: &str) -> String {
        format!("{}: {phase}", self.name)
    }
}

impl Stage<'_> {
    /// All phases of one round on the embedded store.
    async fn round_of_phases(&mut self, progress: Progress<'_>) -> Result<(), BenchError> {
        let subject = Subject { name: "sqlite", server: None };
        if self.measures(Part::Claims) {
            self.claims(subject, progress).await?;
        }
        if self.plan.parts.iter().all(|part| matches!(part, Part::Claims | Part::Pages)) {
            return Ok(());
        }
        self.fresh(BARE_64, BARE_64, StoreKind::Bare, 64, progress).await?;
        if self.measures(Part::Accept) {
            self.fresh(NO_STORE_64, BARE_64, StoreKind::None, 64, progress).await?;
            self.fresh(BARE_256, BARE_256, StoreKind::Bare, 256, progress).await?;
            self.fresh(NO_STORE_256, BARE_256, StoreKind::None, 256, progress).await?;
        }
        self.phases(subject, progress).await?;
        for url in &self.plan.stores {
            let subject = Subject::new(url);
            if self.measures(Part::Accept) {
                self.naive_claim(subject, url, progress).await?;
            }
            self.phases(subject, progress).await?;
        }
        Ok(())
    }

    /// A round of pages takes long to prepare, so all of them are made in a row.
    async fn pages_of_all(&mut self, progress: Progress<'_>) -> Result<(), BenchError> {
        let embedded = StoreUrl::Sqlite(self.plan.folder.clone());
        let plan = self.plan;
        for url in std::iter::once(&embedded).chain(&plan.stores) {
            self.pages(Subject::new(url), url, progress).await?;
            self.watched(Subject::new(url), progress).await?;
        }
        Ok(())
    }

    /// The same measurements for every store.
    async fn phases(&mut self, subject: Subject<'_>, progress: Progress<'_>) -> Result<(), BenchError> {
        if self.measures(Part::Accept) {
            let file = self.new_store();
            self.fresh(&subject.line("fresh keys, 64 connections"), BARE_64, subject.kind(&file), 64, progress).await?;
            let file = self.new_store();
            self.fresh(&subject.line("fresh keys, 256 connections"), BARE_256, subject.kind(&file), 256, progress).await?;
        }
        if self.measures(Part::Copies) {
            self.copies(subject, "half copies, 64 connections", 2, progress).await?;
            self.copies(subject, "only copies, 64 connections", 1, progress).await?;
        }
        if self.measures(Part::Deliver) {
            self.delivered(subject, progress).await?;
        }
        if self.measures(Part::Send) {
            self.sent(subject, progress).await?;
        }
        Ok(())
    }

    fn measures(&self, part: Part) -> bool {
        self.plan.parts.contains(&part)
    }

    /// What a server does when every request takes its key by itself, beside what it does when hapax gathers them.
    async fn naive_claim(&mut self, subject: Subject<'_>, url: &StoreUrl, progress: Progress<'_>) -> Result<(), BenchError> {
        let Some(address) = subject.server else { return Ok(()) };
        let naive_claim = hapax::open_naive_claim(url).await?;
        let name = subject.line(&format!("{} per request, 64 connections", naive_claim.what()));
        self.fresh(&name, BARE_64, StoreKind::NaiveClaim(address), 64, progress).await?;
        let tag = format!("{:x}", rand::random::<u64>());
        let yardstick = subject.line(&format!("claims, {} each, 64 connections", naive_claim.what()));
        self.say(&yardstick, progress);
        let measured = claims::naive_claim(naive_claim, &tag, self.plan.requests).await?;
        self.note(&yardstick, &yardstick, &measured, 0);
        let name = subject.line("claims, gathered by hapax");
        self.say(&name, progress);
        let store = hapax::open_store(url, &child::OPTIONS, Arc::new(SystemClock::new())).await?;
        let measured = claims::through(store, &tag, self.plan.requests).await?;
        self.note(&name, &yardstick, &measured, 0);
        Ok(())
    }

    /// Submitting and sending, against a server that takes the same and sends it on. Beside it stands what load and provider can do by
    /// themselves: the same calls, written beforehand, one after the other per connection.
    async fn sent(&mut self, subject: Subject<'_>, progress: Progress<'_>) -> Result<(), BenchError> {
        self.say(&subject.line("sending"), progress);
        let provider = bot::Bot::start(|n| format!(r#"{{"messages":[{{"id":"wamid.{n}"}}]}}"#)).await?;
        let requests = self.plan.requests / 4;
        let tag = format!("{:x}", rand::random::<u32>());
        let api = format!("http://{}", provider.address);
        let mut before = 0;
        if subject.server.is_none() {
            let server = Child::start(StoreKind::Bare, Side::Provider(&api)).await?;
            let sender = server.load(requests::submits(&tag, 64, requests)).await?;
            self.note(BARE_SENDER, BARE_SENDER, &sender, server.peak_mb());
            drop(server);
            let bare = load::run(provider.address, requests::direct_sends(&tag, 64, requests)).await?;
            self.note(BARE_LOOP, BARE_SENDER, &bare, 0);
            before = sender.requests + bare.requests;
        }
        let file = self.new_store();
        let server = Child::start(subject.kind(&file), Side::Provider(&api)).await?;
        let submits = requests::submits(&tag, 64, requests);
        let count: usize = submits.iter().map(|connection| connection.len()).sum();
        let (started, cpu) = (Instant::now(), server.cpu());
        let measured = load::run(server.address, submits).await?;
        self.note(&subject.line("submit, 64 connections"), BARE_SENDER, &measured, server.peak_mb());
        tokio::time::timeout(DRAINED, provider.handled(before + count)).await?;
        let measured = load::Measured { seconds: started.elapsed().as_secs_f64(), ..server.with_cpu(measured, cpu) };
        self.note(&subject.line("submit + send + settle, 64 connections"), BARE_SENDER, &measured, server.peak_mb());
        drop(server);
        self.sent_by_dropin(subject, &api, requests, progress).await
    }

    /// The provider's own calls, made to hapax in place of the provider: each is answered with what the provider has answered.
    async fn sent_by_dropin(
        &mut self,
        subject: Subject<'_>,
        api: &str,
        requests: usize,
        progress: Progress<'_>,
    ) -> Result<(), BenchError> {
        let name = subject.line("drop-in send, 64 connections");
        self.say(&name, progress);
        let file = self.new_store();
        let server = Child::start(subject.kind(&file), Side::Provider(api)).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let measured = server.load(requests::direct_sends(&tag, 64, requests)).await?;
        self.note(&name, BARE_SENDER, &measured, server.peak_mb());
        Ok(())
    }

    fn new_store(&self) -> PathBuf {
        self.plan.folder.join(format!("{:x}.db", rand::random::<u64>()))
    }

    fn say(&self, name: &str, progress: Progress<'_>) {
        let done = (self.round as f64 + self.steps as f64 / self.steps_in_all()) / self.plan.rounds as f64;
        progress(&format!("round {}: {name}", self.round + 1), done.min(1.0));
    }

    /// About how many measurements a round has.
    fn steps_in_all(&self) -> f64 {
        24.0 + 11.0 * self.plan.stores.len() as f64
    }

    async fn fresh(
        &mut self,
        name: &str,
        yardstick: &str,
        store: StoreKind<'_>,
        connections: usize,
        progress: Progress<'_>,
    ) -> Result<(), BenchError> {
        self.say(name, progress);
        let server = Child::start(store, Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        load::run(server.address, requests::fresh(&format!("{tag}w"), connections, 2_000)).await?;
        let measured = server.load(requests::fresh(&tag, connections, self.plan.requests)).await?;
        self.note(name, yardstick, &measured, server.peak_mb());
        Ok(())
    }

    /// Every `one_in`-th request is a copy of a message that was taken in before; `one_in = 1` means all of them.
    async fn copies(
        &mut self,
        subject: Subject<'_>,
        name: &str,
        one_in: usize,
        progress: Progress<'_>,
    ) -> Result<(), BenchError> {
        let name = subject.line(name);
        self.say(&name, progress);
        let file = self.new_store();
        let server = Child::start(subject.kind(&file), Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        load::run(server.address, requests::fresh(&tag, 64, requests::COPIED)).await?;
        let mixed = requests::mixed(&tag, 64, self.plan.requests, one_in);
        let measured = server.load(mixed).await?;
        self.note(&name, BARE_64, &measured, server.peak_mb());
        Ok(())
    }

    async fn delivered(&mut self, subject: Subject<'_>, progress: Progress<'_>) -> Result<(), BenchError> {
        let name = subject.line("accept + deliver + settle, 64 connections");
        self.say(&name, progress);
        let bot = bot::Bot::start(|_| String::new()).await?;
        let file = self.new_store();
        let target = format!("http://{}/bot", bot.address);
        let server = Child::start(subject.kind(&file), Side::Target(&target)).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let requests = requests::fresh_on(requests::DELIVERED, &tag, 64, self.plan.requests);
        let count: usize = requests.iter().map(|connection| connection.len()).sum();
        let (started, before) = (Instant::now(), server.cpu());
        let measured = load::run(server.address, requests).await?;
        tokio::time::timeout(DRAINED, bot.handled(count)).await?;
        let measured = load::Measured { seconds: started.elapsed().as_secs_f64(), ..server.with_cpu(measured, before) };
        self.note(&name, BARE_64, &measured, server.peak_mb());
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
        let measured = server.load(requests::fresh(&tag, 64, self.plan.requests)).await?;
        let name = format!("fresh keys, {} million in the store", keys as f64 / 1e6);
        self.line(&name, "the same, empty store", measured.rate() / yardstick.rate(), &measured, server.peak_mb());
        Ok(())
    }

    /// Adds a measurement whose yardstick was measured in this round already.
    fn note(&mut self, name: &str, yardstick: &str, measured: &load::Measured, peak_mb: u64) {
        self.steps += 1;
        let round = self.round;
        let base = self.report.lines.iter().find(|line| line.name == yardstick).and_then(|line| line.rates.get(round).copied());
        self.line(name, yardstick, measured.rate() / base.unwrap_or(measured.rate()), measured, peak_mb);
    }

    fn line(&mut self, name: &str, yardstick: &str, ratio: f64, measured: &load::Measured, peak_mb: u64) {
        let at = self.report.lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            let (name, yardstick) = (name.to_owned(), yardstick.to_owned());
            let new = Line { name, rates: vec![], ratios: vec![], yardstick, cpu_us: vec![], p50_us: 0, p99_us: 0, peak_mb: 0 };
            self.report.lines.push(new);
            self.report.lines.len() - 1
        });
        let line = &mut self.report.lines[at];
        line.rates.push(measured.rate());
        line.ratios.push(ratio);
        line.cpu_us.extend((measured.cpu_us > 0.0).then_some(measured.cpu_us));
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
