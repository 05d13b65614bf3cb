//! GitHub: one event per webhook, named in the headers; the body is JSON or a form with JSON in it.

use std::borrow::Cow;

use hapax_domain::{Event, EventKey, Kind};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::SecretString;
use serde::Deserialize;

use super::hmac::{HUB_SIGNATURE_HEADERS, HubSignature};
use super::lenient::{Object, Text};
use super::reading::{Reading, name};
use super::tape::Tape;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, form, json};

const NAME: &str = "github";
const DELIVERY: HeaderName = HeaderName::from_static("x-github-delivery");
const HOOK: HeaderName = HeaderName::from_static("x-github-hook-id");

pub(super) struct Github {
    signature: HubSignature,
}

impl Github {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { signature: HubSignature::new(secrets) }
    }
}

impl Provider for Github {
    fn name(&self) -> &'static str {
        NAME
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        self.signature.check(&request.headers, &request.body)?;
        Ok(Verified::after_check(request))
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        Reading::whole(request.body(), |body| read(request.headers(), body))
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        self.signature.sign(webhook.body)
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &HUB_SIGNATURE_HEADERS
    }
}

/// Whose event it is, as the signed payload says: nobody can change that and keep the signature.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Whose<'a> {
    repository: Object<Repository<'a>>,
    organization: Object<Organization<'a>>,
}

#[derive(Deserialize)]
struct Repository<'a> {
    #[serde(borrow, default)]
    full_name: Text<'a>,
}

#[derive(Deserialize)]
struct Organization<'a> {
    #[serde(borrow, default)]
    login: Text<'a>,
}

fn read(headers: &HeaderMap, body: &str) -> Result<Event, String> {
    let text = |header| headers.get(header).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let hook = match text(HOOK) {
        Some(hook) if !hook.is_empty() => name("the header X-GitHub-Hook-ID", Some(hook))?,
        _ => "",
    };
    let payload = payload(headers, body)?;
    let tape = Tape::of(&payload)?;
    let whose: Whose<'_> = tape.object(tape.root())?;
    let repository = whose.repository.0.as_ref().and_then(|repository| repository.full_name.name());
    let organization = || whose.organization.0.as_ref().and_then(|organization| organization.login.name());
    let account = match repository.or_else(organization) {
        Some(account) => name("the repository", Some(account))?,
        None => "",
    };
    let fingerprint = tape.fingerprint_root(&[])?;
    match text(DELIVERY).filter(|id| !id.is_empty()) {
        // Pushes say no time that all of them have.
        None => {
            let content = json::canonical(&payload, &[]).ok_or("nested too deeply")?;
            Ok(Event::without_id(NAME, Kind::Notice, account, None, &content, fingerprint))
        }
        found => {
            let id = name("the header X-GitHub-Delivery", found)?;
            Ok(Event::new(Kind::Notice, account, id, EventKey::new(NAME, hook, Kind::Notice, id, &[]), fingerprint))
        }
    }
}

fn payload<'b>(headers: &HeaderMap, body: &'b str) -> Result<Cow<'b, str>, String> {
    let is_form = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded"));
    match is_form {
        true => form::value_of(body, "payload").ok_or_else(|| "the form has no readable payload".to_owned()),
        false => Ok(Cow::Borrowed(body)),
    }
}
