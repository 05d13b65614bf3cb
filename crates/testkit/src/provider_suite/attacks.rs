//! Ids that try to be mistaken for each other, and bodies that try to be too much.

use std::collections::HashSet;

use hapax_domain::Identity;
use hapax_domain::limits::{EVENTS_PER_WEBHOOK, NAME_MAX_BYTES};

use super::fixtures::Fixture;
use super::subjects::{SECRET, Subject};
use super::{keys, read};

/// A fixture with another id; nothing where the provider could not send such an id.
fn with_id(provider: &str, id: &str) -> Option<Fixture> {
    match provider {
        "whatsapp" => Some(Fixture::named("whatsapp", "text").with_text("wamid.AAA", id)),
        "messenger" => Some(Fixture::named("messenger", "text").with_text("m_1", id)),
        "instagram" => Some(Fixture::named("instagram", "text").with_text("m_1", id)),
        "gowa" => Some(Fixture::named("gowa", "text").with_text("3EB0AA", id)),
        "evolution" => Some(Fixture::named("evolution", "text").with_text("3A01", id)),
        "waha" => Some(Fixture::named("waha", "bare").with_text("3EB0AA", id)),
        "stripe" => Some(Fixture::named("stripe", "invoice_paid").with_text("evt_1", id)),
        "generic" => Some(Fixture::named("generic", "id").with_text("e-1", id)),
        "github" => Fixture::named("github", "push").with_header("x-github-delivery", id.as_bytes()),
        "standard" => Fixture::named("standard", "event").with_header("webhook-id", id.as_bytes()),
        "shopify" => Fixture::named("shopify", "order").with_header("x-shopify-webhook-id", id.as_bytes()),
        "twilio" => {
            let body = String::from_utf8(Fixture::named("twilio", "message").body).expect("UTF-8");
            let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
            Some(
                Fixture::named("twilio", "message")
                    .with_body(body.replace(&format!("SM{}", "f".repeat(32)), &encoded).into_bytes()),
            )
        }
        "slack" => Some(Fixture::named("slack", "unknown").with_text("Ev9", id)),
        "telegram" => {
            id.parse::<i64>().ok()?;
            let body = String::from_utf8(Fixture::named("telegram", "text").body).expect("UTF-8").replace("1001", id);
            Some(Fixture::named("telegram", "text").with_body(body.into_bytes()))
        }
        other => panic!("no provider {other}"),
    }
}

#[test]
fn adversarial_ids_are_legal_and_distinct() {
    let long = "x".repeat(5 << 10);
    let longer = format!("{long}y");
    let ids = [
        "a__b",
        "a_b",
        "__",
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "\0",
        "\u{1f600}",
        "\u{1f601}",
        "é",
        "e\u{301}",
        "1",
        "01",
        "-1",
        "null",
        "''",
        "\\",
        "\"",
        "a\nb",
        "a,b",
        &long,
        &longer,
    ];
    for subject in Subject::all() {
        let mut seen = HashSet::new();
        for id in ids {
            let Some(fixture) = with_id(subject.name, id) else { continue };
            let parsed = read(&subject, &fixture);
            if subject.name == "telegram" && id == "01" {
                assert_eq!(parsed.problems.len(), 1, "a number without leading zeros");
                continue;
            }
            assert_eq!(parsed.problems, [], "{} {id:?}", subject.name);
            assert_eq!(parsed.events[0].id, id, "{}", subject.name);
            assert!(seen.insert(parsed.events[0].key), "{} {id:?}", subject.name);
        }
        assert!(seen.len() >= if subject.name == "telegram" { 2 } else { 15 }, "{}: {}", subject.name, seen.len());
    }
}

#[test]
fn an_id_too_long_to_keep_is_a_problem_and_never_cut() {
    let limit = "x".repeat(NAME_MAX_BYTES);
    for subject in Subject::all() {
        let (Some(fits), Some(over)) = (with_id(subject.name, &limit), with_id(subject.name, &format!("{limit}x"))) else {
            continue;
        };
        assert_eq!(read(&subject, &fits).events[0].id, limit, "{}", subject.name);
        let parsed = read(&subject, &over);
        assert_eq!((parsed.events.len(), parsed.problems.len()), (0, 1), "{}", subject.name);
    }
}

