//! Standard Webhooks, and Svix, where it comes from: one event per webhook, named in a header that is signed together with the body.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use hapax_domain::{Event, EventKey, Kind};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::hmac::{MacKeys, sensitive};
use super::lenient::Text;
use super::reading::{Reading, name, seconds_to_ms};
use super::settings::HmacAlgorithm;
use super::tape::Tape;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, json};

const NAME: &str = "standard";
/// How far the signed time may be from ours, either way.
const TOLERANCE_S: u64 = 300;
/// A secret without a prefix is read as base64 when it is at least as long as the specification asks of a key.
const KEY_MIN_BYTES: usize = 24;
/// Some tools leave out the padding of keys.
const KEY_BASE64: GeneralPurpose =
    GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// The three headers under one of their two names.
struct Family {
    id: HeaderName,
    time: HeaderName,
    signature: HeaderName,
}

static FAMILIES: [Family; 2] = [
    Family {
        id: HeaderName::from_static("webhook-id"),
        time: HeaderName::from_static("webhook-timestamp"),
        signature: HeaderName::from_static("webhook-signature"),
    },
    Family {
        id: HeaderName::from_static("svix-id"),
        time: HeaderName::from_static("svix-timestamp"),
        signature: HeaderName::from_static("svix-signature"),
    },
];

/// The times are made anew with the signatures, so they are not kept either.
static SIGNATURE_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("webhook-signature"),
    HeaderName::from_static("svix-signature"),
    HeaderName::from_static("webhook-timestamp"),
    HeaderName::from_static("svix-timestamp"),
];

/// One secret of a channel, as its prefix says.
enum Key {
    /// `whsec_`, or no prefix: then it may be base64 or the key itself, and both are tried.
    Mac(MacKeys),
    /// `whpk_`: can check and not sign.
    Public(VerifyingKey),
    /// `whsk_`.
    Pair(Box<SigningKey>),
}

impl Key {
    fn read(secret: &str) -> Option<Self> {
        let decoded = |text: &str| KEY_BASE64.decode(text).ok();
        if let Some(text) = secret.strip_prefix("whsec_") {
            return Some(Key::Mac(MacKeys::from_bytes(HmacAlgorithm::Sha256, &[&decoded(text)?])));
        }
        if let Some(text) = secret.strip_prefix("whpk_") {
            return VerifyingKey::try_from(&decoded(text)?[..]).ok().map(Key::Public);
        }
        if let Some(text) = secret.strip_prefix("whsk_") {
            let bytes = decoded(text)?;
            let pair = match <&[u8; 64]>::try_from(&bytes[..]) {
                Ok(pair) => SigningKey::from_keypair_bytes(pair).ok()?,
                Err(_) => SigningKey::from_bytes(<&[u8; 32]>::try_from(&bytes[..]).ok()?),
            };
            return Some(Key::Pair(Box::new(pair)));
        }
        let plain = secret.as_bytes();
        Some(Key::Mac(match decoded(secret).filter(|key| key.len() >= KEY_MIN_BYTES) {
            Some(key) => MacKeys::from_bytes(HmacAlgorithm::Sha256, &[&key, plain]),
            None => MacKeys::from_bytes(HmacAlgorithm::Sha256, &[plain]),
        }))
    }

    fn accepts(&self, signed: &Signed<'_>, claim: &Claim) -> bool {
        let by = |key: &VerifyingKey| {
            let message = signed.whole();
            claim.v1a.iter().any(|signature| key.verify_strict(&message, signature).is_ok())
        };
        match self {
            Key::Mac(keys) => keys.accept(&signed.parts(), &claim.v1),
            Key::Public(key) => by(key),
            Key::Pair(pair) => by(&pair.verifying_key()),
        }
    }

    fn sign(&self, signed: &Signed<'_>) -> Option<String> {
        match self {
            Key::Mac(keys) => Some(format!("v1,{}", STANDARD.encode(keys.sign(&signed.parts())?.as_bytes()))),
            Key::Public(_) => None,
            Key::Pair(pair) => Some(format!("v1a,{}", STANDARD.encode(pair.sign(&signed.whole()).to_bytes()))),
        }
    }
}

/// Tells a secret of this scheme from one that could never match.
pub fn is_key(secret: &str) -> bool {
    Key::read(secret).is_some()
}

/// True for a public key: it checks what comes, and nothing can be signed with it for the target.
pub fn is_public_key(secret: &str) -> bool {
    matches!(Key::read(secret), Some(Key::Public(_)))
}

