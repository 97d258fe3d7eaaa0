//! Karpenter's scheduler on the same problem: `hack/karpenter`, a process of its own for each size.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use muster_core::model::resources::Resources;
use muster_core::packing::{Class, Offer, Rule};
use serde::Deserialize;
use serde_json::{Value, json};

/// What Karpenter did with one problem.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    /// Topology, scheduler and `Solve`, in nanoseconds.
    wall: u64,
    /// What the process spent on all cores for it, in nanoseconds.
    cpu: u64,
    /// `Solve` alone, in nanoseconds.
    solve: u64,
    /// Node claims.
    pub(crate) nodes: usize,
    /// Pods without a node claim.
    pub(crate) unplaced: usize,
    /// Millionths of a dollar per hour, each claim at its cheapest offering.
    pub(crate) cost: u64,
    /// Cores it could use.
    pub(crate) cores: u32,
}

impl Answer {
    pub(crate) fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall)
    }

    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu)
    }

    pub(crate) fn solve(&self) -> Duration {
        Duration::from_nanos(self.solve)
    }
}

/// What this machine has.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs the peer once, on so many cores.
pub(crate) fn run(program: &Path, cores: usize, pods: &[Class], offers: &[Offer]) -> io::Result<Answer> {
    let problem = problem(pods, offers);
    let mut child = Command::new(program)
        .env("GOMAXPROCS", cores.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(problem.to_string().as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{} ended with {}", program.display(), output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(io::Error::other)
}

/// The run of median time out of several, on so many cores.
pub(crate) fn median(
    program: &Path,
    (cores, runs): (usize, usize),
    pods: &[Class],
    offers: &[Offer],
) -> io::Result<Answer> {
    Ok(middle((0..runs).map(|_| run(program, cores, pods, offers)).collect::<io::Result<Vec<_>>>()?))
}

/// The run of median time out of these.
pub(crate) fn middle(mut all: Vec<Answer>) -> Answer {
    all.sort_by_key(Answer::wall);
    all.swap_remove(all.len() / 2)
}

fn amounts(resources: &Resources) -> Value {
    json!({"cpu": resources.get("cpu"), "memory": resources.get("memory"), "pods": resources.get("pods")})
}

/// The problem as the peer reads it.
fn problem(pods: &[Class], offers: &[Offer]) -> Value {
    let mut of_type: BTreeMap<&str, Vec<&Offer>> = BTreeMap::new();
    for offer in offers {
        of_type.entry(&offer.instance_type).or_default().push(offer);
    }
    let types = of_type.into_iter().map(|(name, offers)| {
        let offerings = offers.iter().map(
            |offer| json!({"zone": offer.zone, "capacityType": offer.capacity_type.as_str(), "price": offer.price}),
        );
        json!({
            "name": name,
            "capacity": amounts(&offers[0].capacity),
            "allocatable": amounts(&offers[0].node.allocatable),
            "offerings": offerings.collect::<Vec<_>>(),
        })
    });
    let pods = pods.iter().map(|pod| {
        let rules: Vec<Value> = pod.rules.iter().map(rule).collect();
        json!({"requests": amounts(&pod.shape.requests), "labels": pod.labels, "rules": rules})
    });
    json!({"types": types.collect::<Vec<_>>(), "pods": pods.collect::<Vec<_>>()})
}

/// A rule of the mix: among pods with one label.
fn rule(rule: &Rule) -> Value {
    let (kind, key, selector) = match rule {
        Rule::Spread(spread) => ("spread", &spread.key, Some(&spread.selector)),
        Rule::Affinity(terms) => ("affinity", &terms[0].key, terms[0].selector.as_ref()),
        Rule::AntiAffinity(term) => ("antiAffinity", &term.key, term.selector.as_ref()),
    };
    let one = selector.and_then(|selector| selector.first());
    json!({
        "kind": kind,
        "key": key,
        "label": one.map(|one| one.key.clone()),
        "value": one.and_then(|one| one.values.first().cloned()),
    })
}
