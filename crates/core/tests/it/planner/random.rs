//! Random problems against the oracle: equal vectors, equal counts, equal refusals.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::model::names::NodeName;
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::planner::plan::{
    Elastic, Host, Placement, Plan, Policy, Problem, Refusal, Report, SliceTopologyRequest, TopologyRequests,
};
use muster_core::planner::{self, Ground, Pruning};
use muster_core::topology::{Level, Levels};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::build;
use super::change;
use super::oracle::{self, Answer};

const CASES: u64 = 10_000;
/// Placements the oracle may compare per case.
const PLACEMENTS: u64 = 10_000;

#[test]
fn the_planner_agrees_with_exhaustive_enumeration() {
    let mut drawn = Drawn::default();
    for seed in 0..CASES {
        let (problem, policy) = draw(&mut ChaCha8Rng::seed_from_u64(seed));
        drawn.count(compare(seed, &problem, &policy));
    }
    drawn.assert_each(&format!("{CASES} cases against enumeration"), 30);
}

#[test]
fn pruning_changes_no_answer_where_there_are_many_racks_to_choose_from() {
    let (mut cells, mut unpruned_cells) = (0, 0);
    for seed in 0..2_000 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut hosts = Vec::new();
        let (racks, spines) = (rng.random_range(3..=9), rng.random_range(1..=3));
        let most = rng.random_range(1..=6);
        for rack in 0..racks {
            for index in 0..rng.random_range(1..=6) {
                let labels = format!("zone=a spine={} rack=r{rack}", rack % spines);
                let used = rng.random_range(0..=most);
                hosts.push(build::host(&format!("r{rack}-n{index}"), &labels, most, used));
            }
        }
        let free: i64 =
            hosts.iter().map(|host| host.node.allocatable.get(build::GPU) - host.usage.requested.get(build::GPU)).sum();
        let members = rng.random_range(1..=u32::try_from(free).unwrap().max(1));
        let mut problem = build::problem(build::levels(&["zone", "spine", "rack"]), hosts, members, Some(0));
        if rng.random_bool(0.3) {
            problem.gang.roles[0].min = rng.random_range(1..=members);
        }
        if rng.random_bool(0.3) {
            // Running members count as used domains.
            let some = rng.random_range(0..problem.hosts.len());
            let host = &mut problem.hosts[some];
            problem.gang.roles[0].places[0].bound = Some(host.node.name.clone());
            Arc::make_mut(&mut host.usage).requested.set(build::GPU, most);
        }
        let policy =
            Policy { elastic: if seed % 2 == 0 { Elastic::Inside } else { Elastic::Spread }, ..Policy::default() };
        let (pruned, report) = build::plan_with_policy(&problem, &policy);
        let (unpruned, full) = planner::plan_with(&problem, &policy, Pruning::Off);
        cells += report.work.cells;
        unpruned_cells += full.work.cells;
        let full = Report { work: report.work, ..full };
        assert_eq!((pruned, report), (unpruned, full), "seed {seed}");
    }
    assert!(cells < unpruned_cells, "{cells} of {unpruned_cells} cells");
}

/// A case for people.
pub(super) fn context(seed: u64, problem: &Problem, policy: &Policy) -> String {
    let hosts = problem.hosts.iter().map(|host| {
        let (node, used) = (&host.node, host.usage.requested.get(build::GPU));
        let (gpus, shut) = (node.allocatable.get(build::GPU), (!node.ready, node.unschedulable, &node.taints));
        format!("{} {:?} {gpus}-{used} {shut:?}", node.name, node.labels)
    });
    let roles = problem.gang.roles.iter().map(|role| {
        let bound: Vec<_> =
            role.places.iter().map(|place| place.bound.as_ref().map_or("-", NodeName::as_str)).collect();
        format!("{} {} {bound:?}", role.name, role.min)
    });
    let (hosts, roles) = (hosts.collect::<Vec<_>>().join("\n"), roles.collect::<Vec<_>>().join("\n"));
    format!("seed {seed}, {policy:?}, {:?}\n{roles}\n{hosts}", problem.gang.topology_requests)
}

