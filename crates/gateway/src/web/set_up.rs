//! What has to be done at each provider, in short; docs/providers.md has the whole of it.

use maud::{Markup, html};

use super::components::{copyable, with_code};

/// Twilio signs the address that it was given.
const PUBLIC_URL: &str = "public_url";

/// The steps at the provider, and what goes into the file.
pub(super) fn steps(provider: &str, channel: &str, target: &str, address: &str) -> Markup {
    let quoted = |(key, value): (&str, &str)| format!("{key} = {}", quoted(value));
    let own = examples(provider, address);
    let own = own.iter().map(|(key, value)| quoted((key, value)));
    let target = (!target.is_empty()).then(|| quoted(("target", target)));
    let head = [format!("[channel.{channel}]"), quoted(("provider", provider))];
    let file: Vec<String> = head.into_iter().chain(own).chain(target).collect();
    html! {
        section {
            h2 { "Set it up" }
            ol.steps.numbered {
                @for step in steps_at(provider) { li { (with_code(step)) @if step.ends_with(':') { " " (copyable(address)) } } }
                li { "In " code { "hapax.toml" } ":" pre { code { (file.join("\n")) } } }
                li { code { "hapax check" } " reads the file, " code { "hapax doctor" } " tries the bot and the token." }
            }
        }
    }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What is done at the provider; a step that ends in a colon is followed by the webhook address.
fn steps_at(provider: &str) -> &'static [&'static str] {
    match provider {
        "whatsapp" => &[
            "Meta's app dashboard, WhatsApp, Configuration; the callback URL is:",
            "Choose a verify token, the same there and in the file, and subscribe to the field `messages`.",
            "The secret is the app secret (App settings, Basic), not the access token.",
        ],
        "messenger" | "instagram" => &[
            "Meta's app dashboard, Webhooks; the callback URL is:",
            "Choose a verify token, the same there and in the file, and subscribe to `messages` and the receipts.",
        ],
        "telegram" => &[
            "Call setWebhook of your bot, with a `secret_token` of your choice and this `url`:",
            "The secret in the file is that `secret_token`.",
        ],
        "stripe" => {
            &["Stripe's dashboard, Developers, Webhooks, Add endpoint:", "The secret is the endpoint's signing secret, whsec_…"]
        }
        "github" => &[
            "Settings of the repository or organisation, Webhooks, Add webhook, content type `application/json`; the payload URL is:",
            "The secret is the one you enter there.",
        ],
        "gowa" => &["Start it with --webhook and --webhook-secret; the webhook is:"],
        "evolution" => {
            &["The instance's webhook settings (`webhook.url`), with the header that carries your secret; the URL is:"]
        }
        "waha" => &["The session's webhooks, with `hmac.key` set to your secret and more retries than usual; the URL is:"],
        "slack" => &[
            "api.slack.com/apps, your app, Event Subscriptions; the request URL is:",
            "The secret is the app's signing secret (Basic Information).",
        ],
        "shopify" => &["Settings, Notifications, Webhooks, or the app's subscriptions; the URL is:"],
        "twilio" => &[
            "The number's or sender's messaging settings, `A message comes in` and the status callback:",
            "The secret is the account's auth token.",
        ],
        _ => &["Have it post to:", "Its docs say how it signs; `signature` and `id` in the file say the same to hapax."],
    }
}

/// What goes into the file beside the provider and the target: each key with where its value comes from.
pub(super) fn keys(provider: &str) -> &'static [(&'static str, &'static str)] {
    match provider {
        "whatsapp" => {
            &[("secret", "${META_APP_SECRET}"), ("verify_token", "${META_VERIFY_TOKEN}"), ("token", "${WHATSAPP_TOKEN}")]
        }
        "messenger" | "instagram" => {
            &[("secret", "${META_APP_SECRET}"), ("verify_token", "${META_VERIFY_TOKEN}"), ("token", "${PAGE_TOKEN}")]
        }
        "telegram" => &[("secret", "${TG_SECRET}"), ("token", "${TG_TOKEN}")],
        "stripe" => &[("secret", "${STRIPE_WEBHOOK_SECRET}")],
        "gowa" => &[("secret", "${SECRET}"), ("api_base", "http://127.0.0.1:3000")],
        "evolution" => &[("secret", "${SECRET}"), ("token", "${EVOLUTION_APIKEY}"), ("api_base", "http://127.0.0.1:8080")],
        "waha" => &[("secret", "${SECRET}"), ("token", "${WAHA_API_KEY}"), ("api_base", "http://127.0.0.1:3000")],
        "slack" => &[("secret", "${SLACK_SIGNING_SECRET}"), ("token", "${SLACK_BOT_TOKEN}")],
        "shopify" => &[("secret", "${SHOPIFY_SECRET}")],
        "twilio" => &[("secret", "${TWILIO_AUTH_TOKEN}"), (PUBLIC_URL, "")],
        "generic" => &[("secret", "${SECRET}"), ("id", "/id")],
        _ => &[("secret", "${SECRET}")],
    }
}

/// The same, with the address in it where it belongs.
pub(super) fn examples(provider: &str, address: &str) -> Vec<(&'static str, String)> {
    let value = |key, example: &str| if key == PUBLIC_URL { address.to_owned() } else { example.to_owned() };
    keys(provider).iter().map(|(key, example)| (*key, value(*key, example))).collect()
}
