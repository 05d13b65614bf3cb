//! Patience with a store that does not answer.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// Waits for a call no longer than `patience`. A call that is given up may still take effect: whoever repeats it finds a duplicate.
pub async fn in_time<T>(
    what: &'static str,
    patience: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(patience, call).await {
        Ok(answer) => answer,
        Err(_) => Err(too_slow(what, patience)),
    }
}

/// The store did not answer within this time.
pub fn too_slow(what: &'static str, patience: Duration) -> StoreError {
    let source = format!("no answer within {} ms", patience.as_millis()).into();
    StoreError::Failed { what, retryable: true, source }
}
