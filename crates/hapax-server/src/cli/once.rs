//! `hapax once`: runs a command once across machines. Who comes while it runs waits or goes; who comes later gets what it said.

mod group;
mod kept;
mod running;
mod words;

use std::time::Duration;

use clap::Args;
use hapax_domain::units::{read_ms, write_ms};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::kept::Kept;
use self::running::{Ended, Holding};
use super::client::Client;
use super::output::text_of;
use super::{Failure, Global, Output};

/// The longest that one request waits at the server.
const WAIT_AT_ONCE: Duration = Duration::from_secs(30);

/// Who waits looks so often whether a server that is away is back.
const AWAY: Duration = Duration::from_secs(1);

/// Exit codes of `sysexits.h`: it runs elsewhere, or waits for a person; it was ended, because the claim was lost.
const NOT_NOW: u8 = 75;
const LOST: u8 = 70;
/// As shells say it.
const NOT_STARTED: u8 = 127;

/// Run a command once across machines
#[derive(Args, Debug)]
#[command(after_help = "\
The first to come runs it. Who comes while it runs is told so (exit code 75),
or waits with --wait; who comes later gets the same output and exit code,
without running anything, for as long as --ttl says. The first megabyte of
output, as it is written in JSON, is kept.

Whoever runs it sends a heartbeat. If its machine dies, the next caller runs
the command after the lease; with --on-abandoned hold it waits for a person
(`hapax claims`). If the heartbeat is lost, the command is ended (exit code
70). A command that is killed by a signal has not been done: the next caller
runs it again.

Examples:
  hapax once backup-$(date +%F) -- /usr/local/bin/backup
      the same line in the crontab of two hosts
  hapax once invoice-4711 --on-abandoned hold --wait 5m -- ./pay 4711
  hapax once migrate-v7 --ttl 30d --wait 10m -- ./migrate && ./serve")]
pub struct Once {
    /// What is done once
    #[arg(value_name = "KEY")]
    key: String,
    /// The family of jobs that the key is one of
    #[arg(long, value_name = "NAME", default_value = "once")]
    scope: String,
    /// How long what it said is kept
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = read_time)]
    ttl: i64,
    /// How long a machine that died keeps others from running it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = read_time)]
    lease: i64,
    /// How long to wait for whoever runs it
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = read_wait)]
    wait: i64,
    /// When the machine that runs it dies: takeover (the next caller runs it) or hold (a person decides)
    #[arg(long, value_name = "WHAT", default_value = "takeover", value_parser = ["takeover", "hold"])]
    on_abandoned: String,
    /// A command that fails has not been done: the next caller runs it again
    #[arg(long)]
    retry_failed: bool,
    /// The command, behind `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn read_time(text: &str) -> Result<i64, String> {
    read_ms(text).filter(|ms| *ms > 0).ok_or_else(|| "write a time with its unit, like 90s or 24h".to_owned())
}

fn read_wait(text: &str) -> Result<i64, String> {
    read_ms(text).ok_or_else(|| "write a time with its unit, like 90s or 10m".to_owned())
}

