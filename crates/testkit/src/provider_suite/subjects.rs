//! The providers under test, each set up as a channel would.

use std::sync::Arc;

use hapax_providers::settings::{Encoding, EvolutionProof, FieldSource, GenericSettings, HmacAlgorithm, Settings, SignatureRule};
use hapax_providers::{Provider, RawRequest, Refused, build};
use secrecy::SecretString;

use super::fixtures::Fixture;

pub(super) const NOW_MS: i64 = 1_760_000_000_000;
pub(super) const PUBLIC_URL: &str = "https://h.example/tw";
pub(super) const SECRET: &str = "hapax-test-secret";
pub(super) const OLD_SECRET: &str = "hapax-old-secret";

const NAMES: [&str; 14] = [
    "whatsapp",
    "messenger",
    "instagram",
    "telegram",
    "gowa",
    "evolution",
    "waha",
    "stripe",
    "github",
    "standard",
    "shopify",
    "slack",
    "twilio",
    "generic",
];

pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) provider: Arc<dyn Provider>,
    /// False where the proof is a token beside the body.
    pub(super) signs_body: bool,
}

impl Subject {
    pub(super) fn all() -> Vec<Subject> {
        NAMES.into_iter().map(|name| Subject::new(name, &[SECRET])).collect()
    }

    pub(super) fn new(name: &'static str, secrets: &[&str]) -> Subject {
        let secrets: Vec<SecretString> = secrets.iter().map(|secret| SecretString::from(*secret)).collect();
        let settings = match name {
            "whatsapp" => Settings::Whatsapp { secrets, verify_token: Some(SecretString::from("verify me")) },
            "messenger" => Settings::Messenger { secrets, verify_token: Some(SecretString::from("verify me")) },
            "instagram" => Settings::Instagram { secrets, verify_token: Some(SecretString::from("verify me")) },
            "telegram" => Settings::Telegram { secrets, bot: "shop_bot".to_owned() },
            "gowa" => Settings::Gowa { secrets },
            "evolution" => Settings::Evolution { proof: EvolutionProof::Jwt { secrets }, token: None },
            "waha" => Settings::Waha { secrets },
            "stripe" => Settings::Stripe { secrets },
            "github" => Settings::Github { secrets },
            "standard" => Settings::Standard { secrets },
            "shopify" => Settings::Shopify { secrets },
            "twilio" => Settings::Twilio { secrets, public_url: PUBLIC_URL.to_owned() },
            "slack" => Settings::Slack { secrets },
            "generic" => generic(SignatureRule::Hmac {
                algorithm: HmacAlgorithm::Sha256,
                encoding: Encoding::Hex,
                header: http::HeaderName::from_static("x-signature"),
                prefix: "v1=".to_owned(),
                secrets,
            }),
            other => panic!("no provider {other}"),
        };
        assert_eq!(settings.provider(), name);
        let provider = build(&settings);
        assert_eq!(provider.name(), name);
        Subject { name, provider, signs_body: !matches!(name, "telegram" | "evolution") }
    }

    pub(super) fn signed(&self, fixture: &Fixture) -> RawRequest {
        let mut request = fixture.request();
        request.headers.extend(self.provider.sign(fixture.unsigned(), NOW_MS));
        request
    }

    pub(super) fn refusal(&self, request: &RawRequest) -> Option<Refused> {
        self.provider.verify(request, NOW_MS).err()
    }
}

/// The generic channel that the fixtures are written for.
pub(super) fn generic(signature: SignatureRule) -> Settings {
    let place = |text| FieldSource::read(text).expect("a place");
    Settings::Generic(GenericSettings {
        channel: "orders".to_owned(),
        signature,
        id: Some(place("/id")),
        id_parts: vec![place("/event/kind"), place("$.items[0].sku")],
        thread: Some(place("/customer")),
    })
}
