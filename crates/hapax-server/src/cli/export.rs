//! `hapax export`

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, OnAbandoned};
use hapax_store::clock::{Clock, SystemClock};
use hapax_store::moving::NUMBERS;
use hapax_store::registers::Register;
use hapax_store::{Moved, Stats, Store};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::moved::{EXPORT, End, Head, Line, VERSION, is_private};
use super::store_direct::{failed, open};
use super::{Failure, Global, Output};

/// Write everything in the store to a file, to be moved to another store with `hapax import`
#[derive(Args, Debug)]
#[command(after_help = "\
Stop hapax first, all instances of it: the store is read directly. One on a
server cannot know whether somebody still uses it. The file holds everything,
bodies and phone numbers among it, one JSON object a line. It is made anew, and
its owner alone may read it. Works for every store but memory:, which ends with
its process.

Examples:
  hapax export everything.ndjson
  hapax export --store sqlite:/srv/hapax.db | zstd > everything.ndjson.zst")]
pub struct Export {
    /// Where to write; `-` is the standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Which store; stronger than the config
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

/// Records asked for at once.
const PAGE: usize = 500;

impl Export {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let store = open(global, self.store, true).await?;
        let moving = store.moving().map_err(failed)?;
        let bar = bar(&store.stats().await.map_err(failed)?);
        let to_stdout = self.file == Path::new("-");
        let mut sink = if to_stdout { Sink::new(Box::new(std::io::stdout())) } else { Sink::new(Box::new(create(&self.file)?)) };
        let name = self.file.display();
        let written = |why: std::io::Error| Failure::plain(format!("cannot write {name}: {why}"));
        sink.head().map_err(written)?;
        let mut from = None;
        loop {
            let (records, next) = moving.export(from, PAGE).await.map_err(failed)?;
            bar.inc(records.iter().filter(|record| is_counted(record)).count() as u64);
            for record in records.into_iter().filter(|record| !is_private(record) && !is_numbers(record)) {
                sink.put(record).map_err(written)?;
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        match drawn(&*store).await {
            Some(number) => sink.put(number).map_err(written)?,
            None => output.note(format_args!(
                "the store is full and hands out no fence: keys that are free here may be claimed under lower fences where this is imported"
            )),
        }
        let records = sink.end().map_err(written)?;
        bar.finish_and_clear();
        if !to_stdout {
            File::open(&self.file).and_then(|file| file.sync_all()).with_context(|| format!("cannot write {name}"))?;
        }
        match (to_stdout, output.json) {
            (false, true) => output.json(&json!({ "file": name.to_string(), "records": records })),
            (false, false) => {
                output.say(format_args!("{records} records in {name}; `hapax import` puts them into another store"))
            }
            (true, _) => output.note(format_args!("{records} records")),
        }
        Ok(())
    }
}

/// A new file that only its owner may read.
fn create(path: &Path) -> Result<File, Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|why| match why.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::plain(format!("{} is there already; choose another name", path.display())),
        _ => Failure::plain(format!("cannot write {}: {why}", path.display())),
    })
}

/// Shown on a terminal only. What the store counts is most of what there is.
fn bar(stats: &Stats) -> ProgressBar {
    let channels = stats.channels.iter().map(|row| row.waiting + row.leased + row.parked + row.quarantined);
    let counted = stats.keys + stats.events + channels.sum::<u64>() + stats.outbox_waiting + stats.outbox_unknown;
    let bar = ProgressBar::new(counted);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} records, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// One that this store was given when it was made from an export.
fn is_numbers(record: &Moved) -> bool {
    matches!(record, Moved::Setting { name, .. } if name == NUMBERS)
}

/// The number of a claim that is made and let go at once: it is above the fence of every claim there was. `None`: there is no room for one.
async fn drawn(store: &dyn Store) -> Option<Moved> {
    let token = format!("{:032x}", rand::random::<u128>());
    let key = ClaimKey::new("hapax", format!("export {token}"));
    let claim = ClaimOp::Claim {
        token: token.clone(),
        ttl_ms: 1,
        lease_ms: 1,
        fingerprint: None,
        on_abandoned: OnAbandoned::Takeover,
        holder: None,
    };
    let answers = store.claims(vec![(key.clone(), claim), (key, ClaimOp::Release { token })]).await.ok()?;
    let Some(ClaimAnswer::Claimed { fence, .. }) = answers.first() else { return None };
    Some(Moved::Setting { name: NUMBERS.to_owned(), register: Register { value: fence.to_string(), ends_ms: None } })
}

fn is_counted(record: &Moved) -> bool {
    matches!(record, Moved::Key(_) | Moved::Event(_) | Moved::Item(_) | Moved::Out(_))
}

/// Writes lines, and keeps count of them.
struct Sink {
    to: BufWriter<Box<dyn Write>>,
    hasher: blake3::Hasher,
    records: u64,
}

impl Sink {
    fn new(to: Box<dyn Write>) -> Self {
        Self { to: BufWriter::new(to), hasher: blake3::Hasher::new(), records: 0 }
    }

    fn head(&mut self) -> std::io::Result<()> {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let made_ms = SystemClock::new().now_ms();
        let head = Head { hapax: EXPORT.to_owned(), version: VERSION, program, made_ms };
        self.line(&serde_json::to_vec(&head)?)
    }

    fn put(&mut self, record: Moved) -> std::io::Result<()> {
        self.records += 1;
        self.line(&serde_json::to_vec(&Line::Record(Box::new(record)))?)
    }

    fn end(mut self) -> std::io::Result<u64> {
        let end = End { records: self.records, blake3: self.hasher.finalize().to_hex().to_string() };
        self.line(&serde_json::to_vec(&Line::End(end))?)?;
        self.to.flush()?;
        Ok(self.records)
    }

    fn line(&mut self, line: &[u8]) -> std::io::Result<()> {
        for part in [line, b"\n"] {
            self.hasher.update(part);
            self.to.write_all(part)?;
        }
        Ok(())
    }
}
