//! What documents are called.

use hapax_domain::ThreadId;
use hapax_store::steps::records::Hash;

pub(super) const KEYS: &str = "processed_messages";
pub(super) const THREADS: &str = "threads";
pub(super) const ENTRIES: &str = "messages";
pub(super) const OUTBOX: &str = "outbox";
pub(super) const EVENTS: &str = "hapax_events";
/// What of a body or an answer finds no room in the document it belongs to.
pub(super) const PIECES: &str = "hapax_pieces";
/// Pieces of files that are to be sent.
pub(super) const FILES: &str = "hapax_files";
pub(super) const ITEMS: &str = "hapax_items";
pub(super) const LANES: &str = "hapax_lanes";
pub(super) const NAMES: &str = "hapax_names";
pub(super) const PROVIDER_NAMES: &str = "hapax_provider_names";
/// Makes a request id unique per account, whatever its message's document is called.
pub(super) const REQUESTS: &str = "hapax_requests";
pub(super) const ATTEMPTS: &str = "hapax_attempts";
pub(super) const ANSWERS: &str = "hapax_answers";
pub(super) const PAUSED: &str = "hapax_paused";
pub(super) const SETTINGS: &str = "hapax_settings";
pub(super) const CLAIMS: &str = "hapax_claims";
pub(super) const NONCES: &str = "hapax_nonces";

/// Firestore allows 1500 bytes.
const ID_MAX_BYTES: usize = 1_400;

/// A document named by a number. The bits are turned round, because ids that grow make one server take all the writes.
pub(super) fn numbered(collection: &str, number: u64) -> String {
    format!("{collection}/{:016x}", number.reverse_bits())
}

/// The number that a document's id was made of.
pub(super) fn number_in(id: &str) -> Option<u64> {
    u64::from_str_radix(id, 16).ok().map(u64::reverse_bits)
}

pub(super) fn hashed(collection: &str, hash: &Hash) -> String {
    format!("{collection}/{}", hex::encode(hash))
}

pub(super) fn piece(of: &str, index: usize) -> String {
    format!("{PIECES}/{}-{index}", of.replace('/', "-"))
}

/// The document of a thread: its id as text, or a hash where that is too long.
pub(super) fn thread_doc_id(account: &str, peer: &str) -> String {
    // The text has a percent sign only where it escapes something else, so no two threads meet.
    let text = ThreadId { account: account.to_owned(), peer: peer.to_owned() }.to_string().replace('/', "%2F");
    if text.len() > ID_MAX_BYTES { digest(&text) } else { text }
}

/// The documents that a message may have, best first: its request id, that with its account before it, and a hash.
pub(super) fn outbox_doc_ids(account: &str, request_id: &str, request: &Hash) -> [String; 3] {
    [escaped(request_id), escaped(&format!("{account}__{request_id}")), format!("request_{}", hex::encode(request))]
}

fn escaped(text: &str) -> String {
    let mut id = text.replace('%', "%25").replace('/', "%2F");
    if id == "." || id == ".." {
        id = id.replace('.', "%2E");
    }
    if id.starts_with("__") && id.ends_with("__") {
        id = id.replacen('_', "%5F", 1);
    }
    if id.is_empty() || id.len() > ID_MAX_BYTES { digest(text) } else { id }
}

fn digest(text: &str) -> String {
    format!("hash_{}", blake3::hash(text.as_bytes()).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_firestore_allows_and_never_meet() {
        let odd = ["", ".", "..", "__a__", "____", "a/b", "a%2Fb", "a%b", &"x".repeat(2_000), "é"];
        let mut seen = std::collections::HashSet::new();
        for text in odd {
            let id = escaped(text);
            assert!(!id.is_empty() && id.len() <= 1_500 && !id.contains('/') && id != "." && id != "..", "{text}");
            assert!(!(id.starts_with("__") && id.ends_with("__")), "{text}");
            assert!(seen.insert(id), "{text}");
        }
    }

    #[test]
    fn a_thread_keeps_its_readable_name() {
        assert_eq!(thread_doc_id("700001", "5511988887777"), "700001__5511988887777");
        assert_eq!(thread_doc_id("a/b", "c"), "a%2Fb__c");
        assert!(thread_doc_id("a", &"p".repeat(3_000)).starts_with("hash_"));
    }
}
