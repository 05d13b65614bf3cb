//! The leases one loop holds, and what each worker knows of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hapax_domain::Fence;
use hapax_store::LaneRef;
use hapax_store::clock::Moment;
use tokio_util::sync::CancellationToken;

use super::guard::{Age, CallGuard};
use super::slots::Slot;

/// All leases the heartbeat keeps alive.
#[derive(Default)]
pub(super) struct Holds {
    held: Mutex<HashMap<LaneRef, Held>>,
}

struct Held {
    fence: Fence,
    ended: CancellationToken,
    age: Arc<Age>,
}

/// One worker's hold on one lane, from lease to settle.
pub struct Hold {
    pub lane: LaneRef,
    pub fence: Fence,
    age: Arc<Age>,
    ended: CancellationToken,
    give_up: CancellationToken,
    slot: Slot,
    holds: Arc<Holds>,
}

impl Holds {
    pub(super) fn take(
        self: &Arc<Self>,
        (lane, fence): (LaneRef, Fence),
        age: Arc<Age>,
        give_up: &CancellationToken,
        slot: Slot,
    ) -> Hold {
        let ended = give_up.child_token();
        let held = Held { fence, ended: ended.clone(), age: Arc::clone(&age) };
        let before = self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(lane, held);
        // Our own lease ran out and we got the lane again: the first worker's outcome would be refused, so it need not go on.
        if let Some(older) = before {
            older.ended.cancel();
        }
        Hold { lane, fence, age, ended, give_up: give_up.clone(), slot, holds: Arc::clone(self) }
    }

    pub(super) fn all(&self) -> Vec<(LaneRef, Fence)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(lane, held)| (*lane, held.fence)).collect()
    }

    /// Writes down whether a lease that was to be extended, by a request sent at `asked`, still stands.
    pub(super) fn extended(&self, lane: LaneRef, fence: Fence, still: bool, asked: Moment) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get(&lane).filter(|held| held.fence == fence) {
            Some(held) if still => held.age.renew(asked),
            Some(held) => held.ended.cancel(),
            None => {}
        }
    }

    fn leave(&self, lane: LaneRef, fence: Fence) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(&lane).is_some_and(|held| held.fence == fence) {
            held.remove(&lane);
        }
    }
}

impl Hold {
    /// Resolves when the work should end early: the lease is lost, or the grace period of a stop is over.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// True when the work has no right, or no time, to go on.
    pub fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// True when it ended because another lease was given out, so that nothing we settle counts.
    pub fn is_lost(&self) -> bool {
        self.ended.is_cancelled() && !self.give_up.is_cancelled()
    }

    /// Looks at the lease when a call is about to begin.
    pub fn guard(&self) -> CallGuard {
        CallGuard::new(Arc::clone(&self.age))
    }

    /// Lets the next item begin: this one is only waiting for its settle.
    pub fn free_slot(&mut self) {
        self.slot.free();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.leave(self.lane, self.fence);
    }
}
