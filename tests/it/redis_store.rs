//! The Redis engine on real servers: the suite, the comparison, and what is Redis' own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hapax_domain::{Event, EventKey, Kind};
use hapax_store::prelude::*;
use hapax_store::{
    Accepted, Arrival, LeaseRequest, NewMessage, Outcome, Promise, Reads, SendOutcome, Settled, StoreError, Submitted,
};
use hapax_store_redis::{RedisStore, open};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::server_fixtures::{ServerFixture, compare_with_model};
use hapax_testkit::servers::{Engine, Private};
use hapax_testkit::store_compare::sequences;
use hapax_testkit::store_fixture::{START_MS, WINDOW_MS, accept, accept_one, ask, lease, message, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};
use redis::aio::MultiplexedConnection;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

mod suite {
    use hapax_testkit::server_fixtures::ServerFixture;
    use hapax_testkit::servers::Engine;

    hapax_testkit::store_suite!(ServerFixture::on(Engine::Redis, hapax_store_redis::open).await);
}

const SEQUENCES: u64 = 200;
pub(crate) const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fences_of_a_key_only_rise() {
    if let Some(fixture) = ServerFixture::on(Engine::Redis, open).await {
        hapax_testkit::store_suite::claiming::the_fences_of_a_key_only_rise(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_answers_like_the_model() {
    compare_with_model(Engine::Redis, open, sequences(SEQUENCES)).await;
}

/// A connection of the test's own, to the server behind a store's address.
pub(crate) async fn connect(address: &str) -> MultiplexedConnection {
    let server = address.split('?').next().expect("an address");
    redis::Client::open(server).expect("an address").get_multiplexed_async_connection().await.expect("it answers")
}

pub(crate) async fn set(connection: &mut MultiplexedConnection, name: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(connection).await.expect("set");
}

/// What the store lacks, as one text; empty when it promises everything.
pub(crate) fn lacks(store: &RedisStore) -> String {
    match store.promise() {
        Promise::Full => String::new(),
        Promise::Degraded(lacks) => lacks.join("; "),
    }
}

#[tokio::test]
async fn redis_promises_what_its_settings_allow() {
    let Some(server) = Engine::Redis.private().await else { return };
    let address = server.fresh().await;
    let mut connection = connect(&address).await;
    assert_eq!(lacks(&open(&address, None).await.expect("opens")), "");

    set(&mut connection, "appendfsync", "everysec").await;
    assert!(lacks(&open(&address, None).await.expect("opens")).contains("up to a second of accepted webhooks can be lost"));
    set(&mut connection, "appendonly", "no").await;
    assert!(lacks(&open(&address, None).await.expect("opens")).contains("appendonly is off"));
    set(&mut connection, "maxmemory-policy", "allkeys-lru").await;
    assert!(lacks(&open(&address, None).await.expect("opens")).contains("maxmemory-policy is allkeys-lru"));
    set(&mut connection, "maxmemory", "100mb").await;
    let refused = open(&address, None).await.err().expect("keys could vanish");
    assert!(matches!(&refused, StoreError::Refused(why) if why.contains("allkeys-lru")), "{refused}");

    set(&mut connection, "maxmemory-policy", "noeviction").await;
    let may = ["SETUSER", "weak", "on", ">secret", "~*", "&*", "+@all", "-config"];
    redis::cmd("ACL").arg(&may).exec_async(&mut connection).await.expect("a user");
    let weak = address.replace("redis://", "redis://weak:secret@");
    assert!(lacks(&open(&weak, None).await.expect("opens")).contains("could not be checked"));
}

#[tokio::test]
async fn with_replicas_redis_waits_for_them_and_promises_less() {
    let Some(master) = Engine::Redis.private().await else { return };
    let Some(replica) = Engine::Redis.private().await else { return };
    let (address, of_replica) = (master.fresh().await, replica.fresh().await);
    let (mut there, mut here) = (connect(&of_replica).await, connect(&address).await);
    let port = master.server().port().to_string();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(port).exec_async(&mut there).await.expect("it follows");
    // The master counts a replica that has all there is.
    while redis::cmd("WAIT").arg(1).arg(100).query_async::<u32>(&mut here).await.expect("an answer") == 0 {}
    let store = open(&address, None).await.expect("opens");
    assert!(lacks(&store).contains("it has 1 replicas"), "{}", lacks(&store));
    accept_one(&store, message("m1", "ana")).await;
    let claims = redis::cmd("KEYS").arg("*:k:*").query_async::<Vec<Vec<u8>>>(&mut there).await.expect("keys");
    assert_eq!(claims.len(), 1, "what was answered is on the replica");
    let refused = open(&of_replica, None).await.err().expect("it takes no writes");
    assert!(refused.to_string().contains("replica"), "{refused}");
}

#[tokio::test]
async fn newer_data_is_refused() {
    let Some(server) = Engine::Redis.private().await else { return };
    let address = server.fresh().await;
    drop(open(&address, None).await.expect("opens"));
    let prefix = address.split_once("?prefix=").expect("a prefix").1;
    let mut layout = redis::cmd("HSET");
    layout.arg(format!("{prefix}:{{all}}:meta:")).arg("layout").arg(99);
    layout.exec_async(&mut connect(&address).await).await.expect("written");
    let refused = open(&address, None).await.err().expect("an older hapax does not touch it");
    assert!(matches!(&refused, StoreError::Refused(why) if why.contains("layout 99")), "{refused}");
}

#[tokio::test]
async fn time_is_the_servers_and_keys_end_by_themselves_after_the_window() {
    let Some(server) = Engine::Redis.shared().await else { return };
    let address = server.fresh().await;
    let store = open(&address, None).await.expect("opens");
    accept_one(&store, message("m1", "ana")).await;
    let mut connection = connect(&address).await;
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await.expect("the time");
    let held = lease(&store, 1).await.remove(0);
    assert!((held.received_ms / 1_000 - seconds).abs() <= 60, "{} is not about {seconds}", held.received_ms);
    let prefix = address.split_once("?prefix=").expect("a prefix").1;
    let pattern = format!("{prefix}:*:k:*");
    let claims: Vec<Vec<u8>> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
    let left: i64 = redis::cmd("PTTL").arg(&claims[0]).query_async(&mut connection).await.expect("a time");
    assert!(left > WINDOW_MS, "{left}");
    server.remove(&address).await;
}

/// A call fails in time while the server is away, has no effect, and works again when it is back.
#[tokio::test]
async fn a_server_that_is_away_is_told_in_time_and_found_again() {
    let Some(mut server) = Engine::Redis.private().await else { return };
    let address = server.fresh().await;
    let store = open(&address, None).await.expect("opens");
    let id = accept_one(&store, message("m1", "ana")).await;
    let fails_in_time = async || {
        let begun = Instant::now();
        let error = store.accept(webhook(vec![message("m2", "ana")]).into()).await.expect_err("nobody answers");
        assert!(error.retryable() && begun.elapsed() < Duration::from_secs(2), "{error} after {:?}", begun.elapsed());
    };
    server.kill9().await;
    fails_in_time().await;
    fails_in_time().await;
    server.restart().await;
    let again = until_ok(async || store.accept(webhook(vec![message("m1", "ana")]).into()).await).await;
    assert_eq!(again, [Accepted::Duplicate(id)], "what was accepted is on disk");
    server.pause();
    fails_in_time().await;
    server.resume();
    until_ok(async || store.ping().await).await;
    let hint = store.wait();
    let other = open(&address, None).await.expect("opens");
    accept_one(&other, message("m3", "bob")).await;
    tokio::time::timeout(Duration::from_secs(60), hint).await.expect("the news are heard again");
}

pub(crate) async fn until_ok<T>(attempt: impl AsyncFn() -> Result<T, StoreError>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// Stands between hapax and the server, and once cuts the line when an answer comes back.
struct Cutter {
    address: String,
    eats: Arc<AtomicBool>,
}

impl Cutter {
    async fn before(server: &Private) -> Self {
        let (behind, fresh) = (server.server().port(), server.fresh().await);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let eats = Arc::new(AtomicBool::new(false));
        let cutter = Self { address: fresh.replace(&behind.to_string(), &port.to_string()), eats: Arc::clone(&eats) };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, behind, Arc::clone(&eats)));
            }
        });
        cutter
    }

    /// The next answer is eaten.
    fn arm(&self) {
        self.eats.store(true, Ordering::SeqCst);
    }

    fn has_eaten(&self) -> bool {
        !self.eats.load(Ordering::SeqCst)
    }
}

