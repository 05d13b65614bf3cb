//! Says which targets are down, and which are missing, wherever people look for messages that do not arrive.

use std::collections::BTreeSet;

use serde_json::Value;

use super::client::Client;
use super::output::{printable, text_of};
use super::table::{from_now, time_of};
use super::{Failure, Output};

/// Warns of the targets that are down, and of those that are missing: of one channel, or of all.
pub(super) async fn warn(client: &Client, channel: Option<&str>, output: &Output) -> Result<(), Failure> {
    let answer = client.get("/v1/channels", &[]).await?;
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let (mut without, mut down) = (BTreeSet::new(), Vec::new());
    for row in answer["channels"].as_array().into_iter().flatten() {
        let name = text_of(row, "name");
        if channel.is_some_and(|wanted| wanted != name) {
            continue;
        }
        down.extend(row["down"].as_array().into_iter().flatten().map(|down| Down::of(&name, down)));
        if row["target"].is_null() && row["targets"].is_null() {
            without.insert(name);
        }
    }
    together(down).iter().for_each(|down| output.warn(down.words(now_ms)));
    if without.is_empty() {
        return Ok(());
    }
    let stats = client.get("/v1/stats", &[]).await?;
    let rows = stats["channels"].as_array().into_iter().flatten();
    let waits = |row: &&Value| row["waiting"].as_u64() > Some(0) && row["leased"].as_u64().unwrap_or_default() == 0;
    let waiting: Vec<_> = rows.filter(waits).map(|row| text_of(row, "channel")).filter(|name| without.contains(name)).collect();
    if !waiting.is_empty() {
        output.warn(format_args!(
            "no `target` in {}: what came in waits until a worker pulls it; or set one, then `hapax reload`",
            channels(&waiting)
        ));
    }
    Ok(())
}

/// A target that is down, and the channels whose it is.
struct Down {
    channels: Vec<String>,
    url: String,
    why: String,
    since_ms: Option<i64>,
    next_try_ms: Option<i64>,
}

impl Down {
    fn of(channel: &str, down: &Value) -> Self {
        let [url, why] = ["url", "why"].map(|key| printable(&text_of(down, key)));
        let [since_ms, next_try_ms] = ["since", "next_try_at"].map(|key| time_of(&text_of(down, key)));
        Self { channels: vec![channel.to_owned()], url, why, since_ms, next_try_ms }
    }

    fn words(&self, now_ms: i64) -> String {
        let when = |at_ms: Option<i64>| at_ms.map_or_else(String::new, |at_ms| from_now(at_ms, now_ms));
        format!(
            "{}: the target {} is down, since {}: {}. Next try {}; nothing is lost meanwhile",
            channels(&self.channels),
            self.url,
            when(self.since_ms),
            self.why,
            when(self.next_try_ms.map(|at_ms| at_ms.max(now_ms))),
        )
    }
}

fn channels(names: &[String]) -> String {
    let word = if names.len() == 1 { "channel" } else { "channels" };
    format!("{word} {}", names.join(", "))
}

/// A target that several channels share is told once: down since the first of them noticed, tried next when the first of them does.
fn together(all: Vec<Down>) -> Vec<Down> {
    let mut told: Vec<Down> = Vec::new();
    for down in all {
        match told.iter_mut().find(|known| known.url == down.url && known.why == down.why) {
            Some(known) => {
                known.channels.extend(down.channels);
                known.since_ms = known.since_ms.into_iter().chain(down.since_ms).min();
                known.next_try_ms = known.next_try_ms.into_iter().chain(down.next_try_ms).min();
            }
            None => told.push(down),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_down_says_since_when_and_what_comes_next() {
        let down = serde_json::json!({
            "url": "http://127.0.0.1:3000/x", "since": "2025-10-09T08:53:20.000Z", "next_try_at": "2025-10-09T08:58:24.000Z",
            "why": "the target cannot be reached: Connection refused",
        });
        let now_ms = 1_760_000_300_000;
        assert_eq!(
            Down::of("shop", &down).words(now_ms),
            "channel shop: the target http://127.0.0.1:3000/x is down, since 5m ago: the target cannot be reached: Connection refused. \
             Next try in 4s; nothing is lost meanwhile"
        );
        let mut later = down.clone();
        later["since"] = "2025-10-09T08:57:20.000Z".into();
        later["next_try_at"] = "2025-10-09T08:58:21.000Z".into();
        let mut other = down.clone();
        other["url"] = "http://127.0.0.1:4000/x".into();
        let all = [("shop", &down), ("desk", &other), ("pay", &later)].map(|(channel, down)| Down::of(channel, down));
        let words: Vec<_> = together(all.into()).iter().map(|down| down.words(now_ms)).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(
            words[0].starts_with("channels shop, pay: the target http://127.0.0.1:3000/x is down, since 5m ago"),
            "{words:?}"
        );
        assert!(words[0].contains("Next try in 1s"), "{words:?}");
    }
}
