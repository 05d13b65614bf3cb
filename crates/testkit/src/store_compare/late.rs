//! Outcomes that are told after their lease.

use hapax_store::SendOutcome;
use rand::Rng;
use rand::rngs::StdRng;

use super::Pair;
use super::random::random_name;

impl Pair {
    /// Tells what became of a try that was leased at some time, by whatever number.
    pub(super) async fn settle_late(&mut self, random: &mut StdRng) {
        let Some((model, engine)) = self.sends.get(random.random_range(0..self.sends.len().max(1))).cloned() else { return };
        let outcome = match random.random_range(0..4) {
            0 | 1 => SendOutcome::Sent { provider_id: random_name(random) },
            2 => SendOutcome::Failed { why: "late no".to_owned() },
            _ => SendOutcome::Retry { wait_ms: 500, why: "late 429".to_owned(), charged: random.random_bool(0.5) },
        };
        let attempt = model.attempt + u32::from(random.random_bool(0.3));
        self.call = format!("settle {} late, try {attempt}: {outcome:?}", model.message);
        let a = self.fine(self.model.settle_late(model.message, attempt, outcome.clone()).await);
        let b = self.fine(self.engine.settle_late(engine.message, attempt, outcome).await);
        self.same(a, b);
    }
}
