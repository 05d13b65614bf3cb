//! Every engine runs the whole store suite.

mod memory {
    use hapax::testkit::store_bed::MemoryBed;

    hapax::store_suite!(MemoryBed::new());
}

mod sqlite {
    use hapax::testkit::store_bed::SqliteBed;

    hapax::store_suite!(SqliteBed::new(crate::quick_folder().keep()));
}

/// How many random sequences each engine is compared over; every seed is its own sequence.
const SEQUENCES: u64 = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_answers_like_the_model() {
    for seed in 0..SEQUENCES {
        let bed = hapax::testkit::store_bed::SqliteBed::new(crate::quick_folder().keep());
        hapax::testkit::store_compare::compare(&bed, seed).await;
    }
}

/// A window of 4 items in memory, 200 in the inbox: nothing is forgotten, and every lane keeps its order, over a restart too.
#[tokio::test]
async fn a_long_inbox_keeps_its_order_in_a_short_window() {
    use hapax::store::sqlite::{Options, SqliteStore};
    use hapax::store::{Outcome, Store};
    use hapax::testkit::store_bed::{accept_one, ids, lease, message};

    let folder = crate::quick_folder();
    let clock = std::sync::Arc::new(hapax::clock::SystemClock::new());
    let options = Options { window: 4, ..Options::default() };
    let open = || SqliteStore::open(&folder.path().join("window.db"), clock.clone(), &options).expect("the store opens");
    let mut store = open();
    let mut sent = vec![Vec::new(); 7];
    for n in 0..200 {
        sent[n % 7].push(accept_one(&store, message(&format!("m{n}"), &format!("p{}", n % 7))).await);
    }
    let mut got = vec![Vec::new(); 7];
    for round in 0.. {
        let leases = lease(&store, 3).await;
        if leases.is_empty() {
            break;
        }
        for held in leases {
            let lane = sent.iter().position(|lane| lane.contains(&ids(&held)[0])).expect("one of ours");
            got[lane].extend(ids(&held));
            let delivered = Outcome::Delivered { status: 200, answer: None };
            store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
        }
        if round == 20 {
            drop(store);
            store = open();
        }
    }
    assert_eq!(got, sent);
}
