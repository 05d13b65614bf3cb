//! GOWA as a bot calls it: `/send/{kind}`, the device in a header, and forwards beside the message that they are of.

use http::{HeaderName, Method, StatusCode, header};
use secrecy::SecretString;
use serde_json::json;

use super::parameters::Unreadable;
use super::written::{self, Way, Written, header_text, segments, spelt};
use super::{DropIn, Effect, Forward, Head, Refusal, Reply, Routed, Settled, Upload, What, Whole};
use crate::sending::whatsapp_web::jid_of;
use crate::sending::{Credentials, KeptBody};

static DEVICE_HEADER: HeaderName = HeaderName::from_static("x-device-id");

/// Kinds of `/send/…`.
const SENDS: [&str; 10] = ["message", "image", "file", "video", "sticker", "contact", "link", "location", "audio", "poll"];
/// Done to a message that is there: `/message/{id}/…`.
const REPEATABLE: [&str; 4] = ["reaction", "update", "revoke", "delete"];
/// What only hapax's own payloads say: GOWA calls a text `message`, and what it answers `reply_message_id`.
const OWN_WORDS: [&str; 5] = ["method", "text", "reply_to", "message_id", KeptBody::MEMBER];
const TEXTS: [&str; 2] = ["message", "caption"];

pub(crate) struct Gowa {
    credentials: Credentials,
}

impl Gowa {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    fn read(&self, routed: &Routed, written: Result<Written<'_>, Unreadable>) -> Result<Effect, Reply> {
        let read = || {
            let What::Effect { method } = &routed.what else { return Err(Refusal::NotFound) };
            let written = written.map_err(|why| Refusal::Unreadable(why.to_owned()))?;
            let phone = written.parameters.said("phone");
            let peer = jid_of(phone.ok_or_else(|| Refusal::Unreadable("phone: cannot be blank.".to_owned()))?);
            let of = routed.aside.as_deref().map(|id| ("message_id", id));
            let besides = of.as_slice();
            let way = Way { method, says_method: true, own_words: &OWN_WORDS, texts: &TEXTS, uncounted: &[], besides };
            written.effect(&way, routed.account.clone(), peer)
        };
        read().map_err(|refusal| self.reply(&refusal))
    }
}

impl DropIn for Gowa {
    fn route(&self, head: &Head<'_>) -> Option<Routed> {
        let segments = segments(head.path)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let effect = |method: &str| What::Effect { method: method.to_owned() };
        let is = |written: &str, name: &'static str| spelt(written, &[name]).is_some();
        let through = (What::Through, None);
        let (what, aside) = match segments.as_slice() {
            _ if head.method != Method::POST => through,
            [send, kind] if is(send, "send") => spelt(kind, &SENDS).map_or(through, |kind| (effect(kind), None)),
            // A forward of another message is another message.
            [message, id, forward] if is(message, "message") && is(forward, "forward") => {
                (effect("forward"), Some((*id).to_owned()))
            }
            [message, _, action] if is(message, "message") && spelt(action, &REPEATABLE).is_some() => (What::Repeatable, None),
            _ => through,
        };
        let in_query = || crate::form::value_of(head.query.unwrap_or_default(), "device_id").map(|device| device.into_owned());
        let device = header_text(head.headers, &DEVICE_HEADER).and_then(crate::form::percent_decoded).or_else(in_query);
        Some(Routed { token: written::authorization(head.headers), account: device.filter(|name| !name.is_empty()), what, aside })
    }

    fn effect(&self, routed: &Routed, query: Option<&str>, whole: &Whole<'_>) -> Result<Effect, Reply> {
        if let Some(parts) = super::parts_of(whole) {
            let parts = parts.map_err(|refusal| self.reply(&refusal))?;
            return self.effect_with_files(routed, query, &whole.upload(&parts));
        }
        let query = written::query_without(query, &["device_id"]);
        self.read(routed, Written::whole(query.as_deref(), whole))
    }

    fn effect_with_files(&self, routed: &Routed, query: Option<&str>, upload: &Upload<'_>) -> Result<Effect, Reply> {
        let query = written::query_without(query, &["device_id"]);
        self.read(routed, Written::parts(query.as_deref(), upload))
    }

    fn peer_of(&self, _routed: &Routed, _query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String> {
        let written = Written::whole(None, &Whole { content_type, body, name: "" }).ok()?;
        written.parameters.said("phone").map(jid_of)
    }

    fn reply(&self, refusal: &Refusal) -> Reply {
        let (status, code, words) = match refusal {
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "Unauthorized".to_owned()),
            Refusal::NotFound => (StatusCode::NOT_FOUND, "NOT_FOUND", "Not Found".to_owned()),
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "REQUEST_TOO_LARGE", "Request Entity Too Large".to_owned()),
            Refusal::Unreadable(why) => (StatusCode::BAD_REQUEST, "VALIDATION_ERROR", why.clone()),
            Refusal::Refused(why) => (StatusCode::FORBIDDEN, "REFUSED", why.clone()),
            Refusal::SlowDown { seconds } => {
                let words = format!("retry after {} s", (*seconds).max(1));
                (StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", words)
            }
            Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", "Service Unavailable".to_owned()),
        };
        let body = json!({ "status": status.as_u16(), "code": code, "message": words, "results": null });
        Reply { retry_after_s: refusal.retry_after_s(), ..Reply::json(status, body.to_string()) }
    }

    fn stand_in(&self, settled: &Settled<'_>) -> Reply {
        let words = format!("Message sent to {}", settled.peer);
        let results = json!({ "message_id": settled.provider_id, "status": words });
        let body = json!({ "status": 200, "code": "SUCCESS", "message": words, "results": results });
        Reply::json(StatusCode::OK, body.to_string())
    }

    fn forward(&self, head: &Head<'_>) -> Result<Forward, String> {
        let value = self.credentials.basic_or_bearer()?.map(|(_, value)| value);
        written::forward(head, (header::AUTHORIZATION, value), &[])
    }
}
