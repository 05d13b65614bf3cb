//! The Firestore engine on Google's emulator.

use hapax_store_firestore as firestore;
use hapax_testkit::server_fixtures::{ServerFixture, compare_with_model};
use hapax_testkit::servers::Engine;
use hapax_testkit::store_compare::sequences;

mod suite {
    use super::*;

    hapax_testkit::store_suite!(ServerFixture::on(Engine::Firestore, firestore::open).await);
}

/// A sequence asks the emulator some hundred times, and each time it thinks for a millisecond.
const SEQUENCES: u64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn firestore_answers_like_the_model() {
    compare_with_model(Engine::Firestore, firestore::open, sequences(SEQUENCES)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_at_once_are_told_apart() {
    if let Some(fixture) = ServerFixture::on(Engine::Firestore, firestore::open).await {
        crate::stores::replays_at_once_are_told_apart(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_not_purged_with_its_event() {
    if let Some(fixture) = ServerFixture::on(Engine::Firestore, firestore::open).await {
        crate::stores::a_replay_is_not_purged_with_its_event(&fixture).await;
    }
}

mod emulator;
mod proxy;

mod cost;
mod documents;
mod front_ends;
mod indexes;
mod lost_answers;
mod records;
mod rules;
