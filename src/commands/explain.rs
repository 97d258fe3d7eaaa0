//! `muster explain`: why a gang or a pod waits and where it goes, and who holds a node; live or from a dump.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use muster_core::reason::guide::{self, Entry};
use muster_replay::command::{self, CommandError, Output};
use muster_replay::explain::{ExplainError, Target};
use serde_json::{Value, json};

use crate::commands::cluster::{Cluster, Scope};
use crate::commands::flags::{self, Flags, Form, Texts};
use crate::commands::record::Settings;
use crate::commands::{completion, live};

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
    /// What a reason, an event or a condition means: what you see, why, and what to do. Asks no cluster.
    Reason(ReasonArgs),
}

#[derive(Debug, Args)]
struct ReasonArgs {
    /// The word, as in `status.waiting.reason`, an event or a condition.
    #[arg(required_unless_present = "all", add = ArgValueCompleter::new(completion::reasons))]
    word: Option<String>,
    /// Every word, as the troubleshooting page.
    #[arg(long, conflicts_with_all = ["word", "output"])]
    all: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

#[derive(Debug, Args)]
struct Asked {
    /// Name, or NAMESPACE/NAME; a gang's is that of its annotation or owner, or that of its object.
    #[arg(add = ArgValueCompleter::new(completion::objects))]
    name: String,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    cluster: Cluster,
    /// Dumps or recordings; without one the cluster of the kubeconfig is read.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    settings: Settings,
}

/// What is explained of a cluster.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Gang,
    Pod,
    Node,
}

/// Explains. 0 = explained, 1 = no cluster, 2 = no such object, word, context or namespace, or input that cannot be read.
///
/// Errors: those of the cluster and of standard output.
pub async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let (asked, kind) = match args.about {
        About::Reason(args) => return reason(&args),
        About::Gang(asked) => (asked, Kind::Gang),
        About::Pod(asked) => (asked, Kind::Pod),
        About::Node(asked) => (asked, Kind::Node),
    };
    let mut texts = match Texts::read(&asked.filename, &asked.flags) {
        Ok(texts) => texts,
        Err(message) => return flags::print(Err(message)),
    };
    let mut default = "default".to_owned();
    let mut client = None;
    if asked.filename.is_empty() {
        let (reached, namespace) = asked.cluster.client().await?;
        texts.push("the cluster", live::record(&reached, asked.settings.in_force()?, Vec::new()).await?);
        default = namespace;
        client = Some(reached);
    }
    let (namespace, name) =
        whole_name(kind, &asked.name).unwrap_or_else(|| (asked.scope.namespace(&default), asked.name.clone()));
    let target = match kind {
        Kind::Gang => Target::Gang { namespace, name },
        Kind::Pod => Target::Pod { namespace, name },
        Kind::Node => Target::Node { name },
    };
    let explained = command::explain(&texts.arguments(&asked.flags, asked.output.format()), &target);
    if let (Some(client), Err(CommandError::Explain(ExplainError::NotFound { .. }))) = (&client, &explained) {
        asked.scope.check(client).await?;
    }
    let printed = match explained {
        Ok(Output { text, code }) => Ok(Output { text: asked.output.of(text, name_of)?, code }),
        Err(error) => Err(error.to_string()),
    };
    flags::print(printed)
}

/// Namespace and name of what is asked for as it is printed everywhere, `team-a/train`.
fn whole_name(kind: Kind, name: &str) -> Option<(String, String)> {
    let (namespace, name) = match kind {
        Kind::Gang | Kind::Pod => name.split_once('/')?,
        Kind::Node => return None,
    };
    Some((namespace.to_owned(), name.to_owned()))
}

/// As kubectl names it.
fn name_of(value: &Value) -> Vec<String> {
    let of = |field: &str| value[field].as_str().unwrap_or_default();
    vec![match of("kind") {
        "gang" => format!("gang.{}/{}", muster_api::keys::GROUP, of("object")),
        kind => format!("{kind}/{}", of("name")),
    }]
}

/// Prints what is known of a word.
fn reason(args: &ReasonArgs) -> anyhow::Result<ExitCode> {
    let Some(word) = &args.word else {
        return flags::print(Ok(Output { text: guide::page(), code: 0 }));
    };
    let found = match guide::find(word) {
        Ok(found) => found,
        Err(alike) => {
            let message = format!("there is no reason {word}; the closest are {}", alike.join(", "));
            return flags::print(Err(message));
        }
    };
    let table = || found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n");
    let document = |entry: &Entry| {
        json!({
            "word": entry.word, "of": entry.of.to_string(), "see": entry.see, "why": entry.why, "todo": entry.todo,
        })
    };
    let value = json!({ "entries": found.iter().map(document).collect::<Vec<_>>() });
    args.output.print(table, &value, |value| flags::each(value, "entries", "word", "reason/"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_from_a_list_has_its_namespace_with_it() {
        let both = || Some(("team-a".to_owned(), "train".to_owned()));
        assert_eq!(whole_name(Kind::Gang, "team-a/train"), both());
        assert_eq!(whole_name(Kind::Pod, "team-a/train"), both());
        assert_eq!(whole_name(Kind::Gang, "train"), None);
        assert_eq!(whole_name(Kind::Node, "a/b"), None, "nodes have no namespace");
    }
}
