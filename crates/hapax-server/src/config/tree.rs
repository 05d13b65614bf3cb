//! From text to a tree in which every value knows its line, with `${NAME}` filled in.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::mistake::{Mistakes, Origin};

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Entry {
    pub origin: Origin,
    pub node: Node,
}

/// No `Debug`: any text may be a secret.
#[derive(Clone)]
pub(super) enum Node {
    Text(String),
    Whole(i64),
    Truth(bool),
    List(Vec<Entry>),
    Table(Table),
    /// A date or a fraction: nothing in the config is one.
    Odd(&'static str),
    /// Its mistake is already reported.
    Broken,
}

pub(super) type Table = BTreeMap<String, Entry>;

impl Node {
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Node::Text(_) => "a text",
            Node::Whole(_) => "a number",
            Node::Truth(_) => "true or false",
            Node::List(_) => "a list",
            Node::Table(_) => "a table",
            Node::Odd(what) => what,
            Node::Broken => "broken",
        }
    }
}

/// The environment, and how to read the files that its `*_FILE` variables name. Passed in: nothing here looks around by itself.
pub struct Environment<'e> {
    pub vars: BTreeMap<String, String>,
    pub read_file: &'e dyn Fn(&str) -> std::io::Result<String>,
}

impl Environment<'_> {
    /// Finds `NAME`, or the content of the file that `NAME_FILE` names, without its last line break. Empty counts as not set.
    pub(super) fn get(&self, name: &str) -> Result<Option<(String, String)>, String> {
        let set = |name: &str| self.vars.get(name).filter(|value| !value.is_empty()).cloned();
        let file_name = format!("{name}_FILE");
        match (set(name), set(&file_name)) {
            (Some(_), Some(_)) => Err(format!("both `{name}` and `{file_name}` are set; unset one")),
            (Some(value), None) => Ok(Some((name.to_owned(), value))),
            (None, Some(path)) => match (self.read_file)(&path) {
                Ok(text) => Ok(Some((file_name, text.trim_end_matches(['\n', '\r']).to_owned()))),
                Err(why) => Err(format!("`{file_name}` names a file that cannot be read: {why}")),
            },
            (None, None) => Ok(None),
        }
    }
}

/// Feeds all that a node says, and not where it stands; parts are told apart by their lengths.
pub(super) fn hash(node: &Node, hasher: &mut blake3::Hasher) {
    let mut part = |kind: u8, bytes: &[u8]| {
        hasher.update(&[kind]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    match node {
        Node::Text(text) => part(0, text.as_bytes()),
        Node::Whole(whole) => part(1, &whole.to_le_bytes()),
        Node::Truth(truth) => part(2, &[u8::from(*truth)]),
        Node::List(list) => {
            part(3, &(list.len() as u64).to_le_bytes());
            list.iter().for_each(|entry| hash(&entry.node, hasher));
        }
        Node::Table(table) => {
            part(4, &(table.len() as u64).to_le_bytes());
            for (key, entry) in table {
                hash(&Node::Text(key.clone()), hasher);
                hash(&entry.node, hasher);
            }
        }
        Node::Odd(what) => part(5, what.as_bytes()),
        Node::Broken => part(6, &[]),
    }
}

/// Reads a file into a tree. What cannot be read is a mistake; the rest is still looked at.
pub(super) fn read(name: &Arc<str>, text: &str, env: &Environment<'_>, mistakes: &mut Mistakes) -> Table {
    let reader = Reader { name, text, env };
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        mistakes.add(&reader.origin(at), "", format!("this is not TOML: {}", error.message().replace('\n', ", ")));
    }
    reader.table(root.get_ref(), "", mistakes)
}

struct Reader<'r> {
    name: &'r Arc<str>,
    text: &'r str,
    env: &'r Environment<'r>,
}

