//! Every record is read back as it was written, whatever its texts and bytes are.

use bytes::Bytes;
use hapax_domain::age::Dated;
use hapax_domain::{Direction, EventId, Kind, Priority, Status, Steps, ThreadId, ids};
use hapax_store::steps::records::*;
use hapax_store::steps::{Changes, Engine as _, Entry, Pool, Tx, TxError, Wanted};
use hapax_store::{Answer, Copies, EventQuery, InboxQuery, KeptHeaders, OutboxQuery, ThreadQuery};
use hapax_store_mysql as mysql;
use hapax_store_mysql::MysqlEngine;

/// Nothing in it may end a literal, be cut off, or be taken for another text.
const ODD: &str = "it's \"odd\" \\' %_ \u{0}\u{1F600} é ; -- \n ";

fn event(number: u64, body: &[u8]) -> EventRec {
    let carried = Carried { headers: KeptHeaders(b"x: \xff\n".to_vec()), body: Bytes::copy_from_slice(body), events: 3 };
    EventRec {
        number,
        webhook: number,
        received_ms: 1_760_000_000_123,
        channel: "shop".into(),
        kind: Kind::Reaction,
        account: ODD.to_owned(),
        id: ODD.to_owned(),
        peer: Some(ODD.to_owned()),
        echo: true,
        at_ms: Some(-5),
        text: Some(ODD.repeat(10_000)),
        index: 2,
        item: Some(7),
        part: true,
        thread: Some(thread_hash(ODD, ODD)),
        replays: 4,
        body_bytes: body.len() as u64,
        carried: Some(carried),
    }
}

fn bare(event: &EventRec) -> EventRec {
    EventRec { carried: None, ..event.clone() }
}

fn item(number: u64, place: ItemPlace) -> ItemRec {
    ItemRec {
        number,
        received_ms: 1,
        channel: "shop".into(),
        lane: [3; 32],
        place,
        events: vec![number, 8, u64::from(u32::MAX)],
        events_ms: 2,
        webhook: 3,
        attempt: 4,
        failures: 2,
        replay: Some(5),
        why: Some(ODD.to_owned()),
        due_ms: 6,
        replies: vec![hapax_testkit::store_suite::sending::outgoing("kept", "ana")],
    }
}

fn lane(hash: Hash, queue: Queue, held: Option<Held>) -> LaneRec {
    let priority = if queue == Queue::Inbox { Priority::Normal } else { Priority::Bulk };
    LaneRec {
        hash,
        queue,
        channel: "shop".into(),
        account: ODD.to_owned(),
        priority,
        first: 9,
        due_ms: 10,
        peer: held.as_ref().map(|_| ODD.to_owned()),
        joined_to: held.as_ref().map(|_| [0; 32]),
        joined: if held.is_some() { vec![[5; 32], [0; 32]] } else { vec![] },
        turn: held.as_ref().map(|_| u64::MAX >> 1),
        alone_ms: None,
        held,
    }
}

fn message(number: u64) -> MessageRec {
    MessageRec {
        number,
        created_ms: 11,
        channel: "shop".into(),
        account: ODD.to_owned(),
        peer: ODD.to_owned(),
        request_id: format!("{ODD}{number}"),
        fingerprint: [0xFE; 32],
        text: None,
        payload: Bytes::from_static(b"\x00\xff'\\"),
        priority: Priority::Reply,
        reply_to: Some(EventId(ids::numbered(1_760_000_000_000, 5))),
        home: [4; 32],
        thread: thread_hash(ODD, ODD),
        provider_id: None,
        steps: Steps::new(vec![(Status::Queued, 11)]),
        past: hapax_domain::Past {
            tries: 3,
            doubt: Some(1),
            rounds: vec![hapax_domain::Round {
                provider_id: Some(ODD.to_owned()),
                why: Some(ODD.to_owned()),
                ..Default::default()
            }],
        },
        why: None,
    }
}

