//! WAHA as a bot calls it: `/api/send…`, the session in the body, the key in a header.

use http::{HeaderName, Method, StatusCode};
use secrecy::SecretString;
use serde_json::json;

use super::parameters::{Parameters, Unreadable};
use super::written::{self, Way, Written, header_text, segments, spelt};
use super::{DropIn, Effect, Forward, Head, Refusal, Reply, Routed, Settled, Upload, What, Whole};
use crate::hmac::sensitive;
use crate::json as raw_json;
use crate::sending::waha::Waha as WahaSending;
use crate::sending::{Credentials, KeptBody, Sending};

static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const IN_QUERY: [&str; 1] = ["x-api-key"];

/// What follows `/api/`.
const SENDS: [&str; 15] = [
    "sendText",
    "sendImage",
    "sendFile",
    "sendVoice",
    "sendVideo",
    "sendPoll",
    "sendLocation",
    "sendContactVcard",
    "sendList",
    "sendButtons",
    "sendLinkPreview",
    "send/link-custom-preview",
    "send/buttons/reply",
    "reply",
    "forwardMessage",
];
/// What follows `/api/{session}/`. A status is for all who follow: nobody is named.
const OF_SESSION: [&str; 5] = ["events", "status/text", "status/image", "status/voice", "status/video"];
const STATUS: &str = "status/";
const STATUS_PEER: &str = "status@broadcast";
/// Done to a message that is there. A second vote takes the place of the first.
const REPEATABLE: [&str; 3] = ["reaction", "star", "sendPollVote"];
/// `phone` is how the old `GET /api/sendText` calls the chat.
const OWN_WORDS: [&str; 3] = ["method", "phone", KeptBody::MEMBER];
const TEXTS: [&str; 2] = ["text", "caption"];
/// The caller's choice of a name for the message is no part of what it says.
const UNCOUNTED: [&str; 1] = ["id"];
/// WAHA's own name for a session that has none.
const DEFAULT_SESSION: &str = "default";

pub(crate) struct Waha {
    credentials: Credentials,
    sending: WahaSending,
}

impl Waha {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token), sending: WahaSending::new(token) }
    }

    fn peer(&self, parameters: &Parameters) -> Option<String> {
        let written = ["chatId", "phone"].into_iter().find_map(|name| parameters.said(name));
        written.map(|written| self.sending.peer(written))
    }

    fn read(&self, routed: &Routed, written: Result<Written<'_>, Unreadable>) -> Result<Effect, Reply> {
        let read = || {
            let What::Effect { method } = &routed.what else { return Err(Refusal::NotFound) };
            let written = written.map_err(|why| Refusal::Unreadable(why.to_owned()))?;
            let peer = match self.peer(&written.parameters) {
                _ if method.starts_with(STATUS) => STATUS_PEER.to_owned(),
                Some(peer) => peer,
                None => return Err(Refusal::Unreadable("chatId should not be empty".to_owned())),
            };
            let session = routed.account.as_deref().or_else(|| written.parameters.said("session"));
            let session = session.unwrap_or(DEFAULT_SESSION).to_owned();
            let way =
                Way { method, says_method: true, own_words: &OWN_WORDS, texts: &TEXTS, uncounted: &UNCOUNTED, besides: &[] };
            written.effect(&way, Some(session), peer)
        };
        read().map_err(|refusal| self.reply(&refusal))
    }
}

