//! `hapax import`

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use clap::Args;
use hapax_store::{Moved, Moving};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::moved::{EXPORT, End, Head, Line, VERSION, is_private};
use super::store_direct::{failed, open};
use super::{Failure, Global, Output};

/// Put everything that `hapax export` wrote into an empty store
#[derive(Args, Debug)]
#[command(after_help = "\
Stop hapax first, and name a store that nothing was ever put into. Ids stay the
same: what a provider sends again is still a copy, and what waited, was parked
or is in doubt still does. A file is read to its end before anything is
written, so one that was cut off changes nothing. When the import itself is cut
off, the store is half filled and hapax refuses to serve it: empty it, and
begin again. Works for every store but memory:, from any of them to any other.

Examples:
  hapax import --store postgres://hapax@db/hapax everything.ndjson
  zstdcat everything.ndjson.zst | hapax import --store sqlite:/srv/hapax.db")]
pub struct Import {
    /// What to read; `-` is the standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Which store; stronger than the config
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

/// Records, and bytes of the file, that are put at once.
const BATCH_RECORDS: usize = 500;
const BATCH_BYTES: usize = 2 << 20;
/// The longest line: the largest body there may be, in base64, and room for the rest.
const LINE_MAX_BYTES: u64 = 64 << 20;

impl Import {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let name = self.file.display().to_string();
        let cannot = |why: std::io::Error| Failure::plain(format!("cannot read {name}: {why}"));
        let mut from = match self.file == Path::new("-") {
            true => Input::Stdin,
            false => Input::open(&self.file).map_err(cannot)?,
        };
        let bytes = from.read_ahead()?;
        let store = open(global, self.store, false).await?;
        let moving = store.moving().map_err(failed)?;
        moving.begin_import().await.map_err(failed)?;
        let bar = bar(bytes);
        let put = put_all(moving, Source::new(from.reader(), bar)).await;
        let records = put.map_err(|failure| match failure {
            Failure::Unreachable(why) => Failure::Unreachable(format!("{why}; {BEGIN_AGAIN}")),
            other => Failure::plain(format!("{other}; {BEGIN_AGAIN}")),
        })?;
        if output.json {
            output.json(&json!({ "file": name, "records": records }));
        } else {
            output.say(format_args!("{records} records are in the store"));
        }
        Ok(())
    }
}

/// Where the lines come from.
enum Input {
    Stdin,
    /// What can be read twice.
    File(File),
    Pipe(File),
}

impl Input {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        Ok(if file.metadata()?.is_file() { Input::File(file) } else { Input::Pipe(file) })
    }

    /// Reads what can be read twice to its end, so that nothing is written when it is not whole. Gives its size.
    fn read_ahead(&mut self) -> Result<u64, Failure> {
        let Input::File(file) = self else { return Ok(0) };
        Source::new(BufReader::new(&*file), ProgressBar::hidden())?.read_all()?;
        let rewound = file.rewind().and_then(|()| file.metadata());
        Ok(rewound.map_err(|why| Failure::plain(format!("cannot read the file: {why}")))?.len())
    }

    fn reader(self) -> Box<dyn BufRead> {
        match self {
            Input::Stdin => Box::new(BufReader::new(std::io::stdin())),
            Input::File(file) | Input::Pipe(file) => Box::new(BufReader::new(file)),
        }
    }
}

const BEGIN_AGAIN: &str = "the store is half filled now: empty it, and import again";