fn out(number: u64, due_ms: Option<i64>, unknown: bool) -> OutRec {
    OutRec {
        number,
        created_ms: 11,
        channel: "shop".into(),
        account: ODD.to_owned(),
        lane: [4; 32],
        priority: Priority::Bulk,
        failures: 2,
        attempt: 2,
        due_ms,
        begun_ms: unknown.then_some(13),
        unknown,
    }
}

fn attempt(queue: Queue, of: u64, fence: u64) -> AttemptRec {
    let (worker, outcome, detail) = (ODD.to_owned(), "retry".to_owned(), ODD.to_owned());
    AttemptRec { queue, of, item: 1, item_ms: 2, attempt: 3, fence, worker, leased_ms: 4, ended_ms: 5, outcome, detail }
}

fn pair() -> (String, String) {
    (ODD.to_owned(), ODD.to_owned())
}

#[tokio::test]
async fn what_comes_in_is_read_back_as_it_was_written() {
    let Some((_, store)) = super::fresh().await else { return };
    let engine = store.engine();
    let small = event(1, b"\x00\xff\xfe'\\\"");
    let large = event(2, &(0..3_u32 << 20).map(|n| n as u8).collect::<Vec<_>>());
    let held = Held { number: 9, attempt: 1, fence: 2, worker: ODD.to_owned(), leased_ms: 3, until_ms: 4 };
    let (free, leased) = (lane([3; 32], Queue::Inbox, None), lane([5; 32], Queue::Outbox, Some(held)));
    let (waiting, parked) = (item(7, ItemPlace::InLane), item(9, ItemPlace::Parked));
    let quarantined = ItemRec { replay: None, why: None, ..item(8, ItemPlace::Quarantined) };
    let answer = Answer { status: 201, content_type: Some(ODD.to_owned()), body: Bytes::from_static(b"\xffok") };
    let changes = Changes {
        new_events: vec![large.clone(), small.clone()],
        new_items: vec![parked.clone(), waiting.clone(), quarantined.clone()],
        new_lanes: vec![leased.clone(), free.clone()],
        attempts: vec![attempt(Queue::Inbox, 1, 3), attempt(Queue::Inbox, 1, 2), attempt(Queue::Outbox, 1, 1)],
        answers: vec![AnswerRec { event: 1, answer: answer.clone() }],
        ..Changes::default()
    };
    super::save(&store, changes).await;

    let wanted = Wanted {
        lanes: vec![free.hash, leased.hash, [9; 32]],
        items: vec![9],
        lowest_items: vec![[3; 32], [9; 32]],
        events: vec![1],
        bodies: vec![2, 3],
        ..Wanted::default()
    };
    let mut tx = engine.begin(Pool::Workers, 0).await.expect("begun");
    for loaded in [tx.load(&wanted).await.expect("loaded"), engine.peek(&wanted).await.expect("peeked")] {
        assert_eq!(loaded.lanes, [(free.hash, free.clone()), (leased.hash, leased.clone())].into());
        assert_eq!(loaded.items, [(7, waiting.clone()), (9, parked.clone())].into());
        assert_eq!(loaded.lowest, [([3; 32], vec![7])].into());
        assert_eq!(loaded.events[&1], bare(&small));
        assert!(loaded.events[&2] == large, "a large body is whole");
    }
    tx.commit().await.expect("nothing was written");
    let with_body = engine.peek(&Wanted { bodies: vec![1], ..Wanted::default() }).await.expect("peeked");
    assert_eq!(with_body.events[&1], small);

    let of_thread = EventQuery { thread: Some(ThreadId { account: ODD.into(), peer: ODD.into() }), ..EventQuery::default() };
    assert_eq!(engine.list_events(&of_thread, Some(2), 9).await.expect("listed"), [bare(&small)]);
    let is_parked = InboxQuery { parked: Some(true), channel: Some("shop".to_owned()), ..InboxQuery::default() };
    assert_eq!(engine.list_items(&is_parked, None, 9).await.expect("listed"), [quarantined, parked.clone()]);
    assert_eq!(engine.list_replays(7).await.expect("listed"), [waiting]);
    let attempts = engine.list_attempts(Queue::Inbox, &[1, 2]).await.expect("listed");
    assert_eq!(attempts, [attempt(Queue::Inbox, 1, 2), attempt(Queue::Inbox, 1, 3)]);
    assert_eq!(engine.answer(1).await.expect("asked"), Some(answer));
    let mut tx = engine.begin(Pool::Workers, 0).await.expect("begun");
    let redriven = tx.parked(&hapax_store::Redrive::Channel("shop".to_owned()), 0, 9).await.expect("asked");
    assert_eq!(redriven, [parked]);

    let copies = Copies { event: small.event_id(), copies: 2, conflicts: 1, last_ms: 5, kept: Some(small.event_id()) };
    let gone = Copies { event: EventId(ids::numbered(0, 99)), ..copies };
    engine.note_copies(&[copies, gone]).await.expect("noted");
    engine.note_copies(&[Copies { last_ms: 3, ..copies }]).await.expect("noted");
    assert_eq!(engine.copies(&[1]).await.expect("asked"), [Copies { copies: 4, conflicts: 2, last_ms: 5, ..copies }]);
    super::save(&store, Changes { replays: vec![(2, 5)], gone_events: vec![small], ..Changes::default() }).await;
    let left = engine.list_events(&EventQuery::default(), None, 9).await.expect("listed");
    assert_eq!(left, [EventRec { replays: 5, ..bare(&large) }]);
    assert_eq!((engine.copies(&[1]).await.expect("asked"), engine.answer(1).await.expect("asked")), (Vec::new(), None));
    assert!(engine.list_attempts(Queue::Inbox, &[1]).await.expect("listed").is_empty());
    assert_eq!(engine.list_attempts(Queue::Outbox, &[1]).await.expect("listed").len(), 1, "a message's attempts stay");
}

