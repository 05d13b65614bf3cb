//! What a request is known by, and what it is about.

use http::{HeaderMap, HeaderName, Method, Uri};

use super::problem::Problem;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// With the caller before it, it still fits into the key of a claim.
pub(super) const KEY_MAX_BYTES: usize = 200;

/// Reads the key: a string of structured fields (`"8e03978e"`), or the same without quotes, as most clients send it.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::BadKey);
    }
    let text = value.to_str().map_err(|_| Problem::BadKey)?.trim();
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or(Problem::BadKey)?,
        None => text.to_owned(),
    };
    if (1..=KEY_MAX_BYTES).contains(&key.len()) { Ok(Some(key)) } else { Err(Problem::BadKey) }
}

/// Reads a string up to its closing quote, which has to be the end.
fn unquote(quoted: &str) -> Option<String> {
    let mut key = String::new();
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => return chars.next().is_none().then_some(key),
            '\\' => key.push(chars.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            plain => key.push(plain),
        }
    }
    None
}

/// The key of the claim: callers have keys of their own, and their credentials are not stored.
pub(super) fn of_caller(caller: Option<&str>, key: &str) -> String {
    let whose = caller.map_or_else(|| "anyone".to_owned(), |caller| short_hash(&[caller.as_bytes()]));
    format!("{whose}/{key}")
}

pub(super) fn fingerprint(method: &Method, target: &Uri, body: &[u8]) -> String {
    let target = target.path_and_query().map_or("", |target| target.as_str());
    short_hash(&[method.as_str().as_bytes(), target.as_bytes(), body])
}

/// 128 bits; each part with its length, so that no two lists of parts are one.
fn short_hash(parts: &[&[u8]]) -> String {
    let mut hash = blake3::Hasher::new();
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize().as_bytes()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(value: &'static str) -> Option<String> {
        let headers = HeaderMap::from_iter([(HEADER, value.parse().expect("a header"))]);
        read(&headers).ok().flatten()
    }

    #[test]
    fn keys_come_with_and_without_quotes() {
        assert_eq!(key_of("8e03"), Some("8e03".to_owned()));
        assert_eq!(key_of(r#""8e03""#), Some("8e03".to_owned()));
        assert_eq!(key_of(r#""a \"b\" \\""#), Some(r#"a "b" \"#.to_owned()));
        for bad in [r#""open"#, r#""a"b"#, r#"""#, "", r#""\x""#] {
            assert_eq!(key_of(bad), None, "{bad}");
        }
        assert_eq!(read(&HeaderMap::new()).ok().flatten(), None);
    }

    #[test]
    fn a_key_is_bounded_and_there_is_one() {
        let with = |value: String| HeaderMap::from_iter([(HEADER, value.parse().expect("a header"))]);
        assert!(read(&with("k".repeat(KEY_MAX_BYTES))).is_ok());
        assert!(read(&with("k".repeat(KEY_MAX_BYTES + 1))).is_err());
        let mut twice = with("a".to_owned());
        twice.append(HEADER, "b".parse().expect("a header"));
        assert!(read(&twice).is_err());
    }

    #[test]
    fn nobody_names_anothers_key() {
        let theirs = of_caller(Some("Bearer one"), "k");
        assert_ne!(theirs, of_caller(Some("Bearer two"), "k"));
        let (whose, _) = theirs.split_once('/').expect("a caller");
        assert_ne!(theirs, of_caller(None, &format!("{whose}/k")));
        assert!(of_caller(Some("x"), &"k".repeat(KEY_MAX_BYTES)).len() <= 255);
    }

    #[test]
    fn the_fingerprint_keeps_its_parts_apart() {
        let of = |path: &str, body: &str| fingerprint(&Method::POST, &path.parse().expect("a path"), body.as_bytes());
        assert_eq!(of("/a", "b"), of("/a", "b"));
        assert_ne!(of("/a", "b"), of("/ab", ""));
        assert_ne!(of("/a?x=1", ""), of("/a", ""));
    }
}
