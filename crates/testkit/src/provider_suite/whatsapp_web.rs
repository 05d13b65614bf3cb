//! Servers that are a WhatsApp phone's companion: contacts choose message ids, and one person comes under two names.

use hapax_domain::{Event, EventKey, Kind};
use hapax_providers::settings::{EvolutionProof, Settings, SignatureRule};
use hapax_providers::{Provider, build};
use secrecy::SecretString;

use super::fixtures::Fixture;
use super::read;
use super::subjects::{NOW_MS, SECRET, Subject};

const PHONE: &str = "551188887777@s.whatsapp.net";

fn only(provider: &'static str, fixture: &Fixture) -> Event {
    let mut events = read(&Subject::new(provider, &[SECRET]), fixture).events;
    assert_eq!(events.len(), 1, "{}", fixture.name);
    events.remove(0)
}

fn key(provider: &'static str, fixture: &Fixture) -> EventKey {
    only(provider, fixture).key
}

#[test]
fn a_hostile_contact_of_evolution_cannot_take_anothers_message_id() {
    let text = Fixture::named("evolution", "text");
    let hostile = text.with_text(PHONE, "666@s.whatsapp.net").with_text("99@lid", "66@lid");
    assert_ne!(key("evolution", &hostile), key("evolution", &text));
    let group = Fixture::named("evolution", "group");
    let hostile = group.with_text(PHONE, "666@s.whatsapp.net").with_text("99@lid", "66@lid");
    assert_ne!(key("evolution", &hostile), key("evolution", &group));
    // Nor can he move the status of a message of ours by giving his own the same id.
    let (ours, theirs) = (
        only("evolution", &Fixture::named("evolution", "read")),
        only("evolution", &Fixture::named("evolution", "status_of_theirs")),
    );
    assert_eq!((ours.id.as_str(), theirs.id.as_str()), ("BAE5X", "BAE5X"));
    assert!(ours.says().is_some() && theirs.says().is_none() && ours.key != theirs.key);
}

#[test]
fn a_lid_and_a_phone_are_one_person_to_evolution() {
    let text = only("evolution", &Fixture::named("evolution", "text"));
    for other in ["lid", "sender_pn"] {
        let other = only("evolution", &Fixture::named("evolution", other));
        assert_eq!((other.key, &other.peer, &other.aliases), (text.key, &text.peer, &text.aliases));
    }
}

/// What a webhook with both names and one with the LID alone have in common, and another contact's has not.
#[test]
fn a_message_is_guarded_by_the_lid_of_who_wrote_it() {
    for (provider, with_both) in [("evolution", "text"), ("gowa", "text"), ("waha", "lid_noweb")] {
        let both = Fixture::named(provider, with_both);
        let alone = both.with_text(PHONE, "99@lid");
        let (one, other) = (only(provider, &both), only(provider, &alone));
        assert!(one.guard.is_some(), "{provider}");
        assert_eq!(one.guard, other.guard, "{provider}");
        let hostile = alone.with_text("99@lid", "66@lid");
        let hostile = if provider == "waha" { hostile.with_text("false_99@lid_3EB0AA", "false_66@lid_3EB0AA") } else { hostile };
        let hostile = only(provider, &hostile);
        assert_ne!(hostile.guard, one.guard, "{provider}");
    }
}

#[test]
fn the_global_and_the_instance_webhook_of_evolution_are_one_event() {
    for name in ["text", "read", "connection", "edited_without_time", "send_message"] {
        let local = Fixture::named("evolution", name);
        let global = local
            .with_text("https://hapax.example/in/shop", "https://hapax.example/in/shop/messages-upsert")
            .with_text("http://evolution:8080", "https://evolution.example");
        let (local, global) = (only("evolution", &local), only("evolution", &global));
        assert_eq!((local.key, local.fingerprint), (global.key, global.fingerprint), "{name}");
    }
    // What is added to a picture on the way is no other picture.
    let image = Fixture::named("evolution", "image");
    let renewed = image.with_text("https://s3.example/x", "https://s3.example/y").with_text("Ana", "Bia");
    let (image, renewed) = (only("evolution", &image), only("evolution", &renewed));
    assert_eq!((image.key, image.fingerprint), (renewed.key, renewed.fingerprint));
}

#[test]
fn two_edits_of_a_message_are_two_events() {
    let first = Fixture::named("evolution", "edited");
    for (from, to) in [("novo", "mais novo"), ("1760000009000", "1760000010000")] {
        assert_ne!(key("evolution", &first.with_text(from, to)), key("evolution", &first), "{to}");
    }
    let timeless = Fixture::named("evolution", "edited_without_time");
    let later = timeless.with_text("2026-08-22T07:00:00.000Z", "2026-08-22T07:01:00.000Z");
    assert_ne!(key("evolution", &later), key("evolution", &timeless));
}

#[test]
fn evolutions_history_is_never_delivered() {
    let history = read(&Subject::new("evolution", &[SECRET]), &Fixture::named("evolution", "history"));
    assert_eq!((history.events.len(), history.problems.len(), history.ignored), (0, 0, 1));
}

