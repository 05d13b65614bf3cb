//! `hapax forget`

use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use super::output::counted;
use super::{Failure, Global, Output};

/// Take the words out of all that somebody has said and was told
#[derive(Args, Debug)]
#[command(after_help = "\
Bodies, headers and texts of events and messages go, what the bot answered, and
the last words of the thread. Keys, ids, times and what became of each stay, so
copies are still recognised. What waits, is parked or is not sent yet keeps its
words, and is counted: run it again when that is over (docs/operations.md says
how to end it without the bot). Webhooks that carried others' messages too lose
their body; the others keep their texts.

Examples:
  hapax forget --contact 5511988887777
  hapax forget --contact 5511988887777 --account 106540352242922")]
pub struct ForgetContact {
    /// The peer, by any of its names, as `hapax threads` shows it
    #[arg(long, value_name = "PEER")]
    contact: String,
    /// Only of this account; without it, of all
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
}

impl ForgetContact {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let mut next = Value::Null;
        let done = loop {
            let ask = json!({ "contact": self.contact, "account": self.account, "next": next });
            let mut done = client.post("/v1/forget", ask).await?;
            next = done["next"].take();
            if next.is_null() {
                break done;
            }
        };
        if done["threads"] == json!(0) {
            return Err(Failure::NothingMatched(format!("nobody is called `{}`; `hapax threads` lists all", self.contact)));
        }
        let count = |key: &str| done[key].as_u64().unwrap_or_default();
        let (events, messages, open) = (count("events"), count("messages"), count("open"));
        let (events, messages) = (counted(events, "event", "events"), counted(messages, "message", "messages"));
        let gone = format!("the words of {events} and {messages} are gone");
        output.answer(&done, gone);
        match open {
            0 => Ok(()),
            open => Err(Failure::plain(format!(
                "{} words, because not all is over; run this again when `hapax inbox`, `hapax parked` and \
                 `hapax outbox` show nothing of them",
                counted(open, "more keeps its", "more keep their")
            ))),
        }
    }
}
