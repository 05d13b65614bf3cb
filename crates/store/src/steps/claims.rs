//! Claims over records: what many callers ask at once is decided in one transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimChange, ClaimKey, ClaimOp, ClaimState, decide};
use hapax_domain::limits::CLAIMS_MAX;

use super::engine::{Engine, First, Pool, Tx, TxError, Wanted};
use super::records::{ClaimRec, Hash, claim_hash};
use super::run::Step;
use super::store::ServerStore;
use super::work::Work;
use crate::claims::{self, ClaimQuery};
use crate::{Claims, Page, StoreError};

/// What one caller asks.
pub(super) type Asks = Arc<Vec<(ClaimKey, ClaimOp)>>;

/// So much of a result weighs as much as a claim.
const RESULT_BYTES: usize = 8 << 10;

/// The asks of many callers, each with the room there is.
pub(super) struct ClaimAll(pub(super) Vec<(Asks, Arc<ClaimRoom>)>);

impl ClaimAll {
    fn asks(&self) -> impl Iterator<Item = &(ClaimKey, ClaimOp)> {
        self.0.iter().flat_map(|(asks, _)| asks.iter())
    }

    fn hashes(&self) -> Vec<Hash> {
        self.asks().map(|(key, _)| claim_hash(key)).collect()
    }
}

#[async_trait]
impl Step for ClaimAll {
    type Out = Vec<Vec<ClaimAnswer>>;
    const POOL: Pool = Pool::Ingest;

    fn numbers(&self) -> usize {
        self.asks().count()
    }

