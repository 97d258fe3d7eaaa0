//! The planner against its yardsticks: `make bench`. One table, everything measured in this run; `--json` prints it as
//! JSON instead, `--json FILE` writes that beside the table; `--runs N` makes it shorter or longer, `--only P4-1024`
//! leaves everything else out and so is what to profile, and `--racks N` gives that another size.
//!
//! - *P1*: random small problems with every feature, planned and enumerated; the two answers must be equal. It stops at
//!   the first that is not.
//! - *P3*: gangs of 4 and of 1,000 on 5,000 hosts with eight slots, 80 to 95 % full. A pass starts from a snapshot that is
//!   as the plans before it left it and from which as many other pods have gone, wherever; it plans a window of gangs,
//!   each of which is assigned its places before the next is looked at. Measured is everything the gang loop does from
//!   snapshot to plan. What it remembers from earlier passes it may use; *cold* is the first pass, which has nothing.
//! - *P4*: one gang of 1,024 on 20,000 hosts, half full, from the problem to the plan with nothing remembered.
//!
//! Every plan is checked by the independent checker, timed apart; a sample is compared with the planner that leaves
//! nothing out. Two baselines (`baseline`) answer samples of the same problems. Ratios are domains the planner used over
//! domains the baseline used: below 1, the planner used fewer.
//!
//! Time is the time the thread spent on a core, as Linux accounts for it, so that a busy machine disturbs it least; the
//! wall's time stands beside it, and in its place where `/proc` has no such account.
//!
//! Known limits: synthetic clusters, one machine, one core. Nothing gates on time; the counted work does not depend on
//! the machine.
#![expect(clippy::print_stdout, reason = "the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; core does not")]

mod baseline;
mod cases;
mod cluster;
mod stopwatch;

use std::collections::BTreeMap;
use std::time::Duration;

use baseline::Used;
use cluster::{Cluster, Fabric};
use muster_core::gang::Ledger;
use muster_core::model::node::Usage;
use muster_core::planner::check;
use muster_core::planner::plan::{Plan, Policy, Problem, SearchBudget, Seed, Work};
use muster_core::planner::{self, Pruning};
use serde_json::{Value, json};
use stopwatch::{Stopwatch, Time};

/// Cases of P1.
const CASES: u64 = 10_000;
/// The first seed; every run takes the next.
const SEED: u64 = 42;
/// Runs of a benchmark unless set otherwise; the median of an odd number is one of them.
const RUNS: u64 = 9;
/// Every so many gangs one is compared with the planner that leaves nothing out: 1 %, and one a run at least.
const SAMPLE: usize = 100;

/// A benchmark of plans.
#[derive(Clone, Copy)]
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

/// What the median is held against.
#[derive(Clone, Copy)]
enum Mark {
    LeastPodsPerSecond(u128),
    MostNanos(u128),
}

/// Measurements over all runs.
#[derive(Default)]
struct Row {
    gangs: usize,
    /// Nanoseconds per gang on a core, one figure per run, ascending.
    nanos: Vec<u128>,
    /// The same on the wall.
    wall: Vec<u128>,
    /// Those of the gangs planned with nothing remembered, on a core.
    cold: Vec<u128>,
    checker: Duration,
    work: Work,
    /// Plans compared with those of the planner that leaves nothing out.
    sampled: usize,
    judged: usize,
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
        mark: Mark::LeastPodsPerSecond(200_000),
    },
    Kind {
        name: "P3",
        fabric: Fabric::Spines,
        racks: 50,
        members: 1_000,
        passes: 12,
        window: 1,
        mark: Mark::LeastPodsPerSecond(200_000),
    },
    Kind {
        name: "P4",
        fabric: Fabric::Racks,
        racks: 200,
        members: 1_024,
        passes: 1,
        window: 1,
        mark: Mark::MostNanos(20_000_000),
    },
];

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.get(at + 1).filter(|value| !value.starts_with("--"))
    };
    let runs = value_of("--runs").and_then(|runs| runs.parse().ok()).unwrap_or(RUNS).max(1);
    let only = value_of("--only");
    let features = if only.is_none() { cases::compared(CASES) } else { BTreeMap::new() };
    let wanted = |kind: &&Kind| only.is_none_or(|only| *only == format!("{}-{}", kind.name, kind.members));
    let racks: Option<usize> = value_of("--racks").and_then(|racks| racks.parse().ok());
    let sized = |kind: &Kind| Kind { racks: racks.unwrap_or(kind.racks), ..*kind };
    let kinds: Vec<Kind> = KINDS.iter().filter(wanted).map(sized).collect();
    let rows: Vec<(&Kind, Row)> = kinds.iter().map(|kind| (kind, measured(kind, runs))).collect();
    let document = as_json(runs, &features, &rows);
    match value_of("--json") {
        Some(file) => std::fs::write(file, format!("{document:#}\n"))?,
        None if arguments.iter().any(|argument| argument == "--json") => {
            println!("{document:#}");
            return Ok(());
        }
        None => {}
    }
    let list: Vec<String> = features.iter().map(|(feature, cases)| format!("{feature} {cases}")).collect();
    if only.is_none() {
        println!(
            "P1: {CASES} of {CASES} random cases equal exhaustive enumeration and the unpruned planner, seeds from 0"
        );
        println!("    drawn: {}", list.join(", "));
    }
    println!("P3, P4: {runs} runs, seeds from {SEED}; median (least .. most) over the runs");
    println!(
        "{:<4}{:>7}{:>9}{:>7}{:>32}{:>11}{:>28}{:>18}{:>11}{:>11}{:>22}{:>22}{:>26}{:>12}",
        "",
        "hosts",
        "members",
        "gangs",
        "time on a core",
        "wall",
        "pods/s",
        "mark",
        "cold",
        "checker",
        "racks bestfit/greedy",
        "hosts bestfit/greedy",
        "slots / vertices / cells",
        "unpruned"
    );
    rows.iter().for_each(|(kind, row)| print(kind, row));
    println!(
        "time: per gang, snapshot to plan, checker apart. racks, hosts: used by the planner over used by the baseline."
    );
    println!(
        "slots, vertices, cells: counted, visited and merged per gang. unpruned: plans equal to the unpruned planner's."
    );
    for (kind, row) in rows.iter().filter(|(kind, row)| !row.is_met(kind)) {
        let (best, bound) = match kind.mark {
            Mark::LeastPodsPerSecond(bound) => {
                (format!("{} pods/s", kind.per_second(row.nanos[0])), format!("{bound} pods/s"))
            }
            Mark::MostNanos(bound) => (shown(row.nanos[0]), shown(bound)),
        };
        println!("{} with {}: mark {bound}, best run {best}", kind.name, kind.members);
    }
    Ok(())
}

