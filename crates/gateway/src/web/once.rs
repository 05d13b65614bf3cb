//! What is pressed twice is done once: a form that must not be has a word of its own, made with its page.

use hapax_store::{Store, StoreError};

use crate::api::auth::OF_PAGES;

/// Longer than anybody looks at one page.
const KEEP_MS: i64 = 86_400_000;
const WORD_MAX_BYTES: usize = 64;

/// A word for a form.
pub(super) fn new() -> String {
    hex::encode(rand::random::<[u8; 12]>())
}

/// Whether this is the first time that this form is sent. A form without a word is sent by hand.
pub(super) async fn is_first(store: &dyn Store, word: &str) -> Result<bool, StoreError> {
    if word.is_empty() || word.len() > WORD_MAX_BYTES {
        return Ok(true);
    }
    let mine = new();
    let kept = store.amend(&format!("{OF_PAGES}once:{word}"), None, Some(&mine), Some(KEEP_MS)).await?;
    Ok(kept.as_deref() == Some(&mine))
}
