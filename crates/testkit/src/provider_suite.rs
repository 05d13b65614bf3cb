//! One suite over fixtures that every provider runs, and no provider can opt out of.
//!
//! Fixtures are `tests/fixtures/<provider>/*.json`: a webhook (`body`, or `text` where it is not JSON) and what it must read as.

mod attacks;
mod fixtures;
mod meta;
mod never_panics;
mod subjects;
mod vectors;
mod whatsapp_web;

use std::collections::HashSet;

use fixtures::Fixture;
use hapax_domain::{Event, EventKey};
use hapax_providers::{Parsed, Refused, samples};
use subjects::{NOW_MS, OLD_SECRET, SECRET, Subject};

/// Signs, verifies and reads.
fn read(subject: &Subject, fixture: &Fixture) -> Parsed {
    let request = subject.signed(fixture);
    let verified = subject.provider.verify(&request, NOW_MS).unwrap_or_else(|refused| panic!("{}: {refused}", fixture.name));
    subject.provider.parse(&verified)
}

fn keys(parsed: &Parsed) -> Vec<(EventKey, u32)> {
    parsed.events.iter().map(|event| (event.key, event.fingerprint)).collect()
}

/// Runs a check over every fixture of every provider, and makes sure there were some.
fn for_each_fixture(check: impl Fn(&Subject, &Fixture)) {
    for subject in Subject::all() {
        let fixtures = Fixture::of(subject.name);
        assert!(fixtures.len() >= 5, "{} has too few fixtures", subject.name);
        fixtures.iter().for_each(|fixture| check(&subject, fixture));
    }
}

/// About a hundred places all over a body: trying every byte of a long one takes seconds and finds no more.
fn places_in(body: &[u8]) -> impl Iterator<Item = usize> {
    (0..body.len()).step_by(1 + body.len() / 97)
}

#[test]
fn every_fixture_reads_as_expected() {
    for_each_fixture(|subject, fixture| {
        let parsed = read(subject, fixture);
        assert_eq!(fixtures::summary(&parsed), fixture.expect, "{}: {:?}", fixture.name, parsed.problems);
    });
}

#[test]
fn indexes_count_events_and_problems_together() {
    for_each_fixture(|subject, fixture| {
        let parsed = read(subject, fixture);
        let mut indexes: Vec<u32> = parsed.events.iter().map(|event| event.index).collect();
        assert!(indexes.is_sorted(), "{}", fixture.name);
        indexes.extend(parsed.problems.iter().map(|problem| problem.index));
        indexes.sort_unstable();
        assert_eq!(indexes, (0..indexes.len() as u32).collect::<Vec<_>>(), "{}", fixture.name);
    });
}

#[test]
fn events_of_one_webhook_have_different_keys() {
    for_each_fixture(|subject, fixture| {
        let parsed = read(subject, fixture);
        let different: HashSet<EventKey> = parsed.events.iter().map(|event| event.key).collect();
        assert_eq!(different.len(), parsed.events.len(), "{}", fixture.name);
    });
}

#[test]
fn reordered_members_give_equal_keys_and_fingerprints() {
    for_each_fixture(|subject, fixture| {
        let Some(reordered) = fixture.reordered() else { return };
        assert_ne!(reordered.body, fixture.body, "{}", fixture.name);
        assert_eq!(keys(&read(subject, &reordered)), keys(&read(subject, fixture)), "{}", fixture.name);
    });
}

#[test]
fn a_changed_byte_is_refused() {
    for_each_fixture(|subject, fixture| {
        let mut request = subject.signed(fixture);
        if subject.signs_body {
            for at in places_in(&fixture.body) {
                let mut body = fixture.body.clone();
                body[at] ^= 1;
                request.body = body.into();
                assert_eq!(subject.refusal(&request), Some(Refused::BadSignature), "{} byte {at}", fixture.name);
            }
        }
        let mut request = subject.signed(fixture);
        let signatures = subject.provider.signature_headers();
        let header = signatures.iter().find(|name| request.headers.contains_key(*name)).expect("a signature");
        let mut value = request.headers[header].as_bytes().to_vec();
        let last = value.len() - 1;
        value[last] = if value[last] == b'0' { b'1' } else { b'0' };
        request.headers.insert(header, http::HeaderValue::from_bytes(&value).unwrap());
        assert_eq!(subject.refusal(&request), Some(Refused::BadSignature), "{}", fixture.name);
    });
}

#[test]
fn a_wrong_secret_and_a_missing_signature_are_refused() {
    for_each_fixture(|subject, fixture| {
        let stranger = Subject::new(subject.name, &["another-secret-altogether"]);
        assert_eq!(subject.refusal(&stranger.signed(fixture)), Some(Refused::BadSignature), "{}", fixture.name);
        assert_eq!(subject.refusal(&fixture.request()), Some(Refused::NoSignature), "{}", fixture.name);
        let shut = Subject::new(subject.name, &[]);
        assert_eq!(shut.refusal(&subject.signed(fixture)), Some(Refused::BadSignature), "{}", fixture.name);
        assert_eq!(shut.provider.sign(fixture.unsigned(), NOW_MS), [], "{}", fixture.name);
    });
}

