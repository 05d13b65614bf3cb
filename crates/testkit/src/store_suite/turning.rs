//! Turns: messages of a thread that come shortly after each other are one item, whatever happens to it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax_domain::{Coalesce, Event, EventId, EventKey, Kind};
use hapax_store::{Arrival, Disposition, InboxLease, LeasedPart, Outcome, Redrive, Settled, Store};

use crate::store_fixture::{HOLD_MS, StoreFixture, accept, accept_one, ids, lease, message, notice, webhook, webhook_then};

const COALESCE: Coalesce = Coalesce { quiet_ms: 3_000, max_ms: 8_000, members: 5 };
const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

fn gathered(events: Vec<Event>) -> Arrival {
    Arrival { coalesce: Some(COALESCE), ..webhook(events) }
}

async fn say(store: &dyn Store, id: &str, peer: &str) -> EventId {
    let body = Bytes::from(format!("{{\"id\":\"{id}\"}}"));
    accept(store, Arrival { body, ..gathered(vec![message(id, peer)]) }).await[0].event()
}

async fn lease_one(store: &dyn Store) -> InboxLease {
    let mut leases = lease(store, 10).await;
    assert_eq!(leases.len(), 1, "one turn is due");
    leases.remove(0)
}

async fn settle(store: &dyn Store, lease: &InboxLease, outcome: Outcome) {
    assert_eq!(store.settle_inbox(lease.lane, lease.fence, outcome).await.ok(), Some(Settled::Done));
}

pub async fn messages_in_a_quiet_time_are_one_turn(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut members = Vec::new();
    for n in 0..4 {
        members.push(say(&*store, &format!("m{n}"), "ana").await);
        assert!(lease(&*store, 10).await.is_empty(), "more may come");
        fixture.clock().advance(500);
    }
    let other = say(&*store, "b1", "bob").await;
    fixture.clock().advance(2_500);
    let turn = lease_one(&*store).await;
    assert_eq!(ids(&turn), members);
    assert_eq!((&turn.body[..], turn.webhook_events), (&b"{\"id\":\"m0\"}"[..], 1));
    let part = |n: usize| LeasedPart { body: Bytes::from(format!("{{\"id\":\"m{n}\"}}")), webhook_events: 1, events: 1 };
    assert_eq!(turn.rest, [part(1), part(2), part(3)]);
    // While it is with the bot, the next begins.
    let fifth = say(&*store, "m4", "ana").await;
    settle(&*store, &turn, DELIVERED).await;
    fixture.clock().advance(3_000);
    let mut next: Vec<_> = lease(&*store, 10).await.iter().map(ids).collect();
    next.sort();
    assert_eq!(next, [vec![other], vec![fifth]]);
}

pub async fn a_turn_ends_when_it_lasts_too_long_or_is_full(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for n in 0..4 {
        say(&*store, &format!("a{n}"), "ana").await;
        fixture.clock().advance(2_000);
    }
    assert_eq!(lease_one(&*store).await.events.len(), 4, "eight seconds are over");
    for n in 0..6 {
        say(&*store, &format!("b{n}"), "bob").await;
    }
    fixture.clock().advance(3_000);
    let turn = lease_one(&*store).await;
    assert_eq!(turn.events.len(), 5);
    settle(&*store, &turn, DELIVERED).await;
    assert_eq!(lease_one(&*store).await.events.len(), 1, "the sixth is a turn of its own");
}

pub async fn a_turn_is_repeated_with_exactly_its_members(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let members = vec![say(&*store, "m1", "ana").await, say(&*store, "m2", "ana").await];
    fixture.clock().advance(3_000);
    let first = lease_one(&*store).await;
    drop(store);
    let store = fixture.crash();
    let later = say(&*store, "m3", "ana").await;
    fixture.clock().advance(HOLD_MS);
    let again = lease_one(&*store).await;
    assert_eq!((ids(&again), again.attempt), (members.clone(), 2), "a crash repeats the turn");
    assert!(again.fence > first.fence);
    settle(&*store, &again, Outcome::HandBack { wait_ms: 0, why: None, called: false }).await;
    say(&*store, "m4", "ana").await;
    let handed = lease_one(&*store).await;
    assert_eq!(ids(&handed), members, "its members were fixed when it was first given out");
    settle(&*store, &handed, Outcome::Retry { wait_ms: 0, why: "503".to_owned() }).await;
    let tried = lease_one(&*store).await;
    assert_eq!(ids(&tried), members);
    settle(&*store, &tried, DELIVERED).await;
    assert_eq!(ids(&lease_one(&*store).await)[0], later);
}

