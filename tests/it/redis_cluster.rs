//! The Redis engine on a real cluster: the suite, the comparison, and what only a cluster can do to it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax_store::prelude::*;
use hapax_store::{Accepted, ChannelCounts, LeaseRequest, Reads, Settled, Store, StoreError};
use hapax_store_redis::{RedisStore, open};
use hapax_testkit::server_fixtures::compare_with_model;
use hapax_testkit::servers::{Engine, Private};
use hapax_testkit::store_compare::sequences;
use hapax_testkit::store_fixture::{accept, ask, lease, webhook};
use redis::{FromRedisValue, Value};

use crate::redis_store::{DELIVERED, connect, lacks, of_account, set, until_ok};

mod suite {
    use hapax_testkit::server_fixtures::ServerFixture;
    use hapax_testkit::servers::Engine;

    hapax_testkit::store_suite!(ServerFixture::on(Engine::RedisCluster, hapax_store_redis::open).await);
}

/// Fewer than on a single server, which runs the same scripts: here it is about where the calls go.
const SEQUENCES: u64 = 60;
const MASTERS: u16 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_cluster_answers_like_the_model() {
    compare_with_model(Engine::RedisCluster, open, sequences(SEQUENCES)).await;
}

/// Says something to the node on a port.
async fn tell<T: FromRedisValue>(port: u16, words: &[&str]) -> T {
    let mut connection = connect(&format!("redis://127.0.0.1:{port}/")).await;
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.expect("an answer")
}

/// The ports of the masters with their slots, as the node on a port knows them.
async fn masters(port: u16) -> Vec<(u16, u16, u16)> {
    let ranges: Vec<Vec<Value>> = tell(port, &["CLUSTER", "SLOTS"]).await;
    let read = |range: Vec<Value>| match &range[..] {
        [Value::Int(first), Value::Int(last), Value::Array(master), ..] => match master[1] {
            Value::Int(port) => (port as u16, *first as u16, *last as u16),
            _ => unreachable!("a port"),
        },
        _ => unreachable!("a range"),
    };
    ranges.into_iter().map(read).collect()
}

/// Where the keys with a hash tag are: the slot and the port of its master.
async fn home(port: u16, tag: &str) -> (u16, u16) {
    let slot: u16 = tell(port, &["CLUSTER", "KEYSLOT", tag]).await;
    let masters = masters(port).await;
    let (home, ..) = masters.iter().find(|(_, first, last)| (*first..=*last).contains(&slot)).expect("somebody has it");
    (slot, *home)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("a{n}")).collect()
}

/// Takes in one message for each of some accounts. Accounts are numbered in the order in which they first come.
async fn accept_each(store: &dyn Store, accounts: &[String], id: &str) -> Vec<Accepted> {
    accept(store, webhook(accounts.iter().map(|account| of_account(account, id, id)).collect())).await
}

#[tokio::test]
async fn every_master_of_a_cluster_counts() {
    let Some(server) = Engine::RedisCluster.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    assert_eq!(lacks(&open(&address, None).await.expect("opens")), "");

    let second = format!("127.0.0.1:{}", port + 1);
    let mut connection = connect(&format!("redis://{second}/")).await;
    set(&mut connection, "appendonly", "no").await;
    let posted = lacks(&open(&address, None).await.expect("opens"));
    assert!(posted.starts_with(&format!("redis {second}: appendonly is off")) && !posted.contains("; redis"), "{posted}");
    set(&mut connection, "appendonly", "yes").await;
    set(&mut connection, "maxmemory-policy", "allkeys-lru").await;
    set(&mut connection, "maxmemory", "100mb").await;
    let refused = open(&address, None).await.err().expect("keys could vanish");
    assert!(matches!(&refused, StoreError::Refused(why) if why.contains(&format!("redis {second} drops keys"))), "{refused}");
    set(&mut connection, "maxmemory-policy", "noeviction").await;
    assert_eq!(lacks(&open(&address, None).await.expect("opens")), "");

    let refused = open(&address.replace("/0?", "/3?"), None).await.err().expect("there is one database");
    assert!(matches!(&refused, StoreError::Refused(why) if why.contains("only database 0")), "{refused}");
}

/// Any node leads to the others, also when the first that is named is gone, and they are entered by the same user.
#[tokio::test]
async fn a_cluster_is_found_by_any_of_its_nodes() {
    let Some(server) = Engine::RedisCluster.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    for node in port..port + MASTERS {
        let mut connection = connect(&format!("redis://127.0.0.1:{node}/")).await;
        for user in [&["hapax", "on", ">secret", "~*", "&*", "+@all"][..], &["default", "off"]] {
            redis::cmd("ACL").arg("SETUSER").arg(user).exec_async(&mut connection).await.expect("a user");
        }
    }
    let hosts = format!("127.0.0.1:{port}");
    assert!(open(&address, None).await.is_err(), "strangers are not let in");
    let address = address.replace(&hosts, &format!("hapax:secret@127.0.0.1:1,127.0.0.1:{}", port + 2));
    let store = open(&address, None).await.expect("opens");
    assert_eq!(accept_each(&store, &names(9), "m1").await.iter().filter(|one| one.is_new()).count(), 9);
    store.ping().await.expect("every node can be written to");
}

