//! Numbers of every size that an id has room for.

use super::*;

/// Redis and Firestore make numbers of some 60 bits. Every store takes them, goes on above them, and hands on what it then has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_any_size_are_kept() {
    for (seed, by) in [(3_000, 1 << 40), (3_001, (1 << 52) + 1)] {
        let (first, plain) = (sqlite(), PlainFixture::new());
        let records = normal::spread(export(&*filled(&first, seed).await).await, by);
        let between = open_at(&plain, &first);
        import(&*between, &records).await;
        let expected = snapshot(&*between, &records).await;
        let (mut kept, mut stores): (Vec<Box<dyn StoreFixture>>, _) = (vec![Box::new(plain)], vec![between]);
        for (name, fixture) in pairs::fixtures().await {
            let Some(fixture) = fixture else { continue };
            let what = format!("seed {seed}, {name}");
            let store = open_at(&*fixture, &first);
            import(&*store, &records).await;
            same(&what, &expected, &snapshot(&*store, &records).await);
            same_records(&what, &normal::normal(&records), &normal::normal(&export(&*store).await));
            kept.push(fixture);
            stores.push(store);
        }
        kept.iter().for_each(|fixture| fixture.clock().advance(1_000));
        let what = format!("seed {seed}, large numbers");
        pairs::handle_alike(&what, &stores, &records).await;
        go_on_alike(&what, &stores, highest(&records)).await;
        // The embedded store has keys of both kinds now, and is opened and moved once more.
        stores.clear();
        let again = kept[1].crash();
        let records = export(&*again).await;
        let next = sqlite();
        let store = open_at(&next, &*kept[1]);
        import(&*store, &records).await;
        same(&what, &snapshot(&*again, &records).await, &snapshot(&*store, &records).await);
        go_on_alike(&what, &[again, store], highest(&records)).await;
    }
}

#[tokio::test]
async fn a_number_that_no_id_can_hold_is_refused() {
    let (fixture, target) = (PlainFixture::new(), sqlite());
    let store = fixture.open();
    accept(&*store, webhook(vec![message("m1", "ana")])).await;
    let records = normal::spread(export(&*store).await, 1 << 62);
    let moved = target.open();
    let moving = moved.moving().expect("it can be moved");
    moving.begin_import().await.expect("it is empty");
    refused(moving.import(records).await, "no room in an id");
    assert!(moving.is_half_filled().await.expect("an answer"));
}
