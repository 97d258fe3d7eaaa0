//! Larger problems against a second oracle: integer programs written from the definition, one per field of the vector,
//! each solved with the fields before it fixed at their best.
//!
//! What is linear: domains used, broken and left over, elastic members, caps, missing labels, several slots per node,
//! bound members, slices and nested slices (numbers a domain may take), exclusive domains, balance (most and least as
//! variables), leaders of another shape and the slots they take. What is not, and is left to enumeration: that the
//! numbers of members can be dealt to ranks so that slices hold (the enumeration deals every rank).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use muster_core::model::names::NodeName;
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::planner::plan::{Elastic, Placement, Plan, Policy, Problem, Refusal, TopologyRequests};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::build::{self, GPU};
use super::linear::{Program, Sum};
use super::oracle::{self, Frame, Leaf};
use super::random;

/// One domain of one level.
struct Domain {
    leaves: Vec<usize>,
    level: usize,
    satisfies: bool,
    bound: i32,
    slots: i32,
    free: i32,
    whole: bool,
    /// New workers.
    workers: Sum,
    /// 1 if it holds a member, new or bound.
    used: Sum,
    /// 1 if it takes a new member that counts for `broken`.
    touched: Sum,
}

/// What the members of a gang need: workers, and leaders of another shape if there are any.
struct Shapes<'p> {
    worker: &'p Shape,
    leader: Option<&'p Shape>,
    leaders: i32,
}

/// The best vector, or why there is none.
#[derive(Debug, PartialEq, Eq)]
enum Best {
    Vector(Vec<i32>),
    BoundOutside,
    DoesNotFit,
}

struct Model {
    program: Program,
    fields: Vec<Sum>,
    /// New workers and new leaders per leaf.
    counts: Vec<(Option<usize>, Option<usize>)>,
    leaves: Vec<Leaf>,
}

fn best(problem: &Problem, policy: &Policy) -> Best {
    let model = match model(problem, policy) {
        Ok(model) => model,
        Err(best) => return best,
    };
    match model.program.lexicographic(&model.fields) {
        Some((vector, _)) => Best::Vector(vector),
        None => Best::DoesNotFit,
    }
}

fn int(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or_else(|_| panic!("numbers in these tests are small"))
}

fn shapes(problem: &Problem) -> Shapes<'_> {
    let roles = &problem.gang.roles;
    match roles.as_slice() {
        [leader, worker] if leader.shape != worker.shape => {
            let leaders = leader.places.iter().filter(|place| place.bound.is_none()).count();
            Shapes { worker: &worker.shape, leader: Some(&leader.shape), leaders: int(leaders) }
        }
        roles => Shapes { worker: &roles[0].shape, leader: None, leaders: 0 },
    }
}

/// How many workers fit a host beside some leaders; `None` if not even the leaders do.
fn capacity(problem: &Problem, shapes: &Shapes<'_>, name: &str, leaders: i32) -> Option<i32> {
    let host = problem.hosts.iter().find(|host| host.node.name.as_str() == name).unwrap();
    let mut most = i32::MAX;
    for resource in ["cpu", "memory", "pods", GPU] {
        let free = host.node.allocatable.get(resource) - host.usage.requested.get(resource);
        let of = |shape: &Shape| shape.requests.get(resource);
        let free = free - i64::from(leaders) * shapes.leader.map_or(0, of);
        if free < 0 && leaders > 0 && shapes.leader.is_some_and(|leader| of(leader) > 0) {
            return None;
        }
        if of(shapes.worker) > 0 {
            most = most.min(int(free.max(0) / of(shapes.worker)));
        }
    }
    let open = host.node.ready && !host.node.unschedulable && host.node.taints.is_empty();
    if open { Some(most) } else { (leaders == 0).then_some(0) }
}

