//! Every kind of record comes back as it was saved.

use hapax_domain::{Direction, Kind, MessageId, Priority, Status, Steps, ids};
use hapax_store::prelude::*;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, Held, ItemPlace, ItemRec, KeyRec, LaneRec, MessageRec, NameRec, OutRec,
    ProviderNameRec, Queue, ThreadRec, name_hash, outbox_lane, own_lane, request_hash, thread_hash,
};
use hapax_store::steps::{Changes, Engine, Pool, Tx, TxError, Wanted};
use hapax_store::{Answer, EventQuery, KeptHeaders, OutboxQuery};
use hapax_testkit::store_fixture::START_MS;

use super::emulator::Emulator;

fn event(number: u64) -> EventRec {
    EventRec {
        number,
        webhook: number,
        received_ms: START_MS,
        channel: "shop".into(),
        kind: Kind::Message,
        account: "a/c%c".to_owned(),
        id: "wamid.Ab==".to_owned(),
        peer: Some("ana__é".to_owned()),
        echo: true,
        at_ms: Some(-5),
        text: Some("hé\0llo\n".to_owned()),
        index: 3,
        item: Some(number),
        part: false,
        thread: Some(thread_hash("a/c%c", "ana__é")),
        replays: 2,
        body_bytes: 4,
        carried: Some(Carried { headers: KeptHeaders(b"x: \xff\n".to_vec()), body: vec![0, 255, 10, 7].into(), events: 9 }),
    }
}

fn lane(held: Option<Held>) -> LaneRec {
    LaneRec {
        hash: outbox_lane("shop", "acc", "ana"),
        queue: Queue::Outbox,
        channel: "shop".into(),
        account: "acc".to_owned(),
        priority: Priority::Bulk,
        first: 7,
        due_ms: START_MS,
        held,
        peer: Some("ana".to_owned()),
        joined_to: Some([4; 32]),
        joined: vec![[5; 32], [6; 32]],
        turn: Some(9),
        alone_ms: None,
    }
}

fn held() -> Held {
    let (worker, leased_ms, until_ms) = ("w".to_owned(), START_MS, START_MS + 60_000);
    Held { number: 7, attempt: 2, fence: 1 << 61, worker, leased_ms, until_ms }
}

fn item(number: u64) -> ItemRec {
    ItemRec {
        number,
        received_ms: START_MS,
        channel: "shop".into(),
        lane: own_lane(Queue::Inbox, 5),
        place: ItemPlace::InLane,
        events: vec![number, number + 1],
        events_ms: START_MS - 1,
        webhook: number,
        attempt: 4,
        failures: 2,
        replay: Some(2),
        why: Some("503".to_owned()),
        due_ms: START_MS + 9,
        replies: vec![hapax_testkit::store_suite::sending::outgoing("kept", "ana")],
    }
}

fn thread() -> ThreadRec {
    ThreadRec {
        account: "a/c%c".to_owned(),
        peer: "ana__é".to_owned(),
        channel: "shop".to_owned(),
        last_ms: START_MS + 1,
        last_text: None,
        last_direction: Direction::Out,
        unread: 3,
        purged_to: 1 << 60,
        read_to: 5,
    }
}

fn outgoing(payload: &'static [u8]) -> (MessageRec, OutRec) {
    let message = MessageRec {
        number: 7,
        created_ms: START_MS + 2,
        channel: "shop".into(),
        account: "acc".to_owned(),
        peer: "ana".to_owned(),
        request_id: "../__r/1%".to_owned(),
        fingerprint: [9; 32],
        text: Some("hi".to_owned()),
        payload: payload.into(),
        priority: Priority::Bulk,
        reply_to: Some(event(5).event_id()),
        home: outbox_lane("shop", "acc", "ana"),
        thread: thread_hash("a/c%c", "ana__é"),
        provider_id: None,
        steps: Steps::new(vec![(Status::Queued, START_MS)]),
        past: hapax_domain::Past {
            tries: 3,
            doubt: Some(1),
            rounds: vec![hapax_domain::Round {
                provider_id: Some("wamid.0".to_owned()),
                why: Some("wamid.0".to_owned()),
                ..Default::default()
            }],
        },
        why: None,
    };
    let out = OutRec {
        number: 7,
        created_ms: START_MS + 2,
        channel: "shop".into(),
        account: "acc".to_owned(),
        lane: message.home,
        priority: Priority::Bulk,
        failures: 2,
        attempt: 1,
        due_ms: Some(START_MS + 3),
        begun_ms: Some(START_MS + 4),
        unknown: false,
    };
    (message, out)
}

