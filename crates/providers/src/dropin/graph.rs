//! The WhatsApp Cloud API as a bot calls it: `/v{N}.{M}/{phone_number_id}/messages`, everything that is sent at one address.

use http::{Method, StatusCode};
use secrecy::SecretString;
use serde_json::json;

use super::multipart;
use super::parameters::{Parameters, Unreadable};
use super::written::{self, Way, Written, segments, spelt};
use super::{DropIn, Effect, Forward, Head, Refusal, Reply, Routed, Settled, Upload, What, Whole};
use crate::json as raw_json;
use crate::sending::whatsapp::{ENDPOINT_MEMBER, ENDPOINTS, VERSION_MEMBER, Whatsapp, is_version};
use crate::sending::{Credentials, KeptBody, Sending};
use crate::whatsapp::handle;

/// Where a token may stand beside the header.
const IN_QUERY: [&str; 1] = ["access_token"];
const OWN_WORDS: [&str; 5] = ["method", "reply_to", VERSION_MEMBER, ENDPOINT_MEMBER, KeptBody::MEMBER];
/// Words from the bot to itself, which Meta brings back with statuses.
const UNCOUNTED: [&str; 1] = [handle::MEMBER];
/// At the root of a version Meta takes batches, which may hold anything.
const BATCH: &str = "batches are not taken apart here; send each call by itself";
const NO_RECIPIENT: &str = "The parameter to is required.";

pub(crate) struct Graph {
    credentials: Credentials,
    sending: Whatsapp,
}

impl Graph {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self { credentials: Credentials::new(token), sending: Whatsapp::new(token) }
    }

    fn peer(&self, parameters: &Parameters) -> Option<String> {
        let written = ["to", "recipient"].into_iter().find_map(|name| parameters.said(name));
        written.map(|written| self.sending.peer(written))
    }

    fn read(&self, routed: &Routed, parameters: Result<Parameters, Unreadable>) -> Result<Effect, Refusal> {
        let aside = routed.aside.as_deref().and_then(|aside| aside.split_once('/'));
        let (What::Effect { method }, Some((version, endpoint))) = (&routed.what, aside) else { return Err(Refusal::NotFound) };
        let parameters = parameters.map_err(|why| Refusal::Unreadable(why.to_owned()))?;
        let peer = self.peer(&parameters).ok_or_else(|| Refusal::Unreadable(NO_RECIPIENT.to_owned()))?;
        if parameters.said(handle::MEMBER).is_some_and(|own| own.chars().count() > handle::OWN_MAX_CHARS) {
            let most = handle::OWN_MAX_CHARS;
            let words = format!("{} may have {most} characters: hapax needs the others itself", handle::MEMBER);
            return Err(Refusal::Unreadable(words));
        }
        let besides = [(VERSION_MEMBER, version), (ENDPOINT_MEMBER, endpoint)];
        let way = Way { method, says_method: false, own_words: &OWN_WORDS, texts: &[], uncounted: &UNCOUNTED, besides: &besides };
        let mut effect = Written::taken(parameters).effect(&way, routed.account.clone(), peer)?;
        effect.text = self.sending.text(&effect.payload);
        Ok(effect)
    }
}

impl DropIn for Graph {
    fn route(&self, head: &Head<'_>) -> Option<Routed> {
        let segments = segments(head.path)?;
        let is_number = |segment: &str| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
        let (version, rest) = match segments.split_first()? {
            (version, rest) if is_version(version) => (version.as_str(), rest),
            (first, _) if is_number(first) => ("", &segments[..]),
            _ => return None,
        };
        let in_query = crate::form::value_of(head.query.unwrap_or_default(), IN_QUERY[0]);
        let token = written::authorization(head.headers).or_else(|| in_query.map(|token| SecretString::from(token.as_ref())));
        // Meta lets the method be overruled by a parameter.
        let overruled = crate::form::value_of(head.query.unwrap_or_default(), "method");
        let is_post = overruled.map_or(head.method == Method::POST, |method| method.eq_ignore_ascii_case("post"));
        let endpoint = rest.get(1).filter(|_| is_post && rest.len() == 2).and_then(|endpoint| spelt(endpoint, &ENDPOINTS));
        let (account, what, aside) = match (rest, endpoint) {
            ([account, _], Some(endpoint)) if is_number(account) => {
                (Some(account.clone()), What::ByBody, Some(format!("{version}/{endpoint}")))
            }
            ([account, ..], _) if is_number(account) => (Some(account.clone()), What::Through, None),
            ([], _) => (None, What::Refused { why: BATCH }, None),
            _ => (None, What::Through, None),
        };
        Some(Routed { token, account, what, aside })
    }

