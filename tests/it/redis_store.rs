//! The Redis engine on a real server, which `HAPAX_TEST_REDIS` names.

use hapax::testkit::redis_bed::RedisBed;

fn server() -> Option<String> {
    std::env::var("HAPAX_TEST_REDIS").ok()
}

mod suite {
    use hapax::testkit::redis_bed::RedisBed;
    hapax::store_suite!(RedisBed::new(&super::server().expect("set")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_answers_like_the_model() {
    let Some(server) = server() else { return };
    let from: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let count: u64 = std::env::var("COUNT").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    for seed in from..from+count {
        hapax::testkit::store_compare::compare(&RedisBed::new(&server), seed).await;
    }
}
