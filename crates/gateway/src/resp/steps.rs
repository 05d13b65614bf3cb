//! The steps of a known script, each one call of the store. Between two steps of a script with several keys others may come: that never makes
//! two holders, because each key is taken, extended and released by itself only as the value says.

use bytes::Bytes;
use hapax_domain::claim::{ClaimAnswer, ClaimOp, Condition, Ends, ValueLeft};
use hapax_domain::limits;

use super::codec::Reply;
use super::command::{Call, Key, integer};
use super::plan::{Plan, Tell, Told, ask};
use super::script::{Action, No, Recipe, Time, Yes};

/// Where a script stands, and what it still needs.
#[derive(Debug)]
pub(super) struct Step {
    kind: Kind,
    recipe: Recipe,
    keys: Vec<Key>,
    value: Bytes,
    /// How much of the value has to be alike, and the end, where a key may be replaced.
    replace: Option<(usize, Ends)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Each answer says whether its key was released.
    Release,
    /// .. and the next one what was there instead.
    ReleaseOrTell,
    /// .. whether it was given a new end.
    Extend,
    /// .. whether it was taken; if not all were, those that were are given back.
    Take,
    /// Two answers a key: it was the caller's already, or it was taken.
    TakeOrExtend,
    /// What is there is looked at: it may be the caller's by its beginning.
    Look,
    /// Two answers: what was there is gone, and the new value is there.
    Replace,
    /// What was taken was given back.
    GaveBack,
    TimeLeft,
    IsHeld,
}

/// What a call of a known script asks first; the error is what to answer.
pub(super) fn begin(recipe: Recipe, call: Call, usual_ttl_ms: i64) -> Result<Plan, Reply> {
    if recipe.action == Action::Nothing {
        return Ok(Plan::this(Reply::Number(1)));
    }
    let Call { mut keys, arguments } = call;
    if recipe.one_key {
        keys.truncate(1);
    }
    if keys.is_empty() {
        return Err(Reply::error("ERR this script takes a key"));
    }
    let argument = |n: usize| arguments.get(n - 1).ok_or_else(|| Reply::error("ERR this script takes more arguments"));
    let value = Bytes::copy_from_slice(argument(recipe.value)?);
    let take = |ends| ClaimOp::Set { value: value.clone(), condition: Condition::IfAbsent, ends, tell: false };
    let extend = |ends| ClaimOp::ExpireIfEquals { value: value.clone(), ends };
    let each = |ops: Vec<ClaimOp>| keys.iter().flat_map(|key| ops.iter().map(move |op| ask(key, op.clone()))).collect();
    let lasts = |time| lasts(time, &arguments);
    let (kind, asks) = match recipe.action {
        Action::Release if recipe.no == No::MinusOneIfAbsent => {
            (Kind::ReleaseOrTell, each(vec![ClaimOp::DeleteIfEquals { value: value.clone() }, ClaimOp::Get]))
        }
        Action::Release => (Kind::Release, each(vec![ClaimOp::DeleteIfEquals { value: value.clone() }])),
        Action::Extend(time) => (Kind::Extend, each(vec![extend(lasts(time)?)])),
        Action::ExtendOrKeep(time) => {
            let ends = match lasts(time)? {
                Ends::In(ms) if ms <= 0 => Ends::In(usual_ttl_ms),
                ends => ends,
            };
            (Kind::Extend, each(vec![extend(ends)]))
        }
        Action::AddTime => {
            let replaces = arguments.get(2).is_some_and(|replaces| replaces.as_ref() != b"0");
            let Ends::In(ms) = lasts(Time::Milliseconds(2))? else { return Err(Reply::error("ERR syntax error")) };
            (Kind::Extend, each(vec![extend(if replaces { Ends::In(ms) } else { Ends::Plus(ms) })]))
        }
        Action::Take(time) | Action::TakeOrReplace(time) => (Kind::Take, each(vec![take(is_future(lasts(time)?)?)])),
        Action::TakeOrExtend(time) => {
            let ends = is_future(lasts(time)?)?;
            (Kind::TakeOrExtend, each(vec![extend(ends), take(ends)]))
        }
        Action::TimeLeft => (Kind::TimeLeft, each(vec![ClaimOp::Get])),
        Action::IsHeld | Action::Nothing => (Kind::IsHeld, each(vec![ClaimOp::Get])),
    };
    let replace = match recipe.action {
        // Where there are several keys, none is replaced.
        Action::TakeOrReplace(time) if keys.len() == 1 => {
            let alike = usize::try_from(integer(argument(2)?)?).unwrap_or(usize::MAX);
            Some((alike, self::lasts(time, &arguments)?))
        }
        _ => None,
    };
    Ok(Plan { asks, tell: Tell::Script(Step { kind, recipe, keys, value, replace }) })
}

/// When a key ends that is given the time of this argument.
fn lasts(time: Time, arguments: &[Bytes]) -> Result<Ends, Reply> {
    let (place, unit_ms) = match time {
        Time::Seconds(place) => (place, 1_000),
        Time::Milliseconds(place) => (place, 1),
    };
    let count = integer(arguments.get(place - 1).ok_or_else(|| Reply::error("ERR this script takes more arguments"))?)?;
    let ms = count.checked_mul(unit_ms).filter(|ms| *ms <= limits::KEEP_MAX_MS);
    ms.map(Ends::In).ok_or_else(|| Reply::error("ERR invalid expire time in script"))
}

