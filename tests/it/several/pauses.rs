//! Instances whose time is not everybody's: one that stands still for a while, one whose clock is ahead, one whose clock is behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use hapax_testkit::servers::Private;
use hapax_testkit::witness::Witness;
use tokio::sync::Notify;

use super::fleet::{Fleet, LEASE, member};
use super::phones::{answers_all, came, sending_to};
use crate::clocks::false_clock;
use crate::conversation::all_done;
use crate::phones::Phones;
use crate::program::Poster;
use crate::rig::{eventually, in_time, text};

super::on_every_server! {
    a_paused_instances_late_answer_is_refused
    an_instance_that_wakes_calls_nobody_with_an_old_lease
    clocks_that_are_wrong_steal_no_lease
}

async fn a_paused_instances_late_answer_is_refused(server: Private) {
    let answer = Arc::new(Notify::new());
    let bot = FakeBot::start_slow({
        let answer = Arc::clone(&answer);
        move |call: Call| {
            let answer = Arc::clone(&answer);
            Box::pin(async move {
                if call.number == 0 {
                    answer.notified().await;
                }
                answers_all(&call)
            })
        }
    })
    .await
    .expect("a bot");
    let (store, phones) = (server.fresh().await, Phones::willing().await);
    let sends = sending_to(&phones);
    let (first, second) = (member("first", &store, &bot.url(), "5s", &sends), member("second", &store, &bot.url(), "5s", &sends));
    let (paused, at) = first.program.serve().await.expect("it starts");
    let poster = Poster::new();
    assert_eq!(poster.post(at, text("wamid.A", "5511900001")).await.expect("an answer").word, "accepted");
    let before = in_time("the first call", bot.called(1)).await.remove(0);
    let (other, there) = second.program.serve().await.expect("it starts beside the other");

    let taken_over = async {
        let after = in_time("the takeover", bot.called(2)).await.remove(1);
        all_done(there).await;
        // The bot has done it twice now, and tells the one who cannot hear yet.
        answer.notify_one();
        after
    };
    let (pause, after) = tokio::join!(paused.pause_for(LEASE * 2), taken_over);
    pause.expect("it goes on");
    assert_eq!((after.event_id(), after.attempt()), (before.event_id(), 2));
    assert!(after.fence() > before.fence());
    eventually("its answer is refused", async || {
        let metrics = poster.get(at, "/metrics").await.unwrap_or_default();
        metrics.lines().any(|line| line.starts_with("hapax_fences_lost_total") && line.ends_with(" 1"))
    })
    .await;
    let story = poster.get(there, &format!("/v1/events/{}/story", before.event_id())).await.expect("a story");
    assert_eq!(story.matches("\"step\":\"delivered\"").count(), 1, "{story}");
    assert!(story.contains("attempt 2 begun by second"), "{story}");

    // It goes on as one of two.
    assert_eq!(poster.post(at, text("wamid.B", "5511900001")).await.expect("an answer").word, "accepted");
    all_done(at).await;
    assert_eq!(bot.calls().len(), 3);
    eventually("both replies came", async || phones.reached().len() >= 2).await;
    assert_eq!(
        came(&phones),
        HashMap::from(["re wamid.A", "re wamid.B"].map(|text| (text.to_owned(), 1))),
        "what was done twice is said once"
    );
    for process in [paused, other] {
        assert!(process.stop().await.expect("it stops").success());
    }
}

/// It is stopped in the middle of much work, so that there are leases which it was given and has not used. On waking they are another's.
async fn an_instance_that_wakes_calls_nobody_with_an_old_lease(server: Private) {
    const PAUSES: usize = 2;
    let bot = FakeBot::willing().await.expect("a bot");
    let store = server.fresh().await;
    let (first, second) = (member("first", &store, &bot.url(), "5s", ""), member("second", &store, &bot.url(), "5s", ""));
    let (paused, _) = first.program.serve().await.expect("it starts");
    let (other, there) = second.program.serve().await.expect("it starts beside the other");
    let stop = tokio_util::sync::CancellationToken::new();
    let posting = futures_util::future::join_all((0..8).map(|poster| {
        let stop = stop.clone();
        async move {
            let (poster, who) = (Poster::new(), poster);
            let mut number = 0;
            while !stop.is_cancelled() {
                let body = text(&format!("wamid.{who}.{number}"), &format!("55{who}{}", number % 50));
                poster.post(there, body).await.expect("an answer");
                number += 1;
            }
        }
    }));
    let pausing = async {
        for pause in 1..=PAUSES {
            in_time("much work", bot.called(300 * pause)).await;
            paused.pause_for(LEASE + Duration::from_secs(2)).await.expect("it goes on");
        }
        in_time("more work", bot.called(bot.calls().len() + 300)).await;
        stop.cancel();
    };
    tokio::join!(posting, pausing);
    all_done(there).await;
    let mut attempts = HashMap::<String, Vec<u32>>::new();
    for call in bot.calls() {
        attempts.entry(call.event_id().to_owned()).or_default().push(call.attempt());
    }
    let odd: Vec<_> = attempts.iter().filter(|(_, made)| !made.is_sorted_by(|a, b| a < b)).collect();
    assert!(odd.is_empty(), "called with an old lease: {odd:?}");
    for process in [paused, other] {
        assert!(process.stop().await.expect("it stops").success());
    }
}

const PEOPLE: usize = 24;
const EACH: usize = 3;

/// One hour ahead, one behind, one right. The first answers take longer than a lease; each instance would see them as long expired, or as
/// not even begun, if it went by its own clock.
async fn clocks_that_are_wrong_steal_no_lease(server: Private) {
    let Some(library) = false_clock() else { return };
    let slow = LEASE + Duration::from_secs(2);
    let witness = Witness::start(move |call| match call.number {
        0..12 => Say::Late(slow, 200),
        _ => Say::Status(200),
    });
    let witness = witness.await.expect("a bot");
    let store = server.fresh().await;
    let members = [("ahead", "+3600"), ("behind", "-3600"), ("right", "+0")].map(|(name, by)| {
        let mut member = member(name, &store, &witness.bot.url(), "5s", "");
        let set = format!("export LD_PRELOAD={} FAKETIME={by} FAKETIME_DONT_FAKE_MONOTONIC=1", library.display());
        member.program = member.program.after(&set);
        member
    });
    let fleet = Fleet::start(members.into()).await;
    let at = fleet.addresses();
    let poster = Poster::new();
    for n in 0..PEOPLE * EACH {
        let body = text(&format!("wamid.{n}"), &format!("5511{}", n % PEOPLE));
        let said = futures_util::future::join_all(at.iter().map(|at| poster.post(*at, body.clone()))).await;
        let words: Vec<_> = said.into_iter().map(|said| said.expect("an answer").word).collect();
        assert_eq!(words.iter().filter(|word| *word == "accepted").count(), 1, "{words:?}");
    }
    all_done(at[2]).await;
    fleet.stop().await;
    assert_eq!(witness.overlaps(), Vec::<String>::new());
    let mut times = HashMap::<String, usize>::new();
    for call in witness.bot.calls() {
        *times.entry(call.event_id().to_owned()).or_default() += 1;
    }
    assert_eq!(times.len(), PEOPLE * EACH);
    assert!(times.values().all(|times| *times == 1), "delivered more than once: {times:?}");
}
