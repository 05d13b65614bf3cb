//! Sending through GOWA: one path per kind of message, and a history that can be searched afterwards.

use http::{HeaderName, HeaderValue, Method};
use secrecy::SecretString;
use serde::Deserialize;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, encoded, segment};
use super::credentials::{Credentials, json_content};
use super::kept::KeptBody;
use super::whatsapp_web::{Methods, check_peer, check_wording, is_jid, jid_of, oldest_first, since_s, taken};
use super::{Call, CallAnswer, Found, Outgoing, Reconcile, Sending, Verdict};
use crate::json;
use crate::lenient::{Flag, List, Object, Text};

static DEVICE_HEADER: HeaderName = HeaderName::from_static("x-device-id");

/// Enough of a text to find it by; the whole of it is compared afterwards.
const SEARCH_MAX_CHARS: usize = 80;
/// GOWA's largest page.
const LOOKUP_ROWS: u32 = 100;
const RECONNECT_MS: i64 = 15_000;

const METHODS: Methods = Methods {
    sends: &[
        ("image", &["image_url", "image"]),
        ("file", &["file_url", "file"]),
        ("video", &["video_url", "video"]),
        ("audio", &["audio_url", "audio"]),
        ("sticker", &["sticker_url", "sticker"]),
        ("location", &["latitude"]),
        ("contact", &["contact_phone"]),
        ("link", &["link"]),
        ("poll", &["question"]),
        ("message", &[]),
    ],
    wider: &[FORWARD],
    // All but the last are done to a message that is there already, named by `message_id`.
    actions: &["read", "reaction", "update", "revoke", "delete", PRESENCE],
};

const PRESENCE: &str = "chat-presence";
const FORWARD: &str = "forward";

pub(crate) struct Gowa {
    credentials: Credentials,
}

impl Gowa {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    fn headers(&self, account: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let device = HeaderValue::from_str(account).map_err(|_| "the account cannot stand in a header".to_owned())?;
        let mut headers = vec![(DEVICE_HEADER.clone(), device)];
        headers.extend(self.credentials.basic_or_bearer()?);
        Ok(headers)
    }
}

impl Sending for Gowa {
    /// GOWA's webhooks name people by their JID.
    fn peer(&self, to: &str) -> String {
        jid_of(to)
    }

    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        KeptBody::refuse(&body)?;
        check_peer(peer, |peer| is_jid(peer) && !peer.ends_with("@c.us"))?;
        match &*path_of(&body)? {
            "/send/message" => check_wording(wording(&body), "neither `text` nor `message`; write {\"text\": \"..\"}"),
            _ => Ok(()),
        }
    }

    fn check_unattended(&self, payload: &[u8]) -> Result<(), String> {
        match METHODS.of(&Body::read(payload)?)? {
            PRESENCE => Ok(()),
            method => METHODS.check_unattended(method),
        }
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        let path = path_of(&body)?;
        let mut headers = self.headers(message.account)?;
        if let Some(kept) = KeptBody::of(&body) {
            headers.push(kept.content_type()?);
            return Ok(Call { method: Method::POST, path: path + &kept.query(), headers, body: kept.body() });
        }
        for done in ["method", "message_id"] {
            body.remove(done);
        }
        if body.text("phone").is_none_or(|phone| jid_of(&phone) != message.peer) {
            body.set_text("phone", message.peer);
        }
        for (plain, own) in [("text", "message"), ("reply_to", "reply_message_id")] {
            if let Some(text) = body.text(plain).filter(|_| !body.has(own)) {
                body.set_text(own, &text);
                body.remove(plain);
            }
        }
        headers.push(json_content());
        Ok(Call { method: Method::POST, path, headers, body: body.write().into() })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let read = json::object::<GowaAnswer<'_>>(text).unwrap_or_default();
        if answer.status.is_success() {
            let id = read.results.0.as_ref().and_then(|results| results.message_id.name());
            return taken("GOWA", id, METHODS.make_message_of(message.payload), message);
        }
        let words = self.credentials.fit_to_show(read.message.get().unwrap_or_default());
        let Some(code) = read.code.name() else {
            return by_status(answer, format!("GOWA answered {}", answer.status.as_u16()));
        };
        let why = format!("GOWA says {}: {words}", self.credentials.fit_to_show(code));
        match code {
            "DEVICE_ID_REQUIRED" | "DEVICE_NOT_FOUND" => Verdict::StopAccount { why },
            "AUTHENTICATION_ERROR" if is_logged_out(&words) => Verdict::StopAccount { why },
            // Its socket is down and it reconnects by itself. Nothing was sent.
            "AUTHENTICATION_ERROR" => Verdict::Retry { why, after_ms: Some(RECONNECT_MS), whole_account: true },
            // WhatsApp's ban on new chats: trying again prolongs it.
            "WA_REACHOUT_TIMELOCK" => Verdict::Failed { why },
            _ if answer.status == 503 => Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: true },
            _ => by_status(answer, why),
        }
    }

    fn reconcile(&self) -> Reconcile {
        Reconcile::ByLookup
    }

    fn lookup(&self, message: &Outgoing<'_>) -> Option<Call> {
        let text = self.text(message.payload).filter(|_| METHODS.make_message_of(message.payload))?;
        let search: String = text.chars().take(SEARCH_MAX_CHARS).collect();
        let since = jiff::Timestamp::from_second(since_s(message)?).ok()?;
        let path = format!(
            "/chat/{}/messages?is_from_me=true&limit={LOOKUP_ROWS}&start_time={}&search={}",
            encoded(&self.peer(message.peer)),
            encoded(&since.to_string()),
            encoded(&search),
        );
        let headers = self.headers(message.account).ok()?;
        Some(Call { method: Method::GET, path, headers, body: bytes::Bytes::new().into() })
    }

    fn found(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Found {
        if !answer.status.is_success() {
            return Found::NoAnswer { why: format!("GOWA answered {} to the search", answer.status.as_u16()) };
        }
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let history = json::object::<History<'_>>(text).ok().and_then(|history| history.results.0);
        let Some(Past { data: rows @ (List::Items(_) | List::Absent) }) = history else {
            return Found::NoAnswer { why: "GOWA's history is not readable".to_owned() };
        };
        let (Some(text), Some(since_s)) = (self.text(message.payload), since_s(message)) else { return Found::Nothing };
        let wanted = Wanted { text, media: media_of(message.payload), since_s };
        oldest_first(rows.items().iter().filter_map(|row| row.0.as_ref()?.alike(&wanted)).collect())
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        let body = Body::read(payload).ok()?;
        wording(&body).or_else(|| body.text("caption"))
    }
}

