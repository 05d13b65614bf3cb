//! A call to the bot as the sends of its handler see it: while it is open they belong to it.

use std::time::Duration;

use hapax_store::InboxLease;

use super::Delivery;
use super::judge::Heard;
use super::target::Target;
use crate::dropin::{RunEnd, redo};

/// How long an item is put off whose last handler still sends.
pub(crate) const PUT_OFF_MS: i64 = 1_000;

/// An open run; dropped, it was cut.
pub(super) struct OpenRun<'d> {
    delivery: &'d Delivery,
    lease: &'d InboxLease,
    keep_ms: i64,
    ended: bool,
}

impl Delivery {
    /// Begins a run, where the channel's bot sends through us; or says how long to wait, because the last one goes on sending.
    pub(super) async fn begin_run<'d>(&'d self, target: &Target, lease: &'d InboxLease) -> Result<Option<OpenRun<'d>>, i64> {
        if target.settings.dropin.is_none() {
            return Ok(None);
        }
        let most = Duration::from_millis(target.settings.timeout_ms.unsigned_abs());
        if self.dropin.runs.goes_on(lease.item, most) {
            return Err(PUT_OFF_MS);
        }
        if redo::is_too_early(&self.dropin, &self.store, &self.clock, &target.settings, lease).await {
            return Err(redo::LOOK_AGAIN_MS);
        }
        self.dropin.runs.begin(lease);
        Ok(Some(OpenRun { delivery: self, lease, keep_ms: target.settings.retention_ms, ended: false }))
    }
}

impl OpenRun<'_> {
    /// The call has ended. Only the bot's own failure is its word: a proxy speaks for a bot that died.
    pub(super) async fn heard(mut self, heard: &Heard, refused: bool) {
        let end = match heard {
            _ if refused => RunEnd::NotCalled,
            Heard::Unreachable(_) => RunEnd::NotCalled,
            Heard::Status { status: 200..=299, .. } => RunEnd::Delivered,
            Heard::Status { .. } | Heard::Broken(_) | Heard::TimedOut { .. } => RunEnd::Failed,
        };
        self.end(end);
        if end == RunEnd::Failed {
            self.delivery.dropin.note_failed(self.lease, &self.delivery.telemetry).await;
        }
        if matches!(heard, Heard::Status { status, .. } if !matches!(status, 200..=299 | 502..=504)) && !refused {
            let (delivery, lease) = (self.delivery, self.lease);
            if let Err(error) = delivery.dropin.books.fail_run(lease.item, lease.attempt, self.keep_ms).await {
                delivery.telemetry.store_unavailable("amend", &error);
            }
        }
    }

    fn end(&mut self, end: RunEnd) {
        self.ended = true;
        self.delivery.dropin.runs.end(self.lease.item, self.lease.attempt, end);
    }
}

impl Drop for OpenRun<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(RunEnd::Failed);
        }
    }
}