/// Two instances get the same webhooks at the same time, with events of accounts on all nodes, and work them off together.
#[tokio::test]
async fn instances_race_for_accounts_on_all_nodes() {
    let Some(server) = Engine::RedisCluster.shared().await else { return };
    let (address, port) = (server.fresh().await, server.port());
    let (one, other) = (open(&address, None).await.expect("opens"), open(&address, None).await.expect("opens"));
    let (accounts, mut all) = (names(9), HashSet::new());
    for round in 0..20 {
        if round % 4 == 3 {
            // A node that has forgotten its scripts is told again.
            tell::<()>(port + round % MASTERS, &["SCRIPT", "FLUSH"]).await;
        }
        let id = format!("m{round}");
        let (here, there) = tokio::join!(accept_each(&one, &accounts, &id), accept_each(&other, &accounts, &id));
        for (here, there) in here.into_iter().zip(there) {
            assert!(here.is_new() != there.is_new() && here.event() == there.event(), "{here:?} {there:?}");
            assert!(all.insert(here.event()));
        }
    }
    let prefix = address.split_once("?prefix=").expect("a prefix").1;
    for node in port..port + MASTERS {
        let claims: Vec<Vec<u8>> = tell(node, &["KEYS", &format!("{prefix}:*:k:*")]).await;
        assert!(!claims.is_empty(), "no account lives on the node {node}");
    }
    loop {
        let (here, there) = tokio::join!(lease(&one, 7), lease(&other, 5));
        if here.is_empty() && there.is_empty() {
            break;
        }
        for (store, held) in here.iter().map(|held| (&one, held)).chain(there.iter().map(|held| (&other, held))) {
            assert!(all.remove(&held.events[0].id), "leased twice");
            assert_eq!(store.settle_inbox(held.lane, held.fence, DELIVERED).await.ok(), Some(Settled::Done));
        }
    }
    assert!(all.is_empty(), "{} were not handed out", all.len());
    server.remove(&address).await;
}

/// The node hangs: calls to it fail in time, and the accounts on the others do not notice.
#[tokio::test]
async fn a_node_that_hangs_does_not_hold_up_the_others() {
    let Some(server) = Engine::RedisCluster.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    let store = open(&address, None).await.expect("opens");
    let accounts = names(9);
    accept_each(&store, &accounts, "m1").await;
    let (_, registry) = home(port, "all").await;
    let stuck = (port..port + MASTERS).find(|node| *node != registry).expect("three masters");
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    for (n, account) in accounts.iter().enumerate() {
        let (_, home) = home(port, &(n + 1).to_string()).await;
        if home == stuck {
            here.push(account.clone())
        } else {
            elsewhere.push(account.clone())
        };
    }
    tell::<()>(stuck, &["CLIENT", "PAUSE", "20000", "ALL"]).await;
    let begun = Instant::now();
    let error = store.accept(webhook(vec![of_account(&here[0], "m2", "ana")]).into()).await.expect_err("nobody answers");
    assert!(error.retryable() && begun.elapsed() < Duration::from_secs(3), "{error} after {:?}", begun.elapsed());
    assert_eq!(accept_each(&store, &elsewhere, "m2").await.iter().filter(|one| one.is_new()).count(), elsewhere.len());
    assert_eq!(lease(&store, 100).await.len(), 2 * elsewhere.len());
    assert!(begun.elapsed() < Duration::from_secs(15), "it still hangs");
    assert!(store.ping().await.is_err(), "readiness tells the truth");
}

/// Has the replica of a master take over, in good order, and waits until it did and the old master follows it.
async fn promote_replica(master: u16) {
    let info: String = tell(master, &["INFO", "replication"]).await;
    let replica = info.lines().find_map(|line| line.strip_prefix("slave0:")?.split(',').nth(1)?.strip_prefix("port="));
    let replica: u16 = replica.and_then(|port| port.parse().ok()).expect("it has a replica");
    let says = async |node: u16, words: &str| tell::<String>(node, &["INFO", "replication"]).await.contains(words);
    // The other masters may have no vote to give just now; a failover that was not made within five seconds is given up.
    for _ in 0..5 {
        tell::<()>(replica, &["CLUSTER", "FAILOVER"]).await;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if says(replica, "slave0:").await && says(master, "master_link_status:up").await {
                return;
            }
        }
    }
    unreachable!("the replica was not promoted")
}

