//! Tells copies from conflicts: the same key with the same content, or with another.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Stands for a content that nobody knows: of a message that was handled before hapax was there.
pub const UNKNOWN: u32 = 0;

/// Whether what came is a copy of what holds the key, and not another content under it.
pub fn is_copy(held: u32, came: u32) -> bool {
    held == UNKNOWN || held == came
}

/// Folds JSON into 32 bits without building a tree; the order of object members does not matter, and members named in `volatile`
/// (at any depth) are left out, because providers change them between copies.
///
/// 32 bits suffice: a fingerprint never decides what is delivered, only whether a copy is reported as a conflict.
pub fn of_json(json: &str, volatile: &[&str]) -> Option<u32> {
    of_value(&mut serde_json::Deserializer::from_str(json), volatile)
}

/// The same of JSON that is read already.
pub fn of_value<'de, D: Deserializer<'de>>(value: D, volatile: &[&str]) -> Option<u32> {
    Fold { volatile }.deserialize(value).ok().map(shorten)
}

/// Fingerprints content that is not JSON, or chosen parts of it.
pub fn of_bytes(bytes: &[u8]) -> u32 {
    shorten(leaf(b'b', bytes))
}

fn shorten(fold: u64) -> u32 {
    (fold ^ (fold >> 32)) as u32
}

/// A fast hash is enough here (see [`of_json`]); identity never rests on it.
fn leaf(tag: u8, bytes: &[u8]) -> u64 {
    let fold = mix(u64::from(tag), bytes.len() as u64);
    let (words, rest) = bytes.as_chunks();
    let fold = words.iter().fold(fold, |fold, word| mix(fold, u64::from_le_bytes(*word)));
    if rest.is_empty() {
        return fold;
    }
    mix(fold, rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(23) ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 32)
}

#[derive(Clone, Copy)]
struct Fold<'v> {
    volatile: &'v [&'v str],
}

impl<'de> DeserializeSeed<'de> for Fold<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fold<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<u64, E> {
        Ok(leaf(b't', &[u8::from(value)]))
    }

    fn visit_i64<E>(self, value: i64) -> Result<u64, E> {
        Ok(leaf(b'i', &value.to_le_bytes()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<u64, E> {
        // The same number must fold alike whichever way the reader types it.
        match i64::try_from(value) {
            Ok(signed) => self.visit_i64(signed),
            Err(_) => Ok(leaf(b'u', &value.to_le_bytes())),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<u64, E> {
        Ok(leaf(b'f', &value.to_bits().to_le_bytes()))
    }

    fn visit_str<E>(self, value: &str) -> Result<u64, E> {
        Ok(leaf(b's', value.as_bytes()))
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(leaf(b'n', &[]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
        let mut fold = 0x5EED;
        while let Some(item) = items.next_element_seed(self)? {
            fold = mix(fold, item);
        }
        Ok(fold)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<u64, A::Error> {
        let mut fold: u64 = 0x0B1E;
        while let Some(name) = members.next_key_seed(Name(self))? {
            let Some(name) = name else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = members.next_value_seed(self)?;
            // Addition, so that the order of members does not matter.
            fold = fold.wrapping_add(mix(name, value));
        }
        Ok(fold)
    }
}

/// The name of a member: nothing for one that is left out.
struct Name<'v>(Fold<'v>);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<u64>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<u64>, E> {
        Ok((!self.0.volatile.contains(&name)).then(|| leaf(b'k', name.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_order_and_white_space_do_not_matter() {
        let a = of_json(r#"{"id":"x","t":{"a":1,"b":[1,2]}}"#, &[]);
        let b = of_json(r#"{ "t": {"b":[1, 2],"a":1}, "id":"\u0078" }"#, &[]);
        assert_eq!(a, b);
        assert!(a.is_some());
    }

    #[test]
    fn content_array_order_and_nesting_do() {
        let of = |json| of_json(json, &[]);
        assert_ne!(of(r#"{"a":[1,2]}"#), of(r#"{"a":[2,1]}"#));
        assert_ne!(of(r#"{"a":{"b":1}}"#), of(r#"{"b":{"a":1}}"#));
        assert_ne!(of(r#"{"a":"1"}"#), of(r#"{"a":1}"#));
        assert_ne!(of(r#"{"a":null}"#), of(r#"{}"#));
    }

    #[test]
    fn volatile_members_are_left_out_at_any_depth() {
        let of = |json| of_json(json, &["pending_webhooks"]);
        assert_eq!(of(r#"{"id":1,"d":{"pending_webhooks":2}}"#), of(r#"{"id":1,"d":{"pending_webhooks":1}}"#));
    }

    /// They stand in stores: an upgrade must not take copies for conflicts.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let json =
            r#"{"id":"wamid.1","n":[1,-2,1.5,18446744073709551615,true,null],"text":{"body":"eight bytes and more"},"v":0}"#;
        assert_eq!((of_json(json, &["v"]), of_bytes(b"seven b")), (Some(531_066_147), 3_817_178_878));
        assert_eq!(
            (of_bytes(b""), of_bytes(b"12345678"), of_bytes("half an é".as_bytes())),
            (2_246_370_745, 2_855_376_154, 18_175_046)
        );
    }

    #[test]
    fn broken_json_has_no_fingerprint() {
        assert_eq!(of_json("{\"a\":", &[]), None);
    }
}
