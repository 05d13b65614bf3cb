use proptest::prelude::*;

use super::*;

const TTL: i64 = 1_000_000;
const LEASE: i64 = 1_000;

/// One key, and what was asked of it so far.
#[derive(Default)]
struct Kept {
    record: Option<Claim>,
    fence: u64,
}

impl Kept {
    fn ask(&mut self, op: &ClaimOp, now_ms: i64) -> ClaimAnswer {
        self.fence += 1;
        let (change, answer) = decide(self.record.as_ref(), &ClaimKey::new("jobs", "k"), op, now_ms, self.fence);
        match change {
            ClaimChange::Keep => {}
            ClaimChange::Put(claim) => self.record = Some(*claim),
            ClaimChange::Remove => self.record = None,
        }
        answer
    }
}

fn claim(token: &str) -> ClaimOp {
    let token = token.to_owned();
    let on_abandoned = OnAbandoned::Takeover;
    ClaimOp::Claim { token, ttl_ms: TTL, lease_ms: LEASE, fingerprint: None, on_abandoned, holder: None }
}

fn held_on(token: &str) -> ClaimOp {
    let token = token.to_owned();
    let on_abandoned = OnAbandoned::Hold;
    ClaimOp::Claim { token, ttl_ms: TTL, lease_ms: LEASE, fingerprint: None, on_abandoned, holder: None }
}

fn printed(token: &str, print: &str) -> ClaimOp {
    let (token, fingerprint) = (token.to_owned(), Some(print.to_owned()));
    let on_abandoned = OnAbandoned::Takeover;
    ClaimOp::Claim { token, ttl_ms: TTL, lease_ms: LEASE, fingerprint, on_abandoned, holder: None }
}

fn complete(token: &str, result: &'static str) -> ClaimOp {
    let result = Some(ClaimResult { content_type: None, bytes: Bytes::from_static(result.as_bytes()) });
    ClaimOp::Complete { token: token.to_owned(), result, keep_ms: None }
}

fn extend(token: &str) -> ClaimOp {
    ClaimOp::Extend { token: token.to_owned(), lease_ms: LEASE }
}

fn release(token: &str) -> ClaimOp {
    ClaimOp::Release { token: token.to_owned() }
}

fn set(value: &'static str, condition: Condition, ends: Ends) -> ClaimOp {
    ClaimOp::Set { value: Bytes::from_static(value.as_bytes()), condition, ends, tell: true }
}

/// The answer in a word.
fn word(answer: &ClaimAnswer) -> &'static str {
    match answer {
        ClaimAnswer::Claimed { previous: Previous::None, .. } => "claimed",
        ClaimAnswer::Claimed { previous: Previous::Abandoned, .. } => "taken over",
        ClaimAnswer::Completed { .. } => "completed",
        ClaimAnswer::InProgress { .. } => "in progress",
        ClaimAnswer::HeldForPerson { .. } => "held",
        ClaimAnswer::FingerprintMismatch => "mismatch",
        ClaimAnswer::Done { .. } => "done",
        ClaimAnswer::Extended { .. } => "extended",
        ClaimAnswer::Released => "released",
        ClaimAnswer::Lost => "lost",
        ClaimAnswer::Removed(true) => "removed",
        ClaimAnswer::Removed(false) => "not removed",
        ClaimAnswer::Set { .. } => "set",
        ClaimAnswer::NotSet { .. } => "not set",
        ClaimAnswer::Value(Some(_)) => "a value",
        ClaimAnswer::Value(None) => "no value",
        ClaimAnswer::Expiring(true) => "expiring",
        ClaimAnswer::Expiring(false) => "not expiring",
        ClaimAnswer::WrongKind => "wrong kind",
        ClaimAnswer::NoRoom => "no room",
    }
}

/// Asks one thing after the other, each at its time.
fn story(asked: &[(i64, ClaimOp, &str)]) {
    let mut kept = Kept::default();
    for (step, (at_ms, op, expected)) in asked.iter().enumerate() {
        let answer = kept.ask(op, *at_ms);
        assert_eq!(word(&answer), *expected, "step {step} of {asked:?}: {answer:?}");
    }
}

