//! The `postgres:` engine: the whole suite, the comparison with the model, and what only this engine can get wrong.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Direction, EventId, Kind, Priority, Status, Steps, ThreadId, ids};
use hapax_store::prelude::*;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, Held, ItemPlace, ItemRec, KeyRec, LaneRec, MessageRec, NameRec, OutRec,
    ProviderNameRec, Queue, ThreadRec, name_hash, request_hash, thread_hash,
};
use hapax_store::steps::{Changes, Engine as _, Pool, Tx, TxError, Wanted};
use hapax_store::{Answer, EventQuery, KeptHeaders, NewMessage, Promise, Reads, SendOutcome, Settled, StoreError};
use hapax_store_postgres as postgres;
use hapax_testkit::server_fixtures::{ServerFixture, compare_with_model};
use hapax_testkit::servers::Engine;
use hapax_testkit::store_compare::sequences;
use hapax_testkit::store_fixture::StoreFixture;
use hapax_testkit::store_suite::sending::{ask_out, outgoing};
use tokio_postgres::NoTls;

hapax_testkit::store_suite!(ServerFixture::on(Engine::Postgres, postgres::open).await);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_at_once_are_told_apart() {
    if let Some(fixture) = ServerFixture::on(Engine::Postgres, postgres::open).await {
        crate::stores::replays_at_once_are_told_apart(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_not_purged_with_its_event() {
    if let Some(fixture) = ServerFixture::on(Engine::Postgres, postgres::open).await {
        crate::stores::a_replay_is_not_purged_with_its_event(&fixture).await;
    }
}

/// An index takes 2.7 KB; a name may have 8, and need not let itself be compressed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_a_long_name_sends() {
    let Some(fixture) = ServerFixture::on(Engine::Postgres, postgres::open).await else { return };
    let store = fixture.open();
    let account: String =
        (0..4_000_u32).map(|n| char::from(b' ' + 1 + (n.wrapping_mul(2_654_435_761) >> 23) as u8 % 90)).collect();
    let message = NewMessage { account, ..outgoing("r1", "ana") };
    store.submit(message).await.expect("submitted");
    let held = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
    assert_eq!(store.begin(held.lane, held.fence).await.expect("begun"), Settled::Done);
    let unknown = SendOutcome::Unknown { why: "no answer".to_owned(), check_ms: None };
    assert_eq!(store.settle_outbox(held.lane, held.fence, unknown).await.expect("settled"), Settled::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_answers_like_the_model() {
    compare_with_model(Engine::Postgres, postgres::open, sequences(150)).await;
}

/// Texts with everything that a column might stumble over.
const ODD: &str = "a\0b\u{1}c\u{1}\u{1}é'\"\\{},NULL";

async fn ask(url: &str, script: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it answers");
    tokio::spawn(connection);
    client.batch_execute(script).await.expect("it does as told");
}

async fn count(url: &str, sql: &str) -> i64 {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it answers");
    tokio::spawn(connection);
    client.query_one(sql, &[]).await.expect("it answers").get(0)
}

fn event() -> EventRec {
    EventRec {
        number: 7,
        webhook: 7,
        received_ms: 1_760_000_000_000,
        channel: ODD.into(),
        kind: Kind::Reaction,
        account: ODD.to_owned(),
        id: ODD.to_owned(),
        peer: Some(ODD.to_owned()),
        echo: true,
        at_ms: Some(-1),
        text: Some(ODD.to_owned()),
        index: 3,
        item: Some(9),
        part: true,
        thread: Some([5; 32]),
        replays: 0,
        body_bytes: 4,
        carried: Some(Carried { headers: KeptHeaders(vec![0, 255]), body: Bytes::from_static(&[0, 1, 254, 255]), events: 2 }),
    }
}

fn bare_event() -> EventRec {
    let (peer, at_ms, text, item, thread, carried) = (None, None, None, None, None, None);
    EventRec { number: 8, webhook: 7, echo: false, part: false, peer, at_ms, text, item, thread, carried, ..event() }
}

fn item() -> ItemRec {
    ItemRec {
        number: 9,
        received_ms: 1,
        channel: ODD.into(),
        lane: [1; 32],
        place: ItemPlace::InLane,
        events: vec![7, 8],
        events_ms: 2,
        webhook: 7,
        attempt: 4,
        failures: 2,
        replay: Some(2),
        why: Some(ODD.to_owned()),
        due_ms: 5,
        replies: vec![hapax_testkit::store_suite::sending::outgoing("kept", "ana")],
    }
}

fn lane() -> LaneRec {
    let held = Held { number: 9, attempt: 5, fence: 6, worker: ODD.to_owned(), leased_ms: 7, until_ms: 8 };
    LaneRec {
        hash: [1; 32],
        queue: Queue::Inbox,
        channel: ODD.into(),
        account: ODD.to_owned(),
        priority: Priority::Normal,
        first: 9,
        due_ms: 8,
        held: Some(held),
        peer: Some(ODD.to_owned()),
        joined_to: Some([0; 32]),
        joined: vec![[2; 32], [0; 32]],
        turn: Some(i64::MAX as u64),
        alone_ms: None,
    }
}

fn thread() -> ThreadRec {
    ThreadRec {
        account: ODD.to_owned(),
        peer: ODD.to_owned(),
        channel: ODD.to_owned(),
        last_ms: 1,
        last_text: Some(ODD.to_owned()),
        last_direction: Direction::Out,
        unread: 2,
        purged_to: 3,
        read_to: 5,
    }
}

fn provider_name() -> ProviderNameRec {
    let early = Steps::new(vec![(Status::Sent, 5), (Status::Read, 6)]);
    ProviderNameRec { account: ODD.to_owned(), provider_id: ODD.to_owned(), message: Some(11), early, heard_ms: 1 }
}

fn sent_message() -> MessageRec {
    MessageRec {
        number: 11,
        created_ms: 1,
        channel: ODD.into(),
        account: ODD.to_owned(),
        peer: ODD.to_owned(),
        request_id: ODD.to_owned(),
        fingerprint: [3; 32],
        text: Some(ODD.to_owned()),
        payload: Bytes::from_static(&[0, 255]),
        priority: Priority::Reply,
        reply_to: Some(EventId(ids::numbered(1_000, 7))),
        home: [4; 32],
        thread: [5; 32],
        provider_id: Some(ODD.to_owned()),
        steps: Steps::new(vec![(Status::Queued, 1), (Status::Unknown, 2)]),
        past: hapax_domain::Past {
            tries: 3,
            doubt: Some(1),
            rounds: vec![hapax_domain::Round {
                provider_id: Some(ODD.to_owned()),
                why: Some(ODD.to_owned()),
                ..Default::default()
            }],
        },
        why: Some(ODD.to_owned()),
    }
}

fn out() -> OutRec {
    OutRec {
        number: 11,
        created_ms: 1,
        channel: ODD.into(),
        account: ODD.to_owned(),
        lane: [6; 32],
        priority: Priority::Bulk,
        failures: 2,
        attempt: 2,
        due_ms: Some(3),
        begun_ms: Some(4),
        unknown: true,
    }
}

fn attempt(queue: Queue, of: u64) -> AttemptRec {
    AttemptRec {
        queue,
        of,
        item: 9,
        item_ms: 1,
        attempt: 2,
        fence: 3,
        worker: ODD.to_owned(),
        leased_ms: 4,
        ended_ms: 5,
        outcome: "retry".to_owned(),
        detail: ODD.to_owned(),
    }
}

fn answer() -> AnswerRec {
    let body = Bytes::from_static(&[0, 255]);
    AnswerRec { event: 7, answer: Answer { status: 404, content_type: Some(ODD.to_owned()), body } }
}

fn all_new() -> Changes {
    Changes {
        new_events: vec![bare_event(), event()],
        new_items: vec![item()],
        new_lanes: vec![lane()],
        names: vec![NameRec { account: ODD.to_owned(), name: "alias".to_owned(), peer: ODD.to_owned() }],
        new_threads: vec![thread()],
        new_provider_names: vec![provider_name()],
        new_messages: vec![sent_message()],
        new_outs: vec![out()],
        attempts: vec![attempt(Queue::Inbox, 7), attempt(Queue::Outbox, 11)],
        answers: vec![answer()],
        ..Changes::default()
    }
}

fn all_wanted() -> Wanted {
    Wanted {
        lanes: vec![[1; 32]],
        items: vec![9],
        lowest_items: vec![[1; 32]],
        events: vec![8],
        locked_events: vec![8],
        bodies: vec![7],
        names: vec![(ODD.to_owned(), "alias".to_owned())],
        threads: vec![thread_hash(ODD, ODD)],
        sure_names: vec![(ODD.to_owned(), "alias".to_owned())],
        named: vec![thread_hash(ODD, ODD)],
        sending: vec![ODD.to_owned(), "nobody".to_owned()],
        provider_names: vec![(ODD.to_owned(), ODD.to_owned())],
        requests: vec![request_hash(ODD, ODD)],
        messages: vec![11],
        outs: vec![11],
        lowest_outs: vec![[6; 32]],
        waiting: vec![],
        claims: vec![],
    }
}

async fn save<E: hapax_store::steps::Engine>(engine: &E, changes: Changes) -> Result<(), TxError> {
    let mut tx = engine.begin(Pool::Admin, 0).await?;
    tx.save(changes).await?;
    tx.commit().await
}

#[tokio::test]
async fn every_kind_of_record_reads_back_as_it_was_saved() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let engine = Arc::clone(store.engine());
    save(&*engine, all_new()).await.expect("saved");

    let locked = engine.begin(Pool::Workers, 0).await.expect("begun").load(&all_wanted()).await.expect("loaded");
    for loaded in [engine.peek(&all_wanted()).await.expect("loaded"), locked] {
        assert_eq!(loaded.lanes[&[1; 32]], lane());
        assert_eq!(loaded.items[&9], item());
        assert_eq!(loaded.lowest[&[1; 32]], [9]);
        assert_eq!(loaded.lowest[&[6; 32]], [11]);
        assert_eq!((&loaded.events[&7], &loaded.events[&8]), (&event(), &bare_event()));
        let names = [((ODD.to_owned(), "alias".to_owned()), ODD.to_owned())].into();
        assert_eq!((&loaded.names, &loaded.sure_names), (&names, &names));
        assert_eq!(loaded.threads[&thread_hash(ODD, ODD)], thread());
        assert!(loaded.sending.contains(ODD) && loaded.sending.len() == 1);
        assert_eq!(loaded.provider_names[&name_hash(ODD, ODD)], provider_name());
        assert_eq!(loaded.messages[&11], sent_message());
        assert_eq!(loaded.outs[&11], out());
    }
    assert_eq!(engine.list_attempts(Queue::Inbox, &[7]).await.expect("listed"), [attempt(Queue::Inbox, 7)]);
    assert_eq!(engine.list_attempts(Queue::Outbox, &[11]).await.expect("listed"), [attempt(Queue::Outbox, 11)]);
    assert_eq!(engine.answer(7).await.expect("asked"), Some(answer().answer));
    assert_eq!(engine.names_of(ODD, ODD).await.expect("asked"), ["alias"]);
    assert_eq!(engine.list_replays(7).await.expect("listed"), [item()]);
    drop(store);
    server.remove(&url).await;
}

#[tokio::test]
async fn records_change_and_go() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let engine = Arc::clone(store.engine());
    save(&*engine, all_new()).await.expect("saved");
    let changed = (
        ItemRec { place: ItemPlace::Parked, replay: None, why: None, ..item() },
        LaneRec { held: None, first: 10, priority: Priority::Bulk, ..lane() },
        ThreadRec { last_text: None, unread: 0, ..thread() },
        ProviderNameRec { message: None, early: Steps::default(), ..provider_name() },
        MessageRec { provider_id: None, why: None, steps: Steps::new(vec![(Status::Played, 9)]), ..sent_message() },
        OutRec { due_ms: None, begun_ms: None, unknown: false, ..out() },
    );
    let (item, lane, thread, name, message, out) = changed.clone();
    let changes = Changes {
        replays: vec![(7, 3)],
        items: vec![item],
        lanes: vec![lane],
        threads: vec![thread],
        provider_names: vec![name],
        messages: vec![message],
        outs: vec![out],
        ..Changes::default()
    };
    save(&*engine, changes).await.expect("saved");
    let loaded = engine.peek(&all_wanted()).await.expect("loaded");
    let (item, lane, thread, name, message, out) = changed;
    assert_eq!((&loaded.items[&9], &loaded.lanes[&[1; 32]], &loaded.outs[&11]), (&item, &lane, &out));
    assert_eq!((&loaded.threads[&thread_hash(ODD, ODD)], loaded.events[&7].replays), (&thread, 3));
    assert_eq!((&loaded.provider_names[&name_hash(ODD, ODD)], &loaded.messages[&11]), (&name, &message));

    let gone = Changes {
        gone_events: vec![event(), bare_event()],
        gone_items: vec![9],
        gone_lanes: vec![[1; 32]],
        gone_provider_names: vec![name_hash(ODD, ODD)],
        gone_messages: vec![11],
        gone_outs: vec![11],
        ..Changes::default()
    };
    save(&*engine, gone).await.expect("saved");
    let loaded = engine.peek(&all_wanted()).await.expect("loaded");
    assert!(loaded.items.is_empty() && loaded.lanes.is_empty() && loaded.outs.is_empty() && loaded.events.is_empty());
    assert!(loaded.provider_names.is_empty() && loaded.messages.is_empty() && loaded.lowest.is_empty());
    assert!(engine.list_attempts(Queue::Inbox, &[7]).await.expect("listed").is_empty());
    assert!(engine.list_attempts(Queue::Outbox, &[11]).await.expect("listed").is_empty());
    assert_eq!(engine.answer(7).await.expect("asked"), None);
    drop(store);
    server.remove(&url).await;
}

#[tokio::test]
async fn a_dropped_transaction_leaves_nothing_and_its_connection_goes_on() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let engine = store.engine();
    let key = KeyRec { key: [9; 32], event: 1, at_ms: 1, fingerprint: u32::MAX, expires_ms: i64::MAX };
    for _ in 0..3 * engine.in_flight(Pool::Ingest) {
        let mut tx = engine.begin(Pool::Ingest, 1).await.expect("begun");
        assert_eq!(tx.claim(std::slice::from_ref(&key)).await.expect("claimed"), [None], "nobody kept it before");
        tx.save(all_new()).await.expect("taken");
        tx.load(&Wanted { lanes: vec![[1; 32]], ..Wanted::default() }).await.expect("sent");
    }
    assert!(engine.peek(&all_wanted()).await.expect("loaded").lanes.is_empty());
    let mut tx = engine.begin(Pool::Ingest, 1).await.expect("begun");
    tx.claim(std::slice::from_ref(&key)).await.expect("claimed");
    tx.commit().await.expect("kept");
    let mut tx = engine.begin(Pool::Ingest, 1).await.expect("begun");
    let other = KeyRec { event: 2, ..key.clone() };
    assert_eq!(tx.claim(&[other]).await.expect("asked"), [Some(key)]);
    drop((tx, store));
    server.remove(&url).await;
}

#[tokio::test]
async fn a_record_that_is_there_already_means_again() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let made = Changes { new_lanes: vec![lane()], ..Changes::default() };
    save(&**store.engine(), made.clone()).await.expect("saved");
    assert!(matches!(save(&**store.engine(), made).await, Err(TxError::Conflict(_))));
    drop(store);
    server.remove(&url).await;
}

