//! However often a webhook comes, the bot hears of it once.

use std::collections::HashMap;
use std::sync::Arc;

use hapax_store::EventState;
use hapax_testkit::fake_bot::{FakeBot, Say};
use tokio::sync::Notify;

use crate::faulty::{Faulty, with};
use crate::rig::{Opened, Rig, channel, eventually, text};
use crate::wire::{Wire, signed};

on_every_store! {
    thousands_of_ids_in_twenty_copies_are_delivered_once_each
    a_copy_is_answered_without_asking_the_store
    the_same_id_with_another_body_is_a_conflict_and_goes_nowhere
    what_another_channel_got_is_no_copy
    a_slow_handler_is_called_once_however_often_the_provider_sends_again
    after_a_restart_the_store_answers_the_first_copy_and_memory_the_next
    what_one_instance_took_in_is_a_copy_for_all
}

async fn thousands_of_ids_in_twenty_copies_are_delivered_once_each(opened: Opened) {
    let ids = hapax_testkit::effort(2_000, 10_000);
    const COPIES: usize = 20;
    const CONNECTIONS: usize = 64;
    const ACCEPTED: &str = "\r\n\r\n{\"status\":\"accepted\",\"accepted\":1,\"repeated\":0}";
    const DUPLICATE: &str = "\r\n\r\n{\"status\":\"duplicate\",\"accepted\":0,\"repeated\":1}";
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;

    let webhook = |id| signed("shop", &text(&format!("wamid.{id}"), &format!("55119{}", id % 500)));
    let webhooks: Arc<Vec<Vec<u8>>> = Arc::new((0..ids).map(webhook).collect());
    let mut senders = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let (address, webhooks) = (rig.address, Arc::clone(&webhooks));
        senders.spawn(async move {
            let (mut accepted, mut duplicates) = (vec![], vec![]);
            let words = [ACCEPTED.as_bytes(), DUPLICATE.as_bytes()];
            let mut wire = Wire::open(address).await;
            // Every id's copies are spread over all connections, and neighbours send the same id at the same time.
            for turn in (connection..ids * COPIES).step_by(CONNECTIONS) {
                let id = turn / COPIES;
                wire.send(&webhooks[id]).await;
                match wire.hear_one_of(&words).await {
                    Ok(0) => accepted.push(id),
                    Ok(_) => duplicates.push(id),
                    Err(other) => panic!("{other}"),
                }
            }
            (accepted, duplicates)
        });
    }
    let (mut accepted, mut duplicates) = (HashMap::<usize, usize>::new(), HashMap::<usize, usize>::new());
    for (new, copies) in senders.join_all().await {
        new.into_iter().for_each(|id| *accepted.entry(id).or_default() += 1);
        copies.into_iter().for_each(|id| *duplicates.entry(id).or_default() += 1);
    }
    assert!((0..ids).all(|id| accepted.get(&id) == Some(&1)), "each id is accepted once");
    assert!((0..ids).all(|id| duplicates.get(&id) == Some(&(COPIES - 1))), "and 19 times a duplicate");

    rig.settled().await;
    let mut delivered = HashMap::<String, usize>::new();
    for call in bot.calls() {
        let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
        let id = body["entry"][0]["changes"][0]["value"]["messages"][0]["id"].as_str().expect("an id").to_owned();
        *delivered.entry(id).or_default() += 1;
    }
    assert_eq!(delivered.len(), ids);
    assert!(delivered.values().all(|times| *times == 1), "each is delivered exactly once");
}

