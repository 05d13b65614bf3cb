//! Sans-I/O adapters: what each provider's webhooks look like, how they are signed, and what is in them.
//!
//! *Invariant:* adapters do no I/O, read no clock and no environment. They see bytes and give values back, so they are tested
//! with fixtures alone. A request that was not verified cannot be parsed: only [`Provider::verify`] makes a [`Verified`], and the spool
//! makes one again of what was verified before it was spooled.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

mod batch;
pub mod checkup;
pub mod dropin;
mod event_type;
mod evolution;
pub mod form;
mod generic;
mod github;
mod gowa;
mod hmac;
mod json;
mod jwt;
mod lenient;
mod messenger;
mod reading;
mod redact;
pub mod samples;
pub mod seen;
pub mod sending;
pub mod settings;
mod shopify;
mod slack;
mod standard;
mod stripe;
mod tape;
mod telegram;
mod tokens;
mod twilio;
mod waha;
mod whatsapp;
mod whatsapp_web;

pub use event_type::{event_type, is_type};
pub use sending::twilio::is_login as is_twilio_login;
pub use standard::{is_key as is_standard_key, is_public_key as is_standard_public_key};

use dropin::DropIn;
use hapax_domain::Event;
use secrecy::SecretString;
use sending::Sending;
use sending::messenger::{Messenger, Platform};
use settings::Settings;

/// A request as it came from the network, nothing believed yet.
pub struct RawRequest {
    pub method: Method,
    /// The query string without `?`, as sent.
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl fmt::Debug for RawRequest {
    /// Headers and query carry secrets, the body somebody's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRequest").field("method", &self.method).field("body_bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// A request whose signature was checked. Only adapters make one, in [`Provider::verify`], and whoever kept such a request since.
#[derive(Debug)]
pub struct Verified<'r> {
    request: &'r RawRequest,
    /// The body without what must never be kept; `None`: there was nothing of that.
    redacted: Option<Bytes>,
    /// When it was signed, where the signature says so.
    signed_ms: Option<i64>,
}

impl<'r> Verified<'r> {
    /// Adapters call this after the check, and nobody else does.
    pub(crate) fn after_check(request: &'r RawRequest) -> Self {
        Self { request, redacted: None, signed_ms: None }
    }

    pub(crate) fn signed_at(self, signed_ms: Option<i64>) -> Self {
        Self { signed_ms, ..self }
    }

    /// Everybody after the check sees this body in place of the one that came.
    pub(crate) fn with_body(self, redacted: Option<Bytes>) -> Self {
        Self { redacted, ..self }
    }

    /// For a request that was checked when it came and has been in our own keeping since: signatures grow old, and are never stored.
    pub fn kept(request: &'r RawRequest) -> Self {
        Self { request, redacted: None, signed_ms: None }
    }

    pub fn signed_ms(&self) -> Option<i64> {
        self.signed_ms
    }

    pub fn body(&self) -> &Bytes {
        self.redacted.as_ref().unwrap_or(&self.request.body)
    }

    /// Empty when it was kept meanwhile.
    pub fn query(&self) -> &'r str {
        &self.request.query
    }

    pub fn headers(&self) -> &'r HeaderMap {
        &self.request.headers
    }
}

/// Why a request was refused. Says nothing about the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the signature is missing")]
    NoSignature,
    #[error("the signature does not match")]
    BadSignature,
    #[error("the signature is too old or from the future")]
    Stale,
}

/// What one webhook carried.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// In the order of the body; `index` counts from 0 over events and problems together.
    pub events: Vec<Event>,
    /// Well-formed parts that are nothing to us (typing notices, unknown fields without an id).
    pub ignored: u32,
    /// Parts that could not be read; they are quarantined and never block the rest.
    pub problems: Vec<Problem>,
}

/// One unreadable part of a webhook, or the whole of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    pub index: u32,
    /// For a person: what was expected and not found.
    pub why: String,
    /// The part itself, as it stands in the body.
    pub part: Bytes,
}

/// A webhook on its way to somebody who checks signatures.
#[derive(Clone, Copy)]
pub struct Unsigned<'w> {
    /// Where it goes, as the one who checks writes it. `None`: to our own door.
    pub url: Option<&'w str>,
    /// Its other headers: some schemes sign the id that stands there.
    pub headers: &'w HeaderMap,
    pub body: &'w [u8],
}

