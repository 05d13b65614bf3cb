use super::*;

const JID: &str = "551188887777@s.whatsapp.net";

#[test]
fn evolution_calls() {
    let sending = sending("evolution", TOKEN);
    for (peer, payload, path, expected) in [
        (
            JID,
            r#"{"text":"oi","reply_to":"3A01"}"#,
            "/message/sendText/shop%201",
            r#"{"text":"oi","number":"551188887777","quoted":{"key":{"id":"3A01"}}}"#,
        ),
        ("12@g.us", r#"{"text":"oi","delay":0}"#, "/message/sendText/shop%201", r#"{"text":"oi","delay":0,"number":"12@g.us"}"#),
        (
            JID,
            r#"{"mediatype":"image","media":"https://x/y.png","caption":"c"}"#,
            "/message/sendMedia/shop%201",
            r#"{"mediatype":"image","media":"https://x/y.png","caption":"c","number":"551188887777"}"#,
        ),
        (
            JID,
            r#"{"reaction":"👍","key":{"id":"3A01"}}"#,
            "/message/sendReaction/shop%201",
            r#"{"reaction":"👍","key":{"id":"3A01"}}"#,
        ),
        (
            JID,
            r#"{"method":"sendPresence","presence":"composing","delay":1200}"#,
            "/chat/sendPresence/shop%201",
            r#"{"presence":"composing","delay":1200,"number":"551188887777"}"#,
        ),
    ] {
        let call = call(&*sending, "shop 1", peer, payload);
        assert_eq!((call.path.as_str(), body(&call)), (path, expected));
        assert_eq!(header(&call, "apikey"), TOKEN);
        assert!(call.headers.iter().any(|(name, value)| name == "apikey" && value.is_sensitive()));
    }
    for (peer, payload, says) in [
        ("ana", r#"{"text":"a"}"#, "not a WhatsApp number"),
        (JID, r#"{"text":""}"#, "empty"),
        (JID, "{}", "`text` is missing"),
        (JID, r#"{"method":"../instance/delete"}"#, "`method` is none of sendMedia"),
    ] {
        let said = sending.check(peer, payload.as_bytes()).expect_err(says);
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(sending.peer("+55 11 8888-7777"), JID);
    assert_eq!(sending.peer("99@lid"), "99@lid");
}

#[test]
fn evolution_verdicts() {
    let sending = sending("evolution", TOKEN);
    let refused = |words: &str| format!(r#"{{"status":400,"error":"Bad Request","response":{{"message":{words}}}}}"#);
    let text = r#"{"text":"a"}"#;
    for (payload, status, body, expected) in [
        (text, 201, r#"{"key":{"id":"3EB0Y","fromMe":true},"status":"PENDING"}"#.to_owned(), "sent 3EB0Y".to_owned()),
        (text, 201, "{}".to_owned(), "unknown".to_owned()),
        (r#"{"method":"sendPresence"}"#, 201, r#"{"presence":"composing"}"#.to_owned(), format!("sent {ID}")),
        (text, 400, refused(r#"[{"exists":false,"jid":"1@s.whatsapp.net","number":"1"}]"#), "failed".to_owned()),
        (text, 400, refused(r#"[["instance requires property \"text\""]]"#), "failed".to_owned()),
        (text, 400, refused(r#"["Error: Connection Closed"]"#), "unknown".to_owned()),
        (text, 400, refused(r#"["Error: Timed Out"]"#), "unknown".to_owned()),
        (text, 400, "no json".to_owned(), "unknown".to_owned()),
        (text, 401, refused(r#""Unauthorized""#), "stop".to_owned()),
        (text, 404, refused(r#"["The \"shop\" instance does not exist"]"#), "stop".to_owned()),
        (text, 404, refused(r#"["Group not found"]"#), "failed".to_owned()),
        (text, 429, String::new(), "retry all".to_owned()),
        (text, 500, String::new(), "unknown".to_owned()),
    ] {
        assert_eq!(short(&verdict_on(&*sending, payload, &answer(status, &body))), expected, "{status} {body}");
    }
    let quoting = reason(verdict_on(&*sending, text, &answer(400, &refused(&format!(r#"["bad key {TOKEN}"]"#)))));
    assert!(!quoting.contains(TOKEN), "{quoting}");
}

#[test]
fn evolution_finds_a_lost_message_in_its_database() {
    let sending = sending("evolution", TOKEN);
    assert_eq!(sending.reconcile(), Reconcile::ByLookup);
    let payload = Bytes::from(r#"{"text":"olá"}"#);
    let message = outgoing("shop1", JID, &payload);
    let call = sending.lookup(&message).expect("a search");
    assert_eq!((call.method.clone(), call.path.as_str()), (Method::POST, "/chat/findMessages/shop1"));
    assert_eq!(
        body(&call),
        r#"{"where":{"key":{"fromMe":true},"messageTimestamp":{"gte":"2026-08-22T09:59:55Z","lte":"2026-08-22T10:15:00.5Z"}},"page":1,"offset":100}"#
    );
    let row = |id: &str, jid: &str, mine: bool, sort: &str, message: &str, at: i64| {
        format!(
            r#"{{"id":"row","key":{{"id":"{id}","remoteJid":"{jid}","fromMe":{mine}}},"messageType":"{sort}","message":{message},"messageTimestamp":{at}}}"#
        )
    };
    let (said, begun_s) = (r#"{"conversation":"olá"}"#, BEGUN_MS / 1_000);
    let by_lid = row("BY LID", "99@lid", true, "conversation", said, begun_s + 2)
        .replace(r#""fromMe""#, &format!(r#""remoteJidAlt":"{JID}","fromMe""#));
    let rows = [
        by_lid,
        row("OURS", JID, true, "conversation", said, begun_s),
        row("ANOTHER CHAT", "5@s.whatsapp.net", true, "conversation", said, begun_s),
        row("THEIRS", JID, false, "conversation", said, begun_s),
        row("ANOTHER TEXT", JID, true, "conversation", r#"{"conversation":"olá!"}"#, begun_s),
        row("A PICTURE", JID, true, "imageMessage", r#"{"imageMessage":{"caption":"olá"}}"#, begun_s),
        row("BEFORE THE TRY", JID, true, "conversation", said, begun_s - 6),
    ];
    let history = |rows: &[String]| answer(200, &format!(r#"{{"messages":{{"total":1,"records":[{}]}}}}"#, rows.join(",")));
    let provider_ids = vec!["OURS".to_owned(), "BY LID".to_owned()];
    assert_eq!(sending.found(&message, &history(&rows)), Found::OneOf { provider_ids });
    assert_eq!(sending.found(&message, &history(&rows[2..])), Found::Nothing);
    for odd in [answer(500, ""), answer(200, "{}"), answer(200, r#"{"messages":{"records":7}}"#)] {
        assert!(matches!(sending.found(&message, &odd), Found::NoAnswer { .. }));
    }
}
