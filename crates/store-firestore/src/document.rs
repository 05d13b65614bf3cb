//! Records as the fields of documents and back: those of the description, under the names and in the shapes that front ends know.

use std::borrow::Cow;
use std::marker::PhantomData;

use hapax_domain::{Direction, EventId, Priority};
use hapax_store::StoreError;
use hapax_store::steps::record::{Column, Field, Kept, Record, Source, Type, Value};
use hapax_store::steps::records::{priority_code, read_numbers, write_numbers};
use serde_json::Value as Json;

use super::paths;
use super::value::{Doc, Fields, broken, bytes, flag, int, list, null, number, text, time};

/// So much of a body stands in the document it belongs to; the rest stands in pieces. Firestore allows 1 MiB for a document.
const INLINE_MAX_BYTES: usize = 600 << 10;
const PIECE_BYTES: usize = 900 << 10;

/// How a column stands in a document.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// As its type says; a hash as a text.
    Plain,
    /// It is the document's id, and no field.
    Id,
    Time,
    /// Bytes, as far as they fit.
    Inline,
    /// Numbers as a list.
    Numbers,
    /// The name of a priority or a direction.
    Named,
    /// An event's id as a text.
    EventId,
    /// Bytes that are a text most of the time.
    MostlyText,
}

/// A kind of record with documents of its own.
pub(super) trait InDocument: Record {
    /// Columns that stand there under another name, or in another shape.
    const PLACES: &'static [(&'static str, &'static str, Shape)];
}

fn place_of<R: InDocument>(column: &Column) -> (&'static str, Shape) {
    let place = R::PLACES.iter().find(|(ours, ..)| *ours == column.name);
    place.map_or((column.name, Shape::Plain), |(_, field, shape)| (field, *shape))
}

pub(super) fn name_of<R: InDocument>(field: &Field<R>) -> &'static str {
    place_of::<R>(&field.column).0
}

/// All fields of a record; those of a body only where it has one.
pub(super) fn fields_of<R: InDocument>(record: &R) -> Fields {
    some_fields(record, |_| true)
}

/// Those fields of a record whose columns are called so.
pub(super) fn some_fields<R: InDocument>(record: &R, which: impl Fn(&str) -> bool) -> Fields {
    let mut fields = Fields::default();
    for (at, field) in R::FIELDS.iter().enumerate().filter(|(_, field)| which(field.column.name)) {
        let ((name, shape), value) = (place_of::<R>(&field.column), (field.value)(record));
        let left_out = value == Value::Null && at >= R::plain_fields().len();
        if !left_out && !matches!(shape, Shape::Id) {
            fields.0.insert(name.to_owned(), written(shape, field.column.kind, value));
        }
    }
    fields
}

fn written(shape: Shape, kind: Type, value: Value<'_>) -> Json {
    match (shape, value) {
        (_, Value::Null) => null(),
        (Shape::Time, Value::Int(at_ms)) => time(at_ms),
        (Shape::Named, Value::Bool(out)) => text(if out { Direction::Out } else { Direction::In }.name()),
        (Shape::Named, code) => Priority::read(code).map_or_else(null, |priority| text(priority.name())),
        (Shape::Numbers, Value::Bytes(numbers)) => list(read_numbers(&numbers).into_iter().map(number).collect()),
        (Shape::Inline, Value::Bytes(body)) => bytes(split(&body).0),
        (Shape::EventId, id) => EventId::read(id).map_or_else(null, |id| text(&id.to_string())),
        (Shape::MostlyText, Value::Bytes(payload)) => std::str::from_utf8(&payload).map_or_else(|_| bytes(&payload), text),
        (_, Value::Int(number)) => int(number),
        (_, Value::Bool(yes)) => flag(yes),
        (_, Value::Text(words)) => text(&words),
        (_, Value::Bytes(hash)) if kind == Type::Hash => text(&hex::encode(hash)),
        (_, Value::Bytes(plain)) => bytes(&plain),
    }
}

/// What fits beside the other fields, and the rest in pieces that each fit in a document.
pub(super) fn split(body: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let (inline, rest) = body.split_at(body.len().min(INLINE_MAX_BYTES));
    (inline, rest.chunks(PIECE_BYTES).collect())
}

/// A record without a body.
pub(super) fn read<R: InDocument>(doc: &Doc) -> Result<R, StoreError> {
    R::read(&mut Reading::<R> { doc, bodies: false, of: PhantomData })
}

/// A record with its body, if the document was read with it, without its pieces.
pub(super) fn read_with_body<R: InDocument>(doc: &Doc) -> Result<R, StoreError> {
    R::read(&mut Reading::<R> { doc, bodies: true, of: PhantomData })
}

struct Reading<'d, R> {
    doc: &'d Doc,
    bodies: bool,
    of: PhantomData<R>,
}

impl<R: InDocument> Source for Reading<'_, R> {
    type Error = StoreError;

    /// What is of another kind counts as not there: front ends write into some of the documents.
    fn value(&mut self, column: &Column) -> Result<Value<'_>, StoreError> {
        let (doc, (field, shape)) = (self.doc, place_of::<R>(column));
        let owned = |bytes: Vec<u8>| Value::Bytes(Cow::Owned(bytes));
        let value = match (shape, column.kind) {
            (Shape::Id, Type::Hash) => hex::decode(doc.id()).ok().map(owned),
            (Shape::Id, _) => paths::number_in(doc.id()).map(|number| Value::Int(number as i64)),
            (Shape::Time, _) => doc.maybe_time(field).map(Value::Int),
            (Shape::Named, Type::Bool) => doc.maybe_text(field).and_then(|name| match name {
                name if name == Direction::In.name() => Some(Value::Bool(false)),
                name if name == Direction::Out.name() => Some(Value::Bool(true)),
                _ => None,
            }),
            (Shape::Named, _) => {
                let priority = doc.maybe_text(field).and_then(|name| Priority::from_name(&name));
                priority.map(|priority| Value::Int(priority_code(priority).into()))
            }
            (Shape::EventId, _) => {
                let id = doc.maybe_text(field).and_then(|id| id.parse::<EventId>().ok());
                id.map(|id| owned(id.0.into_bytes().to_vec()))
            }
            (Shape::Numbers, _) => Some(owned(write_numbers(&doc.numbers(field)))),
            (Shape::MostlyText, _) => doc.maybe_text(field).map(String::into_bytes).or_else(|| doc.maybe_bytes(field)).map(owned),
            (_, Type::Number | Type::Millis | Type::Small | Type::Code) => doc.maybe_int(field).map(Value::Int),
            (_, Type::Bool) => Some(Value::Bool(doc.flag(field))),
            (_, Type::Text) => doc.maybe_text(field).map(|text| Value::Text(Cow::Owned(text))),
            (_, Type::Hash) => doc.maybe_hash(field).map(Value::hash),
            (_, Type::Id | Type::Bytes) => doc.maybe_bytes(field).map(owned),
        };
        Ok(value.unwrap_or(Value::Null))
    }

    fn has_bodies(&self) -> bool {
        self.bodies
    }

    fn unreadable(&self, column: &Column) -> StoreError {
        broken(&self.doc.name, place_of::<R>(column).0)
    }
}
