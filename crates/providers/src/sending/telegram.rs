//! Sending through the Telegram Bot API: the token stands in the path, the method is a member of the payload, and nothing can be
//! asked afterwards.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, check_text, encoded, quoted};
use super::credentials::{Credentials, json_content};
use super::kept::KeptBody;
use super::{Call, CallAnswer, Heard, Outgoing, Sending, Verdict};
use crate::dropin::multipart;
use crate::dropin::telegram::{Target, target_of};
use crate::lenient::{Flag, Integer, Object, Text};
use crate::{form, json};

const TEXT_MAX_CHARS: usize = 4_096;
const METHOD_MAX_CHARS: usize = 64;
const DEFAULT_METHOD: &str = "sendMessage";
/// Methods that say something in the chat that the message is for, and neither take from other chats nor change the bot.
const UNATTENDED: [&str; 16] = [
    "sendMessage",
    "sendPhoto",
    "sendAudio",
    "sendDocument",
    "sendVideo",
    "sendAnimation",
    "sendVoice",
    "sendVideoNote",
    "sendMediaGroup",
    "sendLocation",
    "sendVenue",
    "sendContact",
    "sendPoll",
    "sendDice",
    "sendSticker",
    CHAT_ACTION,
];

/// Shows that something is being written, or uploaded, for five seconds.
const CHAT_ACTION: &str = "sendChatAction";

pub(crate) struct Telegram {
    credentials: Credentials,
}

impl Telegram {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    /// The colon stays: tokens are written `123:abc`, and some servers match them undecoded.
    fn path(&self, method: &str) -> Result<String, String> {
        Ok(format!("/bot{}/{method}", encoded(self.credentials.token()?).replace("%3A", ":")))
    }
}

