//! Pieces of files that are to be sent: beside the registry, since a name tells no account.

use async_trait::async_trait;
use bytes::Bytes;
use hapax_store::moving::Dumped;
use hapax_store::pieces::Piece;
use hapax_store::{After, Moved, Pieces, StoreError};

use super::RedisStore;
use super::row::{Row, int};
use super::script;

/// Pieces of a file that one call removes.
const DROPPED: usize = 32;

#[async_trait]
impl Pieces for RedisStore {
    async fn put_piece(&self, name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> Result<(), StoreError> {
        self.write_piece(&Piece::new(name, n, bytes, keep_ms, 0)?, true).await
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        self.read_piece(name, n).await
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        self.remove_pieces(name).await
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.count_pieces().await
    }
}

impl RedisStore {
    /// `ends_ms` of the piece is a time, or, where it is new, how long it is kept.
    pub(super) async fn write_piece(&self, piece: &Piece, is_new: bool) -> Result<(), StoreError> {
        let (ends_ms, keep_ms) = if is_new { (None, Some(piece.ends_ms)) } else { (Some(piece.ends_ms), None) };
        let call = self.link.shared_call(&script::PUT_PIECE).arg(&piece.name).arg(piece.n).maybe_int(ends_ms).maybe_int(keep_ms);
        self.link.run_safely("keeping a piece of a file", call.arg(&piece.bytes[..])).await.map(drop)
    }

    pub(super) async fn read_piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        let (root, mut command) = (self.link.shared_root(), redis::cmd("HGET"));
        command.arg(format!("{root}f:{name}")).arg(n);
        let answer = self.link.ask("reading a piece of a file", &root, command).await?;
        Ok(Row::new(redis::Value::Array(vec![answer]))?.maybe_bytes()?.map(Bytes::from))
    }

    pub(super) async fn remove_pieces(&self, name: &str) -> Result<(), StoreError> {
        loop {
            let call = self.link.shared_call(&script::DROP_PIECES).arg(name).arg(DROPPED);
            if int(self.link.run_safely("removing pieces of a file", call).await?)? == 0 {
                return Ok(());
            }
        }
    }

    pub(super) async fn count_pieces(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let (root, mut command) = (self.link.shared_root(), redis::cmd("HGETALL"));
        command.arg(format!("{root}fb:"));
        let mut answer = Row::new(self.link.ask("counting pieces", &root, command).await?)?;
        let mut held = Vec::new();
        while let Some(channel) = answer.maybe_text()? {
            held.push((channel, answer.count()?));
        }
        held.sort();
        Ok(held)
    }

    pub(super) async fn purge_pieces(&self, max: usize) -> Result<bool, StoreError> {
        let call = self.link.shared_call(&script::PURGE_PIECES).arg(max);
        Ok(int(self.link.run("purging pieces", call).await?)? >= max as i64)
    }

    pub(super) async fn dump_pieces(&self, after: Option<&After>, limit: usize) -> Result<Dumped, StoreError> {
        let from = match after {
            Some(After::Number(from)) => *from,
            _ => 0,
        };
        let call = self.link.shared_call(&script::DUMP_PIECES).arg(from).arg(limit);
        let read = |mut row: Row| {
            let (name, n, ends_ms) = (row.text()?, row.small()?, row.int()?);
            Ok(Moved::Piece(Piece { name, n, ends_ms, bytes: row.bytes()? }))
        };
        let answer = Row::new(self.link.run("reading pieces", call).await?)?;
        let pieces: Vec<Moved> = answer.rows().map(|row| read(row?)).collect::<Result<_, StoreError>>()?;
        let (full, next) = (pieces.len() >= limit, from + pieces.len() as u64);
        Ok((pieces, full.then_some(After::Number(next))))
    }
}