/// Shown on a terminal only; by bytes of the file, where it is known how many there are.
fn bar(bytes: u64) -> ProgressBar {
    let bar = if bytes > 0 { ProgressBar::new(bytes) } else { ProgressBar::no_length() };
    let template = if bytes > 0 { "{bar:40} {bytes}/{total_bytes}, {eta} left" } else { "{spinner} {bytes}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

async fn put_all<R: BufRead>(moving: &dyn Moving, source: Result<Source<R>, Failure>) -> Result<u64, Failure> {
    let mut source = source?;
    loop {
        let batch = source.batch()?;
        if batch.is_empty() {
            break;
        }
        moving.import(batch).await.map_err(failed)?;
    }
    moving.end_import().await.map_err(failed)?;
    source.bar.finish_and_clear();
    Ok(source.records)
}

/// Reads lines, and makes sure that they are all there.
struct Source<R> {
    from: R,
    bar: ProgressBar,
    hasher: blake3::Hasher,
    line: Vec<u8>,
    line_number: u64,
    records: u64,
    ended: bool,
}

impl<R: BufRead> Source<R> {
    fn new(from: R, bar: ProgressBar) -> Result<Self, Failure> {
        let mut source =
            Self { from, bar, hasher: blake3::Hasher::new(), line: Vec::new(), line_number: 0, records: 0, ended: false };
        source.next_line()?;
        let head: Head = serde_json::from_slice(&source.line).map_err(|_| not_ours())?;
        source.hasher.update(&source.line);
        match head {
            Head { hapax, version: VERSION, .. } if hapax == EXPORT => Ok(source),
            Head { hapax, version, program, .. } if hapax == EXPORT => Err(Failure::plain(format!(
                "the file was written by hapax {program} (format {version}, this one knows {VERSION}); use that version"
            ))),
            _ => Err(not_ours()),
        }
    }

    fn next_line(&mut self) -> Result<(), Failure> {
        self.line.clear();
        let read = (&mut self.from).take(LINE_MAX_BYTES + 1).read_until(b'\n', &mut self.line);
        read.map_err(|why| Failure::plain(format!("cannot read the file: {why}")))?;
        self.line_number += 1;
        if self.line.len() as u64 > LINE_MAX_BYTES {
            let (number, most) = (self.line_number, LINE_MAX_BYTES >> 20);
            return Err(Failure::plain(format!("line {number} is longer than {most} MB, which no export writes")));
        }
        self.bar.inc(self.line.len() as u64);
        Ok(())
    }

    /// The next record; nothing after the last one, when all were there.
    fn next_record(&mut self) -> Result<Option<Moved>, Failure> {
        if self.ended {
            return Ok(None);
        }
        self.next_line()?;
        let number = self.line_number;
        if !self.line.ends_with(b"\n") {
            return Err(Failure::plain(format!("the file ends at line {number}, before its end: it was cut off")));
        }
        let unreadable = |why: serde_json::Error| Failure::plain(format!("line {number} cannot be read: {why}"));
        let line: Line = serde_json::from_slice(&self.line).map_err(unreadable)?;
        match line {
            Line::End(end) => {
                self.check(&end)?;
                self.ended = true;
                Ok(None)
            }
            Line::Record(record) => {
                self.hasher.update(&self.line);
                self.records += 1;
                Ok(Some(*record))
            }
        }
    }

    fn check(&mut self, end: &End) -> Result<(), Failure> {
        let found = End { records: self.records, blake3: self.hasher.finalize().to_hex().to_string() };
        if found != *end {
            return Err(Failure::plain("the file is not as it was written: its lines do not match its last one"));
        }
        self.next_line()?;
        match self.line.is_empty() {
            true => Ok(()),
            false => Err(Failure::plain("the file goes on after its end")),
        }
    }

    fn batch(&mut self) -> Result<Vec<Moved>, Failure> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_RECORDS
            && bytes < BATCH_BYTES
            && let Some(record) = self.next_record()?
        {
            bytes += self.line.len();
            // A file of an earlier version may carry them.
            if !is_private(&record) {
                batch.push(record);
            }
        }
        Ok(batch)
    }

    fn read_all(mut self) -> Result<(), Failure> {
        while self.next_record()?.is_some() {}
        Ok(())
    }
}

fn not_ours() -> Failure {
    Failure::plain("that is no file of `hapax export`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_store::registers::Register;

    #[test]
    fn a_line_without_end_is_not_read_to_its_end() {
        let endless = BufReader::new(std::io::repeat(b'x'));
        let said = Source::new(endless, ProgressBar::hidden()).err().expect("refused").to_string();
        assert!(said.contains("line 1 is longer than 64 MB"), "{said}");
    }

    #[test]
    fn tokens_are_never_moved() {
        let setting =
            |name: &str| Moved::Setting { name: name.to_owned(), register: Register { value: "x".to_owned(), ends_ms: None } };
        assert!(is_private(&setting("admin_token_hash")) && is_private(&setting("tokens")) && !is_private(&setting("other")));
    }
}
