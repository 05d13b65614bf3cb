//! What a command said and how it ended, as it is kept with its claim and said again.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::limits::CLAIM_RESULT_MAX_BYTES;
use serde_json::{Value, json};

use crate::cli::Failure;

/// So much of its output is kept.
const OUTPUT_MAX_BYTES: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        }
    }

    /// Writes as the command did. A reader that has seen enough is no failure.
    pub(super) fn say(self, bytes: &[u8]) {
        let _ = match self {
            Stream::Out => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
            Stream::Err => std::io::stderr().write_all(bytes),
        };
    }
}

/// The beginning of what was said, in order, and whether there was more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    said: Vec<(Stream, Vec<u8>)>,
    bytes: usize,
    cut: bool,
    code: u8,
}

impl Kept {
    pub(super) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let room = OUTPUT_MAX_BYTES - self.bytes;
        self.cut |= bytes.len() > room;
        let some = &bytes[..bytes.len().min(room)];
        self.bytes += some.len();
        match self.said.last_mut() {
            Some((last, said)) if *last == stream => said.extend_from_slice(some),
            _ if !some.is_empty() => self.said.push((stream, some.to_vec())),
            _ => {}
        }
    }

    /// As it is kept. What needs more room as JSON than a claim has loses its end.
    pub(super) fn write(mut self, code: u8) -> Value {
        loop {
            if self.cut {
                self.drop_last(self.half_a_character());
            }
            let written = self.written(code);
            let length = written.to_string().len();
            if length <= CLAIM_RESULT_MAX_BYTES || self.said.is_empty() {
                return written;
            }
            // Some bytes need several as JSON: as many go as would be too many of the usual ones.
            let fits = (self.bytes as u64 * CLAIM_RESULT_MAX_BYTES as u64 / length as u64) as usize;
            self.drop_last(self.bytes - fits + 1_000);
        }
    }

    fn drop_last(&mut self, mut bytes: usize) {
        self.cut = true;
        while bytes > 0
            && let Some((_, said)) = self.said.last_mut()
        {
            let some = bytes.min(said.len());
            said.truncate(said.len() - some);
            bytes -= some;
            self.bytes -= some;
            if said.is_empty() {
                self.said.pop();
            }
        }
    }

    /// How many bytes of a text's last character are left when its end was cut off.
    fn half_a_character(&self) -> usize {
        let Some((_, said)) = self.said.last() else { return 0 };
        match std::str::from_utf8(said) {
            Err(error) if error.error_len().is_none() => said.len() - error.valid_up_to(),
            _ => 0,
        }
    }

    fn written(&self, code: u8) -> Value {
        let said = |(stream, bytes): &(Stream, Vec<u8>)| match std::str::from_utf8(bytes) {
            Ok(text) => json!({ stream.name(): text }),
            Err(_) => json!({ stream.name(): { "base64": STANDARD.encode(bytes) } }),
        };
        let output: Vec<Value> = self.said.iter().map(said).collect();
        json!({ "exit_code": code, "output": output, "truncated": self.cut })
    }

    pub(super) fn read(result: &Value) -> Self {
        let mut kept =
            Self { code: result["exit_code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(0), ..Self::default() };
        for part in result["output"].as_array().into_iter().flatten() {
            for stream in [Stream::Out, Stream::Err] {
                let said = &part[stream.name()];
                let bytes = match (said.as_str(), said["base64"].as_str()) {
                    (Some(text), _) => text.as_bytes().to_vec(),
                    (None, Some(base64)) => STANDARD.decode(base64).unwrap_or_default(),
                    (None, None) => continue,
                };
                kept.add(stream, &bytes);
            }
        }
        kept.cut |= result["truncated"] == json!(true);
        kept
    }

    /// Says it again, and ends as the command did.
    pub(super) fn replay(self) -> Result<(), Failure> {
        self.said.iter().for_each(|(stream, bytes)| stream.say(bytes));
        if self.cut {
            Stream::Err.say(b"hapax once: only the beginning of the output was kept\n");
        }
        if self.code == 0 { Ok(()) } else { Err(Failure::Exit { code: self.code, why: None }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_comes_back_in_order() {
        let mut kept = Kept::default();
        for (stream, bytes) in [(Stream::Out, &b"a\n"[..]), (Stream::Out, b"b\n"), (Stream::Err, b"\xff\0"), (Stream::Out, b"c")]
        {
            kept.add(stream, bytes);
        }
        let back = Kept::read(&kept.write(7));
        let said = vec![(Stream::Out, b"a\nb\n".to_vec()), (Stream::Err, b"\xff\0".to_vec()), (Stream::Out, b"c".to_vec())];
        assert_eq!((back.said, back.code, back.cut), (said, 7, false));
    }

    #[test]
    fn the_first_megabyte_is_kept_and_never_more_than_a_claim_holds() {
        for line in [&b"all is well, and goes on\n"[..], b"\xff\xfe", b"\x01\x02"] {
            let mut kept = Kept::default();
            (0..2_000_000 / line.len()).for_each(|_| kept.add(Stream::Out, line));
            let written = kept.write(0);
            assert!(written.to_string().len() <= CLAIM_RESULT_MAX_BYTES);
            let back = Kept::read(&written);
            assert!(back.cut && back.bytes >= 150_000, "{} bytes", back.bytes);
            assert!(line[0] != b'a' || back.bytes >= 999_000, "{} bytes of plain text", back.bytes);
        }
    }

    /// Half a character would make all of it no text, which takes a third more room.
    #[test]
    fn no_character_is_cut_in_two() {
        for text in ["éa", "é\n", "😀ab", "\u{1}€"] {
            let text = text.repeat(1_500_000 / text.len());
            let mut kept = Kept::default();
            text.as_bytes().chunks(8_191).for_each(|chunk| kept.add(Stream::Out, chunk));
            let written = kept.write(0);
            let said = written["output"][0]["stdout"].as_str().expect("it is kept as text");
            assert!(text.starts_with(said) && written["truncated"] == json!(true));
            let room = CLAIM_RESULT_MAX_BYTES - written.to_string().len();
            assert!(said.len() >= OUTPUT_MAX_BYTES - 3 || room < 10_000, "{} bytes kept, room for {room}", said.len());
        }
        let mut kept = Kept::default();
        kept.add(Stream::Out, b"ends in half: \xc3");
        assert_eq!(Kept::read(&kept.write(0)).said[0].1, b"ends in half: \xc3", "as it was said");
    }
}
