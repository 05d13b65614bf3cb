//! `name=value&name=value`, as in query strings and form bodies.

use std::borrow::Cow;

/// Finds the first value of `name`, decoded. Names are compared decoded too, so `hub%2Emode` is `hub.mode`.
pub fn value_of<'a>(form: &'a str, name: &str) -> Option<Cow<'a, str>> {
    form.split('&').find_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(found)? == name { decode(value) } else { None }
    })
}

/// All pairs in their order, decoded; those that are not UTF-8 are left out.
pub fn pairs(form: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name)?, decode(value)?))
    })
}

/// All pairs in their order, decoded, whatever letters they are made of.
pub(crate) fn raw_pairs(form: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    form.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        (decode_bytes(name), decode_bytes(value))
    })
}

/// A part of a path, where a plus sign stands for itself; `None` when the result is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    String::from_utf8(decode_bytes(text.replace('+', "%2B").as_bytes())).ok()
}

/// Undoes percent and plus encoding; `None` when the result is not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    String::from_utf8(decode_bytes(text.as_bytes())).ok().map(Cow::Owned)
}

fn decode_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = if byte == b'%' { escaped_byte(bytes, at) } else { None };
        match (byte, escaped) {
            (_, Some(decoded)) => {
                out.push(decoded);
                at += 2;
            }
            (b'+', None) => out.push(b' '),
            // A lone percent sign stands for itself, as browsers and servers agree.
            (other, None) => out.push(other),
        }
        at += 1;
    }
    out
}

fn escaped_byte(bytes: &[u8], at: usize) -> Option<u8> {
    let mut byte = [0];
    hex::decode_to_slice(bytes.get(at + 1..at + 3)?, &mut byte).ok()?;
    Some(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_decoded() {
        let form = "hub.mode=subscribe&hub%2Ename=a+b%20c&x=%C3%A9&bad=%zz%&flag";
        assert_eq!(value_of(form, "hub.mode").as_deref(), Some("subscribe"));
        assert_eq!(value_of(form, "hub.name").as_deref(), Some("a b c"));
        assert_eq!(value_of(form, "x").as_deref(), Some("é"));
        assert_eq!(value_of(form, "bad").as_deref(), Some("%zz%"));
        assert_eq!(value_of(form, "flag").as_deref(), Some(""));
        assert_eq!(value_of(form, "y"), None);
        assert_eq!(value_of("x=%ff", "x"), None);
    }
}
