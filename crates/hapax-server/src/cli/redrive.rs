//! `hapax redrive`

use clap::Args;
use hapax_domain::ItemId;
use serde_json::{Value, json};

use super::client::Client;
use super::{Failure, Global, Output, event_arg};

/// Put parked items back in line, their failures forgotten
#[derive(Args, Debug)]
#[command(after_help = "\
Mend the cause first: what fails again is parked again. `hapax parked` lists
what there is.

Examples:
  hapax redrive latest
  hapax redrive evt_1mgk0ca1a
  hapax redrive --channel shop
  hapax redrive --all")]
#[group(required = true, multiple = false)]
pub struct Redrive {
    /// One event as `hapax parked` shows it, or one item (itm_..) as `--json` does
    #[arg(value_name = "ID", value_parser = read_id)]
    id: Option<Value>,
    /// All of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// All there are
    #[arg(long)]
    all: bool,
}

impl Redrive {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let ask = match (self.id, self.channel) {
            (Some(id), _) => id,
            (None, Some(channel)) => json!({ "channel": channel }),
            (None, None) => json!({ "all": self.all }),
        };
        let client = Client::open(global)?;
        let mut redriven = 0;
        loop {
            let answer = client.post("/v1/redrive", ask.clone()).await?;
            redriven += answer["redriven"].as_u64().unwrap_or_default();
            if answer["more"] != json!(true) {
                break;
            }
        }
        if output.json {
            output.json(&json!({ "redriven": redriven }));
        } else if redriven > 0 {
            output.say(format_args!("{redriven} back in line; `hapax inbox` shows them"));
        }
        match redriven {
            0 => Err(Failure::NothingMatched("nothing like that is parked; `hapax parked` lists what is".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Reads either sort of id into what the server wants to be told.
fn read_id(text: &str) -> Result<Value, String> {
    if text.starts_with(ItemId::PREFIX) {
        return text.parse::<ItemId>().map(|id| json!({ "item": id.to_string() })).map_err(|bad| bad.to_string());
    }
    event_arg::read(text).map(|event| json!({ "event": event }))
}
