//! `hapax accounts`

use clap::{Args, Subcommand};
use serde_json::json;

use super::client::{Client, in_path};
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// List accounts that stopped sending, and why; let one send again
#[derive(Args, Debug)]
#[command(after_help = "\
An account stops when its provider says that nothing of it will be sent: a
token that expired, a policy, a device that is not connected. Its messages
wait, and other accounts go on.

Examples:
  hapax accounts
  hapax accounts resume shop 700001    once the cause is mended")]
pub struct Accounts {
    #[command(subcommand)]
    change: Option<Change>,
}

#[derive(Subcommand, Debug)]
enum Change {
    /// Let a paused account send again
    #[command(after_help = "Example:\n  hapax accounts resume shop 700001")]
    Resume {
        #[arg(value_name = "CHANNEL")]
        channel: String,
        #[arg(value_name = "ACCOUNT")]
        account: String,
    },
}

impl Accounts {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        match self.change {
            Some(Change::Resume { channel, account }) => resume(&client, &channel, &account, output).await,
            None => list(&client, output).await,
        }
    }
}

async fn list(client: &Client, output: &Output) -> Result<(), Failure> {
    let answer = client.get("/v1/accounts", &[]).await?;
    let accounts = answer["accounts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if output.json {
        output.json(&answer);
    } else {
        let columns = ["channel", "account", "state", "since", "why"];
        output.table(&columns, accounts.iter().map(|account| columns.map(|column| text_of(account, column)).to_vec()).collect());
    }
    if accounts.is_empty() {
        output.note("no account is paused: all that have a token may send");
    }
    Ok(())
}

async fn resume(client: &Client, channel: &str, account: &str, output: &Output) -> Result<(), Failure> {
    let path = format!("/v1/accounts/{}/{}/resume", in_path(channel), in_path(account));
    let answer = client.post(&path, json!({})).await?;
    let [channel, account, why] = ["channel", "account", "why"].map(|key| printable(&text_of(&answer, key)));
    output.answer(&answer, format_args!("account {account} of {channel} sends again; it was paused: {why}"));
    Ok(())
}
