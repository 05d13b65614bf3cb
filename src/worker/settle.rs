//! Writing an outcome down, however long the store takes to come back.

use std::future::Future;
use std::time::Duration;

use super::Hold;
use crate::store::{Settled, StoreError};
use crate::telemetry::Telemetry;

const FIRST_WAIT: Duration = Duration::from_millis(100);

/// A settle that fails is tried again, ever more slowly up to this.
const WAIT_CAP: Duration = Duration::from_secs(5);

/// Settles until the store has answered. `None` when it never did: the work was given up, or the store refuses for good.
pub async fn settle<F>(hold: &Hold, call: &'static str, telemetry: &Telemetry, attempt: impl Fn() -> F) -> Option<Settled>
where
    F: Future<Output = Result<Settled, StoreError>>,
{
    let mut wait = FIRST_WAIT;
    loop {
        match attempt().await {
            Ok(settled) => return Some(settled),
            Err(error) => {
                telemetry.store_unavailable(call, &error);
                if !error.retryable() {
                    return None;
                }
            }
        }
        tokio::select! {
            () = hold.ended() => return None,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAIT_CAP),
        }
    }
}
