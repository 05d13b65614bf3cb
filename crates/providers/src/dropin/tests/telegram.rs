use serde_json::json;

use super::*;
use crate::dropin::telegram::{
    UpdatesAsked, WebhookInfo, done, renumbered, update_of, updates, updates_asked, webhook_info, webhook_url,
};

const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
const JSON: Option<&str> = Some("application/json; charset=utf-8");

#[test]
fn methods_are_known_in_any_case() {
    let (telegram, _) = telegram();
    let effect = |method: &str| What::Effect { method: method.to_owned() };
    for (target, expected) in [
        ("/bot9:x/sendMessage", effect("sendMessage")),
        ("/bot9:x/sendmessage", effect("sendMessage")),
        ("/bot9:x/SENDMEDIAGROUP", effect("sendMediaGroup")),
        ("/bot9:x/send%4Dessage", effect("sendMessage")),
        ("/bot9:x/?method=sendMessage", effect("sendMessage")),
        ("/bot9:x//sendMessage", effect("sendMessage")),
        ("/bot9:x///SENDMESSAGE//", effect("sendMessage")),
        ("/bot9:x/%2FsendMessage%2f", effect("sendMessage")),
        ("/bot9:x/copyMessages", effect("copyMessages")),
        ("/bot9:x/giftpremiumsubscription", effect("giftPremiumSubscription")),
        // Newer than hapax.
        ("/bot9:x/sendHologram", effect("sendHologram")),
        ("/bot9:x/sendChatAction", What::Through),
        ("/bot9:x/sendCustomRequest", What::Through),
        ("/bot9:x/sendMessage%3Fx", What::Through),
        ("/bot9:x/sendMessage/", effect("sendMessage")),
        ("/bot9:x/getMe", What::Through),
        ("/bot9:x/banChatMember", What::Through),
        ("/bot9:x/editMessageText", What::Repeatable),
        ("/bot9:x/answercallbackquery", What::Repeatable),
        ("/bot9:x/setMessageReaction", What::Repeatable),
        ("/bot9:x/sendMessageDraft", What::Repeatable),
        ("/bot9:x/SetWebhook", What::SetWebhook),
        ("/bot9:x/deleteWebhook", What::DeleteWebhook),
        ("/bot9:x/getWebhookInfo", What::WebhookInfo),
        ("/bot9:x/getUpdates?offset=1", What::Updates),
        ("/bot9:x/test/sendMessage", What::Through),
        ("/file/bot9:x/photos/file_1.jpg", What::Through),
        ("/file/bot9:x/a%2Fb.jpg", What::Through),
    ] {
        let routed = route(&*telegram, target).expect(target);
        assert_eq!(routed.what, expected, "{target}");
        assert_eq!(routed.token.expect("a token").expose_secret(), "9:x", "{target}");
        assert_eq!(routed.account.as_deref(), Some("shop"), "{target}");
    }
    for refused in ["/bot9:x/logOut", "/bot9:x/CLOSE", "/bot9:x/", "/bot9:x/test/close", "/bot9:x/?method=logout"] {
        assert!(matches!(route(&*telegram, refused).expect(refused).what, What::Refused { .. }), "{refused}");
    }
    for nowhere in ["/bot9:x", "/Bot9:x/getMe", "/bot9:x%2FsendMessage", "/bot9:x/../v1/stats", "/file/bot9:x", "/bot%ff/getMe"] {
        assert!(route(&*telegram, nowhere).expect(nowhere).token.is_none(), "whoever asks is not believed: {nowhere}");
    }
    for other in ["/", "/bot", "/in/shop", "/file/", "/in/../bot"] {
        assert!(route(&*telegram, other).is_none(), "{other}");
    }
}