fn provider_name() -> ProviderNameRec {
    let early = Steps::new(vec![(Status::Read, 5), (Status::Sent, 4)]);
    ProviderNameRec { account: "acc".to_owned(), provider_id: "w/1".to_owned(), message: None, early, heard_ms: START_MS }
}

fn attempt(queue: Queue, of: u64, fence: u64) -> AttemptRec {
    let (worker, outcome, detail) = ("w".to_owned(), "retry".to_owned(), "503".to_owned());
    AttemptRec { queue, of, item: of, item_ms: 1, attempt: 1, fence, worker, leased_ms: 2, ended_ms: 3, outcome, detail }
}

fn all() -> Wanted {
    Wanted {
        lanes: vec![lane(None).hash],
        items: vec![5],
        lowest_items: vec![item(5).lane],
        bodies: vec![5],
        names: vec![("acc".to_owned(), "Ana/".to_owned())],
        threads: vec![thread_hash("a/c%c", "ana__é")],
        sending: vec!["acc".to_owned(), "other".to_owned()],
        provider_names: vec![("acc".to_owned(), "w/1".to_owned())],
        requests: vec![request_hash("acc", "../__r/1%")],
        outs: vec![7],
        lowest_outs: vec![lane(None).hash],
        ..Wanted::default()
    }
}

