//! `hapax reload`, and what it has the running server do.

use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use hapax_gateway::server::{LoadSettings, NewSettings};
use serde_json::{Value, json};

use super::client::Client;
use super::output::text_of;
use super::{Failure, Global, Output, sources};
use crate::config::{self, Config, Flags};

/// Have the running hapax read its config anew
#[derive(Args, Debug)]
#[command(after_help = "\
Channels, their targets, secrets and limits are applied at once, without losing
a request; what is being delivered or sent ends as it began. When anything is
wrong with the file, or needs a restart (listen, store and the like), all of it
is told and the config of before stays in force (exit code 3). SIGHUP does the
same; the log then tells how it went. The environment is that of the running
hapax: a new secret comes from the config file, or from a file that a NAME_FILE
variable names.

Example:
  hapax check && hapax reload")]
pub struct Reload {}

impl Reload {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let client = Client::open(global)?;
        let done = match client.post_any("/v1/reload", json!({}), &[]).await? {
            (200, done) => done,
            (422, problem) => return Err(Failure::NoConfig(text_of(&problem, "detail"))),
            (status, problem) => return Err(client.refusal(status, &problem)),
        };
        output.answer(&done, words(&done));
        Ok(())
    }
}

fn words(done: &Value) -> String {
    let list = |key: &str| done[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let lines: Vec<String> = [("added", "new channels"), ("changed", "changed channels"), ("removed", "channels that are gone")]
        .into_iter()
        .map(|(key, what)| (what, list(key)))
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what}: {names}"))
        .collect();
    if lines.is_empty() { "the config was read anew; the channels are as they were".to_owned() } else { lines.join("\n") }
}

/// Reads the config anew, as `serve` read it first. `started` is what it read then.
pub(super) fn loader(global: Global, flags: Flags, started: Config) -> Result<LoadSettings, Failure> {
    let first = sources::read_sources(&global, flags.clone())?;
    let running = Arc::new(Mutex::new(config::channel_fingerprints(&first)));
    let file = first.file.map(|file| file.name);
    Ok(Box::new(move || {
        let sources = sources::read_sources(&global, flags.clone()).map_err(|failure| vec![failure.to_string()])?;
        // The defaults would do for a start; here they would close every channel.
        if let (Some(name), None) = (&file, &sources.file) {
            return Err(vec![format!("{name} is not there any more, and its channels with it; put it back, or stop this hapax")]);
        }
        let new = config::load(&sources).map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let fingerprints = config::channel_fingerprints(&sources);
        let before = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let differs = config::differences(&started, &before, &new, &fingerprints)?;
        let running = Arc::clone(&running);
        let applied = move || *running.lock().unwrap_or_else(PoisonError::into_inner) = fingerprints;
        Ok(NewSettings { settings: new.settings(), differs, applied: Box::new(applied) })
    }))
}