#[test]
fn one_holder_at_a_time_and_one_completion() {
    story(&[
        (0, claim("a"), "claimed"),
        (1, claim("b"), "in progress"),
        (2, complete("b", "1"), "lost"),
        (3, extend("b"), "lost"),
        (4, release("b"), "lost"),
        (5, extend("a"), "extended"),
        (6, complete("a", "1"), "done"),
        (7, claim("b"), "completed"),
        (8, complete("a", "1"), "done"),
        (9, complete("a", "2"), "lost"),
        (10, extend("a"), "lost"),
        (11, release("a"), "lost"),
        (6 + TTL - 1, claim("b"), "completed"),
        (6 + TTL, claim("b"), "claimed"),
    ]);
    story(&[(0, claim("a"), "claimed"), (1, release("a"), "released"), (2, release("a"), "lost"), (3, claim("b"), "claimed")]);
    story(&[(0, claim("a"), "claimed"), (1, ClaimOp::Delete, "removed"), (2, complete("a", "1"), "lost")]);
    story(&[(0, ClaimOp::Delete, "not removed"), (0, complete("a", "1"), "lost")]);
}

#[test]
fn a_holder_that_died_is_followed_by_one_other() {
    story(&[
        (0, claim("a"), "claimed"),
        (LEASE - 1, claim("b"), "in progress"),
        (LEASE, claim("b"), "taken over"),
        (LEASE, claim("c"), "in progress"),
        (LEASE + 1, complete("a", "1"), "lost"),
        (LEASE + 1, extend("a"), "lost"),
        (LEASE + 2, complete("b", "1"), "done"),
    ]);
    // Late, but nobody has begun since.
    story(&[(0, claim("a"), "claimed"), (5 * LEASE, extend("a"), "extended"), (6 * LEASE - 1, claim("b"), "in progress")]);
    story(&[(0, claim("a"), "claimed"), (5 * LEASE, complete("a", "1"), "done"), (6 * LEASE, claim("b"), "completed")]);
    // So late that it was forgotten.
    story(&[(0, claim("a"), "claimed"), (LEASE + TTL, complete("a", "1"), "lost"), (LEASE + TTL, claim("b"), "claimed")]);
}

#[test]
fn a_claim_that_is_held_waits_for_a_person_for_ever() {
    story(&[
        (0, held_on("a"), "claimed"),
        (LEASE, claim("b"), "held"),
        (1_000 * TTL, claim("b"), "held"),
        (1_000 * TTL, release("b"), "lost"),
        (1_000 * TTL, release("a"), "released"),
        (1_000 * TTL, claim("b"), "claimed"),
    ]);
    story(&[(0, held_on("a"), "claimed"), (2 * LEASE, complete("a", "1"), "done"), (2 * LEASE + TTL, claim("b"), "claimed")]);
}

#[test]
fn a_key_stands_for_one_request() {
    story(&[
        (0, printed("a", "x"), "claimed"),
        (1, printed("b", "y"), "mismatch"),
        (1, claim("b"), "in progress"),
        (1, printed("b", "x"), "in progress"),
        (2, complete("a", "1"), "done"),
        (3, printed("b", "y"), "mismatch"),
        (3, printed("b", "x"), "completed"),
    ]);
    story(&[(0, printed("a", "x"), "claimed"), (LEASE, claim("b"), "taken over"), (LEASE, printed("c", "y"), "mismatch")]);
}

#[test]
fn the_same_claim_twice_is_one() {
    let mut kept = Kept::default();
    let first = kept.ask(&claim("a"), 0);
    let ClaimAnswer::Claimed { fence, .. } = first else { panic!("{first:?}") };
    let again = kept.ask(&claim("a"), 10);
    let expected = ClaimAnswer::Claimed { token: "a".to_owned(), fence, lease_until_ms: 10 + LEASE, previous: Previous::None };
    assert_eq!(again, expected);
}

