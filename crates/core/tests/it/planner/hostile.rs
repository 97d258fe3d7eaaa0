//! Sizes and numbers nobody should send: an answer or a refusal, within bounded work, and no panic.

use std::sync::Arc;

use muster_core::model::names::NodeName;
use muster_core::model::resources::Resources;
use muster_core::planner;
use muster_core::planner::check;
use muster_core::planner::plan::{
    Elastic, Host, Placement, Policy, Problem, Refusal, SliceFault, SliceTopologyRequest, TopologyRequests,
};
use muster_core::topology::{Level, Levels, LevelsError};

use super::build::{GPU, bare, host, levels, nodes, plan, plan_with_policy, problem, role};

const EXTREMES: [i64; 7] = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];

fn policies() -> impl Iterator<Item = Policy> {
    [Placement::Locality, Placement::Packing].into_iter().flat_map(|placement| {
        [Elastic::Inside, Elastic::Spread].into_iter().map(move |elastic| Policy { placement, elastic })
    })
}

/// `racks` racks of `size` hosts each, with as many accelerators as `gpus` says of the host's number.
fn cluster(racks: usize, size: usize, gpus: impl Fn(usize) -> i64) -> Vec<Host> {
    let name = |index: usize| (format!("n{index}"), format!("zone=a rack={}", index / size));
    (0..racks * size)
        .map(|index| (name(index), gpus(index)))
        .map(|((n, labels), gpus)| host(&n, &labels, gpus, 0))
        .collect()
}