/// The program and its fields in order.
fn model(problem: &Problem, policy: &Policy) -> Result<Model, Best> {
    let Ok(Frame { mut leaves, must, may, required, fixed, sequence }) = oracle::frame(problem) else {
        return Err(Best::BoundOutside);
    };
    let shapes = shapes(problem);
    let (mut must, mut may) = (int(must), int(may));
    if shapes.leader.is_some() {
        (must, may) = (must - shapes.leaders, may - shapes.leaders);
        for leaf in &mut leaves {
            leaf.slots = capacity(problem, &shapes, &leaf.name, 0).unwrap().try_into().unwrap();
            let (free, _) = oracle::free(problem, shapes.worker, &leaf.name, leaf.slots.into());
            leaf.free = free.try_into().unwrap();
        }
    }
    let mut program = Program::default();
    let allowed = |leaf: &Leaf| {
        required
            .is_none_or(|level| leaf.satisfies[level] && fixed.as_ref().is_none_or(|fixed| leaf.path[level] == *fixed))
    };

    // Members per host.
    let mut counts = Vec::new();
    let mut lost = Sum::default();
    for leaf in &leaves {
        let slots = int(leaf.slots);
        let most = |leaders: i32| capacity(problem, &shapes, &leaf.name, leaders);
        let worker = (slots > 0 && allowed(leaf)).then(|| program.variable(0, slots.min(may)));
        let leader = (shapes.leaders > 0 && allowed(leaf) && most(1).is_some()).then(|| {
            // One variable per leader: the first, the second, …
            let leaders = program.variable(0, shapes.leaders);
            let (mut sum, mut taken) = (Sum::default(), slots);
            let mut before: Option<usize> = None;
            let mut kept = Sum::constant(slots);
            for number in 1..=shapes.leaders {
                let Some(left) = most(number) else { break };
                let one = program.variable(0, 1);
                if let Some(before) = before {
                    program.at_most(&Sum::of(one), &Sum::of(before));
                }
                sum = sum.plus(one, 1);
                kept = kept.plus(one, left - taken);
                taken = left;
                before = Some(one);
            }
            program.equal(&Sum::of(leaders), &sum);
            if let Some(worker) = worker {
                program.at_most(&Sum::of(worker), &kept);
            }
            lost = lost.clone().add(&Sum::constant(slots).add(&kept, -1), 1);
            leaders
        });
        counts.push((worker, leader));
    }
    let all = counts.iter().filter_map(|(worker, _)| *worker).fold(Sum::default(), |sum, worker| sum.plus(worker, 1));
    program.at_most(&Sum::constant(must), &all);
    program.at_most(&all, &Sum::constant(may));
    if shapes.leader.is_some() {
        let leaders = counts.iter().filter_map(|(_, leader)| *leader).fold(Sum::default(), |sum, one| sum.plus(one, 1));
        program.equal(&leaders, &Sum::constant(shapes.leaders));
    }

    // Hosts that differ in nothing but their order change places freely: the first takes most.
    let mut alike: BTreeMap<(&[String], u32, u32, u32, bool), usize> = BTreeMap::new();
    for (leaf, count) in leaves.iter().zip(&counts).filter(|_| shapes.leader.is_none()) {
        let Some(worker) = count.0 else { continue };
        let above = &leaf.path[..leaf.path.len() - 1];
        if let Some(before) = alike.insert((above, leaf.slots, leaf.free, leaf.bound, leaf.whole), worker) {
            program.at_most(&Sum::of(worker), &Sum::of(before));
        }
    }

    let takes = shapes.leader.is_some_and(|leader| leader.requests.get(GPU) > 0);
    let levels = domains(&mut program, &leaves, &counts, takes, problem.levels.len(), may);
    topology_requests(&mut program, problem, &levels, &leaves, &sequence, required);

    let unplaced = vec![Sum::constant(may).add(&all, -1)];
    let (mut used, mut broken, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for domains in &levels {
        let (mut level_used, mut level_broken) = (Sum::default(), Sum::default());
        let mut level_left = Sum::default().add(&all, -1);
        for domain in domains {
            level_used = level_used.add(&domain.used, 1);
            level_left = level_left.add(&domain.used, domain.free);
            if domain.whole && domain.free > 1 || (domain.whole && domain.free > 0 && takes) {
                // Broken: touched, and not full.
                let full = program.variable(0, 1);
                program.at_most(&Sum::default().plus(full, domain.free), &domain.workers);
                program.at_most(&Sum::of(full), &domain.touched);
                level_broken = level_broken.add(&domain.touched, 1).plus(full, -1);
            }
        }
        used.push(level_used);
        if let Some(level) =
            problem.gang.topology_requests.balance.filter(|level| domains.first().is_some_and(|d| d.level == *level))
        {
            used.push(balance(&mut program, &levels[level], may));
        }
        broken.push(level_broken);
        left.push(level_left);
    }
    let lost = if shapes.leader.is_some() { vec![lost] } else { Vec::new() };
    let mut fields = match (policy.placement, policy.elastic) {
        (Placement::Locality, Elastic::Spread) => [unplaced, used, broken, left, lost].concat(),
        (Placement::Locality, Elastic::Inside) => [used, unplaced, broken, left, lost].concat(),
        (Placement::Packing, Elastic::Spread) => [unplaced, broken, left, used, lost].concat(),
        (Placement::Packing, Elastic::Inside) => [broken, left, used, unplaced, lost].concat(),
    };
    // Field 5: the counts in depth-first order, largest first.
    let variables = counts.iter().flat_map(|(worker, leader)| [*worker, *leader]).flatten();
    fields.extend(variables.map(|variable| Sum::default().plus(variable, -1)));
    Ok(Model { program, fields, counts, leaves })
}

/// Domains of every level with their variables. Domains that differ in no host with a variable share it.
fn domains(
    program: &mut Program,
    leaves: &[Leaf],
    counts: &[(Option<usize>, Option<usize>)],
    takes: bool,
    depth: usize,
    may: i32,
) -> Vec<Vec<Domain>> {
    let mut shared: BTreeMap<Vec<usize>, (Sum, Sum)> = BTreeMap::new();
    let mut levels: Vec<Vec<Domain>> = Vec::new();
    for level in (0..depth).rev() {
        let mut paths: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, leaf) in leaves.iter().enumerate() {
            paths.entry(&leaf.path[level]).or_default().push(index);
        }
        let mut domains = Vec::new();
        for inside in paths.into_values() {
            let open: Vec<usize> = inside.iter().copied().filter(|leaf| counts[*leaf] != (None, None)).collect();
            let members = |takes: bool| {
                let mut sum = Sum::default();
                for leaf in &open {
                    sum = counts[*leaf].0.into_iter().fold(sum, |sum, worker| sum.plus(worker, 1));
                    sum = counts[*leaf].1.into_iter().filter(|_| takes).fold(sum, |sum, leader| sum.plus(leader, 1));
                }
                sum
            };
            let slots: i32 =
                open.iter().filter(|leaf| counts[**leaf].0.is_some()).map(|leaf| int(leaves[*leaf].slots)).sum();
            let leaders = open.iter().filter(|leaf| counts[**leaf].1.is_some()).count();
            let children: Vec<Vec<usize>> = levels.last().map_or_else(Vec::new, |below: &Vec<Domain>| {
                let below = below.iter().filter(|child| child.leaves.iter().all(|leaf| inside.contains(leaf)));
                below.map(|child| child.leaves.iter().copied().filter(|leaf| open.contains(leaf)).collect()).collect()
            });
            if !shared.contains_key(&open) {
                let mut indicator = |takes: bool, of: fn(&(Sum, Sum)) -> &Sum| {
                    let members = members(takes);
                    if open.is_empty() {
                        return Sum::default();
                    }
                    if slots.min(may) == 1 && leaders == 0 {
                        return members;
                    }
                    let one = Sum::of(program.variable(0, 1));
                    let most = slots.min(may) + if takes { int(leaders) * 2 } else { 0 };
                    program.at_most(&members, &Sum::default().add(&one, most));
                    program.at_most(&one, &members);
                    let parts = children.iter().filter_map(|child| shared.get(child)).map(of);
                    let parts: Vec<Sum> = parts.cloned().collect();
                    for part in &parts {
                        program.at_most(part, &one);
                    }
                    if !parts.is_empty() {
                        program.at_most(&one, &parts.iter().fold(Sum::default(), |sum, part| sum.add(part, 1)));
                    }
                    one
                };
                let any = indicator(true, |sums| &sums.0);
                let touched = if takes || leaders == 0 { any.clone() } else { indicator(false, |sums| &sums.1) };
                shared.insert(open.clone(), (any, touched));
            }
            let (any, touched) = shared[&open].clone();
            let bound: i32 = inside.iter().map(|leaf| int(leaves[*leaf].bound)).sum();
            domains.push(Domain {
                level,
                satisfies: leaves[inside[0]].satisfies[level],
                bound,
                slots: inside.iter().map(|leaf| int(leaves[*leaf].slots)).sum(),
                free: inside.iter().map(|leaf| int(leaves[*leaf].free)).sum(),
                whole: inside.iter().all(|leaf| leaves[*leaf].whole),
                workers: members(false),
                used: if bound > 0 { Sum::constant(1) } else { any },
                touched,
                leaves: inside,
            });
        }
        levels.push(domains);
    }
    levels.reverse();
    levels
}

