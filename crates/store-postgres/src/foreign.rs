//! Rows of somebody else's table, for `hapax import-seen`.

use std::pin::pin;

use futures_util::TryStreamExt;
use hapax_store::StoreError;
use tokio::sync::mpsc;
use tokio_postgres::{Error, SimpleQueryMessage};

use super::connect::Server;

/// Nothing of theirs is changed, whatever the query says.
const ONLY_READS: &str = "SET default_transaction_read_only = on";

/// Hands out what a query finds, each row as the texts of its columns, until all is read or nobody takes it any more.
pub async fn read_rows(address: &str, query: &str, rows: mpsc::Sender<Vec<String>>) -> Result<(), StoreError> {
    let (client, _driver) = Server::new(address)?.connect(Box::new(|_| ())).await.map_err(failed)?;
    client.batch_execute(ONLY_READS).await.map_err(failed)?;
    let mut answers = pin!(client.simple_query_raw(query).await.map_err(failed)?);
    while let Some(answer) = answers.try_next().await.map_err(failed)? {
        let SimpleQueryMessage::Row(row) = answer else { continue };
        let texts = (0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect();
        if rows.send(texts).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// In the server's own words, where it has any.
fn failed(error: Error) -> StoreError {
    let why = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
    StoreError::Refused(format!("PostgreSQL: {why}"))
}
