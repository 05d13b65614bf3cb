//! The README's table of providers: each cell is what the adapter does with a sample of its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use hapax_domain::Kind;
use hapax_providers::sending::Reconcile;
use hapax_providers::settings::{EvolutionProof, FieldSource, GenericSettings, HmacAlgorithm, Settings, SignatureRule};
use hapax_providers::{Provider, RawRequest, Unsigned, build, build_dropin, build_sending, samples};
use http::{HeaderMap, Method, header};
use secrecy::SecretString;

const COLUMNS: [&str; 8] = ["provider", "verify", "dedup", "deliver", "send", "statuses", "reconcile", "drop-in"];

const NOW_MS: i64 = 1_790_000_000_000;

/// Instagram has no sample of a receipt.
const SEEN_ON_INSTAGRAM: &str = r#"{"object":"instagram","entry":[{"id":"17841","time":1790000000000,"messaging":[
    {"sender":{"id":"555"},"recipient":{"id":"17841"},"timestamp":1790000000000,"read":{"mid":"m_1"}}]}]}"#;

fn settings(provider: &str) -> Settings {
    let secrets: Vec<SecretString> = vec!["a-long-secret-of-ours".into()];
    match provider {
        "whatsapp" => Settings::Whatsapp { secrets, verify_token: None },
        "messenger" => Settings::Messenger { secrets, verify_token: None },
        "instagram" => Settings::Instagram { secrets, verify_token: None },
        "telegram" => Settings::Telegram { secrets, bot: "bot".to_owned() },
        "gowa" => Settings::Gowa { secrets },
        "evolution" => Settings::Evolution { proof: EvolutionProof::Jwt { secrets }, token: None },
        "waha" => Settings::Waha { secrets },
        "stripe" => Settings::Stripe { secrets },
        "github" => Settings::Github { secrets },
        "standard" => Settings::Standard { secrets },
        "shopify" => Settings::Shopify { secrets },
        "slack" => Settings::Slack { secrets },
        "twilio" => Settings::Twilio { secrets, public_url: "https://your.host/in/twilio".to_owned() },
        "generic" => Settings::Generic(GenericSettings {
            channel: "generic".to_owned(),
            signature: SignatureRule::Hmac {
                algorithm: HmacAlgorithm::Sha256,
                encoding: hapax_providers::settings::Encoding::Hex,
                header: http::HeaderName::from_static("x-signature"),
                prefix: String::new(),
                secrets,
            },
            id: Some(FieldSource::Pointer("/id".to_owned())),
            id_parts: Vec::new(),
            thread: None,
        }),
        other => panic!("the README names a provider that there is not: {other}"),
    }
}

fn request(sample: &samples::Sample) -> RawRequest {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(sample.content_type));
    headers.extend(sample.headers.clone());
    RawRequest { method: Method::POST, query: String::new(), headers, body: Bytes::from(sample.body.clone()) }
}

fn signed(provider: &dyn Provider, unsigned: &RawRequest) -> RawRequest {
    let webhook = Unsigned { url: None, headers: &unsigned.headers, body: &unsigned.body };
    let proof = provider.sign(webhook, NOW_MS);
    let mut headers = unsigned.headers.clone();
    headers.extend(proof);
    RawRequest { method: Method::POST, query: String::new(), headers, body: unsigned.body.clone() }
}

/// The cells that the adapter of a provider earns.
fn earned(name: &str) -> [String; 7] {
    let settings = settings(name);
    let provider = build(&settings);
    let yes = |is: bool| if is { "yes" } else { "–" }.to_owned();
    let (mut verifies, mut dedups, mut delivers, mut statuses) = (true, true, true, false);
    let own = samples::list().iter().filter(|(sample, _)| sample.split('.').next() == Some(name));
    let mut requests: Vec<RawRequest> =
        own.map(|(sample, _)| request(&samples::sample(sample, 7, NOW_MS).expect("a sample"))).collect();
    assert!(!requests.is_empty(), "{name} has no sample");
    if name == "instagram" {
        requests.push(RawRequest {
            body: Bytes::from_static(SEEN_ON_INSTAGRAM.as_bytes()),
            ..request(&samples::sample("instagram.text", 7, NOW_MS).expect("a sample"))
        });
    }
    for unsigned in &requests {
        verifies &= provider.verify(unsigned, NOW_MS).is_err();
        let (first, second) = (signed(&*provider, unsigned), signed(&*provider, unsigned));
        let (Ok(first), Ok(second)) = (provider.verify(&first, NOW_MS), provider.verify(&second, NOW_MS)) else {
            delivers = false;
            continue;
        };
        let (first, second) = (provider.parse(&first), provider.parse(&second));
        let keys = |parsed: &hapax_providers::Parsed| parsed.events.iter().map(|event| event.key).collect::<Vec<_>>();
        dedups &= !first.events.is_empty() && keys(&first) == keys(&second);
        statuses |= first.events.iter().any(|event| event.kind == Kind::Status && event.status.is_some());
    }
    let sending = build_sending(&settings, None);
    let reconcile = match sending.as_ref().map_or(Reconcile::No, |sending| sending.reconcile()) {
        Reconcile::ByWebhook => "by webhook",
        Reconcile::ByLookup => "by look-up",
        Reconcile::No => "–",
    };
    let dropin = yes(build_dropin(&settings, None).is_some());
    [yes(verifies), yes(dedups), yes(delivers), yes(sending.is_some()), yes(statuses), reconcile.to_owned(), dropin]
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_table_of_providers_says_what_the_adapters_do() {
    let readme = std::fs::read_to_string(super::root().join("README.md")).expect("a README");
    let mut lines = readme.lines().skip_while(|line| !line.starts_with("| provider | verify |"));
    assert_eq!(&cells(lines.next().expect("a table"))[..8], COLUMNS);
    let mut told = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let row = cells(line);
        let name = row[0].split('`').nth(1).expect("a name in backticks").to_owned();
        told.insert(name, row[1..8].iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    }
    let names: Vec<String> = hapax_server::config::provider_names().map(str::to_owned).collect();
    let earned: BTreeMap<String, Vec<String>> = names.into_iter().map(|name| (name.clone(), earned(&name).to_vec())).collect();
    assert_eq!(told, earned);
}
