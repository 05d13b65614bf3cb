//! Rows that come into a table together: a statement costs about as much as the row that it writes, so one writes many.

use rusqlite::{CachedStatement, Connection, ToSql};

/// Rows of one statement, and of those for what is left over.
const AT_ONCE: [usize; 5] = [32, 8, 4, 2, 1];

/// How rows are written: `INSERT INTO .. VALUES`, the places of one row in brackets, and what follows.
#[derive(Clone, Copy)]
pub(super) struct Insert<'s> {
    pub(super) into: &'s str,
    pub(super) row: &'s str,
    pub(super) then: &'s str,
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

/// Writes all rows, in their order; `fill` puts what is in one into its places.
pub(super) fn insert_rows<R>(
    db: &Connection,
    insert: Insert<'_>,
    rows: &[R],
    fill: impl Fn(&R, &mut Places<'_, '_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut left = rows;
    for at_once in AT_ONCE {
        if left.len() < at_once {
            continue;
        }
        let places = vec![insert.row; at_once].join(", ");
        let mut statement = db.prepare_cached(&format!("{} {places} {}", insert.into, insert.then))?;
        while let Some((some, later)) = left.split_at_checked(at_once) {
            let mut places = Places { statement: &mut statement, filled: 0 };
            some.iter().try_for_each(|row| fill(row, &mut places))?;
            statement.raw_execute()?;
            left = later;
        }
    }
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
            let insert = Insert { into: "INSERT INTO t VALUES", row: "(?, ?, 7)", then: "ON CONFLICT DO NOTHING" };
            let rows: Vec<i64> = (0..many).collect();
            insert_rows(&db, insert, &rows, |n, places| {
                places.put(n)?;
                places.put(n.to_string())
            })
            .expect("written");
            let count = "SELECT count(*) FROM t WHERE name = CAST(n AS TEXT) AND fixed = 7";
            assert_eq!(db.query_row(count, [], |row| row.get::<_, i64>(0)).expect("a count"), many);
        }
    }
}
