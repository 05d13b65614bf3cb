//! GOWA, Evolution and WAHA: one way to WhatsApp Web, three ways to call it.

use serde_json::{Value, json};

use super::*;

const JSON: Option<&str> = Some("application/json");

fn effect_named(method: &str) -> What {
    What::Effect { method: method.to_owned() }
}

#[test]
fn paths_are_theirs() {
    for (provider, method, target, account, what) in [
        ("gowa", Method::POST, "/send/message", None, effect_named("message")),
        ("gowa", Method::POST, "/send/poll?device_id=shop1", Some("shop1"), effect_named("poll")),
        ("gowa", Method::POST, "/message/3EB0/forward", None, effect_named("forward")),
        ("gowa", Method::POST, "/message/3EB0/reaction", None, What::Repeatable),
        ("gowa", Method::POST, "/message/3EB0/revoke", None, What::Repeatable),
        ("gowa", Method::POST, "/message/3EB0/read", None, What::Through),
        ("gowa", Method::POST, "/send/presence", None, What::Through),
        ("gowa", Method::POST, "/send/chat-presence", None, What::Through),
        ("gowa", Method::GET, "/send/message", None, What::Through),
        ("gowa", Method::GET, "/devices", None, What::Through),
        ("evolution", Method::POST, "/message/sendText/my%20shop", Some("my shop"), effect_named("sendText")),
        ("evolution", Method::POST, "/message/sendWhatsAppAudio/shop", Some("shop"), effect_named("sendWhatsAppAudio")),
        ("evolution", Method::POST, "/message/sendReaction/shop", Some("shop"), What::Repeatable),
        ("evolution", Method::DELETE, "/chat/deleteMessageForEveryone/shop", Some("shop"), What::Repeatable),
        ("evolution", Method::POST, "/chat/sendPresence/shop", Some("shop"), What::Through),
        ("evolution", Method::POST, "/message/sendFax/shop", Some("shop"), What::Through),
        ("evolution", Method::GET, "/instance/fetchInstances", None, What::Through),
        ("waha", Method::POST, "/api/sendText", None, effect_named("sendText")),
        ("waha", Method::GET, "/api/sendText?phone=1&text=x", None, effect_named("sendText")),
        ("waha", Method::POST, "/api/send/link-custom-preview", None, effect_named("send/link-custom-preview")),
        ("waha", Method::POST, "/api/forwardMessage", None, effect_named("forwardMessage")),
        ("waha", Method::POST, "/api/shop/status/image", Some("shop"), effect_named("status/image")),
        ("waha", Method::PUT, "/api/reaction", None, What::Repeatable),
        ("waha", Method::POST, "/api/shop/events", Some("shop"), effect_named("events")),
        ("waha", Method::POST, "/api/shop/chats/1@c.us/messages/A/pin", Some("shop"), What::Repeatable),
        ("waha", Method::POST, "/api/shop/chats/1@c.us/messages/read", None, What::Through),
        ("waha", Method::PUT, "/api/shop/chats/1@c.us/messages/true_1@c.us_A", Some("shop"), What::Repeatable),
        ("waha", Method::GET, "/api/shop/chats/1@c.us/messages/true_1@c.us_A", None, What::Through),
        ("waha", Method::POST, "/api/sendSeen", None, What::Through),
        ("waha", Method::POST, "/api/startTyping", None, What::Through),
        ("waha", Method::GET, "/api/sessions", None, What::Through),
        ("waha", Method::POST, "/sendText", None, What::Through),
    ] {
        let (dropin, _) = channel(provider);
        let routed = route_with(&*dropin, &method, target, &[]).expect(target);
        assert_eq!((routed.account.as_deref(), routed.what), (account, what), "{provider} {method} {target}");
    }
}