impl DropIn for Waha {
    fn route(&self, head: &Head<'_>) -> Option<Routed> {
        let segments = segments(head.path)?;
        let (api, rest) = segments.split_first().map_or(("", &[][..]), |(api, rest)| (api.as_str(), rest));
        let path = rest.join("/");
        let of_session = rest.split_first().map(|(session, rest)| (session, rest.join("/")));
        let is_post = head.method == Method::POST;
        // Express answers HEAD by doing what it does for GET.
        let is_get = matches!(*head.method, Method::GET | Method::HEAD);
        let is_api = api.eq_ignore_ascii_case("api");
        let send = spelt(&path, &SENDS).filter(|_| is_post);
        // Sends by a mere GET, out of the query.
        let send = send.or_else(|| spelt(&path, &["sendText"]).filter(|_| is_get));
        let send_of = |rest: &str| spelt(rest, &OF_SESSION).filter(|_| is_post);
        let effect = |method: &str| What::Effect { method: method.to_owned() };
        let (account, what) = match (send, of_session.and_then(|(session, rest)| Some((session, send_of(&rest)?)))) {
            _ if !is_api => (None, What::Through),
            (Some(method), _) => (None, effect(method)),
            _ if spelt(&path, &REPEATABLE).is_some() => (None, What::Repeatable),
            (None, Some((session, method))) => (Some(session.clone()), effect(method)),
            (None, None) => (None, What::Through),
        };
        // Edited, deleted, pinned: in a chat that the path names.
        let (account, what, aside) = match rest {
            [session, chats, chat, messages, _, action @ ..]
                if is_api
                    && chats.eq_ignore_ascii_case("chats")
                    && messages.eq_ignore_ascii_case("messages")
                    && changes(head.method, action) =>
            {
                (Some(session.clone()), What::Repeatable, Some(chat.clone()))
            }
            _ => (account, what, None),
        };
        let in_query = || crate::form::value_of(head.query.unwrap_or_default(), IN_QUERY[0]).map(|key| key.into_owned());
        let token = header_text(head.headers, &API_KEY).map(str::to_owned).or_else(in_query).map(SecretString::from);
        Some(Routed { token, account, what, aside })
    }

    fn effect(&self, routed: &Routed, query: Option<&str>, whole: &Whole<'_>) -> Result<Effect, Reply> {
        if let Some(parts) = super::parts_of(whole) {
            let parts = parts.map_err(|refusal| self.reply(&refusal))?;
            return self.effect_with_files(routed, query, &whole.upload(&parts));
        }
        let query = written::query_without(query, &IN_QUERY);
        let written = match whole.body.is_empty() {
            true => in_query(query.as_deref()).map(Written::taken),
            false => Written::whole(query.as_deref(), whole),
        };
        self.read(routed, written)
    }

    fn effect_with_files(&self, routed: &Routed, query: Option<&str>, upload: &Upload<'_>) -> Result<Effect, Reply> {
        self.read(routed, Written::parts(written::query_without(query, &IN_QUERY).as_deref(), upload))
    }

    /// Reactions name the message, whose id begins with whose it is and the chat.
    fn peer_of(&self, routed: &Routed, _query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String> {
        if let Some(chat) = &routed.aside {
            return Some(self.sending.peer(chat));
        }
        let parameters = Written::whole(None, &Whole { content_type, body, name: "" }).ok()?.parameters;
        let in_id = || parameters.get("messageId")?.split('_').nth(1).map(|chat| self.sending.peer(chat));
        self.peer(&parameters).or_else(in_id)
    }

    fn reply(&self, refusal: &Refusal) -> Reply {
        let (status, words) = refusal.as_node_says_it();
        let error = status.canonical_reason();
        let body = json!({ "statusCode": status.as_u16(), "message": words, "error": error });
        Reply { retry_after_s: refusal.retry_after_s(), ..Reply::json(status, body.to_string()) }
    }

    fn stand_in(&self, settled: &Settled<'_>) -> Reply {
        let payload = std::str::from_utf8(settled.payload).unwrap_or_default();
        let text = TEXTS.iter().find_map(|name| raw_json::text(raw_json::member(payload, name)));
        let body = json!({
            "id": format!("true_{}_{}", settled.peer, settled.provider_id),
            "timestamp": settled.at_ms.div_euclid(1_000),
            "fromMe": true,
            "to": settled.peer,
            "body": text.unwrap_or_default(),
            "hasMedia": false,
            "ack": 1,
        });
        Reply::json(StatusCode::CREATED, body.to_string())
    }

    fn forward(&self, head: &Head<'_>) -> Result<Forward, String> {
        let key = match self.credentials.token() {
            Ok(key) => Some(sensitive(key).ok_or("the channel's `token` cannot stand in a header")?),
            // A WAHA without a key is open to all, and some are.
            Err(_) => None,
        };
        written::forward(head, (API_KEY.clone(), key), &IN_QUERY)
    }
}

/// What is done to the message at the end of a path.
fn changes(method: &Method, action: &[String]) -> bool {
    match action {
        [] => matches!(*method, Method::PUT | Method::DELETE),
        [action] => *method == Method::POST && spelt(action, &["pin", "unpin"]).is_some(),
        _ => false,
    }
}

fn in_query(query: Option<&str>) -> Result<Parameters, Unreadable> {
    let mut parameters = Parameters::default();
    parameters.add_form(query.unwrap_or_default().as_bytes())?;
    Ok(parameters)
}
