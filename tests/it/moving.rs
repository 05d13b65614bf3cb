//! Everything moves from one store to another, and nothing is different afterwards.

mod commands;
mod firestore;
mod former_names;

use std::collections::BTreeSet;
use std::sync::Arc;

use hapax::clock::Clock;
use hapax::domain::{EventId, MessageId};
use hapax::store::{
    Accepted, EventQuery, InboxQuery, Moved, OutboxQuery, Outcome, Redrive, SendOutcome, Store, StoreError, ThreadQuery, mysql,
    postgres,
};
use hapax::testkit::plain_records::PlainBed;
use hapax::testkit::server_beds::ServerBed;
use hapax::testkit::servers::Engine;
use hapax::testkit::store_bed::{Bed, HOLD_MS, SqliteBed, accept, lease, message, notice, webhook};
use hapax::testkit::store_compare::compare;
use hapax::testkit::store_suite::sending::{ask_out, outgoing};

fn sqlite() -> SqliteBed {
    SqliteBed::new(crate::quick_folder().keep())
}

/// A few at a time, so that every kind of record takes several pages.
const PAGE: usize = 7;

async fn export(store: &dyn Store) -> Vec<Moved> {
    let moving = store.moving().expect("it can be moved");
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let (records, next) = moving.export(from, PAGE).await.expect("a page");
        all.extend(records);
        from = next;
        if from.is_none() {
            return all;
        }
    }
}

async fn import(store: &dyn Store, records: &[Moved]) {
    let moving = store.moving().expect("it can be moved");
    moving.begin_import().await.expect("it is empty");
    assert!(moving.is_half_filled().await.expect("an answer"));
    for some in records.chunks(PAGE) {
        moving.import(some.to_vec()).await.expect("put");
    }
    moving.end_import().await.expect("whole");
    assert!(!moving.is_half_filled().await.expect("an answer"));
}

/// Opens the bed at the same time of day as the other.
fn open_at(bed: &dyn Bed, like: &dyn Bed) -> Arc<dyn Store> {
    bed.clock().advance(like.clock().now_ms() - bed.clock().now_ms());
    bed.open()
}

fn ids(records: &[Moved]) -> (Vec<EventId>, Vec<MessageId>) {
    let (mut events, mut messages) = (Vec::new(), Vec::new());
    for record in records {
        match record {
            Moved::Event(event) => events.push(event.event_id()),
            Moved::Message(message) => messages.push(message.message_id()),
            _ => {}
        }
    }
    (events, messages)
}

/// All that can be asked of a store, in words.
async fn told(store: &dyn Store, records: &[Moved]) -> Vec<String> {
    let (events, messages) = ids(records);
    let mut told = Vec::new();
    let list = store.events(EventQuery { limit: 10_000, ..EventQuery::default() }).await.expect("events");
    told.extend(list.rows.iter().map(|row| format!("{row:?}")));
    for id in events {
        told.push(format!("{:?}", store.event(id).await.expect("an event")));
        told.push(format!("{:?}", store.answer(id).await.expect("an answer")));
    }
    let inbox = store.inbox(InboxQuery { limit: 10_000, ..InboxQuery::default() }).await.expect("the inbox");
    told.extend(inbox.rows.iter().map(|row| format!("{row:?}")));
    for row in store.threads(ThreadQuery { limit: 10_000, ..ThreadQuery::default() }).await.expect("threads").rows {
        told.push(format!("{row:?}"));
        let said = store.thread_messages(&row.id, None, 10_000).await.expect("a thread");
        told.extend(said.rows.iter().map(|entry| format!("{entry:?}")));
    }
    for id in messages {
        let row = store.message(id).await.expect("a message");
        if let Some(name) = row.as_ref().and_then(|row| row.provider_id.as_deref()) {
            told.push(format!("{:?}", store.message_by_provider_id("acc", name).await.expect("a name")));
        }
        told.push(format!("{row:?}"));
    }
    let outbox = store.outbox(OutboxQuery { limit: 10_000, ..OutboxQuery::default() }).await.expect("the outbox");
    told.extend(outbox.rows.iter().map(|row| format!("{row:?}")));
    told.push(format!("{:?}", store.paused_accounts().await.expect("accounts")));
    let stats = store.stats().await.expect("stats");
    told.push(format!("{:?}", (stats.events, stats.channels, stats.outbox_waiting, stats.outbox_unknown)));
    told
}

