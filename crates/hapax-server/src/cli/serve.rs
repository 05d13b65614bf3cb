//! `hapax serve`

use clap::Args;
use hapax_gateway::server::LoadSettings;
use hapax_gateway::telemetry::Telemetry;

use super::launch::{Launch, prepare, serve_until_told, start_logs};
use super::signals::StopSignals;
use super::{Failure, Global, Output, json_lines, reload, sources};
use crate::config::{Config, Flags};

/// Take webhooks in and deliver them, until stopped
#[derive(Args, Debug)]
#[command(after_help = "\
Without a config file one is written: hapax.toml, with one channel per provider
and fresh secrets. Events are kept in hapax.db. SIGTERM and Ctrl-C stop it
cleanly: deliveries under way get time to end (`stop_grace`, 30 s in all), the
rest is handed back. SIGHUP has the config read anew, like `hapax reload`.

Examples:
  hapax serve
  hapax serve --listen 0.0.0.0:8080 --store sqlite:/var/lib/hapax/hapax.db")]
pub struct Serve {
    /// Where to listen; stronger than the config
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where to keep events: sqlite:FILE, postgres://.., mysql://.., redis://.., firestore://.. or memory:; stronger than the config
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

impl Serve {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, store: self.store, admin_token: sources::token_flag(global)? };
        let prepared = prepare(global, flags.clone());
        if prepared.is_err() && json_lines::are_asked_for(global) {
            json_lines::begin();
        }
        let (config, written) = prepared?;
        if config.log.json {
            json_lines::begin();
        }
        start_logs(&config.log.filter, config.log.json)?;
        let load = reload::loader(global.clone(), flags, config.clone())?;
        run(config, global, written.as_deref(), load, output).await
    }
}

/// Serves a checked config. `written` names the config file when it was made just now; `load` reads it anew.
pub(super) async fn run(
    config: Config,
    global: &Global,
    written: Option<&str>,
    load: LoadSettings,
    output: &Output,
) -> Result<(), Failure> {
    let launch = Launch::open(config, Telemetry::new(), global.config.as_deref()).await?.reloading_with(load);
    let signals = StopSignals::hear()?;
    signals.reload_on_hangup(launch.reloads())?;
    launch.banner(written, None, global, output);
    serve_until_told(launch, signals).await
}