impl Sending for Telegram {
    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        KeptBody::refuse(&body)?;
        if !is_chat(peer) {
            return Err("this is not a Telegram chat; write its id (77, -1001234) or its @name".to_owned());
        }
        let method = method_of(&body)?;
        if is_no_send(&method) {
            return Err(format!("`{method}` sends nothing; call Telegram for it yourself"));
        }
        if !method.eq_ignore_ascii_case(DEFAULT_METHOD) {
            return Ok(());
        }
        let text = body.text("text").ok_or("`text` is missing or no text; write {\"text\": \"..\"}")?;
        // Marks of a parse mode do not count, so only Telegram can count what is left.
        let most = if body.has("parse_mode") { usize::MAX } else { TEXT_MAX_CHARS };
        check_text(&text, most)
    }

    fn check_unattended(&self, payload: &[u8]) -> Result<(), String> {
        let method = method_of(&Body::read(payload)?)?;
        match UNATTENDED.iter().any(|known| method.eq_ignore_ascii_case(known)) {
            true => Ok(()),
            false => Err(format!("`{method}` is not among the methods that a document may ask for: {}", UNATTENDED.join(", "))),
        }
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        let method = method_of(&body)?;
        let path = self.path(&method)?;
        if let Some(kept) = KeptBody::of(&body) {
            let (path, headers) = (path + &kept.query(), vec![kept.content_type()?]);
            return Ok(Call { method: Method::POST, path, headers, body: kept.body() });
        }
        body.remove("method");
        match message.peer.parse::<i64>() {
            _ if names_no_chat(&method, &body) => {}
            Ok(chat) => body.set("chat_id", chat.to_string()),
            Err(_) => body.set_text("chat_id", message.peer),
        }
        if let Some(reply_to) = body.id("reply_to") {
            // Our own ids of Telegram messages are scoped by their chat.
            let id = reply_to.rsplit(':').next().unwrap_or_default().to_owned();
            let id = if id.parse::<i64>().is_ok() { id } else { quoted(&id) };
            body.set("reply_parameters", format!("{{\"message_id\":{id}}}"));
            body.remove("reply_to");
        }
        Ok(Call { method: Method::POST, path, headers: vec![json_content()], body: body.write().into() })
    }

    fn typing(&self, heard: &Heard<'_>) -> Option<Call> {
        let chat: i64 = heard.peer.parse().ok()?;
        let body = Bytes::from(format!(r#"{{"chat_id":{chat},"action":"typing"}}"#));
        Some(Call { method: Method::POST, path: self.path(CHAT_ACTION).ok()?, headers: vec![json_content()], body: body.into() })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let read = json::object::<TelegramAnswer<'_>>(text).unwrap_or_default();
        if read.ok.0 && answer.status.is_success() {
            let id = read.result.and_then(message_id).unwrap_or_else(|| message.id.to_string());
            return Verdict::Sent { provider_id: id };
        }
        let words = read.description.name().map(|words| self.credentials.fit_to_show(words));
        let why = match &words {
            Some(words) => format!("Telegram says: {words}"),
            None => format!("Telegram answered {}", answer.status.as_u16()),
        };
        let code = read.error_code.0.unwrap_or(i64::from(answer.status.as_u16()));
        let parameters = read.parameters.0.unwrap_or_default();
        match code {
            200..=299 => Verdict::Unknown { why: "Telegram answered without saying what became of it".to_owned() },
            400 => match parameters.migrate_to_chat_id.0 {
                Some(chat) => Verdict::Failed { why: format!("the group has moved: send to {chat} from now on ({why})") },
                None => Verdict::Failed { why },
            },
            401 => Verdict::StopAccount { why: format!("{why}; is `token` right?") },
            404 if words.as_deref().is_some_and(|words| words.contains("method")) => Verdict::Failed { why },
            404 => Verdict::StopAccount { why: format!("{why}; are `token` and `api_base` right?") },
            409 => Verdict::Retry { why, after_ms: None, whole_account: false },
            429 => {
                let asked_ms = parameters.retry_after.0.and_then(|seconds| seconds.checked_mul(1_000));
                Verdict::SlowDown { why, after_ms: asked_ms.or_else(|| retry_after_ms(answer)) }
            }
            _ => by_status(answer, why),
        }
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        let body = Body::read(payload).ok()?;
        body.text("text").or_else(|| body.text("caption"))
    }

    fn replies_in_answer(&self, answer: &[u8], content_type: Option<&str>) -> Vec<(String, Bytes)> {
        let Ok(text) = std::str::from_utf8(answer) else { return Vec::new() };
        let content_type = content_type.unwrap_or_default();
        let sort = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let payload = match sort.as_str() {
            "application/x-www-form-urlencoded" => fields_as_json(form::pairs(text)),
            "multipart/form-data" => fields_as_json(fields_of(content_type, answer).into_iter()),
            "" | "application/json" => Bytes::copy_from_slice(answer),
            _ => return Vec::new(),
        };
        let Ok(body) = Body::read(&payload) else { return Vec::new() };
        match body.text("method") {
            // Nobody is writing any more once the answer is there, and it is no message.
            Some(method) if method.eq_ignore_ascii_case(CHAT_ACTION) => Vec::new(),
            Some(method) if is_method(&method) && !is_no_send(&method) => {
                vec![(body.id("chat_id").unwrap_or_default(), body.write())]
            }
            _ => Vec::new(),
        }
    }
}

fn method_of(body: &Body<'_>) -> Result<String, String> {
    if !body.has("method") {
        return Ok(DEFAULT_METHOD.to_owned());
    }
    let method = body.text("method").filter(|method| is_method(method));
    method.ok_or_else(|| "`method` is not one of Telegram's, like \"sendPhoto\"".to_owned())
}

fn is_method(word: &str) -> bool {
    (1..=METHOD_MAX_CHARS).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// True for methods that Telegram itself ignores in the answer to a webhook.
fn is_no_send(method: &str) -> bool {
    let method = method.to_ascii_lowercase();
    method.starts_with("get") || matches!(method.as_str(), "setwebhook" | "deletewebhook" | "close" | "logout")
}

/// True where the message is for somebody whom `chat_id` cannot name.
fn names_no_chat(method: &str, body: &Body<'_>) -> bool {
    match target_of(method) {
        Target::Chat => false,
        Target::ChatOrUser => body.has("user_id") && !body.has("chat_id"),
        Target::User | Target::Business => true,
    }
}

pub(crate) fn is_chat(peer: &str) -> bool {
    let name =
        |name: &str| (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    peer.strip_prefix('@').is_some_and(name) || peer.parse::<i64>().is_ok()
}

/// The fields of a body in parts; none when it brings a file along, which cannot be kept in a message.
fn fields_of(content_type: &str, body: &[u8]) -> Vec<(String, String)> {
    let parts = multipart::read_whole(content_type, body).unwrap_or_default();
    let fields = parts.fields.into_iter().filter(|_| parts.files.is_empty());
    fields.filter_map(|field| Some((field.name, String::from_utf8(field.value).ok()?))).collect()
}

/// Telegram reads texts as numbers and objects where it wants those, so all values may stay texts.
fn fields_as_json<F: AsRef<str>>(fields: impl Iterator<Item = (F, F)>) -> Bytes {
    let members: Vec<(F, String)> = fields.map(|(name, value)| (name, quoted(value.as_ref()))).collect();
    let mut out = Vec::new();
    json::write_object(&mut out, members.iter().map(|(name, json)| (name.as_ref(), Cow::Borrowed(json.as_bytes()))));
    Bytes::from(out)
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TelegramAnswer<'a> {
    ok: Flag,
    result: Option<&'a RawValue>,
    error_code: Integer,
    description: Text<'a>,
    parameters: Object<Parameters>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Parameters {
    retry_after: Integer,
    migrate_to_chat_id: Integer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Made {
    message_id: Integer,
    chat: Object<Chat>,
}

#[derive(Deserialize)]
struct Chat {
    #[serde(default)]
    id: Integer,
}

/// `chat:id`, because Telegram numbers messages per chat. An album goes by its first message.
fn message_id(result: &RawValue) -> Option<String> {
    let first = json::items(result.get()).and_then(|items| items.first().copied());
    let made: Made = json::object(first.unwrap_or(result).get()).ok()?;
    Some(format!("{}:{}", made.chat.0?.id.0?, made.message_id.0?))
}
