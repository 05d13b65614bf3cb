//! `hapax inbox` and `hapax parked`

use clap::Args;
use serde_json::Value;

use super::client::Client;
use super::list::{List, Newer};
use super::output::text_of;
use super::{Failure, Global, Output};

#[derive(Args, Debug)]
struct Which {
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    #[command(flatten)]
    page: Newer,
}

/// List what is on its way to the target, oldest first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax inbox --channel shop
  hapax inbox --json | jq '.items[] | select(.attempt > 1)'

Columns: time received, event, channel, attempt, failures charged so far, state, when it is due or whose it is, why the last attempt failed.")]
pub struct Inbox {
    #[command(flatten)]
    which: Which,
}

/// List what waits for a person: parked after its last attempt, or quarantined because it could not be read
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax parked
  hapax story evt_..            what happened to it
  hapax redrive evt_..          put it back in line, once the cause is mended
  hapax redrive --channel shop  all of a channel")]
pub struct Parked {
    #[command(flatten)]
    which: Which,
}

impl Inbox {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        self.which.list(false, "nothing is on its way; `hapax parked` lists what waits for a person", global, output).await
    }
}

impl Parked {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        self.which.list(true, "nothing is parked or quarantined", global, output).await
    }
}

impl Which {
    async fn list(self, parked: bool, none: &str, global: &Global, output: &Output) -> Result<(), Failure> {
        let head = &["received", "event", "channel", "attempt", "failures", "state", "due or held by", "why"];
        let list = List { path: "/v1/inbox", name: "items", head, none };
        let filters = vec![("parked", Some(parked.to_string())), ("channel", self.channel)];
        list.show(&Client::open(global)?, self.page.into(), filters, row, output).await
    }
}

fn row(item: &Value) -> Vec<String> {
    let mut row: Vec<_> =
        ["received_at", "event", "channel", "attempt", "failures", "state"].map(|column| text_of(item, column)).into();
    row.push(match &item["lease"] {
        Value::Null => text_of(item, "due_at"),
        lease => format!("{} until {}", text_of(lease, "worker"), text_of(lease, "until")),
    });
    row.push(text_of(item, "why"));
    row
}
