//! What `serve` and `listen` share: from a config to a server that runs until it is told to stop.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hapax::StoreUrl;
use hapax_domain::address::hide_userinfo;
use hapax_gateway::api::auth::forget_made;
use hapax_gateway::server::{Listeners, LoadSettings, Reloads, Server, StartError};
use hapax_gateway::settings::Channel;
use hapax_gateway::telemetry::Telemetry;
use hapax_gateway::telemetry::harmless::HarmlessStderr;
use hapax_providers::samples;
use hapax_store::{Promise, StoreError};
use owo_colors::OwoColorize;
use sd_notify::NotifyState;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::channel_file::ChannelFile;
use super::client::reachable;
use super::output::printable;
use super::signals::{StopSignals, tell_service_manager};
use super::sockets::Sockets;
use super::{DEFAULT_FILE, Failure, Global, Output, json_lines, load_config, sources, write_starter};
use crate::config::{self, Config, Flags};

/// Files for everything that is not a connection from outside: the store, targets, providers.
const FILES_KEPT: usize = 256;

/// A server with its sockets open, ready to run.
pub(super) struct Launch {
    server: Server,
    config: Config,
    listeners: Listeners,
    public: SocketAddr,
    admin: Option<SocketAddr>,
    dropin: Option<SocketAddr>,
    resp: Option<SocketAddr>,
    /// Warnings about files that others may read.
    open_files: Vec<String>,
    /// Where the token that was made just now lies.
    token_file: Option<PathBuf>,
    /// A link that signs a browser in once; made only for the eyes in front of a terminal.
    sign_in: Option<String>,
}

/// Reads the config. Where there is none and none was named, writes one to start from and gives its name back.
pub(super) fn prepare(global: &Global, flags: Flags) -> Result<(Config, Option<String>), Failure> {
    let missing = global.config.is_none() && !Path::new(DEFAULT_FILE).exists();
    if missing {
        write_starter(Path::new(DEFAULT_FILE))?;
    }
    Ok((load_config(global, flags)?, missing.then(|| DEFAULT_FILE.to_owned())))
}

pub(super) fn start_logs(filter: &str, json: bool) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).context("log.filter cannot be read")?;
    // Colours are for people: a journal, a file or a collector shows them as noise.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(HarmlessStderr);
    // Fails only when logs were started already, and then they run.
    let _ = if json { logs.json().try_init() } else { logs.try_init() };
    Ok(())
}

impl Launch {
    /// Opens the sockets first: webhooks wait in the kernel while the store opens.
    ///
    /// `file` is where the config was read from.
    pub(super) async fn open(mut config: Config, telemetry: Telemetry, file: Option<&Path>) -> Result<Self, Failure> {
        let places = allow_many_files().saturating_sub(FILES_KEPT).max(1);
        if config.limits.connections > places {
            tracing::warn!(
                places,
                "the system allows fewer open files than `limits.connections`; raise it with `ulimit -n` or LimitNOFILE"
            );
            config.limits.connections = places;
        }
        let open_files = sources::open_files(Path::new(DEFAULT_FILE).exists().then_some(DEFAULT_FILE), &config);
        let mut sockets = Sockets::handed_over()?;
        let public = sockets.at(config.listen).await?;
        let admin = sockets.at_also(config.admin_listen).await?;
        let dropin = sockets.at_also(config.dropin_listen.filter(|_| serves_bots(&config))).await?;
        let resp = sockets.at_also(config.resp.as_ref().map(|resp| resp.listen)).await?;
        sockets.all_are_served()?;
        let (at, admin_at) = (local(&public)?, admin.as_ref().map(local).transpose()?);
        let (dropin_at, resp_at) = (dropin.as_ref().map(local).transpose()?, resp.as_ref().map(local).transpose()?);
        let server = crate::open::open(&config, telemetry).await.map_err(|error| not_opened(&config.store, error))?;
        let channels = ChannelFile::new(file.unwrap_or(Path::new(DEFAULT_FILE)), config.web.write_config);
        let server = server.with_config_file(Arc::new(channels));
        let mut token_file = None;
        if let Some(token) = &server.admin_token().fresh {
            let path = sources::token_path(&config.store, file);
            if let Err(why) = sources::leave_token(&path, token) {
                // Nobody will ever have it: the next start is to make another.
                forget_made(server.store().as_ref()).await.map_err(|error| not_started(StartError::Store(error)))?;
                let todo = "set HAPAX_ADMIN_TOKEN or HAPAX_ADMIN_TOKEN_FILE to a token of your own";
                return Err(Failure::plain(format!("the admin token cannot be written to {} ({why}); {todo}", path.display())));
            }
            token_file = Some(path);
        }
        // A log keeps what a terminal forgets. Where the store cannot be asked, there is the token.
        let sign_in = if std::io::stdout().is_terminal() { server.sign_in_link().await.ok() } else { None };
        let listeners = Listeners { public, admin, dropin, resp };
        let (public, admin, dropin, resp) = (at, admin_at, dropin_at, resp_at);
        Ok(Self { server, config, listeners, public, admin, dropin, resp, open_files, token_file, sign_in })
    }

