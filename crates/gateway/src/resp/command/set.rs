//! `SET` with all that may follow the value, and its two older sisters.

use bytes::Bytes;
use hapax_domain::limits;

use super::{Key, Unit, integer, syntax};
use crate::resp::codec::Reply;

#[derive(Debug, PartialEq, Eq)]
pub(in crate::resp) struct Set {
    pub(in crate::resp) key: Key,
    pub(in crate::resp) value: Bytes,
    pub(in crate::resp) condition: When,
    pub(in crate::resp) lifetime: Lifetime,
    pub(in crate::resp) answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum When {
    Always,
    /// `NX`
    IfAbsent,
    /// `XX`
    IfPresent,
}

/// How long a key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Lifetime {
    /// As long as the config says.
    Usual,
    /// Until the end that it has; one that is new is kept as long as usual.
    Kept,
    ForMs(i64),
    UntilMs(i64),
}

/// What is told of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Answer {
    /// `OK`, or nil when the condition did not hold.
    OkOrNil,
    /// The value before, or nil.
    Before,
    /// 1 or 0, for `SETNX`.
    OneOrZero,
}

const OPTIONS: &[&str] = &["NX", "XX", "EX", "PX", "EXAT", "PXAT", "KEEPTTL", "GET"];

impl Set {
    pub(super) fn read(words: &[Bytes]) -> Result<Self, Reply> {
        let (key, value) = (Key::read(&words[0])?, words[1].clone());
        let mut set = Self { key, value, condition: When::Always, lifetime: Lifetime::Usual, answer: Answer::OkOrNil };
        let mut options = words[2..].iter();
        while let Some(option) = options.next() {
            let is = |name: &&&str| option.eq_ignore_ascii_case(name.as_bytes());
            match (*OPTIONS.iter().find(is).ok_or_else(syntax)?, set.condition, set.lifetime, set.answer) {
                ("NX", When::Always | When::IfAbsent, _, _) => set.condition = When::IfAbsent,
                ("XX", When::Always | When::IfPresent, _, _) => set.condition = When::IfPresent,
                ("GET", ..) => set.answer = Answer::Before,
                ("KEEPTTL", _, Lifetime::Usual | Lifetime::Kept, _) => set.lifetime = Lifetime::Kept,
                (time @ ("EX" | "PX" | "EXAT" | "PXAT"), _, Lifetime::Usual, _) => {
                    set.lifetime = lifetime(time, options.next().ok_or_else(syntax)?, "set")?;
                }
                _ => return Err(syntax()),
            }
        }
        Ok(set)
    }

    pub(super) fn if_absent(words: &[Bytes]) -> Result<Self, Reply> {
        Ok(Self { condition: When::IfAbsent, answer: Answer::OneOrZero, ..Self::read(words)? })
    }

    pub(super) fn with_seconds(words: &[Bytes]) -> Result<Self, Reply> {
        let plain = Self::read(&[words[0].clone(), words[2].clone()])?;
        Ok(Self { lifetime: lifetime("EX", &words[1], "setex")?, ..plain })
    }
}

fn lifetime(option: &str, word: &Bytes, command: &str) -> Result<Lifetime, Reply> {
    let unit = if option.starts_with('P') { Unit::Milliseconds } else { Unit::Seconds };
    let ms = unit.ms(integer(word)?).filter(|ms| *ms > 0);
    let lifetime = match option {
        "EXAT" | "PXAT" => ms.map(Lifetime::UntilMs),
        _ => ms.filter(|ms| *ms <= limits::KEEP_MAX_MS).map(Lifetime::ForMs),
    };
    lifetime.ok_or_else(|| Reply::error(format!("ERR invalid expire time in '{command}' command")))
}
