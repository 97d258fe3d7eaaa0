//! `muster plan`: what the planner would do with a dump of a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use muster_replay::command;
use muster_viewer::bar::Bar;
use serde_json::Value;

use crate::commands::flags::{self, Flags, Form, Texts};

/// Arguments of `muster plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Dumps: any mix of Kubernetes YAML and JSON, as `kubectl get nodes,pods,jobs -A -o yaml` or `muster record` writes
    /// it; `-` = standard input.
    #[arg(required_unless_present_any = ["schema", "filename"])]
    files: Vec<PathBuf>,
    /// The same, as kubectl has it.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    flags: Flags,
    /// Print the JSON Schema of the document and end.
    #[arg(long)]
    schema: bool,
}

/// Dumps of so many bytes take longer than a moment: some thousand pods.
const LARGE: usize = 4 * 1024 * 1024;

/// Plans. 0 = everything placed or provisioned for, 3 = not, 2 = input that cannot be read.
///
/// Errors: those of standard output. What is wrong with the input is written to standard error, so that standard output
/// holds the document alone.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    flags::print(if args.schema { Ok(command::Output { text: command::schema(), code: 0 }) } else { answer(args) })
}

fn answer(args: &PlanArgs) -> Result<command::Output, String> {
    let files: Vec<PathBuf> = args.files.iter().chain(&args.filename).cloned().collect();
    let texts = Texts::read(&files, &args.flags)?;
    // Gone before anything is printed: it ends with this function.
    let _bar = match texts.bytes() {
        ..LARGE => Bar::none(),
        bytes => Bar::waiting(&format!("planning {} MiB", bytes / (1024 * 1024))),
    };
    let planned =
        command::run(&texts.arguments(&args.flags, args.output.format())).map_err(|error| error.to_string())?;
    let text = args.output.of(planned.text, names).map_err(|error| error.to_string())?;
    Ok(command::Output { text, code: planned.code })
}

/// Gangs by the name their pods give them, then pods of no gang.
fn names(value: &Value) -> Vec<String> {
    let mut names = flags::each(value, "gangs", "name", &format!("gang.{}/", muster_api::keys::GROUP));
    names.extend(flags::each(value, "pods", "name", "pod/"));
    names
}
