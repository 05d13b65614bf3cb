//! `hapax top`

mod figures;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::json;
use tokio::time::Instant;

use self::figures::{Figures, Sample};
use super::client::Client;
use super::{Failure, Global, Output};

/// Between two looks at the server.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the keyboard.
const KEYS: Duration = Duration::from_millis(50);

/// Watch queues and rates, channel by channel, and what needs a person
#[derive(Args, Debug)]
#[command(after_help = "\
It is drawn anew every second; `q` quits. Where there is no terminal, one
snapshot is printed, with the rates of one second.

Columns: new events, suppressed copies, deliveries and sends, each per second;
items that wait, that are being delivered, that need a person; how long the
oldest has waited.

Example:
  hapax top")]
pub struct Top {}

impl Top {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let first = Sample::take(&client).await?;
        if output.json || !std::io::stdout().is_terminal() {
            tokio::time::sleep(EVERY).await;
            let figures = Figures::between(&first, &Sample::take(&client).await?);
            return print(&figures, output);
        }
        let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
        let watched = watch(&client, first, &mut terminal).await;
        ratatui::restore();
        watched
    }
}

/// Draws until somebody has seen enough.
async fn watch(client: &Client, first: Sample, terminal: &mut DefaultTerminal) -> Result<(), Failure> {
    let mut last = first;
    let mut figures = Figures::between(&last, &last);
    loop {
        terminal.draw(|frame| screen::draw(frame, &figures)).context("the terminal cannot be drawn on")?;
        let next = Instant::now() + EVERY;
        while Instant::now() < next {
            // Nothing else runs here that could wait for it.
            match tokio::task::block_in_place(key).context("the keyboard cannot be read")? {
                Key::Quit => return Ok(()),
                Key::Redraw => break,
                Key::None => {}
            }
        }
        match Sample::take(client).await {
            Ok(sample) => {
                figures = Figures::between(&last, &sample);
                last = sample;
            }
            // It may be restarted just now: what was seen last stays, under a word about it.
            Err(Failure::Unreachable(why)) => figures.trouble = Some(why),
            Err(failure) => return Err(failure),
        }
    }
}

enum Key {
    Quit,
    Redraw,
    None,
}

fn key() -> std::io::Result<Key> {
    if !event::poll(KEYS)? {
        return Ok(Key::None);
    }
    Ok(match event::read()? {
        Event::Resize(..) => Key::Redraw,
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => Key::None,
        Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers, .. }) if modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Quit
        }
        Event::Key(KeyEvent { code: KeyCode::Char('q' | 'Q') | KeyCode::Esc, .. }) => Key::Quit,
        _ => Key::None,
    })
}

fn print(figures: &Figures, output: &Output) -> Result<(), Failure> {
    if output.json {
        output.json(&json!({"channels": figures.rows, "summary": figures.summary, "needs": figures.needs}));
        return Ok(());
    }
    output.note("this is no terminal, so here is one snapshot");
    output.line(&figures.summary);
    output.table(&screen::HEAD, figures.rows.iter().map(|row| screen::cells(row).to_vec()).collect());
    figures.needs.iter().for_each(|need| output.line(need));
    Ok(())
}
