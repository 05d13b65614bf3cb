//! Slack: what is asked of it, and what its answers mean.

use super::*;

#[test]
fn slack_calls() {
    let sending = sending("slack", "xoxb-token");
    let handle = format!(r#""metadata":{{"event_type":"hapax_message","event_payload":{{"id":"{ID}"}}}}"#);
    for (payload, path, expected) in [
        (r#"{"text":"olá"}"#, "/api/chat.postMessage", format!(r#"{{"text":"olá","channel":"C1",{handle}}}"#)),
        (
            r#"{"text":"a","reply_to":"C1:17.0001","channel":"C2","channel":"C3"}"#,
            "/api/chat.postMessage",
            format!(r#"{{"text":"a","channel":"C1","thread_ts":"17.0001",{handle}}}"#),
        ),
        (
            r#"{"blocks":[],"metadata":{"event_type":"order"}}"#,
            "/api/chat.postMessage",
            r#"{"blocks":[],"metadata":{"event_type":"order"},"channel":"C1"}"#.to_owned(),
        ),
        (
            r#"{"method":"reactions.add","name":"eyes","timestamp":"17.0001"}"#,
            "/api/reactions.add",
            r#"{"name":"eyes","timestamp":"17.0001","channel":"C1"}"#.to_owned(),
        ),
    ] {
        let call = call(&*sending, "T1", "C1", payload);
        assert_eq!((call.path.as_str(), body(&call)), (path, expected.as_str()));
        assert_eq!(header(&call, "authorization"), "Bearer xoxb-token");
    }
    for (peer, payload, says) in [
        ("general", r#"{"text":"a"}"#, "not a Slack conversation"),
        ("C1&x=1", r#"{"text":"a"}"#, "not a Slack conversation"),
        ("C1", r#"{"text":" "}"#, "empty"),
        ("C1", "{}", "neither `text` nor `blocks`"),
        ("C1", r#"{"method":"users.list"}"#, "`method` is none of"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err("refused");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn slack_verdicts() {
    let sending = sending("slack", "xoxb-token");
    for (status, body, expected) in [
        (200, r#"{"ok":true,"channel":"C1","ts":"17.0001"}"#, "sent C1:17.0001"),
        (200, r#"{"ok":true}"#, &format!("sent {ID}")),
        (200, r#"{"ok":false,"error":"channel_not_found"}"#, "failed"),
        (200, r#"{"ok":false,"error":"invalid_auth"}"#, "stop"),
        (200, r#"{"ok":false,"error":"missing_scope"}"#, "stop"),
        (200, r#"{"ok":false,"error":"ratelimited"}"#, "retry all"),
        (429, r#"{"ok":false,"error":"ratelimited"}"#, "retry all"),
        (429, "", "retry all"),
        (200, r#"{"ok":false,"error":"internal_error"}"#, "unknown"),
        (200, r#"{"ok":false,"error":"fatal_error"}"#, "unknown"),
        (500, r#"{"ok":false,"error":"anything"}"#, "unknown"),
        (503, "", "unknown"),
        (200, "<html>", "unknown"),
        (302, "", "stop"),
        (404, "", "failed"),
    ] {
        assert_eq!(short(&verdict_on(&*sending, r#"{"text":"a"}"#, &answer(status, body))), expected, "{status} {body}");
    }
    let mut limited = answer(429, r#"{"ok":false,"error":"ratelimited"}"#);
    limited.headers.insert("retry-after", http::HeaderValue::from_static("30"));
    assert_eq!(short(&verdict_on(&*sending, "{}", &limited)), "retry 30000 all");
}

#[test]
fn slack_finds_a_lost_message_by_its_handle() {
    let sending = sending("slack", "xoxb-token");
    assert_eq!(sending.reconcile(), Reconcile::ByLookup);
    let (text, reply) = (Bytes::from_static(br#"{"text":"a"}"#), Bytes::from_static(br#"{"text":"a","reply_to":"C1:17.0001"}"#));
    let path = |payload: &Bytes| sending.lookup(&outgoing("T1", "C1", payload)).map(|call| call.path).unwrap_or_default();
    let since = "oldest=1787392795&limit=200&include_all_metadata=true";
    assert_eq!(path(&text), format!("/api/conversations.history?channel=C1&{since}"));
    assert_eq!(path(&reply), format!("/api/conversations.replies?channel=C1&ts=17.0001&{since}"));
    for untraceable in [r#"{"method":"chat.delete","ts":"1"}"#, r#"{"text":"a","metadata":{"event_type":"order"}}"#] {
        assert_eq!(path(&Bytes::from(untraceable)), "", "{untraceable}");
    }
    let row = |id: &str, sort: &str, ts: &str| {
        format!(r#"{{"ts":"{ts}","text":"a","metadata":{{"event_type":"{sort}","event_payload":{{"id":"{id}"}}}}}}"#)
    };
    let other = "msg_0190000000007000800000000000002b";
    let found = |rows: &[String], more: bool| {
        let body = format!(r#"{{"ok":true,"has_more":{more},"messages":[{}]}}"#, rows.join(","));
        sending.found(&outgoing("T1", "C1", &text), &answer(200, &body))
    };
    let rows = [row(other, "hapax_message", "1.1"), row(ID, "order", "1.2"), row(ID, "hapax_message", "1.3")];
    assert_eq!(found(&rows, true), Found::OneOf { provider_ids: vec!["C1:1.3".to_owned()] });
    assert_eq!(found(&rows[..2], false), Found::Nothing);
    assert!(matches!(found(&rows[..2], true), Found::NoAnswer { .. }), "it may be on the next page");
    for odd in [answer(500, ""), answer(200, r#"{"ok":false,"error":"missing_scope"}"#), answer(200, r#"{"ok":true}"#)] {
        assert!(matches!(sending.found(&outgoing("T1", "C1", &text), &odd), Found::NoAnswer { .. }));
    }
}
