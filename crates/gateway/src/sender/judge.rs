//! The pure half of sending: from what was heard of the provider to what becomes of the message.
//!
//! *Invariant:* nothing here turns "it may have gone out" into another try, unless the channel chose `resend`.

use hapax_domain::limits::RETRY_AFTER_MAX_MS;
use hapax_providers::sending::{Found, Reconcile, Verdict};
use hapax_store::SendOutcome;

use crate::settings::{self, OnUnknown};

/// When a send in doubt is looked up, counted from when the doubt began. After the last it waits for a person.
const CHECKS_MS: [i64; 7] = [5_000, 30_000, 300_000, 1_800_000, 7_200_000, 28_800_000, 86_400_000];

/// The pause between two looks is at least this.
const CHECK_GAP_MS: i64 = 1_000;

/// Neither it nor anything that could be it.
const NOT_SHOWN: &str = "the provider's history does not show it";

/// What was heard of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its answer, as the adapter reads it.
    Said(Verdict),
    /// The request surely never reached it.
    Unreachable(String),
    /// It may have reached it.
    Nothing(String),
}

/// What becomes of the message, and of its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) outcome: SendOutcome,
    pub(super) account: AccountFate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountFate {
    GoesOn,
    /// All its sends wait.
    Silent {
        wait_ms: i64,
    },
    /// It stops until a person has seen to it.
    Paused {
        why: String,
    },
}

/// How often a message was tried, this time included: at all, and through its own fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub(super) attempt: u32,
    pub(super) failures: u32,
}

/// `draw` is a random number in 0..1.
pub(super) fn judge(heard: Heard, settings: &settings::Send, by: Reconcile, tried: Tried, draw: f64) -> Judgement {
    let goes_on = |outcome| Judgement { outcome, account: AccountFate::GoesOn };
    match heard {
        Heard::Said(Verdict::Sent { provider_id }) => goes_on(SendOutcome::Sent { provider_id }),
        Heard::Said(Verdict::Failed { why }) => goes_on(SendOutcome::Failed { why }),
        Heard::Said(Verdict::Retry { why, after_ms, whole_account: true }) => {
            // Not this message's fault: it neither fails for the number of its attempts nor waits longer than the others.
            let wait_ms = after_ms.map_or(settings.retry.first_ms, |asked_ms| asked_ms.clamp(0, RETRY_AFTER_MAX_MS));
            uncharged(wait_ms, why, AccountFate::Silent { wait_ms })
        }
        Heard::Said(Verdict::Retry { why, after_ms, whole_account: false }) => {
            goes_on(again(why, after_ms, settings, tried.failures, draw))
        }
        Heard::Said(Verdict::SlowDown { why, after_ms }) => {
            // What follows in the thread waits behind it; other chats need not.
            let asked_ms = after_ms.map(|asked_ms| asked_ms.clamp(0, RETRY_AFTER_MAX_MS));
            uncharged(asked_ms.unwrap_or_else(|| ever_longer_ms(settings, tried, draw)), why, AccountFate::GoesOn)
        }
        Heard::Unreachable(why) => {
            // Nobody's messages get through now. An outage is no reason to fail this one: all of the account wait, ever longer.
            let wait_ms = ever_longer_ms(settings, tried, draw);
            uncharged(wait_ms, why, AccountFate::Silent { wait_ms })
        }
        // It is sent when the account is resumed: the store leases nothing of a paused account.
        Heard::Said(Verdict::StopAccount { why }) => uncharged(0, why.clone(), AccountFate::Paused { why }),
        Heard::Said(Verdict::Unknown { why }) | Heard::Nothing(why) => goes_on(doubt(why, settings, by, tried.failures, draw)),
    }
}

fn ever_longer_ms(settings: &settings::Send, tried: Tried, draw: f64) -> i64 {
    let tried = tried.attempt.min(settings.retry.attempts.saturating_sub(1));
    settings.retry.wait_ms(tried, draw, None).unwrap_or(settings.retry.cap_ms)
}

/// The cause concerns the account, the chat or the network: the message is not charged with it.
fn uncharged(wait_ms: i64, why: String, account: AccountFate) -> Judgement {
    Judgement { outcome: SendOutcome::Retry { wait_ms, why, charged: false }, account }
}

fn again(why: String, after_ms: Option<i64>, settings: &settings::Send, failures: u32, draw: f64) -> SendOutcome {
    match settings.retry.wait_ms(failures, draw, after_ms) {
        Some(wait_ms) => SendOutcome::Retry { wait_ms, why, charged: true },
        None => SendOutcome::Failed { why: format!("{why}; that was failure {failures} of {}", settings.retry.attempts) },
    }
}

