//! `hapax listen`

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use hapax_domain::address::hide_userinfo;
use hapax_gateway::connections::accept_loop::{self, Allowance, Closing};
use hapax_gateway::delivery::likely_cause;
use hapax_gateway::settings::{Channel, Mode};
use hapax_gateway::telemetry::{Happening, Telemetry};
use hapax_store::clock::{Clock, SystemClock};
use http::Response;
use http_body_util::Full;
use owo_colors::OwoColorize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use unicode_width::UnicodeWidthStr;

use super::bot_address::{self, BotAddress};
use super::launch::{Launch, prepare, serve_until_told, start_logs};
use super::output::{printable, terminal_width};
use super::signals::StopSignals;
use super::table::{brief_words, cut, wrap_between_words};
use super::{Failure, Global, Output, sources};
use crate::config::{Config, Flags};

/// Lines that may wait for a slow terminal; more are left out.
const LINES_WAITING: usize = 10_000;
const PREVIEW_CHARS: usize = 60;
/// Where the channel stands.
const INDENT: usize = 10;

/// Serve, and print one line for every event and every suppressed copy
#[derive(Args)]
#[command(after_help = "\
Channels without a target deliver to the address given here. Without one hapax
itself plays the bot and takes everything with 200, so there is nothing else to
set up.

Examples:
  hapax listen                                 hapax plays the bot
  hapax listen 3000/webhook
      your bot is on http://127.0.0.1:3000/webhook
  hapax listen 3000
      the same: /webhook is tried where no path is named
  hapax listen https://bot.example/in")]
pub struct Listen {
    /// Where the bot is: a port of this machine with its path, or an address
    #[arg(value_name = "PORT/PATH|URL", value_parser = bot_address::read)]
    target: Option<BotAddress>,
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
        run(config, self.target, global, written.as_deref(), output).await
    }
}

/// Serves a checked config and shows what happens.
pub(super) async fn run(
    mut config: Config,
    target: Option<BotAddress>,
    global: &Global,
    written: Option<&str>,
    output: &Output,
) -> Result<(), Failure> {
    let stop_bot = CancellationToken::new();
    let _stopped_at_the_end = stop_bot.clone().drop_guard();
    let played = match &target {
        Some(_) => None,
        None => Some(play_the_bot(stop_bot).await?),
    };
    for channel in config.channels.iter_mut().filter(|channel| channel.target.is_none() && channel.mode != Mode::Pull) {
        channel.target = target.as_ref().map(|target| target.url.clone()).or_else(|| played.clone());
    }
    let (telemetry, happenings) = Telemetry::watched(LINES_WAITING);
    let hints = Hints::new(&config, target.is_some_and(|target| target.guessed));
    let launch = Launch::open(config, telemetry, global.config.as_deref()).await?;
    let signals = StopSignals::hear()?;
    launch.banner(written, played.as_deref(), global, output);
    if !output.json {
        output.line("");
    }
    let json = output.json;
    let showing = tokio::spawn(show(happenings, hints, json));
    serve_until_told(launch, signals).await?;
    // The server is gone, so the line of happenings ends.
    if let Ok(counts) = showing.await
        && !json
    {
        let words = counts.into_iter().map(|(word, count)| match word {
            "suppressed" if count == 1 => "1 copy suppressed".to_owned(),
            "suppressed" => format!("{count} copies suppressed"),
            word => format!("{count} {word}"),
        });
        let words: Vec<String> = words.collect();
        output.line(format_args!("\n{}", if words.is_empty() { "nothing came in".to_owned() } else { words.join(", ") }));
    }
    Ok(())
}

/// A bot inside this process that takes everything, on a port of its own.
async fn play_the_bot(stop: CancellationToken) -> Result<String, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|why| Failure::plain(format!("no port for the bot: {why}")))?;
    let address = listener.local_addr().map_err(|why| Failure::plain(format!("no port for the bot: {why}")))?;
    let allowance = Allowance {
        header_bytes: hapax_domain::limits::HEADER_MAX_BYTES,
        connections: 1_024,
        proxies: Default::default(),
        write_timeout: std::time::Duration::from_secs(60),
        header_timeout: std::time::Duration::from_secs(60),
        stillness: std::time::Duration::ZERO,
    };
    let closing = Closing { stop: stop.clone(), cut: stop };
    let take = |_request, _client| async { Response::new(Full::new(bytes::Bytes::new())) };
    tokio::spawn(accept_loop::serve(listener, allowance, take, std::sync::Arc::new(Telemetry::new()), closing));
    Ok(format!("http://{address}/"))
}

/// Prints until the server is gone; gives back how often each thing happened.
async fn show(mut happenings: mpsc::Receiver<Happening>, mut hints: Hints, json: bool) -> BTreeMap<&'static str, u64> {
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
            // A cause is worth more than a line.
            let width = output.is_brief().then(terminal_width);
            match line.word {
                "accepted" | "suppressed" | "delivered" | "sent" => output.line(line.coloured(&at, width)),
                _ => output.line(line.whole(&at, width)),
            }
            if let Some(hint) = hints.for_line(&line) {
                below(&hint, width).iter().for_each(|hint| output.line(hint));
            }
        }
    }
    counts
}

