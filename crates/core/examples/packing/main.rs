//! The yardstick of nodes for ordinary pods: `make bench` runs it.
//!
//! One pool, no nodes, 400 instance types in three zones, spot and on demand; a fifth of the pods each plain, spread over
//! zones, spread over hosts, drawn together in a zone by one of seven labels, and kept apart by hostname. `plan` is what the
//! thread spent on a core between decoded pods and offers and the plan with its bound; `in all` is the wall's time of that
//! and of the checker, and pods/s follow from it.
//!
//! With `--karpenter PROGRAM` (`hack/karpenter/build.sh` prints it) Karpenter's scheduler plans the same pods for the same
//! types in turns with it, in a process of its own on all cores, and then on one. Its clock covers topology, scheduler and
//! `Solve`, each claim costs its cheapest offering, and nothing checks its plan. `times` is its wall's time over `in all`. Up to 2,000
//! pods each time is the median of five runs, on both sides.
//!
//! Known limits: one machine; Muster plans on one core. Nothing gates on time; the counted work does not depend on the
//! machine.
#![expect(clippy::print_stdout, reason = "the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[expect(dead_code, reason = "the other benchmark adds times up")]
#[path = "../planner/stopwatch.rs"]
mod stopwatch;

mod mix;
mod patterns;
mod peer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::packing::{Place, Plan, check, plan};
use serde_json::json;
use stopwatch::Stopwatch;

/// Sizes of the mix.
const SIZES: [usize; 9] = [1, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000];
/// Plain pods alone: how far from the bound.
const PLAIN: [usize; 4] = [100, 500, 1_000, 5_000];
/// Plans of some dozens of pods that an integer programme is solved for.
const CASES: usize = 60;
/// Instance types.
const TYPES: u32 = 400;
/// The seed of the rows.
const SEED: u64 = 42;
/// Up to so many pods the median of several runs counts, for either side: what else the machine does is as long as a plan takes.
const REPEATED: usize = 2_000;
const RUNS: usize = 5;
/// Seeds on which dollars and nodes are compared, at each of these sizes.
const SEEDS: u64 = 10;
const PAIRED: [usize; 3] = [100, 500, 1_000];

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.get(at + 1).filter(|value| !value.starts_with("--"))
    };
    let most: usize = value_of("--pods").and_then(|pods| pods.parse().ok()).unwrap_or(20_000);
    let peer = value_of("--karpenter").map(PathBuf::from);
    print!(
        "{:<7}{:>7}{:>11}{:>11}{:>10}{:>8}{:>9}{:>12}{:>12}{:>9}",
        "mix", "pods", "plan", "in all", "pods/s", "nodes", "refused", "$/h", "bound", "over"
    );
    if peer.is_some() {
        print!(
            "{:>11}{:>9}{:>9}{:>8}{:>9}{:>12}{:>8}{:>8}",
            "Karpenter", "pods/s", "1 core", "nodes", "refused", "$/h", "times", "Solve"
        );
    }
    println!();
    let mut rows = Vec::new();
    for pods in SIZES.into_iter().filter(|pods| *pods <= most) {
        rows.push(row("all", pods, &mix::Fifth::ALL, peer.as_deref())?);
    }
    for pods in PLAIN.into_iter().filter(|pods| *pods <= most) {
        rows.push(row("plain", pods, &[mix::Fifth::Plain], peer.as_deref())?);
    }
    if let Some(program) = &peer {
        for pods in PAIRED.into_iter().filter(|pods| *pods <= most) {
            rows.push(paired(pods, program)?);
        }
    }
    let cases: usize = value_of("--cases").and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    rows.push(dozens(cases));
    if let Some(file) = value_of("--json") {
        let document = json!({"version": 1, "seed": SEED, "types": TYPES, "rows": rows});
        std::fs::write(file, format!("{document:#}\n"))?;
    }
    Ok(())
}

/// Plans of some dozens of pods with constraints against the optimum.
fn dozens(cases: usize) -> serde_json::Value {
    let (mut over, mut worst, mut missing, mut optimal) = (0_u64, (0, 0), 0_u64, 0_u64);
    let (mut counted, mut least_time, mut plan_time) = (0_u64, std::time::Duration::ZERO, std::time::Duration::ZERO);
    let drawn = (0..).filter_map(|seed| patterns::draw(seed).map(|case| (seed, case)));
    for (seed, case) in drawn {
        if counted + missing >= u64::try_from(cases).unwrap_or(u64::MAX) {
            break;
        }
        let watch = Stopwatch::start();
        let least = case.least();
        least_time += watch.stop().core;
        // No plan has a place for all of them.
        let Some(least) = least else { continue };
        let watch = Stopwatch::start();
        let made = plan(&case.problem);
        plan_time += watch.stop().core;
        for fault in check::check(&case.problem, &made) {
            println!("  seed {seed}: the checker: {fault}");
        }
        if made.places.contains(&Place::None) {
            println!("  seed {seed}: somebody has no place, and could have one");
            missing += 1;
            continue;
        }
        // Prices are whole micro-dollars and the programme is solved in floats: a millionth is nothing.
        let more = (made.cost.saturating_sub(least) * 1_000_000).checked_div(least).unwrap_or(0);
        (over, counted, optimal) = (over + more, counted + 1, optimal + u64::from(more <= 1));
        worst = worst.max((more, seed));
    }
    let mean = over / counted.max(1);
    println!(
        "{counted} plans of 13 to 40 pods with constraints: {optimal} optimal, mean {}.{:02} %, worst {}.{:02} % (seed {}) over an integer \
         programme of patterns; {missing} place other pods; {plan_time:.1?} for all plans, {least_time:.1?} for the programmes",
        mean / 10_000,
        mean / 100 % 100,
        worst.0 / 10_000,
        worst.0 / 100 % 100,
        worst.1,
    );
    json!({"mix": "dozens", "cases": counted, "optimal": optimal, "meanMillionths": mean, "worstMillionths": worst.0, "otherPods": missing})
}

