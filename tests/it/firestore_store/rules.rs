//! The security rules and indexes that are deployed with hapax.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hapax_testkit::store_fixture::{accept_one, message};
use serde_json::{Value, json};

use super::emulator::{As, Emulator, text};

const RULES: &str = include_str!("../../../deploy/firestore/firestore.rules");
pub(super) const INDEXES: &str = include_str!("../../../deploy/firestore/firestore.indexes.json");

/// What the emulator takes for a signed-in user with these claims.
fn user(claims: Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut user = json!({ "sub": "eva", "user_id": "eva" });
    user.as_object_mut().expect("an object").extend(claims.as_object().cloned().unwrap_or_default());
    format!("{}.{}.", part(json!({ "alg": "none" })), part(user))
}

fn staff() -> String {
    user(json!({ "staff": true }))
}

/// Signed in, and nobody of ours.
fn strangers() -> [String; 3] {
    [user(json!({})), user(json!({ "staff": false })), user(json!({ "staff": "true" }))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_conversations_and_nothing_internal() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    let (status, said) = emulator.rule(RULES).await;
    assert_eq!(status, 200, "{said}");
    let id = accept_one(&store, message("m1", "ana")).await;
    let eva = staff();
    let internal = ["hapax_lanes", "hapax_events", "hapax_items", "hapax_settings", "processed_messages"];
    for path in internal {
        assert_eq!(emulator.read(path, As::Nobody).await.0, 403, "{path}");
        assert_eq!(emulator.read(path, As::User(&eva)).await.0, 403, "{path}");
        assert_eq!(emulator.create(path, "x", json!({ "a": text("b") }), As::User(&eva)).await, 403, "{path}");
        assert_eq!(emulator.read(path, As::Hapax).await.0, 200, "{path}");
    }
    let entry = format!("threads/acc__ana/messages/{id}");
    for path in ["threads", "threads/acc__ana", entry.as_str(), "outbox"] {
        assert_eq!(emulator.read(path, As::Nobody).await.0, 403, "{path}");
        for stranger in strangers() {
            assert_eq!(emulator.read(path, As::User(&stranger)).await.0, 403, "{path}: signing in is not enough");
        }
        assert_eq!(emulator.read(path, As::User(&eva)).await.0, 200, "{path}");
    }
    assert_eq!(emulator.create("threads", "acc__bob", json!({}), As::User(&eva)).await, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_may_write_wishes_and_nothing_else() {
    let Some(emulator) = Emulator::start().await else { return };
    assert_eq!(emulator.rule(RULES).await.0, 200);
    let eva = staff();
    let request = json!({ "status": text("queued"), "channel": text("shop"), "to": text("ana"), "text": text("hi") });
    assert_eq!(emulator.create_stamped("r1", request.clone(), As::Nobody).await, 403);
    for stranger in strangers() {
        assert_eq!(emulator.create_stamped("r1", request.clone(), As::User(&stranger)).await, 403);
    }
    assert_eq!(emulator.create("outbox", "r1", request.clone(), As::User(&eva)).await, 403, "without the server's time");
    let own_time = json!({ "timestampValue": "2020-01-01T00:00:00Z" });
    let mut dated = request.clone();
    dated["createdAt"] = own_time.clone();
    assert_eq!(emulator.create("outbox", "r1", dated, As::User(&eva)).await, 403, "with a time of its own");
    assert_eq!(emulator.create_stamped("r1", request.clone(), As::User(&eva)).await, 200);
    assert_eq!(emulator.merge_as("outbox/r1", json!({ "status": text("queued") }), As::User(&eva)).await, 403);
    let with = |field: &str, value: Value| {
        let mut other = request.clone();
        other[field] = value;
        other
    };
    let map = |fields: Value| json!({ "mapValue": { "fields": fields } });
    for (field, value) in [
        ("status", text("sent")),
        ("number", json!({ "integerValue": "7" })),
        ("text", text("")),
        ("to", json!({ "nullValue": null })),
        ("nextAttemptAt", text("soon")),
        ("payload", text("{}")),
        ("payload", map(json!({ "method": text("setWebhook"), "url": text("https://elsewhere.example") }))),
        ("payload", map(json!({ "method": text("forwardMessage"), "from_chat_id": text("@others") }))),
    ] {
        let id = format!("bad-{field}");
        assert_eq!(emulator.create_stamped(&id, with(field, value), As::User(&eva)).await, 403, "{field}");
    }
    for (n, (field, value)) in [
        ("nextAttemptAt", own_time),
        ("payload", map(json!({ "method": text("sendDice") }))),
        ("payload", map(json!({ "type": text("image") }))),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(emulator.create_stamped(&format!("good-{n}"), with(field, value), As::User(&eva)).await, 200, "{field}");
    }
}

#[test]
fn the_indexes_can_be_read() {
    let indexes: Value = serde_json::from_str(INDEXES).expect("JSON");
    let list = indexes["indexes"].as_array().expect("a list");
    assert!(
        list.iter().all(|index| index["fields"].as_array().is_some_and(|fields| fields.len() >= 2)),
        "each has several fields"
    );
    let kept = indexes["fieldOverrides"].as_array().expect("a list").iter().filter(|field| field["ttl"] == true);
    assert_eq!(
        kept.map(|field| field["collectionGroup"].as_str()).collect::<Vec<_>>(),
        [Some("processed_messages"), Some("hapax_nonces"), Some("hapax_settings"), Some("hapax_files")]
    );
}
