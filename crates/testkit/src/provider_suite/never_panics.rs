//! No bytes make an adapter panic, and what it reads of them stays within its promises.

use proptest::prelude::*;

use super::fixtures::Fixture;
use super::subjects::{NOW_MS, Subject};

/// Everything an adapter does with a request, whatever is in it.
fn exercise(subject: &Subject, fixture: &Fixture) -> Result<(), TestCaseError> {
    let request = subject.signed(fixture);
    let verified = subject.provider.verify(&request, NOW_MS).map_err(|refused| TestCaseError::fail(refused.to_string()))?;
    let parsed = subject.provider.parse(&verified);
    prop_assert!(parsed.events.len() + parsed.problems.len() + parsed.ignored as usize > 0, "a body was lost");
    let keep: Vec<u32> = parsed.events.iter().map(|event| event.index).collect();
    for keep in [&keep[..], &keep[..keep.len() / 2], &[7, u32::MAX], &[]] {
        let Some(body) = subject.provider.rewrap(&fixture.body, keep) else { continue };
        let request = subject.signed(&fixture.with_body(body));
        let verified = subject.provider.verify(&request, NOW_MS).map_err(|refused| TestCaseError::fail(refused.to_string()))?;
        let again: Vec<_> = subject.provider.parse(&verified).events.iter().map(|event| event.key).collect();
        let kept = parsed.events.iter().filter(|event| keep.contains(&event.index)).map(|event| event.key);
        prop_assert_eq!(again, kept.collect::<Vec<_>>());
    }
    Ok(())
}

fn any_fixture() -> impl Strategy<Value = (usize, usize)> {
    (0..Subject::all().len(), 0..1_000_usize)
}

fn pick(at: (usize, usize)) -> (Subject, Fixture) {
    let subject = Subject::all().swap_remove(at.0);
    let mut fixtures = Fixture::of(subject.name);
    let fixture = fixtures.swap_remove(at.1 % fixtures.len());
    (subject, fixture)
}

/// Where, what (replace, remove, insert, repeat the tail), and with which byte.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(at in any_fixture(), body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (subject, fixture) = pick(at);
        exercise(&subject, &fixture.with_body(body))?;
    }

    #[test]
    fn json_like_text(at in any_fixture(), body in r#"[\[\]{}",:0-9a-z\\ .eE+-]{0,80}"#) {
        let (subject, fixture) = pick(at);
        exercise(&subject, &fixture.with_body(body.into_bytes()))?;
    }

    #[test]
    fn mutated_fixtures(at in any_fixture(), edits in edits()) {
        let (subject, fixture) = pick(at);
        let mut body = fixture.body.clone();
        for (at, what, byte) in edits {
            if body.is_empty() {
                break;
            }
            let at = at.index(body.len());
            match what {
                0 => body[at] = byte,
                1 => { body.remove(at); }
                2 => body.insert(at, byte),
                _ => { let part = body[at..].to_vec(); body.extend_from_slice(&part); }
            }
        }
        exercise(&subject, &fixture.with_body(body))?;
    }

    #[test]
    fn swapped_values(at in any_fixture(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let (subject, fixture) = pick(at);
        if let Ok(mut tree) = serde_json::from_slice::<serde_json::Value>(&fixture.body) {
            let pointers = pointers(&tree, "");
            let (from, to) = (&pointers[from.index(pointers.len())], &pointers[to.index(pointers.len())]);
            let value = tree.pointer(from).cloned().unwrap_or_default();
            if let Some(place) = tree.pointer_mut(to) {
                *place = value;
            }
            exercise(&subject, &fixture.with_body(tree.to_string().into_bytes()))?;
        }
    }

    #[test]
    fn arbitrary_signatures(at in any_fixture(), value in proptest::collection::vec(0x20..0x7f_u8, 0..100)) {
        let (subject, fixture) = pick(at);
        let mut request = fixture.request();
        let header = subject.provider.signature_headers()[0].clone();
        request.headers.insert(header, http::HeaderValue::from_bytes(&value).expect("visible"));
        prop_assert!(subject.provider.verify(&request, NOW_MS).is_err());
    }

    #[test]
    fn arbitrary_queries(query in ".{0,80}|hub.mode=subscribe&.{0,40}") {
        let (subject, fixture) = pick((0, 0));
        let request = hapax_providers::RawRequest { method: http::Method::GET, query, ..fixture.request() };
        prop_assert!(subject.provider.handshake(&request).is_none_or(|reply| reply.status == 403));
    }
}

fn pointers(tree: &serde_json::Value, path: &str) -> Vec<String> {
    let mut found = vec![path.to_owned()];
    match tree {
        serde_json::Value::Object(members) => {
            members.iter().for_each(|(name, value)| found.extend(pointers(value, &format!("{path}/{name}"))));
        }
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| found.extend(pointers(value, &format!("{path}/{at}"))));
        }
        _ => {}
    }
    found
}
