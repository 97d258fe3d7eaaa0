//! Members that must stand in different domains, against an oracle that tries every set of hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::fit;
use muster_core::planner::check::{self, Finding};
use muster_core::planner::plan::{Host, Place, Plan, Policy, Problem, Refusal};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::build;

const RACK: usize = 1;

/// Members of a gang on a few racks, some of whose names come again in another zone, some without a name.
fn problem(rng: &mut ChaCha8Rng) -> Problem {
    let hosts = (0..rng.random_range(1..8)).map(|number| {
        let zone = ["a", "b"][rng.random_range(0..2)];
        let labels = match rng.random_range(0..6) {
            0 => format!("zone={zone}"),
            rack => format!("zone={zone} rack=r{rack}"),
        };
        let gpus = rng.random_range(0..4);
        build::host(&format!("n{number}"), &labels, gpus, rng.random_range(0..=gpus))
    });
    let hosts: Vec<Host> = hosts.collect();
    let required = [None, Some(0)][rng.random_range(0..2)];
    let mut problem = build::problem(build::levels(&["zone", "rack"]), hosts, rng.random_range(1..5), required);
    problem.gang.topology_requests.apart = Some(RACK);
    problem
}

fn label<'p>(host: &'p Host, name: &str) -> Option<&'p str> {
    host.node.labels.get(build::key(name).as_str()).map(|value| &**value)
}

/// Whether the members could stand on these hosts, one on each, from the definition.
fn stands(problem: &Problem, hosts: &[&Host]) -> bool {
    let racks: Option<BTreeSet<&str>> = hosts.iter().map(|host| label(host, "rack")).collect();
    let zones: BTreeSet<Option<&str>> = hosts.iter().map(|host| label(host, "zone")).collect();
    let shape = build::shape();
    racks.is_some_and(|racks| racks.len() == hosts.len())
        && (problem.gang.topology_requests.required.is_none() || zones.len() <= 1)
        && hosts.iter().all(|host| fit::fits(&shape, &host.node, &host.usage).is_ok())
}

fn possible(problem: &Problem) -> bool {
    let members = problem.gang.roles[0].places.len();
    (0_u32..1 << problem.hosts.len()).filter(|set| set.count_ones() as usize == members).any(|set| {
        let hosts: Vec<&Host> =
            problem.hosts.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1).map(|(_, host)| host).collect();
        stands(problem, &hosts)
    })
}

#[test]
fn members_that_keep_apart_are_placed_exactly_where_that_is_possible() {
    let (mut placed, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let problem = problem(&mut rng);
        // The plan is checked where it is made.
        let (plan, report) = build::plan(&problem);
        assert_eq!(report.refusal.is_none(), possible(&problem), "seed {seed}: {:?} {problem:?}", report.refusal);
        if report.refusal.is_some() {
            refused += 1;
            continue;
        }
        placed += 1;
        let on: Vec<&Host> = plan
            .places
            .iter()
            .map(|place| problem.hosts.iter().find(|host| host.node.name == place.node).unwrap())
            .collect();
        assert!(stands(&problem, &on), "seed {seed}: {:?}", plan.places);
        build::check_fixed_point(&problem, &Policy::default(), &plan, &report);
        build::check_same_bytes(&problem, &Policy::default(), &mut rng);
    }
    assert!(placed > 300 && refused > 300, "{placed} placed, {refused} refused");
}

#[test]
fn a_member_that_comes_back_keeps_off_the_domains_of_those_who_stayed() {
    for seed in 0..1000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let problem = problem(&mut rng);
        let (plan, _) = build::plan(&problem);
        if plan.places.is_empty() {
            continue;
        }
        let mut left = build::applied(&problem, &plan);
        let lost = rng.random_range(0..plan.places.len());
        let role = &mut left.gang.roles[0];
        let node = role.places[lost].bound.take().unwrap();
        let host = left.hosts.iter_mut().find(|host| host.node.name == node).unwrap();
        Arc::make_mut(&mut host.usage).requested.subtract(&build::shape().requests);
        // Its own domain is free at least.
        let (again, report) = build::plan(&left);
        assert_eq!((report.refusal, again.places.len()), (None, plan.places.len()), "seed {seed}");
        let racks: BTreeSet<&str> = again
            .places
            .iter()
            .filter_map(|place| label(left.hosts.iter().find(|host| host.node.name == place.node)?, "rack"))
            .collect();
        assert_eq!(racks.len(), again.places.len(), "seed {seed}: {:?}", again.places);
    }
}

#[test]
fn the_checker_finds_two_members_in_one_domain_and_one_without_any() {
    let hosts = vec![
        build::host("n0", "zone=a rack=r", 8, 0),
        build::host("n1", "zone=b rack=r", 8, 0),
        build::host("n2", "zone=a", 8, 0),
    ];
    let mut problem = build::problem(build::levels(&["zone", "rack"]), hosts, 2, None);
    problem.gang.topology_requests.apart = Some(RACK);
    let findings = |nodes: [&str; 2]| -> Vec<Finding> {
        let places = nodes.iter().zip(0..).map(|(node, rank)| Place {
            role: 0,
            rank,
            uid: None,
            node: (*node).into(),
            bound: false,
        });
        let plan = Plan { version: Plan::VERSION, gang: problem.gang.key.clone(), places: places.collect() };
        check::check(&problem, &plan).into_iter().map(|note| note.finding).collect()
    };
    let apart = |node: &str| Finding::NotApart { node: node.into(), level: RACK };
    assert_eq!(findings(["n0", "n1"]), [apart("n1")], "racks of one name are one domain");
    assert_eq!(findings(["n0", "n2"]), [apart("n2")]);
}

#[test]
fn members_of_several_shapes_that_keep_apart_are_refused_by_name() {
    let hosts = (0..4).map(|number| build::host(&format!("n{number}"), &format!("zone=a rack=r{number}"), 8, 0));
    let mut problem = build::problem(build::levels(&["zone", "rack"]), hosts.collect(), 2, None);
    problem.gang.topology_requests.apart = Some(RACK);
    let mut other = build::role("other", 1, 1);
    other.shape.requests.set(build::GPU, 2);
    problem.gang.roles.push(other);
    let (_, report) = build::plan(&problem);
    assert!(
        matches!(&report.refusal, Some(Refusal::Unsupported { constraint, .. }) if constraint.contains("podAntiAffinity")),
        "{:?}",
        report.refusal
    );
}