    /// Sets who reads the config anew.
    pub(super) fn reloading_with(self, load: LoadSettings) -> Self {
        Self { server: self.server.with_loader(load), ..self }
    }

    pub(super) fn reloads(&self) -> Reloads {
        self.server.reloads()
    }

    /// Says what runs where, and what to do next. `bot` says who plays the bot for channels without one.
    pub(super) fn banner(&self, written: Option<&str>, bot: Option<&str>, global: &Global, output: &Output) {
        let config = &self.config;
        if output.json {
            output.json(&self.banner_json());
            return self.warnings().for_each(|warning| output.warn(warning));
        }
        if json_lines::are_on() {
            let fields = match self.banner_json() {
                Value::Object(fields) => fields,
                _ => Map::new(),
            };
            json_lines::write("INFO", &format!("hapax {} listens on {}", env!("CARGO_PKG_VERSION"), self.url("")), fields);
            self.warnings().for_each(|warning| output.warn(warning));
            return;
        }
        output.line(format_args!("{} {} listens on {}", "hapax".bold(), env!("CARGO_PKG_VERSION"), self.url("")));
        if let Some(admin) = self.admin {
            output.line(format_args!("the admin surface is on http://{admin}"));
        }
        if let Some(address) = self.for_bots() {
            output.say(format_args!("bots that send by the provider's own API do so at {address}"));
        }
        if let Some(address) = self.redis_door() {
            output.say(format_args!(
                "claims by the Redis protocol are made at {address}, with a token of scope work as the password"
            ));
        }
        output.line("");
        self.tell_channels(bot, output);
        output.line("");
        if let Some(file) = written {
            output.say(format_args!("config  {file}, written just now with fresh secrets; `target` is your bot"));
        }
        output.say(format_args!("store   {}", store_words(&config.store, &self.server.store().promise())));
        self.warnings().for_each(|warning| output.warn(warning));
        if let Some(file) = &self.token_file {
            output.say(format_args!("token   made just now, in {}, for you alone; commands find it there", file.display()));
        }
        match &self.sign_in {
            Some(path) => {
                output.line(format_args!("web     this link signs you in once, within ten minutes:\n{}", self.page(path)))
            }
            None => output.line(format_args!("web     {}", self.page("/"))),
        }
        if let Some(sample) = first_try(&config.channels) {
            output.line("");
            let flags = self.flags_to_reach(global);
            let space = if flags.is_empty() { "  " } else { "\n  " };
            output.line(format_args!("Next, in another terminal:{space}{} trigger {sample} --times 5{flags}", as_called()));
        }
        output.line("Stop with Ctrl-C.");
    }

