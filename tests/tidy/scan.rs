//! Reads Rust without a compiler: where code is, where functions begin and end, where a name stands.

use std::ops::Range;

pub(crate) struct Function {
    pub(crate) name: String,
    /// From `fn` to the closing brace.
    pub(crate) all: Range<usize>,
}

impl Function {
    pub(crate) fn lines(&self, code: &str) -> usize {
        code[self.all.clone()].lines().count()
    }
}

pub(crate) fn functions_of(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for start in places_of(code, "fn") {
        let after = code[start + 2..].trim_start();
        let name: String = after.chars().take_while(|&c| is_word(c)).collect();
        if name.is_empty() {
            continue;
        }
        if let Some(open) = body_of(code, start) {
            found.push(Function { name, all: start..block_end(code, open) });
        }
    }
    found
}

/// Finds the opening brace of the function at `start`; `None` for a declaration that ends in `;`.
fn body_of(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(start + at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Finds the end of the block whose brace opens at `open`.
fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

pub(crate) fn test_modules(code: &str) -> Vec<Range<usize>> {
    let starts = code.match_indices("#[cfg(test)]").map(|(at, _)| at);
    let modules = starts.filter_map(|at| {
        let open = body_of(code, at)?;
        places_of(&code[at..open], "mod").first().map(|_| at..block_end(code, open))
    });
    modules.collect()
}

pub(crate) fn attributes_before(code: &str, function: usize) -> &str {
    let line_start = |at: usize| code[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = line_start(function);
    let mut start = end;
    while start > 0 {
        let before = line_start(start - 1);
        let line = code[before..start].trim();
        if !line.is_empty() && !line.starts_with("#[") {
            break;
        }
        start = before;
    }
    &code[start..end]
}

/// Finds a name or path as whole words, also where a grouped import splits it (`std::{fs, io}`).
pub(crate) fn places_of(code: &str, name: &str) -> Vec<usize> {
    let whole = |&(at, found): &(usize, &str)| {
        let before = code[..at].chars().next_back();
        let after = code[at + found.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    let mut places: Vec<_> = code.match_indices(name).filter(whole).map(|(at, _)| at).collect();
    if let Some((parent, last)) = name.rsplit_once("::") {
        let group = format!("{parent}::{{");
        for (at, _) in code.match_indices(&group) {
            let open = at + group.len() - 1;
            let inner = &code[open..block_end(code, open)];
            places.extend(places_of(inner, last).into_iter().map(|inside| open + inside));
        }
    }
    places
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub(crate) fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Blanks comments, strings and characters, and keeps every line where it was.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hidden = hidden_bytes(rest, code.chars().next_back());
        if hidden == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..hidden].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[hidden..];
        }
    }
    code
}

/// Measures the comment or literal that `rest` begins with; 0 when it begins with code.
fn hidden_bytes(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        block_comment_bytes(rest)
    } else if rest.starts_with('"') {
        string_bytes(rest)
    } else if rest.starts_with('\'') {
        character_bytes(rest)
    } else if before.is_some_and(is_word) {
        0
    } else {
        raw_string_bytes(rest)
    }
}

fn block_comment_bytes(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_bytes(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '"' {
            return at + 1;
        }
    }
    rest.len()
}

/// A quote also begins a lifetime, which is code.
fn character_bytes(rest: &str) -> usize {
    let mut inside = rest.char_indices().skip(1);
    match inside.next() {
        Some((_, '\\')) => {
            inside.next();
            inside.find(|&(_, c)| c == '\'').map_or(0, |(at, _)| at + 1)
        }
        Some(_) => inside.next().filter(|&(_, c)| c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

fn raw_string_bytes(rest: &str) -> usize {
    let prefixed = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let Some(marks) = prefixed.strip_prefix('r') else { return 0 };
    let inside = marks.trim_start_matches('#');
    if !inside.starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", &marks[..marks.len() - inside.len()]);
    let before = rest.len() - inside.len() + 1;
    inside[1..].find(&end).map_or(rest.len(), |at| before + at + end.len())
}

mod reading {
    use super::*;

    #[test]
    fn find_functions_behind_tricky_text() {
        let text = "trait T { fn none(&self, x: [u8; 2]) -> [u8; 2]; }\nfn a<'a>(f: fn(u8) -> u8) -> [u8; 2] { let _ = ('{', b'}', \"}\", r\"{\"); }\nfn b() { if x { y() } }";
        let code = code_of(text);
        let found: Vec<_> = functions_of(&code).iter().map(|f| (f.name.clone(), code[f.all.clone()].len())).collect();
        assert_eq!(found, [("a".to_owned(), text.lines().nth(1).unwrap().len()), ("b".to_owned(), 23)]);
    }
}
