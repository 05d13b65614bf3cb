//! One person under several names: once the names are known to be one, so are their lanes, whatever was in flight.

use super::sending::{fine, outgoing, row, sent, settle, submit, take};
use crate::store_fixture::{HOLD_MS, StoreFixture, accept, accept_one, ask, ids, lease, message, webhook, webhook_then};
use hapax_domain::{Event, EventId, EventKey, Kind, ThreadId};
use hapax_store::{Arrival, Disposition, InboxLease, LeaseRequest, NewMessage, Outcome, Redrive, SendOutcome, Settled, Store};

const DELIVERED: Outcome = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };

fn by(id: &str, peer: &str, aliases: &[&str]) -> Event {
    Event { aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(), ..message(id, peer) }
}

/// Lets a message say that these are one person, without putting it in line.
async fn teach(store: &dyn Store, peer: &str, alias: &str) {
    let event = by(&format!("{peer} is {alias}"), peer, &[alias]);
    accept(store, webhook_then(vec![(event, Disposition::Keep)])).await;
}

async fn end(store: &dyn Store, held: &InboxLease, outcome: Outcome) -> Settled {
    fine(store.settle_inbox(held.lane, held.fence, outcome).await)
}

fn thread(peer: &str) -> ThreadId {
    ThreadId { account: "acc".to_owned(), peer: peer.to_owned() }
}

fn threads(held: &InboxLease) -> Vec<&str> {
    held.events.iter().filter_map(|event| event.thread.as_ref()).map(|thread| thread.peer.as_str()).collect()
}

/// Takes all there is, one at a time, and nothing beside.
async fn drain(store: &dyn Store) -> Vec<EventId> {
    let mut seen = Vec::new();
    while let Some(held) = lease(store, 10).await.pop() {
        assert!(lease(store, 10).await.is_empty(), "one at a time");
        seen.extend(ids(&held));
        assert_eq!(end(store, &held, DELIVERED).await, Settled::Done);
    }
    seen
}

/// What became of the attempts at an event.
async fn attempts(store: &dyn Store, id: EventId) -> Vec<(u32, String)> {
    let detail = fine(store.event(id).await).unwrap_or_else(|| unreachable!("{id} is there"));
    detail.attempts.into_iter().map(|row| (row.attempt, row.outcome)).collect()
}

pub async fn joined_lanes_are_one_line(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut waiting = Vec::new();
    for (id, peer) in [("m1", "ana"), ("m2", "lid"), ("m3", "lid"), ("m4", "ana")] {
        waiting.push(accept_one(&*store, message(id, peer)).await);
    }
    teach(&*store, "ana", "lid").await;
    waiting.push(accept_one(&*store, message("m5", "lid")).await);
    let held = lease(&*store, 10).await;
    assert_eq!(held.iter().map(ids).collect::<Vec<_>>(), [vec![waiting[0]]], "one at a time");
    assert_eq!(end(&*store, &held[0], DELIVERED).await, Settled::Done);
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), threads(&held)), (vec![waiting[1]], vec!["ana"]), "it has the thread's name");
    assert_eq!(end(&*store, &held, DELIVERED).await, Settled::Done);
    assert_eq!(drain(&*store).await, waiting[2..]);
}

pub async fn what_is_in_flight_at_the_join_may_end(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    accept_one(&*store, message("m2", "lid")).await;
    let held = lease(&*store, 10).await;
    assert_eq!(held.len(), 2);
    let next = [accept_one(&*store, message("m3", "lid")).await, accept_one(&*store, message("m4", "ana")).await];
    teach(&*store, "ana", "lid").await;
    assert!(lease(&*store, 10).await.is_empty());
    let both = held.iter().map(|held| (held.lane, held.fence)).collect();
    assert_eq!(fine(store.extend(both, HOLD_MS).await), [true, true]);
    assert_eq!(end(&*store, &held[0], DELIVERED).await, Settled::Done);
    assert!(lease(&*store, 10).await.is_empty(), "the other is still out");
    assert_eq!(end(&*store, &held[1], DELIVERED).await, Settled::Done);
    assert_eq!(end(&*store, &held[1], DELIVERED).await, Settled::Lost, "an answer counts once");
    let third = lease(&*store, 10).await.remove(0);
    assert!(third.fence > held[0].fence && third.fence > held[1].fence);
    assert_eq!(ids(&third), [next[0]]);
    assert_eq!(end(&*store, &third, DELIVERED).await, Settled::Done);
    assert_eq!(drain(&*store).await, next[1..]);
}

