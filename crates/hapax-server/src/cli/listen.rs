//! `hapax listen`

use std::collections::BTreeMap;

use clap::Args;
use hapax_gateway::connections::accept_loop::{self, Allowance, Closing};
use hapax_gateway::telemetry::{Happening, Telemetry};
use hapax_store::clock::{Clock, SystemClock};
use http::Response;
use http_body_util::Full;
use owo_colors::OwoColorize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::launch::{Launch, prepare, serve_until_told, start_logs};
use super::output::printable;
use super::{Failure, Global, Output, sources};
use crate::config::{Config, Flags};

/// Lines that may wait for a slow terminal; more are left out.
const LINES_WAITING: usize = 10_000;
const PREVIEW_CHARS: usize = 60;

/// Serve, and print one line for every event and every suppressed copy
#[derive(Args)]
#[command(after_help = "\
Channels without a target deliver to the address given here. Without one hapax itself plays the bot and takes everything with 200,
so there is nothing else to set up.

Examples:
  hapax listen                                 hapax plays the bot
  hapax listen 3000                            your bot is on http://127.0.0.1:3000/
  hapax listen http://127.0.0.1:3000/webhook")]
pub struct Listen {
    /// Where the bot is: a port of this machine, or an address
    #[arg(value_name = "PORT|URL", value_parser = read_target)]
    target: Option<String>,
    /// Where to listen; stronger than the config
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where to keep events: sqlite:FILE, postgres://.., mysql://.., redis://.., firestore://.. or memory:; stronger than the config
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

impl Listen {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, store: self.store, admin_token: sources::token_flag(global)? };
        let (config, written) = prepare(global, flags)?;
        // What happens is shown line by line; only what has no line is logged.
        start_logs("error", false)?;
        run(config, self.target, written.as_deref(), output).await
    }
}

/// Serves a checked config and shows what happens.
pub(super) async fn run(
    mut config: Config,
    target: Option<String>,
    written: Option<&str>,
    output: &Output,
) -> Result<(), Failure> {
    let stop_bot = CancellationToken::new();
    let _stopped_at_the_end = stop_bot.clone().drop_guard();
    let played = match &target {
        Some(_) => None,
        None => Some(play_the_bot(stop_bot).await?),
    };
    for channel in config.channels.iter_mut().filter(|channel| channel.target.is_none()) {
        channel.target = target.clone().or_else(|| played.clone());
    }
    let (telemetry, happenings) = Telemetry::watched(LINES_WAITING);
    let launch = Launch::open(config, telemetry).await?;
    launch.banner(written, played.as_deref(), output);
    if !output.json {
        output.line("");
    }
    let json = output.json;
    let showing = tokio::spawn(show(happenings, json));
    serve_until_told(launch).await?;
    // The server is gone, so the line of happenings ends.
    if let Ok(counts) = showing.await
        && !json
    {
        let words: Vec<String> = counts.into_iter().map(|(word, count)| format!("{count} {word}")).collect();
        output.line(format_args!("\n{}", if words.is_empty() { "nothing came in".to_owned() } else { words.join(", ") }));
    }
    Ok(())
}

/// A bot inside this process that takes everything, on a port of its own.
async fn play_the_bot(stop: CancellationToken) -> Result<String, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|why| Failure::plain(format!("no port for the bot: {why}")))?;
    let address = listener.local_addr().map_err(|why| Failure::plain(format!("no port for the bot: {why}")))?;
    let allowance = Allowance {
        connections: 1_024,
        proxies: Default::default(),
        write_timeout: std::time::Duration::from_secs(60),
        header_timeout: std::time::Duration::from_secs(60),
        stillness: std::time::Duration::ZERO,
    };
    let closing = Closing { stop: stop.clone(), cut: stop };
    let take = |_request| async { Response::new(Full::new(bytes::Bytes::new())) };
    tokio::spawn(accept_loop::serve(listener, allowance, take, std::sync::Arc::new(Telemetry::new()), closing));
    Ok(format!("http://{address}/"))
}

/// Prints until the server is gone; gives back how often each thing happened.
async fn show(mut happenings: mpsc::Receiver<Happening>, json: bool) -> BTreeMap<&'static str, u64> {
    let output = Output::new(json);
    let clock = SystemClock::new();
    let mut counts = BTreeMap::new();
    while let Some(happening) = happenings.recv().await {
        let line = Line::of(happening);
        *counts.entry(line.word).or_default() += 1;
        let at = time_of_day(clock.now_ms());
        if json {
            output.line(
                json!({"at": at, "channel": line.channel, "happened": line.word, "event": line.event, "about": line.about}),
            );
        } else {
            output.line(line.coloured(&at));
        }
    }
    counts
}

/// One happening in words.
struct Line {
    channel: String,
    word: &'static str,
    event: Option<String>,
    about: String,
}

