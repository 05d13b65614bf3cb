//! Sending through WAHA: one path per kind of message, and, for most kinds, an id that is ours to choose, by which it is found again.

use http::{HeaderName, HeaderValue, Method};
use secrecy::SecretString;
use serde::Deserialize;

use super::answer::by_status;
use super::body::{Body, encoded, segment};
use super::credentials::{Credentials, json_content};
use super::kept::KeptBody;
use super::whatsapp_web::{Methods, check_wording, digits_of, is_jid, taken};
use super::{Call, CallAnswer, Found, Outgoing, Reconcile, Sending, Verdict};
use crate::hmac::sensitive;
use crate::json;
use crate::lenient::Text;
use crate::waha::{bare, usual};

static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// As many as WhatsApp's own ids have behind `3EB0`.
const ID_DIGITS: usize = 18;
/// A session that is starting takes about this long.
const RESTART_MS: i64 = 15_000;

/// Files say by their type what they are.
const METHODS: Methods = Methods {
    sends: &[
        ("sendImage", &[]),
        ("sendVoice", &[]),
        ("sendVideo", &[]),
        ("sendFile", &["file"]),
        ("sendPoll", &["poll"]),
        ("sendLocation", &["latitude"]),
        ("sendContactVcard", &["contacts"]),
        ("sendList", &["message"]),
        ("sendButtons", &["buttons"]),
        ("sendLinkPreview", &[]),
        ("send/link-custom-preview", &[]),
        ("send/buttons/reply", &[]),
        ("reply", &[]),
        ("events", &["event"]),
        ("sendText", &[]),
    ],
    wider: &["forwardMessage", "status/text", "status/image", "status/voice", "status/video"],
    actions: &["startTyping", "stopTyping", "sendSeen", "reaction"],
};

/// These take an id of ours.
const WITH_ID: [&str; 4] = ["sendText", "sendPoll", "sendLocation", "sendContactVcard"];

pub(crate) struct Waha {
    credentials: Credentials,
}

impl Waha {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    /// A WAHA without a key is open to all, and some are.
    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let mut headers = Vec::new();
        if let Ok(key) = self.credentials.token() {
            headers.push((API_KEY.clone(), sensitive(key).ok_or("the channel's `token` cannot stand in a header")?));
        }
        Ok(headers)
    }
}

