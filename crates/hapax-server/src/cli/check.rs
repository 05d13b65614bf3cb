//! `hapax check`

use clap::Args;
use serde_json::json;

use super::output::counted;
use super::{Failure, Global, Output, sources};
use crate::config::{self, Flags};

/// Read the config and report everything that is wrong with it, each with its line
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax check
  hapax check --config /etc/hapax/hapax.toml && systemctl restart hapax")]
pub struct Check {}

impl Check {
    pub(super) fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let sources = sources::read_sources(global, Flags::default())?;
        let name = sources.file.as_ref().map(|file| file.name.clone());
        match config::load(&sources) {
            Ok(config) => {
                let mut warnings = config::warnings(&config);
                warnings.extend(sources::open_files(name.as_deref(), &config));
                let notes = config::notes(&config);
                if output.json {
                    output.json(&json!({ "ok": true, "file": name, "mistakes": [], "warnings": warnings, "notes": notes }));
                    return Ok(());
                }
                warnings.iter().for_each(|warning| output.warn(warning));
                notes.iter().for_each(|note| output.note(format_args!("note: {note}")));
                match name {
                    Some(name) => output
                        .say(format_args!("{name} is good: {}", counted(config.channels.len() as u64, "channel", "channels"))),
                    None => output.say("there is no hapax.toml here, so the defaults hold; `hapax config init` writes one"),
                }
                Ok(())
            }
            Err(mistakes) => {
                if output.json {
                    let said: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
                    output.json(&json!({ "ok": false, "file": name, "mistakes": said, "warnings": [] }));
                }
                Err(mistakes.into())
            }
        }
    }
}