/// What the engine finds by webhook, by peer and by thread: numbers of events.
async fn found(engine: &MysqlEngine) -> [Vec<u64>; 4] {
    let numbers = |events: Vec<EventRec>| events.iter().map(|event| event.number).collect::<Vec<_>>();
    let of = |peer: &str| EventQuery {
        thread: Some(ThreadId { account: ODD.to_owned(), peer: peer.to_owned() }),
        ..EventQuery::default()
    };
    let thread = engine.thread_entries(&thread_hash(ODD, ODD), 0, None, 9).await.expect("listed");
    let heads = engine.webhooks_after(0, 9).await.expect("listed");
    let heads: Vec<u64> = heads.iter().map(|row| row.number).collect();
    [
        numbers(engine.events_of(&heads).await.expect("listed")),
        numbers(engine.list_events(&of(ODD), None, 9).await.expect("listed")),
        numbers(engine.list_events(&of("alias"), None, 9).await.expect("listed")),
        thread.iter().map(Entry::number).collect(),
    ]
}

/// An event is listed where it belongs and nowhere else, also one that came before there were lists, and no longer than it is there.
#[tokio::test]
async fn events_are_found_by_webhook_peer_and_thread() {
    let Some((url, store)) = super::fresh().await else { return };
    let plain = |number| EventRec { text: None, ..event(number, b"{}") };
    let events = vec![
        EventRec { peer: None, thread: None, ..plain(1) },
        plain(2),
        EventRec { webhook: 2, carried: None, peer: Some("alias".to_owned()), ..plain(5) },
        EventRec { webhook: 2, carried: None, peer: None, thread: None, ..plain(4) },
        EventRec { thread: None, ..plain(3) },
        EventRec { thread: None, peer: Some(ODD.trim_end().to_owned()), ..plain(6) },
    ];
    super::save(&store, Changes { new_events: events.clone(), ..Changes::default() }).await;
    let all = [vec![1, 2, 4, 5, 3, 6], vec![3, 2], vec![5], vec![5, 2]];
    assert_eq!(found(store.engine()).await, all);
    drop(store);

    super::run(&url, "DROP TABLE hapax_event_lists").await;
    let before = "ALTER TABLE hapax_events ADD COLUMN peer_key BINARY(16) AFTER channel_key, ADD KEY webhook (webhook),
                  ADD KEY of_peer (peer_key, number), ADD KEY of_thread (thread, number)";
    super::run(&url, before).await;
    super::part_names_from_threads(&url).await;
    super::run(&url, "UPDATE hapax_schema SET version = 2").await;
    drop(mysql::open(&url, None).await.expect("it opens"));
    super::part_names_from_threads(&url).await;
    super::run(&url, "UPDATE hapax_schema SET version = 2").await;
    let store = mysql::open(&url, None).await.expect("it opens though most is done");
    assert_eq!(found(store.engine()).await, all);

    super::save(&store, Changes { gone_events: events, ..Changes::default() }).await;
    let left = super::count(&url, "SELECT COUNT(*) FROM hapax_event_lists").await;
    assert_eq!(left, 0, "nothing is listed that is not there");
}

