//! Times the planner: `make bench`. One table, everything measured in this run; `--json` prints it as JSON instead.
//!
//! - *P3*: gangs of 4 on 5,000 hosts with eight slots, 80 to 95 % full, in racks of 100 and spines of 10 racks; every
//!   gang stands on the cluster the one before it left behind, and old pods depart at random.
//! - *P4*: one gang of 1,024 on 200 racks of 100 hosts with eight slots, half full at random.
//!
//! Both from hosts and usage to the plan, slots counted anew; P3 keeps the topology tree of a run, P4 keeps nothing. Beside the planner run two baselines on the same problems:
//! *best-fit-per-level* takes the tightest domain that holds the gang at every level and, where none does, the domains
//! with most room; *greedy* takes the hosts with most room. They get free slots for nothing and are not timed. Ratios
//! are domains the planner used over domains the baseline used: below 1, the planner used fewer.
//!
//! Known limits: synthetic clusters, one machine, wall time. Nothing gates on it; the counted work does not depend on the
//! machine.
#![expect(clippy::print_stdout, reason = "the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; core does not")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use muster_core::names::{NodeName, ObjectKey};
use muster_core::node::{Node, Usage};
use muster_core::plan::{GangRequest, Host, Plan, Policy, Problem, Role, RolePlace, SearchBudget, Seed, Wishes, Work};
use muster_core::planner::{self, Ground, Pruning};
use muster_core::pod::Shape;
use muster_core::resources::Resources;
use muster_core::topology::{Level, Levels, ZONE_KEY};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const GPU: &str = "nvidia.com/gpu";
const SLOTS: i64 = 8;
const SEED: u64 = 42;
/// Runs of a benchmark; the median of an odd number is one of them.
const RUNS: u64 = 7;
/// Gangs placed one after another in a run of P3.
const GANGS: u64 = 50;

/// Hosts in a rack.
const RACK: usize = 100;

/// One benchmark's measurements over all runs.
struct Row {
    name: &'static str,
    hosts: usize,
    members: usize,
    /// Microseconds per gang, ascending.
    micros: Vec<u64>,
    work: Work,
    /// Racks and hosts used in all runs: by the planner, by best-fit-per-level, by greedy.
    used: [[usize; 2]; 3],
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let rows = [p3(), p4()];
    if json {
        let rows: Vec<String> = rows.iter().map(as_json).collect();
        println!("{{\"version\":1,\"seed\":{SEED},\"runs\":{RUNS},\"rows\":[{}]}}", rows.join(","));
        return;
    }
    println!("seed {SEED}, {RUNS} runs; ratios of domains used, planner over baseline");
    println!(
        "{:<4}{:>7}{:>9}{:>11}{:>11}{:>11}{:>10}{:>12}{:>16}{:>16}",
        "",
        "hosts",
        "members",
        "median",
        "fastest",
        "slowest",
        "pods/s",
        "cells/gang",
        "racks bf/greedy",
        "hosts bf/greedy"
    );
    for row in &rows {
        let (median, fastest, slowest) = row.times();
        println!(
            "{:<4}{:>7}{:>9}{:>11}{:>11}{:>11}{:>10}{:>12}{:>16}{:>16}",
            row.name,
            row.hosts,
            row.members,
            shown(median),
            shown(fastest),
            shown(slowest),
            row.per_second(),
            row.cells(),
            format!("{} {}", row.ratio(1, 0), row.ratio(2, 0)),
            format!("{} {}", row.ratio(1, 1), row.ratio(2, 1)),
        );
    }
}

impl Row {
    fn times(&self) -> (u64, u64, u64) {
        (self.micros[self.micros.len() / 2], self.micros[0], self.micros[self.micros.len() - 1])
    }

    fn per_second(&self) -> u64 {
        self.members as u64 * 1_000_000 / self.times().0.max(1)
    }

    fn cells(&self) -> u64 {
        self.work.cells / self.micros.len() as u64
    }

    /// Planner over baseline with three decimals.
    fn ratio(&self, baseline: usize, level: usize) -> String {
        let thousandths = self.used[0][level] * 1_000 / self.used[baseline][level].max(1);
        format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
    }
}

