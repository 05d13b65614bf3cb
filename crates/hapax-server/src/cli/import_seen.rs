//! `hapax import-seen`

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use hapax::StoreUrl;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::client::{Client, in_path};
use super::output::counted;
use super::seen_source::{Entry, Source};
use super::{Failure, Global, Output};

/// Tell hapax which messages were handled before it was there
#[derive(Args, Debug)]
#[command(after_help = "\
Copies of these are recognised from then on, for the channel's `window`: day
one does not answer old messages again. One message a line, `#` begins a
comment. What a line must say depends on what the provider tells messages apart
by (docs/operations.md has the table):

  an id alone          wamid.HBgM…
                       with --account (and --sender, --scope) for all lines
  parts between tabs   106540352242922<TAB>wamid.HBgM…
                       account, then sender or scope if any, then the id
  a JSON object        {\"account\":\"…\",\"sender\":\"…\",\"id\":\"…\",\"kind\":\"message\"}

A line that says too little is named, and the others go on (exit code 1 at the
end). Running it twice changes nothing more. The messages show as kept events
without a body until the channel's `retention` is over.

What a dedup of your own has in Redis or a database is read from there: the
columns of a row, or what each `*` of the pattern stands for, are the parts.

Examples:
  hapax import-seen --channel shop --account 106540352242922 ids.txt
  hapax import-seen --channel shop --redis redis://localhost
      --pattern 'seen:*:*'
  hapax import-seen --channel shop --sql postgres://me@localhost/bot
      --query 'SELECT account, message_id FROM seen'")]
pub struct ImportSeen {
    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,
    /// The account of all lines that name none
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// The sender of all lines that name none
    #[arg(long, value_name = "SENDER")]
    sender: Option<String>,
    /// Slack's app id, or Shopify's topic, of all lines that name none
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// A Redis server that has the ids in the names of its keys
    #[arg(long, value_name = "URL", value_parser = StoreUrl::read, requires = "pattern", conflicts_with_all = ["file", "sql"])]
    redis: Option<StoreUrl>,
    /// Which keys; each `*` stands for a part, the last for the id
    #[arg(long, value_name = "PATTERN", requires = "redis")]
    pattern: Option<String>,
    /// A PostgreSQL or MySQL server that has the ids in a table
    #[arg(long, value_name = "URL", value_parser = StoreUrl::read, requires = "query", conflicts_with = "file")]
    sql: Option<StoreUrl>,
    /// What to ask it; each column is a part, the last the id
    #[arg(long, value_name = "QUERY", requires = "sql")]
    query: Option<String>,
    /// The list; `-` is the standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["redis", "sql"])]
    file: Option<PathBuf>,
}

/// Lines of one call.
const BATCH: usize = 500;
/// Bad lines that are named; the others are counted.
const NAMED_MAX: u64 = 50;
/// No line is longer: an id has at most 8 KB.
const LINE_MAX_BYTES: usize = 64 << 10;

#[derive(Default)]
struct Sums {
    claimed: u64,
    known: u64,
    refused: u64,
}

impl ImportSeen {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let provider = self.provider(&client).await?;
        let path = format!("/v1/channels/{}/seen", in_path(&self.channel));
        let mut source = self.source()?;
        let bar = ProgressBar::new_spinner();
        let (mut sums, mut batch) = (Sums::default(), Vec::new());
        let mut number = 0;
        while let Some(entry) = source.next().await? {
            number += 1;
            let seen = match entry {
                Entry::Line(line) => self.read(&provider, &line),
                Entry::Parts(parts) => self.read_parts(&provider, &parts),
            };
            match seen {
                Ok(None) => {}
                Ok(Some(seen)) => batch.push((number, seen)),
                Err(why) => sums.refuse(number, &why, output),
            }
            if batch.len() == BATCH {
                self.send(&client, &path, std::mem::take(&mut batch), &mut sums, output).await?;
                bar.set_message(format!("{number} lines, {} new", sums.claimed));
                bar.tick();
            }
        }
        self.send(&client, &path, batch, &mut sums, output).await?;
        bar.finish_and_clear();
        let Sums { claimed, known, refused } = sums;
        output.answer(
            &json!({ "claimed": claimed, "known": known, "refused": refused }),
            format_args!(
                "{} known from now on, {} already, {} refused",
                counted(claimed, "message is", "messages are"),
                counted(known, "was", "were"),
                counted(refused, "line was", "lines were")
            ),
        );
        match refused {
            0 => Ok(()),
            _ => Err(Failure::Exit { code: 1, why: None }),
        }
    }

    fn source(&self) -> Result<Source, Failure> {
        if let (Some(url), Some(pattern)) = (&self.redis, &self.pattern) {
            return Source::keys(url.clone(), pattern);
        }
        if let (Some(url), Some(query)) = (&self.sql, &self.query) {
            return Source::query(url.clone(), query.clone());
        }
        let file = self.file.as_deref().unwrap_or(Path::new("-"));
        if file == Path::new("-") {
            return Ok(Source::List(Box::new(BufReader::new(std::io::stdin()))));
        }
        let open = File::open(file).map_err(|why| Failure::plain(format!("{} cannot be read: {why}", file.display())))?;
        Ok(Source::List(Box::new(BufReader::new(open))))
    }

    async fn provider(&self, client: &Client) -> Result<String, Failure> {
        let list = client.get("/v1/channels", &[]).await?;
        let channels = list["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = channels.iter().find(|channel| channel["name"] == self.channel.as_str());
        found.and_then(|channel| channel["provider"].as_str()).map(str::to_owned).ok_or_else(|| {
            let names: Vec<_> = channels.iter().filter_map(|channel| channel["name"].as_str()).collect();
            Failure::NothingMatched(format!("there is no channel `{}`; there are {}", self.channel, names.join(", ")))
        })
    }

    /// Reads a line; nothing where it is empty or a comment.
    fn read(&self, provider: &str, line: &[u8]) -> Result<Option<Value>, String> {
        if line.len() > LINE_MAX_BYTES {
            return Err(format!("it has more than {LINE_MAX_BYTES} bytes"));
        }
        let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?.trim_end_matches('\r');
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        match line.starts_with('{') {
            true => self.whole(object(line)?),
            false => self.whole(parts(provider, &line.split('\t').map(str::trim).collect::<Vec<_>>())?),
        }
    }

    /// Reads what is told apart already. A single part may be an object, as in a list; nothing is a comment.
    fn read_parts(&self, provider: &str, row: &[String]) -> Result<Option<Value>, String> {
        if row.iter().map(String::len).sum::<usize>() > LINE_MAX_BYTES {
            return Err(format!("it has more than {LINE_MAX_BYTES} bytes"));
        }
        match row {
            [one] if one.starts_with('{') => self.whole(object(one)?),
            row => self.whole(parts(provider, &row.iter().map(String::as_str).collect::<Vec<_>>())?),
        }
    }

    /// Adds what all of them share.
    fn whole(&self, mut seen: Map<String, Value>) -> Result<Option<Value>, String> {
        for (key, value) in [("account", &self.account), ("sender", &self.sender), ("scope", &self.scope)] {
            if let Some(value) = value {
                seen.entry(key).or_insert_with(|| value.as_str().into());
            }
        }
        Ok(Some(seen.into()))
    }

    async fn send(
        &self,
        client: &Client,
        path: &str,
        batch: Vec<(u64, Value)>,
        sums: &mut Sums,
        output: &Output,
    ) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        let (numbers, seen): (Vec<u64>, Vec<Value>) = batch.into_iter().unzip();
        let done = match client.post_any(path, json!({ "seen": seen }), &[]).await? {
            (200, done) => done,
            // One line that cannot even be read must not take the others along.
            (400 | 422, problem) if seen.len() == 1 => {
                sums.refuse(numbers[0], problem["detail"].as_str().unwrap_or("it cannot be read"), output);
                return Ok(());
            }
            (400 | 413 | 422, _) => {
                for one in numbers.into_iter().zip(seen) {
                    Box::pin(self.send(client, path, vec![one], sums, output)).await?;
                }
                return Ok(());
            }
            (status, problem) => return Err(client.refusal(status, &problem)),
        };
        sums.claimed += done["claimed"].as_u64().unwrap_or_default();
        sums.known += done["known"].as_u64().unwrap_or_default();
        for refused in done["refused"].as_array().into_iter().flatten() {
            let at = refused["index"].as_u64().and_then(|index| numbers.get(usize::try_from(index).ok()?));
            sums.refuse(at.copied().unwrap_or_default(), refused["why"].as_str().unwrap_or_default(), output);
        }
        Ok(())
    }
}

