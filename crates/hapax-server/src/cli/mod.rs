//! The command line: one file per command. Commands that ask or tell a running server go over `/v1`, so they work whatever the store; `export`,
//! `import` and `restore` open the store themselves, while no server runs.
//!
//! A new command is a file with a `clap::Args` struct and `run`, a variant in [`Command`], and an arm in [`Command::run`].

mod accounts;
mod audit;
mod backup;
mod bench;
mod bot_address;
mod channel_file;
mod check;
mod claims;
mod client;
mod completions;
mod config;
mod demo;
mod doctor;
mod down;
mod event_arg;
mod events;
mod export;
mod failure;
mod forget;
mod import;
mod import_seen;
mod inbox;
mod json_lines;
mod launch;
mod list;
mod listen;
mod man;
mod messages;
mod moved;
mod once;
mod openapi;
mod outbox;
mod output;
mod purge;
mod ready;
mod redrive;
mod reload;
mod replay;
mod restore;
mod seen_source;
mod send;
mod serve;
mod shadow;
mod show;
mod shown;
mod signals;
mod sockets;
mod sources;
mod stats;
mod store_direct;
mod story;
mod table;
mod threads;
mod token;
mod top;
mod trigger;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

pub use failure::Failure;
pub use output::Output;
pub use sources::{DEFAULT_FILE, fresh_secret, load_config, read_sources, write_starter};

const AFTER_HELP: &str = "\
Try it:
  hapax demo                             copies, crashes and lost answers, and
                                         what comes of them: nothing
  hapax serve                            start with no config at all
  hapax trigger whatsapp.text --times 5  post one signed message five times
  hapax events                           what came in
  hapax show latest                      one event: headers, body, the bot's
                                         answer
  hapax story latest                     everything that happened to it
  hapax send --to 5511988887777 --text hello
                                         send a message, once

Exit codes: 0 ok (an empty list too), 1 failure, 2 usage, 3 bad config,
4 server or store not reachable, 5 no such ID.
Set NO_COLOR to have no colours; piped output is tab-separated without a head,
ids and times in full.";

/// hapax stands between webhooks and your bot, and makes each message take effect once.
#[derive(Parser)]
#[command(name = "hapax", version, after_help = AFTER_HELP, arg_required_else_help = true, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// The config file; without it `hapax.toml` of the working directory, if there is one
    #[arg(long, global = true, env = "HAPAX_CONFIG", value_name = "FILE", help_heading = "For every command")]
    pub config: Option<PathBuf>,
    /// Print JSON: what the server answered, for programs
    #[arg(long, global = true, help_heading = "For every command")]
    pub json: bool,
    /// Show tables whole: long ids, exact times, nothing cut
    #[arg(long, global = true, help_heading = "For every command")]
    pub wide: bool,
    /// Where the running hapax is; without it the address from the config
    #[arg(long, global = true, env = "HAPAX_SERVER", value_name = "URL", help_heading = "For every command")]
    pub server: Option<String>,
    /// A file with the token; without it HAPAX_ADMIN_TOKEN, HAPAX_ADMIN_TOKEN_FILE, `admin_token` of the config, or the file that the
    /// first start has left beside the database (beside the config, where the store is a server)
    #[arg(long, global = true, value_name = "FILE", help_heading = "For every command")]
    pub token_file: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Listen(listen::Listen),
    Shadow(shadow::Shadow),
    Trigger(trigger::Trigger),
    Send(send::Send),
    Threads(threads::Threads),
    Messages(messages::Messages),
    Outbox(outbox::Outbox),
    Once(once::Once),
    Claims(claims::Claims),
    Accounts(accounts::Accounts),
    Events(events::Events),
    Inbox(inbox::Inbox),
    Parked(inbox::Parked),
    Show(show::Show),
    Story(story::Story),
    Replay(replay::Replay),
    Redrive(redrive::Redrive),
    Stats(stats::Stats),
    Top(top::Top),
    Purge(purge::Purge),
    Reload(reload::Reload),
    Forget(forget::ForgetContact),
    Token(token::Token),
    Audit(audit::Audit),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Export(export::Export),
    Import(import::Import),
    ImportSeen(import_seen::ImportSeen),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Ready(ready::Ready),
    Config(config::ConfigCommand),
    Completions(completions::Completions),
    Man(man::Man),
    Openapi(openapi::Openapi),
    Bench(bench::Bench),
    #[command(hide = true)]
    BenchServer(bench::BenchServer),
}

impl Command {
    async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        match self {
            Command::Demo(command) => command.run(output).await,
            Command::Serve(command) => command.run(global, output).await,
            Command::Listen(command) => command.run(global, output).await,
            Command::Shadow(command) => command.run(global, output).await,
            Command::Trigger(command) => command.run(global, output).await,
            Command::Send(command) => command.run(global, output).await,
            Command::Threads(command) => command.run(global, output).await,
            Command::Messages(command) => command.run(global, output).await,
            Command::Outbox(command) => command.run(global, output).await,
            Command::Once(command) => command.run(global, output).await,
            Command::Claims(command) => command.run(global, output).await,
            Command::Accounts(command) => command.run(global, output).await,
            Command::Events(command) => command.run(global, output).await,
            Command::Inbox(command) => command.run(global, output).await,
            Command::Parked(command) => command.run(global, output).await,
            Command::Show(command) => command.run(global, output).await,
            Command::Story(command) => command.run(global, output).await,
            Command::Replay(command) => command.run(global, output).await,
            Command::Redrive(command) => command.run(global, output).await,
            Command::Stats(command) => command.run(global, output).await,
            Command::Top(command) => command.run(global, output).await,
            Command::Purge(command) => command.run(global, output).await,
            Command::Reload(command) => command.run(global, output).await,
            Command::Forget(command) => command.run(global, output).await,
            Command::Token(command) => command.run(global, output).await,
            Command::Audit(command) => command.run(global, output).await,
            Command::Backup(command) => command.run(global, output).await,
            Command::Restore(command) => command.run(global, output).await,
            Command::Export(command) => command.run(global, output).await,
            Command::Import(command) => command.run(global, output).await,
            Command::ImportSeen(command) => command.run(global, output).await,
            Command::Doctor(command) => command.run(global, output).await,
            Command::Ready(command) => command.run(global, output).await,
            Command::Check(command) => command.run(global, output),
            Command::Config(command) => command.run(global, output),
            Command::Completions(command) => command.run(output),
            Command::Man(command) => command.run(output),
            Command::Openapi(command) => command.run(output),
            Command::Bench(command) => command.run(output).await,
            Command::BenchServer(command) => command.run().await,
        }
    }
}

/// Reads the command line, runs one command and says how it went.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => {
            Output::new(false).usage(&said);
            return if said.use_stderr() { ExitCode::from(failure::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let output = Output::new(cli.global.json).wide(cli.global.wide);
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|why| Failure::from(anyhow::Error::new(why).context("the async runtime did not start")))
        .and_then(|runtime| runtime.block_on(cli.command.run(&cli.global, &output)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match &failure {
                Failure::BadConfig(mistakes) => output.note(mistakes),
                Failure::Exit { why: None, .. } => {}
                other => output.complain(other),
            }
            ExitCode::from(failure.code())
        }
    }
}