fn wording(body: &Body<'_>) -> Option<String> {
    body.text("message").or_else(|| body.text("text"))
}

fn path_of(body: &Body<'_>) -> Result<String, String> {
    let method = METHODS.of(body)?;
    if method == PRESENCE || (method != FORWARD && METHODS.make_message(method)) {
        return Ok(format!("/send/{method}"));
    }
    let id = body.text("message_id").ok_or_else(|| format!("`message_id` is missing: whose {method}?"))?;
    Ok(format!("/message/{}/{method}", segment("the message id", &id)?))
}

fn is_logged_out(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    words.contains("login") || words.contains("logged")
}

/// How GOWA's history calls the kind of what is sent; empty for a text.
fn media_of(payload: &[u8]) -> &'static str {
    let method = Body::read(payload).and_then(|body| METHODS.of(&body));
    match method.unwrap_or_default() {
        "image" => "image",
        "video" => "video",
        "audio" => "audio",
        "sticker" => "sticker",
        "file" => "document",
        _ => "",
    }
}

/// What a message in doubt looks like in the history.
struct Wanted {
    text: String,
    media: &'static str,
    since_s: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct GowaAnswer<'a> {
    code: Text<'a>,
    message: Text<'a>,
    results: Object<Results<'a>>,
}

#[derive(Deserialize)]
struct Results<'a> {
    #[serde(borrow, default)]
    message_id: Text<'a>,
}

#[derive(Deserialize)]
struct History<'a> {
    #[serde(borrow, default)]
    results: Object<Past<'a>>,
}

#[derive(Deserialize)]
struct Past<'a> {
    #[serde(borrow, default)]
    data: List<Object<Row<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Row<'a> {
    id: Text<'a>,
    content: Text<'a>,
    media_type: Text<'a>,
    timestamp: Text<'a>,
    is_from_me: Flag,
}

impl Row<'_> {
    /// Time and id, when it says the same, is of the same kind, and is not older than what is searched.
    fn alike(&self, wanted: &Wanted) -> Option<(i64, String)> {
        let at = self.timestamp.get()?.parse::<jiff::Timestamp>().ok()?.as_second();
        let kind = self.media_type.get().unwrap_or_default() == wanted.media;
        let same = self.is_from_me.0 && kind && self.content.get() == Some(&*wanted.text) && at >= wanted.since_s;
        same.then(|| self.id.name().map(|id| (at, id.to_owned())))?
    }
}