impl Sending for Waha {
    /// WAHA's webhooks name people by number and `@c.us`.
    fn peer(&self, to: &str) -> String {
        digits_of(to).map_or_else(|| usual(to), |digits| format!("{digits}@c.us"))
    }

    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        KeptBody::refuse(&body)?;
        if !is_jid(peer) {
            return Err("this is not a WhatsApp number; write 5 to 20 digits with the country code, or a chat id".to_owned());
        }
        match method_of(&body)? {
            "sendText" => check_wording(body.text("text"), "`text` is missing; write {\"text\": \"..\"}"),
            _ => Ok(()),
        }
    }

    fn check_unattended(&self, payload: &[u8]) -> Result<(), String> {
        METHODS.check_unattended(method_of(&Body::read(payload)?)?)
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        let method = method_of(&body)?;
        let is_status = method.starts_with("status/");
        let of_session = is_status || method == "events";
        let path = match of_session {
            true => format!("/api/{}/{method}", segment("the account", message.account)?),
            false => format!("/api/{method}"),
        };
        let mut headers = self.headers()?;
        if let Some(kept) = KeptBody::of(&body) {
            headers.push(kept.content_type()?);
            return Ok(Call { method: Method::POST, path: path + &kept.query(), headers, body: kept.body() });
        }
        headers.push(json_content());
        body.remove("method");
        let is_named = body.text("chatId").is_some_and(|chat| self.peer(&chat) == message.peer);
        if !of_session {
            body.set_text("session", message.account);
        }
        if !is_status && !is_named && method != "reaction" {
            body.set_text("chatId", message.peer);
        }
        if let Some(reply_to) = body.text("reply_to").filter(|id| !is_named && bare(id) == id) {
            // WAHA wants its whole form; people answer what others wrote.
            body.set_text("reply_to", &format!("false_{}_{reply_to}", message.peer));
        }
        if WITH_ID.contains(&method) && !body.has("id") {
            body.set_text("id", &own_id(message));
        }
        let http_method = if method == "reaction" { Method::PUT } else { Method::POST };
        Ok(Call { method: http_method, path, headers, body: body.write().into() })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        if answer.status.is_success() {
            let method = Body::read(message.payload).and_then(|body| method_of(&body));
            let makes_message = method.is_ok_and(|method| METHODS.make_message(method));
            return taken("WAHA", id_in(text).as_deref().map(bare), makes_message, message);
        }
        let refusal = json::object::<Refusal<'_>>(text).unwrap_or_default();
        let words = [&refusal.error, &refusal.message].into_iter().find_map(Text::name).unwrap_or_default();
        let why = format!("WAHA answered {}: {}", answer.status.as_u16(), self.credentials.fit_to_show(words));
        match (answer.status.as_u16(), refusal.status.name()) {
            // The session is not at work, so nothing was sent. It comes back by itself, or a person has to see to it.
            (422, Some("STARTING" | "WORKING")) => Verdict::Retry { why, after_ms: Some(RESTART_MS), whole_account: true },
            (422, status) if status.is_some() || refusal.session.name().is_some() => Verdict::StopAccount { why },
            (404, _) if words.contains("Cannot ") => Verdict::StopAccount { why: format!("{why}; is `api_base` right?") },
            _ => by_status(answer, why),
        }
    }

    fn reconcile(&self) -> Reconcile {
        Reconcile::ByLookup
    }

    /// By the id that we gave it. What cannot have one cannot be found.
    fn lookup(&self, message: &Outgoing<'_>) -> Option<Call> {
        let body = Body::read(message.payload).ok()?;
        // What was passed on as it came has no id of ours.
        (WITH_ID.contains(&method_of(&body).ok()?) && !body.has(KeptBody::MEMBER)).then_some(())?;
        let (session, chat) = (segment("the account", message.account).ok()?, segment("the chat", message.peer).ok()?);
        let id = encoded(&format!("true_{}_{}", message.peer, chosen_id(&body, message)));
        let path = format!("/api/{session}/chats/{chat}/messages/{id}?downloadMedia=false");
        Some(Call { method: Method::GET, path, headers: self.headers().ok()?, body: bytes::Bytes::new().into() })
    }

    fn found(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Found {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let Ok(body) = Body::read(message.payload) else { return Found::Nothing };
        let wanted = chosen_id(&body, message);
        match (answer.status.as_u16(), id_in(text)) {
            (200, Some(id)) if bare(&id) == wanted => Found::OneOf { provider_ids: vec![wanted] },
            (200, None) if matches!(text.trim(), "" | "null") => Found::Nothing,
            (404, _) => Found::Nothing,
            (200, _) => Found::NoAnswer { why: "WAHA showed another message".to_owned() },
            (status, _) => Found::NoAnswer { why: format!("WAHA answered {status} to the search") },
        }
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        let body = Body::read(payload).ok()?;
        ["text", "caption", "reaction"].into_iter().find_map(|member| body.text(member))
    }
}

fn method_of(body: &Body<'_>) -> Result<&'static str, String> {
    if !body.has("method") {
        let sort = body.inner_text("file", "mimetype").unwrap_or_default();
        let by_sort = [("image/", "sendImage"), ("audio/", "sendVoice"), ("video/", "sendVideo")];
        if let Some((_, method)) = by_sort.iter().find(|(start, _)| sort.starts_with(start)) {
            return Ok(method);
        }
        if body.has("reaction") && METHODS.by_member(body).is_none() {
            return Ok("reaction");
        }
    }
    METHODS.of(body)
}

/// In the form of WhatsApp's own ids, and the same at every try: the random end of the message's id.
fn own_id(message: &Outgoing<'_>) -> String {
    let id = message.id.to_string().to_ascii_uppercase();
    let end = id.len().checked_sub(ID_DIGITS).and_then(|start| id.get(start..));
    format!("3EB0{}", end.unwrap_or(&id))
}

fn chosen_id(body: &Body<'_>, message: &Outgoing<'_>) -> String {
    body.text("id").unwrap_or_else(|| own_id(message))
}

/// The message's id: a text, or the engine's own object.
fn id_in(answer: &str) -> Option<String> {
    let id = json::member(answer, "id")?;
    let inner = |member| json::text(json::member(id.get(), member));
    json::text(Some(id)).or_else(|| inner("_serialized")).or_else(|| inner("id")).filter(|id| !id.is_empty())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Refusal<'a> {
    error: Text<'a>,
    message: Text<'a>,
    session: Text<'a>,
    status: Text<'a>,
}
