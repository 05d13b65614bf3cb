use serde_json::{Value, json};

use super::*;

const JSON: Option<&str> = Some("application/json");
const TEXT: &str = r#"{"messaging_product":"whatsapp","recipient_type":"individual","to":"+55 11 98888-7777","type":"text","text":{"body":"ola","preview_url":false},"context":{"message_id":"wamid.AAA"},"biz_opaque_callback_data":"mine"}"#;

fn graph() -> (Arc<dyn DropIn>, Settings) {
    channel("whatsapp")
}

#[test]
fn paths_are_metas() {
    let (graph, _) = graph();
    for (method, target, account, what) in [
        (Method::POST, "/v21.0/700001/messages", Some("700001"), What::ByBody),
        (Method::POST, "/700001/messages", Some("700001"), What::ByBody),
        (Method::POST, "/v21.0/700001/messages/", Some("700001"), What::ByBody),
        (Method::POST, "/v21.0//700001/Messages", Some("700001"), What::ByBody),
        (Method::POST, "/v21.0/", None, What::Refused { why: "batches are not taken apart here; send each call by itself" }),
        (Method::GET, "/v21.0/700001/messages?method=POST", Some("700001"), What::ByBody),
        (Method::POST, "/v21.0/700001/messages?method=get", Some("700001"), What::Through),
        (Method::GET, "/v21.0/700001/messages", Some("700001"), What::Through),
        (Method::POST, "/v21.0/700001/media", Some("700001"), What::Through),
        (Method::GET, "/v21.0/444", Some("444"), What::Through),
        (Method::GET, "/444", Some("444"), What::Through),
        (Method::POST, "/v21.0/me/messages", None, What::Through),
        (Method::POST, "/v24.0/700001/marketing_messages", Some("700001"), What::ByBody),
        (Method::GET, "/v21.0/debug_token", None, What::Through),
        (Method::POST, "/v9.0/700001/messages/x", Some("700001"), What::Through),
    ] {
        let routed = route_with(&*graph, &method, target, &[]).expect(target);
        assert_eq!((routed.account.as_deref(), routed.what), (account, what), "{method} {target}");
    }
    for other in [
        "/",
        "/messages",
        "/v21/700001/messages",
        "/vX.0/1/messages",
        "/v1234.0/1/messages",
        "/bot1:a/getMe",
        "/700001x/messages",
        "/1%2F2",
    ] {
        assert!(route(&*graph, other).is_none(), "{other}");
    }
}

