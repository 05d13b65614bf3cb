//! The processes of the command, and the signals they get.

use std::io::IsTerminal;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The command and, unless it shares a terminal with us, all it has started.
#[derive(Clone, Copy)]
pub(super) struct Group {
    leader: Option<Pid>,
    own: bool,
}

impl Group {
    /// Starts it in a group of its own. At a terminal it stays in ours: another one could not read what is typed.
    pub(super) fn start(command: &mut Command) -> std::io::Result<(Child, Self)> {
        let own = !std::io::stdin().is_terminal();
        if own {
            command.process_group(0);
        }
        let child = command.spawn()?;
        let leader = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        Ok((child, Self { leader, own }))
    }

    pub(super) fn send(self, signal: Signal) {
        // They may be gone by now.
        let _ = match self.leader {
            Some(leader) if self.own => kill_process_group(leader, signal),
            Some(leader) => kill_process(leader, signal),
            None => Ok(()),
        };
    }

    /// Ends what the command has left behind. Without a group of its own nobody knows what that is.
    pub(super) fn kill_rest(self) {
        if self.own {
            self.send(Signal::KILL);
        }
    }

    /// Passes on the signals that ask a program to end or to look again; never ends.
    pub(super) async fn pass_signals(self) {
        let kinds = [
            (SignalKind::terminate(), Signal::TERM),
            (SignalKind::interrupt(), Signal::INT),
            (SignalKind::hangup(), Signal::HUP),
            (SignalKind::quit(), Signal::QUIT),
            (SignalKind::user_defined1(), Signal::USR1),
            (SignalKind::user_defined2(), Signal::USR2),
        ];
        let pass = kinds.into_iter().map(|(kind, number)| async move {
            let Ok(mut heard) = signal(kind) else { return std::future::pending().await };
            while heard.recv().await.is_some() {
                self.send(number);
            }
        });
        futures_util::future::join_all(pass).await;
        std::future::pending().await
    }
}

/// Until we are asked to end; for when the command has ended, and only we are left.
pub(super) async fn asked_to_end() {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
    let asked = kinds.into_iter().map(|kind| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut heard) => heard.recv().await,
                Err(_) => std::future::pending().await,
            }
        })
    });
    futures_util::future::select_all(asked).await;
}
