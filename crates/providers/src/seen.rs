//! From what people know of messages that were handled before hapax was there to the keys under which copies of these would come.

use std::borrow::Cow;

use hapax_domain::{EventKey, Kind};

use crate::settings::Settings;
use crate::waha;
use crate::whatsapp_web::{Named, without_device};

/// One message that was handled already. Which parts a provider needs, [`needs`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen<'s> {
    /// As the provider calls it.
    pub id: &'s str,
    /// The provider's own identity in the channel.
    pub account: Option<&'s str>,
    /// Who wrote it, where the id is chosen by whoever writes.
    pub sender: Option<&'s str>,
    /// What else tells events with one id apart: Slack's app, Shopify's topic.
    pub scope: Option<&'s str>,
    /// Only as this kind; otherwise as every kind that it may come as.
    pub kind: Option<Kind>,
}

/// The parts that each line of a provider's list must have.
pub fn needs(provider: &str) -> &'static [&'static str] {
    match provider {
        "whatsapp" | "twilio" => &["account", "id"],
        "messenger" | "instagram" | "gowa" | "evolution" | "waha" => &["account", "sender", "id"],
        "slack" | "shopify" => &["account", "scope", "id"],
        _ => &["id"],
    }
}

/// The kinds as which something with this id may come, and the keys of those.
pub fn keys(settings: &Settings, seen: &Seen<'_>) -> Result<Vec<(Kind, EventKey)>, String> {
    let provider = settings.provider();
    let part = |name: &str, value: Option<&'_ str>| match value.filter(|value| !value.is_empty()) {
        Some(value) => Ok(value.to_owned()),
        None if !needs(provider).contains(&name) => Ok(String::new()),
        None => Err(format!("{provider} tells messages apart by {}; `{name}` is missing", needs(provider).join(", "))),
    };
    if seen.id.is_empty() || seen.id.len() > hapax_domain::limits::NAME_MAX_BYTES {
        return Err(format!("an id has 1 to {} bytes", hapax_domain::limits::NAME_MAX_BYTES));
    }
    let (account, sender, scope) = (part("account", seen.account)?, part("sender", seen.sender)?, part("scope", seen.scope)?);
    let web = |sender: &str, kind| {
        let named = Named { provider, account: &account, kind, id: seen.id, from_me: false, tag: None };
        named.key(sender)
    };
    let plain = |account: &str, rest: &[&str], kind| EventKey::new(provider, account, kind, seen.id, rest);
    let key: Box<dyn Fn(Kind) -> EventKey + '_> = match settings {
        Settings::Whatsapp { .. } | Settings::Twilio { .. } | Settings::Stripe { .. } | Settings::Github { .. } => {
            Box::new(|kind| plain(&account, &[], kind))
        }
        Settings::Messenger { .. } | Settings::Instagram { .. } => Box::new(|kind| plain(&account, &[&sender, ""], kind)),
        Settings::Telegram { bot, .. } => Box::new(|kind| plain(bot, &[], kind)),
        Settings::Gowa { .. } | Settings::Evolution { .. } => {
            let sender = without_device(&with_server(&sender)).into_owned();
            Box::new(move |kind| web(&sender, kind))
        }
        Settings::Waha { .. } => {
            let sender = waha::usual(&with_server(&sender));
            Box::new(move |kind| web(&sender, kind))
        }
        Settings::Standard { .. } => Box::new(|kind| plain("", &[], kind)),
        Settings::Shopify { .. } | Settings::Slack { .. } => Box::new(|kind| plain(&account, &[&scope], kind)),
        Settings::Generic(generic) if generic.id.is_none() => {
            return Err("this channel has no `id`, so its webhooks are known by what they say, and by no list".to_owned());
        }
        Settings::Generic(generic) => Box::new(|kind| plain(&generic.channel, &[], kind)),
    };
    let kinds = kinds(settings);
    match seen.kind {
        Some(kind) if !kinds.contains(&kind) => {
            let known = kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            Err(format!("an id of {provider} is not enough for a {}; it is for {known}", kind.name()))
        }
        Some(kind) => Ok(vec![(kind, key(kind))]),
        None => Ok(kinds.iter().map(|kind| (*kind, key(*kind))).collect()),
    }
}

/// What a provider's bare id may stand for.
fn kinds(settings: &Settings) -> &'static [Kind] {
    match settings {
        Settings::Whatsapp { .. } | Settings::Evolution { .. } => &[Kind::Message, Kind::Action, Kind::Reaction],
        Settings::Messenger { .. } | Settings::Instagram { .. } => &[Kind::Message, Kind::Action],
        Settings::Telegram { .. } => &[Kind::Message, Kind::Edit, Kind::Delete, Kind::Action, Kind::Reaction, Kind::Notice],
        Settings::Slack { .. } => &[Kind::Message, Kind::Edit, Kind::Delete, Kind::Reaction, Kind::Notice],
        Settings::Gowa { .. } | Settings::Waha { .. } | Settings::Twilio { .. } | Settings::Generic(_) => &[Kind::Message],
        Settings::Stripe { .. } | Settings::Github { .. } | Settings::Standard { .. } | Settings::Shopify { .. } => {
            &[Kind::Notice]
        }
    }
}

