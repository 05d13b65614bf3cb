//! Any other webhook, as its channel describes it: where the id is, what orders events, how it is signed.

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::reading::{Reading, name};
use super::settings::GenericSettings;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, json};

pub(super) mod check;
mod finder;

use check::Check;
use finder::{Finder, Found, Request};

const NAME: &str = "generic";
/// One kind for all, so that the key does not depend on what else is found. Messages, because those keep order in their thread.
const KIND: Kind = Kind::Message;

pub(super) struct Generic {
    channel: String,
    check: Check,
    id: Option<Finder>,
    id_parts: Vec<Finder>,
    thread: Option<Finder>,
}

impl Generic {
    pub(super) fn new(settings: &GenericSettings) -> Self {
        Self {
            channel: settings.channel.clone(),
            check: Check::new(&settings.signature),
            id: settings.id.as_ref().map(Finder::new),
            id_parts: settings.id_parts.iter().map(Finder::new).collect(),
            thread: settings.thread.as_ref().map(Finder::new),
        }
    }

    fn read(&self, headers: &HeaderMap, body: &Bytes) -> Result<Event, String> {
        let request = Request::new(headers, body);
        let event = self.identify(&request, request.fingerprint()?)?;
        let peer = match &self.thread {
            Some(thread) => match thread.find(&request)? {
                Found::Missing | Found::Empty => None,
                Found::Text(peer) => Some(name("the thread", Some(&peer))?.to_owned()),
                Found::Odd(_) => return Err("the thread is neither a text nor a whole number".to_owned()),
            },
            None => None,
        };
        Ok(Event { peer, ..event })
    }

    /// The id where the channel says it is; else the chosen parts; the whole body where the channel chose neither.
    ///
    /// Where it chose and nothing is there, the request may be a copy or not: it has no identity.
    fn identify(&self, request: &Request<'_>, fingerprint: u32) -> Result<Event, String> {
        let account = self.channel.as_str();
        let named = |id: &str, key| Event::new(KIND, account, id, key, fingerprint);
        if let Some(id) = &self.id {
            match id.find(request)? {
                Found::Text(id) => {
                    let id = name("the id", Some(&id))?;
                    return Ok(named(id, EventKey::new(NAME, account, KIND, id, &[])));
                }
                Found::Odd(_) => return Err("the id is neither a text nor a whole number".to_owned()),
                Found::Missing | Found::Empty => {}
            }
        }
        let mut parts = Vec::with_capacity(self.id_parts.len());
        let mut says_something = false;
        for part in &self.id_parts {
            let found = part.find(request)?;
            says_something |= matches!(found, Found::Text(_) | Found::Odd(_));
            parts.push(match found {
                Found::Text(part) => format!("={part}"),
                Found::Odd(json) => format!("~{json}"),
                Found::Empty => "=".to_owned(),
                Found::Missing => String::new(),
            });
        }
        // Where no part says anything, the parts would make every event alike.
        if says_something {
            let rest: Vec<&str> = parts.iter().map(String::as_str).collect();
            // No real id is empty, so parts never meet an id.
            return Ok(named("", EventKey::new(NAME, account, KIND, "", &rest)));
        }
        if request.body.is_empty() {
            return Err("no id, and no body to make one from".to_owned());
        }
        let content = content_of(request.body);
        Ok(match self.id.is_none() && self.id_parts.is_empty() {
            true => named("", EventKey::from_content(NAME, account, &content)),
            false => Event::without_id(NAME, KIND, account, None, &content, fingerprint),
        })
    }
}

/// The body as identity: JSON in its canonical form, so that spelling does not matter, anything else byte for byte.
fn content_of(body: &[u8]) -> Vec<u8> {
    let canonical = std::str::from_utf8(body).ok().and_then(|text| json::canonical(text, &[]));
    // The first byte keeps the two apart.
    match canonical {
        Some(json) => [b"j", &json[..]].concat(),
        None => [b"b", body].concat(),
    }
}

impl Provider for Generic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn may_pass(&self, headers: &HeaderMap) -> bool {
        self.check.may_pass(headers)
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        self.check.check(&request.headers, &request.body)?;
        Ok(Verified::after_check(request))
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        let mut reading = Reading::new(request.body());
        reading.take(request.body(), || self.read(request.headers(), request.body()));
        reading.finish()
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        self.check.sign(webhook.body)
    }

    fn signature_headers(&self) -> &[HeaderName] {
        self.check.headers()
    }
}
