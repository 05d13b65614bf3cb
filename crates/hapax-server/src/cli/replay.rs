//! `hapax replay`

use clap::Args;
use serde_json::json;

use super::client::Client;
use super::output::{printable, text_of};
use super::table::brief_words;
use super::{Failure, Global, Output, event_arg};

/// Deliver an event once more, on purpose, whatever became of it before
#[derive(Args, Debug)]
#[command(after_help = format!("\
Each replay carries a number of its own, so neither hapax nor the bot takes it
for a copy.

Examples:
  hapax replay latest
  hapax replay evt_1mgk0ca1a
  hapax events --channel shop --json | jq -r '.events[].id' | xargs hapax replay

{}", event_arg::HOW))]
pub struct Replay {
    /// The events, as `hapax events` shows them
    #[arg(value_name = "ID", required = true, value_parser = event_arg::read)]
    events: Vec<String>,
}

impl Replay {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        for event in self.events {
            let answer = client.post(&format!("/v1/events/{event}/replay"), json!({})).await?;
            let [event, item] = ["event", "item"].map(|key| printable(&text_of(&answer, key)));
            let words = format!("{event} is in line again as {item}; follow it with `hapax story {event}`");
            output.answer(&answer, if output.is_brief() { brief_words(&words) } else { words });
        }
        Ok(())
    }
}
