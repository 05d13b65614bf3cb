//! Takes secrets that a provider writes into its webhooks out of them, before anybody keeps a body.

use std::ops::Range;

use serde::de::IgnoredAny;

/// Stands in for a secret that is kept nowhere.
pub(super) const REDACTED: &str = "[redacted]";

/// A secret that stands in bodies under a name. Case, `_` and `-` make no other name.
#[derive(Clone, Copy)]
pub(super) struct Secret {
    /// In small letters.
    pub(super) name: &'static str,
    /// At any depth; otherwise a member of the whole only.
    pub(super) anywhere: bool,
}

impl Secret {
    /// The body with another value, itself JSON, for what bears the name; all other bytes stay. `None` when there is nothing to replace.
    ///
    /// `instead` is asked with each value that is a text, and with an empty one in place of others. Only a body that is JSON is looked at.
    pub(super) fn replaced(&self, body: &[u8], instead: impl Fn(&str) -> Option<String>) -> Option<Vec<u8>> {
        let text = as_json(body)?;
        let values = self.values(text).into_iter().filter(|value| &text[value.clone()] != "null");
        let changes = values.filter_map(|value| {
            let given: String = serde_json::from_str(&text[value.clone()]).unwrap_or_default();
            Some((value, instead(&given)?.into_bytes()))
        });
        write(body, changes)
    }

    /// The same for a body that need not be JSON: there, whatever looks like the secret is blanked.
    pub(super) fn blanked(&self, body: &[u8], instead: impl Fn(&str) -> String) -> Option<Vec<u8>> {
        match as_json(body) {
            Some(_) => self.replaced(body, |given| Some(instead(given))),
            None => write(body, self.lookalikes(body).into_iter().map(|value| (value, REDACTED.as_bytes().to_vec()))),
        }
    }

