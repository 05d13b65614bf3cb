//! Claims: lists, counts and purge. What becomes of one is decided in the steps.

use hapax_domain::claim::ShownState;
use hapax_domain::limits::CLAIM_GONE_KEPT_MS;
use hapax_store::claims::GONE;
use hapax_store::steps::records::{ClaimRec, Hash};
use hapax_store::{ClaimCounts, ClaimQuery, StoreError};

use super::MysqlEngine;
use super::lists::Select;
use super::rows::InTable;
use super::sql::{List, ROWS_MAX, Raw, Sql};
use super::upkeep::removed_by;

pub(super) async fn list(
    engine: &MysqlEngine,
    query: &ClaimQuery,
    now_ms: i64,
    limit: usize,
) -> Result<Vec<ClaimRec>, StoreError> {
    let mut select = Select::new(ClaimRec::columns(), "hapax_claims FORCE INDEX (by_fence)");
    select.and("(ends_ms IS NULL OR ends_ms > ?)", now_ms);
    // As bytes: a collation may take two texts for one.
    select.and_if("CAST(scope AS BINARY) = ?", query.scope.as_ref().map(|scope| scope.as_bytes()));
    select.and_if("LOCATE(?, CAST(k AS BINARY)) = 1", query.prefix.as_ref().map(|prefix| prefix.as_bytes()));
    select.and_if("fence < ?", query.before);
    match query.state {
        Some(ShownState::Held) => select.and("state = 0 AND until_ms > ?", now_ms),
        Some(ShownState::Abandoned) => select.and("state = 0 AND until_ms <= ?", now_ms),
        Some(ShownState::Completed) => select.and("state = ?", 1_i64),
        Some(ShownState::Value) => select.and("state = ?", 2_i64),
        None => {}
    }
    let mut sql = Sql::default();
    select.into(&mut sql, "fence DESC", limit);
    engine.ask(sql).await?.records()
}

pub(super) async fn counts(engine: &MysqlEngine, now_ms: i64) -> Result<ClaimCounts, StoreError> {
    let mut sql = Sql::default();
    sql.add(
        "SELECT CAST(COALESCE(SUM(state = 0 AND until_ms > ?), 0) AS UNSIGNED),
             CAST(COALESCE(SUM(state = 0 AND until_ms <= ?), 0) AS UNSIGNED), CAST(COALESCE(SUM(state = 1), 0) AS UNSIGNED),
             CAST(COALESCE(SUM(state = 2 AND token = ''), 0) AS UNSIGNED) FROM hapax_claims",
        &[&now_ms, &now_ms],
    );
    engine.ask(sql).await?.one(|fields| {
        Ok(ClaimCounts { held: fields.next()?, abandoned: fields.next()?, completed: fields.next()?, values: fields.next()? })
    })
}

/// Like keys, they are looked up first, and then removed one by one if they are still over.
pub(super) async fn purge(engine: &MysqlEngine, max: usize) -> Result<u64, StoreError> {
    let now = engine.now();
    let (gone, is_over) = (format!("{now} - {CLAIM_GONE_KEPT_MS}"), "ends_ms <= ? AND (token <> ? OR ends_ms <= ?)");
    let (raw_now, raw_gone) = (Raw(&now), Raw(&gone));
    let mut sql = Sql::default();
    let select = format!("SELECT hash FROM hapax_claims WHERE {is_over} ORDER BY ends_ms LIMIT ?");
    sql.add(&select, &[&raw_now, &GONE, &raw_gone, &max]);
    let mut over: Vec<Hash> = engine.ask(sql).await?.read(|fields| fields.hash())?;
    over.sort_unstable();
    let mut removed = 0;
    for some in over.chunks(ROWS_MAX) {
        let mut sql = Sql::default();
        let delete = format!("DELETE FROM hapax_claims WHERE hash IN ? AND {is_over}");
        sql.add(&delete, &[&List(some), &raw_now, &GONE, &raw_gone]);
        sql.add("SELECT ROW_COUNT()", &[]);
        removed += removed_by(engine, sql).await?;
    }
    Ok(removed)
}
