//! A claim: an idempotency key held for any job. What is kept of it, what can be asked, and what is answered; the rule is in [`decide`].

mod rule;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use rule::{ClaimChange, decide};

use super::limits::{
    CLAIM_FINGERPRINT_MAX_BYTES, CLAIM_HOLDER_MAX_BYTES, CLAIM_KEEP_MAX_MS, CLAIM_KEY_MAX_BYTES, CLAIM_LEASE_MAX_MS,
    CLAIM_RESULT_MAX_BYTES, CLAIM_SCOPE_MAX_BYTES, CLAIM_TOKEN_MAX_BYTES, CLAIM_TYPE_MAX_BYTES,
};
use super::units::write_ms;

/// What a claim is known by: the family of jobs, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    pub scope: String,
    pub key: String,
}

impl ClaimKey {
    pub fn new(scope: impl Into<String>, key: impl Into<String>) -> Self {
        Self { scope: scope.into(), key: key.into() }
    }

    pub fn check(&self) -> Result<(), BadClaim> {
        if !(1..=CLAIM_SCOPE_MAX_BYTES).contains(&self.scope.len()) || self.scope.chars().any(char::is_control) {
            return Err(BadClaim::Scope { bytes: self.scope.len() });
        }
        if !(1..=CLAIM_KEY_MAX_BYTES).contains(&self.key.len()) {
            return Err(BadClaim::Key { bytes: self.key.len() });
        }
        Ok(())
    }

    /// Scope and key as one run of bytes that reads back: no scope has a NUL in it.
    pub fn to_name(&self) -> Vec<u8> {
        [self.scope.as_bytes(), &[0], self.key.as_bytes()].concat()
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        let (scope, key) = std::str::from_utf8(name).ok()?.split_once('\0')?;
        Some(Self::new(scope, key))
    }
}

/// What is kept under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub key: ClaimKey,
    pub state: ClaimState,
    /// Who holds it proves it with this. Empty for a value.
    pub token: String,
    /// Grows with every claim of the store.
    pub fence: u64,
    /// Equal for equal requests; a key stands for one of them.
    pub fingerprint: Option<String>,
    pub on_abandoned: OnAbandoned,
    /// Who, for lists.
    pub holder: Option<String>,
    pub claimed_at_ms: i64,
    /// How long the holder was given last.
    pub lease_ms: i64,
    pub lease_until_ms: i64,
    /// How long it is kept once it is completed, or its lease is over.
    pub ttl_ms: i64,
    pub completed_at_ms: Option<i64>,
    /// What the job came to, or the value.
    pub result: Option<ClaimResult>,
    /// From this time on nothing is there, and purge removes it. `None`: never.
    pub ends_ms: Option<i64>,
}

impl Claim {
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms)
    }

    /// Held by somebody whose lease is over.
    pub fn is_abandoned(&self, now_ms: i64) -> bool {
        self.state == ClaimState::Held && self.lease_until_ms <= now_ms
    }

    /// As lists show it.
    pub fn shown(&self, now_ms: i64) -> ShownState {
        match self.state {
            ClaimState::Held if self.is_abandoned(now_ms) => ShownState::Abandoned,
            ClaimState::Held => ShownState::Held,
            ClaimState::Completed => ShownState::Completed,
            ClaimState::Value => ShownState::Value,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    Held,
    Completed,
    /// No job: a value with an end, as the Redis door keeps them.
    Value,
}

impl ClaimState {
    pub const ALL: [ClaimState; 3] = [ClaimState::Held, ClaimState::Completed, ClaimState::Value];

    /// As engines write it down.
    pub fn code(self) -> i16 {
        match self {
            ClaimState::Held => 0,
            ClaimState::Completed => 1,
            ClaimState::Value => 2,
        }
    }

    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| i64::from(state.code()) == code)
    }
}

/// A state as lists show it: a held claim is abandoned once its lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownState {
    Held,
    Abandoned,
    Completed,
    Value,
}