/// What is worth saying once about a bot that does not take what it is given.
struct Hints {
    targets: BTreeMap<String, String>,
    guessed: bool,
    said: BTreeSet<String>,
}

impl Hints {
    fn new(config: &Config, guessed: bool) -> Self {
        let target = |channel: &Channel| Some((channel.name.to_string(), hide_userinfo(channel.target.as_deref()?)));
        Self { targets: config.channels.iter().filter_map(target).collect(), guessed, said: BTreeSet::new() }
    }

    /// Each once.
    fn for_line(&mut self, line: &Line) -> Option<String> {
        let url = self.targets.get(&line.channel).filter(|_| matches!(line.word, "failed" | "parked" | "waiting"))?;
        let mut hint = likely_cause(&line.about, url)?;
        if self.guessed && line.about.contains("answered 404") {
            hint = format!(
                "there is nothing at {url}, the path that is tried where none is named: name it, as in `hapax listen 3000/PATH`"
            );
        }
        self.said.insert(hint.clone()).then_some(hint)
    }
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
                line(&channel, "accepted", Some(event.to_string()), format!("{}{text}{thread}", kind.name()))
            }
            Happening::Suppressed { channel, event, conflict } => {
                let about = if conflict { "a copy with another content under the same id" } else { "a copy" };
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

    /// As one line that is cut to this width.
    fn coloured(&self, at: &str, width: Option<usize>) -> String {
        let (head, head_width) = self.head(at);
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(head_width).max(PREVIEW_CHARS / 3));
        format!("{head}{}", cut(&self.about, room))
    }

    /// On as many lines as it takes.
    fn whole(&self, at: &str, width: Option<usize>) -> String {
        let (head, head_width) = self.head(at);
        let Some(room) = width.map(|width| width.saturating_sub(head_width)) else { return format!("{head}{}", self.about) };
        let first = wrap_between_words(&self.about, room).first().filter(|first| first.width() <= room).cloned();
        let first = first.unwrap_or_default();
        let rest = self.about.strip_prefix(&first).unwrap_or(&self.about).trim_start();
        let below = if rest.is_empty() { Vec::new() } else { below(rest, width) };
        [vec![format!("{head}{first}")], below].concat().join("\n")
    }

    /// What stands before it, and how wide that is.
    fn head(&self, at: &str) -> (String, usize) {
        let word = format!("{:<11}", self.word);
        let word = match self.word {
            "accepted" | "delivered" | "going on" => word.green().to_string(),
            "suppressed" | "waiting" => word.yellow().to_string(),
            _ => word.red().to_string(),
        };
        let event = self.event.as_ref().map(|event| format!("{}  ", brief_words(event))).unwrap_or_default();
        let width = at.len() + 2 + self.channel.len().max(10) + 2 + self.word.len().max(11) + 2 + event.len();
        (format!("{at}  {:<10}  {word}  {event}", self.channel), width)
    }
}

/// What belongs to the line above.
fn below(words: &str, width: Option<usize>) -> Vec<String> {
    let indent = " ".repeat(INDENT);
    let lines = match width {
        Some(width) => wrap_between_words(words, width.saturating_sub(INDENT)),
        None => vec![words.to_owned()],
    };
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_given_once_and_names_the_path_that_was_guessed() {
        let line = |about: &str| Line { channel: "shop".to_owned(), word: "parked", event: None, about: about.to_owned() };
        let targets = BTreeMap::from([("shop".to_owned(), "http://127.0.0.1:3000/webhook".to_owned())]);
        let mut hints = Hints { targets, guessed: true, said: BTreeSet::new() };
        let hint = hints.for_line(&line("the target answered 404")).expect("a hint");
        assert!(hint.contains("http://127.0.0.1:3000/webhook") && hint.contains("hapax listen 3000/PATH"), "{hint}");
        assert_eq!(hints.for_line(&line("the target answered 404")), None);
        assert!(hints.for_line(&line("the target answered 401")).is_some());
        assert_eq!(hints.for_line(&line("the target answered 500")), None);
    }

    #[test]
    fn a_cause_is_broken_between_words_and_told_whole() {
        let about = "the target cannot be reached: Connection refused; deliveries wait and spend no attempts";
        let line = |event: Option<&str>| Line {
            channel: "whatsapp".to_owned(),
            word: "waiting",
            event: event.map(str::to_owned),
            about: about.to_owned(),
        };
        let shown = line(None).whole("21:43:56", Some(80));
        let plain = anstream::adapter::strip_str(&shown).to_string();
        assert_eq!(
            plain,
            "21:43:56  whatsapp    waiting      the target cannot be reached: Connection\n          \
             refused; deliveries wait and spend no attempts"
        );
        let narrow = line(Some("evt_1nfw70w1")).whole("21:43:56", Some(40));
        let plain = anstream::adapter::strip_str(&narrow).to_string();
        assert!(plain.lines().skip(1).all(|line| line.len() <= 40), "{plain}");
        let words: Vec<_> = plain.split_whitespace().skip(4).collect();
        assert_eq!(words.join(" "), about);
        assert!(!line(None).whole("21:43:56", None).contains('\n'), "a pipe has no width");
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