#[test]
fn tokens_are_where_meta_takes_them() {
    let (graph, _) = graph();
    let token = |target: &str, headers: &[(&'static str, &str)]| {
        let routed = route_with(&*graph, &Method::POST, target, headers).expect("a path");
        routed.token.map(|token| token.expose_secret().to_owned())
    };
    assert_eq!(token("/1/messages", &[("authorization", "Bearer EAA")]).as_deref(), Some("EAA"));
    assert_eq!(token("/1/messages", &[("authorization", "bearer  EAA ")]).as_deref(), Some("EAA"));
    assert_eq!(token("/1/messages?access_token=E%41A", &[]).as_deref(), Some("EAA"));
    assert_eq!(token("/1/messages?access_token=no", &[("authorization", "OAuth EAA")]).as_deref(), Some("EAA"));
    assert_eq!(token("/1/messages", &[("authorization", "Digest x")]), None);
    assert_eq!(token("/1/messages", &[]), None);
}

#[test]
fn what_sends_is_in_the_body() {
    let (graph, _) = graph();
    let effect = |method: &str| What::Effect { method: method.to_owned() };
    for (body, what) in [
        (TEXT, effect("text")),
        (r#"{"to":"1","type":"template","template":{}}"#, effect("template")),
        (r#"{"to":"1","text":{"body":"x"}}"#, effect("text")),
        (r#"{"to":"1","type":null,"text":{"body":"x"}}"#, effect("text")),
        (r#"{"to":"1","type":"reaction","reaction":{"message_id":"w","emoji":""}}"#, What::Repeatable),
        (r#"{"status":"read","message_id":"w"}"#, What::Through),
        (r#"{"status":"read","message_id":"w","typing_indicator":{"type":"text"}}"#, What::Through),
        ("{", effect("messages")),
    ] {
        let routed = route(&*graph, "/v21.0/700001/messages").expect("a path");
        assert_eq!(graph.by_body(&routed, None, JSON, body.as_bytes()), what, "{body}");
    }
    let routed = route(&*graph, "/v21.0/700001/messages").expect("a path");
    let reaction = r#"{"to":"+5511988887777","type":"reaction"}"#;
    assert_eq!(graph.peer_of(&routed, None, JSON, reaction.as_bytes()).as_deref(), Some("5511988887777"));
}

#[test]
fn what_is_sent_is_what_the_bot_wrote() {
    let (graph, settings) = graph();
    let sent = |target: &str, sort, body: &str| {
        let effect = effect(&*graph, target, sort, body.as_bytes()).expect("an effect");
        let call = call_of(&settings, &effect);
        let authorization = call.headers.iter().find(|(name, _)| name == "authorization").map(|(_, value)| value.clone());
        assert_eq!(authorization.expect("a token").to_str().expect("text"), "Bearer 123:channel");
        (effect, call.path.clone(), body_of(&call))
    };
    let (effect, path, body) = sent("/v21.0/700001/messages", JSON, TEXT);
    assert_eq!((effect.account.as_deref(), effect.peer.as_str()), (Some("700001"), "5511988887777"));
    assert_eq!((effect.text.as_deref(), effect.method.as_str(), effect.keeps_body), (Some("ola"), "text", false));
    assert_eq!(path, "/v21.0/700001/messages");
    // Everything but our handle, in front of the bot's own.
    let mut expected: Value = serde_json::from_str(TEXT).expect("JSON");
    expected["biz_opaque_callback_data"] = json!("msg_0190000000007000800000000000002a|mine");
    assert_eq!(body, expected);
    let (_, path, _) = sent("/700001/messages?access_token=EAA", JSON, TEXT);
    assert_eq!(path, "/700001/messages");
    let template = r#"{"messaging_product":"whatsapp","to":"1555000","type":"template","template":{"name":"x"}}"#;
    assert_eq!(sent("/v24.0/700001/marketing_messages", JSON, template).1, "/v24.0/700001/marketing_messages");
    // Forms and the query say the same.
    let form = "messaging_product=whatsapp&to=5511988887777&type=text&text=%7B%22body%22%3A%22ola%22%7D";
    let (_, _, body) = sent("/v21.0/700001/messages?recipient_type=individual", Some("application/x-www-form-urlencoded"), form);
    assert_eq!((&body["text"], &body["recipient_type"]), (&json!({ "body": "ola" }), &json!("individual")));
    // A user without a number, and a group.
    let (effect, _, body) = sent("/v21.0/700001/messages", None, r#"{"recipient":"BR.123","type":"text","text":{"body":"x"}}"#);
    assert_eq!((effect.peer.as_str(), &body["recipient"], body.get("to")), ("BR.123", &json!("BR.123"), None));
    let (effect, ..) =
        sent("/v21.0/700001/messages", JSON, r#"{"recipient_type":"group","to":"g-1","type":"text","text":{"body":"x"}}"#);
    assert_eq!(effect.peer, "g-1");
}

#[test]
fn one_content_whatever_is_not_read() {
    let (graph, _) = graph();
    let content = |target: &str, body: &str| effect(&*graph, target, JSON, body.as_bytes()).expect("an effect").content;
    let one = content("/v21.0/700001/messages", TEXT);
    let mut other: Value = serde_json::from_str(TEXT).expect("JSON");
    other["biz_opaque_callback_data"] = json!("drawn by lot");
    assert_eq!(content("/v21.0/700001/messages", &serde_json::to_string_pretty(&other).expect("JSON")), one);
    other["text"]["body"] = json!("Ola");
    assert_ne!(content("/v21.0/700001/messages", &other.to_string()), one);
}

#[test]
fn errors_look_like_metas() {
    let (graph, _) = graph();
    let slow = graph.reply(&Refusal::SlowDown { seconds: 0 });
    assert_eq!((slow.status.as_u16(), slow.retry_after_s), (429, Some(1)));
    let error = &json_of(&slow)["error"];
    assert_eq!(
        (&error["code"], &error["message"], &error["type"]),
        (&json!(130_429), &json!("(#130429) Rate limit hit"), &json!("OAuthException"))
    );
    assert_eq!(error["error_data"]["messaging_product"], json!("whatsapp"));
    for (refusal, status, code) in [
        (Refusal::Unauthorized, 401, 190),
        (Refusal::NotFound, 404, 2500),
        (Refusal::TooLarge, 413, 100),
        (Refusal::Unreadable("x".to_owned()), 400, 100),
        (Refusal::Refused("x".to_owned()), 400, 100),
        (Refusal::Unavailable, 503, 2),
    ] {
        let reply = graph.reply(&refusal);
        assert_eq!((reply.status.as_u16(), &json_of(&reply)["error"]["code"]), (status, &json!(code)), "{refusal:?}");
    }
    let long = json!({ "to": "1", "type": "text", "biz_opaque_callback_data": "x".repeat(500) }).to_string();
    for bad in ["{}", r#"{"to":"","type":"text"}"#, r#"{"to":null,"type":"text"}"#, "{", "[]", long.as_str()] {
        assert_eq!(effect(&*graph, "/v21.0/1/messages", JSON, bad.as_bytes()).expect_err(bad).status, 400, "{bad}");
    }
}

#[test]
fn passing_through_changes_the_token_alone() {
    let (graph, _) = graph();
    let head =
        Head { method: &Method::GET, path: "/v21.0/444", query: Some("a=%20&access_token=EAA&b"), headers: &HeaderMap::new() };
    let forward = graph.forward(&head).expect("a call");
    assert_eq!(forward.path, "/v21.0/444?a=%20&b");
    assert_eq!(forward.headers[0].1.to_str().expect("text"), "Bearer 123:channel");
    assert!(forward.headers[0].1.is_sensitive());
    let alone = Head { query: Some("Access_Token=EAA"), ..head };
    assert_eq!(graph.forward(&alone).expect("a call").path, "/v21.0/444");
}

#[test]
fn a_message_stands_in_for_the_answer_that_was_lost() {
    let (graph, _) = graph();
    let settled = Settled { peer: "5511988887777", payload: TEXT.as_bytes(), provider_id: "wamid.OUT1", at_ms: 0 };
    let expected = json!({
        "messaging_product": "whatsapp",
        "contacts": [{ "input": "+55 11 98888-7777", "wa_id": "5511988887777" }],
        "messages": [{ "id": "wamid.OUT1" }],
    });
    assert_eq!(json_of(&graph.stand_in(&settled)), expected);
}
