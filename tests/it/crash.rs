//! The real program on a real disk, killed with signal 9 again and again while webhooks pour in.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use hapax_store::clock::SystemClock;
use hapax_store_sqlite::{Options, SqliteStore};
use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::process::Program;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use crate::conversation::{
    Load, SEED, all_done, everything_answered_was_delivered, moody, nothing_was_accepted_twice, repeats_can_be_told,
    send_all_again, the_store_holds_each_once, threads_kept_their_order,
};
use crate::program::{disk_folder, program, store_path};
use crate::rig::eventually;

/// Kills of a process that takes webhooks; those of one that is still starting come on top.
fn kills() -> usize {
    hapax_testkit::effort(60, 200)
}

const IDS_PER_LIFE: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_under_load() {
    let bot = FakeBot::start(|call| moody(call.number)).await.expect("a bot");
    let folder = disk_folder();
    let hapax = program(folder.path(), Some(&bot.url()), "");
    let (there, listening) = watch::channel(Vec::new());
    let load = Load::start(&listening);

    kill_again_and_again(&hapax, &there, &load).await;
    let (last, at) = hapax.serve().await.expect("it starts after the last kill");
    there.send_replace(vec![at]);
    let mut posted = load.end().await;
    assert!(posted.len() >= kills() * IDS_PER_LIFE, "there was load: {} ids", posted.len());
    assert!(
        posted.iter().map(|posted| posted.later.len()).sum::<usize>() > kills(),
        "copies were sent again after later restarts"
    );
    send_all_again(at, &mut posted).await;
    all_done(at).await;
    assert!(last.stop().await.expect("it stops").success());

    let calls = bot.calls();
    nothing_was_accepted_twice(&posted);
    everything_answered_was_delivered(&posted, &calls);
    threads_kept_their_order(&calls);
    assert!(repeats_can_be_told(&calls) > 0, "kills hit work under way");
    let clock = Arc::new(SystemClock::new());
    let store = SqliteStore::open(&store_path(folder.path()), clock, &Options::default()).expect("the store opens");
    the_store_holds_each_once(&store, &posted).await;
}

/// Each life that takes webhooks has its share of them, also where the machine is so busy that none would come in that time.
async fn kill_again_and_again(hapax: &Program, there: &watch::Sender<Vec<SocketAddr>>, load: &Load) {
    let mut random = StdRng::seed_from_u64(SEED);
    let mut done = 0;
    while done < kills() {
        let mut process = hapax.start().expect("it starts");
        let status = if random.random_ratio(1, 8) {
            process.kill_nine_after(Duration::from_micros(random.random_range(0..40_000))).await
        } else {
            there.send_replace(vec![process.address().await.expect("it listens")]);
            done += 1;
            eventually("load", async || load.ids() >= done * IDS_PER_LIFE).await;
            process.kill_nine_after(Duration::from_micros(random.random_range(5_000..300_000))).await
        };
        there.send_replace(Vec::new());
        assert_eq!(status.expect("it ended").signal(), Some(9), "it ran until it was killed");
    }
}
