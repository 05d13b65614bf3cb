//! Tables for people: they fit the terminal, ids are short and times are told from now. Whoever wants them whole asks for `--wide`.

use hapax_domain::{EventId, ItemId, MessageId};
use owo_colors::{OwoColorize, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: usize = 2;
/// A column that gives way keeps this much of its text, as long as there is room for it.
const SHORTEST: usize = 6;
/// A text of more than this is cut before a name or a number is.
const LONG: usize = 20;
/// Prefix and 32 digits.
const WHOLE_ID: usize = 36;
/// Before a title: shown with `--wide` alone, and in pipes.
const WIDE_ONLY: char = '+';

/// How a table is to look.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) width: usize,
    pub(super) wide: bool,
    pub(super) colour: bool,
    /// Breaks the last column over several lines in place of cutting it.
    pub(super) wraps: bool,
    pub(super) now_ms: i64,
}

/// Lays rows out under their head, one line each unless the last column wraps.
pub(super) fn lines(head: &[&str], rows: &[Vec<String>], look: Look) -> Vec<String> {
    let mut shown: Vec<usize> = (0..head.len()).filter(|&column| is_shown(head, rows, column, look.wide)).collect();
    if !look.wide && !look.wraps {
        leave_out(&mut shown, head, rows, look);
    }
    let titles: Vec<String> = shown.iter().map(|&column| head[column].trim_start_matches(WIDE_ONLY).to_owned()).collect();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| shown.iter().map(|&column| cell(row.get(column), look)).collect()).collect();
    let with_head = titles.iter().any(|title| !title.is_empty());
    let mut widths = natural(&titles, &cells);
    if !look.wide || look.wraps {
        fit(&mut widths, &firm(&shown, rows, &titles), look.width);
    }
    let counts: Vec<bool> = (0..shown.len()).map(|column| is_count(&cells, column)).collect();
    let mut lines = Vec::new();
    if with_head {
        let bold = |text: String| if look.colour { text.bold().to_string() } else { text };
        lines.push(bold(row_line(&titles, &widths, &counts, |text, _| text)));
    }
    for row in cells {
        let wrapped = match row.last() {
            Some(last) if look.wraps => wrap(last, *widths.last().unwrap_or(&look.width)),
            _ => Vec::new(),
        };
        let mut first = row;
        if let (Some(last), Some(line)) = (first.last_mut(), wrapped.first()) {
            last.clone_from(line);
        }
        lines.push(row_line(&first, &widths, &counts, |text, bare| if look.colour { coloured(text, bare) } else { text }));
        let indent = " ".repeat(widths.iter().rev().skip(1).map(|width| width + GAP).sum());
        lines.extend(wrapped.iter().skip(1).map(|line| format!("{indent}{line}")));
    }
    lines
}

/// Columns without a word in them are left out.
fn is_shown(head: &[&str], rows: &[Vec<String>], column: usize, wide: bool) -> bool {
    let filled = rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()));
    filled && (wide || !head[column].starts_with(WIDE_ONLY))
}

/// On a terminal too narrow for all columns those at the end go, what may be cut before the rest; the first two, mostly when and which, stay.
fn leave_out(shown: &mut Vec<usize>, head: &[&str], rows: &[Vec<String>], look: Look) {
    loop {
        let titles: Vec<String> = shown.iter().map(|&column| head[column].trim_start_matches(WIDE_ONLY).to_owned()).collect();
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| shown.iter().map(|&column| cell(row.get(column), look)).collect()).collect();
        let (natural, firm) = (natural(&titles, &cells), firm(shown, rows, &titles));
        let least = |(&width, firm): (&usize, &bool)| if *firm { width } else { width.min(SHORTEST) };
        let needed = natural.iter().zip(&firm).map(least).sum::<usize>() + GAP * shown.len().saturating_sub(1);
        if needed <= look.width || shown.len() <= 2 {
            return;
        }
        let gone = (2..shown.len()).rev().find(|&place| !firm[place]).unwrap_or(shown.len() - 1);
        shown.remove(gone);
    }
}