impl Sums {
    fn refuse(&mut self, line: u64, why: &str, output: &Output) {
        self.refused += 1;
        if self.refused <= NAMED_MAX {
            output.warn(format_args!("line {line}: {}", super::output::printable(why)));
        }
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|why| format!("it is no JSON object: {why}"))
}

/// The last part is the id, those before it what the provider needs, in its order.
fn parts(provider: &str, parts: &[&str]) -> Result<Map<String, Value>, String> {
    let needs = hapax_providers::seen::needs(provider);
    let names: &[&str] = match parts.len() {
        1 => &["id"],
        many if many == needs.len() => needs,
        // Where the provider can do without an account, it may still be there.
        2 if needs == ["id"] => &["account", "id"],
        many => return Err(format!("it has {many} parts; write the id alone, or {} with tabs between them", needs.join(", "))),
    };
    Ok(names.iter().zip(parts).map(|(name, part)| ((*name).to_owned(), (*part).into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> ImportSeen {
        let (channel, account) = ("shop".to_owned(), Some("7".to_owned()));
        let (redis, pattern, sql, query) = (None, None, None, None);
        ImportSeen { channel, account, sender: None, scope: None, redis, pattern, sql, query, file: None }
    }

    #[test]
    fn a_line_is_an_id_or_parts_or_an_object() {
        let read = |provider: &str, line: &str| list().read(provider, line.as_bytes());
        assert_eq!(read("whatsapp", "wamid.1"), Ok(Some(json!({"id": "wamid.1", "account": "7"}))));
        assert_eq!(read("whatsapp", "8\twamid.1\r"), Ok(Some(json!({"id": "wamid.1", "account": "8"}))));
        assert_eq!(read("gowa", "8\t55119\tABC"), Ok(Some(json!({"id": "ABC", "sender": "55119", "account": "8"}))));
        assert_eq!(read("stripe", "acct_1\tevt_1"), Ok(Some(json!({"id": "evt_1", "account": "acct_1"}))));
        assert_eq!(read("stripe", "{\"id\":\"evt_1\"}"), Ok(Some(json!({"id": "evt_1", "account": "7"}))));
        for nothing in ["", "  ", "# a comment", "\r"] {
            assert_eq!(read("whatsapp", nothing), Ok(None), "{nothing:?}");
        }
        for odd in ["a\tb\tc\td", "{not json", "{\"id\":"] {
            assert!(read("whatsapp", odd).is_err(), "{odd}");
        }
        assert!(list().read("whatsapp", b"\xff\xfe").is_err());
    }

    #[test]
    fn a_row_is_parts_and_never_a_comment() {
        let read = |row: &[&str]| list().read_parts("whatsapp", &row.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["8", "wamid.1"]), Ok(Some(json!({"id": "wamid.1", "account": "8"}))));
        assert_eq!(read(&["# wamid.1"]), Ok(Some(json!({"id": "# wamid.1", "account": "7"}))));
        assert_eq!(read(&["{\"id\":\"wamid.1\"}"]), Ok(Some(json!({"id": "wamid.1", "account": "7"}))));
        assert!(read(&["a", "b", "c", "d"]).is_err() && read(&[]).is_err());
    }
}
