//! How a record is described, once and beside its struct: its columns in order, how each of them is written, and how it is read back.
//!
//! Engines take from it what they write and read: columns and arrays, literals, fields of documents. What they call a column otherwise, and
//! what they keep beside it to be searched, is all that they say themselves.

use std::borrow::Cow;
use std::slice::Iter;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::claim::ClaimState;
use hapax_domain::{Direction, EventId, Kind, Past, Priority, Steps};

use super::records::{
    Hash, ItemPlace, Queue, priority_code, read_hashes, read_numbers, read_past, read_steps, write_hashes, write_numbers,
    write_past, write_steps,
};
use crate::{KeptHeaders, NewMessage, read_replies, write_replies};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Up to 63 bits, without a sign.
    Number,
    /// Milliseconds since 1970.
    Millis,
    /// Up to 32 bits, without a sign.
    Small,
    /// One of a few, in an order that a list can be sorted by.
    Code,
    Bool,
    Text,
    /// 32 bytes.
    Hash,
    /// 16 bytes.
    Id,
    Bytes,
}

/// What stands in a column. Borrowed from the record, or from the row, wherever it stands there as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    Null,
    Int(i64),
    Bool(bool),
    Text(Cow<'v, str>),
    Bytes(Cow<'v, [u8]>),
}

impl Value<'_> {
    pub fn hash(hash: Hash) -> Self {
        Value::Bytes(Cow::Owned(hash.to_vec()))
    }

    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Int(number) => Value::Int(number),
            Value::Bool(flag) => Value::Bool(flag),
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Type,
    pub nullable: bool,
}

/// A column, and what a record has in it.
pub struct Field<R: 'static> {
    pub column: Column,
    pub value: fn(&R) -> Value<'_>,
}

impl<R> Field<R> {
    /// One that an engine keeps beside those of the record: it follows from them, and is never read.
    pub const fn derived(name: &'static str, kind: Type, value: fn(&R) -> Value<'_>) -> Self {
        Self { column: Column { name, kind, nullable: false }, value }
    }
}

pub trait Record: Sized + 'static {
    /// All of them; those of a body come last.
    const FIELDS: &'static [Field<Self>];
    /// How many of the last are read only when bodies are asked for.
    const BODIES: usize;

    /// What a record is known by; rows are locked in its order.
    type Key: Ord;

    fn key(&self) -> Self::Key;

    fn read<S: Source>(source: &mut S) -> Result<Self, S::Error>;

    /// The fields of a record without a body.
    fn plain_fields() -> &'static [Field<Self>] {
        &Self::FIELDS[..Self::FIELDS.len() - Self::BODIES]
    }
}

/// A row or a document that a record is read from.
pub trait Source {
    type Error;

    /// The value of a column; they are taken in the order of the description. What is not there is null.
    fn value(&mut self, column: &Column) -> Result<Value<'_>, Self::Error>;

    /// Whether the columns of the body are there.
    fn has_bodies(&self) -> bool;

    /// The error for what no version that we know has written.
    fn unreadable(&self, column: &Column) -> Self::Error;
}

/// Takes the columns of a record one after the other.
pub(super) struct Reader<'s, R: Record, S> {
    source: &'s mut S,
    fields: Iter<'static, Field<R>>,
}

impl<'s, R: Record, S: Source> Reader<'s, R, S> {
    pub(super) fn new(source: &'s mut S) -> Self {
        Self { source, fields: R::FIELDS.iter() }
    }

    /// The next field. `default` stands for one that older versions did not write.
    pub(super) fn next<T: Kept>(&mut self, default: Option<T>) -> Result<T, S::Error> {
        let Some(field) = self.fields.next() else { unreachable!("a record has as many columns as fields") };
        let read = match (self.source.value(&field.column)?, default) {
            (Value::Null, Some(default)) => Some(default),
            (value, _) => T::read(value),
        };
        read.ok_or_else(|| self.source.unreadable(&field.column))
    }

    pub(super) fn has_bodies(&self) -> bool {
        self.source.has_bodies()
    }

