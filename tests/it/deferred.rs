//! A store that was not there at first is, once it came, as good as any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hapax_store::prelude::*;
use hapax_store::{DeferredStore, EventQuery, Promise, Store, StoreError};
use hapax_store_firestore as firestore;
use hapax_store_mysql as mysql;
use hapax_store_postgres as postgres;
use hapax_store_redis as redis;
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::{MemoryFixture, StoreFixture, accept, message, webhook};
use tokio::runtime::Handle;

use crate::rig::eventually;

fn away() -> StoreError {
    StoreError::Failed { what: "opening", retryable: true, source: "nobody listens there".into() }
}

/// Comes with the try of this number, and is one that it was not at those before.
fn comes_with(number: usize, store: Arc<dyn Store>) -> Arc<DeferredStore> {
    let tries = AtomicUsize::new(1);
    DeferredStore::store(
        &away(),
        Box::new(move || {
            let came = tries.fetch_add(1, Ordering::SeqCst) >= number;
            let answer = if came { Ok(Arc::clone(&store)) } else { Err(StoreError::Refused("not whole yet".to_owned())) };
            Box::pin(async move { answer })
        }),
    )
}

struct DeferredFixture(MemoryFixture);

impl DeferredFixture {
    fn behind(store: Arc<dyn Store>) -> Arc<dyn Store> {
        let awaited = comes_with(1, store);
        // Not by `wait`: once it is there, that waits for work.
        let comes = eventually("it comes", async || awaited.ping().await.is_ok());
        tokio::task::block_in_place(|| Handle::current().block_on(comes));
        awaited
    }
}

impl StoreFixture for DeferredFixture {
    fn clock(&self) -> &HandClock {
        self.0.clock()
    }

    fn open(&self) -> Arc<dyn Store> {
        Self::behind(self.0.open())
    }

    fn crash(&self) -> Arc<dyn Store> {
        Self::behind(self.0.crash())
    }
}

mod behind_it {
    use super::{DeferredFixture, MemoryFixture};

    hapax_testkit::store_suite!(DeferredFixture(MemoryFixture::new()));
}

#[tokio::test]
async fn until_it_comes_it_is_away_and_says_why() {
    let store = comes_with(3, MemoryFixture::new().open());
    let why = store.ping().await.expect_err("it is not there");
    assert!(why.retryable() && why.to_string().contains("nobody listens there"), "{why}");
    assert!(matches!(store.promise(), Promise::Degraded(why) if why[0].contains("not been reached")));
    store.wait().await;
    store.ping().await.expect("it came");
    let opened: Arc<dyn Store> = store;
    accept(&*opened, webhook(vec![message("m1", "ana")])).await;
    assert_eq!(opened.events(EventQuery { limit: 10, ..EventQuery::default() }).await.expect("listed").rows.len(), 1);
}

#[tokio::test]
async fn nobody_who_gave_it_up_is_waited_for() {
    let opened = MemoryFixture::new().open();
    let store = comes_with(usize::MAX, Arc::clone(&opened));
    drop(store);
    eventually("the tries end", async || Arc::strong_count(&opened) == 1).await;
}

/// Whatever the engine: what cannot be reached now is no reason to give up.
#[tokio::test]
async fn a_server_that_is_not_there_may_come() {
    let away = [
        postgres::open("postgres://hapax:secret@127.0.0.1:1/hapax", None).await.err(),
        mysql::open("mysql://hapax:secret@127.0.0.1:1/hapax", None).await.err(),
        redis::open("redis://127.0.0.1:1/", None).await.err(),
        firestore::open("firestore://hapax?emulator=127.0.0.1:1", None).await.err(),
    ];
    for away in away {
        let away = away.expect("nobody is there");
        assert!(away.retryable(), "{away}");
    }
}
