//! `hapax events`

use clap::Args;
use hapax_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use hapax_domain::{EventId, Kind, ThreadId};

use super::client::Client;
use super::output::text_of;
use super::{Failure, Global, Output};

/// List what came in, newest first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax events --channel shop --limit 10
  hapax events --kind status
  hapax events --thread 700001__5511988887777
  hapax events --json | jq -r '.events[].id'

Columns: time received, id, channel, kind, peer, the provider's id, state.")]
pub struct Events {
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Only those of this kind: message, status, reaction, edit, delete, action, notice
    #[arg(long, value_parser = read_kind)]
    kind: Option<Kind>,
    /// Only those of this thread, written account__peer
    #[arg(long, value_name = "THREAD")]
    thread: Option<ThreadId>,
    /// The next page: those older than this event
    #[arg(long, value_name = "ID")]
    before: Option<EventId>,
    /// How many at most
    #[arg(long, default_value_t = PAGE_DEFAULT, value_parser = read_limit)]
    limit: usize,
}

impl Events {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let mut query = vec![("limit", self.limit.to_string())];
        query.extend(self.channel.map(|channel| ("channel", channel)));
        query.extend(self.kind.map(|kind| ("kind", kind.name().to_owned())));
        query.extend(self.thread.map(|thread| ("thread", thread.to_string())));
        query.extend(self.before.map(|before| ("before", before.to_string())));
        let answer = Client::open(global)?.get("/v1/events", &query).await?;
        let events = answer["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        if output.json {
            output.json(&answer);
        } else {
            let columns = ["received_at", "id", "channel", "kind", "peer", "provider_id", "state"];
            let rows = events.iter().map(|event| columns.map(|column| text_of(event, column)).to_vec());
            output.table(&["received", "id", "channel", "kind", "peer", "provider's id", "state"], rows.collect());
        }
        if events.is_empty() {
            let todo = "`hapax trigger whatsapp.text` sends one to try with";
            return Err(Failure::NothingMatched(format!("no such events; {todo}")));
        }
        if let Some(next) = answer["next"].as_str() {
            output.note(format_args!("there are more: --before {next}"));
        }
        Ok(())
    }
}

fn read_kind(name: &str) -> Result<Kind, String> {
    Kind::from_name(name).ok_or_else(|| format!("use one of {}", Kind::ALL.map(Kind::name).join(", ")))
}

pub(super) fn read_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| format!("write 1 to {PAGE_MAX}"))
}
