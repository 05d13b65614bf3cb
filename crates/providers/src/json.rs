//! JSON taken apart and put together again without a tree: members and items stay the bytes they were.

use std::borrow::Cow;
use std::fmt;

use hapax_domain::limits::JSON_DEPTH;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::lenient::{Object, Text};

/// Reads `json` as an object. Says why not in words for a person.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    match serde_json::from_str::<Object<T>>(json) {
        Ok(Object(Some(read))) => Ok(read),
        Ok(Object(None)) => Err("expected a JSON object".to_owned()),
        // The position alone: the parser's own words may quote the body.
        Err(error) => Err(format!("not readable as JSON at line {}, column {}", error.line(), error.column())),
    }
}

/// The members of an object in their order, doubles included; `None` when it is no object.
pub(super) fn members(json: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    serde_json::from_str::<Members<'_>>(json).ok().map(|members| members.0)
}

/// The items of an array; `None` when it is no array.
pub(super) fn items(json: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(json).ok()
}

/// The last member of this name: the one most JSON readers take.
pub(super) fn member<'a>(json: &'a str, name: &str) -> Option<&'a RawValue> {
    members(json)?.into_iter().rev().find(|(found, _)| found == name).map(|(_, value)| value)
}

/// The decoded text of a JSON string; `None` for anything else, and for text that is not Unicode (lone surrogates).
pub(super) fn text(json: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(json?.get()).ok()
}

/// Writes an object from members whose values are JSON already.
pub(super) fn write_object<'m>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'m str, Cow<'m, [u8]>)>) {
    out.push(b'{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_text(out, name);
        out.push(b':');
        out.extend_from_slice(&value);
    }
    out.push(b'}');
}

/// The same object with another value, itself JSON, for the members of this name.
pub(super) fn with_member_replaced(object: &str, name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let members = members(object)?;
    let mut out = Vec::with_capacity(object.len());
    let replaced = members.iter().map(|(found, raw)| {
        let value = if found == name { value } else { raw.get().as_bytes() };
        (found.as_ref(), Cow::Borrowed(value))
    });
    write_object(&mut out, replaced);
    Some(out)
}

/// Writes an array from items that are JSON already.
pub(super) fn write_array<I: AsRef<[u8]>>(out: &mut Vec<u8>, items: impl Iterator<Item = I>) {
    out.push(b'[');
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_ref());
    }
    out.push(b']');
}

/// One form for all spellings of the same JSON: members sorted, white space and escapes gone, `volatile` members left out.
///
/// Numbers keep their digits, so that two big ids never round into one. `None` when it is broken or nested deeper than
/// [`JSON_DEPTH`].
pub(super) fn canonical(json: &str, volatile: &[&str]) -> Option<Vec<u8>> {
    serde_json::from_str::<IgnoredAny>(json).ok()?;
    let mut out = Vec::with_capacity(json.len());
    write_canonical(&mut out, json.trim_ascii(), volatile, JSON_DEPTH)?;
    Some(out)
}

fn write_canonical(out: &mut Vec<u8>, json: &str, volatile: &[&str], depth: usize) -> Option<()> {
    let deeper = depth.checked_sub(1)?;
    match json.as_bytes().first()? {
        b'{' => {
            let mut members = members(json)?;
            members.retain(|(name, _)| !volatile.contains(&name.as_ref()));
            members.sort_by(|a, b| a.0.cmp(&b.0));
            out.push(b'{');
            for (name, value) in members {
                write_text(out, &name);
                out.push(b':');
                write_canonical(out, value.get(), volatile, deeper)?;
                out.push(b',');
            }
            out.push(b'}');
        }
        b'[' => {
            out.push(b'[');
            for item in items(json)? {
                write_canonical(out, item.get(), volatile, deeper)?;
                out.push(b',');
            }
            out.push(b']');
        }
        b'"' => match serde_json::from_str::<String>(json) {
            Ok(text) => write_text(out, &text),
            Err(_) => out.extend_from_slice(json.as_bytes()),
        },
        _ => out.extend_from_slice(json.as_bytes()),
    }
    Some(())
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing a string into memory has no way to fail.
    let _ = serde_json::to_writer(out, text);
}

/// True when brackets nest deeper than an adapter follows. Only asked about JSON that something else already failed on.
pub(super) fn too_deep(json: &str) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH {
            return true;
        }
    }
    false
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members<'de>, A::Error> {
                let mut read = Vec::new();
                while let Some((name, value)) = members.next_entry::<Text<'de>, &'de RawValue>()? {
                    read.push((name.into_inner().unwrap_or_default(), value));
                }
                Ok(Members(read))
            }
        }
        reader.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_canonical_form_for_all_spellings() {
        let a = canonical(r#"{"b":[1,{"x":"é"}],"a":null}"#, &[]);
        let b = canonical(" {\"a\" : null, \"b\":[ 1, {\"x\":\"\\u00e9\"} ]} ", &[]);
        assert!(a.is_some());
        assert_eq!(a, b);
    }

    #[test]
    fn different_content_has_different_forms() {
        let of = |json| canonical(json, &["v"]);
        assert_ne!(of(r#"{"a":123456789012345678901}"#), of(r#"{"a":123456789012345678902}"#));
        assert_ne!(of(r#"["a","b"]"#), of(r#"["a\",\"b"]"#));
        assert_ne!(of(r#""\ud800""#), of(r#""\ud801""#));
        assert_eq!(of(r#"{"a":1,"v":2}"#), of(r#"{"v":3,"a":1}"#));
    }

    #[test]
    fn what_is_no_json_has_no_form() {
        for text in ["", "hello", "<a/>", "\"a\" b", "{\"a\":1,}", "01"] {
            assert_eq!(canonical(text, &[]), None, "{text}");
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(canonical(&nested(60), &[]).is_some());
        assert!(canonical(&nested(70), &[]).is_none());
        assert!(!too_deep(&nested(60)));
        assert!(too_deep(&nested(70)));
        assert!(!too_deep(&format!("\"\\\"{}\"", "[".repeat(70))));
    }
}
