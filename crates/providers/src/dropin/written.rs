//! Effects of providers that take JSON: the body becomes the payload, or is kept as it came where a payload cannot hold it.

use std::borrow::Cow;

use hapax_domain::limits::MESSAGE_MAX_BYTES;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::SecretString;

use super::multipart::FilePart;
use super::parameters::{Content, Parameters, Unreadable, Value, payload};
use super::{Effect, Forward, Head, Refusal, Upload, Whole};
use crate::form;
use crate::sending::KeptBody;

/// Room in a payload for what hapax itself writes into it.
const ROOM_BYTES: usize = 8 << 10;
/// A text beside a body that is kept: for the eye, and to be found again by it.
const SHOWN_MAX_BYTES: usize = 64 << 10;

/// A call taken apart.
pub(super) struct Written<'w> {
    pub(super) parameters: Parameters,
    files: &'w [FilePart],
    /// The body goes out as it came.
    kept: Option<KeptBody>,
}

impl<'w> Written<'w> {
    /// From a body that is there. Only JSON can be taken into a payload: in a form all values are texts, and these servers mind.
    pub(super) fn whole(query: Option<&str>, whole: &Whole<'w>) -> Result<Self, Unreadable> {
        let mut parameters = Parameters::default();
        if !is_json(whole.content_type, whole.body) {
            parameters.add_form(whole.body)?;
            return Ok(Self { parameters, files: &[], kept: Some(KeptBody::whole(whole, query)) });
        }
        parameters.add_json(whole.body)?;
        parameters.keep_last();
        let is_large = whole.body.len() + ROOM_BYTES > MESSAGE_MAX_BYTES;
        Ok(Self { parameters, files: &[], kept: is_large.then(|| KeptBody::whole(whole, query)) })
    }

    /// Parameters that a payload can hold, wherever they stood.
    pub(super) fn taken(parameters: Parameters) -> Self {
        Self { parameters, files: &[], kept: None }
    }

    pub(super) fn parts(query: Option<&str>, upload: &Upload<'w>) -> Result<Self, Unreadable> {
        let mut parameters = Parameters::default();
        parameters.add_fields(upload.parts)?;
        Ok(Self { parameters, files: &upload.parts.files, kept: Some(KeptBody::new(upload, query)) })
    }

    pub(super) fn effect(&self, way: &Way<'_>, account: Option<String>, peer: String) -> Result<Effect, Refusal> {
        super::check_peer(&peer)?;
        let members = self.parameters.first_of_each(way.own_words);
        let besides: Vec<Value> = way.besides.iter().map(|(_, text)| Value::Text((*text).to_owned())).collect();
        let counted = members.iter().filter(|(name, _)| !way.uncounted.contains(name)).copied();
        let counted: Vec<_> = counted.chain(way.besides.iter().map(|(name, _)| *name).zip(&besides)).collect();
        let content = Content { method: way.method, free_text: way.texts, files: self.files }.hash(&counted);
        let text = way.texts.iter().find_map(|name| self.parameters.said(name));
        let own = |name, text: &str| (name, Cow::Owned(serde_json::Value::from(text).to_string().into_bytes()));
        let method = way.says_method.then(|| own("method", way.method)).into_iter();
        let method = method.chain(way.besides.iter().map(|(name, text)| own(name, text)));
        let payload = match &self.kept {
            Some(kept) => {
                let shown = way.texts.iter().filter_map(|name| Some((*name, self.parameters.said(name)?)));
                let shown = shown.filter(|(_, text)| text.len() <= SHOWN_MAX_BYTES).take(1);
                let kept = (KeptBody::MEMBER, Cow::Owned(kept.json()));
                payload(method.chain([kept]).chain(shown.map(|(name, text)| own(name, text))))
            }
            None => payload(method.chain(members.iter().map(|(name, value)| (*name, value.json())))),
        };
        if payload.len() > MESSAGE_MAX_BYTES {
            return Err(Refusal::TooLarge);
        }
        Ok(Effect {
            account,
            peer,
            method: way.method.to_owned(),
            payload,
            text: text.map(str::to_owned),
            content,
            keeps_body: self.kept.is_some(),
        })
    }
}

/// How a provider's effects are read.
pub(super) struct Way<'w> {
    pub(super) method: &'w str,
    /// False where other members say it.
    pub(super) says_method: bool,
    /// Members that only hapax writes into a payload; the provider would pass over them.
    pub(super) own_words: &'w [&'w str],
    /// Members of which the first that is there is what people read.
    pub(super) texts: &'w [&'w str],
    /// Members that tell no two messages apart.
    pub(super) uncounted: &'w [&'w str],
    /// Further members of hapax's own.
    pub(super) besides: &'w [(&'w str, &'w str)],
}

/// True for JSON, and for a body that says nothing of itself and looks like it.
pub(super) fn is_json(content_type: Option<&str>, body: &[u8]) -> bool {
    match content_type.filter(|sort| !sort.is_empty()) {
        Some(sort) => sort.to_ascii_lowercase().contains("json"),
        None => body.is_empty() || body.trim_ascii_start().starts_with(b"{"),
    }
}

/// The path's segments, decoded. `None` when one is not readable, or has a slash in disguise.
///
/// Empty ones do not count: these servers overlook a slash at the end, and proxies before them double ones. What they take for a send must
/// be one here too.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    let path = super::plain_path(path)?;
    let written = path.split('/').filter(|segment| !segment.is_empty());
    written.map(|segment| form::percent_decoded(segment).filter(|segment| !segment.contains('/'))).collect()
}

/// The name that is meant, as the documentation spells it: these servers do not mind the case of a path.
pub(super) fn spelt(written: &str, names: &[&'static str]) -> Option<&'static str> {
    names.iter().copied().find(|name| name.eq_ignore_ascii_case(written))
}

/// A header's value, where it is a text.
pub(super) fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim_ascii).filter(|value| !value.is_empty())
}

/// What stands behind `Bearer` or, decoded, behind `Basic`.
pub(super) fn authorization(headers: &HeaderMap) -> Option<SecretString> {
    use base64::Engine;
    let (scheme, value) = header_text(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    let value = value.trim_ascii();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" | "oauth" => Some(SecretString::from(value)),
        "basic" => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(value).ok()?;
            String::from_utf8(decoded).ok().map(SecretString::from)
        }
        _ => None,
    }
}

/// The query without the parameters of these names, otherwise as it came.
pub(super) fn query_without(query: Option<&str>, names: &[&str]) -> Option<String> {
    let is_named = |pair: &&str| {
        let name = form::pairs(pair).next().map(|(name, _)| name.into_owned()).unwrap_or_default();
        names.iter().any(|other| other.eq_ignore_ascii_case(&name))
    };
    let left: Vec<&str> = query?.split('&').filter(|pair| !is_named(pair)).collect();
    Some(left.join("&")).filter(|query| !query.is_empty())
}

/// The same call with other credentials in the header, and without those that stood in the query.
pub(super) fn forward(head: &Head<'_>, secret: (HeaderName, Option<HeaderValue>), in_query: &[&str]) -> Result<Forward, String> {
    segments(head.path).ok_or("this is no path of the provider's")?;
    let query = query_without(head.query, in_query).map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{query}", head.path);
    Ok(match secret {
        (name, Some(value)) => Forward { path, headers: vec![(name, value)], without: Vec::new() },
        (name, None) => Forward { path, headers: Vec::new(), without: vec![name] },
    })
}
