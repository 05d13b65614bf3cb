//! One person, one lane, where an engine keeps lanes in its own way: what the embedded one makes of them when its file is opened again, and Redis in a
//! cluster.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use hapax_domain::{Direction, Event, EventId, Kind, MessageId};
use hapax_store::prelude::*;
use hapax_store::steps::records::{NameRec, ThreadRec};
use hapax_store::{Disposition, InboxLease, Moved, NewMessage, Outcome, SendOutcome, Settled, Store, Submitted};
use hapax_store_postgres as postgres;
use hapax_store_redis as redis;
use hapax_store_sqlite::{Options, SqliteStore};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::plain_records::PlainFixture;
use hapax_testkit::servers::Engine;
use hapax_testkit::store_fixture::{START_MS, StoreFixture, accept, accept_one, ids, lease, message, webhook_then};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::redis_store::{DELIVERED, of_account};

/// Each line is one person; nobody says so at first.
const PEOPLE: [&[&str]; 3] = [&["lid", "phone", "user"], &["ana", "ana@lid"], &["bob"]];

/// A window so short that most of what waits is on disk only.
fn reopen(path: &Path) -> SqliteStore {
    let options = Options { window: 4, disk_floor_bytes: 0, ..Options::default() };
    SqliteStore::open(path, Arc::new(HandClock::at(START_MS)), &options).expect("it opens")
}

/// What must be true of who has been leased what, whatever the engine makes of lanes.
#[derive(Default)]
struct Watch {
    /// The first name of the group that a name belongs to, as far as it was said.
    groups: HashMap<&'static str, &'static str>,
    open: BTreeSet<(EventId, &'static str)>,
    out: Vec<(InboxLease, &'static str)>,
    done: usize,
}

impl Watch {
    fn group(&self, name: &'static str) -> &'static str {
        self.groups.get(name).copied().unwrap_or(name)
    }

    fn join(&mut self, a: &'static str, b: &'static str) {
        let (into, from) = (self.group(a), self.group(b));
        let names: Vec<_> = PEOPLE.concat().into_iter().filter(|name| self.group(name) == from).collect();
        self.groups.extend(names.into_iter().map(|name| (name, into)));
    }

    fn leased(&mut self, held: InboxLease, seed: u64) {
        let id = ids(&held)[0];
        let name = self.open.iter().find(|(open, _)| *open == id).expect("it was not done with").1;
        let group = self.group(name);
        assert!(self.out.iter().all(|(_, other)| self.group(other) != group), "seed {seed}: two of one person are out");
        let first = self.open.iter().find(|(_, other)| self.group(other) == group).expect("at least itself").0;
        assert_eq!(first, id, "seed {seed}: a later one came first");
        self.out.push((held, name));
    }
}

fn named(id: &str, peer: &str, alias: &str) -> Event {
    Event { aliases: vec![alias.to_owned()], ..message(id, peer) }
}

/// Lets two names be one person, by a message that is only kept.
async fn teach(store: &dyn Store, id: &str, peer: &str, alias: &str) {
    accept(store, webhook_then(vec![(named(id, peer, alias), Disposition::Keep)])).await;
}

fn pick<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())]
}

#[tokio::test]
async fn lanes_come_out_joined_whenever_the_file_is_opened_again() {
    for seed in 0..20 {
        let folder = crate::quick_folder();
        let path = folder.path().join("joined.db");
        let (mut store, mut watch, mut random) = (reopen(&path), Watch::default(), StdRng::seed_from_u64(seed));
        for step in 0..250 {
            let person = pick(&mut random, &PEOPLE);
            match random.random_range(0..20) {
                0..8 => {
                    let name = pick(&mut random, person);
                    watch.open.insert((accept_one(&store, message(&format!("m{step}"), name)).await, name));
                }
                8 if step > 60 => {
                    let (peer, alias) = (pick(&mut random, person), pick(&mut random, person));
                    if peer != alias {
                        teach(&store, &format!("t{step}"), peer, alias).await;
                        watch.join(peer, alias);
                    }
                }
                9..14 => lease(&store, 3).await.into_iter().for_each(|held| watch.leased(held, seed)),
                14..19 if !watch.out.is_empty() => {
                    let (held, name) = watch.out.swap_remove(random.random_range(0..watch.out.len()));
                    let retry = Outcome::Retry { wait_ms: 0, why: "503".to_owned() };
                    let outcome = if random.random_bool(0.2) { retry } else { DELIVERED };
                    if outcome == DELIVERED {
                        watch.open.remove(&(ids(&held)[0], name));
                        watch.done += 1;
                    }
                    assert_eq!(store.settle_inbox(held.lane, held.fence, outcome).await.expect("settled"), Settled::Done);
                }
                19 => {
                    drop(store);
                    store = reopen(&path);
                    watch.out.clear();
                }
                _ => {}
            }
        }
        drop(store);
        let store = reopen(&path);
        watch.out.clear();
        while let Some(held) = lease(&store, 1).await.pop() {
            watch.leased(held, seed);
            let (held, name) = watch.out.remove(0);
            watch.open.remove(&(ids(&held)[0], name));
            store.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
        }
        assert!(watch.open.is_empty() && watch.done > 0, "seed {seed}: {} were lost", watch.open.len());
    }
}

