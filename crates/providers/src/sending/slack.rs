//! Sending through Slack's Web API: every answer is 200 and says inside whether it worked. Metadata on the message lets it be found again.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use secrecy::SecretString;
use serde::Deserialize;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, check_text, encoded};
use super::credentials::Credentials;
use super::{Call, CallAnswer, Found, Outgoing, Reconcile, Sending, Verdict};
use crate::json;
use crate::lenient::{Flag, List, Object, Text};
use crate::slack::{HANDLE, Metadata, message_id};

/// Slack cuts longer texts off.
const TEXT_MAX_CHARS: usize = 40_000;
const DEFAULT_METHOD: &str = "chat.postMessage";
/// What a message may ask for, each in the conversation that it is for.
const METHODS: [&str; 6] =
    [DEFAULT_METHOD, "chat.postEphemeral", "chat.update", "chat.delete", "reactions.add", "reactions.remove"];
/// Methods that only add something to read.
const UNATTENDED: [&str; 2] = [DEFAULT_METHOD, "chat.postEphemeral"];
const LOOKUP_ROWS: u32 = 200;
/// By how much Slack's clock may be behind ours.
const CLOCK_SLACK_MS: i64 = 5_000;

/// Nothing was done, and nothing of this token will be until a person has seen to it.
const SHUT_OUT: [&str; 13] = [
    "not_authed",
    "invalid_auth",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "missing_scope",
    "not_allowed_token_type",
    "no_permission",
    "org_login_required",
    "team_access_not_granted",
    "accesslimited",
    "access_denied",
    "ekm_access_denied",
];
/// Slack's own words: some aspect of the operation may have succeeded.
const IN_DOUBT: [&str; 3] = ["fatal_error", "internal_error", "service_unavailable"];
const LATER: [&str; 4] = ["ratelimited", "rate_limited", "message_limit_exceeded", "team_added_to_org"];

pub(crate) struct Slack {
    credentials: Credentials,
}

impl Slack {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }
}

