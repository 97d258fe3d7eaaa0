//! The checker against sound plans with one thing broken each: every rule catches what it is for, and only that rule.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::model::names::PodUid;
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::pod::HostPort;
use muster_core::planner::check::{self, Finding, Severity};
use muster_core::planner::plan::{Elastic, Host, Placement, Plan, Policy, Problem, SliceTopologyRequest};

use super::build::{GPU, host, levels, plan_with_policy, problem, role};

/// Names every rule of the checker. The match has no wildcard: a new rule does not compile before it stands in the list,
/// and a rule of the list without a mutant fails the test below.
macro_rules! rules {
    ($($rule:ident)*) => {
        const RULES: &[&str] = &[$(stringify!($rule)),*];

        fn rule(finding: &Finding) -> &'static str {
            match finding { $(Finding::$rule { .. } => stringify!($rule)),* }
        }
    };
}

rules! {
    Version Gang UnknownPlace OutOfOrder PodTwice WrongPod BoundChanged UnknownNode DoesNotFit Overcommitted SharedNode
    Unsupported UnknownLevel Unlabelled OutsideDomain BelowMinimum SliceIncomplete SliceApart DomainShared NotAlone
    NotApart RanksApart RankSkipped
}

/// A sound problem, what is broken in it or in its plan, and the rules that must say so: no more and no less.
struct Mutant {
    what: &'static str,
    sound: fn() -> Problem,
    change: fn(&mut Problem, &mut Plan),
    rules: &'static [&'static str],
}

const fn mutant(
    what: &'static str,
    sound: fn() -> Problem,
    change: fn(&mut Problem, &mut Plan),
    rules: &'static [&'static str],
) -> Mutant {
    Mutant { what, sound, change, rules }
}

/// Racks of one-accelerator hosts in one zone: `sizes[i]` hosts `r{i}-n…` in rack `i`.
fn racks(sizes: &[usize], gpus: i64) -> Vec<Host> {
    let rack = |(rack, size): (usize, &usize)| {
        (0..*size).map(move |index| host(&format!("r{rack}-n{index}"), &format!("zone=a rack={rack}"), gpus, 0))
    };
    sizes.iter().enumerate().flat_map(rack).collect()
}

/// Four members in one rack, the first of them bound, three needed; every member has a pod.
fn plain() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[2, 4], 1), 4, Some(1));
    for (index, place) in problem.gang.roles[0].places.iter_mut().enumerate() {
        place.uid = Some(PodUid::from(format!("uid-{index}")));
    }
    Arc::make_mut(&mut problem.hosts[2].usage).requested.set(GPU, 1);
    problem.gang.roles[0].places[0].bound = Some("r1-n0".into());
    problem.gang.roles[0].min = 3;
    problem
}

/// Two elastic slices of two in racks of three.
fn sliced() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[3, 3, 3], 1), 4, Some(0));
    problem.gang.roles[0].min = 2;
    problem.gang.topology_requests.slices = vec![SliceTopologyRequest { size: 2, level: 1 }];
    problem
}

/// The same, each slice alone in its rack.
fn exclusive_slices() -> Problem {
    let mut problem = sliced();
    problem.gang.topology_requests.exclusive = Some(1);
    problem
}

/// A gang of two alone in a rack of two.
fn exclusive() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[2, 2], 1), 2, Some(0));
    problem.gang.topology_requests.exclusive = Some(1);
    problem
}

/// Two members that keep away from each other, on large hosts.
fn apart() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[3], 8), 2, Some(0));
    problem.gang.roles[0].shape.one_per_node = true;
    problem
}

/// Two members that keep away from each other by rack.
fn apart_by_rack() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[2, 2], 8), 2, Some(0));
    problem.gang.topology_requests.apart = Some(1);
    problem
}

/// Two members with one host port, on large hosts.
fn ported() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[3], 8), 2, Some(0));
    problem.gang.roles[0].shape.ports.push(port());
    problem
}

/// Four members in two racks of two, three needed.
fn two_racks() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[2, 2], 1), 4, Some(0));
    problem.gang.roles[0].min = 3;
    problem
}

/// A leader and three workers of another shape.
fn pair() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[2, 2], 2), 0, Some(0));
    let mut leader = role("leader", 1, 1);
    leader.shape.requests.set(GPU, 0);
    problem.gang.roles = vec![leader, role("worker", 4, 3)];
    problem
}

/// A head, workers that keep apart and others that do not, on large hosts.
fn mix() -> Problem {
    let mut problem = problem(levels(&["zone", "rack"]), racks(&[2, 2], 8), 0, Some(0));
    let mut head = role("head", 1, 1);
    head.shape.requests.set(GPU, 0);
    let mut worker = role("worker", 2, 2);
    worker.shape.one_per_node = true;
    problem.gang.roles = vec![head, worker, role("other", 3, 3)];
    problem
}

