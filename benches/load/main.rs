//! How fast pods get their nodes on this machine: stock kube-scheduler pod by pod, its native gangs with one topology
//! level, and Muster with whole gangs; then Muster alone at the edges: a large cluster, a wide gang, gangs that wait, and beside those
//! how long a pod of no gang takes.
//!
//! Timed from the first create request to the last pod's `nodeName` seen by one watch: gates, planning and release are
//! inside. Same creator, same pods, nodes that exist, a control plane of its own for every run; the rows take turns.
//! CPU seconds of every process beside it, since on a small machine all of them share the cores.
//!
//! `ROWS` is a list out of `large`, `waiting`, `wide`, `rest`, `labelled` and those of `row.rs`: `stock`, `native`, `preferred`, `muster`, `nominate`
//! and `pin`, each with `+fsync` (etcd waits for its disk) and `+fragmented` (leaves of 8, 16 and 32, three fifths of their nodes in use)
//! behind it. Rows are held against the first of the list, run by run: `ROWS=nominate,pin`, `ROWS=muster,muster+fsync`.
//!
//! In the environment: `NODES` and `PODS` (1,000 each), `RUNS` (5), `WIDE` (512 members), `REST_JOBS` and `REST_PODS` (50,000 and 20,000), `LABELLED_PODS` (50,000), `_NODES`, `_DEPLOYMENTS` and `_CLAIMS`, `MUSTER` (another `muster` binary), `JSON` (a file for the figures), `PROFILE` (a folder for
//! CPU profiles of the API server, for `go tool pprof`).

#![allow(clippy::print_stdout, reason = "prints its table")]

mod labelled;
mod machine;
mod place;
mod rest;
mod row;
mod table;
mod waiting;
mod wide;

use std::path::PathBuf;

use anyhow::Context as _;
use muster::testbed::{Binaries, StackOptions, repository};
use serde_json::json;

use place::Outcome;
use row::{Row, Who};
use table::{Summary, heading, ratios};

/// Members of a gang.
const GANG: usize = 8;
/// Muster's memory at 5,000 nodes and 10,000 pods, in MiB.
const MEMORY: u64 = 600;
/// Rows that are no [`Row`].
const OTHERS: [&str; 5] = ["large", "waiting", "wide", "rest", "labelled"];

/// What all rows need.
#[derive(Clone, Debug)]
struct Bench {
    repository: PathBuf,
    binaries: Binaries,
    muster: PathBuf,
}

impl Bench {
    fn options(&self) -> StackOptions {
        let mut options = StackOptions::new(self.repository.clone(), self.binaries.clone(), self.muster.clone());
        options.api_server_args = profiling();
        options.measured = true;
        options
    }
}

/// Arguments of kube-apiserver that let it be profiled.
fn profiling() -> Vec<String> {
    if std::env::var_os("PROFILE").is_some() { vec!["--profiling=true".to_owned()] } else { Vec::new() }
}

