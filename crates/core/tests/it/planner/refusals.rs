//! Every kind of refusal by its words, with the smallest change: making it makes the gang fit, and less does not.

use std::sync::Arc;

use muster_core::model::node::{GANG_PENDING, Taint, TaintEffect};
use muster_core::model::pod::{HostPort, Operator, Requirement, SelectorTerm, Shape};
use muster_core::model::resources::Resources;
use muster_core::planner::plan::{Change, Host, Policy, Problem, SliceTopologyRequest};

use super::build::{GPU, host, levels, plan, problem, role};
use super::change;

/// A refusal as a person reads it.
struct Kind {
    what: &'static str,
    refused: fn() -> Problem,
    text: &'static str,
    cure: Cure,
}

/// What makes the gang fit.
enum Cure {
    /// Each of the changes that the refusal names, of these kinds; [`change::check`] makes them, and smaller ones.
    Changes(&'static [&'static str]),
    /// Nothing that a person could change about the gang: what has to happen instead.
    Wait(fn(&mut Problem)),
}

use Cure::{Changes, Wait};

const RACK: Option<usize> = Some(1);

/// Racks of hosts in one zone: `sizes[i]` hosts in rack `i`.
fn racks(sizes: &[usize], gpus: i64) -> Vec<Host> {
    let rack = |(rack, size): (usize, &usize)| {
        (0..*size).map(move |index| host(&format!("r{rack}-n{index}"), &format!("zone=a rack={rack}"), gpus, 0))
    };
    sizes.iter().enumerate().flat_map(rack).collect()
}

fn gang(sizes: &[usize], gpus: i64, members: u32, required: Option<usize>) -> Problem {
    problem(levels(&["zone", "rack"]), racks(sizes, gpus), members, required)
}

/// Two of three hosts have enough of everything but one resource.
fn short_of(resource: &str, each: i64, there: i64) -> Problem {
    let mut gang = gang(&[3], 8, 2, Some(0));
    gang.gang.roles[0].shape.requests.set(resource, each);
    for host in &mut gang.hosts {
        Arc::make_mut(&mut host.node).allocatable.set(resource, there);
    }
    Arc::make_mut(&mut gang.hosts[0].node).allocatable.set(resource, each);
    gang
}

fn nodes(problem: &mut Problem, change: impl Fn(&mut Host)) {
    problem.hosts.iter_mut().skip(1).for_each(change);
}

fn taint(host: &mut Host, key: &str, value: &str) {
    let taint = Taint { key: key.into(), value: value.into(), effect: TaintEffect::NoSchedule };
    Arc::make_mut(&mut host.node).taints.push(taint);
}

fn port() -> HostPort {
    HostPort { ip: "".into(), protocol: "TCP".into(), port: 29500 }
}

fn sliced(sizes: &[usize], members: u32, size: u32, level: usize) -> Problem {
    let mut gang = gang(sizes, 1, members, Some(0));
    gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size, level }];
    gang
}

/// A leader that needs cores beside workers that need accelerators.
fn pair(cores: i64, workers: u32, sizes: &[usize]) -> Problem {
    let mut gang = gang(sizes, 2, 0, RACK);
    let mut leader = role("leader", 1, 1);
    leader.shape = Shape { requests: Resources::from_iter([("cpu", 4), ("pods", 1)]), ..Shape::default() };
    gang.gang.roles = vec![leader, role("worker", workers as usize, workers)];
    for host in &mut gang.hosts {
        Arc::make_mut(&mut host.node).allocatable.set("cpu", cores);
    }
    gang
}

const fn kind(what: &'static str, refused: fn() -> Problem, text: &'static str, cure: Cure) -> Kind {
    Kind { what, refused, text, cure }
}

