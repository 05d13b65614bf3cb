//! Claims: lists, counts and purge. What becomes of one is decided in the steps.

use std::fmt::Write as _;

use deadpool_postgres::ClientWrapper;
use hapax_domain::claim::ShownState;
use hapax_domain::limits::CLAIM_GONE_KEPT_MS;
use hapax_store::claims::GONE;
use hapax_store::steps::records::ClaimRec;
use hapax_store::{ClaimCounts, ClaimQuery};

use super::failure::Failure;
use super::rows::{Fields, Param, plain_columns, read_all};
use super::sql_call::{SqlCall, run_one};
use super::texts::escape;

pub(super) async fn list(
    client: &ClientWrapper,
    query: &ClaimQuery,
    now_ms: i64,
    limit: usize,
) -> Result<Vec<ClaimRec>, Failure> {
    let mut sql =
        format!("SELECT {} FROM hapax_claims WHERE (ends_ms IS NULL OR ends_ms > $1::int8)", plain_columns::<ClaimRec>(""));
    let mut params: Vec<Param<'_>> = vec![Box::new(now_ms)];
    let mut and = |condition: &str, param: Param<'static>| {
        params.push(param);
        // Writing to a text cannot fail.
        let _ = write!(sql, " AND {}", condition.replace('?', &format!("${}", params.len())));
    };
    if let Some(scope) = &query.scope {
        and("scope = ?::text", Box::new(escape(scope).into_owned()));
    }
    if let Some(prefix) = &query.prefix {
        and("starts_with(key, ?::text)", Box::new(escape(prefix).into_owned()));
    }
    if let Some(before) = query.before {
        and("fence < ?::int8", Box::new(before as i64));
    }
    match query.state {
        Some(ShownState::Held) => sql.push_str(" AND state = 0 AND until_ms > $1::int8"),
        Some(ShownState::Abandoned) => sql.push_str(" AND state = 0 AND until_ms <= $1::int8"),
        Some(ShownState::Completed) => sql.push_str(" AND state = 1"),
        Some(ShownState::Value) => sql.push_str(" AND state = 2"),
        None => {}
    }
    let _ = write!(sql, " ORDER BY fence DESC LIMIT {limit}");
    read_all(&run_one(client, SqlCall::new(sql, params)).await?)
}

const COUNTS: &str = "SELECT count(*) FILTER (WHERE state = 0 AND until_ms > $1::int8), count(*) FILTER (WHERE state = 0 AND until_ms <= $1::int8),
    count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2 AND token = '') FROM hapax_claims";

pub(super) async fn counts(client: &ClientWrapper, now_ms: i64) -> Result<ClaimCounts, Failure> {
    let rows = run_one(client, SqlCall::new(COUNTS, vec![Box::new(now_ms)])).await?;
    let Some(row) = rows.first() else { return Ok(ClaimCounts::default()) };
    let mut fields = Fields::new(row);
    Ok(ClaimCounts { held: fields.number()?, abandoned: fields.number()?, completed: fields.number()?, values: fields.number()? })
}

/// Whoever has one locked is about to claim it anew. The fences of those that were let go are kept until `$3`.
const PURGE: &str = "DELETE FROM hapax_claims WHERE hash IN
    (SELECT hash FROM hapax_claims WHERE ends_ms <= $1::int8 AND (token <> $4::text OR ends_ms <= $3::int8)
     ORDER BY ends_ms LIMIT $2::int8 FOR UPDATE SKIP LOCKED) RETURNING 1";

pub(super) async fn purge(client: &ClientWrapper, max: usize, now_ms: i64) -> Result<u64, Failure> {
    let gone_ms = now_ms - CLAIM_GONE_KEPT_MS;
    let over = SqlCall::new(PURGE, vec![Box::new(now_ms), Box::new(max as i64), Box::new(gone_ms), Box::new(GONE)]);
    Ok(run_one(client, over).await?.len() as u64)
}