fn port() -> HostPort {
    HostPort { ip: "0.0.0.0".into(), protocol: "TCP".into(), port: 29500 }
}

fn node(problem: &mut Problem, name: &str, change: impl FnOnce(&mut muster_core::model::node::Node)) {
    let host = problem.hosts.iter_mut().find(|host| host.node.name.as_str() == name).unwrap();
    change(Arc::make_mut(&mut host.node));
}

fn usage(problem: &mut Problem, name: &str, change: impl FnOnce(&mut muster_core::model::node::Usage)) {
    let host = problem.hosts.iter_mut().find(|host| host.node.name.as_str() == name).unwrap();
    change(Arc::make_mut(&mut host.usage));
}

fn taken(problem: &mut Problem, resource: &str) {
    problem.gang.roles[0].shape.requests.set(resource, 4);
    for host in &mut problem.hosts {
        Arc::make_mut(&mut host.node).allocatable.set(resource, 7);
    }
    usage(problem, "r1-n1", |usage| usage.requested.set(resource, 4));
}

const FULL: &[&str] = &["DoesNotFit", "Overcommitted"];
const UNFIT: &[&str] = &["DoesNotFit"];

/// Grouped by what they break.
const MUTANTS: &[Mutant] = &[
    // The document.
    mutant("an older version", plain, |_, plan| plan.version = 0, &["Version"]),
    mutant("a newer version", plain, |_, plan| plan.version += 1, &["Version"]),
    mutant("another gang", plain, |_, plan| plan.gang.name = "other".into(), &["Gang"]),
    mutant("another namespace", plain, |_, plan| plan.gang.namespace = "other".into(), &["Gang"]),
    // The places.
    mutant("a rank beyond the role", plain, |_, plan| plan.places[3].rank = 4, &["UnknownPlace", "RankSkipped"]),
    mutant("a role beyond the gang", plain, |_, plan| plan.places[3].role = 1, &["UnknownPlace"]),
    mutant("two ranks the wrong way round", plain, |_, plan| plan.places.swap(1, 2), &["OutOfOrder"]),
    mutant("one rank twice", two_racks, |_, plan| plan.places[2].rank = 1, &["OutOfOrder", "RankSkipped"]),
    mutant(
        "one pod in two places",
        plain,
        |_, plan| plan.places[2].uid = plan.places[1].uid.clone(),
        &["PodTwice", "WrongPod"],
    ),
    mutant("a pod excluded", plain, |_, plan| plan.places[2].uid = None, &["WrongPod"]),
    mutant("a stranger's pod", plain, |_, plan| plan.places[2].uid = Some("stranger".into()), &["WrongPod"]),
    mutant(
        "a pod that was made again",
        plain,
        |problem, _| {
            problem.gang.roles[0].places[2].uid = Some("uid-2-again".into());
        },
        &["WrongPod"],
    ),
    // Members that run.
    mutant(
        "a bound member moved",
        plain,
        |_, plan| plan.places[0].node = "r1-n4".into(),
        &["BoundChanged", "UnknownNode"],
    ),
    mutant(
        "a bound member to be placed again",
        plain,
        |_, plan| plan.places[0].bound = false,
        &["BoundChanged", "DoesNotFit", "Overcommitted"],
    ),
    mutant("a bound member forgotten", plain, |_, plan| drop(plan.places.remove(0)), &["BoundChanged"]),
    mutant("a free member reported to be bound", plain, |_, plan| plan.places[2].bound = true, &["BoundChanged"]),
    mutant(
        "a member bound elsewhere meanwhile",
        plain,
        |problem, _| {
            problem.gang.roles[0].places[1].bound = Some("r1-n3".into());
        },
        &["BoundChanged"],
    ),
    // The nodes.
    mutant("a node nobody has", plain, |_, plan| plan.places[2].node = "nowhere".into(), &["UnknownNode"]),
    mutant(
        "a node that is gone",
        plain,
        |problem, _| {
            problem.hosts.retain(|host| host.node.name.as_str() != "r1-n1");
        },
        &["UnknownNode"],
    ),
    mutant("a cordoned node", plain, |problem, _| node(problem, "r1-n1", |node| node.unschedulable = true), UNFIT),
    mutant("a node not ready", plain, |problem, _| node(problem, "r1-n1", |node| node.ready = false), UNFIT),
    mutant("a node being deleted", plain, |problem, _| node(problem, "r1-n1", |node| node.deleting = true), UNFIT),
    mutant(
        "an untolerated taint",
        plain,
        |problem, _| {
            let taint = Taint { key: "team".into(), value: "b".into(), effect: TaintEffect::NoExecute };
            node(problem, "r1-n1", |node| node.taints.push(taint));
        },
        UNFIT,
    ),
    mutant(
        "a node selector",
        plain,
        |problem, _| {
            problem.gang.roles[0].shape.node_selector.insert("disk".into(), "nvme".into());
        },
        UNFIT,
    ),
    mutant(
        "a node affinity",
        plain,
        |problem, _| {
            problem.gang.roles[0].shape.node_affinity = Some(Vec::new());
        },
        UNFIT,
    ),
    // Capacity.
    mutant("two members on one slot", plain, |_, plan| plan.places[2].node = plan.places[1].node.clone(), FULL),
    mutant(
        "capacity assigned to another gang meanwhile",
        plain,
        |problem, _| {
            usage(problem, "r1-n1", |usage| usage.requested.set(GPU, 1));
        },
        FULL,
    ),
    mutant("too little cpu", plain, |problem, _| taken(problem, "cpu"), FULL),
    mutant("too little memory", plain, |problem, _| taken(problem, "memory"), FULL),
    mutant("too little ephemeral storage", plain, |problem, _| taken(problem, "ephemeral-storage"), FULL),
    mutant("too few interfaces", plain, |problem, _| taken(problem, "vpc.amazonaws.com/efa"), FULL),
    mutant(
        "too many pods",
        plain,
        |problem, _| usage(problem, "r1-n1", |usage| usage.requested.set("pods", 110)),
        FULL,
    ),
    mutant("a node that shrank", plain, |problem, _| node(problem, "r1-n1", |node| node.allocatable.set(GPU, 0)), FULL),
    mutant("a taken host port", ported, |problem, _| usage(problem, "r0-n1", |usage| usage.ports.push(port())), UNFIT),
    mutant("one host port twice", ported, |_, plan| plan.places[1].node = plan.places[0].node.clone(), UNFIT),
    mutant(
        "members that keep apart on one node",
        apart,
        |_, plan| {
            plan.places[1].node = plan.places[0].node.clone();
        },
        &["SharedNode", "DoesNotFit"],
    ),
    mutant(
        "a pod of the same kind that stands there",
        apart,
        |problem, _| {
            usage(problem, "r0-n1", |usage| usage.own_shape_pods = 1);
        },
        UNFIT,
    ),
    mutant(
        "a worker where only the leader fits",
        pair,
        |_, plan| {
            let node = plan.places[1].node.clone();
            plan.places.iter_mut().skip(1).for_each(|place| place.node = node.clone());
        },
        FULL,
    ),
    // The gang.
    mutant(
        "a constraint that is not supported",
        plain,
        |problem, _| {
            problem.gang.roles[0].shape.unsupported.push("resourceClaims".into());
        },
        &["Unsupported"],
    ),
    mutant("fewer members than needed", plain, |_, plan| plan.places.truncate(2), &["BelowMinimum"]),
    mutant(
        "a higher minimum meanwhile",
        two_racks,
        |problem, plan| {
            plan.places.truncate(3);
            problem.gang.roles[0].min = 4;
        },
        &["BelowMinimum"],
    ),
    mutant("one role below its minimum", pair, |_, plan| drop(plan.places.remove(0)), &["BelowMinimum"]),
    mutant("the last of three roles below its minimum", mix, |_, plan| drop(plan.places.pop()), &["BelowMinimum"]),
    mutant(
        "members of a mix that keep apart on one node",
        mix,
        |_, plan| plan.places[2].node = plan.places[1].node.clone(),
        &["SharedNode", "DoesNotFit"],
    ),
    mutant("a rank excluded", two_racks, |_, plan| drop(plan.places.remove(1)), &["RankSkipped"]),
    mutant(
        "ranks that come back to a rack",
        two_racks,
        |_, plan| {
            let node = plan.places[1].node.clone();
            plan.places[1].node = plan.places[2].node.clone();
            plan.places[2].node = node;
        },
        &["RanksApart"],
    ),
    mutant(
        "workers that come back to a node",
        pair,
        |_, plan| {
            let node = plan.places[2].node.clone();
            plan.places[2].node = plan.places[3].node.clone();
            plan.places[3].node = node;
        },
        &["RanksApart"],
    ),
    // The levels.
    mutant("a member outside the domain", plain, |_, plan| plan.places[1].node = "r0-n0".into(), &["OutsideDomain"]),
    mutant(
        "a node that moved to another rack",
        plain,
        |problem, _| {
            node(problem, "r1-n1", |node| drop(node.labels.insert("test/rack".into(), "9".into())));
        },
        &["OutsideDomain"],
    ),
    mutant(
        "a rack of the same name in another zone",
        plain,
        |problem, _| {
            node(problem, "r1-n1", |node| drop(node.labels.insert("topology.kubernetes.io/zone".into(), "b".into())));
        },
        &["OutsideDomain"],
    ),
    mutant(
        "a node that lost its label",
        plain,
        |problem, _| {
            node(problem, "r1-n1", |node| drop(node.labels.remove("test/rack")));
        },
        &["Unlabelled"],
    ),
    mutant(
        "a required level nobody configured",
        plain,
        |problem, _| problem.gang.topology_requests.required = Some(3),
        &["UnknownLevel"],
    ),
    mutant(
        "a preferred level nobody configured",
        plain,
        |problem, _| problem.gang.topology_requests.preferred = Some(3),
        &["UnknownLevel"],
    ),
    mutant(
        "a balance level nobody configured",
        plain,
        |problem, _| problem.gang.topology_requests.balance = Some(usize::MAX),
        &["UnknownLevel"],
    ),
    mutant(
        "a slice level nobody configured",
        sliced,
        |problem, _| {
            problem.gang.topology_requests.slices[0].level = 3;
        },
        &["UnknownLevel", "SliceApart"],
    ),
    mutant(
        "an exclusive level nobody configured",
        exclusive,
        |problem, _| {
            problem.gang.topology_requests.exclusive = Some(usize::MAX);
        },
        &["UnknownLevel", "DomainShared"],
    ),
    // Slices and exclusive domains.
    mutant("half a slice", sliced, |_, plan| plan.places.truncate(3), &["SliceIncomplete"]),
    mutant(
        "slices of nothing",
        sliced,
        |problem, _| problem.gang.topology_requests.slices[0].size = 0,
        &["SliceIncomplete"],
    ),
    mutant(
        "slices that do not divide the gang",
        sliced,
        |problem, _| {
            problem.gang.topology_requests.slices[0] = SliceTopologyRequest { size: 3, level: 0 };
        },
        &["SliceIncomplete"],
    ),
    mutant("a slice in two racks", sliced, |_, plan| plan.places[3].node = "r2-n0".into(), &["SliceApart"]),
    mutant(
        "a slice on a node without a rack",
        sliced,
        |problem, plan| {
            problem.hosts.push(host("bare-1", "zone=a", 2, 0));
            plan.places[2].node = "bare-1".into();
            plan.places[3].node = "bare-1".into();
        },
        &["SliceApart"],
    ),
    mutant(
        "two slices in one exclusive rack",
        exclusive_slices,
        |problem, plan| {
            problem.hosts.push(host("r0-n3", "zone=a rack=0", 2, 0));
            plan.places[2].node = "r0-n3".into();
            plan.places[3].node = "r0-n3".into();
        },
        &["NotAlone"],
    ),
    mutant(
        "two in one rack that keep apart",
        apart_by_rack,
        |_, plan| plan.places[1].node = "r0-n1".into(),
        &["NotApart"],
    ),
    mutant("a gang in two exclusive racks", exclusive, |_, plan| plan.places[1].node = "r1-n0".into(), &["NotAlone"]),
    mutant(
        "a stranger in an exclusive rack",
        exclusive_slices,
        |problem, _| {
            usage(problem, "r0-n2", |usage| usage.requested.set(GPU, 1));
        },
        &["DomainShared"],
    ),
    mutant(
        "members that cannot tell whether they are alone",
        exclusive,
        |problem, _| {
            problem.gang.roles[0].shape.requests.set(GPU, 0);
        },
        &["DomainShared"],
    ),
];