async fn carry(near: TcpStream, port: u16, eats: Arc<AtomicBool>) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let ((mut from_hapax, mut to_hapax), (mut from_redis, mut to_redis)) = (near.into_split(), far.into_split());
    let there = tokio::spawn(async move { tokio::io::copy(&mut from_hapax, &mut to_redis).await });
    let mut answer = vec![0; 65_536];
    while let Ok(count @ 1..) = tokio::io::AsyncReadExt::read(&mut from_redis, &mut answer).await {
        if eats.swap(false, Ordering::SeqCst) || to_hapax.write_all(&answer[..count]).await.is_err() {
            break;
        }
    }
    there.abort();
}

/// The script has run and the answer is lost: the call is made again under its name, and gets the answer of the first.
#[tokio::test]
async fn an_eaten_answer_is_asked_for_again() {
    let Some(server) = Engine::Redis.private().await else { return };
    let cutter = Cutter::before(&server).await;
    // Without listening for news, whose connection would be cut in place of the other.
    let clock = Arc::new(HandClock::at(START_MS));
    let store = open(&cutter.address, Some(clock)).await.expect("opens");
    accept_one(&store, message("m0", "zoe")).await;
    store.submit(outgoing("r0", "zoe")).await.expect("submitted");
    for held in lease(&store, 10).await {
        store.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
    }
    cutter.arm();
    let accepted = accept(&store, webhook(vec![message("m1", "ana"), message("m1", "ana")])).await;
    assert!(cutter.has_eaten());
    assert!(matches!(accepted[..], [Accepted::New(first), Accepted::Duplicate(same)] if first == same), "{accepted:?}");
    cutter.arm();
    let submitted = store.submit(outgoing("r1", "ana")).await.expect("submitted");
    assert!(cutter.has_eaten() && matches!(submitted, Submitted::New(_)), "{submitted:?}");
    cutter.arm();
    let held = store.lease_inbox(ask(1)).await.expect("leased");
    assert!(cutter.has_eaten());
    assert_eq!(held.iter().map(|held| held.attempt).collect::<Vec<_>>(), [1]);
    let reply = NewMessage { request_id: "reply".to_owned(), ..outgoing("reply", "ana") };
    cutter.arm();
    let done = Outcome::Delivered { status: 200, answer: None, replies: vec![reply] };
    assert_eq!(store.settle_inbox(held[0].lane, held[0].fence, done).await.ok(), Some(Settled::Done));
    assert!(cutter.has_eaten());
    let sends = store.lease_outbox(ask_out(10)).await.expect("leased");
    assert_eq!(sends.len(), 2, "one per thread");
    cutter.arm();
    assert_eq!(store.begin(sends[0].lane, sends[0].fence).await.ok(), Some(Settled::Done));
    cutter.arm();
    let sent = SendOutcome::Sent { provider_id: "w1".to_owned() };
    assert_eq!(store.settle_outbox(sends[0].lane, sends[0].fence, sent).await.ok(), Some(Settled::Done));
    assert!(cutter.has_eaten());
    let message = store.message(sends[0].message).await.expect("read").expect("there");
    assert_eq!(message.tries.len(), 1);
}

