//! WhatsApp Cloud API: Meta's envelope of entries, changes, and the messages and statuses in them.

use http::{HeaderName, HeaderValue, Method};
use secrecy::SecretString;

use super::hmac::{HUB_SIGNATURE_HEADERS, HubSignature};
use super::reading::Reading;
use super::tokens::Tokens;
use super::{Parsed, Provider, RawRequest, Refused, Reply, Unsigned, Verified, form};

mod events;
pub(super) mod handle;
mod rewrap;
mod view;

const NAME: &str = "whatsapp";

pub(super) struct Whatsapp {
    signature: HubSignature,
    verify_tokens: Tokens,
}

impl Whatsapp {
    pub(super) fn new(secrets: &[SecretString], verify_token: Option<&SecretString>) -> Self {
        let verify_tokens = Tokens::new(verify_token.map(std::slice::from_ref).unwrap_or_default());
        Self { signature: HubSignature::new(secrets), verify_tokens }
    }
}

impl Provider for Whatsapp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handshake(&self, request: &RawRequest) -> Option<Reply> {
        shake_hands(request, &self.verify_tokens)
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        self.signature.check(&request.headers, &request.body)?;
        Ok(Verified::after_check(request))
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        let body = request.body();
        let mut reading = Reading::new(body);
        events::read(body, &mut reading);
        reading.finish()
    }

    fn rewrap(&self, body: &[u8], keep: &[u32]) -> Option<Vec<u8>> {
        rewrap::rewrap(std::str::from_utf8(body).ok()?, keep)
    }

    fn merge(&self, bodies: &[&[u8]]) -> Option<Vec<u8>> {
        crate::batch::merge_entries(bodies)
    }

    fn restore(&self, body: &[u8]) -> Option<Vec<u8>> {
        handle::restore(std::str::from_utf8(body).ok()?)
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        self.signature.sign(webhook.body)
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &HUB_SIGNATURE_HEADERS
    }
}

/// Answers the GET by which Meta makes sure of a new callback URL.
pub(super) fn shake_hands(request: &RawRequest, verify_tokens: &Tokens) -> Option<Reply> {
    if request.method != Method::GET {
        return None;
    }
    let value_of = |name| form::value_of(&request.query, name);
    let mode = value_of("hub.mode")?;
    let token = value_of("hub.verify_token").unwrap_or_default();
    let reply = |status, body| Reply { status, content_type: "text/plain; charset=utf-8", body };
    match value_of("hub.challenge") {
        Some(challenge) if mode == "subscribe" && verify_tokens.accept(token.as_bytes()) => {
            Some(reply(200, challenge.into_owned()))
        }
        _ => Some(reply(403, "the verify token does not match\n".to_owned())),
    }
}
