//! The binary: the allocator, the TLS provider, and then the command line.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Fails only when one is installed already, and then there is one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    hapax_server::cli::run()
}
