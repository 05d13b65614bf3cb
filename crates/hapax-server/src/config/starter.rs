//! The file that `hapax config init` writes, and `serve` when there is none.

use std::fmt::Write;

use super::channel::provider_names;

const HEAD: &str = r#"# hapax.toml: one [channel.NAME] for each connection to a provider. NAME is the address: POST /in/NAME
#
# What is not here has a default: `hapax config show --defaults` prints all of them with their reasons.
# The secrets below are fresh and random: put the same value in at the provider, or put the provider's value in here.
# To keep them out of this file write secret = "${NAME}" and set NAME (or NAME_FILE) in the environment.
# `target` is your bot; a channel without one keeps its events waiting. Delete the channels you do not need.

listen = "127.0.0.1:4272"
store  = "sqlite:hapax.db"
"#;

/// Makes the text of a config with one channel per provider, named as the provider.
///
/// `secret_for` gives a fresh random secret of at least 16 letters and digits for each name it is asked for.
pub fn starter(mut secret_for: impl FnMut(&str) -> String) -> String {
    let mut text = HEAD.to_owned();
    for provider in provider_names() {
        let mut line = |key: &str, value: &str, why: &str| {
            let setting = format!("{key} = \"{value}\"");
            let _ = writeln!(text, "{}", format!("{setting:<78} {why}").trim_end());
        };
        let secret = secret_for(provider);
        let (secret, why) = match provider {
            "whatsapp" | "messenger" | "instagram" => (secret, "# Meta: App settings > Basic > App secret"),
            "telegram" => (secret, "# setWebhook: secret_token"),
            "gowa" => (secret, "# --webhook-secret, or WHATSAPP_WEBHOOK_SECRET"),
            "evolution" => (secret, "# POST /webhook/set/INSTANCE: \"headers\": {\"jwt_key\": \"..\"}"),
            "waha" => (secret, "# config.webhooks[].hmac.key, or WHATSAPP_HOOK_HMAC_KEY"),
            "stripe" => (format!("whsec_{secret}"), "# Developers > Webhooks > Signing secret"),
            "standard" => (format!("whsec_{secret}"), "# the endpoint's signing secret"),
            "shopify" => (secret, "# the app's client secret"),
            "slack" => (secret, "# Basic Information > App Credentials > Signing Secret"),
            "twilio" => (secret, "# Account > API keys & tokens > Auth token"),
            "github" => (secret, "# Settings > Webhooks > Secret"),
            _ => (secret, "# X-Hub-Signature-256: sha256=HMAC of the body, unless `signature` says otherwise"),
        };
        line(&format!("\n[channel.{provider}]\nprovider"), provider, "");
        line("secret", &secret, why);
        if matches!(provider, "whatsapp" | "messenger" | "instagram") {
            line("verify_token", &secret_for(&format!("{provider}.verify_token")), "# what you type beside the callback URL");
        }
        if provider == "twilio" {
            line("public_url", "https://your.host/in/twilio", "# the address that you give to Twilio, which it signs");
        }
        if provider == "generic" {
            line("id", "/id", "# where a webhook says which one it is: \"header:X-Id\", \"/json/pointer\", \"$.json.path\"");
        }
        text.push_str("# target = \"http://127.0.0.1:3000/webhook\"\n");
    }
    text
}