pub async fn what_comes_again_after_a_join_is_in_line_by_its_number(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = accept_one(&*store, message("m1", "ana")).await;
    let second = accept_one(&*store, message("m2", "lid")).await;
    let held = lease(&*store, 10).await;
    let third = accept_one(&*store, message("m3", "ana")).await;
    teach(&*store, "ana", "lid").await;
    let of = |id: EventId| held.iter().find(|held| ids(held) == [id]).unwrap_or_else(|| unreachable!("{id} is out"));
    end(&*store, of(second), Outcome::Retry { wait_ms: 500, why: "503".to_owned() }).await;
    end(&*store, of(first), Outcome::HandBack { wait_ms: 1_000, why: None, called: false }).await;
    fixture.clock().advance(500);
    assert!(lease(&*store, 10).await.is_empty(), "the first of all waits, and all behind it");
    fixture.clock().advance(500);
    let mut order = Vec::new();
    for _ in 0..3 {
        let held = lease(&*store, 10).await.remove(0);
        order.push((ids(&held)[0], held.attempt, held.failures));
        end(&*store, &held, DELIVERED).await;
    }
    assert_eq!(order, [(first, 1, 0), (second, 2, 1), (third, 1, 0)]);
}

pub async fn joined_leases_that_run_out_are_taken_over_together(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = accept_one(&*store, message("m1", "ana")).await;
    let early = lease(&*store, 10).await.remove(0);
    fixture.clock().advance(1_000);
    let second = accept_one(&*store, message("m2", "lid")).await;
    let late = lease(&*store, 10).await.remove(0);
    teach(&*store, "ana", "lid").await;
    fixture.clock().advance(HOLD_MS - 1_000);
    assert!(lease(&*store, 10).await.is_empty(), "one of them holds on");
    fixture.clock().advance(1_000);
    let held = lease(&*store, 10).await;
    assert_eq!(held.iter().map(|held| (ids(held), held.attempt)).collect::<Vec<_>>(), [(vec![first], 2)]);
    for lost in [&early, &late] {
        assert_eq!(end(&*store, lost, DELIVERED).await, Settled::Lost);
    }
    assert_eq!(attempts(&*store, first).await, [(1, "lost".to_owned())]);
    assert_eq!(attempts(&*store, second).await, [(1, "lost".to_owned())]);
    assert_eq!(end(&*store, &held[0], DELIVERED).await, Settled::Done);
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), held.attempt), (vec![second], 2));
}

pub async fn a_late_answer_counts_until_the_joined_lane_is_taken(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m1", "ana")).await;
    let second = accept_one(&*store, message("m2", "lid")).await;
    let held = lease(&*store, 10).await;
    let of_second = held.iter().find(|held| ids(held) == [second]).unwrap_or_else(|| unreachable!("it is out"));
    let of_first = held.iter().find(|held| ids(held) != [second]).unwrap_or_else(|| unreachable!("it is out"));
    teach(&*store, "ana", "lid").await;
    fixture.clock().advance(HOLD_MS);
    assert_eq!(end(&*store, of_first, DELIVERED).await, Settled::Done, "nobody else has begun");
    let again = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&again), again.attempt), (vec![second], 2));
    assert_eq!(end(&*store, of_second, DELIVERED).await, Settled::Lost);
    assert_eq!(end(&*store, &again, DELIVERED).await, Settled::Done);
}

