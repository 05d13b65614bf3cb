//! What a step looks at first, asked for together with the beginning of its transaction: one round trip in place of three.

use std::collections::{HashMap, HashSet};
use std::hash::Hash as Hashed;
use std::sync::atomic::{AtomicBool, Ordering};

use super::engine::{First, Loaded, Wanted};
use super::records::{Hash, KeyRec, LaneRec, ThreadRec, thread_hash};

/// What was found, and what was not there. What is locked stays as it is until the end.
#[derive(Default)]
pub struct Ahead {
    /// The keys that were claimed, and those of them that were won.
    claimed: Vec<Hash>,
    won: HashSet<Hash>,
    lanes: HashMap<Hash, Option<LaneRec>>,
    threads: HashMap<Hash, Option<ThreadRec>>,
    /// Read once the threads were locked.
    names: HashMap<(String, String), Option<String>>,
}

impl Ahead {
    /// What is to be loaded behind the claim. Names come last, once the threads that they most likely lead to are locked.
    pub fn wanted(first: &First) -> Wanted {
        let threads = first.names.iter().map(|(account, name)| thread_hash(account, name)).collect();
        let mut wanted = Wanted { lanes: first.lanes.clone(), threads, sure_names: first.names.clone(), ..Wanted::default() };
        wanted.tidy();
        wanted
    }

    /// `won` are those of the claimed keys that nobody had, `loaded` what was there of what was wanted.
    ///
    /// Names are read after the threads: one that leads to a thread which was not there may be of somebody who has begun it since.
    pub fn new(first: &First, won: HashSet<Hash>, wanted: &Wanted, mut loaded: Loaded) -> Self {
        let led: HashSet<Hash> = loaded.sure_names.iter().map(|((account, _), peer)| thread_hash(account, peer)).collect();
        let is_sure = |thread: &&Hash| loaded.threads.contains_key(*thread) || !led.contains(*thread);
        let sure: Vec<Hash> = wanted.threads.iter().filter(is_sure).copied().collect();
        Self {
            claimed: first.claimed.iter().map(|key| key.key).collect(),
            won,
            lanes: wanted.lanes.iter().map(|lane| (*lane, loaded.lanes.remove(lane))).collect(),
            threads: sure.into_iter().map(|thread| (thread, loaded.threads.remove(&thread))).collect(),
            names: wanted.sure_names.iter().map(|name| (name.clone(), loaded.sure_names.remove(name))).collect(),
        }
    }

    /// Those of these keys that were won when the transaction began; nothing where they are not the keys that were claimed then.
    pub fn won(&mut self, keys: &[KeyRec]) -> Option<HashSet<Hash>> {
        let claimed = std::mem::take(&mut self.claimed);
        let same = !claimed.is_empty() && claimed.iter().eq(keys.iter().map(|key| &key.key));
        same.then(|| std::mem::take(&mut self.won))
    }

    /// What of this is known already, and what is left to ask for.
    pub fn answer(&self, wanted: &Wanted) -> (Loaded, Wanted) {
        let mut seen = Loaded::default();
        let mut left = Wanted {
            lanes: unknown(&self.lanes, &wanted.lanes, &mut seen.lanes),
            names: unknown(&self.names, &wanted.names, &mut seen.names),
            threads: unknown(&self.threads, &wanted.threads, &mut seen.threads),
            sure_names: Vec::new(),
            items: wanted.items.clone(),
            lowest_items: wanted.lowest_items.clone(),
            events: wanted.events.clone(),
            locked_events: wanted.locked_events.clone(),
            bodies: wanted.bodies.clone(),
            named: wanted.named.clone(),
            sending: wanted.sending.clone(),
            provider_names: wanted.provider_names.clone(),
            requests: wanted.requests.clone(),
            messages: wanted.messages.clone(),
            outs: wanted.outs.clone(),
            lowest_outs: wanted.lowest_outs.clone(),
            waiting: wanted.waiting.clone(),
            claims: wanted.claims.clone(),
        };
        // Once another thread is locked, the names that may lead to it have to be looked at again.
        left.sure_names = match left.threads.is_empty() {
            true => unknown(&self.names, &wanted.sure_names, &mut seen.sure_names),
            false => wanted.sure_names.clone(),
        };
        (seen, left)
    }
}

