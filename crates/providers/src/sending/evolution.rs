//! Sending through Evolution: one path per kind of message, and a database that can be searched afterwards, where it keeps one.

use http::{HeaderName, HeaderValue, Method};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::by_status;
use super::body::{Body, quoted, segment};
use super::credentials::{Credentials, json_content};
use super::kept::KeptBody;
use super::whatsapp_web::{Methods, PHONE_SERVER, check_peer, check_wording, is_jid, jid_of, oldest_first, since_s, taken};
use super::{Call, CallAnswer, Found, Outgoing, Reconcile, Sending, Verdict};
use crate::hmac::sensitive;
use crate::json;
use crate::lenient::{Flag, List, Object, Text};
use crate::whatsapp_web::without_device;

static APIKEY: HeaderName = HeaderName::from_static("apikey");

/// The largest page that is asked for.
const LOOKUP_ROWS: u32 = 100;
/// A try that took longer has long been given up.
const TRY_MAX_MS: i64 = 15 * 60_000;

const METHODS: Methods = Methods {
    sends: &[
        ("sendMedia", &["mediatype"]),
        ("sendWhatsAppAudio", &["audio"]),
        ("sendSticker", &["sticker"]),
        ("sendPtv", &["video"]),
        ("sendLocation", &["latitude"]),
        ("sendContact", &["contact"]),
        ("sendReaction", &["reaction"]),
        ("sendPoll", &["selectableCount"]),
        ("sendList", &["sections"]),
        ("sendButtons", &["buttons"]),
        ("sendTemplate", &["components"]),
        ("sendText", &[]),
    ],
    wider: &["sendStatus"],
    actions: &["markMessageAsRead", "sendPresence"],
};

/// These name messages, or all who follow, and nobody beside them.
const WITHOUT_NUMBER: [&str; 3] = ["sendReaction", "markMessageAsRead", "sendStatus"];

pub(crate) struct Evolution {
    credentials: Credentials,
}

impl Evolution {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let key = sensitive(self.credentials.token()?).ok_or("the channel's `token` cannot stand in a header")?;
        Ok(vec![(APIKEY.clone(), key)])
    }
}

impl Sending for Evolution {
    /// Evolution's webhooks name people by their JID.
    fn peer(&self, to: &str) -> String {
        jid_of(to)
    }

    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        KeptBody::refuse(&body)?;
        check_peer(peer, is_jid)?;
        match METHODS.of(&body)? {
            "sendText" => check_wording(body.text("text"), "`text` is missing; write {\"text\": \"..\"}"),
            _ => Ok(()),
        }
    }

    fn check_unattended(&self, payload: &[u8]) -> Result<(), String> {
        METHODS.check_unattended(METHODS.of(&Body::read(payload)?)?)
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        let method = METHODS.of(&body)?;
        let group = if METHODS.make_message(method) { "message" } else { "chat" };
        let path = format!("/{group}/{method}/{}", segment("the account", message.account)?);
        let mut headers = self.headers()?;
        if let Some(kept) = KeptBody::of(&body) {
            headers.push(kept.content_type()?);
            return Ok(Call { method: Method::POST, path: path + &kept.query(), headers, body: kept.body() });
        }
        headers.push(json_content());
        body.remove("method");
        let is_named = body.id("number").is_some_and(|number| jid_of(&number) == message.peer);
        if !is_named && !WITHOUT_NUMBER.contains(&method) {
            // Bare digits: Evolution then finds out how the number is spelt in WhatsApp (Brazil, Mexico, Argentina).
            body.set_text("number", message.peer.strip_suffix(PHONE_SERVER).unwrap_or(message.peer));
        }
        if let Some(reply_to) = body.text("reply_to") {
            if !body.has("quoted") {
                body.set("quoted", format!("{{\"key\":{{\"id\":{}}}}}", quoted(&reply_to)));
            }
            body.remove("reply_to");
        }
        Ok(Call { method: Method::POST, path, headers, body: body.write().into() })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        if answer.status.is_success() {
            let record = json::object::<Record<'_>>(text).ok();
            let id = record.as_ref().and_then(|record| record.key.0.as_ref()?.id.name());
            return taken("Evolution", id, METHODS.make_message_of(message.payload), message);
        }
        let words = json::object::<Refusal<'_>>(text).ok().and_then(|refusal| refusal.response.0?.message);
        let words = words.map(RawValue::get).unwrap_or_default();
        let why = format!("Evolution answered {}: {}", answer.status.as_u16(), self.credentials.fit_to_show(words));
        match answer.status.as_u16() {
            400 if is_refusal(words) => Verdict::Failed { why },
            // Everything that goes wrong while it sends is a 400 too: a connection that closed, a time that ran out.
            400 => Verdict::Unknown { why },
            403 => Verdict::StopAccount { why },
            404 if words.contains("instance does not exist") || words.contains("Cannot POST") => Verdict::StopAccount { why },
            _ => by_status(answer, why),
        }
    }

    fn reconcile(&self) -> Reconcile {
        Reconcile::ByLookup
    }

    fn lookup(&self, message: &Outgoing<'_>) -> Option<Call> {
        self.text(message.payload).filter(|_| METHODS.make_message_of(message.payload))?;
        let since = jiff::Timestamp::from_second(since_s(message)?).ok()?;
        let until = jiff::Timestamp::from_millisecond(message.begun_ms?.checked_add(TRY_MAX_MS)?).ok()?;
        // Not by the chat: it may be kept under a LID. Whose each row is, is looked at afterwards.
        let body = format!(
            r#"{{"where":{{"key":{{"fromMe":true}},"messageTimestamp":{{"gte":"{since}","lte":"{until}"}}}},"page":1,"offset":{LOOKUP_ROWS}}}"#
        );
        let path = format!("/chat/findMessages/{}", segment("the account", message.account).ok()?);
        let mut headers = self.headers().ok()?;
        headers.push(json_content());
        Some(Call { method: Method::POST, path, headers, body: bytes::Bytes::from(body).into() })
    }

    fn found(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Found {
        if !answer.status.is_success() {
            return Found::NoAnswer { why: format!("Evolution answered {} to the search", answer.status.as_u16()) };
        }
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let rows = json::object::<History<'_>>(text).ok().and_then(|history| history.messages.0);
        let Some(Page { records: List::Items(rows) }) = rows else {
            return Found::NoAnswer { why: "Evolution's history is not readable".to_owned() };
        };
        let (Some(text), Some(since_s)) = (self.text(message.payload), since_s(message)) else { return Found::Nothing };
        let wanted = Wanted { peer: self.peer(message.peer), text, sort: sort_of(message.payload), since_s };
        oldest_first(rows.iter().filter_map(|row| row.0.as_ref()?.alike(&wanted)).collect())
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        let body = Body::read(payload).ok()?;
        ["text", "caption", "reaction"].into_iter().find_map(|member| body.text(member))
    }
}

