//! Claims in plain maps.

use hapax_domain::limits::CLAIM_GONE_KEPT_MS;
use hapax_store::steps::records::{ClaimRec, Hash};
use hapax_store::{ClaimCounts, ClaimQuery};

use super::Data;

impl Data {
    pub(super) fn list_claims(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Vec<ClaimRec> {
        let wanted = |claim: &&ClaimRec| {
            claim.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms)
                && query.scope.as_ref().is_none_or(|scope| *scope == claim.scope)
                && query.prefix.as_ref().is_none_or(|prefix| claim.key.starts_with(prefix))
                && query.state.is_none_or(|state| state == claim.to_claim().shown(now_ms))
                && query.before.is_none_or(|before| claim.fence < before)
        };
        let mut rows: Vec<ClaimRec> =
            self.claims.values().filter(wanted).map(|claim| ClaimRec { result: None, ..claim.clone() }).collect();
        rows.sort_by_key(|claim| std::cmp::Reverse(claim.fence));
        rows.truncate(limit);
        rows
    }

    pub(super) fn count_claims(&self, now_ms: i64) -> ClaimCounts {
        let mut counts = ClaimCounts::default();
        self.claims.values().filter(|claim| !claim.is_gone()).for_each(|claim| counts.add(claim.to_claim().shown(now_ms), 1));
        counts
    }

    pub(super) fn purge_claims(&mut self, max: usize, now_ms: i64) -> u64 {
        let is_over = |claim: &&ClaimRec| {
            let kept_ms = if claim.is_gone() { CLAIM_GONE_KEPT_MS } else { 0 };
            claim.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms - kept_ms)
        };
        let over = self.claims.values().filter(is_over);
        let over: Vec<Hash> = over.map(|claim| claim.hash).take(max).collect();
        over.iter().for_each(|hash| drop(self.claims.remove(hash)));
        over.len() as u64
    }
}
