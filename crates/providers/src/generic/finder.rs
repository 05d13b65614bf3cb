//! Finds the values that a channel's settings point at.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json;
use crate::settings::FieldSource;

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
    tree: Option<Value>,
}

impl<'r> Request<'r> {
    pub(super) fn new(headers: &'r HeaderMap, body: &'r Bytes) -> Self {
        Self { headers, body, text: None, tree: None }
    }

    /// The body as JSON text, checked once.
    fn text(&mut self) -> Result<&'r str, String> {
        if let Some(text) = self.text {
            return Ok(text);
        }
        let text = std::str::from_utf8(self.body).map_err(|_| "the body is not UTF-8")?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|_| "the body is not JSON")?;
        self.text = Some(text);
        Ok(text)
    }

    fn tree(&mut self) -> Result<&Value, String> {
        let text = self.text()?;
        if self.tree.is_none() {
            self.tree = Some(serde_json::from_str(text).map_err(|_| "the body is nested too deeply")?);
        }
        Ok(self.tree.as_ref().unwrap_or(&Value::Null))
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
    pub(super) fn find(&self, request: &mut Request<'_>) -> Result<Found, String> {
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
                let found = steps.iter().try_fold(request.text()?, |part, step| one_step(part, step).map(RawValue::get));
                found.map_or(Ok(Found::Missing), found_in)
            }
            Finder::Path(path) => {
                let text = request.text()?;
                let matches = js_path_process(path, request.tree()?).unwrap_or_default();
                let Some(first) = matches.into_iter().next() else { return Ok(Found::Missing) };
                // The tree has rounded what does not fit 64 bits; the text has not.
                let steps = steps_of(&first.path).unwrap_or_default();
                let exact = steps.iter().try_fold(text, |part, step| one_step(part, step).map(RawValue::get));
                match exact {
                    Some(exact) if !steps.is_empty() => found_in(exact),
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

fn one_step<'t>(part: &'t str, step: &str) -> Option<&'t RawValue> {
    match part.trim_ascii_start().as_bytes().first()? {
        b'{' => json::member(part, step),
        // RFC 6901 has no leading zeros, and `-` points past the end.
        b'[' if step == "0" || !step.starts_with('0') => json::items(part)?.get(step.parse::<usize>().ok()?).copied(),
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
