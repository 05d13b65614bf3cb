//! Named values that are changed only as they were seen, some of them for a time.

use async_trait::async_trait;
use hapax_store::registers::{Register, check};
use hapax_store::{Registers, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::pending::Reach;
use super::writer::{StepError, Writer};

const LOOK: &str = "SELECT value FROM registers WHERE name = ?1 AND (ends IS NULL OR ends > ?2)";
const PUT: &str =
    "INSERT INTO registers VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET ends = excluded.ends, value = excluded.value";

#[async_trait]
impl Registers for SqliteStore {
    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        Ok(self.amend(name, None, Some(value), None).await?.unwrap_or_default())
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let keep_ms = check(name, new, keep_ms)?;
        let (name, expected, new) = (name.to_owned(), expected.map(str::to_owned), new.map(str::to_owned));
        self.write_with(Reach::Own, "amending a register", true, move |writer| writer.amend(&name, expected, new, keep_ms)).await
    }
}

impl Writer {
    pub(super) fn amend(
        &mut self,
        name: &str,
        expected: Option<String>,
        new: Option<String>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StepError> {
        let mut look = self.db.prepare_cached(LOOK)?;
        let found: Option<String> = look.query_row(params![name, self.now_ms], |row| row.get(0)).optional()?;
        if found != expected {
            return Ok(found);
        }
        match &new {
            Some(new) => {
                let ends = keep_ms.map(|keep_ms| self.now_ms + keep_ms + self.lag_ms());
                self.db.prepare_cached(PUT)?.execute(params![name, ends, new])?;
            }
            None if found.is_some() => {
                self.db.prepare_cached("DELETE FROM registers WHERE name = ?1")?.execute([name])?;
            }
            None => {}
        }
        Ok(new)
    }

    /// Puts one as it was in another store.
    pub(super) fn put_register(&mut self, name: &str, register: &Register) -> Result<(), StepError> {
        self.db.prepare_cached(PUT)?.execute(params![name, register.ends_ms, register.value])?;
        Ok(())
    }

    /// Removes at most `max` that are over; gives how many.
    pub(super) fn purge_registers(&mut self, max: usize) -> rusqlite::Result<usize> {
        let over = "DELETE FROM registers WHERE rowid IN (SELECT rowid FROM registers WHERE ends <= ?1 ORDER BY ends LIMIT ?2)";
        self.db.prepare_cached(over)?.execute(params![self.now_ms, max as i64])
    }
}

pub(super) fn is_there(db: &Connection, name: &str) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM registers WHERE name = ?1")?.exists([name])
}

/// Name, end and value.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<(String, Register)> {
    Ok((row.get(0)?, Register { ends_ms: row.get(1)?, value: row.get(2)? }))
}