/// Enough for statements that the server has read before, some that are left over, and one too large to go with others.
#[tokio::test]
async fn many_events_at_once_are_read_back_as_they_were_written() {
    let Some((_, store)) = super::fresh().await else { return };
    let mut events: Vec<EventRec> = (1..=400).map(|n| EventRec { text: None, ..event(n, &[n as u8; 9]) }).collect();
    events[1] = EventRec { peer: None, at_ms: None, item: None, thread: None, carried: None, ..events[1].clone() };
    events[300] = event(301, &[0xff; 900_000]);
    super::save(&store, Changes { new_events: events.clone(), ..Changes::default() }).await;
    let read = store.engine().peek(&Wanted { bodies: (1..=400).collect(), ..Wanted::default() }).await.expect("peeked").events;
    for event in &events {
        assert!(read[&event.number] == *event, "event {}", event.number);
    }
    let again = Changes { new_events: events[..128].to_vec(), ..Changes::default() };
    let mut tx = store.engine().begin(Pool::Workers, 0).await.expect("begun");
    tx.save(again).await.expect("saved");
    assert!(matches!(tx.commit().await, Err(TxError::Conflict(_))), "they are there already");
}

fn thread() -> ThreadRec {
    ThreadRec {
        account: ODD.to_owned(),
        peer: ODD.to_owned(),
        channel: "shop".to_owned(),
        last_ms: 14,
        last_text: Some(ODD.to_owned()),
        last_direction: Direction::Out,
        unread: 15,
        purged_to: 16,
        read_to: 5,
    }
}

fn name() -> NameRec {
    NameRec { account: ODD.to_owned(), name: ODD.to_owned(), peer: ODD.to_owned() }
}

fn called() -> ProviderNameRec {
    let early = Steps::new(vec![(Status::Read, 3), (Status::Sent, 2)]);
    ProviderNameRec { account: ODD.to_owned(), provider_id: ODD.to_owned(), message: None, early, heard_ms: 17 }
}

/// Two messages of one thread, three in the outbox, the second of which is in doubt.
fn outgoing() -> Changes {
    Changes {
        new_threads: vec![thread()],
        names: vec![name()],
        new_provider_names: vec![called()],
        new_messages: vec![message(21), message(20)],
        new_outs: vec![out(22, Some(2), false), out(20, Some(1), false), out(21, None, true)],
        ..Changes::default()
    }
}

#[tokio::test]
async fn what_goes_out_is_read_back_as_it_was_written() {
    let Some((_, store)) = super::fresh().await else { return };
    let engine = store.engine();
    super::save(&store, outgoing()).await;
    let wanted = Wanted {
        names: vec![pair(), ("x".to_owned(), ODD.to_owned())],
        threads: vec![thread_hash(ODD, ODD)],
        sending: vec![ODD.to_owned(), "nobody".to_owned()],
        provider_names: vec![pair()],
        requests: vec![request_hash(ODD, &format!("{ODD}20"))],
        lowest_outs: vec![[4; 32]],
        messages: vec![21],
        outs: vec![21],
        ..Wanted::default()
    };
    let outs = outgoing().new_outs.into_iter().map(|out| (out.number, out)).collect::<std::collections::HashMap<_, _>>();
    let mut tx = engine.begin(Pool::Workers, 0).await.expect("begun");
    for loaded in [tx.load(&wanted).await.expect("loaded"), engine.peek(&wanted).await.expect("peeked")] {
        assert_eq!(loaded.names, [(pair(), ODD.to_owned())].into());
        assert_eq!(loaded.threads, [(thread_hash(ODD, ODD), thread())].into());
        assert_eq!(loaded.sending, [ODD.to_owned()].into());
        assert_eq!(loaded.provider_names, [(name_hash(ODD, ODD), called())].into());
        assert_eq!(loaded.messages, [(20, message(20)), (21, message(21))].into());
        assert_eq!(loaded.outs, outs.clone());
        assert_eq!(loaded.lowest, [([4; 32], vec![20, 22])].into());
    }
}