#[test]
fn neither_case_nor_a_slash_at_the_end_leads_past_the_outbox() {
    for (provider, method, target, account, what) in [
        ("gowa", Method::POST, "/send/message/", None, effect_named("message")),
        ("gowa", Method::POST, "/Send/Message", None, effect_named("message")),
        ("gowa", Method::POST, "//send//image", None, effect_named("image")),
        ("gowa", Method::POST, "/MESSAGE/3EB0aB/Forward/", None, effect_named("forward")),
        ("gowa", Method::POST, "/message/3EB0/Revoke/", None, What::Repeatable),
        ("evolution", Method::POST, "/message/sendtext/Inst", Some("Inst"), effect_named("sendText")),
        ("evolution", Method::POST, "/Message/SENDMEDIA/inst/", Some("inst"), effect_named("sendMedia")),
        ("evolution", Method::DELETE, "/Chat/deletemessageforeveryone/s/", Some("s"), What::Repeatable),
        ("waha", Method::POST, "/api/sendText/", None, effect_named("sendText")),
        ("waha", Method::POST, "/API/sendtext", None, effect_named("sendText")),
        ("waha", Method::GET, "/api/SendText/?phone=1&text=x", None, effect_named("sendText")),
        ("waha", Method::HEAD, "/api/sendText?phone=1&text=x", None, effect_named("sendText")),
        ("waha", Method::POST, "/api/Send/Buttons/Reply/", None, effect_named("send/buttons/reply")),
        ("waha", Method::POST, "/api/Shop/Status/Text/", Some("Shop"), effect_named("status/text")),
        ("waha", Method::POST, "/api/shop/Chats/1@c.us/Messages/A/Pin/", Some("shop"), What::Repeatable),
    ] {
        let (dropin, _) = channel(provider);
        let routed = route_with(&*dropin, &method, target, &[]).expect(target);
        assert_eq!((routed.account.as_deref(), routed.what), (account, what), "{provider} {method} {target}");
    }
    let written = json!({ "number": "551188887777", "text": "ola" });
    let as_documented = sent("evolution", "/message/sendText/s", &written);
    assert_eq!(sent("evolution", "/Message/sendtext/s/", &written), as_documented);
}

#[test]
fn tokens_are_where_they_take_them() {
    for (provider, header, value, token) in [
        ("gowa", "authorization", "Basic dXNlcjpwYXNz", Some("user:pass")),
        ("gowa", "authorization", "Bearer hpx", Some("hpx")),
        ("gowa", "authorization", "Basic %%%", None),
        ("evolution", "apikey", "KEY", Some("KEY")),
        ("evolution", "authorization", "Bearer KEY", None),
        ("waha", "x-api-key", "KEY", Some("KEY")),
    ] {
        let routed = route_with(&*channel(provider).0, &Method::POST, "/x/y", &[(header, value)]).expect("a path");
        assert_eq!(routed.token.map(|token| token.expose_secret().to_owned()).as_deref(), token, "{provider} {value}");
    }
    let routed = route(&*channel("waha").0, "/api/files/a.jpg?x-api-key=KEY").expect("a path");
    assert_eq!(routed.token.expect("a token").expose_secret(), "KEY");
    let routed = route_with(&*channel("gowa").0, &Method::POST, "/send/message?device_id=b", &[("x-device-id", "a%20c")]);
    assert_eq!(routed.expect("a path").account.as_deref(), Some("a c"));
}

/// What a call became: account, peer and text of the effect, path and body of what is sent.
fn sent(provider: &str, target: &str, written: &Value) -> (String, Value) {
    let (dropin, settings) = channel(provider);
    let effect = effect(&*dropin, target, JSON, written.to_string().as_bytes()).expect(target);
    assert!(!effect.keeps_body);
    let call = call_of(&settings, &effect);
    let (account, text) = (effect.account.as_deref().unwrap_or("-"), effect.text.as_deref().unwrap_or("-"));
    (format!("{account} {} {text} {}", effect.peer, call.path), body_of(&call))
}