fn cell(text: Option<&String>, look: Look) -> String {
    let text = text.map(String::as_str).unwrap_or_default();
    if look.wide { text.to_owned() } else { brief(text, look.now_ms) }
}

/// An id in its short form, a time as how long ago it was, and all else as it is.
fn brief(text: &str, now_ms: i64) -> String {
    short_id(text).or_else(|| time_of(text).map(|at_ms| from_now(at_ms, now_ms))).unwrap_or_else(|| text.to_owned())
}

/// Only of a whole one: providers have ids that begin like ours.
fn short_id(text: &str) -> Option<String> {
    if text.len() != WHOLE_ID {
        return None;
    }
    let event = || text.parse::<EventId>().ok().map(EventId::short);
    let message = || text.parse::<MessageId>().ok().map(MessageId::short);
    let item = || text.parse::<ItemId>().ok().map(ItemId::short);
    event().or_else(message).or_else(item)
}

/// Reads a time as `/v1` writes it.
pub(super) fn time_of(text: &str) -> Option<i64> {
    let is_one = text.len() == 24 && text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T');
    is_one.then(|| text.parse::<jiff::Timestamp>().ok()).flatten().map(|at| at.as_millisecond())
}

/// `5s ago`, `in 12m`: one unit is enough to know what to do.
pub(super) fn from_now(at_ms: i64, now_ms: i64) -> String {
    let away_s = (now_ms - at_ms).abs() / 1_000;
    let amount = match away_s {
        0 => return "now".to_owned(),
        1..=59 => format!("{away_s}s"),
        60..=3_599 => format!("{}m", away_s / 60),
        3_600..=86_399 => format!("{}h", away_s / 3_600),
        _ => format!("{}d", away_s / 86_400),
    };
    if at_ms > now_ms { format!("in {amount}") } else { format!("{amount} ago") }
}

/// Makes the ids and times inside a sentence short; times are then the clock's, here.
pub(super) fn brief_words(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    for part in text.split_inclusive([' ', '`', ';', ',', '(', ')', '\'']) {
        let bare = part.trim_end_matches([' ', '`', ';', ',', '(', ')', '\'', '.', ':']);
        match short_id(bare).or_else(|| time_of(bare).map(clock_time)) {
            Some(short) => words.extend([short.as_str(), &part[bare.len()..]]),
            None => words.push_str(part),
        }
    }
    words
}

/// The time of day here; with its date, unless that is today.
pub(super) fn clock_time(at_ms: i64) -> String {
    let zone = jiff::tz::TimeZone::system();
    let at = jiff::Timestamp::from_millisecond(at_ms).unwrap_or_default().to_zoned(zone.clone());
    let today = jiff::Timestamp::now().to_zoned(zone).date();
    at.strftime(if at.date() == today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" }).to_string()
}

fn natural(titles: &[String], cells: &[Vec<String>]) -> Vec<usize> {
    let widest = |column: usize| cells.iter().map(|row| row[column].width()).max().unwrap_or_default();
    titles.iter().enumerate().map(|(column, title)| title.width().max(widest(column))).collect()
}

/// Columns that are worth nothing when they are cut: ids, times, states and counts.
fn firm(shown: &[usize], rows: &[Vec<String>], titles: &[String]) -> Vec<bool> {
    let is_firm = |text: &str| text.is_empty() || text.width() <= SHORTEST || brief(text, 0) != text || style_of(text).is_some();
    let column = |(place, &column): (usize, &usize)| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        titles[place] == "id" || cells.all(|cell| is_firm(cell))
    };
    shown.iter().enumerate().map(column).collect()
}

