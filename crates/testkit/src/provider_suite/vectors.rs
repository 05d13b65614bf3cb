//! Codes computed with the providers' own libraries, and the rules that only one provider has.

use std::sync::LazyLock;

use hapax_domain::{EventKey, Identity};
use hapax_providers::settings::{Encoding, HmacAlgorithm, SignatureRule};
use hapax_providers::{RawRequest, Refused, Unsigned, build};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::SecretString;

use super::fixtures::Fixture;
use super::subjects::{NOW_MS, SECRET, Subject, generic};

/// The backslash and the `u` are literal: re-serialised JSON would have another code.
const BODY: &[u8] = br#"{"a":1,"t":"ol\u00e1"}"#;
const SHA256: &str = "3c0fc55377037b775244b9116a4b629e93b46b0e6a394d8fdbc28f0058b312b5";
const SHA512: &str = "1fbe42cf8209f668fdc709650cab2e0c92e30fc5c52d49bd6568b041214eb60d\
                      9127e7c291f87e79b713d74aac2b6f3b9afb61a82eecb19c077ad8ed6e677fd6";

fn unsigned(body: &[u8]) -> Unsigned<'_> {
    static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
    Unsigned { url: None, headers: &NONE, body }
}

fn request(body: &[u8], headers: &[(&'static str, &str)]) -> RawRequest {
    let header = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    RawRequest {
        method: Method::POST,
        query: String::new(),
        headers: headers.iter().map(header).collect(),
        body: body.to_vec().into(),
    }
}

#[test]
fn hub_signatures_agree_with_the_official_libraries() {
    for name in ["whatsapp", "messenger", "instagram", "gowa", "github"] {
        let subject = Subject::of(name, &[SECRET]);
        let value = format!("sha256={SHA256}");
        assert_eq!(subject.refusal(&request(BODY, &[("x-hub-signature-256", &value)])), None, "{name}");
        assert_eq!(subject.provider.sign(unsigned(BODY), NOW_MS)[0].1, value, "{name}");
    }
    let documented = Subject::of("github", &["It's a Secret to Everybody"]).provider.sign(unsigned(b"Hello, World!"), NOW_MS);
    let value = documented[0].1.to_str().unwrap();
    assert!(value.starts_with("sha256=757107ea") && value.ends_with("3e17"), "{value}");
}

#[test]
fn waha_signatures_agree_with_its_documentation() {
    let subject = Subject::of("waha", &[SECRET]);
    assert_eq!(subject.refusal(&request(BODY, &[("x-webhook-hmac", SHA512)])), None);
    assert_eq!(subject.provider.sign(unsigned(BODY), NOW_MS)[0].1, SHA512);
    let documented = "208f8a55dde9e05519e898b10b89bf0d0b3b0fdf11fdbf09b6b90476301b98d8\
                      097c462b2b17a6ce93b6b47a136cf2e78a33a63f6752c2c1631777076153fa89";
    let body = br#"{"event":"message","session":"default","engine":"WEBJS"}"#;
    let subject = Subject::of("waha", &["my-secret-key"]);
    assert_eq!(subject.refusal(&request(body, &[("x-webhook-hmac", documented)])), None);
    assert_eq!(subject.refusal(&request(BODY, &[("x-webhook-hmac", documented)])), Some(Refused::BadSignature));
}

#[test]
fn stripe_signatures_agree_with_the_official_libraries() {
    let subject = Subject::of("stripe", &["whsec_test"]);
    let code = "8f1baf01dc7e0cb78e87f75ac94f938d154619d167032c8326d50ab1d577aead";
    let signed = format!("t=1700000000,v1={code}");
    assert_eq!(subject.provider.sign(unsigned(BODY), 1_700_000_000_999)[0].1, signed);
    let refusal = |header: &str, now_s: i64| {
        let request = request(BODY, &[("stripe-signature", header)]);
        subject.provider.verify(&request, now_s * 1_000).err()
    };
    let rolled = format!("t=1700000000,v1={},v1={code},v0={code}", "0".repeat(64));
    assert_eq!(refusal(&rolled, 1_700_000_000), None);
    assert_eq!(refusal(&signed, 1_700_000_300), None);
    assert_eq!(refusal(&signed, 1_700_000_301), Some(Refused::Stale));
    assert_eq!(refusal(&signed, 1_699_999_700), None);
    assert_eq!(refusal(&signed, 1_699_999_699), Some(Refused::Stale));
    assert_eq!(refusal(&format!("t=1700000000,v0={code}"), 1_700_000_000), Some(Refused::BadSignature));
    assert_eq!(refusal(&format!("t=1700000001,v1={code}"), 1_700_000_000), Some(Refused::BadSignature));
    assert_eq!(refusal(&format!("v1={code}"), 1_700_000_000), Some(Refused::BadSignature));
}

/// Signs with the key and checks with another that belongs to it; `at_s` is when it was signed.
fn standard(key: &'static str, id: &str, at_s: i64, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
    let headers = HeaderMap::from_iter([(HeaderName::from_static("webhook-id"), HeaderValue::from_str(id).unwrap())]);
    Subject::of("standard", &[key]).provider.sign(Unsigned { url: None, headers: &headers, body }, at_s * 1_000)
}

#[test]
fn standard_webhooks_agree_with_the_official_libraries() {
    const KEY: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
    const CODE: &str = "v1,WSmb8nPvFnyJbUYSL/J54NlQyop1QM1Nw2U2/U/xdPs=";
    let signed = standard(KEY, "msg_1", 1_700_000_000, BODY);
    assert_eq!((&signed[0].1, &signed[1].1), (&HeaderValue::from_static(CODE), &HeaderValue::from_static("1700000000")));
    let refusal = |names: [&'static str; 3], key: &'static str, time: &str, code: &str, now_s: i64| {
        let request = request(BODY, &[(names[0], "msg_1"), (names[1], time), (names[2], code)]);
        Subject::of("standard", &[key]).provider.verify(&request, now_s * 1_000).err()
    };
    let ours = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let svix = ["svix-id", "svix-timestamp", "svix-signature"];
    for names in [ours, svix] {
        assert_eq!(refusal(names, KEY, "1700000000", CODE, 1_700_000_300), None);
        assert_eq!(refusal(names, KEY, "1700000000", CODE, 1_699_999_700), None);
        assert_eq!(refusal(names, KEY, "1700000000", CODE, 1_700_000_301), Some(Refused::Stale));
        assert_eq!(refusal(names, KEY, "1700000000", CODE, 1_699_999_699), Some(Refused::Stale));
    }
    // The bare base64 is the same key, and so it is without its padding; several signatures and unknown versions may stand there.
    assert_eq!(refusal(ours, &KEY[6..], "1700000000", CODE, 1_700_000_000), None);
    let rolled = format!("v2,x v1,{} nonsense {CODE} v1a,AAAA", "A".repeat(44));
    assert_eq!(refusal(ours, KEY, "1700000000", &rolled, 1_700_000_000), None);
    for bad in ["", "v1,", "v1", &CODE[3..], &CODE.replace("v1,", "v2,"), &CODE.replace("v1,", "v1a,")] {
        assert_eq!(refusal(ours, KEY, "1700000000", bad, 1_700_000_000), Some(Refused::BadSignature), "{bad}");
    }
    assert_eq!(refusal(ours, KEY, "1700000001", CODE, 1_700_000_000), Some(Refused::BadSignature));
    let nameless = request(BODY, &[(ours[1], "1700000000"), (ours[2], CODE)]);
    let subject = Subject::of("standard", &[KEY]);
    assert_eq!(subject.provider.verify(&nameless, 1_700_000_000_000).err(), Some(Refused::BadSignature));
}

/// The example of Svix's own server.
#[test]
fn asymmetric_signatures_agree_with_svix() {
    const PAIR: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
    const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
    const CODE: &str = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";
    let (id, at_s, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
    assert_eq!(standard(PAIR, id, at_s, body)[0].1, CODE);
    assert_eq!(standard(PUBLIC, id, at_s, body), [], "a public key cannot sign");
    let signed =
        |body: &[u8]| request(body, &[("webhook-id", id), ("webhook-timestamp", "1614265330"), ("webhook-signature", CODE)]);
    for key in [PAIR, PUBLIC] {
        let subject = Subject::of("standard", &[key]);
        assert!(subject.provider.verify(&signed(body), at_s * 1_000).is_ok());
        assert_eq!(subject.provider.verify(&signed(b"{}"), at_s * 1_000).err(), Some(Refused::BadSignature));
    }
    let stranger = Subject::of("standard", &[SECRET]);
    assert_eq!(stranger.provider.verify(&signed(body), at_s * 1_000).err(), Some(Refused::BadSignature));
}

#[test]
fn shopify_signatures_agree_with_the_official_libraries() {
    let subject = Subject::of("shopify", &[SECRET]);
    let code = "PA/FU3cDe3dSRLkRaktinpO0aw5qOU2P28KPAFizErU=";
    assert_eq!(subject.provider.sign(unsigned(BODY), NOW_MS)[0].1, code);
    for header in ["x-shopify-hmac-sha256", "shopify-hmac-sha256"] {
        assert_eq!(subject.refusal(&request(BODY, &[(header, code)])), None, "{header}");
    }
    let order = Fixture::named("shopify", "without_x");
    assert_eq!(subject.provider.sign(order.unsigned(), NOW_MS)[0].0, "shopify-hmac-sha256");
    let key = |fixture: &Fixture| only_key(&subject, fixture).0;
    let paid = order.with_header("shopify-topic", b"orders/paid").unwrap();
    assert_ne!(key(&paid), key(&order), "one order is told of under several topics");
    assert_eq!(key(&Fixture::named("shopify", "order")), key(&order), "the names of the headers do not matter");
}

#[test]
fn generic_signatures_come_in_every_configured_shape() {
    let header = HeaderName::from_static("x-proof");
    let secrets = vec![SecretString::from(SECRET)];
    let hmac = |algorithm, encoding, prefix: &str| SignatureRule::Hmac {
        algorithm,
        encoding,
        header: header.clone(),
        prefix: prefix.to_owned(),
        secrets: secrets.clone(),
    };
    let token =
        |prefix: &str| SignatureRule::Token { header: header.clone(), prefix: prefix.to_owned(), secrets: secrets.clone() };
    let basic = SignatureRule::Basic { user: "ana".to_owned(), passwords: secrets.clone() };
    let cases: [(SignatureRule, &'static str, String); 6] = [
        (hmac(HmacAlgorithm::Sha256, Encoding::Hex, "sha256="), "x-proof", format!("sha256={SHA256}")),
        (hmac(HmacAlgorithm::Sha512, Encoding::Hex, ""), "x-proof", SHA512.to_owned()),
        (hmac(HmacAlgorithm::Sha256, Encoding::Base64, ""), "x-proof", "PA/FU3cDe3dSRLkRaktinpO0aw5qOU2P28KPAFizErU=".to_owned()),
        (token(""), "x-proof", SECRET.to_owned()),
        (token("Bearer "), "x-proof", format!("Bearer {SECRET}")),
        (basic, "authorization", "Basic YW5hOmhhcGF4LXRlc3Qtc2VjcmV0".to_owned()),
    ];
    for (rule, header, value) in cases {
        let provider = build(&generic(rule));
        let refusal = |value: &str| provider.verify(&request(BODY, &[(header, value)]), NOW_MS).err();
        assert_eq!(
            provider.sign(unsigned(BODY), NOW_MS)[0],
            (HeaderName::from_static(header), HeaderValue::from_str(&value).unwrap())
        );
        assert_eq!(refusal(&value), None, "{value}");
        assert_eq!(refusal(&value.replace('a', "b")), Some(Refused::BadSignature), "{value}");
        assert_eq!(refusal(&format!("{value}x")), Some(Refused::BadSignature), "{value}");
        assert_eq!(refusal(""), Some(Refused::BadSignature), "{value}");
        assert_eq!(provider.verify(&request(BODY, &[]), NOW_MS).err(), Some(Refused::NoSignature), "{value}");
    }
    let open = build(&generic(SignatureRule::None));
    assert!(open.verify(&request(BODY, &[]), NOW_MS).is_ok());
    assert_eq!(open.sign(unsigned(BODY), NOW_MS), []);
    assert_eq!(open.signature_headers(), &[] as &[HeaderName]);
}

#[test]
fn only_metas_own_get_with_the_right_token_is_answered() {
    for name in ["whatsapp", "messenger", "instagram"] {
        handshake(&Subject::of(name, &[SECRET]));
    }
    let tokenless = build(&hapax_providers::settings::Settings::Whatsapp { secrets: vec![], verify_token: None });
    let request = RawRequest {
        method: Method::GET,
        query: "hub.mode=subscribe&hub.challenge=1&hub.verify_token=".to_owned(),
        headers: HeaderMap::new(),
        body: Default::default(),
    };
    assert_eq!(tokenless.handshake(&request).map(|reply| reply.status), Some(403));
}

fn handshake(subject: &Subject) {
    let ask = |method: Method, query: &str| {
        let request = RawRequest { method, query: query.to_owned(), headers: HeaderMap::new(), body: Default::default() };
        subject.provider.handshake(&request).map(|reply| (reply.status, reply.body))
    };
    let good = "hub.mode=subscribe&hub.challenge=11%2B58&hub.verify_token=verify+me";
    assert_eq!(ask(Method::GET, good), Some((200, "11+58".to_owned())));
    assert_eq!(ask(Method::GET, &good.replace("hub.", "hub%2E")), Some((200, "11+58".to_owned())));
    assert_eq!(ask(Method::POST, good), None);
    assert_eq!(ask(Method::GET, "x=1"), None);
    for bad in
        [good.replace("me", "you"), good.replace("subscribe", "unsubscribe"), "hub.mode=subscribe&hub.challenge=1".to_owned()]
    {
        let (status, body) = ask(Method::GET, &bad).expect("an answer");
        assert!(status == 403 && !body.contains("11"), "{bad}");
    }
}

fn only_key(subject: &Subject, fixture: &Fixture) -> (EventKey, u32) {
    super::keys(&super::read(subject, fixture))[0]
}

#[test]
fn what_changes_between_copies_is_no_conflict() {
    let stripe = Subject::of("stripe", &[SECRET]);
    let paid = Fixture::named("stripe", "invoice_paid");
    let text = std::str::from_utf8(&paid.body).unwrap();
    let counted = paid.with_body(text.replace(r#""pending_webhooks": 1"#, r#""pending_webhooks": 0"#).into_bytes());
    assert_ne!(counted.body, paid.body);
    assert_eq!(only_key(&stripe, &counted), only_key(&stripe, &paid));
    let gowa = Subject::of("gowa", &[SECRET]);
    let text = Fixture::named("gowa", "text");
    assert_eq!(only_key(&gowa, &text.with_text("Ana S", "Ana Silva")), only_key(&gowa, &text));
    let call = Fixture::named("gowa", "call");
    assert_eq!(only_key(&gowa, &call.with_text("Ana", "Bia")), only_key(&gowa, &call));
    let edited = text.with_text("oi", "ola");
    assert_eq!(only_key(&gowa, &edited).0, only_key(&gowa, &text).0);
    assert_ne!(only_key(&gowa, &edited).1, only_key(&gowa, &text).1);
}

#[test]
fn a_hostile_contact_cannot_take_anothers_message_id() {
    let gowa = Subject::of("gowa", &[SECRET]);
    let text = Fixture::named("gowa", "text");
    let victim = "551188887777@s.whatsapp.net";
    let key = |fixture: &Fixture| only_key(&gowa, fixture).0;
    assert_ne!(key(&text.with_text(victim, "666@s.whatsapp.net")), key(&text));
    // The same person under another device or as a LID in the same chat is the same sender.
    let device = std::str::from_utf8(&text.body).unwrap().replace(r#""from": "551188887777@"#, r#""from": "551188887777:4@"#);
    assert_ne!(device.as_bytes(), text.body);
    assert_eq!(key(&text.with_body(device.into_bytes())), key(&text));
    let lid = std::str::from_utf8(&text.body).unwrap().replace(r#""from": "551188887777@s.whatsapp.net""#, r#""from": "99@lid""#);
    assert_eq!(key(&text.with_body(lid.into_bytes())), key(&text));
}

#[test]
fn accounts_keep_equal_ids_apart() {
    for (provider, name, from) in [
        ("whatsapp", "text", "700001"),
        ("messenger", "text", "106000"),
        ("instagram", "text", "178000"),
        ("gowa", "text", "551190000@s.whatsapp.net"),
        ("evolution", "text", "shop1"),
        ("waha", "text", "shop1"),
        ("stripe", "connect", "acct_7"),
    ] {
        let subject = Subject::of(provider, &[SECRET]);
        let fixture = Fixture::named(provider, name);
        assert_ne!(only_key(&subject, &fixture.with_text(from, "another")).0, only_key(&subject, &fixture).0, "{provider}");
    }
}

#[test]
fn equal_changes_at_other_times_are_two_changes() {
    let whatsapp = Subject::of("whatsapp", &[SECRET]);
    let at = |fixture: &Fixture, from: &str, to: &str| {
        let body = std::str::from_utf8(&fixture.body).unwrap();
        assert!(body.contains(from), "{}", fixture.name);
        fixture.with_body(body.replace(from, to).into_bytes())
    };
    for name in ["template", "batch"] {
        let first = Fixture::named("whatsapp", name);
        let later = at(&first, "1760000100", "1760000900");
        let of = |fixture: &Fixture| super::read(&whatsapp, fixture).events;
        let unnamed = |fixture: &Fixture| of(fixture).into_iter().find(|event| event.identity == Identity::Fallback).unwrap();
        assert_eq!(unnamed(&first).key, unnamed(&first).key, "{name}: a retry is a copy");
        assert_ne!(unnamed(&first).key, unnamed(&later).key, "{name}");
    }
    let timeless = at(&Fixture::named("whatsapp", "template"), "\"time\": 1760000100,", "");
    assert_eq!(super::read(&whatsapp, &timeless).events[0].identity, Identity::Unknown);
}

#[test]
fn a_gowa_message_without_an_id_is_known_by_all_it_says() {
    let gowa = Subject::of("gowa", &[SECRET]);
    let nameless = Fixture::named("gowa", "no_id");
    let key = |fixture: &Fixture| only_key(&gowa, fixture).0;
    assert_eq!(key(&nameless), key(&nameless));
    for (from, to) in
        [("oi", "ola"), ("2026-08-22T10:00:00Z", "2026-08-22T10:00:01Z"), ("551188887777@s.whatsapp.net", "666@s.whatsapp.net")]
    {
        assert_ne!(key(&nameless.with_text(from, to)), key(&nameless), "{to}");
    }
}

#[test]
fn parts_that_are_missing_empty_or_too_large_for_a_number_are_told_apart() {
    let orders = Subject::of("generic", &[SECRET]);
    let of = |body: &str| {
        let fixture = Fixture::named("generic", "parts").with_body(body.as_bytes().to_vec());
        let event = super::read(&orders, &fixture).events.remove(0);
        (event.key, event.identity)
    };
    let sku = |sku: &str| of(&format!(r#"{{"items":[{{"sku":{sku}}}]}}"#)).0;
    assert_ne!(sku("123456789012345678901"), sku("123456789012345678902"), "all digits count");
    assert_ne!(sku("1"), sku("\"1.0\""));
    assert_eq!(sku("\"a\""), sku(" \"\\u0061\" "));
    let kind = |rest: &str| of(&format!(r#"{{"event":{{"kind":"x"}}{rest}}}"#)).0;
    assert_ne!(kind(""), kind(r#","items":[{"sku":""}]"#), "missing is not empty");
    for nothing in [r#"{"n":1}"#, r#"{"event":{"kind":""}}"#, r#"{"event":{"kind":null},"items":[]}"#] {
        assert_eq!(of(nothing).1, Identity::Unknown, "{nothing}");
    }
}