/// The bytes under the signature: `{id}.{time}.{body}`.
struct Signed<'r> {
    id: &'r [u8],
    time: Cow<'r, str>,
    body: &'r [u8],
}

impl Signed<'_> {
    fn parts(&self) -> [&[u8]; 5] {
        [self.id, b".", self.time.as_bytes(), b".", self.body]
    }

    fn whole(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

/// What a signature header says: `v1,… v1a,…`, any number of each. Other versions are passed over.
struct Claim {
    v1: Vec<Vec<u8>>,
    v1a: Vec<Signature>,
}

impl Claim {
    fn read(header: &HeaderValue) -> Self {
        let words = || header.to_str().ok().into_iter().flat_map(|text| text.split(' '));
        let of = |version: &'static str| {
            let codes = words().filter_map(move |word| word.split_once(',').filter(|(found, _)| *found == version));
            codes.filter_map(|(_, code)| STANDARD.decode(code).ok())
        };
        Self { v1: of("v1").collect(), v1a: of("v1a").filter_map(|code| Signature::from_slice(&code).ok()).collect() }
    }
}

pub(super) struct Standard {
    keys: Vec<Key>,
}

impl Standard {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { keys: secrets.iter().filter_map(|secret| Key::read(secret.expose_secret())).collect() }
    }
}

impl Provider for Standard {
    fn name(&self) -> &'static str {
        NAME
    }

    fn verify<'r>(&self, request: &'r RawRequest, now_ms: i64) -> Result<Verified<'r>, Refused> {
        let found = FAMILIES.iter().find_map(|family| Some((family, request.headers.get(&family.signature)?)));
        let (family, signature) = found.ok_or(Refused::NoSignature)?;
        let id = request.headers.get(&family.id).ok_or(Refused::BadSignature)?;
        let time = request.headers.get(&family.time).and_then(|time| time.to_str().ok()).ok_or(Refused::BadSignature)?;
        let signed = Signed { id: id.as_bytes(), time: Cow::Borrowed(time), body: &request.body };
        let claim = Claim::read(signature);
        if !self.keys.iter().any(|key| key.accepts(&signed, &claim)) {
            return Err(Refused::BadSignature);
        }
        let signed_s: i64 = time.parse().map_err(|_| Refused::BadSignature)?;
        if now_ms.div_euclid(1_000).abs_diff(signed_s) > TOLERANCE_S {
            return Err(Refused::Stale);
        }
        Ok(Verified::after_check(request).signed_at(seconds_to_ms(Some(signed_s))))
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        Reading::whole(request.body(), |body| read(request.headers(), body))
    }

    /// Signs under each name that the webhook has an id under: what the bot reads is what its provider sent.
    fn sign(&self, webhook: Unsigned<'_>, now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let time = now_ms.div_euclid(1_000).to_string();
        let mut headers = Vec::new();
        for family in &FAMILIES {
            let Some(id) = webhook.headers.get(&family.id) else { continue };
            let signed = Signed { id: id.as_bytes(), time: Cow::Borrowed(&time), body: webhook.body };
            let signature = self.keys.iter().find_map(|key| key.sign(&signed));
            if let (Some(signature), Some(time)) = (signature.and_then(|text| sensitive(&text)), sensitive(&time)) {
                headers.extend([(family.signature.clone(), signature), (family.time.clone(), time)]);
            }
        }
        headers
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SIGNATURE_HEADERS
    }
}

/// What the specification suggests for a body; all of it may be missing.
#[derive(Deserialize)]
struct Suggested<'a> {
    #[serde(borrow, default)]
    timestamp: Text<'a>,
}

fn read(headers: &HeaderMap, body: &str) -> Result<Event, String> {
    let tape = Tape::of(body)?;
    let suggested: Suggested<'_> = tape.object(tape.root())?;
    let fingerprint = tape.fingerprint_root(&[])?;
    let at = suggested.timestamp.name();
    let text = |header| headers.get(header).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let id = FAMILIES.iter().find_map(|family| text(&family.id).filter(|id| !id.is_empty()));
    let event = match id {
        None => {
            let content = json::canonical(body, &[]).ok_or("nested too deeply")?;
            Event::without_id(NAME, Kind::Notice, "", at, &content, fingerprint)
        }
        found => {
            let id = name("the header webhook-id", found)?;
            Event::new(Kind::Notice, "", id, EventKey::new(NAME, "", Kind::Notice, id, &[]), fingerprint)
        }
    };
    let at_ms = at.and_then(|at| at.parse::<jiff::Timestamp>().ok()).map(jiff::Timestamp::as_millisecond);
    Ok(Event { at_ms, ..event })
}