/// One case; returns every feature and whether the case has it.
pub(super) fn compare(seed: u64, problem: &Problem, policy: &Policy) -> Vec<(&'static str, bool)> {
    let expected = oracle::solve(problem, policy);
    let (plan, report) = build::plan_with_policy(problem, policy);
    let context = || context(seed, problem, policy);
    let mut changes = Vec::new();
    match (&expected, &report.refusal) {
        (Answer::Placed { counts, vector }, None) => {
            let found = counts_of(&plan);
            assert_eq!(&oracle::vector_of(problem, policy, &found), vector, "vectors, {}", context());
            assert_eq!(&found, counts, "counts, {}", context());
            if problem.gang.topology_requests.slices.is_empty() {
                check_ranks(problem, &plan);
            }
            build::check_fixed_point(problem, policy, &plan, &report);
        }
        (
            Answer::BoundOutside { node },
            Some(Refusal::BoundOutside { node: found, changes: bound_changes, inside: _ }),
        ) => {
            assert!(node == found.as_str() || node == "*", "{}", context());
            changes = change::check(problem, policy, bound_changes);
        }
        (Answer::DoesNotFit { needed, best }, Some(Refusal::DoesNotFit(shortfall))) => {
            assert_eq!(*needed, shortfall.needed, "{}", context());
            let holds = shortfall.required.map_or(shortfall.total, |level| shortfall.best[level].holds);
            if problem.gang.topology_requests.slices.is_empty() {
                assert_eq!(*best, holds, "{}", context());
            }
            assert!(!report.refusal.as_ref().unwrap().to_string().contains('%'));
            changes = change::check(problem, policy, &shortfall.changes);
            let topology_requests = &problem.gang.topology_requests;
            if topology_requests.exclusive.is_none() && topology_requests.slices.is_empty() {
                assert!(!changes.is_empty(), "a plain gang always has a change, {}", context());
            }
        }
        (expected, found) => panic!("expected {expected:?}, found {found:?}, {}", context()),
    }

    build::check_same_bytes(problem, policy, &mut ChaCha8Rng::seed_from_u64(seed));
    let (unpruned, unpruned_report) = planner::plan_with(problem, policy, Pruning::Off);
    assert_eq!((&unpruned, &unpruned_report.refusal), (&plan, &report.refusal), "{}", context());
    let ground = Ground::new(problem);
    let on = planner::plan_on(&ground, problem, policy, Pruning::On);
    assert_eq!(on, (plan.clone(), report.clone()), "{}", context());
    let placed = matches!(expected, Answer::Placed { .. });
    let outside = matches!(expected, Answer::BoundOutside { .. });
    let mut features = features(problem, policy, placed, outside, &plan);
    features.extend(change::KINDS.iter().map(|kind| (*kind, changes.contains(kind))));
    let mut wide_vectors = false;
    // Enough for vectors of four, eight and more limbs.
    for pads in [0, 4, 11] {
        // Leftovers above the members' number: there the levels that are added have a say.
        if (policy.elastic, policy.placement) == (Elastic::Inside, Placement::Packing) {
            continue;
        }
        if let Some(wide) = widened(problem, pads) {
            assert_eq!(counts_of(&build::plan_with_policy(&wide, policy).0), counts_of(&plan), "{}", context());
            wide_vectors = true;
        }
    }
    features.push(("wide vectors", wide_vectors));
    features
}

/// The same problem beside a huge node that the cap excludes, and below levels that no node has: the answer is the same,
/// but the vector is much wider. Only for caps below the zone: the node is alone in its own, and has no network label.
fn widened(problem: &Problem, pads: usize) -> Option<Problem> {
    let level = problem.gang.topology_requests.required?;
    let levels = problem.levels.as_slice();
    if problem.levels.zone().is_none_or(|zone| level <= zone) || level + 1 == levels.len() {
        return None;
    }
    let mut wide = problem.clone();
    let pad = |index| Level { name: format!("pad{index}").into(), key: format!("test/pad{index}").into() };
    wide.levels = Levels::new((0..pads).map(pad).chain(levels.iter().cloned()).collect()).unwrap();
    let topology_requests = &problem.gang.topology_requests;
    let slices = topology_requests
        .slices
        .iter()
        .map(|slice| SliceTopologyRequest { level: slice.level + pads, ..*slice })
        .collect();
    wide.gang.topology_requests = TopologyRequests {
        required: Some(level + pads),
        preferred: None,
        slices,
        exclusive: topology_requests.exclusive.map(|level| level + pads),
        balance: topology_requests.balance.map(|level| level + pads),
        apart: topology_requests.apart.map(|level| level + pads),
    };
    let mut huge = build::host("huge", "region=huge zone=huge", 1 << 31, 0);
    Arc::make_mut(&mut huge.node).allocatable.set("pods", 1 << 31);
    wide.hosts.push(huge);
    Some(wide)
}

