//! `hapax threads`

use clap::Args;
use hapax_domain::limits::PAGE_DEFAULT;

use super::client::Client;
use super::events::read_limit;
use super::output::text_of;
use super::{Failure, Global, Output};

/// List conversations, the one with the newest message first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax threads
  hapax threads --account 700001 --limit 10
  hapax threads --json | jq -r '.threads[] | select(.unread > 0) | .id'
  hapax messages 700001__5511988887777    what was said in one of them

Columns: time of the last message, thread, channel, unread, in or out, the last text.")]
pub struct Threads {
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Only those of this account
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// The next page: what the page before named
    #[arg(long, value_name = "NEXT")]
    before: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = PAGE_DEFAULT, value_parser = read_limit)]
    limit: usize,
}

impl Threads {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let mut query = vec![("limit", self.limit.to_string())];
        query.extend(self.channel.map(|channel| ("channel", channel)));
        query.extend(self.account.map(|account| ("account", account)));
        query.extend(self.before.map(|before| ("before", before)));
        let answer = Client::open(global)?.get("/v1/threads", &query).await?;
        let threads = answer["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
        if output.json {
            output.json(&answer);
        } else {
            let columns = ["last_message_at", "id", "channel", "unread", "last_direction", "last_message_text"];
            let rows = threads.iter().map(|thread| columns.map(|column| text_of(thread, column)).to_vec());
            output.table(&["last message", "id", "channel", "unread", "", "text"], rows.collect());
        }
        if threads.is_empty() {
            let todo = "a thread begins with the first message in or out; `hapax send` sends one";
            return Err(Failure::NothingMatched(format!("no such threads; {todo}")));
        }
        if let Some(next) = answer["next"].as_str() {
            output.note(format_args!("there are more: --before {next}"));
        }
        Ok(())
    }
}
