//! Writing an outcome down, however long the store takes to come back.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax_store::{Settled, StoreError};

use super::Hold;
use crate::telemetry::Telemetry;

const FIRST_WAIT: Duration = Duration::from_millis(100);

/// A settle that fails is tried again, ever more slowly up to this. Nothing is leased meanwhile, so it is short.
const WAIT_CAP: Duration = Duration::from_secs(1);

/// Settles until the store has answered; counts among the `unsettled` while it fails, so that nothing of its channel is leased meanwhile. `None` when it never did: the work was given up, or the store refuses for good.
pub async fn settle<F>(
    hold: &Hold,
    call: &'static str,
    telemetry: &Telemetry,
    unsettled: &AtomicUsize,
    attempt: impl Fn() -> F,
) -> Option<Settled>
where
    F: Future<Output = Result<Settled, StoreError>>,
{
    let mut wait = FIRST_WAIT;
    let mut failing = None;
    loop {
        match attempt().await {
            Ok(settled) => return Some(settled),
            Err(error) => {
                telemetry.store_unavailable(call, &error);
                if !error.retryable() {
                    return None;
                }
                failing.get_or_insert_with(|| Unsettled::count(unsettled));
            }
        }
        tokio::select! {
            () = hold.ended() => return None,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAIT_CAP),
        }
    }
}

/// Counts an outcome among the unsettled until dropped.
struct Unsettled<'d>(&'d AtomicUsize);

impl<'d> Unsettled<'d> {
    fn count(unsettled: &'d AtomicUsize) -> Self {
        unsettled.fetch_add(1, Ordering::AcqRel);
        Self(unsettled)
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
