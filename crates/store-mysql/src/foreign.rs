//! Rows of somebody else's table, for `hapax import-seen`.

use hapax_store::StoreError;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row, Value};
use tokio::sync::mpsc;

use super::open;

/// Nothing of theirs is changed, whatever the query says.
const ONLY_READS: &str = "SET NAMES utf8mb4; SET SESSION TRANSACTION READ ONLY";

/// Hands out what a query finds, each row as the texts of its columns, until all is read or nobody takes it any more.
pub async fn read_rows(address: &str, query: &str, rows: mpsc::Sender<Vec<String>>) -> Result<(), StoreError> {
    let mut conn = Conn::new(open::read_address(address)?).await.map_err(failed)?;
    conn.query_drop(ONLY_READS).await.map_err(failed)?;
    let mut answer = conn.query_iter(query).await.map_err(failed)?;
    while let Some(row) = answer.next().await.map_err(failed)? {
        if rows.send(texts(row)?).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn texts(mut row: Row) -> Result<Vec<String>, StoreError> {
    let text = |value: Value| match value {
        Value::NULL => Ok(String::new()),
        Value::Bytes(bytes) => String::from_utf8(bytes).map_err(|_| "a column is not text; give it as HEX or CAST it"),
        // Only what was prepared comes otherwise.
        _ => Err("a column is not text"),
    };
    let refused = |why: &str| StoreError::Refused(format!("MySQL: {why}"));
    (0..row.len()).map(|column| text(row.take(column).unwrap_or(Value::NULL)).map_err(refused)).collect()
}

/// In the server's own words, where it has any.
fn failed(error: Error) -> StoreError {
    let why = match &error {
        Error::Server(said) => said.message.clone(),
        other => other.to_string(),
    };
    StoreError::Refused(format!("MySQL: {why}"))
}
