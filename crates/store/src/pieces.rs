//! What engines have in common about pieces of files.

use bytes::Bytes;
use hapax_domain::limits::{KEEP_MAX_MS, PIECE_MAX_BYTES, PIECES_PURGED_MAX, REGISTER_NAME_MAX_BYTES};

use crate::StoreError;

/// One piece, and how long it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub name: String,
    pub n: u32,
    pub ends_ms: i64,
    pub bytes: Bytes,
}

impl Piece {
    /// Refuses what is too long, in every engine alike.
    pub fn new(name: &str, n: u32, bytes: Bytes, keep_ms: i64, now_ms: i64) -> Result<Self, StoreError> {
        if name.len() > REGISTER_NAME_MAX_BYTES {
            return Err(StoreError::Refused(format!("the name of a file's pieces has at most {REGISTER_NAME_MAX_BYTES} bytes")));
        }
        if bytes.len() > PIECE_MAX_BYTES {
            return Err(StoreError::Refused(format!("a piece of a file has at most {PIECE_MAX_BYTES} bytes")));
        }
        Ok(Self { name: name.to_owned(), n, ends_ms: now_ms + keep_ms.clamp(0, KEEP_MAX_MS), bytes })
    }

    pub fn channel(&self) -> &str {
        channel_of(&self.name)
    }
}

/// The channel that pieces of this name are of.
pub fn channel_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(channel, _)| channel)
}

/// How many pieces a purge step of `max` removes: they are large.
pub fn purged_at_once(max: usize) -> usize {
    max.clamp(1, PIECES_PURGED_MAX)
}