    /// Lists the channels: short enough for a terminal, so a target that all share stands by itself.
    fn tell_channels(&self, bot: Option<&str>, output: &Output) {
        let channels = &self.config.channels;
        let targets: BTreeSet<String> = channels.iter().map(|channel| shown_target(channel, bot)).collect();
        let shared = targets.first().filter(|_| targets.len() == 1 && channels.len() > 1 && output.is_brief());
        let row = |channel: &Channel| {
            let mut row = vec![channel.name.to_string(), channel.provider.provider().to_owned(), format!("/in/{}", channel.name)];
            row.extend(shared.is_none().then(|| shown_target(channel, bot)));
            row
        };
        let head = ["channel", "provider", "webhooks come in at", "target"];
        output.table(&head[..if shared.is_some() { 3 } else { 4 }], channels.iter().map(row).collect());
        if let Some(target) = shared {
            output.line(format_args!("\ntarget  {target}"));
        }
    }

    /// What commands in another terminal must be told, because flags here are stronger than the config that they read.
    fn flags_to_reach(&self, global: &Global) -> String {
        let read = sources::read_sources(global, Flags::default()).ok();
        let Some(found) = read.and_then(|sources| config::load_admin(&sources).ok()) else { return String::new() };
        let mut flags = String::new();
        if let Some(file) = &global.config {
            flags.push_str(&format!(" --config {}", file.display()));
        }
        let at = reachable(self.admin.unwrap_or(self.public));
        if reachable(found.address) != at {
            flags.push_str(&format!(" --server http://{at}"));
        }
        let left = sources::token_path(&self.config.store, global.config.as_deref());
        let looked_at = found.store.map(|store| sources::token_path(&store, global.config.as_deref()));
        if self.config.admin_token.is_none() && looked_at.as_ref() != Some(&left) {
            flags.push_str(&format!(" --token-file {}", left.display()));
        }
        flags
    }

    /// What may go wrong with this config.
    fn warnings(&self) -> impl Iterator<Item = String> {
        let all = config::warnings(&self.config).into_iter().chain(self.open_files.iter().cloned()).chain(self.lost_token());
        all.map(|warning| printable(&warning))
    }

    /// On servers the file may lie beside the config of another instance.
    fn lost_token(&self) -> Option<String> {
        let path = sources::token_path(&self.config.store, None);
        let is_lost = self.config.admin_token.is_none() && matches!(self.config.store, StoreUrl::Sqlite(_)) && !path.exists();
        is_lost.then(|| {
            format!(
                "the admin token of the first start is not in {} any more. If nobody has it, start hapax once with HAPAX_ADMIN_TOKEN \
                 set, and then without: a new one is made",
                path.display()
            )
        })
    }

    fn banner_json(&self) -> Value {
        let config = &self.config;
        let channel = |channel: &Channel| {
            let target = channel.target.as_deref().map(hide_userinfo);
            let mut shown = json!({"channel": &*channel.name, "provider": channel.provider.provider(), "webhook": self.webhook(channel), "target": target});
            if !channel.targets.is_empty() {
                shown["targets"] = json!(channel.shown_targets());
            }
            shown
        };
        json!({
            "listen": self.url(""),
            "admin_listen": self.admin.map(|address| format!("http://{address}")),
            "dropin_listen": self.for_bots(),
            "resp_listen": self.redis_door(),
            "channels": config.channels.iter().map(channel).collect::<Vec<_>>(),
            "store": store_words(&config.store, &self.server.store().promise()),
            "new_admin_token_file": self.token_file.as_ref().map(|file| file.display().to_string()),
        })
    }

    /// Where webhooks come in.
    pub(super) fn address(&self) -> SocketAddr {
        reachable(self.public)
    }

    /// Runs until `stop`, then stops in order.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<(), Failure> {
        self.server.run(self.listeners, stop).await.map_err(not_started)
    }

    /// The address that stands for the provider's, where a channel has drop-in sending.
    fn for_bots(&self) -> Option<String> {
        let address = || format!("http://{}", reachable(self.dropin.unwrap_or(self.public)));
        serves_bots(&self.config).then(address)
    }

    /// As a client of Redis is given it.
    fn redis_door(&self) -> Option<String> {
        let scheme = if self.config.resp.as_ref().is_some_and(|resp| resp.tls.is_some()) { "rediss" } else { "redis" };
        self.resp.map(|address| format!("{scheme}://{}", reachable(address)))
    }

    fn webhook(&self, channel: &Channel) -> String {
        self.url(&format!("/in/{}", channel.name))
    }

    /// Where people find a page.
    fn page(&self, path: &str) -> String {
        match &self.config.web.public_url {
            Some(base) => format!("{base}{path}"),
            None => format!("http://{}{path}", reachable(self.admin.unwrap_or(self.public))),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", reachable(self.public))
    }
}

