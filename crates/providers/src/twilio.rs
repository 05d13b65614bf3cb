//! Twilio: forms, signed together with the public address that they were posted to.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::{Event, EventKey, Kind, MessageId, Status, fingerprint};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::hmac::{MacKeys, sensitive};
use super::reading::{Reading, name};
use super::settings::HmacAlgorithm;
use super::{Parsed, Provider, RawRequest, Refused, Reply, Unsigned, Verified, form};

const NAME: &str = "twilio";
/// In the query of the address for statuses: which of our messages they are about.
pub(super) const HANDLE: &str = "hapax";
/// Beside it, where the message was sent through a messaging service: a status names the number that the service chose.
pub(super) const SENT_BY: &str = "hapax_by";
/// In the query, where the body is no form: its hash, and then only the address is signed.
const BODY_HASH: &str = "bodySHA256";
const TOKEN: HeaderName = HeaderName::from_static("i-twilio-idempotency-token");
const SETTINGS: HeaderName = HeaderName::from_static("x-twilio-webhooks-signature-settings");
static SIGNATURE_HEADERS: [HeaderName; 1] = [HeaderName::from_static("x-twilio-signature")];

pub(super) struct Twilio {
    sha1: MacKeys,
    /// For keys that are chosen in the header of [`SETTINGS`].
    sha256: MacKeys,
    /// What Twilio was told to call, without a query.
    public_url: String,
}

impl Twilio {
    pub(super) fn new(secrets: &[SecretString], public_url: &str) -> Self {
        Self {
            sha1: MacKeys::new(HmacAlgorithm::Sha1, secrets),
            sha256: MacKeys::new(HmacAlgorithm::Sha256, secrets),
            public_url: public_url.to_owned(),
        }
    }

    fn keys(&self, headers: &HeaderMap) -> &MacKeys {
        let settings = headers.get(SETTINGS).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let sha256 = settings.split(',').any(|part| part.trim() == "algorithm=HMAC_SHA256");
        if sha256 { &self.sha256 } else { &self.sha1 }
    }
}

impl Provider for Twilio {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Twilio reads the answer to a message as TwiML, and a plain text as a message to send: it gets one that asks for nothing.
    fn thanks(&self) -> Option<Reply> {
        let body = r#"<?xml version="1.0" encoding="UTF-8"?><Response/>"#.to_owned();
        Some(Reply { status: 200, content_type: "text/xml", body })
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        let header = request.headers.get(&SIGNATURE_HEADERS[0]).ok_or(Refused::NoSignature)?;
        let claimed = [STANDARD.decode(header.as_bytes()).map_err(|_| Refused::BadSignature)?];
        let pairs = match form::value_of(&request.query, BODY_HASH) {
            Some(hash) => {
                let same: bool = hex::encode(Sha256::digest(&request.body)).as_bytes().ct_eq(hash.as_bytes()).into();
                if !same {
                    return Err(Refused::BadSignature);
                }
                Vec::new()
            }
            None => signed_pairs(&request.body),
        };
        let url = with_query(&self.public_url, &request.query);
        let keys = self.keys(&request.headers);
        match spellings(&url).iter().any(|url| keys.accept(&parts(url, &pairs), &claimed)) {
            true => Ok(Verified::after_check(request)),
            false => Err(Refused::BadSignature),
        }
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        let handle = form::value_of(request.query(), HANDLE).and_then(|id| id.parse::<MessageId>().ok());
        let sent_by = form::value_of(request.query(), SENT_BY).filter(|_| handle.is_some());
        Reading::whole(request.body(), |body| {
            let event = read(request.headers(), body)?;
            let account = sent_by.filter(|_| event.kind == Kind::Status).map_or(event.account, |account| account.into_owned());
            Ok(Event { handle, account, ..event })
        })
    }

    /// The target checks against its own address, as it sees it.
    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let url = webhook.url.unwrap_or(&self.public_url);
        let pairs = signed_pairs(webhook.body);
        let mac = self.keys(webhook.headers).sign(&parts(url, &pairs));
        let value = mac.and_then(|mac| sensitive(&STANDARD.encode(mac.as_bytes())));
        value.map(|value| (SIGNATURE_HEADERS[0].clone(), value)).into_iter().collect()
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SIGNATURE_HEADERS
    }
}

