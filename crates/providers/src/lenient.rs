//! Borrowed views of JSON that read what they can: a member of the wrong type is "not there" and never fails its neighbours.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Fills in the visits that a view does not care about.
macro_rules! otherwise {
    ($value:expr; $($what:ident)*) => { $(otherwise!(@$what $value);)* };
    (@bool $value:expr) => { fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok($value) } };
    (@i64 $value:expr) => { fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok($value) } };
    (@u64 $value:expr) => { fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok($value) } };
    (@f64 $value:expr) => { fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok($value) } };
    (@str $value:expr) => { fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok($value) } };
    (@unit $value:expr) => { fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok($value) } };
    (@seq $value:expr) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok($value)
        }
    };
    (@map $value:expr) => {
        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($value)
        }
    };
}

/// A text, or nothing when something else stands there.
#[derive(Clone, Debug, Default)]
pub(super) struct Text<'a>(Option<Cow<'a, str>>);

impl Text<'_> {
    pub(super) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The text, unless it is missing or empty: an empty name names nothing.
    pub(super) fn name(&self) -> Option<&str> {
        self.get().filter(|text| !text.is_empty())
    }
}

impl<'a> Text<'a> {
    pub(super) fn into_inner(self) -> Option<Cow<'a, str>> {
        self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Some(Cow::Borrowed(text))))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Some(Cow::Owned(text.to_owned()))))
            }

            otherwise!(Text(None); bool i64 u64 f64 unit seq map);
        }
        reader.deserialize_any(Read)
    }
}

/// A whole number that fits 64 bits, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Integer(pub(super) Option<i64>);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Integer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Integer, E> {
                Ok(Integer(Some(number)))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(i64::try_from(number).ok()))
            }

            otherwise!(Integer(None); bool f64 str unit seq map);
        }
        reader.deserialize_any(Read)
    }
}

/// True only where `true` stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Flag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Flag, E> {
                Ok(Flag(flag))
            }

            otherwise!(Flag(false); i64 u64 f64 str unit seq map);
        }
        reader.deserialize_any(Read)
    }
}

/// An object read as `T`, or nothing.
#[derive(Clone, Debug)]
pub(super) struct Object<T>(pub(super) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(|read| Object(Some(read)))
            }

            otherwise!(Object(None); bool i64 u64 f64 str unit seq);
        }
        reader.deserialize_any(Read(PhantomData))
    }
}

/// An array, nothing (absent or `null`), or something that is no array.
#[derive(Clone, Debug, Default)]
pub(super) enum List<T> {
    #[default]
    Absent,
    Items(Vec<T>),
    Odd,
}

impl<T> List<T> {
    pub(super) fn items(&self) -> &[T] {
        match self {
            List::Items(items) => items,
            List::Absent | List::Odd => &[],
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
                let Some(first) = items.next_element()? else { return Ok(List::Items(Vec::new())) };
                // Most lists have one item, and some items are large.
                let mut read = vec![first];
                while let Some(item) = items.next_element()? {
                    read.push(item);
                }
                Ok(List::Items(read))
            }

            otherwise!(List::Absent; unit);
            otherwise!(List::Odd; bool i64 u64 f64 str map);
        }
        reader.deserialize_any(Read(PhantomData))
    }
}