fn evolution(proof: EvolutionProof, token: Option<&str>) -> std::sync::Arc<dyn Provider> {
    build(&Settings::Evolution { proof, token: token.map(SecretString::from) })
}

#[test]
fn the_instances_key_is_kept_nowhere_and_comes_back_only_where_it_is_our_own() {
    let fixture = Fixture::named("evolution", "with_apikey");
    let apikey = "B6D711FCDE4D4FD5936544120E713976";
    let request = Subject::new("evolution", &[SECRET]).signed(&fixture);
    for (token, comes_back) in [(Some(apikey), true), (Some("another-key"), false), (None, false)] {
        let provider = evolution(EvolutionProof::Jwt { secrets: vec![SecretString::from(SECRET)] }, token);
        let verified = provider.verify(&request, NOW_MS).expect("a good token");
        let kept = String::from_utf8(verified.body().to_vec()).expect("text");
        assert!(!kept.contains(apikey), "{kept}");
        assert!(!format!("{:?} {verified:?}", provider.parse(&verified)).contains(apikey));
        assert_eq!(provider.parse(&verified).events[0].kind, Kind::Message);
        let restored = provider.restore(kept.as_bytes());
        assert_eq!(restored.is_some(), comes_back);
        if let Some(restored) = restored {
            let same = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).expect("JSON");
            assert_eq!(same(&restored), same(&fixture.body));
        }
    }
}

#[test]
fn evolution_may_prove_itself_by_a_fixed_header() {
    let rule = SignatureRule::Token {
        header: http::HeaderName::from_static("x-webhook-secret"),
        prefix: String::new(),
        secrets: vec![SecretString::from(SECRET)],
    };
    let provider = evolution(EvolutionProof::Header(rule), None);
    let mut request = Fixture::named("evolution", "text").request();
    assert!(!provider.may_pass(&request.headers) && provider.verify(&request, NOW_MS).is_err());
    request.headers.insert("x-webhook-secret", http::HeaderValue::from_static("wrong"));
    assert!(!provider.may_pass(&request.headers) && provider.verify(&request, NOW_MS).is_err());
    for (name, value) in provider.sign(Fixture::named("evolution", "text").unsigned(), NOW_MS) {
        request.headers.insert(name, value);
    }
    assert!(provider.may_pass(&request.headers) && provider.verify(&request, NOW_MS).is_ok());
    // The global webhook sends no headers at all.
    let open = evolution(EvolutionProof::Header(SignatureRule::None), None);
    let bare = Fixture::named("evolution", "text").request();
    assert!(open.may_pass(&bare.headers) && open.verify(&bare, NOW_MS).is_ok());
}

#[test]
fn a_hostile_contact_of_waha_cannot_take_anothers_message_id() {
    let text = Fixture::named("waha", "bare");
    assert_ne!(key("waha", &text.with_text("551188887777@c.us", "666@c.us")), key("waha", &text));
    let group = Fixture::named("waha", "group");
    let hostile = group
        .with_text("false_12@g.us_3EB0AC_99@lid", "false_12@g.us_3EB0AC_66@lid")
        .with_text("99@lid", "66@lid")
        .with_text(PHONE, "666@s.whatsapp.net");
    assert_ne!(key("waha", &hostile), key("waha", &group));
    let (ours, theirs) = (only("waha", &Fixture::named("waha", "read")), only("waha", &Fixture::named("waha", "ack_of_theirs")));
    assert_eq!((ours.id.as_str(), theirs.id.as_str()), ("3EB0X", "3EB0X"));
    assert!(ours.says().is_some() && theirs.says().is_none() && ours.key != theirs.key);
}

#[test]
fn a_lid_and_a_phone_are_one_person_to_waha() {
    let text = only("waha", &Fixture::named("waha", "text"));
    for engine in ["lid_noweb", "lid_gows"] {
        let other = only("waha", &Fixture::named("waha", engine));
        assert_eq!((other.key, other.fingerprint, &other.peer), (text.key, text.fingerprint, &text.peer), "{engine}");
        assert_eq!(other.aliases, ["99@lid"], "{engine}");
    }
}

#[test]
fn both_events_and_both_forms_of_a_waha_message_are_one() {
    let text = only("waha", &Fixture::named("waha", "text"));
    for form in ["any", "bare"] {
        let other = only("waha", &Fixture::named("waha", form));
        assert_eq!((other.key, other.fingerprint), (text.key, text.fingerprint), "{form}");
    }
    // It never claims the key of the message that it announces.
    assert_ne!(key("waha", &Fixture::named("waha", "waiting")), text.key);
}

#[test]
fn edits_that_share_the_messages_id_are_told_apart() {
    let edit = Fixture::named("waha", "edited_webjs");
    assert_ne!(key("waha", &edit.with_text("evt_01a", "evt_01b")), key("waha", &edit));
    let named = Fixture::named("waha", "edited");
    assert_eq!(key("waha", &named.with_text("evt_01a", "evt_01b")), key("waha", &named));
    let group = Fixture::named("waha", "group_ack");
    let another = group.with_text("true_12@g.us_3EB0X_9999@lid", "true_12@g.us_3EB0X_8888@lid").with_text("9999@lid", "8888@lid");
    assert_ne!(key("waha", &another), key("waha", &group));
}