fn with_query(url: &str, query: &str) -> String {
    if query.is_empty() { url.to_owned() } else { format!("{url}?{query}") }
}

/// The address as it stands, and with the port that its scheme has anyway written out or left out: Twilio has done both.
fn spellings(url: &str) -> Vec<String> {
    let mut spellings = vec![url.to_owned()];
    for (scheme, port) in [("https://", ":443"), ("http://", ":80")] {
        let Some(rest) = url.strip_prefix(scheme) else { continue };
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        spellings.push(match host.strip_suffix(port) {
            Some(bare) => format!("{scheme}{bare}{path}"),
            None => format!("{scheme}{host}{port}{path}"),
        });
    }
    spellings
}

/// The fields of a form as Twilio signs them: sorted, and each pair once.
fn signed_pairs(body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs: Vec<_> = form::raw_pairs(body).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

fn parts<'p>(url: &'p str, pairs: &'p [(Vec<u8>, Vec<u8>)]) -> Vec<&'p [u8]> {
    let fields = pairs.iter().flat_map(|(name, value)| [&name[..], &value[..]]);
    std::iter::once(url.as_bytes()).chain(fields).collect()
}

fn read(headers: &HeaderMap, body: &str) -> Result<Event, String> {
    let field = |name: &str| form::value_of(body, name).filter(|value| !value.is_empty());
    let twilio_account = field("AccountSid").filter(|sid| is_account(sid)).ok_or("AccountSid is missing or no SID")?;
    let mut pairs: Vec<_> = form::pairs(body).collect();
    pairs.sort_unstable();
    let content = serde_json::to_vec(&pairs).unwrap_or_default();
    let fingerprint = fingerprint::of_bytes(&content);
    let status = field("MessageStatus").or_else(|| field("SmsStatus"));
    let comes_in = |status: &str| matches!(status, "received" | "receiving");
    let (from, to) = (field("From"), field("To"));
    let Some(sid) = field("MessageSid").or_else(|| field("SmsSid")) else {
        return notice(headers, &twilio_account, &content, fingerprint);
    };
    let id = name("MessageSid", Some(&sid))?;
    let (ours, theirs) = if status.as_deref().is_none_or(comes_in) { (to, from) } else { (from, to) };
    // The number that speaks with the customer: whoever answers must send from it.
    let account = name("our own number", Some(ours.as_deref().unwrap_or(&twilio_account)))?;
    let peer = theirs.as_deref().map(|peer| name("the peer", Some(peer))).transpose()?.map(str::to_owned);
    let event = match status.as_deref().filter(|status| !comes_in(status)) {
        None => {
            let key = EventKey::new(NAME, &twilio_account, Kind::Message, id, &[]);
            let text = field("Body").map(|text| text.into_owned());
            Event { text, ..Event::new(Kind::Message, account, id, key, fingerprint) }
        }
        Some(word) => {
            let status = status_of(word);
            let kind = if status.is_some() { Kind::Status } else { Kind::Notice };
            let key = EventKey::new(NAME, &twilio_account, kind, id, &[word]);
            Event { status, ..Event::new(kind, account, id, key, fingerprint) }
        }
    };
    Ok(Event { peer, ..event })
}

/// Calls and whatever else Twilio tells of: known by the token of the request, which its retries share.
fn notice(headers: &HeaderMap, account: &str, content: &[u8], fingerprint: u32) -> Result<Event, String> {
    let token = headers.get(TOKEN).and_then(|value| std::str::from_utf8(value.as_bytes()).ok()).filter(|token| !token.is_empty());
    match token {
        None => Ok(Event::without_id(NAME, Kind::Notice, account, None, content, fingerprint)),
        found => {
            let id = name("the header I-Twilio-Idempotency-Token", found)?;
            Ok(Event::new(Kind::Notice, account, id, EventKey::new(NAME, account, Kind::Notice, id, &[]), fingerprint))
        }
    }
}

/// Those before `sent` say nothing that a message of ours has not come past.
fn status_of(word: &str) -> Option<Status> {
    match word {
        "sent" => Some(Status::Sent),
        "delivered" => Some(Status::Delivered),
        "read" => Some(Status::Read),
        "undelivered" | "failed" | "canceled" => Some(Status::Failed),
        _ => None,
    }
}

pub(super) fn is_account(sid: &str) -> bool {
    sid.len() == 34 && sid.starts_with("AC") && sid.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