/// Puts those that are known into `seen`, and gives the others.
fn unknown<K: Eq + Hashed + Clone, V: Clone>(ahead: &HashMap<K, Option<V>>, wanted: &[K], seen: &mut HashMap<K, V>) -> Vec<K> {
    let mut left = Vec::new();
    for key in wanted {
        match ahead.get(key) {
            Some(found) => seen.extend(found.clone().map(|found| (key.clone(), found))),
            None => left.push(key.clone()),
        }
    }
    left
}

/// Whether many of what came last were copies. Then nothing is loaded before that is known: it would be locked for nothing.
#[derive(Default)]
pub struct RecentCopies(AtomicBool);

impl RecentCopies {
    pub fn are_many(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes note of what a claim came to.
    pub fn note(&self, holders: &[Option<KeyRec>]) {
        let copies = holders.iter().filter(|holder| holder.is_some()).count();
        self.0.store(copies * 4 > holders.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> (String, String) {
        ("acc".to_owned(), name.to_owned())
    }

    #[test]
    fn names_are_looked_at_again_when_they_lead_to_a_thread_that_was_not_locked() {
        let first = First { names: vec![name("bsuid"), name("phone")], ..First::default() };
        let wanted = Ahead::wanted(&first);
        let names = HashMap::from([(name("bsuid"), "lid".to_owned())]);
        let ahead = Ahead::new(&first, HashSet::new(), &wanted, Loaded { sure_names: names, ..Loaded::default() });

        let asked = Wanted { names: vec![name("bsuid"), name("phone"), name("lid")], ..Wanted::default() };
        let (seen, left) = ahead.answer(&asked);
        assert_eq!((seen.names.len(), left.names), (1, vec![name("lid")]));

        let sure_names = vec![name("bsuid"), name("phone")];
        let asked = Wanted { threads: vec![thread_hash("acc", "phone")], sure_names: sure_names.clone(), ..Wanted::default() };
        assert!(ahead.answer(&asked).1.is_empty(), "it is locked since before they were read");
        let asked = Wanted { threads: vec![thread_hash("acc", "lid")], sure_names: sure_names.clone(), ..Wanted::default() };
        let (seen, left) = ahead.answer(&asked);
        assert_eq!((seen.sure_names.len(), left.threads, left.sure_names), (0, asked.threads, sure_names));
    }

    /// Somebody else has begun the thread after it was looked for and before its name was.
    #[test]
    fn a_thread_that_a_name_leads_to_is_looked_for_again_where_it_was_not_there() {
        let first = First { names: vec![name("phone"), name("stranger")], ..First::default() };
        let wanted = Ahead::wanted(&first);
        let names = HashMap::from([(name("phone"), "phone".to_owned())]);
        let ahead = Ahead::new(&first, HashSet::new(), &wanted, Loaded { sure_names: names, ..Loaded::default() });

        let threads = vec![thread_hash("acc", "phone"), thread_hash("acc", "stranger")];
        let asked = Wanted { threads: threads.clone(), sure_names: first.names.clone(), ..Wanted::default() };
        let (seen, left) = ahead.answer(&asked);
        assert_eq!((seen.threads.len(), left.threads), (0, vec![threads[0]]), "nobody has told of the other");
        assert_eq!(left.sure_names, first.names, "once it is locked");
    }

    #[test]
    fn other_keys_than_those_that_were_claimed_are_claimed_for_themselves() {
        let key = |n: u8| KeyRec { key: [n; 32], event: 1, at_ms: 0, fingerprint: 0, expires_ms: 1 };
        let claimed = |n: u8| super::super::FirstKey { key: [n; 32], nth: 0, fingerprint: 0, window_ms: 1 };
        let first = First { claimed: vec![claimed(1), claimed(2)], ..First::default() };
        let ahead = || Ahead::new(&first, HashSet::from([[2; 32]]), &Wanted::default(), Loaded::default());
        assert_eq!(ahead().won(&[key(1), key(2)]), Some(HashSet::from([[2; 32]])));
        assert_eq!(ahead().won(&[key(2)]), None);
        let mut twice = ahead();
        assert!(twice.won(&[key(1), key(2)]).is_some() && twice.won(&[key(1), key(2)]).is_none());
        assert_eq!(Ahead::default().won(&[]), None);
    }

    #[test]
    fn many_copies_are_noted_until_few_come() {
        let holder = KeyRec { key: [0; 32], event: 1, at_ms: 0, fingerprint: 0, expires_ms: 1 };
        let copies = RecentCopies::default();
        copies.note(&[Some(holder), None]);
        assert!(copies.are_many());
        copies.note(&[None, None]);
        assert!(!copies.are_many());
    }
}
