//! How a record becomes columns, and a row a record again. Each kind lists its columns once, in `tables.rs`.

use std::sync::Arc;

use bytes::Bytes;
use hapax_store::steps::records::Hash;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSqlOwned, ToSql};

use super::texts::unescape;
use super::trouble::Failure;

/// One parameter of a statement.
pub(super) type Param<'p> = Box<dyn ToSql + Sync + Send + 'p>;

/// A kind of record with a table of its own.
pub(super) trait Kept: Sized {
    const TABLE: &'static str;
    /// Names and types, in the order in which they are written and read. The first is the key.
    const COLUMNS: &'static [(&'static str, &'static str)];
    /// Columns at the end that a plain SELECT leaves out.
    const EXTRA: usize = 0;

    type Key: Ord;

    fn key(&self) -> Self::Key;

    /// One array per column.
    fn columns<'r>(records: &[&'r Self]) -> Vec<Param<'r>>;

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure>;
}

/// Records in the order of their keys, in which every instance writes them: so two transactions wait for each other, but never in a circle.
pub(super) fn in_order<R: Kept>(records: &[R]) -> Vec<&R> {
    let mut sorted: Vec<&R> = records.iter().collect();
    sorted.sort_by_key(|record| record.key());
    sorted
}

/// One value of each record, as an array.
pub(super) fn column<'r, R, T: ToSql + Sync + Send + 'r>(records: &[&'r R], value: impl Fn(&'r R) -> T) -> Param<'r> {
    Box::new(records.iter().map(|record| value(record)).collect::<Vec<T>>())
}

pub(super) fn numbers<'p>(numbers: &[u64]) -> Param<'p> {
    Box::new(numbers.iter().map(|&number| number as i64).collect::<Vec<i64>>())
}

pub(super) fn hashes(hashes: &[Hash]) -> Param<'_> {
    Box::new(hashes.iter().map(|hash| &hash[..]).collect::<Vec<&[u8]>>())
}

/// The columns of a kind for a SELECT, each with `prefix` before it.
pub(super) fn plain_columns<R: Kept>(prefix: &str) -> String {
    list(&R::COLUMNS[..R::COLUMNS.len() - R::EXTRA], |(name, _)| format!("{prefix}{name}"))
}

pub(super) fn all_columns<R: Kept>(prefix: &str) -> String {
    list(R::COLUMNS, |(name, _)| format!("{prefix}{name}"))
}

/// One array parameter per column, as rows.
pub(super) fn unnest(columns: &[(&str, &str)]) -> String {
    let arrays: Vec<_> = columns.iter().enumerate().map(|(at, (_, kind))| format!("${}::{kind}[]", at + 1)).collect();
    format!("UNNEST({})", arrays.join(", "))
}

pub(super) fn insert<R: Kept>() -> String {
    format!("INSERT INTO {} ({}) SELECT * FROM {}", R::TABLE, all_columns::<R>(""), unnest(R::COLUMNS))
}

/// Sets all columns but the key.
pub(super) fn update<R: Kept>() -> String {
    update_only::<R>(R::COLUMNS)
}

/// Sets some columns; the first of them is the key.
pub(super) fn update_only<R: Kept>(columns: &[(&str, &str)]) -> String {
    let key = columns[0].0;
    let sets = list(&columns[1..], |(name, _)| format!("{name} = n.{name}"));
    let names = list(columns, |(name, _)| (*name).to_owned());
    format!("UPDATE {} AS t SET {sets} FROM {} AS n ({names}) WHERE t.{key} = n.{key}", R::TABLE, unnest(columns))
}

fn list<'c>(columns: &[(&'c str, &'c str)], show: impl Fn(&(&'c str, &'c str)) -> String) -> String {
    columns.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Reads all rows of an answer.
pub(super) fn read_all<R: Kept>(rows: &[Row]) -> Result<Vec<R>, Failure> {
    rows.iter().map(|row| R::read(&mut Fields::of(row))).collect()
}

/// The fields of a row, taken one after the other.
pub(super) struct Fields<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Fields<'r> {
    pub(super) fn of(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    pub(super) fn take<T: FromSqlOwned>(&mut self) -> Result<T, Failure> {
        self.next += 1;
        Ok(self.row.try_get(self.next - 1)?)
    }

    pub(super) fn more(&self) -> bool {
        self.next < self.row.len()
    }

    pub(super) fn text(&mut self) -> Result<String, Failure> {
        Ok(unescape(self.take()?))
    }

    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, Failure> {
        Ok(self.take::<Option<String>>()?.map(unescape))
    }

    pub(super) fn shared_text(&mut self) -> Result<Arc<str>, Failure> {
        Ok(self.text()?.into())
    }

    pub(super) fn number(&mut self) -> Result<u64, Failure> {
        Ok(self.take::<i64>()? as u64)
    }

    pub(super) fn number_or_null(&mut self) -> Result<Option<u64>, Failure> {
        Ok(self.take::<Option<i64>>()?.map(|number| number as u64))
    }

    pub(super) fn small(&mut self) -> Result<u32, Failure> {
        Ok(self.take::<i32>()? as u32)
    }

    pub(super) fn small_or_null(&mut self) -> Result<Option<u32>, Failure> {
        Ok(self.take::<Option<i32>>()?.map(|small| small as u32))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Failure> {
        Ok(self.take::<Vec<u8>>()?.into())
    }

    pub(super) fn hash(&mut self) -> Result<Hash, Failure> {
        self.take::<Vec<u8>>()?.try_into().map_err(|_| Failure::Unreadable("a hash that has not 32 bytes"))
    }

    pub(super) fn hash_or_null(&mut self) -> Result<Option<Hash>, Failure> {
        let hash = self.take::<Option<Vec<u8>>>()?.map(Hash::try_from).transpose();
        hash.map_err(|_| Failure::Unreadable("a hash that has not 32 bytes"))
    }

    /// A value that stands for one of ours; none means that a newer version wrote it.
    pub(super) fn known<T>(&self, value: Option<T>, what: &'static str) -> Result<T, Failure> {
        value.ok_or(Failure::Unreadable(what))
    }
}