#[test]
fn a_lease_from_before_the_clock_was_set_back_begins_anew() {
    let hour = 3_600_000;
    story(&[
        (hour, claim("a"), "claimed"),
        (0, claim("b"), "in progress"),
        (LEASE - 1, claim("b"), "in progress"),
        (LEASE, claim("b"), "taken over"),
    ]);
}

#[test]
fn values_are_set_looked_at_and_removed_as_in_redis() {
    let in_5 = Ends::In(5);
    story(&[
        (0, set("v", Condition::IfPresent, in_5), "not set"),
        (0, set("v", Condition::IfAbsent, in_5), "set"),
        (1, set("w", Condition::IfAbsent, in_5), "not set"),
        (4, ClaimOp::Get, "a value"),
        (5, ClaimOp::Get, "no value"),
        (5, set("w", Condition::IfAbsent, in_5), "set"),
        (6, ClaimOp::DeleteIfEquals { value: "v".into() }, "not removed"),
        (6, ClaimOp::ExpireIfEquals { value: "v".into(), ends: Ends::In(9) }, "not expiring"),
        (6, ClaimOp::ExpireIfEquals { value: "w".into(), ends: Ends::Plus(9) }, "expiring"),
        (18, set("x", Condition::IfPresent, Ends::Keep), "set"),
        (19, ClaimOp::Get, "no value"),
        (20, set("x", Condition::Always, Ends::Never), "set"),
        (20, ClaimOp::ExpireIfEquals { value: "x".into(), ends: Ends::Plus(9) }, "not expiring"),
        (20 + 10 * TTL, ClaimOp::Expire { ends: Ends::At(20) }, "expiring"),
        (20 + 10 * TTL, ClaimOp::Get, "no value"),
        (20, ClaimOp::Expire { ends: in_5 }, "not expiring"),
        (20, set("x", Condition::Always, Ends::At(19)), "set"),
        (20, ClaimOp::Remove, "not removed"),
    ]);
}

#[test]
fn claims_and_values_keep_out_of_each_others_way() {
    story(&[
        (0, claim("a"), "claimed"),
        (0, set("v", Condition::IfAbsent, Ends::Never), "not set"),
        (0, set("v", Condition::Always, Ends::Never), "wrong kind"),
        (0, ClaimOp::Get, "wrong kind"),
        (0, ClaimOp::Remove, "wrong kind"),
        (0, ClaimOp::Expire { ends: Ends::In(1) }, "wrong kind"),
        (1, complete("a", "1"), "done"),
    ]);
    story(&[(0, set("v", Condition::Always, Ends::Never), "set"), (0, claim("a"), "completed"), (0, release(""), "lost")]);
}

#[test]
fn what_is_too_long_or_lasts_for_ever_is_refused_with_what_to_change() {
    let key = |scope: &str, key: &str| ClaimKey::new(scope, key).check().map_err(|bad| bad.to_string());
    assert_eq!(key("jobs", &"k".repeat(255)), Ok(()));
    assert_eq!(
        key("jobs", &"k".repeat(300)).unwrap_err(),
        "`key` has 300 bytes; give it 1 to 255, or use a hash of what you have"
    );
    assert!(key("jobs", "").is_err() && key("", "k").is_err() && key("a\0b", "k").is_err());
    let with = |ttl_ms, lease_ms| {
        let on_abandoned = OnAbandoned::Hold;
        ClaimOp::Claim { token: "t".into(), ttl_ms, lease_ms, fingerprint: None, on_abandoned, holder: None }.check()
    };
    assert_eq!(with(1, 1), Ok(()));
    assert_eq!(with(0, 1).unwrap_err().to_string(), "`ttl` is 0s; give it more than 0 and at most 366d");
    assert!(with(100 * 366 * 86_400_000, 1).is_err() && with(1, 0).is_err() && with(1, 25 * 3_600_000).is_err());
    let long = ClaimResult { content_type: None, bytes: vec![0; CLAIM_RESULT_MAX_BYTES + 1].into() };
    assert!(ClaimOp::Complete { token: "t".into(), result: Some(long), keep_ms: None }.check().is_err());
}

