//! Asking: what is shown is what is there, and purge takes only what nobody needs.

use bytes::Bytes;
use hapax_domain::ids::{self, number_of};
use hapax_domain::{Event, EventId, EventKey, Kind, ThreadId};
use hapax_store::{Arrival, Copies, Disposition, EventQuery, EventState, InboxQuery, ItemState, NewMessage, Outcome, Store};

use crate::store_fixture::{
    HOLD_MS, START_MS, StoreFixture, WINDOW_MS, accept, accept_one, lease, message, notice, webhook, webhook_then,
};
use crate::store_suite::sending::outgoing;

const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

fn fine<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

async fn purge_all(store: &dyn Store, keep_ms: i64) -> u64 {
    let mut events = 0;
    loop {
        let purged = fine(store.purge(&[("shop".to_owned(), keep_ms)], 10).await);
        events += purged.events;
        if !purged.more {
            return events;
        }
    }
}

pub async fn kept_and_quarantined_events_are_shown_and_not_delivered(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let odd = Event { key: EventKey::from_content("generic", "acc", b"odd"), ..notice("") };
    let quarantine = Disposition::Quarantine { why: "no id".to_owned(), part: Bytes::from_static(b"odd") };
    let accepted = accept(&*store, webhook_then(vec![(odd, quarantine), (message("m1", "ana"), Disposition::Keep)])).await;
    assert!(lease(&*store, 10).await.is_empty());
    let odd = fine(store.event(accepted[0].event()).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((odd.row.state, &odd.body[..]), (EventState::Quarantined, &b"odd"[..]));
    assert_eq!(odd.open.iter().map(|row| row.why.as_deref()).collect::<Vec<_>>(), [Some("no id")]);
    let kept = fine(store.event(accepted[1].event()).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!((kept.row.state, &kept.body[..]), (EventState::Kept, &b"{\"events\":2}"[..]));
    let parked = fine(store.inbox(InboxQuery { parked: Some(true), limit: 10, ..InboxQuery::default() }).await);
    assert_eq!(parked.rows.iter().map(|row| row.state.clone()).collect::<Vec<_>>(), [ItemState::Quarantined]);
    assert_eq!(fine(store.replay(accepted[0].event()).await), None, "what cannot be read cannot be replayed");
    assert_eq!(fine(store.redrive(hapax_store::Redrive::All, 10).await), 0);
}

pub async fn states_and_attempts_tell_the_story(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = accept_one(&*store, message("m1", "ana")).await;
    lease(&*store, 1).await;
    fixture.clock().advance(HOLD_MS);
    let held = lease(&*store, 1).await.remove(0);
    fine(store.settle_inbox(held.lane, held.fence, Outcome::Retry { wait_ms: 10, why: "503".to_owned() }).await);
    fixture.clock().advance(10);
    let held = lease(&*store, 1).await.remove(0);
    let open = fine(store.inbox(InboxQuery { limit: 10, ..InboxQuery::default() }).await).rows.remove(0);
    let leased = ItemState::Leased { worker: "worker".to_owned(), until_ms: held.until_ms, fence: held.fence };
    assert_eq!((open.state, open.attempt, open.failures, open.why.as_deref()), (leased, 3, 1, Some("503")));
    fine(store.settle_inbox(held.lane, held.fence, DELIVERED).await);
    let detail = fine(store.event(id).await).unwrap_or_else(|| unreachable!("it is there"));
    let story: Vec<_> = detail.attempts.iter().map(|row| (row.attempt, row.outcome.as_str(), row.detail.as_str())).collect();
    assert_eq!(story, [(1, "lost", "the lease ran out"), (2, "retry", "503"), (3, "delivered", "200")]);
    assert!(detail.attempts.iter().all(|row| row.item.0 == id.0 && row.worker == "worker"));
    assert!(detail.attempts.windows(2).all(|pair| pair[0].fence < pair[1].fence));
    assert!(detail.open.is_empty());
}

pub async fn many_events_are_read_together_as_each_by_itself(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let kept = |event| (event, Disposition::Keep);
    let events: Vec<EventId> = [
        accept(&*store, webhook(vec![message("m1", "ana"), message("m2", "bob"), message("m3", "cleo")])).await,
        accept(&*store, webhook_then(vec![kept(message("m4", "ana")), kept(notice("n1"))])).await,
    ]
    .concat()
    .into_iter()
    .map(|accepted| accepted.event())
    .collect();
    let copies = |event, copies| Copies { event, copies, conflicts: 0, last_ms: 10, kept: None };
    fine(store.note_copies(vec![copies(events[0], 2), copies(events[4], 5)]).await);
    for held in lease(&*store, 10).await {
        let outcome = match held.events[0].id {
            id if id == events[0] => Outcome::Retry { wait_ms: 10, why: "503".to_owned() },
            id if id == events[1] => Outcome::Parked { why: "410".to_owned(), charged: true },
            _ => DELIVERED,
        };
        fine(store.settle_inbox(held.lane, held.fence, outcome).await);
    }
    assert!(fine(store.replay(events[2]).await).is_some());
    let other_time = EventId(ids::numbered(1, number_of(events[0].0)));
    let unknown = EventId(ids::numbered(START_MS, 1 << 40));

    let asked = vec![events[3], unknown, events[0], events[2], other_time, events[4], events[1], events[0]];
    let told = fine(store.details(asked.clone()).await);
    assert_eq!(told.len(), asked.len());
    for (id, told) in asked.into_iter().zip(told) {
        assert_eq!(told, fine(store.event(id).await), "{id}");
        let Some(told) = told else {
            assert!([unknown, other_time].contains(&id), "{id} is there");
            continue;
        };
        let at = events.iter().position(|event| *event == id).unwrap_or_else(|| unreachable!("{id} is not there"));
        let state = [EventState::Waiting, EventState::Parked, EventState::Delivered, EventState::Kept, EventState::Kept][at];
        assert_eq!((told.row.id, told.row.state), (id, state));
        assert_eq!(told.body, if at < 3 { "{\"events\":3}" } else { "{\"events\":2}" });
        assert_eq!(told.copies.map(|copies| copies.copies), [Some(2), None, None, None, Some(5)][at]);
        assert_eq!(told.attempts.len(), [1, 1, 1, 0, 0][at]);
        let open: Vec<bool> = told.open.iter().map(|row| row.replay.is_some()).collect();
        assert_eq!(open, [vec![false], vec![false], vec![true], vec![], vec![]][at]);
    }
    assert_eq!(fine(store.details(Vec::new()).await), []);
}

pub async fn lists_are_paged_and_filtered(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut sent = Vec::new();
    for n in 0..7 {
        let peer = if n % 2 == 0 { "ana" } else { "bob" };
        sent.push(accept_one(&*store, message(&format!("m{n}"), peer)).await);
        fixture.clock().advance(700);
    }
    let note = accept_one(&*store, notice("n1")).await;
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = fine(store.events(EventQuery { before, limit: 3, ..EventQuery::default() }).await);
        seen.extend(page.rows.iter().map(|row| row.id));
        before = seen.last().copied();
        if !page.more {
            break;
        }
    }
    let newest_first: Vec<_> = std::iter::once(note).chain(sent.iter().rev().copied()).collect();
    assert_eq!(seen, newest_first);
    let bob = ThreadId { account: "acc".to_owned(), peer: "bob".to_owned() };
    let thread = fine(store.events(EventQuery { thread: Some(bob), limit: 10, ..EventQuery::default() }).await);
    assert_eq!(thread.rows.len(), 3);
    let notices = fine(store.events(EventQuery { kind: Some(Kind::Notice), limit: 10, ..EventQuery::default() }).await);
    assert_eq!(notices.rows.iter().map(|row| row.provider_id.as_str()).collect::<Vec<_>>(), ["n1"]);
    let other = EventQuery { channel: Some("other".to_owned()), limit: 10, ..EventQuery::default() };
    assert!(fine(store.events(other).await).rows.is_empty());
    let page = fine(store.inbox(InboxQuery { limit: 5, ..InboxQuery::default() }).await);
    assert_eq!((page.rows.len(), page.more), (5, true));
    let after = page.rows.last().map(|row| row.item);
    let rest = fine(store.inbox(InboxQuery { after, limit: 5, ..InboxQuery::default() }).await);
    assert_eq!((rest.rows.len(), rest.more), (3, false));
}

pub async fn purge_forgets_old_events_and_nothing_open(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(accept_one(&*store, notice(&format!("n{n}"))).await);
    }
    for held in lease(&*store, 28).await {
        let outcome =
            if held.events[0].id == ids[3] { Outcome::Parked { why: "no".to_owned(), charged: true } } else { DELIVERED };
        fine(store.settle_inbox(held.lane, held.fence, outcome).await);
    }
    assert_eq!(purge_all(&*store, 1_000).await, 0, "too young");
    fixture.clock().advance(1_000);
    assert_eq!(purge_all(&*store, 1_000).await, 27);
    let left = fine(store.events(EventQuery { limit: 50, ..EventQuery::default() }).await);
    assert_eq!(left.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [ids[29], ids[28], ids[3]]);
    assert!(!accept(&*store, webhook(vec![notice("n0")])).await[0].is_new(), "its key is remembered for the window");
    drop(store);
    let store = fixture.crash();
    let fresh = accept_one(&*store, notice("fresh")).await;
    assert!(!ids.contains(&fresh), "no id is given twice");
    fixture.clock().advance(WINDOW_MS + 120_000);
    purge_all(&*store, WINDOW_MS * 2).await;
    assert!(accept(&*store, webhook(vec![notice("n0")])).await[0].is_new());
}

