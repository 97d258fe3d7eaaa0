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
use serde_json::{Value, json};

/// Members of a gang.
const GANG: usize = 8;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n{number}"), "labels": {
            "kubernetes.io/hostname": format!("n{number}"),
            "topology.kubernetes.io/zone": "us-east-1a",
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.k8s.aws/network-node-layer-1": "core",
            "topology.k8s.aws/network-node-layer-2": format!("spine-{}", number / 64),
            "topology.k8s.aws/network-node-layer-3": format!("leaf-{}", number / 8),
        }},
        "status": {
            "allocatable": {"cpu": "190", "memory": "1900Gi", "pods": "100", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Every second gang is bound, on nodes that lie side by side; the others want more than a leaf has free.
fn pod(gang: usize, rank: usize) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("g{gang}-{rank}"), "namespace": "ml", "uid": format!("g{gang}-{rank}"),
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "annotations": {
                "muster.dev/gang": format!("g{gang}"), "muster.dev/gang-size": GANG.to_string(),
                "muster.dev/rank": rank.to_string(),
                "muster.dev/topology-required": "topology.k8s.aws/network-node-layer-3",
            },
        },
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Pending"},
    });
    if gang.is_multiple_of(2) {
        // One node of each leaf further on is left in use, so that what waits has to be looked for.
        pod["spec"]["nodeName"] = json!(format!("n{}", gang * GANG + rank));
        pod["status"]["phase"] = json!("Running");
    }
    pod
}

/// A pod that keeps a node of a leaf from gangs.
fn in_use(leaf: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("u{leaf}"), "namespace": "other", "uid": format!("u{leaf}")},
        "spec": {
            "nodeName": format!("n{}", leaf * 8 + 7),
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Running"},
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (nodes, gangs, runs) = (number("NODES", 5_000), number("GANGS", 200), number("RUNS", 5).max(1));
    let mut items: Vec<Value> = (0..nodes).map(node).collect();
    items.extend((0..gangs).flat_map(|gang| (0..GANG).map(move |rank| pod(gang, rank))));
    items.extend((gangs.min(nodes / 8)..nodes / 8).map(in_use));
    let text = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();

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
        let overview = muster_view::of_dump(dump, &options)?;
        whole.push(started.elapsed());
        shown = Some((document.gangs.len(), overview));
    }
    let Some((entries, overview)) = shown else { return Ok(()) };
    let [read, planned, whole] = [read, planned, whole].map(median);
    println!(
        "overview of {} nodes and {} gangs ({} planned, {} wait): read {} ms; planned {} ms; the whole overview {} ms, {:.2} times \
         the planning pass; medians of {runs}",
        overview.summary.nodes,
        overview.summary.gangs,
        entries,
        overview.summary.waiting,
        read.as_millis(),
        planned.as_millis(),
        whole.as_millis(),
        whole.as_secs_f64() / planned.as_secs_f64().max(1e-9),
    );
    Ok(())
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