#[test]
fn what_is_sent_is_what_the_bot_wrote() {
    let (telegram, settings) = telegram();
    let written = json!({ "chat_id": 77, "text": "a b&c", "reply_markup": r#"{"force_reply": true}"# });
    let parts = in_parts(
        "x",
        &[("name=\"chat_id\"", b"77"), ("name=\"text\"", b"a b&c"), ("name=\"reply_markup\"", br#"{"force_reply": true}"#)],
    );
    let query = "chat_id=77&text=a+b%26c&reply_markup=%7B%22force_reply%22%3A+true%7D";
    let raw = r#"{"chat_id":"77","text":"a b&c","reply_markup":"{\"force_reply\": true}"}"#;
    for (target, sort, body) in [
        (format!("/bot9:x/sendMessage?{query}"), None, &b""[..]),
        ("/bot9:x/sendmessage".to_owned(), FORM, query.as_bytes()),
        ("/bot9:x/sendMessage".to_owned(), JSON, raw.as_bytes()),
        ("/bot9:x/sendMessage".to_owned(), Some("multipart/form-data; boundary=x"), &parts[..]),
        (
            "/bot9:x/sendMessage?chat_id=77".to_owned(),
            FORM,
            &b"chat_id=78&method=logOut&reply_to=5&text=a%20b%26c&reply_markup=%7B%22force_reply%22:+true%7D"[..],
        ),
    ] {
        let effect = effect(&*telegram, &target, sort, body).expect("an effect");
        assert_eq!((effect.peer.as_str(), effect.method.as_str()), ("77", "sendMessage"), "{target} {sort:?}");
        assert_eq!((effect.text.as_deref(), effect.keeps_body), (Some("a b&c"), false));
        let call = call_of(&settings, &effect);
        assert_eq!(call.path, "/bot123:channel/sendMessage");
        assert_eq!(body_of(&call), written, "{target} {sort:?}");
    }
    // JSON stays as it was written, big numbers, nulls and odd letters too.
    let raw = r#"{"chat_id":-100123,"text":"\ud800","x":12345678901234567890123,"n":null,"m":[{"a":1}]}"#;
    let effect = effect(&*telegram, "/bot9:x/sendMessage", JSON, raw.as_bytes()).expect("an effect");
    assert_eq!(effect.payload, raw.replacen('{', r#"{"method":"sendMessage","#, 1));
}

#[test]
fn whom_an_effect_is_for() {
    let (telegram, settings) = telegram();
    for (method, body, peer, chat_id) in [
        ("sendMessage", r#"{"chat_id":77}"#, "77", Some(json!(77))),
        ("sendMessage", r#"{"chat_id":"-1001234"}"#, "-1001234", Some(json!(-1_001_234))),
        ("sendMessage", r#"{"chat_id":77.0}"#, "77", Some(json!(77))),
        ("sendMessage", r#"{"chat_id":"077"}"#, "77", Some(json!(77))),
        ("sendMessage", r#"{"chat_id":"@news"}"#, "@news", Some(json!("@news"))),
        ("sendPhoto", r#"{"chat_id":77,"business_connection_id":"b1"}"#, "77", Some(json!(77))),
        ("sendGift", r#"{"user_id":5,"gift_id":"g"}"#, "5", None),
        ("sendGift", r#"{"user_id":5,"chat_id":"@news"}"#, "@news", Some(json!("@news"))),
        ("giftPremiumSubscription", r#"{"user_id":"5"}"#, "5", None),
        ("postStory", r#"{"business_connection_id":"b1"}"#, "b1", None),
        ("sendHologram", r#"{"user_id":5}"#, "5", None),
    ] {
        let effect = effect(&*telegram, &format!("/bot9:x/{method}"), JSON, body.as_bytes()).expect(body);
        assert_eq!(effect.peer, peer, "{method} {body}");
        assert_eq!(body_of(&call_of(&settings, &effect)).get("chat_id").cloned(), chat_id, "{method} {body}");
    }
    for (method, body, words) in [
        ("sendMessage", "{}", "chat_id is empty"),
        ("sendMessage", r#"{"chat_id":""}"#, "chat_id is empty"),
        ("sendMessage", r#"{"chat_id":0}"#, "chat not found"),
        ("sendMessage", r#"{"chat_id":"+77"}"#, "chat not found"),
        ("sendMessage", r#"{"chat_id":null}"#, "chat not found"),
        ("sendMessage", r#"{"chat_id":"-"}"#, "chat not found"),
        ("sendMessage", r#"{"chat_id":"@a b"}"#, "chat not found"),
        ("sendMessage", r#"{"chat_id":99999999999999999999}"#, "chat not found"),
        ("postStory", r#"{"chat_id":77}"#, "business_connection_id is empty"),
        ("sendMessage", r#"{"chat_id":77,"#, "can't parse JSON object"),
        ("sendMessage", r#"[77]"#, "can't parse JSON object"),
    ] {
        let reply = effect(&*telegram, &format!("/bot9:x/{method}"), JSON, body.as_bytes()).expect_err(body);
        let expected = json!({ "ok": false, "error_code": 400, "description": format!("Bad Request: {words}") });
        assert_eq!((reply.status.as_u16(), json_of(&reply)), (400, expected), "{method} {body}");
    }
    let odd = effect(&*telegram, "/bot9:x/sendMessage?chat_id=7&text=%ff", None, b"").expect_err("not UTF-8");
    assert!(json_of(&odd)["description"].as_str().is_some_and(|words| words.contains("UTF-8")));
    let long = json!({ "chat_id": 7, "text": "x".repeat(300 << 10) }).to_string();
    assert_eq!(effect(&*telegram, "/bot9:x/sendMessage", JSON, long.as_bytes()).expect_err("too long").status, 413);
}

#[test]
fn files_stay_beside_the_message() {
    let (telegram, settings) = telegram();
    let body = in_parts("x", &[("name=\"caption\"", b"look"), ("name=\"photo\"; filename=\"a.jpg\"", b"\xff\xd8..")]);
    let sort = "multipart/form-data; boundary=x";
    // pyTelegramBotAPI has everything but the files in the query.
    let effect =
        effect_in_parts(&*telegram, "/bot9:x/sendphoto?chat_id=77&protect_content=True", sort, &body).expect("an effect");
    assert_eq!((effect.peer.as_str(), effect.text.as_deref(), effect.keeps_body), ("77", Some("look"), true));
    let payload: serde_json::Value = serde_json::from_slice(&effect.payload).expect("JSON");
    let query = "chat_id=77&protect_content=True";
    let upload = json!({ "name": "shop/1", "content_type": sort, "length": body.len(), "query": query });
    assert_eq!(payload, json!({ "method": "sendPhoto", "upload": upload, "caption": "look" }));
    let call = call_of(&settings, &effect);
    assert_eq!(call.path, format!("/bot123:channel/sendPhoto?{query}"));
    assert_eq!(call.headers[0].1, sort);
    assert_eq!(call.body, CallBody::Kept { name: "shop/1".to_owned(), length: body.len() as u64 });
    let whole = super::effect(&*telegram, "/bot9:x/sendphoto?chat_id=77&protect_content=True", Some(sort), &body);
    assert_eq!(whole.as_ref(), Ok(&effect), "small ones may come whole");
    // Nobody else may name a body that is kept.
    let sending = crate::build_sending(&settings, None).expect("it sends");
    assert!(sending.check("77", &effect.payload).is_err());
    // Parts without a file need no pieces.
    let plain = in_parts("x", &[("name=\"chat_id\"", b"77"), ("name=\"text\"", b"hi")]);
    let effect = effect_in_parts(&*telegram, "/bot9:x/sendMessage", sort, &plain).expect("an effect");
    assert_eq!((effect.keeps_body, body_of(&call_of(&settings, &effect))), (false, json!({ "chat_id": 77, "text": "hi" })));
}

#[test]
fn errors_look_like_telegrams() {
    let (telegram, _) = telegram();
    let shown = |refusal: Refusal| {
        let reply = telegram.reply(&refusal);
        (reply.status.as_u16(), String::from_utf8(reply.body.to_vec()).expect("text"), reply.retry_after_s)
    };
    let slow = r#"{"description":"Too Many Requests: retry after 3","error_code":429,"ok":false,"parameters":{"retry_after":3}}"#;
    assert_eq!(shown(Refusal::SlowDown { seconds: 3 }), (429, slow.to_owned(), Some(3)));
    assert_eq!(shown(Refusal::SlowDown { seconds: 0 }).2, Some(1), "0 is not taken for a wait");
    for (refusal, status, words) in [
        (Refusal::Unauthorized, 401, "Unauthorized"),
        (Refusal::NotFound, 404, "Not Found"),
        (Refusal::TooLarge, 413, "Request Entity Too Large"),
        (Refusal::Unreadable("no \"x\"".to_owned()), 400, "Bad Request: no \"x\""),
        (Refusal::Refused("no".to_owned()), 400, "Bad Request: no"),
        (Refusal::Unavailable, 502, "Bad Gateway"),
    ] {
        let reply = telegram.reply(&refusal);
        let expected = json!({ "ok": false, "error_code": status, "description": words });
        assert_eq!((reply.status.as_u16(), json_of(&reply), reply.retry_after_s), (status, expected, None));
    }
}

#[test]
fn passing_through_changes_the_token_alone() {
    let (telegram, _) = telegram();
    let forward = |path, query| {
        let head = Head { method: &Method::GET, path, query, headers: &HeaderMap::new() };
        telegram.forward(&head).map(|forward| forward.path)
    };
    assert_eq!(forward("/bot9:x/getMe", None), Ok("/bot123:channel/getMe".to_owned()));
    assert_eq!(forward("/bothpx%20y/getFile", Some("file_id=a%20b")), Ok("/bot123:channel/getFile?file_id=a%20b".to_owned()));
    assert_eq!(forward("/file/bot9:x/p/a%20b.jpg", None), Ok("/file/bot123:channel/p/a%20b.jpg".to_owned()));
    assert_eq!(forward("/bot9:x/test/getMe", None), Ok("/bot123:channel/test/getMe".to_owned()));
    assert!(forward("/other", None).is_err());
    let settings = Settings::Telegram { secrets: vec![], bot: "shop".to_owned() };
    let without = build_dropin(&settings, None).expect("it drops in");
    let head = Head { method: &Method::GET, path: "/bot9:x/getMe", query: None, headers: &HeaderMap::new() };
    assert!(without.forward(&head).is_err());
}

#[test]
fn repeatable_calls_say_where() {
    let (telegram, _) = telegram();
    let routed = route(&*telegram, "/bot9:x/editMessageText").expect("a path");
    let of = |query, sort, body: &str| telegram.peer_of(&routed, query, sort, body.as_bytes());
    assert_eq!(of(None, JSON, r#"{"chat_id":77,"message_id":1}"#).as_deref(), Some("77"));
    assert_eq!(of(Some("chat_id=-5"), None, "").as_deref(), Some("-5"));
    assert_eq!(of(None, FORM, "inline_message_id=AA"), None);
    assert_eq!(of(None, JSON, "{"), None);
}

#[test]
fn hapax_answers_for_the_webhook() {
    assert_eq!(webhook_url(Some("url=https%3A%2F%2Fa.b%2Fc"), None, b"").as_deref(), Some("https://a.b/c"));
    assert_eq!(webhook_url(None, JSON, br#"{"url":"https://a.b","allowed_updates":[]}"#).as_deref(), Some("https://a.b"));
    let with_certificate = in_parts("x", &[("name=url", b"https://a.b"), ("name=certificate; filename=c.pem", b"--")]);
    assert_eq!(webhook_url(None, Some("multipart/form-data; boundary=x"), &with_certificate).as_deref(), Some("https://a.b"));
    for none in ["url=", "drop_pending_updates=true", ""] {
        assert_eq!(webhook_url(None, FORM, none.as_bytes()), None, "{none}");
    }
    assert_eq!(json_of(&done(None)), json!({ "ok": true, "result": true }));
    let set = done(Some("Webhook was set"));
    assert_eq!(json_of(&set), json!({ "ok": true, "result": true, "description": "Webhook was set" }));
    let info = WebhookInfo {
        url: "https://a.b".to_owned(),
        pending: 3,
        max_connections: Some(40),
        last_error: Some((17, "x".to_owned())),
    };
    assert_eq!(
        json_of(&webhook_info(&info)),
        json!({ "ok": true, "result": {
            "url": "https://a.b", "has_custom_certificate": false, "pending_update_count": 3, "max_connections": 40,
            "last_error_date": 17, "last_error_message": "x",
        }})
    );
    let none = json!({ "url": "", "has_custom_certificate": false, "pending_update_count": 0 });
    assert_eq!(json_of(&webhook_info(&WebhookInfo::default()))["result"], none);
}

#[test]
fn an_update_is_renumbered_and_nothing_else_of_it_changes() {
    let update = r#"{"update_id":7, "message": {"text":"h\u00e9  o", "update_id":1}}"#.as_bytes();
    assert_eq!(update_of(update), Some((Some(7), "message".to_owned())));
    let renumbered = renumbered(update, 90).expect("JSON");
    assert_eq!(renumbered, r#"{"update_id":90,"message":{"text":"h\u00e9  o", "update_id":1}}"#.as_bytes());
    assert_eq!(update_of(br#"{"poll":{}}"#), Some((None, "poll".to_owned())));
    assert_eq!(update_of(b"[]"), None);
}

#[test]
fn pollers_are_understood() {
    let asked = |query: &str| updates_asked(Some(query), None, b"");
    let usual = UpdatesAsked { limit: 100, ..UpdatesAsked::default() };
    assert_eq!(asked(""), usual);
    assert_eq!(asked("limit=x&offset=y&timeout=z&allowed_updates=no"), usual);
    assert_eq!(asked("limit=0&timeout=-1"), usual);
    assert_eq!(
        updates_asked(None, JSON, br#"{"offset":-1,"limit":900,"timeout":600,"allowed_updates":["message"]}"#),
        UpdatesAsked { offset: -1, limit: 100, timeout_s: 50, allowed_updates: Some(vec!["message".to_owned()]) }
    );
    assert_eq!(updates::<&[u8]>(&[]).body, r#"{"ok":true,"result":[]}"#);
    assert_eq!(
        updates(&[r#"{"update_id":1}"#, r#"{"update_id":2}"#]).body,
        r#"{"ok":true,"result":[{"update_id":1},{"update_id":2}]}"#
    );
}

#[test]
fn a_message_stands_in_for_the_answer_that_was_lost() {
    let (telegram, _) = telegram();
    let stand_in = |payload: &str, provider_id: &str| {
        let settled = Settled { peer: "77", payload: payload.as_bytes(), provider_id, at_ms: 1_760_000_000_999 };
        json_of(&telegram.stand_in(&settled))["result"].clone()
    };
    let message =
        |chat: i64, sort: &str| json!({ "message_id": 61, "date": 1_760_000_000, "chat": { "id": chat, "type": sort } });
    let mut text = message(77, "private");
    text["text"] = json!("hi");
    assert_eq!(stand_in(r#"{"method":"sendMessage","text":"hi"}"#, "77:61"), text);
    assert_eq!(stand_in(r#"{"method":"sendPhoto"}"#, "-5:61"), message(-5, "group"));
    assert_eq!(
        stand_in(r#"{"method":"sendMediaGroup"}"#, "-1001234567890:61"),
        json!([message(-1_001_234_567_890, "supergroup")])
    );
    assert_eq!(stand_in(r#"{"method":"copyMessage"}"#, "77:61"), json!({ "message_id": 61 }));
    assert_eq!(stand_in(r#"{"method":"forwardMessages"}"#, "77:61"), json!([{ "message_id": 61 }]));
    assert_eq!(stand_in("no payload", "msg_1-1"), json!(true));
}
