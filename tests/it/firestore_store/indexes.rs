//! Every query has an index in `deploy/firestore`: the emulator answers without, the real thing does not.

use std::collections::{BTreeMap, BTreeSet};

use hapax_domain::{Kind, Status};
use hapax_store::{EventQuery, InboxQuery, OutboxQuery, Outcome, Redrive, SendOutcome, Store, ThreadQuery};
use hapax_testkit::store_fixture::{accept, accept_one, lease, message, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing, status};
use serde_json::Value;

use super::emulator::{As, Emulator, adopting, request};
use super::proxy::Proxy;
use super::rules::INDEXES;
use crate::rig::eventually;

/// Fields of an index or an order, each with its direction.
type Fields = Vec<(String, String)>;

/// The indexes of each collection, and the fields whose own index is switched off.
struct Indexes {
    composite: BTreeMap<String, Vec<Fields>>,
    off: BTreeSet<(String, String)>,
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Indexes {
    fn read() -> Self {
        let file: Value = serde_json::from_str(INDEXES).expect("JSON");
        let mut composite: BTreeMap<String, Vec<Fields>> = BTreeMap::new();
        for index in file["indexes"].as_array().expect("a list") {
            let fields = index["fields"].as_array().expect("a list").iter();
            let fields = fields.map(|field| (word(&field["fieldPath"]), word(&field["order"]))).collect();
            composite.entry(word(&index["collectionGroup"])).or_default().push(fields);
        }
        let overrides = file["fieldOverrides"].as_array().expect("a list").iter();
        let off = overrides.filter(|field| field["indexes"].as_array().is_some_and(Vec::is_empty));
        let off = off.map(|field| (word(&field["collectionGroup"]), word(&field["fieldPath"]))).collect();
        Self { composite, off }
    }

    /// Whether Firestore can answer: with the fields' own indexes where there is nothing to sort by but one field, and otherwise with
    /// indexes that all end in the order asked for and together begin with all fields that are compared.
    fn answer(&self, query: &Query) -> bool {
        let single = |field: &String| !self.off.contains(&(query.collection.clone(), field.clone()));
        if query.order.is_empty() || (query.equal.is_empty() && query.order.len() == 1) {
            return query.equal.iter().chain(query.order.iter().map(|(field, _)| field)).all(single);
        }
        let mut covered: BTreeSet<&String> = BTreeSet::new();
        for index in self.composite.get(&query.collection).into_iter().flatten() {
            let Some(at) = index.len().checked_sub(query.order.len()) else { continue };
            let (begins, ends) = index.split_at(at);
            if ends == query.order.as_slice() && begins.iter().all(|(field, _)| query.equal.contains(field)) {
                covered.extend(begins.iter().map(|(field, _)| field));
                if begins.is_empty() && query.equal.is_empty() {
                    return true;
                }
            }
        }
        !query.equal.is_empty() && covered.len() == query.equal.len()
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Query {
    collection: String,
    equal: BTreeSet<String>,
    order: Fields,
}

fn understand(query: &Value) -> Query {
    let filters = match query["where"]["compositeFilter"]["filters"].as_array() {
        Some(several) => several.clone(),
        None => vec![query["where"].clone()],
    };
    let (mut equal, mut unequal) = (BTreeSet::new(), BTreeSet::new());
    for filter in filters.iter().map(|filter| &filter["fieldFilter"]).filter(|filter| !filter.is_null()) {
        let field = word(&filter["field"]["fieldPath"]);
        match filter["op"].as_str() {
            Some("EQUAL" | "IN" | "ARRAY_CONTAINS") => equal.insert(field),
            _ => unequal.insert(field),
        };
    }
    let order = query["orderBy"].as_array().cloned().unwrap_or_default();
    let order = order.iter().map(|part| (word(&part["field"]["fieldPath"]), word(&part["direction"])));
    // Every index is sorted by the documents' names in the end.
    let order: Fields = order.filter(|(field, _)| field != "__name__").collect();
    assert!(
        unequal.iter().all(|field| order.first().is_some_and(|(first, _)| first == field)),
        "sorted by what is compared: {query}"
    );
    Query { collection: word(&query["from"][0]["collectionId"]), equal, order }
}

/// What front ends ask, as `docs/firestore.md` says.
fn front_end_queries() -> Vec<(Query, &'static str)> {
    let query = |equal: &[&str], order: &[(&str, &str)]| Query {
        collection: "outbox".to_owned(),
        equal: equal.iter().map(|field| (*field).to_owned()).collect(),
        order: order.iter().map(|(field, direction)| ((*field).to_owned(), (*direction).to_owned())).collect(),
    };
    vec![
        (query(&["account", "status"], &[("nextAttemptAt", "ASCENDING")]), "an account's queue"),
        (query(&["status"], &[("nextAttemptAt", "ASCENDING")]), "the queue"),
        (query(&["threadId"], &[("createdAt", "ASCENDING")]), "what a thread sends, oldest first"),
        (query(&["threadId"], &[("createdAt", "DESCENDING")]), "what a thread sends, newest first"),
    ]
}

/// Makes every kind of question and step at least once.
async fn do_everything(store: &dyn Store) {
    let some = |name: &str| [None, Some(name.to_owned())];
    accept(store, webhook((0..80).map(|n| message(&format!("m{n}"), &format!("p{n}"))).collect())).await;
    let id = accept_one(store, message("again", "ana")).await;
    for held in lease(store, 5).await {
        store
            .settle_inbox(held.lane, held.fence, Outcome::Parked { why: "no".to_owned(), charged: true })
            .await
            .expect("settled");
    }
    for n in 0..60 {
        store.submit(outgoing(&format!("r{n}"), &format!("p{n}"))).await.expect("submitted");
    }
    for (n, lease) in store.lease_outbox(ask_out(3)).await.expect("leased").into_iter().enumerate() {
        store.begin(lease.lane, lease.fence).await.expect("begun");
        let outcome = match n {
            0 => SendOutcome::Sent { provider_id: "w0".to_owned() },
            _ => SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None },
        };
        store.settle_outbox(lease.lane, lease.fence, outcome).await.expect("settled");
    }
    accept_one(store, status("w0", Status::Delivered, None, 5)).await;
    let mut echo = message("echo", "p1");
    (echo.echo, echo.text) = (true, Some("hello".to_owned()));
    accept_one(store, echo).await;
    for which in [Redrive::Event(id), Redrive::Channel("shop".to_owned()), Redrive::All] {
        store.redrive(which, 1).await.expect("redriven");
    }
    store.replay(id).await.expect("replayed");
    let thread = store.threads(ThreadQuery { limit: 1, ..ThreadQuery::default() }).await.expect("read").rows.remove(0).id;
    store.thread_messages(&thread, None, 5).await.expect("read");
    store.event(id).await.expect("read");
    for channel in some("shop") {
        for kind in [None, Some(Kind::Message)] {
            for thread in [None, Some(thread.clone())] {
                let query = EventQuery { channel: channel.clone(), kind, thread, before: Some(id), limit: 5 };
                store.events(query).await.expect("read");
            }
        }
        for parked in [None, Some(true), Some(false)] {
            store.inbox(InboxQuery { channel: channel.clone(), parked, after: None, limit: 5 }).await.expect("read");
        }
        for account in some("acc") {
            let before = Some((0, thread.clone()));
            store
                .threads(ThreadQuery { channel: channel.clone(), account: account.clone(), before, limit: 5 })
                .await
                .expect("read");
            for unknown in [false, true] {
                let (channel, account) = (channel.clone(), account.clone());
                store.outbox(OutboxQuery { channel, account, unknown, after: None, limit: 5 }).await.expect("read");
            }
        }
    }
    store.stats().await.expect("counted");
    let (moving, mut from) = (store.moving().expect("it can be moved"), None);
    loop {
        from = moving.export(from, 20).await.expect("a page").1;
        if from.is_none() {
            break;
        }
    }
    store.purge(&[("shop".to_owned(), 0)], 5).await.expect("purged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_has_its_index() {
    let Some(emulator) = Emulator::start().await else { return };
    let proxy = Proxy::start(&emulator).await;
    let store = emulator.open_at(&proxy.host).await;
    let store = adopting(store);
    do_everything(&store).await;
    assert_eq!(emulator.create("outbox", "request", request("ana", "hi"), As::Hapax).await, 200);
    let mut queries: BTreeSet<Query> = BTreeSet::new();
    eventually("a document of a front end was looked for", async || {
        queries.extend(proxy.queries().iter().map(understand));
        queries.iter().any(|query| query.collection == "hapax_requests")
    })
    .await;
    assert!(queries.len() > 30, "only {} kinds of queries", queries.len());
    let mut indexes = Indexes::read();
    let without: Vec<&Query> = queries.iter().filter(|query| !indexes.answer(query)).collect();
    assert!(without.is_empty(), "no index for {without:#?}");
    for (query, named) in front_end_queries() {
        assert!(indexes.answer(&query), "no index for {named}");
    }
    let asked: BTreeSet<&String> = queries.iter().map(|query| &query.collection).collect();
    assert!(indexes.composite.keys().all(|collection| asked.contains(collection)), "an index that nobody asks for");
    indexes.composite.remove("outbox");
    assert!(queries.iter().any(|query| !indexes.answer(query)), "a missing index is seen");
}