/// The lease that ran out is of the second; the first is not due.
pub async fn a_wait_is_not_cut_short_by_a_join(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    end(&*store, &held, Outcome::Retry { wait_ms: 2 * HOLD_MS, why: "503".to_owned() }).await;
    let second = accept_one(&*store, message("m2", "lid")).await;
    assert_eq!(lease(&*store, 10).await.len(), 1);
    teach(&*store, "ana", "lid").await;
    fixture.clock().advance(HOLD_MS);
    assert!(lease(&*store, 10).await.is_empty());
    assert_eq!(attempts(&*store, second).await, [(1, "lost".to_owned())]);
    fixture.clock().advance(HOLD_MS);
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), held.attempt), (vec![first], 2));
}

pub async fn three_names_of_a_person_are_one_lane(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut waiting = vec![accept_one(&*store, by("m1", "5511", &["BR.1"])).await];
    waiting.push(accept_one(&*store, message("m2", "99@lid")).await);
    let held = lease(&*store, 10).await;
    assert_eq!(held.len(), 2);
    waiting.push(accept_one(&*store, message("m3", "BR.1")).await);
    waiting.push(accept_one(&*store, by("m4", "99@lid", &["5511"])).await);
    waiting.push(accept_one(&*store, message("m5", "BR.1")).await);
    let row = fine(store.thread(&thread("99@lid")).await).unwrap_or_else(|| unreachable!("it is there"));
    assert_eq!(row.aliases, ["5511", "BR.1"]);
    fine(store.submit(outgoing("r1", "BR.1")).await);
    let said = fine(store.thread_messages(&thread("99@lid"), None, 10).await).rows.len();
    assert_eq!(said, 4, "m2, m4, m5 and r1: a name of a name leads there too");
    for held in &held {
        assert!(lease(&*store, 10).await.is_empty());
        assert_eq!(end(&*store, held, DELIVERED).await, Settled::Done);
    }
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), threads(&held)), (vec![waiting[2]], vec!["99@lid"]));
    assert_eq!(end(&*store, &held, DELIVERED).await, Settled::Done);
    assert_eq!(drain(&*store).await, waiting[3..]);
}

pub async fn joined_lanes_are_joined_again(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let peers = ["ana", "lid", "bob", "bid"];
    let (mut out, mut behind) = (Vec::new(), Vec::new());
    for peer in peers {
        accept_one(&*store, message(&format!("{peer}1"), peer)).await;
        out.extend(lease(&*store, 10).await);
    }
    assert_eq!(out.len(), 4);
    for peer in peers {
        behind.push(accept_one(&*store, message(&format!("{peer}2"), peer)).await);
    }
    teach(&*store, "ana", "lid").await;
    teach(&*store, "bob", "bid").await;
    end(&*store, &out[0], DELIVERED).await;
    end(&*store, &out[1], DELIVERED).await;
    // One of the first two again: it is leased under the lane that is joined next.
    let held = lease(&*store, 10).await;
    assert_eq!(held.iter().map(ids).collect::<Vec<_>>(), [vec![behind[0]]]);
    teach(&*store, "bob", "ana").await;
    for held in [&held[0], &out[2], &out[3]] {
        assert!(lease(&*store, 10).await.is_empty(), "something is still out");
        assert_eq!(end(&*store, held, DELIVERED).await, Settled::Done);
    }
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), threads(&held)), (vec![behind[1]], vec!["bob"]));
    assert_eq!(end(&*store, &held, DELIVERED).await, Settled::Done);
    assert_eq!(drain(&*store).await, behind[2..]);
}

