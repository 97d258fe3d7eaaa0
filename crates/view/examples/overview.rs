//! How long the overview of a large cluster takes beside the planning pass in it: `make bench` runs it.
//!
//! A dump of `NODES` (5,000) nodes of eight GPUs in three layers and `GANGS` (200) gangs of eight pods, half of them bound, the rest
//! waiting. Both are made of the same dump, in turn; medians of `RUNS` (5).

#![expect(clippy::print_stdout, reason = "the output of the benchmark")]

use std::error::Error;
use std::time::{Duration, Instant};

use muster_replay::command::{self, Arguments};
use muster_replay::dump::{self, Input};
use muster_replay::plan;

#[path = "../tests/it/large.rs"]
mod large;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (nodes, gangs, runs) = (number("NODES", 5_000), number("GANGS", 200), number("RUNS", 5).max(1));
    let text = large::dump(nodes, gangs);

    let (mut read, mut planned, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let mut shown = None;
    for _ in 0..runs {
        let arguments = Arguments { files: vec![Input { name: "dump.json", text: &text }], ..Arguments::default() };
        let started = Instant::now();
        let dump = dump::read(&arguments.files)?;
        read.push(started.elapsed());
        let options = command::options(&arguments, &dump)?;
        let again = dump.clone();
        let started = Instant::now();
        let document = plan::plan(again, &options)?;
        planned.push(started.elapsed());
        let started = Instant::now();
        let (overview, work) = muster_view::counted(dump, &options)?;
        whole.push(started.elapsed());
        shown = Some((document.gangs.len(), overview, work));
    }
    let Some((entries, overview, work)) = shown else { return Ok(()) };
    let [read, planned, whole] = [read, planned, whole].map(median);
    println!(
        "overview of {} nodes and {} gangs ({} planned, {} wait): read {} ms; planned {} ms; the whole overview {} ms, {:.2} times \
         the planning pass; medians of {runs}; each node looked at {:.1} times beside it",
        overview.summary.nodes,
        overview.summary.gangs,
        entries,
        overview.summary.waiting,
        read.as_millis(),
        planned.as_millis(),
        whole.as_millis(),
        whole.as_secs_f64() / planned.as_secs_f64().max(1e-9),
        f64::from(u32::try_from(work.nodes)?) / f64::from(overview.summary.nodes.max(1)),
    );
    Ok(())
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