/// Takes from the widest of those that may give way, until all fit: first from long texts, then from the others.
fn fit(widths: &mut [usize], firm: &[bool], room: usize) {
    let natural = widths.to_vec();
    for (least, from, all) in [(SHORTEST, LONG, false), (SHORTEST, 0, false), (1, 0, false), (1, 0, true)] {
        loop {
            let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
            let gives = |column: &usize| (all || !firm[*column]) && natural[*column] > from && widths[*column] > least;
            let widest = (0..widths.len()).filter(gives).max_by_key(|&column| widths[column]);
            match widest {
                Some(column) if total > room => widths[column] -= 1,
                _ => break,
            }
        }
    }
}

fn is_count(cells: &[Vec<String>], column: usize) -> bool {
    let mut filled = cells.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty()).peekable();
    filled.peek().is_some() && filled.all(|cell| cell.len() <= 7 && cell.bytes().all(|byte| byte.is_ascii_digit()))
}

fn row_line(cells: &[String], widths: &[usize], counts: &[bool], paint: impl Fn(String, &str) -> String) -> String {
    let mut line = String::new();
    for (column, cell) in cells.iter().enumerate() {
        let text = cut(cell, widths[column]);
        let blank = " ".repeat(widths[column].saturating_sub(text.width()));
        let painted = paint(text, cell);
        match (counts[column], column + 1 == cells.len()) {
            (true, _) => line.extend([blank.as_str(), &painted]),
            (false, true) => line.push_str(&painted),
            (false, false) => line.extend([painted.as_str(), &blank]),
        }
        if column + 1 < cells.len() {
            line.push_str("  ");
        }
    }
    line.trim_end().to_owned()
}

/// As much of a text as fits, with a sign where there was more.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let kept = text.chars().take_while(|sign| {
        let wide = sign.width().unwrap_or(0);
        let fits = wide <= room;
        room = room.saturating_sub(wide);
        fits
    });
    let mut kept: String = kept.collect();
    kept.truncate(kept.trim_end().len());
    if width > 0 {
        kept.push('\u{2026}');
    }
    kept
}

/// Breaks a sentence between words; a word longer than a line is broken too.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    lay(text, width, width)
}

/// Breaks a sentence between words; a word longer than a line, such as an address, stays whole.
pub(super) fn wrap_between_words(text: &str, width: usize) -> Vec<String> {
    lay(text, width, usize::MAX)
}

/// Lines of this width, and no word longer than that.
fn lay(text: &str, width: usize, word_max: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        for sign in word.chars() {
            if line.width() + sign.width().unwrap_or(0) > width && word.width() > word_max {
                lines.push(std::mem::take(&mut line));
            }
            line.push(sign);
        }
    }
    lines.push(line);
    lines
}

fn coloured(text: String, bare: &str) -> String {
    match style_of(bare) {
        Some(style) => text.style(style).to_string(),
        None => text,
    }
}