pub async fn a_lane_is_joined_into_one_where_nothing_waits(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m0", "lid")).await;
    assert_eq!(drain(&*store).await.len(), 1);
    let first = accept_one(&*store, message("m1", "ana")).await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), threads(&held)), (vec![first], vec!["ana"]));
    teach(&*store, "lid", "ana").await;
    let second = accept_one(&*store, message("m2", "ana")).await;
    assert!(lease(&*store, 10).await.is_empty());
    end(&*store, &held, Outcome::Retry { wait_ms: 0, why: "503".to_owned() }).await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!((ids(&held), held.attempt, threads(&held)), (vec![first], 2, vec!["lid"]));
    end(&*store, &held, DELIVERED).await;
    assert_eq!(drain(&*store).await, [second]);
    // Nothing is left of either; both names are one lane for good.
    accept_one(&*store, message("m3", "ana")).await;
    accept_one(&*store, message("m4", "lid")).await;
    assert_eq!(drain(&*store).await.len(), 2);
}

pub async fn what_is_delivered_again_waits_in_the_lane_of_today(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let parked = accept_one(&*store, message("m1", "lid")).await;
    let held = lease(&*store, 10).await.remove(0);
    end(&*store, &held, Outcome::Parked { why: "no".to_owned(), charged: true }).await;
    accept_one(&*store, message("m2", "ana")).await;
    teach(&*store, "ana", "lid").await;
    let held = lease(&*store, 10).await.remove(0);
    assert_eq!(fine(store.redrive(Redrive::Event(parked), 10).await), 1);
    assert!(fine(store.replay(parked).await).is_some());
    assert!(lease(&*store, 10).await.is_empty(), "the person's lane is held");
    end(&*store, &held, DELIVERED).await;
    for replay in [None, Some(1)] {
        let held = lease(&*store, 10).await;
        let [held] = &held[..] else { unreachable!("one at a time, not {}", held.len()) };
        assert_eq!((ids(held), held.replay, threads(held)), (vec![parked], replay, vec!["ana"]));
        end(&*store, held, DELIVERED).await;
    }
}

/// A reaction waits with the messages of whom it is from, by any of their names, and teaches nothing.
pub async fn what_teaches_no_names_goes_by_those_that_are_known(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, by("m1", "ana", &["lid"])).await;
    let reaction = |id: &str, peer: &str, aliases: &[&str]| {
        let key = EventKey::new("generic", "acc", Kind::Reaction, id, &[]);
        Event { kind: Kind::Reaction, key, ..by(id, peer, aliases) }
    };
    let by_lid = accept_one(&*store, reaction("e1", "lid", &[])).await;
    let by_new = accept_one(&*store, reaction("e2", "new", &["lid"])).await;
    let stranger = accept_one(&*store, reaction("e3", "new", &[])).await;
    let held = lease(&*store, 10).await;
    assert_eq!(held.len(), 2, "ana's, and the stranger's");
    assert_eq!((ids(&held[1]), threads(&held[1])), (vec![stranger], vec!["new"]));
    end(&*store, &held[0], DELIVERED).await;
    for event in [by_lid, by_new] {
        let held = lease(&*store, 10).await.remove(0);
        assert_eq!((ids(&held), threads(&held)), (vec![event], vec!["ana"]));
        end(&*store, &held, DELIVERED).await;
    }
    // The stranger turns out to be one who is known, with the reaction still out.
    let next = accept_one(&*store, by("m2", "ana", &["new"])).await;
    assert!(lease(&*store, 10).await.is_empty());
    end(&*store, &held[1], DELIVERED).await;
    assert_eq!(drain(&*store).await, [next]);
}

/// One webhook that says it in its middle: what came before is joined, what comes after is in line already.
pub async fn names_are_joined_in_the_middle_of_a_webhook(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    accept_one(&*store, message("m0", "ana")).await;
    let events = vec![message("m1", "lid"), message("m2", "ana"), by("m3", "ana", &["lid"]), message("m4", "lid")];
    let new: Vec<EventId> = accept(&*store, webhook(events)).await.iter().map(|one| one.event()).collect();
    let mut items = Vec::new();
    while let Some(held) = lease(&*store, 10).await.pop() {
        assert!(lease(&*store, 10).await.is_empty(), "one at a time");
        items.push(ids(&held));
        end(&*store, &held, DELIVERED).await;
    }
    assert_eq!(items[1..], [vec![new[0]], vec![new[1], new[2], new[3]]]);
}