impl Line {
    fn of(happening: Happening) -> Self {
        let line = |channel: &str, word, event: Option<String>, about: String| Line {
            channel: channel.to_owned(),
            word,
            event,
            about: printable(&about),
        };
        match happening {
            Happening::Accepted { channel, event, kind, thread, text } => {
                let thread = thread.map(|thread| format!("  {thread}")).unwrap_or_default();
                let text = text.map(|text| format!("  \u{201c}{}\u{201d}", preview(&text))).unwrap_or_default();
                line(&channel, "accepted", Some(event.to_string()), format!("{}{thread}{text}", kind.name()))
            }
            Happening::Suppressed { channel, event, conflict } => {
                let about = if conflict { "the same id with another content" } else { "a copy" };
                line(&channel, "suppressed", Some(event.to_string()), about.to_owned())
            }
            Happening::Quarantined { channel, event, why } => line(&channel, "quarantined", Some(event.to_string()), why),
            Happening::Refused { channel, why } => line(&channel, "refused", None, why.to_owned()),
            Happening::InTrouble { channel, did } => line(&channel, did, None, "the store is away".to_owned()),
            Happening::Delivered { channel, event, attempt, status, took_ms } => {
                line(&channel, "delivered", Some(event.to_string()), format!("attempt {attempt}, {status}, {took_ms} ms"))
            }
            Happening::Retried { channel, event, attempt, wait_ms, why } => {
                let about = format!("attempt {attempt}: {why}; again in {wait_ms} ms");
                line(&channel, "failed", Some(event.to_string()), about)
            }
            Happening::Parked { channel, event, why } => line(&channel, "parked", Some(event.to_string()), why),
            Happening::CircuitOpened { channel, why, .. } => {
                line(&channel, "waiting", None, format!("{why}; deliveries wait and spend no attempts"))
            }
            Happening::CircuitClosed { channel } => line(&channel, "going on", None, "the target answers again".to_owned()),
            Happening::RepliesBad { channel, event, why } => line(&channel, "bad replies", Some(event.to_string()), why),
            Happening::Sent { channel, message, attempt, took_ms } => {
                line(&channel, "sent", Some(message.to_string()), format!("attempt {attempt}, {took_ms} ms"))
            }
            Happening::SendRetried { channel, message, attempt, wait_ms, why } => {
                let about = format!("attempt {attempt}: {why}; again in {wait_ms} ms");
                line(&channel, "not sent", Some(message.to_string()), about)
            }
            Happening::SendFailed { channel, message, why } => line(&channel, "failed", Some(message.to_string()), why),
            Happening::SendUnknown { channel, message, why } => line(&channel, "unknown", Some(message.to_string()), why),
            Happening::Reconciled { channel, message } => {
                line(&channel, "sent", Some(message.to_string()), "the provider knows it; it is no longer in doubt".to_owned())
            }
            Happening::AccountPaused { channel, account, why } => line(&channel, "paused", None, format!("{account}: {why}")),
            Happening::StoreUnavailable { call, why } => line("", "store", None, format!("{call}: {why}")),
        }
    }

    fn coloured(&self, at: &str) -> String {
        let word = format!("{:<11}", self.word);
        let word = match self.word {
            "accepted" | "delivered" | "going on" => word.green().to_string(),
            "suppressed" | "waiting" => word.yellow().to_string(),
            _ => word.red().to_string(),
        };
        let event = self.event.as_ref().map(|event| format!("{event}  ")).unwrap_or_default();
        format!("{at}  {:<10}  {word}  {event}{}", self.channel, self.about)
    }
}

fn preview(text: &str) -> String {
    let mut shown: String = text.chars().take(PREVIEW_CHARS).collect();
    if text.chars().nth(PREVIEW_CHARS).is_some() {
        shown.push('\u{2026}');
    }
    shown
}

fn time_of_day(now_ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default().to_zoned(jiff::tz::TimeZone::system());
    at.strftime("%H:%M:%S").to_string()
}

fn read_target(text: &str) -> Result<String, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(format!("http://127.0.0.1:{port}/"));
    }
    match reqwest::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(text.to_owned()),
        _ => Err("neither a port nor an http(s) address".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_port_or_an_address() {
        assert_eq!(read_target("3000").as_deref(), Ok("http://127.0.0.1:3000/"));
        assert_eq!(read_target("https://bot.example/x").as_deref(), Ok("https://bot.example/x"));
        assert!(read_target("bot.example").is_err());
        assert!(read_target("70000").is_err());
    }

    #[test]
    fn a_long_text_is_cut_and_a_strangers_is_made_harmless() {
        assert_eq!(preview(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
        let happening = Happening::Quarantined {
            channel: "shop".into(),
            event: hapax_domain::EventId(uuid::Uuid::from_u128(1)),
            why: "\x1b[2J".to_owned(),
        };
        assert_eq!(Line::of(happening).about, "\u{fffd}[2J");
    }
}
