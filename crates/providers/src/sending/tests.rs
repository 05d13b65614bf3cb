//! Tables: from payload to call, from answer to verdict.

mod slack;
mod twilio;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;
use secrecy::SecretString;

use super::*;
use crate::build_sending;
use crate::settings::{EvolutionProof, GenericSettings, Settings, SignatureRule};

mod evolution;
mod messenger;
mod waha;

const ID: &str = "msg_0190000000007000800000000000002a";
const TOKEN: &str = "EAAtoken";
const TWILIO_LOGIN: &str = "AC00000000000000000000000000000000:auth-token";
/// 2026-08-22T10:00:00.500Z.
const BEGUN_MS: i64 = 1_787_392_800_500;

fn settings(name: &str) -> Settings {
    let secrets = vec![SecretString::from("a-long-secret")];
    match name {
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
        "twilio" => Settings::Twilio { secrets, public_url: "https://your.host/in/sms".to_owned() },
        _ => Settings::Generic(GenericSettings {
            channel: "own".to_owned(),
            signature: SignatureRule::None,
            id: None,
            id_parts: vec![],
            thread: None,
        }),
    }
}

fn sending(name: &str, token: &str) -> Arc<dyn Sending> {
    build_sending(&settings(name), Some(&SecretString::from(token))).expect("it sends")
}

fn outgoing<'m>(account: &'m str, peer: &'m str, payload: &'m Bytes) -> Outgoing<'m> {
    Outgoing { id: ID.parse().expect("an id"), account, peer, payload, begun_ms: Some(BEGUN_MS) }
}

fn call(sending: &dyn Sending, account: &str, peer: &str, payload: &str) -> Call {
    sending.check(peer, payload.as_bytes()).expect("a good message");
    sending.call(&outgoing(account, peer, &Bytes::from(payload.to_owned()))).expect("a call")
}

fn header<'c>(call: &'c Call, name: &str) -> &'c str {
    let found = call.headers.iter().find(|(found, _)| found == name);
    found.map(|(_, value)| value.to_str().expect("text")).unwrap_or_default()
}

fn body(call: &Call) -> &str {
    match &call.body {
        CallBody::Whole(body) => std::str::from_utf8(body).expect("text"),
        CallBody::Kept { .. } => panic!("kept elsewhere"),
    }
}

fn answer(status: u16, body: &str) -> CallAnswer {
    let status = StatusCode::from_u16(status).expect("a status");
    CallAnswer { status, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) }
}

fn verdict_on(sending: &dyn Sending, payload: &str, answer: &CallAnswer) -> Verdict {
    sending.classify(&outgoing("1", "77", &Bytes::from(payload.to_owned())), answer)
}

/// The verdict in a few letters, for tables.
fn short(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Sent { provider_id } => format!("sent {provider_id}"),
        Verdict::Retry { after_ms, whole_account, .. } => {
            let wait = after_ms.map(|ms| format!(" {ms}")).unwrap_or_default();
            format!("retry{wait}{}", if *whole_account { " all" } else { "" })
        }
        Verdict::SlowDown { after_ms, .. } => format!("slow{}", after_ms.map(|ms| format!(" {ms}")).unwrap_or_default()),
        Verdict::Failed { .. } => "failed".to_owned(),
        Verdict::StopAccount { .. } => "stop".to_owned(),
        Verdict::Unknown { .. } => "unknown".to_owned(),
    }
}

fn reason(verdict: Verdict) -> String {
    match verdict {
        Verdict::Retry { why, .. } | Verdict::SlowDown { why, .. } => why,
        Verdict::Failed { why } | Verdict::StopAccount { why } | Verdict::Unknown { why } => why,
        Verdict::Sent { .. } => panic!("sent"),
    }
}

#[test]
fn some_take_no_messages() {
    for name in ["stripe", "github", "standard", "shopify"] {
        assert!(build_sending(&settings(name), None).is_none(), "{name}");
    }
}

