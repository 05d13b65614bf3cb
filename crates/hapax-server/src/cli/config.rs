//! `hapax config init` and `hapax config show`

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{DEFAULT_FILE, Failure, Global, Output, shown, sources};
use crate::config::{DEFAULT, Flags};

/// Write a config to start from, or show the one in force
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax config init
      write hapax.toml with a channel and fresh secrets for every provider
  hapax config show
      what is in force: file, environment and defaults together, secrets hidden
  hapax config show --defaults  every key with its default and its reason")]
pub struct ConfigCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Write a starter config with fresh secrets, readable by you alone
    Init {
        /// Where to; without it --config, else hapax.toml
        file: Option<PathBuf>,
    },
    /// Print the config in force, secrets hidden
    Show {
        /// Print the commented defaults instead
        #[arg(long)]
        defaults: bool,
    },
}

impl ConfigCommand {
    pub(super) fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        match self.what {
            What::Init { file } => {
                let file = file.as_deref().or(global.config.as_deref()).unwrap_or(Path::new(DEFAULT_FILE));
                init(file, output)
            }
            What::Show { defaults: true } => {
                output.text(DEFAULT);
                Ok(())
            }
            What::Show { defaults: false } => {
                let shown = shown::show(&sources::load_config(global, Flags::default())?);
                if output.json {
                    output.json(&serde_json::to_value(&shown).context("the config does not fit into JSON")?);
                } else {
                    output.text(&toml::to_string(&shown).context("the config does not fit into TOML")?);
                }
                Ok(())
            }
        }
    }
}

fn init(file: &Path, output: &Output) -> Result<(), Failure> {
    sources::write_starter(file)?;
    if output.json {
        output.json(&serde_json::json!({ "file": file.display().to_string() }));
        return Ok(());
    }
    output.say(format_args!("wrote {}, with fresh secrets that only you can read", file.display()));
    output.note("next: set `target` of the channel you need, then `hapax check` and `hapax serve`");
    Ok(())
}