/// Free places are filled in rank order along the hosts.
#[track_caller]
fn check_ranks(problem: &Problem, plan: &Plan) {
    let order = oracle::depth_first(problem);
    let positions: Vec<usize> = plan
        .places
        .iter()
        .filter(|place| !place.bound)
        .map(|place| order.iter().position(|name| name == place.node.as_str()).unwrap())
        .collect();
    assert!(positions.is_sorted(), "{positions:?}");
}

pub(super) fn counts_of(plan: &Plan) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for place in plan.places.iter().filter(|place| !place.bound) {
        *counts.entry(place.node.as_str().to_owned()).or_default() += 1;
    }
    counts
}

pub(super) fn features(
    problem: &Problem,
    policy: &Policy,
    placed: bool,
    bound_outside: bool,
    plan: &Plan,
) -> Vec<(&'static str, bool)> {
    let roles = &problem.gang.roles;
    let places = || roles.iter().flat_map(|role| &role.places);
    let required = problem.gang.topology_requests.required;
    let topology_requests = &problem.gang.topology_requests;
    let elastic = roles.iter().any(|role| (role.min as usize) < role.places.len());
    let last = problem.levels.len() - 1;
    let unlabelled = |host: &Host| host.node.labels.len() < last && !host.node.labels.is_empty();
    let has = [
        ("several roles", roles.len() > 1),
        ("bound members", places().any(|place| place.bound.is_some())),
        ("elastic members", roles.iter().any(|role| (role.min as usize) < role.places.len())),
        ("elastic excluded", !plan.places.is_empty() && plan.places.len() < places().count()),
        ("policy packing", policy.placement == Placement::Packing),
        ("policy inside", policy.elastic == Elastic::Inside),
        ("slices", !topology_requests.slices.is_empty() && placed),
        ("nested slices", topology_requests.slices.len() > 1 && placed),
        (
            "slices with bound members",
            !topology_requests.slices.is_empty() && placed && places().any(|place| place.bound.is_some()),
        ),
        ("slices with elastic members", !topology_requests.slices.is_empty() && placed && elastic),
        ("slices refused", !topology_requests.slices.is_empty() && !placed),
        ("exclusive", topology_requests.exclusive.is_some() && placed),
        (
            "exclusive slices",
            placed && topology_requests.slices.iter().any(|slice| Some(slice.level) == topology_requests.exclusive),
        ),
        ("exclusive refused", topology_requests.exclusive.is_some() && !placed),
        ("balance", topology_requests.balance.is_some() && placed),
        ("balance with slices", topology_requests.balance.is_some() && placed && !topology_requests.slices.is_empty()),
        ("balance with elastic members", topology_requests.balance.is_some() && placed && elastic),
        (
            "several slots on a node",
            problem
                .hosts
                .iter()
                .any(|host| host.node.allocatable.get(build::GPU) - host.usage.requested.get(build::GPU) > 1),
        ),
        ("irregular tree", irregular(problem)),
        ("no cap", required.is_none()),
        ("cap at the top", required == Some(0) && last > 0),
        ("cap in the middle", required.is_some_and(|level| 0 < level && level < last)),
        ("cap at the host", required == Some(last)),
        ("missing labels", problem.hosts.iter().any(unlabelled)),
        ("no labels", last > 0 && problem.hosts.iter().any(|host| host.node.labels.is_empty())),
        ("used accelerators", problem.hosts.iter().any(|host| !host.usage.requested.is_empty())),
        ("node not ready", problem.hosts.iter().any(|host| !host.node.ready)),
        ("node cordoned", problem.hosts.iter().any(|host| host.node.unschedulable)),
        ("node tainted", problem.hosts.iter().any(|host| !host.node.taints.is_empty())),
        ("placed", placed),
        ("refused, bound outside", bound_outside),
        ("refused, does not fit", !placed && !bound_outside),
    ];
    has.into()
}

