//! `hapax shadow`

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use hapax_domain::address::hide_userinfo;
use hapax_domain::units::{read_ms, write_ms};
use hapax_gateway::connections::accept_loop::Closing;
use hapax_gateway::shadow::{self, Counts, Plan};
use hapax_providers::settings::{EvolutionProof, Settings, SignatureRule};
use serde_json::{Value, json};

use super::bot_address::read_server;
use super::signals::StopSignals;
use super::sockets::bind;
use super::{Failure, Global, Output, sources};
use crate::config::{self, Flags};

/// How long requests in flight may take when it is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// Stand before a bot, change nothing, and count the copies and double sends that hapax would have spared it
#[derive(Args)]
#[command(after_help = "\
Point the provider at --listen (through the tunnel or proxy that leads to your
bot today). Everything is passed on at once, in both directions and as it is;
nothing is kept on disk. A report is printed every now and then, and at the end
(Ctrl-C). To count double sends too, let the bot call --send-listen in place of
its provider.

Without --channel there is no secret, so signatures are not checked: whoever
can post is counted.

Examples:
  hapax shadow --provider telegram --to http://127.0.0.1:3000
  hapax shadow --provider telegram --to http://127.0.0.1:3000 \\
               --send-listen 127.0.0.1:4301 --send-to https://api.telegram.org
  hapax shadow --channel shop
      provider, secret and target of a channel in hapax.toml")]
pub struct Shadow {
    /// Whose webhooks these are: telegram, whatsapp, stripe, ..
    #[arg(long, value_name = "NAME", required_unless_present = "channel", conflicts_with = "channel")]
    provider: Option<String>,
    /// Take the provider, its secrets and its addresses from this channel of the config; signatures are checked
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Where webhooks come in
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4300")]
    listen: SocketAddr,
    /// Where the bot is; with a path of its own everything goes to that path. Without it: the channel's `target`
    #[arg(long, value_name = "PORT|URL", value_parser = read_server, required_unless_present = "channel")]
    to: Option<String>,
    /// Where the bot calls its provider
    #[arg(long, value_name = "ADDRESS")]
    send_listen: Option<SocketAddr>,
    /// Where the provider's API is. Without it: the channel's `api_base`
    #[arg(long, value_name = "URL", value_parser = read_server, requires = "send_listen")]
    send_to: Option<String>,
    /// How long a copy is recognised; usually as in the config, or as hapax would for this provider
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    window: Option<i64>,
    /// How often to report
    #[arg(long, value_name = "TIME", value_parser = read_time, default_value = "10m")]
    every: i64,
}

impl Shadow {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let plan = self.plan(global)?;
        if self.send_listen.is_some() && plan.send_to.is_none() {
            return Err(Failure::plain("--send-listen needs --send-to URL: where the provider's API is"));
        }
        let shadow = shadow::Shadow::new(&plan).map_err(|why| Failure::plain(why.to_string()))?;
        let webhooks = bind(self.listen).await?;
        let sends = match self.send_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let listens =
            |listener: &tokio::net::TcpListener| listener.local_addr().map(|at| format!("http://{at}")).unwrap_or_default();
        let mut signals = StopSignals::hear()?;
        announce(&plan, &listens(&webhooks), sends.as_ref().map(listens).as_deref(), &shadow.counts(), output);
        let closing = Closing::default();
        let serving = shadow.serve(webhooks, sends, closing.clone());
        let telling = async {
            let every = Duration::from_millis(self.every.max(1_000).unsigned_abs());
            loop {
                tokio::select! {
                    () = signals.told() => break,
                    () = tokio::time::sleep(every) => report(&plan, &shadow, "running", output),
                }
            }
            closing.stop.cancel();
            tokio::time::sleep(GRACE).await;
            closing.cut.cancel();
        };
        tokio::select! {
            () = serving => {}
            () = telling => {}
        }
        shadow.caught_up().await;
        report(&plan, &shadow, "ended", output);
        Ok(())
    }

    fn plan(&self, global: &Global) -> Result<Plan, Failure> {
        let Some(name) = &self.channel else {
            let name = self.provider.as_deref().unwrap_or_default();
            let provider = without_secret(name).ok_or_else(|| no_such_provider(name))?;
            let window_ms = self.window.or(config::usual_window_ms(name)).unwrap_or_default();
            let to = self.to.clone().unwrap_or_default();
            return Ok(Plan { provider, checks: false, window_ms, to, send_to: self.send_to.clone() });
        };
        let config = sources::load_config(global, Flags::default())?;
        let Some(channel) = config.channels.iter().find(|channel| *channel.name == **name) else {
            return Err(Failure::plain(format!("there is no [channel.{name}] in the config")));
        };
        let Some(to) = self.to.clone().or_else(|| channel.target.clone()) else {
            return Err(Failure::plain(format!("channel {name} has no `target`; say with --to where the bot is")));
        };
        let api_base = channel.send.as_ref().map(|send| send.api_base.clone());
        Ok(Plan {
            provider: channel.provider.clone(),
            checks: true,
            window_ms: self.window.unwrap_or(channel.window_ms),
            to,
            send_to: self.send_to.clone().or(api_base).filter(|_| self.send_listen.is_some()),
        })
    }
}