fn same(what: &str, left: &[String], right: &[String]) {
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left, right, "{what}");
    }
    assert_eq!(left.len(), right.len(), "{what}");
}

fn sorted(records: &[Moved]) -> BTreeSet<String> {
    records.iter().map(|record| format!("{record:?}")).collect()
}

fn same_records(what: &str, left: &[Moved], right: &[Moved]) {
    let (a, b) = (sorted(left), sorted(right));
    let (only_left, only_right): (Vec<_>, Vec<_>) = (a.difference(&b).collect(), b.difference(&a).collect());
    assert!(only_left.is_empty() && only_right.is_empty(), "{what}: {only_left:#?} became {only_right:#?}");
    assert_eq!(left.len(), right.len(), "{what}: none is there twice");
}

/// What both do next: known keys are copies of the same events, and the same work is handed out in the same order.
async fn go_on_alike(seed: u64, left: &dyn Store, right: &dyn Store, highest: EventId) {
    for number in 0..24 {
        for event in [message(&format!("m{number}"), "ana"), notice(&format!("m{number}"))] {
            let (a, b) = (accept(left, webhook(vec![event.clone()])).await[0], accept(right, webhook(vec![event])).await[0]);
            match (a, b) {
                (Accepted::New(_), Accepted::New(id)) => {
                    let number = |id: EventId| hapax::domain::ids::number_of(id.0);
                    assert!(number(id) > number(highest), "seed {seed}: a number is handed out again");
                }
                _ => assert_eq!(a, b, "seed {seed}"),
            }
        }
    }
    // What is new has other numbers in each store; what was moved has the same.
    for _ in 0..20 {
        let (a, b) = (lease(left, 50).await, lease(right, 50).await);
        assert_eq!(a.len(), b.len(), "seed {seed}");
        for (a, b) in a.into_iter().zip(b) {
            let (moved, theirs) = (a.item.0 <= highest.0, b.item.0 <= highest.0);
            assert_eq!(moved, theirs, "seed {seed}");
            if moved {
                assert_eq!((a.item, &a.events, a.attempt, a.replay), (b.item, &b.events, b.attempt, b.replay), "seed {seed}");
                assert_eq!((&a.body, &a.headers, a.webhook_events), (&b.body, &b.headers, b.webhook_events), "seed {seed}");
            }
            for (store, held) in [(left, a), (right, b)] {
                let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
                store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
            }
        }
    }
    for _ in 0..20 {
        let ask = || ask_out(50);
        let (a, b) = (left.lease_outbox(ask()).await.expect("leased"), right.lease_outbox(ask()).await.expect("leased"));
        assert_eq!(a.len(), b.len(), "seed {seed}");
        for (a, b) in a.into_iter().zip(b) {
            assert_eq!((a.message, a.attempt, a.in_doubt_since_ms), (b.message, b.attempt, b.in_doubt_since_ms), "seed {seed}");
            for (store, held) in [(left, a), (right, b)] {
                let provider_id = format!("after {}", held.request_id);
                store.settle_outbox(held.lane, held.fence, SendOutcome::Sent { provider_id }).await.expect("settled");
            }
        }
    }
}

fn highest(records: &[Moved]) -> EventId {
    let number = |record: &Moved| match record {
        Moved::Key(key) => (key.event, key.at_ms),
        Moved::Event(event) => (event.number, event.received_ms),
        Moved::Item(item) => (item.number, item.received_ms),
        Moved::Message(message) => (message.number, message.created_ms),
        _ => (0, 0),
    };
    let (highest, at_ms) = records.iter().map(number).max().unwrap_or_default();
    EventId(hapax::domain::ids::numbered(at_ms, highest))
}

