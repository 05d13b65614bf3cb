//! `hapax bench`

mod chart;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use hapax::StoreUrl;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{Failure, Output};
use crate::bench::{self, Line, Part, Plan, Report};

/// Measure this machine: webhooks a second, as ratios to a bare server that checks the signature, parses and stores nothing
///
/// Beside it stands the whole way in without a store, so that what is lost before the store shows. The processor time that the server
/// takes for each webhook says most where other programs run. Sends, also those of bots that call hapax in place of their provider (drop-in), are compared with the same calls made to the
/// provider itself; claims (by the Redis door, over HTTP, in a Rust program) with a Redis that syncs as often, where there is one. Starts its own servers, load, bot and provider on loopback and removes everything afterwards. Only the ratios
/// mean anything on another day: both sides of a ratio are measured in the same run, one after the other. Nothing else should be
/// busy meanwhile.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  hapax bench --quick
  hapax bench --json > bench.json
  hapax bench --quick --store postgres://hapax@127.0.0.1/bench")]
pub struct Bench {
    /// Leave out the stores with 1 and 10 million keys, and pages, which take minutes to fill
    #[arg(long)]
    quick: bool,
    /// How often to repeat; the table shows the median and the spread
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=20))]
    rounds: u16,
    /// Requests per measurement
    #[arg(long, default_value_t = 60_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=500_000))]
    requests: u32,
    /// How many events are many, where pages are measured
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    events: u32,
    /// Where the stores are put while measuring; the disk that matters to you
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    folder: PathBuf,
    /// Measure this server too, beside the embedded store; may be given several times. Give it a database of its own: what is written stays
    #[arg(long, value_name = "URL", value_parser = read_server)]
    store: Vec<StoreUrl>,
    /// Measure this part alone; may be given several times
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
    /// The same as `--only claims`
    #[arg(long, hide = true, conflicts_with = "only")]
    only_claims: bool,
    /// Keep the outcome in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Show beside each ratio what it was in a file that `--save` made
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Draw the ratios into this file, as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
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
    bare: bool,
    #[arg(long)]
    naive_claim: bool,
    #[arg(long)]
    target: Option<String>,
    #[arg(long)]
    api_base: Option<String>,
}

impl BenchServer {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let served = bench::serve_child(self.bare, self.naive_claim, self.target, self.api_base);
        served.await.map_err(|why| Failure::plain(why.to_string()))
    }
}