pub async fn joined_lanes_outlive_a_crash(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut waiting = Vec::new();
    for (id, peer) in [("m1", "ana"), ("m2", "lid"), ("m3", "lid"), ("m4", "ana")] {
        waiting.push(accept_one(&*store, message(id, peer)).await);
    }
    let held = lease(&*store, 10).await;
    assert_eq!(held.len(), 2);
    teach(&*store, "ana", "lid").await;
    drop(store);
    let store = fixture.crash();
    fixture.clock().advance(HOLD_MS);
    assert_eq!(drain(&*store).await, waiting);
    for held in &held {
        assert_eq!(end(&*store, held, DELIVERED).await, Settled::Lost);
    }
}

/// A name speaks for nobody any more when another is joined to it: what waits under it is in a third one's lane.
pub async fn what_joins_a_joined_name_stays_with_it_over_a_crash(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let reaction = |id: &str, peer: &str, aliases: &[&str]| {
        let key = EventKey::new("generic", "acc", Kind::Reaction, id, &[]);
        Event { kind: Kind::Reaction, key, ..by(id, peer, aliases) }
    };
    accept(&*store, webhook_then(vec![(message("m0", "ana"), Disposition::Keep)])).await;
    let mut waiting = Vec::new();
    for event in [reaction("e1", "new", &[]), message("l1", "lid"), reaction("e2", "new", &["ana"])] {
        waiting.push(accept_one(&*store, event).await);
    }
    teach(&*store, "new", "lid").await;
    waiting.push(accept_one(&*store, message("m1", "lid")).await);
    drop(store);
    let store = fixture.crash();
    assert_eq!(drain(&*store).await, waiting);
}

pub async fn many_that_wait_are_joined(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut waiting = Vec::new();
    for n in 0..300 {
        let pair = webhook(vec![message(&format!("a{n}"), "ana"), message(&format!("l{n}"), "lid")]);
        waiting.extend(accept(&*store, pair).await.iter().map(|one| one.event()));
    }
    teach(&*store, "lid", "ana").await;
    for event in &waiting[..12] {
        let held = lease(&*store, 10).await;
        let [held] = &held[..] else { unreachable!("one at a time, not {}", held.len()) };
        assert_eq!((ids(held), threads(held)), (vec![*event], vec!["lid"]));
        end(&*store, held, DELIVERED).await;
    }
}

/// Names are the account's, lanes are the channel's: those of another channel are joined when something under the old name comes there.
pub async fn lanes_of_another_channel_are_joined_when_the_name_comes_there(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let elsewhere = |events: Vec<Event>| Arrival { channel: "other".into(), ..webhook(events) };
    let mut waiting = Vec::new();
    for (id, peer) in [("m1", "ana"), ("m2", "lid")] {
        waiting.extend(accept(&*store, elsewhere(vec![message(id, peer)])).await.iter().map(|one| one.event()));
    }
    teach(&*store, "ana", "lid").await;
    waiting.extend(accept(&*store, elsewhere(vec![message("m3", "lid")])).await.iter().map(|one| one.event()));
    for event in waiting {
        let ask = LeaseRequest { wants: vec![("other".into(), 10)], ..ask(0) };
        let held = fine(store.lease_inbox(ask).await);
        assert_eq!(held.iter().map(ids).collect::<Vec<_>>(), [vec![event]]);
        assert_eq!(threads(&held[0]), ["ana"]);
        end(&*store, &held[0], DELIVERED).await;
    }
}

