//! `hapax demo`

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hapax_gateway::telemetry::Telemetry;
use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::OwoColorize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::launch::{Launch, start_logs};
use super::signals::StopSignals;
use super::{Failure, Output, fresh_secret};
use crate::config::{self, Environment, Flags, SourceFile, Sources};
use crate::demo::{Journal, Play, Stage, Tally};

const SECONDS_MAX: u64 = 3_600;
const REDRAW: Duration = Duration::from_millis(200);

/// Watch it work: a provider that repeats itself, a bot that crashes, and hapax between them
#[derive(Args, Debug)]
#[command(after_help = "\
Starts a gateway on a free port with a store in a temporary folder. A pretend
provider posts signed WhatsApp messages, four of ten webhooks more than once,
and loses one of ten answers when the bot's replies are sent. An echo bot
crashes, hangs or fails at one of eight calls. The sums at the end are those of
the provider and the bot, not of hapax. Nothing is left behind. Exit code 1 if
a message was lost or doubled.

Examples:
  hapax demo
  hapax demo --seconds 60")]
pub struct Demo {
    /// How long messages come in; Ctrl-C ends it earlier
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
}

/// A folder that is gone when the demo is.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("hapax-demo-{}", fresh_secret()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Demo {
    pub(super) async fn run(self, output: &Output) -> Result<(), Failure> {
        start_logs("off", false)?;
        let mut signals = StopSignals::hear()?;
        let broken = |why: std::io::Error| Failure::plain(format!("the demo cannot be set up: {why}"));
        let folder = Folder::new().map_err(broken)?;
        let (stage, secret) = (Stage::open().await.map_err(broken)?, fresh_secret());
        let launch = open(&stage.config(&folder.0, &secret).map_err(broken)?, &folder.0).await?;
        let stop = CancellationToken::new();
        if !output.json {
            output.line(format_args!("{} runs between a provider that repeats itself and a bot that crashes", "hapax".bold()));
            let time = if self.seconds == 1 { "a second".to_owned() } else { format!("{} seconds", self.seconds) };
            output.line(format_args!("for {time}; Ctrl-C ends it earlier.\n"));
        }
        let gateway = launch.address();
        let serving = tokio::spawn(launch.run(stop.clone()));
        let journal = stage.journal.clone();
        let play = stage.begin(gateway, &secret);
        let tally = watch(play, &journal, self.seconds, &mut signals, output).await;
        stop.cancel();
        // What it kept is removed below, so how it stopped says nothing about the messages.
        let _ = serving.await;
        conclude(tally, output)
    }
}

async fn open(text: &str, folder: &Path) -> Result<Launch, Failure> {
    let file = Some(SourceFile { name: "the demo's config".to_owned(), text: text.to_owned() });
    // Nothing of the shell's environment: a DATABASE_URL there is somebody's own.
    let env = Environment { vars: Default::default(), read_file: &|path| std::fs::read_to_string(path) };
    let mut config = config::load(&Sources { file, env, flags: Flags::default() })?;
    config.spool = folder.join("spool.db");
    Launch::open(config, Telemetry::new(), None).await
}

/// Shows how far it is until the time is over or somebody stops it, then lets it come to its end.
async fn watch(play: Play, journal: &Journal, seconds: u64, signals: &mut StopSignals, output: &Output) -> Tally {
    let bar = if output.json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let over = tokio::time::sleep(Duration::from_secs(seconds));
    tokio::pin!(over);
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            () = &mut over => break,
            () = signals.told() => break,
            _ = redraw.tick() => show(&bar, journal),
        }
    }
    let ending = play.end();
    tokio::pin!(ending);
    loop {
        tokio::select! {
            tally = &mut ending => {
                bar.finish_and_clear();
                return tally;
            }
            // Who asks twice does not want to wait for the rest.
            () = signals.told() => {
                bar.finish_and_clear();
                return journal.tally();
            }
            _ = redraw.tick() => show(&bar, journal),
        }
    }
}

fn show(bar: &ProgressBar, journal: &Journal) {
    let Tally { received, messages, delivered, bot_failures, sent, .. } = journal.tally();
    bar.set_message(format!(
        "{received} webhooks of {messages} messages, {delivered} delivered, {bot_failures} crashes, {sent} replies sent"
    ));
    bar.tick();
}

fn conclude(tally: Tally, output: &Output) -> Result<(), Failure> {
    if output.json {
        output.json(&json!({
            "received": tally.received, "messages": tally.messages, "suppressed": tally.suppressed,
            "bot_failures": tally.bot_failures, "delivered": tally.delivered, "answers_lost": tally.answers_lost,
            "sent": tally.sent, "lost": tally.lost, "doubled": tally.doubled,
        }));
    } else {
        let rows = [
            (tally.received, "received", format!("webhooks, for {} messages", tally.messages)),
            (tally.suppressed, "suppressed", "copies that the bot never had to handle".to_owned()),
            (tally.delivered, "delivered", format!("messages handled by the bot, which failed {} times", tally.bot_failures)),
            (tally.sent, "sent", format!("replies at the provider, which lost {} of its answers", tally.answers_lost)),
            (tally.lost, "lost", "messages that were taken and not handled or not answered".to_owned()),
            (tally.doubled, "doubled", "work done or replies sent more than once".to_owned()),
        ];
        for (count, word, about) in rows {
            output.line(format_args!("{count:>7}  {word:<11} {about}"));
        }
        output.line("\nNext: `hapax listen 3000/webhook` puts it before your own bot.");
    }
    match (tally.lost, tally.doubled) {
        (0, 0) => Ok(()),
        (lost, doubled) => Err(Failure::plain(format!("{lost} lost and {doubled} doubled, where there should be none"))),
    }
}
