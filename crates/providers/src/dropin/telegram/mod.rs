//! Telegram's Bot API as a bot calls it: `/bot{token}/{method}`, parameters anywhere, files in parts.
//!
//! Telegram's own server makes one list of parameters of query and body and takes the first of a name; a JSON text is worth the same as the
//! text of a form field, any other JSON value as much as its own letters. So a payload of texts asks for what the bot asked for.

use std::borrow::Cow;

use bytes::Bytes;
use hapax_domain::limits::MESSAGE_MAX_BYTES;
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

mod methods;
mod webhook;

pub(crate) use methods::{Target, target_of};
pub use webhook::{UpdatesAsked, WebhookInfo, done, renumbered, update_of, updates, updates_asked, webhook_info, webhook_url};

use super::multipart::{self, FilePart};
use super::parameters::{Content, Parameters, payload};
use super::{DropIn, Effect, Forward, Head, Refusal, Reply, Routed, Settled, Upload, What, Whole};
use crate::form::percent_decoded;
use crate::sending::{KeptBody, percent_encoded};

/// Parameters whose text people read as it is.
const FREE_TEXT: [&str; 13] = [
    "text",
    "caption",
    "question",
    "explanation",
    "title",
    "description",
    "payload",
    "address",
    "first_name",
    "last_name",
    "name",
    "vcard",
    "provider_data",
];

/// Members of a payload that are hapax's own words. Telegram knows no such parameters and would pass over them.
const OWN_WORDS: [&str; 3] = ["method", "reply_to", KeptBody::MEMBER];

pub(crate) struct Telegram {
    token: Option<SecretString>,
    bot: String,
}

impl Telegram {
    pub(crate) fn new(bot: &str, token: Option<&SecretString>) -> Self {
        Self { token: token.cloned(), bot: bot.to_owned() }
    }

    fn read(&self, routed: &Routed, read: Read<'_>) -> Result<Effect, Refusal> {
        let What::Effect { method } = &routed.what else { return Err(Refusal::NotFound) };
        let parameters = &read.parameters;
        let peer = peer(method, parameters)?;
        super::check_peer(&peer)?;
        let text = ["text", "caption"].into_iter().find_map(|name| parameters.get(name));
        let members = parameters.first_of_each(&OWN_WORDS);
        let content = Content { method, free_text: &FREE_TEXT, files: read.files }.hash(&members);
        let own = |name, text: &str| (name, Cow::Owned(json!(text).to_string().into_bytes()));
        let payload = match &read.kept {
            Some(kept) => payload(
                [own("method", method), (KeptBody::MEMBER, Cow::Owned(kept.json()))]
                    .into_iter()
                    // For those who look at the message.
                    .chain(text.map(|text| own("caption", text))),
            ),
            None => payload([own("method", method)].into_iter().chain(members.iter().map(|(name, value)| (*name, value.json())))),
        };
        if payload.len() > MESSAGE_MAX_BYTES {
            return Err(Refusal::TooLarge);
        }
        Ok(Effect {
            account: Some(self.bot.clone()),
            peer,
            method: method.clone(),
            payload,
            text: text.map(str::to_owned),
            content,
            keeps_body: read.kept.is_some(),
        })
    }
}

/// A call taken apart.
struct Read<'r> {
    parameters: Parameters,
    files: &'r [FilePart],
    kept: Option<KeptBody>,
}

impl DropIn for Telegram {
    fn route(&self, head: &Head<'_>) -> Option<Routed> {
        let account = Some(self.bot.clone());
        let Some(place) = Place::find(head.path) else {
            // A token may stand in it all the same: nobody is told more than that it leads nowhere.
            let what = What::Refused { why: "there is no such method" };
            return has_token(head.path).then_some(Routed { token: None, account, what, aside: None });
        };
        let method = match place.method.as_deref() {
            // Telegram then looks for it among the parameters. In the body we do not look: nothing is read before the token is known.
            Some("") => crate::form::value_of(head.query.unwrap_or_default(), "method").unwrap_or_default().into_owned(),
            method => method.unwrap_or_default().to_owned(),
        };
        let what = match place.method {
            None => What::Through,
            Some(_) if method.is_empty() => What::Refused { why: "the method is missing" },
            Some(_) => methods::what_of(&method),
        };
        let what = match what {
            refused @ What::Refused { .. } => refused,
            _ if place.is_test => What::Through,
            what => what,
        };
        Some(Routed { token: Some(SecretString::from(place.token)), account, what, aside: None })
    }

    fn effect(&self, routed: &Routed, query: Option<&str>, whole: &Whole<'_>) -> Result<Effect, Reply> {
        if let Some(parts) = crate::dropin::parts_of(whole) {
            let parts = parts.map_err(|refusal| self.reply(&refusal))?;
            return self.effect_with_files(routed, query, &whole.upload(&parts));
        }
        let read = parameters(query, whole.content_type, whole.body).map_err(unreadable);
        let effect = read.and_then(|parameters| self.read(routed, Read { parameters, files: &[], kept: None }));
        effect.map_err(|refusal| self.reply(&refusal))
    }

    fn effect_with_files(&self, routed: &Routed, query: Option<&str>, upload: &Upload<'_>) -> Result<Effect, Reply> {
        let mut parameters = Parameters::default();
        let read = parameters.add_form(query.unwrap_or_default().as_bytes()).and_then(|()| parameters.add_fields(upload.parts));
        let kept = (!upload.parts.files.is_empty()).then(|| KeptBody::new(upload, query));
        let effect =
            read.map_err(unreadable).and_then(|()| self.read(routed, Read { parameters, files: &upload.parts.files, kept }));
        effect.map_err(|refusal| self.reply(&refusal))
    }

