//! What the decoder makes of what it is given; that nothing breaks it is shown in `fuzz.rs`.

use super::super::fuzz::{self, SMALL as BOUNDS};
use super::*;

fn decode<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> (Vec<Words>, Option<ProtocolError>) {
    fuzz::decode(pieces, &BOUNDS)
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
