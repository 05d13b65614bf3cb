//! Commands that a person types: words with blanks between them, some in quotes.

use bytes::Bytes;

use super::{ProtocolError, Words};

/// Splits a line into its words; an empty line has none.
pub(super) fn split(line: &[u8], most: usize) -> Result<Words, ProtocolError> {
    let (mut words, mut rest) = (Words::new(), line.trim_ascii());
    while !rest.is_empty() {
        if words.len() == most {
            return Err(ProtocolError::ArrayLength);
        }
        let (word, after) = match rest[0] {
            b'"' => quoted(&rest[1..])?,
            b'\'' => plainly_quoted(&rest[1..])?,
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                (rest[..end].to_vec(), &rest[end..])
            }
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(ProtocolError::Quotes);
        }
        words.push(Bytes::from(word));
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

/// What stands in double quotes, with its escapes read, and what follows.
fn quoted(mut text: &[u8]) -> Result<(Vec<u8>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    loop {
        let (byte, taken) = match text {
            [b'"', rest @ ..] => return Ok((word, rest)),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (nibble(*high) << 4 | nibble(*low), 4)
            }
            [b'\\', escaped, ..] => (unescape(*escaped), 2),
            [plain, ..] => (*plain, 1),
            [] => return Err(ProtocolError::Quotes),
        };
        word.push(byte);
        text = &text[taken..];
    }
}

/// Single quotes know one escape: their own.
fn plainly_quoted(mut text: &[u8]) -> Result<(Vec<u8>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    loop {
        let (byte, taken) = match text {
            [b'\'', rest @ ..] => return Ok((word, rest)),
            [b'\\', b'\'', ..] => (b'\'', 2),
            [plain, ..] => (*plain, 1),
            [] => return Err(ProtocolError::Quotes),
        };
        word.push(byte);
        text = &text[taken..];
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, ProtocolError> {
        let text = |word: &Bytes| String::from_utf8_lossy(word).into_owned();
        split(line.as_bytes(), 4).map(|words| words.iter().map(text).collect())
    }

    #[test]
    fn words_are_split_as_redis_splits_them() {
        for (line, expected) in [
            ("", vec![]),
            ("  \t ", vec![]),
            ("PING", vec!["PING"]),
            (" SET  a\tb ", vec!["SET", "a", "b"]),
            (r#"SET "a b" "\"\x41\n""#, vec!["SET", "a b", "\"A\n"]),
            (r"SET 'a \n' 'it\'s'", vec!["SET", r"a \n", "it's"]),
            (r#"SET a """#, vec!["SET", "a", ""]),
            (r#""\xzz""#, vec!["xzz"]),
        ] {
            assert_eq!(
                words(line).as_deref(),
                Ok(expected.as_slice()).map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).as_deref(),
                "{line}"
            );
        }
        for line in [r#"SET "a"#, r#"SET "a"b"#, "SET 'a", r#"""" "#, r#"" \"#] {
            assert_eq!(words(line), Err(ProtocolError::Quotes), "{line}");
        }
        assert_eq!(words("a b c d e"), Err(ProtocolError::ArrayLength));
    }
}
