//! Sending through the WhatsApp Cloud API: one endpoint, many kinds of body, and error codes that decide.

use bytes::Bytes;
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, check_text, quoted, segment};
use super::credentials::{Credentials, json_content};
use super::{Call, CallAnswer, Heard, Outgoing, Reconcile, Sending, Verdict};
use crate::json;
use crate::lenient::{Flag, Integer, List, Object, Text};
use crate::whatsapp::handle;

const VERSION: &str = "v25.0";
/// The member of a payload that names another version, as `v21.0`; empty: none is named to Meta either.
pub(crate) const VERSION_MEMBER: &str = "version";
/// The member of a payload that names another of the endpoints that send.
pub(crate) const ENDPOINT_MEMBER: &str = "endpoint";
pub(crate) const ENDPOINTS: [&str; 2] = ["messages", "marketing_messages"];
const TEXT_MAX_CHARS: usize = 4_096;

const MINUTE_MS: i64 = 60_000;

pub(crate) struct Whatsapp {
    credentials: Credentials,
}

impl Whatsapp {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }

    fn post(&self, version: &str, account: &str, endpoint: &str, body: Bytes) -> Result<Call, String> {
        Ok(Call {
            method: Method::POST,
            path: format!("{version}/{}/{endpoint}", segment("the account", account)?),
            headers: vec![self.credentials.bearer()?, json_content()],
            body: body.into(),
        })
    }
}

