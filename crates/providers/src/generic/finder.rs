//! Finds the values that a channel's settings point at.

use std::cell::OnceCell;

use bytes::Bytes;
use hapax_domain::fingerprint;
use http::{HeaderMap, HeaderName};
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use crate::json;
use crate::settings::FieldSource;
use crate::tape::{Part, Tape};

/// A place, made ready to look into many requests.
pub(super) enum Finder {
    Header(HeaderName),
    /// The unescaped steps of a JSON pointer.
    Pointer(Vec<String>),
    Path(Box<JpQuery>),
    /// A path that settings should have refused.
    Nowhere,
}

/// What stands at a place.
pub(super) enum Found {
    Missing,
    /// `null` or an empty text: it is there, and names nothing.
    Empty,
    /// A text or a whole number, with all its digits.
    Text(String),
    /// Anything else, as canonical JSON.
    Odd(String),
}

/// The request that finders look into; its tree is built for JSONPath only, and once.
pub(super) struct Request<'r> {
    headers: &'r HeaderMap,
    pub(super) body: &'r Bytes,
    text: Option<&'r str>,
    tape: Option<Tape<'r>>,
    tree: OnceCell<Value>,
}

impl<'r> Request<'r> {
    pub(super) fn new(headers: &'r HeaderMap, body: &'r Bytes) -> Self {
        let text = std::str::from_utf8(body).ok();
        Self { headers, body, text, tape: text.and_then(|text| Tape::of(text).ok()), tree: OnceCell::new() }
    }

    pub(super) fn fingerprint(&self) -> Result<u32, String> {
        match (&self.tape, self.text) {
            (Some(tape), _) => tape.fingerprint_root(&[]),
            // What begins with JSON, as lines of it do, is known by its first value.
            (None, Some(text)) => match fingerprint::of_json(text, &[]) {
                Some(fingerprint) => Ok(fingerprint),
                None if json::too_deep(text) => Err("nested too deeply".to_owned()),
                None => Ok(fingerprint::of_bytes(self.body)),
            },
            (None, None) => Ok(fingerprint::of_bytes(self.body)),
        }
    }

    fn tape(&self) -> Result<&Tape<'r>, String> {
        let why = if self.text.is_some() { "the body is not JSON" } else { "the body is not UTF-8" };
        self.tape.as_ref().ok_or_else(|| why.to_owned())
    }

    fn tree(&self) -> Result<&Value, String> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = serde_json::from_str(self.tape()?.root().get()).map_err(|_| "the body is nested too deeply")?;
        Ok(self.tree.get_or_init(|| tree))
    }
}

impl Finder {
    pub(super) fn new(place: &FieldSource) -> Self {
        match place {
            FieldSource::Header(name) => Finder::Header(name.clone()),
            FieldSource::Pointer(pointer) => {
                let step = |step: &str| step.replace("~1", "/").replace("~0", "~");
                Finder::Pointer(pointer.split('/').skip(1).map(step).collect())
            }
            FieldSource::JsonPath(path) => parse_json_path(path).map_or(Finder::Nowhere, |path| Finder::Path(Box::new(path))),
        }
    }

    /// Looks into the request. An error means the request cannot be looked into at all.
    pub(super) fn find(&self, request: &Request<'_>) -> Result<Found, String> {
        match self {
            Finder::Header(name) => Ok(match request.headers.get(name) {
                None => Found::Missing,
                Some(value) => match std::str::from_utf8(value.as_bytes()) {
                    Ok("") => Found::Empty,
                    Ok(text) => Found::Text(text.to_owned()),
                    Err(_) => Found::Odd(hex::encode(value.as_bytes())),
                },
            }),
            Finder::Pointer(steps) => {
                let tape = request.tape()?;
                let found = steps.iter().try_fold(tape.root(), |part, step| one_step(tape, part, step));
                found.map_or(Ok(Found::Missing), |part| found_in(part.get()))
            }
            Finder::Path(path) => {
                let tape = request.tape()?;
                let matches = js_path_process(path, request.tree()?).unwrap_or_default();
                let Some(first) = matches.into_iter().next() else { return Ok(Found::Missing) };
                // The tree has rounded what does not fit 64 bits; the text has not.
                let steps = steps_of(&first.path).unwrap_or_default();
                let exact = steps.iter().try_fold(tape.root(), |part, step| one_step(tape, part, step));
                match exact {
                    Some(exact) if !steps.is_empty() => found_in(exact.get()),
                    _ => found_in(&first.val.to_string()),
                }
            }
            Finder::Nowhere => Ok(Found::Missing),
        }
    }
}

/// The steps of a path that names one place, `$['items'][0]`; nothing when it is written in a way that is not read here.
fn steps_of(path: &str) -> Option<Vec<String>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        rest = rest.strip_prefix('[')?;
        let step = match rest.strip_prefix('\'') {
            Some(name) => {
                let (name, after) = name.split_once("']")?;
                rest = after;
                name
            }
            None => {
                let (index, after) = rest.split_once(']')?;
                rest = after;
                index
            }
        };
        // An escaped name would have to be read back first: the tree's value will do.
        if step.contains('\\') {
            return None;
        }
        steps.push(step.to_owned());
    }
    Some(steps)
}

fn one_step<'t>(tape: &Tape<'t>, part: Part<'t>, step: &str) -> Option<Part<'t>> {
    match part.get().as_bytes().first()? {
        b'{' => tape.member(part, step),
        // RFC 6901 has no leading zeros, and `-` points past the end.
        b'[' if step == "0" || !step.starts_with('0') => tape.items(part).nth(step.parse().ok()?),
        _ => None,
    }
}

fn found_in(part: &str) -> Result<Found, String> {
    let part = part.trim_ascii();
    let is_whole = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Ok(match part.as_bytes().first() {
        None => Found::Missing,
        Some(b'n') => Found::Empty,
        Some(b'"') => match serde_json::from_str::<String>(part) {
            Ok(text) if text.is_empty() => Found::Empty,
            Ok(text) => Found::Text(text),
            Err(_) => Found::Odd(part.to_owned()),
        },
        Some(_) if is_whole(part.strip_prefix('-').unwrap_or(part)) => Found::Text(part.to_owned()),
        Some(_) => {
            let canonical = json::canonical(part, &[]).ok_or("nested too deeply")?;
            Found::Odd(String::from_utf8_lossy(&canonical).into_owned())
        }
    })
}
