//! How the process is told to stop.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// SIGTERM and Ctrl-C, heard from the moment this is made. Until then either ends the process by itself, so it is made before anybody is told
/// that we are there.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(super) fn hear() -> Result<Self, Failure> {
        let heard = |kind| signal(kind).context("signals cannot be listened for");
        Ok(Self { interrupt: heard(SignalKind::interrupt())?, terminate: heard(SignalKind::terminate())? })
    }

    /// Waits for the next of either.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
