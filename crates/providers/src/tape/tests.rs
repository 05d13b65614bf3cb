//! What is read from a tape is what `serde_json` reads from the text.

use std::path::Path;

use hapax_domain::fingerprint;
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::*;
use crate::json;

/// The bodies of all fixtures, as they are.
fn bodies() -> Vec<String> {
    let folders = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).read_dir().expect("fixtures");
    let files =
        folders.flatten().filter(|folder| folder.path().is_dir()).flat_map(|folder| folder.path().read_dir().expect("a folder"));
    let texts = files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.filter_map(|text| Some(json::member(&text, "body")?.get().to_owned())).collect()
}

/// Everything that can be asked of a text, answered by the tape and by `serde_json`.
fn agree(text: &str) {
    let read = Tape::of(text);
    assert_eq!(read.is_ok(), serde_json::from_str::<IgnoredAny>(text).is_ok(), "{text}");
    let Ok(tape) = read else { return };
    let of_text = serde_json::from_str::<serde_json::Value>(text).ok();
    assert_eq!(serde_json::Value::deserialize(tape.value(tape.root())).ok(), of_text, "{text}");
    let from_text = serde_json::from_str::<Vec<Kept<'_>>>(text).is_ok();
    assert_eq!(Vec::<Kept<'_>>::deserialize(tape.value(tape.root())).is_ok(), from_text, "{text}");
    assert_eq!(tape.root().get(), text.trim_ascii());
    parts_agree(&tape, tape.root(), text);
}

fn parts_agree(tape: &Tape<'_>, part: Part<'_>, text: &str) {
    for volatile in [&[][..], &["id", "timestamp", "ack"]] {
        let of_text = match fingerprint::of_json(text, volatile) {
            Some(fingerprint) => Some(fingerprint),
            None => (!json::too_deep(text)).then(|| fingerprint::of_bytes(text.as_bytes())),
        };
        assert_eq!(tape.fingerprint(part, volatile).ok(), of_text, "{text}");
    }
    let raw: &RawValue = serde_json::from_str(text).expect("a part");
    assert_eq!(tape.words(Some(part)), json::text(Some(raw)), "{text}");
    let members = json::members(text).unwrap_or_default();
    let found: Vec<_> = tape.members(part).collect();
    assert_eq!(found.len(), members.len(), "{text}");
    for ((name, part), (expected, raw)) in found.iter().zip(&members) {
        assert_eq!((name, part.get()), (expected, raw.get()));
        parts_agree(tape, *part, raw.get());
    }
    if let Ok(items) = Vec::<Part<'_>>::deserialize(tape.value(part)) {
        let expected = json::items(text).expect("an array");
        assert_eq!(items.len(), expected.len());
        items.iter().zip(expected).for_each(|(part, raw)| {
            assert_eq!(part.get(), raw.get());
            parts_agree(tape, *part, raw.get());
        });
    }
}

/// A view with all that views are made of.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
#[expect(dead_code, reason = "whether it can be read is all that is asked")]
struct Kept<'a> {
    #[serde(default)]
    id: crate::lenient::Text<'a>,
    #[serde(default)]
    n: crate::lenient::Integer,
    #[serde(default)]
    flag: crate::lenient::Flag,
    #[serde(default)]
    list: crate::lenient::List<Object<IgnoredAny>>,
}

#[test]
fn fixtures_are_read_alike() {
    let bodies = bodies();
    assert!(bodies.len() > 100, "{}", bodies.len());
    bodies.iter().for_each(|body| agree(body));
}

