//! Pieces of files that are to be sent, a row each.

use bytes::Bytes;
use deadpool_postgres::ClientWrapper;
use hapax_store::pieces::Piece;
use hapax_store::{After, Moved};

use super::failure::Failure;
use super::rows::{Fields, Param};
use super::sql_call::{SqlCall, run_one};
use super::texts::escape;

const PUT: &str = "INSERT INTO hapax_pieces (name, n, channel, expires_ms, size, bytes) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (name, n) DO UPDATE SET expires_ms = excluded.expires_ms, size = excluded.size, bytes = excluded.bytes";

pub(super) async fn put(client: &ClientWrapper, piece: &Piece) -> Result<(), Failure> {
    let params: Vec<Param<'_>> = vec![
        Box::new(escape(&piece.name)),
        Box::new(piece.n as i32),
        Box::new(escape(piece.channel())),
        Box::new(piece.ends_ms),
        Box::new(piece.bytes.len() as i64),
        Box::new(&piece.bytes[..]),
    ];
    run_one(client, SqlCall::new(PUT, params)).await.map(|_| ())
}

pub(super) async fn read(client: &ClientWrapper, name: &str, n: u32) -> Result<Option<Bytes>, Failure> {
    let sql = "SELECT bytes FROM hapax_pieces WHERE name = $1 AND n = $2";
    let rows = run_one(client, SqlCall::new(sql, vec![Box::new(escape(name)), Box::new(n as i32)])).await?;
    rows.first().map(|row| Ok(Fields::new(row).take::<Vec<u8>>()?.into())).transpose()
}

pub(super) async fn drop_all(client: &ClientWrapper, name: &str) -> Result<(), Failure> {
    let sql = "DELETE FROM hapax_pieces WHERE name = $1";
    run_one(client, SqlCall::new(sql, vec![Box::new(escape(name))])).await.map(|_| ())
}

pub(super) async fn held(client: &ClientWrapper) -> Result<Vec<(String, u64)>, Failure> {
    let sql = "SELECT channel, sum(size)::int8 FROM hapax_pieces GROUP BY channel ORDER BY channel";
    let read = |row| {
        let mut fields = Fields::new(row);
        Ok((fields.text()?, fields.number()?))
    };
    run_one(client, SqlCall::new(sql, vec![])).await?.iter().map(read).collect()
}

const PURGE: &str = "DELETE FROM hapax_pieces WHERE (name, n) IN
    (SELECT name, n FROM hapax_pieces WHERE expires_ms <= $1::int8 ORDER BY expires_ms LIMIT $2::int8 FOR UPDATE SKIP LOCKED) RETURNING 1";

pub(super) async fn purge(client: &ClientWrapper, max: usize, now_ms: i64) -> Result<u64, Failure> {
    let over = SqlCall::new(PURGE, vec![Box::new(now_ms), Box::new(max as i64)]);
    Ok(run_one(client, over).await?.len() as u64)
}

const PAGE: &str =
    "SELECT name, n, expires_ms, bytes FROM hapax_pieces WHERE (name, n) > ($1::text, $2::int4) ORDER BY name, n LIMIT $3::int8";

pub(super) async fn dump(client: &ClientWrapper, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, Failure> {
    let (name, n) = match after {
        Some(After::Piece(name, n)) => (name.as_str(), *n as i32),
        _ => ("", -1),
    };
    let params: Vec<Param<'_>> = vec![Box::new(escape(name)), Box::new(n), Box::new(limit as i64)];
    let read = |row| {
        let mut fields = Fields::new(row);
        let (name, n, ends_ms) = (fields.text()?, fields.take::<i32>()? as u32, fields.take()?);
        Ok(Moved::Piece(Piece { name, n, ends_ms, bytes: fields.take::<Vec<u8>>()?.into() }))
    };
    run_one(client, SqlCall::new(PAGE, params)).await?.iter().map(read).collect()
}
