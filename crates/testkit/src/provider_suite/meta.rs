//! Messenger and Instagram: receipts that name messages and receipts that only name a time, echoes, and our handle in them.

use hapax_domain::{Event, Status};

use super::fixtures::Fixture;
use super::read;
use super::subjects::{SECRET, Subject};

const PLATFORMS: [&str; 2] = ["messenger", "instagram"];
const HANDLE: &str = "msg_0190000000007000800000000000002a";

fn events(platform: &'static str, fixture: &Fixture) -> Vec<Event> {
    read(&Subject::new(platform, &[SECRET]), fixture).events
}

#[test]
fn another_sender_with_the_same_message_id_hides_nothing() {
    for (platform, person) in [("messenger", "7000001"), ("instagram", "9000001")] {
        let text = Fixture::named(platform, "text");
        let hostile = text.with_text(person, "666");
        assert_ne!(events(platform, &hostile)[0].key, events(platform, &text)[0].key, "{platform}");
    }
}

#[test]
fn a_watermark_moves_no_message_by_itself() {
    for name in ["delivery_watermark", "read"] {
        let event = events("messenger", &Fixture::named("messenger", name)).remove(0);
        assert_eq!((event.kind.name(), event.says()), ("status", None), "{name}");
    }
    let seen = events("instagram", &Fixture::named("instagram", "seen")).remove(0);
    assert_eq!((seen.id.as_str(), seen.says()), ("m_3", Some(Status::Read)));
    // Read and delivered up to the same time are two things.
    let delivered = events("messenger", &Fixture::named("messenger", "delivery_watermark")).remove(0);
    let read = events("messenger", &Fixture::named("messenger", "read")).remove(0);
    assert!(delivered.id == read.id && delivered.key != read.key);
}

#[test]
fn what_another_app_answers_is_told_apart_from_what_is_ours_to_answer() {
    for platform in PLATFORMS {
        let (ours, standby) = (Fixture::named(platform, "text"), Fixture::named(platform, "standby"));
        assert_ne!(events(platform, &ours)[0].key, events(platform, &standby)[0].key);
    }
}

#[test]
fn an_echo_names_our_message_and_the_bot_does_not_see_how() {
    for platform in PLATFORMS {
        let subject = Subject::new(platform, &[SECRET]);
        let echo = Fixture::named(platform, "echo");
        assert_eq!(events(platform, &echo)[0].handle, None, "a value of the caller's own");
        assert_eq!(subject.provider.restore(&echo.body), None);
        for (value, left) in [(HANDLE.to_owned(), None), (format!("{HANDLE}|mine"), Some("mine"))] {
            let echo = echo.with_text("mine", &value);
            let event = events(platform, &echo).remove(0);
            assert!(event.echo && event.handle.is_some_and(|handle| handle.to_string() == HANDLE));
            let restored = subject.provider.restore(&echo.body).expect("something of ours");
            let restored: serde_json::Value = serde_json::from_slice(&restored).expect("JSON");
            let message = &restored["entry"][0]["messaging"][0]["message"];
            assert_eq!((message["text"].as_str(), message["metadata"].as_str()), (Some("ola"), left));
        }
        // Only an echo can name a message of ours: what people write is theirs.
        let forged = Fixture::named(platform, "text").with_text("oi", "x");
        let forged = String::from_utf8(forged.body.clone())
            .expect("text")
            .replace(r#""text": "x""#, &format!(r#""metadata": "{HANDLE}""#));
        let forged = echo.with_body(forged.into_bytes());
        assert_eq!(events(platform, &forged)[0].handle, None);
    }
}