/// Odd texts and some that are not, apart by spaces.
const ODD: &str = r##"
{ } [ ] [[] []] {}{} [1,] [,1] {,} {"a"} {"a":} {"a":1,} {1:2} [1} {"a":1] [1,2]] {"a":1}} /**/1 'a' nul nulll true truefalse tr
01 - -0 -1 1. .5 1.50 1e 1e5 1E+5 1e- -1.5e-3 1e999 -0.0 00 +1 123456789012345678 1234567890123456789
18446744073709551615 18446744073709551616 -9223372036854775808 -9223372036854775809
"" " """ "\"" "\x" "\u12" "\u12G4" "\ud800" "\ud83d\ude00" "\/\b\f\n\r\t\\" "1234567" "12345678" "1234567é8😀"
{"a":1,"a":2} {"\ud800":1} [{"id":"\ud800"}] [{"other":"\ud800"}] [{"id":1,"id":2}] [{"\u0069d":1,"id":2}]
[{"n":1e999}] [{"other":1e999}] [{"list":{"a":[1e999]}}] [{"list":null,"flag":[]}] [{"list":[null,{},7]}]
[{"n":{"\ud800":1}}] [{"id":{"\ud800":1}}] [{"flag":{"\ud800":1}}] [{"list":{"\ud800":1}}] [{"list":[{"\ud800":1}]}]
{"\ud800":1,"conversation":"x"} {"":1} {"\u0061":1,"a":2}
"##;

#[test]
fn odd_texts_are_read_alike() {
    ODD.split_whitespace().for_each(agree);
    for text in [
        "",
        " ",
        " false ",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        " { \"a\" : [ 1 , 2 ] }\r\n\t",
        "\u{a0}1",
        "\u{b}1",
        " \"\\ud800\"\n",
        "[1e999]\n",
    ] {
        agree(text);
    }
    for text in
        ["\"\u{1}\"", "\"\n\"", "\"\u{7f}é\u{2028}😀\"", "\"12345678\u{1f}\"", "\"\u{1f}2345678\"", "\u{feff}{}", "{}\u{0}"]
    {
        agree(text);
    }
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for depth in [1, 60, 64, 65, 126, 127, 128, 129, 1_000] {
        agree(&nested(depth));
        agree(&format!(r#"{{"a":{}}}"#, nested(depth)));
    }
    agree(&"[".repeat(100_000));
}

#[test]
fn what_holds_too_much_is_not_read() {
    let many = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
    assert!(Tape::of(&many(JSON_VALUES_MAX)).is_ok());
    let why = Tape::of(&many(JSON_VALUES_MAX + 1)).err();
    assert_eq!(why.as_deref(), Some("JSON of more than 1048576 values"));
    assert_eq!(Tape::of(&"[".repeat(4 << 20)).err(), why);
}

#[test]
fn it_says_where_it_is_odd_and_nothing_of_what_stands_there() {
    let why = |text| Tape::of(text).err();
    assert_eq!(why("{\"a\":\n  secret}").as_deref(), Some("not readable as JSON at line 2, column 2"));
    let tape = Tape::of(r#"{"list":[{"id":1,"id":2}]}"#).expect("JSON");
    let (_, list) = tape.members(tape.root()).next().expect("a member");
    let items = Vec::<Part<'_>>::deserialize(tape.value(list)).expect("items");
    assert_eq!(tape.object::<Kept<'_>>(items[0]).err().as_deref(), Some("not readable as JSON at line 1, column 15"));
    assert_eq!(tape.object::<Kept<'_>>(list).err().as_deref(), Some("expected a JSON object"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_like_texts_are_read_alike(text in r#"[\[\]{}",:0-3tfnulrase\\u .E+-]{0,40}"#) {
        agree(&text);
    }

    #[test]
    fn mutated_fixtures_are_read_alike(
        which in any::<prop::sample::Index>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<char>()), 1..4),
    ) {
        let mut body = bodies().swap_remove(which.index(bodies().len()));
        for (at, what, new) in edits {
            let mut chars: Vec<char> = body.chars().collect();
            let at = at.index(chars.len());
            match what {
                0 => chars[at] = new,
                1 => drop(chars.remove(at)),
                _ => chars.insert(at, ['"', '\\', '{', '}', '[', ']', ',', ':'][new as usize % 8]),
            }
            body = chars.into_iter().collect();
        }
        agree(&body);
    }
}
