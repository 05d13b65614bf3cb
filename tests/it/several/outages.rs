//! The database dies, or its answer to a commit is lost on the way.

use std::collections::HashMap;

use hapax_testkit::cutting_proxy::CuttingProxy;
use hapax_testkit::fake_bot::{Call, FakeBot};
use hapax_testkit::servers::Private;
use hapax_testkit::witness::Witness;

use super::fleet::{Fleet, member};
use super::phones::{answers_all, came, each_reply_came_once_or_is_in_doubt, sending_to, talkative, unreliable};
use crate::conversation::{
    Load, all_done, everything_answered_was_delivered, nothing_was_accepted_twice, repeats_can_be_told, send_all_again,
    threads_kept_their_order,
};
use crate::phones::Phones;
use crate::program::Poster;
use crate::rig::{eventually, in_time, text};

super::on_every_server! {
    a_database_that_dies_five_times_loses_nothing
    a_lost_answer_to_a_commit_is_no_lost_commit
}

const DEATHS: usize = 5;
/// Deliveries between two deaths, so that each meets work of every kind.
const BETWEEN: usize = 150;

async fn a_database_that_dies_five_times_loses_nothing(mut server: Private) {
    let (witness, phones) = (Witness::start_late(talkative).await.expect("a bot"), unreliable().await);
    let fleet = Fleet::of_three(&server.fresh().await, &witness.bot.url(), &sending_to(&phones)).await;
    let load = Load::start(&fleet.listening());
    for _ in 0..DEATHS {
        in_time("deliveries", witness.bot.called(witness.bot.calls().len() + BETWEEN)).await;
        server.kill9().await;
        server.restart().await;
    }
    in_time("deliveries", witness.bot.called(witness.bot.calls().len() + BETWEEN)).await;
    let mut posted = load.end().await;
    let at = fleet.addresses()[1];
    send_all_again(at, &mut posted).await;
    all_done(at).await;
    each_reply_came_once_or_is_in_doubt(at, &phones, posted.iter().map(|posted| posted.id.as_str())).await;
    fleet.stop().await;

    let calls = witness.bot.calls();
    nothing_was_accepted_twice(&posted);
    everything_answered_was_delivered(&posted, &calls);
    threads_kept_their_order(&calls);
    repeats_can_be_told(&calls);
    assert_eq!(witness.overlaps(), Vec::<String>::new(), "no thread was worked on twice at a time");
}

const CUTS: usize = 50;

/// Every second cut hits the commit that takes the message in; the others hit whatever comes next, a lease or a settle as well.
async fn a_lost_answer_to_a_commit_is_no_lost_commit(server: Private) {
    let bot = FakeBot::start(answers_all).await.expect("a bot");
    let phones = Phones::willing().await;
    let proxy = CuttingProxy::start(server.server().port()).await.expect("a proxy");
    let port = |port: u16| format!("127.0.0.1:{port}/");
    let store = server.fresh().await.replace(&port(server.server().port()), &port(proxy.address.port()));
    let fleet =
        Fleet::start(["one", "two"].map(|name| member(name, &store, &bot.url(), "60s", &sending_to(&phones))).into()).await;
    let at = fleet.addresses();
    let poster = Poster::new();
    for n in 0..CUTS {
        let id = format!("wamid.{n:03}");
        proxy.cut_commit_of(if n % 2 == 0 { &id } else { "" });
        let first = poster.post(at[n % 2], text(&id, &format!("5511{}", n % 7))).await.expect("an answer");
        assert_eq!((first.status, first.word.as_str()), (200, "accepted"), "{id}");
        let again = poster.post(at[(n + 1) % 2], text(&id, &format!("5511{}", n % 7))).await.expect("an answer");
        assert_eq!((again.status, again.word.as_str()), (200, "duplicate"), "{id}");
        in_time("the cut", proxy.cut(n + 1)).await;
    }
    all_done(at[0]).await;
    eventually("each was delivered", async || deliveries(&bot.calls()).len() == CUTS).await;
    eventually("each reply came", async || came(&phones).len() == CUTS).await;
    fleet.stop().await;
    let times = deliveries(&bot.calls());
    assert!(times.values().all(|times| *times == 1), "delivered more than once: {times:?}");
    assert!(came(&phones).values().all(|times| *times == 1), "on the phone more than once: {:?}", came(&phones));
}

/// How often each event came.
fn deliveries(calls: &[Call]) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for call in calls {
        *times.entry(call.event_id().to_owned()).or_default() += 1;
    }
    times
}
