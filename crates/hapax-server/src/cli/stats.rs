//! `hapax stats`

use clap::Args;

use super::client::Client;
use super::output::{megabytes, printable, text_of};
use super::{Failure, Global, Output, down};

/// Show how much there is: keys, events, sizes, and what waits in each channel and in the spool
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hapax stats --json | jq '.channels[] | select(.parked > 0)'")]
pub struct Stats {}

impl Stats {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let stats = client.get("/v1/stats", &[]).await?;
        if output.json {
            output.json(&stats);
            return Ok(());
        }
        let size = |key: &str| match stats[key].as_u64() {
            Some(bytes) => megabytes(bytes),
            None => text_of(&stats, key),
        };
        let purge = match stats["last_purge"].is_null() {
            // A token of some channels is told nothing of it.
            true if stats["memory"].is_null() => String::new(),
            true => "not yet".to_owned(),
            false => {
                let last = &stats["last_purge"];
                format!("{}: {} keys, {} events", text_of(last, "at"), text_of(last, "keys"), text_of(last, "events"))
            }
        };
        let of_claims = |state: &str| format!("{} {state}", text_of(&stats["claims"], state));
        let claims = ["held", "abandoned", "completed", "values"].map(of_claims).join(", ");
        let pairs = [
            ("keys in the store", text_of(&stats, "keys")),
            ("keys in memory", text_of(&stats["memory"], "keys")),
            ("answered from memory", text_of(&stats["memory"], "hits")),
            ("events kept", text_of(&stats, "events")),
            ("store", size("store_bytes")),
            ("write-ahead log", size("log_bytes")),
            ("on their way out", text_of(&stats["outbox"], "waiting")),
            ("sends in doubt", text_of(&stats["outbox"], "unknown")),
            ("claims", claims),
            ("promise", text_of(&stats, "promise")),
            ("last purge", purge),
        ];
        output.table(&["", ""], pairs.map(|(name, value)| vec![name.to_owned(), value]).into());
        for reason in stats["not_kept"].as_array().into_iter().flatten().filter_map(|reason| reason.as_str()) {
            output.warn(printable(reason));
        }
        if stats["store"] == "down" {
            output.warn(format!(
                "the store is down, so only what hapax knows by itself is shown: {}",
                printable(&text_of(&stats, "why"))
            ));
        }
        down::warn(&client, None, output).await?;
        let channels = stats["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !channels.is_empty() {
            let columns = ["channel", "waiting", "leased", "parked", "quarantined", "oldest_at"];
            let rows = channels.iter().map(|row| columns.map(|column| text_of(row, column)).to_vec());
            output.table(&["channel", "waiting", "leased", "parked", "quarantined", "oldest"], rows.collect());
        }
        let spool = stats["spool"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !spool.is_empty() {
            let columns = ["channel", "waiting", "parked", "oldest_at"];
            let rows = spool.iter().map(|row| columns.map(|column| text_of(row, column)).to_vec());
            output.table(&["in the spool", "waiting", "parked", "oldest"], rows.collect());
        }
        Ok(())
    }
}
