//! Twilio: what is asked of it, and what its answers mean.

use super::*;

#[test]
fn twilio_calls() {
    let account = format!("AC{}", "0".repeat(32));
    let sending = sending("twilio", &format!("{account}:auth-token"));
    let callback = format!("StatusCallback=https%3A%2F%2Fyour.host%2Fin%2Fsms%3Fhapax%3D{ID}");
    for (from, peer, payload, expected) in [
        ("+1555", "+5511988887777", r#"{"text":"olá & oi"}"#, format!("From=%2B1555&{callback}&Body=ol%C3%A1%20%26%20oi")),
        (
            "MG1",
            "+5511988887777",
            r#"{"Body":"a","text":"b","To":"+1","MediaUrl":["https://a","https://b"]}"#,
            format!(
                "MessagingServiceSid=MG1&{callback}%26hapax_by%3DMG1&Body=a&MediaUrl=https%3A%2F%2Fa&MediaUrl=https%3A%2F%2Fb"
            ),
        ),
        (
            "whatsapp:+1555",
            "whatsapp:+5511988887777",
            r#"{"ContentSid":"HX1","ContentVariables":{"1":"42"},"StatusCallback":"https://mine","Body":null}"#,
            "From=whatsapp%3A%2B1555&ContentSid=HX1&ContentVariables=%7B%221%22%3A%2242%22%7D&StatusCallback=https%3A%2F%2Fmine"
                .to_owned(),
        ),
    ] {
        let call = call(&*sending, from, peer, payload);
        assert_eq!(call.path, format!("/2010-04-01/Accounts/{account}/Messages.json"));
        assert_eq!(header(&call, "content-type"), "application/x-www-form-urlencoded");
        let to = peer.replace(':', "%3A").replace('+', "%2B");
        assert_eq!(body(&call), format!("To={to}&{expected}"));
    }
    let by_key = crate::sending::twilio::Twilio::new(Some(&format!("{account}:SK1:hush").into()), "https://your.host/in/sms");
    let call = call(&by_key, "+1555", "+5511988887777", r#"{"text":"a"}"#);
    assert_eq!(header(&call, "authorization"), "Basic U0sxOmh1c2g=", "SK1:hush");
    assert!(call.headers.iter().any(|(name, value)| name == "authorization" && value.is_sensitive()));
    assert_eq!(sending.peer("+55 (11) 98888-7777"), "+5511988887777");
    assert_eq!(sending.peer("whatsapp:5511988887777"), "whatsapp:+5511988887777");
    assert_eq!(sending.peer("messenger:123456789012345678"), "messenger:123456789012345678");
    for (peer, payload, says) in [
        ("ana", r#"{"text":"a"}"#, "this is no number"),
        ("+1", r#"{"text":"a"}"#, "this is no number"),
        ("+5511988887777", r#"{"text":" "}"#, "empty"),
        ("+5511988887777", "{}", "neither `text` nor `MediaUrl`"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err("refused");
        assert!(said.contains(says), "{said}");
    }
    let (payload, wrong) =
        (Bytes::from_static(br#"{"text":"a"}"#), crate::sending::twilio::Twilio::new(Some(&"AC1:x".into()), ""));
    assert!(wrong.call(&outgoing("+1555", "+5511988887777", &payload)).is_err_and(|said| said.contains("no Twilio login")));
}

#[test]
fn twilio_verdicts() {
    let sending = sending("twilio", &format!("AC{}:auth-token", "0".repeat(32)));
    for (status, body, expected) in [
        (201, r#"{"sid":"SM1","status":"queued"}"#, "sent SM1"),
        (201, "{}", "unknown"),
        (400, r#"{"code":21211,"message":"Invalid 'To' Phone Number","status":400}"#, "failed"),
        (400, r#"{"code":21610,"message":"unsubscribed","status":400}"#, "failed"),
        (401, r#"{"code":20003,"message":"Authenticate","status":401}"#, "stop"),
        (403, r#"{"code":20005,"message":"Account not active","status":403}"#, "stop"),
        (429, r#"{"code":20429,"message":"Too Many Requests","status":429}"#, "retry all"),
        (400, r#"{"code":21611,"message":"queue is full","status":400}"#, "slow"),
        (429, "", "retry all"),
        (500, r#"{"code":20500,"message":"Internal Server Error","status":500}"#, "unknown"),
        (503, "", "unknown"),
        (404, "", "failed"),
    ] {
        assert_eq!(short(&verdict_on(&*sending, r#"{"text":"a"}"#, &answer(status, body))), expected, "{status} {body}");
    }
    assert_eq!(sending.reconcile(), Reconcile::ByWebhook);
}