fn as_json(row: &Row) -> String {
    let (median, fastest, slowest) = row.times();
    format!(
        "{{\"name\":\"{}\",\"hosts\":{},\"members\":{},\"medianMicros\":{median},\"fastestMicros\":{fastest},\
         \"slowestMicros\":{slowest},\"podsPerSecond\":{},\"cellsPerGang\":{},\
         \"racks\":{{\"bestFit\":{},\"greedy\":{}}},\"hostsUsed\":{{\"bestFit\":{},\"greedy\":{}}}}}",
        row.name,
        row.hosts,
        row.members,
        row.per_second(),
        row.cells(),
        row.ratio(1, 0),
        row.ratio(2, 0),
        row.ratio(1, 1),
        row.ratio(2, 1)
    )
}

fn shown(micros: u64) -> String {
    format!("{}.{:03} ms", micros / 1_000, micros % 1_000)
}

fn p3() -> Row {
    let mut row =
        Row { name: "P3", hosts: 5_000, members: 4, micros: Vec::new(), work: Work::default(), used: [[0; 2]; 3] };
    for run in 0..RUNS {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED + run);
        let full = 0.80 + 0.025 * f64::from(u32::try_from(run).unwrap_or(0));
        let mut problem = problem(&mut rng, true, 50, full, row.members);
        let ground = Ground::new(&problem);
        for _ in 0..GANGS {
            let plan = measure(Some(&ground), &problem, &mut row);
            for place in &plan.places {
                if let Some(host) = problem.hosts.iter_mut().find(|host| host.node.name == place.node) {
                    change(host, 1);
                }
                // Somebody else leaves.
                let index = rng.random_range(0..problem.hosts.len());
                change(&mut problem.hosts[index], -1);
            }
        }
    }
    row.micros.sort_unstable();
    row
}

fn p4() -> Row {
    let (hosts, members) = (20_000, 1_024);
    let mut row = Row { name: "P4", hosts, members, micros: Vec::new(), work: Work::default(), used: [[0; 2]; 3] };
    for run in 0..RUNS {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED + run);
        measure(None, &problem(&mut rng, false, 200, 0.5, members), &mut row);
    }
    row.micros.sort_unstable();
    row
}

fn change(host: &mut Host, more: i64) {
    let usage = Arc::make_mut(&mut host.usage);
    let used = (usage.requested.get(GPU) + more).clamp(0, SLOTS);
    usage.requested.set(GPU, used);
    usage.requested.set("pods", used);
}