#[tokio::test]
async fn numbers_grow_from_transaction_to_transaction() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let mut last = 0;
    for wanted in [1, 3_000, 2] {
        let mut tx = store.engine().begin(Pool::Ingest, wanted).await.expect("begun");
        for _ in 0..wanted {
            let number = tx.number();
            assert!(number > last, "{number} after {last}");
            last = number;
        }
    }
    drop(store);
    server.remove(&url).await;
}

/// The server ends every connection of ours in the middle of a transaction: an error that may be retried, and the next call works.
#[tokio::test]
async fn connections_that_the_server_ended_are_replaced() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let name = format!("hapax-{:016x}", rand::random::<u64>());
    let store = postgres::open(&format!("{url}&application_name={name}"), None).await.expect("it opens");
    let mut tx = store.engine().begin(Pool::Workers, 1).await.expect("begun");
    tx.save(all_new()).await.expect("taken");
    tx.load(&all_wanted()).await.expect("sent");
    ask(&url, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'")).await;
    assert!(matches!(tx.commit().await, Err(TxError::Conflict(_))), "the nonce was never written");
    store.ping().await.expect("a new connection");
    assert!(store.engine().peek(&all_wanted()).await.expect("loaded").lanes.is_empty());
    save(&**store.engine(), all_new()).await.expect("nothing of it was kept, so it can be done again");
    drop(store);
    server.remove(&url).await;
}

