//! Claims of the model.

use std::collections::HashMap;

use async_trait::async_trait;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimChange, ClaimKey, ClaimOp, decide};
use hapax_domain::limits::CLAIMS_MAX;

use super::MemoryStore;
use super::state::State;
use crate::claims::{self, ClaimCounts, ClaimQuery};
use crate::{Claims, Page, StoreError};

pub(super) struct Kept {
    claims: HashMap<ClaimKey, Claim>,
    most: usize,
}

impl Default for Kept {
    fn default() -> Self {
        Self { claims: HashMap::new(), most: CLAIMS_MAX }
    }
}

impl Kept {
    fn ask(&mut self, key: &ClaimKey, op: &ClaimOp, now: i64, fence: u64) -> ClaimAnswer {
        let (change, answer) = decide(self.claims.get(key), key, op, now, fence);
        match change {
            ClaimChange::Keep => {}
            ClaimChange::Put(_) if !self.claims.contains_key(key) && self.claims.len() >= self.most => {
                return ClaimAnswer::NoRoom;
            }
            ClaimChange::Put(claim) => drop(self.claims.insert(key.clone(), *claim)),
            ClaimChange::Remove => drop(self.claims.remove(key)),
        }
        answer
    }

    fn list(&self, query: &ClaimQuery, now: i64) -> Page<Claim> {
        let wanted = |claim: &&Claim| {
            !claim.is_over(now)
                && query.scope.as_ref().is_none_or(|scope| *scope == claim.key.scope)
                && query.prefix.as_ref().is_none_or(|prefix| claim.key.key.starts_with(prefix))
                && query.state.is_none_or(|state| state == claim.shown(now))
                && query.before.is_none_or(|before| claim.fence < before)
        };
        let mut rows: Vec<Claim> =
            self.claims.values().filter(wanted).map(|claim| Claim { result: None, ..claim.clone() }).collect();
        rows.sort_by_key(|claim| std::cmp::Reverse(claim.fence));
        let more = rows.len() > query.limit;
        rows.truncate(query.limit);
        Page { rows, more }
    }

    pub(super) fn counts(&self, now: i64) -> ClaimCounts {
        let mut counts = ClaimCounts::default();
        self.claims.values().for_each(|claim| counts.add(claim.shown(now), 1));
        counts
    }

    /// Removes at most `max` that are over; true when there may be more.
    pub(super) fn purge(&mut self, max: usize, now: i64) -> bool {
        let over = self.claims.values().filter(|claim| claim.is_over(now)).map(|claim| claim.key.clone());
        let over: Vec<ClaimKey> = over.take(max).collect();
        over.iter().for_each(|key| drop(self.claims.remove(key)));
        over.len() == max
    }
}

impl State {
    fn ask_claims(&mut self, ops: &[(ClaimKey, ClaimOp)], now: i64) -> Vec<ClaimAnswer> {
        let answer = |(key, op): &(ClaimKey, ClaimOp)| {
            self.last_fence += 1;
            self.claims.ask(key, op, now, self.last_fence)
        };
        ops.iter().map(answer).collect()
    }
}

#[async_trait]
impl Claims for MemoryStore {
    async fn claims(&self, ops: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, StoreError> {
        claims::check(&ops)?;
        Ok(self.lock().ask_claims(&ops, self.now()))
    }

    async fn claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let now = self.now();
        Ok(self.lock().claims.claims.get(key).filter(|claim| !claim.is_over(now)).cloned())
    }

    async fn list_claims(&self, query: ClaimQuery) -> Result<Page<Claim>, StoreError> {
        Ok(self.lock().claims.list(&query, self.now()))
    }

    fn limit_claims(&self, most: usize) {
        self.lock().claims.most = most;
    }
}