impl ShownState {
    pub const ALL: [ShownState; 4] = [ShownState::Held, ShownState::Abandoned, ShownState::Completed, ShownState::Value];

    pub fn name(self) -> &'static str {
        match self {
            ShownState::Held => "held",
            ShownState::Abandoned => "abandoned",
            ShownState::Completed => "completed",
            ShownState::Value => "value",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// What becomes of a claim whose holder's lease is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAbandoned {
    /// The next caller gets it.
    #[default]
    Takeover,
    /// It waits for a person: in doubt, do not pay twice.
    Hold,
}

impl OnAbandoned {
    pub fn name(self) -> &'static str {
        match self {
            OnAbandoned::Takeover => "takeover",
            OnAbandoned::Hold => "hold",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [OnAbandoned::Takeover, OnAbandoned::Hold].into_iter().find(|known| known.name() == name)
    }
}

/// What a job came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimResult {
    /// `None`: JSON, or for a value nothing in particular.
    pub content_type: Option<String>,
    pub bytes: Bytes,
}

/// What can be asked of one key. Each is one atomic step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOp {
    /// Takes the key, if nobody has it. Asked again with the holder's own token it is still the holder's.
    Claim {
        /// Made by the caller: 128 bits that nobody guesses, as hex.
        token: String,
        ttl_ms: i64,
        lease_ms: i64,
        fingerprint: Option<String>,
        on_abandoned: OnAbandoned,
        holder: Option<String>,
    },
    /// Ends the job; the same completion once more is still done.
    Complete { token: String, result: Option<ClaimResult>, keep_ms: Option<i64> },
    /// The heartbeat: the lease ends so long from now.
    Extend { token: String, lease_ms: i64 },
    /// Gives the key up; the next claim begins anew.
    Release { token: String },
    /// Removes whatever is there; for admins.
    Delete,

    /// Puts a value. What was there is told if `tell` says so; else only whether there was anything: it may be long, and there may be many.
    Set { value: Bytes, condition: Condition, ends: Ends, tell: bool },
    /// The value, and how long it still lasts.
    Get,
    /// Changes the end of a value.
    Expire { ends: Ends },
    /// .. if it is this value.
    ExpireIfEquals { value: Bytes, ends: Ends },
    /// Removes a value if it is this one.
    DeleteIfEquals { value: Bytes },
    /// Removes a value.
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// When a value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// As it is; never, where nothing was there.
    Keep,
    Never,
    /// At a time, in milliseconds since 1970. One that has passed removes the value.
    At(i64),
    /// So long from now.
    In(i64),
    /// So much later than it does; nothing is changed where it never does.
    Plus(i64),
}

/// What became of a [`ClaimOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// It is the caller's now.
    Claimed {
        token: String,
        fence: u64,
        lease_until_ms: i64,
        previous: Previous,
    },
    /// The job was done before.
    Completed {
        result: Option<ClaimResult>,
        completed_at_ms: i64,
    },
    /// Somebody is at it.
    InProgress {
        lease_until_ms: i64,
    },
    /// Its holder went away, and it waits for a person.
    HeldForPerson {
        lease_until_ms: i64,
    },
    /// The key stands for another request.
    FingerprintMismatch,
    /// Completed.
    Done {
        completed_at_ms: i64,
        ends_ms: Option<i64>,
    },
    Extended {
        lease_until_ms: i64,
    },
    Released,
    /// The token is not the holder's, or not any more.
    Lost,
    /// Of `Delete`, `Remove` and `DeleteIfEquals`: whether anything went.
    Removed(bool),
    /// Of `Set`, with what was there before; empty unless it was to be told.
    Set {
        previous: Option<Bytes>,
    },
    /// The condition of `Set` was not met; with what is there, empty likewise.
    NotSet {
        found: Option<Bytes>,
    },
    /// Of `Get`.
    Value(Option<ValueLeft>),
    /// Of `Expire` and `ExpireIfEquals`: whether there was such a value.
    Expiring(bool),
    /// A value was asked for where there is a claim.
    WrongKind,
    /// There are as many claims as there may be.
    NoRoom,
}

