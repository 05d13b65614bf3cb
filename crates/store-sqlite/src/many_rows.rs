//! Rows that come into a table together: a statement costs about as much as the row that it writes, so one writes many.

use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, ToSql, params_from_iter};

/// Rows of one statement, and of those for what is left over.
const AT_ONCE: [usize; 6] = [32, 16, 8, 4, 2, 1];

/// How rows are written: a statement for each number of rows.
pub(super) struct Insert([String; AT_ONCE.len()]);

impl Insert {
    /// `INSERT INTO .. VALUES`, the places of one row in brackets, and what follows.
    pub(super) fn new(into: &str, row: &str, then: &str) -> Self {
        Self(AT_ONCE.map(|at_once| format!("{into} {} {then}", vec![row; at_once].join(", "))))
    }
}

/// The places of a statement, filled from the first on.
pub(super) struct Places<'s, 'd> {
    statement: &'s mut CachedStatement<'d>,
    filled: usize,
}

impl Places<'_, '_> {
    pub(super) fn put(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.filled += 1;
        self.statement.raw_bind_parameter(self.filled, value)
    }
}

/// Writes all rows, in their order; `fill` puts what is in one into its places. Gives how many were written.
///
/// A plain `INSERT` of several rows copies each page that it changes, to take itself back if it fails half way. Nothing here needs that, since what
/// fails is rolled back with all of its batch: `INSERT OR FAIL` does without.
pub(super) fn insert_rows<R>(
    db: &Connection,
    insert: &Insert,
    rows: &[R],
    fill: impl Fn(&R, &mut Places<'_, '_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<usize> {
    let (mut left, mut written) = (rows, 0);
    for (at_once, sql) in AT_ONCE.into_iter().zip(&insert.0) {
        if left.len() < at_once {
            continue;
        }
        let mut statement = db.prepare_cached(sql)?;
        while let Some((some, later)) = left.split_at_checked(at_once) {
            let mut places = Places { statement: &mut statement, filled: 0 };
            some.iter().try_for_each(|row| fill(row, &mut places))?;
            written += statement.raw_execute()?;
            left = later;
        }
    }
    Ok(written)
}

/// Does something to the rows with these numbers, `first` being the value of what is asked for before them; leaves none in `numbers`.
pub(super) fn on_all(db: &Connection, what: &str, first: Option<i64>, numbers: &mut Vec<i64>) -> rusqlite::Result<()> {
    let mut left = numbers.as_slice();
    for at_once in AT_ONCE {
        if left.len() < at_once {
            continue;
        }
        let mut statement = db.prepare_cached(&format!("{what} ({})", vec!["?"; at_once].join(", ")))?;
        while let Some((some, later)) = left.split_at_checked(at_once) {
            statement.execute(params_from_iter(first.iter().chain(some).copied().map(Value::Integer)))?;
            left = later;
        }
    }
    numbers.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_written_once_however_many_there_are() {
        let db = Connection::open_in_memory().expect("a database");
        for many in [0, 1, 7, 8, 31, 32, 33, 107] {
            db.execute_batch("DROP TABLE IF EXISTS t; CREATE TABLE t (n INTEGER PRIMARY KEY, name TEXT, fixed INTEGER)")
                .expect("a table");
            let insert = Insert::new("INSERT INTO t VALUES", "(?, ?, 7)", "ON CONFLICT DO NOTHING");
            let rows: Vec<i64> = (0..many).collect();
            insert_rows(&db, &insert, &rows, |n, places| {
                places.put(n)?;
                places.put(n.to_string())
            })
            .expect("written");
            let count = "SELECT count(*) FROM t WHERE name = CAST(n AS TEXT) AND fixed = 7";
            assert_eq!(db.query_row(count, [], |row| row.get::<_, i64>(0)).expect("a count"), many);
        }
    }

    #[test]
    fn something_is_done_to_each_of_them_and_to_no_other() {
        let db = Connection::open_in_memory().expect("a database");
        for many in [0, 1, 3, 32, 75] {
            db.execute_batch("DROP TABLE IF EXISTS t; CREATE TABLE t (n INTEGER PRIMARY KEY, k INTEGER)").expect("a table");
            db.execute_batch("WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 200) INSERT INTO t SELECT n, 0 FROM c")
                .expect("rows");
            let mut numbers: Vec<i64> = (1..=many).map(|n| n * 2).collect();
            on_all(&db, "UPDATE t SET k = ? WHERE n IN", Some(7), &mut numbers).expect("written");
            let count = "SELECT count(*) FROM t WHERE k = 7 AND n % 2 = 0";
            assert_eq!(db.query_row(count, [], |row| row.get::<_, i64>(0)).expect("a count"), many);
            assert!(numbers.is_empty());
        }
    }
}
