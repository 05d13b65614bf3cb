//! What becomes of a key when something is asked of it. Pure; every engine calls it between loading and saving the record.

use bytes::Bytes;

use super::{Claim, ClaimAnswer, ClaimKey, ClaimOp, ClaimResult, ClaimState, Condition, Ends, OnAbandoned, Previous, ValueLeft};
use crate::limits::KEEP_MAX_MS;

/// What an engine does with the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimChange {
    Keep,
    Put(Box<Claim>),
    Remove,
}

/// Decides one step. `record` is what is kept under the key, whether it is over or not; `fence` is above all fences of the store so far.
///
/// - A held claim is the holder's until another call takes it: a completion that comes late, and nobody has begun since, counts.
/// - A lease that ends later than it can have been given was dated by a clock that was set back since. It begins anew when somebody asks.
/// - A claim that waits for a person never ends by itself; any other is forgotten its `ttl` after its completion, or after its lease.
pub fn decide(record: Option<&Claim>, key: &ClaimKey, op: &ClaimOp, now_ms: i64, fence: u64) -> (ClaimChange, ClaimAnswer) {
    let there = record.filter(|record| !record.is_over(now_ms));
    match op {
        ClaimOp::Claim { .. } => claim(there, key, op, now_ms, fence),
        ClaimOp::Complete { token, result, keep_ms } => complete(there, token, result.as_ref(), *keep_ms, now_ms),
        ClaimOp::Extend { token, lease_ms } => extend(there, token, *lease_ms, now_ms),
        ClaimOp::Release { token } => match held_by(there, token) {
            Some(_) => (ClaimChange::Remove, ClaimAnswer::Released),
            None => (ClaimChange::Keep, ClaimAnswer::Lost),
        },
        ClaimOp::Delete => (removal(record), ClaimAnswer::Removed(there.is_some())),
        ClaimOp::Set { .. } => set(there, key, op, now_ms, fence),
        ClaimOp::Get => match value_of(there) {
            Found::Nothing => (ClaimChange::Keep, ClaimAnswer::Value(None)),
            Found::Value(value, claim) => {
                let left_ms = claim.ends_ms.map(|ends_ms| ends_ms - now_ms);
                (ClaimChange::Keep, ClaimAnswer::Value(Some(ValueLeft { value: value.clone(), left_ms })))
            }
            Found::Claim => (ClaimChange::Keep, ClaimAnswer::WrongKind),
        },
        ClaimOp::Expire { ends } => expire(there, None, *ends, now_ms),
        ClaimOp::ExpireIfEquals { value, ends } => expire(there, Some(value), *ends, now_ms),
        ClaimOp::DeleteIfEquals { value } => remove(there, Some(value)),
        ClaimOp::Remove => remove(there, None),
    }
}

fn claim(there: Option<&Claim>, key: &ClaimKey, op: &ClaimOp, now_ms: i64, fence: u64) -> (ClaimChange, ClaimAnswer) {
    let ClaimOp::Claim { token, ttl_ms, lease_ms, fingerprint, on_abandoned, holder } = op else {
        return (ClaimChange::Keep, ClaimAnswer::Lost);
    };
    let Some(there) = there else {
        let claim = Claim {
            key: key.clone(),
            state: ClaimState::Held,
            token: token.clone(),
            fence,
            fingerprint: fingerprint.clone(),
            on_abandoned: *on_abandoned,
            holder: holder.clone(),
            claimed_at_ms: now_ms,
            lease_ms: *lease_ms,
            lease_until_ms: now_ms,
            ttl_ms: *ttl_ms,
            completed_at_ms: None,
            result: None,
            ends_ms: None,
        };
        return claimed(leased(claim, *lease_ms, now_ms), Previous::None);
    };
    if let (Some(first), Some(given)) = (&there.fingerprint, fingerprint)
        && first != given
    {
        return (ClaimChange::Keep, ClaimAnswer::FingerprintMismatch);
    }
    match there.state {
        ClaimState::Completed | ClaimState::Value => {
            let completed_at_ms = there.completed_at_ms.unwrap_or(there.claimed_at_ms);
            (ClaimChange::Keep, ClaimAnswer::Completed { result: there.result.clone(), completed_at_ms })
        }
        // The answer to the first call was lost, or the step is run again.
        ClaimState::Held if there.token == *token => claimed(leased(there.clone(), *lease_ms, now_ms), Previous::None),
        ClaimState::Held if !there.is_abandoned(now_ms) => in_progress(there, now_ms),
        ClaimState::Held => match there.on_abandoned {
            OnAbandoned::Hold => (ClaimChange::Keep, ClaimAnswer::HeldForPerson { lease_until_ms: there.lease_until_ms }),
            OnAbandoned::Takeover => {
                let taken = Claim {
                    token: token.clone(),
                    fence,
                    fingerprint: fingerprint.clone().or_else(|| there.fingerprint.clone()),
                    on_abandoned: *on_abandoned,
                    holder: holder.clone(),
                    claimed_at_ms: now_ms,
                    ttl_ms: *ttl_ms,
                    ..there.clone()
                };
                claimed(leased(taken, *lease_ms, now_ms), Previous::Abandoned)
            }
        },
    }
}