#[test]
fn what_is_sent_is_what_the_bot_wrote() {
    let forward = json!({ "phone": "1203@g.us" });
    let text = json!({ "phone": "+55 1188887777", "message": "oi", "duration": 0, "mentions": [] });
    let quoting = json!({ "number": "551188887777", "text": "ola", "quoted": { "key": { "id": "3A01" } } });
    let status = json!({ "type": "text", "content": "hi", "allContacts": true });
    let image = json!({ "session": "default", "chatId": "551188887777@s.whatsapp.net", "file": { "url": "https://a/b.jpg" } });
    let story = json!({ "text": "hi", "contacts": null });
    let event = json!({ "chatId": "1203@g.us", "event": { "name": "x" } });
    for (provider, target, written, expected) in [
        ("gowa", "/send/message", text, "- 551188887777@s.whatsapp.net oi /send/message"),
        ("gowa", "/message/3EB0%20A/forward?device_id=shop1", forward, "shop1 1203@g.us - /message/3EB0%20A/forward"),
        ("evolution", "/message/sendText/s%20x", quoting, "s x 551188887777@s.whatsapp.net ola /message/sendText/s%20x"),
        ("evolution", "/message/sendStatus/shop", status, "shop status@broadcast - /message/sendStatus/shop"),
        ("waha", "/api/sendImage", image, "default 551188887777@c.us - /api/sendImage"),
        ("waha", "/api/shop/status/text", story, "shop status@broadcast hi /api/shop/status/text"),
        ("waha", "/api/shop/events", event, "shop 1203@g.us - /api/shop/events"),
    ] {
        assert_eq!(sent(provider, target, &written), (expected.to_owned(), written.clone()), "{target}");
    }
    // A text of WAHA's gets an id of ours, by which it is found again.
    let mut text = json!({ "session": "shop", "chatId": "551188887777@c.us", "text": "ola", "reply_to": "3EB0" });
    let (shown, body) = sent("waha", "/api/sendText", &text);
    text["id"] = json!("3EB000800000000000002A");
    assert_eq!((shown.as_str(), body), ("shop 551188887777@c.us ola /api/sendText", text));
}

#[test]
fn waha_sends_out_of_a_query_too() {
    let (waha, settings) = channel("waha");
    let target = "/api/sendText?phone=551188887777&text=a+b&session=shop&x-api-key=K";
    let routed = route_with(&*waha, &Method::GET, target, &[]).expect("a path");
    let query = target.split_once('?').map(|(_, query)| query);
    let effect = waha.effect(&routed, query, &Whole { content_type: None, body: b"", name: "n" }).expect("an effect");
    assert_eq!((effect.account.as_deref(), effect.peer.as_str()), (Some("shop"), "551188887777@c.us"));
    let call = call_of(&settings, &effect);
    let expected = json!({ "text": "a b", "session": "shop", "chatId": "551188887777@c.us", "id": "3EB000800000000000002A" });
    assert_eq!((call.method.clone(), body_of(&call)), (Method::POST, expected));
}

