//! The story of a message that goes out: every try, what it is known by, and what it waits for.

use hapax_domain::{Status, Steps};
use hapax_store::{MessageRow, OutboxPlace, OutboxState, TryRow, asked_request_id};

use super::story::{Step, step};
use super::time::rfc3339;

/// Tells it in the order of time; how it stands now comes last.
pub(super) fn steps(row: &MessageRow, now_ms: i64) -> Vec<Step> {
    let mut steps = vec![queued(row)];
    steps.extend(row.tries.iter().flat_map(tried));
    steps.extend(earlier(row));
    steps.extend(row.steps.iter().filter_map(|(status, at_ms)| reached(row, status, at_ms)));
    steps.sort_by_key(|step| step.at_ms);
    steps.extend(row.outbox.as_ref().map(|place| stands(row, place, now_ms)));
    steps
}

fn queued(row: &MessageRow) -> Step {
    let from = row.reply_to.map(|event| format!(", a reply to {event}")).unwrap_or_default();
    let request_id = asked_request_id(&row.request_id);
    let words = format!("queued for {} from account {} under request id {request_id}{from}", row.peer, row.account);
    step(row.created_ms, "queued", words)
}

/// What was known each time a person asked for it to be sent once more.
fn earlier(row: &MessageRow) -> Vec<Step> {
    let rounds = &row.past.rounds;
    let next = rounds.iter().skip(1).map(|round| &round.steps).chain([&row.steps]);
    let mut told = Vec::new();
    for (round, next) in rounds.iter().zip(next) {
        let Some(id) = &round.provider_id else {
            told.extend(began(next));
            continue;
        };
        for (status, at_ms) in round.steps.iter() {
            let said = matches!(status, Status::Failed | Status::Delivered | Status::Read | Status::Played);
            told.extend(said.then(|| step(at_ms, status.name(), format!("the provider reported {id}: {}", status.name()))));
        }
        told.extend(began(next));
    }
    told
}

/// When a round began that a person asked for.
fn began(round: &Steps) -> Option<Step> {
    let (_, at_ms) = round.iter().find(|(status, _)| *status == Status::Queued)?;
    Some(step(at_ms, "retried", "a person asked for it to be sent once more".to_owned()))
}

fn tried(row: &TryRow) -> [Step; 2] {
    let about = |step: Step| step.of_attempt(row.attempt, row.fence);
    let number = row.attempt;
    let leased = step(row.leased_ms, "leased", format!("try {number} taken by {}, fence {}", row.worker, row.fence));
    let took_ms = row.ended_ms.saturating_sub(row.leased_ms);
    let said = if row.detail.is_empty() { String::new() } else { format!(": {}", row.detail) };
    let words = match row.outcome.as_str() {
        "sent" => format!("the provider took it at try {number} after {took_ms} ms{said}"),
        "retry" => format!("try {number} did not go out, after {took_ms} ms{said}; it is tried again"),
        "failed" => format!("try {number} was refused after {took_ms} ms{said}; it is not tried again"),
        "unknown" => format!("try {number} may have gone out, after {took_ms} ms{said}"),
        "lost" => format!("try {number} was not ended by its worker{said}"),
        other => format!("try {number} ended: {other}{said}"),
    };
    [about(leased), about(step(row.ended_ms, &row.outcome, words))]
}

/// What the tries do not tell: when sending began, and what the provider reported.
fn reached(row: &MessageRow, status: Status, at_ms: i64) -> Option<Step> {
    let answered = row.tries.iter().any(|tried| tried.outcome == "sent" && row.provider_id.as_ref() == Some(&tried.detail));
    let words = match status {
        Status::Queued | Status::Unknown => return None,
        Status::Sending => "sending began: from here on a crash leaves the outcome in doubt".to_owned(),
        Status::Sent if answered => return None,
        // A refused try tells it, or the person who cancelled it.
        Status::Failed if row.provider_id.is_none() && row.tries.iter().any(|tried| tried.outcome == "failed") => return None,
        Status::Sent => match &row.provider_id {
            Some(id) => format!("the provider's own word shows that it went out, as {id}"),
            None => "the provider's own word shows that it went out".to_owned(),
        },
        Status::Failed => row.why.clone().unwrap_or_else(|| "the provider reported that it failed".to_owned()),
        Status::Delivered => "the provider reported it delivered".to_owned(),
        Status::Read => "the provider reported it read".to_owned(),
        Status::Played => "the provider reported it played".to_owned(),
    };
    Some(step(at_ms, status.name(), words))
}