#[tokio::test]
async fn many_instances_may_open_a_new_store_at_once() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let opened = futures_util::future::join_all((0..8).map(|_| postgres::open(&url, None))).await;
    for store in opened {
        let store = store.expect("it opens");
        assert_eq!(store.promise(), Promise::Full);
        store.ping().await.expect("it can be written to");
    }
    server.remove(&url).await;
}

#[tokio::test]
async fn a_newer_schema_and_a_read_only_database_are_refused() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let read_only = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20");
    let refused = |opened: Result<_, StoreError>| match opened.map(|_| ()) {
        Err(StoreError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(postgres::open(&read_only, None).await).contains("takes no writes"));
    drop(postgres::open(&url, None).await.expect("it opens"));
    ask(&url, "UPDATE hapax_schema SET version = 99").await;
    assert!(refused(postgres::open(&url, None).await).contains("newer hapax"));
    server.remove(&url).await;
}

/// Goes back to the two tables that names and threads had before version 10.
const PART_NAMES_FROM_THREADS: &str = "
    CREATE TABLE hapax_threads AS SELECT hash, account, name AS peer, channel, last_ms, last_text, last_out, unread, purged_to, read_to
        FROM hapax_peers WHERE last_ms IS NOT NULL;
    CREATE TABLE hapax_names AS SELECT hash, account, name, peer, thread FROM hapax_peers WHERE thread IS NOT NULL;
    DROP TABLE hapax_peers";