#[test]
fn a_name_reads_back() {
    let key = ClaimKey::new("jobs", "a\0b");
    assert_eq!(ClaimKey::from_name(&key.to_name()), Some(key));
    assert_eq!(ClaimKey::from_name(b"jobs"), None);
}

fn any_op() -> impl Strategy<Value = ClaimOp> {
    let token = prop_oneof![Just("a"), Just("b"), Just("c")];
    let condition = prop_oneof![Just(Condition::Always), Just(Condition::IfAbsent), Just(Condition::IfPresent)];
    let ends = prop_oneof![Just(Ends::Keep), (-9..9i64).prop_map(Ends::In), (-9..9i64).prop_map(Ends::Plus)];
    prop_oneof![
        token.clone().prop_map(claim),
        token.clone().prop_map(held_on),
        token.clone().prop_map(|token| complete(token, "1")),
        token.clone().prop_map(extend),
        token.prop_map(release),
        (condition, ends).prop_map(|(condition, ends)| set("v", condition, ends)),
        Just(ClaimOp::Delete),
        Just(ClaimOp::Remove),
    ]
}

proptest! {
    /// Whoever holds a claim is its only holder until its lease is over, and a completion is of the last one who claimed.
    #[test]
    fn nobody_completes_what_another_has_claimed_since(ops in prop::collection::vec((0..2 * LEASE, any_op()), 1..40)) {
        let (mut kept, mut now_ms, mut holder, mut last_fence) = (Kept::default(), 0, None::<(String, i64)>, 0);
        for (passes_ms, op) in ops {
            now_ms += passes_ms;
            let answer = kept.ask(&op, now_ms);
            match (&op, &answer) {
                (_, ClaimAnswer::Claimed { token, fence, lease_until_ms, .. }) => {
                    if let Some((other, until_ms)) = &holder {
                        prop_assert!(other == token || *until_ms <= now_ms, "two at once");
                        prop_assert!(other == token || *fence > last_fence);
                    }
                    last_fence = *fence;
                    holder = Some((token.clone(), *lease_until_ms));
                }
                (ClaimOp::Complete { token, .. } | ClaimOp::Extend { token, .. } | ClaimOp::Release { token }, answer)
                    if *answer != ClaimAnswer::Lost =>
                {
                    let is_holder = holder.as_ref().is_some_and(|(held, _)| held == token);
                    let again = kept.record.as_ref().is_some_and(|kept| kept.state == ClaimState::Completed && kept.token == *token);
                    prop_assert!(is_holder || again, "{token} was not the holder");
                    holder = match answer {
                        ClaimAnswer::Extended { lease_until_ms } => Some((token.clone(), *lease_until_ms)),
                        _ => None,
                    };
                }
                (_, ClaimAnswer::Removed(true)) => holder = None,
                _ => {}
            }
        }
    }
}

#[test]
fn what_was_there_is_told_only_when_it_is_asked_for() {
    let key = ClaimKey::new("redis", "k");
    let put = |there: Option<&Claim>, condition, tell| {
        let op = ClaimOp::Set { value: Bytes::from_static(b"long"), condition, ends: Ends::Never, tell };
        decide(there, &key, &op, 0, 1)
    };
    let (ClaimChange::Put(there), ClaimAnswer::Set { previous: None }) = put(None, Condition::Always, true) else {
        unreachable!("it is set")
    };
    for (tell, told) in [(true, Bytes::from_static(b"long")), (false, Bytes::new())] {
        let previous = ClaimAnswer::Set { previous: Some(told.clone()) };
        assert_eq!(put(Some(&there), Condition::Always, tell).1, previous);
        assert_eq!(put(Some(&there), Condition::IfAbsent, tell).1, ClaimAnswer::NotSet { found: Some(told) });
    }
}
