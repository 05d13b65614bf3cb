//! `send_at` of a draft: a time of the calendar, or a time from now.

use crate::draft::BadDraft;
use crate::limits::SEND_AHEAD_MAX_MS;
use crate::units::read_ms;

/// When a message is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendAt {
    pub ms: i64,
    /// What was asked for, for the fingerprint: a repeat of `90s` asks for the same, although it comes later.
    pub asked: String,
}

impl SendAt {
    /// A time that is over is no mistake: a repeat may come after it.
    pub fn read(text: &str, now_ms: i64) -> Result<Self, BadDraft> {
        let text = text.trim();
        let (ms, asked) = if let Some(wait_ms) = read_ms(text) {
            (now_ms.saturating_add(wait_ms), format!("in {wait_ms}"))
        } else {
            let time: jiff::Timestamp = text.parse().map_err(|_| BadDraft::NoTime)?;
            (time.as_millisecond(), format!("at {}", time.as_millisecond()))
        };
        if ms.saturating_sub(now_ms) > SEND_AHEAD_MAX_MS {
            return Err(BadDraft::TooFarAhead);
        }
        Ok(Self { ms, asked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn read(text: &str) -> Option<(i64, String)> {
        SendAt::read(text, NOW_MS).ok().map(|at| (at.ms - NOW_MS, at.asked))
    }

    #[test]
    fn a_time_is_of_the_calendar_or_from_now() {
        assert_eq!(read("90s"), Some((90_000, "in 90000".to_owned())));
        assert_eq!(read("2023-11-14T22:13:21Z"), Some((1_000, "at 1700000001000".to_owned())));
        assert_eq!(read("2023-11-14T23:13:21+01:00"), read("2023-11-14T22:13:21.000Z"));
        assert!(read("2001-01-01T00:00:00Z").is_some_and(|(ahead_ms, _)| ahead_ms < 0), "a repeat may be late");
    }

    #[test]
    fn what_is_not_clear_or_too_far_is_refused() {
        for text in ["", "soon", "1700000000", "2023-11-14 22:13", "2023-11-14T22:13:20", "-90s", "400d", "9223372036854775807w"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(read("365d").is_some());
    }
}
