//! From a command to what is asked of the store, and from the store's answers to the reply.

use bytes::Bytes;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, Condition, Ends, ValueLeft};

use super::SCOPE;
use super::codec::Reply;
use super::command::{Answer, Expire, Key, Lifetime, Set, Unit, When};

/// What a command asks of the store, in order, and what becomes of the answers.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) asks: Vec<(ClaimKey, ClaimOp)>,
    pub(super) tell: Tell,
}

#[derive(Debug)]
pub(super) enum Tell {
    /// Nothing was asked: it is known what to say.
    This(Reply),
    Set(Answer),
    Value,
    Values,
    /// How many keys there are, whatever they hold.
    Count,
    /// How many values went.
    Removed,
    Expiring,
    TimeLeft(Unit),
    /// A step of a script.
    Script(super::steps::Step),
}

/// What follows from the answers.
pub(super) enum Told {
    Reply(Reply),
    /// A script has another step.
    Next(Plan),
}

impl Plan {
    pub(super) fn this(reply: Reply) -> Self {
        Self { asks: Vec::new(), tell: Tell::This(reply) }
    }

    pub(super) fn set(set: Set, usual_ttl_ms: i64) -> Self {
        let condition = match set.condition {
            When::Always => Condition::Always,
            When::IfAbsent => Condition::IfAbsent,
            When::IfPresent => Condition::IfPresent,
        };
        let ends = match set.lifetime {
            Lifetime::Usual => Ends::In(usual_ttl_ms),
            Lifetime::Kept => Ends::Keep,
            Lifetime::ForMs(ms) => Ends::In(ms),
            Lifetime::UntilMs(at_ms) => Ends::At(at_ms),
        };
        // A copy: the bytes that came are part of a larger block, which a store must not keep.
        let value = Bytes::copy_from_slice(&set.value);
        let tell = set.answer == Answer::Before;
        let ask = |condition, ends| ask(&set.key, ClaimOp::Set { value: value.clone(), condition, ends, tell });
        let asks = match (set.lifetime, condition) {
            // The end of a key that is there is kept, and one that is new has the usual one: one of the two finds what it is for.
            (Lifetime::Kept, Condition::Always) => {
                vec![ask(Condition::IfPresent, Ends::Keep), ask(Condition::IfAbsent, Ends::In(usual_ttl_ms))]
            }
            (Lifetime::Kept, Condition::IfAbsent) => vec![ask(condition, Ends::In(usual_ttl_ms))],
            _ => vec![ask(condition, ends)],
        };
        Self { asks, tell: Tell::Set(set.answer) }
    }

    pub(super) fn get(key: &Key) -> Self {
        Self { asks: vec![ask(key, ClaimOp::Get)], tell: Tell::Value }
    }

    pub(super) fn get_many(keys: &[Key]) -> Self {
        Self { asks: keys.iter().map(|key| ask(key, ClaimOp::Get)).collect(), tell: Tell::Values }
    }

    pub(super) fn remove(keys: &[Key]) -> Self {
        Self { asks: keys.iter().map(|key| ask(key, ClaimOp::Remove)).collect(), tell: Tell::Removed }
    }

    pub(super) fn exists(keys: &[Key]) -> Self {
        Self { asks: keys.iter().map(|key| ask(key, ClaimOp::Get)).collect(), tell: Tell::Count }
    }

    pub(super) fn expire(expire: &Expire) -> Self {
        if !expire.applies {
            return Self::this(Reply::Number(0));
        }
        Self { asks: vec![ask(&expire.key, ClaimOp::Expire { ends: Ends::In(expire.ms) })], tell: Tell::Expiring }
    }

    pub(super) fn time_left(key: &Key, unit: Unit) -> Self {
        Self { asks: vec![ask(key, ClaimOp::Get)], tell: Tell::TimeLeft(unit) }
    }
}

impl Tell {
    pub(super) fn of(self, answers: Vec<ClaimAnswer>) -> Told {
        if answers.contains(&ClaimAnswer::NoRoom) {
            return Told::Reply(Reply::error("OOM command not allowed when used memory > 'maxmemory'."));
        }
        let wrong_kind = || Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
        let reply = match self {
            Tell::This(reply) => reply,
            Tell::Set(answer) => return Told::Reply(set(answer, answers)),
            Tell::Script(step) => return step.go_on(answers),
            // `EXISTS` counts what is there, whatever it is; the others go by one answer.
            Tell::Count => {
                Reply::Number(count(&answers, |answer| matches!(answer, ClaimAnswer::Value(Some(_)) | ClaimAnswer::WrongKind)))
            }
            Tell::Values => Reply::Array(answers.into_iter().map(value).collect()),
            _ if answers.contains(&ClaimAnswer::WrongKind) => wrong_kind(),
            Tell::Value => answers.into_iter().next().map_or(Reply::Nil, value),
            Tell::Removed => Reply::Number(count(&answers, |answer| *answer == ClaimAnswer::Removed(true))),
            Tell::Expiring => Reply::Number(i64::from(answers.contains(&ClaimAnswer::Expiring(true)))),
            Tell::TimeLeft(unit) => Reply::Number(time_left(answers.first(), unit)),
        };
        Told::Reply(reply)
    }
}

pub(super) fn ask(key: &Key, op: ClaimOp) -> (ClaimKey, ClaimOp) {
    (ClaimKey::new(SCOPE, key.0.clone()), op)
}

fn count(answers: &[ClaimAnswer], counts: impl Fn(&ClaimAnswer) -> bool) -> i64 {
    answers.iter().filter(|answer| counts(answer)).count() as i64
}

fn value(answer: ClaimAnswer) -> Reply {
    match answer {
        ClaimAnswer::Value(Some(ValueLeft { value, .. })) => Reply::Bulk(value),
        _ => Reply::Nil,
    }
}

/// The last answer says whether it was set, unless an earlier one has.
fn set(answer: Answer, answers: Vec<ClaimAnswer>) -> Reply {
    let (mut was_set, mut before) = (false, None);
    for answered in answers {
        match answered {
            ClaimAnswer::Set { previous } => {
                (was_set, before) = (true, previous);
                break;
            }
            ClaimAnswer::NotSet { found } => before = found,
            _ => return Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        }
    }
    match answer {
        Answer::OkOrNil if was_set => Reply::OK,
        Answer::OkOrNil => Reply::Nil,
        Answer::Before => before.map_or(Reply::Nil, Reply::Bulk),
        Answer::OneOrZero => Reply::Number(i64::from(was_set)),
    }
}

/// -2: there is no such key; -1: it is kept for ever.
fn time_left(answer: Option<&ClaimAnswer>, unit: Unit) -> i64 {
    match answer {
        Some(ClaimAnswer::Value(Some(ValueLeft { left_ms: None, .. }))) => -1,
        Some(ClaimAnswer::Value(Some(ValueLeft { left_ms: Some(left_ms), .. }))) => match unit {
            Unit::Milliseconds => *left_ms,
            Unit::Seconds => left_ms.saturating_add(500) / 1_000,
        },
        _ => -2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_no_value_is_not_said_to_be_gone() {
        let Told::Reply(reply) = Tell::Removed.of(vec![ClaimAnswer::Removed(true), ClaimAnswer::WrongKind]) else {
            unreachable!("a reply")
        };
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
        let Told::Reply(reply) = Tell::Removed.of(vec![ClaimAnswer::Removed(true), ClaimAnswer::Removed(false)]) else {
            unreachable!("a reply")
        };
        assert!(matches!(reply, Reply::Number(1)), "{reply:?}");
    }
}