/// Nothing is taken for no time at all.
fn is_future(ends: Ends) -> Result<Ends, Reply> {
    match ends {
        Ends::In(ms) if ms <= 0 => Err(Reply::error("ERR invalid expire time in 'set' command")),
        ends => Ok(ends),
    }
}

impl Step {
    /// What follows from the answers to the last step.
    pub(super) fn go_on(self, answers: Vec<ClaimAnswer>) -> Told {
        if answers.contains(&ClaimAnswer::WrongKind) {
            return Told::Reply(Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value"));
        }
        match self.kind {
            Kind::Release | Kind::Extend => {
                let done = answers.iter().filter(|answer| is_done(answer)).count();
                // Each key that is the caller's is released; an extension counts when it is one of all of them.
                let enough =
                    if self.recipe.yes == Yes::Count && self.kind == Kind::Release { done > 0 } else { done == self.keys.len() };
                self.tells(enough, done)
            }
            Kind::ReleaseOrTell => match (is_done(&answers[0]), answers.get(1)) {
                (true, _) => self.yes(1, true),
                (false, Some(ClaimAnswer::Value(None))) => Told::Reply(Reply::Number(-1)),
                (false, _) => Told::Reply(Reply::Number(0)),
            },
            Kind::Take => self.took(&answers),
            Kind::TakeOrExtend => {
                let done = answers.chunks(2).filter(|pair| pair.iter().any(is_done)).count();
                if done == self.keys.len() { self.yes(done, is_done(&answers[0])) } else { self.no() }
            }
            Kind::Look => self.looked(answers),
            Kind::Replace => match answers.get(1).is_some_and(is_done) {
                true => self.yes(1, false),
                false => self.no(),
            },
            Kind::GaveBack => self.no(),
            Kind::IsHeld => {
                let (held, count) = (self.holds_all(&answers), self.keys.len());
                self.tells(held, count)
            }
            Kind::TimeLeft if self.holds_all(&answers) => {
                let left = |answer: &ClaimAnswer| match answer {
                    ClaimAnswer::Value(Some(ValueLeft { left_ms, .. })) => *left_ms,
                    _ => None,
                };
                Told::Reply(Reply::Number(answers.iter().filter_map(left).min().unwrap_or(-1)))
            }
            Kind::TimeLeft => self.no(),
        }
    }

    fn took(self, answers: &[ClaimAnswer]) -> Told {
        let taken = answers.iter().filter(|answer| is_done(answer)).count();
        if taken == self.keys.len() {
            return self.yes(taken, false);
        }
        if self.replace.is_some() {
            let asks = self.keys.iter().map(|key| ask(key, ClaimOp::Get)).collect();
            return Told::Next(Plan { asks, tell: Tell::Script(Step { kind: Kind::Look, ..self }) });
        }
        if taken == 0 {
            return self.no();
        }
        let back = ClaimOp::DeleteIfEquals { value: self.value.clone() };
        let taken = self.keys.iter().zip(answers).filter(|(_, answer)| is_done(answer));
        let asks = taken.map(|(key, _)| ask(key, back.clone())).collect();
        Told::Next(Plan { asks, tell: Tell::Script(Step { kind: Kind::GaveBack, ..self }) })
    }

    /// Replaces what is there if it is the caller's by its beginning.
    fn looked(self, answers: Vec<ClaimAnswer>) -> Told {
        let (Some((alike, ends)), Some(ClaimAnswer::Value(Some(ValueLeft { value: there, .. })))) =
            (self.replace, answers.first())
        else {
            return self.no();
        };
        let beginning = |bytes: &Bytes| bytes.slice(..alike.min(bytes.len()));
        if beginning(there) != beginning(&self.value) {
            return self.no();
        }
        let (gone, put) = (ClaimOp::DeleteIfEquals { value: there.clone() }, self.value.clone());
        let put = ClaimOp::Set { value: put, condition: Condition::IfAbsent, ends, tell: false };
        let asks = vec![ask(&self.keys[0], gone), ask(&self.keys[0], put)];
        Told::Next(Plan { asks, tell: Tell::Script(Step { kind: Kind::Replace, ..self }) })
    }

    fn holds_all(&self, answers: &[ClaimAnswer]) -> bool {
        let holds = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Value(Some(found)) if found.value == self.value);
        answers.iter().all(holds)
    }

    fn tells(self, done: bool, count: usize) -> Told {
        if done { self.yes(count, true) } else { self.no() }
    }

    fn yes(self, count: usize, was_there: bool) -> Told {
        Told::Reply(match self.recipe.yes {
            Yes::One => Reply::Number(1),
            Yes::OneOrOk if was_there => Reply::Number(1),
            Yes::Ok | Yes::OneOrOk => Reply::OK,
            Yes::Count => Reply::Number(count as i64),
        })
    }

    fn no(self) -> Told {
        Told::Reply(match self.recipe.no {
            No::Number(number) => Reply::Number(number),
            No::MinusOneIfAbsent => Reply::Number(0),
            No::Nil => Reply::Nil,
        })
    }
}

fn is_done(answer: &ClaimAnswer) -> bool {
    matches!(answer, ClaimAnswer::Set { .. } | ClaimAnswer::Removed(true) | ClaimAnswer::Expiring(true))
}