    /// Where the values stand in JSON: each name is the one text that a colon follows.
    fn values(&self, json: &str) -> Vec<Range<usize>> {
        let bytes = json.as_bytes();
        let (mut at, mut depth, mut found) = (0, 0_usize, Vec::new());
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    let end = at + length_of_value(&json[at..]);
                    let colon = end + blanks(&bytes[end..]);
                    if bytes.get(colon) != Some(&b':') {
                        at = end;
                        continue;
                    }
                    let value = colon + 1 + blanks(&bytes[colon + 1..]);
                    let wanted = (self.anywhere || depth == 1) && self.is_called(&json[at..end]);
                    at = value;
                    if wanted {
                        at += length_of_value(&json[value..]);
                        found.push(value..at);
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        found
    }

    fn is_called(&self, name: &str) -> bool {
        // A name that is no Unicode is none of ours.
        let name: String = serde_json::from_str(name).unwrap_or_default();
        let plain = name.chars().filter(|sign| !matches!(sign, '_' | '-')).map(|sign| sign.to_ascii_lowercase());
        plain.eq(self.name.chars())
    }

    /// Where values stand in a body of any kind, by one look at each byte: cut JSON, JSON in a text, a form, percent signs in it.
    fn lookalikes(&self, body: &[u8]) -> Vec<Range<usize>> {
        let (mut at, mut found) = (0, Vec::new());
        while at < body.len() {
            let Some(length) = self.length_of_name(&body[at..]) else {
                at += 1;
                continue;
            };
            at += length;
            if let Some((start, opened)) = start_of_value(&body[at..]) {
                let start = at + start;
                at = start + length_until(&body[start..], opened);
                found.push(start..at);
            }
        }
        // Nothing, and the beginning of it.
        found.retain(|value| !b"null".starts_with(&body[value.clone()]));
        found
    }

    fn length_of_name(&self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        for letter in self.name.bytes() {
            while at > 0 && matches!(bytes.get(at)?, b'_' | b'-') {
                at += 1;
            }
            if !bytes.get(at)?.eq_ignore_ascii_case(&letter) {
                return None;
            }
            at += 1;
        }
        Some(at)
    }
}

/// What a value was opened with, so that it ends with the same.
#[derive(Clone, Copy)]
enum Opened {
    Nothing,
    Quote(u8),
    /// A quote within a text, or within a text in that, behind so many backslashes.
    Escaped(usize),
    /// A quote of an address.
    Percent,
    /// A list or an object, in what cannot be read: all that follows may belong to it.
    Nested,
    /// It was blanked before.
    Redacted,
}

const BETWEEN_MAX: usize = 64;

/// Where the value begins behind a name, if there is one: a colon or an equals sign has to stand between them.
fn start_of_value(bytes: &[u8]) -> Option<(usize, Opened)> {
    let (mut at, mut parted) = (0, false);
    while at < BETWEEN_MAX {
        let rest = bytes.get(at..)?;
        let slashes = slashes(&rest[..rest.len().min(BETWEEN_MAX)]);
        let (length, quote) = match rest {
            [b'\\', ..] if matches!(rest.get(slashes), Some(b'"' | b'\'')) => (slashes + 1, Opened::Escaped(slashes)),
            [b'%', b'2', b'2', ..] => (3, Opened::Percent),
            [quote @ (b'"' | b'\''), ..] => (1, Opened::Quote(*quote)),
            [b':' | b'=', ..] if !parted => (1, Opened::Nothing),
            [b'%', b'3', b'A' | b'a' | b'D' | b'd', ..] if !parted => (3, Opened::Nothing),
            [b' ' | b'+' | b'\t' | b'\r' | b'\n', ..] => (1, Opened::Nothing),
            [b'%', b'2', b'0', ..] | [b'%', b'5', b'C' | b'c', ..] => (3, Opened::Nothing),
            _ if !parted => return None,
            _ if rest.starts_with(REDACTED.as_bytes()) => return Some((at, Opened::Redacted)),
            [b'[' | b'{', ..] | [b'%', b'5' | b'7', b'B' | b'b', ..] => return Some((at, Opened::Nested)),
            _ => return Some((at, Opened::Nothing)),
        };
        let parts = matches!(rest[0], b':' | b'=') || rest.starts_with(b"%3");
        at += length;
        parted |= parts;
        if parted && !matches!(quote, Opened::Nothing) {
            return Some((at, quote));
        }
    }
    None
}

fn length_until(bytes: &[u8], opened: Opened) -> usize {
    let plain_end = |at: usize| {
        matches!(bytes[at], b'"' | b'\'' | b'&' | b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
            || bytes[at..].starts_with(b"%22")
            || bytes[at..].starts_with(b"%26")
    };
    let mut at = 0;
    while at < bytes.len() {
        let slashes = slashes(&bytes[at..]);
        let (ends, length) = match opened {
            Opened::Nothing => (plain_end(at), 1),
            Opened::Quote(quote) => (bytes[at] == quote, 1 + usize::from(slashes > 0)),
            // Behind more backslashes it is a quote within the value.
            Opened::Escaped(most) if slashes > 0 => (slashes <= most && bytes.get(at + slashes) == Some(&b'"'), slashes + 1),
            Opened::Escaped(_) => (false, 1),
            Opened::Percent if bytes[at..].starts_with(b"%5C%22") || bytes[at..].starts_with(b"%5c%22") => (false, 6),
            Opened::Percent => (bytes[at..].starts_with(b"%22"), 1),
            Opened::Nested => return bytes.len(),
            Opened::Redacted => return REDACTED.len(),
        };
        if ends {
            return at;
        }
        at += length;
    }
    bytes.len()
}

/// How many backslashes it begins with.
fn slashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'\\').count()
}

fn as_json(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok().map(|_| text)
}

/// How long the JSON value is that the text begins with.
fn length_of_value(json: &str) -> usize {
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<IgnoredAny>();
    values.next();
    values.byte_offset().max(1)
}

fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Ranges are in order and apart.
fn write(body: &[u8], changes: impl Iterator<Item = (Range<usize>, Vec<u8>)>) -> Option<Vec<u8>> {
    let (mut out, mut written) = (Vec::with_capacity(body.len()), 0);
    for (range, value) in changes {
        out.extend_from_slice(&body[written..range.start]);
        out.extend_from_slice(&value);
        written = range.end;
    }
    (written > 0).then(|| {
        out.extend_from_slice(&body[written..]);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Secret = Secret { name: "apikey", anywhere: true };

    fn blank(secret: Secret, body: &str) -> String {
        let blanked = secret.blanked(body.as_bytes(), |_| format!("\"{REDACTED}\""));
        String::from_utf8(blanked.unwrap_or_else(|| body.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn a_member_is_replaced_wherever_and_however_it_is_written() {
        for (body, kept) in [
            (r#"{"apikey":"S3CRET","a":1}"#, r#"{"apikey":"[redacted]","a":1}"#),
            (r#"{"data":[{"apiKey" : "S3CRET"}]}"#, r#"{"data":[{"apiKey" : "[redacted]"}]}"#),
            (r#"{"api_key":["S3CRET",{"a":"S3CRET"}],"b":2}"#, r#"{"api_key":"[redacted]","b":2}"#),
            (r#"{"apike\u0079":"S3\"CRET"}"#, r#"{"apike\u0079":"[redacted]"}"#),
            (r#"{"apikey":"S3CRET","apikey":12345}"#, r#"{"apikey":"[redacted]","apikey":"[redacted]"}"#),
            (r#"[{"API-KEY":"S3CRET"}]"#, r#"[{"API-KEY":"[redacted]"}]"#),
        ] {
            assert_eq!(blank(KEY, body), kept);
        }
    }

    #[test]
    fn what_people_say_is_left_alone() {
        for body in [
            r#"{"apikey":null}"#,
            r#"{"text":"apikey: S3CRET","a":"apikey"}"#,
            r#"{"text":"{\"apikey\":\"x\"}"}"#,
            r#"{"apikeys":"a","myapikey":"b"}"#,
            "{}",
            "",
        ] {
            assert_eq!(blank(KEY, body), body);
        }
    }

    #[test]
    fn in_what_is_no_json_all_that_looks_like_it_is_blanked() {
        for body in [
            r#"{"apikey":"S3CRET","a":"#,
            r#"{"apikey":"S3CR"#,
            r#"{'apiKey': 'S3CRET with, more}'}"#,
            r#"apikey=S3CRET&instance=a"#,
            r#"{"data":"{\"apikey\":\"S3CRET\"}","#,
            r#"payload=%7B%22apikey%22%3A%22S3CRET%22%7D"#,
            "{\"apikey\"\n:\t\"S3\\\"CRET\",",
            r#"{"api_key": S3CRET, "#,
            r#"} {"apikey":"S3CRET"} {"APIKEY":"S3CRET"}"#,
            r#"payload=%7B%22apikey%22%3A+%22S3CRET%22%7D"#,
            r#"payload=%7B%22apikey%22%3A%22S3%5C%22CRET%22%7D"#,
            r#"a=%7B%5C%22apikey%5C%22%3A%5C%22S3CRET%5C%22%7D"#,
            r#"{"data":"{\"apikey\":\"S3\\\"CRET\"}","#,
            r#"{"apikey":["S3CRET"],"#,
            r#"{"apikey":[ {"a":"S3CRET"},"#,
            r#"payload=%7B%22apikey%22%3A%5B%22S3CRET%22%5D"#,
            r#"{"a":"{\\\"apikey\\\":\\\"S3CRET\\\"}","#,
            r#"{"a":"{\\\\\\\"apikey\\\\\\\":\\\\\\\"S3CRET\\\\\\\"}","#,
        ] {
            let kept = blank(KEY, body);
            assert!(!kept.contains("S3C") && !kept.contains("CRET") && kept.contains(REDACTED), "{body} -> {kept}");
            assert_eq!(blank(KEY, &kept), kept, "once is enough");
        }
        for body in ["the apikey is not here", "apikey", "apikey:", "apikey=\"\"", "{\"apikey", "{\"apikey\": nul"] {
            assert_eq!(blank(KEY, body), body);
        }
        assert_eq!(
            KEY.blanked(b"\xff{\"apikey\":\"S3CRET\"}", |_| String::new()),
            Some(b"\xff{\"apikey\":\"[redacted]\"}".to_vec())
        );
    }

    #[test]
    fn a_member_of_the_whole_is_not_one_of_a_part() {
        let token = Secret { name: "token", anywhere: false };
        let body = r#"{"token":"S3CRET","event":{"token":"said"}}"#;
        assert_eq!(blank(token, body), r#"{"token":"[redacted]","event":{"token":"said"}}"#);
    }

    #[test]
    fn long_bodies_of_names_alone_take_one_look() {
        let many = "apikey:".repeat(100_000);
        assert_eq!(KEY.lookalikes(many.as_bytes()).len(), 1);
        assert!(KEY.lookalikes("apikey ".repeat(100_000).as_bytes()).is_empty());
        assert!(KEY.lookalikes(&b"a_".repeat(500_000)).is_empty());
    }
}
