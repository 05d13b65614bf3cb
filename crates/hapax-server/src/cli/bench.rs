//! `hapax bench`

use std::path::PathBuf;

use clap::Args;
use hapax::StoreUrl;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{Failure, Output};
use crate::bench::{self, Line, Plan, Report};

/// Measure this machine: webhooks a second, as ratios to the same server that stores nothing
///
/// Sends, also those of bots that call hapax in place of their provider (drop-in), are compared with the same calls made to the
/// provider itself; claims by the Redis door with a Redis that syncs as often, where there is one. Starts its own servers, load, bot and provider on loopback and removes everything afterwards. Only the ratios
/// mean anything on another day: both sides of a ratio are measured in the same run, one after the other. Nothing else should be
/// busy meanwhile.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax bench --quick\n  hapax bench --json > bench.json\n  hapax bench --quick \
    --store postgres://hapax@127.0.0.1/bench --store redis://127.0.0.1/1")]
pub struct Bench {
    /// Leave out the stores with 1 and 10 million keys, which take minutes to fill
    #[arg(long)]
    quick: bool,
    /// How often to repeat; the table shows the median and the spread
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=20))]
    rounds: u16,
    /// Requests per measurement
    #[arg(long, default_value_t = 60_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=500_000))]
    requests: u32,
    /// Where the stores are put while measuring; the disk that matters to you
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    folder: PathBuf,
    /// Measure this server too, beside the embedded store; may be given several times. Give it a database of its own: what is written stays
    #[arg(long, value_name = "URL", value_parser = read_server)]
    store: Vec<StoreUrl>,
    /// Measure claims by the Redis door, and nothing else
    #[arg(long)]
    only_claims: bool,
}

fn read_server(text: &str) -> Result<StoreUrl, String> {
    match StoreUrl::read(text)? {
        StoreUrl::Memory | StoreUrl::Sqlite(_) => Err("the embedded store is measured anyway; name a server here".to_owned()),
        server => Ok(server),
    }
}

/// The server that `hapax bench` measures
#[derive(Args, Debug)]
pub struct BenchServer {
    #[arg(long)]
    naive_claim: bool,
    #[arg(long)]
    target: Option<String>,
    #[arg(long)]
    api_base: Option<String>,
}

impl BenchServer {
    pub(super) async fn run(self) -> Result<(), Failure> {
        bench::serve_child(self.naive_claim, self.target, self.api_base).await.map_err(|why| Failure::plain(why.to_string()))
    }
}

impl Bench {
    pub(super) async fn run(self, output: &Output) -> Result<(), Failure> {
        let plan = Plan {
            folder: self.folder.join(format!("hapax-bench-{}", std::process::id())),
            rounds: self.rounds.into(),
            requests: self.requests as usize,
            stores: self.store,
            only_claims: self.only_claims,
            preloads: if self.quick || self.only_claims { vec![] } else { vec![1_000_000, 10_000_000] },
        };
        let bar = ProgressBar::new(1_000);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}") {
            bar.set_style(style);
        }
        let mut progress = |what: &str, done: f64| {
            bar.set_position((done * 1_000.0) as u64);
            bar.set_message(what.to_owned());
        };
        let report =
            bench::run(&plan, &mut progress).await.map_err(|why| Failure::plain(format!("the benchmark stopped: {why}")))?;
        bar.finish_and_clear();
        if output.json {
            output.json(&as_json(&report));
        } else {
            show(&report, output);
        }
        Ok(())
    }
}

fn show(report: &Report, output: &Output) {
    output.note(format_args!("one durable append of 4 KB on this disk takes {} µs", report.sync_us));
    let rows = report.lines.iter().map(|line| {
        let (rate, ratio) = (Spread::new(&line.rates), Spread::new(&line.ratios));
        vec![
            line.name.clone(),
            format!("{:.2}", ratio.median),
            format!("{:.2}-{:.2}", ratio.least, ratio.most),
            line.yardstick.clone(),
            format!("{:.0}", rate.median),
            format!("{:.1}", line.p50_us as f64 / 1e3),
            format!("{:.1}", line.p99_us as f64 / 1e3),
            line.peak_mb.to_string(),
        ]
    });
    output.table(&["", "ratio", "spread", "to", "per second", "p50 ms", "p99 ms", "peak MB"], rows.collect());
    for note in &report.notes {
        output.note(note);
    }
    for (keys, took) in &report.restarts {
        output.note(format_args!("start to first 200 with {keys} keys: {:.2} s", took.as_secs_f64()));
    }
}

fn as_json(report: &Report) -> serde_json::Value {
    let line = |line: &Line| {
        json!({
            "name": line.name, "yardstick": line.yardstick, "ratio": Spread::new(&line.ratios).median, "ratios": line.ratios,
            "per_second": line.rates, "p50_us": line.p50_us, "p99_us": line.p99_us, "peak_mb": line.peak_mb,
        })
    };
    json!({
        "sync_us": report.sync_us,
        "notes": report.notes,
        "lines": report.lines.iter().map(line).collect::<Vec<_>>(),
        "restarts": report.restarts.iter().map(|(keys, took)| json!({"keys": keys, "seconds": took.as_secs_f64()})).collect::<Vec<_>>(),
    })
}

struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn new(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Self { least: at(0), median: at(sorted.len() / 2), most: at(sorted.len().saturating_sub(1)) }
    }
}
