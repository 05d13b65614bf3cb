//! Pieces of files that are to be sent. Each is written in a transaction of its own, between those that accepts share, and few of them stand in
//! the writer's line at once: an upload holds a webhook up for as long as one piece takes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_store::moving::Dumped;
use hapax_store::pieces::{Piece, channel_of};
use hapax_store::{After, Moved, Pieces, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::export::rows;
use super::writer::{StepError, Writer};

/// Pieces that may stand in the writer's line.
pub(super) const IN_LINE: usize = 2;
/// Pieces of a file that are removed in one transaction.
const DROPPED: i64 = 16;

const PUT: &str = "INSERT INTO pieces VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (name, n) DO UPDATE SET ends = excluded.ends, size = excluded.size, bytes = excluded.bytes";

#[async_trait]
impl Pieces for SqliteStore {
    async fn put_piece(&self, name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> Result<(), StoreError> {
        self.write_piece(name, n, bytes, keep_ms).await
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        let name = name.to_owned();
        self.read("reading a piece of a file", move |db| read(db, &name, n)).await
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        self.remove_pieces(name).await
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.read("counting pieces", held).await
    }
}

impl SqliteStore {
    pub(super) async fn write_piece(&self, name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> Result<(), StoreError> {
        // Of no time yet: the writer has it.
        let piece = Piece::new(name, n, bytes, keep_ms, 0)?;
        self.write_alone("keeping a piece of a file", move |writer| {
            if !writer.disk.has_room() {
                return Err(StepError::Refused(StoreError::Full { floor_mb: writer.disk.floor_mb() }));
            }
            writer.put_piece(&Piece { ends_ms: writer.now_ms + piece.ends_ms + writer.lag_ms(), ..piece })
        })
        .await
    }

    pub(super) async fn remove_pieces(&self, name: &str) -> Result<(), StoreError> {
        loop {
            let name = name.to_owned();
            let some = "DELETE FROM pieces WHERE rowid IN (SELECT rowid FROM pieces WHERE name = ?1 LIMIT ?2)";
            let removed = self.write_alone("removing pieces of a file", move |writer| {
                Ok(writer.db.prepare_cached(some)?.execute(params![name, DROPPED])?)
            });
            if removed.await? < DROPPED as usize {
                return Ok(());
            }
        }
    }
}

impl Writer {
    pub(super) fn put_piece(&mut self, piece: &Piece) -> Result<(), StepError> {
        let Piece { name, n, ends_ms, bytes } = piece;
        self.db.prepare_cached(PUT)?.execute(params![name, n, ends_ms, bytes.len() as i64, &bytes[..]])?;
        Ok(())
    }

    /// Removes at most `max` whose time is over; gives how many.
    pub(super) fn purge_pieces(&mut self, max: usize) -> rusqlite::Result<usize> {
        let over = "DELETE FROM pieces WHERE rowid IN (SELECT rowid FROM pieces WHERE ends <= ?1 ORDER BY ends LIMIT ?2)";
        self.db.prepare_cached(over)?.execute(params![self.now_ms, max as i64])
    }
}

pub(super) fn read(db: &Connection, name: &str, n: u32) -> rusqlite::Result<Option<Bytes>> {
    let mut select = db.prepare_cached("SELECT bytes FROM pieces WHERE name = ?1 AND n = ?2")?;
    select.query_row(params![name, n], |row| Ok(row.get::<_, Vec<u8>>(0)?.into())).optional()
}

pub(super) fn held(db: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut select = db.prepare_cached("SELECT name, size FROM pieces INDEXED BY pieces_end")?;
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    let mut pieces = select.query([])?;
    while let Some(row) = pieces.next()? {
        let size: i64 = row.get(1)?;
        *held.entry(channel_of(row.get_ref(0)?.as_str()?).to_owned()).or_default() += size.cast_unsigned();
    }
    Ok(held.into_iter().collect())
}

pub(super) fn dump(db: &Connection, after: Option<&After>, limit: usize) -> rusqlite::Result<Dumped> {
    let (name, n) = match after {
        Some(After::Piece(name, n)) => (name.as_str(), i64::from(*n)),
        _ => ("", -1),
    };
    let page = "SELECT name, n, ends, bytes FROM pieces WHERE (name, n) > (?1, ?2) ORDER BY name, n LIMIT ?3";
    rows(db, page, params![name, n, limit as i64], limit, |row| {
        let (name, n, ends_ms): (String, u32, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let bytes = row.get::<_, Vec<u8>>(3)?.into();
        Ok((Moved::Piece(Piece { name: name.clone(), n, ends_ms, bytes }), After::Piece(name, n)))
    })
}