/// A server without room takes in nothing, and what is there is worked off.
#[tokio::test]
async fn a_full_memory_refuses_whole_steps_and_lets_work_off() {
    let Some(server) = Engine::Redis.private().await else { return };
    let address = server.fresh().await;
    let mut connection = connect(&address).await;
    let store = open(&address, None).await.expect("opens");
    accept_one(&store, message("m1", "ana")).await;
    store.submit(outgoing("r1", "ana")).await.expect("submitted");
    set(&mut connection, "maxmemory", "1mb").await;
    let before: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.expect("a number");
    let full = store.accept(webhook(vec![message("m2", "ana")]).into()).await.expect_err("no room");
    assert!(full.retryable() && full.to_string().contains("OOM"), "{full}");
    assert!(store.submit(outgoing("r2", "ana")).await.is_err());
    assert!(store.ping().await.is_err(), "readiness tells the truth");
    let after: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await.expect("a number");
    assert_eq!(before, after);
    let held = lease(&store, 1).await.remove(0);
    assert_eq!(store.extend(vec![(held.lane, held.fence)], 60_000).await.ok(), Some(vec![true]));
    assert_eq!(store.settle_inbox(held.lane, held.fence, DELIVERED).await.ok(), Some(Settled::Done));
    let sending = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
    assert_eq!(store.begin(sending.lane, sending.fence).await.ok(), Some(Settled::Done));
    let sent = SendOutcome::Sent { provider_id: "w1".to_owned() };
    assert_eq!(store.settle_outbox(sending.lane, sending.fence, sent).await.ok(), Some(Settled::Done));
    store.purge(&[("shop".to_owned(), 0)], 100).await.expect("purged");
    set(&mut connection, "maxmemory", "0").await;
    assert!(accept(&store, webhook(vec![message("m2", "ana")])).await[0].is_new());
}

