//! A stop hands back what is not done, charges nothing, loses nothing, and tells of the calls it cut.

use std::sync::Arc;

use hapax::store::ItemState;
use hapax::testkit::fake_bot::{FakeBot, Say};
use tokio::sync::Notify;

use crate::rig::{Opened, Rig, channel, text};

on_every_store! {
    a_stop_lets_deliveries_end_within_the_grace
    a_stop_counts_the_call_it_cut_and_charges_nothing
    the_next_start_delivers_what_was_left
}

fn slow(
    finish: &Arc<Notify>,
) -> impl Fn(hapax::testkit::fake_bot::Call) -> futures_util::future::BoxFuture<'static, Say> + use<> {
    let finish = Arc::clone(finish);
    move |_| {
        let finish = Arc::clone(&finish);
        Box::pin(async move {
            finish.notified().await;
            Say::Status(200)
        })
    }
}

async fn a_stop_lets_deliveries_end_within_the_grace(opened: Opened) {
    let finish = Arc::new(Notify::new());
    let bot = FakeBot::start_slow(slow(&finish)).await.expect("a bot");
    // The folder outlives the rig, so that the store can still be asked.
    let (store, _folder) = (Arc::clone(&opened.store), opened.folder.clone());
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    rig.begin_stop();
    finish.notify_one();
    rig.stop().await;
    let stats = store.stats().await.expect("stats");
    assert!(stats.channels.iter().all(|counts| counts.waiting + counts.leased == 0), "{stats:?}");
}

async fn a_stop_counts_the_call_it_cut_and_charges_nothing(opened: Opened) {
    let bot = FakeBot::start_slow(slow(&Arc::new(Notify::new()))).await.expect("a bot");
    // The folder outlives the rig, so that the store can still be asked.
    let (store, _folder) = (Arc::clone(&opened.store), opened.folder.clone());
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    rig.stop().await;
    let row = store.inbox(hapax::store::InboxQuery { limit: 1, ..Default::default() }).await.expect("the inbox").rows.remove(0);
    assert!(matches!(row.state, ItemState::Waiting { .. }), "{row:?}");
    assert_eq!((row.attempt, row.failures), (1, 0), "the bot may have done its work");
    let story = store.event(row.event).await.expect("the event").expect("it is there").attempts;
    assert_eq!(story.iter().map(|row| (row.attempt, row.outcome.as_str())).collect::<Vec<_>>(), [(1, "handed back")]);
    assert!(story[0].detail.contains("hapax stopped"), "{story:?}");
}

async fn the_next_start_delivers_what_was_left(opened: Opened) {
    let bot = FakeBot::start_slow(slow(&Arc::new(Notify::new()))).await.expect("a bot");
    let again = Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: opened.folder.clone() };
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let first = bot.called(1).await.remove(0);
    rig.stop().await;

    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(again, vec![channel("shop", Some(bot.url()))]).await;
    let second = bot.called(1).await.remove(0);
    assert_eq!(second.event_id(), first.event_id());
    assert_eq!((first.attempt(), second.attempt()), (1, 2));
    assert!(second.fence() > first.fence());
    // The new process has an empty cache and still knows the key.
    let (_, answer) = rig.post("shop", text("wamid.A", "1")).await;
    assert_eq!(answer["status"], "duplicate");
}
