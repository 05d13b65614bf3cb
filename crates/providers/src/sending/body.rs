//! A payload on its way to become a request body: members that nobody touches stay the bytes they were.

use std::borrow::Cow;

use bytes::Bytes;
use hapax_domain::limits::JSON_DEPTH;

use crate::json;

pub(super) struct Body<'p> {
    members: Vec<(Cow<'p, str>, Cow<'p, [u8]>)>,
}

impl<'p> Body<'p> {
    /// Reads a payload; says what to change when it is no object.
    pub(super) fn read(payload: &'p [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(payload).map_err(|_| "the payload is not UTF-8".to_owned())?;
        let members = json::members(text).ok_or("the payload is not a JSON object; write {\"text\": \"..\"}")?;
        if json::too_deep(text) {
            return Err(format!("the payload is nested deeper than {JSON_DEPTH} levels"));
        }
        let members = members.into_iter().map(|(name, raw)| (name, Cow::Borrowed(raw.get().as_bytes()))).collect();
        Ok(Self { members })
    }

    /// The member as JSON; `null` counts as not there.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        let (_, raw) = self.members.iter().rev().find(|(found, _)| found == name)?;
        std::str::from_utf8(raw).ok().filter(|raw| *raw != "null")
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().filter_map(|(name, raw)| Some((name.as_ref(), std::str::from_utf8(raw).ok()?)))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// The member's text; `None` when it is not there or no text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    /// A text, or a number as it is written: ids come as both.
    pub(super) fn id(&self, name: &str) -> Option<String> {
        let raw = self.raw(name)?;
        let number = raw.strip_prefix('-').unwrap_or(raw);
        let whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if whole { Some(raw.to_owned()) } else { self.text(name) }
    }

    /// A member of an object member.
    pub(super) fn inner_text(&self, outer: &str, name: &str) -> Option<String> {
        json::text(json::member(self.raw(outer)?, name))
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.members.retain(|(found, _)| found != name);
    }

    /// Puts JSON in the place of the member, or at the end. Doubles go: two readers could take different ones.
    pub(super) fn set(&mut self, name: &'static str, json: impl Into<Vec<u8>>) {
        let at = self.members.iter().position(|(found, _)| found == name);
        self.remove(name);
        let member = (Cow::Borrowed(name), Cow::Owned(json.into()));
        self.members.insert(at.unwrap_or(self.members.len()), member);
    }

    pub(super) fn set_text(&mut self, name: &'static str, text: &str) {
        self.set(name, quoted(text));
    }

    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        json::write_object(&mut out, self.members.iter().map(|(name, raw)| (name.as_ref(), Cow::Borrowed(&raw[..]))));
        Bytes::from(out)
    }
}

/// The text as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Refuses a text that no person could read, or that the provider cuts off or refuses.
pub(super) fn check_text(text: &str, most_chars: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("the text is empty; write something".to_owned());
    }
    let chars = text.chars().count();
    if chars > most_chars {
        return Err(format!("the text has {chars} characters and at most {most_chars} are allowed; split it"));
    }
    Ok(())
}

/// A name as one segment of a path. Dots alone would climb out of it, whoever wrote them.
pub(super) fn segment(what: &str, name: &str) -> Result<String, String> {
    if name.is_empty() || name.bytes().all(|byte| byte == b'.') {
        return Err(format!("{what} cannot be part of an address"));
    }
    Ok(encoded(name))
}

/// Percent-encodes everything but letters, digits and `-._~@`, for a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
