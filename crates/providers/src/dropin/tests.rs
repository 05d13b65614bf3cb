use std::sync::Arc;

use http::{HeaderMap, Method};
use secrecy::{ExposeSecret, SecretString};

use super::*;
use crate::build_dropin;
use crate::sending::{Call, CallBody, Outgoing};
use crate::settings::{EvolutionProof, Settings};

mod any_input;
mod content;
mod gateways;
mod graph;
mod multipart;
mod recorded;
mod telegram;

const TOKEN: &str = "123:channel";

fn telegram() -> (Arc<dyn DropIn>, Settings) {
    channel("telegram")
}

/// A channel of the provider, and the settings it was made from.
fn channel(provider: &str) -> (Arc<dyn DropIn>, Settings) {
    let secrets = vec![];
    let settings = match provider {
        "whatsapp" => Settings::Whatsapp { secrets, verify_token: None },
        "gowa" => Settings::Gowa { secrets },
        "evolution" => Settings::Evolution { proof: EvolutionProof::Jwt { secrets }, token: None },
        "waha" => Settings::Waha { secrets },
        _ => Settings::Telegram { secrets, bot: "shop".to_owned() },
    };
    (build_dropin(&settings, Some(&SecretString::from(TOKEN))).expect("it drops in"), settings)
}

fn route_with(dropin: &dyn DropIn, method: &Method, target: &str, headers: &[(&'static str, &str)]) -> Option<Routed> {
    let headers =
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value")));
    let headers: HeaderMap = headers.collect();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    dropin.route(&Head { method, path, query, headers: &headers })
}

fn route(dropin: &dyn DropIn, target: &str) -> Option<Routed> {
    route_with(dropin, &Method::POST, target, &[])
}

/// Routes and reads an effect without files.
fn effect(dropin: &dyn DropIn, target: &str, content_type: Option<&str>, body: &[u8]) -> Result<Effect, Reply> {
    let mut routed = route(dropin, target).expect("a path of the provider's");
    let query = target.split_once('?').map(|(_, query)| query);
    if routed.what == What::ByBody {
        routed.what = dropin.by_body(&routed, query, content_type, body);
    }
    dropin.effect(&routed, query, &Whole { content_type, body, name: "shop/1" })
}

/// Routes and reads an effect in parts.
fn effect_in_parts(dropin: &dyn DropIn, target: &str, content_type: &str, body: &[u8]) -> Result<Effect, Reply> {
    let routed = route(dropin, target).expect("a path of the provider's");
    let query = target.split_once('?').map(|(_, query)| query);
    let parts = super::multipart::read_whole(content_type, body).expect("readable parts");
    let upload = Upload { name: "shop/1", content_type, length: body.len() as u64, parts: &parts };
    dropin.effect_with_files(&routed, query, &upload)
}

/// The request that the sender makes of the effect.
fn call_of(settings: &Settings, effect: &Effect) -> Call {
    let sending = crate::build_sending(settings, Some(&SecretString::from(TOKEN))).expect("it sends");
    let account = effect.account.clone().unwrap_or_default();
    let id = "msg_0190000000007000800000000000002a".parse().expect("an id");
    let message = Outgoing { id, account: &account, peer: &effect.peer, payload: &effect.payload, begun_ms: None };
    sending.call(&message).expect("a call")
}

fn body_of(call: &Call) -> serde_json::Value {
    match &call.body {
        CallBody::Whole(body) => serde_json::from_slice(body).expect("JSON"),
        CallBody::Kept { .. } => panic!("kept elsewhere"),
    }
}

fn json_of(reply: &Reply) -> serde_json::Value {
    assert_eq!(reply.content_type, "application/json");
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// A body in parts: `(disposition, value)`.
fn in_parts(boundary: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (disposition, value) in parts {
        body.extend_from_slice(format!("--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n").as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

#[test]
fn who_shows_the_way_out_is_not_let_in() {
    for provider in ["whatsapp", "gowa", "evolution", "waha"] {
        let (dropin, _) = channel(provider);
        for odd in ["/v21.0/1/../2", "/1/%2e%2E/x", "/api/./x", "/send\\message", "send", ""] {
            assert!(route(&*dropin, odd).is_none(), "{provider} {odd}");
        }
    }
    let (telegram, _) = telegram();
    for odd in ["/bot1:a/x/../logOut", "/bot1:a/%2E%2e/logOut", "/bot1:a/./logOut", "/bot1:a\\..\\logOut", "bot1:a/getMe", ""] {
        let told_nothing = |routed: Routed| routed.token.is_none() && matches!(routed.what, What::Refused { .. });
        assert!(route(&*telegram, odd).is_none_or(told_nothing), "{odd}");
    }
}

#[test]
fn libraries_wait_differently() {
    for (agent, seconds) in [
        (Some("python-telegram-bot v22.8 (https://python-telegram-bot.org)"), 4),
        (Some("python-httpx/0.28.1"), 4),
        (Some("Python/3.12 aiohttp/3.12.15 aiogram/3.31.0"), 25),
        (Some("python-requests/2.32.5"), 25),
        (Some("node-fetch/1.0 (+https://github.com/bitinn/node-fetch)"), 25),
        (Some("node"), 4),
        (Some("Python/3.12 aiohttp/3.12.15"), 4),
        (Some("curl/8.5.0"), 4),
        (Some(""), 4),
        (None, 4),
    ] {
        assert_eq!(wait_of(agent).as_secs(), seconds, "{agent:?}");
    }
}
