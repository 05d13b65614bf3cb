//! The decoder against any split of its input, and against what is no input at all.

use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { arguments: 4, argument_bytes: 64, command_bytes: 128, line_bytes: 48 };

/// All commands of what comes in these pieces, and how it ended.
fn decode<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> (Vec<Words>, Option<ProtocolError>) {
    let (mut decoder, mut bytes, mut commands) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match decoder.next(&mut bytes, &BOUNDS) {
                Ok(Some(words)) => commands.push(words),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        assert!(bytes.len() <= BOUNDS.argument_bytes.max(BOUNDS.line_bytes) + 2, "it holds no more than it may: {}", bytes.len());
    }
    (commands, None)
}

fn texts(commands: &[Words]) -> Vec<Vec<&str>> {
    commands.iter().map(|words| words.iter().map(|word| std::str::from_utf8(word).expect("text")).collect()).collect()
}

#[test]
fn arrays_and_lines_are_commands() {
    let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\nSET a \"b c\"\n*1\r\n$4\r\nPI";
    let (commands, error) = decode([&input[..]]);
    assert_eq!((texts(&commands), error), (vec![vec!["GET", "a"], vec!["PING"], vec![""], vec!["SET", "a", "b c"]], None));
}

#[test]
fn what_is_too_much_is_refused_when_it_is_announced() {
    for (input, expected) in [
        ("*5\r\n", ProtocolError::ArrayLength),
        ("*1073741824\r\n", ProtocolError::ArrayLength),
        ("*99999999999999999999\r\n", ProtocolError::ArrayLength),
        ("*x\r\n", ProtocolError::ArrayLength),
        ("*1\r\n$1073741824\r\n", ProtocolError::BulkLength),
        ("*1\r\n$-1\r\n", ProtocolError::BulkLength),
        ("*1\r\n$65\r\n", ProtocolError::BulkLength),
        ("*1\r\n:1\r\n", ProtocolError::NoBulk(b':')),
        ("*1\r\n$1\r\nab\r\n", ProtocolError::BulkEnd),
        ("*000000000000000000000000000000000000", ProtocolError::ArrayLength),
        ("*1\r\n$00000000000000000000000000000000000", ProtocolError::BulkLength),
        ("a b c d e\r\n", ProtocolError::ArrayLength),
        ("'a\r\n", ProtocolError::Quotes),
    ] {
        assert_eq!(decode([input.as_bytes()]).1, Some(expected), "{input}");
    }
    let long_line = [b'a'; BOUNDS.line_bytes + 1];
    assert_eq!(decode([&long_line[..]]).1, Some(ProtocolError::LineLength));
    let bulk = format!("$64\r\n{}\r\n", "x".repeat(64));
    assert_eq!(decode([format!("*3\r\n{bulk}{bulk}$1\r\n").as_bytes()]).1, Some(ProtocolError::CommandLength));
    assert_eq!(ProtocolError::NoBulk(b'\r').to_string(), "expected '$', got '\\r'");
}

#[test]
fn the_rest_of_a_long_argument_is_asked_for() {
    let (mut decoder, mut bytes) = (Decoder::default(), BytesMut::from(&b"*1\r\n$10\r\nabc"[..]));
    assert_eq!(decoder.next(&mut bytes, &BOUNDS), Ok(None));
    assert_eq!(decoder.wants(&bytes), 9);
}

/// Commands as clients send them, and what may come in their place.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::collection::vec(any::<u8>(), 0..12);
    let array = prop::collection::vec(word, 1..5).prop_map(|words| {
        let mut sent = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            sent.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            sent.extend_from_slice(&word);
            sent.extend_from_slice(b"\r\n");
        }
        sent
    });
    let line = "[ -~]{0,30}\r?\n".prop_map(String::into_bytes);
    let header = "[*$+:_][0-9-]{0,12}\r\n".prop_map(String::into_bytes);
    let garbage = prop::collection::vec(any::<u8>(), 0..20);
    let part = prop_oneof![6 => array, 2 => line, 1 => header, 1 => garbage];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_split_is_read_alike(input in input(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]);
        let whole = decode([&input[..]]);
        prop_assert_eq!(&whole, &decode(pieces));
        prop_assert_eq!(&whole, &decode(input.chunks(1)));
    }

    #[test]
    fn garbage_is_an_error_or_waits_for_more(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let (commands, _) = decode([&input[..]]);
        prop_assert!(commands.iter().all(|words| !words.is_empty() && words.len() <= BOUNDS.arguments));
    }
}
