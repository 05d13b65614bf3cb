//! Questions that change nothing, for `hapax doctor`, sans-I/O: a webhook that says nothing, for the bot; and who we are, for the provider.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::samples::Sample;
use super::sending::{Call, Credentials};
use super::settings::Settings;

const GRAPH_VERSION: &str = "v25.0";

/// A webhook that a bot of this provider may get at any time and has nothing to do for: without an event in it, or of a type that its handlers
/// do not know. `None` where there is no such thing.
pub fn probe(provider: &str) -> Option<Sample> {
    let json = |provider, body: &str, headers: &[(&'static str, &'static str)]| Sample {
        provider,
        content_type: "application/json",
        headers: headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect(),
        body: body.as_bytes().to_vec(),
    };
    let nothing_new = r#"{"id":"evt_hapax_doctor","object":"event","type":"hapax.doctor","data":{"object":{}}}"#;
    let sample = match provider {
        "whatsapp" => json("whatsapp", r#"{"object":"whatsapp_business_account","entry":[]}"#, &[]),
        "messenger" => json("messenger", r#"{"object":"page","entry":[]}"#, &[]),
        "instagram" => json("instagram", r#"{"object":"instagram","entry":[]}"#, &[]),
        "telegram" => json("telegram", r#"{"update_id":0}"#, &[]),
        "stripe" => json("stripe", nothing_new, &[]),
        "standard" => json("standard", nothing_new, &[("webhook-id", "msg_hapax_doctor")]),
        // What GitHub itself sends to see whether anybody is there.
        "github" => {
            json("github", r#"{"zen":"hapax doctor"}"#, &[("x-github-event", "ping"), ("x-github-delivery", "hapax-doctor")])
        }
        // What Slack itself sends for the same reason.
        "slack" => json("slack", r#"{"type":"url_verification","challenge":"hapax-doctor"}"#, &[]),
        "gowa" => json("gowa", r#"{"event":"hapax.doctor"}"#, &[]),
        "waha" => json("waha", r#"{"event":"hapax.doctor"}"#, &[]),
        "evolution" => json("evolution", r#"{"event":"hapax.doctor"}"#, &[]),
        _ => return None,
    };
    Some(sample)
}

/// Asks the provider whose token this is. `None` where its API has no such question, or there is no token.
pub fn who_am_i(settings: &Settings, token: Option<&SecretString>) -> Option<Call> {
    let credentials = Credentials::new(token);
    let own = |name: &'static str| {
        let mut value = HeaderValue::from_str(token?.expose_secret()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_static(name), value))
    };
    let (path, header) = match settings {
        Settings::Telegram { .. } => (format!("/bot{}/getMe", credentials.token().ok()?), None),
        Settings::Whatsapp { .. } | Settings::Messenger { .. } | Settings::Instagram { .. } => {
            (format!("/{GRAPH_VERSION}/me"), Some(credentials.bearer().ok()?))
        }
        Settings::Slack { .. } => ("/auth.test".to_owned(), Some(credentials.bearer().ok()?)),
        Settings::Twilio { .. } => {
            let account = credentials.token().ok()?.split(':').next()?.to_owned();
            (format!("/2010-04-01/Accounts/{account}.json"), credentials.basic_or_bearer().ok()?)
        }
        Settings::Gowa { .. } => ("/app/devices".to_owned(), credentials.basic_or_bearer().ok()?),
        Settings::Waha { .. } => ("/api/sessions".to_owned(), own("x-api-key")),
        Settings::Evolution { .. } => ("/instance/fetchInstances".to_owned(), own("apikey")),
        Settings::Stripe { .. } | Settings::Github { .. } | Settings::Standard { .. } | Settings::Shopify { .. } => return None,
        Settings::Generic(_) => return None,
    };
    Some(Call { method: Method::GET, path, headers: header.into_iter().collect(), body: Bytes::new().into() })
}

/// Reads the answer: a name, or why the token is not taken.
pub fn read_who_am_i(status: u16, body: &[u8]) -> Result<String, String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let first = |paths: &[&str]| {
        let text = paths.iter().find_map(|path| body.pointer(path).and_then(Value::as_str));
        text.map(|text| text.chars().take(80).collect::<String>())
    };
    let refused = body["ok"] == Value::Bool(false) || !(200..300).contains(&status);
    if refused {
        let why = first(&["/error/message", "/description", "/error", "/message"]).unwrap_or_default();
        return Err(format!("{status} {why}").trim_end().to_owned());
    }
    Ok(first(&["/result/username", "/name", "/user", "/friendly_name"]).unwrap_or_else(|| "the token is taken".to_owned()))
}

/// What the provider knows of where to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Empty: nowhere.
    pub url: String,
    /// What it says of its last try, and how much waits there.
    pub trouble: Option<String>,
    pub waiting: u64,
}

/// Asks where the provider posts to, where its API tells that with the token of a channel.
pub fn where_registered(settings: &Settings, token: Option<&SecretString>) -> Option<Call> {
    let Settings::Telegram { .. } = settings else { return None };
    let path = format!("/bot{}/getWebhookInfo", token?.expose_secret());
    Some(Call { method: Method::GET, path, headers: Vec::new(), body: Bytes::new().into() })
}

pub fn read_where_registered(body: &[u8]) -> Option<Registered> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let told = body.get("result")?;
    Some(Registered {
        url: told["url"].as_str().unwrap_or_default().to_owned(),
        trouble: told["last_error_message"].as_str().map(|words| words.chars().take(200).collect()),
        waiting: told["pending_update_count"].as_u64().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawRequest, Unsigned, build};
    use http::HeaderMap;

    #[test]
    fn a_probe_is_believed_and_says_nothing_that_a_bot_acts_on() {
        let secrets = || vec![SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
        let all = [
            Settings::Whatsapp { secrets: secrets(), verify_token: None },
            Settings::Messenger { secrets: secrets(), verify_token: None },
            Settings::Telegram { secrets: secrets(), bot: "b".to_owned() },
            Settings::Stripe { secrets: secrets() },
            Settings::Github { secrets: secrets() },
            Settings::Slack { secrets: secrets() },
            Settings::Gowa { secrets: secrets() },
            Settings::Waha { secrets: secrets() },
            Settings::Standard { secrets: secrets() },
        ];
        for settings in all {
            let (provider, name) = (build(&settings), settings.provider());
            let sample = probe(name).expect("a probe");
            let mut headers: HeaderMap = sample.headers.iter().cloned().collect();
            let signed = provider.sign(Unsigned { url: None, headers: &headers, body: &sample.body }, 1_760_000_000_000);
            headers.extend(signed);
            let request = RawRequest { method: Method::POST, query: String::new(), headers, body: sample.body.into() };
            let verified = provider.verify(&request, 1_760_000_000_000).unwrap_or_else(|refused| panic!("{name}: {refused}"));
            let parsed = provider.parse(&verified);
            assert!(!parsed.events.iter().any(|event| event.kind == hapax_domain::Kind::Message), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn providers_say_who_we_are_or_why_not() {
        let good = |body: &str| read_who_am_i(200, body.as_bytes());
        assert_eq!(good(r#"{"ok":true,"result":{"id":7,"username":"shop_bot"}}"#).as_deref(), Ok("shop_bot"));
        assert_eq!(good(r#"{"name":"Shop","id":"1"}"#).as_deref(), Ok("Shop"));
        assert_eq!(good(r#"{"ok":false,"error":"invalid_auth"}"#), Err("200 invalid_auth".to_owned()));
        let meta = br#"{"error":{"message":"Error validating access token","code":190}}"#;
        assert_eq!(read_who_am_i(401, meta), Err("401 Error validating access token".to_owned()));
        assert_eq!(read_who_am_i(502, b"<html>"), Err("502".to_owned()));
    }

    #[test]
    fn telegram_tells_where_it_posts() {
        let told = br#"{"ok":true,"result":{"url":"https://x.example/in/help","pending_update_count":3,"last_error_message":"Wrong response"}}"#;
        let told = read_where_registered(told).expect("read");
        assert_eq!(
            (told.url.as_str(), told.waiting, told.trouble.as_deref()),
            ("https://x.example/in/help", 3, Some("Wrong response"))
        );
        let token = SecretString::from("1:x");
        assert!(where_registered(&Settings::Gowa { secrets: vec![] }, Some(&token)).is_none());
        let call = where_registered(&Settings::Telegram { secrets: vec![], bot: String::new() }, Some(&token)).expect("a call");
        assert_eq!(call.path, "/bot1:x/getWebhookInfo");
    }
}