/// An adapter that reads; what proves a webhook it is never asked.
fn without_secret(provider: &str) -> Option<Settings> {
    let secrets = Vec::new();
    Some(match provider {
        "whatsapp" => Settings::Whatsapp { secrets, verify_token: None },
        "messenger" => Settings::Messenger { secrets, verify_token: None },
        "instagram" => Settings::Instagram { secrets, verify_token: None },
        "telegram" => Settings::Telegram { secrets, bot: "shadow".to_owned() },
        "gowa" => Settings::Gowa { secrets },
        "evolution" => Settings::Evolution { proof: EvolutionProof::Header(SignatureRule::None), token: None },
        "waha" => Settings::Waha { secrets },
        "stripe" => Settings::Stripe { secrets },
        "github" => Settings::Github { secrets },
        "standard" => Settings::Standard { secrets },
        "shopify" => Settings::Shopify { secrets },
        "slack" => Settings::Slack { secrets },
        "twilio" => Settings::Twilio { secrets, public_url: String::new() },
        _ => return None,
    })
}

fn no_such_provider(name: &str) -> Failure {
    let known = config::provider_names().filter(|name| without_secret(name).is_some()).collect::<Vec<_>>().join(", ");
    Failure::plain(match name {
        "generic" => "what \"generic\" webhooks look like stands in the config; name the channel with --channel".to_owned(),
        _ => format!("`{name}` is no provider; use one of {known}, or --channel"),
    })
}

fn read_time(text: &str) -> Result<i64, String> {
    read_ms(text).filter(|ms| *ms > 0).ok_or_else(|| "write a time with its unit, like \"30s\", \"10m\" or \"8d\"".to_owned())
}

fn announce(plan: &Plan, webhooks: &str, sends: Option<&str>, counts: &Counts, output: &Output) {
    let (to, send_to) = (hide_userinfo(&plan.to), plan.send_to.as_deref().map(hide_userinfo));
    if output.json {
        let ways =
            json!({"webhooks": {"listen": webhooks, "to": to}, "sends": sends.map(|at| json!({"listen": at, "to": send_to}))});
        output.json(&json!({"shadow": "listening", "provider": plan.provider.provider(), "signatures_checked": plan.checks, "ways": ways}));
        return;
    }
    output.line(format_args!("webhooks  {webhooks} -> {to}"));
    if let (Some(at), Some(to)) = (sends, send_to) {
        output.line(format_args!("sends     {at} -> {to}"));
    }
    if !plan.checks {
        output.warn("no secret is known here, so signatures are not checked: whoever can post is passed on and counted");
    }
    if sends.is_some() && !counts.reads_sends {
        output.warn(format_args!(
            "the calls of this provider's API are passed on, and cannot be read yet: {}",
            plan.provider.provider()
        ));
    }
    output.line(format_args!(
        "Everything is passed on as it is. Copies are recognised for {}. Stop with Ctrl-C.",
        write_ms(plan.window_ms)
    ));
}