    fn first(&self) -> First {
        First { claims: self.hashes(), ..First::default() }
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, TxError> {
        let mut work = Work::new(tx.now_ms());
        work.load(tx, Wanted { claims: self.hashes(), ..Wanted::default() }).await?;
        let room = self.0.first().map_or(usize::MAX, |(_, room)| room.left());
        let (mut added, mut answers) = (0, Vec::with_capacity(self.0.len()));
        for (asks, _) in &self.0 {
            let mut ours = Vec::with_capacity(asks.len());
            for (key, op) in asks.iter() {
                ours.push(one(&mut work, key, op, tx.number(), (&mut added, room))?);
            }
            answers.push(ours);
        }
        tx.save(work.changes()).await?;
        Ok(answers)
    }
}

fn one(
    work: &mut Work,
    key: &ClaimKey,
    op: &ClaimOp,
    fence: u64,
    (added, room): (&mut i64, usize),
) -> Result<ClaimAnswer, TxError> {
    let hash = claim_hash(key);
    let found = work.claims.get(&hash);
    let record = found.filter(|found| !found.is_gone()).map(ClaimRec::to_claim);
    let (change, answer) = decide(record.as_ref(), key, op, work.now_ms, fence);
    match change {
        ClaimChange::Keep => {}
        ClaimChange::Remove => {
            *added -= 1;
            // Nobody is told the fence of a value.
            match found.filter(|found| found.state != ClaimState::Value).map(|found| found.gone(work.now_ms)) {
                Some(gone) => work.claims.put(hash, gone),
                None => drop(work.claims.remove(&hash)),
            }
        }
        ClaimChange::Put(_) if record.is_none() && *added >= i64::try_from(room).unwrap_or(i64::MAX) => {
            return Ok(ClaimAnswer::NoRoom);
        }
        ClaimChange::Put(claim) => {
            // Another transaction that began later may have claimed it, and let it go, before we came to it.
            if found.is_some_and(|found| claim.fence < found.fence) {
                return Err(TxError::Conflict("a claim has a higher fence than was drawn".to_owned()));
            }
            *added += i64::from(record.is_none());
            work.claims.put(hash, ClaimRec::new(&claim));
        }
    }
    Ok(answer)
}

/// How many claims there may be, and about how many there are: counted now and then, and what this instance adds in between.
pub(super) struct ClaimRoom {
    most: AtomicUsize,
    kept: AtomicI64,
    counted: Mutex<Option<Instant>>,
}

/// A count is believed for so long.
const COUNT_EVERY: Duration = Duration::from_secs(10);

impl ClaimRoom {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { most: AtomicUsize::new(CLAIMS_MAX), kept: AtomicI64::new(0), counted: Mutex::default() })
    }

    fn limit(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn left(&self) -> usize {
        let kept = usize::try_from(self.kept.load(Ordering::Relaxed)).unwrap_or_default();
        self.most.load(Ordering::Relaxed).saturating_sub(kept)
    }

    /// True for the one caller that is to count.
    fn wants_count(&self) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let wants = counted.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
        if wants {
            *counted = Some(Instant::now());
        }
        wants
    }

    fn note(&self, asks: &[(ClaimKey, ClaimOp)], answers: &[ClaimAnswer]) {
        let change = |((_, op), answer): (&(ClaimKey, ClaimOp), &ClaimAnswer)| match (op, answer) {
            (ClaimOp::Claim { .. }, ClaimAnswer::Claimed { previous: hapax_domain::claim::Previous::None, .. }) => 1,
            (ClaimOp::Set { .. }, ClaimAnswer::Set { previous: None }) => 1,
            (_, ClaimAnswer::Released | ClaimAnswer::Removed(true)) => -1,
            _ => 0,
        };
        let change: i64 = asks.iter().zip(answers).map(change).sum();
        if change != 0 {
            self.kept.fetch_add(change, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl<E: Engine> Claims for ServerStore<E> {
    async fn claims(&self, ops: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, StoreError> {
        claims::check(&ops)?;
        if ops.iter().any(|(_, op)| op.may_add()) && self.claim_room.wants_count() {
            let now_ms = self.engine.now_ms().await?;
            let kept = self.engine.count_claims(now_ms).await?.all();
            self.claim_room.kept.store(i64::try_from(kept).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
        let weight = ops.iter().map(|(_, op)| 1 + op.bytes() / RESULT_BYTES).sum();
        let asks: Asks = Arc::new(ops);
        let answers = self.asked_claims.call((Arc::clone(&asks), Arc::clone(&self.claim_room)), weight).await?;
        self.claim_room.note(&asks, &answers);
        Ok(answers)
    }

    async fn claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let now_ms = self.engine.now_ms().await?;
        let wanted = Wanted { claims: vec![claim_hash(key)], ..Wanted::default() };
        let found: HashMap<Hash, ClaimRec> = self.engine.peek(&wanted).await?.claims;
        let there = found.values().find(|claim| !claim.is_gone()).map(ClaimRec::to_claim);
        Ok(there.filter(|claim| !claim.is_over(now_ms)))
    }

    async fn list_claims(&self, query: ClaimQuery) -> Result<Page<Claim>, StoreError> {
        let now_ms = self.engine.now_ms().await?;
        let mut rows = self.engine.list_claims(&query, now_ms, query.limit + 1).await?;
        let more = rows.len() > query.limit;
        rows.truncate(query.limit);
        Ok(Page { rows: rows.iter().map(ClaimRec::to_claim).collect(), more })
    }

    fn limit_claims(&self, most: usize) {
        self.claim_room.limit(most);
    }
}

#[cfg(test)]
mod tests {
    use hapax_domain::claim::OnAbandoned;

    use super::super::engine::{Changes, Due, Loaded};
    use super::super::records::{ItemRec, KeyRec, LaneRec};
    use super::*;
    use crate::Redrive;

    type Table = HashMap<Hash, ClaimRec>;

    /// A transaction that has drawn its number, and sees what is there when it comes to look.
    struct Drawn<'t> {
        number: u64,
        table: &'t mut Table,
    }

    #[async_trait]
    impl Tx for Drawn<'_> {
        fn now_ms(&self) -> i64 {
            1_000
        }

        fn number(&mut self) -> u64 {
            self.number
        }

        async fn claim(&mut self, _: &[KeyRec]) -> Result<Vec<Option<KeyRec>>, TxError> {
            Ok(Vec::new())
        }

        async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, TxError> {
            let claims = wanted.claims.iter().filter_map(|hash| Some((*hash, self.table.get(hash)?.clone()))).collect();
            Ok(Loaded { claims, ..Loaded::default() })
        }

        async fn due_lanes(&mut self, _: &Due<'_>) -> Result<Vec<LaneRec>, TxError> {
            Ok(Vec::new())
        }

        async fn parked(&mut self, _: &Redrive, _: u64, _: usize) -> Result<Vec<ItemRec>, TxError> {
            Ok(Vec::new())
        }

        async fn save(&mut self, changes: Changes) -> Result<(), TxError> {
            if changes.new_claims.iter().any(|new| self.table.contains_key(&new.hash)) {
                return Err(TxError::Conflict("it is there".to_owned()));
            }
            self.table.extend(changes.new_claims.into_iter().chain(changes.claims).map(|claim| (claim.hash, claim)));
            changes.gone_claims.iter().for_each(|gone| drop(self.table.remove(gone)));
            Ok(())
        }

        async fn commit(self) -> Result<(), TxError> {
            Ok(())
        }
    }

    fn asked(op: ClaimOp) -> ClaimAll {
        ClaimAll(vec![(Arc::new(vec![(ClaimKey::new("jobs", "k"), op)]), ClaimRoom::new())])
    }

    fn claim(token: &str) -> ClaimAll {
        asked(ClaimOp::Claim {
            token: token.to_owned(),
            ttl_ms: 1_000,
            lease_ms: 1_000,
            fingerprint: None,
            on_abandoned: OnAbandoned::Takeover,
            holder: None,
        })
    }

    async fn answered(table: &mut Table, number: u64, step: &ClaimAll) -> Result<ClaimAnswer, TxError> {
        Ok(step.run(&mut Drawn { number, table }).await?.remove(0).remove(0))
    }

    fn fence(answer: Result<ClaimAnswer, TxError>) -> Option<u64> {
        match answer {
            Ok(ClaimAnswer::Claimed { fence, .. }) => Some(fence),
            _ => None,
        }
    }

    #[tokio::test]
    async fn who_drew_before_a_key_was_claimed_and_let_go_draws_anew() {
        for let_go in [ClaimOp::Release { token: "b".to_owned() }, ClaimOp::Delete] {
            let mut table = Table::new();
            assert_eq!(fence(answered(&mut table, 11, &claim("b")).await), Some(11));
            answered(&mut table, 12, &asked(let_go)).await.expect("let go");
            let early = answered(&mut table, 10, &claim("a")).await;
            assert!(matches!(early, Err(TxError::Conflict(_))), "{early:?}");
            let release = asked(ClaimOp::Release { token: "b".to_owned() });
            assert_eq!(answered(&mut table, 13, &release).await.ok(), Some(ClaimAnswer::Lost));
            assert_eq!(fence(answered(&mut table, 14, &claim("a")).await), Some(14));
        }
    }

    #[tokio::test]
    async fn who_found_the_key_free_before_it_was_claimed_and_let_go_is_in_the_way() {
        let mut table = Table::new();
        let mut early = Table::new();
        assert_eq!(fence(answered(&mut early, 10, &claim("a")).await), Some(10));
        assert_eq!(fence(answered(&mut table, 11, &claim("b")).await), Some(11));
        answered(&mut table, 12, &asked(ClaimOp::Release { token: "b".to_owned() })).await.expect("let go");
        let new_claims = early.into_values().collect();
        let saved = Drawn { number: 10, table: &mut table }.save(Changes { new_claims, ..Changes::default() }).await;
        assert!(matches!(saved, Err(TxError::Conflict(_))), "what is left of it is in the way");
    }
}