#[test]
fn what_a_payload_cannot_hold_is_kept_as_it_came() {
    let form = Some("application/x-www-form-urlencoded");
    let (gowa, settings) = channel("gowa");
    // In a form all values are texts; in GOWA's JSON they are not.
    let body = "phone=551188887777&image_url=https%3A%2F%2Fa%2Fb.jpg&view_once=true&caption=c";
    let effect_of = effect(&*gowa, "/send/image?device_id=shop1&x=1", form, body.as_bytes()).expect("an effect");
    assert_eq!(
        (effect_of.keeps_body, effect_of.peer.as_str(), effect_of.text.as_deref()),
        (true, "551188887777@s.whatsapp.net", Some("c"))
    );
    let call = call_of(&settings, &effect_of);
    assert_eq!(call.path, "/send/image?x=1");
    assert_eq!(call.body, CallBody::Kept { name: "shop/1".to_owned(), length: body.len() as u64 });
    let header =
        |name: &str| call.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.to_str().expect("text"));
    assert_eq!((header("content-type"), header("x-device-id")), (form, Some("shop1")));
    let sort = "multipart/form-data; boundary=x";
    let parts = in_parts("x", &[("name=phone", b"551188887777"), ("name=image; filename=a.jpg", b"cat")]);
    let in_file = effect_in_parts(&*gowa, "/send/image", sort, &parts).expect("an effect");
    assert_eq!((in_file.keeps_body, in_file.peer.as_str()), (true, "551188887777@s.whatsapp.net"));
    assert_eq!(effect(&*gowa, "/send/image", Some(sort), &parts), Ok(in_file), "small ones may come whole");

    // Base64 in JSON is larger than a message may be.
    let data = "A".repeat(400 << 10);
    for (provider, target, body) in [
        (
            "evolution",
            "/message/sendMedia/shop",
            json!({ "number": "551188887777", "mediatype": "image", "media": data, "caption": "c" }),
        ),
        (
            "waha",
            "/api/sendImage",
            json!({ "session": "shop", "chatId": "551188887777@c.us", "file": { "data": data }, "caption": "c" }),
        ),
    ] {
        let (dropin, settings) = channel(provider);
        let body = body.to_string();
        let effect = effect(&*dropin, target, JSON, body.as_bytes()).expect("an effect");
        assert_eq!((effect.keeps_body, effect.account.as_deref(), effect.text.as_deref()), (true, Some("shop"), Some("c")));
        assert!(effect.payload.len() < 1_000, "{provider}");
        let call = call_of(&settings, &effect);
        assert_eq!(
            (call.path.as_str(), &call.body),
            (target, &CallBody::Kept { name: "shop/1".to_owned(), length: body.len() as u64 })
        );
        let sending = crate::build_sending(&settings, None).expect("it sends");
        assert_eq!(sending.text(&effect.payload).as_deref(), Some("c"));
        assert!(sending.check("551188887777@s.whatsapp.net", &effect.payload).is_err(), "nobody else may name it");
    }
}

