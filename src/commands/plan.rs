//! `muster plan`: what the planner would do with a dump of a cluster.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use muster_replay::command::{self, Arguments};
use muster_replay::dump::Input;

/// Arguments of `muster plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Dumps: any mix of Kubernetes YAML and JSON, as `kubectl get nodes,pods,jobs -A -o yaml` writes it; `-` = standard
    /// input.
    #[arg(required_unless_present = "schema")]
    files: Vec<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Node label keys of the topology levels, top to bottom; without it those that the nodes carry.
    #[arg(long, value_delimiter = ',', value_name = "KEY")]
    levels: Vec<String>,
    /// Whose pods are planned; the pods of every other scheduler only take room.
    #[arg(long, default_value = muster_api::keys::SCHEDULER_NAME, value_name = "NAME")]
    scheduler_name: Vec<String>,
    /// Instance types and prices; without it a built-in table.
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// The moment to plan for; without it the newest one in the dump.
    #[arg(long, value_name = "RFC3339")]
    now: Option<String>,
    /// What is best: a file with `placement` (locality, packing) and `elastic` (spread, inside).
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print the JSON Schema of the document and end.
    #[arg(long)]
    schema: bool,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// The published document.
    Json,
}

/// Plans. 0 = everything placed or bought for, 3 = not, 2 = input that cannot be read.
///
/// Errors: those of standard output. What is wrong with the input is written to standard error, so that standard output
/// holds the document alone.
#[expect(clippy::print_stderr, reason = "the one line a user reads when the input cannot be read")]
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let output = if args.schema { Ok(command::Output { text: command::schema(), code: 0 }) } else { answer(args) };
    match output {
        Ok(output) => {
            match std::io::stdout().lock().write_all(output.text.as_bytes()) {
                // A reader that has seen enough, such as `head`, is no failure.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(error).context("write the plan");
                }
                Ok(()) | Err(_) => {}
            }
            Ok(ExitCode::from(output.code))
        }
        Err(message) => {
            eprintln!("muster: {message}");
            Ok(ExitCode::from(2))
        }
    }
}

fn answer(args: &PlanArgs) -> Result<command::Output, String> {
    let mut files = Vec::new();
    for path in &args.files {
        files.push((path.display().to_string(), text(path)?));
    }
    let read = |path: &Option<PathBuf>| {
        path.as_ref().map(|path| Ok::<_, String>((path.display().to_string(), text(path)?))).transpose()
    };
    let (catalogue, policy) = (read(&args.catalogue)?, read(&args.policy)?);
    let arguments = Arguments {
        files: files.iter().map(input).collect(),
        format: match args.output {
            Output::Table => command::Format::Table,
            Output::Json => command::Format::Json,
        },
        levels: args.levels.clone(),
        scheduler_names: args.scheduler_name.clone(),
        catalogue: catalogue.as_ref().map(input),
        now: args.now.as_deref(),
        policy: policy.as_ref().map(input),
    };
    command::run(&arguments).map_err(|error| error.to_string())
}

fn input(file: &(String, String)) -> Input<'_> {
    Input { name: &file.0, text: &file.1 }
}

fn text(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("read {}: {error}", path.display());
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(failed)
}