fn report(plan: &Plan, shadow: &shadow::Shadow, state: &str, output: &Output) {
    let (counts, running) = (shadow.counts(), shadow.running_for());
    if output.json {
        return output.json(&as_json(plan, &counts, running, state));
    }
    output.line("");
    for line in words(&counts, plan.send_to.is_some(), running) {
        output.line(line);
    }
}

fn as_json(plan: &Plan, counts: &Counts, running: Duration, state: &str) -> Value {
    let copies = &counts.copies;
    let sends = plan.send_to.as_ref().filter(|_| counts.reads_sends);
    json!({
        "shadow": state,
        "provider": plan.provider.provider(),
        "signatures_checked": plan.checks,
        "running_s": running.as_secs(),
        "webhooks": {"all": counts.webhooks, "refused": counts.refused, "unanswered": counts.unanswered},
        "events": {"all": counts.events, "unreadable": counts.unreadable, "without_id": counts.without_id},
        "copies": {
            "all": copies.all,
            "while_at_work": copies.at_work,
            "after_taken": copies.taken,
            "after_failure": copies.failed,
            "after_giving_up": copies.gave_up,
            "with_other_content": counts.conflicts,
        },
        "sends": sends.map(|_| json!({"all": counts.sends, "double": counts.double_sends, "repeated": counts.repeated_sends})),
        "not_read": counts.not_read,
    })
}

/// The same for people. Lines about what did not happen are left out, but for the two that everybody looks for.
fn words(counts: &Counts, sends: bool, running: Duration) -> Vec<String> {
    let copies = &counts.copies;
    let share = if counts.events == 0 { 0.0 } else { 100.0 * copies.all as f64 / counts.events as f64 };
    let mut lines = vec![
        format!("After {}:", write_ms(i64::try_from(running.as_secs() * 1_000).unwrap_or(i64::MAX))),
        format!("{:>9}  webhooks, with {} events", counts.webhooks, counts.events),
        format!("{:>9}  copies of events that had come before ({share:.1} %): hapax would have held them back", copies.all),
    ];
    let mut tell = |count: u64, words: &str| {
        if count > 0 {
            lines.push(format!("{count:>9}  {words}"));
        }
    };
    tell(copies.at_work, "  of them came while the bot was still at work on the first");
    tell(copies.taken, "  of them after the bot had taken the first");
    tell(copies.gave_up, "  of them after the provider had given up waiting for the bot");
    tell(copies.failed, "  of them after the bot had failed: a retry, which hapax makes by itself");
    tell(counts.conflicts, "  of all copies had another content than the first");
    tell(counts.refused, "webhooks with a wrong signature: hapax would have answered 401");
    tell(counts.unanswered, "webhooks for which the bot could not be reached: hapax would have kept them");
    tell(counts.unreadable, "parts that could not be read");
    tell(counts.without_id, "events without an id or a time: nothing tells them from their copies");
    tell(counts.not_read, "requests were passed on and not looked at: too large, or too many at once");
    if sends && counts.reads_sends {
        lines.push(format!("{:>9}  sends", counts.sends));
        lines.push(format!(
            "{:>9}  double sends, equal to one before and after a copy: hapax would have sent one",
            counts.double_sends
        ));
        if counts.repeated_sends > 0 {
            lines.push(format!("{:>9}  equal sends soon after each other, without a copy", counts.repeated_sends));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_gateway::shadow::Counts;

    #[test]
    fn every_provider_but_the_described_one_can_be_watched_without_a_secret() {
        for name in config::provider_names() {
            let made = without_secret(name);
            assert_eq!(made.as_ref().map(Settings::provider), (name != "generic").then_some(name));
            assert!(config::usual_window_ms(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_report_says_what_happened_and_nothing_else() {
        let counts = Counts { webhooks: 3, events: 4, ..Counts::default() };
        let said = words(&counts, false, Duration::from_secs(61));
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("After 61s") && said[2].starts_with("        0  copies"), "{said:?}");
    }
}
