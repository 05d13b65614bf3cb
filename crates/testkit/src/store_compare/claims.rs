//! Claims of a random sequence.

use bytes::Bytes;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimKey, ClaimOp, ClaimResult, Condition, Ends, OnAbandoned, ShownState};
use hapax_store::ClaimQuery;
use rand::Rng;
use rand::rngs::StdRng;

use super::Pair;
use crate::store_fixture::{HOLD_MS, WINDOW_MS};

/// What can be told of a claim whatever the store numbers it.
fn told(claim: &Claim) -> Claim {
    Claim { fence: 0, ..claim.clone() }
}

fn told_answer(answer: &ClaimAnswer) -> ClaimAnswer {
    match answer.clone() {
        ClaimAnswer::Claimed { token, lease_until_ms, previous, .. } => {
            ClaimAnswer::Claimed { token, fence: 0, lease_until_ms, previous }
        }
        other => other,
    }
}

fn random_op(random: &mut StdRng) -> ClaimOp {
    let token = format!("t{}", random.random_range(0..3));
    let lease_ms = [1, 500, HOLD_MS][random.random_range(0..3)];
    let value = Bytes::from(format!("v{}", random.random_range(0..2)));
    let ends = match random.random_range(0..5) {
        0 => Ends::Keep,
        1 => Ends::Never,
        2 => Ends::Plus(HOLD_MS),
        _ => Ends::In(lease_ms),
    };
    match random.random_range(0..16) {
        0..5 => ClaimOp::Claim {
            token,
            ttl_ms: [1, HOLD_MS, WINDOW_MS][random.random_range(0..3)],
            lease_ms,
            fingerprint: random.random_bool(0.3).then(|| format!("p{}", random.random_range(0..2))),
            on_abandoned: if random.random_bool(0.2) { OnAbandoned::Hold } else { OnAbandoned::Takeover },
            holder: random.random_bool(0.5).then(|| "host".to_owned()),
        },
        5..8 => {
            let content_type = random.random_bool(0.5).then(|| "text/plain".to_owned());
            let result = random.random_bool(0.7).then(|| ClaimResult { content_type, bytes: value });
            ClaimOp::Complete { token, result, keep_ms: random.random_bool(0.3).then_some(lease_ms) }
        }
        8 => ClaimOp::Extend { token, lease_ms },
        9 => ClaimOp::Release { token },
        10 if random.random_bool(0.5) => ClaimOp::Delete,
        10 => ClaimOp::Remove,
        11 => ClaimOp::Get,
        12 => ClaimOp::Expire { ends },
        13 if random.random_bool(0.5) => ClaimOp::ExpireIfEquals { value, ends },
        13 => ClaimOp::DeleteIfEquals { value },
        _ => {
            let condition = [Condition::Always, Condition::IfAbsent, Condition::IfPresent][random.random_range(0..3)];
            ClaimOp::Set { value, condition, ends, tell: random.random_bool(0.5) }
        }
    }
}

fn names() -> impl Iterator<Item = ClaimKey> {
    ["jobs", "redis"].into_iter().flat_map(|scope| (0..3).map(move |n| ClaimKey::new(scope, format!("k{n}"))))
}

impl Pair {
    pub(super) async fn claim(&mut self, random: &mut StdRng) {
        let all: Vec<ClaimKey> = names().collect();
        let ops: Vec<(ClaimKey, ClaimOp)> =
            (0..random.random_range(1..5)).map(|_| (all[random.random_range(0..all.len())].clone(), random_op(random))).collect();
        self.call = format!("claims {ops:?}");
        let model = self.fine(self.model.claims(ops.clone()).await);
        let engine = self.fine(self.engine.claims(ops).await);
        let told = |answers: &[ClaimAnswer]| answers.iter().map(told_answer).collect::<Vec<_>>();
        self.same(told(&model), told(&engine));
    }

    pub(super) async fn look_at_claims(&self) {
        for key in names() {
            let model = self.fine(self.model.claim(&key).await);
            let engine = self.fine(self.engine.claim(&key).await);
            self.same(model.as_ref().map(told), engine.as_ref().map(told));
        }
        for state in ShownState::ALL.map(Some).into_iter().chain([None]) {
            let query = ClaimQuery { state, limit: 100, ..ClaimQuery::default() };
            let model = self.fine(self.model.list_claims(query.clone()).await);
            let engine = self.fine(self.engine.list_claims(query).await);
            let told = |rows: &[Claim]| rows.iter().map(told).collect::<Vec<_>>();
            self.same((told(&model.rows), model.more), (told(&engine.rows), engine.more));
        }
    }
}