#[test]
fn an_empty_id_falls_back_to_what_the_event_says_or_to_nothing() {
    for (name, identity) in [
        ("whatsapp", Identity::Fallback),
        ("messenger", Identity::Fallback),
        ("instagram", Identity::Fallback),
        ("gowa", Identity::Fallback),
        ("evolution", Identity::Fallback),
        ("waha", Identity::Fallback),
        ("stripe", Identity::Fallback),
        ("github", Identity::Unknown),
        ("standard", Identity::Fallback),
        ("shopify", Identity::Fallback),
        ("slack", Identity::Fallback),
    ] {
        let parsed = read(&Subject::new(name, &[SECRET]), &with_id(name, "").expect("legal"));
        assert_eq!((parsed.events.len(), parsed.problems.len()), (1, 0), "{name}");
        assert_eq!(parsed.events[0].identity, identity, "{name}");
        assert_eq!(Identity::of_shown(&parsed.events[0].id), identity, "{name}");
    }
    let generic = Subject::new("generic", &[SECRET]);
    let key = |body: &str| keys(&read(&generic, &Fixture::named("generic", "content").with_body(body.as_bytes().to_vec())));
    assert_ne!(key(r#"{"id":"","n":1}"#), key(r#"{"id":"","n":2}"#));
    assert_ne!(key(r#"{"event":{"kind":"a"}}"#)[0].0, key(r#"{"event":{"kind":"b"}}"#)[0].0);
    assert_eq!(key(r#"{"event":{"kind":"a"},"n":1}"#)[0].0, key(r#"{"event":{"kind":"a"},"n":2}"#)[0].0);
    assert_ne!(key(r#"{"event":{"kind":"1"}}"#)[0].0, key(r#"{"items":[{"sku":"1"}]}"#)[0].0);
}

fn whatsapp_messages(messages: &[String]) -> Fixture {
    let change = r#"{"field":"messages","value":{"metadata":{"phone_number_id":"700001"},"messages":[MESSAGES]}}"#;
    let body = format!(r#"{{"entry":[{{"id":"1","changes":[{change}]}}]}}"#).replace("MESSAGES", &messages.join(","));
    Fixture::named("whatsapp", "text").with_body(body.into_bytes())
}

fn whatsapp_message(id: &str, rest: &str) -> String {
    format!(r#"{{"id":"{id}","from":"1","type":"text","text":{{"body":"oi"}}{rest}}}"#)
}

#[test]
fn a_thousand_events_are_read_and_one_problem_stands_for_the_rest() {
    let subject = Subject::new("whatsapp", &[SECRET]);
    let messages: Vec<String> = (0..EVENTS_PER_WEBHOOK + 5).map(|n| whatsapp_message(&format!("wamid.{n}"), "")).collect();
    let full = read(&subject, &whatsapp_messages(&messages[..EVENTS_PER_WEBHOOK]));
    assert_eq!((full.events.len(), full.problems.len()), (EVENTS_PER_WEBHOOK, 0));
    let fixture = whatsapp_messages(&messages);
    let over = read(&subject, &fixture);
    assert_eq!((over.events.len(), over.problems.len()), (EVENTS_PER_WEBHOOK, 1));
    assert_eq!(over.problems[0].index as usize, EVENTS_PER_WEBHOOK);
    assert_eq!(over.problems[0].part, fixture.body, "nothing of it is lost");
    assert_eq!(keys(&over), keys(&full));
}

#[test]
fn a_depth_bomb_costs_only_the_event_it_is_in() {
    let subject = Subject::new("whatsapp", &[SECRET]);
    let bomb = |depth: usize| format!(r#","context":{}{}"#, "[".repeat(depth), "]".repeat(depth));
    for depth in [200, 1_000, 100_000] {
        let parsed = read(
            &subject,
            &whatsapp_messages(&[whatsapp_message("a", ""), whatsapp_message("b", &bomb(depth)), whatsapp_message("c", "")]),
        );
        let ids: Vec<&str> = parsed.events.iter().map(|event| event.id.as_str()).collect();
        assert_eq!((ids, parsed.problems.len()), (vec!["a", "c"], 1), "{depth}");
        assert_eq!(parsed.problems[0].index, 1);
    }
    for subject in Subject::all() {
        let body = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let parsed = read(&subject, &Fixture::of(subject.name)[0].with_body(body.into_bytes()));
        assert_eq!((parsed.events.len(), parsed.problems.len()), (0, 1), "{}", subject.name);
    }
}

#[test]
fn half_an_emoji_does_not_cost_the_message() {
    let subject = Subject::new("whatsapp", &[SECRET]);
    let half = whatsapp_message("a", "").replace("oi", r"oi \ud83d");
    let parsed = read(&subject, &whatsapp_messages(&[half]));
    assert_eq!(parsed.problems, []);
    assert_eq!((parsed.events[0].kind, parsed.events[0].text.as_deref()), (hapax_domain::Kind::Message, None));
}
