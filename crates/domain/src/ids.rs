//! Ids that people see: a prefix says what the thing is, a UUIDv7 keeps them in time order.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// Names one accepted event, for ever. Written `evt_` and 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub Uuid);

/// Names one inbox item: the first event it carries, or the replay that made it. Written `itm_` and 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub Uuid);

/// Names one message on its way out, and its outbox item. Written `msg_` and 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub Uuid);

/// Grows at every lease of a lane and guards every write that ends work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// A text that should have been an id and is not.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not an id: expected `{prefix}` and 32 hex digits, or its short form, as shown by `hapax {shown_by}`")]
pub struct BadId {
    text: String,
    prefix: &'static str,
    shown_by: &'static str,
}

/// Makes a UUIDv7 out of a time and a number that is unique in its store, so that a store finds the row from the id without an index.
///
/// The time is cut to whole seconds: that is as much as the key tables remember of it.
pub fn numbered(at_ms: i64, number: u64) -> Uuid {
    let at_s = (at_ms / 1_000).max(0) as u64;
    let high = ((at_s * 1_000) << 16) | 0x7000;
    let low = (0b10 << 62) | (number & NUMBER_MASK);
    Uuid::from_u64_pair(high, low)
}

/// Reads the number back out of an id made by [`numbered`].
pub fn number_of(id: Uuid) -> u64 {
    id.as_u64_pair().1 & NUMBER_MASK
}

const NUMBER_MASK: u64 = (1 << 62) - 1;

/// Of the short form: no letter that is taken for another one.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The seconds of a short form: enough for a thousand years, always as many digits, so that the number behind them needs no mark.
const SECONDS_DIGITS: usize = 7;

/// Writes an id made by [`numbered`] in a few characters for people: its second and its number, in base 32. `None` for other ids.
fn short(id: Uuid) -> Option<String> {
    let (at_s, number) = ((id.as_u64_pair().0 >> 16) / 1_000, number_of(id));
    (numbered(at_s as i64 * 1_000, number) == id && at_s >> (5 * SECONDS_DIGITS) == 0).then(|| {
        let number_digits = (64 - number.leading_zeros() as usize).div_ceil(5).max(1);
        let digit = |value: u64, place: usize| char::from(DIGITS[(value >> (5 * place)) as usize & 31]);
        let seconds = (0..SECONDS_DIGITS).rev().map(|place| digit(at_s, place));
        seconds.chain((0..number_digits).rev().map(|place| digit(number, place))).collect()
    })
}

/// Reads a short form back.
fn of_short(text: &str) -> Option<Uuid> {
    let digit = |sign: u8| DIGITS.iter().position(|known| *known == sign.to_ascii_lowercase()).map(|value| value as u64);
    let value = |digits: &str| digits.bytes().try_fold(0_u64, |sum, sign| Some(sum.checked_mul(32)? | digit(sign)?));
    let (seconds, number) = text.split_at_checked(SECONDS_DIGITS).filter(|(_, number)| (1..=13).contains(&number.len()))?;
    let (at_s, number) = (value(seconds)?, value(number).filter(|number| number & !NUMBER_MASK == 0)?);
    Some(numbered(at_s as i64 * 1_000, number))
}

macro_rules! prefixed_id {
    ($name:ident, $prefix:literal, $shown_by:literal) => {
        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// The same id in a few characters, for people; every place that takes an id takes this too.
            pub fn short(self) -> String {
                short(self.0).map_or_else(|| self.to_string(), |short| format!(concat!($prefix, "{}"), short))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let bad = || BadId { text: text.chars().take(80).collect(), prefix: $prefix, shown_by: $shown_by };
                let digits = text.strip_prefix($prefix).ok_or_else(bad)?;
                if digits.len() != 32 {
                    return of_short(digits).map(Self).ok_or_else(bad);
                }
                Uuid::try_parse(digits).map(Self).map_err(|_| bad())
            }
        }
    };
}

impl EventId {
    /// True for what may be the beginning of an id, whole or short, its prefix left out.
    pub fn may_begin_with(digits: &str) -> bool {
        let is_whole = |digits: &[u8]| digits.starts_with(b"0") && digits.iter().all(u8::is_ascii_hexdigit);
        let is_short = |digits: &[u8]| digits.iter().all(|digit| DIGITS.contains(&digit.to_ascii_lowercase()));
        (1..32).contains(&digits.len()) && (is_whole(digits.as_bytes()) || is_short(digits.as_bytes()))
    }

    /// When the store made it, to the second before; `None` for an id that does not say.
    pub fn at_ms(self) -> Option<i64> {
        (self.0.get_version_num() == 7).then(|| (self.0.as_u64_pair().0 >> 16) as i64)
    }
}

prefixed_id!(EventId, "evt_", "events");
prefixed_id!(ItemId, "itm_", "inbox --json");
prefixed_id!(MessageId, "msg_", "messages");

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_as_written() {
        let id = EventId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_002a));
        assert_eq!(id.to_string(), "evt_0190000000007000800000000000002a");
        assert_eq!(id.to_string().parse::<EventId>().expect("reads back"), id);
    }

    #[test]
    fn a_numbered_id_is_a_v7_uuid_that_gives_its_number_back() {
        let id = numbered(1_760_000_000_123, 987_654_321);
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(number_of(id), 987_654_321);
        assert_eq!(EventId(id).at_ms(), Some(1_760_000_000_000));
        assert_eq!(EventId(Uuid::from_u128(1)).at_ms(), None);
        assert!(numbered(1_760_000_000_999, 2) > numbered(1_760_000_000_000, 1));
    }

    #[test]
    fn the_short_form_is_the_same_id() {
        for (at_ms, number) in [(1_760_000_000_123, 42), (0, 0), (1_760_000_000_000, NUMBER_MASK), (4_102_444_800_000, 1 << 20)] {
            let id = EventId(numbered(at_ms, number));
            assert!(id.short().len() <= 24, "{}", id.short());
            assert_eq!(id.short().parse::<EventId>().expect("reads back"), id);
            assert_eq!(id.short().to_uppercase().replace("EVT", "evt").parse::<EventId>().expect("reads back"), id);
        }
        assert_eq!(EventId(numbered(1_760_000_000_123, 42)).short(), "evt_1meey001a");
        let random = EventId(Uuid::from_u128(0x0190_0000_0000_4123_8000_0000_0000_002a));
        assert_eq!(random.short(), random.to_string());
    }

    #[test]
    fn a_wrong_prefix_or_length_is_refused() {
        let longest = format!("evt_1mef880g{}", "0".repeat(12));
        for text in [
            "",
            "evt_",
            "evt_1mef880",
            "evt_1mef88ol",
            "evt_é1mef880",
            &longest,
            "itm_0190000000007000800000000000002a",
            "evt_{0190000000007000800000000000002a}",
        ] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }
}
