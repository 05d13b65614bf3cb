//! `hapax stats`

use clap::Args;

use super::client::Client;
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// Show how much there is: keys, events, sizes, and what waits in each channel
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hapax stats --json | jq '.channels[] | select(.parked > 0)'")]
pub struct Stats {}

impl Stats {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let stats = Client::open(global)?.get("/v1/stats", &[]).await?;
        if output.json {
            output.json(&stats);
            return Ok(());
        }
        let megabytes = |key: &str| format!("{:.1} MB", stats[key].as_u64().unwrap_or_default() as f64 / f64::from(1 << 20));
        let purge = match stats["last_purge"].is_null() {
            true => "not yet".to_owned(),
            false => {
                let last = &stats["last_purge"];
                format!("{}: {} keys, {} events", text_of(last, "at"), text_of(last, "keys"), text_of(last, "events"))
            }
        };
        let pairs = [
            ("keys remembered", text_of(&stats, "keys")),
            ("events kept", text_of(&stats, "events")),
            ("store", megabytes("store_bytes")),
            ("write-ahead log", megabytes("log_bytes")),
            ("on their way out", text_of(&stats["outbox"], "waiting")),
            ("sends in doubt", text_of(&stats["outbox"], "unknown")),
            ("promise", text_of(&stats, "promise")),
            ("last purge", purge),
        ];
        output.table(&["", ""], pairs.map(|(name, value)| vec![name.to_owned(), value]).into());
        for reason in stats["not_kept"].as_array().into_iter().flatten().filter_map(|reason| reason.as_str()) {
            output.warn(printable(reason));
        }
        let channels = stats["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !channels.is_empty() {
            let columns = ["channel", "waiting", "leased", "parked", "quarantined", "oldest_at"];
            let rows = channels.iter().map(|row| columns.map(|column| text_of(row, column)).to_vec());
            output.table(&["channel", "waiting", "leased", "parked", "quarantined", "oldest"], rows.collect());
        }
        Ok(())
    }
}
