//! Sending through Messenger and Instagram: one endpoint, and an echo that carries our handle back, on Messenger.

use http::Method;
use secrecy::SecretString;
use serde::Deserialize;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, check_text, quoted, segment};
use super::credentials::{Credentials, json_content};
use super::{Call, CallAnswer, Outgoing, Reconcile, Sending, Verdict};
use crate::json;
use crate::lenient::{Flag, Integer, Object, Text};
use crate::messenger::METADATA;
use crate::whatsapp::handle;

const VERSION: &str = "v25.0";
const METADATA_MAX_CHARS: usize = 1_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platform {
    Messenger,
    Instagram,
}

pub(crate) struct Messenger {
    platform: Platform,
    credentials: Credentials,
}

impl Messenger {
    pub(crate) fn new(platform: Platform, token: Option<&SecretString>) -> Self {
        Self { platform, credentials: Credentials::new(token) }
    }

    fn check_length(&self, text: &str) -> Result<(), String> {
        match self.platform {
            Platform::Messenger => check_text(text, 2_000),
            Platform::Instagram if text.len() > 1_000 => {
                Err(format!("the text has {} bytes and Instagram takes at most 1000; split it", text.len()))
            }
            Platform::Instagram => check_text(text, 1_000),
        }
    }
}

impl Sending for Messenger {
    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        if peer.is_empty() || !peer.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("this is not a person's id here; write the digits that `sender.id` of a webhook has".to_owned());
        }
        match Sort::from_body(&body) {
            Sort::Plain => self.check_length(&body.text("text").unwrap_or_default())?,
            Sort::Own => {
                if let Some(text) = body.inner_text("message", "text") {
                    self.check_length(&text)?;
                }
            }
            Sort::Action => {}
            Sort::Nothing => {
                return Err("neither `text` nor `message`; write {\"text\": \"..\"} or a body of the Send API".to_owned());
            }
        }
        if body.has("reply_to") && body.text("text").is_some() {
            return Err("`reply_to` is not known here; take it out".to_owned());
        }
        own_metadata(&body).map(drop)
    }

    fn check_unattended(&self, payload: &[u8]) -> Result<(), String> {
        match Sort::from_body(&Body::read(payload)?) {
            Sort::Plain | Sort::Own => Ok(()),
            Sort::Action | Sort::Nothing => Err("a document may ask for messages only".to_owned()),
        }
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        if Sort::from_body(&body) == Sort::Plain {
            let text = body.text("text").unwrap_or_default();
            body.set("message", format!("{{\"text\":{}}}", quoted(&text)));
            body.remove("text");
        }
        body.set("recipient", format!("{{\"id\":{}}}", quoted(message.peer)));
        if body.has("message") && !body.has("messaging_type") {
            body.set_text("messaging_type", "RESPONSE");
        }
        if body.has("message") && self.platform == Platform::Messenger {
            let own = own_metadata(&body)?;
            let inner = body.raw("message").unwrap_or("{}").to_owned();
            let mut inner = Body::read(inner.as_bytes())?;
            inner.set_text(METADATA, &handle::write(message.id, own.as_deref()));
            let inner = inner.write();
            body.set("message", inner.to_vec());
        }
        // An Instagram account's token stands for it; a page's may be asked for a page it does not belong to, and is then refused.
        let account = match self.platform {
            Platform::Messenger => segment("the account", message.account)?,
            Platform::Instagram => "me".to_owned(),
        };
        let headers = vec![self.credentials.bearer()?, json_content()];
        Ok(Call { method: Method::POST, path: format!("/{VERSION}/{account}/messages"), headers, body: body.write().into() })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let read = std::str::from_utf8(&answer.body).ok().and_then(|text| json::object::<MessengerAnswer<'_>>(text).ok());
        let read = read.unwrap_or_default();
        if let Some(error) = &read.error.0 {
            return self.by_error(error, answer);
        }
        if !answer.status.is_success() {
            return by_status(answer, format!("Meta answered {}", answer.status.as_u16()));
        }
        let is_action = Body::read(message.payload).is_ok_and(|body| Sort::from_body(&body) == Sort::Action);
        match read.message_id.name() {
            Some(id) => Verdict::Sent { provider_id: id.to_owned() },
            None if is_action => Verdict::Sent { provider_id: message.id.to_string() },
            None => Verdict::Unknown { why: "Meta took it without giving it an id".to_owned() },
        }
    }

    fn reconcile(&self) -> Reconcile {
        match self.platform {
            Platform::Messenger => Reconcile::ByWebhook,
            Platform::Instagram => Reconcile::No,
        }
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        let body = Body::read(payload).ok()?;
        body.text("text").or_else(|| body.inner_text("message", "text"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// `{"text": ".."}`.
    Plain,
    /// A body of Meta's own.
    Own,
    /// Typing and seen: no message.
    Action,
    Nothing,
}

impl Sort {
    fn from_body(body: &Body<'_>) -> Sort {
        match (body.has("message"), body.text("text").is_some(), body.has("sender_action")) {
            (true, _, _) => Sort::Own,
            (false, true, _) => Sort::Plain,
            (false, false, true) => Sort::Action,
            (false, false, false) => Sort::Nothing,
        }
    }
}

/// The caller's own value of `metadata`, when there is room for ours before it.
fn own_metadata(body: &Body<'_>) -> Result<Option<String>, String> {
    let Some(message) = body.raw("message") else { return Ok(None) };
    let message = Body::read(message.as_bytes()).map_err(|_| "`message` is not a JSON object".to_owned())?;
    if !message.has(METADATA) {
        return Ok(None);
    }
    let own = message.text(METADATA).ok_or("`metadata` is not a text")?;
    let room = METADATA_MAX_CHARS - handle::ROOM_CHARS;
    match own.chars().count() {
        chars if chars > room => {
            Err(format!("`metadata` has {chars} characters; hapax needs some of Meta's 1000 itself, so at most {room} are left"))
        }
        _ => Ok(Some(own)),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MessengerAnswer<'a> {
    message_id: Text<'a>,
    error: Object<GraphError<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct GraphError<'a> {
    code: Integer,
    error_subcode: Integer,
    message: Text<'a>,
    is_transient: Flag,
}

impl Messenger {
    fn by_error(&self, error: &GraphError<'_>, answer: &CallAnswer) -> Verdict {
        let words = self.credentials.fit_to_show(error.message.name().unwrap_or("no reason given"));
        let number = |number: Integer| number.0.map(|number| format!(" {number}")).unwrap_or_default();
        let why = format!("Meta error{}{}: {words}", number(error.code), number(error.error_subcode));
        let Some(code) = error.code.0 else { return by_status(answer, why) };
        let after_ms = retry_after_ms(answer);
        match code {
            4 | 17 | 32 | 613 | 80_001 | 80_002 | 80_006 => Verdict::Retry { why, after_ms, whole_account: true },
            // "Temporary send message failure."
            1_200 => Verdict::Retry { why, after_ms, whole_account: false },
            // Meta says of both that the message may have gone out all the same.
            1 | 2 => Verdict::Unknown { why },
            // With a subcode it is about this person: the 24 hours are over, or they cannot be written to.
            10 | 200 if error.error_subcode.0.is_some() => Verdict::Failed { why },
            3 | 10 | 102 | 190 | 200..=299 | 368 => Verdict::StopAccount { why },
            _ if answer.status.is_server_error() => Verdict::Unknown { why },
            _ if error.is_transient.0 => Verdict::Retry { why, after_ms, whole_account: false },
            _ => Verdict::Failed { why },
        }
    }
}
