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
