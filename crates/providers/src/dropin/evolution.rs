//! Evolution as a bot calls it: `/message/{kind}/{instance}`, the key in a header.

use http::{HeaderName, Method, StatusCode};
use secrecy::SecretString;
use serde_json::json;

use super::parameters::Unreadable;
use super::written::{self, Way, Written, header_text, segments, spelt};
use super::{DropIn, Effect, Forward, Head, Refusal, Reply, Routed, Settled, Upload, What, Whole};
use crate::hmac::sensitive;
use crate::json as raw_json;
use crate::sending::whatsapp_web::jid_of;
use crate::sending::{Credentials, KeptBody};

static APIKEY: HeaderName = HeaderName::from_static("apikey");

/// Kinds of `/message/…/{instance}`.
const SENDS: [&str; 12] = [
    "sendText",
    "sendMedia",
    "sendPtv",
    "sendWhatsAppAudio",
    "sendSticker",
    "sendLocation",
    "sendContact",
    "sendPoll",
    "sendList",
    "sendButtons",
    "sendTemplate",
    STATUS,
];
/// For all who follow: nobody is named.
const STATUS: &str = "sendStatus";
const STATUS_PEER: &str = "status@broadcast";
/// Done to a message that is there.
const REPEATABLE: [(&str, &str); 3] =
    [("message", "sendReaction"), ("chat", "updateMessage"), ("chat", "deleteMessageForEveryone")];
const OWN_WORDS: [&str; 3] = ["method", "reply_to", KeptBody::MEMBER];
const TEXTS: [&str; 2] = ["text", "caption"];

pub(crate) struct Evolution {
    credentials: Credentials,
}

impl Evolution {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    fn read(&self, routed: &Routed, written: Result<Written<'_>, Unreadable>) -> Result<Effect, Reply> {
        let read = || {
            let What::Effect { method } = &routed.what else { return Err(Refusal::NotFound) };
            let written = written.map_err(|why| Refusal::Unreadable(why.to_owned()))?;
            let number = written.parameters.said("number");
            let peer = match number {
                _ if method == STATUS => STATUS_PEER.to_owned(),
                Some(number) => jid_of(number),
                None => return Err(Refusal::Unreadable("instance requires property \"number\"".to_owned())),
            };
            let way = Way { method, says_method: true, own_words: &OWN_WORDS, texts: &TEXTS, uncounted: &[], besides: &[] };
            written.effect(&way, routed.account.clone(), peer)
        };
        read().map_err(|refusal| self.reply(&refusal))
    }
}

impl DropIn for Evolution {
    fn route(&self, head: &Head<'_>) -> Option<Routed> {
        let segments = segments(head.path)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (account, what) = match segments.as_slice() {
            [group, action, instance] => (Some(*instance), asked_for(head.method, group, action)),
            _ => (None, What::Through),
        };
        let token = header_text(head.headers, &APIKEY).map(SecretString::from);
        Some(Routed { token, account: account.map(str::to_owned), what, aside: None })
    }

    fn effect(&self, routed: &Routed, query: Option<&str>, whole: &Whole<'_>) -> Result<Effect, Reply> {
        if let Some(parts) = super::parts_of(whole) {
            let parts = parts.map_err(|refusal| self.reply(&refusal))?;
            return self.effect_with_files(routed, query, &whole.upload(&parts));
        }
        self.read(routed, Written::whole(query, whole))
    }

    fn effect_with_files(&self, routed: &Routed, query: Option<&str>, upload: &Upload<'_>) -> Result<Effect, Reply> {
        self.read(routed, Written::parts(query, upload))
    }

    /// Reactions and deletions name the chat in the message's key.
    fn peer_of(&self, _routed: &Routed, _query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String> {
        let parameters = Written::whole(None, &Whole { content_type, body, name: "" }).ok()?.parameters;
        let in_key = || raw_json::text(raw_json::member(parameters.get("key")?, "remoteJid"));
        let named = ["number", "remoteJid"].into_iter().find_map(|name| parameters.said(name)).map(str::to_owned);
        named.or_else(in_key).filter(|chat| !chat.is_empty()).map(|chat| jid_of(&chat))
    }

    fn reply(&self, refusal: &Refusal) -> Reply {
        let (status, words) = refusal.as_node_says_it();
        let error = status.canonical_reason();
        let body = json!({ "status": status.as_u16(), "error": error, "response": { "message": [words] } });
        Reply { retry_after_s: refusal.retry_after_s(), ..Reply::json(status, body.to_string()) }
    }

    fn stand_in(&self, settled: &Settled<'_>) -> Reply {
        let payload = std::str::from_utf8(settled.payload).unwrap_or_default();
        let text = raw_json::text(raw_json::member(payload, "text"));
        let body = json!({
            "key": { "remoteJid": settled.peer, "fromMe": true, "id": settled.provider_id },
            "status": "PENDING",
            "message": { "conversation": text.unwrap_or_default() },
            "messageType": "conversation",
            "messageTimestamp": settled.at_ms.div_euclid(1_000),
        });
        Reply::json(StatusCode::CREATED, body.to_string())
    }

    fn forward(&self, head: &Head<'_>) -> Result<Forward, String> {
        let key = sensitive(self.credentials.token()?).ok_or("the channel's `token` cannot stand in a header")?;
        written::forward(head, (APIKEY.clone(), Some(key)), &[])
    }
}

/// What `/{group}/{action}/{instance}` asks for.
fn asked_for(method: &Method, group: &str, action: &str) -> What {
    let is_message = *method == Method::POST && group.eq_ignore_ascii_case("message");
    if let Some(kind) = spelt(action, &SENDS).filter(|_| is_message) {
        return What::Effect { method: kind.to_owned() };
    }
    let is_repeatable = |(of, name): &(&str, &str)| of.eq_ignore_ascii_case(group) && name.eq_ignore_ascii_case(action);
    if REPEATABLE.iter().any(is_repeatable) { What::Repeatable } else { What::Through }
}
