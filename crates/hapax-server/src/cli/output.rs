//! Where words go: tables for people on a terminal, tab-separated lines for pipes, JSON for programs.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use hapax_gateway::telemetry::harmless::{harmless, steers};
use owo_colors::OwoColorize;
use serde_json::Value;

/// The two streams of a command, and how to write on them.
pub struct Output {
    pub json: bool,
    terminal: bool,
    colour: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { json, terminal, colour: terminal && !quiet }
    }

    /// Prints a line of the answer. A reader that has seen enough (`| head`) is no failure.
    pub fn line(&self, line: impl Display) {
        let _ = writeln!(anstream::stdout(), "{}", harmless(&line.to_string()));
    }

    /// Prints text as it is.
    pub fn text(&self, text: &str) {
        let _ = anstream::stdout().write_all(text.as_bytes());
    }

    pub fn json(&self, value: &Value) {
        let escaped = |mut text: String, c: char| {
            match steers(c) {
                true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
                false => text.push(c),
            }
            text
        };
        let text = format!("{value:#}");
        // Programs get what was there, terminals no mark of it.
        self.line(if text.contains(steers) { text.chars().fold(String::new(), escaped) } else { text });
    }

    /// Prints the server's answer for programs, or words about it for people.
    pub fn answer(&self, answer: &Value, words: impl Display) {
        if self.json { self.json(answer) } else { self.line(words) }
    }

    /// Says something beside the answer, so that pipes do not get it.
    pub fn note(&self, words: impl Display) {
        let _ = writeln!(anstream::stderr(), "{}", harmless(&words.to_string()));
    }

    pub fn warn(&self, words: impl Display) {
        let _ = writeln!(anstream::stderr(), "{} {}", "warning:".yellow().bold(), harmless(&words.to_string()));
    }

    pub fn complain(&self, words: impl Display) {
        let _ = writeln!(anstream::stderr(), "{} {}", "hapax:".red().bold(), harmless(&words.to_string()));
    }

    /// Prints rows under a head on a terminal, and tab-separated without it elsewhere.
    pub fn table(&self, head: &[&str], rows: Vec<Vec<String>>) {
        let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
        if rows.is_empty() {
            return;
        }
        if !self.terminal {
            rows.iter().for_each(|row| self.line(row.join("\t")));
            return;
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        let bold = |cell: Cell| if self.colour { cell.add_attribute(Attribute::Bold) } else { cell };
        if head.iter().any(|title| !title.is_empty()) {
            table.set_header(head.iter().map(|title| bold(Cell::new(title))));
        }
        for row in rows {
            table.add_row(row.iter().map(|cell| self.cell(cell)));
        }
        // An id that is broken over two lines cannot be copied.
        for (title, column) in head.iter().zip(table.column_iter_mut()) {
            if matches!(*title, "id" | "event") {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        self.line(table.trim_fmt());
    }

    fn cell(&self, text: &str) -> Cell {
        let colour = match text {
            "delivered" | "accepted" | "sent" | "read" | "played" => Some(Color::Green),
            "waiting" | "leased" | "duplicate" | "queued" | "sending" => Some(Color::Yellow),
            "parked" | "quarantined" | "failed" | "unknown" | "paused" => Some(Color::Red),
            _ => None,
        };
        let cell = Cell::new(text);
        match colour.filter(|_| self.colour) {
            Some(colour) => cell.fg(colour),
            None => cell,
        }
    }
}

/// Names and reasons come from strangers: nothing in them may move the cursor, forge a column or reorder the line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Picks a text out of the server's JSON; nothing there is an empty cell.
pub(super) fn text_of(value: &Value, key: &str) -> String {
    match &value[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_cannot_write_on_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\tc\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(printable("\u{202e}x"), "\u{fffd}x");
        assert_eq!(printable("5511 é 👍"), "5511 é 👍");
    }

    #[test]
    fn cells_are_texts_numbers_or_empty() {
        let row = serde_json::json!({"a": "x", "n": 3, "none": null});
        assert_eq!([text_of(&row, "a"), text_of(&row, "n"), text_of(&row, "none"), text_of(&row, "gone")], ["x", "3", "", ""]);
    }
}