const KINDS: &[Kind] = &[
    kind(
        "too few nodes",
        || gang(&[2, 1], 1, 5, None),
        "needs capacity for 5 members; all nodes together have capacity for 3; would fit with capacity for 2 more",
        Changes(&["change: capacity"]),
    ),
    kind(
        "no node at all",
        || gang(&[], 1, 2, Some(0)),
        "needs capacity for 2 members in one zone; no node has a label for that level; would fit with capacity \
         for 2 more in a new zone",
        Changes(&["change: capacity"]),
    ),
    kind(
        "enough in the zone, not in one rack",
        || gang(&[3, 2], 1, 4, RACK),
        "needs capacity for 4 members in one rack; the best, a/0, has capacity for 3; would fit if only one zone were required: a has capacity for 5, or with capacity for 1 more in rack a/0",
        Changes(&["change: capacity", "change: widen"]),
    ),
    kind(
        "no node has the label of the level",
        || problem(levels(&["zone", "rack"]), vec![host("n", "zone=a", 2, 0)], 2, RACK),
        "needs capacity for 2 members in one rack; no node has a label for that level: 1 node without a label for rack; would fit if only one zone were required: a has capacity for 2, or with capacity for 2 more in a new rack",
        Changes(&["change: capacity", "change: widen"]),
    ),
    kind(
        "accelerators in use",
        || {
            let mut gang = gang(&[3], 1, 3, Some(0));
            nodes(&mut gang, |host| Arc::make_mut(&mut host.usage).requested.set(GPU, 1));
            gang
        },
        "needs capacity for 3 members in one zone; the best, a, has capacity for 1: 2 nodes insufficient nvidia.com/gpu; would fit \
         with capacity for 2 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "short of cpu",
        || short_of("cpu", 4_000, 3_999),
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes insufficient cpu; would fit with capacity \
         for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "short of memory",
        || short_of("memory", 1 << 30, 1 << 29),
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes insufficient memory; would fit with \
         capacity for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "short of pods",
        || short_of("pods", 1, 0),
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes insufficient pods; would fit with capacity \
         for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "short of ephemeral storage",
        || short_of("ephemeral-storage", 10, 1),
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes insufficient ephemeral-storage; would \
         fit with capacity for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "short of interfaces",
        || short_of("vpc.amazonaws.com/efa", 4, 1),
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes insufficient vpc.amazonaws.com/efa; \
         would fit with capacity for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "a taint",
        || {
            let mut gang = gang(&[3], 1, 2, Some(0));
            nodes(&mut gang, |host| taint(host, "team", "b"));
            gang
        },
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes untolerated taint team=b:NoSchedule; \
         would fit with capacity for 1 more in zone a, or with taint team=b:NoSchedule tolerated",
        Changes(&["change: capacity", "change: tolerate"]),
    ),
    kind(
        "nodes held for another gang",
        || {
            let mut gang = gang(&[3], 1, 2, Some(0));
            nodes(&mut gang, |host| taint(host, GANG_PENDING, "u-1"));
            gang
        },
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes held for another gang; \
         would fit with capacity for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "two taints",
        || {
            let mut gang = gang(&[2], 1, 2, Some(0));
            nodes(&mut gang, |host| {
                taint(host, "team", "b");
                taint(host, "spot", "");
            });
            gang
        },
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 1 node untolerated taint team=b:NoSchedule; \
         would fit with capacity for 1 more in zone a, or with taints spot:NoSchedule and team=b:NoSchedule \
         tolerated",
        Changes(&["change: capacity", "change: tolerate several taints"]),
    ),
    kind(
        "a node selector that matches nothing",
        || {
            let mut gang = gang(&[2], 1, 2, Some(0));
            gang.gang.roles[0].shape.node_selector.insert("disk".into(), "nvme".into());
            gang
        },
        "needs capacity for 2 members in one zone; no zone has capacity for any of them: 2 nodes node selector or affinity does not \
         match; would fit with capacity for 2 more in zone a, or with no node selector or affinity",
        Changes(&["change: capacity", "change: unselect"]),
    ),
    kind(
        "a node affinity that one node matches",
        || {
            let mut gang = gang(&[3], 1, 2, Some(0));
            let asked = Requirement { key: "disk".into(), operator: Operator::In, values: vec!["nvme".into()] };
            let term = SelectorTerm { expressions: vec![asked], fields: Vec::new() };
            Arc::make_mut(&mut gang.hosts[1].node).labels.insert("disk".into(), "nvme".into());
            gang.gang.roles[0].shape.node_affinity = Some(vec![term]);
            gang
        },
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes node selector or affinity does not \
         match; would fit with capacity for 1 more in zone a, or with no node selector or affinity",
        Changes(&["change: capacity", "change: unselect"]),
    ),
    kind(
        "cordoned nodes",
        || {
            let mut gang = gang(&[4], 1, 3, Some(0));
            nodes(&mut gang, |host| Arc::make_mut(&mut host.node).unschedulable = true);
            gang
        },
        "needs capacity for 3 members in one zone; the best, a, has capacity for 1: 3 nodes cordoned; would fit with capacity for 2 \
         more in zone a, or with 2 nodes uncordoned",
        Changes(&["change: capacity", "change: nodes uncordoned"]),
    ),
    kind(
        "nodes that have not joined yet",
        || {
            let mut gang = gang(&[4], 2, 5, Some(0));
            nodes(&mut gang, |host| Arc::make_mut(&mut host.node).ready = false);
            gang
        },
        "needs capacity for 5 members in one zone; the best, a, has capacity for 2: 3 nodes not ready; would fit with capacity for 3 \
         more in zone a, or with 2 more nodes ready",
        Changes(&["change: capacity", "change: nodes ready"]),
    ),
    kind(
        "more members that keep apart than nodes",
        || {
            let mut gang = gang(&[2], 8, 3, Some(0));
            gang.gang.roles[0].shape.one_per_node = true;
            gang
        },
        "needs capacity for 3 members in one zone; the best, a, has capacity for 2; would fit with capacity for 1 more in zone a",
        Changes(&["change: capacity"]),
    ),
    kind(
        "members that keep apart in one node",
        || {
            let mut gang = gang(&[2], 8, 2, Some(2));
            gang.gang.roles[0].shape.one_per_node = true;
            gang
        },
        "needs capacity for 2 members in one host; the best, a/0/r0-n0, has capacity for 1; would fit if only one rack were required: a/0 has capacity for 2",
        Changes(&["change: widen"]),
    ),
    kind(
        "pods of the same kind stand there",
        || {
            let mut gang = gang(&[3], 8, 2, Some(0));
            gang.gang.roles[0].shape.one_per_node = true;
            nodes(&mut gang, |host| Arc::make_mut(&mut host.usage).own_shape_pods = 1);
            gang
        },
        "needs capacity for 2 members in one zone; the best, a, has capacity for 1: 2 nodes taken by a pod that the members keep apart from; \
         would fit with capacity for 1 more in zone a, or with 1 node free of pods that keep the members away",
        Changes(&["change: capacity", "change: nodes free of the kind"]),
    ),
    kind(
        "a host port in use",
        || {
            let mut gang = gang(&[4], 8, 3, Some(0));
            gang.gang.roles[0].shape.ports.push(port());
            nodes(&mut gang, |host| Arc::make_mut(&mut host.usage).ports.push(port()));
            gang
        },
        "needs capacity for 3 members in one zone; the best, a, has capacity for 1: 3 nodes host port taken; would fit with capacity \
         for 2 more in zone a, or with the host port free on 2 nodes",
        Changes(&["change: capacity", "change: nodes with a free port"]),
    ),
    kind(
        "slices that no rack holds",
        || sliced(&[3, 1], 4, 2, 1),
        "needs capacity for 4 members in one zone; the best, a, has capacity for 2 in whole slices of 2; would fit with capacity for 1 more in \
         rack a/0, or with slices inside one zone each, or with no slices",
        Changes(&["change: capacity", "change: widen slices", "change: unslice"]),
    ),
    kind(
        "slices inside nodes",
        || sliced(&[2, 2], 4, 2, 2),
        "needs capacity for 4 members in one zone; no zone has capacity for any of them; would fit with capacity for 1 more in host \
         a/0/r0-n0 and 1 more in host a/0/r0-n1, or with slices inside one rack each, or with no slices",
        Changes(&["change: capacity in several domains", "change: widen slices", "change: unslice"]),
    ),
    kind(
        "nested slices",
        || {
            let mut gang = sliced(&[3, 3], 4, 4, 1);
            gang.gang.topology_requests.slices.push(SliceTopologyRequest { size: 2, level: 1 });
            gang
        },
        "needs capacity for 4 members in one zone; no zone has capacity for any of them; would fit with no slices",
        Changes(&["change: unslice"]),
    ),
    kind(
        "slices inside the required rack",
        || {
            let mut gang = problem(levels(&["zone", "rack"]), racks(&[2], 3), 4, RACK);
            gang.hosts[1] = host("r0-n1", "zone=a rack=0", 1, 0);
            gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size: 2, level: 2 }];
            gang
        },
        "needs capacity for 4 members in one rack; the best, a/0, has capacity for 2 in whole slices of 2; would fit with capacity for 1 \
         more in host a/0/r0-n0, or with slices inside one rack each, or with no slices",
        Changes(&["change: capacity", "change: widen slices", "change: unslice"]),
    ),
    kind(
        "others in every rack that is to be exclusive",
        || {
            let mut gang = problem(levels(&["zone", "rack"]), racks(&[2, 2], 2), 2, Some(0));
            for host in &mut gang.hosts {
                Arc::make_mut(&mut host.usage).requested.set(GPU, 1);
            }
            gang.gang.topology_requests.exclusive = RACK;
            gang
        },
        "needs capacity for 2 members in one rack; no rack has capacity for any of them: 4 nodes in a domain that cannot be the \
         gang's alone; would fit with others in its domain",
        Changes(&["change: share"]),
    ),
    kind(
        "more exclusive slices than racks",
        || {
            let mut gang = sliced(&[4, 4], 6, 2, 1);
            gang.gang.topology_requests.exclusive = RACK;
            gang
        },
        "needs capacity for 6 members in one zone; the best, a, has capacity for 4 in whole slices of 2; would fit with others in its domain",
        Changes(&["change: share"]),
    ),
    kind(
        "an elastic gang below its minimum",
        || {
            let mut gang = gang(&[3, 2], 1, 8, RACK);
            gang.gang.roles[0].min = 5;
            gang
        },
        "needs capacity for 5 members in one rack; the best, a/0, has capacity for 3; would fit if only one zone were required: a has capacity for 5, or with capacity for 2 more in rack a/0, or with a minimum of 3",
        Changes(&["change: capacity", "change: widen", "change: minimum"]),
    ),
    kind(
        "a leader beside workers",
        || pair(3, 3, &[2]),
        "needs capacity for 4 members in one rack; the best, a/0, has capacity for 3; would fit with capacity for 1 more of role \
         leader in rack a/0",
        Changes(&["change: capacity"]),
    ),
    kind(
        "workers beside a leader",
        || pair(4, 6, &[2]),
        "needs capacity for 7 members in one rack; the best, a/0, has capacity for 5; would fit with capacity for 2 more of role \
         worker in rack a/0",
        Changes(&["change: capacity"]),
    ),
    kind(
        "workers in two racks",
        || pair(4, 6, &[2, 2]),
        "needs capacity for 7 members in one rack; the best, a/0, has capacity for 5; would fit if only one zone were required: a has capacity for 7, or with capacity for 2 more of role worker in rack a/0",
        Changes(&["change: capacity", "change: widen"]),
    ),
    kind(
        "the rack of a running member is full",
        || {
            let mut gang = gang(&[2, 4], 1, 3, RACK);
            gang.gang.roles[0].places[0].bound = Some("r0-n0".into());
            Arc::make_mut(&mut gang.hosts[0].usage).requested.set(GPU, 1);
            gang
        },
        "needs capacity for 2 more members beside 1 bound in one rack; the best, a/0, has capacity for 1: 1 node insufficient \
         nvidia.com/gpu; would fit if only one zone were required: a has capacity for 5, or with capacity for 1 more in rack \
         a/0",
        Changes(&["change: capacity", "change: widen"]),
    ),
    kind(
        "members run in two racks",
        || {
            let mut gang = gang(&[2, 4], 1, 3, RACK);
            for (place, (node, host)) in [("r0-n0", 0), ("r1-n0", 2)].into_iter().enumerate() {
                gang.gang.roles[0].places[place].bound = Some(node.into());
                Arc::make_mut(&mut gang.hosts[host].usage).requested.set(GPU, 1);
            }
            gang
        },
        "a member is bound to node r1-n0, outside rack a/0, where the others are; would fit with only one zone required",
        Changes(&["change: widen"]),
    ),
    kind(
        "a member runs on a node that is gone",
        || {
            let mut gang = gang(&[4], 1, 3, RACK);
            gang.gang.roles[0].places[0].bound = Some("lost".into());
            gang
        },
        "a member is bound to node lost, outside the domain the gang requires",
        Wait(|gang| gang.hosts.push(host("lost", "zone=a rack=0", 1, 1))),
    ),
    kind(
        "a constraint that is not supported",
        || {
            let mut gang = gang(&[2], 1, 2, Some(0));
            gang.gang.roles[0].shape.unsupported.push("resourceClaims".into());
            gang
        },
        "the members carry a constraint that is not supported: resourceClaims; would fit with pods without \
         resourceClaims",
        Changes(&["change: remove"]),
    ),
    kind(
        "a volume in another zone",
        || {
            let mut gang = gang(&[2], 1, 2, Some(0));
            gang.gang.roles[0].name = "worker".into();
            gang.gang.roles[0].shape.unsupported.push("volume data".into());
            gang
        },
        "role worker carries a constraint that is not supported: volume data; would fit with pods without \
         volume data",
        Changes(&["change: remove"]),
    ),
    kind(
        "an exclusive rack without accelerators",
        || {
            let mut gang = gang(&[2], 1, 2, Some(0));
            gang.gang.roles[0].shape.requests.set(GPU, 0);
            gang.gang.topology_requests.exclusive = RACK;
            gang
        },
        "the members carry a constraint that is not supported: an exclusive domain for members that request no \
         accelerator; would fit with others in its domain",
        Changes(&["change: share"]),
    ),
    kind(
        "three shapes and balance",
        || {
            let mut gang = pair(8, 2, &[2]);
            gang.gang.roles.push(role("other", 1, 1));
            gang.gang.roles[2].shape.requests.set("cpu", 1);
            gang.gang.topology_requests.balance = RACK;
            gang
        },
        "the members have 3 different shapes: slices, an exclusive domain and balance need members of one shape; \
         would fit with no balance",
        Changes(&["change: unbalance"]),
    ),
    kind(
        "more shapes than are planned together",
        || {
            let mut gang = pair(8, 2, &[2]);
            gang.gang.roles.extend((0..15).map(|index| role(&format!("other{index}"), 1, 1)));
            for (index, role) in gang.gang.roles[2..].iter_mut().enumerate() {
                let (key, value) = (format!("taint-{index}").into(), "".into());
                let tolerations = vec![muster_core::model::pod::Toleration { key, exists: true, value, effect: None }];
                role.shape = Shape { tolerations, ..Shape::default() };
            }
            gang
        },
        "the members have 17 different shapes, more than 16; would fit with the template of role leader for role other14",
        Changes(&["change: same template"]),
    ),
    kind(
        "a minimum above the size",
        || {
            let mut gang = gang(&[4], 1, 2, Some(0));
            gang.gang.roles[0].min = 3;
            gang
        },
        "needs at least 3 members but has 2; would fit with a minimum of 2",
        Changes(&["change: minimum"]),
    ),
    kind(
        "slices that do not divide",
        || sliced(&[4], 4, 3, 1),
        "slices of 3 do not divide 4 members; would fit with slices of 2 instead of 3, or with no slices",
        Changes(&["change: slice size", "change: unslice"]),
    ),
    kind(
        "fine slices above coarse ones",
        || {
            let mut gang = sliced(&[4], 4, 4, 1);
            gang.gang.topology_requests.slices.push(SliceTopologyRequest { size: 2, level: 0 });
            gang
        },
        "slices of 2 are asked for at a level above that of the slices they are part of; would fit with slices of \
         2 inside one rack each, or with no slices",
        Changes(&["change: narrow slices", "change: unslice"]),
    ),
    kind(
        "slices across elastic roles",
        || {
            let mut gang = sliced(&[4], 0, 2, 1);
            gang.gang.roles = vec![role("a", 2, 1), role("b", 2, 2)];
            gang
        },
        "slices of 2 cannot cut several roles while one of them is elastic; would fit with a minimum of \
         2 of role a, or with no slices",
        Changes(&["change: minimum", "change: unslice"]),
    ),
    kind(
        "an unknown level",
        || gang(&[2], 1, 2, Some(7)),
        "the topology request names a level that topology.levels does not have; would fit with only one rack required",
        Changes(&["change: widen"]),
    ),
];

#[test]
fn every_kind_of_refusal_has_its_words_and_the_smallest_change_that_helps() {
    let mut wrong = Vec::new();
    for Kind { what, refused, text, cure } in KINDS {
        let problem = refused();
        let refusal = plan(&problem).1.refusal.unwrap_or_else(|| panic!("{what}: fits"));
        if refusal.to_string() != *text {
            wrong.push(format!("{what}:\n{refusal}"));
        }
        let changes: &[Change] = refusal.changes();
        match cure {
            Changes(kinds) => {
                let found = change::check(&problem, &Policy::default(), changes);
                if found != *kinds {
                    wrong.push(format!("{what}: {found:?} {changes:?}"));
                }
            }
            Wait(fix) => {
                assert_eq!(changes, [], "{what}");
                let mut fixed = problem.clone();
                fix(&mut fixed);
                let refusal = plan(&fixed).1.refusal;
                assert!(refusal.is_none(), "{what}: {refusal:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
