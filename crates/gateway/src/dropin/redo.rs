//! `redo_after_429`: a handler that was told to slow down, and gave up, is run once more when its message is out.

use std::sync::Arc;

use hapax_domain::run_book::State;
use hapax_domain::{RunBook, Status};
use hapax_store::clock::Clock;
use hapax_store::{InboxLease, Outcome, Store, StoreError};

use super::DropInState;
use crate::settings;

/// Said of an event whose handler runs once more.
const WHY: &str = "its handler was told to slow down and ended; it runs once more when that message is out (redo_after_429)";

/// It is looked again whether the message is out.
pub(crate) const LOOK_AGAIN_MS: i64 = 1_000;

/// A message that waits longer is not waited for.
const WAIT_MAX_MS: i64 = 3_600_000;

/// What becomes of an item whose handler has ended well, in place of being done with; `None`: it is done.
///
/// A store that is away says nothing, and then it is done: the run was answered, and nobody may be asked twice by mistake.
pub(crate) async fn instead(state: &DropInState, channel: &settings::Channel, lease: &InboxLease) -> Option<Outcome> {
    if !channel.dropin.as_ref().is_some_and(|dropin| dropin.redo_after_429) {
        return None;
    }
    let book = state.books.of_item(lease.item).await.ok()??;
    if !book.was_left(lease.attempt) || !state.books.redo(lease.item, lease.attempt, channel.retention_ms).await.ok()? {
        return None;
    }
    Some(Outcome::HandBack { wait_ms: LOOK_AGAIN_MS, why: Some(WHY.to_owned()), called: true })
}

/// True while a handler that is to run once more has to wait for its message.
pub(crate) async fn is_too_early(
    state: &DropInState,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    channel: &settings::Channel,
    lease: &InboxLease,
) -> bool {
    let redoes = channel.dropin.as_ref().is_some_and(|dropin| dropin.redo_after_429);
    if !redoes || lease.attempt < 2 {
        return false;
    }
    let Ok(Some(book)) = state.books.of_item(lease.item).await else { return false };
    // A lease that was lost in between has had an attempt too.
    let has_begun = book.calls.iter().any(|call| call.run > book.redone);
    if book.redone == 0 || has_begun {
        return false;
    }
    is_on_its_way(store, clock, &book).await.unwrap_or(true)
}

async fn is_on_its_way(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, book: &RunBook) -> Result<bool, StoreError> {
    for call in book.calls.iter().filter(|call| call.run == book.redone && call.state == State::Over) {
        let Some(message) = call.message else { continue };
        let Some(row) = store.message(message).await? else { continue };
        let waits = matches!(row.steps.status(), Status::Queued | Status::Sending);
        if waits && clock.now_ms() - row.created_ms < WAIT_MAX_MS {
            return Ok(true);
        }
    }
    Ok(false)
}