async fn queue(store: &dyn Store, request: &str, peer: &str) -> MessageId {
    let new: NewMessage = outgoing(request, peer);
    match store.submit(new).await.expect("submitted") {
        Submitted::New(id) => id,
        other => unreachable!("{other:?}"),
    }
}

/// Sends all there is; what is taken at once is one of each person.
async fn send_all(store: &dyn Store) -> Vec<MessageId> {
    let mut order = Vec::new();
    while let Some(held) = store.lease_outbox(ask_out(5)).await.expect("leased").pop() {
        assert!(store.lease_outbox(ask_out(5)).await.expect("leased").is_empty(), "one at a time");
        order.push(held.message);
        let provider_id = format!("w{}", order.len());
        store.settle_outbox(held.lane, held.fence, SendOutcome::Sent { provider_id }).await.expect("settled");
    }
    order
}

/// Joined twice before anybody has asked for work: all of it is on disk only.
#[tokio::test]
async fn what_goes_out_is_joined_when_the_file_is_opened_again() {
    let folder = crate::quick_folder();
    let path = folder.path().join("joined.db");
    let store = reopen(&path);
    let mut queued = Vec::new();
    for (n, peer) in ["lid", "phone", "user", "phone", "lid", "user"].into_iter().enumerate() {
        queued.push(queue(&store, &format!("r{n}"), peer).await);
    }
    teach(&store, "t1", "phone", "user").await;
    drop(store);
    let store = reopen(&path);
    teach(&store, "t2", "lid", "user").await;
    queued.push(queue(&store, "r9", "user").await);
    drop(store);
    assert_eq!(send_all(&reopen(&path)).await, queued);
}

/// A reaction of somebody who never wrote waits under a name that nobody knows; then it turns out whose it is.
#[tokio::test]
async fn what_waited_under_an_unknown_name_is_joined_when_the_file_is_opened_again() {
    let folder = crate::quick_folder();
    let path = folder.path().join("joined.db");
    let store = reopen(&path);
    let mut waiting = vec![accept_one(&store, Event { kind: Kind::Reaction, ..message("e1", "phone") }).await];
    waiting.push(accept_one(&store, message("m1", "lid")).await);
    waiting.push(accept_one(&store, named("m2", "lid", "phone")).await);
    drop(store);
    let store = reopen(&path);
    let mut seen = Vec::new();
    while let Some(held) = lease(&store, 5).await.pop() {
        assert!(lease(&store, 5).await.is_empty(), "one at a time");
        assert_eq!(held.events[0].thread.as_ref().map(|thread| thread.peer.as_str()), Some("lid"));
        seen.extend(ids(&held));
        store.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled");
    }
    assert_eq!(seen, waiting);
}

/// Accounts live on several nodes; the names of one say nothing about those of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_are_joined_on_every_node_of_a_cluster() {
    let Some(server) = Engine::RedisCluster.private().await else { return };
    let address = server.fresh().await;
    let (one, other) = (redis::open(&address, None).await.expect("opens"), redis::open(&address, None).await.expect("opens"));
    let accounts: Vec<String> = (0..6).map(|n| format!("a{n}")).collect();
    for account in &accounts {
        for (id, peer) in [("m1", "lid"), ("m2", "phone"), ("m3", "lid"), ("m4", "phone")] {
            accept_one(&one, of_account(account, id, peer)).await;
        }
    }
    let out = lease(&one, 50).await;
    assert_eq!(out.len(), 12, "two names, two lanes, on each account");
    for account in &accounts[..3] {
        let both = Event { aliases: vec!["lid".to_owned()], ..of_account(account, "m5", "phone") };
        accept_one(&other, both).await;
    }
    assert!(lease(&other, 50).await.is_empty(), "all lanes are held");
    let account_of = |held: &InboxLease| held.events[0].thread.as_ref().map(|thread| thread.account.clone());
    for held in out.iter().filter(|held| ids(held).len() == 1 && account_of(held).is_some()) {
        assert_eq!(other.settle_inbox(held.lane, held.fence, DELIVERED).await.expect("settled"), Settled::Done);
    }
    let next = lease(&other, 50).await;
    let count = |account: &String| next.iter().filter(|held| account_of(held).as_ref() == Some(account)).count();
    assert_eq!(accounts.iter().map(count).collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2]);
    let mut peers: Vec<_> = next.iter().filter_map(|held| held.events[0].thread.as_ref()).collect();
    peers.retain(|thread| accounts[..3].contains(&thread.account));
    assert!(peers.iter().all(|thread| thread.peer == "phone"), "{peers:?}");
}

