//! A request body that is kept in pieces beside the message, because it is larger than a message may be.

use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;

use super::CallBody;
use super::body::Body;
use crate::dropin::{Upload, Whole};

/// What a payload says of such a body in place of holding it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct KeptBody {
    name: String,
    content_type: String,
    length: u64,
    /// What stood in the query of the call, beside the body.
    #[serde(default)]
    query: Option<String>,
}

impl KeptBody {
    /// The member of a payload. Only hapax writes it: whoever could name a body could send somebody else's.
    pub(crate) const MEMBER: &'static str = "upload";

    pub(crate) fn new(upload: &Upload<'_>, query: Option<&str>) -> Self {
        let (name, content_type) = (upload.name.to_owned(), upload.content_type.to_owned());
        Self { name, content_type, length: upload.length, query: some(query) }
    }

    /// One that was read whole, and is too large for a message or of a form that a message cannot hold.
    pub(crate) fn whole(whole: &Whole<'_>, query: Option<&str>) -> Self {
        let looks_like = if whole.body.starts_with(b"{") { "application/json" } else { "application/x-www-form-urlencoded" };
        let (name, content_type) = (whole.name.to_owned(), whole.content_type.unwrap_or(looks_like).to_owned());
        Self { name, content_type, length: whole.body.len() as u64, query: some(query) }
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        let Self { name, content_type, length, query } = self;
        let mut kept = serde_json::json!({ "name": name, "content_type": content_type, "length": length });
        if let Some(query) = query {
            kept["query"] = query.as_str().into();
        }
        kept.to_string().into_bytes()
    }

    /// What the payload says; `None` for one that holds its own body.
    pub(super) fn of(body: &Body<'_>) -> Option<Self> {
        serde_json::from_str(body.raw(Self::MEMBER)?).ok()
    }

    /// Refuses a payload that names a kept body: for all who write payloads themselves.
    pub(super) fn refuse(body: &Body<'_>) -> Result<(), String> {
        match body.has(Self::MEMBER) {
            true => Err(format!("`{}` is a word of hapax's own; leave it out", Self::MEMBER)),
            false => Ok(()),
        }
    }

    /// With `?`, or nothing.
    pub(super) fn query(&self) -> String {
        self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default()
    }

    pub(super) fn content_type(&self) -> Result<(HeaderName, HeaderValue), String> {
        let value =
            HeaderValue::from_str(&self.content_type).map_err(|_| "its content type cannot stand in a header".to_owned())?;
        Ok((header::CONTENT_TYPE, value))
    }

    pub(super) fn body(self) -> CallBody {
        CallBody::Kept { name: self.name, length: self.length }
    }
}

fn some(query: Option<&str>) -> Option<String> {
    query.filter(|query| !query.is_empty()).map(str::to_owned)
}
