//! The identity of an event: what makes two webhooks copies of each other.

use std::fmt;

use super::Kind;

/// 32 bytes that stand for (provider, account, kind, id, rest).
///
/// Every part goes in with its length before it, so no two lists of parts give the same bytes (`a__b`+`c` is not `a`+`b__c`),
/// and the hash is cryptographic, because a collision would silently drop somebody's message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey(pub [u8; 32]);

impl EventKey {
    /// Derives the key from its parts; `rest` holds the sender or the status where the id alone does not tell events apart.
    pub fn new(provider: &str, account: &str, kind: Kind, id: &str, rest: &[&str]) -> Self {
        let mut hasher = KeyHasher::new("event");
        hasher.part(provider.as_bytes());
        hasher.part(account.as_bytes());
        hasher.part(kind.name().as_bytes());
        hasher.part(id.as_bytes());
        for part in rest {
            hasher.part(part.as_bytes());
        }
        Self(hasher.finish())
    }

    /// Derives the key of something that names no id of its own from its content.
    pub fn from_content(provider: &str, account: &str, content: &[u8]) -> Self {
        let mut hasher = KeyHasher::new("content");
        hasher.part(provider.as_bytes());
        hasher.part(account.as_bytes());
        hasher.part(content);
        Self(hasher.finish())
    }

    /// Derives the key of one of several things that share a key so far: `what` tells them apart.
    pub fn with(&self, what: &[u8]) -> Self {
        let mut hasher = KeyHasher::new("with");
        hasher.part(&self.0);
        hasher.part(what);
        Self(hasher.finish())
    }

    /// Derives the key under which one channel claims the event: what another channel got is no copy of it.
    pub fn in_channel(&self, channel: &ChannelKey) -> Self {
        Self(*blake3::keyed_hash(&channel.0, &self.0).as_bytes())
    }
}

/// 32 bytes that stand for a channel's name, made once.
#[derive(Clone, Copy)]
pub struct ChannelKey([u8; 32]);

impl ChannelKey {
    pub fn new(channel: &str) -> Self {
        let mut hasher = KeyHasher::new("channel");
        hasher.part(channel.as_bytes());
        Self(hasher.finish())
    }
}

impl fmt::Debug for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0[..8]))
    }
}

/// Hashes a list of parts injectively: each part's length goes in before its bytes.
pub struct KeyHasher {
    /// What went in so far. Most lists of parts are short, and hashed in one go: that takes a fraction of the time.
    short: [u8; SHORT],
    filled: usize,
    /// All of it, once it is longer.
    long: Option<Box<blake3::Hasher>>,
}

const SHORT: usize = 256;

impl KeyHasher {
    /// Starts a hash that no other `purpose` can produce.
    pub fn new(purpose: &str) -> Self {
        let mut hasher = Self { short: [0; SHORT], filled: 0, long: None };
        hasher.part(purpose.as_bytes());
        hasher
    }

    pub fn part(&mut self, bytes: &[u8]) {
        self.put(&(bytes.len() as u64).to_le_bytes());
        self.put(bytes);
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        match (&mut self.long, self.short.get_mut(self.filled..end)) {
            (Some(long), _) => {
                long.update(bytes);
            }
            (None, Some(room)) => {
                room.copy_from_slice(bytes);
                self.filled = end;
            }
            (None, None) => {
                let mut long = Box::new(blake3::Hasher::new());
                long.update(&self.short[..self.filled]).update(bytes);
                self.long = Some(long);
            }
        }
    }

    pub fn finish(&self) -> [u8; 32] {
        match &self.long {
            Some(long) => *long.finalize().as_bytes(),
            None => *blake3::hash(&self.short[..self.filled]).as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_cannot_slide_into_each_other() {
        let of = |account, id, rest: &[&str]| EventKey::new("gowa", account, Kind::Message, id, rest);
        assert_ne!(of("a__b", "c", &[]), of("a", "b__c", &[]));
        assert_ne!(of("a", "", &["b"]), of("a", "b", &[]));
        assert_ne!(of("a", "b", &[""]), of("a", "b", &[]));
        assert_ne!(of("a", "wamid.Ab", &[]), of("a", "wamid.aB", &[]));
        assert_ne!(of("a", "x", &[]), of("a", "x ", &[]));
        assert_ne!(of("a", "x", &[]), of("a", "x\0", &[]));
    }

    #[test]
    fn the_hash_is_that_of_all_bytes_however_many() {
        for length in [0, 1, 200, 232, 233, 234, 240, 256, 5_000] {
            let part = vec![7; length];
            let mut hasher = KeyHasher::new("event");
            hasher.part(&part);
            hasher.part(b"end");
            let all = [&5_u64.to_le_bytes(), &b"event"[..], &(length as u64).to_le_bytes(), &part, &3_u64.to_le_bytes(), b"end"];
            assert_eq!(hasher.finish(), *blake3::hash(&all.concat()).as_bytes(), "{length}");
        }
    }

    #[test]
    fn kind_and_provider_are_part_of_the_key() {
        let message = EventKey::new("gowa", "a", Kind::Message, "x", &[]);
        assert_ne!(message, EventKey::new("gowa", "a", Kind::Edit, "x", &[]));
        assert_ne!(message, EventKey::new("waha", "a", Kind::Message, "x", &[]));
    }

    #[test]
    fn each_channel_has_keys_of_its_own() {
        let key = EventKey::new("stripe", "acct", Kind::Notice, "evt_1", &[]);
        let (one, other) = (key.in_channel(&ChannelKey::new("one")), key.in_channel(&ChannelKey::new("other")));
        assert!(key != one && one != other);
        assert_eq!(one, key.in_channel(&ChannelKey::new("one")));
    }

    proptest! {
        #[test]
        fn different_parts_give_different_keys(a in proptest::collection::vec(".{0,8}", 3), b in proptest::collection::vec(".{0,8}", 3)) {
            let key = |p: &[String]| EventKey::new("generic", &p[0], Kind::Notice, &p[1], &[&p[2]]);
            prop_assert_eq!(a == b, key(&a) == key(&b));
        }
    }
}
