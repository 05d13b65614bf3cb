//! What holds for any bytes that a client of the door may send: tried by the fuzzer (`fuzz/`), and by a test with seeds, changes to them and
//! made-up conversations.

use bytes::BytesMut;

use super::codec::{Bounds, Decoder, ProtocolError, Words};
use super::command;
use super::script::Scripts;

/// Small enough for a short input to break each of them.
pub(super) const SMALL: Bounds = Bounds { arguments: 4, argument_bytes: 64, command_bytes: 128, line_bytes: 48 };
/// Inputs up to here are cut in two at every byte.
const CUT_EVERYWHERE_BYTES: usize = 256;

/// Reads `input` as all that a client says, in whatever pieces it comes.
///
/// # Panics
///
/// When the pieces matter, when more is held than one command may have, or when anything in it makes the door panic.
pub fn resp(input: &[u8]) {
    let scripts = Scripts::default();
    for bounds in [SMALL, Bounds::STRANGER, Bounds::KNOWN] {
        let whole = decode([input], &bounds);
        assert_eq!(whole, decode(input.chunks(1), &bounds), "it was read otherwise byte by byte");
        for at in 0..input.len().min(CUT_EVERYWHERE_BYTES) {
            let (one, other) = input.split_at(at);
            assert_eq!(whole, decode([one, other], &bounds), "it was read otherwise in two pieces, cut at {at}");
        }
        for words in &whole.0 {
            assert!((1..=bounds.arguments).contains(&words.len()), "{} arguments", words.len());
            let _ = command::read(words);
        }
    }
    let _ = scripts.load(input);
}

/// All commands of what comes in these pieces, and how it ended.
pub(super) fn decode<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, bounds: &Bounds) -> (Vec<Words>, Option<ProtocolError>) {
    let (mut decoder, mut bytes, mut commands) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match decoder.next(&mut bytes, bounds) {
                Ok(Some(words)) => commands.push(words),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        assert!(bytes.len() <= bounds.argument_bytes.max(bounds.line_bytes) + 2, "{} bytes wait to be read", bytes.len());
        let (arguments, held_bytes) = decoder.held();
        assert!(arguments <= 2 * bounds.arguments.max(4), "there is room for {arguments} arguments");
        assert!(held_bytes <= bounds.command_bytes, "{held_bytes} bytes of a command are held");
        assert!(decoder.wants(&bytes) <= bounds.argument_bytes + 2, "{} bytes are asked for", decoder.wants(&bytes));
    }
    (commands, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Conversations of real clients and of strangers, one in each file.
    fn seeds() -> Vec<Vec<u8>> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/resp");
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect()
    }

    #[test]
    fn the_seeds_are_read_alike_however_they_are_cut() {
        let seeds = seeds();
        assert!(seeds.len() >= 10, "there are {} seeds", seeds.len());
        seeds.iter().for_each(|seed| resp(seed));
        let commands: usize = seeds.iter().map(|seed| decode([&seed[..]], &Bounds::KNOWN).0.len()).sum();
        assert!(commands >= 30, "they are conversations: {commands} commands");
    }

    /// Commands as clients send them, and what may come in their place.
    fn made_up() -> impl Strategy<Value = Vec<u8>> {
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

    /// One change to a text: bytes are put in, taken out, or overwritten.
    #[derive(Clone, Debug)]
    struct Change {
        at: prop::sample::Index,
        out: usize,
        put: Vec<u8>,
    }

    impl Change {
        fn make(&self, text: &mut Vec<u8>) {
            let at = self.at.index(text.len() + 1);
            let to = (at + self.out).min(text.len());
            text.splice(at..to, self.put.iter().copied());
        }
    }

    fn change() -> impl Strategy<Value = Change> {
        let put = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            "[*$][0-9]{1,20}\r\n".prop_map(String::into_bytes),
            Just(b"\r\n".to_vec()),
        ];
        (any::<prop::sample::Index>(), 0_usize..6, put).prop_map(|(at, out, put)| Change { at, out, put })
    }

    proptest! {
        #[test]
        fn a_conversation_is_read_alike_however_it_is_cut(input in made_up()) {
            resp(&input);
        }

        #[test]
        fn a_changed_seed_is_an_error_or_waits_for_more(
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec(change(), 1..6),
        ) {
            let mut input = seed.get(&seeds()).clone();
            changes.iter().for_each(|change| change.make(&mut input));
            resp(&input);
        }

        #[test]
        fn garbage_is_an_error_or_waits_for_more(input in prop::collection::vec(any::<u8>(), 0..200)) {
            resp(&input);
        }
    }
}
