//! What happens to claims. Keys name people's orders and invoices: they are not logged, their scopes are.

use hapax_domain::claim::{ClaimAnswer, Previous};
use hapax_store::ClaimCounts;

use super::{Telemetry, names};

impl Telemetry {
    /// Somebody asked for a claim.
    pub fn claim_answered(&self, answer: &ClaimAnswer) {
        let answer = match answer {
            ClaimAnswer::Claimed { previous: Previous::None, .. } => "claimed",
            ClaimAnswer::Claimed { previous: Previous::Abandoned, .. } => "taken_over",
            ClaimAnswer::Completed { .. } => "completed",
            ClaimAnswer::InProgress { .. } => "in_progress",
            ClaimAnswer::HeldForPerson { .. } => "held",
            ClaimAnswer::FingerprintMismatch => "mismatch",
            ClaimAnswer::NoRoom => "no_room",
            _ => "other",
        };
        debug_assert!(names::CLAIM_ANSWERS.contains(&answer), "`{answer}` is not there from the first scrape");
        self.counter(names::CLAIMS_ASKED, &[("answer", answer)]).increment(1);
        if answer == "no_room" {
            tracing::warn!("there is no room for more claims; raise `max` in [claims], or use shorter times");
        }
    }

    /// A holder came too late: another has its claim.
    pub fn claim_lost(&self, scope: &str) {
        self.counter(names::CLAIMS_LOST, &[]).increment(1);
        tracing::info!(scope, "the holder of a claim came too late; nothing was changed");
    }

    pub fn claim_released_by_person(&self, scope: &str, by: &str) {
        tracing::info!(scope, by, "a claim was released by hand");
    }

    pub fn claim_deleted(&self, scope: &str, by: &str) {
        tracing::info!(scope, by, "a claim was deleted");
    }

    pub(super) fn claims_kept(&self, counts: &ClaimCounts) {
        let ClaimCounts { held, abandoned, completed, values } = *counts;
        for (state, count) in [("held", held), ("abandoned", abandoned), ("completed", completed), ("value", values)] {
            self.gauge(names::CLAIMS, &[("state", state)]).set(count as f64);
        }
    }
}
