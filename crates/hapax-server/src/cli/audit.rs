//! `hapax audit`

use clap::Args;

use super::client::Client;
use super::list::{List, Page, columns};
use super::{Failure, Global, Output};

/// List who did what, newest first
#[derive(Args, Debug)]
#[command(after_help = "\
Replays, redrives, retries, cancelled messages, threads taken over, tokens,
purges: by which token, from where, and what came of it. The newest 5,000 are
kept, for 90 days.

Examples:
  hapax audit
  hapax audit --limit 500 --json | jq -r '.entries[] | select(.ok | not)'

Columns: time, token, address, what was done, to what, what came of it.")]
pub struct Audit {
    #[command(flatten)]
    page: Page,
}

impl Audit {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let list = List {
            path: "/v1/audit",
            name: "entries",
            head: &["time", "by", "from", "action", "target", "result"],
            none: "nothing yet: what people change by page, command or API is listed here",
        };
        let row = columns(["at", "by", "from", "action", "target", "result"]);
        list.show(&Client::open(global)?, self.page, Vec::new(), row, output).await
    }
}
