//! The planner against its yardsticks: `make bench`. One table, everything measured in this run; `--json` prints it as
//! JSON instead, `--json FILE` writes that beside the table.
//!
//! - *P1*: random small problems with every feature, planned and enumerated; the two answers must be equal.
//! - *P3*: gangs of 4 and of 1,000 on 5,000 hosts with eight slots, 80 to 95 % full. A pass starts from a snapshot that is
//!   as the plans before it left it and from which as many other pods have gone, wherever; it plans a window of gangs,
//!   each of which is promised its places before the next is looked at. Measured is everything the gang loop does from
//!   snapshot to plan. What it remembers from earlier passes it may use; *cold* is the first pass, which has nothing.
//! - *P4*: one gang of 1,024 on 20,000 hosts, half full, from the problem to the plan with nothing remembered.
//!
//! Every plan is checked by the independent checker, timed apart; a sample is compared with the planner that leaves
//! nothing out. Two baselines (`baseline`) answer samples of the same problems. Ratios are domains the planner used over
//! domains the baseline used: below 1, the planner used fewer.
//!
//! Known limits: synthetic clusters, one machine, one core, wall time. Nothing gates on time; the counted work does not
//! depend on the machine.
#![expect(clippy::print_stdout, reason = "the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; core does not")]

mod baseline;
mod cluster;

use std::time::{Duration, Instant};

use baseline::Used;
use cluster::{Cluster, Fabric};
use muster_core::check;
use muster_core::cycle::Ledger;
use muster_core::plan::{Plan, Policy, Problem, SearchBudget, Seed, Work};
use muster_core::planner::{self, Pruning};
use serde_json::json;

/// The first seed; every run takes the next.
const SEED: u64 = 42;
/// Runs of a benchmark; the median of an odd number is one of them.
const RUNS: u64 = 9;
/// Every so many gangs one is compared with the planner that leaves nothing out: 1 %, and one a run at least.
const SAMPLE: usize = 100;

/// A benchmark of plans.
struct Kind {
    name: &'static str,
    fabric: Fabric,
    racks: usize,
    members: usize,
    passes: usize,
    /// Gangs of a pass.
    window: usize,
    mark: Mark,
}

#[derive(Clone, Copy)]
enum Mark {
    PodsPerSecond(u64),
    MostMicros(u64),
}

/// Measurements over all runs.
#[derive(Default)]
struct Row {
    gangs: usize,
    /// Nanoseconds per gang, one figure per run, ascending.
    nanos: Vec<u128>,
    cold: Vec<u128>,
    checker: Duration,
    work: Work,
    sampled: usize,
    compared: usize,
    planner: Used,
    best_fit: Used,
    greedy: Used,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "P3",
        fabric: Fabric::Spines,
        racks: 50,
        members: 4,
        passes: 40,
        window: 16,
        mark: Mark::PodsPerSecond(200_000),
    },
    Kind {
        name: "P3",
        fabric: Fabric::Spines,
        racks: 50,
        members: 1_000,
        passes: 12,
        window: 1,
        mark: Mark::PodsPerSecond(200_000),
    },
    Kind {
        name: "P4",
        fabric: Fabric::Racks,
        racks: 200,
        members: 1_024,
        passes: 1,
        window: 1,
        mark: Mark::MostMicros(20_000),
    },
];

fn main() {
    let rows: Vec<(&Kind, Row)> = KINDS.iter().map(|kind| (kind, measured(kind))).collect();
    for (kind, row) in &rows {
        let (median, fastest, slowest) = spread(&row.nanos);
        println!(
            "{} {} {:?} {} {} {} pods/s {} cells {} vertices {} slots {} checker {:?} cold {} sample {}",
            kind.name,
            kind.members,
            kind.fabric,
            median,
            fastest,
            slowest,
            kind.members as u128 * 1_000_000_000 / median,
            row.work.cells / row.gangs as u64,
            row.work.vertices / row.gangs as u64,
            row.work.slots / row.gangs as u64,
            row.checker / u32::try_from(row.gangs).unwrap_or(u32::MAX),
            row.cold[row.cold.len() / 2],
            row.sampled,
        );
        println!("{}", json!({"racks": row.planner.racks * 1000 / row.best_fit.racks}));
    }
}