pub async fn purge_keeps_a_body_that_others_need(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let batch = webhook(vec![message("m1", "ana"), message("m2", "bob")]);
    let accepted = accept(&*store, batch).await;
    for held in lease(&*store, 10).await {
        if held.events[0].id == accepted[0].event() {
            fine(store.settle_inbox(held.lane, held.fence, DELIVERED).await);
        }
    }
    fixture.clock().advance(HOLD_MS);
    purge_all(&*store, 1_000).await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!(&held.body[..], b"{\"events\":2}");
}

pub async fn a_purge_step_removes_a_bounded_number(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for webhook in 0..5 {
        let events = (0..100).map(|n| (notice(&format!("n{webhook}.{n}")), Disposition::Keep)).collect();
        accept(&*store, webhook_then(events)).await;
    }
    fixture.clock().advance(1_000);
    let mut steps = Vec::new();
    loop {
        let step = fine(store.purge(&[("shop".to_owned(), 1_000)], 150).await);
        steps.push(step.events);
        if !step.more {
            break;
        }
    }
    assert!(steps.iter().all(|events| *events <= 250), "no more than one webhook beyond what was asked: {steps:?}");
    assert_eq!(steps.iter().sum::<u64>(), 500);
}

/// What one channel keeps for long is looked at in every round, and ends it nevertheless.
pub async fn a_purge_with_two_retentions_comes_to_its_end(fixture: &dyn StoreFixture) {
    const SHORT_MS: i64 = 1_000;
    const LONG_MS: i64 = 1_000_000;
    let store = fixture.open();
    let thread = |peer: String| ThreadId { account: "acc".to_owned(), peer };
    let mut kept = Vec::new();
    for n in 0..5 {
        for (channel, peer) in [("long", format!("kept {n}")), ("shop", format!("silent {n}"))] {
            let said = webhook_then(vec![(message(&format!("of {peer}"), &peer), Disposition::Keep)]);
            accept(&*store, Arrival { channel: channel.into(), ..said }).await;
        }
        let sent = NewMessage { channel: "long".into(), ..outgoing(&format!("r{n}"), &format!("written to {n}")) };
        let id = fine(store.submit(sent).await).message();
        fine(store.cancel_message(id).await);
        kept.push(id);
        fixture.clock().advance(10);
    }
    fixture.clock().advance(SHORT_MS);
    let retention = [("shop".to_owned(), SHORT_MS), ("long".to_owned(), LONG_MS)];
    for max in [1, 2] {
        let mut steps = 0;
        while fine(store.purge(&retention, max).await).more {
            steps += 1;
            assert!(steps < 500, "{max} at a time never come to an end");
        }
    }
    for n in 0..5 {
        assert_eq!(fine(store.thread(&thread(format!("silent {n}"))).await), None);
        for peer in [format!("kept {n}"), format!("written to {n}")] {
            assert!(fine(store.thread(&thread(peer.clone())).await).is_some(), "{peer}");
        }
    }
    for id in kept {
        assert!(fine(store.message(id).await).is_some(), "{id}");
    }
    fixture.clock().advance(LONG_MS);
    let mut steps = 0;
    while fine(store.purge(&retention, 2).await).more {
        steps += 1;
        assert!(steps < 500, "the rest never comes to an end");
    }
    assert_eq!(fine(store.stats().await).events, 0);
    assert_eq!(fine(store.thread(&thread("kept 0".to_owned())).await), None);
    assert_eq!(fine(store.thread(&thread("written to 0".to_owned())).await), None);
}

