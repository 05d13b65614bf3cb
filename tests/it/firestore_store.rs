//! The Firestore engine on Google's emulator.

use hapax::store::firestore;
use hapax::testkit::server_beds::{ServerBed, compare_with_model};
use hapax::testkit::servers::Engine;
use hapax::testkit::store_compare::sequences;

mod suite {
    use super::*;

    hapax::store_suite!(ServerBed::on(Engine::Firestore, firestore::open).await);
}

/// The emulator answers slowly, and a sequence asks it some thousand times.
const SEQUENCES: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn firestore_answers_like_the_model() {
    compare_with_model(Engine::Firestore, firestore::open, sequences(SEQUENCES)).await;
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
