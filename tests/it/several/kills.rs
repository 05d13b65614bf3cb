//! Instances die one after the other; the rest go on with their work.

use std::time::{Duration, Instant};

use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::servers::Private;
use hapax_testkit::witness::Witness;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::MissedTickBehavior;

use super::fleet::{Fleet, LEASE, member};
use super::phones::{each_reply_came_once_or_is_in_doubt, sending_to, talkative, unreliable};
use crate::conversation::{
    Load, SEED, all_done, everything_answered_was_delivered, nothing_was_accepted_twice, repeats_can_be_told, send_all_again,
    threads_kept_their_order,
};
use crate::program::Poster;
use crate::rig::{in_time, text};

super::on_every_server! {
    a_kill_every_second_loses_and_doubles_nothing
    a_killed_instances_work_is_taken_over_when_its_lease_ends
    a_stopped_instances_work_goes_on_at_once
}

fn kills() -> usize {
    hapax_testkit::effort(8, 30)
}

async fn a_kill_every_second_loses_and_doubles_nothing(server: Private) {
    let (witness, phones) = (Witness::start_late(talkative).await.expect("a bot"), unreliable().await);
    let mut fleet = Fleet::of_three(&server.fresh().await, &witness.bot.url(), &sending_to(&phones)).await;
    let load = Load::start(&fleet.listening());
    let mut random = StdRng::seed_from_u64(SEED);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..kills() {
        second.tick().await;
        fleet.kill_and_restart(random.random_range(0..3)).await;
    }
    let mut posted = load.end().await;
    assert!(posted.len() > kills() * 10, "there was load: {} ids", posted.len());
    let at = fleet.addresses()[0];
    send_all_again(at, &mut posted).await;
    all_done(at).await;
    each_reply_came_once_or_is_in_doubt(at, &phones, posted.iter().map(|posted| posted.id.as_str())).await;
    fleet.stop().await;

    let calls = witness.bot.calls();
    nothing_was_accepted_twice(&posted);
    everything_answered_was_delivered(&posted, &calls);
    threads_kept_their_order(&calls);
    assert!(repeats_can_be_told(&calls) > 0, "kills hit work under way");
    assert_eq!(witness.overlaps(), Vec::<String>::new(), "no thread was worked on twice at a time");
}

/// The first call is never answered; whoever comes then is served.
async fn deaf_at_first() -> FakeBot {
    let script = |call: hapax_testkit::fake_bot::Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move { if call.number == 0 { std::future::pending().await } else { Say::Status(200) } })
    };
    FakeBot::start_slow(script).await.expect("a bot")
}

async fn a_killed_instances_work_is_taken_over_when_its_lease_ends(server: Private) {
    let bot = deaf_at_first().await;
    let store = server.fresh().await;
    let (first, second) = (member("first", &store, &bot.url(), "5s", ""), member("second", &store, &bot.url(), "5s", ""));
    let (dying, at) = first.program.serve().await.expect("it starts");
    let (living, there) = second.program.serve().await.expect("it starts beside the other");
    let poster = Poster::new();
    // Whichever of the two took it, the other one gets it.
    assert_eq!(poster.post(at, text("wamid.A", "1")).await.expect("an answer").word, "accepted");
    let before = in_time("the first call", bot.called(1)).await.remove(0);
    let holder = poster.get(there, &format!("/v1/events/{}/story", before.event_id())).await.expect("a story");
    let (dying, living, there) = if holder.contains("is with first now") { (dying, living, there) } else { (living, dying, at) };
    let killed = Instant::now();
    dying.kill_nine().await.expect("it was there");
    let after = in_time("the takeover", bot.called(2)).await.remove(1);
    let took = killed.elapsed();
    assert_eq!((after.event_id(), after.attempt()), (before.event_id(), 2));
    assert!(after.fence() > before.fence());
    assert!(took > LEASE / 2, "the lease of the dead one was honoured, for {took:?}");
    assert!(took < LEASE + Duration::from_secs(3), "it took {took:?}");
    all_done(there).await;
    assert!(living.stop().await.expect("it stops").success());
    assert_eq!(bot.calls().len(), 2);
}

/// The lease is a minute, and nobody waits for it.
async fn a_stopped_instances_work_goes_on_at_once(server: Private) {
    let bot = deaf_at_first().await;
    let store = server.fresh().await;
    let (first, second) = (member("first", &store, &bot.url(), "60s", ""), member("second", &store, &bot.url(), "60s", ""));
    let (stopping, at) = first.program.serve().await.expect("it starts");
    assert_eq!(Poster::new().post(at, text("wamid.A", "1")).await.expect("an answer").word, "accepted");
    let before = in_time("the first call", bot.called(1)).await.remove(0);
    let (going_on, there) = second.program.serve().await.expect("it starts beside the other");
    assert!(stopping.stop().await.expect("it stops").success());
    let stopped = Instant::now();
    let after = in_time("the takeover", bot.called(2)).await.remove(1);
    assert!(stopped.elapsed() < Duration::from_secs(10), "it took {:?} after the stop", stopped.elapsed());
    assert_eq!((after.event_id(), after.attempt()), (before.event_id(), 2), "the first call may have reached the bot");
    assert!(after.fence() > before.fence());
    all_done(there).await;
    assert!(going_on.stop().await.expect("it stops").success());
    assert_eq!(bot.calls().len(), 2);
}