/// Back to the first version, and forth again: what is dropped was there, each time.
#[tokio::test]
async fn tables_of_the_first_version_are_brought_up_to_date() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    for _ in 0..2 {
        drop(postgres::open(&url, None).await.expect("it opens"));
        let back = "DROP INDEX hapax_provider_names_by_age, hapax_events_of_channel, hapax_events_of_peer;
                    UPDATE hapax_schema SET version = 1";
        ask(&url, PART_NAMES_FROM_THREADS).await;
        ask(&url, back).await;
    }
    server.remove(&url).await;
}

/// Version 3 left the former name on a message that a person had retried; one that is being sent keeps the name it has.
#[tokio::test]
async fn a_message_that_was_retried_before_the_upgrade_has_its_name_behind_it() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let (waits, begun) = (store.submit(outgoing("r1", "ana")).await, store.submit(outgoing("r2", "bob")).await);
    let (waits, begun) = (waits.expect("queued").message(), begun.expect("queued").message());
    drop(store);
    for sql in [
        PART_NAMES_FROM_THREADS,
        "UPDATE hapax_messages SET provider_id = 'w', past = NULL",
        "UPDATE hapax_outs SET begun_ms = 5 WHERE number = (SELECT number FROM hapax_messages WHERE request_id = 'r2')",
        "UPDATE hapax_schema SET version = 3",
    ] {
        ask(&url, sql).await;
    }
    let store = postgres::open(&url, None).await.expect("it is brought up to date");
    let row = store.message(waits).await.expect("readable").expect("it is there");
    let former: Vec<_> = row.past.rounds.iter().map(|round| round.provider_id.as_deref()).collect();
    assert_eq!((row.provider_id.as_deref(), former), (None, vec![Some("w")]));
    let row = store.message(begun).await.expect("readable").expect("it is there");
    assert_eq!((row.provider_id.as_deref(), row.past.rounds.len()), (Some("w"), 0));
    server.remove(&url).await;
}

