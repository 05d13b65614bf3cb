//! How a record becomes columns, and a row a record again: as it is described, by types of our own.

use std::error::Error;

use bytes::BytesMut;
use hapax_store::steps::record::{Column, Field, Record, Source, Type, Value};
use hapax_store::steps::records::Hash;
use tokio_postgres::Row;
use tokio_postgres::types::{self, FromSqlOwned, IsNull, ToSql, to_sql_checked};

use super::failure::Failure;
use super::texts::{escape, unescape};

/// One parameter of a statement.
pub(super) type Param<'p> = Box<dyn ToSql + Sync + Send + 'p>;

/// A kind of record with a table of its own.
pub(super) trait InTable: Record {
    const TABLE: &'static str;
    /// The column that rows are found and locked by.
    const KEY: &'static str;
    /// Which rows of the table hold such a record, where not all do.
    const THERE: &'static str = "true";
    /// Columns that are called otherwise here.
    const NAMES: &'static [(&'static str, &'static str)] = &[];
    /// Columns that follow from the record and are there to be searched.
    const BESIDE: &'static [Field<Self>] = &[];
    /// Columns that new rows of a batch mostly have the same value in.
    const EVEN: &'static [&'static str] = &[];
}

pub(super) fn name_of<R: InTable>(column: &Column) -> &'static str {
    R::NAMES.iter().find(|(ours, _)| *ours == column.name).map_or(column.name, |(_, here)| here)
}

/// What the server calls such a column's type.
pub(super) fn type_of(kind: Type) -> &'static str {
    match kind {
        Type::Number | Type::Millis => "int8",
        Type::Small => "int4",
        Type::Code => "int2",
        Type::Bool => "bool",
        Type::Text => "text",
        Type::Hash | Type::Id | Type::Bytes => "bytea",
    }
}

/// All columns that are written, with those beside the record.
pub(super) fn written<R: InTable>() -> impl Iterator<Item = &'static Field<R>> + Clone {
    R::FIELDS.iter().chain(R::BESIDE)
}

/// The type of the key.
pub(super) fn key_type<R: InTable>() -> &'static str {
    let key = written::<R>().find(|field| name_of::<R>(&field.column) == R::KEY);
    key.map_or("unknown", |key| type_of(key.column.kind))
}

/// Those columns that change, and the key.
fn changing<R: InTable>(changes: &[&str]) -> impl Iterator<Item = &'static Field<R>> {
    written::<R>().filter(|field| name_of::<R>(&field.column) == R::KEY || changes.contains(&field.column.name))
}

/// Records in the order of their keys, in which every instance writes them: so two transactions wait for each other, but never in a circle.
pub(super) fn in_order<R: Record>(records: &[R]) -> Vec<&R> {
    let mut sorted: Vec<&R> = records.iter().collect();
    sorted.sort_by_cached_key(|record| record.key());
    sorted
}

/// One array for each column of [`insert`].
pub(super) fn arrays<'r, R: InTable>(records: &[&'r R]) -> Vec<Param<'r>> {
    written::<R>().map(|field| array(records, field)).collect()
}

/// One array for each column of [`update_only`].
pub(super) fn changed_arrays<'r, R: InTable>(records: &[&'r R], changes: &[&str]) -> Vec<Param<'r>> {
    changing::<R>(changes).map(|field| array(records, field)).collect()
}

pub(super) fn array<'r, R>(records: &[&'r R], field: &Field<R>) -> Param<'r> {
    array_of(field.column.kind, records.iter().map(|record| (field.value)(record)))
}

/// The values of one column.
pub(super) fn array_of<'r>(kind: Type, values: impl Iterator<Item = Value<'r>>) -> Param<'r> {
    let int = |value: Value<'r>| match value {
        Value::Int(number) => Some(number),
        _ => None,
    };
    let flag = |value: Value<'r>| match value {
        Value::Bool(flag) => Some(flag),
        _ => None,
    };
    match kind {
        Type::Number | Type::Millis => Box::new(values.map(int).collect::<Vec<_>>()),
        // The server knows no numbers without a sign.
        Type::Small => Box::new(values.map(|value| int(value).map(|small| small as u32 as i32)).collect::<Vec<_>>()),
        Type::Code => Box::new(values.map(|value| int(value).map(|code| code as i16)).collect::<Vec<_>>()),
        Type::Bool => Box::new(values.map(flag).collect::<Vec<_>>()),
        Type::Text | Type::Hash | Type::Id | Type::Bytes => Box::new(values.map(Cell).collect::<Vec<_>>()),
    }
}

/// A text or bytes on their way.
#[derive(Debug)]
pub(super) struct Cell<'v>(pub(super) Value<'v>);