/// Two instances learn at once that the one is the other and the other the one.
pub async fn names_learned_at_once_lead_to_one(fixture: &dyn StoreFixture) {
    let instances = [fixture.open(), fixture.open()];
    for n in 0..8 {
        let (ana, lid) = (format!("ana{n}"), format!("lid{n}"));
        accept_one(&*instances[0], message(&format!("m{n}"), &ana)).await;
        accept_one(&*instances[0], message(&format!("l{n}"), &lid)).await;
        tokio::join!(teach(&*instances[0], &ana, &lid), teach(&*instances[1], &lid, &ana));
        accept_one(&*instances[0], message(&format!("n{n}"), &lid)).await;
        accept_one(&*instances[1], message(&format!("o{n}"), &ana)).await;
        assert_eq!(drain(&*instances[0]).await.len(), 4);
    }
}

pub async fn joined_lanes_send_in_one_line(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let mut queued = Vec::new();
    for (request, peer) in [("r1", "ana"), ("r2", "lid"), ("r3", "lid"), ("r4", "ana")] {
        queued.push(submit(&*store, outgoing(request, peer)).await);
    }
    teach(&*store, "lid", "ana").await;
    queued.push(submit(&*store, outgoing("r5", "ana")).await);
    for (n, id) in queued.iter().enumerate() {
        let held = take(&*store, 10).await;
        assert_eq!(held.iter().map(|held| held.message).collect::<Vec<_>>(), [*id], "one at a time");
        assert_eq!(fine(store.begin(held[0].lane, held[0].fence).await), Settled::Done);
        settle(&*store, &held[0], sent(&format!("w{n}"))).await;
    }
}

pub async fn what_is_being_sent_at_the_join_may_end(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    submit(&*store, outgoing("r1", "ana")).await;
    let second = submit(&*store, outgoing("r2", "lid")).await;
    let held = take(&*store, 10).await;
    assert_eq!(held.len(), 2);
    let third = submit(&*store, outgoing("r3", "ana")).await;
    assert_eq!(fine(store.begin(held[0].lane, held[0].fence).await), Settled::Done);
    teach(&*store, "ana", "lid").await;
    assert_eq!(fine(store.begin(held[1].lane, held[1].fence).await), Settled::Done);
    assert!(take(&*store, 10).await.is_empty());
    assert_eq!(settle(&*store, &held[0], sent("w1")).await, Settled::Done);
    assert!(take(&*store, 10).await.is_empty(), "the other is still out");
    assert_eq!(fine(store.extend_outbox(vec![(held[1].lane, held[1].fence)], HOLD_MS).await), [true]);
    let retry = SendOutcome::Retry { wait_ms: 500, why: "429".to_owned(), charged: true };
    assert_eq!(settle(&*store, &held[1], retry).await, Settled::Done);
    assert!(take(&*store, 10).await.is_empty(), "the next waits behind it");
    fixture.clock().advance(500);
    let again = take(&*store, 10).await;
    assert_eq!(again.iter().map(|held| (held.message, held.attempt)).collect::<Vec<_>>(), [(second, 2)]);
    assert!(again[0].fence > held[0].fence && again[0].fence > held[1].fence);
    settle(&*store, &again[0], sent("w2")).await;
    assert_eq!(take(&*store, 10).await.iter().map(|held| held.message).collect::<Vec<_>>(), [third]);
}

