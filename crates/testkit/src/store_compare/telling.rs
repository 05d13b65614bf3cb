//! What is compared of an answer: all but the names that engines choose for themselves.

use std::fmt::Debug;

use hapax_store::{EventDetail, InboxLease, ItemState, MessageRow, OutboxState};

pub(super) fn shown_message(row: &MessageRow) -> impl PartialEq + Debug {
    let tries: Vec<_> = row.tries.iter().map(|row| (row.attempt, row.leased_ms, row.ended_ms, row.outcome.clone())).collect();
    let place = row.outbox.as_ref().map(|place| {
        let due = match place.state {
            OutboxState::Waiting { due_ms } => Some(due_ms),
            OutboxState::Leased { until_ms, .. } => Some(until_ms),
            OutboxState::Unknown { check_ms } => check_ms,
        };
        (place.state.name(), due, place.attempt, place.failures)
    });
    (row.steps.clone(), row.provider_id.clone(), row.why.clone(), row.past.clone(), place, tries)
}

pub(super) fn facts(lease: &InboxLease) -> impl PartialEq + Debug {
    (
        (lease.attempt, lease.failures),
        lease.replay,
        lease.received_ms,
        lease.webhook_events,
        lease.until_ms,
        (&lease.body, &lease.rest),
        &*lease.channel,
    )
}

/// What a detail says, without the names that engines choose for themselves.
pub(super) fn shown(detail: &EventDetail) -> impl PartialEq + Debug {
    let row = &detail.row;
    let attempts: Vec<_> =
        detail.attempts.iter().map(|row| (row.attempt, row.leased_ms, row.ended_ms, row.outcome.clone())).collect();
    let open: Vec<_> = detail
        .open
        .iter()
        .map(|row| {
            let due = match &row.state {
                ItemState::Waiting { due_ms } => Some(*due_ms),
                ItemState::Leased { until_ms, .. } => Some(*until_ms),
                ItemState::Parked | ItemState::Quarantined => None,
            };
            (row.state.name(), due, (row.attempt, row.failures), row.replay, row.events, row.why.clone())
        })
        .collect();
    let row = (row.state, row.kind, row.provider_id.clone(), row.peer.clone(), row.received_ms, row.body_bytes);
    (row, detail.body.clone(), attempts, open)
}
