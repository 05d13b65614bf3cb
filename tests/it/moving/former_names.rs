//! What a provider called a message before it was sent once more goes when the message goes.

use std::sync::Arc;

use hapax_store::{Changed, Moved, SendOutcome, Store};
use hapax_store_firestore as firestore;
use hapax_store_mysql as mysql;
use hapax_store_postgres as postgres;
use hapax_testkit::plain_records::PlainFixture;
use hapax_testkit::server_fixtures::ServerFixture;
use hapax_testkit::servers::Engine;
use hapax_testkit::store_fixture::{StoreFixture, accept, webhook};
use hapax_testkit::store_suite::sending::{ask_out, outgoing, status};

use super::export;

async fn names(store: &Arc<dyn Store>) -> usize {
    export(&**store).await.iter().filter(|record| matches!(record, Moved::ProviderName(_))).count()
}

async fn former_names_go_with_the_message(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    let id = store.submit(outgoing("r1", "ana")).await.expect("submitted").message();
    for name in ["w1", "w2"] {
        let held = store.lease_outbox(ask_out(1)).await.expect("leased").remove(0);
        store.begin(held.lane, held.fence).await.expect("begun");
        let named = status(name, hapax_domain::Status::Failed, Some(id), 1);
        accept(&*store, webhook(vec![named])).await;
        let failed = SendOutcome::Failed { why: "no".to_owned() };
        store.settle_outbox(held.lane, held.fence, failed).await.expect("settled");
        if name == "w1" {
            assert_eq!(store.retry_message(id).await.expect("an answer"), Changed::Done);
        }
    }
    assert_eq!(names(&store).await, 2);
    fixture.clock().advance(1_000);
    let purge = async || while store.purge(&[("shop".to_owned(), 1_000)], 1).await.expect("purged").more {};
    purge().await;
    assert!(store.message(id).await.expect("an answer").is_none());
    assert_eq!(names(&store).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn former_names_go_with_the_message_on_every_engine() {
    former_names_go_with_the_message(&PlainFixture::new()).await;
    if let Some(fixture) = ServerFixture::on(Engine::Postgres, postgres::open).await {
        former_names_go_with_the_message(&fixture).await;
    }
    if let Some(fixture) = ServerFixture::on(Engine::Mariadb, mysql::open).await {
        former_names_go_with_the_message(&fixture).await;
    }
    if let Some(fixture) = ServerFixture::on(Engine::Firestore, firestore::open).await {
        former_names_go_with_the_message(&fixture).await;
    }
}
