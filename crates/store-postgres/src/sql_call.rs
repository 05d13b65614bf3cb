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

/// The same writes as fewer statements: each costs the server and us as much as writing a few rows. What writes to the same table twice stays
/// apart, since the parts of a statement do not see each other.
///
/// The server runs the statement behind `WITH` first, and then those within it, the last first: so the tables are written in the order given,
/// which is that of everybody's locks.
pub(super) fn together(asks: Vec<SqlCall<'_>>) -> Vec<SqlCall<'_>> {
    let mut groups: Vec<Vec<SqlCall<'_>>> = Vec::new();
    for ask in asks {
        let fits = |group: &&mut Vec<SqlCall<'_>>| group.iter().all(|other| written_by(&other.sql) != written_by(&ask.sql));
        match groups.last_mut().filter(fits) {
            Some(group) => group.push(ask),
            None => groups.push(vec![ask]),
        }
    }
    groups.into_iter().map(joined).collect()
}

fn joined(group: Vec<SqlCall<'_>>) -> SqlCall<'_> {
    let mut asks = group.into_iter();
    let Some(mut first) = asks.next() else { return SqlCall::new("SELECT 1", Vec::new()) };
    let mut beside = Vec::new();
    for (at, ask) in asks.enumerate() {
        beside.push(format!("w{at} AS ({})", renumbered(&ask.sql, first.params.len())));
        first.params.extend(ask.params);
    }
    if !beside.is_empty() {
        beside.reverse();
        first.sql = format!("WITH {} {}", beside.join(", "), first.sql).into();
    }
    first
}

/// The table that a statement writes to.
fn written_by(sql: &str) -> Option<&str> {
    sql.split_ascii_whitespace().find(|word| word.starts_with("hapax_"))
}

/// The statement with parameters that begin behind so many others.
fn renumbered(sql: &str, behind: usize) -> String {
    let mut parts = sql.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: usize = part[..digits].parse().unwrap_or_default();
        text.push_str(&format!("${}{}", number + behind, &part[digits..]));
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(sql: &'static str, params: usize) -> SqlCall<'static> {
        SqlCall::new(sql, (0..params).map(|n| Box::new(n as i64) as Param<'static>).collect())
    }

    #[test]
    fn writes_to_different_tables_become_one_statement_and_keep_their_parameters() {
        let asks = vec![
            ask("INSERT INTO hapax_lanes SELECT $1, $2", 2),
            ask("UPDATE hapax_threads AS t SET a = $1 WHERE b = $12", 12),
            ask("DELETE FROM hapax_items WHERE number = $1", 1),
            ask("UPDATE hapax_lanes AS t SET a = $1", 1),
        ];
        let whole = together(asks);
        let told: Vec<(&str, usize)> = whole.iter().map(|ask| (&*ask.sql, ask.params.len())).collect();
        let first = "WITH w1 AS (DELETE FROM hapax_items WHERE number = $15), \
                     w0 AS (UPDATE hapax_threads AS t SET a = $3 WHERE b = $14) INSERT INTO hapax_lanes SELECT $1, $2";
        assert_eq!(told, [(first, 15), ("UPDATE hapax_lanes AS t SET a = $1", 1)]);
    }
}
