//! `hapax events`

use clap::Args;
use hapax_domain::{Kind, ThreadId};

use super::client::Client;
use super::list::{Filter, List, Page, columns};
use super::{Failure, Global, Output};

/// List what came in, newest first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax events --channel shop --limit 10
  hapax events --kind status
  hapax events state:parked since:1h type:invoice.paid text:refund
  hapax events --thread 700001__5511988887777
  hapax events --json | jq -r '.events[].id'

Columns: time received, id, channel, kind, peer, the provider's id, state.")]
pub struct Events {
    #[command(flatten)]
    filter: Filter,
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Only those of this kind: message, status, reaction, edit, delete, action, notice
    #[arg(long, value_parser = read_kind)]
    kind: Option<Kind>,
    /// Only those of this thread, written account__peer
    #[arg(long, value_name = "THREAD")]
    thread: Option<ThreadId>,
    #[command(flatten)]
    page: Page,
}

impl Events {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let list = List {
            path: "/v1/events",
            name: "events",
            head: &["received", "id", "channel", "kind", "peer", "provider's id", "state"],
            none: "nothing like that has come in; `hapax trigger whatsapp.text` sends a sample to try with",
        };
        let filters = vec![
            ("q", self.filter.into()),
            ("channel", self.channel),
            ("kind", self.kind.map(|kind| kind.name().to_owned())),
            ("thread", self.thread.map(|thread| thread.to_string())),
        ];
        let row = columns(["received_at", "id", "channel", "kind", "peer", "provider_id", "state"]);
        list.show(&Client::open(global)?, self.page, filters, row, output).await
    }
}

fn read_kind(name: &str) -> Result<Kind, String> {
    Kind::from_name(name).ok_or_else(|| format!("use one of {}", Kind::ALL.map(Kind::name).join(", ")))
}
