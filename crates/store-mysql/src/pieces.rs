//! Pieces of files that are to be sent, a row each.

use bytes::Bytes;
use hapax_store::pieces::Piece;
use hapax_store::steps::records::Hash;
use hapax_store::{After, Moved, StoreError};

use super::MysqlEngine;
use super::registers::setting_hash;
use super::sql::{Raw, Sql};
use super::upkeep::{removed_by, write};

pub(super) async fn put(engine: &MysqlEngine, piece: &Piece) -> Result<(), StoreError> {
    let mut sql = Sql::default();
    sql.add(
        "INSERT INTO hapax_pieces (hash, n, name, channel, expires_ms, size, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE expires_ms = VALUES(expires_ms), size = VALUES(size), bytes = VALUES(bytes)",
        &[
            &setting_hash(&piece.name),
            &piece.n,
            &piece.name,
            &piece.channel(),
            &piece.ends_ms,
            &piece.bytes.len(),
            &&piece.bytes[..],
        ],
    );
    write(engine, sql).await
}

pub(super) async fn read(engine: &MysqlEngine, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
    let mut sql = Sql::default();
    sql.add("SELECT bytes FROM hapax_pieces WHERE hash = ? AND n = ?", &[&setting_hash(name), &n]);
    Ok(engine.ask(sql).await?.read(|fields| fields.next::<Vec<u8>>())?.pop().map(Bytes::from))
}

pub(super) async fn drop_all(engine: &MysqlEngine, name: &str) -> Result<(), StoreError> {
    let mut sql = Sql::default();
    sql.add("DELETE FROM hapax_pieces WHERE hash = ?", &[&setting_hash(name)]);
    write(engine, sql).await
}

pub(super) async fn held(engine: &MysqlEngine) -> Result<Vec<(String, u64)>, StoreError> {
    let mut sql = Sql::default();
    sql.add("SELECT channel, CAST(SUM(size) AS UNSIGNED) FROM hapax_pieces GROUP BY channel ORDER BY channel", &[]);
    engine.ask(sql).await?.read(|fields| Ok((fields.next()?, fields.next()?)))
}

/// Looked up first, and then removed one by one if their time is still over.
pub(super) async fn purge(engine: &MysqlEngine, max: usize) -> Result<u64, StoreError> {
    let now = engine.now();
    let mut sql = Sql::default();
    sql.add("SELECT hash, n FROM hapax_pieces WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?", &[&Raw(&now), &max]);
    let mut over: Vec<(Hash, u32)> = engine.ask(sql).await?.read(|fields| Ok((fields.hash()?, fields.next()?)))?;
    over.sort_unstable();
    let mut removed = 0;
    for (hash, n) in over {
        let mut sql = Sql::default();
        sql.add("DELETE FROM hapax_pieces WHERE hash = ? AND n = ? AND expires_ms <= ?", &[&hash, &n, &Raw(&now)]);
        sql.add("SELECT ROW_COUNT()", &[]);
        removed += removed_by(engine, sql).await?;
    }
    Ok(removed)
}

pub(super) async fn dump(engine: &MysqlEngine, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
    let mut sql = Sql::default();
    let page = |behind: &str| format!("SELECT name, n, expires_ms, bytes FROM hapax_pieces {behind} ORDER BY hash, n LIMIT ?");
    match after {
        Some(After::Piece(name, n)) => {
            let hash = setting_hash(name);
            sql.add(&page("WHERE hash >= ? AND (hash > ? OR n > ?)"), &[&hash, &hash, n, &limit]);
        }
        _ => sql.add(&page(""), &[&limit]),
    }
    engine.ask(sql).await?.read(|fields| {
        let (name, n, ends_ms) = (fields.next()?, fields.next()?, fields.next()?);
        Ok(Moved::Piece(Piece { name, n, ends_ms, bytes: fields.next::<Vec<u8>>()?.into() }))
    })
}
