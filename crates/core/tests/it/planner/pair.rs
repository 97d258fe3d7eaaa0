//! Workers beside leaders of another shape, against exhaustive enumeration.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::model::names::NodeName;
use muster_core::model::node::{Node, Usage};
use muster_core::model::resources::Resources;
use muster_core::planner::plan::{Elastic, Host, Placement, Policy, Problem, Refusal, TopologyRequests};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::build::{self, GPU};
use super::{oracle, random};

const CASES: u64 = 3_000;

/// New workers and new leaders of every host, depth-first.
type PerHost = Vec<(u32, u32)>;

/// New workers and new leaders per node.
type Counts = BTreeMap<String, (u32, u32)>;

#[test]
fn workers_and_leaders_agree_with_exhaustive_enumeration() {
    let mut drawn = random::Drawn::default();
    for seed in 0..CASES {
        let (problem, policy) = draw(&mut ChaCha8Rng::seed_from_u64(seed));
        let expected = solve(&problem, &policy);
        let (plan, report) = build::plan_with_policy(&problem, &policy);
        let context = || format!("seed {seed}, {policy:?}, {problem:#?}");
        let outcome = match (&expected, &report.refusal) {
            (Some(expected), None) => {
                let mut found = Counts::new();
                for place in plan.places.iter().filter(|place| !place.bound) {
                    let count = found.entry(place.node.as_str().to_owned()).or_default();
                    if place.role == 0 { count.1 += 1 } else { count.0 += 1 }
                }
                assert_eq!(&found, expected, "{}", context());
                build::check_fixed_point(&problem, &policy, &plan, &report);
                "placed"
            }
            (None, Some(Refusal::DoesNotFit(_) | Refusal::BoundOutside { .. })) => "refused",
            (expected, found) => panic!("expected {expected:?}, found {found:?}, {}", context()),
        };
        build::check_same_bytes(&problem, &policy, &mut ChaCha8Rng::seed_from_u64(seed));
        let roles = &problem.gang.roles;
        let bound = roles.iter().flat_map(|role| &role.places).any(|place| place.bound.is_some());
        drawn.count([
            ("placed", outcome == "placed"),
            ("refused", outcome == "refused"),
            ("two leaders", roles[0].places.len() == 2),
            ("leaders with an accelerator", roles[0].shape.requests.get(GPU) > 0),
            ("elastic workers", (roles[1].min as usize) < roles[1].places.len()),
            ("bound members", bound),
            ("capped", problem.gang.topology_requests.required.is_some()),
            ("packing", policy.placement == Placement::Packing),
            ("spread", policy.elastic == Elastic::Spread),
        ]);
    }
    drawn.assert_each(&format!("{CASES} cases of workers and leaders"), 100);
}

/// At most 4 hosts, 3 workers on each, 2 leaders, 6 workers.
fn draw(rng: &mut ChaCha8Rng) -> (Problem, Policy) {
    let names: &[&str] = [&[][..], &["zone"], &["zone", "rack"]][rng.random_range(0..3)];
    let levels = build::levels(names);
    let mut hosts = Vec::new();
    for index in 0..rng.random_range(1..=4) {
        let mut labels = String::new();
        for name in names {
            if rng.random_bool(0.95) {
                labels.extend([name, "=x", &rng.random_range(1..=2).to_string(), " "]);
            }
        }
        let used = i64::from(rng.random_range(0..=1));
        let mut host = build::host(&format!("n{index}"), &labels, rng.random_range(0..=3) + used, used);
        Arc::make_mut(&mut host.node).allocatable.set("cpu", rng.random_range(0..=5));
        hosts.push(host);
    }
    let required = rng.random_bool(0.5).then(|| rng.random_range(0..levels.len()));
    let mut problem = build::problem(levels, hosts, 0, required);
    problem.gang.topology_requests = TopologyRequests { required, ..TopologyRequests::default() };
    let leaders = rng.random_range(1..=2);
    let mut leader = build::role("leader", leaders, u32::try_from(leaders).unwrap());
    let gpu = i64::from(rng.random_range(0..=1));
    leader.shape.requests = Resources::from_iter([("cpu", rng.random_range(1..=2)), (GPU, gpu), ("pods", 1)]);
    // Three workers at least, so that they cannot be taken for the leaders, and another shape.
    let workers = rng.random_range(3..=6_u32);
    let min = if rng.random_bool(0.4) { rng.random_range(0..=workers) } else { workers };
    let mut worker = build::role("worker", workers as usize, min);
    worker.shape.requests.set("memory", 1);
    worker.shape.requests.set("cpu", i64::from(rng.random_range(0..=1)));
    for host in &mut problem.hosts {
        Arc::make_mut(&mut host.node).allocatable.set("memory", 100);
    }
    problem.gang.roles = vec![leader, worker];
    if rng.random_bool(0.3) {
        let index = rng.random_range(0..problem.hosts.len());
        let role = &mut problem.gang.roles[rng.random_range(0..2)];
        let Host { node, usage } = &mut problem.hosts[index];
        role.places[0].bound = Some(NodeName::clone(&node.name));
        // Capacity for it is added, so that what is free stays as drawn.
        let (node, usage): (&mut Node, &mut Usage) = (Arc::make_mut(node), Arc::make_mut(usage));
        node.allocatable.add(&role.shape.requests);
        usage.requested.add(&role.shape.requests);
    }
    let policy = Policy {
        placement: if rng.random_bool(0.3) { Placement::Packing } else { Placement::Locality },
        elastic: if rng.random_bool(0.5) { Elastic::Inside } else { Elastic::Spread },
    };
    (problem, policy)
}

