//! `hapax ready`

use std::time::Duration;

use clap::Args;
use hapax_domain::units::read_ms;
use tokio::time::Instant;

use super::client::Client;
use super::output::text_of;
use super::{Failure, Global, Output};

/// Between two looks while it is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Ask the running hapax whether it can take webhooks
#[derive(Args, Debug)]
#[command(after_help = "\
Exit code 0 when it can, 1 when it cannot (the store is away, say), 4 when
nobody answers. It needs no token. For health checks and scripts.

Examples:
  hapax ready
  hapax ready --wait 30s && ./tell-the-provider.sh")]
pub struct Ready {
    /// Wait for it, up to this long
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = read_wait)]
    wait: i64,
}

fn read_wait(text: &str) -> Result<i64, String> {
    read_ms(text).ok_or_else(|| "write a time with its unit, like 30s or 2m".to_owned())
}

impl Ready {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::without_token(global)?;
        let until = Instant::now() + Duration::from_millis(self.wait.unsigned_abs());
        loop {
            let asked = client.get_any("/readyz").await;
            match &asked {
                Ok((200, answer)) => {
                    output.answer(answer, "ready");
                    return Ok(());
                }
                Ok(_) | Err(Failure::Unreachable(_)) if Instant::now() < until => tokio::time::sleep(LOOK_AGAIN).await,
                _ => return Err(not_ready(asked)),
            }
        }
    }
}

fn not_ready(asked: Result<(u16, serde_json::Value), Failure>) -> Failure {
    match asked {
        Ok((status, answer)) => {
            let why = text_of(&answer, "why");
            let why = if why.is_empty() { format!("it answered {status}") } else { why };
            Failure::plain(format!("not ready: {why}; `hapax stats` and the log say more"))
        }
        Err(failure) => failure,
    }
}
