//! Messages that a front end writes into the outbox itself.

use hapax::domain::Status;
use hapax::store::{OutboxLease, Reads, SendOutcome, Settled, Store};
use hapax::testkit::store_bed::{accept_one, message};
use hapax::testkit::store_suite::sending::{ask_out, outgoing};
use serde_json::json;

use super::emulator::{As, Emulator, text};

/// Leases until something comes; documents are looked for about once a second.
async fn lease_soon(store: &dyn Store) -> Vec<OutboxLease> {
    for _ in 0..20 {
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
    let store = emulator.open().await;
    let wish = json!({ "status": text("queued"), "channel": text("shop"), "account": text("acc"), "to": text("ana"), "text": text("hi") });
    assert_eq!(emulator.create("outbox", "req-1", wish, As::Hapax).await, 200);
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
    store.learn_spelling(std::sync::Arc::new(|channel, to, payload| {
        assert_eq!((channel, payload), ("shop", br#"{"text":"hi"}"#.as_slice()));
        let digits: String = to.chars().filter(char::is_ascii_digit).collect();
        if digits.is_empty() { Err("this is not a number".to_owned()) } else { Ok(digits) }
    }));
    for (id, to) in [("good", "+55 (11) 98888-7777"), ("bad", "ana")] {
        let wish = json!({ "status": text("queued"), "channel": text("shop"), "account": text("acc"), "to": text(to), "text": text("hi") });
        assert_eq!(emulator.create("outbox", id, wish, As::Hapax).await, 200);
    }
    let leases = lease_soon(&store).await;
    let facts: Vec<_> = leases.iter().map(|lease| (lease.request_id.as_str(), lease.peer.as_str())).collect();
    assert_eq!(facts, [("good", "5511988887777")]);
    let seen = emulator.fields("outbox/good").await;
    assert_eq!((&seen["to"], &seen["threadId"]), (&text("5511988887777"), &text("acc__5511988887777")));
    let seen = emulator.fields("outbox/bad").await;
    assert_eq!((&seen["status"], &seen["error"]), (&text("failed"), &text("this is not a number")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_channel_or_the_account_is_enough_where_people_have_talked() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    accept_one(&store, message("m1", "ana")).await;
    for (id, who) in [("by-channel", "channel"), ("by-account", "account")] {
        let name = if who == "channel" { "shop" } else { "acc" };
        let wish = json!({ "status": text("queued"), who: text(name), "to": text(id), "text": text("hi") });
        assert_eq!(emulator.create("outbox", id, wish, As::Hapax).await, 200);
    }
    let leases = lease_soon(&store).await;
    let mut from: Vec<_> =
        leases.iter().map(|lease| (lease.request_id.as_str(), &*lease.channel, lease.account.as_str())).collect();
    from.sort_unstable();
    assert_eq!(from, [("by-account", "shop", "acc"), ("by-channel", "shop", "acc")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_cannot_be_sent_says_why() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    store.submit(outgoing("taken", "ana")).await.expect("submitted");
    let queued = || text("queued");
    let wishes = [
        ("nobody", json!({ "status": queued(), "channel": text("shop"), "text": text("hi") }), "`to`"),
        ("nothing", json!({ "status": queued(), "channel": text("shop"), "to": text("ana") }), "`text`"),
        ("from-nobody", json!({ "status": queued(), "to": text("ana"), "text": text("hi") }), "`channel` or `account`"),
        ("unknown", json!({ "status": queued(), "account": text("who"), "to": text("ana"), "text": text("hi") }), "`channel`"),
    ];
    for (id, wish, _) in &wishes {
        assert_eq!(emulator.create("outbox", id, wish.clone(), As::Hapax).await, 200);
    }
    let leases = lease_soon(&store).await;
    assert_eq!(leases.iter().map(|lease| lease.request_id.as_str()).collect::<Vec<_>>(), ["taken"]);
    for (id, _, why) in &wishes {
        let seen = emulator.fields(&format!("outbox/{id}")).await;
        assert_eq!(seen["status"], text("failed"), "{id}");
        assert!(seen["error"]["stringValue"].as_str().is_some_and(|error| error.contains(why)), "{id}: {seen}");
    }
}

/// Two instances look at the same moment, again and again: every document becomes one message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_take_over_each_document_once() {
    let Some(emulator) = Emulator::start().await else { return };
    let (one, other) = (emulator.open().await, emulator.open().await);
    for n in 0..12 {
        let to = text(&format!("p{n}"));
        let wish =
            json!({ "status": text("queued"), "channel": text("shop"), "account": text("acc"), "to": to, "text": text("hi") });
        assert_eq!(emulator.create("outbox", &format!("r{n}"), wish, As::Hapax).await, 200);
    }
    let mut seen = Vec::new();
    for _ in 0..20 {
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
