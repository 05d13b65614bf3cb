//! New rows, of which many columns mean the same in all: those go as one value each, in place of an array. The server takes an array apart value by
//! value, and keeps each of them in a row of its own before it makes the new row.

use hapax_store::steps::record::{Field, Type, Value};

use super::rows::{Cell, InTable, Param, array, arrays, insert, name_of, rows_of, type_of, written};
use super::sql_call::SqlCall;

/// The two statements that put new rows of a table.
pub(super) struct NewRows {
    /// With the columns of [`InTable::EVEN`] as values.
    even: String,
    any: String,
}

impl NewRows {
    pub(super) fn of<R: InTable>() -> Self {
        let name = |field: &'static Field<R>| name_of::<R>(&field.column);
        let arrays: Vec<&str> = own::<R>().map(name).collect();
        let values: Vec<&str> = even::<R>().map(name).collect();
        let behind = arrays.len() + 1;
        let params = even::<R>().enumerate().map(|(at, field)| format!("${}::{}", behind + at, type_of(field.column.kind)));
        let even = format!(
            "INSERT INTO {} ({}, {}) SELECT n.*, {} FROM {}",
            R::TABLE,
            arrays.join(", "),
            values.join(", "),
            params.collect::<Vec<_>>().join(", "),
            rows_of::<R>(own::<R>())
        );
        Self { even, any: insert::<R>() }
    }

    pub(super) fn put<'r, R: InTable>(&'static self, records: &[&'r R]) -> SqlCall<'r> {
        let values: Option<Vec<Param<'r>>> = even::<R>().map(|field| the_same(records, field)).collect();
        match values {
            Some(values) => SqlCall::new(&*self.even, own::<R>().map(|field| array(records, field)).chain(values).collect()),
            None => SqlCall::new(&*self.any, arrays(records)),
        }
    }
}

fn is_even<R: InTable>(field: &Field<R>) -> bool {
    R::EVEN.contains(&field.column.name)
}

fn even<R: InTable>() -> impl Iterator<Item = &'static Field<R>> + Clone {
    written::<R>().filter(|field| is_even(field))
}

fn own<R: InTable>() -> impl Iterator<Item = &'static Field<R>> + Clone {
    written::<R>().filter(|field| !is_even(field))
}

fn the_same<'r, R>(records: &[&'r R], field: &Field<R>) -> Option<Param<'r>> {
    value_of_all(field.column.kind, records.iter().map(|record| (field.value)(record)))
}

/// The value that all of these are, as a parameter; nothing where they differ, or there is none.
pub(super) fn value_of_all<'r>(kind: Type, mut values: impl Iterator<Item = Value<'r>>) -> Option<Param<'r>> {
    let first = values.next()?;
    values.all(|value| value == first).then(|| value_param(kind, first))
}

fn value_param<'r>(kind: Type, value: Value<'r>) -> Param<'r> {
    let int = match value {
        Value::Int(number) => Some(number),
        _ => None,
    };
    match kind {
        Type::Number | Type::Millis => Box::new(int),
        Type::Small => Box::new(int.map(|small| small as u32 as i32)),
        Type::Code => Box::new(int.map(|code| code as i16)),
        Type::Bool => Box::new(match value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        }),
        Type::Text | Type::Hash | Type::Id | Type::Bytes => Box::new(Cell(value)),
    }
}
