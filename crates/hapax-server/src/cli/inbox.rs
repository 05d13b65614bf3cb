//! `hapax inbox` and `hapax parked`

use clap::Args;
use serde_json::Value;

use super::client::Client;
use super::list::{Filter, List, Page};
use super::output::text_of;
use super::table::time_of;
use super::{Failure, Global, Output, down};

#[derive(Args, Debug)]
struct Which {
    #[command(flatten)]
    filter: Filter,
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    #[command(flatten)]
    page: Page,
}

/// List what is on its way to the target, oldest first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax inbox --channel shop
  hapax inbox --json | jq '.items[] | select(.attempt > 1)'

Columns: time received, event, channel, attempt (--wide), failures charged so
far, state, when it is tried next or who works on it, why the last attempt
failed.")]
pub struct Inbox {
    #[command(flatten)]
    which: Which,
}

/// List what waits for a person: parked after its last attempt, or quarantined because it could not be read
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax parked
  hapax parked since:1d text:refund
  hapax story evt_..            what happened to it
  hapax redrive evt_..          put it back in line, once the cause is mended
  hapax redrive --channel shop  all of a channel")]
pub struct Parked {
    #[command(flatten)]
    which: Which,
}

impl Inbox {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        self.which
            .list(
                false,
                "nothing is on its way to a bot; `hapax events` lists what came in, `hapax parked` what waits for you",
                global,
                output,
            )
            .await
    }
}

impl Parked {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        self.which.list(true, "nothing is parked or quarantined: nothing waits for you", global, output).await
    }
}

impl Which {
    async fn list(self, parked: bool, none: &str, global: &Global, output: &Output) -> Result<(), Failure> {
        let head = &["received", "event", "channel", "+attempt", "failures", "state", "next try", "why"];
        let list = List { path: "/v1/inbox", name: "items", head, none };
        let channel = self.channel.clone();
        let filters = vec![("q", self.filter.into()), ("parked", Some(parked.to_string())), ("channel", self.channel)];
        let client = Client::open(global)?;
        if !parked && !output.json {
            down::warn(&client, channel.as_deref(), output).await?;
        }
        // What is due is tried now, whenever it came due.
        let now_ms = output.is_brief().then(|| jiff::Timestamp::now().as_millisecond());
        list.show(&client, self.page, filters, |item| row(item, now_ms), output).await
    }
}

fn row(item: &Value, now_ms: Option<i64>) -> Vec<String> {
    let mut row: Vec<_> =
        ["received_at", "event", "channel", "attempt", "failures", "state"].map(|column| text_of(item, column)).into();
    row.push(match &item["lease"] {
        Value::Null => match text_of(item, "due_at") {
            due if now_ms.is_some_and(|now_ms| time_of(&due).is_some_and(|due_ms| due_ms <= now_ms)) => "now".to_owned(),
            due => due,
        },
        lease => format!("with {}", text_of(lease, "worker")),
    });
    row.push(text_of(item, "why"));
    row
}
