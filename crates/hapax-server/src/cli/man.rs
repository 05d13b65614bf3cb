//! `hapax man`

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use super::{Cli, Failure, Output};

/// Print the manual page, or write those of all commands into a folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax man | man -l -
  hapax man --out /usr/local/share/man/man1")]
pub struct Man {
    /// Write hapax.1 and one page for each command here
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self, output: &Output) -> Result<(), Failure> {
        let Some(folder) = self.out else {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page).context("the manual could not be made")?;
            output.text(&String::from_utf8_lossy(&page));
            return Ok(());
        };
        std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        clap_mangen::generate_to(Cli::command(), &folder).with_context(|| format!("writing into {}", folder.display()))?;
        output.note(format_args!("the manual is in {}", folder.display()));
        Ok(())
    }
}
