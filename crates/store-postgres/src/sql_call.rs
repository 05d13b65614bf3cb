//! Statements on their way: prepared once per connection, sent together, answered in order.

use std::borrow::Cow;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::future::join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::failure::Failure;
use super::rows::Param;

/// We stop waiting a moment after the server would have ended the statement by itself.
pub(super) const SILENCE: Duration = Duration::from_secs(6);

/// One statement and its parameters.
pub(super) struct SqlCall<'a> {
    pub(super) sql: Cow<'a, str>,
    pub(super) params: Vec<Param<'a>>,
}

impl<'a> SqlCall<'a> {
    pub(super) fn new(sql: impl Into<Cow<'a, str>>, params: Vec<Param<'a>>) -> Self {
        Self { sql: sql.into(), params }
    }
}

/// Runs statements in one round trip, in this order, and gives back their rows.
///
/// The first failure is the answer: in a transaction those after it fail because of it.
pub(super) async fn run(client: &ClientWrapper, asks: &[SqlCall<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
    in_time(async {
        let statements = prepare(client, asks).await?;
        let answers = join_all(asks.iter().zip(&statements).map(|(ask, statement)| send(client, statement, ask))).await;
        answers.into_iter().collect()
    })
    .await
}

/// Like [`run`], for one statement.
pub(super) async fn run_one(client: &ClientWrapper, ask: SqlCall<'_>) -> Result<Vec<Row>, Failure> {
    Ok(run(client, &[ask]).await?.pop().unwrap_or_default())
}

pub(super) async fn in_time<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(SILENCE, work).await.unwrap_or(Err(Failure::Silent))
}

/// Costs a round trip for a statement that is new to the connection, and nothing later.
pub(super) async fn prepare(client: &ClientWrapper, asks: &[SqlCall<'_>]) -> Result<Vec<Statement>, Failure> {
    let mut statements = Vec::with_capacity(asks.len());
    for ask in asks {
        statements.push(client.prepare_cached(&ask.sql).await?);
    }
    Ok(statements)
}

/// Is on its way when first polled.
pub(super) async fn send(client: &ClientWrapper, statement: &Statement, ask: &SqlCall<'_>) -> Result<Vec<Row>, Failure> {
    let params: Vec<&(dyn ToSql + Sync)> = ask.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect();
    Ok(client.query(statement, &params).await?)
}
