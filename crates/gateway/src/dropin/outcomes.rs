//! Callers that wait for what becomes of a message: the sender of this process wakes them, the store is the truth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_domain::{MessageId, Status};
use hapax_store::{MessageRow, OutboxState, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Another instance may send it, and nobody tells: so soon, and then ever more rarely, it is looked anyway.
const FIRST_POLL: Duration = Duration::from_millis(100);
const POLL_CAP: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Outcomes(Mutex<HashMap<MessageId, Waiting>>);

#[derive(Default)]
struct Waiting {
    callers: usize,
    changed: Arc<Notify>,
}

impl Outcomes {
    /// Something has become of a message.
    pub fn tell(&self, message: MessageId) {
        if let Some(waiting) = self.lock().get(&message) {
            waiting.changed.notify_waiters();
        }
    }

    /// Waits until the message is out or will never be, and gives its last known row when the time is over. One in doubt is waited for too: the
    /// provider's own word may come soon.
    pub(super) async fn outcome(self: &Arc<Self>, store: &dyn Store, id: MessageId, deadline: Instant) -> Option<MessageRow> {
        let place = self.wait_for(id);
        let mut poll = FIRST_POLL;
        loop {
            let changed = place.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Before looking: what is told while we look must not be missed.
            changed.as_mut().enable();
            let row = store.message(id).await.ok().flatten();
            if row.as_ref().is_some_and(is_over) || Instant::now() >= deadline {
                return row;
            }
            let _ = tokio::time::timeout_at(deadline.min(Instant::now() + poll), changed).await;
            poll = (poll * 2).min(POLL_CAP);
        }
    }

    fn wait_for(self: &Arc<Self>, id: MessageId) -> Place {
        let mut inner = self.lock();
        let waiting = inner.entry(id).or_default();
        waiting.callers += 1;
        Place { outcomes: Arc::clone(self), id, changed: Arc::clone(&waiting.changed) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Place {
    outcomes: Arc<Outcomes>,
    id: MessageId,
    changed: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.outcomes.lock();
        if let Some(waiting) = inner.get_mut(&self.id) {
            waiting.callers -= 1;
            if waiting.callers == 0 {
                inner.remove(&self.id);
            }
        }
    }
}

/// True when nothing more will become of a message by itself. One in doubt that a person has given up has left the outbox.
pub(super) fn is_over(row: &MessageRow) -> bool {
    match row.steps.status() {
        Status::Queued | Status::Sending => false,
        Status::Unknown => row.outbox.is_none(),
        _ => true,
    }
}

/// In how many whole seconds it makes sense to come back; at least one.
pub(super) fn seconds_left(row: Option<&MessageRow>, resting_ms: i64, now_ms: i64) -> u64 {
    let wait_ms = match row.and_then(|row| row.outbox.as_ref()).map(|place| &place.state) {
        Some(OutboxState::Waiting { due_ms }) => due_ms - now_ms,
        Some(OutboxState::Unknown { check_ms: Some(check_ms) }) => check_ms - now_ms,
        // A person has to look.
        Some(OutboxState::Unknown { check_ms: None }) => IN_DOUBT_MS,
        Some(OutboxState::Leased { .. }) | None => 0,
    };
    let wait_ms = wait_ms.max(resting_ms).clamp(1, WAIT_MAX_MS);
    wait_ms.unsigned_abs().div_ceil(1_000)
}

const IN_DOUBT_MS: i64 = 30_000;
const WAIT_MAX_MS: i64 = 3_600_000;