#[tokio::test]
async fn what_changed_on_its_way_out_is_read_back_as_it_was_written() {
    let Some((_, store)) = super::fresh().await else { return };
    let engine = store.engine();
    super::save(&store, outgoing()).await;
    let sent = MessageRec {
        provider_id: Some(ODD.to_owned()),
        steps: Steps::new(vec![(Status::Sent, 30)]),
        why: Some(ODD.to_owned()),
        ..message(20)
    };
    let known = ProviderNameRec { message: Some(20), early: Steps::default(), ..called() };
    let changes = Changes {
        threads: vec![ThreadRec { last_ms: 15, last_direction: Direction::In, last_text: None, ..thread() }],
        names: vec![name(), NameRec { account: ODD.to_owned(), name: "b".to_owned(), peer: ODD.to_owned() }],
        provider_names: vec![known.clone()],
        messages: vec![sent.clone()],
        outs: vec![OutRec { attempt: 3, ..out(22, Some(2), false) }],
        gone_outs: vec![20],
        attempts: vec![attempt(Queue::Outbox, 20, 1)],
        ..Changes::default()
    };
    super::save(&store, changes).await;
    let wanted = Wanted { messages: vec![20], outs: vec![20, 22], provider_names: vec![pair()], ..Wanted::default() };
    let after = engine.peek(&wanted).await.expect("peeked");
    assert_eq!((after.messages[&20].clone(), after.provider_names[&name_hash(ODD, ODD)].clone()), (sent.clone(), known));
    assert!(!after.outs.contains_key(&20) && after.outs[&22].attempt == 3);
    assert_eq!(engine.names_of(ODD, ODD).await.expect("listed"), ["b", ODD]);
    let threads = engine.list_threads(&ThreadQuery { account: Some(ODD.into()), ..ThreadQuery::default() }, 9).await;
    assert_eq!(threads.expect("listed")[0].last_ms, 15);
    let in_doubt = OutboxQuery { unknown: true, ..OutboxQuery::default() };
    assert_eq!(engine.list_outs(&in_doubt, None, 9).await.expect("listed"), [out(21, None, true)]);
    let said = engine.thread_entries(&thread_hash(ODD, ODD), 19, Some(21), 9).await.expect("listed");
    assert_eq!(said.iter().map(|entry| entry.number()).collect::<Vec<_>>(), [20]);
    let ended = Dated { number: sent.number, at_ms: sent.created_ms };
    assert_eq!(engine.messages_after(0, 9).await.expect("listed"), [ended]);
    let gone = Changes { gone_messages: vec![20], gone_provider_names: vec![name_hash(ODD, ODD)], ..Changes::default() };
    super::save(&store, gone).await;
    assert!(engine.messages_after(0, 9).await.expect("listed").is_empty());
    assert!(engine.list_attempts(Queue::Outbox, &[20]).await.expect("listed").is_empty());
}