    fn peer_of(&self, _routed: &Routed, query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String> {
        let parameters = parameters(query, content_type, body).ok()?;
        chat(parameters.get("chat_id").or_else(|| parameters.get("user_id"))?)
    }

    fn reply(&self, refusal: &Refusal) -> Reply {
        let (status, words) = match refusal {
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()),
            Refusal::NotFound => (StatusCode::NOT_FOUND, "Not Found".to_owned()),
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large".to_owned()),
            Refusal::Unreadable(why) | Refusal::Refused(why) => (StatusCode::BAD_REQUEST, format!("Bad Request: {why}")),
            Refusal::SlowDown { seconds } => return slow_down((*seconds).max(1)),
            Refusal::Unavailable => (StatusCode::BAD_GATEWAY, "Bad Gateway".to_owned()),
        };
        let body = json!({ "ok": false, "error_code": status.as_u16(), "description": words });
        Reply::json(status, body.to_string())
    }

    fn stand_in(&self, settled: &Settled<'_>) -> Reply {
        webhook::stand_in(settled)
    }

    fn forward(&self, head: &Head<'_>) -> Result<Forward, String> {
        let token = self.token.as_ref().ok_or("the channel has no `token`; add it to its config")?;
        let place = Place::find(head.path).ok_or("this is no path of Telegram's")?;
        // The colon stays: tokens are written `123:abc`, and some servers match them undecoded.
        let token = percent_encoded(token.expose_secret()).replace("%3A", ":");
        let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("{}{token}{}{query}", place.before, place.behind);
        Ok(Forward { path, headers: Vec::new(), without: Vec::new() })
    }
}

/// The parts of a path.
struct Place<'p> {
    before: &'static str,
    token: String,
    /// As it came, from the slash on.
    behind: &'p str,
    /// `None` for files.
    method: Option<String>,
    /// `/bot{token}/test/{method}`: Telegram's test environment, where nobody needs to be spared a copy.
    is_test: bool,
}

impl<'p> Place<'p> {
    fn find(path: &'p str) -> Option<Self> {
        let path = super::plain_path(path)?;
        let (before, rest) = match path.strip_prefix("/file/bot") {
            Some(rest) => ("/file/bot", rest),
            None => ("/bot", path.strip_prefix("/bot")?),
        };
        let slash = rest.find('/')?;
        let (token, behind) = rest.split_at(slash);
        // A slash in disguise would end the token for Telegram, and not for us.
        let token = percent_decoded(token).filter(|token| !token.contains('/'))?;
        if before == "/file/bot" {
            return Some(Self { before, token, behind, method: None, is_test: false });
        }
        // A slash too many, which a proxy may well take out on the way, leads to the same method.
        let whole = percent_decoded(behind)?;
        let whole = whole.trim_matches('/');
        let (is_test, method) = match whole.strip_prefix("test/") {
            Some(method) => (true, method.trim_start_matches('/').to_owned()),
            None => (false, whole.to_owned()),
        };
        Some(Self { before, token, behind, method: Some(method), is_test })
    }
}

/// Paths in which Telegram's tokens stand, however they go on.
fn has_token(path: &str) -> bool {
    let begins =
        |with: &str| path.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with)) && path.len() > with.len();
    begins("/bot") || begins("/file/bot")
}

/// All parameters, by the content types that Telegram's server knows; a body of another one counts for nothing there.
fn parameters(query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Result<Parameters, &'static str> {
    let mut parameters = Parameters::default();
    parameters.add_form(query.unwrap_or_default().as_bytes())?;
    let sort = content_type.unwrap_or_default().to_ascii_lowercase();
    if sort.contains("multipart/form-data") {
        let parts = multipart::read_whole(content_type.unwrap_or_default(), body);
        parameters.add_fields(&parts.map_err(|_| "can't parse multipart/form-data")?)?;
    } else if sort.contains("application/x-www-form-urlencoded") {
        parameters.add_form(body)?;
    } else if sort.contains("application/json") {
        parameters.add_json(body)?;
    }
    Ok(parameters)
}

fn unreadable(why: &'static str) -> Refusal {
    Refusal::Unreadable(why.to_owned())
}

fn peer(method: &str, parameters: &Parameters) -> Result<String, Refusal> {
    let get = |name| parameters.get(name).filter(|value| !value.is_empty());
    let (found, missing) = match target_of(method) {
        Target::Chat => (get("chat_id"), "chat_id is empty"),
        Target::ChatOrUser => (get("chat_id").or_else(|| get("user_id")), "chat_id is empty"),
        Target::User => (get("user_id"), "user_id is empty"),
        Target::Business => {
            let account = get("business_connection_id").map(str::to_owned);
            return account.ok_or_else(|| unreadable("business_connection_id is empty"));
        }
    };
    chat(found.ok_or_else(|| unreadable(missing))?).ok_or_else(|| unreadable("chat not found"))
}

/// The chat as webhooks call it. Telegram's server reads a number up to its first letter.
fn chat(written: &str) -> Option<String> {
    if written.starts_with('@') {
        return crate::sending::telegram::is_chat(written).then(|| written.to_owned());
    }
    let sign = usize::from(written.starts_with('-'));
    let digits = written[sign..].bytes().take_while(u8::is_ascii_digit).count();
    written[..sign + digits].parse::<i64>().ok().filter(|chat| *chat != 0).map(|chat| chat.to_string())
}

fn slow_down(seconds: u64) -> Reply {
    let body = json!({
        "ok": false,
        "error_code": 429,
        "description": format!("Too Many Requests: retry after {seconds}"),
        "parameters": { "retry_after": seconds },
    });
    Reply { retry_after_s: Some(seconds), ..Reply::json(StatusCode::TOO_MANY_REQUESTS, Bytes::from(body.to_string())) }
}
