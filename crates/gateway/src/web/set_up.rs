//! What has to be done at each provider, in short; docs/providers.md has the whole of it.

use maud::{Markup, html};

use super::components::copyable;

/// The steps at the provider, and what goes into the file.
pub(super) fn steps(provider: &str, channel: &str, address: &str) -> Markup {
    let (at, keys) = about(provider);
    let file = std::iter::once(format!("[channel.{channel}]")).chain(std::iter::once(format!("provider = \"{provider}\"")));
    let file: Vec<String> = file.chain(keys.iter().map(|key| (*key).to_owned())).collect();
    html! {
        section {
            h2 { "Set it up" }
            ol.steps.numbered {
                @for step in at { li { (step) @if step.ends_with(':') { " " (copyable(address)) } } }
                li { "In " code { "hapax.toml" } ":" pre { code { (file.join("\n")) } } }
                li { code { "hapax check" } " reads the file, " code { "hapax doctor" } " tries the bot and the token." }
            }
        }
    }
}

fn about(provider: &str) -> (&'static [&'static str], &'static [&'static str]) {
    const SECRET: &str = "secret = \"${SECRET}\"";
    const TARGET: &str = "target = \"http://127.0.0.1:3000/webhook\"";
    match provider {
        "whatsapp" => (
            &[
                "Meta's app dashboard, WhatsApp, Configuration; the callback URL is:",
                "Choose a verify token, the same there and in the file, and subscribe to the field `messages`.",
                "The secret is the app secret (App settings, Basic), not the access token.",
            ],
            &[
                "secret = \"${META_APP_SECRET}\"",
                "verify_token = \"${META_VERIFY_TOKEN}\"",
                "token = \"${WHATSAPP_TOKEN}\"",
                TARGET,
            ],
        ),
        "messenger" | "instagram" => (
            &[
                "Meta's app dashboard, Webhooks; the callback URL is:",
                "Choose a verify token, the same there and in the file, and subscribe to `messages` and the receipts.",
            ],
            &["secret = \"${META_APP_SECRET}\"", "verify_token = \"${META_VERIFY_TOKEN}\"", "token = \"${PAGE_TOKEN}\"", TARGET],
        ),
        "telegram" => (
            &[
                "Call setWebhook of your bot, with a `secret_token` of your choice and this `url`:",
                "The secret in the file is that `secret_token`.",
            ],
            &["secret = \"${TG_SECRET}\"", "token = \"${TG_TOKEN}\"", TARGET],
        ),
        "stripe" => (
            &["Stripe's dashboard, Developers, Webhooks, Add endpoint:", "The secret is the endpoint's signing secret, whsec_…"],
            &["secret = \"${STRIPE_WEBHOOK_SECRET}\"", TARGET],
        ),
        "github" => (
            &[
                "The repository's or organisation's Settings, Webhooks, Add webhook; content type `application/json`; payload URL:",
                "The secret is the one you enter there.",
            ],
            &[SECRET, TARGET],
        ),
        "gowa" => (
            &["Start it with --webhook and --webhook-secret; the webhook is:"],
            &[SECRET, "api_base = \"http://127.0.0.1:3000\"", TARGET],
        ),
        "evolution" => (
            &["The instance's webhook settings (`webhook.url`), with the header that carries your secret; the URL is:"],
            &[SECRET, "token = \"${EVOLUTION_APIKEY}\"", "api_base = \"http://127.0.0.1:8080\"", TARGET],
        ),
        "waha" => (
            &["The session's webhooks, with `hmac.key` set to your secret and more retries than usual; the URL is:"],
            &[SECRET, "token = \"${WAHA_API_KEY}\"", "api_base = \"http://127.0.0.1:3000\"", TARGET],
        ),
        "slack" => (
            &[
                "api.slack.com/apps, your app, Event Subscriptions; the request URL is:",
                "The secret is the app's signing secret (Basic Information).",
            ],
            &["secret = \"${SLACK_SIGNING_SECRET}\"", "token = \"${SLACK_BOT_TOKEN}\"", TARGET],
        ),
        "shopify" => (
            &["Settings, Notifications, Webhooks, or the app's subscriptions; the URL is:"],
            &["secret = \"${SHOPIFY_SECRET}\"", TARGET],
        ),
        "twilio" => (
            &[
                "The number's or sender's messaging settings, `A message comes in` and the status callback:",
                "The secret is the account's auth token.",
            ],
            &["secret = \"${TWILIO_AUTH_TOKEN}\"", TARGET],
        ),
        _ => (
            &["Have it post to:", "Its docs say how it signs; `signature` and `id` in the file say the same to hapax."],
            &[SECRET, TARGET],
        ),
    }
}