async fn more_is_taken_in(count: &AtomicUsize) {
    let enough = count.load(Ordering::SeqCst) + 100;
    while count.load(Ordering::SeqCst) < enough {
        tokio::task::yield_now().await;
    }
}

/// Providers that come again until they are answered, and a worker that settles until it is answered, while every master changes.
#[tokio::test]
async fn a_replica_promoted_under_load_loses_and_doubles_nothing() {
    let Some(server) = Engine::RedisClusterWithReplicas.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    let (front, back) = (open(&address, None).await.expect("opens"), open(&address, None).await.expect("opens"));
    assert!(lacks(&front).contains("it has 1 replicas"), "{}", lacks(&front));
    let (is_over, all_in, count) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
    let provider = async |account: usize| {
        let mut taken = HashSet::new();
        for n in 0.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let arrival = webhook(vec![of_account(&format!("a{account}"), &format!("m{n}"), &format!("p{}", n % 50))]);
            let accepted = until_ok(async || front.accept(arrival.clone().into()).await).await;
            assert!(taken.insert(accepted[0].event()), "two messages are one");
            count.fetch_add(1, Ordering::SeqCst);
        }
        taken
    };
    let providers = async {
        let taken = join_all((0..9).map(provider)).await;
        all_in.store(true, Ordering::SeqCst);
        taken.into_iter().flatten().collect::<HashSet<_>>()
    };
    let worker = async {
        let mut settled: HashMap<_, u32> = HashMap::new();
        loop {
            let was_last = all_in.load(Ordering::SeqCst);
            // Short leases: one whose answer was lost on the way comes back soon.
            let held = back.lease_inbox(LeaseRequest { hold_ms: 10_000, ..ask(20) }).await.unwrap_or_default();
            for one in &held {
                let done = until_ok(async || back.settle_inbox(one.lane, one.fence, DELIVERED).await).await;
                assert_eq!(done, Settled::Done, "{one:?}");
                *settled.entry(one.events[0].id).or_default() += 1;
            }
            let open = |counts: &ChannelCounts| counts.waiting + counts.leased;
            let left = async || Ok(back.stats().await?.channels.iter().map(open).sum::<u64>());
            if was_last && held.is_empty() && until_ok(left).await == 0 {
                return settled;
            }
        }
    };
    let operator = async {
        for (master, ..) in masters(port).await {
            more_is_taken_in(&count).await;
            promote_replica(master).await;
        }
        more_is_taken_in(&count).await;
        is_over.store(true, Ordering::SeqCst);
    };
    let (taken, settled, ()) = tokio::join!(providers, worker, operator);
    assert_eq!(taken.len(), count.into_inner(), "every webhook is an event of its own");
    assert_eq!(settled.keys().copied().collect::<HashSet<_>>(), taken, "everything was delivered");
    assert!(settled.values().all(|times| *times == 1), "nothing was delivered twice");
}

/// Where somebody listens for news of a store.
async fn listened_to(port: u16, address: &str) -> u16 {
    let channel = format!("{}:news", address.split_once("?prefix=").expect("a prefix").1);
    for (node, ..) in masters(port).await {
        let (_, listeners): (String, u32) = tell(node, &["PUBSUB", "NUMSUB", &channel]).await;
        if listeners > 0 {
            return node;
        }
    }
    unreachable!("nobody listens")
}

/// The master on which an instance hears the news dies without a word. Its replica takes over with all that was answered, and the instance
/// hears the news from another node.
#[tokio::test]
async fn a_dead_master_is_replaced_and_its_listeners_move_on() {
    let Some(server) = Engine::RedisClusterWithReplicas.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    let listener = open(&address, None).await.expect("opens");
    let victim = listened_to(port, &address).await;
    let alive = masters(port).await.into_iter().map(|(node, ..)| node).find(|node| *node != victim).expect("three masters");
    let store = open(&address, None).await.expect("opens");
    let accounts = names(9);
    let first = accept_each(&store, &accounts, "m1").await;
    let process: String = tell(victim, &["INFO", "server"]).await;
    let process = process.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a process").to_owned();
    std::process::Command::new("kill").args(["-9", &process]).status().expect("killed");

    let again = webhook(accounts.iter().map(|account| of_account(account, "m1", "m1")).collect());
    let again = until_ok(async || store.accept(again.clone().into()).await).await;
    assert_eq!(again, first.iter().map(|one| Accepted::Duplicate(one.event())).collect::<Vec<_>>(), "what was answered is there");
    assert!(masters(alive).await.iter().all(|(node, ..)| *node != victim));
    let mut n = 0;
    let heard = async {
        loop {
            let hint = listener.wait();
            n += 1;
            until_ok(async || store.accept(webhook(vec![of_account("a0", &format!("n{n}"), "ana")]).into()).await).await;
            if tokio::time::timeout(Duration::from_millis(500), hint).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), heard).await.expect("the news are heard again");
    until_ok(async || listener.ping().await).await;
}