#[test]
fn contents_are_told_apart() {
    let content = |provider: &str, target: &str, body: &str| {
        effect(&*channel(provider).0, target, JSON, body.as_bytes()).expect("an effect").content
    };
    let phone = r#"{"phone":"551188887777"}"#;
    assert_ne!(content("gowa", "/message/A/forward", phone), content("gowa", "/message/B/forward", phone));
    assert_eq!(content("gowa", "/message/A/forward", phone), content("gowa", "/message/%41/forward?device_id=x", phone));
    let text = |id: &str| format!(r#"{{"chatId":"1@c.us","text":"x","id":"{id}"}}"#);
    assert_eq!(content("waha", "/api/sendText", &text("A")), content("waha", "/api/sendText", &text("B")), "an id is no content");
    let words =
        |text: &str| content("evolution", "/message/sendText/s", &json!({ "number": "551188887777", "text": text }).to_string());
    assert_ne!(words("[1]"), words("[ 1 ]"));
}

#[test]
fn repeatable_calls_say_where() {
    for (provider, target, body, peer) in [
        ("gowa", "/message/A/reaction", r#"{"phone":"551188887777","emoji":"x"}"#, Some("551188887777@s.whatsapp.net")),
        (
            "evolution",
            "/message/sendReaction/s",
            r#"{"key":{"remoteJid":"1203@g.us","id":"A"},"reaction":"x"}"#,
            Some("1203@g.us"),
        ),
        ("evolution", "/chat/updateMessage/s", r#"{"number":"551188887777"}"#, Some("551188887777@s.whatsapp.net")),
        ("waha", "/api/reaction", r#"{"messageId":"false_551188887777@c.us_AAA","reaction":"x"}"#, Some("551188887777@c.us")),
        ("waha", "/api/s/chats/551188887777@s.whatsapp.net/messages/A/pin", "", Some("551188887777@c.us")),
        ("waha", "/api/reaction", "{}", None),
        ("gowa", "/message/A/reaction", "{", None),
    ] {
        let (dropin, _) = channel(provider);
        let routed = route(&*dropin, target).expect("a path");
        assert_eq!(dropin.peer_of(&routed, None, JSON, body.as_bytes()).as_deref(), peer, "{provider} {body}");
    }
}

#[test]
fn errors_look_like_theirs() {
    let unreadable =
        |provider: &str, target: &str| json_of(&effect(&*channel(provider).0, target, JSON, b"{}").expect_err("nobody is named"));
    let gowa = json!({ "status": 400, "code": "VALIDATION_ERROR", "message": "phone: cannot be blank.", "results": null });
    assert_eq!(unreadable("gowa", "/send/message"), gowa);
    let evolution =
        json!({ "status": 400, "error": "Bad Request", "response": { "message": ["instance requires property \"number\""] } });
    assert_eq!(unreadable("evolution", "/message/sendText/s"), evolution);
    let waha = json!({ "statusCode": 400, "message": "chatId should not be empty", "error": "Bad Request" });
    assert_eq!(unreadable("waha", "/api/sendText"), waha);
    for provider in ["gowa", "evolution", "waha"] {
        let (dropin, _) = channel(provider);
        for (refusal, status, retry) in [
            (Refusal::Unauthorized, 401, None),
            (Refusal::NotFound, 404, None),
            (Refusal::TooLarge, 413, None),
            (Refusal::Refused("no".to_owned()), 403, None),
            (Refusal::SlowDown { seconds: 0 }, 429, Some(1)),
            (Refusal::SlowDown { seconds: 7 }, 429, Some(7)),
            (Refusal::Unavailable, 503, None),
        ] {
            let reply = dropin.reply(&refusal);
            assert_eq!((reply.status.as_u16(), reply.retry_after_s), (status, retry), "{provider} {refusal:?}");
            assert!(json_of(&reply).is_object());
        }
    }
}

#[test]
fn passing_through_changes_the_key_alone() {
    for (provider, path, query, header, value, expected) in [
        ("gowa", "/devices", Some("device_id=a"), "authorization", "Basic MTIzOmNoYW5uZWw=", "/devices?device_id=a"),
        ("evolution", "/chat/findMessages/my%20shop", None, "apikey", TOKEN, "/chat/findMessages/my%20shop"),
        ("waha", "/api/files/a.jpg", Some("X-Api-Key=K&b=%20"), "x-api-key", TOKEN, "/api/files/a.jpg?b=%20"),
    ] {
        let head = Head { method: &Method::GET, path, query, headers: &HeaderMap::new() };
        let forward = channel(provider).0.forward(&head).expect("a call");
        let headers: Vec<_> =
            forward.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
        assert_eq!((forward.path.as_str(), headers), (expected, vec![(header, value)]), "{provider}");
        assert!(forward.headers[0].1.is_sensitive());
    }
    // Without a token of the channel's own nothing of the caller's goes on.
    let open = build_dropin(&Settings::Waha { secrets: vec![] }, None).expect("it drops in");
    let head = Head { method: &Method::GET, path: "/api/x", query: None, headers: &HeaderMap::new() };
    assert_eq!(open.forward(&head).expect("a call").without, [HeaderName::from_static("x-api-key")]);
}

#[test]
fn messages_stand_in_for_answers_that_were_lost() {
    for (provider, status, expected) in [
        (
            "gowa",
            200,
            json!({ "status": 200, "code": "SUCCESS", "message": "Message sent to p", "results": { "message_id": "3EB0", "status": "Message sent to p" } }),
        ),
        (
            "evolution",
            201,
            json!({
                "key": { "remoteJid": "p", "fromMe": true, "id": "3EB0" }, "status": "PENDING", "message": { "conversation": "hi" },
                "messageType": "conversation", "messageTimestamp": 17,
            }),
        ),
        (
            "waha",
            201,
            json!({ "id": "true_p_3EB0", "timestamp": 17, "fromMe": true, "to": "p", "body": "hi", "hasMedia": false, "ack": 1 }),
        ),
    ] {
        let settled = Settled { peer: "p", payload: br#"{"text":"hi"}"#, provider_id: "3EB0", at_ms: 17_999 };
        let reply = channel(provider).0.stand_in(&settled);
        assert_eq!((reply.status.as_u16(), json_of(&reply)), (status, expected), "{provider}");
    }
}