/// Runs until SIGTERM or Ctrl-C, then stops in order; a second signal stops at once.
pub(super) async fn serve_until_told(launch: Launch, mut signals: StopSignals) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    tell_service_manager(&[NotifyState::Ready]);
    tokio::spawn({
        let stop = stop.clone();
        async move {
            signals.told().await;
            tell_service_manager(&[NotifyState::Stopping]);
            tracing::info!("stopping: nothing more is leased, deliveries under way get time to end");
            stop.cancel();
            signals.told().await;
            std::process::exit(130);
        }
    });
    launch.run(stop).await
}

/// Where a channel's events go, in words. `bot` is the one that hapax plays.
fn shown_target(channel: &Channel, bot: Option<&str>) -> String {
    let target = match (&channel.target, bot) {
        (Some(target), Some(bot)) if target == bot => "hapax plays the bot".to_owned(),
        (Some(target), _) => hide_userinfo(target),
        (None, _) if channel.targets.is_empty() => "none yet: events wait".to_owned(),
        (None, _) => "others wait".to_owned(),
    };
    match channel.targets.len() {
        0 => target,
        1 => format!("1 account has its own; {target}"),
        many => format!("{many} accounts have their own; {target}"),
    }
}

/// What to send to see it work: a message that people know, to a channel that there is.
fn first_try(channels: &[Channel]) -> Option<String> {
    let sample_of = |provider: &str| {
        let own = |name: &&str| name.split_once('.').is_some_and(|(of, _)| of == provider);
        samples::list().iter().map(|(name, _)| *name).find(own)
    };
    let of = |channel: &Channel| channel.provider.provider();
    let channel = channels.iter().find(|channel| of(channel) == "whatsapp").or_else(|| channels.first())?;
    let (sample, provider) = (sample_of(of(channel))?, of(channel));
    let alike: Vec<_> = channels.iter().filter(|channel| of(channel) == provider).collect();
    match alike.len() == 1 || alike.iter().any(|channel| &*channel.name == provider) {
        true => Some(sample.to_owned()),
        false => Some(format!("{sample} --channel {}", channel.name)),
    }
}

/// The program as it was called, so that what is printed can be copied.
pub(super) fn as_called() -> String {
    std::env::args().next().filter(|name| name.contains('/')).unwrap_or_else(|| "hapax".to_owned())
}

fn serves_bots(config: &Config) -> bool {
    config.channels.iter().any(|channel| channel.dropin.is_some())
}

fn local(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    Ok(listener.local_addr().context("the socket has no address")?)
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Store(error) => Failure::Unreachable(error.to_string()),
        error @ (StartError::Calls(_) | StartError::Door(_)) => Failure::plain(error.to_string()),
    }
}

/// A server that does not answer says little itself.
fn not_opened(store: &StoreUrl, error: StartError) -> Failure {
    match error {
        StartError::Store(error @ StoreError::Failed { .. }) if !store.is_embedded() => Failure::Unreachable(format!(
            "the store {store} cannot be used: {error}. Does its server run, and is it the one that `store` in the config means?"
        )),
        error => not_started(error),
    }
}

fn store_words(store: &StoreUrl, promise: &Promise) -> String {
    match promise {
        Promise::Full => format!("{store}, with the full promise: what was answered 200 is on disk"),
        Promise::Degraded(why) => format!("{store}, degraded: {}", why.join("; ")),
    }
}

/// Every connection is a file, and the usual soft limit of 1024 is less than what we allow.
///
/// Gives how many there may be.
fn allow_many_files() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}
