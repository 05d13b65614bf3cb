//! `hapax show`

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::Value;

use super::client::Client;
use super::output::{printable, text_of};
use super::table::{clock_time, from_now, time_of};
use super::{Failure, Global, Output, event_arg};

/// How much of a body is shown; `--json` has all of it.
const SHOWN_BYTES: usize = 16 << 10;

/// Deeper than this nothing is indented further.
const DEPTH_MAX: usize = 40;

/// Show one event: what came in, headers and body, and what the bot said to it
#[derive(Args, Debug)]
#[command(after_help = format!("\
{}

Examples:
  hapax show latest
  hapax show evt_1mgk0ca1a
  hapax show latest --json | jq -r .body

Signatures and secrets are not kept, so they are not shown. What the bot
answered is remembered by the running server alone, the first kilobyte of it.
`hapax story ID` tells what happened, step by step.", event_arg::HOW))]
pub struct Show {
    /// The event, or `latest`
    #[arg(value_name = "ID", value_parser = event_arg::read)]
    event: String,
}

impl Show {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let event = Client::open(global)?.get(&format!("/v1/events/{}", self.event), &[]).await?;
        if output.json {
            output.json(&event);
            return Ok(());
        }
        facts(&event, output);
        section("headers", output);
        let headers = event["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
        if headers.is_empty() {
            output.line("  none are kept");
        }
        for header in headers {
            output.line(format_args!("  {}: {}", printable(&text_of(header, "name")), printable(&text_of(header, "value"))));
        }
        section("body", output);
        let encoded = text_of(&event, "body");
        match event["body_encoding"].as_str() {
            Some("base64") => {
                let bytes = STANDARD.decode(&encoded).map_or(0, |bytes| bytes.len());
                output.line(format_args!("  {bytes} bytes that are no text; --json has them in base64"));
            }
            _ if encoded.is_empty() => output.line("  none is kept"),
            _ => body(&encoded, output),
        }
        answer(&event, output);
        Ok(())
    }
}

fn section(title: &str, output: &Output) {
    output.line("");
    output.line(format_args!("{title}:"));
}

fn facts(event: &Value, output: &Output) {
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let when = |key: &str| match time_of(&text_of(event, key)) {
        Some(at_ms) => format!("{}, {}", clock_time(at_ms), from_now(at_ms, now_ms)),
        None => String::new(),
    };
    let kind = match text_of(event, "event_type") {
        own if own.is_empty() || own == text_of(event, "kind") => text_of(event, "kind"),
        own => format!("{own} ({})", text_of(event, "kind")),
    };
    let copies = match (event["copies"].as_u64().unwrap_or_default(), event["conflicts"].as_u64().unwrap_or_default()) {
        (0, _) => "none".to_owned(),
        (copies, 0) => format!("{copies} suppressed"),
        (copies, conflicts) => format!("{copies} suppressed, {conflicts} of them with another content"),
    };
    let facts = [
        ("id", text_of(event, "id")),
        ("event", kind),
        ("channel", text_of(event, "channel")),
        ("state", text_of(event, "state")),
        ("received", when("received_at")),
        ("happened", when("happened_at")),
        ("from", text_of(event, "peer")),
        ("thread", text_of(event, "thread")),
        ("provider's id", text_of(event, "provider_id")),
        ("copies", copies),
    ];
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        output.line(format_args!("{name:<14} {}", printable(value)));
    }
}

/// JSON with a line for each member, all else as it is.
fn body(text: &str, output: &Output) {
    let pretty = serde_json::from_str::<serde::de::IgnoredAny>(text).ok().map(|_| pretty(text));
    let shown = pretty.as_deref().unwrap_or(text);
    let end = (0..=shown.len().min(SHOWN_BYTES)).rev().find(|&end| shown.is_char_boundary(end)).unwrap_or_default();
    shown[..end].lines().for_each(|line| output.line(format_args!("  {}", printable(line))));
    if end < shown.len() {
        output.line(format_args!("  … and {} more bytes; --json has all of it", shown.len() - end));
    }
}

/// Indents JSON as it stands: members keep their order, and numbers their digits.
fn pretty(json: &str) -> String {
    let (mut text, mut depth, mut quoted, mut escaped) = (String::with_capacity(2 * json.len()), 0_usize, false, false);
    let mut signs = json.chars().peekable();
    while let Some(sign) = signs.next() {
        if quoted {
            text.push(sign);
            quoted = escaped || sign != '"';
            escaped = sign == '\\' && !escaped;
            continue;
        }
        match sign {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                text.push(sign);
                while signs.next_if(|sign| sign.is_ascii_whitespace()).is_some() {}
                match signs.next_if(|end| matches!(end, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        line_break(&mut text, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line_break(&mut text, depth);
                text.push(sign);
            }
            ',' => {
                text.push(sign);
                line_break(&mut text, depth);
            }
            ':' => text.push_str(": "),
            _ => {
                quoted = sign == '"';
                text.push(sign);
            }
        }
    }
    text
}

fn line_break(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth.min(DEPTH_MAX)));
}

fn answer(event: &Value, output: &Output) {
    let answer = &event["bot_answer"];
    let attempts = event["attempts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if answer.is_null() {
        let last = attempts.last().map(|last| format!("{}: {}", text_of(last, "outcome"), text_of(last, "detail")));
        section("the bot's last word", output);
        output.line(format_args!("  {}", printable(&last.unwrap_or_else(|| "none yet".to_owned()))));
        return;
    }
    section("the bot answered", output);
    let kind = text_of(answer, "content_type");
    output.line(printable(format!("  {} {kind}", text_of(answer, "status")).trim_end()));
    body(&text_of(answer, "beginning"), output);
    let (bytes, shown) = (answer["bytes"].as_u64().unwrap_or_default(), text_of(answer, "beginning").len() as u64);
    if bytes > shown {
        output.line(format_args!("  … the first {shown} of {bytes} bytes"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_as_it_stands() {
        let text = r#"{"z":1.50,"a":[ ],"s":"a \\\"{,: b","l":[1,{"x":null}], "o":{}}"#;
        let shown = pretty(text);
        assert_eq!(
            shown,
            "{\n  \"z\": 1.50,\n  \"a\": [],\n  \"s\": \"a \\\\\\\"{,: b\",\n  \"l\": [\n    1,\n    {\n      \"x\": null\n    }\n  ],\n  \"o\": {}\n}"
        );
        let (before, after): (Value, Value) =
            (serde_json::from_str(text).expect("JSON"), serde_json::from_str(&shown).expect("JSON"));
        assert_eq!(before, after);
    }
}
