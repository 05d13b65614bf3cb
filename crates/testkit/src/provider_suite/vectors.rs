//! Codes computed with the providers' own libraries, and the rules that only one provider has.

use std::collections::HashSet;
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
        let subject = Subject::new(name, &[SECRET]);
        let value = format!("sha256={SHA256}");
        assert_eq!(subject.refusal(&request(BODY, &[("x-hub-signature-256", &value)])), None, "{name}");
        assert_eq!(subject.provider.sign(unsigned(BODY), NOW_MS)[0].1, value, "{name}");
    }
    let documented = Subject::new("github", &["It's a Secret to Everybody"]).provider.sign(unsigned(b"Hello, World!"), NOW_MS);
    let value = documented[0].1.to_str().unwrap();
    assert!(value.starts_with("sha256=757107ea") && value.ends_with("3e17"), "{value}");
}

#[test]
fn waha_signatures_agree_with_its_documentation() {
    let subject = Subject::new("waha", &[SECRET]);
    assert_eq!(subject.refusal(&request(BODY, &[("x-webhook-hmac", SHA512)])), None);
    assert_eq!(subject.provider.sign(unsigned(BODY), NOW_MS)[0].1, SHA512);
    let documented = "208f8a55dde9e05519e898b10b89bf0d0b3b0fdf11fdbf09b6b90476301b98d8\
                      097c462b2b17a6ce93b6b47a136cf2e78a33a63f6752c2c1631777076153fa89";
    let body = br#"{"event":"message","session":"default","engine":"WEBJS"}"#;
    let subject = Subject::new("waha", &["my-secret-key"]);
    assert_eq!(subject.refusal(&request(body, &[("x-webhook-hmac", documented)])), None);
    assert_eq!(subject.refusal(&request(BODY, &[("x-webhook-hmac", documented)])), Some(Refused::BadSignature));
}

#[test]
fn stripe_signatures_agree_with_the_official_libraries() {
    let subject = Subject::new("stripe", &["whsec_test"]);
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
    Subject::new("standard", &[key]).provider.sign(Unsigned { url: None, headers: &headers, body }, at_s * 1_000)
}

