//! What is Redis' own about a move: numbers that name no account, keys that belong to nobody known.

use hapax_domain::{Event, EventKey, Kind};
use hapax_store::Reads;
use hapax_store::prelude::*;
use hapax_testkit::store_fixture::WINDOW_MS;

use super::*;

fn of(account: &str, id: &str) -> Event {
    let key = EventKey::new("generic", account, Kind::Message, id, &[]);
    Event { peer: Some("ana".to_owned()), text: Some(id.to_owned()), ..Event::new(Kind::Message, account, id, key, 7) }
}

const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

/// Other stores keep the body of a webhook once; on Redis each account has it among its own keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_of_several_accounts_is_moved_to_each_of_them() {
    let Some(fixture) = ServerFixture::on(Engine::Redis, redis::open).await else { return };
    let (first, last) = (sqlite(), sqlite());
    let from = first.open();
    accept(&*from, webhook(vec![of("one", "a1"), of("two", "b1"), of("two", "b2"), of("one", "a2")])).await;
    accept(&*from, webhook(vec![of("three", "c1"), of("two", "b3")])).await;
    let records = export(&*from).await;
    let expected = snapshot(&*from, &records).await;
    let store = open_at(&fixture, &first);
    import(&*store, &records).await;
    same("redis", &expected, &snapshot(&*store, &records).await);
    let again = export(&*store).await;
    let back = open_at(&last, &first);
    import(&*back, &again).await;
    same("back again", &expected, &snapshot(&*back, &again).await);
    // Lanes that are due at the same time have no order between accounts.
    let bodies = async |store: &dyn Store| {
        let mut bodies: Vec<_> =
            lease(store, 9).await.into_iter().map(|held| (held.item, held.body, held.webhook_events)).collect();
        bodies.sort();
        bodies
    };
    assert_eq!(bodies(&*from).await, bodies(&*store).await);
    fixture.remove().await;
}

/// A key outlives its event: nobody knows its account any more, and a copy is a copy all the same, until the window is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_its_event_is_kept_for_its_window() {
    let Some(fixture) = ServerFixture::on(Engine::Redis, redis::open).await else { return };
    let source = sqlite();
    let from = source.open();
    let id = accept(&*from, webhook(vec![of("gone", "a1")])).await[0].event();
    let held = lease(&*from, 1).await.remove(0);
    from.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
    source.clock().advance(5_000);
    while from.purge(&[("shop".to_owned(), 1_000)], 9).await.expect("purged").more {}
    let records = export(&*from).await;
    assert!(!records.iter().any(|record| matches!(record, Moved::Event(_))), "it is gone");
    let store = open_at(&fixture, &source);
    import(&*store, &records).await;
    let other = fixture.open();
    for store in [&store, &other] {
        assert_eq!(accept(&**store, webhook(vec![of("gone", "a1")])).await, [Accepted::Duplicate(id)]);
        let changed = Event { fingerprint: 8, ..of("gone", "a1") };
        assert_eq!(accept(&**store, webhook(vec![changed])).await, [Accepted::Conflict(id)]);
    }
    assert_eq!(store.stats().await.expect("stats").keys, 1);
    fixture.clock().advance(WINDOW_MS + 60_000);
    let answers = accept(&*store, webhook(vec![of("gone", "a1")])).await;
    assert!(matches!(answers[0], Accepted::New(new) if new != id), "{answers:?}");
    fixture.remove().await;
}

/// Nothing of what was moved is left when its time is over but threads and names, and nobody looks for moved keys any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_is_purged_to_the_last_key() {
    let Some(server) = Engine::Redis.shared().await else { return };
    let address = server.fresh().await;
    let source = sqlite();
    let records = export(&*filled(&source, 4_000).await).await;
    let clock: Arc<dyn Clock> = Arc::new(source.clock().clone());
    let store = redis::open(&address, Some(clock)).await.expect("opens");
    import(&store, &records).await;
    source.clock().advance(HOLD_MS);
    store.redrive(Redrive::All, 1_000).await.expect("redriven");
    for _ in 0..50 {
        for held in lease(&store, 50).await {
            store.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
        }
        for held in store.lease_outbox(ask_out(50)).await.expect("leased") {
            let sent = SendOutcome::Sent { provider_id: held.request_id.clone() };
            store.settle_outbox(held.lane, held.fence, sent).await.expect("settled");
        }
    }
    let (_, messages) = ids(&records);
    for id in messages {
        store.cancel_message(id).await.expect("an answer");
    }
    source.clock().advance(100 * WINDOW_MS);
    while store.purge(&[("shop".to_owned(), 1_000)], 50).await.expect("purged").more {}
    let (host, prefix) = address.split_once("?prefix=").expect("a prefix");
    let client = ::redis::Client::open(host).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("it answers");
    let pattern = format!("{prefix}:*");
    let keys: Vec<Vec<u8>> = ::redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
    let kind = |key: &Vec<u8>| {
        let key = String::from_utf8_lossy(key).into_owned();
        key.split_once("}:").and_then(|(_, rest)| rest.split(':').next()).unwrap_or_default().to_owned()
    };
    let kinds: BTreeSet<String> = keys.iter().map(kind).collect();
    // Threads, names, settings; what was quarantined, with its events; answers of the last calls; claims that never end.
    let may_stay = "accounts al an at claim claim_held claim_meta claims cp done e early es ev i meta nm paused places quar result rp settings t te ts w";
    let may_stay: Vec<&str> = may_stay.split(' ').collect();
    let left: Vec<_> = kinds.iter().filter(|kind| !may_stay.contains(&kind.as_str())).collect();
    assert!(left.is_empty(), "{left:?}");
    let quarantined =
        store.inbox(InboxQuery { limit: 1_000, ..InboxQuery::default() }).await.expect("the inbox").rows.len() as u64;
    assert_eq!(store.stats().await.expect("stats").events, quarantined, "only what is quarantined waits for a person");
    let flag = format!("{prefix}:{{all}}:meta:");
    let flag: Option<String> =
        ::redis::cmd("HGET").arg(flag).arg("moved_keys").query_async(&mut connection).await.expect("asked");
    assert_eq!(flag, None);
    server.remove(&address).await;
}