#[test]
fn both_secrets_are_good_during_rotation_and_the_first_signs() {
    for_each_fixture(|subject, fixture| {
        let rotating = Subject::new(subject.name, &[SECRET, OLD_SECRET]);
        let old = Subject::new(subject.name, &[OLD_SECRET]);
        assert_eq!(rotating.refusal(&old.signed(fixture)), None, "{}", fixture.name);
        assert_eq!(rotating.refusal(&subject.signed(fixture)), None, "{}", fixture.name);
        assert_eq!(rotating.provider.sign(fixture.unsigned(), NOW_MS), subject.provider.sign(fixture.unsigned(), NOW_MS));
        assert_eq!(old.refusal(&rotating.signed(fixture)), Some(Refused::BadSignature), "{}", fixture.name);
    });
}

#[test]
fn signatures_are_hidden_and_named() {
    for_each_fixture(|subject, fixture| {
        for (name, value) in subject.provider.sign(fixture.unsigned(), NOW_MS) {
            assert!(value.is_sensitive(), "{}", fixture.name);
            assert!(subject.provider.signature_headers().contains(&name), "{}", fixture.name);
        }
    });
}

#[test]
fn a_truncated_body_is_one_problem() {
    for_each_fixture(|subject, fixture| {
        for cut in places_in(&fixture.body) {
            let request = subject.signed(&fixture.with_body(fixture.body[..cut].to_vec()));
            let verified = subject.provider.verify(&request, NOW_MS).expect("signed as it is");
            let parsed = subject.provider.parse(&verified);
            assert_eq!((parsed.events.len(), parsed.problems.len()), (0, 1), "{} cut at {cut}", fixture.name);
            assert_eq!(parsed.problems[0].part, *verified.body(), "{} cut at {cut}", fixture.name);
            // A secret in it is the only thing that is not kept as it came.
            let kept = verified.body().windows(10).any(|part| part == b"[redacted]") || *verified.body() == fixture.body[..cut];
            assert!(kept, "{} cut at {cut}", fixture.name);
        }
    });
}

#[test]
fn rewrapping_keeps_exactly_what_was_asked() {
    for_each_fixture(|subject, fixture| {
        let events = read(subject, fixture).events;
        let mut bodies = HashSet::new();
        for chosen in subsets(&events) {
            let keep: Vec<u32> = chosen.iter().map(|event| event.index).collect();
            let Some(body) = subject.provider.rewrap(&fixture.body, &keep) else {
                assert_eq!(events.len(), 1, "{} cannot be split", fixture.name);
                continue;
            };
            assert!(bodies.insert(body.clone()), "{} {keep:?}: two subsets with the same bytes", fixture.name);
            let parsed = read(subject, &fixture.with_body(body));
            let chosen: Vec<_> = chosen.iter().map(|event| Event { index: 0, ..(*event).clone() }).collect();
            let got: Vec<_> = parsed.events.iter().map(|event| Event { index: 0, ..event.clone() }).collect();
            assert_eq!(got, chosen, "{} {keep:?}", fixture.name);
            assert_eq!(parsed.problems, [], "{} {keep:?}", fixture.name);
        }
    });
}

/// Each event alone, each pair, all but one, and all.
fn subsets(events: &[Event]) -> Vec<Vec<&Event>> {
    let mut masks = HashSet::new();
    let all = (1_u64 << events.len()) - 1;
    for a in 0..events.len() {
        for b in a..events.len() {
            masks.insert(1 << a | 1 << b);
        }
        masks.insert(all & !(1 << a));
    }
    masks.insert(all);
    let chosen = |mask: u64| events.iter().enumerate().filter(move |(at, _)| mask & 1 << at != 0).map(|(_, event)| event);
    masks.into_iter().filter(|mask| *mask != 0).map(|mask| chosen(mask).collect()).collect()
}

#[test]
fn every_sample_verifies_and_reads() {
    let mut seen = HashSet::new();
    for (name, about) in samples::list() {
        assert!(!about.is_empty() && seen.insert(*name), "{name}");
        let of = |nonce| Fixture::of_sample(samples::sample(name, nonce, NOW_MS).expect("a listed sample"));
        let subject = Subject::new(of(1).provider(), &[SECRET]);
        let parsed = read(&subject, &of(1));
        assert!(!parsed.events.is_empty() && parsed.problems.is_empty() && parsed.ignored == 0, "{name}: {parsed:?}");
        assert!(parsed.events.iter().all(|event| !event.id.is_empty()), "{name}");
        assert_eq!(keys(&read(&subject, &of(1))), keys(&parsed), "{name}");
        let other: HashSet<EventKey> = read(&subject, &of(2)).events.iter().map(|event| event.key).collect();
        assert!(parsed.events.iter().all(|event| !other.contains(&event.key)), "{name}");
    }
    assert!(samples::sample("whatsapp.nonsense", 1, NOW_MS).is_none());
    assert_eq!(seen.iter().map(|name| name.split('.').next()).collect::<HashSet<_>>().len(), Subject::all().len());
}