async fn a_copy_is_answered_without_asking_the_store(opened: Opened) {
    let store = Arc::clone(&opened.store);
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let event = rig.events().await[0].id;
    for _ in 0..4 {
        let (status, answer) = rig.post("shop", text("wamid.A", "1")).await;
        assert_eq!((status, answer), (200, serde_json::json!({"status": "duplicate", "accepted": 0, "repeated": 1})));
    }
    rig.counted(r#"hapax_events_duplicate_total{channel="shop"}"#, 4).await;
    // Counted beside the event by the flush that comes once a second, and by the stop.
    rig.stop().await;
    let copies = store.event(event).await.expect("readable").expect("kept").copies.expect("counted");
    assert_eq!((copies.copies, copies.conflicts), (4, 0));
}

async fn the_same_id_with_another_body_is_a_conflict_and_goes_nowhere(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let store = Arc::clone(&opened.store);
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let other = text("wamid.A", "1").replace("this is", "this was");
    let event = rig.events().await[0].id;
    for _ in 0..2 {
        let (status, answer) = rig.post("shop", other.clone()).await;
        assert_eq!((status, &answer["status"]), (200, &"conflict".into()));
    }
    let (_, answer) = rig.post("shop", text("wamid.A", "1")).await;
    assert_eq!(answer["status"], "duplicate");
    rig.settled().await;
    let kept: Vec<_> = rig.events().await.into_iter().filter(|kept| kept.id != event).collect();
    assert_eq!(kept.len(), 1, "the other content is kept, once");
    assert_eq!((kept[0].state, kept[0].provider_id.clone()), (EventState::Kept, format!("conflict:{event}")));
    let body = store.event(kept[0].id).await.expect("readable").expect("kept").body;
    assert!(String::from_utf8_lossy(&body).contains("this was"));
    let story = rig.client.get(rig.url(&format!("/v1/events/{event}/story"))).bearer_auth("an admin token for tests");
    let story = story.send().await.expect("an answer").text().await.expect("a story");
    assert!(story.contains("another content") && story.contains("this was"), "{story}");
    rig.counted(r#"hapax_events_conflict_total{channel="shop"}"#, 2).await;
    rig.stop().await;
    assert_eq!(bot.calls().len(), 1);
    let copies = store.event(event).await.expect("readable").expect("kept").copies.expect("counted");
    assert_eq!((copies.copies, copies.conflicts), (3, 2));
}

/// Two apps on one number, or two endpoints of one Stripe account: each bot gets everything, once.
async fn what_another_channel_got_is_no_copy(opened: Opened) {
    let (first, second) = (FakeBot::willing().await.expect("a bot"), FakeBot::willing().await.expect("a bot"));
    let rig = Rig::start(opened, vec![channel("one", Some(first.url())), channel("two", Some(second.url()))]).await;
    for body in [text("wamid.A", "1"), r#"{"object":"#.to_owned()] {
        for name in ["one", "two"] {
            rig.accepted(name, body.clone()).await;
            let (_, answer) = rig.post(name, body.clone()).await;
            assert_eq!(answer["status"], "duplicate", "within the channel it is one");
        }
    }
    rig.settled().await;
    assert_eq!((first.calls().len(), second.calls().len()), (1, 1));
}

async fn memory_of(rig: &Rig) -> (u64, u64, u64) {
    let asked = rig.client.get(rig.url("/v1/stats")).bearer_auth("an admin token for tests").send().await.expect("an answer");
    let stats: serde_json::Value = asked.json().await.expect("JSON");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    (number(&stats["memory"]["keys"]), number(&stats["memory"]["hits"]), number(&stats["keys"]))
}

async fn after_a_restart_the_store_answers_the_first_copy_and_memory_the_next(opened: Opened) {
    let faulty = Faulty::around(&opened);
    let again = Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: opened.folder.clone() };
    let rig = Rig::start(with(&faulty, opened), vec![channel("shop", None)]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    assert_eq!(memory_of(&rig).await, (1, 0, 1));
    rig.stop().await;

    let rig = Rig::start(with(&faulty, again), vec![channel("shop", None)]).await;
    assert_eq!(memory_of(&rig).await, (0, 0, 1), "memory is empty, the store is not");
    let asked = faulty.accepts();
    for (times, hits) in [(1, 0), (1, 1), (1, 2)] {
        assert_eq!(rig.post("shop", text("wamid.A", "1")).await.1["status"], "duplicate");
        assert_eq!(faulty.accepts() - asked, times, "the store is asked once");
        assert_eq!(memory_of(&rig).await, (1, hits, 1));
    }
    rig.accepted("shop", text("wamid.B", "1")).await;
    assert_eq!(faulty.accepts() - asked, 2, "what is new is always asked of the store");
    eventually("the metrics say so too", async || {
        rig.metric("hapax_memory_keys") == 2 && rig.metric("hapax_memory_hits_total") == 2
    })
    .await;
}

async fn what_one_instance_took_in_is_a_copy_for_all(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let faulty = Faulty::around(&opened);
    let other = Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: opened.folder.clone() };
    let first = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let second = Rig::start(with(&faulty, other), vec![channel("shop", Some(bot.url()))]).await;
    for number in 0..20 {
        let body = text(&format!("wamid.{number}"), "1");
        first.accepted("shop", body.clone()).await;
        for times in 1..=3 {
            assert_eq!(second.post("shop", body.clone()).await.1["status"], "duplicate", "copy {times}");
        }
        assert_eq!(faulty.accepts(), number + 1, "the second asks the store once for each");
    }
    first.settled().await;
    assert_eq!(bot.calls().len(), 20);
}

/// The handler takes 90 s and the provider sends again at 18 s and 60 s, a thousand times faster: the lease is 60 ms and held by heartbeat.
async fn a_slow_handler_is_called_once_however_often_the_provider_sends_again(opened: Opened) {
    let finish = Arc::new(Notify::new());
    let bot = FakeBot::start_slow({
        let finish = Arc::clone(&finish);
        move |_| {
            let finish = Arc::clone(&finish);
            Box::pin(async move {
                finish.notified().await;
                Say::Status(200)
            })
        }
    })
    .await
    .expect("a bot");
    let mut slow = channel("shop", Some(bot.url()));
    slow.lease_ms = 60;
    let clock = Arc::clone(&opened.clock);
    let rig = Rig::start(opened, vec![slow]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    let begun = clock.now_ms();
    for at_ms in [18, 60, 90, 300] {
        eventually("its time", async || clock.now_ms() >= begun + at_ms).await;
        let (_, answer) = rig.post("shop", text("wamid.A", "1")).await;
        assert_eq!(answer["status"], "duplicate");
    }
    finish.notify_one();
    eventually("delivered", async || rig.events().await[0].state == EventState::Delivered).await;
    rig.stop().await;
    assert_eq!(bot.calls().len(), 1);
}