fn doubt(why: String, settings: &settings::Send, by: Reconcile, failures: u32, draw: f64) -> SendOutcome {
    match settings.on_unknown {
        OnUnknown::Resend => match settings.retry.wait_ms(failures, draw, None) {
            Some(wait_ms) => SendOutcome::Resend { wait_ms, why: format!("{why}; sent again, as on_unknown = \"resend\" asks") },
            // The last one may have gone out too, so it has not failed.
            None => SendOutcome::Unknown { why, check_ms: None },
        },
        OnUnknown::Hold => SendOutcome::Unknown { why, check_ms: None },
        OnUnknown::Reconcile => SendOutcome::Unknown { why, check_ms: next_check_ms(by, 0) },
    }
}

/// What becomes of a message in doubt that nobody looked up.
pub(super) fn still_in_doubt(on_unknown: OnUnknown, by: Reconcile) -> SendOutcome {
    let why = match (on_unknown, by) {
        (OnUnknown::Reconcile, Reconcile::ByWebhook) => {
            "hapax stopped while it was being sent; waiting for the provider's status"
        }
        _ => "hapax stopped while it was being sent; it may have gone out",
    };
    SendOutcome::Unknown { why: why.to_owned(), check_ms: None }
}

/// What a lookup means for a message that is in doubt for so long. Whether what looks like it is another message of ours only the store
/// can tell.
pub(super) fn after_lookup(found: Found, in_doubt_ms: i64) -> SendOutcome {
    let check_ms = next_check_ms(Reconcile::ByLookup, in_doubt_ms);
    match found {
        Found::OneOf { provider_ids } => SendOutcome::Found { provider_ids, why: NOT_SHOWN.to_owned(), check_ms },
        Found::Nothing => SendOutcome::Unknown { why: NOT_SHOWN.to_owned(), check_ms },
        Found::NoAnswer { why } => SendOutcome::Unknown { why: format!("the lookup did not work: {why}"), check_ms },
    }
}