pub async fn the_number_of_a_replay_is_not_given_twice(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let event = accept_one(&*store, notice("n1")).await;
    let item = fine(store.replay(event).await).unwrap_or_else(|| unreachable!("it is there"));
    for _ in 0..2 {
        for held in lease(&*store, 10).await {
            fine(store.settle_inbox(held.lane, held.fence, DELIVERED).await);
        }
    }
    drop(store);
    let store = fixture.crash();
    let next = accept_one(&*store, notice("n2")).await;
    assert!(number_of(next.0) > number_of(item.0), "{next} after {item}");
}

pub async fn stats_count_what_is_there(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for n in 0..4 {
        accept_one(&*store, notice(&format!("n{n}"))).await;
    }
    let leases = lease(&*store, 3).await;
    fine(store.settle_inbox(leases[0].lane, leases[0].fence, DELIVERED).await);
    fine(store.settle_inbox(leases[1].lane, leases[1].fence, Outcome::Parked { why: "no".to_owned(), charged: true }).await);
    let stats = fine(store.stats().await);
    assert_eq!((stats.keys, stats.events), (4, 4));
    let [shop] = &stats.channels[..] else { unreachable!("one channel, not {}", stats.channels.len()) };
    assert_eq!((shop.waiting, shop.leased, shop.parked, shop.quarantined), (1, 1, 1, 0));
    assert_eq!(shop.oldest_ms, Some(crate::store_fixture::START_MS));
}
