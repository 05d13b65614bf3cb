//! A value on a tape as serde sees one, with what `serde_json` would have said of it.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::{Kind, Tape};

/// As deep as `serde_json` follows.
const DEPTH: u8 = 127;
/// Asks for the part itself in place of what it says.
const PART: &str = "hapax part of a tape";

/// One value where it stands.
#[derive(Clone, Copy)]
pub(in super::super) struct Part<'t> {
    pub(super) raw: &'t str,
    pub(super) at: u32,
}

impl<'t> Part<'t> {
    /// As it is written.
    pub(in super::super) fn get(self) -> &'t str {
        self.raw
    }
}

impl<'de: 't, 't> Deserialize<'de> for Part<'t> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Part<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value on a tape")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut both: A) -> Result<Part<'de>, A::Error> {
                match (both.next_element()?, both.next_element()?) {
                    (Some(raw), Some(at)) => Ok(Part { raw, at }),
                    _ => Err(A::Error::custom("not on a tape")),
                }
            }
        }
        reader.deserialize_newtype_struct(PART, Read)
    }
}

/// What cannot be read, and where that stands.
#[derive(Debug)]
pub(super) struct Odd(Option<u32>);

impl Odd {
    pub(super) fn at(&self) -> usize {
        self.0.unwrap_or_default() as usize
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "odd at byte {}", self.at())
    }
}

impl std::error::Error for Odd {}

impl Error for Odd {
    /// The words may quote the body, so they are left out.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(None)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Value<'t, 'n> {
    tape: &'n Tape<'t>,
    at: u32,
    depth: u8,
    /// A name is decoded even where nobody wants it.
    is_name: bool,
}

impl<'t, 'n> Value<'t, 'n> {
    pub(super) fn new(tape: &'n Tape<'t>, at: u32) -> Self {
        Self { tape, at, depth: DEPTH, is_name: false }
    }

    /// Of what is odd without a place of its own, this is the place.
    fn here<T>(self, read: Result<T, Odd>) -> Result<T, Odd> {
        read.map_err(|odd| Odd(odd.0.or(Some(self.tape.node(self.at).end))))
    }

    /// Texts with escapes and rare numbers are `serde_json`'s.
    fn by_serde_json<T>(
        self,
        read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::StrRead<'t>>) -> serde_json::Result<T>,
    ) -> Result<T, Odd> {
        self.here(read(&mut serde_json::Deserializer::from_str(self.tape.raw(self.at))).map_err(Odd::custom))
    }

    fn inside(self) -> Result<Inside<'t, 'n>, Odd> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Inside { tape: self.tape, next: self.at + 1, end: self.tape.node(self.at).next, depth }),
            None => self.here(Err(Odd(None))),
        }
    }
}

impl<'de> Deserializer<'de> for Value<'de, '_> {
    type Error = Odd;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Odd> {
        let node = self.tape.node(self.at);
        match node.kind {
            Kind::Text => self.here(visitor.visit_borrowed_str(&self.tape.text[node.start as usize + 1..node.end as usize - 1])),
            Kind::EscapedText => self.by_serde_json(|json| json.deserialize_str(visitor)),
            Kind::Object => self.here(visitor.visit_map(self.inside()?)),
            Kind::Array => self.here(visitor.visit_seq(self.inside()?)),
            Kind::Number => match short(self.tape.raw(self.at)) {
                Some(Short::Natural(number)) => self.here(visitor.visit_u64(number)),
                Some(Short::Negative(number)) => self.here(visitor.visit_i64(number)),
                None => self.by_serde_json(|json| json.deserialize_any(visitor)),
            },
            Kind::True => self.here(visitor.visit_bool(true)),
            Kind::False => self.here(visitor.visit_bool(false)),
            Kind::Null => self.here(visitor.visit_unit()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Odd> {
        match self.tape.node(self.at).kind {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Odd> {
        match name {
            PART => visitor.visit_seq(RawAndPlace { value: self, given: 0 }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Odd> {
        if self.is_name { self.deserialize_any(visitor) } else { visitor.visit_unit() }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map struct enum identifier
    }
}

/// What is inside an object or an array.
struct Inside<'t, 'n> {
    tape: &'n Tape<'t>,
    next: u32,
    end: u32,
    depth: u8,
}

impl<'t, 'n> Inside<'t, 'n> {
    fn next(&mut self) -> Option<Value<'t, 'n>> {
        let at = self.next;
        (at < self.end).then(|| {
            self.next = self.tape.node(at).next;
            Value { tape: self.tape, at, depth: self.depth, is_name: false }
        })
    }
}

impl<'t> SeqAccess<'t> for Inside<'t, '_> {
    type Error = Odd;

    fn next_element_seed<T: DeserializeSeed<'t>>(&mut self, seed: T) -> Result<Option<T::Value>, Odd> {
        self.next().map(|value| seed.deserialize(value)).transpose()
    }
}

impl<'t> MapAccess<'t> for Inside<'t, '_> {
    type Error = Odd;

    fn next_key_seed<K: DeserializeSeed<'t>>(&mut self, seed: K) -> Result<Option<K::Value>, Odd> {
        self.next().map(|name| seed.deserialize(Value { is_name: true, ..name })).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'t>>(&mut self, seed: V) -> Result<V::Value, Odd> {
        seed.deserialize(self.next().ok_or(Odd(None))?)
    }
}

/// What a [`Part`] is made of.
struct RawAndPlace<'t, 'n> {
    value: Value<'t, 'n>,
    given: u8,
}

impl<'t> SeqAccess<'t> for RawAndPlace<'t, '_> {
    type Error = Odd;

    fn next_element_seed<T: DeserializeSeed<'t>>(&mut self, seed: T) -> Result<Option<T::Value>, Odd> {
        use serde::de::value::{BorrowedStrDeserializer, U32Deserializer};
        self.given += 1;
        match self.given {
            1 => seed.deserialize(BorrowedStrDeserializer::new(self.value.tape.raw(self.value.at))).map(Some),
            _ => seed.deserialize(U32Deserializer::new(self.value.at)).map(Some),
        }
    }
}

/// A number that is read without further thought.
enum Short {
    Natural(u64),
    Negative(i64),
}

/// Whole numbers of so many digits fit 64 bits.
const SHORT_DIGITS: usize = 18;

fn short(raw: &str) -> Option<Short> {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    if digits.len() > SHORT_DIGITS {
        return None;
    }
    let mut number = 0;
    for byte in digits.bytes() {
        number = number * 10 + u64::from(byte.is_ascii_digit().then(|| byte - b'0')?);
    }
    match digits.len() == raw.len() {
        true => Some(Short::Natural(number)),
        // What is written `-0` is no whole number.
        false => (number > 0).then(|| Short::Negative(-(number as i64))),
    }
}
