use super::*;

#[test]
fn messenger_calls() {
    let sending = sending("messenger", TOKEN);
    let metadata = format!(r#""metadata":"{ID}""#);
    for (payload, expected) in [
        (
            r#"{"text":"olá"}"#,
            format!(r#"{{"message":{{"text":"olá",{metadata}}},"recipient":{{"id":"77"}},"messaging_type":"RESPONSE"}}"#),
        ),
        (
            r#"{"message":{"text":"a","metadata":"order|7"},"messaging_type":"UPDATE","recipient":{"id":"1"}}"#,
            format!(
                r#"{{"message":{{"text":"a","metadata":"{ID}|order|7"}},"messaging_type":"UPDATE","recipient":{{"id":"77"}}}}"#
            ),
        ),
        (r#"{"sender_action":"typing_on"}"#, r#"{"sender_action":"typing_on","recipient":{"id":"77"}}"#.to_owned()),
    ] {
        let call = call(&*sending, "106", "77", payload);
        assert_eq!((call.path.as_str(), body(&call)), ("/v25.0/106/messages", expected.as_str()));
        assert_eq!(header(&call, "authorization"), "Bearer EAAtoken");
    }
    let long = format!(r#"{{"message":{{"text":"a","metadata":"{}"}}}}"#, "x".repeat(964));
    for (peer, payload, says) in [
        ("ana", r#"{"text":"a"}"#.to_owned(), "not a person's id"),
        ("77", r#"{"text":""}"#.to_owned(), "empty"),
        ("77", "{}".to_owned(), "neither `text` nor `message`"),
        ("77", format!(r#"{{"text":"{}"}}"#, "é".repeat(2_001)), "2001 characters"),
        ("77", r#"{"text":"a","reply_to":"m_1"}"#.to_owned(), "`reply_to` is not known here"),
        ("77", r#"{"message":"a"}"#.to_owned(), "`message` is not a JSON object"),
        ("77", long, "at most 963"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err(says);
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(sending.reconcile(), Reconcile::ByWebhook);
}

#[test]
fn instagram_calls() {
    let sending = sending("instagram", TOKEN);
    let call = call(&*sending, "178", "77", r#"{"text":"olá"}"#);
    let expected = r#"{"message":{"text":"olá"},"recipient":{"id":"77"},"messaging_type":"RESPONSE"}"#;
    assert_eq!((call.path.as_str(), body(&call)), ("/v25.0/me/messages", expected));
    let long = format!(r#"{{"text":"{}"}}"#, "é".repeat(501));
    assert!(sending.check("77", long.as_bytes()).expect_err("too long").contains("1002 bytes"));
    assert_eq!(sending.reconcile(), Reconcile::No, "its echoes carry no handle");
}

#[test]
fn messenger_verdicts() {
    let error = |code: &str| format!(r#"{{"error":{{"message":"x",{code},"type":"OAuthException"}}}}"#);
    for platform in ["messenger", "instagram"] {
        let sending = sending(platform, TOKEN);
        let text = r#"{"text":"a"}"#;
        for (payload, status, body, expected) in [
            (text, 200, r#"{"recipient_id":"77","message_id":"m_1"}"#.to_owned(), "sent m_1".to_owned()),
            (text, 200, r#"{"recipient_id":"77"}"#.to_owned(), "unknown".to_owned()),
            (r#"{"sender_action":"typing_on"}"#, 200, r#"{"recipient_id":"77"}"#.to_owned(), format!("sent {ID}")),
            (text, 400, error(r#""code":4"#), "retry all".to_owned()),
            (text, 400, error(r#""code":613"#), "retry all".to_owned()),
            (text, 400, error(r#""code":1200"#), "retry".to_owned()),
            (text, 500, error(r#""code":1"#), "unknown".to_owned()),
            (text, 500, error(r#""code":2"#), "unknown".to_owned()),
            (text, 400, error(r#""code":1,"error_subcode":1357046"#), "unknown".to_owned()),
            (text, 400, error(r#""code":2"#), "unknown".to_owned()),
            (text, 400, error(r#""code":190"#), "stop".to_owned()),
            (text, 403, error(r#""code":10"#), "stop".to_owned()),
            (text, 403, error(r#""code":10,"error_subcode":2018278"#), "failed".to_owned()),
            (text, 400, error(r#""code":551,"error_subcode":1545041"#), "failed".to_owned()),
            (text, 400, error(r#""code":100,"error_subcode":2018001"#), "failed".to_owned()),
            (text, 503, error(r#""code":9999"#), "unknown".to_owned()),
            (text, 502, "<html>".to_owned(), "unknown".to_owned()),
            (text, 401, String::new(), "stop".to_owned()),
        ] {
            assert_eq!(short(&verdict_on(&*sending, payload, &answer(status, &body))), expected, "{platform} {status} {body}");
        }
    }
}
