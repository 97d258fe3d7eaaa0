//! A planner that remembers answers as one that starts again: over random sequences of arrivals, departures and changes.

use std::sync::Arc;

use muster_core::model::node::Usage;
use muster_core::planner::plan::{Host, Policy, Problem, RolePlace, SearchBudget, Seed, Work};
use muster_core::planner::{self, Memory};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::build::{self, GPU};
use super::random::draw;

#[test]
fn what_is_remembered_is_never_stale() {
    let (mut placed, mut refused, mut moved) = (0, 0, 0);
    for seed in 0..600 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let (mut problem, mut policy) = draw(rng);
        let mut memory = Memory::new(problem.levels.clone(), problem.hosts.clone());
        for step in 0..12 {
            let gang = gang(rng, &problem);
            let now = Problem { gang, ..problem.clone() };
            let expected = without_work(planner::plan(&now, &policy, SearchBudget::default(), Seed::default()));
            let found = without_work(memory.plan(now.gang.clone(), &policy));
            assert_eq!(found, expected, "seed {seed}, step {step}, {policy:?}, {now:?}");
            assert_eq!(memory.problem(), &now, "seed {seed}, step {step}");
            if found.1.refusal.is_some() {
                refused += 1;
            } else {
                placed += 1;
                if rng.random_bool(0.7) {
                    problem.hosts = build::applied(&now, &found.0).hosts;
                }
            }
            for _ in 0..rng.random_range(0..3) {
                moved += u32::from(change(rng, &mut problem.hosts));
            }
            for (index, host) in problem.hosts.iter().enumerate() {
                memory.change(index, host.clone());
            }
            if rng.random_bool(0.2) {
                policy = draw(&mut ChaCha8Rng::seed_from_u64(seed * 100 + step)).1;
            }
        }
    }
    assert!(placed > 1_500 && refused > 500 && moved > 100, "{placed} placed, {refused} refused, {moved} moved");
}

#[test]
fn a_gang_beside_one_change_costs_little_of_what_the_first_one_cost() {
    let mut hosts = Vec::new();
    for rack in 0..20 {
        for index in 0..50 {
            hosts.push(build::host(&format!("r{rack}-n{index}"), &format!("zone=a rack=r{rack}"), 8, index % 8));
        }
    }
    let problem = build::problem(build::levels(&["zone", "rack"]), hosts, 4, Some(0));
    let mut memory = Memory::new(problem.levels.clone(), problem.hosts.clone());
    let (_, first) = memory.plan(problem.gang.clone(), &Policy::default());
    let usage = Usage::clone(&problem.hosts[77].usage);
    memory.charge(77, Arc::new(Usage { ports: Vec::new(), own_shape_pods: 0, requested: build::shape().requests }));
    assert_ne!(usage.requested, memory.problem().hosts[77].usage.requested);
    let (_, second) = memory.plan(problem.gang, &Policy::default());
    assert_eq!((first.work.slots, second.work.slots), (2_000, 1), "a node that did not change is not counted again");
    assert!(second.work.cells * 50 < first.work.cells, "{:?} {:?}", first.work, second.work);
}

/// A gang for the hosts of a problem: with topology requests and bound members now and then, or as small and plain as most.
fn gang(rng: &mut ChaCha8Rng, problem: &Problem) -> muster_core::planner::plan::GangRequest {
    if rng.random_bool(0.4) {
        let mut gang = problem.gang.clone();
        for place in gang.roles.iter_mut().flat_map(|role| &mut role.places) {
            // Those that were drawn may be bound to nodes that hold nobody now.
            place.bound = place.bound.take().filter(|_| rng.random_bool(0.5));
        }
        return gang;
    }
    let count = rng.random_range(1..=9);
    let required = rng.random_bool(0.6).then(|| rng.random_range(0..problem.levels.len()));
    let mut gang = build::problem(problem.levels.clone(), Vec::new(), count, required).gang;
    if rng.random_bool(0.3) {
        gang.roles[0].min = rng.random_range(0..=count);
    }
    if rng.random_bool(0.2) {
        gang.roles[0].shape.requests.set(GPU, 2);
    }
    if rng.random_bool(0.2) {
        gang.roles[0].shape.one_per_node = true;
    }
    if rng.random_bool(0.2) {
        gang.roles.push(build::role("more", 2, 1));
    }
    if rng.random_bool(0.1) {
        gang.roles[0].places.push(RolePlace::default());
    }
    gang
}

/// Members leave, others come, nodes change; whether labels did.
fn change(rng: &mut ChaCha8Rng, hosts: &mut [Host]) -> bool {
    let count = hosts.len();
    if count == 0 {
        return false;
    }
    let host = &mut hosts[rng.random_range(0..count)];
    match rng.random_range(0..10) {
        0 => {
            let node = Arc::make_mut(&mut host.node);
            node.ready = !node.ready;
        }
        1 => {
            let node = Arc::make_mut(&mut host.node);
            node.allocatable.set(GPU, rng.random_range(0..=6));
        }
        2 => {
            let other = Arc::clone(&hosts[rng.random_range(0..count)].node);
            let host = &mut hosts[rng.random_range(0..count)];
            Arc::make_mut(&mut host.node).labels.clone_from(&other.labels);
            return true;
        }
        _ => {
            let usage = Arc::make_mut(&mut host.usage);
            let used = usage.requested.get(GPU) + if rng.random_bool(0.6) { -1 } else { 1 };
            usage.requested.set(GPU, used.clamp(0, host.node.allocatable.get(GPU)));
        }
    }
    false
}

fn without_work<P>(
    (plan, mut report): (P, muster_core::planner::plan::Report),
) -> (P, muster_core::planner::plan::Report) {
    report.work = Work::default();
    (plan, report)
}
