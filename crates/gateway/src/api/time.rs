//! Times on the wire: RFC 3339 in UTC, to the millisecond; spans of time as a text with its unit, or in seconds.

use hapax_domain::units::read_ms;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Problem;

/// A time: a text with its unit, as `"90s"`, or a number of seconds.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a time is a text with its unit, as \"90s\", or a number of seconds")]
pub(super) enum Span {
    Text(String),
    Seconds(f64),
}

impl Span {
    pub(super) fn ms(&self, field: &'static str) -> Result<i64, Problem> {
        let (given, ms) = match self {
            Span::Text(text) => (text.chars().take(40).collect(), read_ms(text)),
            Span::Seconds(seconds) => {
                let readable = (0.0..1e12).contains(seconds).then_some((seconds * 1_000.0).round() as i64);
                (seconds.to_string(), readable)
            }
        };
        ms.ok_or_else(|| {
            let todo = "write a time as a text with its unit, like \"90s\", or as seconds from 0 on";
            Problem::bad_request(format!("`{field}` is `{given}`; {todo}"))
        })
    }
}

/// Writes milliseconds since 1970. A time outside of the calendar is written as its number.
pub(crate) fn rfc3339(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(rfc3339(1_700_000_000_000), "2023-11-14T22:13:20.000Z");
        assert_eq!(rfc3339(1_700_000_000_042), "2023-11-14T22:13:20.042Z");
        assert_eq!(rfc3339(i64::MAX), i64::MAX.to_string());
    }
}