#[test]
fn whatsapp_calls() {
    let sending = sending("whatsapp", TOKEN);
    let text = call(&*sending, "106", "5511988887777", r#"{"text":"olá","reply_to":"wamid.A"}"#);
    assert_eq!((text.method.clone(), text.path.as_str()), (Method::POST, "/v25.0/106/messages"));
    assert_eq!(header(&text, "authorization"), "Bearer EAAtoken");
    assert!(text.headers.iter().any(|(name, value)| name == "authorization" && value.is_sensitive()));
    let handle = format!(r#""biz_opaque_callback_data":"{ID}""#);
    for (payload, expected) in [
        (
            r#"{"text":"olá","reply_to":"wamid.A"}"#,
            format!(
                r#"{{"text":{{"body":"olá"}},"messaging_product":"whatsapp","type":"text","context":{{"message_id":"wamid.A"}},{handle},"to":"5511988887777"}}"#
            ),
        ),
        (
            r#"{"to":"999","to":"998","type":"template","template":{"name":"x","n":1.50},"biz_opaque_callback_data":"order|7"}"#,
            format!(
                r#"{{"to":"5511988887777","type":"template","template":{{"name":"x","n":1.50}},"biz_opaque_callback_data":"{ID}|order|7","messaging_product":"whatsapp"}}"#
            ),
        ),
        (
            r#"{"type":"reaction","reaction":{"message_id":"wamid.A","emoji":"👍"}}"#,
            format!(
                r#"{{"type":"reaction","reaction":{{"message_id":"wamid.A","emoji":"👍"}},"messaging_product":"whatsapp",{handle},"to":"5511988887777"}}"#
            ),
        ),
        (
            r#"{"status":"read","message_id":"wamid.A","typing_indicator":{"type":"text"}}"#,
            r#"{"status":"read","message_id":"wamid.A","typing_indicator":{"type":"text"},"messaging_product":"whatsapp"}"#
                .to_owned(),
        ),
    ] {
        assert_eq!(body(&call(&*sending, "106", "5511988887777", payload)), expected);
    }
    let by_user_id = call(&*sending, "106", "BR.13491208655302741918", r#"{"text":"a","to":"1"}"#);
    assert!(body(&by_user_id).contains(r#""recipient":"BR.13491208655302741918""#) && !body(&by_user_id).contains(r#""to""#));
}

#[test]
fn whatsapp_refuses_what_meta_would() {
    let sending = sending("whatsapp", TOKEN);
    let (long, longest) = ("é".repeat(4_097), "é".repeat(4_096));
    let opaque = |chars: usize| format!(r#"{{"text":"a","biz_opaque_callback_data":"{}"}}"#, "x".repeat(chars));
    for (peer, payload, says) in [
        ("5511988887777", r#"{"text":" "}"#.to_owned(), "empty"),
        ("5511988887777", format!(r#"{{"text":"{long}"}}"#), "4097 characters"),
        ("5511988887777", format!(r#"{{"type":"text","text":{{"body":"{long}"}}}}"#), "4097 characters"),
        ("5511988887777", "{}".to_owned(), "neither `text` nor `type`"),
        ("5511988887777", "[]".to_owned(), "not a JSON object"),
        ("5511988887777", opaque(476), "at most 475"),
        ("5511988887777", r#"{"text":"a","biz_opaque_callback_data":7}"#.to_owned(), "not a text"),
        ("1234", r#"{"text":"a"}"#.to_owned(), "not a WhatsApp number"),
        ("+5511988887777", r#"{"text":"a"}"#.to_owned(), "not a WhatsApp number"),
        ("ana", r#"{"text":"a"}"#.to_owned(), "not a WhatsApp number"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err(says);
        assert!(said.contains(says), "{said}");
    }
    sending.check("5511988887777", format!(r#"{{"text":"{longest}"}}"#).as_bytes()).expect("as long as allowed");
    sending.check("5511988887777", opaque(475).as_bytes()).expect("as long as allowed");
    sending.check("group-1", br#"{"recipient_type":"group","type":"text","text":{"body":"a"}}"#).expect("a group");
    assert_eq!(sending.peer("+55 (11) 98888-7777"), "5511988887777");
    assert_eq!(sending.peer("BR.1"), "BR.1");
}

#[test]
fn whatsapp_verdicts() {
    let sending = sending("whatsapp", TOKEN);
    let error = |code: i64| {
        format!(r#"{{"error":{{"message":"(#{code}) m","type":"OAuthException","code":{code},"error_data":{{"details":"d"}}}}}}"#)
    };
    for (codes, expected) in [
        (&[4, 80_007, 130_429][..], "retry all"),
        (&[131_048, 131_064, 133_016], "retry 600000 all"),
        (&[131_057], "retry 60000 all"),
        (&[131_056], "slow 6000"),
        (&[1, 2, 131_000, 131_016], "retry"),
        (&[100, 131_008, 131_009, 131_021, 131_026, 131_047, 131_049, 131_050, 131_051, 131_053, 132_000, 132_001], "failed"),
        (&[132_005, 132_007, 132_012, 132_015, 132_016, 130_403, 130_472, 777_777], "failed"),
        (&[0, 3, 10, 33, 190, 200, 299, 368, 130_497, 131_005, 131_031, 131_037, 131_042, 131_045], "stop"),
    ] {
        for code in codes {
            assert_eq!(short(&verdict_on(&*sending, "{}", &answer(400, &error(*code)))), expected, "{code}");
        }
    }
    for (status, body, expected) in [
        (200, r#"{"messages":[{"id":"wamid.OUT","message_status":"accepted"}]}"#, "sent wamid.OUT".to_owned()),
        (200, r#"{"success":true}"#, format!("sent {ID}")),
        (200, r#"{"messages":[]}"#, "unknown".to_owned()),
        (200, "<html>", "unknown".to_owned()),
        (500, "", "unknown".to_owned()),
        (503, &error(777_777), "unknown".to_owned()),
        (504, r#"{"error":{}}"#, "unknown".to_owned()),
        (400, r#"{"error":{"code":777,"is_transient":true}}"#, "retry".to_owned()),
        (401, "", "stop".to_owned()),
        (302, "", "stop".to_owned()),
        (408, "", "unknown".to_owned()),
        (429, "", "retry all".to_owned()),
    ] {
        assert_eq!(short(&verdict_on(&*sending, "{}", &answer(status, body))), expected, "{status} {body}");
    }
    let why = reason(verdict_on(&*sending, "{}", &answer(400, &error(131_047))));
    assert_eq!(why, "WhatsApp error 131047: (#131047) m: d");
}

#[test]
fn a_token_that_the_provider_quotes_is_not_shown() {
    for (name, body) in [
        ("whatsapp", r#"{"error":{"code":190,"message":"Malformed access token EAAtoken"}}"#),
        ("telegram", r#"{"ok":false,"error_code":401,"description":"no bot EAAtoken"}"#),
        ("slack", r#"{"ok":false,"error":"no EAAtoken"}"#),
        ("gowa", r#"{"code":"VALIDATION_ERROR","message":"what is EAAtoken"}"#),
    ] {
        let why = reason(verdict_on(&*sending(name, TOKEN), "{}", &answer(400, body)));
        assert!(!why.contains(TOKEN) && why.contains("[token]"), "{name}: {why}");
    }
}

#[test]
fn telegram_calls() {
    let sending = sending("telegram", "123:a_b-c");
    for (peer, payload, path, expected) in [
        (
            "77",
            r#"{"text":"olá","reply_to":"77:55"}"#,
            "/bot123:a_b-c/sendMessage",
            r#"{"text":"olá","chat_id":77,"reply_parameters":{"message_id":55}}"#,
        ),
        (
            "-1001234",
            r#"{"method":"sendPhoto","chat_id":"1","photo":"AgAC","caption":"x"}"#,
            "/bot123:a_b-c/sendPhoto",
            r#"{"chat_id":-1001234,"photo":"AgAC","caption":"x"}"#,
        ),
        (
            "@shop",
            r#"{"text":"<b>a</b>","parse_mode":"HTML"}"#,
            "/bot123:a_b-c/sendMessage",
            r#"{"text":"<b>a</b>","parse_mode":"HTML","chat_id":"@shop"}"#,
        ),
    ] {
        let call = call(&*sending, "bot", peer, payload);
        assert_eq!((call.path.as_str(), body(&call)), (path, expected));
    }
    for (peer, payload, says) in [
        ("ana", r#"{"text":"a"}"#.to_owned(), "not a Telegram chat"),
        ("77", r#"{"text":""}"#.to_owned(), "empty"),
        ("77", r#"{"method":"sendMessage"}"#.to_owned(), "`text` is missing"),
        ("77", format!(r#"{{"text":"{}"}}"#, "a".repeat(4_097)), "4097 characters"),
        ("77", r#"{"method":"getMe"}"#.to_owned(), "sends nothing"),
        ("77", r#"{"method":"../../x"}"#.to_owned(), "not one of Telegram's"),
        ("77", r#"{"method":7}"#.to_owned(), "not one of Telegram's"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err(says);
        assert!(said.contains(says), "{said}");
    }
}

/// What a front end puts into the store by itself says something in its chat, or is refused.
#[test]
fn documents_may_ask_only_for_what_is_listed() {
    for (provider, payload, allowed) in [
        ("telegram", r#"{"text":"a"}"#, true),
        ("telegram", r#"{"method":"sendphoto","photo":"x"}"#, true),
        ("telegram", r#"{"method":"setWebhook","url":"https://elsewhere.example"}"#, false),
        ("telegram", r#"{"method":"forwardMessage","from_chat_id":"@others","message_id":1}"#, false),
        ("telegram", r#"{"method":"banChatMember","user_id":7}"#, false),
        ("telegram", r#"{"method":"sendGift"}"#, false),
        ("gowa", r#"{"message":"a"}"#, true),
        ("gowa", r#"{"method":"image","image_url":"x"}"#, true),
        ("gowa", r#"{"method":"revoke","message_id":"x"}"#, false),
        ("evolution", r#"{"text":"a"}"#, true),
        ("evolution", r#"{"method":"sendPresence"}"#, false),
        ("waha", r#"{"text":"a"}"#, true),
        ("waha", r#"{"method":"sendSeen"}"#, false),
        ("whatsapp", r#"{"type":"image","image":{"id":"1"}}"#, true),
    ] {
        let said = sending(provider, "123:abc").check_unattended(payload.as_bytes());
        assert_eq!(said.is_ok(), allowed, "{provider} {payload}: {said:?}");
    }
}

#[test]
fn telegram_verdicts() {
    let sending = sending("telegram", "123:abc");
    for (status, body, expected) in [
        (200, r#"{"ok":true,"result":{"message_id":61,"chat":{"id":-77}}}"#, "sent -77:61".to_owned()),
        (
            200,
            r#"{"ok":true,"result":[{"message_id":61,"chat":{"id":7}},{"message_id":62,"chat":{"id":7}}]}"#,
            "sent 7:61".to_owned(),
        ),
        (200, r#"{"ok":true,"result":true}"#, format!("sent {ID}")),
        (200, "", "unknown".to_owned()),
        (429, r#"{"ok":false,"error_code":429,"description":"x","parameters":{"retry_after":7}}"#, "slow 7000".to_owned()),
        (429, "", "slow".to_owned()),
        (400, r#"{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}"#, "failed".to_owned()),
        (400, r#"{"ok":false,"error_code":400,"parameters":{"migrate_to_chat_id":-100}}"#, "failed".to_owned()),
        (401, r#"{"ok":false,"error_code":401,"description":"Unauthorized"}"#, "stop".to_owned()),
        (404, r#"{"ok":false,"error_code":404,"description":"Not Found"}"#, "stop".to_owned()),
        (404, r#"{"ok":false,"error_code":404,"description":"Not Found: method not found"}"#, "failed".to_owned()),
        (403, r#"{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}"#, "failed".to_owned()),
        (409, r#"{"ok":false,"error_code":409}"#, "retry".to_owned()),
        (500, r#"{"ok":false,"error_code":500}"#, "unknown".to_owned()),
        (502, "<html>", "unknown".to_owned()),
    ] {
        assert_eq!(short(&verdict_on(&*sending, "{}", &answer(status, body))), expected, "{status} {body}");
    }
    let moved = r#"{"ok":false,"error_code":400,"parameters":{"migrate_to_chat_id":-100}}"#;
    assert!(reason(verdict_on(&*sending, "{}", &answer(400, moved))).contains("send to -100"));
    let mut with_header = answer(429, "");
    with_header.headers.insert("retry-after", "9".parse().expect("a value"));
    assert_eq!(short(&verdict_on(&*sending, "{}", &with_header)), "slow 9000");
}

#[test]
fn telegram_replies_in_the_answer_are_found() {
    let sending = sending("telegram", "123:abc");
    let found = |answer: &str, sort| sending.replies_in_answer(answer.as_bytes(), sort);
    let json = r#"{"method":"sendMessage","chat_id":77,"text":"oi"}"#;
    assert_eq!(found(json, Some("application/json; charset=utf-8")), [("77".to_owned(), Bytes::from(json))]);
    assert_eq!(found(json, None).len(), 1);
    let form = "method=SendMessage&chat_id=-77&text=a%26b+c";
    let as_json = r#"{"method":"SendMessage","chat_id":"-77","text":"a&b c"}"#;
    assert_eq!(found(form, Some("application/x-www-form-urlencoded")), [("-77".to_owned(), Bytes::from(as_json))]);
    let parts = "--x\r\nContent-Disposition: form-data; name=\"method\"\r\n\r\nsendMessage\r\n--x\r\n\
                 Content-Disposition: form-data; name=\"chat_id\"\r\n\r\n77\r\n--x--\r\n";
    let as_json = Bytes::from(r#"{"method":"sendMessage","chat_id":"77"}"#);
    assert_eq!(found(parts, Some("multipart/form-data; boundary=x")), [("77".to_owned(), as_json)]);
    let about_nobody = r#"{"method":"answerCallbackQuery","callback_query_id":"4382"}"#;
    assert_eq!(found(about_nobody, None), [(String::new(), Bytes::from(about_nobody))]);
    for none in
        ["", "ok", "{}", "[]", r#"{"method":7}"#, r#"{"method":"getMe"}"#, r#"{"method":"SETWEBHOOK"}"#, r#"{"method":"logOut"}"#]
    {
        assert!(found(none, None).is_empty(), "{none}");
    }
    let typing = r#"{"method":"sendChatAction","chat_id":77,"action":"typing"}"#;
    assert!(found(typing, None).is_empty(), "it is no message");
    assert!(found(json, Some("text/html")).is_empty());
}

#[test]
fn that_somebody_is_writing_is_shown_in_each_providers_way() {
    let heard = Heard { account: "700001", peer: "77", provider_id: "wamid.A\"B" };
    let (telegram, whatsapp) = (sending("telegram", "123:abc"), sending("whatsapp", "a-token"));
    let call = telegram.typing(&heard).expect("a call");
    assert_eq!((call.path.as_str(), body(&call)), ("/bot123:abc/sendChatAction", r#"{"chat_id":77,"action":"typing"}"#));
    let call = whatsapp.typing(&heard).expect("a call");
    let expected =
        r#"{"messaging_product":"whatsapp","status":"read","message_id":"wamid.A\"B","typing_indicator":{"type":"text"}}"#;
    assert_eq!((call.path.as_str(), body(&call)), ("/v25.0/700001/messages", expected));
    assert_eq!(header(&call, "authorization"), "Bearer a-token");
    assert!(telegram.typing_every_ms() < 5_000 && whatsapp.typing_every_ms() < 25_000, "before it is gone");
    assert!(sending("gowa", "a:b").typing(&heard).is_none());
    assert!(telegram.typing(&Heard { peer: "ana", ..heard }).is_none(), "that is no chat");
}

#[test]
fn gowa_calls() {
    let jid = "551188887777@s.whatsapp.net";
    let sending = sending("gowa", "me:pass");
    for (payload, path, expected) in [
        (
            r#"{"text":"oi","reply_to":"3EB0"}"#,
            "/send/message",
            format!(r#"{{"phone":"{jid}","message":"oi","reply_message_id":"3EB0"}}"#),
        ),
        (r#"{"message":"oi","duration":0}"#, "/send/message", format!(r#"{{"message":"oi","duration":0,"phone":"{jid}"}}"#)),
        (
            r#"{"image_url":"http://x/y.png","caption":"c"}"#,
            "/send/image",
            format!(r#"{{"image_url":"http://x/y.png","caption":"c","phone":"{jid}"}}"#),
        ),
        (
            r#"{"method":"chat-presence","action":"start"}"#,
            "/send/chat-presence",
            format!(r#"{{"action":"start","phone":"{jid}"}}"#),
        ),
        (
            r#"{"method":"reaction","message_id":"3EB/0","emoji":"👍"}"#,
            "/message/3EB%2F0/reaction",
            format!(r#"{{"emoji":"👍","phone":"{jid}"}}"#),
        ),
    ] {
        let call = call(&*sending, "shop1", jid, payload);
        assert_eq!((call.path.as_str(), body(&call)), (path, expected.as_str()));
        assert_eq!((header(&call, "authorization"), header(&call, "x-device-id")), ("Basic bWU6cGFzcw==", "shop1"));
    }
    let open = build_sending(&settings("gowa"), None).expect("it sends");
    assert_eq!(header(&call(&*open, "shop1", jid, r#"{"text":"a"}"#), "authorization"), "");
    for (peer, payload, says) in [
        ("ana", r#"{"text":"a"}"#, "not a WhatsApp number"),
        ("1@evil.example", r#"{"text":"a"}"#, "not a WhatsApp number"),
        (jid, r#"{"text":""}"#, "empty"),
        (jid, "{}", "neither `text` nor `message`"),
        (jid, r#"{"method":"../devices"}"#, "`method` is none of"),
        (jid, r#"{"method":"read"}"#, "`message_id` is missing"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err(says);
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(sending.peer("+55 11 8888-7777"), "551188887777@s.whatsapp.net");
    assert_eq!(sending.peer("12@g.us"), "12@g.us");
}

#[test]
fn gowa_verdicts() {
    let sending = sending("gowa", "me:pass");
    let text = r#"{"text":"a"}"#;
    for (payload, status, body, expected) in [
        (text, 200, r#"{"code":"SUCCESS","results":{"message_id":"3EB0"}}"#, "sent 3EB0".to_owned()),
        (text, 200, r#"{"code":"SUCCESS","results":null}"#, "unknown".to_owned()),
        (r#"{"method":"chat-presence"}"#, 200, r#"{"code":"SUCCESS"}"#, format!("sent {ID}")),
        (text, 400, r#"{"code":"VALIDATION_ERROR","message":"x"}"#, "failed".to_owned()),
        (text, 400, r#"{"code":"INVALID_JID"}"#, "failed".to_owned()),
        (text, 400, r#"{"code":"DEVICE_ID_REQUIRED"}"#, "stop".to_owned()),
        (text, 404, r#"{"code":"DEVICE_NOT_FOUND"}"#, "stop".to_owned()),
        (
            text,
            401,
            r#"{"code":"AUTHENTICATION_ERROR","message":"you are not connect to services server"}"#,
            "retry 15000 all".to_owned(),
        ),
        (text, 401, r#"{"code":"AUTHENTICATION_ERROR","message":"you are not login"}"#, "stop".to_owned()),
        (text, 401, "Unauthorized", "stop".to_owned()),
        (text, 429, r#"{"code":"WA_REACHOUT_TIMELOCK"}"#, "failed".to_owned()),
        (text, 500, r#"{"code":"INTERNAL_SERVER_ERROR"}"#, "unknown".to_owned()),
        (text, 504, r#"{"code":"GATEWAY_TIMEOUT"}"#, "unknown".to_owned()),
        (text, 503, r#"{"code":"SERVICE_UNAVAILABLE"}"#, "retry all".to_owned()),
        (text, 503, "", "unknown".to_owned()),
    ] {
        assert_eq!(short(&verdict_on(&*sending, payload, &answer(status, body))), expected, "{status} {body}");
    }
}

#[test]
fn gowa_finds_a_lost_message_in_the_history() {
    let sending = sending("gowa", "me:pass");
    assert_eq!(sending.reconcile(), Reconcile::ByLookup);
    let payload = Bytes::from(r#"{"text":"olá & tchau"}"#);
    let message = outgoing("shop1", "551188887777", &payload);
    let call = sending.lookup(&message).expect("a search");
    assert_eq!(
        (call.method.clone(), call.path.as_str()),
        (
            Method::GET,
            "/chat/551188887777@s.whatsapp.net/messages?is_from_me=true&limit=100&start_time=2026-08-22T09%3A59%3A55Z&search=ol%C3%A1%20%26%20tchau"
        )
    );
    assert_eq!(header(&call, "x-device-id"), "shop1");
    let of_kind = |kind: &str, id: &str, text: &str, at: &str, mine: bool| {
        format!(r#"{{"id":"{id}","content":"{text}","media_type":"{kind}","timestamp":"{at}","is_from_me":{mine}}}"#)
    };
    let row = |id: &str, text: &str, at: &str, mine: bool| of_kind("", id, text, at, mine);
    let history = |rows: &[String]| answer(200, &format!(r#"{{"code":"SUCCESS","results":{{"data":[{}]}}}}"#, rows.join(",")));
    let rows = [
        row("LATER", "olá & tchau", "2026-08-22T10:00:09Z", true),
        row("OURS", "olá & tchau", "2026-08-22T10:00:00Z", true),
        row("LONGER", "olá & tchau!", "2026-08-22T10:00:01Z", true),
        row("BEFORE THE TRY", "olá & tchau", "2026-08-22T09:59:54Z", true),
        of_kind("image", "PICTURE", "olá & tchau", "2026-08-22T10:00:01Z", true),
        row("THEIRS", "olá & tchau", "2026-08-22T10:00:01Z", false),
    ];
    let provider_ids = vec!["OURS".to_owned(), "LATER".to_owned()];
    assert_eq!(sending.found(&message, &history(&rows)), Found::OneOf { provider_ids });
    assert_eq!(sending.found(&message, &history(&rows[2..])), Found::Nothing);
    for odd in [answer(500, ""), answer(200, "{}"), answer(200, r#"{"results":{"data":"x"}}"#)] {
        assert!(matches!(sending.found(&message, &odd), Found::NoAnswer { .. }));
    }
}

#[test]
fn generic_calls_and_verdicts() {
    let sending = sending("generic", TOKEN);
    let call = call(&*sending, "own", "ana", r#"{"text":"oi","n":1.50}"#);
    assert_eq!((call.path.as_str(), body(&call)), ("", r#"{"text":"oi","n":1.50,"to":"ana"}"#));
    assert_eq!((header(&call, "idempotency-key"), header(&call, "authorization")), (ID, "Bearer EAAtoken"));
    for (status, body, expected) in [
        (201, r#"{"id":"x-1"}"#, "sent x-1".to_owned()),
        (200, r#"{"id":42}"#, "sent 42".to_owned()),
        (204, "", format!("sent {ID}")),
        (409, "", "retry".to_owned()),
        (429, "", "retry all".to_owned()),
        (503, "", "retry all".to_owned()),
        (422, "", "failed".to_owned()),
        (401, "", "stop".to_owned()),
        (500, "", "unknown".to_owned()),
    ] {
        assert_eq!(short(&verdict_on(&*sending, "{}", &answer(status, body))), expected, "{status} {body}");
    }
    assert!(sending.check("", b"{\"text\":\"a\"}").is_err());
}

#[test]
fn without_a_token_nothing_is_called() {
    for name in ["whatsapp", "telegram", "evolution", "messenger", "instagram", "slack", "twilio"] {
        let sending = build_sending(&settings(name), None).expect("it sends");
        let payload = Bytes::from(r#"{"text":"a"}"#);
        let said = sending.call(&outgoing("1", "5511988887777", &payload)).expect_err("no token");
        assert!(said.contains("`token`"), "{said}");
    }
}

#[test]
fn what_a_person_reads_is_found() {
    for (name, payload, expected) in [
        ("whatsapp", r#"{"text":"a"}"#, Some("a")),
        ("whatsapp", r#"{"type":"text","text":{"body":"b"}}"#, Some("b")),
        ("whatsapp", r#"{"type":"image","image":{"id":"1","caption":"c"}}"#, Some("c")),
        ("whatsapp", r#"{"type":"template","template":{"name":"x"}}"#, None),
        ("telegram", r#"{"method":"sendPhoto","caption":"d"}"#, Some("d")),
        ("gowa", r#"{"message":"e"}"#, Some("e")),
        ("slack", r#"{"text":"g"}"#, Some("g")),
        ("twilio", r#"{"Body":"h","text":"i"}"#, Some("h")),
        ("evolution", r#"{"mediatype":"image","caption":"g"}"#, Some("g")),
        ("generic", r#"{"text":"f"}"#, Some("f")),
        ("generic", "no json", None),
    ] {
        assert_eq!(sending(name, TOKEN).text(payload.as_bytes()).as_deref(), expected, "{name} {payload}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(bytes in "\\PC{0,60}|\\{\"(text|method|error|result|results|messages)\":[\\{\\[\"a0-9:,\\]\\}]{0,30}\\}", status in 100u16..600, peer in "\\PC{0,20}") {
        for name in ["whatsapp", "telegram", "gowa", "evolution", "waha", "messenger", "instagram", "slack", "twilio", "generic"] {
            let sending = sending(name, if name == "twilio" { TWILIO_LOGIN } else { TOKEN });
            let payload = Bytes::from(bytes.clone());
            let message = outgoing("1", &peer, &payload);
            let answer = answer(status, &bytes);
            let good = sending.check(&peer, &payload).is_ok();
            let called = sending.call(&message);
            prop_assert!(!good || called.is_ok(), "{name}: {called:?}");
            sending.classify(&message, &answer);
            sending.lookup(&message);
            sending.found(&message, &answer);
            sending.text(&payload);
            sending.replies_in_answer(&payload, None);
        }
    }
}

#[test]
fn an_account_of_dots_is_no_part_of_an_address() {
    for name in ["", ".", "..", "..."] {
        assert!(super::body::segment("the account", name).is_err(), "{name}");
    }
    assert_eq!(super::body::segment("the account", "../7").as_deref(), Ok("..%2F7"));
    assert_eq!(super::body::segment("the account", "700001").as_deref(), Ok("700001"));
}