/// The best counts; `None` if there are none.
fn solve(problem: &Problem, policy: &Policy) -> Option<Counts> {
    let mut leaves = oracle::leaves(problem);
    leaves.sort_by(|a, b| oracle::order(&a.path, &b.path));
    let [leader, worker] = problem.gang.roles.as_slice() else { panic!("two roles") };
    let free = |role: &muster_core::planner::plan::Role| {
        u32::try_from(role.places.iter().filter(|place| place.bound.is_none()).count()).unwrap()
    };
    let (leaders, may) = (free(leader), free(worker));
    let must = worker.min.saturating_sub(u32::try_from(worker.places.len()).unwrap() - may);
    let fits = |name: &str, workers: u32, leaders: u32| {
        let host = problem.hosts.iter().find(|host| host.node.name.as_str() == name).unwrap();
        ["cpu", "memory", GPU].into_iter().all(|resource| {
            let asked = i64::from(workers) * worker.shape.requests.get(resource)
                + i64::from(leaders) * leader.shape.requests.get(resource);
            asked == 0 || asked <= host.node.allocatable.get(resource) - host.usage.requested.get(resource)
        })
    };
    // Per host every pair that fits.
    let options: Vec<Vec<(u32, u32)>> = leaves
        .iter()
        .map(|leaf| {
            let all = (0..=may).flat_map(|workers| (0..=leaders).map(move |leaders| (workers, leaders)));
            all.filter(|(workers, leaders)| fits(&leaf.name, *workers, *leaders)).collect()
        })
        .collect();
    let most = |leaf: usize, leaders: u32| {
        (0..=9).take_while(|workers| fits(&leaves[leaf].name, *workers, leaders)).max().unwrap_or(0)
    };
    let mut best: Option<(Vec<u64>, PerHost)> = None;
    let mut wheels = vec![0; leaves.len()];
    'placements: loop {
        let counts: Vec<(u32, u32)> = wheels.iter().zip(&options).map(|(wheel, options)| options[*wheel]).collect();
        let workers: u32 = counts.iter().map(|count| count.0).sum();
        let whole = counts.iter().map(|count| count.1).sum::<u32>() == leaders;
        if whole && (must..=may).contains(&workers) && capped(problem, &leaves, &counts) {
            let free = |leaf: usize| oracle::free(problem, &worker.shape, &leaves[leaf].name, most(leaf, 0).into()).0;
            let free: Vec<u64> = (0..leaves.len()).map(free).collect();
            let takes = leader.shape.requests.get(GPU) > 0;
            let lost = (0..leaves.len()).map(|leaf| u64::from(most(leaf, 0) - most(leaf, counts[leaf].1))).sum();
            let vector = vector(&leaves, &counts, &free, takes, lost, may - workers, policy);
            let better = best
                .as_ref()
                .is_none_or(|(least, chosen)| vector.cmp(least).then_with(|| chosen.cmp(&counts)) == Ordering::Less);
            if better {
                best = Some((vector, counts));
            }
        }
        for (wheel, options) in wheels.iter_mut().zip(&options) {
            *wheel += 1;
            if *wheel < options.len() {
                continue 'placements;
            }
            *wheel = 0;
        }
        break;
    }
    best.map(|(_, counts)| {
        let used = leaves.iter().zip(counts).filter(|(_, count)| *count != (0, 0));
        used.map(|(leaf, count)| (leaf.name.clone(), count)).collect()
    })
}

fn capped(problem: &Problem, leaves: &[oracle::Leaf], counts: &[(u32, u32)]) -> bool {
    let Some(level) = problem.gang.topology_requests.required else { return true };
    let used = leaves.iter().zip(counts).filter(|(leaf, count)| leaf.bound > 0 || **count != (0, 0));
    let used: Vec<_> = used.map(|(leaf, _)| (leaf.satisfies[level], &leaf.path[level])).collect();
    used.iter().all(|(satisfies, path)| *satisfies && *path == used[0].1)
}

fn vector(
    leaves: &[oracle::Leaf],
    counts: &[(u32, u32)],
    free: &[u64],
    takes: bool,
    lost: u64,
    unplaced: u32,
    policy: &Policy,
) -> Vec<u64> {
    let (mut used, mut broken, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for level in 0..leaves[0].path.len() {
        let mut domains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, leaf) in leaves.iter().enumerate() {
            domains.entry(&leaf.path[level]).or_default().push(index);
        }
        let (mut level_used, mut level_broken, mut level_left) = (0, 0, 0);
        for inside in domains.values() {
            let free: u64 = inside.iter().map(|leaf| free[*leaf]).sum();
            let workers: u64 = inside.iter().map(|leaf| u64::from(counts[*leaf].0)).sum();
            let leaders: u32 = inside.iter().map(|leaf| counts[*leaf].1).sum();
            if workers > 0 || leaders > 0 || inside.iter().any(|leaf| leaves[*leaf].bound > 0) {
                level_used += 1;
                level_left += free - workers;
            }
            let touched = workers > 0 || (takes && leaders > 0);
            level_broken += u64::from(inside.iter().all(|leaf| leaves[*leaf].whole) && touched && workers < free);
        }
        used.push(level_used);
        broken.push(level_broken);
        left.push(level_left);
    }
    let (unplaced, lost) = (vec![u64::from(unplaced)], vec![lost]);
    match (policy.placement, policy.elastic) {
        (Placement::Locality, Elastic::Spread) => [unplaced, used, broken, left, lost].concat(),
        (Placement::Locality, Elastic::Inside) => [used, unplaced, broken, left, lost].concat(),
        (Placement::Packing, Elastic::Spread) => [unplaced, broken, left, used, lost].concat(),
        (Placement::Packing, Elastic::Inside) => [broken, left, used, unplaced, lost].concat(),
    }
}