pub(crate) fn of_account(account: &str, id: &str, peer: &str) -> Event {
    let key = EventKey::new("generic", account, Kind::Message, id, &[]);
    Event { account: account.to_owned(), key, ..message(id, peer) }
}

/// A webhook with events of three accounts, and leases over all of them by when they were due.
#[tokio::test]
async fn accounts_of_a_channel_take_turns() {
    let Some(server) = Engine::Redis.shared().await else { return };
    let address = server.fresh().await;
    let clock = HandClock::at(START_MS);
    let store = open(&address, Some(Arc::new(clock.clone()))).await.expect("opens");
    let all = ["a", "b", "c"];
    let arrival: Arrival = webhook(all.iter().map(|account| of_account(account, "m1", "ana")).collect());
    let accepted = accept(&store, arrival.clone()).await;
    assert!(accepted.iter().all(|one| one.is_new()));
    let copies = accept(&store, arrival).await;
    assert_eq!(copies, accepted.iter().map(|one| Accepted::Duplicate(one.event())).collect::<Vec<_>>());
    for (n, account) in ["c", "a", "b", "c"].into_iter().enumerate() {
        clock.advance(10);
        accept(&store, webhook(vec![of_account(account, &format!("n{n}"), &format!("p{n}"))])).await;
    }
    let wants = |max| LeaseRequest { wants: vec![("shop".into(), max)], ..ask(0) };
    let other = open(&address, Some(Arc::new(clock.clone()))).await.expect("opens");
    let mut leases = other.lease_inbox(wants(5)).await.expect("leased");
    leases.sort_by_key(|held| held.received_ms);
    let accounts: Vec<_> = leases.iter().filter_map(|held| held.events[0].thread.clone()).map(|thread| thread.account).collect();
    assert_eq!((accounts.len(), &accounts[3..]), (5, &["c".to_owned(), "a".to_owned()][..]), "those that were due longest");
    assert!(leases.iter().all(|held| held.webhook_events == if held.received_ms == START_MS { 3 } else { 1 }));
    assert_eq!(store.lease_inbox(wants(9)).await.expect("leased").len(), 2);
    let page = store.events(hapax_store::EventQuery { limit: 4, ..Default::default() }).await.expect("listed");
    let before = page.rows.last().map(|row| row.id);
    let rest = store.events(hapax_store::EventQuery { before, limit: 4, ..Default::default() }).await.expect("listed");
    let seen: Vec<_> = page.rows.iter().chain(&rest.rows).map(|row| row.id).collect();
    assert!(page.more && !rest.more && seen.len() == 7 && seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    server.remove(&address).await;
}

/// A server without a log comes back empty: from then on everything is as on a new one, for instances that knew the old data too.
#[tokio::test]
async fn a_server_that_lost_its_data_is_begun_anew() {
    let Some(server) = Engine::Redis.private().await else { return };
    let address = server.fresh().await;
    let (store, other) = (open(&address, None).await.expect("opens"), open(&address, None).await.expect("opens"));
    for account in ["a", "b"] {
        accept(&store, webhook(vec![of_account(account, "m1", "ana")])).await;
    }
    assert_eq!(lease(&other, 1).await.len(), 1);
    redis::cmd("FLUSHALL").exec_async(&mut connect(&address).await).await.expect("flushed");
    assert!(accept(&other, webhook(vec![of_account("c", "m1", "ana")])).await[0].is_new());
    assert!(accept(&store, webhook(vec![of_account("a", "m1", "ana")])).await[0].is_new());
    let fresh = open(&address, None).await.expect("opens");
    let threads = |leases: Vec<hapax_store::InboxLease>| leases.into_iter().filter_map(|held| held.events[0].thread.clone());
    let mut accounts: Vec<_> = threads(lease(&fresh, 1).await).map(|thread| thread.account).collect();
    accounts.extend(threads(lease(&store, 9).await).map(|thread| thread.account));
    accounts.sort();
    assert_eq!(accounts, ["a", "c"]);
}

/// Everything lives in memory, so what is purged must be gone to the last key.
#[tokio::test]
async fn purge_leaves_no_trace() {
    let Some(server) = Engine::Redis.shared().await else { return };
    let address = server.fresh().await;
    let clock = HandClock::at(START_MS);
    let store = open(&address, Some(Arc::new(clock.clone()))).await.expect("opens");
    let prefix = address.split_once("?prefix=").expect("a prefix").1.to_owned();
    let keys = async || {
        let pattern = format!("{prefix}:*");
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(pattern).query_async(&mut connect(&address).await).await.expect("keys");
        let kind_of = |key: &Vec<u8>| String::from_utf8_lossy(key).split(':').nth(2).map(str::to_owned);
        let mut kinds: Vec<_> = keys.iter().filter_map(kind_of).collect();
        kinds.retain(|kind| kind != "done");
        kinds.sort();
        kinds
    };
    let round = async |name: &str| {
        accept_one(&store, message(&format!("{name}1"), "ana")).await;
        let held = lease(&store, 1).await.remove(0);
        let answer = hapax_store::Answer { status: 200, content_type: None, body: "ok".into() };
        let replies = vec![outgoing(&format!("{name}r"), "ana")];
        let done = Outcome::Delivered { status: 200, answer: Some(answer), replies };
        store.settle_inbox(held.lane, held.fence, done).await.expect("settled");
        store.replay(held.events[0].id).await.expect("replayed");
        let again = lease(&store, 1).await.remove(0);
        store.settle_inbox(again.lane, again.fence, DELIVERED).await.expect("settled");
        let sending = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
        let sent = SendOutcome::Sent { provider_id: format!("{name}w") };
        store.settle_outbox(sending.lane, sending.fence, sent).await.expect("settled");
        let copies = hapax_store::Copies { event: held.events[0].id, copies: 1, conflicts: 0, last_ms: 1, kept: None };
        store.note_copies(vec![copies]).await.expect("noted");
        clock.advance(WINDOW_MS + 1);
        while store.purge(&[("shop".to_owned(), WINDOW_MS)], 3).await.expect("purged").more {}
        keys().await
    };
    let first = round("a").await;
    assert_eq!(first, ["accounts", "meta", "meta", "places"]);
    assert_eq!(round("b").await, first);
    server.remove(&address).await;
}
