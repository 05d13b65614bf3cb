//! What a provider itself calls an event, for people: `invoice.paid` and not `notice`.

use serde_json::Value;

/// Reads the provider's own word out of a webhook: from a header where it stands there, else from the body. `header` finds one by its name.
pub fn event_type<'h>(provider: &str, header: impl Fn(&str) -> Option<&'h str>, body: &[u8]) -> Option<String> {
    let json = || serde_json::from_slice::<Value>(body).ok();
    let at = |pointer: &str| json()?.pointer(pointer)?.as_str().map(str::to_owned);
    match provider {
        "github" => {
            let event = header("x-github-event")?;
            Some(at("/action").map_or_else(|| event.to_owned(), |action| format!("{event}.{action}")))
        }
        "shopify" => header("x-shopify-topic").map(str::to_owned),
        "stripe" | "standard" => at("/type"),
        "gowa" | "waha" | "evolution" => at("/event"),
        "slack" => match json()? {
            body if body["event"]["subtype"].is_string() => {
                Some(format!("{}.{}", body["event"]["type"].as_str()?, body["event"]["subtype"].as_str()?))
            }
            body => body["event"]["type"].as_str().or_else(|| body["type"].as_str()).map(str::to_owned),
        },
        "telegram" => json()?.as_object()?.keys().find(|key| *key != "update_id").cloned(),
        "whatsapp" => whatsapp(&json()?),
        "messenger" | "instagram" => {
            let body = json()?;
            let message = body.pointer("/entry/0/messaging/0")?.as_object()?;
            message.keys().find(|key| !matches!(key.as_str(), "sender" | "recipient" | "timestamp")).cloned()
        }
        "twilio" => {
            let status = super::form::value_of(std::str::from_utf8(body).ok()?, "MessageStatus");
            Some(status.map_or_else(|| "message".to_owned(), |status| format!("status.{status}")))
        }
        _ => None,
    }
}

/// The first thing in it: a message's type, or a status.
fn whatsapp(body: &Value) -> Option<String> {
    let change = body.pointer("/entry/0/changes/0")?;
    let (field, value) = (change["field"].as_str()?, &change["value"]);
    let message = value["messages"][0]["type"].as_str().map(|kind| format!("{field}.{kind}"));
    let status = || value["statuses"][0]["status"].as_str().map(|status| format!("{field}.status.{status}"));
    Some(message.or_else(status).unwrap_or_else(|| field.to_owned()))
}

/// Whether an event of this type is meant: by the whole of it, or by its beginning up to a `.` or `/`.
pub fn is_type(found: &str, wanted: &str) -> bool {
    match found.strip_prefix(wanted) {
        Some(rest) => rest.is_empty() || rest.starts_with(['.', '/']) || wanted.ends_with(['.', '/']),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn every_sample_has_its_providers_own_word() {
        let word = |name: &str| {
            let sample = samples::sample(name, 7, 1_760_000_000_000).expect("a sample");
            let header = |wanted: &str| sample.headers.iter().find(|(name, _)| name == wanted)?.1.to_str().ok();
            event_type(sample.provider, header, &sample.body)
        };
        for (name, expected) in [
            ("stripe.invoice_paid", "invoice.paid"),
            ("github.push", "push"),
            ("shopify.orders_create", "orders/create"),
            ("whatsapp.text", "messages.text"),
            ("whatsapp.status", "messages.status.delivered"),
            ("telegram.callback", "callback_query"),
            ("slack.mention", "app_mention"),
            ("twilio.status", "status.delivered"),
        ] {
            assert_eq!(word(name).as_deref(), Some(expected), "{name}");
        }
        for (name, _) in samples::list().iter().filter(|(name, _)| !name.starts_with("generic")) {
            assert!(word(name).is_some(), "{name}");
        }
        assert_eq!(event_type("stripe", |_| None, b"no JSON"), None);
    }

    #[test]
    fn a_type_is_meant_by_the_whole_or_by_its_beginning() {
        assert!(
            is_type("invoice.paid", "invoice.paid") && is_type("invoice.paid", "invoice") && is_type("orders/create", "orders")
        );
        assert!(!is_type("invoice.paid", "inv") && !is_type("invoice", "invoice.paid"));
    }
}