async fn save<E: Engine>(engine: &E, seen: Wanted, changes: Changes) {
    let mut tx = engine.begin(Pool::Admin, 0).await.expect("begun");
    tx.load(&seen).await.expect("loaded");
    tx.save(changes).await.expect("saved");
    tx.commit().await.expect("committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_back_as_saved_and_go_when_removed() {
    let Some(emulator) = Emulator::start().await else { return };
    let store = emulator.open().await;
    let engine = store.engine();
    let (message, out) = outgoing(b"\xff no text");
    let answer = Answer { status: 201, content_type: Some("a/b".to_owned()), body: vec![0, 200].into() };
    let new = Changes {
        new_events: vec![event(5)],
        new_items: vec![item(5), item(6)],
        new_lanes: vec![lane(Some(held()))],
        names: vec![NameRec { account: "acc".to_owned(), name: "Ana/".to_owned(), peer: "ana".to_owned() }],
        new_threads: vec![thread()],
        new_provider_names: vec![provider_name()],
        new_messages: vec![message.clone()],
        new_outs: vec![out.clone()],
        attempts: vec![attempt(Queue::Inbox, 5, 9), attempt(Queue::Inbox, 5, 8), attempt(Queue::Outbox, 7, 7)],
        answers: vec![AnswerRec { event: 5, answer: answer.clone() }],
        ..Changes::default()
    };
    save(&**engine, Wanted::default(), new).await;

    let seen = engine.peek(&all()).await.expect("read");
    assert_eq!(seen.events[&5], event(5));
    assert_eq!((&seen.items[&5], &seen.items[&6]), (&item(5), &item(6)));
    assert_eq!(seen.lowest[&item(5).lane], [5, 6]);
    assert_eq!(seen.lanes[&lane(None).hash], lane(Some(held())));
    assert_eq!(seen.names[&("acc".to_owned(), "Ana/".to_owned())], "ana");
    assert_eq!(seen.threads[&thread_hash("a/c%c", "ana__é")], thread());
    assert_eq!(seen.provider_names[&name_hash("acc", "w/1")], provider_name());
    assert_eq!((&seen.messages[&7], &seen.outs[&7]), (&message, &out));
    assert_eq!(seen.lowest[&lane(None).hash], [7]);
    assert_eq!(seen.sending.into_iter().collect::<Vec<_>>(), ["acc"]);
    assert_eq!(engine.answer(5).await.expect("read"), Some(answer));
    let attempts = engine.list_attempts(Queue::Inbox, &[5]).await.expect("read");
    assert_eq!(attempts, [attempt(Queue::Inbox, 5, 8), attempt(Queue::Inbox, 5, 9)]);
    let listed = engine.list_events(&EventQuery::default(), None, 9).await.expect("read");
    assert_eq!(listed, [EventRec { carried: None, ..event(5) }]);
    assert_eq!(engine.names_of("acc", "ana").await.expect("read"), ["Ana/"]);

    let gone = Changes {
        gone_events: vec![event(5)],
        gone_items: vec![5, 6],
        gone_lanes: vec![lane(None).hash],
        gone_provider_names: vec![name_hash("acc", "w/1")],
        gone_outs: vec![7],
        gone_messages: vec![7],
        ..Changes::default()
    };
    save(&**engine, all(), gone).await;
    let seen = engine.peek(&all()).await.expect("read");
    assert!(seen.events.is_empty() && seen.items.is_empty() && seen.lanes.is_empty() && seen.provider_names.is_empty());
    assert!(seen.messages.is_empty() && seen.outs.is_empty() && seen.lowest.is_empty() && seen.sending.is_empty());
    assert_eq!(engine.answer(5).await.expect("read"), None);
    assert!(engine.list_attempts(Queue::Inbox, &[5]).await.expect("read").is_empty());
    assert!(engine.list_attempts(Queue::Outbox, &[7]).await.expect("read").is_empty());
    assert!(engine.list_outs(&OutboxQuery::default(), None, 9).await.expect("read").is_empty());
}

/// Two transactions see the same; the second to commit comes to nothing, whatever they wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_must_still_be_so() {
    let Some(emulator) = Emulator::start().await else { return };
    let (one, other) = (emulator.open().await, emulator.open().await);
    let lane = lane(None);
    save(&**one.engine(), Wanted::default(), Changes { new_lanes: vec![lane.clone()], ..Changes::default() }).await;
    let see = Wanted { lanes: vec![lane.hash], ..Wanted::default() };
    let adds = Changes { new_items: vec![item(5)], ..Changes::default() };
    let removes = Changes { gone_lanes: vec![lane.hash], ..Changes::default() };
    for (first, second) in [(&adds, &removes), (&removes, &Changes { new_items: vec![item(6)], ..Changes::default() })] {
        let mut a = one.engine().begin(Pool::Ingest, 0).await.expect("begun");
        let mut b = other.engine().begin(Pool::Workers, 0).await.expect("begun");
        a.load(&see).await.expect("loaded");
        b.load(&see).await.expect("loaded");
        a.save(first.clone()).await.expect("saved");
        b.save(second.clone()).await.expect("saved");
        a.commit().await.expect("the first is committed");
        assert!(matches!(b.commit().await, Err(TxError::Conflict(_))), "the second saw what is no longer so");
    }
    let key = KeyRec { key: [1; 32], event: 1, at_ms: START_MS, fingerprint: u32::MAX, expires_ms: START_MS + 1 };
    let mut a = one.engine().begin(Pool::Ingest, 0).await.expect("begun");
    let mut b = other.engine().begin(Pool::Ingest, 0).await.expect("begun");
    assert_eq!(a.claim(std::slice::from_ref(&key)).await.expect("free"), [None]);
    assert_eq!(b.claim(std::slice::from_ref(&key)).await.expect("free"), [None]);
    a.commit().await.expect("the first is committed");
    assert!(matches!(b.commit().await, Err(TxError::Conflict(_))), "one of two claims counts");
    let mut again = other.engine().begin(Pool::Ingest, 0).await.expect("begun");
    assert_eq!(again.claim(std::slice::from_ref(&key)).await.expect("held"), [Some(key)]);
}

/// Numbers and times of instances that take turns only grow, by the server's own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_grow_from_one_instance_to_the_next() {
    let Some(emulator) = Emulator::start().await else { return };
    let url = &emulator.url;
    let one = hapax_store_firestore::open(url, None).await.expect("opens");
    let other = hapax_store_firestore::open(url, None).await.expect("opens");
    let (mut last, mut last_ms) = (0, 0);
    for turn in 0..6_u64 {
        let store = if turn % 2 == 0 { &one } else { &other };
        let mut tx = store.engine().begin(Pool::Ingest, 2_000).await.expect("begun");
        assert!(tx.now_ms() >= last_ms);
        last_ms = tx.now_ms();
        for _ in 0..2_000 {
            let number = tx.number();
            assert!(number > last, "turn {turn}");
            last = number;
        }
        let setting = ItemRec { number: last, ..item(turn) };
        tx.save(Changes { new_items: vec![setting], ..Changes::default() }).await.expect("saved");
        tx.commit().await.expect("committed");
    }
    assert_eq!(MessageId(ids::numbered(last_ms, last)).to_string().len(), 36);
    assert!(matches!(one.promise(), hapax_store::Promise::Degraded(_)), "the emulator says what it is");
}
