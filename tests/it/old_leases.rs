//! An instance that stood still: what it held when it stopped may be another's when it goes on, so it begins no call with it.

use std::sync::Arc;

use hapax_domain::Status;
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::hand_clock::HandClock;

use crate::faulty::{Faulty, Moment};
use crate::phones::{ACCOUNT, Phones, has_status, message, sending, submit};
use crate::rig::{Opened, Rig, channel, text};

on_every_store! {
    a_lease_that_ran_out_before_the_call_calls_nobody
    a_clock_that_only_shows_the_pause_on_the_wall_is_believed_too
    a_lease_that_ran_out_between_begin_and_the_first_byte_sends_nothing
}

/// Longer than any lease of the rig's channels.
const PAUSE_MS: i64 = 120_000;

/// A server whose process stands still at the moment, while its store's time goes on as always.
fn paused_at(moment: Moment, opened: Opened, pause: fn(&HandClock)) -> Opened {
    let clock = HandClock::at(opened.clock.now_ms());
    let faulty = Faulty::around(&opened);
    let stands_still = clock.clone();
    faulty.after_next(moment, move || pause(&stands_still));
    Opened { store: faulty, clock: Arc::new(clock), ..opened }
}

async fn called_once_with_the_second_lease(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let call = bot.called(1).await.remove(0);
    rig.settled().await;
    assert_eq!((bot.calls().len(), call.attempt()), (1, 1), "what was not called is no attempt");
    rig.counted(r#"hapax_items_handed_back_total{channel="shop"}"#, 1).await;
    let story = rig.store.event(rig.events().await[0].id).await.expect("the event").expect("it is there").attempts;
    assert_eq!(story.iter().map(|row| (row.attempt, row.outcome.as_str())).collect::<Vec<_>>(), [(1, "delivered")]);
}

async fn a_lease_that_ran_out_before_the_call_calls_nobody(opened: Opened) {
    called_once_with_the_second_lease(paused_at(Moment::LeaseInbox, opened, |clock| clock.advance(PAUSE_MS))).await;
}

async fn a_clock_that_only_shows_the_pause_on_the_wall_is_believed_too(opened: Opened) {
    called_once_with_the_second_lease(paused_at(Moment::LeaseInbox, opened, |clock| clock.step_wall(PAUSE_MS))).await;
}

async fn a_lease_that_ran_out_between_begin_and_the_first_byte_sends_nothing(opened: Opened) {
    let phones = Phones::willing().await;
    let opened = paused_at(Moment::Begin, opened, |clock| clock.advance(PAUSE_MS));
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    has_status(&rig.store, id, Status::Sent).await;
    assert_eq!((phones.reached().len(), phones.provider.calls().len()), (1, 1));
    let tries = message(&rig.store, id).await.tries;
    assert_eq!(tries.iter().map(|row| row.outcome.as_str()).collect::<Vec<_>>(), ["retry", "sent"], "{tries:?}");
    assert!(tries[0].detail.contains("lease"), "{tries:?}");
}
