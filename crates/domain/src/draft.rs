//! What somebody wants sent, before it is a message: read, checked and fingerprinted in one way, whether it came over the API, in a handler's
//! answer or in a document of a front end.

use crate::limits::{MESSAGE_MAX_BYTES, NAME_MAX_BYTES};
use crate::send_at::SendAt;

/// Whom it is for, where that was said, and what is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// As it was written; the channel's adapter spells it.
    pub to: Option<String>,
    /// A JSON object: the provider's own request body, or `{"text": …}`.
    pub payload: String,
    /// Not before then; `None`: at once.
    pub send_at: Option<SendAt>,
}

/// Why something cannot be sent, and what to change. Repeats nothing of what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDraft {
    #[error("say what to send with exactly one of `text` and `payload` (the provider's own request body)")]
    NotOne,
    #[error("`text` is empty; write what is to be sent")]
    EmptyText,
    #[error("`payload` must be an object: the provider's own request body")]
    NoObject,
    #[error("`{0}` is empty; fill it in")]
    Empty(&'static str),
    #[error("`{0}` must be at most {NAME_MAX_BYTES} bytes, without control characters")]
    BadName(&'static str),
    #[error(
        "a message may have {} KB, this one has more; shorten or split the text, and send files by link or by the provider's media id",
        MESSAGE_MAX_BYTES >> 10
    )]
    TooLarge,
    #[error(
        "`send_at` cannot be read; write a time with its offset, like `2026-12-24T18:00:00+01:00`, or a time from now, like `90s`, `2h` or `3d`"
    )]
    NoTime,
    #[error("`send_at` is more than a year ahead; keep the message yourself until then")]
    TooFarAhead,
}

impl Draft {
    pub fn read(to: Option<String>, text: Option<&str>, payload: Option<&str>) -> Result<Self, BadDraft> {
        if let Some(to) = &to {
            check_name("to", to)?;
        }
        let payload = match (text, payload) {
            (Some(text), None) if text.trim().is_empty() => return Err(BadDraft::EmptyText),
            (Some(text), None) => serde_json::json!({ "text": text }).to_string(),
            (None, Some(payload)) if payload.trim_start().starts_with('{') => payload.to_owned(),
            (None, Some(_)) => return Err(BadDraft::NoObject),
            (Some(_), Some(_)) | (None, None) => return Err(BadDraft::NotOne),
        };
        if payload.len() > MESSAGE_MAX_BYTES {
            return Err(BadDraft::TooLarge);
        }
        Ok(Self { to, payload, send_at: None })
    }

    /// The draft with its `send_at`, where it has one.
    pub fn later(self, send_at: Option<&str>, now_ms: i64) -> Result<Self, BadDraft> {
        let send_at = send_at.map(|text| SendAt::read(text, now_ms)).transpose()?;
        Ok(Self { send_at, ..self })
    }
}

/// The name of a channel, an account or a peer, as callers write it.
pub fn check_name(what: &'static str, name: &str) -> Result<(), BadDraft> {
    if name.trim().is_empty() {
        return Err(BadDraft::Empty(what));
    }
    if name.len() > NAME_MAX_BYTES || name.chars().any(char::is_control) {
        return Err(BadDraft::BadName(what));
    }
    Ok(())
}

/// Of the content of a message: the same request id with another fingerprint is a mistake of the caller. Blanks and the order of members do
/// not make another content.
pub fn fingerprint(channel: &str, account: &str, peer: &str, payload: &[u8], send_at: Option<&str>) -> [u8; 32] {
    let content = canonical(payload);
    let mut hasher = blake3::Hasher::new();
    for part in [channel, account, peer, &content].into_iter().chain(send_at) {
        // Length before each part, so that no two lists of parts look alike.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// A value that is no tree of JSON stands for itself.
fn canonical(payload: &[u8]) -> String {
    let tree = serde_json::from_slice::<serde_json::Value>(payload);
    tree.map_or_else(|_| String::from_utf8_lossy(payload).into_owned(), |tree| tree.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_of_text_and_payload_says_what_to_send() {
        let read = |text, payload| Draft::read(None, text, payload).map(|draft| draft.payload);
        assert_eq!(read(Some("hi"), None).as_deref(), Ok(r#"{"text":"hi"}"#));
        assert_eq!(read(None, Some(r#"{"a":1}"#)).as_deref(), Ok(r#"{"a":1}"#));
        assert_eq!(read(None, None), Err(BadDraft::NotOne));
        assert_eq!(read(Some("hi"), Some("{}")), Err(BadDraft::NotOne));
        assert_eq!(read(Some("  "), None), Err(BadDraft::EmptyText));
        assert_eq!(read(None, Some("[]")), Err(BadDraft::NoObject));
        assert_eq!(read(Some(&"a".repeat(MESSAGE_MAX_BYTES)), None), Err(BadDraft::TooLarge));
    }

    #[test]
    fn a_peer_has_a_name_that_can_be_shown() {
        let read = |to: &str| Draft::read(Some(to.to_owned()), Some("hi"), None).map(|draft| draft.to);
        assert_eq!(read("+55 11"), Ok(Some("+55 11".to_owned())));
        assert_eq!(read(" "), Err(BadDraft::Empty("to")));
        for odd in ["a\nb".to_owned(), "a".repeat(NAME_MAX_BYTES + 1)] {
            assert_eq!(read(&odd), Err(BadDraft::BadName("to")));
        }
    }

    #[test]
    fn the_same_content_has_the_same_fingerprint() {
        let of = |payload: &[u8]| fingerprint("shop", "7", "55119", payload, None);
        assert_eq!(of(br#"{"b": 1, "a": [ 2 ]}"#), of(br#"{"a":[2],"b":1}"#));
        assert_ne!(of(br#"{"a":[1,2]}"#), of(br#"{"a":[2,1]}"#));
        assert_ne!(fingerprint("ab", "c", "p", b"{}", None), fingerprint("a", "bc", "p", b"{}", None));
        assert_ne!(of(b"{}"), fingerprint("shop", "7", "55119", b"{}", Some("2030-01-01T00:00:00Z")));
    }
}