    fn by_body(&self, _routed: &Routed, query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> What {
        let Ok(parameters) = parameters(query, content_type, body) else {
            return What::Effect { method: "messages".to_owned() };
        };
        match parameters.said("type") {
            // A read receipt, with or without a typing notice: nobody is told anything twice by it.
            None if parameters.said("status").is_some() => What::Through,
            Some("reaction") => What::Repeatable,
            // All are sent by one method of Meta's; what they are is what a later run repeats.
            Some(sort) => What::Effect { method: sort.to_owned() },
            None => What::Effect { method: "text".to_owned() },
        }
    }

    fn effect(&self, routed: &Routed, query: Option<&str>, whole: &Whole<'_>) -> Result<Effect, Reply> {
        let effect = self.read(routed, parameters(query, whole.content_type, whole.body));
        effect.map_err(|refusal| self.reply(&refusal))
    }

    fn effect_with_files(&self, routed: &Routed, query: Option<&str>, upload: &Upload<'_>) -> Result<Effect, Reply> {
        let mut parameters = in_query(query);
        // Meta takes files at an address of their own.
        let read = parameters.as_mut().map_err(|why| *why).and_then(|parameters| parameters.add_fields(upload.parts));
        let parameters = read.and(parameters).map(|mut parameters| {
            parameters.read_json_in_texts();
            parameters
        });
        self.read(routed, parameters).map_err(|refusal| self.reply(&refusal))
    }

    fn peer_of(&self, _routed: &Routed, query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String> {
        self.peer(&parameters(query, content_type, body).ok()?)
    }

    fn reply(&self, refusal: &Refusal) -> Reply {
        let (status, code, words) = match refusal {
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, 190, "Invalid OAuth access token.".to_owned()),
            Refusal::NotFound => (StatusCode::NOT_FOUND, 2500, "Unknown path components".to_owned()),
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, 100, "(#100) The request is too large".to_owned()),
            Refusal::Unreadable(why) | Refusal::Refused(why) => (StatusCode::BAD_REQUEST, 100, format!("(#100) {why}")),
            Refusal::SlowDown { .. } => (StatusCode::TOO_MANY_REQUESTS, 130_429, "(#130429) Rate limit hit".to_owned()),
            Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, 2, "Service temporarily unavailable".to_owned()),
        };
        let mut error = json!({ "message": words, "type": "OAuthException", "code": code, "fbtrace_id": "hapax" });
        let mut retry_after_s = None;
        match refusal {
            Refusal::SlowDown { seconds } => {
                let seconds = (*seconds).max(1);
                retry_after_s = Some(seconds);
                let details = format!("The message is queued or must wait; ask again in {seconds} seconds");
                error["error_data"] = json!({ "messaging_product": "whatsapp", "details": details });
            }
            Refusal::Unavailable => error["is_transient"] = json!(true),
            _ => {}
        }
        Reply { retry_after_s, ..Reply::json(status, json!({ "error": error }).to_string()) }
    }

    fn stand_in(&self, settled: &Settled<'_>) -> Reply {
        let payload = std::str::from_utf8(settled.payload).unwrap_or_default();
        let written = ["to", "recipient"].into_iter().find_map(|name| raw_json::text(raw_json::member(payload, name)));
        let body = json!({
            "messaging_product": "whatsapp",
            "contacts": [{ "input": written.unwrap_or_else(|| settled.peer.to_owned()), "wa_id": settled.peer }],
            "messages": [{ "id": settled.provider_id }],
        });
        Reply::json(StatusCode::OK, body.to_string())
    }

    fn forward(&self, head: &Head<'_>) -> Result<Forward, String> {
        self.route(head).ok_or("this is no path of Meta's")?;
        let (name, value) = self.credentials.bearer()?;
        written::forward(head, (name, Some(value)), &IN_QUERY)
    }
}

/// Meta takes parameters of the query like those of the body.
fn in_query(query: Option<&str>) -> Result<Parameters, Unreadable> {
    let mut parameters = Parameters::default();
    let query = written::query_without(query, &["access_token", "method"]).unwrap_or_default();
    parameters.add_form(query.as_bytes())?;
    Ok(parameters)
}

fn parameters(query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Result<Parameters, Unreadable> {
    let mut parameters = in_query(query)?;
    if written::is_json(content_type, body) {
        parameters.add_json(body)?;
        parameters.keep_last();
        return Ok(parameters);
    }
    match content_type {
        Some(sort) if multipart::is_multipart(content_type) => {
            parameters.add_fields(&multipart::read_whole(sort, body).map_err(|_| "The body cannot be read in parts")?)?;
        }
        _ => parameters.add_form(body)?,
    }
    parameters.read_json_in_texts();
    Ok(parameters)
}