impl Bench {
    pub(super) async fn run(self, output: &Output) -> Result<(), Failure> {
        let before = self.against.as_deref().map(read_saved).transpose()?;
        let parts = self.parts();
        let accepts = parts.contains(&Part::Accept);
        let plan = Plan {
            folder: self.folder.join(format!("hapax-bench-{}", std::process::id())),
            rounds: self.rounds.into(),
            requests: self.requests as usize,
            stores: self.store,
            parts,
            events: self.events as usize,
            preloads: if self.quick || !accepts { vec![] } else { vec![1_000_000, 10_000_000] },
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
        if let Some(path) = &self.save {
            write(path, &format!("{:#}\n", as_json(&report)))?;
        }
        if let Some(path) = &self.chart {
            write(path, &picture(&report))?;
        }
        if output.json {
            output.json(&as_json(&report));
        } else {
            show(&report, before.as_ref(), output);
        }
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        match (self.only_claims, self.only.is_empty()) {
            (true, _) => vec![Part::Claims],
            (false, true) => Part::value_variants().iter().copied().filter(|part| *part != Part::Pages || !self.quick).collect(),
            (false, false) => self.only.clone(),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|why| Failure::plain(format!("{} cannot be written: {why}", path.display())))
}

/// Ratio and processor time of each line, as they were.
type Saved = HashMap<String, (f64, Option<f64>)>;

fn read_saved(path: &Path) -> Result<Saved, Failure> {
    let cannot = |why: &dyn std::fmt::Display| Failure::plain(format!("{} cannot be compared with: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|why| cannot(&why))?;
    let saved: Value = serde_json::from_str(&text).map_err(|why| cannot(&why))?;
    let lines = saved["lines"].as_array().ok_or_else(|| cannot(&"it was not made by `hapax bench --save`"))?;
    let cpu_us = |line: &Value| -> Option<f64> {
        let rounds: Vec<f64> = line["cpu_us"].as_array()?.iter().filter_map(Value::as_f64).collect();
        (!rounds.is_empty()).then(|| Spread::new(&rounds).median)
    };
    let read = |line: &Value| Some((line["name"].as_str()?.to_owned(), (line["ratio"].as_f64()?, cpu_us(line))));
    Ok(lines.iter().filter_map(read).collect())
}

fn picture(report: &Report) -> String {
    let bar = |line: &'_ Line| {
        let (rate, ratio) = (Spread::new(&line.rates).median, Spread::new(&line.ratios).median);
        (ratio, format!("{ratio:.2}, {:.1}k a second", rate / 1e3))
    };
    let made: Vec<(f64, String)> = report.lines.iter().map(bar).collect();
    let bars: Vec<chart::Bar<'_>> =
        report.lines.iter().zip(made).map(|(line, (ratio, words))| chart::Bar { name: &line.name, ratio, words }).collect();
    chart::svg("hapax bench: each line to its yardstick of the same run", &bars)
}

fn show(report: &Report, before: Option<&Saved>, output: &Output) {
    output.note(format_args!("one durable append of 4 KB on this disk takes {} µs", report.sync_us));
    let figure = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let rows = report.lines.iter().map(|line| {
        let (rate, ratio, cpu) = (Spread::new(&line.rates), Spread::new(&line.ratios), Spread::new(&line.cpu_us));
        let mut row = vec![
            line.name.clone(),
            format!("{:.2}", ratio.median),
            format!("{:.2}-{:.2}", ratio.least, ratio.most),
            chart::bar(ratio.median),
            line.yardstick.clone(),
            format!("{:.0}", rate.median),
            figure((!line.cpu_us.is_empty()).then_some(cpu.median)),
            format!("{:.1}", line.p50_us as f64 / 1e3),
            format!("{:.1}", line.p99_us as f64 / 1e3),
            line.peak_mb.to_string(),
        ];
        if let Some(before) = before {
            let was = before.get(&line.name);
            row.push(was.map_or_else(String::new, |(ratio, _)| format!("{ratio:.2}")));
            row.push(figure(was.and_then(|(_, cpu)| *cpu)));
        }
        row
    });
    let mut head = vec!["", "ratio", "spread", "", "to", "per second", "cpu µs", "p50 ms", "p99 ms", "peak MB"];
    if before.is_some() {
        head.extend(["ratio was", "cpu was"]);
    }
    output.table(&head, rows.collect());
    for note in &report.notes {
        output.note(note);
    }
    for (keys, took) in &report.restarts {
        output.note(format_args!("start to first 200 with {keys} keys: {:.2} s", took.as_secs_f64()));
    }
}

fn as_json(report: &Report) -> Value {
    let line = |line: &Line| {
        json!({
            "name": line.name, "yardstick": line.yardstick, "ratio": Spread::new(&line.ratios).median, "ratios": line.ratios,
            "per_second": line.rates, "cpu_us": line.cpu_us, "p50_us": line.p50_us, "p99_us": line.p99_us, "peak_mb": line.peak_mb,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_compared_with() {
        let line = Line {
            name: "fresh".to_owned(),
            rates: vec![1.0],
            ratios: vec![0.5, 0.7, 0.6],
            yardstick: "bare".to_owned(),
            cpu_us: vec![30.0, 20.0, 10.0],
            p50_us: 1,
            p99_us: 2,
            peak_mb: 3,
        };
        let report =
            Report { lines: vec![line.clone(), Line { name: "claims".to_owned(), cpu_us: vec![], ..line }], ..Report::default() };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("saved.json");
        write(&path, &as_json(&report).to_string()).expect("written");
        let saved = read_saved(&path).expect("it is read");
        assert_eq!((saved["fresh"], saved["claims"]), ((0.6, Some(20.0)), (0.6, None)));
        write(&path, "{}").expect("written");
        assert!(read_saved(&path).is_err());
        assert_eq!(picture(&report).matches("<text").count(), 5);
    }
}
