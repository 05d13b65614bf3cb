//! Sending through Twilio's Messages API: a form goes out, and its statuses come to an address that names our message.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{by_status, retry_after_ms};
use super::body::{Body, check_text, encoded, segment};
use super::credentials::Credentials;
use super::{Call, CallAnswer, Outgoing, Reconcile, Sending, Verdict};
use crate::json;
use crate::lenient::{Integer, Text};
use crate::twilio::{HANDLE, SENT_BY, is_account};

/// Twilio refuses longer texts.
const TEXT_MAX_CHARS: usize = 1_600;
/// Too many requests of the account.
const TOO_MANY: i64 = 20429;
/// A number's rate, a number's queue.
const TOO_FAST: [i64; 2] = [14107, 21611];
/// Credentials, or an account that is suspended or not there.
const SHUT_OUT: [i64; 3] = [20003, 20005, 20008];

pub(crate) struct Twilio {
    credentials: Credentials,
    /// `None` where the token is unusable; `call` says so.
    login: Option<Login>,
    public_url: String,
}

/// What `token` says: `AC…:auth token`, or `AC…:SK…:secret of that key`.
struct Login {
    account: String,
    user_and_password: SecretString,
}

impl Login {
    fn read(token: &str) -> Option<Self> {
        let (account, rest) = token.split_once(':')?;
        let user_and_password = if rest.contains(':') { rest.to_owned() } else { token.to_owned() };
        let fits = is_account(account) && !rest.is_empty();
        fits.then(|| Self { account: account.to_owned(), user_and_password: SecretString::from(user_and_password) })
    }
}

/// Tells a token that can be used from one that cannot.
pub fn is_login(token: &str) -> bool {
    Login::read(token).is_some()
}

impl Twilio {
    pub(crate) fn new(token: Option<&SecretString>, public_url: &str) -> Self {
        let credentials = Credentials::new(token);
        let login = credentials.token().ok().and_then(Login::read);
        Self { credentials, login, public_url: public_url.to_owned() }
    }
}

impl Sending for Twilio {
    /// Twilio's webhooks write numbers with a plus and nothing between the digits.
    fn peer(&self, to: &str) -> String {
        let (channel, number) = to.split_once(':').map_or(("", to), |(channel, number)| (channel, number));
        let plain: String = number.chars().filter(|c| !matches!(c, ' ' | '-' | '(' | ')' | '.')).collect();
        let digits = plain.strip_prefix('+').unwrap_or(&plain);
        match is_number(digits) {
            true if channel.is_empty() => format!("+{digits}"),
            true => format!("{channel}:+{digits}"),
            false => to.to_owned(),
        }
    }

    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String> {
        let body = Body::read(payload)?;
        let number = peer.split_once(':').map_or(peer, |(_, address)| address);
        let is_named = peer.contains(':') && !number.is_empty();
        if !number.strip_prefix('+').is_some_and(is_number) && !is_named {
            return Err("this is no number; write it with its country code, +15550001111, or whatsapp:+15550001111".to_owned());
        }
        match wording(&body) {
            Some(text) => check_text(&text, TEXT_MAX_CHARS),
            None if ["MediaUrl", "ContentSid"].iter().any(|member| body.has(member)) => Ok(()),
            None => Err("neither `text` nor `MediaUrl` nor `ContentSid`; write {\"text\": \"..\"}".to_owned()),
        }
    }

    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String> {
        use base64::Engine;
        use secrecy::ExposeSecret;
        self.credentials.token()?;
        let login = self.login.as_ref().ok_or("`token` is no Twilio login; write \"AC..:AUTH_TOKEN\"")?;
        let basic = base64::engine::general_purpose::STANDARD.encode(login.user_and_password.expose_secret());
        let authorization = crate::hmac::sensitive(&format!("Basic {basic}")).ok_or("`token` cannot stand in a header")?;
        let form = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let headers: Vec<(HeaderName, HeaderValue)> = vec![form, (header::AUTHORIZATION, authorization)];
        let path = format!("/2010-04-01/Accounts/{}/Messages.json", segment("the account", &login.account)?);
        Ok(Call { method: Method::POST, path, headers, body: self.form(message)?.into() })
    }

    fn classify(&self, _message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        let read = json::object::<TwilioAnswer<'_>>(text).unwrap_or_default();
        if answer.status.is_success() {
            return match read.sid.name() {
                Some(sid) => Verdict::Sent { provider_id: sid.to_owned() },
                None => Verdict::Unknown { why: "Twilio took it without giving it an id".to_owned() },
            };
        }
        let Some(code) = read.code.0 else {
            return by_status(answer, format!("Twilio answered {}", answer.status.as_u16()));
        };
        let words = self.credentials.fit_to_show(read.message.get().unwrap_or_default());
        let why = format!("Twilio says {code}: {words}");
        match code {
            _ if answer.status.is_server_error() => Verdict::Unknown { why },
            _ if SHUT_OUT.contains(&code) => Verdict::StopAccount { why: format!("{why}; is `token` right?") },
            TOO_MANY => Verdict::Retry { why, after_ms: retry_after_ms(answer), whole_account: true },
            _ if TOO_FAST.contains(&code) => Verdict::SlowDown { why, after_ms: retry_after_ms(answer) },
            _ => by_status(answer, why),
        }
    }

    /// The statuses come back to an address with our handle in it, unless the message names another.
    fn reconcile(&self) -> Reconcile {
        Reconcile::ByWebhook
    }

    fn text(&self, payload: &[u8]) -> Option<String> {
        wording(&Body::read(payload).ok()?)
    }
}

impl Twilio {
    fn form(&self, message: &Outgoing<'_>) -> Result<Bytes, String> {
        let body = Body::read(message.payload)?;
        let mut fields = vec![("To".to_owned(), message.peer.to_owned())];
        if !body.has("From") && !body.has("MessagingServiceSid") {
            let sender = if is_service(message.account) { "MessagingServiceSid" } else { "From" };
            fields.push((sender.to_owned(), message.account.to_owned()));
        }
        if !body.has("StatusCallback") {
            let by = is_service(message.account).then(|| format!("&{SENT_BY}={}", encoded(message.account)));
            let url = format!("{}?{HANDLE}={}{}", self.public_url, message.id, by.unwrap_or_default());
            fields.push(("StatusCallback".to_owned(), url));
        }
        for (name, raw) in body.members() {
            let name = if name == "text" && !body.has("Body") { "Body" } else { name };
            if name == "To" || name == "text" || raw == "null" {
                continue;
            }
            fields.extend(values(raw).into_iter().map(|value| (name.to_owned(), value)));
        }
        let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        Ok(Bytes::from(pairs.join("&")))
    }
}

/// A list is a field several times (`MediaUrl`); an object is its own JSON (`ContentVariables`).
fn values(raw: &str) -> Vec<String> {
    let one = |raw: &str| serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned());
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::Array(_)) => json::items(raw).unwrap_or_default().into_iter().map(|item| one(item.get())).collect(),
        _ => vec![one(raw)],
    }
}

fn wording(body: &Body<'_>) -> Option<String> {
    body.text("Body").or_else(|| body.text("text"))
}

/// A messaging service picks one of its numbers for each message.
fn is_service(account: &str) -> bool {
    account.starts_with("MG")
}

fn is_number(digits: &str) -> bool {
    (3..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TwilioAnswer<'a> {
    sid: Text<'a>,
    code: Integer,
    message: Text<'a>,
}
