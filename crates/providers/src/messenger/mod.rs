//! Messenger and Instagram: Meta's envelope of entries and what people wrote in them. Both speak alike.

use http::{HeaderName, HeaderValue};
use secrecy::SecretString;

use super::hmac::{HUB_SIGNATURE_HEADERS, HubSignature};
use super::reading::Reading;
use super::tokens::Tokens;
use super::whatsapp::{handle, shake_hands};
use super::{Parsed, Provider, RawRequest, Refused, Reply, Unsigned, Verified};

mod events;
mod parts;

/// Carries our handle on its way out, and comes back in the echo.
pub(super) const METADATA: &str = "metadata";

pub(super) struct Messenger {
    name: &'static str,
    signature: HubSignature,
    verify_tokens: Tokens,
}

impl Messenger {
    pub(super) fn new(name: &'static str, secrets: &[SecretString], verify_token: Option<&SecretString>) -> Self {
        let verify_tokens = Tokens::new(verify_token.map(std::slice::from_ref).unwrap_or_default());
        Self { name, signature: HubSignature::new(secrets), verify_tokens }
    }
}

impl Provider for Messenger {
    fn name(&self) -> &'static str {
        self.name
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
        events::read(self.name, body, &mut reading);
        reading.finish()
    }

    fn rewrap(&self, body: &[u8], keep: &[u32]) -> Option<Vec<u8>> {
        parts::rewrap(std::str::from_utf8(body).ok()?, keep)
    }

    fn merge(&self, bodies: &[&[u8]]) -> Option<Vec<u8>> {
        crate::batch::merge_entries(bodies)
    }

    fn restore(&self, body: &[u8]) -> Option<Vec<u8>> {
        let body = std::str::from_utf8(body).ok().filter(|body| handle::may_be_in(body))?;
        handle::each(body, "entry", |entry| {
            let in_list = |entry: &str, list| {
                handle::each(entry, list, |item| {
                    let message = handle::without(super::json::member(item, "message")?.get(), METADATA)?;
                    super::json::with_member_replaced(item, "message", &message)
                })
            };
            let first = in_list(entry, "messaging");
            let so_far = first.as_deref().map_or(Some(entry), |bytes| std::str::from_utf8(bytes).ok())?;
            in_list(so_far, "standby").or(first)
        })
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        self.signature.sign(webhook.body)
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &HUB_SIGNATURE_HEADERS
    }
}
