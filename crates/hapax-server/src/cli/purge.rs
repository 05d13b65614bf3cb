//! `hapax purge`

use clap::Args;
use serde_json::json;

use super::client::Client;
use super::output::counted;
use super::{Failure, Global, Output};

/// Remove now what is past its time: keys after `window`, finished events after `retention`
#[derive(Args, Debug)]
#[command(after_help = "\
hapax does this by itself while it runs. What waits or is parked is never
removed.

Example:
  hapax purge")]
pub struct Purge {}

impl Purge {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let (mut keys, mut events) = (0, 0);
        loop {
            let answer = client.post("/v1/purge", json!({})).await?;
            keys += answer["keys"].as_u64().unwrap_or_default();
            events += answer["events"].as_u64().unwrap_or_default();
            if answer["more"] != json!(true) {
                break;
            }
        }
        let removed = json!({ "keys": keys, "events": events });
        output.answer(
            &removed,
            format_args!("removed {} and {}", counted(keys, "key", "keys"), counted(events, "event", "events")),
        );
        Ok(())
    }
}
