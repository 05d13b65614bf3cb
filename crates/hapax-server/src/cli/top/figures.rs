//! What `hapax top` shows: two looks at the server, and what happened between them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::Failure;
use crate::cli::client::Client;
use crate::cli::output::{printable, text_of};
use crate::cli::table::{from_now, time_of};

/// The counters whose rates are shown, in the order of the columns.
const COUNTED: [&str; 4] =
    ["hapax_events_accepted_total", "hapax_events_duplicate_total", "hapax_deliveries_total", "hapax_messages_sent_total"];

/// One look.
pub(super) struct Sample {
    at: Instant,
    /// By channel, in the order of [`COUNTED`].
    counters: BTreeMap<String, [u64; COUNTED.len()]>,
    stats: Value,
    channels: Value,
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) channel: String,
    /// A second: new, suppressed, delivered, sent.
    pub(super) rates: [f64; COUNTED.len()],
    pub(super) waiting: u64,
    pub(super) leased: u64,
    /// Parked and quarantined.
    pub(super) needs_person: u64,
    pub(super) oldest: String,
    pub(super) down: bool,
}

/// What is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) summary: String,
    pub(super) rows: Vec<Row>,
    /// What a person has to look at, one sentence each.
    pub(super) needs: Vec<String>,
    /// Why this is not what is now.
    pub(super) trouble: Option<String>,
}

impl Sample {
    pub(super) async fn take(client: &Client) -> Result<Self, Failure> {
        let stats = client.get("/v1/stats", &[]).await?;
        let channels = client.get("/v1/channels", &[]).await?;
        let counters = read_counters(&client.get_text("/metrics").await?);
        Ok(Self { at: Instant::now(), counters, stats, channels })
    }
}

/// Adds up the series of each channel: one with several targets has one for each.
fn read_counters(metrics: &str) -> BTreeMap<String, [u64; COUNTED.len()]> {
    let mut counters: BTreeMap<String, [u64; COUNTED.len()]> = BTreeMap::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Some((name, labels)) = series.split_once('{') else { continue };
        let Some(column) = COUNTED.iter().position(|counted| *counted == name) else { continue };
        let channel = labels.split("channel=\"").nth(1).and_then(|rest| rest.split('"').next());
        if let (Some(channel), Ok(value)) = (channel, value.parse::<u64>()) {
            counters.entry(channel.to_owned()).or_default()[column] += value;
        }
    }
    counters
}

impl Figures {
    pub(super) fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let counts = list(&after.stats, "channels");
        let (mut rows, mut needs) = (Vec::new(), Vec::new());
        if after.stats["store"] == "down" {
            needs.push(format!("the store is down: {}", printable(&text_of(&after.stats, "why"))));
        }
        for channel in list(&after.channels, "channels") {
            let name = text_of(&channel, "name");
            let held = counts.iter().find(|counts| counts["channel"] == name.as_str());
            let count = |key: &str| held.and_then(|held| held[key].as_u64()).unwrap_or_default();
            let (was, is) = (before.counters.get(&name), after.counters.get(&name));
            let rate = |column: usize| {
                let [was, is] = [was, is].map(|counters| counters.map_or(0, |counters| counters[column]));
                if seconds > 0.0 { is.saturating_sub(was) as f64 / seconds } else { 0.0 }
            };
            let oldest = held.and_then(|held| time_of(&text_of(held, "oldest_at")));
            let down = list(&channel, "down");
            needs.extend(down.iter().map(|down| {
                let since = time_of(&text_of(down, "since")).map_or_else(String::new, |since| from_now(since, now_ms));
                format!("{name}: the bot is down since {since}: {}", printable(&text_of(down, "why")))
            }));
            let needs_person = count("parked") + count("quarantined");
            if needs_person > 0 {
                needs.push(format!("{name}: {needs_person} wait for a person; `hapax parked --channel {name}` lists them"));
            }
            rows.push(Row {
                rates: std::array::from_fn(rate),
                waiting: count("waiting"),
                leased: count("leased"),
                needs_person,
                oldest: oldest.map_or_else(String::new, |at| from_now(at, now_ms)),
                down: !down.is_empty(),
                channel: name,
            });
        }
        let unknown = after.stats["outbox"]["unknown"].as_u64().unwrap_or_default();
        if unknown > 0 {
            needs.push(format!("{unknown} sends are in doubt; `hapax outbox --unknown` lists them"));
        }
        Self { summary: summary(&after.stats), rows, needs, trouble: None }
    }
}

fn summary(stats: &Value) -> String {
    let of = |key: &str| text_of(stats, key);
    format!(
        "events {}  keys {}  on their way out {}  promise {}",
        of("events"),
        of("keys"),
        text_of(&stats["outbox"], "waiting"),
        of("promise")
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn sample(at: Instant, accepted: u64, parked: u64) -> Sample {
        let metrics = format!(
            "# TYPE hapax_events_accepted_total counter\nhapax_events_accepted_total{{channel=\"shop\"}} {accepted}\n\
             hapax_deliveries_total{{channel=\"shop\"}} 3\nhapax_deliveries_total{{channel=\"shop\",target=\"7\"}} 4\nodd\n"
        );
        Sample {
            at,
            counters: read_counters(&metrics),
            stats: json!({"store": "up", "events": 9, "keys": 9, "promise": "full", "outbox": {"waiting": 2, "unknown": 1},
                          "channels": [{"channel": "shop", "waiting": 5, "leased": 1, "parked": parked, "quarantined": 0, "oldest_at": null}]}),
            channels: json!({"channels": [{"name": "shop", "down": []}, {"name": "idle"}]}),
        }
    }

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let begun = Instant::now();
        let figures = Figures::between(&sample(begun, 10, 0), &sample(begun + Duration::from_secs(2), 30, 2));
        let shop = &figures.rows[0];
        assert_eq!((shop.rates[0], shop.rates[2], shop.waiting, shop.needs_person), (10.0, 0.0, 5, 2));
        assert_eq!(figures.rows[1].waiting, 0, "a channel that is empty has a row too");
        assert_eq!(figures.needs.len(), 2, "{:?}", figures.needs);
        // A restart sets counters back, which is no rate below zero.
        let restarted = Figures::between(&sample(begun, 30, 0), &sample(begun + Duration::from_secs(1), 1, 0));
        assert_eq!(restarted.rows[0].rates[0], 0.0);
        assert_eq!(sample(begun, 0, 0).counters["shop"][2], 7, "the targets of a channel are added up");
    }
}
