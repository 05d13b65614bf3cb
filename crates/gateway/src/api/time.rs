//! Times on the wire: RFC 3339 in UTC, to the millisecond.

/// Writes milliseconds since 1970. A time outside of the calendar is written as its number.
pub(super) fn rfc3339(ms: i64) -> String {
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
