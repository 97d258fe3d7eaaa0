//! `muster version`: what this binary is, and the versions of the documents it writes.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::flags::Form;

/// Arguments of `muster version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// What this binary is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Version of Muster.
    pub version: &'static str,
    /// Operating system and architecture, as container images name them.
    pub platform: &'static str,
    /// Versions of the documents it writes.
    pub documents: Documents,
}

/// Versions of the documents for other programs.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Documents {
    /// `muster plan -o json`.
    pub plan: u32,
    /// `muster explain -o json`.
    pub explanation: u32,
    /// `muster top -o json`.
    pub overview: u32,
}

impl Version {
    /// This binary's.
    #[must_use]
    pub fn current() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            platform: match std::env::consts::ARCH {
                "x86_64" => "linux/amd64",
                "aarch64" => "linux/arm64",
                other => other,
            },
            documents: Documents {
                plan: muster_replay::document::VERSION,
                explanation: muster_replay::explain::VERSION,
                overview: muster_view::overview::VERSION,
            },
        }
    }
}

/// Prints the version.
///
/// Errors: those of standard output.
pub fn run(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let version = Version::current();
    let table = || {
        let Documents { plan, explanation, overview } = version.documents;
        format!(
            "muster {} ({})\ndocuments: plan {plan}, explanation {explanation}, overview {overview}\n",
            version.version, version.platform
        )
    };
    args.output.print(table, &version, |value| {
        value["version"].as_str().map(|version| format!("muster/{version}")).into_iter().collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
