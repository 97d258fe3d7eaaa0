//! `muster record`: everything the planner reads of a cluster, in one file that `plan` and `explain` read again; and
//! `muster replay`: decisions of a server, planned again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use muster_replay::{command, passes};
use serde_json::Value;

use crate::commands::cluster::Cluster;
use crate::commands::flags::{self, Flags, Form, MinValuesFlag, PreferencesFlag, Texts};
use crate::commands::live::{self, InForce};
use crate::config::Config;

/// Arguments of `muster record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File to write; without it standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What `/debug/passes` of the server answered: kept in the recording, so that `muster plan` decides each pass again.
    #[arg(long, value_name = "FILE")]
    passes: Option<PathBuf>,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    settings: Settings,
}

/// Where topology levels and profile names come from when a cluster is read.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The configuration of `muster serve`: its topology levels and profile names. Without it the levels are those that
    /// the nodes carry, and the profile is `muster`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Settings {
    /// What a recording says of them.
    ///
    /// Errors: a configuration that cannot be used.
    pub(super) fn in_force(&self) -> anyhow::Result<InForce> {
        Ok(match &self.config {
            None => InForce {
                levels: None,
                scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
                provisioner_scheduler_names: Vec::new(),
            },
            Some(path) => InForce::of(&Config::load(Some(path))?),
        })
    }
}

/// Arguments of `muster replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Files of decisions, as `/debug/record` of a server answers them; `-` = standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// Records.
///
/// Errors: a file of passes that holds none, no cluster, no right to read nodes or pods, a file that cannot be written.
pub async fn record(args: RecordArgs) -> anyhow::Result<ExitCode> {
    let passes = match &args.passes {
        None => Vec::new(),
        Some(path) => vec![read_passes(path).await?],
    };
    let (client, _) = args.cluster.client().await?;
    let text = live::record(&client, args.settings.in_force()?, passes).await?;
    match &args.out {
        None => return flags::print(Ok(command::Output { text, code: 0 })),
        Some(path) => {
            tokio::fs::write(path, text).await.with_context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The passes in a file.
///
/// Errors: a file that cannot be read, or that holds none.
async fn read_passes(path: &Path) -> anyhow::Result<serde_json::Value> {
    let text = tokio::fs::read_to_string(path).await.with_context(|| format!("read {}", path.display()))?;
    anyhow::ensure!(passes::is_one(&text), "{}: holds no answer of /debug/passes", path.display());
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

/// Replays. 0 = every decision comes out the same, 3 = one does not, 2 = a file that holds no decisions.
///
/// Errors: those of standard output.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let none = Flags {
        levels: Vec::new(),
        scheduler_name: Vec::new(),
        catalogue: None,
        now: None,
        policy: None,
        preferences: PreferencesFlag::Respect,
        min_values: MinValuesFlag::Strict,
        karpenter_labels: false,
    };
    let replayed = Texts::read(&args.files, &none)
        .and_then(|texts| command::replay(&texts.inputs(), args.output.format()).map_err(|error| error.to_string()));
    let names = |value: &Value| flags::each(value, "replayed", "subject", "");
    match replayed {
        Ok(command::Output { text, code }) => {
            flags::print(Ok(command::Output { text: args.output.of(text, names)?, code }))
        }
        Err(message) => flags::print(Err(message)),
    }
}
