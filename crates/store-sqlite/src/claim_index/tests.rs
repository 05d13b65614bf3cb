use super::*;
use crate::claim_entry::body;
use crate::open;
use hapax_domain::claim::{Claim, ClaimKey, ClaimResult, ClaimState, OnAbandoned};

const SMALL: ClaimSize = ClaimSize { round_bytes: 400, block_bytes: 250, step_blocks: 1 };
const NEVER: ClaimSize = ClaimSize { round_bytes: usize::MAX, block_bytes: 250, step_blocks: 1 };

fn database(folder: &tempfile::TempDir) -> Connection {
    open::writing(&folder.path().join("s.db")).expect("it opens")
}

fn load(db: &Connection, size: ClaimSize) -> ClaimIndex {
    ClaimIndex::load(db, size, Arc::new(AtomicUsize::new(1_000))).expect("it is read")
}

fn value(key: u64, fence: u64, value: &str, ends_ms: i64) -> Claim {
    Claim {
        key: ClaimKey::new("redis", key.to_string()),
        state: ClaimState::Value,
        token: String::new(),
        fence,
        fingerprint: None,
        on_abandoned: OnAbandoned::Takeover,
        holder: None,
        claimed_at_ms: 1,
        lease_ms: 0,
        lease_until_ms: 1,
        ttl_ms: 0,
        completed_at_ms: None,
        result: Some(ClaimResult { content_type: None, bytes: value.to_owned().into() }),
        ends_ms: Some(ends_ms),
    }
}

fn at(key: u64) -> Short {
    short(&ClaimKey::new("redis", key.to_string()).to_name())
}

fn put(index: &mut ClaimIndex, claim: &Claim) {
    let name = claim.key.to_name();
    index.put(short(&name), claim.fence as i64, body(claim, &name));
}

fn found(index: &ClaimIndex, db: &Connection, key: u64) -> Option<Claim> {
    index.find(db, &at(key), |entry| entry.claim(true)).expect("it is read")
}

/// A batch is committed, or not.
fn end_batch(index: &mut ClaimIndex, db: &Connection, commit: bool) {
    db.execute_batch("BEGIN").expect("it begins");
    index.write_some(db).expect("it is written");
    db.execute_batch(if commit { "COMMIT" } else { "ROLLBACK" }).expect("it ends");
    if commit { index.committed() } else { index.rolled_back() }
}

fn count(db: &Connection, table: &str) -> i64 {
    db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("it is counted")
}

/// Keys are put, changed, made longer, released and taken anew, a few with each batch, some batches fail, and after each of them another
/// process finds what this one knows.
#[test]
fn what_a_round_has_left_is_there_after_a_crash() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = database(&folder);
    let (mut index, mut known, mut random, mut fence) = (load(&db, SMALL), HashMap::<u64, Claim>::new(), 7_u64, 0);
    let mut in_rounds = 0;
    for batch in 0..600 {
        let before = known.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, what) = ((random >> 33) % 40, (random >> 40) % 8);
            match known.get(&key).cloned() {
                Some(there) if what < 2 => {
                    index.remove(at(key), there.fence as i64);
                    known.remove(&key);
                }
                Some(there) => {
                    let longer = value(key, there.fence, &"x".repeat((random >> 44) as usize % 300), 900);
                    put(&mut index, &longer);
                    known.insert(key, longer);
                }
                None => {
                    fence += 1;
                    let claim = value(key, fence, "host-1", 900);
                    put(&mut index, &claim);
                    known.insert(key, claim);
                }
            }
        }
        let fails = batch % 7 == 6;
        end_batch(&mut index, &db, !fails);
        if fails {
            known = before;
        }
        in_rounds += usize::from(index.round.is_some());
        let other = load(&db, NEVER);
        assert_eq!(index.fences.len(), known.len());
        assert_eq!(other.fences, index.fences, "after batch {batch}");
        for key in 0..40 {
            assert_eq!(found(&index, &db, key), known.get(&key).cloned(), "key {key} after batch {batch}");
            assert_eq!(found(&other, &db, key), known.get(&key).cloned(), "key {key} for another, after batch {batch}");
        }
    }
    assert!(in_rounds > 50, "a process ended within {in_rounds} rounds");
    assert!(count(&db, "claim_blocks") > 5 && count(&db, "claim_changes") < 60, "rounds end");
    index.write_all(&db).expect("it is written");
    assert_eq!((count(&db, "claim_changes"), index.young.len()), (0, 0), "nothing is left to write");
    let other = load(&db, SMALL);
    known.iter().for_each(|(key, claim)| assert_eq!(found(&other, &db, *key).as_ref(), Some(claim)));
}

#[test]
fn what_is_over_goes_wherever_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = database(&folder);
    let mut index = load(&db, NEVER);
    for key in 1..=20 {
        put(&mut index, &value(key, key, "host-1", 100 + key as i64 % 2 * 100));
    }
    index.write_all(&db).expect("it is written");
    // One in a block is kept for longer, and another is in none yet.
    put(&mut index, &value(2, 2, "host-1", 900));
    put(&mut index, &value(21, 21, "host-1", 100));
    assert_eq!(index.purge(&db, 99, 100).expect("purged"), 0);
    assert_eq!(index.purge(&db, 100, 100).expect("purged"), 11, "a half of twenty, of which one is kept, and the last");
    end_batch(&mut index, &db, true);
    for index in [&index, &load(&db, NEVER)] {
        let left: Vec<u64> = (1..=21).filter(|key| found(index, &db, *key).is_some()).collect();
        assert_eq!(left, [1, 2, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
    }
    let mut index = load(&db, NEVER);
    assert_eq!(index.purge(&db, 200, 3).expect("purged") / 3, 1, "about as many as were asked for");
    while index.purge(&db, 900, 3).expect("purged") > 0 {}
    end_batch(&mut index, &db, true);
    assert!(load(&db, NEVER).is_empty() && count(&db, "claim_blocks") == 0);
}

#[test]
fn rows_of_an_older_version_are_taken_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = database(&folder);
    let insert =
        "INSERT INTO claims VALUES (?1, CAST('jobs' || x'00' || ?1 AS BLOB), ?2, 5, 900, ?3, 7, 8, 9, ?4, 'f', 'h', ?5, ?6, ?7)";
    for fence in 1..=30 {
        let held = params![fence, 0, "mine", true, None::<i64>, None::<&str>, None::<Vec<u8>>];
        db.execute(insert, held).expect("a row");
    }
    db.execute(insert, params![40, 1, "mine", false, 6, "text/plain", b"done".to_vec()]).expect("a row");
    let index = load(&db, SMALL);
    assert!(!db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'claims'").expect("a query").exists([]).expect("an answer"));
    let find = |key: &str| {
        let at = short(&ClaimKey::new("jobs", key).to_name());
        index.find(&db, &at, |entry| entry.claim(true)).expect("it is read").expect("it is there")
    };
    let held = find("30");
    assert_eq!((held.fence, held.state, held.on_abandoned, held.lease_ms), (30, ClaimState::Held, OnAbandoned::Hold, 8));
    let done = find("40");
    assert_eq!((done.completed_at_ms, done.result.expect("a result").bytes), (Some(6), "done".into()));
    assert_eq!((index.fences.len(), load(&db, SMALL).fences.len()), (31, 31));
}
