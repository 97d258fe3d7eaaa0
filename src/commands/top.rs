//! `muster top`: nodes, gangs, batches and what fits now, in the terminal or as text; live or from a recording.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use muster_replay::command::{Format, Output as Printed};
use muster_replay::kinds;
use muster_view::{Overview, plain};
use muster_viewer::bar::Bar;
use muster_viewer::terminal::{self, Event};
use serde_json::Value;

use crate::commands::cluster::{Cluster, Scope};
use crate::commands::flags::{self, Flags, Form, Texts};
use crate::commands::kubeconfig::no_such;
use crate::commands::live;
use crate::commands::record::Settings;

/// Arguments of `muster top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    source: Source,
    /// Print once and end, as it does wherever there is no terminal.
    #[arg(long)]
    once: bool,
    /// Form of the output; all but `table` print once.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// What is shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// Dumps or recordings; without one the cluster of the kubeconfig is read.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Seconds between two looks at the cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    refresh: u64,
    /// The gangs of this namespace alone, and their NodeBatches; nodes are shown whoever has them. Without it all.
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    settings: Settings,
}

impl Source {
    /// Whether it is a cluster, which changes.
    pub(crate) fn is_live(&self) -> bool {
        self.filename.is_empty()
    }

    /// Time between two looks.
    pub(crate) fn refresh(&self) -> Duration {
        Duration::from_secs(self.refresh)
    }

    /// Looks once.
    ///
    /// Errors: no cluster; input that cannot be read.
    pub(crate) async fn look(&self) -> anyhow::Result<Overview> {
        let mut texts = Texts::read(&self.filename, &self.flags).map_err(crate::commands::Unusable)?;
        if self.is_live() {
            let (client, _) = self.cluster.client().await?;
            self.scope.check(&client).await?;
            let in_force = self.settings.in_force()?;
            // What may not be listed stands in the recording, and is shown.
            let (recording, _) = live::read(&client, kinds::listed(), in_force, Vec::new(), &Bar::none()).await?;
            texts.push("the cluster", recording);
        }
        let arguments = texts.arguments(&self.flags, Format::Json);
        let all = muster_view::of_texts(&arguments).map_err(|error| crate::commands::Unusable(error.to_string()))?;
        Ok(match self.scope.named() {
            Some(namespace) if !self.is_live() && all.gangs.iter().all(|gang| gang.namespace != namespace) => {
                let names: BTreeSet<&str> = all.gangs.iter().map(|gang| gang.namespace.as_str()).collect();
                let no_such = no_such("gang in namespace", namespace, names.into_iter().collect());
                return Err(crate::commands::Unusable(format!("--namespace: {no_such}")).into());
            }
            Some(namespace) => all.of_namespace(namespace),
            None => all,
        })
    }
}

/// Shows. 0 = shown, 1 = no cluster or no terminal, 2 = input that cannot be read.
///
/// Errors: those of the cluster and of the terminal.
pub async fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    let overview = args.source.look().await?;
    let print = |text: String| flags::print(Ok(Printed { text, code: 0 }));
    if args.output == Form::Wide {
        return print(plain::wide(&overview));
    }
    if args.output != Form::Table {
        let names = |value: &Value| {
            let kind = format!("gang.{}/", muster_api::keys::GROUP);
            let mut names = flags::each(value, "gangs", "object", &kind);
            names.extend(flags::each(value, "nodes", "name", "node/"));
            names
        };
        return print(args.output.of(overview.to_json(), names)?);
    }
    if args.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return print(plain::text(&overview));
    }
    let (sender, events) = mpsc::channel();
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let keys = sender.clone();
    let shown = tokio::task::spawn_blocking(move || terminal::run(overview, colour, &keys, &events));
    if args.source.is_live() {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(args.source.refresh()).await;
                let event = match args.source.look().await {
                    Ok(newer) => Event::Overview(Box::new(newer)),
                    Err(error) => Event::Trouble(crate::telemetry::chain(&error)),
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
    }
    shown.await.context("show the screen")?.context("use the terminal")?;
    Ok(ExitCode::SUCCESS)
}
