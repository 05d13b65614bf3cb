//! Messages that a front end writes into the outbox itself.

use std::sync::Arc;

use hapax_domain::Status;
use hapax_store::clock::Clock as _;
use hapax_store::prelude::*;
use hapax_store::{Changed, MessageRow, OutboxLease, OutboxState, Reads, SendOutcome, Settled, Store, Submitted, Unspelt};
use hapax_testkit::store_fixture::{accept_one, message};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};
use serde_json::{Value, json};

use super::emulator::{As, Emulator, adopting, request, text};
use crate::rig::eventually;

/// Leases until something comes; documents are looked for about once a second.
async fn lease_soon(store: &dyn Store) -> Vec<OutboxLease> {
    for _ in 0..120 {
        let leases = store.lease_outbox(ask_out(9)).await.expect("leased");
        if !leases.is_empty() {
            return leases;
        }
        store.wait().await;
    }
    Vec::new()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_of_a_front_end_is_sent() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    assert_eq!(emulator.create("outbox", "req-1", request("ana", "hi"), As::Hapax).await, 200);
    let lease = lease_soon(&store).await.remove(0);
    assert_eq!((lease.request_id.as_str(), lease.peer.as_str(), lease.text.as_deref()), ("req-1", "ana", Some("hi")));
    assert_eq!((&*lease.payload, lease.account.as_str()), (br#"{"text":"hi"}"#.as_slice(), "acc"));
    assert_eq!(store.begin(lease.lane, lease.fence).await.ok(), Some(Settled::Done));
    let seen = emulator.fields("outbox/req-1").await;
    assert_eq!((&seen["status"], &seen["claimedBy"]), (&text("sending"), &text("sender")));
    assert!(seen["leaseUntil"]["timestampValue"].is_string());
    let sent = SendOutcome::Sent { provider_id: "w1".to_owned() };
    store.settle_outbox(lease.lane, lease.fence, sent).await.expect("settled");
    let seen = emulator.fields("outbox/req-1").await;
    assert_eq!((&seen["status"], &seen["providerId"]), (&text("sent"), &text("w1")));
    assert!(seen["claimedBy"]["nullValue"].is_null() && seen["nextAttemptAt"]["nullValue"].is_null());
    let entry = emulator.fields(&format!("threads/acc__ana/messages/{}", lease.message)).await;
    assert_eq!((&entry["status"], &entry["direction"]), (&text("sent"), &text("out")));
    assert!(store.lease_outbox(ask_out(9)).await.expect("leased").is_empty());
}

/// What a person writes becomes the name that the thread has; what the provider would not take is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_it_is_for_is_spelt_as_the_provider_does() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    store.engine().adopt_as(Arc::new(|channel, to, payload| {
        assert_eq!((channel, payload), ("shop", br#"{"text":"hi"}"#.as_slice()));
        let digits: String = to.chars().filter(char::is_ascii_digit).collect();
        if digits.is_empty() { Err(Unspelt::Wrong("this is not a number".to_owned())) } else { Ok(digits) }
    }));
    for (id, to) in [("bad", "ana"), ("good", "+55 (11) 98888-7777")] {
        assert_eq!(emulator.create("outbox", id, request(to, "hi"), As::Hapax).await, 200);
    }
    let leases = lease_soon(&store).await;
    let facts: Vec<_> = leases.iter().map(|lease| (lease.request_id.as_str(), lease.peer.as_str())).collect();
    assert_eq!(facts, [("good", "5511988887777")]);
    let seen = emulator.fields("outbox/good").await;
    assert_eq!((&seen["to"], &seen["threadId"]), (&text("5511988887777"), &text("acc__5511988887777")));
    let seen = says(&emulator, "bad", "failed").await;
    assert_eq!((&seen["status"], &seen["error"]), (&text("failed"), &text("this is not a number")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_channel_or_the_account_is_enough_where_people_have_talked() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    accept_one(&store, message("m1", "ana")).await;
    for (id, who) in [("by-channel", "channel"), ("by-account", "account")] {
        let name = if who == "channel" { "shop" } else { "acc" };
        let request = json!({ "status": text("queued"), who: text(name), "to": text(id), "text": text("hi") });
        assert_eq!(emulator.create("outbox", id, request, As::Hapax).await, 200);
    }
    let mut leases = lease_soon(&store).await;
    while leases.len() < 2 {
        leases.extend(lease_soon(&store).await);
    }
    let mut from: Vec<_> =
        leases.iter().map(|lease| (lease.request_id.as_str(), &*lease.channel, lease.account.as_str())).collect();
    from.sort_unstable();
    assert_eq!(from, [("by-account", "shop", "acc"), ("by-channel", "shop", "acc")]);
}

/// What the document says at last; hapax comes to it within a second or two.
async fn says(emulator: &Emulator, id: &str, status: &str) -> Value {
    let mut seen = Value::Null;
    eventually(&format!("outbox/{id} says {status}"), async || {
        seen = emulator.fields(&format!("outbox/{id}")).await;
        seen["status"] == text(status) && (status == "failed" || seen["number"]["integerValue"].is_string())
    })
    .await;
    seen
}

async fn send(store: &dyn Store, lease: &OutboxLease, provider_id: &str) {
    store.begin(lease.lane, lease.fence).await.expect("begun");
    let sent = SendOutcome::Sent { provider_id: provider_id.to_owned() };
    assert_eq!(store.settle_outbox(lease.lane, lease.fence, sent).await.ok(), Some(Settled::Done));
}

async fn row(store: &dyn Store, lease: &OutboxLease) -> MessageRow {
    store.message(lease.message).await.expect("read").expect("a message")
}

/// Once the second write stopped all sending, of every account, for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_is_written_again_is_one_message_and_stops_nobody() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    for (id, peer) in [("early", "ana"), ("midway", "bob"), ("late", "cyd")] {
        assert_eq!(emulator.create("outbox", id, request(peer, "hi"), As::Hapax).await, 200);
        says(&emulator, id, "queued").await;
    }
    // One while it waits, one while it is being sent, one after it was sent.
    emulator.overwrite("outbox/early", request("ana", "hi")).await;
    let mut leases = store.lease_outbox(ask_out(9)).await.expect("leased");
    leases.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    assert_eq!(leases.iter().map(|lease| lease.request_id.as_str()).collect::<Vec<_>>(), ["early", "late", "midway"]);
    send(&store, &leases[0], "w1").await;
    send(&store, &leases[1], "w2").await;
    store.begin(leases[2].lane, leases[2].fence).await.expect("begun");
    emulator.overwrite("outbox/midway", request("bob", "hi")).await;
    let sent = SendOutcome::Sent { provider_id: "w3".to_owned() };
    assert_eq!(store.settle_outbox(leases[2].lane, leases[2].fence, sent).await.ok(), Some(Settled::Done));
    emulator.overwrite("outbox/late", request("cyd", "something else")).await;

    assert_eq!(emulator.create("outbox", "other", request("dan", "hi"), As::Hapax).await, 200);
    let other = lease_soon(&store).await;
    assert_eq!(other.iter().map(|lease| lease.request_id.as_str()).collect::<Vec<_>>(), ["other"], "the rest goes on");
    for (lease, provider_id) in leases.iter().zip(["w1", "w2", "w3"]) {
        let seen = says(&emulator, &lease.request_id, "sent").await;
        assert_eq!((&seen["providerId"], &seen["text"]), (&text(provider_id), &text("hi")), "{seen}");
        let row = row(&store, lease).await;
        assert_eq!((row.steps.status(), row.provider_id.as_deref()), (Status::Sent, Some(provider_id)));
    }
    assert!(store.lease_outbox(ask_out(9)).await.expect("leased").is_empty(), "each is sent once");
    // The same request by another way is the same message too.
    let mut again = outgoing("early", "ana");
    again.fingerprint = [9; 32];
    assert_eq!(store.submit(again).await.ok(), Some(Submitted::Mismatch(leases[0].message)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_set_back_is_corrected() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    assert_eq!(emulator.create("outbox", "r1", request("ana", "hi"), As::Hapax).await, 200);
    let lease = lease_soon(&store).await.remove(0);
    send(&store, &lease, "w1").await;
    emulator.merge("outbox/r1", json!({ "status": text("queued") })).await;
    let seen = says(&emulator, "r1", "sent").await;
    assert_eq!(seen["providerId"], text("w1"));
    assert!(store.lease_outbox(ask_out(9)).await.expect("leased").is_empty());
}

/// Whatever the fields: each document spoils itself at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_document_stops_another() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    let number = |n: i64| json!({ "integerValue": n.to_string() });
    assert_eq!(emulator.create("outbox", "waiting", request("eve", "hi"), As::Hapax).await, 200);
    says(&emulator, "waiting", "queued").await;
    for (field, value) in [("steps", number(5)), ("lane", text("nowhere")), ("number", text("seven")), ("createdAt", number(1))] {
        emulator.merge("outbox/waiting", json!({ field: value })).await;
    }
    let odd = [
        ("numbered", json!({ "status": text("queued"), "number": number(7), "open": { "booleanValue": true } })),
        (
            "in-line",
            json!({ "status": text("queued"), "number": number(8), "open": { "booleanValue": true }, "inLine": { "booleanValue": true }, "lane": text("00") }),
        ),
        ("empty", json!({ "status": text("queued") })),
        (
            "dated",
            json!({ "status": text("queued"), "channel": text("shop"), "to": text("x"), "text": text("x"), "nextAttemptAt": text("soon") }),
        ),
        (
            "far",
            json!({ "status": text("queued"), "channel": text("shop"), "to": text("x"), "text": text("x"), "nextAttemptAt": { "timestampValue": "9000-01-01T00:00:00Z" } }),
        ),
        (
            "nested",
            json!({ "status": text("queued"), "channel": json!({ "mapValue": {} }), "to": json!({ "arrayValue": {} }), "text": number(1) }),
        ),
    ];
    for (id, fields) in &odd {
        assert_eq!(emulator.create("outbox", id, fields.clone(), As::Hapax).await, 200, "{id}");
    }
    assert_eq!(emulator.create("outbox", "zz-good", request("fay", "hi"), As::Hapax).await, 200);
    let mut sent = Vec::new();
    while sent.len() < 2 {
        for lease in lease_soon(&store).await {
            send(&store, &lease, &format!("w-{}", lease.request_id)).await;
            sent.push(lease.request_id);
        }
    }
    sent.sort_unstable();
    assert_eq!(sent, ["waiting", "zz-good"]);
    for (id, _) in &odd {
        let seen = says(&emulator, id, "failed").await;
        assert!(seen["error"]["stringValue"].is_string(), "{id}: {seen}");
    }
    assert_eq!(says(&emulator, "waiting", "sent").await["text"], text("hi"));
    store.outbox(hapax_store::OutboxQuery { limit: 9, ..Default::default() }).await.expect("listed");
    emulator.clock.advance(1_000);
    store.purge(&[("shop".to_owned(), 10)], 99).await.expect("purged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_taken_over_in_the_order_they_were_written() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    for id in ["c", "b", "a"] {
        assert_eq!(emulator.create("outbox", id, request("ana", id), As::Hapax).await, 200);
    }
    let store = adopting(store);
    let mut order = Vec::new();
    while order.len() < 3 {
        for lease in lease_soon(&store).await {
            send(&store, &lease, &lease.request_id).await;
            order.push(lease.request_id);
        }
    }
    assert_eq!(order, ["c", "b", "a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_for_later_waits_until_then() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    let at_ms = emulator.clock.now_ms() + 60_000;
    let mut later = request("ana", "later");
    later["nextAttemptAt"] = json!({ "timestampValue": jiff::Timestamp::from_millisecond(at_ms).expect("a time").to_string() });
    assert_eq!(emulator.create("outbox", "later", later, As::Hapax).await, 200);
    assert_eq!(emulator.create("outbox", "now", request("ana", "now"), As::Hapax).await, 200);
    let lease = lease_soon(&store).await.remove(0);
    assert_eq!(lease.request_id, "now", "its thread does not wait for it");
    send(&store, &lease, "w1").await;
    let seen = says(&emulator, "later", "queued").await;
    assert!(seen["nextAttemptAt"]["timestampValue"].is_string(), "{seen}");
    assert!(store.lease_outbox(ask_out(9)).await.expect("leased").is_empty());
    emulator.clock.advance(60_000);
    let lease = lease_soon(&store).await.remove(0);
    assert_eq!(lease.request_id, "later");
    let state = row(&store, &lease).await.outbox.map(|place| place.state);
    assert!(matches!(state, Some(OutboxState::Leased { .. })), "{state:?}");
    assert_eq!(store.cancel_message(lease.message).await.ok(), Some(Changed::TooLate));
}

/// What nobody here can spell is not guessed: it waits, says why, and goes out when somebody comes who has the channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_of_an_unknown_channel_waits_and_says_so() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    store.engine().adopt_as(Arc::new(|_, _, _| Err(Unspelt::NotHere)));
    assert_eq!(emulator.create("outbox", "r1", request("+ana", "hi"), As::Hapax).await, 200);
    let mut seen = Value::Null;
    eventually("it says why", async || {
        seen = emulator.fields("outbox/r1").await;
        seen["error"]["stringValue"].is_string()
    })
    .await;
    assert_eq!((&seen["status"], &seen["to"]), (&text("queued"), &text("+ana")));
    assert!(seen["error"]["stringValue"].as_str().is_some_and(|why| why.contains("channel `shop` is not configured")), "{seen}");
    assert!(store.lease_outbox(ask_out(9)).await.expect("leased").is_empty());
    let other = emulator.open().await;
    other.engine().adopt_as(Arc::new(|_, to, _| Ok(to.trim_start_matches('+').to_owned())));
    let lease = lease_soon(&other).await.remove(0);
    assert_eq!(lease.peer, "ana");
    assert!(emulator.fields("outbox/r1").await["error"]["nullValue"].is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_cannot_be_sent_says_why() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = adopting(emulator.open().await);
    store.submit(outgoing("taken", "ana")).await.expect("submitted");
    let queued = || text("queued");
    let mut later = request("ana", "hi");
    later["send_at"] = text("90s");
    let requests = [
        ("nobody", json!({ "status": queued(), "channel": text("shop"), "text": text("hi") }), "`to`"),
        ("nothing", json!({ "status": queued(), "channel": text("shop"), "to": text("ana") }), "`text`"),
        ("from-nobody", json!({ "status": queued(), "to": text("ana"), "text": text("hi") }), "`channel` or `account`"),
        ("unknown", json!({ "status": queued(), "account": text("who"), "to": text("ana"), "text": text("hi") }), "`channel`"),
        ("later", later.clone(), "`nextAttemptAt`"),
    ];
    for (id, request, _) in &requests {
        assert_eq!(emulator.create("outbox", id, request.clone(), As::Hapax).await, 200);
    }
    let leases = lease_soon(&store).await;
    assert_eq!(leases.iter().map(|lease| lease.request_id.as_str()).collect::<Vec<_>>(), ["taken"]);
    for (id, _, why) in &requests {
        let seen = says(&emulator, id, "failed").await;
        assert!(seen["error"]["stringValue"].as_str().is_some_and(|error| error.contains(why)), "{id}: {seen}");
    }
}

/// Two instances look at the same moment, again and again: every document becomes one message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_take_over_each_document_once() {
    let Some(emulator) = Emulator::start().await else { return };
    for n in 0..12 {
        assert_eq!(emulator.create("outbox", &format!("r{n}"), request(&format!("p{n}"), "hi"), As::Hapax).await, 200);
    }
    let (one, other) = (adopting(emulator.open().await), adopting(emulator.open().await));
    let mut seen = Vec::new();
    for _ in 0..120 {
        let (a, b) = tokio::join!(one.lease_outbox(ask_out(9)), other.lease_outbox(ask_out(9)));
        seen.extend([a, b].into_iter().flat_map(|leases| leases.expect("leased")).map(|lease| (lease.request_id, lease.message)));
        if seen.len() >= 12 {
            break;
        }
        one.wait().await;
    }
    seen.sort();
    let mut expected: Vec<String> = (0..12).map(|n| format!("r{n}")).collect();
    expected.sort();
    assert_eq!(seen.iter().map(|(request, _)| request.clone()).collect::<Vec<_>>(), expected);
    for (_, id) in seen {
        let row = one.message(id).await.expect("read").expect("a message");
        assert_eq!(row.steps.status(), Status::Queued);
    }
}