impl ToSql for Cell<'_> {
    fn to_sql(&self, kind: &types::Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.0 {
            Value::Text(text) => escape(text).to_sql(kind, out),
            Value::Bytes(bytes) => bytes.as_ref().to_sql(kind, out),
            Value::Null | Value::Int(_) | Value::Bool(_) => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &types::Type) -> bool {
        [types::Type::TEXT, types::Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}

pub(super) fn numbers<'p>(numbers: &[u64]) -> Param<'p> {
    Box::new(numbers.iter().map(|&number| number as i64).collect::<Vec<i64>>())
}

pub(super) fn hashes(hashes: &[Hash]) -> Param<'_> {
    Box::new(hashes.iter().map(|hash| &hash[..]).collect::<Vec<&[u8]>>())
}

/// The columns of a record without its body for a SELECT, each with `prefix` before it.
pub(super) fn plain_columns<R: InTable>(prefix: &str) -> String {
    list(R::plain_fields(), |field| format!("{prefix}{}", name_of::<R>(&field.column)))
}

/// Those of a record with its body.
pub(super) fn all_columns<R: InTable>() -> String {
    list(R::FIELDS, |field| name_of::<R>(&field.column).to_owned())
}

/// One array parameter per column, as rows that are called `n`.
pub(super) fn rows_of<R: InTable>(fields: impl Iterator<Item = &'static Field<R>> + Clone) -> String {
    let columns: Vec<(&str, Type)> = fields.map(|field| (name_of::<R>(&field.column), field.column.kind)).collect();
    rows_with(&columns)
}

pub(super) fn rows_with(columns: &[(&str, Type)]) -> String {
    let arrays = columns.iter().enumerate().map(|(at, (_, kind))| format!("${}::{}[]", at + 1, type_of(*kind)));
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    format!("UNNEST({}) AS n ({})", arrays.collect::<Vec<_>>().join(", "), names.join(", "))
}

pub(super) fn insert<R: InTable>() -> String {
    let columns: Vec<(&str, Type)> = written::<R>().map(|field| (name_of::<R>(&field.column), field.column.kind)).collect();
    insert_into(R::TABLE, &columns)
}

/// Puts rows of these columns.
pub(super) fn insert_into(table: &str, columns: &[(&str, Type)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    format!("INSERT INTO {table} ({}) SELECT * FROM {}", names.join(", "), rows_with(columns))
}

/// Sets all columns but the key.
pub(super) fn update<R: InTable>() -> String {
    update_by::<R>(written::<R>())
}

/// Sets some columns.
pub(super) fn update_only<R: InTable>(changes: &[&str]) -> String {
    let fields: Vec<&'static Field<R>> = changing::<R>(changes).collect();
    update_by::<R>(fields.into_iter())
}

fn update_by<R: InTable>(fields: impl Iterator<Item = &'static Field<R>> + Clone) -> String {
    let key = R::KEY;
    let others = fields.clone().filter(|field| name_of::<R>(&field.column) != key);
    let sets = list(others, |field| format!("{0} = n.{0}", name_of::<R>(&field.column)));
    format!("UPDATE {} AS t SET {sets} FROM {} WHERE t.{key} = n.{key}", R::TABLE, rows_of::<R>(fields))
}

fn list<R: 'static>(fields: impl IntoIterator<Item = &'static Field<R>>, show: impl Fn(&Field<R>) -> String) -> String {
    fields.into_iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Reads all rows of an answer.
pub(super) fn read_all<R: Record>(rows: &[Row]) -> Result<Vec<R>, Failure> {
    rows.iter().map(|row| R::read(&mut Fields::new(row))).collect()
}

/// The fields of a row, taken one after the other.
pub(super) struct Fields<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Fields<'r> {
    pub(super) fn new(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    pub(super) fn take<T: FromSqlOwned>(&mut self) -> Result<T, Failure> {
        self.next += 1;
        Ok(self.row.try_get(self.next - 1)?)
    }

    pub(super) fn text(&mut self) -> Result<String, Failure> {
        Ok(unescape(&self.take::<String>()?).into_owned())
    }

    pub(super) fn number(&mut self) -> Result<u64, Failure> {
        Ok(self.take::<i64>()? as u64)
    }

    pub(super) fn hash(&mut self) -> Result<Hash, Failure> {
        self.maybe_hash()?.ok_or(Failure::Unreadable("a hash that is not there"))
    }

    pub(super) fn maybe_hash(&mut self) -> Result<Option<Hash>, Failure> {
        let hash = self.take::<Option<Vec<u8>>>()?.map(Hash::try_from).transpose();
        hash.map_err(|_| Failure::Unreadable("a hash that has not 32 bytes"))
    }
}

impl Source for Fields<'_> {
    type Error = Failure;

    fn value(&mut self, column: &Column) -> Result<Value<'_>, Failure> {
        let (row, at) = (self.row, self.next);
        self.next += 1;
        let int = |number: Option<i64>| number.map(Value::Int);
        let value = match column.kind {
            Type::Number | Type::Millis => int(row.try_get(at)?),
            Type::Small => int(row.try_get::<_, Option<i32>>(at)?.map(|small| i64::from(small as u32))),
            Type::Code => int(row.try_get::<_, Option<i16>>(at)?.map(i64::from)),
            Type::Bool => row.try_get::<_, Option<bool>>(at)?.map(Value::Bool),
            Type::Text => row.try_get::<_, Option<&str>>(at)?.map(|text| Value::Text(unescape(text))),
            Type::Hash | Type::Id | Type::Bytes => row.try_get::<_, Option<&[u8]>>(at)?.map(|bytes| Value::Bytes(bytes.into())),
        };
        Ok(value.unwrap_or(Value::Null))
    }

    fn has_bodies(&self) -> bool {
        self.next < self.row.len()
    }

    fn unreadable(&self, column: &Column) -> Failure {
        Failure::Unreadable(column.name)
    }
}