/// As older versions left them: a name of a name, and two names that lead to each other.
fn bent_names() -> Vec<Moved> {
    let thread = |peer: &str| {
        Moved::Thread(ThreadRec {
            account: "acc".to_owned(),
            peer: peer.to_owned(),
            channel: "shop".to_owned(),
            last_ms: START_MS,
            last_text: None,
            last_direction: Direction::In,
            unread: 0,
            purged_to: 0,
            read_to: 0,
        })
    };
    let name =
        |name: &str, peer: &str| Moved::Name(NameRec { account: "acc".to_owned(), name: name.to_owned(), peer: peer.to_owned() });
    let threads = ["phone", "lid", "b", "a"].map(thread);
    let names = [("user", "phone"), ("phone", "lid"), ("lid", "lid"), ("a", "b"), ("b", "a"), ("c", "b")];
    threads.into_iter().chain(names.map(|(from, to)| name(from, to))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_lead_on_are_followed_to_the_end() {
    let folder = crate::quick_folder();
    let mut stores: Vec<Arc<dyn Store>> = vec![Arc::new(reopen(&folder.path().join("bent.db")))];
    let server = Engine::Redis.shared().await;
    if let Some(server) = &server {
        stores.push(Arc::new(redis::open(&server.fresh().await, None).await.expect("opens")));
    }
    for store in stores {
        let moving = store.moving().expect("it can be moved");
        moving.begin_import().await.expect("it is empty");
        moving.import(bent_names()).await.expect("put");
        moving.end_import().await.expect("whole");
        for (n, (peer, end)) in
            [("user", "lid"), ("lid", "lid"), ("phone", "lid"), ("b", "a"), ("c", "a"), ("a", "a")].iter().enumerate()
        {
            accept_one(&*store, message(&format!("m{n}"), peer)).await;
            let held = lease(&*store, 5).await;
            assert_eq!(held.len(), usize::from(n % 3 == 0), "{peer} is {end}, of whom one is out");
            let threads = held.iter().filter_map(|held| held.events[0].thread.as_ref()).map(|thread| thread.peer.as_str());
            assert!(threads.into_iter().all(|thread| thread == *end), "{peer} is {end}");
        }
    }
}

/// The name that closes a circle leads nowhere new, and yet the thread is another one than before it was known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_names_is_entered_at_any_of_them() {
    let server = Engine::Postgres.shared().await;
    for (peer, aliases) in [("a", vec![]), ("b", vec![]), ("c", vec![]), ("c", vec!["a".to_owned()])] {
        let mut stores: Vec<Arc<dyn Store>> = vec![PlainFixture::new().open()];
        if let Some(server) = &server {
            stores.push(Arc::new(postgres::open(&server.fresh().await, None).await.expect("opens")));
        }
        for store in stores {
            let moving = store.moving().expect("it can be moved");
            moving.begin_import().await.expect("it is empty");
            moving.import(bent_names()).await.expect("put");
            moving.end_import().await.expect("whole");
            let said = Event { aliases: aliases.clone(), ..message("m1", peer) };
            accept_one(&*store, said).await;
            accept_one(&*store, message("m2", "a")).await;
            let held = lease(&*store, 5).await;
            assert_eq!(held.len(), 1, "{peer} {aliases:?}: all are one person");
            assert_eq!(held[0].events[0].thread.as_ref().map(|thread| thread.peer.as_str()), Some("a"));
            store.submit(outgoing("r1", "a")).await.expect("queued");
            store.submit(outgoing("r2", "b")).await.expect("queued");
            let out = store.lease_outbox(ask_out(5)).await.expect("leased");
            assert_eq!(out.len(), 1, "{peer} {aliases:?}: in the outbox too");
        }
    }
}
