//! What engines have in common about claims.

use hapax_domain::claim::{ClaimKey, ClaimOp, ClaimState, ShownState};

use crate::StoreError;
use crate::steps::records::ClaimRec;

/// Which claims to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct ClaimQuery {
    pub scope: Option<String>,
    /// The beginning of the key.
    pub prefix: Option<String>,
    pub state: Option<ShownState>,
    /// The fence of the last row of the page before.
    pub before: Option<u64>,
    pub limit: usize,
}

/// How many claims there are; those that are over count until they are purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimCounts {
    pub held: u64,
    pub abandoned: u64,
    pub completed: u64,
    pub values: u64,
}

impl ClaimCounts {
    pub fn all(&self) -> u64 {
        self.held + self.abandoned + self.completed + self.values
    }

    pub fn add(&mut self, state: ShownState, count: u64) {
        match state {
            ShownState::Held => self.held += count,
            ShownState::Abandoned => self.abandoned += count,
            ShownState::Completed => self.completed += count,
            ShownState::Value => self.values += count,
        }
    }
}

/// Refuses what is too long, in every engine alike.
pub fn check(ops: &[(ClaimKey, ClaimOp)]) -> Result<(), StoreError> {
    let refused = |bad: hapax_domain::claim::BadClaim| StoreError::Refused(bad.to_string());
    ops.iter().try_for_each(|(key, op)| key.check().and_then(|()| op.check())).map_err(refused)
}

/// The token in the place of one that was let go. No caller's is as short.
pub const GONE: &str = "gone";

impl ClaimRec {
    /// What is left of it for a while once it was let go: its fence. Who drew a number before, and looks at the key only now, sees that it
    /// is too low. To a version that knows of none, it is a value that is over.
    pub fn gone(&self, now_ms: i64) -> Self {
        Self {
            state: ClaimState::Value,
            token: GONE.to_owned(),
            fingerprint: None,
            hold: false,
            holder: None,
            claimed_ms: now_ms,
            lease_ms: 0,
            until_ms: now_ms,
            ttl_ms: 0,
            completed_ms: None,
            ends_ms: Some(now_ms),
            result_bytes: 0,
            result: None,
            ..self.clone()
        }
    }

    /// Nothing is there but a fence.
    pub fn is_gone(&self) -> bool {
        self.state == ClaimState::Value && self.token == GONE
    }
}
