//! How a command can end badly, and which exit code says so.

use crate::config::Mistakes;

pub(super) const USAGE: u8 = 2;

/// A command that did not do what it was asked. The words say what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0:#}")]
    Plain(#[from] anyhow::Error),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    BadConfig(#[from] Mistakes),
    #[error("{0}")]
    NoConfig(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    NothingMatched(String),
    /// Ends with this code, as a command that was run did, or would have.
    #[error("{}", why.as_deref().unwrap_or_default())]
    Exit { code: u8, why: Option<String> },
}

impl Failure {
    pub fn plain(words: impl Into<String>) -> Self {
        Failure::Plain(anyhow::Error::msg(words.into()))
    }

    pub fn code(&self) -> u8 {
        match self {
            Failure::Plain(_) => 1,
            Failure::Usage(_) => USAGE,
            Failure::BadConfig(_) | Failure::NoConfig(_) => 3,
            Failure::Unreachable(_) => 4,
            Failure::NothingMatched(_) => 5,
            Failure::Exit { code, .. } => *code,
        }
    }
}