/// A bare number is a phone's.
fn with_server(sender: &str) -> Cow<'_, str> {
    if sender.contains('@') { Cow::Borrowed(sender) } else { Cow::Owned(format!("{sender}@s.whatsapp.net")) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use secrecy::SecretString;

    use super::*;
    use crate::settings::{EvolutionProof, FieldSource, GenericSettings, SignatureRule};
    use crate::{RawRequest, Verified, build, samples};

    /// A channel of every provider, the sample it takes, and what a list has to say of that sample.
    fn channels() -> Vec<(Settings, &'static str)> {
        let secrets = || vec![SecretString::from("a secret for tests")];
        let generic = GenericSettings {
            channel: "shop".to_owned(),
            signature: SignatureRule::None,
            id: FieldSource::read("/id").ok(),
            id_parts: Vec::new(),
            thread: None,
        };
        vec![
            (Settings::Whatsapp { secrets: secrets(), verify_token: None }, "whatsapp.text"),
            (Settings::Messenger { secrets: secrets(), verify_token: None }, "messenger.text"),
            (Settings::Instagram { secrets: secrets(), verify_token: None }, "instagram.text"),
            (Settings::Telegram { secrets: secrets(), bot: "helpbot".to_owned() }, "telegram.text"),
            (Settings::Telegram { secrets: secrets(), bot: "helpbot".to_owned() }, "telegram.callback"),
            (Settings::Gowa { secrets: secrets() }, "gowa.text"),
            (Settings::Evolution { proof: EvolutionProof::Jwt { secrets: secrets() }, token: None }, "evolution.text"),
            (Settings::Waha { secrets: secrets() }, "waha.text"),
            (Settings::Stripe { secrets: secrets() }, "stripe.invoice_paid"),
            (Settings::Github { secrets: secrets() }, "github.push"),
            (Settings::Standard { secrets: secrets() }, "standard.event"),
            (Settings::Shopify { secrets: secrets() }, "shopify.orders_create"),
            (Settings::Slack { secrets: secrets() }, "slack.message"),
            (Settings::Twilio { secrets: secrets(), public_url: "https://h/in/x".to_owned() }, "twilio.sms"),
            (Settings::Generic(generic), "generic.json"),
        ]
    }

    /// What tells an event apart and stands in no field of it.
    fn beside(sample: &samples::Sample) -> (Option<String>, Option<String>) {
        let header = |name: &str| {
            let found = sample.headers.iter().find(|(header, _)| header.as_str() == name);
            found.and_then(|(_, value)| value.to_str().ok()).map(str::to_owned)
        };
        let body: serde_json::Value = serde_json::from_slice(&sample.body).unwrap_or_default();
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        match sample.provider {
            "github" => (header("x-github-hook-id"), None),
            "shopify" => (None, header("x-shopify-topic")),
            "slack" => (None, text("api_app_id")),
            "twilio" => {
                let form = String::from_utf8_lossy(&sample.body).into_owned();
                let sid = crate::form::pairs(&form).find(|(name, _)| name == "AccountSid").map(|(_, sid)| sid.into_owned());
                (sid, None)
            }
            _ => (None, None),
        }
    }

    #[test]
    fn a_message_that_was_listed_comes_under_one_of_its_keys() {
        for (settings, name) in channels() {
            let sample = samples::sample(name, 1_760_000_000_123_456, 1_760_000_000_000).expect("a sample");
            let mut request = RawRequest {
                method: http::Method::POST,
                query: String::new(),
                headers: http::HeaderMap::new(),
                body: Bytes::new(),
            };
            request.headers.extend(sample.headers.iter().cloned());
            request.body = Bytes::from(sample.body.clone());
            let parsed = build(&settings).parse(&Verified::after_check(&request));
            let event = parsed.events.first().unwrap_or_else(|| panic!("{name}: {:?}", parsed.problems));
            let (account, scope) = beside(&sample);
            // Slack's own name of the event; what hapax shows is the message's.
            let body: serde_json::Value = serde_json::from_slice(&sample.body).unwrap_or_default();
            let id = if name.starts_with("slack") { body["event_id"].as_str().expect("an id") } else { &event.id };
            let account = account.unwrap_or_else(|| event.account.clone());
            let seen = Seen { id, account: Some(&account), sender: event.peer.as_deref(), scope: scope.as_deref(), kind: None };
            let found = keys(&settings, &seen).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(found.contains(&(event.kind, event.key)), "{name}: {event:?}");
            let one = keys(&settings, &Seen { kind: Some(event.kind), ..seen }).expect("a key");
            assert_eq!(one, [(event.kind, event.key)], "{name}");
        }
    }

    #[test]
    fn what_says_too_little_is_told_what_is_missing() {
        for (settings, _) in channels() {
            let provider = settings.provider();
            let bare = keys(&settings, &Seen { id: "x", ..Seen::default() });
            assert_eq!(bare.is_err(), needs(provider).len() > 1, "{provider}");
            assert!(keys(&settings, &Seen::default()).is_err(), "{provider}: no id");
            let status = Seen { id: "x", account: Some("a"), sender: Some("s"), scope: Some("c"), kind: Some(Kind::Status) };
            assert!(keys(&settings, &status).is_err(), "{provider}: a status has more to it than an id");
        }
    }
}
