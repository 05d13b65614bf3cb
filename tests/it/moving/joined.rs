//! What waits in lanes that became one is one line after the move too, and so is what older versions left in two.

use super::pairs::fixtures;
use super::*;
use hapax_domain::Event;

fn by(id: &str, peer: &str, alias: Option<&str>) -> Event {
    Event { aliases: alias.map(str::to_owned).into_iter().collect(), ..message(id, peer) }
}

/// Two lanes, joined with leases out; something parked under the old name, something to be sent under both.
async fn two_names(store: &dyn Store) {
    accept(store, webhook(vec![by("p0", "lid", None)])).await;
    let parked = lease(store, 10).await.remove(0);
    store.settle_inbox(parked.lane, parked.fence, Outcome::Parked { why: "no".to_owned(), charged: true }).await.expect("parked");
    for (id, peer) in [("a1", "ana"), ("l1", "lid"), ("l2", "lid"), ("a2", "ana")] {
        accept(store, webhook(vec![by(id, peer, None)])).await;
        store.submit(outgoing(id, peer)).await.expect("submitted");
    }
    let (items, messages) = (lease(store, 10).await, store.lease_outbox(ask_out(10)).await.expect("leased"));
    assert_eq!((items.len(), messages.len()), (2, 2));
    accept(store, webhook(vec![by("both", "ana", Some("lid"))])).await;
    // Nobody may be at work when a store is moved.
    for held in items {
        store
            .settle_inbox(held.lane, held.fence, Outcome::HandBack { wait_ms: 0, why: None, called: false })
            .await
            .expect("handed back");
    }
    for held in messages {
        store.settle_outbox(held.lane, held.fence, SendOutcome::HandBack { wait_ms: 0 }).await.expect("handed back");
    }
}

/// Takes all there is, one at a time; by provider id or request id.
async fn drained(store: &dyn Store) -> (Vec<String>, Vec<String>) {
    let (mut inbox, mut outbox) = (Vec::new(), Vec::new());
    while let Some(held) = lease(store, 10).await.pop() {
        assert!(lease(store, 10).await.is_empty(), "one at a time");
        assert_eq!(held.events[0].thread.as_ref().map(|thread| thread.peer.as_str()), Some("ana"));
        let event = store.event(held.events[0].id).await.expect("asked").expect("it is there");
        inbox.push(event.row.provider_id);
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
        assert_eq!(store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled"), Settled::Done);
    }
    while let Some(held) = store.lease_outbox(ask_out(10)).await.expect("leased").pop() {
        assert!(store.lease_outbox(ask_out(10)).await.expect("leased").is_empty(), "one at a time");
        outbox.push(held.request_id.clone());
        let sent = SendOutcome::Sent { provider_id: held.request_id };
        store.settle_outbox(held.lane, held.fence, sent).await.expect("settled");
    }
    (inbox, outbox)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_lanes_are_moved_as_one() {
    for (from, source) in fixtures().await {
        let Some(source) = source else { continue };
        let store = source.open();
        two_names(&*store).await;
        drop(store);
        // The embedded store tells nothing while somebody is at work; the others end their leases on the way.
        let records = export(&*source.crash()).await;
        for (to, fixture) in fixtures().await {
            let Some(fixture) = fixture else { continue };
            let moved = open_at(&*fixture, &*source);
            import(&*moved, &records).await;
            assert_eq!(moved.redrive(Redrive::All, 10).await.expect("redriven"), 1);
            let (inbox, outbox) = drained(&*moved).await;
            assert_eq!(inbox, ["p0", "a1", "l1", "l2", "a2", "both"], "{from} to {to}");
            assert_eq!(outbox, ["a1", "l1", "l2", "a2"], "{from} to {to}");
        }
    }
}