fn print(kind: &Kind, row: &Row) {
    let (median, least, most) = row.spread();
    let per_second = |nanos| kind.per_second(nanos);
    let each = |sum: u64| sum / row.gangs as u64;
    println!(
        "{:<4}{:>7}{:>9}{:>7}{:>32}{:>11}{:>28}{:>18}{:>11}{:>11}{:>22}{:>22}{:>26}{:>12}",
        kind.name,
        kind.racks * cluster::RACK,
        kind.members,
        row.gangs,
        format!("{} ({} .. {})", shown(median), shown(least), shown(most)),
        shown(row.wall[row.wall.len() / 2]),
        format!("{} ({} .. {})", per_second(median), per_second(most), per_second(least)),
        format!("{} {}", kind.mark(), if row.is_met(kind) { "met" } else { "missed" }),
        shown(row.cold[row.cold.len() / 2]),
        shown(row.checker.as_nanos() / row.judged as u128),
        format!("{} {}", ratio(row.planner.racks, row.best_fit.racks), ratio(row.planner.racks, row.greedy.racks)),
        format!("{} {}", ratio(row.planner.hosts, row.best_fit.hosts), ratio(row.planner.hosts, row.greedy.hosts)),
        format!("{} / {} / {}", each(row.work.slots), each(row.work.vertices), each(row.work.cells)),
        format!("{0} of {0}", row.sampled),
    );
}

fn as_json(runs: u64, features: &BTreeMap<&str, u32>, rows: &[(&Kind, Row)]) -> Value {
    let rows = rows.iter().map(|(kind, row)| {
        let (median, least, most) = row.spread();
        let each = |sum: u64| sum / row.gangs as u64;
        json!({
            "name": kind.name,
            "hosts": kind.racks * cluster::RACK,
            "members": kind.members,
            "gangs": row.gangs,
            "coreNanosPerGang": {"median": median, "least": least, "most": most, "runs": row.nanos},
            "wallNanosPerGang": {"median": row.wall[row.wall.len() / 2], "runs": row.wall},
            "podsPerSecond": kind.per_second(median),
            "mark": kind.mark(),
            "met": row.is_met(kind),
            "coldNanosPerGang": row.cold[row.cold.len() / 2],
            "checkerNanosPerGang": row.checker.as_nanos() / row.judged as u128,
            "racks": {
                "bestFit": ratio(row.planner.racks, row.best_fit.racks),
                "greedy": ratio(row.planner.racks, row.greedy.racks),
            },
            "hostsUsed": {
                "bestFit": ratio(row.planner.hosts, row.best_fit.hosts),
                "greedy": ratio(row.planner.hosts, row.greedy.hosts),
            },
            "workPerGang": {
                "slots": each(row.work.slots),
                "vertices": each(row.work.vertices),
                "cells": each(row.work.cells),
            },
            "equalToUnpruned": row.sampled,
        })
    });
    json!({
        "version": 2,
        "seed": SEED,
        "runs": runs,
        "enumeration": {"cases": CASES, "equal": CASES, "features": features},
        "rows": rows.collect::<Vec<Value>>(),
    })
}

impl Kind {
    fn per_second(&self, nanos: u128) -> u128 {
        self.members as u128 * 1_000_000_000 / nanos.max(1)
    }

