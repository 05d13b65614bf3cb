//! How the process is told to stop, and to read its config anew.

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use hapax_gateway::server::Reloads;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::Failure;

/// SIGTERM and Ctrl-C, heard from the moment this is made. Until then either ends the process by itself, so it is made before anybody is told
/// that we are there.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal that we were started on was closed.
    closed: Arc<Notify>,
}

impl StopSignals {
    pub(super) fn hear() -> Result<Self, Failure> {
        let (interrupt, terminate) = (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, closed: Arc::default() })
    }

    /// Waits for the next of them.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = self.closed.notified() => {}
        }
    }

    /// Has the config read anew at every SIGHUP. How it went is in the log: nobody waits for an answer to a signal. A terminal that is closed
    /// sends the same signal, and then it means what it always meant.
    pub(super) fn reload_on_hangup(&self, reloads: Reloads) -> Result<(), Failure> {
        let (mut hangup, closed) = (hear(SignalKind::hangup())?, Arc::clone(&self.closed));
        let on_terminal = std::io::stdout().is_terminal();
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                if on_terminal && !std::io::stdout().is_terminal() {
                    closed.notify_one();
                    continue;
                }
                tell_service_manager(&reloading());
                let status = match reloads.ask_by_signal().await {
                    Ok(_) => "the config was read anew".to_owned(),
                    Err(reasons) => format!("the new config is refused: {}", reasons.join("; ")),
                };
                tell_service_manager(&[NotifyState::Ready, NotifyState::Status(&status)]);
            }
        });
        Ok(())
    }
}

fn hear(kind: SignalKind) -> Result<Signal, Failure> {
    Ok(signal(kind).context("signals cannot be listened for")?)
}

/// The service manager wants to know since when.
fn reloading() -> Vec<NotifyState<'static>> {
    let since = NotifyState::monotonic_usec_now().ok();
    [Some(NotifyState::Reloading), since].into_iter().flatten().collect()
}

/// Says how far we are, where somebody asked for it (`Type=notify`).
pub(super) fn tell_service_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be told; it may believe that hapax did not start");
    }
}
