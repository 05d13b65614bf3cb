//! Everything moves from one store to another, and nothing is different afterwards.

mod commands;
mod firestore_limits;
mod former_names;
mod joined;
mod large_numbers;
mod normal;
mod pairs;
mod redis_keys;

use std::collections::BTreeSet;
use std::sync::Arc;

use hapax_domain::{EventId, MessageId};
use hapax_store::clock::Clock;
use hapax_store::{
    Accepted, EventQuery, InboxQuery, Moved, OutboxQuery, Outcome, Page, Redrive, SendOutcome, Settled, Store, StoreError,
    ThreadQuery,
};
use hapax_store_firestore as firestore;
use hapax_store_mysql as mysql;
use hapax_store_postgres as postgres;
use hapax_store_redis as redis;
use hapax_testkit::plain_records::PlainFixture;
use hapax_testkit::server_fixtures::ServerFixture;
use hapax_testkit::servers::Engine;
use hapax_testkit::store_compare::compare_in_order;
use hapax_testkit::store_fixture::{HOLD_MS, SqliteFixture, StoreFixture, WINDOW_MS, accept, lease, message, notice, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing};

fn sqlite() -> SqliteFixture {
    SqliteFixture::new(crate::quick_folder().keep())
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

/// Opens the fixture at the same time of day as the other.
fn open_at(fixture: &dyn StoreFixture, like: &dyn StoreFixture) -> Arc<dyn Store> {
    fixture.clock().advance(like.clock().now_ms() - fixture.clock().now_ms());
    fixture.open()
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
    // The order of records is the exporting store's own affair.
    events.sort();
    messages.sort();
    (events, messages)
}

/// Everything that a list holds, read a few rows at a time.
async fn paged<T, C>(mut page: impl AsyncFnMut(Option<C>) -> Result<Page<T>, StoreError>, cursor: impl Fn(&T) -> C) -> Vec<T> {
    let mut rows: Vec<T> = Vec::new();
    loop {
        let next = page(rows.last().map(&cursor)).await.expect("a page");
        rows.extend(next.rows);
        if !next.more {
            return rows;
        }
    }
}

/// All that can be asked of a store, in words.
async fn snapshot(store: &dyn Store, records: &[Moved]) -> Vec<String> {
    let (events, messages) = ids(records);
    let mut snapshot = Vec::new();
    let all = async |before| store.events(EventQuery { before, limit: 5, ..EventQuery::default() }).await;
    snapshot.extend(paged(all, |row| row.id).await.iter().map(|row| format!("{row:?}")));
    for id in events {
        snapshot.push(format!("{:?}", store.event(id).await.expect("an event")));
        snapshot.push(format!("{:?}", store.answer(id).await.expect("an answer")));
    }
    let all = async |after| store.inbox(InboxQuery { after, limit: 3, ..InboxQuery::default() }).await;
    snapshot.extend(paged(all, |row| row.item).await.iter().map(|row| format!("{row:?}")));
    let all = async |before| store.threads(ThreadQuery { before, limit: 2, ..ThreadQuery::default() }).await;
    for row in paged(all, |row| (row.last_ms, row.id.clone())).await {
        snapshot.push(format!("{row:?}"));
        let said = paged(async |before| store.thread_messages(&row.id, before, 3).await, |entry| entry.id).await;
        snapshot.extend(said.iter().map(|entry| format!("{entry:?}")));
    }
    for id in messages {
        let row = store.message(id).await.expect("a message");
        if let Some((account, name)) = row.as_ref().and_then(|row| Some((&row.account, row.provider_id.as_deref()?))) {
            snapshot.push(format!("{:?}", store.message_by_provider_id(account, name).await.expect("a name")));
        }
        snapshot.push(format!("{row:?}"));
    }
    let all = async |after| store.outbox(OutboxQuery { after, limit: 3, ..OutboxQuery::default() }).await;
    snapshot.extend(paged(all, |row| row.id).await.iter().map(|row| format!("{row:?}")));
    snapshot.push(format!("{:?}", store.paused_accounts().await.expect("accounts")));
    snapshot.push(format!("{:?}", store.pieces_held().await.expect("pieces")));
    snapshot.push(format!("{:?}", store.piece("shop/1", 3).await.expect("a piece")));
    let stats = store.stats().await.expect("stats");
    snapshot.push(format!("{:?}", (stats.events, stats.channels, stats.outbox_waiting, stats.outbox_unknown)));
    snapshot
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

/// What all do next: known keys are copies of the same events, and the same work is handed out in the same order.
async fn go_on_alike(what: &str, stores: &[Arc<dyn Store>], highest: EventId) {
    for number in 0..24 {
        for event in [message(&format!("m{number}"), "ana"), notice(&format!("m{number}"))] {
            let mut answers = Vec::new();
            for store in stores {
                answers.push(accept(&**store, webhook(vec![event.clone()])).await[0]);
            }
            for answer in &answers {
                match (answers[0], *answer) {
                    (Accepted::New(_), Accepted::New(id)) => {
                        let number = |id: EventId| hapax_domain::ids::number_of(id.0);
                        assert!(number(id) > number(highest), "{what}: a number is handed out again");
                    }
                    (first, answer) => assert_eq!(first, answer, "{what}"),
                }
            }
        }
    }
    let is_moved = |id: uuid::Uuid| id <= highest.0;
    // What is new has other numbers in each store; what was moved has the same.
    for _ in 0..20 {
        let mut all = Vec::new();
        for store in stores {
            let mut facts = Vec::new();
            for held in lease(&**store, 50).await {
                let item = is_moved(held.item.0).then_some(held.item);
                let events: Vec<_> = held.events.iter().map(|event| Some(event.id).filter(|id| is_moved(id.0))).collect();
                facts.push((item, events, held.attempt, held.replay, held.body, held.headers, held.webhook_events));
                let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
                assert_eq!(store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled"), Settled::Done, "{what}");
            }
            all.push(facts);
        }
        all.iter().for_each(|facts| assert_eq!(&all[0], facts, "{what}"));
    }
    for _ in 0..20 {
        let mut all = Vec::new();
        for store in stores {
            let mut facts = Vec::new();
            for held in store.lease_outbox(ask_out(50)).await.expect("leased") {
                let provider_id = format!("after {}", held.request_id);
                let message = is_moved(held.message.0).then_some(held.message);
                facts.push((message, held.request_id.clone(), held.attempt, held.in_doubt_since_ms));
                store.settle_outbox(held.lane, held.fence, SendOutcome::Sent { provider_id }).await.expect("settled");
            }
            all.push(facts);
        }
        all.iter().for_each(|facts| assert_eq!(&all[0], facts, "{what}"));
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
    EventId(hapax_domain::ids::numbered(at_ms, highest))
}

/// A store filled by random calls, with what no random call makes, in which nobody holds anything.
async fn filled(fixture: &dyn StoreFixture, seed: u64) -> Arc<dyn Store> {
    compare_in_order(fixture, seed).await;
    let store = fixture.crash();
    store.pause_account("shop", "other", Some("snapshot to")).await.expect("paused");
    store.remember("token", "a secret's hash").await.expect("remembered");
    for n in 0..20 {
        // More than a page of them.
        let (name, keep_ms) = (format!("run/{n}"), WINDOW_MS * (1 + n % 3));
        store.amend(&name, None, Some("what was sent"), Some(keep_ms)).await.expect("put");
        let bytes = bytes::Bytes::from(vec![n as u8; 3_000]);
        store.put_piece(&format!("shop/{}", n / 7), (n % 7) as u32, bytes, keep_ms).await.expect("put");
    }
    if let Some(event) = store.events(EventQuery { limit: 1, ..EventQuery::default() }).await.expect("events").rows.first() {
        let copies = hapax_store::Copies {
            event: event.id,
            copies: 3,
            conflicts: 1,
            last_ms: event.received_ms + 5,
            kept: Some(event.id),
        };
        store.note_copies(vec![copies]).await.expect("noted");
    }
    fixture.clock().advance(HOLD_MS * 5);
    for held in lease(&*store, 100).await {
        store
            .settle_inbox(held.lane, held.fence, Outcome::HandBack { wait_ms: 500, why: None, called: false })
            .await
            .expect("handed back");
    }
    for held in store.lease_outbox(ask_out(100)).await.expect("leased") {
        store.settle_outbox(held.lane, held.fence, SendOutcome::HandBack { wait_ms: 500 }).await.expect("handed back");
    }
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_to_plain_records_and_comes_back() {
    for seed in 0..hapax_testkit::store_compare::sequences(60) {
        let (first, middle, last) = (sqlite(), PlainFixture::new(), sqlite());
        let from = filled(&first, seed).await;
        let records = export(&*from).await;
        let expected = snapshot(&*from, &records).await;
        let between = open_at(&middle, &first);
        import(&*between, &records).await;
        same(&format!("seed {seed}, in between"), &expected, &snapshot(&*between, &records).await);
        let back = export(&*between).await;
        same_records(&format!("seed {seed}, in between"), &records, &back);
        drop(open_at(&last, &first));
        let to = last.open();
        assert!(lease(&*to, 9).await.is_empty(), "asked before it was filled");
        import(&*to, &back).await;
        same(&format!("seed {seed}"), &expected, &snapshot(&*to, &back).await);
        drop(to);
        // What was written is there after a crash as well.
        let to = last.crash();
        same(&format!("seed {seed}, after a crash"), &expected, &snapshot(&*to, &back).await);
        same_records(&format!("seed {seed}"), &records, &export(&*to).await);
        assert_eq!(to.remember("token", "another").await.expect("remembered"), "a secret's hash");
        assert_eq!(to.remember("run/7", "anew").await.expect("remembered"), "what was sent");
        for fixture in [&first, &last] {
            fixture.clock().advance(1_000);
        }
        go_on_alike(&format!("seed {seed}"), &[from, to], highest(&records)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_leased_waits_again_and_what_was_begun_stays_in_doubt() {
    leased_waits_again(&PlainFixture::new()).await;
    // The embedded store has one owner, and gives nothing away while somebody works on it.
    for (name, fixture) in pairs::fixtures().await {
        if let Some(fixture) = fixture.filter(|_| name != "sqlite") {
            leased_waits_again(&*fixture).await;
        }
    }
}

async fn leased_waits_again(fixture: &dyn StoreFixture) {
    let target = sqlite();
    let store = fixture.open();
    accept(&*store, webhook(vec![message("m1", "ana")])).await;
    for request in ["r1", "r2", "r3"] {
        store.submit(outgoing(request, request)).await.expect("submitted");
    }
    let item = lease(&*store, 1).await.remove(0);
    let sends = store.lease_outbox(ask_out(3)).await.expect("leased");
    store.begin(sends[0].lane, sends[0].fence).await.expect("begun");
    store.begin(sends[1].lane, sends[1].fence).await.expect("begun");
    let heard = hapax_testkit::store_suite::sending::status("w2", hapax_domain::Status::Delivered, Some(sends[1].message), 1);
    accept(&*store, webhook(vec![heard])).await;

    let moved = open_at(&target, fixture);
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
    assert_eq!((sent.outbox.is_none(), sent.steps.status()), (true, hapax_domain::Status::Delivered));
}

fn refused<T>(result: Result<T, StoreError>, words: &str) {
    match result {
        Err(StoreError::Refused(why)) => assert!(why.contains(words), "{why}"),
        Err(other) => unreachable!("{other}"),
        Ok(_) => unreachable!("it was not refused"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_not_empty_or_half_filled_is_refused() {
    let mut fixtures = pairs::fixtures().await;
    fixtures.push(("plain records", Some(Box::new(PlainFixture::new()))));
    for fixture in fixtures.into_iter().filter_map(|(_, fixture)| fixture) {
        let store = fixture.open();
        let moving = store.moving().expect("it can be moved");
        moving.begin_import().await.expect("it is empty");
        refused(moving.begin_import().await, "half filled");
        refused(moving.export(None, 1).await, "half filled");
        moving.end_import().await.expect("nothing was moved");
        moving.begin_import().await.expect("it is still empty");
        moving.end_import().await.expect("nothing was moved");
        moving.begin_import().await.expect("it is still empty");
        drop(store);
        // The mark outlives whoever made it.
        let store = fixture.crash();
        let moving = store.moving().expect("it can be moved");
        assert!(moving.is_half_filled().await.expect("an answer"));
        refused(moving.begin_import().await, "half filled");
        moving.end_import().await.expect("nothing was moved");
        accept(&*store, webhook(vec![message("m1", "ana")])).await;
        refused(moving.begin_import().await, "not empty");
    }
    refused(hapax_testkit::store_fixture::MemoryFixture::new().open().moving().map(|_| ()), "neither be exported");
}

#[tokio::test]
async fn the_embedded_store_is_not_read_while_somebody_works_on_it() {
    let fixture = sqlite();
    let store = fixture.open();
    accept(&*store, webhook(vec![message("m1", "ana")])).await;
    lease(&*store, 1).await;
    refused(store.moving().expect("it can be moved").export(None, 1).await, "at work");
}

/// The embedded engine finds the events of a webhook close together; those of another store are purged together all the same.
#[tokio::test]
async fn a_webhook_with_numbers_far_apart_is_kept_and_purged_as_one() {
    let (fixture, target) = (PlainFixture::new(), sqlite());
    let store = fixture.open();
    accept(&*store, webhook(vec![notice("n1"), notice("n2"), message("m1", "ana")])).await;
    let moved = open_at(&target, &fixture);
    import(&*moved, &normal::spread(export(&*store).await, 1_000)).await;
    for held in lease(&*moved, 2).await {
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
        moved.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
    }
    let last = lease(&*moved, 1).await.remove(0);
    moved.settle_inbox(last.lane, last.fence, Outcome::Parked { why: "no".to_owned(), charged: true }).await.expect("parked");
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
