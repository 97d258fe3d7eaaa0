//! `muster`: whole gangs or nothing, side by side.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: two providers compiled in would make every TLS configuration panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // Somebody installed one already, which is as good.
    }
    let args: Vec<_> = std::env::args_os().collect();
    muster::cli::main(&args)
}
