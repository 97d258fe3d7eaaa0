//! Builders with defaults for problems of the planner.

use std::sync::Arc;

use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::planner::plan::{
    Elastic, GangRequest, Host, Placement, Plan, Policy, Problem, Refusal, Report, Role, RolePlace, SearchBudget, Seed,
    TopologyRequests,
};
use muster_core::planner::{self, check};
use muster_core::topology::{Level, Levels};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

pub(super) const GPU: &str = "nvidia.com/gpu";

/// Levels `(name)` with keys `test/<name>`, the zone with its real key; the host is appended.
pub(super) fn levels(names: &[&str]) -> Levels {
    let level = |name: &&str| Level { name: Arc::from(*name), key: Arc::from(key(name)) };
    if names.is_empty() {
        let key = Arc::from("kubernetes.io/hostname");
        return Levels::new(vec![Level { name: Arc::from("host"), key }]).unwrap();
    }
    Levels::new(names.iter().map(level).collect()).unwrap()
}

pub(super) fn key(name: &str) -> String {
    if name == "zone" { "topology.kubernetes.io/zone".to_owned() } else { format!("test/{name}") }
}

/// A ready node with `gpus` accelerators of which `used` are taken, and labels of the form `zone=a rack=r1`.
pub(super) fn host(name: &str, labels: &str, gpus: i64, used: i64) -> Host {
    let labels = labels.split_whitespace().map(|label| {
        let (name, value) = label.split_once('=').unwrap();
        (Arc::from(key(name)), Arc::from(value))
    });
    let node = Node {
        name: NodeName::from(name),
        labels: labels.collect(),
        taints: Vec::new(),
        allocatable: Resources::from_iter([(GPU, gpus), ("pods", 110)]),
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    };
    let usage = Usage { requested: Resources::from_iter([(GPU, used), ("pods", used.min(1))]), ..Usage::default() };
    Host { node: Arc::new(node), usage: Arc::new(usage) }
}

/// What a member with one accelerator needs.
pub(super) fn shape() -> Shape {
    Shape { requests: Resources::from_iter([(GPU, 1), ("pods", 1)]), ..Shape::default() }
}

pub(super) fn role(name: &str, count: usize, min: u32) -> Role {
    Role { name: Arc::from(name), shape: shape(), min, places: vec![RolePlace::default(); count] }
}

/// A gang of one role in which every member is needed.
pub(super) fn problem(levels: Levels, hosts: Vec<Host>, count: u32, required: Option<usize>) -> Problem {
    let gang = GangRequest {
        key: ObjectKey::new("ns", "gang"),
        roles: vec![role("", count as usize, count)],
        topology_requests: TopologyRequests { required, preferred: None, ..TopologyRequests::default() },
    };
    Problem { levels, hosts, gang }
}

/// Plans and lets the checker judge the answer.
#[track_caller]
pub(super) fn plan_with_policy(problem: &Problem, policy: &Policy) -> (Plan, Report) {
    let (plan, report) = planner::plan(problem, policy, SearchBudget::default(), Seed::default());
    let notes = check::check(problem, &plan);
    assert_eq!(notes, Vec::new(), "the checker accepts every answer, {policy:?} {:?} {problem:?}", plan.places);
    assert!(report.refusal.is_none() || plan.places.is_empty(), "all or nothing");
    (plan, report)
}

#[track_caller]
pub(super) fn plan(problem: &Problem) -> (Plan, Report) {
    plan_with_policy(problem, &Policy::default())
}

/// Names of the nodes in order of the places.
pub(super) fn nodes(plan: &Plan) -> Vec<&str> {
    plan.places.iter().map(|place| place.node.as_str()).collect()
}

/// Planning a plan that was carried out changes nothing.
#[track_caller]
pub(super) fn check_fixed_point(problem: &Problem, policy: &Policy, plan: &Plan, report: &Report) {
    let (mut problem, mut plan) = (applied(problem, plan), plan.clone());
    let settled = |plan: &Plan| -> Vec<(usize, u32, NodeName)> {
        plan.places.iter().map(|place| (place.role, place.rank, place.node.clone())).collect()
    };
    if (policy.elastic, policy.placement) == (Elastic::Inside, Placement::Packing) {
        // Members were excluded because placing them would have broken a domain; it is broken now, and they follow.
        // Nobody moves meanwhile, and it ends.
        for _ in 0..=problem.gang.roles.iter().map(|role| role.places.len()).sum() {
            let (again, _) = plan_with_policy(&problem, policy);
            let (before, after) = (settled(&plan), settled(&again));
            assert!(before.iter().all(|place| after.contains(place)), "{before:?} {after:?}");
            if before == after {
                return;
            }
            (problem, plan) = (applied(&problem, &again), again);
        }
        panic!("planning again never ends, {plan:?}");
    }
    let (again, again_report) = plan_with_policy(&problem, policy);
    assert_eq!(settled(&again), settled(&plan), "{policy:?} {problem:?}");
    assert!(again.places.iter().all(|place| place.bound), "nothing is left to do");
    assert_eq!((&again_report.levels, again_report.unplaced), (&report.levels, report.unplaced));
}

/// The same problem gives the same bytes: again, after a round trip through JSON, and with its nodes in another order.
#[track_caller]
pub(super) fn check_same_bytes(problem: &Problem, policy: &Policy, rng: &mut ChaCha8Rng) {
    let bytes = |problem: &Problem| {
        let answer = planner::plan(problem, policy, SearchBudget::default(), Seed::default());
        serde_json::to_string(&answer).unwrap()
    };
    let first = bytes(problem);
    assert_eq!(bytes(problem), first);
    let text = serde_json::to_string(problem).unwrap();
    let mut other: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!(&other, problem, "a problem survives its serialisation");
    other.hosts.shuffle(rng);
    assert_eq!(bytes(&other), first, "{policy:?} {problem:?}");
    let plan: Plan =
        serde_json::from_value(serde_json::from_str::<serde_json::Value>(&first).unwrap()[0].take()).unwrap();
    assert_eq!(check::check(problem, &plan), Vec::new(), "a plan survives its serialisation");
}

/// The cluster after the plan was carried out: every planned member is bound and counted in its node's usage.
pub(super) fn applied(problem: &Problem, plan: &Plan) -> Problem {
    let mut problem = problem.clone();
    for place in plan.places.iter().filter(|place| !place.bound) {
        let role = &mut problem.gang.roles[place.role];
        role.places[place.rank as usize].bound = Some(place.node.clone());
        let host = problem.hosts.iter_mut().find(|host| host.node.name == place.node).unwrap();
        let usage = Arc::make_mut(&mut host.usage);
        usage.requested.add(&role.shape.requests);
        usage.ports.extend(role.shape.ports.iter().cloned());
        usage.own_shape_pods += u32::from(role.shape.one_per_node);
    }
    problem
}

/// A refusal without what would help.
pub(super) fn bare(refusal: Option<Refusal>) -> Option<Refusal> {
    let mut refusal = refusal?;
    if let Some(changes) = refusal.changes_mut() {
        changes.clear();
    }
    Some(refusal)
}
