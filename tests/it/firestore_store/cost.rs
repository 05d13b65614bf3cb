//! What `docs/firestore.md` says that things cost.

use hapax_store::prelude::*;
use hapax_store::{Outcome, SendOutcome};
use hapax_testkit::store_fixture::{accept_one, lease, message};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};

use super::emulator::Emulator;
use super::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_costs_what_the_documentation_says() {
    let Some(emulator) = Emulator::start().await else { return };
    let proxy = Proxy::start(&emulator).await;
    let store = emulator.open_at(&proxy.host).await;
    let delivered = || Outcome::Delivered { status: 200, answer: None, replies: vec![] };
    accept_one(&store, message("first", "ana")).await;
    let first = lease(&store, 9).await.remove(0);
    store.settle_inbox(first.lane, first.fence, delivered()).await.expect("settled");

    proxy.cost();
    proxy.calls();
    let mut calls = Vec::new();
    accept_one(&store, message("m1", "ana")).await;
    let accept = proxy.cost();
    calls.push(proxy.calls());
    accept_one(&store, message("m1", "ana")).await;
    let copy = proxy.cost();
    calls.push(proxy.calls());
    let held = lease(&store, 9).await.remove(0);
    let leased = proxy.cost();
    calls.push(proxy.calls());
    store.settle_inbox(held.lane, held.fence, delivered()).await.expect("settled");
    let settle = proxy.cost();
    calls.push(proxy.calls());
    store.submit(outgoing("r1", "ana")).await.expect("submitted");
    calls.push(proxy.calls());
    let sending = store.lease_outbox(ask_out(9)).await.expect("leased").remove(0);
    calls.push(proxy.calls());
    store.begin(sending.lane, sending.fence).await.expect("begun");
    calls.push(proxy.calls());
    store.settle_outbox(sending.lane, sending.fence, SendOutcome::Sent { provider_id: "w1".to_owned() }).await.expect("settled");
    calls.push(proxy.calls());
    let reply = proxy.cost();
    // Accept, a copy, lease, settle; submit, which counts the room in the outbox every ten seconds, lease, begin, settle.
    assert_eq!(calls, [2, 1, 5, 3, 4, 5, 3, 4]);
    lease(&store, 9).await;
    store.lease_outbox(ask_out(9)).await.expect("leased");
    let idle = proxy.cost();
    assert_eq!((accept, leased, settle, reply), ((5, 7, 0), (4, 2, 0), (3, 2, 2), (21, 18, 1)));
    assert_eq!(copy, (5, 0, 0));
    // Whoever serves looks for documents of front ends too, with two queries a second.
    assert_eq!(idle, (5, 0, 0));

    emulator.clock.advance(100);
    let purged = store.purge(&[("shop".to_owned(), 10)], 99).await.expect("purged");
    assert_eq!(purged.events, 2);
    assert_eq!(proxy.cost(), (38, 5, 13), "two events and a message, and with them their thread");
}