/// Two domains of a level above the host hold different numbers of hosts.
fn irregular(problem: &Problem) -> bool {
    let leaves = oracle::leaves(problem);
    let Some(level) = problem.levels.len().checked_sub(2) else { return false };
    let mut sizes: BTreeMap<&str, u32> = BTreeMap::new();
    leaves.iter().for_each(|leaf| *sizes.entry(&leaf.path[level]).or_default() += 1);
    let sizes: std::collections::BTreeSet<u32> = sizes.into_values().collect();
    sizes.len() > 1
}

/// Counts features and prints how often each was drawn: that belongs to the evidence. One that is drawn too seldom has
/// vanished from the proof, and fails the test.
#[derive(Default)]
pub(super) struct Drawn(pub(super) BTreeMap<&'static str, u32>);

impl Drawn {
    pub(super) fn count(&mut self, features: impl IntoIterator<Item = (&'static str, bool)>) {
        for (feature, has) in features {
            *self.0.entry(feature).or_default() += u32::from(has);
        }
    }

    #[track_caller]
    pub(super) fn assert_each(&self, what: &str, least: u32) {
        let summary: Vec<String> = self.0.iter().map(|(feature, cases)| format!("{feature}: {cases}")).collect();
        #[expect(clippy::print_stderr, reason = "how often each feature was drawn belongs to the evidence")]
        {
            eprintln!("{what}; {}", summary.join(", "));
        }
        let rare: Vec<&&str> = self.0.iter().filter(|(_, cases)| **cases < least).map(|(feature, _)| feature).collect();
        assert!(rare.is_empty(), "drawn less than {least} times: {rare:?}");
    }
}

/// At most 8 hosts, 4 slots, 12 members, 5 levels; irregular trees with missing labels.
pub(super) fn draw(rng: &mut ChaCha8Rng) -> (Problem, Policy) {
    let names: &[&str] = [
        &[][..],
        &["zone"],
        &["rack"],
        &["zone", "rack"],
        &["zone", "spine", "rack"],
        &["spine", "rack"],
        &["region", "zone", "spine", "rack"],
    ][rng.random_range(0..7)];
    let levels = build::levels(names);
    let missing = [0.0, 0.0, 0.1, 0.3][rng.random_range(0..4)];
    let spread = rng.random_range(1..=4);
    let most_slots = rng.random_range(1..=4);
    let busy = [0.0, 0.3, 0.6][rng.random_range(0..3)];

    let barred = [0.0, 0.04, 0.2][rng.random_range(0..3)];

    // Accelerators of a member: with several, hosts have some that no member can take.
    let each = [1, 1, 2, 3][rng.random_range(0..4)];
    let mut hosts = Vec::new();
    let mut placements = 1;
    for index in 0..rng.random_range(1..=8) {
        let mut labels = String::new();
        for (depth, name) in names.iter().enumerate() {
            let value = rng.random_range(0..=spread.min(depth + 1)) + 9;
            if !rng.random_bool(missing) {
                labels.extend([name, "=", name, "-", &value.to_string(), " "]);
            }
        }
        let slots = rng.random_range(0..=most_slots);
        let used = if rng.random_bool(busy) { rng.random_range(1..=3) } else { 0 };
        let gpus = slots * each + rng.random_range(0..each);
        let mut host = build::host(&format!("n{}", index * 3), &labels, gpus + used, used);
        if shut(rng, Arc::make_mut(&mut host.node), barred) {
            // No placement uses it.
        } else if placements * (slots.unsigned_abs() + 1) > PLACEMENTS {
            continue;
        } else {
            placements *= slots.unsigned_abs() + 1;
        }
        hosts.push(host);
    }
    hosts.shuffle(rng);

    // High levels more often than low ones, where little fits.
    let required =
        rng.random_bool(0.6).then(|| rng.random_range(0..levels.len()).min(rng.random_range(0..levels.len())));
    let mut problem = build::problem(levels, hosts, 0, required);
    problem.gang.topology_requests = TopologyRequests {
        required,
        preferred: rng.random_bool(0.3).then(|| rng.random_range(0..problem.levels.len())),
        ..TopologyRequests::default()
    };
    let capacity = usize::try_from(placements.ilog2() + 2).unwrap().min(12);
    let mut members = if rng.random_bool(0.7) { rng.random_range(1..=capacity) } else { rng.random_range(1..=12) };
    let mut roles = Vec::new();
    while members > 0 && roles.len() < 3 {
        let count = if roles.len() == 2 { members } else { rng.random_range(1..=members) };
        members -= count;
        let min = if rng.random_bool(0.3) { rng.random_range(0..=count) } else { count };
        let min = u32::try_from(min).unwrap();
        roles.push(build::role(&format!("role{}", roles.len()), count, min));
    }
    roles.iter_mut().for_each(|role| role.shape.requests.set(build::GPU, each));
    problem.gang.roles = roles;
    topology_request(rng, &mut problem);
    bind(rng, &mut problem);
    let policy = Policy {
        placement: if rng.random_bool(0.3) { Placement::Packing } else { Placement::Locality },
        elastic: if rng.random_bool(0.5) { Elastic::Inside } else { Elastic::Spread },
    };
    (problem, policy)
}

/// Cordons a node, taints it or makes it unready, each as often as `barred`; says whether it did.
pub(super) fn shut(rng: &mut ChaCha8Rng, node: &mut Node, barred: f64) -> bool {
    node.ready = !rng.random_bool(barred);
    node.unschedulable = rng.random_bool(barred);
    for key in ["team", "maintenance"] {
        if rng.random_bool(barred) {
            node.taints.push(Taint { key: key.into(), value: "".into(), effect: TaintEffect::NoSchedule });
        }
    }
    !node.ready || node.unschedulable || !node.taints.is_empty()
}

/// Slices, exclusive domains and balance, as far as the roles allow.
pub(super) fn topology_request(rng: &mut ChaCha8Rng, problem: &mut Problem) {
    let levels = problem.levels.len();
    if rng.random_bool(0.35) {
        let roles = &mut problem.gang.roles;
        if roles.len() > 1 && rng.random_bool(0.6) {
            roles.truncate(1);
        }
        if roles.len() > 1 {
            roles.iter_mut().for_each(|role| role.min = role.places.len().try_into().unwrap());
        }
        let mut of: u32 = roles.iter().map(|role| role.places.len()).sum::<usize>().try_into().unwrap();
        let mut above = 0;
        for _ in 0..rng.random_range(1..=2) {
            let sizes: Vec<u32> = (1..=of).filter(|size| of.is_multiple_of(*size)).collect();
            let size = sizes[rng.random_range(0..sizes.len())];
            let level = rng.random_range(above..levels);
            problem.gang.topology_requests.slices.push(SliceTopologyRequest { size, level });
            (of, above) = (size, level);
        }
    }
    if rng.random_bool(0.2) {
        let slices = &problem.gang.topology_requests.slices;
        let level = rng.random_range(0..levels);
        problem.gang.topology_requests.exclusive =
            Some(slices.first().map_or(level, |slice| if rng.random_bool(0.8) { slice.level } else { level }));
    }
    if rng.random_bool(0.25) {
        problem.gang.topology_requests.balance = Some(rng.random_range(0..levels));
    }
}

/// Binds some members: all to one or two nodes as a rule, seldom anywhere, so that a cap is not always missed.
pub(super) fn bind(rng: &mut ChaCha8Rng, problem: &mut Problem) {
    if problem.hosts.is_empty() || !rng.random_bool(0.4) {
        return;
    }
    let near = if rng.random_bool(0.6) { 1 } else { problem.hosts.len().min(3) };
    let share = rng.random_range(0.1..0.6);
    for role in &mut problem.gang.roles {
        for place in &mut role.places {
            if !rng.random_bool(share) {
                continue;
            }
            if rng.random_bool(0.02) {
                place.bound = Some(NodeName::from("gone"));
                continue;
            }
            let host = &mut problem.hosts[rng.random_range(0..near)];
            place.bound = Some(host.node.name.clone());
            // A bound member is in the usage; capacity for it is added so that free slots stay as drawn.
            Arc::make_mut(&mut host.usage).requested.add(&role.shape.requests);
            let node = Arc::make_mut(&mut host.node);
            node.allocatable.set(build::GPU, node.allocatable.get(build::GPU) + role.shape.requests.get(build::GPU));
        }
    }
}
