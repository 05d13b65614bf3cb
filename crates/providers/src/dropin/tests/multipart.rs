use proptest::prelude::*;

use super::in_parts;
use crate::dropin::multipart::{BadParts, Field, Parts, Reader, is_multipart, read_whole};

const SORT: &str = "multipart/form-data; boundary=b1";

fn read_in_chunks(body: &[u8], sizes: &[usize]) -> Result<Parts, BadParts> {
    let mut reader = Reader::new(SORT)?;
    let (mut rest, mut sizes) = (body, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(sizes.next().map_or(1, |size| *size).clamp(1, rest.len()));
        reader.feed(chunk)?;
        rest = after;
    }
    reader.finish()
}

fn fields(parts: &Parts) -> Vec<(&str, &str)> {
    parts.fields.iter().map(|Field { name, value, .. }| (name.as_str(), std::str::from_utf8(value).expect("text"))).collect()
}

#[test]
fn fields_are_kept_and_files_are_measured() {
    let body = in_parts(
        "b1",
        &[
            ("name=\"text\"", b"a\r\nb\r\n--b"),
            ("name=photo; filename=\"x;\\\"1.png\"", b"\r\n--b0\r\n--"),
            ("filename*=UTF-8''%e2; name=\"doc\"", b""),
            ("name=\"empty\"", b""),
        ],
    );
    let parts = read_whole(SORT, &body).expect("parts");
    assert_eq!(fields(&parts), [("text", "a\r\nb\r\n--b"), ("empty", "")]);
    let files: Vec<_> = parts.files.iter().map(|file| (file.name.as_str(), file.length)).collect();
    assert_eq!(files, [("photo", 10), ("doc", 0)]);
    assert_eq!(parts.files[0].hash, *blake3::hash(b"\r\n--b0\r\n--").as_bytes());
}

#[test]
fn servers_agree_on_what_is_lenient() {
    let with = |body: &str| read_whole(SORT, body.as_bytes()).map(|parts| fields(&parts).join_all());
    // Something in front and behind, blanks behind a boundary, headers in any case, other headers.
    let odd = "hello\r\n--b1  \r\nX: y\r\ncontent-DISPOSITION: form-data; NAME=a\r\n\r\n1\r\n--b1--\r\nbye --b1";
    assert_eq!(with(odd), Ok("a=1".to_owned()));
    let form =
        "--b1\r\nContent-Disposition: form-data; name=f\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nx=1\r\n--b1--";
    assert!(read_whole(SORT, form.as_bytes()).expect("parts").fields[0].is_form);
    assert_eq!(with("--b1--"), Ok(String::new()));
    for sort in ["multipart/form-data; boundary=\"b1\"", "Multipart/Form-Data; charset=utf-8; Boundary=b1"] {
        assert_eq!(read_whole(sort, odd.as_bytes()).map(|parts| parts.fields.len()), Ok(1), "{sort}");
    }
    assert!(is_multipart(Some("Multipart/Form-Data; boundary=1")) && !is_multipart(Some("text/plain")) && !is_multipart(None));
}

trait JoinAll {
    fn join_all(self) -> String;
}

impl JoinAll for Vec<(&str, &str)> {
    fn join_all(self) -> String {
        self.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }
}

#[test]
fn what_is_wrong_is_said() {
    let whole = String::from_utf8(in_parts("b1", &[("name=a", b"1")])).expect("text");
    for (body, expected) in [
        ("", BadParts::CutOff),
        ("--b1", BadParts::CutOff),
        ("--b1-", BadParts::CutOff),
        ("--b2--", BadParts::CutOff),
        (&whole[..whole.len() - 5], BadParts::CutOff),
        ("--b1x\r\n", BadParts::Malformed("something stands behind a boundary")),
        ("--b1\r\n\r\n\r\n--b1--", BadParts::Malformed("a part says not what it is")),
        ("--b1\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b1--", BadParts::Malformed("a part has no name")),
        ("--b1\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n1\r\n--b1--", BadParts::Malformed("a part has no name")),
    ] {
        assert_eq!(read_whole(SORT, body.as_bytes()), Err(expected), "{body:?}");
    }
    for sort in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"\"", ""] {
        assert_eq!(read_whole(sort, b"").err(), Some(BadParts::NoBoundary), "{sort}");
    }
}

