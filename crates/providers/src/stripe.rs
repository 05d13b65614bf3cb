//! Stripe: one event per webhook, signed together with the time of the attempt.

use hapax_domain::{Event, EventKey, Kind};
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::Deserialize;

use super::hmac::{MacKeys, read_hex, sensitive};
use super::lenient::{Integer, Text};
use super::reading::{Reading, name, seconds_to_ms};
use super::settings::HmacAlgorithm;
use super::tape::Tape;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, json};

const NAME: &str = "stripe";
/// How far the signed time may be from ours, either way.
const TOLERANCE_S: u64 = 300;
/// Stripe counts down how many endpoints still wait, so copies differ in it.
const VOLATILE: &[&str] = &["pending_webhooks"];
static SIGNATURE_HEADERS: [HeaderName; 1] = [HeaderName::from_static("stripe-signature")];

pub(super) struct Stripe {
    keys: MacKeys,
}

impl Stripe {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { keys: MacKeys::new(HmacAlgorithm::Sha256, secrets) }
    }
}

impl Provider for Stripe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn verify<'r>(&self, request: &'r RawRequest, now_ms: i64) -> Result<Verified<'r>, Refused> {
        let header = request.headers.get(&SIGNATURE_HEADERS[0]).ok_or(Refused::NoSignature)?;
        let claim = Claim::read(header).ok_or(Refused::BadSignature)?;
        if !self.keys.accept(&[claim.time.as_bytes(), b".", &request.body], &claim.codes) {
            return Err(Refused::BadSignature);
        }
        let signed_s: i64 = claim.time.parse().map_err(|_| Refused::BadSignature)?;
        if now_ms.div_euclid(1_000).abs_diff(signed_s) > TOLERANCE_S {
            return Err(Refused::Stale);
        }
        Ok(Verified::after_check(request).signed_at(seconds_to_ms(Some(signed_s))))
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        Reading::whole(request.body(), read)
    }

    fn sign(&self, webhook: Unsigned<'_>, now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let time = now_ms.div_euclid(1_000).to_string();
        let mac = self.keys.sign(&[time.as_bytes(), b".", webhook.body]);
        let value = mac.and_then(|mac| sensitive(&format!("t={time},v1={}", hex::encode(mac.as_bytes()))));
        value.map(|value| (SIGNATURE_HEADERS[0].clone(), value)).into_iter().collect()
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SIGNATURE_HEADERS
    }
}

/// What a `Stripe-Signature` header says: `t=…,v1=…[,v1=…]`. Other schemes are passed over.
struct Claim<'h> {
    time: &'h str,
    codes: Vec<[u8; 32]>,
}

impl<'h> Claim<'h> {
    fn read(header: &'h HeaderValue) -> Option<Self> {
        let pairs = || header.to_str().ok().into_iter().flat_map(|text| text.split(',')).filter_map(|pair| pair.split_once('='));
        let (_, time) = pairs().find(|(name, _)| name.trim() == "t")?;
        let codes =
            pairs().filter(|(name, _)| name.trim() == "v1").filter_map(|(_, text)| read_hex(text.trim().as_bytes())).collect();
        Some(Self { time: time.trim(), codes })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct StripeEvent<'a> {
    id: Text<'a>,
    #[serde(rename = "type")]
    sort: Text<'a>,
    /// The connected account; absent for one's own.
    account: Text<'a>,
    created: Integer,
}

fn read(body: &str) -> Result<Event, String> {
    let tape = Tape::of(body)?;
    let read: StripeEvent<'_> = tape.object(tape.root())?;
    let account = match read.account.name() {
        Some(account) => name("account", Some(account))?,
        None => "",
    };
    let fingerprint = tape.fingerprint_root(VOLATILE)?;
    let event = match read.id.name() {
        None => {
            name("neither an id nor a type: the type", read.sort.get())?;
            let content = json::canonical(body, VOLATILE).ok_or("nested too deeply")?;
            let created = read.created.0.map(|created| created.to_string());
            Event::without_id(NAME, Kind::Notice, account, created.as_deref(), &content, fingerprint)
        }
        found => {
            let id = name("the event's id", found)?;
            Event::new(Kind::Notice, account, id, EventKey::new(NAME, account, Kind::Notice, id, &[]), fingerprint)
        }
    };
    Ok(Event { at_ms: seconds_to_ms(read.created.0), ..event })
}
