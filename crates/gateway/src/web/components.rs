//! The parts that pages are made of. A state, a time or a table looks the same wherever it is.

use hapax_domain::units::write_ms;
use maud::{Markup, html};

use super::flash::Flash;
use super::icons::icon;
use crate::api::rfc3339;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// A row shows no more of a text.
const SHORT_BYTES: usize = 400;

/// A state with its icon and colour: of an event, an item, a message, an account or a target.
pub(super) fn badge(state: &str) -> Markup {
    let (tone, shape, words) = match state {
        "waiting" => ("wait", "clock", "waiting"),
        "queued" => ("wait", "clock", "queued"),
        "leased" => ("busy", "arrow", "with the bot"),
        "sending" => ("busy", "up", "sending"),
        "delivered" => ("good", "checks", "delivered"),
        "sent" | "full" | "up" | "completed" => ("good", "check", state),
        "read" | "played" => ("good", "checks", state),
        "parked" | "paused" | "degraded" => ("warn", "pause", state),
        "quarantined" => ("bad", "shield", "quarantined"),
        "failed" | "down" | "abandoned" => ("bad", "cross", state),
        "unknown" => ("doubt", "question", "in doubt"),
        "kept" => ("quiet", "archive", "kept"),
        "held" => ("busy", "key", "held"),
        "value" => ("quiet", "archive", "value"),
        other => ("quiet", "dot", other),
    };
    html! { span class={ "badge " (tone) } { (icon(shape)) (words) } }
}

/// A time as people say it; the exact one is one look away, and a script keeps it true.
pub(super) fn when(at_ms: i64, now_ms: i64) -> Markup {
    let exact = rfc3339(at_ms);
    html! { time datetime=(exact) title=(exact) data-ms=(at_ms) { (ago(at_ms, now_ms)) } }
}

/// The same of a time that is written out already.
pub(super) fn when_text(at: &str, now_ms: i64) -> Markup {
    match at.parse::<jiff::Timestamp>() {
        Ok(time) => when(time.as_millisecond(), now_ms),
        Err(_) => html! { (at) },
    }
}

pub(super) fn ago(at_ms: i64, now_ms: i64) -> String {
    let (age_ms, ahead) = ((now_ms - at_ms).abs(), at_ms > now_ms);
    let words = match age_ms {
        _ if age_ms < 2 * SECOND_MS => return "now".to_owned(),
        _ if age_ms < MINUTE_MS => format!("{} s", age_ms / SECOND_MS),
        _ if age_ms < HOUR_MS => format!("{} min", age_ms / MINUTE_MS),
        _ if age_ms < DAY_MS => format!("{} h", age_ms / HOUR_MS),
        _ => format!("{} d", age_ms / DAY_MS),
    };
    if ahead { format!("in {words}") } else { format!("{words} ago") }
}

/// How long something takes or has waited, in its largest units.
pub(super) fn lasting(ms: i64) -> String {
    let rounded = match ms {
        _ if ms < 10 * SECOND_MS => ms,
        _ if ms < 10 * MINUTE_MS => ms / SECOND_MS * SECOND_MS,
        _ => ms / MINUTE_MS * MINUTE_MS,
    };
    write_ms(rounded)
}

/// A number with its thousands apart.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 copy`, `2 copies`.
pub(super) fn count(number_of: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(number_of), if number_of == 1 { one } else { many })
}

/// The one box that narrows a list, with the same words as `?q=` of the API and the CLI.
pub(super) fn filter_box(action: &str, asked: &str, example: &str, known: &[&str]) -> Markup {
    html! {
        form.filter method="get" action=(action) role="search" {
            label.unseen for="q" { "Filter" }
            span.field {
                (icon("search"))
                input #q type="search" name="q" value=(asked) placeholder=(example) autocomplete="off" spellcheck="false"
                    autocapitalize="off" maxlength="500" data-key="/";
            }
            button type="submit" { "Filter" }
            @if !known.is_empty() {
                span.quick {
                    @for filter in known {
                        a href={ (action) "?q=" (in_query(filter)) } aria-current=[(asked == *filter).then_some("true")] { (filter) }
                    }
                }
            }
        }
    }
}

/// To the next page, and back to the newest. Lists have no numbers of pages: what comes meanwhile does not move them.
pub(super) fn pager(path: &str, asked: &str, here: Option<&str>, next: Option<&str>, looked_at: Option<usize>) -> Markup {
    let query = |cursor: Option<&str>| {
        let parts: Vec<String> =
            [(!asked.is_empty()).then(|| format!("q={}", in_query(asked))), cursor.map(|at| format!("cursor={}", in_query(at)))]
                .into_iter()
                .flatten()
                .collect();
        if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) }
    };
    html! {
        nav.pager aria-label="Pages of this list" {
            @if here.is_some() { a.button href=(query(None)) { (icon("left")) "To the beginning" } }
            @if let Some(looked_at) = looked_at { span.quiet { "looked at " (number(looked_at as u64)) } }
            @if let Some(next) = next { a.button href=(query(Some(next))) rel="next" data-key="n" { "Further" (icon("right")) } }
        }
    }
}

/// A part of a list that is known whole, and where the next one begins. What does not read as a place is the beginning.
pub(super) fn part<'l, T>(all: &'l [T], cursor: Option<&str>, most: usize) -> (&'l [T], Option<String>) {
    let from = cursor.and_then(|cursor| cursor.parse::<usize>().ok()).unwrap_or_default().min(all.len());
    let end = from.saturating_add(most).min(all.len());
    (&all[from..end], (end < all.len()).then(|| end.to_string()))
}