fn spread(nanos: &[u128]) -> (u128, u128, u128) {
    (nanos[nanos.len() / 2], nanos[0], nanos[nanos.len() - 1])
}

fn measured(kind: &Kind) -> Row {
    let mut row = Row::default();
    for run in 0..RUNS {
        match kind.name {
            "P3" => passes(kind, run, &mut row),
            _ => once(kind, run, &mut row),
        }
    }
    row.nanos.sort_unstable();
    row.cold.sort_unstable();
    row
}

/// P3: one run of passes.
fn passes(kind: &Kind, run: u64, row: &mut Row) {
    let full =
        0.80 + 0.15 / f64::from(u32::try_from(RUNS - 1).unwrap_or(1)) * f64::from(u32::try_from(run).unwrap_or(0));
    let mut cluster = Cluster::new(SEED + run, kind.fabric, kind.racks, full);
    let (policy, mut ledger, gang) = (Policy::default(), Ledger::default(), cluster::gang(kind.members));
    let (mut elapsed, mut gangs) = (Duration::ZERO, 0);
    for pass in 0..=kind.passes {
        let mut plans: Vec<(Plan, Work)> = Vec::new();
        let started = Instant::now();
        ledger.see(&cluster.snapshot, &cluster.levels);
        for _ in 0..kind.window {
            let (plan, report) = ledger.plan_plain(&gang, &policy).expect("the snapshot was seen");
            for place in &plan.places {
                ledger.promise(&gang.key, &place.node, &gang.roles[place.role].shape.requests);
            }
            plans.push((plan, report.work));
        }
        let took = started.elapsed();
        if pass == 0 {
            // Nothing was remembered yet.
            row.cold.push(took.as_nanos() / kind.window as u128);
        } else {
            elapsed += took;
        }
        for (plan, work) in plans {
            let problem = cluster.problem(kind.members);
            let sample = gangs % SAMPLE == 0;
            judge(&problem, &plan, sample, row);
            cluster.arrive(&plan);
            if pass > 0 {
                gangs += 1;
                row.work.add(work);
            }
        }
        cluster.depart(kind.window * kind.members);
    }
    row.gangs += gangs;
    row.nanos.push(elapsed.as_nanos() / gangs as u128);
}

/// P4: one plan.
fn once(kind: &Kind, run: u64, row: &mut Row) {
    let problem = Cluster::new(SEED + run, kind.fabric, kind.racks, 0.5).problem(kind.members);
    let started = Instant::now();
    let (plan, report) = planner::plan(&problem, &Policy::default(), SearchBudget::default(), Seed::default());
    let took = started.elapsed().as_nanos();
    judge(&problem, &plan, run == 0, row);
    row.nanos.push(took);
    row.cold.push(took);
    row.gangs += 1;
    row.work.add(report.work);
}

/// Lets the checker judge a plan, and of a sample the planner that leaves nothing out and the baselines.
fn judge(problem: &Problem, plan: &Plan, sample: bool, row: &mut Row) {
    let members: usize = problem.gang.roles.iter().map(|role| role.places.len()).sum();
    assert_eq!(plan.places.len(), members, "the gang fits");
    let started = Instant::now();
    let notes = check::check(problem, plan);
    row.checker += started.elapsed();
    assert_eq!(notes, Vec::new(), "the checker accepts every plan");
    if sample {
        let (unpruned, _) = planner::plan_with(problem, &Policy::default(), Pruning::Off);
        assert_eq!(unpruned, *plan, "leaving something out changes no answer");
        row.sampled += 1;
    }
    row.compared += 1;
    if row.compared % 16 == 1 || members > 64 {
        let pairs = [
            (&mut row.planner, baseline::used_by(problem, plan)),
            (&mut row.best_fit, baseline::best_fit(problem, members)),
            (&mut row.greedy, baseline::greedy(problem, members)),
        ];
        for (sum, used) in pairs {
            sum.racks += used.racks;
            sum.hosts += used.hosts;
        }
    }
}