/// What the provider wants to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

/// A kind of counterpart, set up with one channel's secrets.
pub trait Provider: Send + Sync {
    /// The word used in config, keys, metrics and docs.
    fn name(&self) -> &'static str;

    /// Answers set-up requests (Meta's GET challenge). `None` means: not a handshake, go on.
    fn handshake(&self, _request: &RawRequest) -> Option<Reply> {
        None
    }

    /// False when the headers alone show that [`Provider::verify`] would refuse, so that the body need not be read for it.
    fn may_pass(&self, headers: &HeaderMap) -> bool {
        self.signature_headers().iter().any(|name| headers.contains_key(name))
    }

    /// Answers a verified request that only asks for a word back (Slack's `url_verification`). `None` means: read it.
    fn challenge(&self, _request: &Verified<'_>) -> Option<Reply> {
        None
    }

    /// What is said to a webhook that was taken, where a provider would take our own words for something to do (Twilio's TwiML).
    fn thanks(&self) -> Option<Reply> {
        None
    }

    /// Checks the signature over the raw bytes, in constant time.
    fn verify<'r>(&self, request: &'r RawRequest, now_ms: i64) -> Result<Verified<'r>, Refused>;

    /// Takes secrets out of a body that has been in our own keeping, as [`Provider::verify`] does with one that comes: a version that took out
    /// less may have kept it. `None` when there is nothing to take out.
    fn redact_kept(&self, _body: &Bytes) -> Option<Bytes> {
        None
    }

    /// Reads all events of a verified request. Never fails as a whole: what cannot be read is a problem.
    fn parse(&self, request: &Verified<'_>) -> Parsed;

    /// Makes a body of the provider's own shape that holds only the events with these indexes (ascending, at least one).
    ///
    /// `None` when the body is one event and cannot be split.
    fn rewrap(&self, _body: &[u8], _keep: &[u32]) -> Option<Vec<u8>> {
        None
    }

    /// Makes one body of the provider's own shape of several. `None` where a body is one event, or one of these is odd.
    fn merge(&self, _bodies: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }

    /// Takes out of a body what only hapax put there (its handle in a status), so that the bot sees what it would see without us.
    ///
    /// `None` when there is nothing of ours in it.
    fn restore(&self, _body: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Headers that make the bot's own signature check pass.
    fn sign(&self, webhook: Unsigned<'_>, now_ms: i64) -> Vec<(HeaderName, HeaderValue)>;

    /// Headers that carry a secret or a signature: never stored, made anew by [`Provider::sign`].
    fn signature_headers(&self) -> &[HeaderName];
}

/// Makes the adapter that a channel's settings ask for. The only registry of providers.
pub fn build(settings: &Settings) -> Arc<dyn Provider> {
    match settings {
        Settings::Whatsapp { secrets, verify_token } => Arc::new(whatsapp::Whatsapp::new(secrets, verify_token.as_ref())),
        Settings::Messenger { secrets, verify_token } => {
            Arc::new(messenger::Messenger::new("messenger", secrets, verify_token.as_ref()))
        }
        Settings::Instagram { secrets, verify_token } => {
            Arc::new(messenger::Messenger::new("instagram", secrets, verify_token.as_ref()))
        }
        Settings::Telegram { secrets, bot } => Arc::new(telegram::Telegram::new(secrets, bot)),
        Settings::Gowa { secrets } => Arc::new(gowa::Gowa::new(secrets)),
        Settings::Evolution { proof, token } => Arc::new(evolution::Evolution::new(proof, token.as_ref())),
        Settings::Waha { secrets } => Arc::new(waha::Waha::new(secrets)),
        Settings::Stripe { secrets } => Arc::new(stripe::Stripe::new(secrets)),
        Settings::Github { secrets } => Arc::new(github::Github::new(secrets)),
        Settings::Standard { secrets } => Arc::new(standard::Standard::new(secrets)),
        Settings::Slack { secrets } => Arc::new(slack::Slack::new(secrets)),
        Settings::Twilio { secrets, public_url } => Arc::new(twilio::Twilio::new(secrets, public_url)),
        Settings::Shopify { secrets } => Arc::new(shopify::Shopify::new(secrets)),
        Settings::Generic(settings) => Arc::new(generic::Generic::new(settings)),
    }
}

/// Makes the sending side that a channel's settings ask for; `None` for providers that take no messages.
pub fn build_sending(settings: &Settings, token: Option<&SecretString>) -> Option<Arc<dyn Sending>> {
    match settings {
        Settings::Whatsapp { .. } => Some(Arc::new(sending::whatsapp::Whatsapp::new(token))),
        Settings::Messenger { .. } => Some(Arc::new(Messenger::new(Platform::Messenger, token))),
        Settings::Instagram { .. } => Some(Arc::new(Messenger::new(Platform::Instagram, token))),
        Settings::Telegram { .. } => Some(Arc::new(sending::telegram::Telegram::new(token))),
        Settings::Gowa { .. } => Some(Arc::new(sending::gowa::Gowa::new(token))),
        Settings::Evolution { .. } => Some(Arc::new(sending::evolution::Evolution::new(token))),
        Settings::Waha { .. } => Some(Arc::new(sending::waha::Waha::new(token))),
        Settings::Slack { .. } => Some(Arc::new(sending::slack::Slack::new(token))),
        Settings::Twilio { public_url, .. } => Some(Arc::new(sending::twilio::Twilio::new(token, public_url))),
        Settings::Generic(_) => Some(Arc::new(sending::generic::Generic::new(token))),
        Settings::Stripe { .. } | Settings::Github { .. } | Settings::Standard { .. } | Settings::Shopify { .. } => None,
    }
}

/// Makes the side of a channel that speaks the provider's own API to bots; `None` for providers whose API hapax does not speak.
///
/// From the same settings and the same token as [`build_sending`].
pub fn build_dropin(settings: &Settings, token: Option<&SecretString>) -> Option<Arc<dyn DropIn>> {
    match settings {
        Settings::Telegram { bot, .. } => Some(Arc::new(dropin::telegram::Telegram::new(bot, token))),
        Settings::Whatsapp { .. } => Some(Arc::new(dropin::graph::Graph::new(token))),
        Settings::Gowa { .. } => Some(Arc::new(dropin::gowa::Gowa::new(token))),
        Settings::Evolution { .. } => Some(Arc::new(dropin::evolution::Evolution::new(token))),
        Settings::Waha { .. } => Some(Arc::new(dropin::waha::Waha::new(token))),
        Settings::Messenger { .. } | Settings::Instagram { .. } | Settings::Slack { .. } | Settings::Twilio { .. } => None,
        Settings::Stripe { .. } | Settings::Github { .. } | Settings::Standard { .. } | Settings::Shopify { .. } => None,
        Settings::Generic(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_what_a_request_says() {
        let mut headers = HeaderMap::new();
        headers.insert("x-telegram-bot-api-secret-token", HeaderValue::from_static("hush"));
        let request =
            RawRequest { method: Method::POST, query: "hub.verify_token=hush".to_owned(), headers, body: "hush".into() };
        let shown = format!("{:?} {request:?}", Verified::after_check(&request));
        assert!(!shown.contains("hush"), "{shown}");
    }

    /// Each part is found without a look at those before it: otherwise these take minutes.
    #[test]
    fn a_body_of_many_parts_is_read_in_one_go() {
        let secrets = || vec![SecretString::from("a secret for tests")];
        let whatsapp = build(&Settings::Whatsapp { secrets: secrets(), verify_token: None });
        let messenger = build(&Settings::Messenger { secrets: secrets(), verify_token: None });
        let many = |what: &str, count: usize| vec![what; count].join(",");
        let mids = format!(r#"{{"delivery":{{"mids":[{}]}}}}"#, many(r#""m""#, 300_000));
        for (provider, body) in [
            (&whatsapp, format!(r#"{{"entry":[{}]}}"#, many("1", 300_000))),
            (&messenger, format!(r#"{{"entry":[{{"id":"1","messaging":[{mids}]}}]}}"#)),
        ] {
            let request = RawRequest { method: Method::POST, query: String::new(), headers: HeaderMap::new(), body: body.into() };
            let parsed = provider.parse(&Verified::kept(&request));
            assert_eq!(parsed.events.len() + parsed.problems.len(), 1_001);
        }
    }
}
