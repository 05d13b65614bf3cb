//! `hapax story`

use clap::Args;
use hapax_domain::EventId;

use super::client::Client;
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// Tell everything that happened to one event: receipt, copies, attempts, outcome
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax story evt_0190c5a2e6b47000800000000000002a
  hapax story $(hapax events --limit 1 --json | jq -r '.events[0].id')")]
pub struct Story {
    /// The event, as `hapax events` shows it
    #[arg(value_name = "ID")]
    event: EventId,
}

impl Story {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let story = Client::open(global)?.get(&format!("/v1/events/{}/story", self.event), &[]).await?;
        if output.json {
            output.json(&story);
            return Ok(());
        }
        let event = &story["event"];
        let title = ["id", "kind", "provider_id", "state"].map(|key| printable(&text_of(event, key)));
        output.note(title.join("  "));
        let steps = story["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rows = steps.iter().map(|step| ["at", "step", "words"].map(|key| text_of(step, key)).to_vec());
        output.table(&["time", "step", "what happened"], rows.collect());
        Ok(())
    }
}