#[test]
fn extreme_amounts_of_everything_are_answered() {
    for allocatable in EXTREMES {
        for used in EXTREMES {
            for request in EXTREMES {
                let hosts = vec![host("a", "zone=a rack=1", 1, 0), host("b", "zone=a rack=1", allocatable, used)];
                let mut gang = problem(levels(&["zone", "rack"]), hosts, 3, Some(1));
                gang.gang.roles[0].shape.requests.set(GPU, request);
                gang.gang.roles[0].min = 1;
                let mut leader = role("leader", 1, 1);
                leader.shape.requests = Resources::from_iter([("cpu", request), (GPU, request)]);
                let mut pair = gang.clone();
                pair.gang.roles.insert(0, leader);
                let mut third = role("third", 1, 1);
                third.shape.requests = Resources::from_iter([("memory", request), (GPU, 1)]);
                let mut mix = pair.clone();
                mix.gang.roles.push(third);
                for policy in policies() {
                    for gang in [&gang, &pair, &mix] {
                        let (plan, report) = plan_with_policy(gang, &policy);
                        // The text must not panic either.
                        assert!(
                            plan.places.is_empty()
                                == report.refusal.is_some_and(|refusal| !refusal.to_string().is_empty())
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn nodes_with_more_slots_than_can_be_counted_hold_what_is_asked() {
    let mut hosts = cluster(20, 10, |_| i64::MAX);
    for host in &mut hosts {
        Arc::make_mut(&mut host.node).allocatable.set("pods", i64::MAX);
    }
    let deep: Vec<Level> =
        (0..15).map(|n| Level { name: format!("l{n}").into(), key: format!("test/l{n}").into() }).collect();
    for levels in [levels(&["zone", "rack"]), Levels::new(deep).unwrap()] {
        let gang = problem(levels, hosts.clone(), 500, None);
        for policy in policies() {
            let (plan, _) = plan_with_policy(&gang, &policy);
            assert_eq!(nodes(&plan), vec![nodes(&plan)[0]; 500], "all on one node");
        }
    }
}

#[test]
fn a_gang_of_five_thousand_is_placed_with_every_topology_request() {
    let hosts = cluster(50, 100, |index| i64::try_from(index * index % 5).unwrap());
    let gang = problem(levels(&["zone", "rack"]), hosts, 5_000, Some(0));
    type TopologyRequest = fn(&mut Problem);
    let topology_requests: [(&str, TopologyRequest); 6] = [
        ("none", |_| {}),
        ("no cap", |gang| gang.gang.topology_requests.required = None),
        ("elastic", |gang| gang.gang.roles[0].min = 1),
        ("slices", |gang| gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size: 50, level: 1 }]),
        ("exclusive slices", |gang| {
            gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size: 100, level: 1 }];
            gang.gang.topology_requests.exclusive = Some(1);
        }),
        ("balance", |gang| gang.gang.topology_requests.balance = Some(1)),
    ];
    for (what, topology_request) in topology_requests {
        let mut gang = gang.clone();
        topology_request(&mut gang);
        let (plan, report) = plan(&gang);
        assert_eq!((plan.places.is_empty(), report.refusal), (false, None), "{what}");
        assert!(report.work.cells < 50_000_000, "{what}: {:?}", report.work);
    }
}

#[test]
fn balance_on_an_irregular_fabric_is_found_in_bounded_work() {
    // Racks of 1 to 89 hosts: no even share fits them.
    let mut hosts = Vec::new();
    for rack in 0..60 {
        let labels = format!("zone=a rack={rack}");
        hosts.extend((0..1 + rack * 37 % 90).map(|index| host(&format!("r{rack}-n{index}"), &labels, 1, 0)));
    }
    let members = u32::try_from(hosts.len() * 9 / 10).unwrap();
    let mut gang = problem(levels(&["zone", "rack"]), hosts, members, Some(0));
    gang.gang.topology_requests.balance = Some(1);
    for policy in policies() {
        let (plan, report) = plan_with_policy(&gang, &policy);
        assert_eq!(plan.places.len(), members as usize);
        // Trying every window takes ten times as many.
        assert!(report.work.cells < 200_000_000, "{policy:?} {:?}", report.work);
    }
}

#[test]
fn a_hundred_thousand_nodes_are_planned_and_refused_on() {
    let mut hosts = cluster(1_000, 100, |index| i64::try_from(index % 9).unwrap());
    for (index, host) in hosts.iter_mut().enumerate().filter(|(index, _)| index % 7 == 0) {
        Arc::make_mut(&mut host.node).unschedulable = index % 2 == 0;
        Arc::make_mut(&mut host.node).ready = index % 3 == 0;
    }
    let mut gang = problem(levels(&["zone", "rack"]), hosts, 1_024, Some(0));
    let (plan, report) = plan_with_policy(&gang, &Policy::default());
    assert_eq!(plan.places.len(), 1_024);
    assert!(report.work.cells < 50_000_000, "{:?}", report.work);
    gang.gang.topology_requests.required = Some(1);
    let (_, report) = plan_with_policy(&gang, &Policy::default());
    let refusal = report.refusal.unwrap().to_string();
    assert!(refusal.contains("would fit if only one zone were required") && refusal.len() < 1_000, "{refusal}");
    assert!(report.work.cells < 1_000, "a refusal merges nothing: {:?}", report.work);
}

/// Nodes of the largest cluster unless `MUSTER_HOSTILE_NODES` says otherwise.
const NODES: usize = 100_000;

#[test]
fn a_mix_of_four_shapes_on_a_hundred_thousand_nodes_is_answered_in_bounded_work() {
    let nodes = std::env::var("MUSTER_HOSTILE_NODES").map_or(NODES, |nodes| nodes.parse().unwrap());
    let mut hosts = cluster(nodes / 100, 100, |index| i64::try_from(index % 9).unwrap());
    for (index, host) in hosts.iter_mut().enumerate() {
        Arc::make_mut(&mut host.node).allocatable.set("cpu", i64::try_from(index % 61).unwrap());
    }
    let mut gang = problem(levels(&["zone", "rack"]), hosts, 0, Some(0));
    gang.gang.roles = [("head", 1, 0, 8), ("learner", 40, 8, 9), ("rollout", 300, 1, 3), ("env", 600, 0, 2)]
        .into_iter()
        .map(|(name, count, gpu, cpu)| {
            let mut role = role(name, count, u32::try_from(count).unwrap());
            role.shape.requests = Resources::from_iter([("cpu", cpu), (GPU, gpu), ("pods", 1)]);
            role
        })
        .collect();
    let (plan, report) = plan_with_policy(&gang, &Policy::default());
    assert_eq!(plan.places.len(), 941, "{:?}", report.refusal);
    assert!(report.work.cells < 200_000_000 && report.work.slots == nodes as u64, "{:?}", report.work);
    gang.gang.topology_requests.required = Some(2);
    let (_, report) = plan_with_policy(&gang, &Policy::default());
    let refusal = report.refusal.unwrap();
    assert!(matches!(refusal, Refusal::DoesNotFit(_)) && refusal.to_string().len() < 1_000, "{refusal}");
}

#[test]
fn as_many_reasons_as_nodes_make_a_short_text() {
    let mut gang = problem(levels(&["zone"]), cluster(20, 100, |_| 1), 5, Some(0));
    for (index, host) in gang.hosts.iter_mut().enumerate() {
        let node = Arc::make_mut(&mut host.node);
        node.taints.push(muster_core::model::node::Taint {
            key: format!("key-{index}").into(),
            value: "%".repeat(63).into(),
            effect: muster_core::model::node::TaintEffect::NoExecute,
        });
    }
    let text = plan(&gang).1.refusal.unwrap().to_string();
    assert!(
        text.len() < 1_000 && !text.contains('%') && text.contains("1995 nodes blocked by other reasons"),
        "{text}"
    );
}

#[test]
fn slices_of_any_size_and_level_are_refused_or_answered() {
    for size in [0, 1, 2, 3, 4, 5, u32::MAX] {
        for level in [0, 1, 2, 3, usize::MAX] {
            let mut gang = problem(levels(&["zone", "rack"]), cluster(2, 2, |_| 2), 4, Some(0));
            gang.gang.topology_requests.slices = vec![SliceTopologyRequest { size, level }];
            let refusal = plan(&gang).1.refusal;
            match (level, size) {
                (3.., _) => assert_eq!(bare(refusal), Some(Refusal::UnknownLevel { level, changes: Vec::new() })),
                (_, 1 | 2) | (..2, 4) => assert_eq!(refusal, None),
                (2, 4) => assert!(matches!(refusal, Some(Refusal::DoesNotFit(_))), "{refusal:?}"),
                _ => {
                    let fault = SliceFault::DoesNotDivide { of: 4 };
                    assert_eq!(bare(refusal), Some(Refusal::Slices { size, fault, changes: Vec::new() }));
                }
            }
        }
    }
}

#[test]
fn levels_beyond_the_tree_are_refused_whichever_topology_request_names_them() {
    let topology_request = |topology_requests: TopologyRequests| {
        let mut gang = problem(levels(&["zone"]), cluster(1, 2, |_| 1), 1, None);
        gang.gang.topology_requests = topology_requests;
        bare(plan(&gang).1.refusal)
    };
    for level in [2, 64, usize::MAX] {
        let expected = Some(Refusal::UnknownLevel { level, changes: Vec::new() });
        assert_eq!(
            topology_request(TopologyRequests { required: Some(level), ..TopologyRequests::default() }),
            expected
        );
        assert_eq!(
            topology_request(TopologyRequests { preferred: Some(level), ..TopologyRequests::default() }),
            expected
        );
        assert_eq!(
            topology_request(TopologyRequests { exclusive: Some(level), ..TopologyRequests::default() }),
            expected
        );
        assert_eq!(
            topology_request(TopologyRequests { balance: Some(level), ..TopologyRequests::default() }),
            expected
        );
    }
}

#[test]
fn trees_deeper_than_any_fabric_are_refused() {
    let deep = |count: usize| {
        let level = |index| Level { name: format!("l{index}").into(), key: format!("k{index}").into() };
        Levels::new((0..count).map(level).collect())
    };
    assert_eq!(deep(15).unwrap().len(), 16);
    for count in [16, 64, 65, 1_000] {
        assert_eq!(deep(count), Err(LevelsError::TooMany { count: count + 1 }));
    }
}

#[test]
fn empty_and_contradictory_gangs_are_answered() {
    for hosts in [Vec::new(), cluster(1, 1, |_| 0), cluster(1, 2, |_| 1)] {
        for min in [0, 1, u32::MAX] {
            for count in [0, 1] {
                for policy in policies() {
                    let mut gang = problem(levels(&["zone", "rack"]), hosts.clone(), 0, Some(1));
                    gang.gang.roles = vec![role("a", count, min), role("b", 0, 0)];
                    let (plan, report) = plan_with_policy(&gang, &policy);
                    let impossible = min as usize > count;
                    assert_eq!(impossible, matches!(report.refusal, Some(Refusal::MinimumAboveCount { .. })));
                    assert!(plan.places.len() <= count);
                    gang.gang.roles.clear();
                    assert_eq!(plan_with_policy(&gang, &policy).1.refusal, None, "nothing is asked for");
                }
            }
        }
    }
}

#[test]
fn a_thousand_shapes_and_roles_are_refused_at_once() {
    let mut gang = problem(levels(&["zone"]), cluster(1, 10, |_| 1), 0, None);
    gang.gang.roles = (0..1_000).map(|index| role(&format!("r{index}"), 1, 1)).collect();
    for (index, role) in (0..).zip(&mut gang.gang.roles) {
        role.shape.requests.set("cpu", index);
    }
    assert_eq!(plan(&gang).1.refusal, Some(Refusal::MixedShapes { shapes: 1_000, changes: Vec::new() }));
}

#[test]
fn names_of_any_kind_survive() {
    let long = "x".repeat(100_000);
    let names = ["", " ", "a/b", "ünïcode-節点", "%s%n", "99999999999999999999999999", &long];
    let hosts = names.iter().map(|name| {
        let mut host = host(name, "", 1, 0);
        Arc::make_mut(&mut host.node).labels.insert("test/rack".into(), (*name).into());
        host
    });
    let mut gang = problem(levels(&["rack"]), hosts.collect(), 7, None);
    let (placed, _) = plan(&gang);
    assert_eq!(placed.places.len(), 7);
    gang.gang.roles[0].places[0].bound = Some(NodeName::from("%d"));
    let refusal = plan(&gang).1.refusal.unwrap();
    assert_eq!(refusal.to_string(), "a member is bound to node _d, outside the domain the gang requires");
    assert!(!check::check(&gang, &placed).is_empty());
    let (_, unpruned) = planner::plan_with(&gang, &Policy::default(), planner::Pruning::Off);
    assert_eq!(unpruned.refusal, Some(refusal));
}
