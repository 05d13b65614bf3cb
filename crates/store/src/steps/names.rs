//! The names of peers that one step has to do with, and where they lead. Asked for many times per event: nothing here looks through all.

use std::collections::{BTreeMap, HashMap, HashSet};

use hapax_domain::limits::NAME_HOPS_MAX;

use super::records::NameRec;

#[derive(Default)]
pub(super) struct Names(HashMap<String, OfAccount>);

#[derive(Default)]
struct OfAccount {
    /// A name to the one it leads to, and back.
    to: HashMap<String, String>,
    from: HashMap<String, HashSet<String>>,
    /// Names that were looked up, and those of them that were there, as they were.
    asked: HashSet<String>,
    read: HashMap<String, String>,
    /// What is to be written.
    learned: BTreeMap<String, String>,
}

/// Follows names to the one that leads to itself, or nowhere; nothing where the first is not known.
pub(super) fn root<'n>(next: impl Fn(&str) -> Option<&'n String>, name: &'n str) -> Option<&'n str> {
    // Most names are nobody's yet, or somebody's own.
    if next(name)? == name {
        return Some(name);
    }
    let mut way = vec![name];
    for _ in 0..NAME_HOPS_MAX {
        let Some(next) = way.last().and_then(|last| next(last)) else { break };
        if let Some(again) = way.iter().position(|seen| seen == next) {
            // In names that older versions left there may be more than one in the circle.
            return way[again..].iter().min().copied();
        }
        way.push(next);
    }
    way.pop().filter(|_| !way.is_empty())
}

impl Names {
    /// The name that a name leads to in the end, if it is known. All names on the way must have been loaded.
    pub(super) fn root<'n>(&'n self, account: &str, name: &'n str) -> Option<&'n str> {
        let of = self.0.get(account)?;
        root(|name| of.to.get(name), name)
    }

    /// Whether it leads anywhere, or others lead to it.
    pub(super) fn is_known(&self, account: &str, name: &str) -> bool {
        self.0.get(account).is_some_and(|of| of.to.contains_key(name) || of.from.contains_key(name))
    }

    /// The names that lead straight to this one.
    pub(super) fn leading_to(&self, account: &str, peer: &str) -> impl Iterator<Item = &String> {
        self.0.get(account).and_then(|of| of.from.get(peer)).into_iter().flatten()
    }

    /// Names that others were found to lead to, and that were not looked up yet.
    pub(super) fn ahead(&self) -> Vec<(String, String)> {
        let ahead = |(account, of): (&String, &OfAccount)| -> Vec<(String, String)> {
            let next = of.from.keys().filter(|peer| !of.asked.contains(*peer));
            next.map(|peer| (account.clone(), peer.clone())).collect()
        };
        self.0.iter().flat_map(ahead).collect()
    }

    pub(super) fn was_asked(&self, (account, name): &(String, String)) -> bool {
        self.0.get(account).is_some_and(|of| of.asked.contains(name))
    }

    pub(super) fn asked(&mut self, names: Vec<(String, String)>) {
        for (account, name) in names {
            self.of(&account).asked.insert(name);
        }
    }

    /// As it was when it was read.
    pub(super) fn read(&self, (account, name): &(String, String)) -> Option<&String> {
        self.0.get(account)?.read.get(name)
    }

    /// Takes in what was loaded; what is known already is fresher.
    pub(super) fn loaded(&mut self, (account, name): (String, String), peer: String) {
        let of = self.of(&account);
        of.read.entry(name.clone()).or_insert_with(|| peer.clone());
        if !of.to.contains_key(&name) {
            of.lead(name, peer);
        }
    }

    /// From now on a name leads to this peer, which is written down unless it is so already.
    pub(super) fn learn(&mut self, account: &str, name: String, peer: &str) {
        let of = self.of(account);
        if of.to.get(&name).is_none_or(|known| known != peer) {
            of.learned.insert(name.clone(), peer.to_owned());
            of.lead(name, peer.to_owned());
        }
    }

    /// A name that may have been purged since it was looked up.
    pub(super) fn forget(&mut self, account: &str, name: &str) {
        let Some(of) = self.0.get_mut(account) else { return };
        if let Some(peer) = of.to.remove(name) {
            of.leave(name, &peer);
        }
    }

