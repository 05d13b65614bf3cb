//! One table of the config seen through its layers, and typed reading of its values.

use std::ops::RangeInclusive;

use hapax_domain::units;

use super::mistake::{Mistakes, did_you_mean};
use super::tree::{Entry, Node, Table};

/// Tables in which a key is looked up, the strongest first.
#[derive(Clone)]
pub(super) struct Section<'t> {
    layers: Vec<(String, &'t Table)>,
}

/// A value, and the path by which a mistake in it is named.
#[derive(Clone)]
pub(super) struct Found<'t> {
    pub path: String,
    pub entry: &'t Entry,
}

impl<'t> Section<'t> {
    pub(super) fn new(layers: Vec<(String, &'t Table)>) -> Self {
        Self { layers }
    }

    pub(super) fn get(&self, key: &str) -> Option<Found<'t>> {
        let (path, entry) = self.layers.iter().find_map(|(path, table)| Some((path, table.get(key)?)))?;
        Some(Found { path: join(path, key), entry })
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Reports every key of `table` that nobody reads.
pub(super) fn refuse_unknown(table: &Table, path: &str, known: &[&str], later: &[&str], mistakes: &mut Mistakes) {
    for (key, entry) in table.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
        let what = if later.contains(&key.as_str()) {
            format!("`{key}` is not available in this version; take it out")
        } else {
            format!("`{key}` is not a key here{}", did_you_mean(key, known.iter().copied()))
        };
        mistakes.add(&entry.origin, join(path, key), what);
    }
}

impl<'t> Found<'t> {
    pub(super) fn refuse(&self, mistakes: &mut Mistakes, what: impl Into<String>) {
        mistakes.add(&self.entry.origin, self.path.clone(), what);
    }

    fn refuse_type(&self, mistakes: &mut Mistakes, wanted: &str) {
        if !matches!(self.entry.node, Node::Broken) {
            self.refuse(mistakes, format!("expected {wanted}, found {}", self.entry.node.describe()));
        }
    }

    pub(super) fn text(&self, mistakes: &mut Mistakes) -> Option<&'t str> {
        match &self.entry.node {
            Node::Text(text) => Some(text),
            _ => {
                self.refuse_type(mistakes, "a text in quotes");
                None
            }
        }
    }

    pub(super) fn truth(&self, mistakes: &mut Mistakes) -> Option<bool> {
        match self.entry.node {
            Node::Truth(truth) => Some(truth),
            _ => {
                self.refuse_type(mistakes, "true or false");
                None
            }
        }
    }

    pub(super) fn whole(&self, allowed: RangeInclusive<i64>, mistakes: &mut Mistakes) -> Option<i64> {
        let Node::Whole(whole) = self.entry.node else {
            self.refuse_type(mistakes, "a whole number");
            return None;
        };
        if allowed.contains(&whole) {
            return Some(whole);
        }
        self.refuse(mistakes, format!("{whole} is out of range; write {} to {}", allowed.start(), allowed.end()));
        None
    }

    pub(super) fn ms(&self, allowed: RangeInclusive<i64>, mistakes: &mut Mistakes) -> Option<i64> {
        self.measured(allowed, mistakes, units::read_ms, units::write_ms, "a time with its unit, like \"30s\", \"5m\" or \"8d\"")
    }

    pub(super) fn bytes(&self, allowed: RangeInclusive<i64>, mistakes: &mut Mistakes) -> Option<i64> {
        self.measured(allowed, mistakes, units::read_bytes, units::write_bytes, "a size with its unit, like \"4MB\"")
    }

    fn measured(
        &self,
        allowed: RangeInclusive<i64>,
        mistakes: &mut Mistakes,
        read: fn(&str) -> Option<i64>,
        write: fn(i64) -> String,
        wanted: &str,
    ) -> Option<i64> {
        let Node::Text(text) = &self.entry.node else {
            self.refuse_type(mistakes, wanted);
            return None;
        };
        let Some(value) = read(text) else {
            self.refuse(mistakes, format!("`{text}` is not {wanted}"));
            return None;
        };
        if allowed.contains(&value) {
            return Some(value);
        }
        let (least, most) = (write(*allowed.start()), write(*allowed.end()));
        self.refuse(mistakes, format!("{text} is out of range; write \"{least}\" to \"{most}\""));
        None
    }

    /// Picks one of the words; `later` are words that a later version will know.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)], later: &[&str], mistakes: &mut Mistakes) -> Option<T> {
        let text = self.text(mistakes)?;
        if let Some((_, choice)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*choice);
        }
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let list = known.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        self.refuse(
            mistakes,
            if later.contains(&text) {
                format!("`{text}` is not available in this version; write {list}")
            } else {
                format!("`{text}` is none of {list}{}", did_you_mean(text, known))
            },
        );
        None
    }

    /// Reads a list of texts, each with its own line.
    pub(super) fn texts(&self, mistakes: &mut Mistakes) -> Option<Vec<(Found<'t>, &'t str)>> {
        let Node::List(list) = &self.entry.node else {
            self.refuse_type(mistakes, "a list of texts, like [\"a\", \"b\"]");
            return None;
        };
        list.iter()
            .map(|entry| Found { path: self.path.clone(), entry })
            .map(|found| found.text(mistakes).map(|text| (found.clone(), text)))
            .collect()
    }

    pub(super) fn table(&self, mistakes: &mut Mistakes) -> Option<&'t Table> {
        match &self.entry.node {
            Node::Table(table) => Some(table),
            _ => {
                self.refuse_type(mistakes, "a table");
                None
            }
        }
    }
}