/// Moves a slot as `redis-cli --cluster reshard` does, with all that happens in between.
struct Move {
    slot: String,
    from: u16,
    to: u16,
    ids: (String, String),
}

impl Move {
    async fn begin(slot: u16, from: u16, to: u16) -> Self {
        let ids: (String, String) = (tell(from, &["CLUSTER", "MYID"]).await, tell(to, &["CLUSTER", "MYID"]).await);
        let slot = slot.to_string();
        tell::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids.0]).await;
        tell::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids.1]).await;
        Self { slot, from, to, ids }
    }

    /// Moves some keys; says whether there were any.
    async fn some(&self, count: &str) -> bool {
        let keys: Vec<Vec<u8>> = tell(self.from, &["CLUSTER", "GETKEYSINSLOT", &self.slot, count]).await;
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.to).arg("").arg(0).arg(5_000).arg("KEYS").arg(&keys);
        if !keys.is_empty() {
            let mut connection = connect(&format!("redis://127.0.0.1:{}/", self.from)).await;
            migrate.exec_async(&mut connection).await.expect("moved");
        }
        !keys.is_empty()
    }

    async fn end(self) {
        while self.some("100").await {}
        for node in [self.to, self.from] {
            tell::<()>(node, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &self.ids.1]).await;
        }
    }
}

/// While its slot is on the way, half of an account's keys are here and half there: neither half may decide.
#[tokio::test]
async fn an_account_waits_while_its_slot_is_moved() {
    let Some(server) = Engine::RedisCluster.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    let store = open(&address, None).await.expect("opens");
    let accounts = names(2);
    let first = accept_each(&store, &accounts, "m1").await;
    let (slot, from) = home(port, "1").await;
    let to = (port..port + MASTERS).find(|node| *node != from).expect("three masters");
    let moving = Move::begin(slot, from, to).await;
    assert!(moving.some("3").await);
    for id in ["m1", "m2"] {
        let error = store.accept(webhook(vec![of_account("a0", id, "ana")]).into()).await.expect_err("it is on its way");
        assert!(error.retryable(), "{error}");
    }
    assert!(accept(&store, webhook(vec![of_account("a1", "m2", "ana")])).await[0].is_new(), "others go on");
    moving.end().await;
    let copies: Vec<_> = first.iter().map(|one| Accepted::Duplicate(one.event())).collect();
    assert_eq!(accept_each(&store, &accounts, "m1").await, copies);
    assert!(accept(&store, webhook(vec![of_account("a0", "m2", "ana")])).await[0].is_new());
    assert_eq!(lease(&store, 10).await.len(), 4);
}

async fn flush(server: &Private, node: u16) {
    assert!((server.server().port()..).take(usize::from(MASTERS)).any(|own| own == node));
    tell::<()>(node, &["FLUSHALL"]).await;
}

/// A node that lost its data begins anew. One that lost the registry must not give an account the number, and the past, of another.
#[tokio::test]
async fn a_node_that_lost_its_data_mixes_nothing_up() {
    let Some(server) = Engine::RedisCluster.private().await else { return };
    let (address, port) = (server.fresh().await, server.server().port());
    let store = open(&address, None).await.expect("opens");
    let accounts = names(9);
    accept_each(&store, &accounts, "m1").await;
    let (_, registry) = home(port, "all").await;
    let mut homes = Vec::new();
    for n in 1..=accounts.len() {
        homes.push(home(port, &n.to_string()).await.1);
    }
    let lost = *homes.iter().find(|home| **home != registry).expect("an account elsewhere");
    flush(&server, lost).await;
    for (accepted, home) in accept_each(&store, &accounts, "m1").await.iter().zip(&homes) {
        assert_eq!(accepted.is_new(), *home == lost, "{accepted:?}");
    }
    flush(&server, registry).await;
    let fresh: RedisStore = open(&address, None).await.expect("opens");
    let mut strangers = Vec::new();
    for (n, home) in homes.into_iter().enumerate() {
        let stranger = format!("b{n}");
        let taken = fresh.accept(webhook(vec![of_account(&stranger, "m1", "ana")]).into()).await;
        assert_eq!(taken.is_ok(), home == registry, "the number {} is still another's: {taken:?}", n + 1);
        if taken.is_ok() {
            strangers.push(stranger);
        }
    }
    let held = lease(&fresh, 100).await;
    let mut owners: Vec<_> = held.iter().filter_map(|held| held.events[0].thread.clone()).map(|thread| thread.account).collect();
    owners.sort();
    assert_eq!(owners, strangers, "what is another's is not handed out");
}