/// Caps, slices and exclusive domains: numbers that a domain may take.
fn topology_requests(
    program: &mut Program,
    problem: &Problem,
    levels: &[Vec<Domain>],
    leaves: &[Leaf],
    sequence: &[Option<usize>],
    required: Option<usize>,
) {
    if let Some(level) = required {
        let used = levels[level].iter().fold(Sum::default(), |sum, domain| sum.add(&domain.used, 1));
        program.at_most(&used, &Sum::constant(1));
    }
    let topology_requests = &problem.gang.topology_requests;
    let alone = topology_requests
        .exclusive
        .and_then(|level| topology_requests.slices.iter().position(|slice| slice.level == level));
    for (index, topology_request) in topology_requests.slices.iter().enumerate() {
        let size = int(topology_request.size);
        for domain in &levels[topology_request.level] {
            if !domain.satisfies {
                program.equal(&domain.workers, &Sum::default());
                continue;
            }
            let (mut missing, mut standing) = (0, 0);
            for slice in sequence.chunks(topology_request.size as usize) {
                // All its bound members are in one domain: that was looked at before.
                if slice.iter().flatten().any(|leaf| {
                    leaves[*leaf].path[topology_request.level] == leaves[domain.leaves[0]].path[topology_request.level]
                }) {
                    missing += int(slice.iter().filter(|place| place.is_none()).count());
                    standing += 1;
                }
            }
            let most = if alone == Some(index) { 1 - standing } else { domain.slots / size };
            let whole = program.variable(0, most.max(0));
            program.equal(&domain.workers, &Sum::constant(missing).plus(whole, size));
        }
    }
}

