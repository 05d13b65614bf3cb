//! `hapax completions`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure, Output};

/// Print a script that completes hapax's commands in your shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax completions bash > ~/.local/share/bash-completion/completions/hapax
  hapax completions zsh > ~/.zfunc/_hapax
  hapax completions fish > ~/.config/fish/completions/hapax.fish")]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, output: &Output) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "hapax", &mut script);
        output.text(&String::from_utf8_lossy(&script));
        Ok(())
    }
}