    fn mark(&self) -> String {
        match self.mark {
            Mark::LeastPodsPerSecond(pods) => format!(">= {}k/s", pods / 1_000),
            Mark::MostNanos(nanos) => format!("<= {} ms", nanos / 1_000_000),
        }
    }
}

impl Row {
    /// Median, least and most.
    fn spread(&self) -> (u128, u128, u128) {
        (self.nanos[self.nanos.len() / 2], self.nanos[0], self.nanos[self.nanos.len() - 1])
    }

    fn is_met(&self, kind: &Kind) -> bool {
        let median = self.spread().0;
        match kind.mark {
            Mark::LeastPodsPerSecond(pods) => kind.per_second(median) >= pods,
            Mark::MostNanos(nanos) => median <= nanos,
        }
    }
}

/// With three decimals.
fn ratio(planner: usize, baseline: usize) -> String {
    let thousandths = planner * 1_000 / baseline.max(1);
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn shown(nanos: u128) -> String {
    match nanos {
        ..1_000_000 => format!("{}.{} us", nanos / 1_000, nanos / 100 % 10),
        _ => format!("{}.{:02} ms", nanos / 1_000_000, nanos / 10_000 % 100),
    }
}

fn measured(kind: &Kind, runs: u64) -> Row {
    let mut row = Row::default();
    for run in 0..runs {
        match kind.mark {
            Mark::LeastPodsPerSecond(_) => passes(kind, run, runs, &mut row),
            Mark::MostNanos(_) => once(kind, run, &mut row),
        }
    }
    row.nanos.sort_unstable();
    row.wall.sort_unstable();
    row.cold.sort_unstable();
    row
}

/// P3: one run of passes, the first run at 80 % full and the last at 95 %.
fn passes(kind: &Kind, run: u64, runs: u64, row: &mut Row) {
    let step = |run: u64| f64::from(u32::try_from(run).unwrap_or(u32::MAX));
    let full = 0.80 + 0.15 * step(run) / step(runs - 1).max(1.0);
    let mut cluster = Cluster::new(SEED + run, kind.fabric, kind.racks, full);
    let (policy, mut ledger, gang) = (Policy::default(), Ledger::default(), cluster::gang(kind.members));
    let (mut elapsed, mut gangs) = (Time::default(), 0);
    for pass in 0..=kind.passes {
        let mut plans: Vec<(Plan, Work)> = Vec::new();
        let started = Stopwatch::start();
        ledger.see(&cluster.snapshot, &cluster.levels);
        for _ in 0..kind.window {
            let (plan, report) = ledger.plan_plain(&gang, &policy).expect("the snapshot was seen");
            for place in &plan.places {
                ledger.assign(&gang.key, &place.node, &Usage::of(&gang.roles[place.role].shape));
            }
            plans.push((plan, report.work));
        }
        let took = started.stop();
        if pass == 0 {
            // Nothing was remembered yet.
            row.cold.push(took.core.as_nanos() / kind.window as u128);
        } else {
            elapsed.add(took);
        }
        for (plan, work) in plans {
            let problem = cluster.problem(kind.members);
            judge(&problem, &plan, gangs % SAMPLE == 0, row);
            cluster.arrive(&plan);
            if pass > 0 {
                gangs += 1;
                row.work.add(work);
            }
        }
        cluster.depart(kind.window * kind.members);
    }
    row.gangs += gangs;
    row.nanos.push(elapsed.core.as_nanos() / gangs as u128);
    row.wall.push(elapsed.wall.as_nanos() / gangs as u128);
}

/// P4: one plan.
fn once(kind: &Kind, run: u64, row: &mut Row) {
    let problem = Cluster::new(SEED + run, kind.fabric, kind.racks, 0.5).problem(kind.members);
    let started = Stopwatch::start();
    let (plan, report) = planner::plan(&problem, &Policy::default(), SearchBudget::default(), Seed::default());
    let took = started.stop();
    judge(&problem, &plan, run == 0 && kind.racks < 1_000, row);
    row.nanos.push(took.core.as_nanos());
    row.wall.push(took.wall.as_nanos());
    row.cold.push(took.core.as_nanos());
    row.gangs += 1;
    row.work.add(report.work);
}

/// Lets the checker judge a plan, and of a sample the planner that leaves nothing out and the baselines.
fn judge(problem: &Problem, plan: &Plan, sample: bool, row: &mut Row) {
    let members: usize = problem.gang.roles.iter().map(|role| role.places.len()).sum();
    assert_eq!(plan.places.len(), members, "the gang fits");
    let started = Stopwatch::start();
    let notes = check::check(problem, plan);
    row.checker += started.stop().core;
    assert_eq!(notes, Vec::new(), "the checker accepts every plan");
    if sample {
        let (unpruned, _) = planner::plan_with(problem, &Policy::default(), Pruning::Off);
        assert_eq!(unpruned, *plan, "leaving something out changes no answer");
        row.sampled += 1;
    }
    row.judged += 1;
    if row.judged % 16 == 1 || members > 64 {
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