/// Most minus fewest members of the used domains.
fn balance(program: &mut Program, domains: &[Domain], may: i32) -> Sum {
    let big = may + domains.iter().map(|domain| domain.bound).sum::<i32>();
    let (most, fewest) = (program.variable(0, big), program.variable(0, big));
    program.at_most(&Sum::of(fewest), &Sum::of(most));
    for domain in domains {
        let held = Sum::constant(domain.bound).add(&domain.workers, 1);
        program.at_most(&held, &Sum::of(most));
        program.at_most(&Sum::of(fewest), &held.add(&Sum::constant(1).add(&domain.used, -1), big));
    }
    Sum::of(most).plus(fewest, -1)
}

/// The vector of what the planner answered, by the same program with the numbers fixed; `None` if it is no solution.
fn vector_of(problem: &Problem, policy: &Policy, plan: &Plan) -> Option<Vec<i32>> {
    let Ok(mut model) = model(problem, policy) else { return None };
    let shapes = shapes(problem);
    for (leaf, (worker, leader)) in model.leaves.iter().zip(&model.counts) {
        let here = plan.places.iter().filter(|place| !place.bound && place.node.as_str() == leaf.name);
        let (mut workers, mut leaders) = (0, 0);
        for place in here {
            *(if problem.gang.roles[place.role].shape == *shapes.worker { &mut workers } else { &mut leaders }) += 1;
        }
        for (variable, count) in [(worker, workers), (leader, leaders)] {
            match variable {
                Some(variable) => model.program.fix(*variable, count),
                None if count > 0 => return None,
                None => {}
            }
        }
    }
    Some(model.program.lexicographic(&model.fields)?.0)
}

