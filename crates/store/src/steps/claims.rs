//! Claims over records: what many callers ask at once is decided in one transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimChange, ClaimKey, ClaimOp, decide};
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
    let record = work.claims.get(&hash).map(ClaimRec::to_claim);
    let (change, answer) = decide(record.as_ref(), key, op, work.now_ms, fence);
    match change {
        ClaimChange::Keep => {}
        ClaimChange::Remove => {
            *added -= 1;
            work.claims.remove(&hash);
        }
        ClaimChange::Put(_) if record.is_none() && *added >= i64::try_from(room).unwrap_or(i64::MAX) => {
            return Ok(ClaimAnswer::NoRoom);
        }
        ClaimChange::Put(claim) => {
            // Another transaction that began later may have claimed it, and ended, before we came to it.
            if record.as_ref().is_some_and(|record| claim.fence < record.fence) {
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
        Ok(found.values().next().map(ClaimRec::to_claim).filter(|claim| !claim.is_over(now_ms)))
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