#[test]
fn nothing_is_held_without_a_limit() {
    let long = |length| in_parts("b1", &[("name=a", &vec![b'x'; length][..])]);
    assert!(read_whole(SORT, &long(64 << 10)).is_ok());
    assert_eq!(read_whole(SORT, &long((64 << 10) + 1)), Err(BadParts::TooLarge));
    let many = |count| in_parts("b1", &vec![("name=a", &b"1"[..]); count]);
    assert!(read_whole(SORT, &many(256)).is_ok());
    assert_eq!(read_whole(SORT, &many(257)), Err(BadParts::TooLarge));
    let all = in_parts("b1", &vec![("name=a", &[b'x'; 60 << 10][..]); 20]);
    assert_eq!(read_whole(SORT, &all), Err(BadParts::TooLarge));
    let head = format!("--b1\r\nX: {}", "x".repeat(9 << 10));
    assert_eq!(read_whole(SORT, head.as_bytes()), Err(BadParts::TooLarge));
    let endless = "x".repeat(70 << 10);
    assert!(matches!(read_whole(SORT, endless.as_bytes()), Err(BadParts::Malformed(_))));
    let blanks = format!("--b1{}", " ".repeat(9 << 10));
    assert!(matches!(read_whole(SORT, blanks.as_bytes()), Err(BadParts::Malformed(_))));
}

#[test]
fn a_large_file_passes_by() {
    let mut reader = Reader::new(SORT).expect("a reader");
    reader.feed(b"--b1\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n").expect("a head");
    let chunk: Vec<u8> = b"\r\n--b\r\n--".iter().copied().cycle().take(64 << 10).collect();
    let mut hasher = blake3::Hasher::new();
    for _ in 0..64 {
        reader.feed(&chunk).expect("more");
        hasher.update(&chunk);
    }
    reader.feed(b"\r\n--b1--").expect("the end");
    let parts = reader.finish().expect("parts");
    assert_eq!((parts.files[0].length, parts.files[0].hash), (4 << 20, *hasher.finalize().as_bytes()));
}

/// Bytes out of which delimiters, and what looks like them, are made.
fn tricky() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"\r\n-b1x; \"".to_vec()), 0..60)
}

proptest! {
    #[test]
    fn chunks_do_not_matter(values in prop::collection::vec((tricky(), any::<bool>()), 0..5), sizes in prop::collection::vec(1_usize..40, 1..8)) {
        let clean = |value: &Vec<u8>| !value.windows(6).any(|bytes| bytes == b"\r\n--b1");
        prop_assume!(values.iter().all(|(value, _)| clean(value)));
        let parts: Vec<(&str, &[u8])> = values
            .iter()
            .map(|(value, is_file)| (if *is_file { "name=f; filename=f" } else { "name=f" }, value.as_slice()))
            .collect();
        let body = in_parts("b1", &parts);
        let read = read_in_chunks(&body, &sizes).expect("parts");
        let kept: Vec<&[u8]> = read.fields.iter().map(|field| field.value.as_slice()).collect();
        let expected: Vec<&[u8]> = values.iter().filter(|(_, is_file)| !is_file).map(|(value, _)| value.as_slice()).collect();
        prop_assert_eq!(kept, expected);
        let hashed: Vec<[u8; 32]> = read.files.iter().map(|file| file.hash).collect();
        let expected: Vec<[u8; 32]> = values.iter().filter(|(_, is_file)| *is_file).map(|(value, _)| *blake3::hash(value).as_bytes()).collect();
        prop_assert_eq!(hashed, expected);
    }

    #[test]
    fn any_bytes_in_any_chunks_are_read_alike(body in prop::collection::vec(prop::sample::select(b"\r\n-b1x:; =\"".to_vec()), 0..200), sizes in prop::collection::vec(1_usize..40, 1..8)) {
        let body = [&b"--b1\r\nContent-Disposition: form-data; name=a"[..], &body].concat();
        prop_assert_eq!(read_in_chunks(&body, &sizes), read_whole(SORT, &body));
    }
}
