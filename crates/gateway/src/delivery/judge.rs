//! The pure half of delivery: from what was heard of the target to what becomes of the item.

use hapax_domain::RetryPolicy;

use crate::settings::OnPoison;

/// What was heard of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Status {
        status: u16,
        retry_after_ms: Option<i64>,
    },
    /// The request surely never reached it.
    Unreachable(String),
    /// It may have reached it, but no answer came back.
    Broken(String),
    TimedOut {
        after_ms: i64,
    },
}

/// What that means, before attempts are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Taken,
    Again {
        why: String,
        asked_ms: Option<i64>,
    },
    /// The target will not take it, ever.
    Hopeless {
        why: String,
    },
    /// The target, or what stands before it, is not there for this call. Whose fault that is, the circuit knows.
    TurnedAway {
        why: String,
        asked_ms: Option<i64>,
    },
    /// The target is not there for anybody.
    Dead {
        why: String,
    },
}

pub(super) fn judge(heard: &Heard, give_up_on_4xx: bool) -> Judgement {
    match heard {
        Heard::Status { status: 200..=299, .. } => Judgement::Taken,
        Heard::Status { status: status @ 502..=504, retry_after_ms } => {
            Judgement::TurnedAway { why: format!("the target answered {status}"), asked_ms: *retry_after_ms }
        }
        Heard::Status { status, retry_after_ms } => {
            let why = format!("the target answered {status}");
            let hopeless = (400..=499).contains(status) && !matches!(status, 408 | 409 | 425 | 429);
            if hopeless && give_up_on_4xx {
                Judgement::Hopeless { why }
            } else {
                Judgement::Again { why, asked_ms: *retry_after_ms }
            }
        }
        Heard::Unreachable(why) => Judgement::Dead { why: why.clone() },
        Heard::Broken(why) => Judgement::Again { why: why.clone(), asked_ms: None },
        Heard::TimedOut { after_ms } => Judgement::Again { why: format!("no answer within {after_ms} ms"), asked_ms: None },
    }
}

/// The wait of an item that was turned away so many times and is not charged for it.
pub(super) fn turned_away_wait_ms(policy: RetryPolicy, times: u32, draw: f64, asked_ms: Option<i64>) -> i64 {
    RetryPolicy { attempts: u32::MAX, ..policy }.wait_ms(times, draw, asked_ms).unwrap_or(policy.cap_ms)
}

/// The wait before the next attempt; `None` when there is none.
pub(super) fn next_wait_ms(
    policy: RetryPolicy,
    on_poison: OnPoison,
    failure: u32,
    draw: f64,
    asked_ms: Option<i64>,
) -> Option<i64> {
    match (policy.wait_ms(failure, draw, asked_ms), on_poison) {
        (Some(wait_ms), _) => Some(wait_ms),
        (None, OnPoison::Park) => None,
        (None, OnPoison::Block) => {
            RetryPolicy { attempts: u32::MAX, first_ms: policy.cap_ms, ..policy }.wait_ms(1, draw, asked_ms)
        }
    }
}

/// Reads `Retry-After`: seconds, or a date.
pub(super) fn retry_after_ms(value: &str, wall_ms: i64) -> Option<i64> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<i64>() {
        return (seconds >= 0).then(|| seconds.saturating_mul(1_000));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_millisecond();
    Some((at - wall_ms).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Heard {
        Heard::Status { status, retry_after_ms: None }
    }

    #[test]
    fn every_status_has_its_meaning() {
        for code in [200, 201, 202, 204, 299] {
            assert_eq!(judge(&status(code), true), Judgement::Taken);
        }
        for code in [302, 408, 409, 425, 429, 500, 501, 505] {
            assert!(matches!(judge(&status(code), true), Judgement::Again { .. }), "{code}");
        }
        for code in [400, 401, 404, 410, 422] {
            assert!(matches!(judge(&status(code), true), Judgement::Hopeless { .. }), "{code}");
            assert!(matches!(judge(&status(code), false), Judgement::Again { .. }), "{code}");
        }
        for code in [502, 503, 504] {
            assert!(matches!(judge(&status(code), true), Judgement::TurnedAway { asked_ms: None, .. }), "{code}");
        }
        let asked = Heard::Status { status: 503, retry_after_ms: Some(7_000) };
        assert!(matches!(judge(&asked, true), Judgement::TurnedAway { asked_ms: Some(7_000), .. }));
        assert!(matches!(judge(&Heard::Unreachable("refused".to_owned()), true), Judgement::Dead { .. }));
    }

    #[test]
    fn attempts_end_in_parking_or_never() {
        let policy = RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 3 };
        assert_eq!(next_wait_ms(policy, OnPoison::Park, 2, 0.0, None), Some(2_000));
        assert_eq!(next_wait_ms(policy, OnPoison::Park, 3, 0.0, None), None);
        assert_eq!(next_wait_ms(policy, OnPoison::Block, 3, 0.0, None), Some(60_000));
        assert_eq!(next_wait_ms(policy, OnPoison::Block, 99, 0.0, Some(90_000)), Some(90_000));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after_ms("120", 0), Some(120_000));
        assert_eq!(retry_after_ms("-1", 0), None);
        assert_eq!(retry_after_ms("Wed, 21 Oct 2015 07:28:00 GMT", 1_445_412_479_000), Some(1_000));
        assert_eq!(retry_after_ms("Wed, 21 Oct 2015 07:28:00 GMT", 1_445_412_999_000), Some(0));
        assert_eq!(retry_after_ms("soon", 0), None);
    }
}
