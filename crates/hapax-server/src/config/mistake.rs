//! What is wrong with a config, said like a compiler: where, which key, what, and what to do.

use std::fmt;
use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Flag(&'static str),
    Env(String),
    File { name: Arc<str>, line: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(name) => write!(f, "flag {name}"),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
        }
    }
}

/// One thing to put right. Never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    pub origin: Origin,
    /// The key with its path, `channel.shop.window`; empty where the text is no TOML.
    pub key: String,
    /// What is wrong, and what to do about it.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.origin, self.what),
            key => write!(f, "{}: {key}: {}", self.origin, self.what),
        }
    }
}

/// Everything that is wrong, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub fn add(&mut self, origin: &Origin, key: impl Into<String>, what: impl Into<String>) {
        self.0.push(Mistake { origin: origin.clone(), key: key.into(), what: what.into() });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    /// Sorts by place and says each thing once: a mistake in `[defaults]` is met again in every channel.
    pub(super) fn settle(mut self) -> Self {
        self.0.sort();
        self.0.dedup();
        self
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.0 {
            writeln!(f, "{mistake}")?;
        }
        match self.0.len() {
            1 => write!(f, "1 mistake in the config"),
            many => write!(f, "{many} mistakes in the config"),
        }
    }
}

impl std::error::Error for Mistakes {}

/// Names the known word nearest to `word`, as the end of a sentence.
pub(super) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let nearest = known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4);
    match nearest {
        Some((_, candidate)) => format!("; did you mean `{candidate}`?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_and_a_far_one_is_not() {
        assert_eq!(did_you_mean("secrt", ["secret", "secrets", "store"]), "; did you mean `secret`?");
        assert_eq!(did_you_mean("banana", ["secret", "secrets", "store"]), "");
    }

    #[test]
    fn mistakes_stand_in_the_order_of_the_file_and_only_once() {
        let line = |line| Origin::File { name: "f.toml".into(), line };
        let mut mistakes = Mistakes::default();
        mistakes.add(&line(10), "b", "late");
        mistakes.add(&line(9), "a", "early");
        mistakes.add(&line(10), "b", "late");
        assert_eq!(mistakes.settle().to_string(), "f.toml:9: a: early\nf.toml:10: b: late\n2 mistakes in the config");
    }
}