/// Cases unless `MUSTER_MIP_CASES` says otherwise; the whole proof has 500.
const CASES: u64 = 60;

#[test]
fn the_planner_agrees_with_integer_programs() {
    let cases = std::env::var("MUSTER_MIP_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let mut drawn = random::Drawn::default();
    for seed in 0..cases {
        let (problem, policy) = draw(&mut ChaCha8Rng::seed_from_u64(seed));
        let expected = best(&problem, &policy);
        let (plan, report) = build::plan_with_policy(&problem, &policy);
        let context = || random::context(seed, &problem, &policy);
        let leader = shapes(&problem).leader.is_some();
        match (&expected, &report.refusal) {
            (Best::Vector(vector), None) => {
                assert_eq!(vector_of(&problem, &policy, &plan).as_ref(), Some(vector), "{}", context());
                if !leader {
                    // The same vector, counted instead of solved for.
                    let counts = random::counts_of(&plan);
                    let found: Vec<i32> = oracle::vector_of(&problem, &policy, &counts).into_iter().map(int).collect();
                    assert_eq!(found, vector[..found.len()], "{}", context());
                }
                build::check_fixed_point(&problem, &policy, &plan, &report);
            }
            (Best::BoundOutside, Some(Refusal::BoundOutside { .. })) => {}
            (Best::DoesNotFit, Some(Refusal::DoesNotFit(_))) => {}
            (expected, found) => panic!("expected {expected:?}, found {found:?}, {}", context()),
        }
        build::check_same_bytes(&problem, &policy, &mut ChaCha8Rng::seed_from_u64(seed));
        let placed = matches!(expected, Best::Vector(_));
        drawn.count(random::features(&problem, &policy, placed, matches!(expected, Best::BoundOutside), &plan));
        drawn.count([
            ("leader of another shape", leader && placed),
            ("leader refused", leader && !placed),
            ("more than 32 hosts", problem.hosts.len() > 32),
            ("more than 12 members placed", plan.places.len() > 12),
        ]);
    }
    let least = if cases < 500 { 1 } else { 8 };
    drawn.assert_each(&format!("{cases} cases against integer programs"), least);
}

/// At most 64 hosts, 4 slots, 48 members, 5 levels; irregular trees with missing labels.
fn draw(rng: &mut ChaCha8Rng) -> (Problem, Policy) {
    let names: &[&str] = [
        &["zone"][..],
        &["zone", "rack"],
        &["zone", "rack"],
        &["zone", "spine", "rack"],
        &["spine", "rack"],
        &["region", "zone", "spine", "rack"],
    ][rng.random_range(0..6)];
    let missing = [0.0, 0.0, 0.02, 0.1][rng.random_range(0..4)];
    let most_slots = rng.random_range(1..=4);
    let busy = [0.0, 0.3, 0.6][rng.random_range(0..3)];
    let barred = [0.0, 0.02][rng.random_range(0..2)];
    let whole_hosts = rng.random_bool(0.4);
    let wanted = rng.random_range(8..=64);
    let mut hosts = Vec::new();
    let mut rack = 0;
    while hosts.len() < wanted {
        // A rack of any size, under parents of its own kind.
        rack += 1;
        let mut labels = String::new();
        for (depth, name) in names.iter().enumerate() {
            let values = 1 << (2 * depth).min(4);
            let value = if depth + 1 == names.len() { rack } else { rng.random_range(0..values) };
            let _ = write!(labels, "{name}={name}-{value} ");
        }
        for _ in 0..rng.random_range(1..=9_usize).min(wanted - hosts.len()) {
            let kept: Vec<&str> = labels.split_whitespace().filter(|_| !rng.random_bool(missing)).collect();
            let used = if rng.random_bool(busy) { rng.random_range(1..=most_slots) } else { 0 };
            let slots = if whole_hosts { most_slots } else { rng.random_range(0..=most_slots) };
            let mut host = build::host(&format!("n{}", hosts.len() * 3), &kept.join(" "), slots + used, used);
            random::shut(rng, Arc::make_mut(&mut host.node), barred);
            hosts.push(host);
        }
    }
    hosts.shuffle(rng);
    let levels = build::levels(names);
    let required =
        rng.random_bool(0.6).then(|| rng.random_range(0..levels.len()).min(rng.random_range(0..levels.len())));
    let mut problem = build::problem(levels, hosts, 0, required);
    problem.gang.topology_requests = TopologyRequests { required, ..TopologyRequests::default() };
    let policy = Policy {
        placement: if rng.random_bool(0.3) { Placement::Packing } else { Placement::Locality },
        elastic: if rng.random_bool(0.5) { Elastic::Inside } else { Elastic::Spread },
    };
    if rng.random_bool(0.2) {
        pair(rng, &mut problem);
        return (problem, policy);
    }
    let most_members = [8_usize, 24, 48][rng.random_range(0..3)];
    // Sizes that slices can cut.
    let mut members = rng.random_range(1..=most_members).next_multiple_of([1, 2, 4][rng.random_range(0..3)]);
    let mut roles = Vec::new();
    while members > 0 && roles.len() < 3 {
        let count = if roles.len() == 2 { members } else { rng.random_range(1..=members) };
        members -= count;
        let min = if rng.random_bool(0.3) { rng.random_range(0..=count) } else { count };
        roles.push(build::role(&format!("role{}", roles.len()), count, u32::try_from(min).unwrap()));
    }
    problem.gang.roles = roles;
    random::topology_request(rng, &mut problem);
    let slices = &problem.gang.topology_requests.slices;
    if let (Some(slice), true) = (slices.first(), rng.random_bool(0.2)) {
        problem.gang.topology_requests.exclusive = Some(slice.level);
    }
    random::bind(rng, &mut problem);
    (problem, policy)
}

/// Leaders of another shape beside workers; cpu is scarce for both.
fn pair(rng: &mut ChaCha8Rng, problem: &mut Problem) {
    let leaders = rng.random_range(1..=2);
    let mut leader = build::role("leader", leaders, u32::try_from(leaders).unwrap());
    let gpu = i64::from(rng.random_range(0..=1));
    leader.shape.requests = Resources::from_iter([("cpu", rng.random_range(1..=2)), (GPU, gpu), ("pods", 1)]);
    let workers = rng.random_range(3..=20_u32);
    let min = if rng.random_bool(0.4) { rng.random_range(0..=workers) } else { workers };
    let mut worker = build::role("worker", workers as usize, min);
    worker.shape.requests.set("memory", 1);
    worker.shape.requests.set("cpu", i64::from(rng.random_range(0..=1)));
    for host in &mut problem.hosts {
        let node = Arc::make_mut(&mut host.node);
        node.allocatable.set("memory", 100);
        node.allocatable.set("cpu", rng.random_range(0..=6));
    }
    // Two unknowns per host: beyond this the solver takes minutes.
    problem.hosts.truncate(14);
    problem.gang.roles = vec![leader, worker];
    if rng.random_bool(0.3) {
        let host = rng.random_range(0..problem.hosts.len());
        let role = &mut problem.gang.roles[rng.random_range(0..2)];
        let host = &mut problem.hosts[host];
        role.places[0].bound = Some(NodeName::clone(&host.node.name));
        // Capacity for it is added, so that what is free stays as drawn.
        Arc::make_mut(&mut host.node).allocatable.add(&role.shape.requests);
        Arc::make_mut(&mut host.usage).requested.add(&role.shape.requests);
    }
}
