//! What was counted over the last hour, day or week, as charts of the overview.

use maud::{Markup, html};
use serde::Deserialize;

use super::charts::bars;
use super::components::{in_query, lasting, number};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Api;
use crate::api::Range;
use crate::api::history::{self, Numbers};

/// What of the past is to be shown.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Past {
    range: Option<String>,
    channel: Option<String>,
}

/// Channels that are offered here; others are reached by their own page.
const CHANNELS: usize = 20;

/// Name, colour, and which number it is.
type Line = (&'static str, &'static str, fn(&Numbers) -> u64);

const LINES: [Line; 7] = [
    ("Accepted", "accent", |numbers| numbers.accepted),
    ("Copies suppressed", "busy", |numbers| numbers.copies),
    ("Delivered", "good", |numbers| numbers.delivered),
    ("Sent", "good", |numbers| numbers.sent),
    ("Failed", "bad", |numbers| numbers.failed),
    ("Parked", "warn", |numbers| numbers.parked),
    ("Came to be in doubt", "doubt", |numbers| numbers.unknown),
];

pub(super) async fn charts(api: &Api, visitor: &Visitor, past: &Past, channels: &[&str]) -> Result<Markup, Trouble> {
    let range = past.range.as_deref().and_then(Range::from_name).unwrap_or(Range::Hour);
    let channel = past.channel.as_deref().filter(|channel| channels.contains(channel));
    let series = history::read(api, &visitor.caller, range, channel).await?;
    let buckets: Vec<Numbers> = series.added_up(range).into_iter().map(Numbers::from).collect();
    let all = Numbers::from(history::sum(series.channels.values().flatten()));
    let offered =
        channels.iter().enumerate().filter(|(place, name)| *place < CHANNELS || channel == Some(**name)).map(|(_, name)| name);
    let link = |range: Range, channel: Option<&str>| {
        let channel = channel.map(|channel| format!("&channel={}", in_query(channel))).unwrap_or_default();
        format!("/?range={}{channel}", range.name())
    };
    Ok(html! {
        section aria-labelledby="past-title" {
            h2 #past-title {
                "Last " (range.name())
                span.tabs { @for one in Range::ALL { a href=(link(one, channel)) aria-current=[(one == range).then_some("true")] { (one.name()) } } }
            }
            @if channels.len() > 1 {
                p.quick {
                    a href=(link(range, None)) aria-current=[channel.is_none().then_some("true")] { "all channels" }
                    @for name in offered { a href=(link(range, Some(name))) aria-current=[(channel == Some(*name)).then_some("true")] { (name) } }
                }
            }
            div.charts {
                @for (name, tone, of) in LINES { (bars(name, tone, &buckets.iter().map(of).collect::<Vec<_>>())) }
                (latency(&all))
            }
        }
    })
}

/// How long the bot took.
fn latency(all: &Numbers) -> Markup {
    let share = |within: u64| within.min(all.delivered).saturating_mul(100).checked_div(all.delivered).unwrap_or_default();
    html! {
        figure.chart {
            figcaption { span { "The bot takes" } strong { @match all.bot_mean_ms { Some(ms) => (lasting(i64::try_from(ms).unwrap_or(i64::MAX))), None => "–" } } }
            @if all.bot_mean_ms.is_some() {
                dl.shares { @for (name, within) in [("100 ms", all.bot_within_100ms), ("1 s", all.bot_within_1s), ("10 s", all.bot_within_10s)] {
                    div { dt { "within " (name) } dd { (number(share(within))) "\u{202f}%" } }
                } }
            }
        }
    }
}
