//! Sending to any HTTP API that takes JSON: the message's id is the idempotency key, so a server that keeps to it never acts twice.

use hapax_domain::limits::NAME_MAX_BYTES;
use http::{HeaderName, HeaderValue, Method};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, check_text};
use super::credentials::{Credentials, json_content};
use super::{Call, CallAnswer, Outgoing, Sending, Verdict};
use crate::json;

static KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

pub(crate) struct Generic {
    credentials: Credentials,
}

impl Generic {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token) }
    }
}

impl Sending for Generic {
    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        if peer.is_empty() {
            return Err("`to` is empty; say whom it is for".to_owned());
        }
        match body.text("text") {
            Some(text) => check_text(&text, usize::MAX),
            None => Ok(()),
        }
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        let mut body = Body::read(message.payload)?;
        if !body.has("to") {
            body.set_text("to", message.peer);
        }
        let key = HeaderValue::from_str(&message.id.to_string()).map_err(|_| "the message's id is no header".to_owned())?;
        let mut headers = vec![json_content(), (KEY_HEADER.clone(), key)];
        headers.extend(self.credentials.basic_or_bearer()?);
        Ok(Call { method: Method::POST, path: String::new(), headers, body: body.write().into() })
    }

    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let status = answer.status.as_u16();
        if answer.status.is_success() {
            return Verdict::Sent { provider_id: id_in(&answer.body).unwrap_or_else(|| message.id.to_string()) };
        }
        let why = format!("the API answered {status}");
        match status {
            409 => Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: false },
            503 => Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: true },
            _ => by_status(answer, why),
        }
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        Body::read(payload).ok()?.text("text")
    }
}

#[derive(Deserialize)]
struct GenericAnswer<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

/// `id` of the answer, a text or a whole number.
fn id_in(body: &[u8]) -> Option<String> {
    let raw = json::object::<GenericAnswer<'_>>(std::str::from_utf8(body).ok()?).ok()?.id?;
    let number = raw.get().parse::<i64>().ok().map(|number| number.to_string());
    number.or_else(|| json::text(Some(raw))).filter(|id| !id.is_empty() && id.len() <= NAME_MAX_BYTES)
}