#[test]
fn standard_webhooks_agree_with_the_official_libraries() {
    const KEY: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
    const CODE: &str = "v1,WSmb8nPvFnyJbUYSL/J54NlQyop1QM1Nw2U2/U/xdPs=";
    let signed = standard(KEY, "msg_1", 1_700_000_000, BODY);
    assert_eq!((&signed[0].1, &signed[1].1), (&HeaderValue::from_static(CODE), &HeaderValue::from_static("1700000000")));
    let refusal = |names: [&'static str; 3], key: &'static str, time: &str, code: &str, now_s: i64| {
        let request = request(BODY, &[(names[0], "msg_1"), (names[1], time), (names[2], code)]);
        Subject::new("standard", &[key]).provider.verify(&request, now_s * 1_000).err()
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
    let subject = Subject::new("standard", &[KEY]);
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
        let subject = Subject::new("standard", &[key]);
        assert!(subject.provider.verify(&signed(body), at_s * 1_000).is_ok());
        assert_eq!(subject.provider.verify(&signed(b"{}"), at_s * 1_000).err(), Some(Refused::BadSignature));
    }
    let stranger = Subject::new("standard", &[SECRET]);
    assert_eq!(stranger.provider.verify(&signed(body), at_s * 1_000).err(), Some(Refused::BadSignature));
}

#[test]
fn shopify_signatures_agree_with_the_official_libraries() {
    let subject = Subject::new("shopify", &[SECRET]);
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
fn slack_signatures_agree_with_the_official_libraries() {
    let subject = Subject::new("slack", &[SECRET]);
    let code = "v0=419f74582d46fe65c9b861499d012f286cc474699c71227e3229e9e29729e960";
    assert_eq!(subject.provider.sign(unsigned(BODY), 1_700_000_000_000)[0].1, code);
    let refusal = |code: &str, time: &str, now_s: i64| {
        let request = request(BODY, &[("x-slack-signature", code), ("x-slack-request-timestamp", time)]);
        subject.provider.verify(&request, now_s * 1_000).err()
    };
    assert_eq!(refusal(code, "1700000000", 1_700_000_300), None);
    assert_eq!(refusal(code, "1700000000", 1_699_999_700), None);
    assert_eq!(refusal(code, "1700000000", 1_700_000_301), Some(Refused::Stale));
    assert_eq!(refusal(code, "1700000000", 1_699_999_699), Some(Refused::Stale));
    assert_eq!(refusal(code, "1700000001", 1_700_000_000), Some(Refused::BadSignature));
    assert_eq!(refusal(&code[3..], "1700000000", 1_700_000_000), Some(Refused::BadSignature));
    let timeless = request(BODY, &[("x-slack-signature", code)]);
    assert_eq!(subject.provider.verify(&timeless, 1_700_000_000_000).err(), Some(Refused::BadSignature));
}

#[test]
fn slacks_challenge_is_answered_when_it_is_signed() {
    let subject = Subject::new("slack", &[SECRET]);
    let asked = |fixture: &Fixture| {
        let request = subject.signed(fixture);
        let verified = subject.provider.verify(&request, NOW_MS).expect("signed");
        subject.provider.challenge(&verified).map(|reply| (reply.status, reply.body))
    };
    let handshake = Fixture::named("slack", "handshake");
    assert_eq!(asked(&handshake), Some((200, "3eZbrw1aB".to_owned())));
    assert_eq!(asked(&handshake.with_text("url_verification", "event_callback")), None);
    assert_eq!(asked(&Fixture::named("slack", "message")), None);
    assert_eq!(subject.provider.handshake(&handshake.request()), None, "unsigned it is nothing");
}

#[test]
fn a_mention_in_slack_is_two_events_with_one_name() {
    let slack = Subject::new("slack", &[SECRET]);
    let of = |name| super::read(&slack, &Fixture::named("slack", name)).events.remove(0);
    let (message, mention) = (of("message"), of("app_mention"));
    assert_eq!((&message.id, &message.peer, message.kind), (&mention.id, &mention.peer, mention.kind));
    assert_ne!(message.key, mention.key);
}

#[test]
fn twilio_signatures_agree_with_the_official_libraries() {
    let subject = Subject::new("twilio", &[SECRET]);
    let form = b"MessageSid=SM1&From=%2B15550001&Body=hi";
    let code = "ix2gMrzb5vaizrbFw1ybsfS+FlY=";
    let ask = |query: &str, body: &[u8], headers: &[(&'static str, &str)]| {
        let request = RawRequest { query: query.to_owned(), ..request(body, headers) };
        subject.refusal(&request)
    };
    let signed = |query: &str, body: &[u8], code: &str| ask(query, body, &[("x-twilio-signature", code)]);
    assert_eq!(signed("x=1", form, code), None);
    assert_eq!(signed("x=1", b"Body=hi&From=%2b15550001&MessageSid=SM1&", code), None, "order and spelling do not matter");
    assert_eq!(signed("x=1", b"Body=ho&From=%2b15550001&MessageSid=SM1", code), Some(Refused::BadSignature));
    assert_eq!(signed("x=2", form, code), Some(Refused::BadSignature));
    assert_eq!(signed("", form, code), Some(Refused::BadSignature));
    let sha256 = ("x-twilio-signature", "EPqMaZDEhoPsjYK7gGWOtewU+w6fo+FzIpn2tkoEKxM=");
    let settings = ("x-twilio-webhooks-signature-settings", "key=K1,algorithm=HMAC_SHA256");
    assert_eq!(ask("x=1", form, &[sha256, settings]), None);
    assert_eq!(ask("x=1", form, &[sha256]), Some(Refused::BadSignature));
    let hash = "x=1&bodySHA256=d53b10e7d7fe20687cefb31924bf099182560f385ae7e89d8cfc2dfc749135b4";
    assert_eq!(signed(hash, BODY, "Cr8/hXoVwxAYOmygDbhSM2PNJnA="), None, "what is no form is known by its hash");
    assert_eq!(signed(hash, b"{}", "Cr8/hXoVwxAYOmygDbhSM2PNJnA="), Some(Refused::BadSignature));
}

#[test]
fn twilio_signs_for_the_address_that_the_target_has_and_takes_ports_as_they_come() {
    let subject = Subject::new("twilio", &[SECRET]);
    let message = Fixture::named("twilio", "message");
    let sign = |url| subject.provider.sign(Unsigned { url, ..message.unsigned() }, NOW_MS).remove(0).1;
    let refusal = |code: HeaderValue| {
        let mut request = message.request();
        request.headers.insert("x-twilio-signature", code);
        subject.refusal(&request)
    };
    assert_eq!(sign(None), sign(Some("https://h.example/tw")));
    assert_eq!(refusal(sign(None)), None);
    assert_eq!(refusal(sign(Some("https://h.example:443/tw"))), None);
    for other in ["https://h.example:8443/tw", "http://h.example/tw", "https://h.example/tw/", "http://127.0.0.1:3009/sms"] {
        assert_eq!(refusal(sign(Some(other))), Some(Refused::BadSignature), "{other}");
    }
}

#[test]
fn twilio_hears_an_answer_that_asks_for_nothing() {
    let thanks = Subject::new("twilio", &[SECRET]).provider.thanks().expect("words of its own");
    assert_eq!((thanks.status, thanks.content_type), (200, "text/xml"));
    assert!(thanks.body.ends_with("<Response/>"), "{}", thanks.body);
    for name in ["whatsapp", "slack", "standard", "generic"] {
        assert_eq!(Subject::new(name, &[SECRET]).provider.thanks(), None, "{name}");
    }
}

#[test]
fn a_status_of_twilio_brings_our_handle_back() {
    let subject = Subject::new("twilio", &[SECRET]);
    let id = "msg_0190000000007000800000000000002a";
    let handle = |query: String| {
        let mut request = RawRequest { query, ..Fixture::named("twilio", "delivered").request() };
        let url = format!("https://h.example/tw?{}", request.query);
        let unsigned = Unsigned { url: Some(&url), headers: &HeaderMap::new(), body: &request.body };
        let signed = subject.provider.sign(unsigned, NOW_MS);
        request.headers.extend(signed);
        let verified = subject.provider.verify(&request, NOW_MS).expect("signed");
        let event = subject.provider.parse(&verified).events.remove(0);
        assert_eq!(event.account, if request.query.contains("hapax_by") { "MG1" } else { "+15550009999" });
        event.handle.map(|id| id.to_string())
    };
    assert_eq!(handle(format!("hapax={id}&hapax_by=MG1")).as_deref(), Some(id));
    assert_eq!(handle(format!("hapax={id}")).as_deref(), Some(id));
    assert_eq!(handle(format!("order=7&hapax={id}")).as_deref(), Some(id));
    assert_eq!(handle("hapax=nonsense".to_owned()), None);
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
        handshake(&Subject::new(name, &[SECRET]));
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
    let stripe = Subject::new("stripe", &[SECRET]);
    let paid = Fixture::named("stripe", "invoice_paid");
    let text = std::str::from_utf8(&paid.body).unwrap();
    let counted = paid.with_body(text.replace(r#""pending_webhooks": 1"#, r#""pending_webhooks": 0"#).into_bytes());
    assert_ne!(counted.body, paid.body);
    assert_eq!(only_key(&stripe, &counted), only_key(&stripe, &paid));
    let gowa = Subject::new("gowa", &[SECRET]);
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
    let gowa = Subject::new("gowa", &[SECRET]);
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

/// What a contact writes, or its client makes up, is no part of the key: Slack names each event itself.
#[test]
fn nothing_that_a_slack_user_sends_hides_another_message() {
    let slack = Subject::new("slack", &[SECRET]);
    let message = Fixture::named("slack", "message");
    let key = |fixture: &Fixture| only_key(&slack, fixture).0;
    let hostile = message.with_text("Ev1", "Ev66").with_text("U1", "U666").with_text("oi <@U9>", "Ev1");
    assert_ne!(key(&hostile), key(&message), "the same client_msg_id and ts, and another event");
    assert_eq!(key(&message.with_text("4b3f", "ffff")), key(&message));
    let retry = message.with_header("x-slack-retry-num", b"3").expect("a header");
    assert_eq!(only_key(&slack, &retry), only_key(&slack, &message), "the count of tries is nothing to it");
    for header in ["x-slack-retry-num", "x-slack-retry-reason"] {
        assert!(slack.provider.signature_headers().iter().any(|name| name == header), "the bot must not see {header}");
    }
}

/// Twilio names each message itself; what the sender writes cannot pretend to be that name.
#[test]
fn nothing_that_is_texted_through_twilio_hides_another_message() {
    let twilio = Subject::new("twilio", &[SECRET]);
    let message = Fixture::named("twilio", "message");
    let (sid, other) = (format!("SM{}", "f".repeat(32)), format!("SM{}", "e".repeat(32)));
    let body = std::str::from_utf8(&message.body).unwrap();
    let hostile = body.replace(&sid, &other).replace("Body=", &format!("Body=%26MessageSid%3D{sid}+"));
    let hostile = super::read(&twilio, &message.with_body(hostile.into_bytes())).events.remove(0);
    assert_eq!(hostile.id, other);
    assert_ne!(hostile.key, only_key(&twilio, &message).0);
    let keys: HashSet<EventKey> = ["message", "delivered", "undelivered", "read", "queued"]
        .iter()
        .map(|name| only_key(&twilio, &Fixture::named("twilio", name)).0)
        .collect();
    assert_eq!(keys.len(), 5, "one message and its statuses are told apart");
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
        ("slack", "message", "T1"),
    ] {
        let subject = Subject::new(provider, &[SECRET]);
        let fixture = Fixture::named(provider, name);
        assert_ne!(only_key(&subject, &fixture.with_text(from, "another")).0, only_key(&subject, &fixture).0, "{provider}");
    }
}

#[test]
fn equal_changes_at_other_times_are_two_changes() {
    let whatsapp = Subject::new("whatsapp", &[SECRET]);
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
    let gowa = Subject::new("gowa", &[SECRET]);
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
    let orders = Subject::new("generic", &[SECRET]);
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
