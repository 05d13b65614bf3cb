//! What an adapter is made from: one variant per provider, checked by `config/` before it gets here.

use secrecy::SecretString;

/// A provider's settings in one channel.
///
/// Evolution's `token` is what the channel sends with: where webhooks carry the same key, the bot gets it back, and it is kept nowhere.
/// Twilio's `public_url` is the address that it was told to call.
#[derive(Clone, Debug)]
pub enum Settings {
    Whatsapp { secrets: Vec<SecretString>, verify_token: Option<SecretString> },
    Messenger { secrets: Vec<SecretString>, verify_token: Option<SecretString> },
    Instagram { secrets: Vec<SecretString>, verify_token: Option<SecretString> },
    Telegram { secrets: Vec<SecretString>, bot: String },
    Gowa { secrets: Vec<SecretString> },
    Evolution { proof: EvolutionProof, token: Option<SecretString> },
    Waha { secrets: Vec<SecretString> },
    Stripe { secrets: Vec<SecretString> },
    Github { secrets: Vec<SecretString> },
    Standard { secrets: Vec<SecretString> },
    Shopify { secrets: Vec<SecretString> },
    Slack { secrets: Vec<SecretString> },
    Twilio { secrets: Vec<SecretString>, public_url: String },
    Generic(GenericSettings),
}

/// How an Evolution server proves that a webhook is its own. It never signs bodies.
#[derive(Clone, Debug)]
pub enum EvolutionProof {
    /// `Authorization: Bearer` with a token made of the secret, which Evolution calls `jwt_key`.
    Jwt { secrets: Vec<SecretString> },
    /// A fixed header, or nothing at all.
    Header(SignatureRule),
}

/// Any other webhook, described by where its parts are.
#[derive(Clone, Debug)]
pub struct GenericSettings {
    pub channel: String,
    pub signature: SignatureRule,
    /// Where the id is.
    pub id: Option<FieldSource>,
    /// Used when `id` finds nothing: these parts together are the identity. Empty: the whole body is.
    pub id_parts: Vec<FieldSource>,
    /// What orders events; nothing found means no order.
    pub thread: Option<FieldSource>,
}

/// Where in a request a value is found.
#[derive(Clone, Debug)]
pub enum FieldSource {
    Header(http::HeaderName),
    /// RFC 6901, `/data/id`.
    Pointer(String),
    /// RFC 9535, `$.data.id`; its first match counts. Checked for syntax by [`FieldSource::read`].
    JsonPath(String),
}

impl FieldSource {
    /// Reads `header:X-Id`, `/json/pointer` or `$.json.path`.
    pub fn read(text: &str) -> Result<FieldSource, String> {
        if let Some(name) = text.strip_prefix("header:") {
            return http::HeaderName::try_from(name.trim())
                .map(FieldSource::Header)
                .map_err(|_| format!("`{name}` is not a header name"));
        }
        if text.starts_with('/') {
            return Ok(FieldSource::Pointer(text.to_owned()));
        }
        if text.starts_with('$') {
            return match jsonpath_rust::parser::parse_json_path(text) {
                Ok(_) => Ok(FieldSource::JsonPath(text.to_owned())),
                Err(_) => Err(format!("`{text}` is not a JSONPath")),
            };
        }
        Err(format!("`{text}` is none of `header:Name`, `/json/pointer`, `$.json.path`"))
    }
}

#[derive(Clone, Debug)]
pub enum SignatureRule {
    Hmac {
        algorithm: HmacAlgorithm,
        encoding: Encoding,
        header: http::HeaderName,
        prefix: String,
        secrets: Vec<SecretString>,
    },
    /// The header's whole value is the secret.
    Token {
        header: http::HeaderName,
        prefix: String,
        secrets: Vec<SecretString>,
    },
    Basic {
        user: String,
        passwords: Vec<SecretString>,
    },
    /// Only with `allow_unsigned = true`.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HmacAlgorithm {
    Sha256,
    Sha512,
    /// Twilio alone; nobody can choose it.
    Sha1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Hex,
    Base64,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Settings {
    /// As long as the provider itself goes on sending what was not taken; for those that do not say, as long as most do.
    ///
    /// A window that is not longer forgets keys whose copies may still come, and a key made in place of an id is believed no longer.
    pub fn retries_ms(&self) -> i64 {
        match self {
            Settings::Whatsapp { .. } => 7 * DAY_MS,
            Settings::Messenger { .. } | Settings::Instagram { .. } => 36 * HOUR_MS,
            Settings::Telegram { .. } => DAY_MS,
            Settings::Stripe { .. } => 3 * DAY_MS,
            // All tries within half a minute, unless told otherwise; the rest is for a slow network.
            Settings::Gowa { .. } | Settings::Waha { .. } => 2 * MINUTE_MS,
            // The schedule that the specification gives as an example ends after 75 hours; Svix gives up after 28.
            Settings::Standard { .. } => 76 * HOUR_MS,
            Settings::Shopify { .. } => 4 * HOUR_MS,
            // Ten tries with up to five minutes between them, each of which may take a minute.
            Settings::Evolution { .. } => 40 * MINUTE_MS,
            // The last of three retries comes after five minutes.
            Settings::Slack { .. } => 10 * MINUTE_MS,
            Settings::Github { .. } | Settings::Twilio { .. } | Settings::Generic(_) => HOUR_MS,
        }
    }

    pub fn provider(&self) -> &'static str {
        match self {
            Settings::Whatsapp { .. } => "whatsapp",
            Settings::Messenger { .. } => "messenger",
            Settings::Instagram { .. } => "instagram",
            Settings::Telegram { .. } => "telegram",
            Settings::Gowa { .. } => "gowa",
            Settings::Evolution { .. } => "evolution",
            Settings::Waha { .. } => "waha",
            Settings::Stripe { .. } => "stripe",
            Settings::Github { .. } => "github",
            Settings::Standard { .. } => "standard",
            Settings::Shopify { .. } => "shopify",
            Settings::Slack { .. } => "slack",
            Settings::Twilio { .. } => "twilio",
            Settings::Generic(_) => "generic",
        }
    }
}
