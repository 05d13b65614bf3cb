use super::*;

const CHAT: &str = "551188887777@c.us";
/// What the id of these tests becomes.
const OWN: &str = "3EB000800000000000002A";

#[test]
fn waha_calls() {
    let sending = sending("waha", TOKEN);
    for (payload, method, path, expected) in [
        (
            r#"{"text":"oi","reply_to":"3EB0AA"}"#,
            Method::POST,
            "/api/sendText",
            format!(r#"{{"text":"oi","reply_to":"false_{CHAT}_3EB0AA","session":"shop1","chatId":"{CHAT}","id":"{OWN}"}}"#),
        ),
        (
            r#"{"text":"oi","reply_to":"true_12@g.us_A_9@lid","id":"MINE"}"#,
            Method::POST,
            "/api/sendText",
            format!(r#"{{"text":"oi","reply_to":"true_12@g.us_A_9@lid","id":"MINE","session":"shop1","chatId":"{CHAT}"}}"#),
        ),
        (
            r#"{"file":{"mimetype":"image/png","url":"https://x/y.png"},"caption":"c"}"#,
            Method::POST,
            "/api/sendImage",
            format!(
                r#"{{"file":{{"mimetype":"image/png","url":"https://x/y.png"}},"caption":"c","session":"shop1","chatId":"{CHAT}"}}"#
            ),
        ),
        (r#"{"method":"startTyping"}"#, Method::POST, "/api/startTyping", format!(r#"{{"session":"shop1","chatId":"{CHAT}"}}"#)),
        (
            r#"{"reaction":"👍","messageId":"false_1@c.us_A"}"#,
            Method::PUT,
            "/api/reaction",
            r#"{"reaction":"👍","messageId":"false_1@c.us_A","session":"shop1"}"#.to_owned(),
        ),
    ] {
        let call = call(&*sending, "shop1", CHAT, payload);
        assert_eq!((call.method.clone(), call.path.as_str(), body(&call)), (method, path, expected.as_str()));
        assert_eq!(header(&call, "x-api-key"), TOKEN);
        assert!(call.headers.iter().any(|(name, value)| name == "x-api-key" && value.is_sensitive()));
    }
    assert_eq!(OWN.len(), 22);
    for (peer, payload, says) in [
        ("ana", r#"{"text":"a"}"#, "not a WhatsApp number"),
        (CHAT, r#"{"text":""}"#, "empty"),
        (CHAT, "{}", "`text` is missing"),
        (CHAT, r#"{"method":"../sessions"}"#, "`method` is none of sendImage"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err(says);
        assert!(said.contains(says), "{said}");
    }
    for (to, peer) in
        [("+55 11 8888-7777", CHAT), ("551188887777@s.whatsapp.net", CHAT), ("99@lid", "99@lid"), ("12@g.us", "12@g.us")]
    {
        assert_eq!(sending.peer(to), peer);
    }
    let open = build_sending(&settings("waha"), None).expect("it sends");
    assert_eq!(header(&super::call(&*open, "shop1", CHAT, r#"{"text":"a"}"#), "x-api-key"), "");
}

#[test]
fn waha_verdicts() {
    let sending = sending("waha", TOKEN);
    let text = r#"{"text":"a"}"#;
    for (payload, status, body, expected) in [
        (text, 201, r#"{"id":"true_5511@c.us_3EB0Y"}"#, "sent 3EB0Y".to_owned()),
        (text, 201, r#"{"id":{"fromMe":true,"id":"3EB0Y","_serialized":"true_5511@c.us_3EB0Y"}}"#, "sent 3EB0Y".to_owned()),
        (text, 201, "", "unknown".to_owned()),
        (r#"{"method":"sendSeen"}"#, 201, "", format!("sent {ID}")),
        (
            text,
            422,
            r#"{"error":"x","session":"shop1","status":"STARTING","expected":["WORKING"]}"#,
            "retry 15000 all".to_owned(),
        ),
        (text, 422, r#"{"error":"x","session":"shop1","status":"SCAN_QR_CODE","expected":["WORKING"]}"#, "stop".to_owned()),
        (text, 422, r#"{"error":"Session not found","session":"shop1"}"#, "stop".to_owned()),
        (text, 422, r#"{"message":"chatId is odd"}"#, "failed".to_owned()),
        (text, 400, r#"{"message":"x"}"#, "failed".to_owned()),
        (text, 401, r#"{"message":"Unauthorized"}"#, "stop".to_owned()),
        (text, 404, r#"{"message":"Cannot POST /x/api/sendText"}"#, "stop".to_owned()),
        (text, 429, "", "retry all".to_owned()),
        (text, 500, r#"{"message":"x"}"#, "unknown".to_owned()),
        (text, 502, "<html>", "unknown".to_owned()),
    ] {
        assert_eq!(short(&verdict_on(&*sending, payload, &answer(status, body))), expected, "{status} {body}");
    }
}

#[test]
fn waha_is_asked_for_the_id_that_we_chose() {
    let sending = sending("waha", TOKEN);
    assert_eq!(sending.reconcile(), Reconcile::ByLookup);
    let payload = Bytes::from(r#"{"text":"olá"}"#);
    let message = outgoing("shop1", CHAT, &payload);
    let call = sending.lookup(&message).expect("a search");
    let path = format!("/api/shop1/chats/{CHAT}/messages/true_{CHAT}_{OWN}?downloadMedia=false");
    assert_eq!((call.method.clone(), call.path.as_str()), (Method::GET, path.as_str()));
    let found = |status, body: &str| sending.found(&message, &answer(status, body));
    let shown = |id: &str| format!(r#"{{"id":"true_{CHAT}_{id}","fromMe":true}}"#);
    assert_eq!(found(200, &shown(OWN)), Found::OneOf { provider_ids: vec![OWN.to_owned()] });
    assert_eq!(found(404, ""), Found::Nothing);
    assert_eq!(found(200, "null"), Found::Nothing);
    for (status, body) in [(200, shown("3EB0OTHER")), (200, "{}".to_owned()), (500, String::new()), (401, String::new())] {
        assert!(matches!(found(status, &body), Found::NoAnswer { .. }), "{status} {body}");
    }
    let picture = Bytes::from(r#"{"file":{"mimetype":"image/png","url":"x"}}"#);
    assert!(sending.lookup(&outgoing("shop1", CHAT, &picture)).is_none(), "it takes no id of ours");
}