fn number(name: &str, default: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}: \"{text}\" is no number")),
        Err(_) => Ok(default),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (nodes, pods, runs) = (number("NODES", 1_000)?, number("PODS", 1_000)?, number("RUNS", 5)?);
    // All of them are read before the first row runs.
    let large = (number("LARGE_NODES", 5_000)?, number("LARGE_PODS", 10_000)?);
    let waiting = (number("WAITING", 500)?, number("WAITING_NODES", 200)?);
    let wide = number("WIDE", 512)?;
    let rest = (number("REST_JOBS", 50_000)?, number("REST_PODS", 20_000)?, number("REST_NODES", 400)?);
    let labelled = labelled::Size {
        nodes: number("LABELLED_NODES", 5_000)?,
        pods: number("LABELLED_PODS", 50_000)?,
        deployments: number("LABELLED_DEPLOYMENTS", 500)?,
        claims: number("LABELLED_CLAIMS", 5_000)?,
    };
    let rows =
        std::env::var("ROWS").unwrap_or_else(|_| "stock,native,muster,large,waiting,wide,rest,labelled".to_owned());
    let wanted = |key: &str| rows.split(',').any(|row| row == key);
    let asked: Vec<Row> =
        rows.split(',').filter(|key| !OTHERS.contains(key)).map(Row::parse).collect::<anyhow::Result<_>>()?;
    let repository = repository();
    let binaries = Binaries::ensure(&repository, |line| println!("{line}")).await?;
    let muster = std::env::var_os("MUSTER").map_or_else(|| env!("CARGO_BIN_EXE_muster").into(), PathBuf::from);
    let bench = Bench { repository, binaries, muster };
    let mut figures = json!({"nodes": nodes, "pods": pods, "runs": runs, "gang": GANG});

    println!("{pods} pods on {nodes} nodes; medians of {runs} runs in turn, the slowest and the fastest behind them");
    if asked.iter().any(|row| row.fragmented) {
        println!("fragmented: {} pods of a whole node each", row::pods(nodes, pods, true));
    }
    println!("{}", heading());
    let mut summaries: Vec<(Row, Summary)> = Vec::new();
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); asked.len()];
    for run in 0..runs {
        for (row, outcomes) in asked.iter().zip(&mut outcomes) {
            let outcome = row.run(&bench, nodes, pods).await.with_context(|| row.title())?;
            println!("{}", outcome.line(&format!("  run {}: {}", run + 1, row.key())));
            outcomes.push(outcome);
        }
    }
    for (row, ours) in asked.iter().zip(&outcomes).skip(1) {
        // Two rows that took turns: run by run, so that what the machine did meanwhile concerns both.
        let (first, theirs) = (&asked[0], &outcomes[0]);
        if let Some([least, median, most]) = ratios(ours, theirs) {
            println!("{} at {median} % of {}, run by run {least}–{most} %", row.key(), first.key());
            figures["percent"][row.key()] = json!({"of": first.key(), "least": least, "median": median, "most": most});
        }
    }
    for (row, outcomes) in asked.into_iter().zip(outcomes) {
        let Some(summary) = Summary::of(outcomes) else { continue };
        println!("{}", summary.line(&row.title()));
        println!("  writes: {}", summary.writes());
        figures[row.key()] = summary.json();
        summaries.push((row, summary));
    }
    let rate = |of: Row| summaries.iter().find(|(row, _)| *row == of).map(|(_, summary)| summary.per_second());
    for (peer, who) in [("stock", Who::Stock), ("native", Who::Native)] {
        if let (Some(ours), Some(theirs)) = (rate(Row::plain(Who::Muster)), rate(Row::plain(who))) {
            let percent = ours * 100 / theirs.max(1);
            println!("muster at {percent} % of {peer}");
            figures[format!("percentOf{peer}")] = percent.into();
        }
    }
    if wanted("large") {
        let (nodes, pods) = large;
        println!("\n{pods} pods on {nodes} nodes, once");
        let outcome = Row::plain(Who::Muster).run(&bench, nodes, pods).await?;
        println!("{}", outcome.line("muster, large"));
        println!(
            "  no gang bound in part: {} Bindings, each after its gang's commit; peak memory of muster {} MiB of {MEMORY} \
             allowed",
            outcome.bindings, outcome.memory
        );
        anyhow::ensure!(outcome.memory <= MEMORY, "muster used {} MiB", outcome.memory);
        figures["large"] = outcome.json();
    }
    if wanted("waiting") {
        println!();
        figures["waiting"] = waiting::run(&bench, waiting.0, waiting.1).await?;
    }
    if wanted("wide") {
        println!();
        figures["wide"] = wide::run(&bench, wide).await?;
    }
    if wanted("rest") {
        println!();
        figures["rest"] = rest::run(&bench, rest.0, rest.1, rest.2).await?;
    }
    if wanted("labelled") {
        println!();
        figures["labelled"] = labelled::run(&bench, labelled).await?;
    }
    if let Some(file) = std::env::var_os("JSON").map(PathBuf::from) {
        std::fs::write(&file, format!("{figures:#}\n")).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}
