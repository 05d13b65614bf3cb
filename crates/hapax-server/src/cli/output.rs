//! Where words go: tables for people on a terminal, tab-separated lines for pipes, JSON for programs.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use hapax_gateway::telemetry::harmless::{harmless, steers};
use hapax_store::clock::{Clock, SystemClock};
use owo_colors::OwoColorize;
use serde_json::{Map, Value};
use unicode_width::UnicodeWidthStr;

use super::json_lines;
use super::table::{self, Look};

/// The two streams of a command, and how to write on them.
pub struct Output {
    pub json: bool,
    terminal: bool,
    colour: bool,
    wide: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { json, terminal, colour: terminal && !quiet, wide: false }
    }

    /// Shows tables whole, however wide they are.
    #[must_use]
    pub fn wide(self, wide: bool) -> Self {
        Self { wide, ..self }
    }

    /// True when ids and times are to be short.
    pub(super) fn is_brief(&self) -> bool {
        self.terminal && !self.wide
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
        if self.json { self.json(answer) } else { self.say(words) }
    }

    /// Prints a sentence of the answer: broken between words on a terminal, whole elsewhere.
    pub(super) fn say(&self, words: impl Display) {
        let words = words.to_string();
        match self.terminal {
            true => broken(&words).iter().for_each(|line| self.line(line)),
            false => self.line(words),
        }
    }

    /// Says what the arguments lack, or what they should be.
    pub(super) fn usage(&self, said: &clap::Error) {
        let words = said.render().to_string();
        let is_long = words.lines().any(|line| line.width() > terminal_width());
        if !said.use_stderr() || !is_long || !std::io::stderr().is_terminal() {
            let _ = said.print();
            return;
        }
        let _ = writeln!(anstream::stderr(), "{}", fitting(&words).replacen("error:", &"error:".red().bold().to_string(), 1));
    }

    /// Says something beside the answer, so that pipes do not get it.
    pub fn note(&self, words: impl Display) {
        if json_lines::are_on() {
            return json_lines::write("ERROR", &words.to_string(), Map::new());
        }
        let _ = writeln!(anstream::stderr(), "{}", fitting(&words.to_string()));
    }

    pub fn warn(&self, words: impl Display) {
        if json_lines::are_on() {
            return json_lines::write("WARN", &words.to_string(), Map::new());
        }
        let words = fitting(&format!("warning: {words}"));
        let _ = writeln!(anstream::stderr(), "{}", words.replacen("warning:", &"warning:".yellow().bold().to_string(), 1));
    }

    pub fn complain(&self, words: impl Display) {
        if json_lines::are_on() {
            return json_lines::write("ERROR", &words.to_string(), Map::new());
        }
        let words = fitting(&format!("hapax: {words}"));
        let _ = writeln!(anstream::stderr(), "{}", words.replacen("hapax:", &"hapax:".red().bold().to_string(), 1));
    }

    /// Prints rows under a head on a terminal, and tab-separated without it elsewhere. A title that begins with `+` is shown with `--wide`.
    pub fn table(&self, head: &[&str], rows: Vec<Vec<String>>) {
        self.lay_out(head, rows, false);
    }

    /// Prints what happened step by step: the last column is a sentence, and is never cut.
    pub fn steps(&self, head: &[&str], rows: Vec<Vec<String>>) {
        self.lay_out(head, rows, true);
    }

    fn lay_out(&self, head: &[&str], rows: Vec<Vec<String>>, wraps: bool) {
        let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
        if rows.is_empty() {
            return;
        }
        if !self.terminal {
            rows.iter().for_each(|row| self.line(row.join("\t")));
            return;
        }
        let now_ms = SystemClock::new().wall_ms();
        let look = Look { width: terminal_width(), wide: self.wide, colour: self.colour, wraps, now_ms };
        table::lines(head, &rows, look).iter().for_each(|line| self.line(line));
    }
}

/// Breaks long sentences between words, where a terminal would break them anywhere.
fn fitting(words: &str) -> String {
    let words = without_numbers(&harmless(words));
    if !std::io::stderr().is_terminal() {
        return words;
    }
    broken(&words).join("\n")
}

/// The system's words for an error say what is wrong, and its number of it nothing to people.
fn without_numbers(words: &str) -> String {
    let mut parts = words.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => all + rest,
        _ => all + " (os error " + part,
    })
}

/// An address or an id stays in one piece, so that it can be copied.
fn broken(words: &str) -> Vec<String> {
    words.lines().flat_map(|line| table::wrap_between_words(line, terminal_width())).collect()
}

/// A number with its word.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A size for people.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / f64::from(1 << 20))
}

/// How many characters fit on a line: what `COLUMNS` says, or the terminal.
pub(super) fn terminal_width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let is = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    asked.or_else(is).filter(|&columns| columns > 0).unwrap_or(80)
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
    fn an_error_has_no_number() {
        assert_eq!(
            without_numbers("cannot read a: no such file (os error 2); name another"),
            "cannot read a: no such file; name another"
        );
        assert_eq!(without_numbers("(it: denied (os error 13)), and (os error x)"), "(it: denied), and (os error x)");
        assert_eq!(without_numbers("nothing"), "nothing");
    }

    #[test]
    fn cells_are_texts_numbers_or_empty() {
        let row = serde_json::json!({"a": "x", "n": 3, "none": null});
        assert_eq!([text_of(&row, "a"), text_of(&row, "n"), text_of(&row, "none"), text_of(&row, "gone")], ["x", "3", "", ""]);
    }
}