/// A value, and how long it lasts; `None`: for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLeft {
    pub value: Bytes,
    pub left_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    None,
    /// The holder before went away without a word: part of the job may have been done.
    Abandoned,
}

/// What cannot be asked, and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadClaim {
    #[error("`scope` has {bytes} bytes; give it 1 to {CLAIM_SCOPE_MAX_BYTES}, without control characters")]
    Scope { bytes: usize },
    #[error("`key` has {bytes} bytes; give it 1 to {CLAIM_KEY_MAX_BYTES}, or use a hash of what you have")]
    Key { bytes: usize },
    #[error("`{field}` has {bytes} bytes; at most {most} are kept")]
    TooLong { field: &'static str, bytes: usize, most: usize },
    #[error("`{field}` is {}; give it more than 0 and at most {}", write_ms(*given_ms), write_ms(*most_ms))]
    Time { field: &'static str, given_ms: i64, most_ms: i64 },
}

impl ClaimOp {
    /// Refuses what is too long, in every engine alike.
    pub fn check(&self) -> Result<(), BadClaim> {
        match self {
            ClaimOp::Claim { token, ttl_ms, lease_ms, fingerprint, holder, .. } => {
                within("token", token.len(), CLAIM_TOKEN_MAX_BYTES)?;
                within("fingerprint", fingerprint.as_ref().map_or(0, String::len), CLAIM_FINGERPRINT_MAX_BYTES)?;
                within("holder", holder.as_ref().map_or(0, String::len), CLAIM_HOLDER_MAX_BYTES)?;
                lasts("ttl", *ttl_ms, CLAIM_KEEP_MAX_MS)?;
                lasts("lease", *lease_ms, CLAIM_LEASE_MAX_MS)
            }
            ClaimOp::Complete { token, result, keep_ms } => {
                within("token", token.len(), CLAIM_TOKEN_MAX_BYTES)?;
                if let Some(ClaimResult { content_type, bytes }) = result {
                    within("result", bytes.len(), CLAIM_RESULT_MAX_BYTES)?;
                    within("content_type", content_type.as_ref().map_or(0, String::len), CLAIM_TYPE_MAX_BYTES)?;
                }
                keep_ms.map_or(Ok(()), |keep_ms| lasts("keep", keep_ms, CLAIM_KEEP_MAX_MS))
            }
            ClaimOp::Extend { token, lease_ms } => {
                within("token", token.len(), CLAIM_TOKEN_MAX_BYTES)?;
                lasts("lease", *lease_ms, CLAIM_LEASE_MAX_MS)
            }
            ClaimOp::Release { token } => within("token", token.len(), CLAIM_TOKEN_MAX_BYTES),
            ClaimOp::Set { value, .. } => within("value", value.len(), CLAIM_RESULT_MAX_BYTES),
            ClaimOp::Delete
            | ClaimOp::Get
            | ClaimOp::Expire { .. }
            | ClaimOp::ExpireIfEquals { .. }
            | ClaimOp::DeleteIfEquals { .. }
            | ClaimOp::Remove => Ok(()),
        }
    }

    /// Whether it may add to the number of claims.
    pub fn may_add(&self) -> bool {
        matches!(self, ClaimOp::Claim { .. } | ClaimOp::Set { .. })
    }

    /// How much it carries.
    pub fn bytes(&self) -> usize {
        match self {
            ClaimOp::Complete { result: Some(result), .. } => result.bytes.len(),
            ClaimOp::Set { value, .. } => value.len(),
            _ => 0,
        }
    }
}

fn within(field: &'static str, bytes: usize, most: usize) -> Result<(), BadClaim> {
    if bytes <= most { Ok(()) } else { Err(BadClaim::TooLong { field, bytes, most }) }
}

fn lasts(field: &'static str, given_ms: i64, most_ms: i64) -> Result<(), BadClaim> {
    if (1..=most_ms).contains(&given_ms) { Ok(()) } else { Err(BadClaim::Time { field, given_ms, most_ms }) }
}