pub async fn an_open_turn_outlives_a_crash(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = say(&*store, "m1", "ana").await;
    drop(store);
    let store = fixture.crash();
    let second = say(&*store, "m2", "ana").await;
    fixture.clock().advance(2_999);
    assert!(lease(&*store, 10).await.is_empty());
    fixture.clock().advance(1);
    assert_eq!(ids(&lease_one(&*store).await), [first, second]);
}

pub async fn a_turn_is_parked_redriven_and_purged_as_a_whole(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let members = vec![say(&*store, "m1", "ana").await, say(&*store, "m2", "ana").await];
    fixture.clock().advance(3_000);
    let turn = lease_one(&*store).await;
    settle(&*store, &turn, Outcome::Parked { why: "no".to_owned(), charged: true }).await;
    for member in &members {
        let detail = store.event(*member).await.expect("answered").expect("there");
        assert_eq!((detail.row.state.name(), detail.open.len(), detail.open[0].events), ("parked", 1, 2));
    }
    let day = 86_400_000;
    fixture.clock().advance(2 * day);
    store.purge(&[("shop".to_owned(), day)], 100).await.expect("purged");
    assert_eq!(store.redrive(Redrive::Event(members[1]), 10).await.ok(), Some(1), "by any of its members");
    let turn = lease_one(&*store).await;
    assert_eq!((ids(&turn), turn.rest.len(), turn.attempt), (members.clone(), 1, 2), "both webhooks were kept");
    settle(&*store, &turn, DELIVERED).await;
    assert!(store.replay(members[1]).await.expect("answered").is_some());
    let replay = lease_one(&*store).await;
    assert_eq!((ids(&replay), replay.rest.len()), (vec![members[1]], 0), "a replay is of one event");
    settle(&*store, &replay, DELIVERED).await;
    while store.purge(&[("shop".to_owned(), day)], 100).await.expect("purged").more {}
    for member in &members {
        assert!(store.event(*member).await.expect("answered").is_none(), "nothing holds them any more");
    }
}

pub async fn what_is_not_gathered_ends_a_turn_and_keeps_its_place(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let (first, plain) = (say(&*store, "m1", "ana").await, accept_one(&*store, message("m2", "ana")).await);
    let third = say(&*store, "m3", "ana").await;
    let alone = accept(&*store, gathered(vec![notice("n1")])).await[0].event();
    assert_eq!(ids(&lease_one(&*store).await), [alone], "what waits in no thread waits for nobody");
    fixture.clock().advance(3_000);
    for expected in [first, plain, third] {
        let turn = lease_one(&*store).await;
        assert_eq!(ids(&turn), [expected]);
        settle(&*store, &turn, DELIVERED).await;
    }
}

pub async fn a_join_of_lanes_ends_their_turns(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let phone = say(&*store, "m1", "phone").await;
    let lid = say(&*store, "m2", "lid").await;
    let both = gathered(vec![Event { aliases: vec!["lid".to_owned()], ..message("m3", "phone") }]);
    let taught = accept(&*store, both).await[0].event();
    let after = say(&*store, "m4", "lid").await;
    fixture.clock().advance(3_000);
    for expected in [vec![phone], vec![lid], vec![taught, after]] {
        let turn = lease_one(&*store).await;
        assert_eq!(ids(&turn), expected);
        settle(&*store, &turn, DELIVERED).await;
    }
}

fn by(id: &str, peer: &str, alias: &str) -> Event {
    Event { aliases: vec![alias.to_owned()], ..message(id, peer) }
}

/// Teaches no names.
fn reaction(id: &str, peer: &str, aliases: &[&str]) -> Event {
    let key = EventKey::new("generic", "acc", Kind::Reaction, id, &[]);
    let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    Event { kind: Kind::Reaction, key, aliases, ..message(id, peer) }
}

async fn say_all(store: &dyn Store, events: Vec<Event>) -> Vec<EventId> {
    accept(store, gathered(events)).await.iter().map(|one| one.event()).collect()
}

/// What waits under `new` waits in the lane of `ana`, and nobody knows that these are one person. Gives what waits there.
async fn lane_of_two_names(store: &dyn Store) -> Vec<EventId> {
    accept(store, webhook_then(vec![(message("m0", "ana"), Disposition::Keep)])).await;
    let apart = accept_one(store, reaction("e1", "new", &[])).await;
    vec![apart, accept_one(store, reaction("e2", "new", &["ana"])).await]
}

