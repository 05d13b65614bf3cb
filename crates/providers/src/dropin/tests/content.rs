use super::*;

const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
const JSON: Option<&str> = Some("application/json");

/// The content of a call in parts with this boundary.
fn in_parts_of(target: &str, boundary: &str, parts: &[(&str, &[u8])]) -> [u8; 16] {
    let (telegram, _) = telegram();
    let sort = format!("multipart/form-data; boundary={boundary}");
    effect_in_parts(&*telegram, target, &sort, &in_parts(boundary, parts)).expect("an effect").content
}

fn content(target: &str, sort: Option<&str>, body: &str) -> [u8; 16] {
    let (telegram, _) = telegram();
    effect(&*telegram, target, sort, body.as_bytes()).expect("an effect").content
}

#[test]
fn all_spellings_of_one_call_are_one_content() {
    let one = content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a b","reply_markup":{"a":[1,{"b":"é","c":true}]}}"#);
    let markup = r#"{ "a" : [1, {"c":true,"b":"\u00e9"}] }"#;
    let encoded = crate::sending::percent_encoded(markup);
    for (target, sort, body) in [
        ("/bot9:x/SENDMESSAGE", JSON, format!(r#"{{"text":"a b","reply_markup":{markup},"chat_id":"77"}}"#)),
        ("/bot8:y/sendMessage", FORM, format!("text=a+b&chat_id=77&reply_markup={encoded}")),
        ("/bot9:x/sendMessage?chat_id=77&text=a%20b", FORM, format!("reply_markup={encoded}&chat_id=78")),
        (
            "/bot9:x/sendMessage?chat_id=77",
            JSON,
            format!(r#"{{"text":"a b","text":"other","reply_markup":{}}}"#, serde_json::json!(markup)),
        ),
    ] {
        assert_eq!(content(target, sort, &body), one, "{target} {body}");
    }
    let fields: [(&str, &[u8]); 3] = [("name=reply_markup", markup.as_bytes()), ("name=text", b"a b"), ("name=chat_id", b"77")];
    assert_eq!(in_parts_of("/bot9:x/sendMessage", "r4nd0m", &fields), one);
}

#[test]
fn another_call_is_another_content() {
    let all = [
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"b"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":78,"text":"a"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a","parse_mode":"HTML"}"#),
        content("/bot9:x/sendDice", JSON, r#"{"chat_id":77,"text":"a"}"#),
        // Words that look like JSON are words.
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"{\"a\":1}"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"{\"a\": 1}"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a","ab":"c"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a","a":"bc"}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a","message_thread_id":12345678901234567890}"#),
        content("/bot9:x/sendMessage", JSON, r#"{"chat_id":77,"text":"a","message_thread_id":12345678901234567891}"#),
    ];
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
}

#[test]
fn names_of_attachments_do_not_count() {
    let album = |boundary: &str, a: &str, b: &str, first: &[u8], second: &[u8]| {
        let media =
            format!(r#"[{{"type":"photo","media":"attach://{a}"}},{{"type":"photo","media":"attach://{b}","caption":"x"}}]"#);
        let (a, b) = (format!("name=\"{a}\"; filename=a"), format!("name=\"{b}\"; filename=b"));
        let parts: [(&str, &[u8]); 4] = [("name=chat_id", b"77"), ("name=media", media.as_bytes()), (&a, first), (&b, second)];
        in_parts_of("/bot9:x/sendMediaGroup", boundary, &parts)
    };
    let one = album("b1", "x1", "x2", b"cat", b"dog");
    assert_eq!(album("b2", "8f0c", "77aa", b"cat", b"dog"), one);
    assert_eq!(album("b2", "x2", "x1", b"cat", b"dog"), one);
    assert_ne!(album("b1", "x1", "x2", b"dog", b"cat"), one);
    assert_ne!(album("b1", "x1", "x2", b"cat", b"cow"), one);
    // A name that is the beginning of another is not that other.
    assert_eq!(album("b1", "x", "xx", b"cat", b"dog"), one);
}

#[test]
fn a_file_is_what_refers_to_it() {
    let by_name: [(&str, &[u8]); 2] = [("name=chat_id", b"77"), ("name=photo; filename=a.jpg", b"cat")];
    let one = in_parts_of("/bot9:x/sendPhoto", "b", &by_name);
    let by_reference: [(&str, &[u8]); 3] =
        [("name=photo", b"attach://k3"), ("name=k3; filename=b.jpg", b"cat"), ("name=chat_id", b"77")];
    assert_eq!(in_parts_of("/bot9:x/sendPhoto", "c", &by_reference), one);
    let thumbnail: [(&str, &[u8]); 2] = [("name=chat_id", b"77"), ("name=thumbnail; filename=a.jpg", b"cat")];
    assert_ne!(in_parts_of("/bot9:x/sendPhoto", "b", &thumbnail), one);
    let text: [(&str, &[u8]); 2] = [("name=chat_id", b"77"), ("name=photo", b"cat")];
    assert_ne!(in_parts_of("/bot9:x/sendPhoto", "b", &text), one);
    // What nobody brought is a word like any other.
    let lost: [(&str, &[u8]); 2] = [("name=chat_id", b"77"), ("name=photo", b"attach://k3")];
    assert_ne!(in_parts_of("/bot9:x/sendPhoto", "b", &lost), one);
}