/// Times one plan and lets the baselines answer the same problem.
fn measure(ground: Option<&Ground>, problem: &Problem, row: &mut Row) -> Plan {
    let policy = Policy::default();
    let started = Instant::now();
    let (plan, report) = match ground {
        None => planner::plan(problem, &policy, SearchBudget::default(), Seed::default()),
        Some(ground) => planner::plan_on(ground, problem, &policy, Pruning::On),
    };
    row.micros.push(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
    assert_eq!(plan.places.len(), row.members, "the gang fits: {:?}", report.refusal);
    row.work.cells += report.work.cells;
    row.work.vertices += report.work.vertices;
    let nodes: BTreeSet<&NodeName> = plan.places.iter().map(|place| &place.node).collect();
    row.used[0][0] += report.levels[problem.levels.len() - 2].used as usize;
    row.used[0][1] += nodes.len();
    for (baseline, answer) in [best_fit(problem, row.members), greedy(problem, row.members)].into_iter().enumerate() {
        let racks: BTreeSet<usize> = answer.iter().map(|host| rack(problem, *host)).collect();
        row.used[baseline + 1][0] += racks.len();
        row.used[baseline + 1][1] += answer.len();
    }
    plan
}

fn rack(problem: &Problem, host: usize) -> usize {
    label(problem, host, "bench/rack")
}

fn label(problem: &Problem, host: usize, key: &str) -> usize {
    let label = problem.hosts[host].node.labels.get(key);
    label.and_then(|label| label.parse().ok()).unwrap_or(0)
}

fn free(problem: &Problem, host: usize) -> usize {
    usize::try_from(SLOTS - problem.hosts[host].usage.requested.get(GPU)).unwrap_or(0)
}

/// Hosts of the tightest domain at every level.
fn best_fit(problem: &Problem, members: usize) -> Vec<usize> {
    let mut racks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for host in 0..problem.hosts.len() {
        racks.entry(rack(problem, host)).or_default().push(host);
    }
    let mut by_spine: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (rack, hosts) in &racks {
        by_spine.entry(label(problem, hosts[0], "bench/spine")).or_default().push(*rack);
    }
    let room = |rack: &usize| racks[rack].iter().map(|host| free(problem, *host)).sum::<usize>();
    let spines: Vec<(usize, usize)> =
        by_spine.iter().map(|(spine, racks)| (racks.iter().map(room).sum(), *spine)).collect();
    let mut left = members;
    let mut hosts = Vec::new();
    for (spine, part) in tightest(&spines, left) {
        let inside: Vec<(usize, usize)> = by_spine[&spine].iter().map(|rack| (room(rack), *rack)).collect();
        for (rack, part) in tightest(&inside, part) {
            let inside: Vec<(usize, usize)> = racks[&rack].iter().map(|host| (free(problem, *host), *host)).collect();
            for (host, part) in tightest(&inside, part) {
                hosts.push(host);
                left -= part;
            }
        }
    }
    assert_eq!(left, 0, "the baseline places every member");
    hosts
}

/// The tightest domain that holds everything, else those with most room, the last one again the tightest.
fn tightest(domains: &[(usize, usize)], members: usize) -> Vec<(usize, usize)> {
    let (mut open, mut left, mut taken) = (domains.to_vec(), members, Vec::new());
    while left > 0 && !open.is_empty() {
        let fits = open.iter().enumerate().filter(|(_, (room, _))| *room >= left).min_by_key(|(_, domain)| **domain);
        let most = || open.iter().enumerate().max_by_key(|(_, (room, _))| *room);
        let Some(index) = fits.or_else(most).map(|(index, _)| index) else { break };
        let (room, domain) = open.swap_remove(index);
        let part = room.min(left);
        if part > 0 {
            taken.push((domain, part));
        }
        left -= part;
    }
    taken
}

/// Hosts with most room, wherever they are.
fn greedy(problem: &Problem, members: usize) -> Vec<usize> {
    let mut hosts: Vec<usize> = (0..problem.hosts.len()).collect();
    hosts.sort_by_key(|host| std::cmp::Reverse(free(problem, *host)));
    let mut left = members;
    hosts.retain(|host| {
        let needed = left > 0;
        left = left.saturating_sub(free(problem, *host));
        needed
    });
    hosts
}

/// A cluster of racks, with or without spines above them, and a gang for it.
fn problem(rng: &mut ChaCha8Rng, spines: bool, racks: usize, full: f64, members: usize) -> Problem {
    let level = |name: &str, key: &str| Level { name: Arc::from(name), key: Arc::from(key) };
    let mut levels = vec![level("zone", ZONE_KEY), level("rack", "bench/rack")];
    if spines {
        levels.insert(1, level("spine", "bench/spine"));
    }
    let hosts = (0..racks * RACK).map(|index| {
        let rack = index / RACK;
        let labels = [
            (ZONE_KEY, "zone-a".to_owned()),
            ("bench/spine", if spines { (rack / 10).to_string() } else { "0".to_owned() }),
            ("bench/rack", rack.to_string()),
            ("kubernetes.io/hostname", format!("node-{index}")),
        ];
        let used = (0..SLOTS).map(|_| i64::from(rng.random_bool(full))).sum::<i64>();
        Host {
            node: Arc::new(Node {
                name: NodeName::from(format!("node-{index}")),
                labels: labels.into_iter().map(|(key, value)| (Arc::from(key), Arc::from(value))).collect(),
                taints: Vec::new(),
                allocatable: Resources::from_iter([(GPU, SLOTS), ("pods", 110)]),
                unschedulable: false,
                ready: true,
                deleting: false,
                provider_id: None,
            }),
            usage: Arc::new(Usage {
                requested: Resources::from_iter([(GPU, used), ("pods", used)]),
                ..Usage::default()
            }),
        }
    });
    let shape = Shape { requests: Resources::from_iter([(GPU, 1), ("pods", 1)]), ..Shape::default() };
    Problem {
        hosts: hosts.collect(),
        levels: Levels::new(levels).expect("four names and keys, the host last"),
        gang: GangRequest {
            key: ObjectKey::new("bench", "gang"),
            roles: vec![Role {
                name: Arc::from(""),
                shape,
                min: u32::try_from(members).expect("at most 1,024"),
                places: vec![RolePlace::default(); members],
            }],
            wishes: Wishes { required: Some(0), ..Wishes::default() },
        },
    }
}