/// Among many events of others, those of a quiet channel or of one peer are found by an index, however long their names are.
#[tokio::test]
async fn a_few_events_among_many_are_found_by_an_index() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let store = postgres::open(&url, None).await.expect("it opens");
    let engine = Arc::clone(store.engine());
    let busy = |number| EventRec { number, channel: "busy".into(), peer: Some(number.to_string()), ..bare_event() };
    let long = "long ".repeat(2_000);
    let quiet = |number| EventRec { number, channel: long.as_str().into(), peer: Some(long.clone()), ..bare_event() };
    let events = (100..5_000).map(busy).chain((1..4).map(quiet)).collect();
    save(&*engine, Changes { new_events: events, ..Changes::default() }).await.expect("saved");
    ask(&url, "ANALYZE hapax_events").await;
    let thread = ThreadId { account: ODD.to_owned(), peer: long.clone() };
    let of_channel = EventQuery { channel: Some(long.clone()), ..EventQuery::default() };
    let of_peer = EventQuery { thread: Some(thread.clone()), ..EventQuery::default() };
    let of_both = EventQuery { channel: Some("busy".to_owned()), thread: Some(thread), ..EventQuery::default() };
    for (query, before, numbers) in
        [(&of_channel, None, vec![3, 2, 1]), (&of_peer, Some(3), vec![2, 1]), (&of_both, None, vec![])]
    {
        let listed = engine.list_events(query, before, 9).await.expect("listed");
        assert_eq!(listed.iter().map(|event| event.number).collect::<Vec<_>>(), numbers);
    }
    let used = "SELECT COUNT(*) FROM pg_stat_user_indexes WHERE schemaname = current_schema() AND idx_scan > 0
                AND indexrelname IN ('hapax_events_of_channel', 'hapax_events_of_peer')";
    // A connection tells what it used when it ends.
    drop((engine, store));
    crate::rig::eventually("both are used", async || count(&url, used).await == 2).await;
    server.remove(&url).await;
}

/// A wait that ends long before the poll was ended by the other instance.
#[tokio::test]
async fn work_of_one_instance_wakes_the_other() {
    let Some(server) = Engine::Postgres.shared().await else { return };
    let url = server.fresh().await;
    let (one, other) = (postgres::open(&url, None).await.expect("opens"), postgres::open(&url, None).await.expect("opens"));
    for _ in 0..100 {
        let (waiting, began) = (other.wait(), std::time::Instant::now());
        one.engine().wake();
        waiting.await;
        if began.elapsed() < std::time::Duration::from_millis(250) {
            drop((one, other));
            return server.remove(&url).await;
        }
    }
    panic!("100 times nothing was heard");
}