/// A store filled by random calls, and closed without a goodbye; with what no random call makes.
async fn filled(bed: &SqliteBed, seed: u64) -> Arc<dyn Store> {
    compare(bed, seed).await;
    let store = bed.crash();
    store.pause_account("shop", "other", Some("told to")).await.expect("paused");
    store.remember("token", "a secret's hash").await.expect("remembered");
    if let Some(event) = store.events(EventQuery { limit: 1, ..EventQuery::default() }).await.expect("events").rows.first() {
        let copies = hapax::store::Copies { event: event.id, copies: 3, conflicts: 1, last_ms: event.received_ms + 5 };
        store.note_copies(vec![copies]).await.expect("noted");
    }
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_to_plain_records_and_comes_back() {
    for seed in 0..hapax::testkit::store_compare::sequences(60) {
        let (first, middle, last) = (sqlite(), PlainBed::new(), sqlite());
        let from = filled(&first, seed).await;
        let records = export(&*from).await;
        let expected = told(&*from, &records).await;
        let between = open_at(&middle, &first);
        import(&*between, &records).await;
        same(&format!("seed {seed}, in between"), &expected, &told(&*between, &records).await);
        let back = export(&*between).await;
        same_records(&format!("seed {seed}, in between"), &records, &back);
        drop(open_at(&last, &first));
        let to = last.open();
        assert!(lease(&*to, 9).await.is_empty(), "asked before it was filled");
        import(&*to, &back).await;
        same(&format!("seed {seed}"), &expected, &told(&*to, &back).await);
        drop(to);
        // What was written is there after a crash as well.
        let to = last.crash();
        same(&format!("seed {seed}, after a crash"), &expected, &told(&*to, &back).await);
        same_records(&format!("seed {seed}"), &records, &export(&*to).await);
        assert_eq!(to.remember("token", "another").await.expect("remembered"), "a secret's hash");
        go_on_alike(seed, &*from, &*to, highest(&records)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_over_postgresql_and_mariadb_and_comes_back() {
    for seed in 1_000..1_008 {
        let Some(second) = ServerBed::on(Engine::Postgres, postgres::open).await else { return };
        let Some(third) = ServerBed::on(Engine::Mariadb, mysql::open).await else { return };
        let (first, last) = (sqlite(), sqlite());
        let from = filled(&first, seed).await;
        let mut records = export(&*from).await;
        let expected = told(&*from, &records).await;
        let beds: [&dyn Bed; 3] = [&second, &third, &last];
        for (name, bed) in ["postgres", "mariadb", "sqlite"].into_iter().zip(beds) {
            let to = open_at(bed, &first);
            import(&*to, &records).await;
            same(&format!("seed {seed}, {name}"), &expected, &told(&*to, &records).await);
            let again = export(&*to).await;
            same_records(&format!("seed {seed}, {name}"), &records, &again);
            records = again;
        }
        let stores = (second.open(), third.open(), last.open());
        go_on_alike(seed, &*stores.0, &*stores.1, highest(&records)).await;
        go_on_alike(seed, &*from, &*stores.2, highest(&records)).await;
        drop(stores);
        second.remove().await;
        third.remove().await;
    }
}

#[tokio::test]
async fn what_was_leased_waits_again_and_what_was_begun_stays_in_doubt() {
    let (bed, target) = (PlainBed::new(), sqlite());
    let store = bed.open();
    accept(&*store, webhook(vec![message("m1", "ana")])).await;
    for request in ["r1", "r2", "r3"] {
        store.submit(outgoing(request, request)).await.expect("submitted");
    }
    let item = lease(&*store, 1).await.remove(0);
    let sends = store.lease_outbox(ask_out(3)).await.expect("leased");
    store.begin(sends[0].lane, sends[0].fence).await.expect("begun");
    store.begin(sends[1].lane, sends[1].fence).await.expect("begun");
    let heard = hapax::testkit::store_suite::sending::status("w2", hapax::domain::Status::Delivered, Some(sends[1].message), 1);
    accept(&*store, webhook(vec![heard])).await;

    let moved = open_at(&target, &bed);
    import(&*moved, &export(&*store).await).await;
    let again = lease(&*moved, 9).await;
    let again = again.iter().find(|lease| lease.item == item.item).expect("it waits");
    assert_eq!(again.attempt, 2, "the attempt that ran is counted");
    assert!(again.fence > item.fence);
    let detail = moved.event(again.events[0].id).await.expect("an event").expect("it is there");
    assert_eq!(detail.attempts.iter().map(|row| row.outcome.as_str()).collect::<Vec<_>>(), ["lost"]);
    let leases = moved.lease_outbox(ask_out(9)).await.expect("leased");
    let facts: Vec<_> = leases.iter().map(|lease| (lease.message, lease.attempt, lease.in_doubt_since_ms.is_some())).collect();
    // The second was heard of under its provider's name: it has been sent.
    assert_eq!(facts, [(sends[0].message, 1, true), (sends[2].message, 2, false)]);
    let sent = moved.message(sends[1].message).await.expect("a message").expect("it is there");
    assert_eq!((sent.outbox.is_none(), sent.steps.status()), (true, hapax::domain::Status::Delivered));
}

fn refused<T>(result: Result<T, StoreError>, words: &str) {
    match result {
        Err(StoreError::Refused(why)) => assert!(why.contains(words), "{why}"),
        Err(other) => unreachable!("{other}"),
        Ok(_) => unreachable!("it was not refused"),
    }
}

#[tokio::test]
async fn a_store_that_is_not_empty_or_half_filled_is_refused() {
    let beds: [Box<dyn Bed>; 2] = [Box::new(sqlite()), Box::new(PlainBed::new())];
    for bed in beds {
        let store = bed.open();
        let moving = store.moving().expect("it can be moved");
        moving.begin_import().await.expect("it is empty");
        refused(moving.begin_import().await, "half filled");
        refused(moving.export(None, 1).await, "half filled");
        moving.end_import().await.expect("nothing was moved");
        moving.begin_import().await.expect("it is still empty");
        moving.end_import().await.expect("nothing was moved");
        accept(&*store, webhook(vec![message("m1", "ana")])).await;
        refused(moving.begin_import().await, "not empty");
    }
    refused(hapax::testkit::store_bed::MemoryBed::new().open().moving().map(|_| ()), "neither be exported");
}

#[tokio::test]
async fn the_embedded_store_is_not_read_while_somebody_works_on_it() {
    let bed = sqlite();
    let store = bed.open();
    accept(&*store, webhook(vec![message("m1", "ana")])).await;
    lease(&*store, 1).await;
    refused(store.moving().expect("it can be moved").export(None, 1).await, "at work");
}

/// The same records with all numbers further apart, as another engine might have numbered them.
fn spread(records: Vec<Moved>, by: u64) -> Vec<Moved> {
    let spread = |record: Moved| match record {
        Moved::Key(mut key) => {
            key.event *= by;
            Moved::Key(key)
        }
        Moved::Event(mut event) => {
            event.number *= by;
            event.webhook *= by;
            event.item = event.item.map(|item| item * by);
            Moved::Event(event)
        }
        Moved::Item(mut item) => {
            item.number *= by;
            item.webhook *= by;
            item.events.iter_mut().for_each(|event| *event *= by);
            Moved::Item(item)
        }
        other => other,
    };
    records.into_iter().map(spread).collect()
}

/// The embedded engine finds the events of a webhook close together; those of another store are purged together all the same.
#[tokio::test]
async fn a_webhook_with_numbers_far_apart_is_kept_and_purged_as_one() {
    let (bed, target) = (PlainBed::new(), sqlite());
    let store = bed.open();
    accept(&*store, webhook(vec![notice("n1"), notice("n2"), message("m1", "ana")])).await;
    let moved = open_at(&target, &bed);
    import(&*moved, &spread(export(&*store).await, 1_000)).await;
    for held in lease(&*moved, 2).await {
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
        moved.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
    }
    let last = lease(&*moved, 1).await.remove(0);
    moved.settle_inbox(last.lane, last.fence, Outcome::Parked { why: "no".to_owned() }).await.expect("parked");
    target.clock().advance(HOLD_MS);
    let purge = async || while moved.purge(&[("shop".to_owned(), 1_000)], 10).await.expect("purged").more {};
    purge().await;
    assert_eq!(moved.stats().await.expect("stats").events, 3, "one of them is parked, and its body is with another");
    assert_eq!(moved.redrive(Redrive::All, 9).await.expect("redriven"), 1);
    let again = lease(&*moved, 1).await.remove(0);
    assert_eq!(again.body, last.body);
    let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
    moved.settle_inbox(again.lane, again.fence, delivered).await.expect("settled");
    purge().await;
    assert_eq!(moved.stats().await.expect("stats").events, 0);
}

#[tokio::test]
async fn numbers_that_the_embedded_store_cannot_hold_are_refused() {
    let (bed, target) = (PlainBed::new(), sqlite());
    let store = bed.open();
    accept(&*store, webhook(vec![message("m1", "ana")])).await;
    let records = spread(export(&*store).await, 1 << 40);
    let moved = target.open();
    let moving = moved.moving().expect("it can be moved");
    moving.begin_import().await.expect("it is empty");
    refused(moving.import(records).await, "too large for the embedded store");
    assert!(moving.is_half_filled().await.expect("an answer"));
}
