//! The yardstick of nodes for ordinary pods: `make bench` runs it.
//!
//! One pool, no nodes, 400 instance types in three zones, spot and on demand; a fifth of the pods each plain, spread over
//! zones, spread over hosts, drawn together in a zone by one of seven labels, and kept apart by hostname. Measured is
//! everything from the problem to the plan with its bound, the checker apart. The time is what the thread spent on a core,
//! so that a busy machine disturbs it least; the wall's time stands beside it.
//!
//! Known limits: one machine, one core. Nothing gates on time; the counted work does not depend on the machine.
#![expect(clippy::print_stdout, reason = "the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[expect(dead_code, reason = "the other benchmark adds times up")]
#[path = "../planner/stopwatch.rs"]
mod stopwatch;

mod mix;
mod patterns;

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
/// The first seed; every size takes the next.
const SEED: u64 = 42;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.get(at + 1).filter(|value| !value.starts_with("--"))
    };
    let most: usize = value_of("--pods").and_then(|pods| pods.parse().ok()).unwrap_or(20_000);
    println!(
        "{:<7}{:>7}{:>12}{:>12}{:>11}{:>12}{:>7}{:>9}{:>12}{:>12}{:>9}{:>11}{:>11}{:>9}",
        "mix",
        "pods",
        "core",
        "wall",
        "pods/s",
        "checker",
        "nodes",
        "refused",
        "$/h",
        "bound",
        "over",
        "looked at",
        "fillings",
        "ruins"
    );
    let mut rows = Vec::new();
    for pods in SIZES.into_iter().filter(|pods| *pods <= most) {
        rows.push(row("all", pods, &mix::Fifth::ALL));
    }
    for pods in PLAIN.into_iter().filter(|pods| *pods <= most) {
        rows.push(row("plain", pods, &[mix::Fifth::Plain]));
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
    let drawn = (0..).filter_map(|seed| patterns::draw(seed).map(|case| (seed, case))).take(cases);
    for (seed, case) in drawn {
        let watch = Stopwatch::start();
        let least = case.least();
        least_time += watch.stop().core;
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

/// Plans one size and prints it.
fn row(name: &str, pods: usize, fifths: &[mix::Fifth]) -> serde_json::Value {
    let problem = mix::problem(SEED, pods, TYPES, fifths);
    let watch = Stopwatch::start();
    let made: Plan = plan(&problem);
    let took = watch.stop();
    let watch = Stopwatch::start();
    // The checker looks at all pairs of pods: beyond this it takes longer than the plan is worth.
    let checked = (pods <= 2_000).then(|| check::check(&problem, &made));
    let checker = watch.stop().core;
    for fault in checked.iter().flatten() {
        println!("  the checker: {fault}");
    }
    let refused = made.places.iter().filter(|place| **place == Place::None).count();
    let bound = made.bound.as_ref().map_or(0, |bound| bound.value);
    let per_second = pods as u128 * 1_000_000_000 / took.core.as_nanos().max(1);
    let over = (made.cost.saturating_sub(bound) * 1_000_000).checked_div(bound).unwrap_or(0);
    println!(
        "{name:<7}{pods:>7}{:>12}{:>12}{per_second:>11}{:>12}{:>7}{refused:>9}{:>12}{:>12}{:>9}{:>11}{:>11}{:>9}",
        format!("{:.1?}", took.core),
        format!("{:.1?}", took.wall),
        if checked.is_some() { format!("{checker:.1?}") } else { "not run".to_owned() },
        made.nodes.len(),
        dollars(made.cost),
        dollars(bound),
        format!("{}.{:02} %", over / 10_000, over / 100 % 100),
        made.work.nodes,
        made.work.fillings,
        made.work.ruins,
    );
    json!({
        "mix": name, "pods": pods, "coreNanos": took.core.as_nanos().to_string(), "podsPerSecond": per_second.to_string(),
        "nodes": made.nodes.len(), "refused": refused, "usdMicroPerHour": made.cost, "bound": bound,
        "work": {"nodes": made.work.nodes, "patterns": made.work.patterns, "fillings": made.work.fillings, "ruins": made.work.ruins},
    })
}

fn dollars(micro: u64) -> String {
    format!("{}.{:03}", micro / 1_000_000, micro / 1_000 % 1_000)
}