    /// What is put where it was there already, and what is new: one that was not there when it was looked for must not be there now, since
    /// whoever was faster may have given it to somebody else.
    pub(super) fn changes(self) -> (Vec<NameRec>, Vec<NameRec>) {
        let (mut put, mut new) = (Vec::new(), Vec::new());
        for (account, of) in self.0 {
            for (name, peer) in of.learned {
                let list = if of.read.contains_key(&name) { &mut put } else { &mut new };
                list.push(NameRec { account: account.clone(), name, peer });
            }
        }
        (put, new)
    }

    fn of(&mut self, account: &str) -> &mut OfAccount {
        self.0.entry(account.to_owned()).or_default()
    }
}

impl OfAccount {
    fn lead(&mut self, name: String, peer: String) {
        self.from.entry(peer.clone()).or_default().insert(name.clone());
        if let Some(before) = self.to.insert(name.clone(), peer.clone())
            && before != peer
        {
            self.leave(&name, &before);
        }
    }

    fn leave(&mut self, name: &str, peer: &str) {
        let Some(names) = self.from.get_mut(peer) else { return };
        names.remove(name);
        if names.is_empty() {
            self.from.remove(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(links: &[(&str, &str)]) -> Names {
        let mut names = Names::default();
        for (name, peer) in links {
            names.loaded(("acc".to_owned(), (*name).to_owned()), (*peer).to_owned());
        }
        names
    }

    #[test]
    fn a_name_is_followed_to_the_one_that_leads_to_itself_or_nowhere() {
        let names = names(&[("bsuid", "phone"), ("phone", "lid"), ("lid", "lid"), ("old", "gone")]);
        for name in ["bsuid", "phone", "lid"] {
            assert_eq!(names.root("acc", name), Some("lid"));
        }
        assert_eq!(names.root("acc", "old"), Some("gone"));
        assert_eq!(names.root("acc", "stranger"), None);
        assert_eq!(names.root("other", "lid"), None);
    }

    /// As older versions may have left them.
    #[test]
    fn a_circle_is_known_by_its_smallest_name_wherever_one_comes_in() {
        let names = names(&[("in", "c"), ("c", "b"), ("b", "d"), ("d", "c")]);
        for name in ["in", "b", "c", "d"] {
            assert_eq!(names.root("acc", name), Some("b"));
        }
    }

    #[test]
    fn a_chain_without_an_end_is_given_up() {
        let links: Vec<(String, String)> = (0..99).map(|n| (format!("n{n:02}"), format!("n{:02}", n + 1))).collect();
        let links: Vec<(&str, &str)> = links.iter().map(|(name, peer)| (name.as_str(), peer.as_str())).collect();
        assert_eq!(names(&links).root("acc", "n00"), Some("n16"));
    }

    #[test]
    fn who_leads_to_a_name_is_known_whatever_was_learned_or_forgotten() {
        let mut names = names(&[("bsuid", "phone"), ("phone", "phone")]);
        names.asked(vec![("acc".to_owned(), "bsuid".to_owned())]);
        assert_eq!(names.ahead(), [("acc".to_owned(), "phone".to_owned())]);
        names.learn("acc", "bsuid".to_owned(), "lid");
        names.learn("acc", "lid".to_owned(), "lid");
        let leading = |names: &Names, peer: &str| {
            let mut all: Vec<String> = names.leading_to("acc", peer).cloned().collect();
            all.sort_unstable();
            all
        };
        assert_eq!(leading(&names, "lid"), ["bsuid", "lid"]);
        assert_eq!(leading(&names, "phone"), ["phone"]);
        names.forget("acc", "phone");
        assert_eq!(leading(&names, "phone"), [""; 0]);
        names.learn("acc", "phone".to_owned(), "lid");
        let (put, new) = names.changes();
        let of = |list: Vec<NameRec>| list.into_iter().map(|name| name.name).collect::<Vec<_>>();
        assert_eq!((of(put), of(new)), (vec!["bsuid".to_owned(), "phone".to_owned()], vec!["lid".to_owned()]));
    }
}