    /// The error for a part of which some fields are there and others not.
    pub(super) fn torn(&self) -> S::Error {
        self.source.unreadable(&R::FIELDS[R::FIELDS.len() - 1].column)
    }
}

/// What can be kept in a column.
pub trait Kept: Sized {
    const TYPE: Type;
    const NULLABLE: bool = false;

    fn write(&self) -> Value<'_>;

    /// `None`: it is of another kind, or a newer version wrote it.
    fn read(value: Value<'_>) -> Option<Self>;
}

/// The column of a field, known by how it is reached.
pub(super) const fn column_of<R, T: Kept>(name: &'static str, optional: bool, _: fn(&R) -> &T) -> Column {
    Column { name, kind: T::TYPE, nullable: optional || T::NULLABLE }
}

/// Defines a record's struct with its description. A field is a column of the same name; `as` calls it otherwise, and `=` says what stands for
/// it where an older version wrote none. One part may follow, whose fields are columns too: it is there `always`, or all of it is `optional`,
/// or it is the body, which has to be `asked` for.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $Record:ident, known by $Key:ty = |$this:ident| $key:expr;
        $($(#[$doc:meta])* pub $field:ident: $kind:ty $(as $name:literal)? $(= $default:expr)?,)+
        $(@$how:ident $(#[$part_doc:meta])* pub $part:ident: $part_kind:ty = $Part:ident { $($inner:ident as $inner_name:literal,)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Record {
            $($(#[$doc])* pub $field: $kind,)+
            $($(#[$part_doc])* pub $part: $part_kind,)?
        }

        impl Record for $Record {
            const FIELDS: &'static [Field<Self>] = &[
                $(Field {
                    column: Column {
                        name: record!(@name $field $($name)?),
                        kind: <$kind as Kept>::TYPE,
                        nullable: <$kind as Kept>::NULLABLE,
                    },
                    value: |record| record.$field.write(),
                },)+
                $($(Field {
                    column: column_of($inner_name, record!(@optional $how), |part: &$Part| &part.$inner),
                    value: |record| record!(@part $how record.$part).map_or(Value::Null, |part| part.$inner.write()),
                },)+)?
            ];
            const BODIES: usize = 0 $(+ record!(@bodies $how [$($inner)+]))?;

            type Key = $Key;

            fn key(&self) -> $Key {
                let $this = self;
                $key
            }

            fn read<S: Source>(source: &mut S) -> Result<Self, S::Error> {
                let mut reader = Reader::<Self, S>::new(source);
                Ok(Self {
                    $($field: reader.next(None::<$kind>$(.or(Some($default)))?)?,)+
                    $($part: record!(@read $how reader $Part [$($inner)+]),)?
                })
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@optional always) => { false };
    (@optional $how:ident) => { true };
    (@bodies asked [$($inner:ident)+]) => { [$(stringify!($inner)),+].len() };
    (@bodies $how:ident [$($inner:ident)+]) => { 0 };
    (@part always $record:ident.$part:ident) => { Some(&$record.$part) };
    (@part $how:ident $record:ident.$part:ident) => { $record.$part.as_ref() };
    (@read always $reader:ident $Part:ident [$($inner:ident)+]) => { $Part { $($inner: $reader.next(None)?),+ } };
    (@read optional $reader:ident $Part:ident [$($inner:ident)+]) => {{
        $(let $inner = $reader.next::<Option<_>>(None)?;)+
        match ($($inner,)+) {
            ($(Some($inner),)+) => Some($Part { $($inner),+ }),
            ($(record!(@none $inner),)+) => None,
            _ => return Err($reader.torn()),
        }
    }};
    (@read asked $reader:ident $Part:ident [$($inner:ident)+]) => {
        if $reader.has_bodies() { record!(@read optional $reader $Part [$($inner)+]) } else { None }
    };
    (@none $inner:ident) => { None };
}
pub(super) use record;

macro_rules! integers {
    ($($kind:ty: $type:ident),+) => {$(
        impl Kept for $kind {
            const TYPE: Type = Type::$type;

            fn write(&self) -> Value<'_> {
                Value::Int(*self as i64)
            }

            fn read(value: Value<'_>) -> Option<Self> {
                match value {
                    Value::Int(number) => number.try_into().ok(),
                    _ => None,
                }
            }
        }
    )+};
}

integers!(u64: Number, i64: Millis, u32: Small, u16: Small);

impl Kept for bool {
    const TYPE: Type = Type::Bool;

    fn write(&self) -> Value<'_> {
        Value::Bool(*self)
    }

    fn read(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        }
    }
}

impl<T: Kept> Kept for Option<T> {
    const TYPE: Type = T::TYPE;
    const NULLABLE: bool = true;

    fn write(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, T::write)
    }

    fn read(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::read(value).map(Some),
        }
    }
}

/// Implements [`Kept`] for what is written as a text or as bytes: borrowed or made, and read from what was taken.
macro_rules! kept {
    ($($kind:ty: $type:ident $variant:ident, |$this:ident| $write:expr, |$read_from:ident| $read:expr;)+) => {$(
        impl Kept for $kind {
            const TYPE: Type = Type::$type;

            fn write(&self) -> Value<'_> {
                let $this = self;
                Value::$variant($write.into())
            }

            fn read(value: Value<'_>) -> Option<Self> {
                match value {
                    Value::$variant($read_from) => $read,
                    _ => None,
                }
            }
        }
    )+};
}

kept! {
    String: Text Text, |text| text.as_str(), |text| Some(text.into_owned());
    Arc<str>: Text Text, |text| &**text, |text| Some(text.into());
    Kind: Text Text, |kind| kind.name(), |name| Kind::from_name(&name);
    Steps: Text Text, |steps| write_steps(steps), |text| Some(read_steps(&text));
    Hash: Hash Bytes, |hash| &hash[..], |bytes| bytes.as_ref().try_into().ok();
    EventId: Id Bytes, |id| &id.0.as_bytes()[..], |bytes| uuid::Uuid::from_slice(&bytes).ok().map(EventId);
    Bytes: Bytes Bytes, |bytes| &bytes[..], |bytes| Some(bytes.into_owned().into());
    KeptHeaders: Bytes Bytes, |headers| &headers.0[..], |bytes| Some(KeptHeaders(bytes.into_owned()));
    Vec<u64>: Bytes Bytes, |numbers| write_numbers(numbers), |bytes| Some(read_numbers(&bytes));
    ItemPlace: Code Int, |place| place.code(), |code| ItemPlace::from_code(code.try_into().ok()?);
    ClaimState: Code Int, |state| state.code(), |code| ClaimState::from_code(code);
    Queue: Code Int, |queue| queue.code(), |code| Queue::from_code(code.try_into().ok()?);
    Priority: Code Int, |priority| priority_code(*priority),
        |code| Priority::ALL.into_iter().find(|known| i64::from(priority_code(*known)) == code);
    Direction: Bool Bool, |direction| *direction == Direction::Out,
        |out| Some(if out { Direction::Out } else { Direction::In });
}

/// The same for what stands there only when there is any of it.
macro_rules! kept_if_any {
    ($($kind:ty: $type:ident, |$this:ident| $write:expr, |$read_from:ident| $read:expr;)+) => {$(
        impl Kept for $kind {
            const TYPE: Type = Type::$type;
            const NULLABLE: bool = true;

            fn write(&self) -> Value<'_> {
                let $this = self;
                let written = $write;
                written.map_or(Value::Null, |written| Value::$type(Cow::Owned(written)))
            }

            fn read(value: Value<'_>) -> Option<Self> {
                match value {
                    Value::Null => Some(Self::default()),
                    Value::$type($read_from) => $read,
                    _ => None,
                }
            }
        }
    )+};
}

