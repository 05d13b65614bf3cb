//! Waiting for whoever holds a claim: woken when one ends on this instance, and looking now and then for those that end on others.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::settings::Claims;

/// So often it is looked anyway.
const POLL: Duration = Duration::from_millis(250);
/// Every claim that ends wakes all: no more often than this each of them looks.
const REST: Duration = Duration::from_millis(20);

/// What all requests about claims share.
#[derive(Debug)]
pub struct ClaimDesk {
    pub(super) defaults: Claims,
    ended: Notify,
}

impl ClaimDesk {
    pub fn new(defaults: Claims) -> Self {
        Self { defaults, ended: Notify::new() }
    }

    /// A claim has ended.
    pub(super) fn wake(&self) {
        self.ended.notify_waiters();
    }

    /// `stop`: hapax stops, and nobody is kept waiting.
    pub(super) fn waiting<'d>(&'d self, wait: Duration, stop: &'d CancellationToken) -> Waiting<'d> {
        Waiting { desk: self, deadline: Instant::now() + wait, stop }
    }
}

pub(super) struct Waiting<'d> {
    desk: &'d ClaimDesk,
    deadline: Instant,
    stop: &'d CancellationToken,
}

impl<'d> Waiting<'d> {
    /// Made before the look, so that what ends in between is not missed.
    pub(super) fn hint(&mut self) -> Notified<'d> {
        self.desk.ended.notified()
    }

    /// Waits for the next look; false when the time is over, or hapax stops.
    pub(super) async fn go_on(&self, hint: Notified<'d>) -> bool {
        let now = Instant::now();
        if now >= self.deadline {
            return false;
        }
        let look = async {
            let _ = tokio::time::timeout_at(self.deadline.min(now + POLL), hint).await;
            tokio::time::sleep_until(self.deadline.min(now + REST)).await;
        };
        self.stop.run_until_cancelled(look).await.is_some()
    }
}