fn claimed(claim: Claim, previous: Previous) -> (ClaimChange, ClaimAnswer) {
    let answer =
        ClaimAnswer::Claimed { token: claim.token.clone(), fence: claim.fence, lease_until_ms: claim.lease_until_ms, previous };
    (ClaimChange::Put(Box::new(claim)), answer)
}

fn in_progress(there: &Claim, now_ms: i64) -> (ClaimChange, ClaimAnswer) {
    if there.lease_until_ms <= now_ms.saturating_add(there.lease_ms) {
        return (ClaimChange::Keep, ClaimAnswer::InProgress { lease_until_ms: there.lease_until_ms });
    }
    let anew = leased(there.clone(), there.lease_ms, now_ms);
    let answer = ClaimAnswer::InProgress { lease_until_ms: anew.lease_until_ms };
    (ClaimChange::Put(Box::new(anew)), answer)
}

/// The claim with a lease from now on.
fn leased(claim: Claim, lease_ms: i64, now_ms: i64) -> Claim {
    let lease_until_ms = now_ms.saturating_add(lease_ms);
    let ends_ms = match claim.on_abandoned {
        OnAbandoned::Hold => None,
        OnAbandoned::Takeover => Some(lease_until_ms.saturating_add(claim.ttl_ms)),
    };
    Claim { lease_ms, lease_until_ms, ends_ms, ..claim }
}

fn held_by<'c>(there: Option<&'c Claim>, token: &str) -> Option<&'c Claim> {
    there.filter(|there| there.state == ClaimState::Held && there.token == token)
}

fn complete(
    there: Option<&Claim>,
    token: &str,
    result: Option<&ClaimResult>,
    keep_ms: Option<i64>,
    now_ms: i64,
) -> (ClaimChange, ClaimAnswer) {
    if let Some(held) = held_by(there, token) {
        let ends_ms = Some(now_ms.saturating_add(keep_ms.unwrap_or(held.ttl_ms)));
        let completed_at_ms = Some(now_ms);
        let done = Claim { state: ClaimState::Completed, completed_at_ms, result: result.cloned(), ends_ms, ..held.clone() };
        return (ClaimChange::Put(Box::new(done)), ClaimAnswer::Done { completed_at_ms: now_ms, ends_ms });
    }
    let same = |there: &&Claim| there.state == ClaimState::Completed && there.token == token && there.result.as_ref() == result;
    match there.filter(same) {
        Some(done) => {
            let completed_at_ms = done.completed_at_ms.unwrap_or(now_ms);
            (ClaimChange::Keep, ClaimAnswer::Done { completed_at_ms, ends_ms: done.ends_ms })
        }
        None => (ClaimChange::Keep, ClaimAnswer::Lost),
    }
}

fn extend(there: Option<&Claim>, token: &str, lease_ms: i64, now_ms: i64) -> (ClaimChange, ClaimAnswer) {
    let Some(held) = held_by(there, token) else { return (ClaimChange::Keep, ClaimAnswer::Lost) };
    let held = leased(held.clone(), lease_ms, now_ms);
    let answer = ClaimAnswer::Extended { lease_until_ms: held.lease_until_ms };
    (ClaimChange::Put(Box::new(held)), answer)
}

enum Found<'c> {
    Nothing,
    Value(&'c Bytes, &'c Claim),
    Claim,
}