pub async fn sends_of_joined_lanes_that_were_lost_are_handed_out_in_turn(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let first = submit(&*store, outgoing("r1", "ana")).await;
    let second = submit(&*store, outgoing("r2", "lid")).await;
    let held = take(&*store, 10).await;
    fine(store.begin(held[0].lane, held[0].fence).await);
    teach(&*store, "ana", "lid").await;
    fixture.clock().advance(HOLD_MS);
    let again = take(&*store, 10).await;
    assert_eq!(again.iter().map(|held| held.message).collect::<Vec<_>>(), [first]);
    assert!(again[0].in_doubt_since_ms.is_some(), "it was begun");
    for lost in &held {
        assert_eq!(fine(store.begin(lost.lane, lost.fence).await), Settled::Lost);
        assert_eq!(settle(&*store, lost, sent("w0")).await, Settled::Lost);
    }
    let tried: Vec<_> = row(&*store, second).await.tries.into_iter().map(|tried| tried.outcome).collect();
    assert_eq!(tried, ["lost"]);
    settle(&*store, &again[0], SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None }).await;
    let again = take(&*store, 10).await;
    assert_eq!(again.iter().map(|held| (held.message, held.attempt)).collect::<Vec<_>>(), [(second, 2)]);
    assert!(again[0].in_doubt_since_ms.is_none());
}

/// Messages that left their thread's lane before the join come back to the one that there is now.
pub async fn what_comes_back_to_its_thread_comes_to_the_joined_lane(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let doubted = submit(&*store, outgoing("r1", "lid")).await;
    let checked = submit(&*store, outgoing("r2", "lid")).await;
    let unknown = |check_ms| SendOutcome::Unknown { why: "cut".to_owned(), check_ms };
    for check_ms in [None, Some(500)] {
        let held = take(&*store, 10).await.remove(0);
        fine(store.begin(held.lane, held.fence).await);
        settle(&*store, &held, unknown(check_ms)).await;
    }
    let at_ms = hapax_store::clock::Clock::now_ms(fixture.clock()) + 500;
    let later = submit(&*store, NewMessage { send_at_ms: Some(at_ms), ..outgoing("r3", "lid") }).await;
    submit(&*store, outgoing("r4", "ana")).await;
    let held = take(&*store, 10).await.remove(0);
    teach(&*store, "ana", "lid").await;
    fine(store.retry_message(doubted).await);
    fixture.clock().advance(500);
    // Of those in doubt, the one that is to be looked up keeps nobody waiting, and nobody keeps it.
    let looked_up = take(&*store, 10).await;
    assert_eq!(looked_up.iter().map(|held| held.message).collect::<Vec<_>>(), [checked]);
    settle(&*store, &looked_up[0], SendOutcome::Resend { wait_ms: 0, why: "not there".to_owned() }).await;
    assert!(take(&*store, 10).await.is_empty(), "the person's lane is held");
    settle(&*store, &held, sent("w4")).await;
    for (n, id) in [doubted, checked, later].iter().enumerate() {
        let held = take(&*store, 10).await;
        assert_eq!(held.iter().map(|held| held.message).collect::<Vec<_>>(), [*id]);
        settle(&*store, &held[0], sent(&format!("w{n}"))).await;
    }
}

/// What was said under a name before it was known whose it is stays a thread of its own, and is not where its person is found.
pub async fn every_name_of_a_person_leads_to_the_thread_that_goes_on(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    assert_eq!(fine(store.person(&thread("ana")).await), None);
    for (id, peer) in [("m1", "ana"), ("m2", "lid"), ("m3", "phone")] {
        accept_one(&*store, message(id, peer)).await;
        assert!(fine(store.person(&thread(peer)).await).is_some_and(|person| person.id == thread(peer)));
    }
    teach(&*store, "ana", "lid").await;
    teach(&*store, "phone", "lid").await;
    teach(&*store, "lid", "user").await;
    drop(store);
    let store = fixture.crash();
    for name in ["ana", "lid", "phone", "user"] {
        let person = fine(store.person(&thread(name)).await).unwrap_or_else(|| unreachable!("{name} is known"));
        assert_eq!((&person.id, person.aliases.join(" ").as_str()), (&thread("phone"), "ana lid user"), "{name}");
        let own = fine(store.thread(&thread(name)).await).unwrap_or_else(|| unreachable!("{name} is known"));
        assert_eq!(own.id, thread(if name == "user" { "phone" } else { name }));
    }
    assert_eq!(fine(store.person(&thread("nobody")).await), None);
}