/// Keys are held, refused, and taken over from the moment their window is over.
#[tokio::test]
async fn a_key_is_won_once_and_again_after_its_window() {
    let Some((_, store)) = super::fresh().await else { return };
    let claim = async |expires_in_ms: i64, fingerprint: u32| {
        let mut tx = store.engine().begin(Pool::Ingest, 2).await.expect("begun");
        let (at_ms, event) = (tx.now_ms(), tx.number());
        let key = |n: u8| KeyRec { key: [n; 32], event, at_ms, fingerprint, expires_ms: at_ms + expires_in_ms };
        let holders = tx.claim(&[key(1), key(2)]).await.expect("claimed");
        tx.commit().await.expect("committed");
        (event, holders)
    };
    let (first, holders) = claim(-1, 5).await;
    assert_eq!(holders, [None, None], "free");
    let (second, holders) = claim(60_000, 6).await;
    assert_eq!(holders, [None, None], "its window was over");
    let (_, holders) = claim(60_000, 7).await;
    let held: Vec<_> = holders.into_iter().flatten().map(|holder| (holder.event, holder.fingerprint)).collect();
    assert_eq!(held, [(second, 6), (second, 6)], "the one that took over from {first} holds it");
    assert_eq!(store.engine().purge_keys(10).await.expect("purged"), 0, "nothing is over");
    let mut tx = store.engine().begin(Pool::Ingest, 1).await.expect("begun");
    let (event, at_ms) = (tx.number(), tx.now_ms());
    tx.claim(&[KeyRec { key: [3; 32], event, at_ms, fingerprint: 0, expires_ms: at_ms }]).await.expect("claimed");
    tx.commit().await.expect("committed");
    assert_eq!(store.engine().purge_keys(10).await.expect("purged"), 1);
}

/// One by one or many at once, in one page or several: what is over goes, and with it what names it; the rest stays, and stays named.
#[tokio::test]
async fn expired_keys_go_however_they_were_claimed() {
    let Some((url, store)) = super::fresh().await else { return };
    let claim = async |keys: std::ops::Range<u32>, expires_in_ms: i64| {
        let mut tx = store.engine().begin(Pool::Ingest, keys.len()).await.expect("begun");
        let at_ms = tx.now_ms();
        let mut named = Vec::new();
        for n in keys {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&n.to_be_bytes());
            named.push(KeyRec { key, event: tx.number(), at_ms, fingerprint: 1, expires_ms: at_ms + expires_in_ms });
        }
        assert!(tx.claim(&named).await.expect("claimed").iter().all(Option::is_none));
        tx.commit().await.expect("committed");
    };
    for n in 0..70 {
        claim(n..n + 1, -1).await;
    }
    claim(70..770, -1).await;
    claim(0..2, 60_000).await;
    assert_eq!(store.engine().purge_keys(10).await.expect("purged"), 8 + 10, "of the first ten, two are held anew");
    assert_eq!(store.engine().purge_keys(100).await.expect("purged"), 50 + 700);
    assert_eq!(store.engine().purge_keys(100).await.expect("purged"), 0);
    assert_eq!(super::count(&url, "SELECT COUNT(*) FROM hapax_keys").await, 2);
    assert_eq!(super::count(&url, "SELECT COUNT(*) FROM hapax_expiring").await, 1);
}

/// The server's count of such a claim is that of three new ones: one that is new, none that is held, two that is overdue.
#[tokio::test]
async fn new_held_and_overdue_keys_of_one_claim_are_told_apart() {
    let Some((_, store)) = super::fresh().await else { return };
    let claim = async |keys: &[(u8, i64)]| {
        let mut tx = store.engine().begin(Pool::Ingest, 1).await.expect("begun");
        let (at_ms, event) = (tx.now_ms(), tx.number());
        let key = |&(n, ms): &(u8, i64)| KeyRec { key: [n; 32], event, at_ms, fingerprint: 1, expires_ms: at_ms + ms };
        let holders = tx.claim(&keys.iter().map(key).collect::<Vec<_>>()).await.expect("claimed");
        tx.commit().await.expect("committed");
        (event, holders.into_iter().map(|holder| holder.map(|holder| holder.event)).collect::<Vec<_>>())
    };
    let (first, holders) = claim(&[(1, 60_000), (2, -1)]).await;
    assert_eq!(holders, [None, None]);
    let (second, holders) = claim(&[(1, 60_000), (2, 60_000), (3, 60_000)]).await;
    assert_eq!(holders, [Some(first), None, None]);
    let (_, holders) = claim(&[(2, 60_000)]).await;
    assert_eq!(holders, [Some(second)], "one alone");
    let (_, holders) = claim(&[(4, 60_000)]).await;
    assert_eq!(holders, [None], "one alone");
}