fn value_of(there: Option<&Claim>) -> Found<'_> {
    match there {
        None => Found::Nothing,
        Some(claim) => match (&claim.state, &claim.result) {
            (ClaimState::Value, Some(result)) => Found::Value(&result.bytes, claim),
            _ => Found::Claim,
        },
    }
}

fn set(there: Option<&Claim>, key: &ClaimKey, op: &ClaimOp, now_ms: i64, fence: u64) -> (ClaimChange, ClaimAnswer) {
    let ClaimOp::Set { value, condition, ends, tell } = op else { return (ClaimChange::Keep, ClaimAnswer::Lost) };
    let (condition, ends) = (*condition, *ends);
    let found = match (value_of(there), condition) {
        (Found::Claim, Condition::IfAbsent) => return (ClaimChange::Keep, ClaimAnswer::NotSet { found: None }),
        (Found::Claim, _) => return (ClaimChange::Keep, ClaimAnswer::WrongKind),
        (Found::Value(found, _), _) => Some(if *tell { found.clone() } else { Bytes::new() }),
        (Found::Nothing, _) => None,
    };
    match (condition, found) {
        (Condition::IfAbsent, found @ Some(_)) | (Condition::IfPresent, found @ None) => {
            (ClaimChange::Keep, ClaimAnswer::NotSet { found })
        }
        (_, previous) => {
            let ends_ms = end_of(ends, there.and_then(|there| there.ends_ms), now_ms);
            let claim = Claim {
                key: key.clone(),
                state: ClaimState::Value,
                token: String::new(),
                fence,
                fingerprint: None,
                on_abandoned: OnAbandoned::Takeover,
                holder: None,
                claimed_at_ms: now_ms,
                lease_ms: 0,
                lease_until_ms: now_ms,
                ttl_ms: 0,
                completed_at_ms: None,
                result: Some(ClaimResult { content_type: None, bytes: value.clone() }),
                ends_ms,
            };
            let change = if claim.is_over(now_ms) { removal(there) } else { ClaimChange::Put(Box::new(claim)) };
            (change, ClaimAnswer::Set { previous })
        }
    }
}

fn end_of(ends: Ends, present: Option<i64>, now_ms: i64) -> Option<i64> {
    match ends {
        Ends::Keep => present,
        Ends::Never => None,
        Ends::At(at_ms) => Some(at_ms.min(now_ms.saturating_add(KEEP_MAX_MS))),
        Ends::In(ms) => Some(now_ms.saturating_add(ms.min(KEEP_MAX_MS))),
        Ends::Plus(ms) => present.map(|present| present.saturating_add(ms.min(KEEP_MAX_MS))),
    }
}

fn expire(there: Option<&Claim>, only: Option<&Bytes>, ends: Ends, now_ms: i64) -> (ClaimChange, ClaimAnswer) {
    let there = match value_of(there) {
        Found::Claim => return (ClaimChange::Keep, ClaimAnswer::WrongKind),
        Found::Value(value, there) if only.is_none_or(|only| only == value) => there,
        Found::Nothing | Found::Value(..) => return (ClaimChange::Keep, ClaimAnswer::Expiring(false)),
    };
    if matches!(ends, Ends::Plus(_)) && there.ends_ms.is_none() {
        return (ClaimChange::Keep, ClaimAnswer::Expiring(false));
    }
    let anew = Claim { ends_ms: end_of(ends, there.ends_ms, now_ms), ..there.clone() };
    let change = if anew.is_over(now_ms) { ClaimChange::Remove } else { ClaimChange::Put(Box::new(anew)) };
    (change, ClaimAnswer::Expiring(true))
}

fn remove(there: Option<&Claim>, only: Option<&Bytes>) -> (ClaimChange, ClaimAnswer) {
    match value_of(there) {
        Found::Claim => (ClaimChange::Keep, ClaimAnswer::WrongKind),
        Found::Value(value, _) if only.is_none_or(|only| only == value) => (ClaimChange::Remove, ClaimAnswer::Removed(true)),
        Found::Nothing | Found::Value(..) => (ClaimChange::Keep, ClaimAnswer::Removed(false)),
    }
}

fn removal(record: Option<&Claim>) -> ClaimChange {
    if record.is_some() { ClaimChange::Remove } else { ClaimChange::Keep }
}
