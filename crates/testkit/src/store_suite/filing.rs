//! Pieces of files: kept beside what is to be sent, and gone afterwards.

use bytes::Bytes;
use hapax_domain::limits::{PIECE_MAX_BYTES, REGISTER_NAME_MAX_BYTES};
use hapax_store::{Store, StoreError};

use crate::store_fixture::StoreFixture;

const DAY_MS: i64 = 24 * 3_600_000;

fn fine<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

/// Bytes of every value.
fn bytes(seed: usize, length: usize) -> Bytes {
    (0..length).map(|at| (at * 31 + at / 256 + seed) as u8).collect()
}

async fn put(store: &dyn Store, name: &str, n: u32, bytes: &Bytes, keep_ms: i64) {
    fine(store.put_piece(name, n, bytes.clone(), keep_ms).await);
}

async fn held(store: &dyn Store) -> Vec<(String, u64)> {
    fine(store.pieces_held().await)
}

pub async fn a_piece_is_read_as_it_was_put(fixture: &dyn StoreFixture) {
    let (store, other) = (fixture.open(), fixture.open());
    let (whole, empty, again) = (bytes(1, PIECE_MAX_BYTES), Bytes::new(), bytes(2, 1_000));
    put(&*store, "shop/a", 0, &whole, DAY_MS).await;
    put(&*store, "shop/a", 1, &empty, DAY_MS).await;
    assert_eq!(fine(other.piece("shop/a", 0).await), Some(whole.clone()));
    assert_eq!(fine(other.piece("shop/a", 1).await), Some(empty));
    for (name, n) in [("shop/a", 2), ("shop/A", 0), ("shop/", 0), ("shop", 0)] {
        assert_eq!(fine(other.piece(name, n).await), None, "{name} {n}");
    }
    put(&*other, "shop/a", 1, &again, DAY_MS).await;
    drop((store, other));
    let store = fixture.crash();
    assert_eq!(fine(store.piece("shop/a", 0).await), Some(whole));
    assert_eq!(fine(store.piece("shop/a", 1).await), Some(again), "replaced");
    let refused = |answer: Result<(), StoreError>| matches!(answer, Err(StoreError::Refused(_)));
    assert!(refused(store.put_piece("shop/a", 2, bytes(3, PIECE_MAX_BYTES + 1), DAY_MS).await));
    let name = format!("shop/{}", "a".repeat(REGISTER_NAME_MAX_BYTES));
    assert!(refused(store.put_piece(&name, 0, Bytes::new(), DAY_MS).await));
}

pub async fn pieces_are_counted_by_channel(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    assert!(held(&*store).await.is_empty());
    for (name, n, length) in [("shop/a", 0, 100), ("shop/b", 0, 20), ("bank/a", 7, 3), ("é", 0, 4), ("shop/a", 1, 5)] {
        put(&*store, name, n, &bytes(0, length), DAY_MS).await;
    }
    let is = |rows: &[(&str, u64)]| rows.iter().map(|(channel, bytes)| ((*channel).to_owned(), *bytes)).collect::<Vec<_>>();
    assert_eq!(held(&*store).await, is(&[("bank", 3), ("shop", 125), ("é", 4)]));
    put(&*store, "shop/a", 0, &bytes(0, 1), DAY_MS).await;
    fine(store.drop_pieces("bank/a").await);
    assert_eq!(held(&*store).await, is(&[("shop", 26), ("é", 4)]), "less is there now");
}

pub async fn pieces_of_a_name_are_dropped_together(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for n in 0..100 {
        put(&*store, "shop/a", n, &bytes(0, 10), DAY_MS).await;
    }
    put(&*store, "shop/ab", 0, &bytes(0, 7), DAY_MS).await;
    fine(store.drop_pieces("shop/a").await);
    fine(store.drop_pieces("shop/nothing").await);
    for n in [0, 1, 50, 99] {
        assert_eq!(fine(store.piece("shop/a", n).await), None);
    }
    assert_eq!(held(&*store).await, [("shop".to_owned(), 7)]);
}

pub async fn purge_forgets_pieces_after_their_time(fixture: &dyn StoreFixture) {
    let store = fixture.open();
    for n in 0..40 {
        put(&*store, "shop/a", n, &bytes(0, 10), 1_000).await;
    }
    put(&*store, "shop/b", 0, &bytes(0, 10), 1_001).await;
    fixture.clock().advance(500);
    put(&*store, "shop/a", 3, &bytes(0, 10), 1_000).await;
    let retention = [("shop".to_owned(), 30 * DAY_MS)];
    let purge = async || while fine(store.purge(&retention, 10).await).more {};
    purge().await;
    assert_eq!(held(&*store).await, [("shop".to_owned(), 410)], "too young");
    fixture.clock().advance(500);
    purge().await;
    assert_eq!(held(&*store).await, [("shop".to_owned(), 20)]);
    assert_eq!(fine(store.piece("shop/a", 2).await), None);
    assert!(fine(store.piece("shop/a", 3).await).is_some(), "its time began anew");
    fixture.clock().advance(500);
    purge().await;
    assert!(held(&*store).await.is_empty());
}
