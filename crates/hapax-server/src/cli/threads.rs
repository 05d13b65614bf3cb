//! `hapax threads`

use clap::Args;

use super::client::Client;
use super::list::{Filter, List, Page, columns};
use super::{Failure, Global, Output};

/// List conversations, the one with the newest message first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax threads
  hapax threads since:1d text:refund
  hapax threads --account 700001 --limit 10
  hapax threads --json | jq -r '.threads[] | select(.unread > 0) | .id'
  hapax messages 700001__5511988887777    what was said in one of them

Columns: time of the last message, thread, channel, unread, in or out, the last
text.")]
pub struct Threads {
    #[command(flatten)]
    filter: Filter,
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Only those of this account
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    #[command(flatten)]
    page: Page,
}

impl Threads {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let list = List {
            path: "/v1/threads",
            name: "threads",
            head: &["last message", "id", "channel", "unread", "", "text"],
            none: "no such threads; a thread begins with the first message in or out; `hapax send` sends one",
        };
        let filters = vec![("q", self.filter.into()), ("channel", self.channel), ("account", self.account)];
        let row = columns(["last_message_at", "id", "channel", "unread", "last_direction", "last_message_text"]);
        list.show(&Client::open(global)?, self.page, filters, row, output).await
    }
}
