//! `muster`: whole gangs or nothing, side by side.

use std::process::ExitCode;

use clap::Parser;
use muster::cli::Cli;

fn main() -> ExitCode {
    // Before anything else: two providers compiled in would make every TLS configuration panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // Somebody installed one already, which is as good.
    }
    Cli::parse().run()
}
