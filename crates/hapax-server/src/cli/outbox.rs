//! `hapax outbox`

use clap::{Args, Subcommand};
use hapax_domain::MessageId;
use serde_json::{Value, json};

use super::client::Client;
use super::list::{Filter, List, Page};
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// List messages on their way out, oldest first; send one once more, or cancel it
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hapax outbox
  hapax outbox account:700001 text:invoice
  hapax outbox --unknown              those whose outcome nobody knows
  hapax messages msg_..               what is known about one
  hapax outbox retry msg_..
      send it once more: if it did go out, it arrives twice
  hapax outbox cancel msg_..
      do not send it, or give up waiting for its outcome

Columns: time queued, id, channel, account (--wide), peer, tries, state, when
it is tried next or the provider is asked about it or who works on it, why the
last try failed."
)]
pub struct Outbox {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    filter: Filter,
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Only those of this account
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// Only those in doubt: sent or not, nobody knows
    #[arg(long)]
    unknown: bool,
    #[command(flatten)]
    page: Page,
}

#[derive(Subcommand, Debug)]
enum Change {
    /// Send a message that failed or is in doubt once more
    #[command(after_help = "\
A message in doubt may have gone out: then it arrives twice. `hapax messages
ID` shows what is known.

Example:
  hapax outbox retry msg_1mgk0ca1a")]
    Retry(Ids),
    /// Take a message that waits out of the outbox, or give up one in doubt
    #[command(after_help = "Example:\n  hapax outbox cancel msg_1mgk0ca1a")]
    Cancel(Ids),
}

#[derive(Args, Debug)]
struct Ids {
    /// The messages, as `hapax outbox` shows them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<MessageId>,
}

impl Outbox {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        match self.change {
            Some(Change::Retry(ids)) => ids.change("retry", "is in line again", global, output).await,
            Some(Change::Cancel(ids)) => ids.change("cancel", "has left the outbox", global, output).await,
            None => self.list(global, output).await,
        }
    }

    async fn list(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let list = List {
            path: "/v1/outbox",
            name: "items",
            head: &["queued", "id", "channel", "+account", "to", "tries", "state", "next try", "why"],
            none: match self.unknown {
                true => "nothing is in doubt: of every message it is known whether it went out",
                false => "nothing is on its way out; `hapax threads` shows what was said, `hapax send` sends something",
            },
        };
        let unknown = ("unknown", Some(self.unknown.to_string()));
        let filters = vec![("q", self.filter.into()), unknown, ("channel", self.channel), ("account", self.account)];
        list.show(&Client::open(global)?, self.page, filters, row, output).await
    }
}

impl Ids {
    async fn change(self, verb: &str, done: &str, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        for id in self.ids {
            let answer = client.post(&format!("/v1/messages/{id}/{verb}"), json!({})).await?;
            output.answer(&answer, format_args!("{id} {done}: {}", printable(&text_of(&answer, "status"))));
        }
        Ok(())
    }
}

fn row(item: &Value) -> Vec<String> {
    let columns = ["created_at", "id", "channel", "account", "to", "attempt", "state"];
    let mut row: Vec<_> = columns.map(|column| text_of(item, column)).into();
    row.push(match (text_of(item, "worker"), text_of(item, "check_at")) {
        (worker, _) if !worker.is_empty() => format!("with {worker}"),
        (_, check) if !check.is_empty() => check,
        _ => text_of(item, "due_at"),
    });
    row.push(text_of(item, "why"));
    row
}