/// The colour of a word that says how something stands.
pub(super) fn style_of(word: &str) -> Option<Style> {
    match word {
        "delivered" | "accepted" | "sent" | "read" | "played" | "ok" => Some(Style::new().green()),
        "waiting" | "leased" | "queued" | "sending" | "suppressed" | "copies" | "retry" | "warn" => Some(Style::new().yellow()),
        "parked" | "quarantined" | "failed" | "unknown" | "paused" | "conflict" | "fail" => Some(Style::new().red()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_760_000_060_000;
    const PLAIN: Look = Look { width: 80, wide: false, colour: false, wraps: false, now_ms: NOW_MS };

    fn event(peer: &str, provider_id: &str) -> Vec<String> {
        let id = EventId(hapax_domain::ids::numbered(1_760_000_000_000, 42)).to_string();
        let at = "2025-10-09T08:53:20.000Z";
        [at, &id, "whatsapp", "message", peer, provider_id, "delivered"].map(str::to_owned).into()
    }

    #[test]
    fn a_list_of_events_fits_eighty_columns_and_keeps_what_can_be_copied() {
        let head = ["received", "id", "channel", "kind", "peer", "provider's id", "state"];
        let rows = [event("5511988887777", &"wamid.HBg".repeat(9)), event("a long name", "wamid.HBgwamid.HBgwamid.HBg")];
        let lines = lines(&head, &rows, PLAIN);
        assert!(lines.iter().all(|line| line.width() <= 80), "{lines:#?}");
        assert!(lines[1].contains("1m ago    evt_1meey001a  whatsapp  message") && lines[1].ends_with("delivered"), "{lines:#?}");
        assert!(lines[1].contains('\u{2026}') && lines[2].contains('\u{2026}'), "{lines:#?}");
        assert!(lines[1].contains("5511988887777"), "a number is whole as long as there is room: {lines:#?}");
    }

    #[test]
    fn on_forty_columns_what_is_left_can_still_be_read_and_copied() {
        let head = ["received", "id", "channel", "kind", "peer", "provider's id", "state"];
        let rows = [event("5511988887777", &"wamid.HBg".repeat(9))];
        let lines = lines(&head, &rows, Look { width: 40, ..PLAIN });
        assert_eq!(lines[0].trim_end(), "received  id             state", "{lines:#?}");
        assert_eq!(lines[1].trim_end(), "1m ago    evt_1meey001a  delivered", "{lines:#?}");
        assert!(lines.iter().all(|line| line.width() <= 40), "{lines:#?}");
    }

    #[test]
    fn wide_is_whole() {
        let rows = [event("5511988887777", &"wamid.HBg".repeat(9))];
        let lines = lines(&["received", "id", "c", "k", "p", "+i", "s"], &rows, Look { wide: true, ..PLAIN });
        assert!(lines[1].contains("2025-10-09T08:53:20.000Z  evt_0199"), "{lines:#?}");
        assert!(lines[1].contains(&"wamid.HBg".repeat(9)), "{lines:#?}");
    }

    #[test]
    fn columns_without_a_word_and_those_for_wide_are_left_out() {
        let rows = [["shop", "", "3", "x"].map(str::to_owned).to_vec()];
        assert_eq!(lines(&["channel", "why", "waiting", "+account"], &rows, PLAIN), ["channel  waiting", "shop           3"]);
    }

    #[test]
    fn the_last_column_wraps_under_itself() {
        let rows = [["12:00:01", "retry", "the target answered 500 and will be asked again soon"].map(str::to_owned).to_vec()];
        let lines = lines(&["", "", ""], &rows, Look { width: 40, wraps: true, ..PLAIN });
        assert_eq!(
            lines,
            ["12:00:01  retry  the target answered 500", "                 and will be asked again", "                 soon"]
        );
    }

    #[test]
    fn times_are_told_from_now() {
        for (away_ms, words) in [
            (0, "now"),
            (5_400, "5s ago"),
            (-12_000, "in 12s"),
            (3_600_000, "1h ago"),
            (-200_000, "in 3m"),
            (200_000_000, "2d ago"),
        ] {
            assert_eq!(from_now(NOW_MS - away_ms, NOW_MS), words);
        }
    }

    #[test]
    fn wide_signs_count_twice_and_the_cut_is_shown() {
        assert_eq!(cut("ありがとう", 7), "ありが…");
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 0), "");
        assert_eq!(wrap("aaaaaaaaaaaa b", 8), ["aaaaaaaa", "aaaa b"]);
        assert_eq!(
            wrap_between_words("see http://127.0.0.1:3000/webhook now", 12),
            ["see", "http://127.0.0.1:3000/webhook", "now"]
        );
    }

    #[test]
    fn ids_in_a_sentence_become_short() {
        assert_eq!(brief("evt_00066071CD7EFF62", NOW_MS), "evt_00066071CD7EFF62", "Stripe's own id stays as it is");
        let id = EventId(hapax_domain::ids::numbered(1_760_000_000_000, 42)).to_string();
        assert_eq!(
            brief_words(&format!("kept as {id}, `hapax redrive {id}`")),
            "kept as evt_1meey001a, `hapax redrive evt_1meey001a`"
        );
    }
}
