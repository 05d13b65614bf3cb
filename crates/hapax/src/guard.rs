//! A claim that is held: it extends itself until it is ended or dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, ClaimResult, Previous};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::Error;
use crate::claim_store::{Shared, in_ms, unexpected};

const FASTEST_BEAT: Duration = Duration::from_millis(5);
/// That a job was done is told for as long as its lease lasts, and no longer than this.
const TOLD_MAX: Duration = Duration::from_secs(60);

/// A key that this caller holds.
///
/// While it lives its lease is extended in the background. It is ended by [`complete`](Guard::complete) or
/// [`release`](Guard::release). A guard that is dropped otherwise, by an early return, a panic or a future that is cancelled,
/// ends nothing: its claim is abandoned when the lease is over.
#[must_use = "a guard that is dropped leaves its claim abandoned"]
pub struct Guard {
    shared: Arc<Shared>,
    key: ClaimKey,
    token: String,
    fence: u64,
    previous: Previous,
    lost: watch::Receiver<bool>,
    heartbeat: AbortHandle,
    lease: Duration,
}

impl Guard {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: ClaimKey,
        token: String,
        fence: u64,
        previous: Previous,
        lease: Duration,
    ) -> Self {
        let (tell, lost) = watch::channel(false);
        let beat = heartbeat(Arc::downgrade(&shared), key.clone(), token.clone(), lease, tell);
        let heartbeat = tokio::spawn(beat).abort_handle();
        Self { shared, key, token, fence, previous, lost, heartbeat, lease }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key.key
    }

    /// The family of jobs that the key belongs to.
    pub fn scope(&self) -> &str {
        &self.key.scope
    }

    /// Grows with every claim of the key: store it with your own writes to refuse those of a holder that came back late.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// True when the holder before went away without a word: part of the job may have been done.
    pub fn was_abandoned(&self) -> bool {
        self.previous == Previous::Abandoned
    }

    /// Resolves when another caller has taken over, as the heartbeat learns it; never while the claim is held.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Extends the lease now: right before something that must not be done under a lost claim.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the key is another's.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let op = ClaimOp::Extend { token: self.token.clone(), lease_ms: in_ms(lease) };
        match self.shared.ask(&self.key, op).await? {
            ClaimAnswer::Extended { .. } => Ok(()),
            ClaimAnswer::Lost => Err(Error::Lost),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the claim: later callers get the result.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when another has taken over. [`Error::ResultNotKept`] when the result is no JSON or larger than a
    /// megabyte: the claim is completed without it, because its job must not run again.
    pub async fn complete<T: Serialize + ?Sized>(self, result: &T) -> Result<(), Error> {
        match serde_json::to_vec(result) {
            Ok(bytes) => self.complete_or_less(ClaimResult { content_type: None, bytes: bytes.into() }).await,
            Err(error) => {
                self.finish(None).await?;
                Err(Error::ResultNotKept(error.to_string()))
            }
        }
    }

    /// Ends the claim with a result that is no JSON; [`Completed`](crate::Completed) brings it back as it is.
    ///
    /// # Errors
    ///
    /// Those of [`complete`](Guard::complete).
    pub async fn complete_bytes(self, content_type: &str, bytes: impl Into<Bytes>) -> Result<(), Error> {
        self.complete_or_less(ClaimResult { content_type: Some(content_type.to_owned()), bytes: bytes.into() }).await
    }

    /// Ends the claim without a result.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when another has taken over.
    pub async fn complete_empty(self) -> Result<(), Error> {
        self.finish(None).await
    }

    /// Gives the key up: the next caller runs the job.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when another has taken over.
    pub async fn release(self) -> Result<(), Error> {
        let op = ClaimOp::Release { token: self.token.clone() };
        let answer = self.shared.ask(&self.key, op).await?;
        self.shared.note_end();
        match answer {
            ClaimAnswer::Released => Ok(()),
            ClaimAnswer::Lost => Err(Error::Lost),
            other => Err(unexpected(&other)),
        }
    }

    /// For callers that have another error to report; what cannot be released is abandoned.
    pub(crate) async fn release_quietly(self) {
        let _ = self.release().await;
    }

    async fn complete_or_less(self, result: ClaimResult) -> Result<(), Error> {
        let op = ClaimOp::Complete { token: self.token.clone(), result: Some(result.clone()), keep_ms: None };
        match op.check() {
            Ok(()) => self.finish(Some(result)).await,
            Err(why) => {
                self.finish(None).await?;
                Err(Error::ResultNotKept(why.to_string()))
            }
        }
    }

    async fn finish(self, result: Option<ClaimResult>) -> Result<(), Error> {
        let op = ClaimOp::Complete { token: self.token.clone(), result, keep_ms: None };
        // The job was done: a store that is away is waited for, because another would do it again after the lease.
        let answer = self.shared.ask_for(&self.key, op, self.lease.min(TOLD_MAX)).await?;
        self.shared.note_end();
        match answer {
            ClaimAnswer::Done { .. } => Ok(()),
            ClaimAnswer::Lost => Err(Error::Lost),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

/// Without the token, which is a secret of the holder.
impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("key", &self.key).field("fence", &self.fence).finish_non_exhaustive()
    }
}

/// Extends three times per lease. A store that is away is asked again: until another takes over, the claim is ours, late or not.
///
/// Between two beats it does not keep the store open.
async fn heartbeat(shared: Weak<Shared>, key: ClaimKey, token: String, lease: Duration, tell: watch::Sender<bool>) {
    let op = ClaimOp::Extend { token, lease_ms: in_ms(lease) };
    loop {
        sleep((lease / 3).max(FASTEST_BEAT)).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Ok(ClaimAnswer::Lost) = shared.ask_once(&key, &op).await {
            tell.send_replace(true);
            return;
        }
    }
}