impl Once {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let (asked, claimed) = self.claim(&client).await?;
        if text_of(&claimed, "status") == "completed" {
            return Kept::read(&claimed["result"]).replay();
        }
        if text_of(&claimed, "previous") == "abandoned" {
            output.note("hapax once: whoever ran this before went away in the middle; it runs again");
        }
        let name = json!({ "key": self.key, "scope": self.scope, "token": text_of(&claimed, "token") });
        let lease = Duration::from_millis(self.lease.unsigned_abs());
        let holding = Holding { client: &client, name: &name, lease, asked };
        match holding.run(&self.command).await {
            Err(why) => {
                self.release(&holding, output).await;
                Err(Failure::Exit { code: NOT_STARTED, why: Some(format!("{} cannot be run: {why}", self.command[0])) })
            }
            Ok((Ended::Lost(why), _)) => Err(Failure::Exit {
                code: LOST,
                why: Some(format!("the command was ended, because {why}; another may run it now")),
            }),
            Ok((Ended::Signal(signal), _)) => {
                if self.on_abandoned == "takeover" {
                    self.release(&holding, output).await;
                }
                Err(Failure::Exit { code: 128_u8.saturating_add(signal), why: None })
            }
            Ok((Ended::Code(code), _)) if code != 0 && self.retry_failed => {
                self.release(&holding, output).await;
                Err(Failure::Exit { code, why: None })
            }
            Ok((Ended::Code(code), kept)) => self.complete(&holding, code, kept, output).await,
        }
    }

    /// Lets the next caller begin at once. If that fails, it begins after the lease: no reason to hide how the command ended.
    async fn release(&self, holding: &Holding<'_>, output: &Output) {
        if let Err(failure) = holding.release().await {
            let then =
                if self.on_abandoned == "hold" { "a person has to release it" } else { "it can be run again after the lease" };
            output.note(format!("hapax once: the claim could not be released: {failure}; {then}"));
        }
    }

    async fn complete(&self, holding: &Holding<'_>, code: u8, kept: Kept, output: &Output) -> Result<(), Failure> {
        if let Err(failure) = holding.complete(kept.write(code)).await {
            let why =
                format!("the command ended with {code}, and that could not be written down: {failure}; it may be run again");
            if !matches!(failure, Failure::Unreachable(_)) {
                return Err(Failure::Exit { code: LOST, why: Some(why) });
            }
            output.note(format!("hapax once: {why}"));
        }
        if code == 0 { Ok(()) } else { Err(Failure::Exit { code, why: None }) }
    }

    /// Claims the key, and waits for its holder as long as was asked for. What is answered is a claim, or what was done before, and
    /// when it was asked for.
    async fn claim(&self, client: &Client) -> Result<(Instant, Value), Failure> {
        let ask = json!({
            "key": self.key,
            "scope": self.scope,
            "ttl": write_ms(self.ttl),
            "lease": write_ms(self.lease),
            "on_abandoned": self.on_abandoned,
            "holder": holder(),
        });
        let deadline = Instant::now() + Duration::from_millis(self.wait.unsigned_abs());
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(WAIT_AT_ONCE);
            // A moment less than a second is worth a last look.
            let wait = format!("wait={}", left.as_secs_f64().ceil() as u64);
            let asked = Instant::now();
            let answered = client.post_any("/v1/claims", ask.clone(), &[("prefer", &wait)]).await;
            let (status, answer) = match answered {
                // A server that is away may come back. If it took the claim for us and could not say so, it is free after the lease.
                Err(Failure::Unreachable(_)) | Ok((502..=504, _)) if Instant::now() + AWAY < deadline => {
                    tokio::time::sleep(AWAY).await;
                    continue;
                }
                answered => answered?,
            };
            match (status, answer["code"].as_str().unwrap_or_default()) {
                (200 | 201, _) => return Ok((asked, answer)),
                (409, "claim_in_progress") if Instant::now() < deadline => {}
                (409, "claim_in_progress") => {
                    let why = format!("`{}` runs elsewhere, and is not done yet; --wait TIME waits for it", self.key);
                    return Err(Failure::Exit { code: NOT_NOW, why: Some(why) });
                }
                (409, "claim_held") => {
                    let why = format!(
                        "whoever ran `{0}` went away in the middle, and --on-abandoned is hold. Find out whether it was done; then \
                         `hapax claims release {0} --scope {1}` lets it run again, and `hapax claims complete {0} --scope {1}` says that it is done",
                        self.key, self.scope
                    );
                    return Err(Failure::Exit { code: NOT_NOW, why: Some(why) });
                }
                _ => return Err(client.refusal(status, &answer)),
            }
        }
    }
}

/// Who runs it, for lists.
fn holder() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}:{}", if host.is_empty() { "hapax" } else { host }, std::process::id())
}
