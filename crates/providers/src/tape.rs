//! JSON read once: where each value stands, so that views, fingerprints and raw parts are looked up and nothing is read a second time.

mod scan;
mod value;

use std::borrow::Cow;

use hapax_domain::fingerprint;
use hapax_domain::limits::JSON_VALUES_MAX;
use serde::de::Deserialize;

use self::scan::Broken;
pub(super) use self::value::Part;
use self::value::Value;
use super::lenient::Object;

/// What stands in a text, in its order: a container before what is in it, a name before its value.
pub(super) struct Tape<'t> {
    text: &'t str,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy)]
struct Node {
    kind: Kind,
    /// In bytes of the text, the end exclusive.
    start: u32,
    end: u32,
    /// The first node that does not belong to this one.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    Text,
    /// With a backslash in it.
    EscapedText,
    Number,
    True,
    False,
    Null,
}

impl<'t> Tape<'t> {
    /// Says why not in words for a person.
    pub(super) fn of_bytes(json: &'t [u8]) -> Result<Self, String> {
        Self::of(std::str::from_utf8(json).map_err(|_| "the body is not UTF-8".to_owned())?)
    }

    pub(super) fn of(text: &'t str) -> Result<Self, String> {
        match scan::nodes(text) {
            Ok(nodes) => Ok(Self { text, nodes }),
            Err(Broken::At(at)) => Err(not_readable(text, at)),
            Err(Broken::TooLarge) => Err(format!("JSON of more than {JSON_VALUES_MAX} values")),
        }
    }

    /// The whole text.
    pub(super) fn root(&self) -> Part<'t> {
        self.part(0)
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// Reads a part as an object. Says why not in words for a person.
    pub(super) fn object<T: Deserialize<'t>>(&self, part: Part<'t>) -> Result<T, String> {
        match Object::<T>::deserialize(self.value(part)) {
            Ok(Object(Some(read))) => Ok(read),
            Ok(Object(None)) => Err("expected a JSON object".to_owned()),
            Err(odd) => Err(not_readable(part.get(), odd.at().saturating_sub(self.node(part.at).start as usize))),
        }
    }

    /// The decoded text of a part; `None` for anything else, and for text that is not Unicode (lone surrogates).
    pub(super) fn words(&self, part: Option<Part<'t>>) -> Option<String> {
        self.decoded(part?.at).map(Cow::into_owned)
    }

    /// The members of an object in their order, doubles included; nothing when it is no object, or has a name that is not Unicode.
    pub(super) fn members(&self, part: Part<'t>) -> impl Iterator<Item = (Cow<'t, str>, Part<'t>)> {
        let is_object = self.node(part.at).kind == Kind::Object;
        let odd = |name| self.node(name).kind == Kind::EscapedText && self.decoded(name).is_none();
        let is_read = is_object && !self.inside(part.at, true).step_by(2).any(odd);
        let mut names = self.inside(part.at, is_read);
        std::iter::from_fn(move || {
            let name = names.next()?;
            let value = names.next()?;
            Some((self.decoded(name).unwrap_or_default(), self.part(value)))
        })
    }

    /// The last member of this name: the one most JSON readers take.
    pub(super) fn member(&self, part: Part<'t>, name: &str) -> Option<Part<'t>> {
        self.members(part).filter(|(found, _)| found == name).last().map(|(_, value)| value)
    }

    /// The items of an array; nothing when it is none.
    pub(super) fn items(&self, part: Part<'t>) -> impl Iterator<Item = Part<'t>> {
        let is_array = self.node(part.at).kind == Kind::Array;
        self.inside(part.at, is_array).map(|at| self.part(at))
    }

    /// The items of the last member of this name.
    pub(super) fn items_of(&self, part: Part<'t>, name: &str) -> impl Iterator<Item = Part<'t>> {
        self.member(part, name).into_iter().flat_map(|list| self.items(list))
    }

    /// Fingerprints a part; only nesting beyond the limit makes it unreadable.
    pub(super) fn fingerprint(&self, part: Part<'t>, volatile: &[&str]) -> Result<u32, String> {
        // Of the whole, the blanks around it too.
        let text = || if part.at == 0 { self.text } else { part.get() };
        match fingerprint::of_value(self.value(part), volatile) {
            Some(fingerprint) => Ok(fingerprint),
            None if super::json::too_deep(text()) => Err("nested too deeply".to_owned()),
            // Half an emoji, or a number no float can hold: odd, but a copy of it is still byte for byte the same.
            None => Ok(fingerprint::of_bytes(text().as_bytes())),
        }
    }

    /// The same, with nothing standing for a `null`.
    pub(super) fn fingerprint_or_null(&self, part: Option<Part<'t>>, volatile: &[&str]) -> Result<u32, String> {
        match part {
            Some(part) => self.fingerprint(part, volatile),
            None => Tape::of("null")?.fingerprint_root(volatile),
        }
    }

    /// Fingerprints the whole.
    pub(super) fn fingerprint_root(&self, volatile: &[&str]) -> Result<u32, String> {
        self.fingerprint(self.root(), volatile)
    }

    fn value(&self, part: Part<'t>) -> Value<'t, '_> {
        Value::new(self, part.at)
    }

    /// A tape has a node for its root, and parts are made of nodes it has.
    fn node(&self, at: u32) -> Node {
        self.nodes[at as usize]
    }

    fn raw(&self, at: u32) -> &'t str {
        let Node { start, end, .. } = self.node(at);
        &self.text[start as usize..end as usize]
    }

    fn part(&self, at: u32) -> Part<'t> {
        Part { raw: self.raw(at), at }
    }

    fn decoded(&self, at: u32) -> Option<Cow<'t, str>> {
        let raw = self.raw(at);
        match self.node(at).kind {
            Kind::Text => Some(Cow::Borrowed(&raw[1..raw.len() - 1])),
            Kind::EscapedText => serde_json::from_str(raw).ok().map(Cow::Owned),
            _ => None,
        }
    }

    /// The nodes directly inside a container, names among them.
    fn inside(&self, at: u32, is_wanted: bool) -> impl Iterator<Item = u32> {
        let end = if is_wanted { self.node(at).next } else { 0 };
        let mut next = at + 1;
        std::iter::from_fn(move || {
            let found = next;
            (found < end).then(|| {
                next = self.node(found).next;
                found
            })
        })
    }
}

/// The position alone: more could quote the body.
fn not_readable(text: &str, at: usize) -> String {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
    format!("not readable as JSON at line {line}, column {column}")
}

#[cfg(test)]
mod tests;
