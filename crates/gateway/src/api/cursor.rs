//! Where a list goes on. A cursor tells its holder nothing, and is good for the list and the caller it was made for.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Api, Caller, Code, Problem};

const CHECK_BYTES: usize = 16;
/// Places are filled up to a multiple of this: how long they are tells nothing either.
const BLOCK_BYTES: usize = 64;

/// Makes and reads the cursors of one list for one caller.
pub(super) struct Cursors {
    check_key: [u8; 32],
    cipher_key: [u8; 32],
}

impl Cursors {
    /// A list within something, as the messages of a thread, is named with it.
    pub(super) fn new(api: &Api, caller: &Caller, list: &str, within: &str) -> Self {
        Self::keyed(&api.auth.cursor_key(), &[&caller.identity(), list, within])
    }

    pub(super) fn keyed(key: &[u8; 32], parts: &[&str]) -> Self {
        let mut about = blake3::Hasher::new_keyed(key);
        for part in parts {
            // Length before each part, so that no two lists of parts look alike.
            about.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let key = *about.finalize().as_bytes();
        Self {
            check_key: blake3::derive_key("hapax cursor check", &key),
            cipher_key: blake3::derive_key("hapax cursor cipher", &key),
        }
    }

    pub(super) fn write(&self, place: &str) -> String {
        let mut bytes = place.as_bytes().to_vec();
        bytes.push(1);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let check = self.check(&bytes);
        self.cipher(&check, &mut bytes);
        URL_SAFE_NO_PAD.encode([&check[..], &bytes].concat())
    }

    fn read(&self, text: &str) -> Result<String, Problem> {
        let todo = "the cursor is not from a page of this list: give the `next` of the page before, with the same token";
        self.open(text).ok_or_else(|| Problem::new(Code::InvalidCursor, todo))
    }

    /// What was written here; nothing for what was not.
    pub(super) fn open(&self, text: &str) -> Option<String> {
        let all = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (check, bytes) = all.split_first_chunk::<CHECK_BYTES>()?;
        let mut bytes = bytes.to_vec();
        self.cipher(check, &mut bytes);
        if !bool::from(subtle::ConstantTimeEq::ct_eq(&self.check(&bytes)[..], &check[..])) {
            return None;
        }
        let end = bytes.iter().rposition(|byte| *byte == 1)?;
        bytes.truncate(end);
        String::from_utf8(bytes).ok()
    }

    /// The place after which a page begins, where one was asked for.
    pub(super) fn place<T>(
        &self,
        cursor: Option<&str>,
        read: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        cursor.map(|cursor| read(&self.read(cursor)?)).transpose()
    }

    /// Tells whether a place was written here, and starts the cipher: the same place gives the same cursor, others have nothing in common.
    fn check(&self, bytes: &[u8]) -> [u8; CHECK_BYTES] {
        let mut check = [0; CHECK_BYTES];
        blake3::Hasher::new_keyed(&self.check_key).update(bytes).finalize_xof().fill(&mut check);
        check
    }

    fn cipher(&self, check: &[u8; CHECK_BYTES], bytes: &mut [u8]) {
        let mut stream = vec![0; bytes.len()];
        blake3::Hasher::new_keyed(&self.cipher_key).update(check).finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    fn a_cursor_reads_back_where_it_was_made_and_nowhere_else() {
        let cursors = Cursors::keyed(&KEY, &["bot", "messages", "7__1"]);
        for place in ["", "evt_1", "a\u{1}b\u{0}", &"x".repeat(500)] {
            assert_eq!(cursors.read(&cursors.write(place)).ok().as_deref(), Some(place));
        }
        let cursor = cursors.write("evt_1");
        for other in [
            Cursors::keyed(&KEY, &["bot", "messages7__1", ""]),
            Cursors::keyed(&KEY, &["bot", "messages", "7__2"]),
            Cursors::keyed(&KEY, &["cat", "messages", "7__1"]),
            Cursors::keyed(&[8; 32], &["bot", "messages", "7__1"]),
        ] {
            assert!(other.read(&cursor).is_err());
        }
        for odd in ["", "evt_1", "####", &cursor[1..], &cursor[..cursor.len() - 1]] {
            assert!(cursors.read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_cursor_tells_nothing() {
        let cursors = Cursors::keyed(&KEY, &["bot", "threads", ""]);
        let (one, other) = (cursors.write("1700000000000 7__5511"), cursors.write("1700000000001 7__551199998888"));
        assert_eq!(one.len(), other.len());
        let alike = one.bytes().zip(other.bytes()).filter(|(a, b)| a == b).count();
        assert!(alike < one.len() / 4, "{alike} of {}", one.len());
    }
}
