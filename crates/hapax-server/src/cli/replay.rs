//! `hapax replay`

use clap::Args;
use hapax_domain::EventId;
use serde_json::json;

use super::client::Client;
use super::output::text_of;
use super::{Failure, Global, Output};

/// Deliver an event once more, on purpose, whatever became of it before
#[derive(Args, Debug)]
#[command(after_help = "\
Each replay carries a number of its own, so neither hapax nor the bot takes it for a copy.

Examples:
  hapax replay evt_0190c5a2e6b47000800000000000002a
  hapax events --channel shop --json | jq -r '.events[].id' | xargs hapax replay")]
pub struct Replay {
    /// The events, as `hapax events` shows them
    #[arg(value_name = "ID", required = true)]
    events: Vec<EventId>,
}

impl Replay {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        for event in self.events {
            let answer = client.post(&format!("/v1/events/{event}/replay"), json!({})).await?;
            let item = text_of(&answer, "item");
            let words = format_args!("{event} is in line again as {item}; follow it with `hapax story {event}`");
            output.answer(&answer, words);
        }
        Ok(())
    }
}
