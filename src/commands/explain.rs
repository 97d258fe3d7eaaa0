//! `muster explain`: why a gang or a pod waits and where it goes, and who holds a node; live or from a dump.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use muster_replay::command::{self, Format};
use muster_replay::explain::Target;

use crate::commands::flags::{self, Flags, Form, Texts};
use crate::commands::live;
use crate::commands::record::Settings;

/// Arguments of `muster explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(subcommand)]
    about: About,
}

#[derive(Debug, Subcommand)]
enum About {
    /// Why a gang waits, where it goes, what it would cost, how far that is from the best.
    Gang(Asked),
    /// The same for one pod.
    Pod(Asked),
    /// Who holds a node, to whom it is assigned, why gangs skip it.
    Node(Asked),
}

#[derive(Debug, Args)]
struct Asked {
    /// Name; a gang's is that of its annotation or owner, or that of its object.
    name: String,
    /// Namespace.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Dumps or recordings; without one the cluster of the kubeconfig is read.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    settings: Settings,
}

/// Explains. 0 = reported, 1 = no cluster, 2 = no such object, or input that cannot be read.
///
/// Errors: those of the cluster and of standard output.
pub async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let (asked, target) = match args.about {
        About::Gang(asked) => {
            let target = Target::Gang { namespace: asked.namespace.clone(), name: asked.name.clone() };
            (asked, target)
        }
        About::Pod(asked) => {
            let target = Target::Pod { namespace: asked.namespace.clone(), name: asked.name.clone() };
            (asked, target)
        }
        About::Node(asked) => {
            let target = Target::Node { name: asked.name.clone() };
            (asked, target)
        }
    };
    let mut texts = match Texts::read(&asked.filename, &asked.flags) {
        Ok(texts) => texts,
        Err(message) => return flags::print(Err(message)),
    };
    if asked.filename.is_empty() {
        texts.push("the cluster", live::record(asked.settings.in_force()?, Vec::new()).await?);
    }
    let format = match asked.output {
        Form::Text => Format::Table,
        Form::Json => Format::Json,
    };
    let arguments = texts.arguments(&asked.flags, format);
    flags::print(command::explain(&arguments, &target).map_err(|error| error.to_string()))
}
