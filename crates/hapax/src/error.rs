//! What can go wrong with a claim.

use hapax_store::StoreError;

/// Why a key was not claimed, or a claim not ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address names no store; the text says what to write.
    #[error("{0}")]
    BadUrl(String),
    /// Another caller is at work. With [`ClaimStore::wait`](crate::ClaimStore::wait) it is waited for.
    #[error("another caller is at work on this key")]
    InProgress {
        /// When its lease ends unless it extends it, in milliseconds since 1970 by the store's clock.
        lease_until_ms: i64,
    },
    /// The last holder went away and said [`OnAbandoned::Hold`](crate::OnAbandoned::Hold).
    #[error("the last holder of this key went away in mid-job; it waits until a person releases it")]
    Held,
    /// The key was claimed before, with another fingerprint.
    #[error("this key was used before, for something else")]
    FingerprintMismatch,
    /// Another caller has taken over: what was done since does not count.
    #[error("the claim was taken over by another caller")]
    Lost,
    /// The store keeps as many claims as it may.
    #[error("the store has no room for another claim until some have ended")]
    NoRoom,
    /// The job ran and its claim is completed, but without its result: that was too large, or is no JSON.
    #[error("the job ran, but its result was not stored: {0}")]
    ResultNotKept(String),
    /// The job was done before, and what is stored of it does not read as the type asked for.
    #[error("the stored result does not read as what was asked for: {0}")]
    ResultUnreadable(#[source] serde_json::Error),
    /// The store could not do its job, or refused a key that is too long.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// True when the same call may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            Error::InProgress { .. } | Error::NoRoom => true,
            Error::Store(error) => error.retryable(),
            _ => false,
        }
    }
}

/// Why [`ClaimStore::once`](crate::ClaimStore::once) has no result.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<E> {
    /// The job failed with this. Its key was released: the next caller runs it again.
    #[error("{0}")]
    Job(E),
    /// The job was not run, or its end not recorded.
    #[error(transparent)]
    Claim(#[from] Error),
}