/// Takes all turns there are once it was quiet; one at a time.
async fn turns(fixture: &dyn StoreFixture, store: &dyn Store) -> Vec<Vec<EventId>> {
    let mut turns = Vec::new();
    fixture.clock().advance(3_000);
    while let Some(turn) = lease(store, 10).await.pop() {
        settle(store, &turn, DELIVERED).await;
        turns.push(ids(&turn));
        fixture.clock().advance(3_000);
    }
    turns
}

pub async fn who_waits_in_one_lane_under_two_names_has_one_turn(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let before = lane_of_two_names(&*store).await;
    let turn = say_all(&*store, vec![reaction("e3", "new", &[]), message("m1", "ana"), reaction("e4", "new", &[])]).await;
    assert_eq!(turns(fixture, &*store).await, [vec![before[0]], vec![before[1]], turn]);
}

pub async fn a_turn_is_full_whatever_the_names_in_it(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let before = lane_of_two_names(&*store).await;
    let mut full = say_all(&*store, (1..5).map(|n| message(&format!("m{n}"), "ana")).collect()).await;
    let more = say_all(&*store, vec![reaction("e3", "new", &[]), message("m5", "ana")]).await;
    full.push(more[0]);
    assert_eq!(turns(fixture, &*store).await, [vec![before[0]], vec![before[1]], full, vec![more[1]]]);
}

pub async fn a_join_in_a_webhook_ends_the_turns_of_all_its_names(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut waiting = lane_of_two_names(&*store).await;
    waiting.push(accept_one(&*store, message("l1", "lid")).await);
    let said = say_all(&*store, vec![reaction("e3", "new", &[]), by("m1", "ana", "lid"), message("m2", "ana")]).await;
    let mut expected: Vec<_> = waiting.into_iter().map(|event| vec![event]).collect();
    expected.extend([vec![said[0]], vec![said[1], said[2]]]);
    assert_eq!(turns(fixture, &*store).await, expected);
}

pub async fn what_is_in_line_by_an_alias_ends_the_turn_there(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let open = say(&*store, "m1", "ana").await;
    let said = say_all(&*store, vec![reaction("e1", "new", &[]), reaction("e2", "new", &["ana"])]).await;
    assert_eq!(turns(fixture, &*store).await, [vec![open], vec![said[0]], vec![said[1]]]);
}

pub async fn a_name_under_which_nothing_waits_ends_no_turn(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut turn = vec![say(&*store, "m1", "ana").await];
    drop(store);
    let store = fixture.crash();
    // Nobody has asked for what waits in this channel since the crash.
    let elsewhere = Arrival { channel: "other".into(), ..webhook_then(vec![(by("o1", "ana", "lid"), Disposition::Keep)]) };
    accept(&*store, elsewhere).await;
    turn.push(say(&*store, "m2", "ana").await);
    accept(&*store, webhook_then(vec![(by("m3", "ana", "phone"), Disposition::Keep)])).await;
    turn.push(say(&*store, "m4", "lid").await);
    assert_eq!(turns(fixture, &*store).await, [turn]);
}

pub async fn each_message_is_in_one_turn_with_two_instances_at_once(fixture: &dyn StoreFixture) {
    let first = fixture.open();
    let second = if fixture.shares() { fixture.open() } else { Arc::clone(&first) };
    let store = |n: usize| if n.is_multiple_of(2) { &first } else { &second };
    let accepted = join_all((0..40).map(|n| {
        let arrival = Arrival {
            coalesce: Some(Coalesce { members: 7, ..COALESCE }),
            ..webhook(vec![message(&format!("m{n}"), ["ana", "bob"][n % 2])])
        };
        async move { accept(&**store(n / 2), arrival).await[0].event() }
    }))
    .await;
    fixture.clock().advance(3_000);
    let mut seen = Vec::new();
    loop {
        let (one, other) = tokio::join!(lease(&*first, 5), lease(&*second, 5));
        if one.is_empty() && other.is_empty() {
            break;
        }
        for turn in one.iter().chain(&other) {
            assert!(turn.events.len() <= 7);
            seen.extend(ids(turn));
            settle(&*first, turn, DELIVERED).await;
        }
    }
    let mut expected = accepted;
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
}