impl Sending for Whatsapp {
    /// Meta's webhooks name people by digits alone.
    fn peer(&self, to: &str) -> String {
        let digits: String = to.chars().filter(|c| !matches!(c, '+' | ' ' | '-' | '(' | ')')).collect();
        if is_number(&digits) { digits } else { to.to_owned() }
    }

    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        let to_group = !peer.is_empty() && body.text("recipient_type").as_deref() == Some("group");
        if !(is_number(peer) || is_user_id(peer) || to_group) {
            return Err(
                "this is not a WhatsApp number; write 5 to 20 digits with the country code, like 5511988887777".to_owned()
            );
        }
        match Sort::from_body(&body) {
            Sort::Plain => check_text(&body.text("text").unwrap_or_default(), TEXT_MAX_CHARS)?,
            Sort::Notice => {}
            Sort::Own => {
                if !body.has("type") && !body.has("text") {
                    return Err("neither `text` nor `type`; write {\"text\": \"..\"} or a body of the Cloud API".to_owned());
                }
                if let Some(text) = body.inner_text("text", "body") {
                    check_text(&text, TEXT_MAX_CHARS)?;
                }
            }
        }
        version_of(&body)?;
        endpoint_of(&body)?;
        check_own_handle(&body)
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        let (version, endpoint) = (version_of(&body)?, endpoint_of(&body)?);
        body.remove(VERSION_MEMBER);
        body.remove(ENDPOINT_MEMBER);
        body.set_text("messaging_product", "whatsapp");
        let sort = Sort::from_body(&body);
        if sort == Sort::Plain {
            plain_text(&mut body);
        }
        // A read receipt and a typing notice name the message they are about, and nobody else.
        if sort != Sort::Notice {
            check_own_handle(&body)?;
            let own = body.text(handle::MEMBER);
            body.set_text(handle::MEMBER, &handle::write(message.id, own.as_deref()));
            let (used, unused) = if is_user_id(message.peer) { ("recipient", "to") } else { ("to", "recipient") };
            if body.text(used).is_none_or(|written| self.peer(&written) != message.peer) {
                body.set_text(used, message.peer);
            }
            body.remove(unused);
        }
        self.post(&version, message.account, endpoint, body.write())
    }

    /// Meta knows it only together with the receipt that the message was read.
    fn typing(&self, heard: &Heard<'_>) -> Option<Call> {
        let id = quoted(heard.provider_id);
        let body = format!(
            r#"{{"messaging_product":"whatsapp","status":"read","message_id":{id},"typing_indicator":{{"type":"text"}}}}"#
        );
        self.post(&format!("/{VERSION}"), heard.account, ENDPOINTS[0], Bytes::from(body)).ok()
    }

    /// It lasts for 25 seconds.
    fn typing_every_ms(&self) -> u64 {
        20_000
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let read = std::str::from_utf8(&answer.body).ok().and_then(|text| json::object::<WhatsappAnswer<'_>>(text).ok());
        let read = read.unwrap_or_default();
        if let Some(error) = &read.error.0 {
            return self.by_error(error, answer);
        }
        if !answer.status.is_success() {
            return by_status(answer, format!("WhatsApp answered {}", answer.status.as_u16()));
        }
        let id = read.messages.items().first().and_then(|message| message.0.as_ref()?.id.name());
        match id {
            Some(id) => Verdict::Sent { provider_id: id.to_owned() },
            None if read.success.0 => Verdict::Sent { provider_id: message.id.to_string() },
            None => Verdict::Unknown { why: "WhatsApp took it without giving it an id".to_owned() },
        }
    }

    fn reconcile(&self) -> Reconcile {
        Reconcile::ByWebhook
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        let body = Body::read(payload).ok()?;
        let caption = |kind| body.inner_text(kind, "caption");
        let own = || body.inner_text("text", "body").or_else(|| ["image", "video", "document"].into_iter().find_map(caption));
        body.text("text").or_else(own).or_else(|| body.inner_text("reaction", "emoji"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// `{"text": ".."}`.
    Plain,
    /// A body of Meta's own.
    Own,
    /// Read or typing: Meta's own, and no message.
    Notice,
}

impl Sort {
    fn from_body(body: &Body<'_>) -> Sort {
        let sort = body.text("type");
        if body.text("text").is_some() && sort.is_none_or(|sort| sort == "text") {
            Sort::Plain
        } else if body.has("status") && body.has("message_id") {
            Sort::Notice
        } else {
            Sort::Own
        }
    }
}

fn plain_text(body: &mut Body<'_>) {
    let text = body.text("text").unwrap_or_default();
    body.set_text("type", "text");
    body.set("text", format!("{{\"body\":{}}}", quoted(&text)));
    if let Some(reply_to) = body.text("reply_to") {
        body.set("context", format!("{{\"message_id\":{}}}", quoted(&reply_to)));
    }
    body.remove("reply_to");
}

fn check_own_handle(body: &Body<'_>) -> Result<(), String> {
    if !body.has(handle::MEMBER) {
        return Ok(());
    }
    let own = body.text(handle::MEMBER).ok_or_else(|| format!("`{}` is not a text", handle::MEMBER))?;
    match own.chars().count() {
        chars if chars > handle::OWN_MAX_CHARS => Err(format!(
            "`{}` has {chars} characters; hapax needs some of Meta's 512 itself, so at most {} are left",
            handle::MEMBER,
            handle::OWN_MAX_CHARS
        )),
        _ => Ok(()),
    }
}

/// With the slash in front, where there is one.
fn version_of(body: &Body<'_>) -> Result<String, String> {
    match body.text(VERSION_MEMBER).as_deref() {
        None if body.has(VERSION_MEMBER) => Err(format!("`{VERSION_MEMBER}` is not a text")),
        None => Ok(format!("/{VERSION}")),
        Some("") => Ok(String::new()),
        Some(version) if is_version(version) => Ok(format!("/{version}")),
        Some(_) => Err(format!("`{VERSION_MEMBER}` is not one of Meta's, like \"{VERSION}\"")),
    }
}

fn endpoint_of(body: &Body<'_>) -> Result<&'static str, String> {
    if !body.has(ENDPOINT_MEMBER) {
        return Ok(ENDPOINTS[0]);
    }
    let asked = body.text(ENDPOINT_MEMBER).unwrap_or_default();
    let known = ENDPOINTS.into_iter().find(|known| *known == asked);
    known.ok_or_else(|| format!("`{ENDPOINT_MEMBER}` is none of {}", ENDPOINTS.join(", ")))
}

pub(crate) fn is_version(text: &str) -> bool {
    let is_number = |digits: &str| (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = text.strip_prefix('v').and_then(|numbers| numbers.split_once('.'));
    numbers.is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

fn is_number(peer: &str) -> bool {
    (5..=20).contains(&peer.len()) && peer.bytes().all(|byte| byte.is_ascii_digit())
}

/// A business-scoped user id: country, dot, letters and digits.
fn is_user_id(peer: &str) -> bool {
    let Some((country, rest)) = peer.split_once('.') else { return false };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && (1..=128).contains(&rest.len())
        && rest.bytes().all(plain)
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WhatsappAnswer<'a> {
    messages: List<Object<Taken<'a>>>,
    success: Flag,
    error: Object<GraphError<'a>>,
}

#[derive(Deserialize)]
struct Taken<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct GraphError<'a> {
    code: Integer,
    message: Text<'a>,
    is_transient: Flag,
    error_data: Object<Details<'a>>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    details: Text<'a>,
}

impl Whatsapp {
    fn by_error(&self, error: &GraphError<'_>, answer: &CallAnswer) -> Verdict {
        let why = self.why(error);
        let Some(code) = error.code.0 else { return by_status(answer, why) };
        let asked_ms = retry_after_ms(answer);
        let retry = |usual_ms: Option<i64>, whole_account| (usual_ms, whole_account);
        let (usual_ms, whole_account) = match code {
            4 | 80_007 | 130_429 => retry(None, true),
            // The quality or the registration of the number is at stake: asking again soon makes it worse.
            131_048 | 131_064 | 133_016 => retry(Some(10 * MINUTE_MS), true),
            131_057 => retry(Some(MINUTE_MS), true),
            // Too many to this one recipient: one more every six seconds.
            131_056 => return Verdict::SlowDown { why, after_ms: asked_ms.or(Some(6_000)) },
            1 | 2 | 131_000 | 131_016 => retry(None, false),
            0 | 3 | 10 | 33 | 190 | 200..=299 | 368 | 130_497 | 131_005 | 131_031 | 131_037 | 131_042 | 131_045 => {
                return Verdict::StopAccount { why };
            }
            _ if answer.status.is_server_error() => return Verdict::Unknown { why },
            _ if error.is_transient.0 => retry(None, false),
            _ => return Verdict::Failed { why },
        };
        Verdict::Retry { why, after_ms: asked_ms.or(usual_ms), whole_account }
    }

    fn why(&self, error: &GraphError<'_>) -> String {
        let details = error.error_data.0.as_ref().and_then(|data| data.details.name());
        let words = match (error.message.name(), details) {
            (Some(message), Some(details)) => format!("{message}: {details}"),
            (Some(words), None) | (None, Some(words)) => words.to_owned(),
            (None, None) => "no reason given".to_owned(),
        };
        let code = error.code.0.map(|code| format!(" {code}")).unwrap_or_default();
        format!("WhatsApp error{code}: {}", self.credentials.fit_to_show(&words))
    }
}