impl Sending for Slack {
    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        if !is_conversation(peer) {
            return Err("this is not a Slack conversation; write its id, like C0123ABCD, D0123ABCD or U0123ABCD".to_owned());
        }
        let method = method_of(&body)?;
        if !UNATTENDED.contains(&method) {
            return Ok(());
        }
        match body.text("text") {
            Some(text) => check_text(&text, TEXT_MAX_CHARS),
            None if body.has("blocks") || body.has("attachments") => Ok(()),
            None => Err("neither `text` nor `blocks`; write {\"text\": \"..\"}".to_owned()),
        }
    }

    fn check_unattended(&self, payload: &[u8]) -> Result<(), String> {
        let method = method_of(&Body::read(payload)?)?;
        match UNATTENDED.contains(&method) {
            true => Ok(()),
            false => Err(format!("a document may ask for {} only", UNATTENDED.join(" and "))),
        }
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        let method = method_of(&body)?;
        body.remove("method");
        body.set_text("channel", message.peer);
        if let Some(reply_to) = body.text("reply_to") {
            // Our own ids of Slack's messages are scoped by their channel.
            body.set_text("thread_ts", reply_to.rsplit(':').next().unwrap_or_default());
            body.remove("reply_to");
        }
        if method == DEFAULT_METHOD && !body.has("metadata") {
            body.set("metadata", format!(r#"{{"event_type":"{HANDLE}","event_payload":{{"id":"{}"}}}}"#, message.id));
        }
        let path = format!("/api/{method}");
        Ok(Call {
            method: Method::POST,
            path,
            headers: vec![json_content(), self.credentials.bearer()?],
            body: body.write().into(),
        })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let read = json::object::<SlackAnswer<'_>>(text).unwrap_or_default();
        if read.ok.0 && answer.status.is_success() {
            let made = read.channel.name().zip(read.ts.name()).map(|(channel, ts)| message_id(channel, ts));
            return Verdict::Sent { provider_id: made.unwrap_or_else(|| message.id.to_string()) };
        }
        let Some(error) = read.error.name() else {
            let why = format!("Slack answered {}", answer.status.as_u16());
            return match answer.status.is_success() {
                true => Verdict::Unknown { why: "Slack answered without saying what became of it".to_owned() },
                false => by_status(answer, why),
            };
        };
        let why = format!("Slack says: {}", self.credentials.fit_to_show(error));
        match error {
            _ if LATER.contains(&error) || answer.status == 429 => {
                Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: true }
            }
            _ if SHUT_OUT.contains(&error) => {
                Verdict::StopAccount { why: format!("{why}; is `token` right, and has it the scope?") }
            }
            _ if IN_DOUBT.contains(&error) || answer.status.is_server_error() => Verdict::Unknown { why },
            _ => Verdict::Failed { why },
        }
    }

    fn reconcile(&self) -> Reconcile {
        Reconcile::ByLookup
    }

    fn lookup(&self, message: &Outgoing<'_>) -> Option<Call> {
        let body = Body::read(message.payload).ok().filter(is_findable)?;
        let since_ms = message.begun_ms? - CLOCK_SLACK_MS;
        let channel = encoded(message.peer);
        let thread = body.text("thread_ts").or_else(|| body.text("reply_to"));
        // The history of a channel leaves out what was said in its threads.
        let of = match thread.as_deref().and_then(|thread| thread.rsplit(':').next()) {
            Some(thread) => format!("conversations.replies?channel={channel}&ts={}", encoded(thread)),
            None => format!("conversations.history?channel={channel}"),
        };
        let (oldest, headers) = (since_ms.div_euclid(1_000), vec![self.credentials.bearer().ok()?]);
        let path = format!("/api/{of}&oldest={oldest}&limit={LOOKUP_ROWS}&include_all_metadata=true");
        Some(Call { method: Method::GET, path, headers, body: Bytes::new().into() })
    }

    fn found(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Found {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let read = json::object::<History<'_>>(text).unwrap_or_default();
        let (true, List::Items(rows)) = (read.ok.0, &read.messages) else {
            let words = read.error.name().map_or_else(|| answer.status.as_u16().to_string(), str::to_owned);
            return Found::NoAnswer { why: format!("Slack's history says: {}", self.credentials.fit_to_show(&words)) };
        };
        let is_ours = |row: &Row<'_>| row.metadata.0.as_ref().and_then(Metadata::handle) == Some(message.id);
        let ours = rows.iter().filter_map(|row| row.0.as_ref()).find(|row| is_ours(row));
        match ours.and_then(|row| row.ts.name()) {
            Some(ts) => Found::OneOf { provider_ids: vec![message_id(message.peer, ts)] },
            None if read.has_more.0 => {
                Found::NoAnswer { why: "more was said there since than one page of history holds".to_owned() }
            }
            None => Found::Nothing,
        }
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        Body::read(payload).ok()?.text("text")
    }
}

fn method_of(body: &Body<'_>) -> Result<&'static str, String> {
    if !body.has("method") {
        return Ok(DEFAULT_METHOD);
    }
    let asked = body.text("method").unwrap_or_default();
    let known = METHODS.into_iter().find(|known| *known == asked);
    known.ok_or_else(|| format!("`method` is none of {}", METHODS.join(", ")))
}

/// Only a message of its own that carries our handle can be found.
fn is_findable(body: &Body<'_>) -> bool {
    method_of(body) == Ok(DEFAULT_METHOD) && !body.has("metadata")
}

fn is_conversation(peer: &str) -> bool {
    let plain = peer.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    plain && peer.len() >= 2 && peer.starts_with(['C', 'D', 'G', 'U', 'W'])
}

/// Slack warns about JSON that does not name its letters.
fn json_content() -> (HeaderName, HeaderValue) {
    (header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"))
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SlackAnswer<'a> {
    ok: Flag,
    error: Text<'a>,
    channel: Text<'a>,
    ts: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct History<'a> {
    ok: Flag,
    has_more: Flag,
    error: Text<'a>,
    messages: List<Object<Row<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Row<'a> {
    ts: Text<'a>,
    metadata: Object<Metadata<'a>>,
}
