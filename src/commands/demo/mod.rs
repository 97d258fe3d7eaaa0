//! `muster demo`: the whole of Muster on this machine, in four stories that are recounted from the evidence they leave.
//!
//! Nothing narrated is remembered by this process: each story ends with a dump of what EC2's simulator, the API server
//! and the objects say, and the lines are read from those files. `hack/recompute-evidence.py` does it a second time.

mod evidence;
mod facts;
mod json;
mod narrate;
mod stage;
mod stories;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use muster_viewer::bar::Bar;

use crate::clock::now_real;
use crate::commands::serve::stopped;
use crate::testbed::Binaries;
use crate::testbed::binaries::BinariesError;
use evidence::Evidence;
use facts::Summary;
use stage::{KEPT, Stage};

/// Arguments of `muster demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Checkout with the manifests and the control plane's build script.
    #[arg(long, default_value_os_t = crate::testbed::repository(), hide_default_value = true)]
    repository: PathBuf,
    /// Keep the evidence of every story in this folder, which must not exist or be empty.
    #[arg(long)]
    evidence: Option<PathBuf>,
    /// How many times as fast as on EC2 instances boot and end.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=600))]
    speed: u32,
    /// Leave everything running after the stories, with a gang on its nodes, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// What standard output gets.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What standard output gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The stories.
    #[default]
    Text,
    /// The summary alone, as JSON.
    Json,
}

/// Plays the stories. 0 = all ended as announced and nothing is left; 1 = the reason is printed; 130 = interrupted.
pub async fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    // Dropping the play drops the stack and with it every process, wherever the play stands.
    let ended = AtomicBool::new(false);
    let code = tokio::select! {
        played = Box::pin(play(&args, &ended)) => return played,
        () = stopped() => if ended.load(Ordering::Relaxed) { ExitCode::SUCCESS } else { ExitCode::from(130) },
    };
    say(&args, "stopped, and every process with it");
    Ok(code)
}

async fn play(args: &DemoArgs, ended: &AtomicBool) -> anyhow::Result<ExitCode> {
    let started = now_real();
    if let Some(folder) = &args.evidence {
        Evidence::refuse_used(folder)?;
    }
    say(args, "The real control plane (etcd, kube-apiserver, controller-manager, kube-scheduler), a simulated EC2:");
    let binaries = binaries(args).await?;
    let stage = Stage::start(args.repository.clone(), binaries, args.speed).await?;
    let reported = tell(args, &stage, started, ended).await;
    if reported.is_err() {
        // What a failed story left is needed to understand it; the processes go all the same.
        stage.stack.cluster.keep();
    }
    reported
}

/// The control plane, built where it is not there yet: minutes, with a bar on a terminal.
async fn binaries(args: &DemoArgs) -> Result<Binaries, BinariesError> {
    let (mut bar, mut begun) = (Bar::none(), 0);
    Binaries::ensure(&args.repository, |line| {
        bar.aside(|| say(args, line));
        if let Some(next) = building(line) {
            if begun == 0 {
                bar = Bar::counting(Binaries::COUNT);
            }
            bar.at(begun, &format!("building {next}"));
            begun += 1;
        }
    })
    .await
}

/// The binary that the build script says it begins with.
fn building(line: &str) -> Option<&str> {
    line.strip_prefix("control plane: building ")?.strip_suffix(" …")
}

async fn tell(
    args: &DemoArgs,
    stage: &Stage,
    started: jiff::Timestamp,
    ended: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let folder = args.evidence.clone().unwrap_or_else(|| stage.stack.cluster.folder().join("evidence"));
    let mut evidence = Evidence::begin(folder, &stage.stack, started).await?;
    say(args, &narrate::ready(&evidence)?);
    let mut reported = Vec::new();
    for story in stories::ALL {
        say(args, &format!("\n{}", story.title()));
        let ended = stories::play(stage, story).await;
        // Kept also when the story went wrong: that is when it is needed.
        evidence.keep(&stage.stack, story).await?;
        ended.with_context(|| format!("story \"{}\" did not end as announced", story.name()))?;
        for line in narrate::story(&evidence, story)? {
            say(args, &line);
        }
        reported.push(facts::story(&evidence, story)?);
    }
    evidence.finish(&stage.stack).await?;
    let summary = Summary::read(&evidence, reported)?;
    evidence.write("summary.json", &serde_json::to_value(&summary)?)?;
    for line in narrate::end(&evidence, &summary)? {
        say(args, &line);
    }
    if args.output == Output::Json {
        put(&serde_json::to_string_pretty(&summary)?);
    }
    let broken = summary.broken();
    anyhow::ensure!(broken.is_empty(), "{}", broken.join("; "));
    if args.evidence.is_some() {
        let folder = evidence.folder().display();
        say(args, &format!("\nThe evidence is in {folder}; compute it again: hack/recompute-evidence.py {folder}"));
    }
    if args.keep {
        say(args, "\nA gang is submitted once more and stays …");
        stage.submit(KEPT).await?;
        stage.runs(KEPT).await?;
        say(args, &stage.how_to_look());
        ended.store(true, Ordering::Relaxed);
        // The signal is taken by `run`, which then drops all of this.
        std::future::pending::<()>().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// One line of the story; nothing where only the summary is wanted.
fn say(args: &DemoArgs, line: &str) {
    if args.output == Output::Text {
        put(line);
    }
}

fn put(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever closed our output wants no more lines; the stories and their clean-up go on.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
