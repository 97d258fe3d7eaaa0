//! Times the planner over cluster sizes: `make bench`.
//!
//! Nodes with eight accelerators are dealt to four zones; in a zone sixteen make a rack and eight racks a row. Every
//! third node is half full. A gang of whole nodes takes an eighth of the cluster, at most 512 nodes, in one zone. What
//! counts is the last column: the time per node beside that of the smallest cluster. It stays near 1 for as long as the
//! planner is linear and its data fits the caches.
//!
//! Known limits: one shape of cluster and of gang, one machine, wall time. Nothing gates on it.
#![expect(clippy::print_stdout, reason = "the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; core does not")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::names::{NodeName, ObjectKey};
use muster_core::node::{Node, Usage};
use muster_core::plan::{GangRequest, Host, Policy, Problem, Role, RolePlace, SearchBudget, Seed, Wishes};
use muster_core::planner;
use muster_core::pod::Shape;
use muster_core::resources::Resources;
use muster_core::topology::{Level, Levels, ZONE_KEY};

const GPU: &str = "nvidia.com/gpu";
const SIZES: [usize; 4] = [100, 1_000, 5_000, 15_000];
/// Runs per size; the median of an odd number is one of them.
const RUNS: usize = 7;

fn main() {
    println!(
        "{:>7} {:>7} {:>11} {:>11} {:>11} {:>15}",
        "nodes", "gang", "median", "fastest", "slowest", "time per node"
    );
    let mut first = None;
    for nodes in SIZES {
        let members = (nodes / 8).min(512);
        let problem = problem(nodes, members);
        let mut times: Vec<Duration> = (0..RUNS).map(|_| time(&problem, members)).collect();
        times.sort_unstable();
        let (median, fastest, slowest) = (times[RUNS / 2], times[0], times[RUNS - 1]);
        let per_node = median.as_nanos() / (nodes as u128);
        let base = *first.get_or_insert(per_node.max(1));
        let ratio = per_node * 100 / base;
        println!(
            "{nodes:>7} {members:>7} {:>11} {:>11} {:>11} {:>12}.{:02}",
            shown(median),
            shown(fastest),
            shown(slowest),
            ratio / 100,
            ratio % 100
        );
    }
}

fn shown(time: Duration) -> String {
    format!("{}.{:03} ms", time.as_micros() / 1_000, time.as_micros() % 1_000)
}

fn time(problem: &Problem, members: usize) -> Duration {
    let started = Instant::now();
    let (plan, report) = planner::plan(problem, &Policy::default(), SearchBudget::default(), Seed::default());
    let took = started.elapsed();
    assert_eq!(plan.places.len(), members, "the gang fits: {:?}", report.refusal);
    took
}

fn problem(nodes: usize, members: usize) -> Problem {
    let level = |name: &str, key: &str| Level { name: Arc::from(name), key: Arc::from(key) };
    let levels = vec![level("zone", ZONE_KEY), level("row", "bench/row"), level("rack", "bench/rack")];
    // Zones of equal size, each with room for the gang beside the nodes that are half full.
    let zones = 4;
    let hosts = (0..nodes).map(|index| {
        let (zone, within) = (index % zones, index / zones);
        let labels = [
            (ZONE_KEY, format!("zone-{zone}")),
            ("bench/row", format!("row-{}", within / 128)),
            ("bench/rack", format!("rack-{}", within / 16)),
            ("kubernetes.io/hostname", format!("node-{index}")),
        ];
        let used = if within % 3 == 2 { 4 } else { 0 };
        Host {
            node: Arc::new(Node {
                name: NodeName::from(format!("node-{index}")),
                labels: labels.into_iter().map(|(key, value)| (Arc::from(key), Arc::from(value))).collect(),
                taints: Vec::new(),
                allocatable: Resources::from_iter([(GPU, 8), ("pods", 110)]),
                unschedulable: false,
                ready: true,
                deleting: false,
                provider_id: None,
            }),
            usage: Arc::new(Usage {
                requested: Resources::from_iter([(GPU, used), ("pods", used.min(1))]),
                ..Usage::default()
            }),
        }
    });
    let shape = Shape { requests: Resources::from_iter([(GPU, 8), ("pods", 1)]), ..Shape::default() };
    Problem {
        hosts: hosts.collect(),
        levels: Levels::new(levels).expect("four names and keys, the host last"),
        gang: GangRequest {
            key: ObjectKey::new("bench", "gang"),
            roles: vec![Role {
                name: Arc::from(""),
                shape,
                min: u32::try_from(members).expect("at most 512"),
                places: vec![RolePlace::default(); members],
            }],
            wishes: Wishes { required: Some(0), preferred: None, ..Wishes::default() },
        },
    }
}
