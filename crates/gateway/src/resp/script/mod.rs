//! The scripts of lock libraries. The door runs no Lua: it knows what these few do, by their text as [`lua`] writes it down, and does the
//! same in steps of the store.

mod lua;
mod recipe;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use sha1::{Digest, Sha1};

pub(super) use recipe::{Action, No, Recipe, Time, Yes};

/// Texts that are remembered by their hash. Spellings of one script differ, so there may be more than there are scripts.
const REMEMBERED_MAX: usize = 1_000;
/// No script that is known is longer.
const TEXT_MAX_BYTES: usize = 8 << 10;

/// The texts that clients have sent, by the hash that `EVALSHA` names them with.
#[derive(Default)]
pub(super) struct Scripts(Mutex<HashMap<String, Recipe>>);

impl Scripts {
    /// Finds out what a text does, and remembers it. `None`: it is not one of those that are known.
    pub(super) fn load(&self, text: &[u8]) -> Option<(String, Recipe)> {
        let (sha, recipe) = (hash(text), recognize(text)?);
        let mut known = self.known();
        if known.len() >= REMEMBERED_MAX {
            // Whoever misses one is answered NOSCRIPT, and sends it again.
            known.clear();
        }
        known.insert(sha.clone(), recipe);
        Some((sha, recipe))
    }

    pub(super) fn by_hash(&self, sha: &str) -> Option<Recipe> {
        self.known().get(sha).copied()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Recipe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a script does, if it is one of those that are known.
fn recognize(text: &[u8]) -> Option<Recipe> {
    static KNOWN: LazyLock<HashMap<String, Recipe>> = LazyLock::new(|| {
        let spelt = texts::SPELT.iter().filter_map(|(text, recipe)| {
            let recipe = Recipe { one_key: !text.contains("ipairs(KEYS)"), ..*recipe };
            Some((hash(lua::normalize(text)?.as_bytes()), recipe))
        });
        let hashed = texts::HASHED.iter().map(|(hash, recipe)| ((*hash).to_owned(), *recipe));
        spelt.chain(hashed).collect()
    });
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_MAX_BYTES)?;
    KNOWN.get(&hash(lua::normalize(text)?.as_bytes())).copied()
}

fn hash(text: &[u8]) -> String {
    hex::encode(Sha1::digest(text))
}