/// What a list that is empty has to say: how something gets into it.
pub(super) fn empty(shape: &str, title: &str, more: Markup) -> Markup {
    html! { section.empty { (icon(shape)) h2 { (title) } (more) } }
}

/// A button that says first what it will do. Without a script it is a form behind a fold.
pub(super) fn confirm(action: &str, label: &str, shape: &str, words: &str, hidden: &[(&str, &str)]) -> Markup {
    html! {
        details.confirm {
            summary.button { (icon(shape)) (label) }
            form method="post" action=(action) {
                p { (words) }
                @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
                button.primary type="submit" { (label) }
            }
        }
    }
}

pub(super) fn flash_message(flash: &Flash) -> Markup {
    let (tone, shape) = if flash.good { ("good", "check") } else { ("bad", "cross") };
    html! { p class={ "notice " (tone) } role="status" { (icon(shape)) (flash.words) } }
}

/// A text with a button that copies it, where there is a script.
pub(super) fn copyable(text: &str) -> Markup {
    html! { span.copyable { code { (text) } button.copy type="button" data-copy=(text) hidden title="Copy" { (icon("copy")) span.unseen { "Copy" } } } }
}

/// The beginning of a text that takes no more than so many bytes of a page, and whether that is not all of it.
pub(super) fn beginning(text: &str, most_bytes: usize) -> (&str, bool) {
    let mut room = most_bytes;
    for (place, sign) in text.char_indices() {
        match room.checked_sub(written_bytes(sign)) {
            Some(left) => room = left,
            None => return (&text[..place], true),
        }
    }
    (text, false)
}

/// How much of a page a sign takes.
pub(super) fn written_bytes(sign: char) -> usize {
    match sign {
        '&' => 5,
        '<' | '>' => 4,
        '"' => 6,
        other => other.len_utf8(),
    }
}

/// A name of parts, which a narrow cell breaks between them.
pub(super) fn dotted(name: &str) -> Markup {
    let name = short(name);
    html! { @for part in name.split_inclusive(['.', '_', '/']) { (part) wbr; } }
}

/// Words in which what is code stands between backticks.
pub(super) fn with_code(words: &str) -> Markup {
    html! { @for (place, part) in words.split('`').enumerate() { @if place % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// As much of a text as a row of a list shows.
pub(super) fn short(text: &str) -> String {
    let (shown, cut) = beginning(text, SHORT_BYTES);
    if cut { format!("{shown}…") } else { shown.to_owned() }
}

/// A value in a query.
pub(super) fn in_query(text: &str) -> String {
    escape(text, b"-._~/:,")
}

/// A part of a path.
pub(super) fn in_path(text: &str) -> String {
    escape(text, b"-._~")
}

fn escape(text: &str, plain: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_say_them() {
        let now = 1_700_000_000_000;
        for (at, words) in [
            (now, "now"),
            (now - 5_900, "5 s ago"),
            (now - 59 * MINUTE_MS, "59 min ago"),
            (now - 26 * HOUR_MS, "1 d ago"),
            (now + 90_000, "in 1 min"),
        ] {
            assert_eq!(ago(at, now), words);
        }
        assert!(when(now, now).into_string().contains("title=\"2023-11-14T22:13:20.000Z\""));
        assert_eq!(when_text("<b>", now).into_string(), "&lt;b&gt;");
        assert_eq!(ago(i64::MIN / 2, now).split(' ').nth(1), Some("d"));
    }

    #[test]
    fn numbers_have_their_thousands_apart() {
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(count(1, "copy", "copies"), "1 copy");
    }

    #[test]
    fn a_text_takes_no_more_of_a_page_than_it_may() {
        assert_eq!(beginning("aé<\"", 13), ("aé<\"", false));
        assert_eq!(beginning("aé<\"", 12), ("aé<", true));
        assert_eq!(beginning("é", 1), ("", true));
        let hostile = "\"".repeat(5_000);
        assert!(html! { (short(&hostile)) }.into_string().len() <= SHORT_BYTES + "…".len());
    }

    #[test]
    fn a_list_is_shown_in_parts_without_a_gap() {
        let all = [1, 2, 3, 4, 5];
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let (rows, next) = part(&all, cursor.as_deref(), 2);
            seen.extend_from_slice(rows);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
        assert_eq!(part(&all, Some("9"), 2), (&[][..], None));
        assert_eq!(part(&all, Some("odd"), usize::MAX), (&all[..], None));
    }

    #[test]
    fn nothing_breaks_out_of_a_link_or_a_box() {
        let hostile = "\"><script>alert(1)</script>&x=1#'";
        for html in [
            filter_box("/events", hostile, "", &[hostile]).into_string(),
            pager("/events", hostile, Some(hostile), Some(hostile), Some(3)).into_string(),
            confirm("/x", hostile, "repeat", hostile, &[(hostile, hostile)]).into_string(),
            copyable(hostile).into_string(),
            badge(hostile).into_string(),
        ] {
            assert!(!html.contains("<script"), "{html}");
        }
        assert_eq!(with_code("Set `a` to <b>.").into_string(), "Set <code>a</code> to &lt;b&gt;.");
        assert_eq!(dotted("a.b_<c>").into_string(), "a.<wbr>b_<wbr>&lt;c&gt;<wbr>");
        assert_eq!(in_path("a/b?c#d é"), "a%2Fb%3Fc%23d%20%C3%A9");
    }
}
