//! A new config while the server runs: asked for over `/v1` or by a signal, read by whoever knows where it is, applied by the server.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::doors::Doors;
use super::generation::{Generation, Lasting, Running};
use super::upkeep::{Tended, Tends};
use super::{Server, StartError};
use crate::settings::{self, OnStoreFailure, Settings};

/// Reads the config anew, or says everything that is wrong with it.
pub type LoadSettings = Box<dyn Fn() -> Result<NewSettings, Vec<String>> + Send + Sync>;

/// What is to be applied, and how it differs from what runs.
pub struct NewSettings {
    pub settings: Settings,
    pub differs: Reloaded,
    /// Called once they are in force.
    pub applied: Box<dyn FnOnce() + Send>,
}

/// What a reload has changed: channels, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
}

/// How a reload is asked for. Clones ask the same server.
#[derive(Clone)]
pub struct Reloads(mpsc::Sender<Asked>);

/// Somebody wants the config to be read anew, and waits for what came of it.
struct Asked {
    by_signal: bool,
    answer: oneshot::Sender<Result<Reloaded, Vec<String>>>,
}

/// Those who ask at the same time are answered one after the other.
const ASKING_MAX: usize = 8;

impl Reloads {
    /// The two ends: one to ask, one for the server.
    pub fn new() -> (Self, ReloadRequests) {
        let (ask, asked) = mpsc::channel(ASKING_MAX);
        (Self(ask), ReloadRequests(Some(asked)))
    }

    /// Has the config read anew. When anything is wrong with it, all of that comes back and nothing has changed.
    pub async fn ask(&self) -> Result<Reloaded, Vec<String>> {
        self.have_read(false).await
    }

    /// The same for a signal, of which nobody else knows who it was.
    pub async fn ask_by_signal(&self) -> Result<Reloaded, Vec<String>> {
        self.have_read(true).await
    }

    async fn have_read(&self, by_signal: bool) -> Result<Reloaded, Vec<String>> {
        let gone = || vec!["this hapax stops".to_owned()];
        let (answer, answered) = oneshot::channel();
        self.0.send(Asked { by_signal, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The server's end. Taken away, it hears nobody.
#[derive(Default)]
pub struct ReloadRequests(Option<mpsc::Receiver<Asked>>);

impl ReloadRequests {
    async fn next(&mut self) -> Asked {
        let asked = match &mut self.0 {
            Some(asked) => asked.recv().await,
            None => None,
        };
        match asked {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
}

/// What is ready to take the place of what runs.
type Renewed = (Generation, Reloaded, Box<dyn FnOnce() + Send>);

impl Server {
    /// Applies every config that somebody asks for, until the server stops.
    pub(super) async fn reload_until_stop(
        &self,
        mut asked: ReloadRequests,
        mut now: Generation,
        lasting: &Lasting,
        tended: &Arc<Tended>,
        doors: &Doors,
        running: &mut Running,
    ) {
        while let Some(Asked { by_signal, answer }) = lasting.stop.run_until_cancelled(asked.next()).await {
            let renewed = self.renewed(lasting, &now).await.map(|(next, differs, applied)| {
                doors.put(self.fronts(&next, lasting, tended, doors.beside()));
                tended.put(Tends::new(&next.channels, &next.ingress));
                self.start(&next, lasting, running);
                std::mem::replace(&mut now, next).retire();
                let ingress = Arc::clone(&now.ingress);
                tokio::spawn(async move { ingress.recount_suspects().await });
                applied();
                differs
            });
            self.telemetry.reloaded(&renewed, self.clock.now_ms());
            if by_signal {
                self.note_signal(lasting, &renewed);
            }
            // Whoever asked may have gone.
            let _ = answer.send(renewed);
        }
    }

    /// Reads the config anew and makes all of it ready, or says why that cannot be done.
    async fn renewed(&self, lasting: &Lasting, now: &Generation) -> Result<Renewed, Vec<String>> {
        let Some(load) = self.load.clone() else {
            return Err(vec![
                "this hapax was not started by `hapax serve`, and reads no config anew; stop it, and start it again".to_owned(),
            ]);
        };
        let loaded = tokio::task::spawn_blocking(move || load()).await;
        let NewSettings { settings, differs, applied } =
            loaded.unwrap_or_else(|_| Err(vec!["the config cannot be read".to_owned()]))?;
        if self.spool.is_none() {
            let spools = settings.channels.iter().filter(|channel| channel.on_store_failure == OnStoreFailure::Spool);
            let why = |channel: &settings::Channel| {
                format!("channel.{}.on_store_failure needs a restart: there is no spool yet", channel.name)
            };
            let reasons: Vec<_> = spools.map(why).collect();
            if !reasons.is_empty() {
                return Err(reasons);
            }
        }
        let next = self.generation(settings, lasting, Some(now)).map_err(|error: StartError| vec![error.to_string()])?;
        Ok((next, differs, applied))
    }

    /// What is asked for over `/v1` is written down there, with who asked.
    fn note_signal(&self, lasting: &Lasting, renewed: &Result<Reloaded, Vec<String>>) {
        let (audit, ok) = (Arc::clone(&lasting.audit), renewed.is_ok());
        let (target, result) = match renewed {
            Ok(differs) => (differs.in_short(), "ok"),
            Err(_) => (None, "refused"),
        };
        tokio::spawn(async move { audit.note("SIGHUP", None, "reload", target, result.to_owned(), ok).await });
    }
}

impl Reloaded {
    /// The channels that differ, in one line; `None`: there are none.
    pub(crate) fn in_short(&self) -> Option<String> {
        let parts = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(word, names)| format!("{word} {}", names.join(", ")))
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