fn stands(row: &MessageRow, place: &OutboxPlace, now_ms: i64) -> Step {
    let id = row.id;
    let why = row.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let by_hand = format!("`hapax outbox retry {id}` sends it once more, `hapax outbox cancel {id}` gives it up");
    let words = match &place.state {
        OutboxState::Waiting { due_ms } if *due_ms > now_ms => {
            format!("it waits for try {}, due at {}{why}", place.attempt + 1, rfc3339(*due_ms))
        }
        OutboxState::Waiting { .. } => format!("it waits for its turn{why}"),
        OutboxState::Leased { worker, until_ms, begun: false, .. } => {
            format!("try {} is with {worker} now, held until {}, not begun", place.attempt, rfc3339(*until_ms))
        }
        OutboxState::Leased { worker, until_ms, begun: true, .. } => {
            format!("try {} is with {worker} now, held until {}, begun", place.attempt, rfc3339(*until_ms))
        }
        OutboxState::Unknown { check_ms: Some(check_ms) } => {
            format!("it is in doubt{why}; the provider is asked at {}. {by_hand}", rfc3339(*check_ms))
        }
        OutboxState::Unknown { check_ms: None } => {
            format!("it is in doubt{why}; it waits for the provider's word or yours. {by_hand}")
        }
    };
    step(now_ms, place.state.name(), words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::{Fence, MessageId, Priority};
    use uuid::Uuid;

    #[test]
    fn a_send_in_doubt_tells_why_and_what_can_be_done() {
        let tried = |attempt, leased_ms, ended_ms, outcome: &str, detail: &str| TryRow {
            attempt,
            fence: Fence(attempt.into()),
            worker: "w".to_owned(),
            leased_ms,
            ended_ms,
            outcome: outcome.to_owned(),
            detail: detail.to_owned(),
        };
        let row = MessageRow {
            id: MessageId(Uuid::from_u128(1)),
            channel: "shop".to_owned(),
            account: "7".to_owned(),
            peer: "5511".to_owned(),
            request_id: "r1".to_owned(),
            text: Some("hi".to_owned()),
            payload: Default::default(),
            priority: Priority::Normal,
            reply_to: None,
            created_ms: 1_000,
            provider_id: None,
            steps: Steps::new(vec![(Status::Queued, 1_000), (Status::Sending, 1_200), (Status::Unknown, 4_000)]),
            why: Some("no answer in time".to_owned()),
            outbox: Some(OutboxPlace { state: OutboxState::Unknown { check_ms: None }, attempt: 2, failures: 1 }),
            past: Default::default(),
            tries: vec![tried(1, 1_100, 2_000, "retry", "429"), tried(2, 3_000, 4_000, "unknown", "no answer in time")],
        };
        let told: Vec<_> = steps(&row, 9_000).into_iter().map(|step| format!("{} {}", step.at_ms, step.words)).collect();
        assert_eq!(
            told,
            [
                "1000 queued for 5511 from account 7 under request id r1",
                "1100 try 1 taken by w, fence 1",
                "1200 sending began: from here on a crash leaves the outcome in doubt",
                "2000 try 1 did not go out, after 900 ms: 429; it is tried again",
                "3000 try 2 taken by w, fence 2",
                "4000 try 2 may have gone out, after 1000 ms: no answer in time",
                "9000 it is in doubt: no answer in time; it waits for the provider's word or yours. `hapax outbox retry \
                 msg_00000000000000000000000000000001` sends it once more, `hapax outbox cancel \
                 msg_00000000000000000000000000000001` gives it up",
            ]
        );
    }
}
