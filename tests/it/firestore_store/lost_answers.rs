//! Commits of which the answer is lost, or that never arrive.

use std::sync::atomic::Ordering;

use hapax_store::prelude::*;
use hapax_store::{Accepted, Reads};
use hapax_testkit::store_fixture::{accept_one, lease, message, webhook};

use super::emulator::Emulator;
use super::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_an_answer_is_found_out_about() {
    let Some(emulator) = Emulator::start().await else { return };
    let proxy = Proxy::start(&emulator).await;
    let store = emulator.open_at(&proxy.host).await;
    proxy.lost_answers.store(1, Ordering::SeqCst);
    let accepted = store.accept(webhook(vec![message("m1", "ana")]).into()).await.expect("it was committed, and that is known");
    assert!(accepted[0].is_new());
    assert_eq!(proxy.lost_answers.load(Ordering::SeqCst), 0, "the answer was lost");
    assert_eq!(lease(&store, 9).await.len(), 1);
    let again = store.accept(webhook(vec![message("m1", "ana")]).into()).await.expect("accepted");
    assert_eq!(again, [Accepted::Duplicate(accepted[0].event())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_has_no_effect() {
    let Some(emulator) = Emulator::start().await else { return };
    let proxy = Proxy::start(&emulator).await;
    let store = emulator.open_at(&proxy.host).await;
    proxy.lost_requests.store(1, Ordering::SeqCst);
    let error =
        store.accept(webhook(vec![message("m1", "ana")]).into()).await.expect_err("it was not committed, and that is known");
    assert!(error.retryable(), "{error}");
    assert_eq!(store.stats().await.expect("counted").keys, 0);
    accept_one(&store, message("m1", "ana")).await;
    assert_eq!(lease(&store, 9).await.len(), 1);
}

/// The commit and the first two questions about it are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_question_is_asked_until_it_is_answered() {
    let Some(emulator) = Emulator::start().await else { return };
    let proxy = Proxy::start(&emulator).await;
    let store = emulator.open_at(&proxy.host).await;
    proxy.lost_answers.store(3, Ordering::SeqCst);
    assert!(store.accept(webhook(vec![message("m1", "ana")]).into()).await.expect("known in the end")[0].is_new());
    proxy.lost_requests.store(3, Ordering::SeqCst);
    assert!(store.accept(webhook(vec![message("m2", "ana")]).into()).await.is_err());
    assert_eq!(store.stats().await.expect("counted").keys, 1);
}

/// The commit never arrived, and the first question was answered into the void: its own trace is not taken for the commit's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_question_does_not_mean_yes() {
    let Some(emulator) = Emulator::start().await else { return };
    let proxy = Proxy::start(&emulator).await;
    let store = emulator.open_at(&proxy.host).await;
    proxy.lost_requests.store(1, Ordering::SeqCst);
    proxy.lost_answers.store(1, Ordering::SeqCst);
    assert!(store.accept(webhook(vec![message("m1", "ana")]).into()).await.is_err());
    assert_eq!(proxy.lost_answers.load(Ordering::SeqCst), 0, "the answer to the question was lost");
    assert_eq!(store.stats().await.expect("counted").keys, 0);
}
