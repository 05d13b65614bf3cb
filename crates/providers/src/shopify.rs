//! Shopify: one event per webhook, named in headers beside a body that alone is signed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::{Event, EventKey, Kind};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::de::IgnoredAny;

use super::hmac::{MacKeys, sensitive};
use super::lenient::Object;
use super::reading::{Reading, name};
use super::settings::HmacAlgorithm;
use super::tape::Tape;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, json};

const NAME: &str = "shopify";

/// What the headers are called. Shopify's newer "Events" leave out the `X-`.
struct Family {
    signature: HeaderName,
    id: HeaderName,
    shop: HeaderName,
    topic: HeaderName,
    triggered: HeaderName,
}

static FAMILIES: [Family; 2] = [
    Family {
        signature: HeaderName::from_static("x-shopify-hmac-sha256"),
        id: HeaderName::from_static("x-shopify-webhook-id"),
        shop: HeaderName::from_static("x-shopify-shop-domain"),
        topic: HeaderName::from_static("x-shopify-topic"),
        triggered: HeaderName::from_static("x-shopify-triggered-at"),
    },
    Family {
        signature: HeaderName::from_static("shopify-hmac-sha256"),
        id: HeaderName::from_static("shopify-webhook-id"),
        shop: HeaderName::from_static("shopify-shop-domain"),
        topic: HeaderName::from_static("shopify-topic"),
        triggered: HeaderName::from_static("shopify-triggered-at"),
    },
];

static SIGNATURE_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-shopify-hmac-sha256"), HeaderName::from_static("shopify-hmac-sha256")];

pub(super) struct Shopify {
    keys: MacKeys,
}

impl Shopify {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { keys: MacKeys::new(HmacAlgorithm::Sha256, secrets) }
    }
}

impl Provider for Shopify {
    fn name(&self) -> &'static str {
        NAME
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        let header = SIGNATURE_HEADERS.iter().find_map(|name| request.headers.get(name)).ok_or(Refused::NoSignature)?;
        let claimed = STANDARD.decode(header.as_bytes()).map_err(|_| Refused::BadSignature)?;
        match self.keys.accept(&[&request.body], &[claimed]) {
            true => Ok(Verified::after_check(request)),
            false => Err(Refused::BadSignature),
        }
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        Reading::whole(request.body(), |body| read(request.headers(), body))
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let code = self.keys.sign(&[webhook.body]).and_then(|mac| sensitive(&STANDARD.encode(mac.as_bytes())));
        let family = family_of(webhook.headers);
        code.map(|code| (family.signature.clone(), code)).into_iter().collect()
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SIGNATURE_HEADERS
    }
}

/// The names under which this webhook says who it is; the old ones where it does not.
fn family_of(headers: &HeaderMap) -> &'static Family {
    let [old, new] = &FAMILIES;
    let says = |family: &Family| [&family.id, &family.topic, &family.shop].into_iter().any(|name| headers.contains_key(name));
    if says(new) && !says(old) { new } else { old }
}

fn read(headers: &HeaderMap, body: &str) -> Result<Event, String> {
    let tape = Tape::of(body)?;
    tape.object::<Object<IgnoredAny>>(tape.root())?;
    let family = family_of(headers);
    let text = |header: &HeaderName| headers.get(header).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let said = |header: &HeaderName| text(header).filter(|text| !text.is_empty());
    let shop = match said(&family.shop) {
        Some(shop) => name("the header X-Shopify-Shop-Domain", Some(shop))?,
        None => "",
    };
    let topic = said(&family.topic).unwrap_or_default();
    let triggered = said(&family.triggered);
    let fingerprint = tape.fingerprint_root(&[])?;
    let event = match said(&family.id) {
        None => {
            // The topic stands in the headers, and one order is told of under several.
            let content = [topic.as_bytes(), b"\n", &json::canonical(body, &[]).ok_or("nested too deeply")?].concat();
            Event::without_id(NAME, Kind::Notice, shop, triggered, &content, fingerprint)
        }
        found => {
            let id = name("the header X-Shopify-Webhook-Id", found)?;
            Event::new(Kind::Notice, shop, id, EventKey::new(NAME, shop, Kind::Notice, id, &[topic]), fingerprint)
        }
    };
    let at_ms = triggered.and_then(|at| at.parse::<jiff::Timestamp>().ok()).map(jiff::Timestamp::as_millisecond);
    Ok(Event { at_ms, ..event })
}
