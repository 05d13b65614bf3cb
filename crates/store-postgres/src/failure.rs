//! What can go wrong on the way to the server, and what it means for the step.

use deadpool_postgres::PoolError;
use hapax_store::StoreError;
use hapax_store::steps::TxError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// What the server said stands in the source.
    #[error("{}", said(.0))]
    Server(#[from] Error),
    #[error("no connection: {0}")]
    NoConnection(String),
    #[error("the server did not answer in time")]
    Silent,
    #[error("a row that this version cannot read: {0}")]
    Unreadable(&'static str),
    /// The commit's answer was lost, and nobody could be asked what became of it.
    #[error("the connection was lost during a commit, and the server could not be asked whether it was made")]
    InDoubt,
}

fn said(error: &Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Failure::NoConnection(said(&error)),
            other => Failure::NoConnection(other.to_string()),
        }
    }
}

impl Failure {
    fn refusal(&self) -> Option<&DbError> {
        match self {
            Failure::Server(error) => error.as_db_error(),
            _ => None,
        }
    }

    /// The server itself ended the transaction, and goes on with the connection. Everything else leaves open what it did.
    pub(super) fn is_definite(&self) -> bool {
        self.refusal().is_some_and(|db| !matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic) | None))
    }

    /// Another transaction was in the way.
    fn is_collision(&self) -> bool {
        let collisions = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        self.refusal().is_some_and(|db| collisions.contains(db.code()))
    }

    /// Everything may pass, except what the statement or the data itself is to blame for.
    fn is_retryable(&self) -> bool {
        let ours = |db: &DbError| ["0A", "22", "23", "42", "54"].iter().any(|class| db.code().code().starts_with(class));
        match self {
            Failure::Unreadable(_) => false,
            _ => !self.refusal().is_some_and(ours),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        StoreError::Failed { what: "postgres", retryable: failure.is_retryable(), source: Box::new(failure) }
    }
}

impl From<Failure> for TxError {
    fn from(failure: Failure) -> Self {
        match failure.is_collision() {
            true => TxError::Conflict(failure.to_string()),
            false => TxError::Failed(failure.into()),
        }
    }
}
