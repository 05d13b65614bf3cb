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
    let mut without = BTreeSet::new();
    for row in answer["channels"].as_array().into_iter().flatten() {
        let name = text_of(row, "name");
        if channel.is_some_and(|wanted| wanted != name) {
            continue;
        }
        for down in row["down"].as_array().into_iter().flatten() {
            output.warn(words(&name, down, now_ms));
        }
        if row["target"].is_null() && row["targets"].is_null() {
            without.insert(name);
        }
    }
    if without.is_empty() {
        return Ok(());
    }
    let stats = client.get("/v1/stats", &[]).await?;
    for row in stats["channels"].as_array().into_iter().flatten() {
        let (name, count) = (text_of(row, "channel"), |key: &str| row[key].as_u64().unwrap_or_default());
        if count("waiting") > 0 && count("leased") == 0 && without.contains(&name) {
            output.warn(format_args!(
                "channel {name} has no `target`: what came in waits until a worker pulls it; or set one, then `hapax reload`"
            ));
        }
    }
    Ok(())
}

fn words(channel: &str, down: &Value, now_ms: i64) -> String {
    let when = |key: &str| time_of(&text_of(down, key)).map_or_else(String::new, |at_ms| from_now(at_ms, now_ms));
    let [url, why] = ["url", "why"].map(|key| printable(&text_of(down, key)));
    let next = time_of(&text_of(down, "next_try_at")).map_or_else(String::new, |at_ms| from_now(at_ms.max(now_ms), now_ms));
    format!(
        "channel {channel}: the target {url} is down, since {}: {why}. Next try {next}; nothing is lost meanwhile",
        when("since")
    )
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
        assert_eq!(
            words("shop", &down, 1_760_000_300_000),
            "channel shop: the target http://127.0.0.1:3000/x is down, since 5m ago: the target cannot be reached: Connection refused. \
             Next try in 4s; nothing is lost meanwhile"
        );
    }
}
