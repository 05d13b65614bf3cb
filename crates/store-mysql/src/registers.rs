//! Settings, and registers that end after a time. A row that is over is taken for none, and purge removes it.

use hapax_domain::key::KeyHasher;
use hapax_store::StoreError;
use hapax_store::registers::Register;
use hapax_store::steps::records::Hash;

use super::MysqlEngine;
use super::sql::{List, ROWS_MAX, Raw, Sql};
use super::upkeep::{removed_by, write};

pub(super) fn setting_hash(name: &str) -> Hash {
    let mut hasher = KeyHasher::new("setting");
    hasher.part(name.as_bytes());
    hasher.finish()
}

/// Values are compared as bytes: a collation may take two texts for one.
pub(super) async fn amend(
    engine: &MysqlEngine,
    name: &str,
    (expected, new): (Option<&str>, Option<&str>),
    keep_ms: Option<i64>,
) -> Result<Option<String>, StoreError> {
    let (hash, now) = (setting_hash(name), engine.now());
    let (now, ends) = (Raw(&now), keep_ms.map_or_else(|| "NULL".to_owned(), |keep_ms| format!("{now} + {keep_ms}")));
    let (ends, lives) = (Raw(&ends), Raw("(expires_ms IS NULL OR expires_ms > ?)"));
    let mut sql = Sql::default();
    match (expected, new) {
        (None, None) => {}
        // What is over is in nobody's way. The end is assigned last, since the server goes by it until then.
        (None, Some(new)) => sql.add(
            "INSERT INTO hapax_settings (hash, name, value, expires_ms) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE
             value = IF(expires_ms <= ?, VALUES(value), value), expires_ms = IF(expires_ms <= ?, VALUES(expires_ms), expires_ms)",
            &[&hash, &name, &new, &ends, &now, &now],
        ),
        (Some(old), None) => sql.add(
            &format!("DELETE FROM hapax_settings WHERE hash = ? AND CAST(value AS BINARY) = CAST(? AS BINARY) AND {}", lives.0),
            &[&hash, &old, &now],
        ),
        (Some(old), Some(new)) => sql.add(
            &format!(
                "UPDATE hapax_settings SET value = ?, expires_ms = ?
                 WHERE hash = ? AND CAST(value AS BINARY) = CAST(? AS BINARY) AND {}",
                lives.0
            ),
            &[&new, &ends, &hash, &old, &now],
        ),
    }
    // Who has changed it has won, whatever others have made of it since.
    if expected.is_some() || new.is_some() {
        sql.add("SELECT ROW_COUNT()", &[]);
        if removed_by(engine, sql).await? > 0 {
            return Ok(new.map(str::to_owned));
        }
    }
    let mut sql = Sql::default();
    sql.add(&format!("SELECT value FROM hapax_settings WHERE hash = ? AND {}", lives.0), &[&hash, &now]);
    Ok(engine.ask(sql).await?.read(|fields| fields.next())?.pop())
}

pub(super) async fn put(engine: &MysqlEngine, name: &str, register: &Register) -> Result<(), StoreError> {
    let mut sql = Sql::default();
    let put =
        "INSERT INTO hapax_settings (hash, name, value, expires_ms) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE hash = hash";
    sql.add(put, &[&setting_hash(name), &name, &register.value, &register.ends_ms]);
    write(engine, sql).await
}

/// Like keys, they are looked up first, and then removed one by one if they are still over.
pub(super) async fn purge(engine: &MysqlEngine, max: usize) -> Result<u64, StoreError> {
    let now = engine.now();
    let mut sql = Sql::default();
    sql.add("SELECT hash FROM hapax_settings WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?", &[&Raw(&now), &max]);
    let mut over: Vec<Hash> = engine.ask(sql).await?.read(|fields| fields.hash())?;
    over.sort_unstable();
    let mut removed = 0;
    for some in over.chunks(ROWS_MAX) {
        let mut sql = Sql::default();
        sql.add("DELETE FROM hapax_settings WHERE hash IN ? AND expires_ms <= ?", &[&List(some), &Raw(&now)]);
        sql.add("SELECT ROW_COUNT()", &[]);
        removed += removed_by(engine, sql).await?;
    }
    Ok(removed)
}
