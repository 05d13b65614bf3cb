//! A record as an object: its columns by name.

use std::borrow::Cow;

use base64::Engine as _;
use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use hapax_domain::{Direction, EventId, Priority, Status, Steps};
use hapax_store::steps::record::{Column, Field, Kept, Record, Source, Type, Value};
use hapax_store::steps::records::{ItemPlace, Queue, read_numbers, read_steps, write_numbers};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};

use super::Odd;

/// The fields of a webhook's body, on the event that carries it.
const BODY: &str = "carried";

const PLACES: [(&str, ItemPlace); 3] =
    [("waiting", ItemPlace::InLane), ("parked", ItemPlace::Parked), ("quarantined", ItemPlace::Quarantined)];
const QUEUES: [(&str, Queue); 2] = [("inbox", Queue::Inbox), ("outbox", Queue::Outbox)];
const DIRECTIONS: [(&str, Direction); 2] = [("in", Direction::In), ("out", Direction::Out)];

/// What a column is called in a file.
fn name_of(column: &Column) -> &'static str {
    match column.name {
        "last_out" => "last_direction",
        "webhook_events" => "events",
        other => other,
    }
}

/// What is left out where there is nothing, as in files of versions that did not know it.
fn is_left_out(column: &Column) -> bool {
    matches!(column.name, "replies" | "past")
}

/// A record on its way into a line.
pub(super) struct Object<'r, R>(pub(super) &'r R);

impl<R: Record> Serialize for Object<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        entries(&mut object, self.0, R::plain_fields())?;
        let body = &R::FIELDS[R::plain_fields().len()..];
        if body.first().is_some_and(|first| (first.value)(self.0) != Value::Null) {
            object.serialize_entry(BODY, &Body(self.0))?;
        }
        object.end()
    }
}

struct Body<'r, R>(&'r R);

impl<R: Record> Serialize for Body<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        entries(&mut object, self.0, &R::FIELDS[R::plain_fields().len()..])?;
        object.end()
    }
}

fn entries<R, M: SerializeMap>(object: &mut M, record: &R, fields: &[Field<R>]) -> Result<(), M::Error> {
    for field in fields {
        let value = (field.value)(record);
        if value != Value::Null || !is_left_out(&field.column) {
            object.serialize_entry(name_of(&field.column), &Entry(&field.column, value))?;
        }
    }
    Ok(())
}

struct Entry<'v>(&'v Column, Value<'v>);

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Entry(column, value) = self;
        match (column.name, value) {
            (_, Value::Null) => serializer.serialize_none(),
            ("place", code) => named(&PLACES, code.clone()).serialize(serializer),
            ("queue", code) => named(&QUEUES, code.clone()).serialize(serializer),
            ("last_out", out) => named(&DIRECTIONS, out.clone()).serialize(serializer),
            ("priority", code) => Priority::read(code.clone()).map(Priority::name).serialize(serializer),
            ("steps" | "early", Value::Text(steps)) => {
                serializer.collect_seq(read_steps(steps).iter().map(|(status, at_ms)| (status.name(), at_ms)))
            }
            ("events", Value::Bytes(numbers)) => serializer.collect_seq(read_numbers(numbers)),
            (_, Value::Bytes(_)) if column.kind == Type::Id => {
                EventId::read(value.clone()).map(|id| id.to_string()).serialize(serializer)
            }
            (_, Value::Int(number)) => serializer.serialize_i64(*number),
            (_, Value::Bool(flag)) => serializer.serialize_bool(*flag),
            (_, Value::Text(text)) => serializer.serialize_str(text),
            (_, Value::Bytes(bytes)) => serializer.collect_str(&Base64Display::new(bytes, &BASE64_STANDARD)),
        }
    }
}

fn named<T: Kept + PartialEq>(names: &[(&'static str, T)], value: Value<'_>) -> Option<&'static str> {
    let value = T::read(value)?;
    names.iter().find(|(_, known)| *known == value).map(|(name, _)| *name)
}

/// Reads a record from the object of a line.
pub(super) fn read<R: Record>(entry: Json) -> Result<R, Odd> {
    let Json::Object(mut object) = entry else { return Err(Odd("it is no object".to_owned())) };
    let body = match object.remove(BODY) {
        None | Some(Json::Null) => None,
        Some(Json::Object(body)) => Some(body),
        Some(_) => return Err(Odd(format!("`{BODY}` is no object"))),
    };
    R::read(&mut Reading { object, body, taken: 0, plain: R::plain_fields().len() })
}

struct Reading {
    object: Map<String, Json>,
    body: Option<Map<String, Json>>,
    taken: usize,
    /// How many columns come before those of the body.
    plain: usize,
}

impl Source for Reading {
    type Error = Odd;

    fn value(&mut self, column: &Column) -> Result<Value<'_>, Odd> {
        let from = if self.taken < self.plain { Some(&mut self.object) } else { self.body.as_mut() };
        self.taken += 1;
        match from.and_then(|from| from.remove(name_of(column))) {
            None | Some(Json::Null) => Ok(Value::Null),
            Some(entry) => value_of(column, entry).ok_or_else(|| self.unreadable(column)),
        }
    }

    fn has_bodies(&self) -> bool {
        self.body.is_some()
    }

    fn unreadable(&self, column: &Column) -> Odd {
        Odd(format!("`{}` is missing, or nothing that this version knows", name_of(column)))
    }
}

fn value_of(column: &Column, entry: Json) -> Option<Value<'static>> {
    let owned = |bytes: Vec<u8>| Value::Bytes(Cow::Owned(bytes));
    match (column.name, column.kind) {
        ("place", _) => code(&PLACES, &entry),
        ("queue", _) => code(&QUEUES, &entry),
        ("last_out", _) => code(&DIRECTIONS, &entry),
        ("priority", _) => code(&Priority::ALL.map(|priority| (priority.name(), priority)), &entry),
        ("steps" | "early", _) => {
            let steps: Vec<(String, i64)> = serde_json::from_value(entry).ok()?;
            let step = |(name, at_ms): (String, i64)| Some((Status::from_name(&name)?, at_ms));
            let steps = Steps::new(steps.into_iter().map(step).collect::<Option<_>>()?);
            Some(steps.write().into_owned())
        }
        ("events", Type::Bytes) => serde_json::from_value::<Vec<u64>>(entry).ok().map(|numbers| owned(write_numbers(&numbers))),
        (_, Type::Id) => Some(owned(entry.as_str()?.parse::<EventId>().ok()?.0.into_bytes().to_vec())),
        (_, Type::Number | Type::Millis | Type::Small | Type::Code) => entry.as_i64().map(Value::Int),
        (_, Type::Bool) => entry.as_bool().map(Value::Bool),
        (_, Type::Text) => match entry {
            Json::String(text) => Some(Value::Text(Cow::Owned(text))),
            _ => None,
        },
        (_, Type::Hash | Type::Bytes) => BASE64_STANDARD.decode(entry.as_str()?).ok().map(owned),
    }
}

/// What stands for a name in a column.
fn code<T: Kept>(names: &[(&'static str, T)], entry: &Json) -> Option<Value<'static>> {
    let name = entry.as_str()?;
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| value.write().into_owned())
}