/// Dollars and nodes of the mix beside Karpenter's, seed by seed.
fn paired(count: usize, program: &Path) -> std::io::Result<serde_json::Value> {
    let offers = mix::offers(TYPES);
    let (mut dearer, mut more, mut refused) = (0, 0, 0);
    let (mut least, mut most) = (u64::MAX, 0);
    for seed in 0..SEEDS {
        let pods = mix::pods(seed, count, &mix::Fifth::ALL);
        let made = plan(&mix::problem(pods.clone(), offers.clone()));
        let other = peer::run(program, peer::cores(), &pods, &offers)?;
        refused += made.places.iter().filter(|place| **place == Place::None).count();
        dearer += u32::from(made.cost > other.cost);
        more += u32::from(made.nodes.len() * 100 > other.nodes * 101);
        let share = (made.cost.saturating_mul(1_000)).checked_div(other.cost).unwrap_or(u64::MAX);
        (least, most) = (least.min(share), most.max(share));
    }
    println!(
        "{SEEDS} seeds of {count} pods: {refused} pods refused, {dearer} plans dearer than Karpenter's, {more} with over 1 % more nodes; \
         {}.{} to {}.{} % of its dollars",
        least / 10,
        least % 10,
        most / 10,
        most % 10,
    );
    Ok(json!({
        "mix": "paired", "pods": count, "seeds": SEEDS, "refused": refused, "dearer": dearer, "moreNodes": more,
        "leastThousandths": least, "mostThousandths": most,
    }))
}

/// Plans one size, beside Karpenter if it is there, and prints it.
fn row(name: &str, count: usize, fifths: &[mix::Fifth], peer: Option<&Path>) -> std::io::Result<serde_json::Value> {
    let (pods, offers) = (mix::pods(SEED, count, fifths), mix::offers(TYPES));
    let runs = if count <= REPEATED { RUNS } else { 1 };
    let once = || {
        let (given, offered) = (pods.clone(), offers.clone());
        let watch = Stopwatch::start();
        let problem = mix::problem(given, offered);
        let made: Plan = plan(&problem);
        let planned = watch.stop();
        let faults = check::check(&problem, &made);
        (planned, watch.stop(), made, faults)
    };
    // In turns, so that what else the machine does meanwhile concerns both.
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        all.push(once());
        if let Some(program) = peer {
            others.push(peer::run(program, peer::cores(), &pods, &offers)?);
        }
    }
    all.sort_by_key(|(_, took, ..)| took.wall);
    let (planned, took, made, faults) = all.swap_remove(runs / 2);
    for fault in faults {
        println!("  the checker: {fault}");
    }
    let refused = made.places.iter().filter(|place| **place == Place::None).count();
    let bound = made.bound.as_ref().map_or(0, |bound| bound.value);
    let over = (made.cost.saturating_sub(bound) * 1_000_000).checked_div(bound).unwrap_or(0);
    print!(
        "{name:<7}{count:>7}{:>11}{:>11}{:>10}{:>8}{refused:>9}{:>12}{:>12}{:>9}",
        format!("{:.1?}", planned.core),
        format!("{:.1?}", took.wall),
        per_second(count, took.wall),
        made.nodes.len(),
        dollars(made.cost),
        dollars(bound),
        format!("{}.{:02} %", over / 10_000, over / 100 % 100),
    );
    let mut document = json!({
        "mix": name, "pods": count, "coreNanos": planned.core.as_nanos().to_string(),
        "wallNanos": took.wall.as_nanos().to_string(),
        "nodes": made.nodes.len(), "refused": refused, "usdMicroPerHour": made.cost, "bound": bound,
        "work": {"nodes": made.work.nodes, "patterns": made.work.patterns, "fillings": made.work.fillings, "ruins": made.work.ruins},
    });
    if let Some(program) = peer {
        let other = peer::middle(others);
        let one = peer::median(program, (1, runs), &pods, &offers)?;
        let times = |other: Duration| {
            let tenths = other.as_nanos() * 10 / took.wall.as_nanos().max(1);
            format!("{}.{}", tenths / 10, tenths % 10)
        };
        print!(
            "{:>11}{:>9}{:>9}{:>8}{:>9}{:>12}{:>8}{:>8}",
            format!("{:.1?}", other.wall()),
            per_second(count, other.wall()),
            per_second(count, one.wall()),
            other.nodes,
            other.unplaced,
            dollars(other.cost),
            times(other.wall()),
            times(other.solve()),
        );
        document["karpenter"] = json!({
            "cores": other.cores, "wallNanos": other.wall().as_nanos().to_string(), "cpuNanos": other.cpu().as_nanos().to_string(),
            "solveNanos": other.solve().as_nanos().to_string(), "wallNanosOnOneCore": one.wall().as_nanos().to_string(),
            "nodes": other.nodes, "refused": other.unplaced, "usdMicroPerHour": other.cost,
        });
    }
    println!();
    Ok(document)
}

fn per_second(pods: usize, time: Duration) -> u128 {
    pods as u128 * 1_000_000_000 / time.as_nanos().max(1)
}

fn dollars(micro: u64) -> String {
    format!("{}.{:03}", micro / 1_000_000, micro / 1_000 % 1_000)
}
