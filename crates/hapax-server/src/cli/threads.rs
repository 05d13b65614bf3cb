//! `hapax threads`

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::client::{Client, in_path};
use super::list::{Filter, List, Page, columns};
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// List conversations, the one with the newest message first; take one over from the bot
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hapax threads
  hapax threads since:1d text:refund
  hapax threads --account 700001 --limit 10
  hapax threads --json | jq -r '.threads[] | select(.unread > 0) | .id'
  hapax messages 700001__5511988887777          what was said in one of them
  hapax threads pause 700001__5511988887777     answer it yourself
  hapax threads resume 700001__5511988887777    hand it back

Columns: time of the last message, thread, channel, unread, in or out, the last
text."
)]
pub struct Threads {
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
    #[command(flatten)]
    page: Page,
}

#[derive(Subcommand, Debug)]
enum Change {
    /// Take a conversation over from the bot: what comes in waits until it is handed back
    #[command(after_help = "Example:\n  hapax threads pause 700001__5511988887777 --mode done")]
    Pause {
        #[arg(value_name = "THREAD")]
        thread: String,
        /// What becomes of what comes in meanwhile: it waits for the bot, or is done and the bot never gets it
        #[arg(long, value_enum, default_value = "wait")]
        mode: Mode,
    },
    /// Hand a conversation back to the bot, which gets what waited, in order
    #[command(after_help = "Example:\n  hapax threads resume 700001__5511988887777")]
    Resume {
        #[arg(value_name = "THREAD")]
        thread: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Wait,
    Done,
}

impl Change {
    async fn run(self, client: &Client, output: &Output) -> Result<(), Failure> {
        let (thread, verb, body, said) = match self {
            Change::Pause { thread, mode: Mode::Wait } => {
                (thread, "pause", json!({"mode": "wait"}), "is yours now; what comes in waits until you hand it back")
            }
            Change::Pause { thread, mode: Mode::Done } => (
                thread,
                "pause",
                json!({"mode": "done"}),
                "is yours now; the bot never gets what comes in until you hand it back",
            ),
            Change::Resume { thread } => (thread, "resume", json!({}), "is the bot's again"),
        };
        let answer = client.post(&format!("/v1/threads/{}/{verb}", in_path(&thread)), body).await?;
        output.answer(&answer, format_args!("{} {said}", printable(&text_of(&answer, "id"))));
        Ok(())
    }
}

impl Threads {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        if let Some(change) = self.change {
            return change.run(&Client::open(global)?, output).await;
        }
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
