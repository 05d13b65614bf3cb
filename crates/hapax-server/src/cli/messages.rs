//! `hapax messages`

use clap::Args;
use hapax_domain::{MessageId, ThreadId};
use serde_json::Value;

use super::client::{Client, in_path};
use super::list::{List, Page, columns};
use super::output::{printable, text_of};
use super::{Failure, Global, Output, story};

/// Show what was said in a thread, newest first, or all about one message that goes out
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax messages 700001__5511988887777
  hapax messages msg_1mgk0ca1a

Columns of a thread: time, id, in or out, status of what goes out (of what came
in, whether it is marked as read), the text.
One message is told with every try, so that it can be seen why it failed or is
in doubt.")]
pub struct Messages {
    /// A thread, written account__peer as `hapax threads` shows it, or a message, msg_..
    #[arg(value_name = "ID", value_parser = read_which)]
    which: Which,
    #[command(flatten)]
    page: Page,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Thread(ThreadId),
    Message(MessageId),
}

impl Messages {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let thread = match self.which {
            Which::Message(id) => return one(&client, id, output).await,
            Which::Thread(id) => id.to_string(),
        };
        let list = List {
            path: &format!("/v1/threads/{}/messages", in_path(&thread)),
            name: "messages",
            head: &["time", "id", "", "status", "text"],
            none: "no messages in this thread; `hapax threads` lists those there are",
        };
        let columns = columns(["at", "id", "direction", "status", "text"]);
        let row = |message: &Value| {
            let mut row = columns(message);
            // What came in has no way to go: what its bot made of it is told by `hapax events`.
            if message["direction"] == "in" && message["status"] == "delivered" {
                row[3] = "unread".to_owned();
            }
            row
        };
        list.show(&client, self.page, vec![], row, output).await
    }
}

async fn one(client: &Client, id: MessageId, output: &Output) -> Result<(), Failure> {
    let message = client.get(&format!("/v1/messages/{id}"), &[]).await?;
    if output.json {
        output.json(&message);
        return Ok(());
    }
    let title = ["id", "to", "status", "provider_id", "text"].map(|key| printable(&text_of(&message, key)));
    output.note(title.join("  "));
    story::tell(&message["story"], output);
    Ok(())
}

/// An account may begin with `msg_` too: what is no message id may still be a thread.
fn read_which(text: &str) -> Result<Which, String> {
    match (text.parse::<MessageId>(), text.parse::<ThreadId>()) {
        (Ok(id), _) => Ok(Which::Message(id)),
        (Err(_), Ok(thread)) => Ok(Which::Thread(thread)),
        (Err(_), Err(_)) => Err("expected `account__peer` as `hapax threads` shows it, or a message, `msg_..`".to_owned()),
    }
}
