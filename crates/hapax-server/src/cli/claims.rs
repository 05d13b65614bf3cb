//! `hapax claims`

use clap::{Args, Subcommand};
use hapax_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use serde_json::{Value, json};

use super::client::{Client, in_path};
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// List claims, the last one claimed first; release, complete or delete one
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hapax claims
  hapax claims --state abandoned                       whose holder went away
  hapax claims release invoice-4711 --scope payments
      it was not done: the next caller does it
  hapax claims complete invoice-4711 --scope payments
      it was done: nobody does it again
  hapax claims delete invoice-4711 --scope payments    forget it, done or not

Columns: time claimed, scope, key, state, fence, holder, until when it is held
or kept."
)]
pub struct Claims {
    #[command(subcommand)]
    change: Option<Change>,
    /// Only those of this family of jobs
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// Only those whose key begins so
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only those that are so
    #[arg(long, value_name = "STATE", value_parser = ["held", "abandoned", "completed", "value"])]
    state: Option<String>,
    /// The next page: what the page before named
    #[arg(long, value_name = "NEXT")]
    cursor: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = PAGE_DEFAULT, value_parser = read_limit)]
    limit: usize,
}

#[derive(Subcommand, Debug)]
enum Change {
    /// Give up a claim that is held or abandoned: the next caller does the job
    #[command(after_help = "Example:\n  hapax claims release invoice-4711 --scope payments")]
    Release(One),
    /// Say that the job of a claim was done, whoever did it
    #[command(after_help = "Example:\n  hapax claims complete invoice-4711 --scope payments --result '{\"paid\":true}'")]
    Complete(Done),
    /// Forget a claim, done or not
    #[command(after_help = "Example:\n  hapax claims delete invoice-4711 --scope payments")]
    Delete(One),
}

#[derive(Args, Debug)]
struct One {
    /// The key, as `hapax claims` shows it
    #[arg(value_name = "KEY")]
    key: String,
    /// The family of jobs it is one of
    #[arg(long, value_name = "NAME", default_value = "default")]
    scope: String,
}

#[derive(Args, Debug)]
struct Done {
    #[command(flatten)]
    one: One,
    /// What the job came to, as JSON: later callers get it
    #[arg(long, value_name = "JSON", value_parser = read_json)]
    result: Option<Value>,
}

fn read_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| format!("write 1 to {PAGE_MAX}"))
}

fn read_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|why| format!("that is no JSON: {why}"))
}

impl Claims {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let named = |one: &One| json!({ "key": one.key, "scope": one.scope });
        let (answer, words) = match &self.change {
            None => return self.list(&client, output).await,
            Some(Change::Release(one)) => {
                (client.post("/v1/claims/release", named(one)).await?, format!("{} is free: the next caller does it", one.key))
            }
            Some(Change::Complete(Done { one, result })) => {
                let mut ask = named(one);
                ask["result"] = result.clone().unwrap_or_default();
                (client.post("/v1/claims/complete", ask).await?, format!("{} is done: nobody does it again", one.key))
            }
            Some(Change::Delete(One { key, scope })) => {
                let path = format!("/v1/claims?scope={}&key={}", in_path(scope), in_path(key));
                (client.delete(&path).await?, format!("{key} is forgotten"))
            }
        };
        output.answer(&answer, printable(&words));
        Ok(())
    }

    async fn list(self, client: &Client, output: &Output) -> Result<(), Failure> {
        let asked = [("scope", self.scope), ("key", self.key), ("state", self.state), ("cursor", self.cursor)];
        let mut query: Vec<(&str, String)> = asked.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        query.push(("limit", self.limit.to_string()));
        let answer = client.get("/v1/claims", &query).await?;
        let rows = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if output.json {
            output.json(&answer);
        } else {
            output.table(&["claimed", "scope", "key", "state", "fence", "holder", "until"], rows.iter().map(row).collect());
        }
        match answer["next"].as_str() {
            Some(next) => output.note(format_args!("there are more: --cursor {next}")),
            None if rows.is_empty() => output.note("there are no such claims; `hapax once KEY -- COMMAND` makes one"),
            None => {}
        }
        Ok(())
    }
}

fn row(claim: &Value) -> Vec<String> {
    let columns = ["claimed_at", "scope", "key", "state", "fence", "holder"];
    let mut row: Vec<_> = columns.map(|column| text_of(claim, column)).into();
    row.push(match (text_of(claim, "lease_until"), text_of(claim, "ends_at")) {
        (lease, _) if !lease.is_empty() => lease,
        (_, ends) => ends,
    });
    row
}
