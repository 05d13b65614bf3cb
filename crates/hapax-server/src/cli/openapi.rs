//! `hapax openapi`

use clap::Args;

use super::{Failure, Output};

/// Print the description of the HTTP API, as a server shows it at /openapi.json
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax openapi > openapi.json
  hapax openapi | jq -r '.paths | keys[]'")]
pub struct Openapi {}

impl Openapi {
    pub(super) fn run(self, output: &Output) -> Result<(), Failure> {
        output.text(hapax_gateway::api::document_json());
        Ok(())
    }
}
