//! The parameters of a call, wherever they stood, and one hash for all spellings of the same content.

use std::borrow::Cow;

use bytes::Bytes;

use super::multipart::{FilePart, Parts};
use crate::{form, json};

/// In the order in which the provider's server reads them: first the query, then the body.
#[derive(Default)]
pub(super) struct Parameters(Vec<(String, Value)>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// A number, an object: JSON that is no text, as it was written.
    Json(String),
}

impl Value {
    /// What a server that takes forms makes of it.
    pub(super) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            Value::Json(raw) => raw,
        }
    }

    pub(super) fn json(&self) -> Cow<'_, [u8]> {
        match self {
            Value::Text(text) => Cow::Owned(serde_json::Value::from(text.as_str()).to_string().into_bytes()),
            Value::Json(raw) => Cow::Borrowed(raw.as_bytes()),
        }
    }
}

/// Why parameters cannot be read, for the author of the request.
pub(super) type Unreadable = &'static str;

impl Parameters {
    /// `name=value&…`, as a query or as a body.
    pub(super) fn add_form(&mut self, form: &[u8]) -> Result<(), Unreadable> {
        for (name, value) in form::raw_pairs(form) {
            self.0.push((utf8(name)?, Value::Text(utf8(value)?)));
        }
        Ok(())
    }

    /// For servers that read objects and lists where they stand in a form.
    pub(super) fn read_json_in_texts(&mut self) {
        for (_, value) in &mut self.0 {
            let is_container = value.text().trim_ascii_start().starts_with(['{', '[']);
            if is_container && json::canonical(value.text(), &[]).is_some() {
                *value = Value::Json(value.text().to_owned());
            }
        }
    }

    /// A JSON object; nothing at all counts as an empty one.
    pub(super) fn add_json(&mut self, body: &[u8]) -> Result<(), Unreadable> {
        let text = std::str::from_utf8(body).map_err(|_| NOT_UTF8)?;
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        if json::too_deep(text) {
            return Err("can't parse JSON object: it is nested too deeply");
        }
        let members = json::members(text).ok_or("can't parse JSON object")?;
        for (name, raw) in members {
            let value = match json::text(Some(raw)) {
                Some(text) => Value::Text(text),
                None => Value::Json(raw.get().to_owned()),
            };
            self.0.push((name.into_owned(), value));
        }
        Ok(())
    }

    pub(super) fn add_fields(&mut self, parts: &Parts) -> Result<(), Unreadable> {
        for field in &parts.fields {
            match field.is_form {
                true => self.add_form(&field.value)?,
                false => self.0.push((field.name.clone(), Value::Text(utf8(field.value.clone())?))),
            }
        }
        Ok(())
    }

    /// The first of this name, as servers that take forms do.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.text())
    }

    /// The same for servers that read JSON into objects: `null` and nothing are as good as not there.
    pub(super) fn said(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(found, _)| found == name)?;
        Some(value.text()).filter(|text| !text.is_empty() && *value != Value::Json("null".to_owned()))
    }

    /// For servers that take the last of a name, as those do that read JSON into objects.
    pub(super) fn keep_last(&mut self) {
        let mut seen = std::collections::HashSet::new();
        let mut last: Vec<_> = self.0.drain(..).rev().filter(|(name, _)| seen.insert(name.clone())).collect();
        last.reverse();
        self.0 = last;
    }

    /// Each name once, with its first value, but for those in `without`.
    pub(super) fn first_of_each(&self, without: &[&str]) -> Vec<(&str, &Value)> {
        let mut seen = std::collections::HashSet::new();
        let wanted = |name: &str| !without.contains(&name);
        let first = self.0.iter().filter(|(name, _)| wanted(name) && seen.insert(name.as_str()));
        first.map(|(name, value)| (name.as_str(), value)).collect()
    }
}

const NOT_UTF8: Unreadable = "strings must be encoded in UTF-8";

fn utf8(bytes: Vec<u8>) -> Result<String, Unreadable> {
    String::from_utf8(bytes).map_err(|_| NOT_UTF8)
}

/// What tells two calls apart, whatever their spelling.
pub(super) struct Content<'c> {
    pub(super) method: &'c str,
    /// Parameters that people read as they are written: what looks like JSON there is none.
    pub(super) free_text: &'c [&'c str],
    pub(super) files: &'c [FilePart],
}

impl Content<'_> {
    /// Order, blanks in JSON, boundaries and the names of attachments do not count.
    pub(super) fn hash(&self, parameters: &[(&str, &Value)]) -> [u8; 16] {
        let mut referred = vec![false; self.files.len()];
        let mut lines: Vec<(&str, Vec<u8>)> = Vec::new();
        for (name, value) in parameters {
            lines.push((name, self.canonical(name, value, &mut referred)));
        }
        for (file, referred) in self.files.iter().zip(referred) {
            // A file that no parameter refers to is what its own name says; Telegram takes it for a parameter without a value too.
            if !referred {
                lines.retain(|(name, line)| *name != file.name || line != &text_line(""));
                lines.push((&file.name, file_line(file)));
            }
        }
        lines.sort();
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(self.method.as_bytes());
        for (name, line) in &lines {
            add(name.as_bytes());
            add(line);
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        hash
    }

    fn canonical(&self, name: &str, value: &Value, referred: &mut [bool]) -> Vec<u8> {
        let text = value.text();
        if matches!(value, Value::Text(_)) && self.free_text.contains(&name) {
            return text_line(text);
        }
        if let Some(at) = text.strip_prefix("attach://").and_then(|part| self.files.iter().position(|file| file.name == part)) {
            referred[at] = true;
            return file_line(&self.files[at]);
        }
        let is_container = text.trim_ascii_start().starts_with(['{', '[']);
        let Some(canonical) = is_container.then(|| json::canonical(text, &[])).flatten() else { return text_line(text) };
        let mut canonical = String::from_utf8_lossy(&canonical).into_owned();
        for (at, file) in self.files.iter().enumerate() {
            let reference = serde_json::Value::from(format!("attach://{}", file.name)).to_string();
            if canonical.contains(&reference) {
                referred[at] = true;
                canonical = canonical.replace(&reference, &format!("\"file {}\"", hex::encode(file.hash)));
            }
        }
        [b"json ", canonical.as_bytes()].concat()
    }
}

fn text_line(text: &str) -> Vec<u8> {
    [b"text ", text.as_bytes()].concat()
}

fn file_line(file: &FilePart) -> Vec<u8> {
    [&b"file "[..], &file.hash].concat()
}

/// A payload for [`Sending::call`](crate::sending::Sending::call): the parameters as members of one object.
pub(super) fn payload<'p>(members: impl Iterator<Item = (&'p str, Cow<'p, [u8]>)>) -> Bytes {
    let mut out = Vec::new();
    json::write_object(&mut out, members);
    Bytes::from(out)
}