kept_if_any! {
    Past: Text, |past| write_past(past), |text| Some(read_past(Some(&text)));
    Vec<NewMessage>: Bytes, |replies| write_replies(replies), |bytes| read_replies(&bytes);
    Vec<Hash>: Bytes, |hashes| (!hashes.is_empty()).then(|| write_hashes(hashes)), |bytes| Some(read_hashes(&bytes));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::records::{Carried, EventRec, Held, ItemRec, LaneRec, own_lane};
    use super::*;

    /// A row that is read by the names of its columns.
    struct Named {
        values: BTreeMap<&'static str, Value<'static>>,
        bodies: bool,
    }

    impl Named {
        fn of<R: Record>(record: &R, fields: &'static [Field<R>]) -> Self {
            let value = |field: &Field<R>| (field.value)(record).into_owned();
            let values: BTreeMap<_, _> = fields.iter().map(|field| (field.column.name, value(field))).collect();
            assert_eq!(values.len(), fields.len(), "no two columns have one name");
            Self { values, bodies: fields.len() == R::FIELDS.len() }
        }
    }

    impl Source for Named {
        type Error = &'static str;

        fn value(&mut self, column: &Column) -> Result<Value<'_>, &'static str> {
            let value = self.values.get(column.name).cloned().unwrap_or(Value::Null);
            Ok(value)
        }

        fn has_bodies(&self) -> bool {
            self.bodies
        }

        fn unreadable(&self, column: &Column) -> &'static str {
            column.name
        }
    }

    fn event() -> EventRec {
        EventRec {
            number: 7,
            webhook: 7,
            received_ms: -1,
            channel: "shop".into(),
            kind: Kind::Reaction,
            account: "7001".to_owned(),
            id: "wamid.1".to_owned(),
            peer: None,
            echo: true,
            at_ms: Some(3),
            text: Some("olá".to_owned()),
            index: u32::MAX,
            item: None,
            part: false,
            thread: Some([9; 32]),
            replays: 0,
            body_bytes: 2,
            carried: Some(Carried { headers: KeptHeaders(b"a: b".to_vec()), body: Bytes::from_static(b"{}"), events: 1 }),
        }
    }

    fn item() -> ItemRec {
        ItemRec {
            number: 8,
            received_ms: 1,
            channel: "shop".into(),
            lane: own_lane(Queue::Inbox, 8),
            place: ItemPlace::Parked,
            events: vec![7, 9],
            events_ms: 1,
            webhook: 7,
            attempt: 4,
            failures: 2,
            replay: None,
            why: None,
            due_ms: 5,
            replies: vec![],
        }
    }

    #[test]
    fn a_body_is_read_where_it_was_asked_for_and_not_copied_when_written() {
        let event = event();
        assert_eq!(EventRec::read(&mut Named::of(&event, EventRec::FIELDS)), Ok(event.clone()));
        let plain = EventRec::read(&mut Named::of(&event, EventRec::plain_fields()));
        assert_eq!(plain, Ok(EventRec { carried: None, ..event.clone() }));
        let body = EventRec::FIELDS.iter().find(|field| field.column.name == "body").unwrap();
        assert!(matches!((body.value)(&event), Value::Bytes(Cow::Borrowed(b"{}"))));
    }

    #[test]
    fn what_an_older_version_did_not_write_has_its_default_and_nothing_else_has() {
        let mut row = Named::of(&item(), ItemRec::FIELDS);
        row.values.remove("failures");
        assert_eq!(ItemRec::read(&mut row), Ok(ItemRec { failures: 0, ..item() }));
        row.values.remove("attempt");
        assert_eq!(ItemRec::read(&mut row), Err("attempt"));
        row.values.insert("attempt", Value::Int(-1));
        assert_eq!(ItemRec::read(&mut row), Err("attempt"));
    }

    #[test]
    fn a_part_is_there_as_a_whole_or_not_at_all() {
        let held = Held { number: 8, attempt: 1, fence: 9, worker: "w".to_owned(), leased_ms: 1, until_ms: 2 };
        let free = super::super::lanes::empty(Queue::Inbox, [1; 32], &"shop".into());
        let lane = LaneRec { held: Some(held), ..free.clone() };
        assert_eq!(LaneRec::read(&mut Named::of(&free, LaneRec::FIELDS)), Ok(free));
        let mut row = Named::of(&lane, LaneRec::FIELDS);
        assert_eq!(LaneRec::read(&mut row), Ok(lane));
        row.values.insert("held_worker", Value::Null);
        assert!(LaneRec::read(&mut row).is_err());
    }
}