/// True for what Evolution says before it has sent anything: a number that is not on WhatsApp, or a body that its rules refuse.
fn is_refusal(words: &str) -> bool {
    let nobody = words.replace(' ', "").contains(r#""exists":false"#);
    let by_the_rules = ["instance requires property", "instance.", "is not of a type", "cannot be empty", "Invalid format"];
    nobody || by_the_rules.iter().any(|rule| words.contains(rule))
}

/// How Evolution's database calls the kind of what is sent.
fn sort_of(payload: &[u8]) -> &'static [&'static str] {
    let Ok(body) = Body::read(payload) else { return &[] };
    match (METHODS.of(&body), body.text("mediatype").as_deref()) {
        (Ok("sendText"), _) => &["conversation", "extendedTextMessage"],
        (Ok("sendMedia"), Some("image")) => &["imageMessage"],
        (Ok("sendMedia"), Some("video")) => &["videoMessage"],
        (Ok("sendMedia"), Some("document")) => &["documentMessage", "documentWithCaptionMessage"],
        (Ok("sendReaction"), _) => &["reactionMessage"],
        _ => &[],
    }
}

/// What a message in doubt looks like in the history.
struct Wanted {
    peer: String,
    text: String,
    sort: &'static [&'static str],
    since_s: i64,
}

#[derive(Deserialize)]
struct Refusal<'a> {
    #[serde(borrow, default)]
    response: Object<Words<'a>>,
}

#[derive(Deserialize)]
struct Words<'a> {
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct History<'a> {
    #[serde(borrow, default)]
    messages: Object<Page<'a>>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    records: List<Object<Record<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Record<'a> {
    key: Object<RecordKey<'a>>,
    #[serde(rename = "messageType")]
    message_type: Text<'a>,
    message: Option<&'a RawValue>,
    #[serde(rename = "messageTimestamp")]
    timestamp: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct RecordKey<'a> {
    id: Text<'a>,
    remote_jid: Text<'a>,
    remote_jid_alt: Text<'a>,
    from_me: Flag,
}

impl Record<'_> {
    /// Time and id, when it says the same to the same chat, is of the same kind, and is not older than what is searched.
    fn alike(&self, wanted: &Wanted) -> Option<(i64, String)> {
        let key = self.key.0.as_ref().filter(|key| key.from_me.0)?;
        let at: i64 = self.timestamp?.get().trim_matches('"').parse().ok().filter(|at| *at >= wanted.since_s)?;
        let chat = [&key.remote_jid, &key.remote_jid_alt]
            .iter()
            .any(|jid| jid.name().map(without_device).as_deref() == Some(&wanted.peer));
        let kind = wanted.sort.contains(&self.message_type.get().unwrap_or_default());
        let same = crate::evolution::wording(self.message?.get()).as_deref() == Some(&wanted.text);
        (chat && kind && same).then(|| key.id.name().map(|id| (at, id.to_owned())))?
    }
}
