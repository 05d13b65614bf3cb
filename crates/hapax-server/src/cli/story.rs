//! `hapax story`

use clap::Args;
use serde_json::Value;

use super::client::Client;
use super::output::{printable, text_of};
use super::table::{brief_words, clock_time, time_of};
use super::{Failure, Global, Output, event_arg};

/// Tell everything that happened to one event: receipt, copies, attempts, replies, outcome
#[derive(Args, Debug)]
#[command(after_help = format!("\
{}

Examples:
  hapax story latest
  hapax story evt_1mgk0ca1a
  hapax show evt_1mgk0ca1a        what came in, and what the bot answered", event_arg::HOW))]
pub struct Story {
    /// The event, or `latest`
    #[arg(value_name = "ID", value_parser = event_arg::read)]
    event: String,
}

impl Story {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let story = Client::open(global)?.get(&format!("/v1/events/{}/story", self.event), &[]).await?;
        if output.json {
            output.json(&story);
            return Ok(());
        }
        let event = &story["event"];
        let title = ["id", "channel", "kind", "provider_id", "state"].map(|key| printable(&text_of(event, key))).join("  ");
        output.note(if output.is_brief() { brief_words(&title) } else { title });
        tell(&story["steps"], output);
        Ok(())
    }
}

/// Prints steps, each with its time; on a terminal in the time of this place, and with short ids.
pub(super) fn tell(steps: &Value, output: &Output) {
    let steps = steps.as_array().map(Vec::as_slice).unwrap_or_default();
    let brief = output.is_brief();
    let row = |step: &Value| {
        let [at, name, words] = ["at", "step", "words"].map(|key| text_of(step, key));
        match time_of(&at).filter(|_| brief) {
            Some(at_ms) => vec![clock_time(at_ms), name, brief_words(&words)],
            None => vec![at, name, words],
        }
    };
    output.steps(&["time", "step", "what happened"], steps.iter().map(row).collect());
}