fn next_check_ms(by: Reconcile, in_doubt_ms: i64) -> Option<i64> {
    let next = CHECKS_MS.into_iter().find(|at_ms| *at_ms > in_doubt_ms).filter(|_| by == Reconcile::ByLookup)?;
    Some((next - in_doubt_ms).max(CHECK_GAP_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Rate;
    use hapax_domain::RetryPolicy;

    fn settings(on_unknown: OnUnknown) -> settings::Send {
        let rate = Rate { count: 1, per_ms: 1, burst: 1 };
        settings::Send {
            token: None,
            api_base: "http://127.0.0.1".to_owned(),
            on_unknown,
            retry: RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 5 },
            lease_ms: 60_000,
            timeout_ms: 30_000,
            rate,
            chat_rate: rate,
            concurrency: 1,
        }
    }

    fn outcome(heard: Heard, on_unknown: OnUnknown, by: Reconcile, attempt: u32) -> SendOutcome {
        judge(heard, &settings(on_unknown), by, tried(attempt), 0.0).outcome
    }

    fn tried(failures: u32) -> Tried {
        Tried { attempt: failures, failures }
    }

    fn lost() -> Heard {
        Heard::Nothing("cut".to_owned())
    }

    #[test]
    fn what_may_have_gone_out_is_tried_again_only_by_choice() {
        for on_unknown in [OnUnknown::Hold, OnUnknown::Reconcile] {
            for by in [Reconcile::No, Reconcile::ByWebhook, Reconcile::ByLookup] {
                let unknown = Heard::Said(Verdict::Unknown { why: "500".to_owned() });
                for heard in [lost(), unknown] {
                    assert!(matches!(outcome(heard, on_unknown, by, 1), SendOutcome::Unknown { .. }), "{on_unknown:?} {by:?}");
                }
                assert!(matches!(still_in_doubt(on_unknown, by), SendOutcome::Unknown { check_ms: None, .. }));
            }
        }
        assert!(matches!(outcome(lost(), OnUnknown::Resend, Reconcile::No, 1), SendOutcome::Resend { wait_ms: 1_000, .. }));
        let last = outcome(lost(), OnUnknown::Resend, Reconcile::No, 5);
        assert_eq!(last, SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None }, "it has not failed: nobody knows");
    }

    #[test]
    fn only_where_there_is_a_history_it_is_looked_up_ever_more_rarely_and_not_for_ever() {
        let check = |on_unknown, by| match outcome(lost(), on_unknown, by, 1) {
            SendOutcome::Unknown { check_ms, .. } => check_ms,
            other => panic!("{other:?}"),
        };
        assert_eq!(check(OnUnknown::Reconcile, Reconcile::ByLookup), Some(5_000));
        assert_eq!(check(OnUnknown::Reconcile, Reconcile::ByWebhook), None);
        assert_eq!(check(OnUnknown::Hold, Reconcile::ByLookup), None);
        let mut looks = Vec::new();
        let mut in_doubt_ms = 0;
        while let SendOutcome::Unknown { check_ms: Some(wait_ms), .. } = after_lookup(Found::Nothing, in_doubt_ms) {
            in_doubt_ms += wait_ms;
            looks.push(in_doubt_ms);
        }
        assert_eq!(looks, CHECKS_MS);
        let found = after_lookup(Found::OneOf { provider_ids: vec!["id".to_owned()] }, 7);
        assert!(matches!(found, SendOutcome::Found { provider_ids, check_ms: Some(4_993), .. } if provider_ids == ["id"]));
    }

    #[test]
    fn what_surely_did_not_go_out_is_tried_again_until_the_attempts_end() {
        let busy = || {
            let (why, after_ms) = ("busy".to_owned(), None);
            Heard::Said(Verdict::Retry { why, after_ms, whole_account: false })
        };
        assert!(matches!(outcome(busy(), OnUnknown::Hold, Reconcile::No, 4), SendOutcome::Retry { wait_ms: 8_000, .. }));
        let why = "busy; that was failure 5 of 5".to_owned();
        assert_eq!(outcome(busy(), OnUnknown::Hold, Reconcile::No, 5), SendOutcome::Failed { why });
        let asked = Verdict::Retry { why: "slow".to_owned(), after_ms: Some(9_000), whole_account: false };
        assert!(matches!(
            outcome(Heard::Said(asked), OnUnknown::Hold, Reconcile::No, 1),
            SendOutcome::Retry { wait_ms: 9_000, .. }
        ));
    }

    #[test]
    fn the_budget_counts_what_the_message_failed_by_not_how_often_it_was_tried() {
        let busy = Heard::Said(Verdict::Retry { why: "busy".to_owned(), after_ms: None, whole_account: false });
        let after_an_outage = Tried { attempt: 7, failures: 1 };
        let judgement = judge(busy, &settings(OnUnknown::Hold), Reconcile::No, after_an_outage, 0.0);
        assert!(matches!(judgement.outcome, SendOutcome::Retry { wait_ms: 1_000, charged: true, .. }), "{judgement:?}");
    }

    #[test]
    fn what_the_account_is_told_holds_for_the_account_and_fails_no_message() {
        let slow = Heard::Said(Verdict::Retry { why: "429".to_owned(), after_ms: Some(7_000), whole_account: true });
        let judgement = judge(slow, &settings(OnUnknown::Hold), Reconcile::No, tried(99), 0.0);
        assert!(matches!(judgement.outcome, SendOutcome::Retry { wait_ms: 7_000, charged: false, .. }), "{judgement:?}");
        assert_eq!(judgement.account, AccountFate::Silent { wait_ms: 7_000 });
        let too_fast = Heard::Said(Verdict::SlowDown { why: "429".to_owned(), after_ms: Some(2_000) });
        let judgement = judge(too_fast, &settings(OnUnknown::Hold), Reconcile::No, tried(99), 0.0);
        assert!(matches!(judgement.outcome, SendOutcome::Retry { wait_ms: 2_000, charged: false, .. }), "{judgement:?}");
        assert_eq!(judgement.account, AccountFate::GoesOn, "other chats are not concerned");
        let refused = Heard::Unreachable("refused".to_owned());
        let judgement = judge(refused, &settings(OnUnknown::Hold), Reconcile::No, tried(99), 0.0);
        let waits = matches!(judgement.outcome, SendOutcome::Retry { wait_ms: 8_000, charged: false, .. });
        assert!(waits, "an outage fails nothing: {judgement:?}");
        assert_eq!(judgement.account, AccountFate::Silent { wait_ms: 8_000 });
        let stopped = Heard::Said(Verdict::StopAccount { why: "190".to_owned() });
        let judgement = judge(stopped, &settings(OnUnknown::Hold), Reconcile::No, tried(99), 0.0);
        assert_eq!(judgement.outcome, SendOutcome::Retry { wait_ms: 0, why: "190".to_owned(), charged: false });
        assert_eq!(judgement.account, AccountFate::Paused { why: "190".to_owned() });
    }
}
