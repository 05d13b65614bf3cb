//! What only Firestore can get wrong when it is moved, on Google's emulator.

use hapax_store::Arrival;
use hapax_store_firestore as firestore;
use hapax_store_postgres as postgres;
use hapax_testkit::plain_records::PlainFixture;
use hapax_testkit::server_fixtures::ServerFixture;
use hapax_testkit::servers::Engine;
use hapax_testkit::store_fixture::{START_MS, StoreFixture, accept, accept_one, message, webhook};

use super::{export, highest, import, open_at, refused, same_records, sorted};

/// What was numbered by Firestore goes on elsewhere with numbers above, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_firestore_are_kept_elsewhere() {
    let Some(first) = ServerFixture::on(Engine::Firestore, firestore::open).await else { return };
    let Some(second) = ServerFixture::on(Engine::Postgres, postgres::open).await else { return };
    let Some(third) = ServerFixture::on(Engine::Firestore, firestore::open).await else { return };
    let from = first.open();
    let id = accept_one(&*from, message("m1", "ana")).await;
    let records = export(&*from).await;
    let between = open_at(&second, &first);
    import(&*between, &records).await;
    same_records("postgres", &records, &export(&*between).await);
    assert!(accept_one(&*between, message("m2", "ana")).await > id);
    let records = export(&*between).await;
    let last = open_at(&third, &first);
    import(&*last, &records).await;
    same_records("back", &records, &export(&*last).await);
    let number = |id: hapax_domain::EventId| hapax_domain::ids::number_of(id.0);
    assert!(number(accept_one(&*last, message("m3", "ana")).await) > number(highest(&records)));
}

/// Firestore takes 10 MiB in one step: what is imported in one page may be more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_are_put_one_after_the_other() {
    let Some(fixture) = ServerFixture::on(Engine::Firestore, firestore::open).await else { return };
    let plain = PlainFixture::new();
    let from = plain.open();
    for n in 0..4_u8 {
        let body = vec![n; 3_000_000].into();
        accept(&*from, Arrival { body, ..webhook(vec![message(&format!("m{n}"), "ana")]) }).await;
    }
    let (moving, mut records, mut at) = (from.moving().expect("it can be moved"), Vec::new(), None);
    loop {
        let (page, next) = moving.export(at, 1_000).await.expect("a page");
        records.extend(page);
        at = next;
        if at.is_none() {
            break;
        }
    }
    let to = open_at(&fixture, &plain);
    let moving = to.moving().expect("it can be moved");
    moving.begin_import().await.expect("it is empty");
    moving.import(records.clone()).await.expect("put");
    moving.end_import().await.expect("whole");
    let again = export(&*to).await;
    assert!(sorted(&again) == sorted(&records), "the same records");
}

/// New numbers are made of Firestore's clock, and so cannot be above some that are ahead of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_ahead_of_the_clock_are_refused() {
    let Some(fixture) = ServerFixture::on(Engine::Firestore, firestore::open).await else { return };
    let store = fixture.open();
    let moving = store.moving().expect("it can be moved");
    moving.begin_import().await.expect("it is empty");
    let key = hapax_store::steps::records::KeyRec {
        key: [7; 32],
        event: (1 << 62) - 1,
        at_ms: START_MS,
        fingerprint: 1,
        expires_ms: START_MS + 1_000,
    };
    moving.import(vec![hapax_store::Moved::Key(key)]).await.expect("put");
    refused(moving.end_import().await, "ahead of Firestore's clock");
    assert!(moving.is_half_filled().await.expect("an answer"));
}
