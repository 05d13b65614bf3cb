//! What engines have in common about registers: named values that are changed only as they were seen, some of them for a time.

use hapax_domain::limits::{KEEP_MAX_MS, REGISTER_MAX_BYTES, REGISTER_NAME_MAX_BYTES};

use crate::StoreError;

/// What is under a name, and when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    pub value: String,
    /// `None`: never.
    pub ends_ms: Option<i64>,
}

impl Register {
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms)
    }
}

/// Refuses what is too long to be put, in every engine alike; gives how long it is kept.
pub fn check(name: &str, new: Option<&str>, keep_ms: Option<i64>) -> Result<Option<i64>, StoreError> {
    if name.len() > REGISTER_NAME_MAX_BYTES {
        return Err(StoreError::Refused(format!("the name of a register has at most {REGISTER_NAME_MAX_BYTES} bytes")));
    }
    if new.is_some_and(|new| new.len() > REGISTER_MAX_BYTES) {
        return Err(StoreError::Refused(format!("a register holds at most {REGISTER_MAX_BYTES} bytes")));
    }
    Ok(keep_ms.map(|keep_ms| keep_ms.clamp(0, KEEP_MAX_MS)))
}