impl Reader<'_> {
    fn origin(&self, at: usize) -> Origin {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        Origin::File { name: self.name.clone(), line: 1 + before.iter().filter(|&&b| b == b'\n').count() }
    }

    fn table(&self, table: &DeTable<'_>, path: &str, mistakes: &mut Mistakes) -> Table {
        let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
            let key_text: &std::borrow::Cow<'_, str> = key.get_ref();
            let path = if path.is_empty() { key_text.to_string() } else { format!("{path}.{key_text}") };
            let origin = self.origin(key.span().start);
            let node = self.node(value.get_ref(), &path, &origin, mistakes);
            (key_text.to_string(), Entry { origin, node })
        };
        table.iter().map(entry).collect()
    }

    fn node(&self, value: &DeValue<'_>, path: &str, origin: &Origin, mistakes: &mut Mistakes) -> Node {
        match value {
            DeValue::String(text) => self.fill_in(text, path, origin, mistakes),
            DeValue::Integer(whole) => match i64::from_str_radix(&whole.as_str().replace('_', ""), whole.radix()) {
                Ok(whole) => Node::Whole(whole),
                Err(_) => Node::Odd("a number that is too large"),
            },
            DeValue::Boolean(truth) => Node::Truth(*truth),
            DeValue::Array(list) => {
                let entry = |value: &toml::Spanned<DeValue<'_>>| {
                    let origin = self.origin(value.span().start);
                    let node = self.node(value.get_ref(), path, &origin, mistakes);
                    Entry { origin, node }
                };
                Node::List(list.iter().map(entry).collect())
            }
            DeValue::Table(table) => Node::Table(self.table(table, path, mistakes)),
            DeValue::Float(_) => Node::Odd("a fraction"),
            DeValue::Datetime(_) => Node::Odd("a date"),
        }
    }

    /// Replaces each `${NAME}` by the variable's value; the value itself is not looked into again.
    fn fill_in(&self, text: &str, path: &str, origin: &Origin, mistakes: &mut Mistakes) -> Node {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut whole = true;
        while let Some(at) = rest.find("${") {
            out.push_str(&rest[..at]);
            let Some(end) = rest[at..].find('}') else {
                mistakes.add(origin, path, "`${` has no closing `}`; write `${NAME}`");
                return Node::Broken;
            };
            let name = &rest[at + 2..at + end];
            rest = &rest[at + end + 1..];
            match self.env.get(name) {
                Ok(Some((_, value))) => out.push_str(&value),
                Ok(None) => {
                    whole = false;
                    mistakes.add(origin, path, format!("`${{{name}}}` is not set; set it in the environment, or `{name}_FILE`"));
                }
                Err(why) => {
                    whole = false;
                    mistakes.add(origin, path, why);
                }
            }
        }
        out.push_str(rest);
        if whole { Node::Text(out) } else { Node::Broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> (Table, String) {
        let vars = [("NAME", "value"), ("DEEP_FILE", "/run/deep"), ("LOST_FILE", "/run/lost"), ("NONE", "")];
        let env = Environment {
            vars: vars.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            read_file: &|path| match path {
                "/run/deep" => Ok("${NAME}\n".to_owned()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            },
        };
        let mut mistakes = Mistakes::default();
        let tree = read(&"t.toml".into(), text, &env, &mut mistakes);
        (tree, mistakes.settle().to_string())
    }

    #[test]
    fn variables_are_filled_in_once_and_files_are_read() {
        let (tree, _) = tree("a = 'x${NAME}y'\nb = '${DEEP}'\n");
        assert!(matches!(&tree["a"].node, Node::Text(text) if text == "xvaluey"));
        assert!(matches!(&tree["b"].node, Node::Text(text) if text == "${NAME}"));
    }

    #[test]
    fn every_variable_that_is_missing_is_named_with_its_line() {
        let (_, said) = tree("a = '${NOPE}${NONE}'\n[t]\nb = ['ok', '${LOST}']\nc = '${'\n");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[0], "t.toml:1: a: `${NONE}` is not set; set it in the environment, or `NONE_FILE`");
        assert_eq!(lines[1], "t.toml:1: a: `${NOPE}` is not set; set it in the environment, or `NOPE_FILE`");
        assert!(lines[2].starts_with("t.toml:3: t.b: `LOST_FILE` names a file that cannot be read"), "{said}");
        assert_eq!(lines[3], "t.toml:4: t.c: `${` has no closing `}`; write `${NAME}`");
    }

    #[test]
    fn broken_toml_is_a_mistake_and_the_rest_is_read() {
        let (tree, said) = tree("a = \nb = 1\n");
        assert!(said.starts_with("t.toml:1: this is not TOML: "), "{said}");
        assert!(matches!(tree["b"].node, Node::Whole(1)));
    }
}