#[test]
fn every_rule_of_the_checker_catches_a_mutant_and_nothing_else_does() {
    let spread = Policy { placement: Placement::Locality, elastic: Elastic::Spread };
    let mut caught: BTreeSet<&str> = BTreeSet::new();
    for Mutant { what, sound, change, rules } in MUTANTS {
        let mut problem = sound();
        let (mut plan, report) = plan_with_policy(&problem, &spread);
        assert_eq!(report.refusal, None, "{what}");
        change(&mut problem, &mut plan);
        let notes = check::check(&problem, &plan);
        let found: BTreeSet<&str> = notes.iter().map(|note| rule(&note.finding)).collect();
        assert_eq!(found, rules.iter().copied().collect(), "{what}: {notes:?}, {:?}", plan.places);
        assert!(notes.iter().all(|note| note.severity == note.finding.severity() && !note.to_string().is_empty()));
        let harmless = ["RankSkipped", "RanksApart"];
        let fatal = notes.iter().any(|note| note.severity == Severity::Fatal);
        assert_eq!(fatal, found.iter().any(|rule| !harmless.contains(rule)), "{what}");
        caught.extend(found);
    }
    assert_eq!(caught, RULES.iter().copied().collect(), "every rule has a mutant");
}

#[test]
fn an_empty_plan_is_always_sound() {
    for Mutant { what, sound, .. } in MUTANTS {
        let problem = sound();
        let (mut plan, _) = plan_with_policy(&problem, &Policy::default());
        plan.places.clear();
        assert_eq!(check::check(&problem, &plan), Vec::new(), "{what}");
    }
}
