//! What the documents look like from outside, and how large they may get.

use bytes::Bytes;
use hapax_domain::ThreadId;
use hapax_store::prelude::*;
use hapax_store::{Arrival, Outcome, Reads, SendOutcome, StoreError, ThreadQuery};
use hapax_testkit::store_fixture::{accept, accept_one, ask, ids, lease, message, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};

use super::emulator::{Emulator, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_leaves_the_documents_that_front_ends_listen_to() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    let mut event = message("m1", "ana");
    event.text = Some("hello".to_owned());
    let key = hex::encode(event.key.0);
    let id = accept_one(&store, event).await;
    let claimed = emulator.fields(&format!("processed_messages/{key}")).await;
    for field in ["processed_at", "expires_at"] {
        assert!(claimed[field]["timestampValue"].is_string(), "{field}: {claimed}");
    }
    let thread = emulator.fields("threads/acc__ana").await;
    assert_eq!((&thread["account"], &thread["peer"], &thread["channel"]), (&text("acc"), &text("ana"), &text("shop")));
    assert_eq!((&thread["lastMessage"], thread["unread"]["integerValue"].as_str()), (&text("hello"), Some("1")));
    let entry = emulator.fields(&format!("threads/acc__ana/messages/{id}")).await;
    assert_eq!((&entry["direction"], &entry["text"], &entry["providerId"]), (&text("in"), &text("hello"), &text("m1")));
    assert!(entry["at"]["timestampValue"].is_string());
}

/// Request ids are unique per account only, and so are thread ids escaped: none takes another's document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_request_id_of_two_accounts_has_two_documents() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    let mut other = outgoing("r1", "ana");
    other.account = "o/ther".to_owned();
    let mut odd = outgoing("r1", "ana");
    odd.account = "third".to_owned();
    let mut in_the_way = outgoing("third__r1", "bob");
    in_the_way.account = "acc".to_owned();
    for new in [outgoing("r1", "ana"), other, in_the_way, odd] {
        store.submit(new).await.expect("submitted");
    }
    assert_eq!(emulator.fields("outbox/r1").await["account"], text("acc"));
    assert_eq!(emulator.fields("outbox/o%252Fther__r1").await["account"], text("o/ther"));
    assert_eq!(emulator.fields("outbox/third__r1").await["account"], text("acc"));
    let leases = store.lease_outbox(ask_out(9)).await.expect("leased");
    let mut accounts: Vec<_> = leases.iter().map(|lease| (lease.account.as_str(), lease.request_id.as_str())).collect();
    accounts.sort_unstable();
    assert_eq!(accounts, [("acc", "r1"), ("acc", "third__r1"), ("o/ther", "r1"), ("third", "r1")]);
    for lease in leases {
        let sent = SendOutcome::Sent { provider_id: format!("w-{}", lease.message) };
        store.settle_outbox(lease.lane, lease.fence, sent).await.expect("settled");
    }
    assert_eq!(emulator.fields("outbox/r1").await["status"], text("sent"));
    assert!(store.lease_outbox(ask_out(9)).await.expect("leased").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_comes_back_whole_and_a_larger_one_is_refused() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    let body: Bytes = (0..3_200_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
    let large = Arrival { body: body.clone(), ..webhook(vec![message("m1", "ana")]) };
    let id = accept(&store, large).await[0].event();
    let held = lease(&store, 9).await.remove(0);
    assert_eq!((ids(&held), &held.body), (vec![id], &body));
    assert_eq!(store.event(id).await.expect("read").expect("there").body, body);
    let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
    store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
    emulator.clock.advance(100);
    store.purge(&[("shop".to_owned(), 10)], 9).await.expect("purged");
    assert!(store.event(id).await.expect("read").is_none());
    assert_eq!(emulator.read("hapax_pieces", super::emulator::As::Hapax).await.1, serde_json::json!({}), "its pieces are gone");

    let huge = Arrival { body: vec![7; 9 << 20].into(), ..webhook(vec![message("m2", "ana")]) };
    let error = store.accept(huge.into()).await.expect_err("more than Firestore takes");
    assert!(matches!(&error, StoreError::Refused(why) if why.contains("10 MiB")), "{error}");
    assert!(!error.retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_of_a_thousand_events_is_one_commit() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    let events = || (0..1_000).map(|n| message(&format!("m{n}"), &format!("p{}", n % 400))).collect();
    let accepted = accept(&store, webhook(events())).await;
    assert_eq!(accepted.iter().filter(|one| one.is_new()).count(), 1_000);
    assert!(accept(&store, webhook(events())).await.iter().all(|one| !one.is_new()));
    let stats = store.stats().await.expect("counted");
    assert_eq!((stats.keys, stats.events, stats.channels[0].waiting), (1_000, 1_000, 400));
    let page = store.threads(ThreadQuery { limit: 500, ..ThreadQuery::default() }).await.expect("read");
    assert_eq!(page.rows.len(), 400);
}

/// On a busy thread accepting comes first; whoever leases or settles tries again, as the worker does.
fn unless_in_the_way<T>(answer: Result<T, StoreError>) -> Option<T> {
    match answer {
        Err(error) if error.retryable() => None,
        answer => Some(answer.expect("an answer")),
    }
}

/// Accepting and settling race for the same lane over and over: nothing is left behind without a lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_joins_while_the_lane_empties_is_not_stranded() {
    let Some(emulator) = Emulator::start().await else { return };
    let (one, other) = (emulator.open().await, emulator.open().await);
    const MESSAGES: usize = 40;
    let accepting = async {
        for n in 0..MESSAGES {
            accept_one(&one, message(&format!("m{n}"), "ana")).await;
        }
    };
    let settling = async {
        let mut order = Vec::new();
        while order.len() < MESSAGES {
            let Some(leased) = unless_in_the_way(other.lease_inbox(ask(3)).await) else { continue };
            for held in leased {
                order.extend(ids(&held));
                let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
                while unless_in_the_way(other.settle_inbox(held.lane, held.fence, delivered.clone()).await).is_none() {}
            }
        }
        order
    };
    let racing = async { tokio::join!(accepting, settling) };
    let (_, order) = tokio::time::timeout(std::time::Duration::from_secs(120), racing).await.expect("all are delivered");
    assert!(order.is_sorted(), "in the order accepted");
    let thread = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
    assert_eq!(one.thread_messages(&thread, None, 100).await.expect("read").rows.len(), MESSAGES);
}
