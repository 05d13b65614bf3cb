//! `hapax token`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hapax_gateway::api::Scope;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::client::{Client, in_path};
use super::output::text_of;
use super::{Failure, Global, Output, sources};

/// Make, list and revoke tokens for people and programs, and links to sign in with
#[derive(Args, Debug)]
#[command(after_help = "\
Scopes: `read` looks, `send` sends messages and sees to them, `work` pulls and
settles, `admin` does everything. A token limited to channels sees and does
only what is theirs. The server keeps a hash; the token itself is shown once. A
revoked token stops working at once, and within a few seconds on other
instances.

Examples:
  hapax token create dashboard --scope read
  hapax token create shop-bot --scope send --channel shop --out shop-bot.token
  hapax token list
  hapax token revoke dashboard
  hapax token link")]
pub struct Token {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Make a token, and print it this once
    #[command(after_help = "Example:\n  hapax token create shop-bot --scope send --channel shop --out shop-bot.token")]
    Create {
        /// What it will be known by
        #[arg(value_name = "NAME")]
        name: String,
        /// What it is for; may be given several times
        #[arg(long, required = true, value_name = "SCOPE", value_parser = read_scope)]
        scope: Vec<&'static str>,
        /// Limit it to this channel; may be given several times
        #[arg(long, value_name = "NAME")]
        channel: Vec<String>,
        /// Write it to a new file that only you may read, instead of printing it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Show all tokens, and when each was last used
    #[command(after_help = "Example:\n  hapax token list")]
    List,
    /// Make a token useless
    #[command(after_help = "Example:\n  hapax token revoke dashboard")]
    Revoke {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print a link that opens the web pages, once and within ten minutes
    #[command(after_help = "\
Whoever opens it is signed in as the token that made it: yours, or the one you
give.

Examples:
  hapax token link
  hapax token link --token-file dashboard.token")]
    Link,
}

impl Token {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        match self.what {
            What::Create { name, scope, channel, out } => create(&client, &name, &scope, &channel, out, output).await,
            What::List => list(&client, output).await,
            What::Revoke { name } => {
                let answer = client.delete(&format!("/v1/tokens/{}", in_path(&name))).await?;
                output.answer(&answer, format_args!("`{name}` is revoked"));
                Ok(())
            }
            What::Link => link(&client, output).await,
        }
    }
}

async fn create(
    client: &Client,
    name: &str,
    scopes: &[&str],
    channels: &[String],
    out: Option<PathBuf>,
    output: &Output,
) -> Result<(), Failure> {
    let mut ask = json!({ "name": name, "scopes": scopes });
    if !channels.is_empty() {
        ask["channels"] = json!(channels);
    }
    let mut answer = client.post("/v1/tokens", ask).await?;
    if let Some(path) = out {
        let token = SecretString::from(text_of(&answer, "token"));
        sources::write_private(&path, &token).map_err(|why| {
            let todo = format!("revoke it with `hapax token revoke {name}`, and make another");
            Failure::plain(format!("the token cannot be written to {} ({why}); {todo}", path.display()))
        })?;
        answer["token"] = Value::Null;
        answer["file"] = json!(path.display().to_string());
    }
    match (output.json, answer["file"].as_str()) {
        (true, _) => output.json(&answer),
        (false, Some(file)) => output.note(format_args!("the token `{name}` is in {file}")),
        // Alone on its line, so that it can be put into a file or another program.
        (false, None) => output.line(text_of(&answer, "token")),
    }
    Ok(())
}

async fn link(client: &Client, output: &Output) -> Result<(), Failure> {
    let mut answer = client.post("/v1/sign-in-links", json!({})).await?;
    if answer["url"].is_null() {
        answer["url"] = json!(client.address(&text_of(&answer, "path"))?);
    }
    match output.json {
        true => output.json(&answer),
        false => output.line(text_of(&answer, "url")),
    }
    Ok(())
}

async fn list(client: &Client, output: &Output) -> Result<(), Failure> {
    let answer = client.get("/v1/tokens", &[]).await?;
    let tokens = answer["tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    if output.json {
        output.json(&answer);
    } else {
        let joined = |value: &Value| {
            let list = value.as_array().map(|list| list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
            list.unwrap_or_else(|| "all".to_owned())
        };
        let row = |token: &Value| {
            let text = |key| text_of(token, key);
            let used = if token["used_at"].is_null() { "never".to_owned() } else { text("used_at") };
            vec![text("name"), joined(&token["scopes"]), joined(&token["channels"]), text("created_at"), used]
        };
        output.table(&["name", "scopes", "channels", "created", "last used"], tokens.iter().map(row).collect());
    }
    if tokens.is_empty() {
        output.note("there are no named tokens; `hapax token create NAME --scope read` makes one");
    }
    Ok(())
}

fn read_scope(text: &str) -> Result<&'static str, String> {
    let known = || Scope::ALL.map(Scope::name).join(", ");
    Scope::from_name(text).map(Scope::name).ok_or_else(|| format!("use one of {}", known()))
}
